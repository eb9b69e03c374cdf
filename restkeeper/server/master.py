"""gunicorn with the engine's settings, for `restkeeper serve` and `python app.py`."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

try:
    from gunicorn.app.base import BaseApplication
except ValueError:  # gunicorn reads WEB_CONCURRENCY when it is imported
    given = os.environ.get("WEB_CONCURRENCY")
    sys.exit(f"restkeeper: WEB_CONCURRENCY={given!r}: must be a whole number from 1 to 256")

SETTINGS = "restkeeper.server.settings"


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    """No configuration file in the folder is read."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load
        super().__init__()

    def load_config(self) -> None:
        for name, value in vars(import_module(SETTINGS)).items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)
        if socket_of_parent := os.environ.get("RESTKEEPER_FD"):  # see `reload`
            self.cfg.set("bind", f"fd://{socket_of_parent}")


def serve(load: Callable[[], Any]) -> None:
    """Serve the application that `load` returns, in each worker, until the process is stopped."""
    _Gunicorn(load).run()
