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

from restkeeper.cli.main import load_application, python_path
from restkeeper.config import Config, ConfigError

SETTINGS = "restkeeper.server.settings"


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    """gunicorn with the engine's settings; no configuration file in the folder is read."""

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
    os.environ.setdefault("AUTH", "open")  # only on this machine: Config enforces that
    os.environ.setdefault("WEBHOOK_WORKER", "inside")
    os.environ.setdefault("RESTKEEPER_WELCOME", "1")
    try:
        config = Config.from_env()
    except ConfigError as error:
        sys.exit(f"restkeeper: {error}")
    if "GUNICORN_FD" not in os.environ and _is_taken(config.host, config.port):  # else the socket is inherited (USR2)
        sys.exit(f"restkeeper: PORT='{config.port}': another program uses this port; set PORT to a free one")
    _Gunicorn(folder.resolve()).run()


@click.command("harness")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default=".")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0, the default: any free port.")
@click.option("--until-eof", is_flag=True, help="End with standard input, so with the program that started it.")
def serve_harness(folder: Path, port: int, until_eof: bool) -> None:
    """Serve the test harness of the service in FOLDER, by default the present folder: see docs/testing.md.

    It prints one line with its addresses, in JSON, and ends with Ctrl-C or SIGTERM. Nothing of it stays.
    """
    os.environ["RESTKEEPER_STDOUT"] = str(os.dup(1))  # for that line alone:
    os.dup2(2, 1)  # what the service prints is an error's or a log's
    if until_eof:
        os.environ["RESTKEEPER_LIFELINE"] = str(sys.stdin.fileno())
    os.environ |= {"PORT": str(port), "HARNESS": "1", "DATABASE_URL": "memory://", "WEB_CONCURRENCY": "1"}
    defaults = {"HOST": "127.0.0.1", "RATE_LIMIT": "off", "WEBHOOK_ALLOW_PRIVATE": "1", "LOG_LEVEL": "warning"}
    os.environ |= defaults | os.environ
    serve_folder.callback(folder)  # type: ignore[misc]


def serve(folder: Path) -> None:
    """Replace this process with `restkeeper serve`: this one has imported modules that must be patched first."""
    os.environ["PYTHONPATH"] = python_path()
    os.execv(sys.executable, [sys.executable, "-m", "restkeeper", "serve", str(folder)])  # noqa: S606


def _is_taken(host: str, port: int) -> bool:
    """Whether another program listens there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
