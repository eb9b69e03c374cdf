"""Records in a temporary file, so that a slow reader of a whole collection keeps no transaction open."""

from collections.abc import Callable, Iterable, Iterator
from tempfile import SpooledTemporaryFile
from typing import IO

import orjson

from restkeeper.storage.interface import Record

SPOOL_BYTES = 1024 * 1024  # of a scan in memory


def spool(
    rows: Iterable[tuple[str, int, str, str, bytes, str | None, bytes | None]], folder: str | None = None
) -> IO[bytes]:
    """Write records to a temporary file in a folder, by default in the system's, which may be in memory."""
    file = SpooledTemporaryFile(SPOOL_BYTES, dir=folder)
    try:
        for id, version, updated_at, fingerprint, body, owner, removed in rows:
            rest = -1 if removed is None else len(removed)
            file.write(orjson.dumps([len(body), rest, id, version, updated_at, fingerprint, owner]) + b"\n" + body)
            file.write(removed or b"")
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def records_in(file: IO[bytes], load_schemas: Callable[[str], None]) -> Iterator[Record]:
    """The records in a file that `spool` wrote; it is closed at the end.

    It calls `load_schemas` with the fingerprint of a record that has another one than the record before.
    """
    known = None
    with file:
        for head in iter(file.readline, b""):
            size, rest, id, version, updated_at, fingerprint, owner = orjson.loads(head)
            record = file.read(size), owner, None if rest < 0 else file.read(rest)
            if fingerprint != known:
                known = fingerprint
                load_schemas(fingerprint)
            yield Record(id, version, updated_at, fingerprint, *record)
