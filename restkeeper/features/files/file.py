"""A JSON file: read with the schema beside it, saved with each change, and watched.

The file is the truth: a change is in it before it is answered. What others have saved is served before the next
change, which is then done on it. A stamp tells when others write the file.
"""

import ctypes
import errno
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from stat import S_IMODE
from typing import IO, Any, NamedTuple

import click

from restkeeper.clock import is_due, rfc3339, time_after
from restkeeper.errors import InvalidJson, Problem
from restkeeper.exactjson import Buffer
from restkeeper.feature import Seams
from restkeeper.features.files.content import Content, FileError, is_equal, members_of, parse
from restkeeper.features.files.items import FileItems, place_ids, views_of
from restkeeper.features.files.threads import in_thread
from restkeeper.resources.changes import Change, Unit
from restkeeper.service import Service
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import RecordNotFound, StoreContended, StoreError, StoreFull, StoreUnavailable
from restkeeper.storage.interface import Record
from restkeeper.storage.location import is_mount

_log = logging.getLogger("restkeeper")

LOOK_SECONDS = 0.1  # between two looks at the file
SCHEMA = ".schema.json"  # ends the name of the schema beside a JSON file
EDITED = ".edited"  # ends the name of a version of the file that another program saved during a write

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux: <fcntl.h>, and <linux/fs.h>, see renameat2(2)

Stamp = tuple[int, ...]
Look = tuple[Stamp, Stamp]  # of the data, and of the schema
Edit = tuple[str, str, Buffer | None]  # a name, a key and a text, None if the item is deleted


class File(NamedTuple):
    """The paths of two files, the `data` and its `schema`, and their content after a `look` at both."""

    data: Path
    schema: Path
    look: Look
    schema_source: bytes
    content: Content


def read_file(path: Path, id_name: str = "id") -> File:
    """The file, and the schema beside it. Raises FileError and OSError."""
    if not id_name or not id_name.isprintable() or {'"', "\\"} & {*id_name}:
        raise FileError(f'--id {id_name!r}: must be a name of printable characters, without " and \\')
    schema = path.with_suffix(SCHEMA)
    look = stamp_of(path), stamp_of(schema)
    source = schema.read_bytes() if schema.is_file() else b""
    return File(path, schema, look, source, parse(path.read_bytes(), path.name, id_name))


def stamp_of(path: Path) -> Stamp:
    """A value that changes when a file is written; empty without a file. Raises OSError."""
    status = status_of(path)
    return (status.st_mtime_ns, status.st_size, status.st_ino) if status else ()


def status_of(path: Path) -> os.stat_result | None:
    """The status of a file, such as its mode and its owner, if there is one. Raises OSError."""
    with suppress(FileNotFoundError):
        return os.stat(path)
    return None


def can_be_replaced(path: Path) -> bool:
    """Whether a file can be replaced by another one: it is not mounted, as in a container, and its folder is writable.

    A file that cannot be replaced is written in place: a crash in the middle of that damages it.
    """
    return not is_mount(path) and os.access(os.path.dirname(os.path.realpath(path)), os.W_OK)


def write_file(path: Path, content: Content, stamp: Stamp, access: os.stat_result | None, in_place: bool) -> Stamp:
    """Write a file, or the target of a link, to the disk; its new stamp, empty if others wrote it. Raises OSError.

    A complete file replaces it, unless it is written `in_place`. If another program writes it between the last look and
    that moment, that version is kept beside it, where a file can have two names.
    """
    target, data = Path(os.path.realpath(path)), b"".join(content.text())
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if in_place:
        return _write_in_place(target, data) if stamp_of(path) in ((), stamp) else ()
    temporary, previous = (target.with_name(f".{target.name}.{end}") for end in ("tmp", "former"))
    for leftover in (temporary, previous):
        leftover.unlink(missing_ok=True)  # of a killed process: no other process writes, see `serve._lock`
    try:
        with temporary.open("xb") as file:
            if access and hasattr(os, "fchown"):  # not on Windows
                os.fchmod(file.fileno(), S_IMODE(access.st_mode))
                with suppress(PermissionError):
                    os.fchown(file.fileno(), access.st_uid, access.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written = stamp_of(temporary)
        with suppress(OSError):
            os.link(target, previous)
        if stamp_of(path) not in ((), stamp):
            return ()
        if exchange(temporary, target):
            os.replace(temporary, previous)
        else:
            os.replace(temporary, target)
        if stamp_of(previous) not in ((), stamp):
            os.replace(previous, edited := target.with_name(target.name + EDITED))
            say(f"{path.name}: what was saved at the moment of a write is in {edited.name}")
    finally:
        temporary.unlink(missing_ok=True)
        previous.unlink(missing_ok=True)
    if os.name == "nt":  # where a folder is no file
        return written
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # before anything says that the file was written
    finally:
        os.close(folder)
    return written


def exchange(one: Path, other: Path) -> bool:
    """Give each of two files the name of the other, at one moment. False where only one can have a new name.

    So a file that another program puts in the place of the former one just before that is not lost.
    """
    rename: Any = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    return bool(rename) and not rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)


def _write_in_place(target: Path, data: bytes) -> Stamp:
    """Write a file that cannot be replaced; without space on the disk the file does not change. Raises OSError."""
    with target.open("r+b") as file:
        previous = file.read()
        try:
            if len(data) > len(previous) and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, len(data))
            _overwrite(file, data)
        except OSError:
            _overwrite(file, previous)
            raise
    return stamp_of(target)


def _overwrite(file: IO[bytes], data: bytes) -> None:
    file.seek(0)
    file.write(data)
    file.truncate()
    file.flush()
    os.fsync(file.fileno())


def say(*lines: str) -> None:
    """Print lines to standard error, indented after the first one; a name of a file can have any character."""
    printable = ("".join(char if char.isprintable() else repr(char)[1:-1] for char in line) for line in lines)
    click.echo("\n  ".join(printable), err=True)


class _Outcome(NamedTuple):
    """An item after a transaction, which has created it if it `is_new`; without a record it is deleted."""

    collection: str
    id: str
    record: Record | None
    is_new: bool


class SavedFile:
    """A file and its service, whose store has the items of the file.

    `restart` makes another service of the file for a reason: an edit does not fit the declarations of this one, or the
    schema was edited. It raises FileError or ValueError if no service can have the edited file. If the file is not
    `saved`, changes stay in memory, and `content` is that of the file. By its `seams` it takes part in the service.
    """

    def __init__(self, file: File, service: Service, restart: Callable[[str], object], *, saved: bool) -> None:
        self._path, self._schema = file.data, file.schema
        self._service, self._restart, self._is_saved = service, restart, saved
        self._stored = views_of(service)
        self.content, self._arrays = file.content, file.content.arrays
        self.stamp, self._schema_stamp = file.look
        self._access, self.in_place = status_of(self._path), not can_be_replaced(self._path)
        self._changes: list[Change] = []  # of this transaction, also those that are undone
        self._refused: tuple[Look, StoreUnavailable] | None = None  # what cannot be served, and why
        self._said = ""
        self._is_serving = False  # an edit
        self.is_over = False
        self.seams = Seams(beginning=[self.refresh], committing=[self.commit], changed=[self._note])

    def run(self) -> None:
        """Serve edits until another application has the file."""
        while not self.is_over:
            time.sleep(LOOK_SECONDS)
            try:
                self.run_once()
            except Exception:  # the next look is another attempt
                if is_due("file"):
                    _log.exception("%s: what was edited is not served", self._path.name)

    def run_once(self) -> None:
        """Serve an edit."""
        refused = self._refused
        with suppress(StoreUnavailable):
            self._service.store.write(lambda transaction: None)  # which begins with a `refresh`
        # Only a second look prints a line about the refusal: at the first, a program may still be writing the file.
        if refused and refused is self._refused and self._said != (said := refused[1].detail):
            self._said = said
            say(f"{said}: changes are refused")

    def refresh(self) -> None:
        """Serve an edit of the file, if there is one; called before each transaction."""
        self._changes.clear()  # of a transaction that was rolled back
        if self.is_over:
            return
        self._is_serving = True
        try:
            look = stamp_of(self._path) or self.stamp, stamp_of(self._schema)  # none: it is replaced at this moment
            if look == (self.stamp, self._schema_stamp):
                self._refused = None
            elif not (self._refused and look == self._refused[0]):
                self._refused = None
                self._take(look)
        except OSError as error:  # such as of a link to itself
            self._refused = (self.stamp, ()), StoreUnavailable(f"{self._path.name}: {error.strerror}")
        finally:
            self._is_serving = False

    def _take(self, look: Look) -> None:
        """Serve an edit, or start again with it. If neither is possible, serve the previous content, without changes.

        If an edited schema cannot be used, the previous schema stays in use.
        """
        try:
            edited = in_thread(lambda: parse(self._path.read_bytes(), self._path.name, self.content.id_name))
            reason = "its schema was edited" if look[1] != self._schema_stamp else ""
            if _structure(edited) != _structure(self.content):
                reason = "it has other names"
            if not (reason := reason or self._serve(edited)):
                self._arrays |= edited.arrays
                self.content, self.stamp = edited, look[0]
                place_ids(self._service, edited)
                return
            self._restart(reason)
            self.is_over = True
            self._refused = look, StoreUnavailable(f"{self._path.name}: {reason}: the service starts again")
        except (FileError, InvalidJson, StoreUnavailable, OSError, ValueError) as error:
            if look[0] == self.stamp:
                self._schema_stamp = look[1]
                say(f"{error}: the former schema is used")
            else:
                detail = getattr(error, "strerror", None) or str(error)
                name = "" if detail.startswith(self._path.stem) else f"{self._path.name}: "
                self._refused = look, StoreUnavailable(f"{name}{detail}")

    def _serve(self, edited: Content) -> str:
        """Change the items in the store as they were edited, all or none; returns why this is not possible."""
        edits = sorted(self.content.differences(edited), key=lambda edit: edit[2] is None)
        referred = {field.to for stored in self._stored.values() for field in stored.revision.references.values()}
        if any(text is None and self._stored[name].name in referred for name, _, text in edits):
            return "an item was deleted to which others may refer"
        moved = [*self.content.moved(edited)]

        def work(unit: Unit) -> None:
            for name, key, text in edits:
                self._store(unit, self._stored[name], key, text)
            for name, key in moved:
                self._move(unit, name, key)

        try:
            if edits or moved:
                self._service.write(work, wait=False)
        except (Problem, StoreError) as error:
            return f"what was edited does not fit ({error})"
        return ""

    def _move(self, unit: Unit, name: str, key: str) -> None:
        """Store an item as the last of its collection: no event, and the same version."""
        collection = self._stored[name].name
        with suppress(RecordNotFound):
            record = unit.transaction.read(collection, key)
            unit.remove_record(collection, key)
            unit.put_record(collection, record, is_new=True)

    def _store(self, unit: Unit, stored: FileItems, key: str, text: Buffer | None) -> None:
        if is_equal(self.content.item(stored.resource.public_name, key), text):
            return  # only the form has changed
        key = stored.name if stored.resource.singleton else key
        now, before, after = rfc3339(self._service.clock.time()), None, None
        with suppress(RecordNotFound):
            before = unit.transaction.read(stored.name, key)
        if text is not None:  # `replace` would keep 1 where the edit has "1"
            after = stored.new_record(members_of(text), id=key, now=now)
        if after and before:
            is_same, at = is_equal(after.body, before.body), time_after(before.updated_at, now)
            after = before if is_same else after._replace(version=before.version + 1, updated_at=at)
        elif after:
            unit.use_ids(stored, [after.id])
        if after is not before:
            unit.write(stored, before, after)

    def _note(self, _: Unit, change: Change) -> None:
        self._changes.append(change)

    def commit(self, transaction: Transaction) -> None:
        """Save the changes of a transaction in the file, before it is committed.

        Raises StoreUnavailable if the file cannot be written, or was edited and cannot be served.
        """
        changes, self._changes = self._changes, []
        if self._is_serving or not self._is_saved:  # an edit is already in the file
            return
        edits = [edit for outcome in _outcomes(transaction, changes) for edit in self._edits(outcome)]
        if not edits:
            return
        if self._refused:
            raise self._refused[1]
        content = self.content.copy({name for name, _, _ in edits})
        for edit in edits:
            content.set(*edit)
        self._replace(content)
        self.content = content

    def _edits(self, outcome: _Outcome) -> list[Edit]:
        """The edits of the content that make an item equal to that in the store."""
        if (stored := self._service.stored.get(outcome.collection)) is None:
            return []  # of a feature, such as a key
        name, is_single = stored.resource.public_name, stored.resource.singleton
        text: Buffer | None = b"{}" if is_single else None  # it has its defaults then
        if outcome.record:
            text = stored.body(outcome.record)
        key = name if is_single else outcome.id
        if outcome.is_new and not is_single and self.content.item(name, key) is not None:
            return [(name, key, None), (name, key, text)]  # as it was created again, it becomes the last one
        return [] if is_equal(self.content.item(name, key), text) else [(name, key, text)]

    def _replace(self, content: Content) -> None:
        """Write the file. Raises StoreUnavailable."""
        self._access = status_of(self._path) or self._access
        try:
            written = in_thread(write_file, self._path, content, self.stamp, self._access, self.in_place)
        except OSError as error:
            kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreUnavailable
            raise kind(f"{self._path.name} cannot be written: {error.strerror}") from None
        if not written:
            raise StoreContended(f"{self._path.name} was saved by another program at this moment")
        self.stamp = written


def _outcomes(transaction: Transaction, changes: list[Change]) -> list[_Outcome]:
    """The items of changes as they are stored, in the order of the store.

    Changes can be undone: those of an item count that lead to it as it is stored, from the last one back.
    """
    of_items = dict[tuple[str, str], list[tuple[int, Change]]]()
    for number, change in enumerate(changes):
        of_items.setdefault((change.stored.name, change.record.id), []).append((number, change))
    outcomes = list[tuple[int, _Outcome]]()
    for (name, id), of_item in of_items.items():
        record: Record | None = None
        with suppress(RecordNotFound):
            record = transaction.read(name, id)
        after, (position, _) = record, of_item[-1]
        for number, change in reversed(of_item):
            if after and change.after == after:
                position, after = number, change.before
        is_new = record is not None and after is None
        outcomes.append((position, _Outcome(name, id, record, is_new)))
    return [outcome for _, outcome in sorted(outcomes, key=itemgetter(0))]


def _structure(content: Content) -> dict[str, bool | None]:
    """Whether each name is that of a singleton; None for an array that can only be read."""
    singletons = {name: kind == "singleton" for name, kind in content.kinds.items()}
    return {**singletons, **dict.fromkeys(content.arrays)}
