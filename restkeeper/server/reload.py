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
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import active_count
from typing import Any, NoReturn

from restkeeper.server.response import problem

LOOK_SECONDS = 0.25  # between two looks at the files, and between two at the state of the program
MOST_ENTRIES = 20_000  # files and folders that are looked at: it takes some 50 ms
NO_SOURCE = ("node_modules", "site-packages", "__pycache__")  # beside hidden folders, and those with a pyvenv.cfg
STOP_SECONDS = 5.0  # for the end of the program, whose requests under way have a second
MOST_ANSWERED = 50  # at the same time, while there is no program
LINGER_SECONDS = 1.0  # for each part of a request that is read on, so that the response arrives

Files = dict[str, tuple[int, int, int]]  # by path: what each save changes


class _Refusals(ThreadingTCPServer):
    """Responds to each request with 503 and the `fault`."""

    daemon_threads, block_on_close, timeout = True, False, LOOK_SECONDS
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
    timeout = LINGER_SECONDS

    def handle(self) -> None:
        sock = self.request
        if begin := sock.recv(65536):
            head, separator, content = problem(503, self.server.fault).partition(b"\r\n\r\n")  # type: ignore[attr-defined]
            sock.sendall(head + separator + (b"" if begin.startswith(b"HEAD ") else content))
            sock.shutdown(socket.SHUT_WR)
            for _ in range(100):
                if not sock.recv(65536):
                    break


def keep_serving(
    command: list[str], folder: Path, listener: socket.socket, environ: Mapping[str, str], *, loses: bool
) -> NoReturn:
    """Run a program that serves on a socket, and again after each change of a `*.py` in the folder; ends by a signal.

    The program finds the descriptors in its environment: RESTKEEPER_FD, the socket; RESTKEEPER_FAULT, to write why it
    does not start; RESTKEEPER_LIFELINE, which closes with this process. If it `loses` its items by that, this is said.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(0))
    server, environ = _Refusals(listener), dict(environ)
    lifeline, _ = os.pipe()
    faults, fault = os.pipe()
    os.set_blocking(faults, False)
    descriptors = {"RESTKEEPER_FD": listener.fileno(), "RESTKEEPER_FAULT": fault, "RESTKEEPER_LIFELINE": lifeline}
    environ |= {name: str(descriptor) for name, descriptor in descriptors.items()}
    files = _files(folder, warns=True)
    while True:
        server.fault = ""
        program = subprocess.Popen(command, env=environ, pass_fds=[*descriptors.values()])  # noqa: S603 - our own
        try:
            while (found := _files(folder)) == files:
                if server.fault:
                    server.handle_request()  # waits for one
                elif program.poll() is None:
                    time.sleep(LOOK_SECONDS)
                else:
                    line = _read(faults) or f"the program has ended ({program.returncode}); its output says why"
                    server.fault = f"the service does not run: {line}"
                    print("restkeeper: requests get 503 until a file is saved; Ctrl-C ends it", file=sys.stderr)
        finally:
            _stop(program)
        _read(faults)
        while (later := _files(folder)) != found:  # more than one is saved, or in several parts
            found = later
            time.sleep(LOOK_SECONDS / 2)
        changed = sorted({path for path, _ in found.items() ^ files.items()})
        for path in changed:
            with suppress(OSError):  # it holds for a save of the same length in the same second, too
                os.unlink(cache_from_source(path))
        lost = ", with no items: memory:// keeps none" if loses else ""
        print(f"restkeeper: {os.path.relpath(changed[0], folder)} has changed: starts again{lost}", file=sys.stderr)
        files = found
        if not server.fault and environ["RESTKEEPER_WELCOME"] == "1":
            environ["RESTKEEPER_WELCOME"] = ""  # only its first line


def _files(folder: Path, *, warns: bool = False) -> Files:
    """The `*.py` of a folder and those in it, the upper ones first; at most MOST_ENTRIES of all files are looked at."""
    found, folders, left = Files(), deque([str(folder)]), MOST_ENTRIES
    while folders and left:
        entries: list[os.DirEntry[str]] = []
        with suppress(OSError), os.scandir(here := folders.popleft()) as each:  # it was deleted at this moment
            entries = [entry for entry in each if entry.name[0] != "." and entry.name not in NO_SOURCE]
        if any(entry.name == "pyvenv.cfg" for entry in entries) and here != str(folder):
            continue
        for entry in entries[:left]:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.endswith(".py"):
                    state = entry.stat()
                    found[entry.path] = (state.st_mtime_ns, state.st_size, state.st_ino)
        left -= len(entries[:left])
    if not left and warns:
        print(f"restkeeper: {folder} has more than {MOST_ENTRIES} files: only these are watched", file=sys.stderr)
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
