"""What is beside the store of a file: of which file it is, and up to which event that file has everything."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from restkeeper.errors import InvalidJson
from restkeeper.features.files.declaring import Declared
from restkeeper.service import started_stores
from restkeeper.web import exactjson

LAST, NEXT = ".checkpoint", ".next"  # the files beside a store: the last checkpoint, and that of the next write


class Checkpoint(NamedTuple):
    """The digest of a file, the event up to which it has everything, and what its store is declared by.

    In the file of a checkpoint, a copy of that file follows.
    """

    digest: str
    event: str
    declared: Mapping[str, Declared]
    lines: list[str]


@dataclass
class Checkpoints:
    """The checkpoints of a store, which follows from a file and `others`: the version, an option and the schema."""

    store: Path
    others: tuple[bytes, ...]

    def digest(self, data: bytes) -> str:
        """Of all that the store follows from."""
        return blake2b(b"\0".join(blake2b(each).digest() for each in (*self.others, data)), digest_size=16).hexdigest()

    def find(self, data: bytes) -> Checkpoint | None:
        """The last one of a store with a file; None if there is no store.

        The next one is the last one if the file is as that says: it was written before the end.
        """
        for suffix in (NEXT, LAST):
            with suppress(OSError, InvalidJson, TypeError, ValueError), self._path(suffix).open("rb") as file:
                digest, event, declared, lines = exactjson.loads(file.readline())
                if self.store.is_file() and (suffix == LAST or digest == self.digest(data)):
                    self._path(suffix).replace(self._path(LAST))
                    return Checkpoint(digest, event, {name: Declared(*each) for name, each in declared.items()}, lines)
        return None

    def copies(self) -> list[bytes]:
        """The file as it was at the last checkpoint, and as it was to be at the next one, if that was not committed."""
        files = [self._path(suffix) for suffix in (LAST, NEXT)]
        return [file.read_bytes().partition(b"\n")[2] for file in files if file.is_file()]

    def prepare(self, former: Checkpoint, data: bytes, event: str) -> None:
        """Write the next checkpoint, of what the file will be."""
        declared = {name: list(each) for name, each in former.declared.items()}
        with self._path(NEXT).open("wb") as file:
            file.write(exactjson.dumps([self.digest(data), event, declared, former.lines]) + b"\n")
            file.write(data)

    def commit(self) -> None:
        """Make the next checkpoint the last one: the file is written."""
        self._path(NEXT).replace(self._path(LAST))

    def delete_store(self) -> None:
        """Delete the store, of another content, with its checkpoints."""
        started_stores.discard(f"sqlite:///{self.store}")
        for suffix in (LAST, NEXT, ".db", ".db-wal", ".db-shm"):
            self._path(suffix).unlink(missing_ok=True)

    def _path(self, suffix: str) -> Path:
        return self.store.with_suffix(suffix)
