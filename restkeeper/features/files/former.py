"""What an older version has answered and not yet written to a file: it had a store of each in a folder of the cache.

This module can be deleted some releases after 0.1.0, when nobody has such a store.
"""

import os
import sqlite3
from contextlib import closing, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import blake2b
from pathlib import Path

from restkeeper.errors import InvalidJson, shortened
from restkeeper.features.files.file import File
from restkeeper.features.files.reading import FileError, id_of, is_equal, key_of, parse
from restkeeper.features.files.saving import Edit, access_of, can_be_replaced, say, write_file
from restkeeper.web import exactjson

_CHECKPOINTS = (".checkpoint", ".next")  # each with a copy of the file; the second one can be half of it
_PARTS = (".db", ".db-wal", ".db-shm", ".db-lock", *_CHECKPOINTS, ".served")  # without the first there is no store
_EVENTS = "SELECT collection, type, data FROM events WHERE position > ? ORDER BY position"


def write_rest(path: Path, file: File) -> bool:
    """Write to the file of a `path` what its former store has and it has not; returns whether that was something.

    The store is then deleted. Where an item was edited since, the edit stays, and the store is kept in a folder beside.
    What cannot be read or written is left as it is. Lines say all this.
    """
    cache, target = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), path.resolve()
    name = f"{target.stem}-{blake2b(os.fsencode(target), digest_size=6).hexdigest()}.db"
    store = Path(cache, "restkeeper", name).absolute()
    try:
        return store.is_file() and _write_rest(store, file)
    except (FileError, InvalidJson, OSError, LookupError, TypeError, ValueError, sqlite3.Error) as error:
        reason = "that is running" if isinstance(error, BlockingIOError) else error
        say(f"{path.name}: {store} may have changes of an older version, and is left as it is: {reason}")
        return False


def _write_rest(store: Path, file: File) -> bool:
    copies = [each.read_bytes().partition(b"\n") for each in map(store.with_suffix, _CHECKPOINTS) if each.is_file()]
    if not copies:
        raise ValueError("it has no checkpoint")
    _, event, declared, _ = exactjson.loads(copies[0][0])
    content, kept, formers = file.content.copy(file.content.collections), store.with_suffix(".kept"), []
    for _, _, data in copies:
        with suppress(FileError):
            formers.append(parse(data, store.name))
    with store.with_suffix(".served").open("ab") as lock:
        flock(lock, LOCK_EX | LOCK_NB)
        with closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as connection:
            events = connection.execute(_EVENTS, [int(event.rpartition("_")[2])]).fetchall()
    singles = {name: each[1] == "singleton" for name, each in declared.items()}
    edits = [_edit(name, kind, data, singles[name]) for name, kind, data in events if name in singles]
    edited = set()
    for (name, key), text in {(name, key): text for name, key, text in edits}.items():
        had, kind = content.item(name, key), content.kinds.get(name, "")
        is_alike = kind and (kind == "singleton") is singles[name]
        if not (is_alike and any(is_equal(had, each.item(name, key)) for each in formers or [content])):
            edited.add((name, key))
            if not is_equal(had, text):
                kept.mkdir(mode=0o700, exist_ok=True)
                item = name if singles[name] else f"{name}/{id_of(key)}"
                shown = "its deletion" if text is None else shortened(bytes(text).decode())
                say(f"{file.data.name}: {item} was edited since; in {kept} stays what an older version has: {shown}")
    written = {(name, key) for name, key, text in edits if (name, key) not in edited and content.set(name, key, text)}
    if written:
        stamp, in_place = file.look[0], not can_be_replaced(file.data)
        if not write_file(file.data, content, stamp, access_of(file.data), in_place):
            raise ValueError("others have saved the file just now")
        say(f"{file.data.name}: {len(written)} items that an older version had changed are written")
    for part in filter(Path.is_file, map(store.with_suffix, _PARTS)):
        if kept.is_dir():
            part.replace(kept / part.name)
        else:
            part.unlink()
    return bool(written)


def _edit(name: str, kind: str, data: str, is_single: bool) -> Edit:
    """What an event has changed. Raises LookupError and InvalidJson."""
    key = name if is_single else key_of(exactjson.loads(data)["id"])
    return name, key, (b"{}" if is_single else None) if kind.endswith(".deleted") else data.encode()
