"""`restkeeper serve` in development: the program is started again after each save, behind a socket that stays open.

This process keeps the socket, looks at the files, and runs the program as a child; it imports nothing of the service.
While the program does not start, it responds itself: 503, with what is wrong.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread, active_count
from typing import Any, NoReturn

from restkeeper.server.response import problem

LOOK_SECONDS = 0.2  # between two looks at the files and at the state of the program
NO_SOURCE = ("node_modules", "site-packages", "__pycache__")  # beside hidden folders
STOP_SECONDS = 5.0  # for the end of the program, whose requests under way have a second
MOST_ANSWERED = 50  # at the same time, while there is no program
READ_SECONDS = 1.0  # for which a client can be silent


class _Refusals(ThreadingTCPServer):
    """Responds to each request with 503 and the `fault`."""

    daemon_threads, block_on_close = True, False
    fault = ""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(listener.getsockname(), _Refusal, bind_and_activate=False)
        self.socket.close()
        self.socket = listener

    def process_request(self, request: Any, client_address: Any) -> None:
        if active_count() > MOST_ANSWERED:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client has left."""


class _Refusal(StreamRequestHandler):
    timeout = READ_SECONDS

    def handle(self) -> None:
        sock = self.request
        if begin := sock.recv(65536):
            head, separator, content = problem(503, self.server.fault).partition(b"\r\n\r\n")  # type: ignore[attr-defined]
            sock.sendall(head + separator + (b"" if begin.startswith(b"HEAD ") else content))


def keep_serving(command: list[str], folder: Path, listener: socket.socket, environ: Mapping[str, str]) -> NoReturn:
    """Run a program that serves on a socket, and again after each change of a `*.py` in the folder; ends by a signal.

    The program finds the descriptors in its environment: RESTKEEPER_FD, the socket; RESTKEEPER_FAULT, to write why it
    does not start; RESTKEEPER_LIFELINE, which closes with this process.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(0))
    server, environ = _Refusals(listener), dict(environ)
    lifeline, _ = os.pipe()
    faults, fault = os.pipe()
    os.set_blocking(faults, False)
    descriptors = {"RESTKEEPER_FD": listener.fileno(), "RESTKEEPER_FAULT": fault, "RESTKEEPER_LIFELINE": lifeline}
    environ |= {name: str(descriptor) for name, descriptor in descriptors.items()}
    environ["PYTHONDONTWRITEBYTECODE"] = "1"  # a save of the same length in the same second has the same one

    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(command, env=environ, pass_fds=[*descriptors.values()])  # noqa: S603 - our own

    program, sources = None, _sources(folder)
    try:
        program = start()
        while True:
            time.sleep(LOOK_SECONDS)
            former, sources = sources, _sources(folder)
            if changes := former.items() ^ sources.items():
                _stop(program)
                _read(faults)
                changed = os.path.relpath(min(path for path, _ in changes), folder)
                print(f"restkeeper: {changed} has changed: starts again", file=sys.stderr)
                if server.fault:
                    server.shutdown()
                elif environ["RESTKEEPER_WELCOME"] == "1":
                    environ["RESTKEEPER_WELCOME"] = ""  # only its first line
                server.fault, program = "", start()
            elif not server.fault and program.poll() is not None:
                line = _read(faults)
                if not line and program.returncode == 1:  # it has said what is wrong with a setting: no save mends that
                    sys.exit(1)
                line = line or f"the program has ended ({program.returncode}); its output says why"
                server.fault = f"the service does not run: {line}"
                print("restkeeper: requests get 503 until a file is saved; Ctrl-C ends it", file=sys.stderr)
                Thread(target=server.serve_forever, daemon=True).start()
    except KeyboardInterrupt:  # of any signal that stops this process
        pass
    finally:
        if program:
            _stop(program)
    sys.exit(0)


def _sources(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Each `*.py` in a folder, with what a save changes: the time, the size, the inode."""
    found = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in NO_SOURCE]
        for path in (os.path.join(parent, name) for name in names if name.endswith(".py")):
            with suppress(OSError):  # it is gone at this moment
                state = os.stat(path)
                found[path] = (state.st_mtime_ns, state.st_size, state.st_ino)
    return found


def _read(faults: int) -> str:
    with suppress(BlockingIOError):
        return os.read(faults, 65536).decode(errors="replace").strip()
    return ""


def _stop(program: "subprocess.Popen[bytes]") -> None:
    program.terminate()
    try:
        program.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
