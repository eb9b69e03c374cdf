"""Ends a PostgreSQL of the tests, and deletes its folder, when no process uses it any more: python THIS FOLDER.

Each process that uses the server has a shared lock on the file `users` in its folder. The kernel releases the lock
when the process ends, also if it is killed. So no server is left, and none ends while a test needs it.
"""

import fcntl
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

STOP_SECONDS = 10.0


def processes(data: Path) -> list[int]:
    """The processes of the server on a data folder, which is the working directory of each."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended, or belongs to somebody else
            if entry.name.isdecimal() and os.readlink(entry / "cwd") == str(data):
                found.append(int(entry.name))
    return found


def send(signal_number: int, pids: list[int]) -> None:
    """Send a signal to processes; those that have ended are left out."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal_number)


def postmaster(data: Path) -> int:
    """The first process of a server, which starts the others."""
    return int((data / "postmaster.pid").read_text().split()[0])


def end(data: Path) -> None:
    """End a server: at once, but so that it removes its shared memory; after STOP_SECONDS by force."""
    send(signal.SIGCONT, processes(data))
    with suppress(FileNotFoundError):  # it does not run
        send(signal.SIGQUIT, [postmaster(data)])
    deadline = time.monotonic() + STOP_SECONDS
    while (left := processes(data)) and time.monotonic() < deadline:
        time.sleep(0.02)
    send(signal.SIGKILL, left)


def main(folder: Path) -> None:
    with (folder / "users").open() as users:
        fcntl.flock(users, fcntl.LOCK_EX)  # waits for the end of all users
        end(folder / "data")
        shutil.rmtree(folder, ignore_errors=True)  # a process that was killed just now may still delete a file


if __name__ == "__main__" and not os.fork():  # nobody waits for it
    main(Path(sys.argv[1]))
