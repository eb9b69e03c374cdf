"""The start of a service for development: gunicorn with the settings of a deployment, after a word of welcome."""

import errno
import os
import socket
import sys
from pathlib import Path

from restkeeper.config import Config, ConfigError


def serve(folder: Path) -> None:
    """Serve the application that `app.py` in `folder` makes, on this machine alone unless the environment says else.

    This process becomes gunicorn's. What is wrong with the configuration ends it with one line.
    """
    os.environ.setdefault("AUTH", "open")  # on this machine alone: Config sees to that
    os.environ.setdefault("WEBHOOK_WORKER", "inside")
    try:
        config = Config.from_env()
    except ConfigError as error:
        sys.exit(f"restkeeper: {error}")
    if _is_taken(config.host, config.port):
        sys.exit(f"restkeeper: PORT='{config.port}': another program listens there; set PORT to a free one")
    base = f"http://{config.host}:{config.port}"
    print(f"""\
Restkeeper serves at {base}

  docs        {base}/docs
  data        {config.database_url}
  first call  curl {base}/products -H 'Content-Type: application/json' -d '{{"name": "Desk lamp", "price": 49.90}}'

Stop it with Ctrl-C.
""")
    sys.stdout.flush()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder.resolve()), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "gunicorn", "--config", "python:restkeeper.server.settings"]
    os.execv(sys.executable, command)  # noqa: S606 - anew, for gevent must come before what is imported here


def _is_taken(host: str, port: int) -> bool:
    """Whether a program listens there already."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
