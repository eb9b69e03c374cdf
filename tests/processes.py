"""Processes, as /proc shows them."""

import os
import signal
from contextlib import suppress
from pathlib import Path

_ENDED = ("", "Z", "X")


def state(pid: int) -> str:
    """The state of a process, a letter: T is stopped, Z has ended and its parent has to notice. Empty if it is gone."""
    try:
        return _columns(pid)[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(pid: int) -> list[int]:
    """The running child processes of the first thread of a process."""
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in found if state(child) not in _ENDED]


def of_session(session: int) -> list[int]:
    """The running processes of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            letter, _, _, belongs = _columns(int(entry.name))[:4]
            if int(belongs) == session and letter not in _ENDED:
                found.append(int(entry.name))
    return found


def kill(pid: int) -> bool:
    """Send SIGKILL to a process. False if it is gone: it has ended, and its parent has noticed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _columns(pid: int) -> list[str]:
    """The columns of the file `stat` from the third on: state, parent, group, session, ... (proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
