"""The server of a JSON file: one process without gunicorn, so that it also runs where there is no fork."""

import errno
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gevent
from gevent import monkey

from restkeeper.config import Config
from restkeeper.server.environment import read_config
from restkeeper.server.exchange import FIELDS, GRACEFUL, KEEPALIVE, LINE, Exchange, patch_with
from restkeeper.server.start import (
    END_SECONDS,
    announce,
    examine,
    parent_has_ended,
    run_beside,
    set_bounds,
    show_error,
)
from restkeeper.service import service_of
from restkeeper.web.application import Application
from restkeeper.web.observe import configure_logging

BACKLOG = 2048  # connections that wait while the program starts, as gunicorn's

Load = Callable[[Callable[[Application], None]], Application]


class Single(Exchange):
    """Serves an application on a socket until a signal; another application can take its place."""

    log = logging.getLogger("restkeeper")

    def __init__(self, config: Config, listener: socket.socket) -> None:
        super().__init__()
        self.sockets = [listener]
        self.cfg = SimpleNamespace(
            limit_request_line=LINE,
            limit_request_field_size=LINE,
            limit_request_fields=FIELDS,
            keepalive=KEEPALIVE,
            graceful_timeout=0 if config.harness else GRACEFUL,
            worker_connections=set_bounds(Single, config),
            workers=1,
        )
        self.begin()

    def notify(self) -> None:
        """Nobody looks whether this process is alive."""

    def replace(self, app: Application) -> None:
        """Serve another application from the next request on."""
        gc.unfreeze()  # the former one, which is deleted after its last request
        self.wsgi = app
        self.beside = run_beside(self, service_of(app))

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop; a second signal ends the process at once."""
        signal.signal(sig, signal.SIG_DFL)
        super().handle_exit(sig, frame)

    def end_with_parent(self, lifeline: int) -> None:
        """Stop when the process at the other end of a pipe ends."""
        if gevent.get_hub().threadpool.apply(parent_has_ended, (lifeline,)):
            self.handle_exit(signal.SIGTERM, None)


def serve(load: Load) -> None:
    """Serve the application that `load` returns until a signal. `load` gets a function that serves another one instead.

    Exits with one line if it cannot be served.
    """
    gc.disable()  # until the start is over
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)  # which is of several processes
    patch_with(monkey.patch_all)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(0))
    config = read_config()
    listener = _listener(config.host, config.port)
    server = Single(config, listener)
    try:
        app = load(server.replace)
    except Exception as error:
        show_error(error, config)
        sys.exit(1)
    server.replace(app)
    configure_logging(config.log_format, config.log_level)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)
    if lifeline := os.environ.pop("RESTKEEPER_LIFELINE", ""):  # child processes must not inherit it
        gevent.spawn(server.end_with_parent, int(lifeline))
    host, port, *_ = listener.getsockname()
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    announce(config, {url: listener.getsockname()}, config.database_url, examine(service_of(app)))
    gc.collect()
    gc.freeze()  # excludes the application from collections: a full one took 10 to 40 ms
    gc.enable()
    server.run()
    for thread in server.beside:
        thread.join(END_SECONDS)
    gc.unfreeze()  # else the end of Python can delete what is frozen after what that needs, and print an error


def _listener(host: str, port: int) -> socket.socket:
    """A socket that listens there; exits with one line if there can be none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=host == "::")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            sys.exit(f"restkeeper: PORT='{port}': another program uses this port; set --port to a free one")
        sys.exit(f"restkeeper: HOST={host!r}: {error.strerror}; must be an address of this machine")
