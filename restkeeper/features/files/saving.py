"""A file and the store in memory that serves it: changes are saved in the file, and edits of the file are served.

The file is the truth: a change is in it before it is answered. What others have saved is served before the next
change, which is then done on it.
"""

import errno
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

from gevent import get_hub, monkey

from restkeeper import exactjson
from restkeeper.clock import YIELD_SECONDS, is_due, rfc3339, time_after
from restkeeper.errors import InvalidJson, Problem
from restkeeper.exactjson import Buffer
from restkeeper.feature import Seams
from restkeeper.features.files.declarations import Declared
from restkeeper.features.files.file import File, Look, access_of, can_be_replaced, say, stamp_of, write_file
from restkeeper.features.files.items import FileItems
from restkeeper.features.files.reading import Content, FileError, is_equal, members_of, parse
from restkeeper.resources.changes import Change, Unit
from restkeeper.resources.views import StoredView
from restkeeper.service import Service
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import RecordNotFound, StoreContended, StoreError, StoreFull, StoreUnavailable
from restkeeper.storage.interface import Record

T = TypeVar("T")
_log = logging.getLogger("restkeeper")

LOOK_SECONDS = 0.1  # between two looks at the file
TOGETHER = 1000  # items that one transaction stores at the start

Edit = tuple[str, str, Buffer | None]  # a name, a key and a text, None if the item is deleted


class SavedFile:
    """A file and its service, whose store has the items of the file.

    `restart` makes another service of the file for a reason: an edit does not fit the declarations of this one, or the
    schema was edited. It raises FileError or ValueError if no service can have the edited file. If the file is not
    `saved`, changes stay in memory, and `content` is that of the file. By its `seams` it takes part in the service.
    """

    def __init__(self, file: File, service: Service, restart: Callable[[str], object], *, saved: bool) -> None:
        self._path, self._schema = file.data, file.schema
        self._service, self._restart, self._is_saved = service, restart, saved
        self._stored = _by_member(service)
        self.content, self._arrays = file.content, file.content.arrays
        self.stamp, self._schema_stamp = file.look
        self._access, self.in_place = access_of(self._path), not can_be_replaced(self._path)
        self._changed: dict[tuple[str, str], bool] = {}  # the items that this transaction changes: if it deletes one
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
        if self._is_serving:
            return
        self._changed.clear()  # of a transaction that was rolled back
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
                _place_ids(self._service, edited)
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
        order = list(self._stored)
        edits = [edit for edit in self.content.differences(edited) if edit[0] in order]
        edits.sort(key=lambda edit: (edit[2] is None, order.index(edit[0])))
        referred = {field.to for stored in self._stored.values() for field in stored.revision.references.values()}
        if any(text is None and self._stored[name].name in referred for name, _, text in edits):
            return "an item was deleted to which others may refer"
        moved = [item for item in self.content.moved(edited) if item[0] in order]

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

    def _store(self, unit: Unit, stored: StoredView, key: str, text: Buffer | None) -> None:
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
        key = change.stored.name, change.record.id
        is_deleted = self._changed.pop(key, False) or change.kind == "deleted"
        self._changed[key] = is_deleted

    def commit(self, transaction: Transaction) -> None:
        """Save the changes of a transaction in the file, before it is committed.

        Raises StoreUnavailable if the file cannot be written, or was edited and cannot be served.
        """
        changed, self._changed = self._changed, {}
        if self._is_serving or not self._is_saved:  # an edit is already in the file
            return
        edits = [edit for key, deleted in changed.items() for edit in self._edits(transaction, *key, deleted)]
        if not edits:
            return
        if self._refused:
            raise self._refused[1]
        content = self.content.copy({name for name, _, _ in edits})
        for edit in edits:
            content.set(*edit)
        self._replace(content)
        self.content = content

    def _edits(self, transaction: Transaction, name: str, key: str, was_deleted: bool) -> list[Edit]:
        """The edits of the content that make an item equal to that in the store."""
        stored = self._service.stored.get(name)
        if stored is None:
            return []  # of a feature, such as a key
        name, is_single = stored.resource.public_name, stored.resource.singleton
        text: Buffer | None = b"{}" if is_single else None  # it has its defaults then
        with suppress(RecordNotFound):
            text = stored.body(transaction.read(stored.name, key))
        key = name if is_single else key
        if was_deleted and text is not None and not is_single:  # an item that was created again becomes the last one
            return [(name, key, None), (name, key, text)]
        return [] if is_equal(self.content.item(name, key), text) else [(name, key, text)]

    def _replace(self, content: Content) -> None:
        """Write the file. Raises StoreUnavailable."""
        self._access = access_of(self._path) or self._access
        try:
            written = in_thread(write_file, self._path, content, self.stamp, self._access, self.in_place)
        except OSError as error:
            kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreUnavailable
            raise kind(f"{self._path.name} cannot be written: {error.strerror}") from None
        if not written:
            raise StoreContended(f"{self._path.name} was saved by another program at this moment")
        self.stamp = written


def _structure(content: Content) -> dict[str, bool | None]:
    """Whether each name is that of a singleton; None for an array that can only be read."""
    singletons = {name: kind == "singleton" for name, kind in content.kinds.items()}
    return {**singletons, **dict.fromkeys(content.arrays)}


def _by_member(service: Service) -> dict[str, StoredView]:
    """The items of a service, by the names of the members of its file."""
    return {stored.resource.public_name: stored for stored in service.stored.values()}


def _place_ids(service: Service, content: Content) -> None:
    """Put the ids of new items first or last, as the items of the file have them."""
    for name, stored in _by_member(service).items():
        first_member = next(iter(exactjson.cut(content.sample(name) or b"{}")), content.id_name)
        cast(FileItems, stored).ids_are_last = first_member != content.id_name


def fill(service: Service, content: Content, declared: Mapping[str, Declared]) -> None:
    """Store the items of a file, without events. Raises FileError for an invalid item, if items are checked."""
    now = rfc3339(service.clock.time())
    _place_ids(service, content)
    for name, stored in _by_member(service).items():
        items, is_checked = iter(content.items(name)), declared[name].is_checked
        while batch := [*islice(items, TOGETHER)]:
            records = [_record(cast(FileItems, stored), content, *item, is_checked, now) for item in batch]
            service.write(partial(_insert, stored, records))
            time.sleep(YIELD_SECONDS)


def _insert(stored: StoredView, records: list[Record], unit: Unit) -> None:
    unit.put_records(stored.name, records)
    unit.use_ids(stored, [record.id for record in records])


def _record(stored: FileItems, content: Content, key: str, text: Buffer, is_checked: bool, now: str) -> Record:
    """An item of a file, or the singleton. Raises FileError."""
    resource = stored.resource
    try:
        id = stored.name if resource.singleton else key
        return stored.new_record(members_of(text), id=id, now=now) if is_checked else stored.of_file(id, text, now)
    except Problem as problem:
        raise content.fault(resource.public_name, key, f"{problem}: change it, or the schema") from None


def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """The result of work that blocks: under gevent in a thread of its own, so that requests continue."""
    if not monkey.is_module_patched("threading"):
        return work(*arguments)
    outcome = get_hub().threadpool.apply(_outcome, (work, arguments))
    if isinstance(outcome, Exception):
        raise outcome
    done: T = outcome
    return done


def _outcome(work: Callable[..., T], arguments: tuple[Any, ...]) -> T | Exception:
    """The result of work, or its exception: gevent would print a traceback of an exception in a thread."""
    try:
        return work(*arguments)
    except Exception as error:
        return error
