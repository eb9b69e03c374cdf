"""A count of equal values, of any number, without the memory for them."""

import sqlite3
import tempfile
from contextlib import ExitStack, closing

_CREATE = "CREATE TABLE digests (digest BLOB PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID"
_ADD = "INSERT INTO digests VALUES (?, 1) ON CONFLICT DO UPDATE SET number = number + 1 RETURNING number"


class DigestCounts:
    """How often each digest was added: in a temporary file in a folder, by default the system's, until `stack` ends."""

    def __init__(self, folder: str | None, stack: ExitStack) -> None:
        with tempfile.NamedTemporaryFile(dir=folder) as file:  # then without a name: one killed leaves none
            self._database = stack.enter_context(closing(sqlite3.connect(file.name, isolation_level=None)))
            for statement in ("PRAGMA journal_mode = OFF", _CREATE, "BEGIN"):  # of which nothing is ever committed
                self._database.execute(statement)

    def add(self, digest: bytes) -> int:
        """Return how often it was added, with this time. Raises OSError if the disk is full."""
        try:
            number: int = self._database.execute(_ADD, (digest,)).fetchone()[0]
        except sqlite3.OperationalError as error:
            raise OSError(f"the temporary file cannot be written: {error}") from None
        return number
