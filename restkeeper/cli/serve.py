"""The start of a service by `restkeeper serve` and `python app.py`: gunicorn with the settings of a deployment."""

import errno
import os
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from gunicorn.app.base import BaseApplication

from restkeeper.cli.loading import load_application, python_path
from restkeeper.config import Config, ConfigError

SETTINGS = "restkeeper.server.settings"


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    """gunicorn as a program of ours: its settings are the engine's, no file of the folder is read for them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__()

    def load_config(self) -> None:
        for name, value in vars(import_module(SETTINGS)).items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Callable[..., Any]:
        return load_application(self._folder)


@click.command("serve")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default=".")
def serve_folder(folder: Path) -> None:
    """Serve the service in FOLDER, by default the present folder.

    Only this machine can reach it, unless AUTH says otherwise. The environment configures it, as in a deployment: HOST,
    PORT, DATABASE_URL, AUTH and the others.
    """
    os.environ.setdefault("AUTH", "open")  # on this machine alone: Config sees to that
    os.environ.setdefault("WEBHOOK_WORKER", "inside")
    os.environ.setdefault("RESTKEEPER_WELCOME", "1")
    try:
        config = Config.from_env()
    except ConfigError as error:
        sys.exit(f"restkeeper: {error}")
    if "GUNICORN_FD" not in os.environ and _is_taken(config.host, config.port):  # else it is handed down (USR2)
        sys.exit(f"restkeeper: PORT='{config.port}': another program uses this port; set PORT to a free one")
    _Gunicorn(folder.resolve()).run()


def serve(folder: Path) -> None:
    """Become `restkeeper serve` for the service in `folder`: in another program, for this one has imported too much."""
    os.environ["PYTHONPATH"] = python_path()
    os.execv(sys.executable, [sys.executable, "-m", "restkeeper", "serve", str(folder)])  # noqa: S606


def _is_taken(host: str, port: int) -> bool:
    """Whether a program listens there already."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
