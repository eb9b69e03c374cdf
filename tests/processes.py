"""Processes, as /proc shows them; and the end of all that a process of the tests has started, however that ends.

`supervise` starts this file as a program, which waits for the end of the process and then ends what is its own: each
process that it started, itself or through others, in whatever session and with whatever environment. They are known by
a limit: a process has its own number as its soft limit of file locks, which every process that it starts inherits, and
/proc shows. Linux has not enforced this limit since 2.4.25.
"""

import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ENDED = ("", "Z", "X")
RLIMIT_LOCKS = 10  # of Linux; the module `resource` has no name for it
LIMIT = "Max file locks"
STOP_SECONDS = 10.0  # for PostgreSQL, to remove its shared memory


def state(pid: int) -> str:
    """The state of a process, a letter: T is stopped, Z has ended and its parent has to notice. Empty if it is gone."""
    try:
        return _columns(pid)[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def running() -> Iterator[int]:
    """The running processes of this machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and state(pid := int(entry.name)) not in _ENDED:
            yield pid


def children(pid: int) -> list[int]:
    """The running child processes of the first thread of a process."""
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in found if state(child) not in _ENDED]


def of_session(session: int) -> list[int]:
    """The running processes of a session."""
    found = []
    for pid in running():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if int(_columns(pid)[3]) == session:
                found.append(pid)
    return found


def in_folder(folder: Path) -> list[int]:
    """The running processes whose working directory this is."""
    found = []
    for pid in running():
        with suppress(OSError):  # it has ended, or belongs to somebody else
            if os.readlink(f"/proc/{pid}/cwd") == str(folder):
                found.append(pid)
    return found


def open_files(pid: int) -> list[str]:
    """What the descriptors of a process lead to: paths, and such as `socket:[1]` (proc(5)).

    Raises:
        FileNotFoundError: the process has ended.
    """
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it has just been closed
            found.append(os.readlink(each))
    return found


def send(number: int, *pids: int) -> bool:
    """Send a signal to processes. False if one is gone: it has ended, and its parent has noticed."""
    missing = 0
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            missing += 1
    return not missing


def kill(pid: int) -> bool:
    """Send SIGKILL to a process. False if it is gone."""
    return send(signal.SIGKILL, pid)


def _columns(pid: int) -> list[str]:
    """The columns of the file `stat` from the third on: state, parent, group, session, ... (proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def supervise(*others: int) -> None:
    """Let all that this process starts from now on end with it, and both end with any of these other processes."""
    if _owner() != os.getpid():
        _set_owner(resource.RLIM_INFINITY)  # the program belongs to nobody
        command = [sys.executable, "-I", "-S", __file__, *map(str, (os.getpid(), *others))]
        null = subprocess.DEVNULL
        program = subprocess.Popen(command, stdin=null, stdout=subprocess.PIPE, stderr=null, start_new_session=True)
        assert program.stdout and program.stdout.readline(), "it does not run"
        program.stdout.close()
        program.returncode = 0  # nobody waits for it
        _set_owner(os.getpid())


@contextmanager
def owned_by(pid: int) -> Iterator[None]:
    """What this process starts meanwhile ends with another supervised process."""
    before = _owner()
    _set_owner(pid)
    try:
        yield
    finally:
        _set_owner(before)


def new_folder() -> Path:
    """A new folder that is deleted at the end of the process that owns what this one starts.

    Its name is short enough for a socket, as those of pytest are not.
    """
    return Path(tempfile.mkdtemp(prefix=f"tests-{_owner()}-"))


def _owner() -> int:
    return resource.getrlimit(RLIMIT_LOCKS)[0]


def _set_owner(pid: int) -> None:
    resource.setrlimit(RLIMIT_LOCKS, (pid, resource.getrlimit(RLIMIT_LOCKS)[1]))


def _owned_by(pid: int) -> Iterator[int]:
    for each in running():
        with suppress(OSError):  # it has just ended
            (line,) = (line for line in Path(f"/proc/{each}/limits").read_text().splitlines() if line.startswith(LIMIT))
            if line.removeprefix(LIMIT).split()[0] == str(pid):
                yield each


def _end(owner: int) -> None:
    """Kill what a process owns, but let PostgreSQL remove its shared memory first."""
    deadline = time.monotonic() + STOP_SECONDS
    while owned := sorted(_owned_by(owner)):
        for pid in owned:
            with suppress(OSError):  # it has just ended
                is_database = Path(f"/proc/{pid}/comm").read_text() == "postgres\n"
                send(signal.SIGQUIT if is_database and time.monotonic() < deadline else signal.SIGKILL, pid)
                send(signal.SIGCONT, pid)
        time.sleep(0.02)
    for folder in Path(tempfile.gettempdir()).glob(f"tests-{owner}-*"):
        shutil.rmtree(folder, ignore_errors=True)


def main(owner: int, *others: int) -> None:
    """Wait for the end of one of these processes, and end what the first one owns."""
    waiting = select.poll()
    with suppress(ProcessLookupError):  # it has ended already
        for pid in (owner, *others):
            waiting.register(os.pidfd_open(pid), select.POLLIN)
        print("watching", flush=True)
        waiting.poll()
    _end(owner)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
