"""A file and the store that serves it: changes are written back, and edits of the file are served.

The file is the truth. The store is beside it: what was answered is durable there, and its feed of events is the journal
of what the file does not have yet.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE
from typing import Any, TypeVar

import click
from gevent import get_hub, monkey

from restkeeper.clock import YIELD_SECONDS, in_turns, rfc3339
from restkeeper.errors import InvalidJson, Problem, shortened
from restkeeper.features.files.checkpoint import Checkpoint, Checkpoints
from restkeeper.features.files.file import File, Look, read_data
from restkeeper.features.files.reading import Content, FileError, Id, Stamp, is_equal, progress, stamp_of, value_of
from restkeeper.resources.changes import Change
from restkeeper.resources.representation import NO_LIMITS
from restkeeper.resources.unit import item_of, use_ids
from restkeeper.service import Service
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import EventsExpired, RecordNotFound, StoreError
from restkeeper.storage.interface import EventFilter, Record
from restkeeper.web.exactjson import Buffer

T = TypeVar("T")

LOOK_SECONDS = 0.1  # between two looks at the file and at the feed: a change waits so long, and those beside it
MOST_BUSY = 0.2  # of the time is spent on writing: a large file is written less often
EVENTS = 500  # that are read at a time
TOGETHER = 200  # items that one transaction stores
ROUNDS = 8  # for what requests store while items are moved

Edit = tuple[str, Id, Buffer | None]  # a name, an id and a text, None if the item is deleted


class FileSync:
    """The synchronization of a file with a service.

    The file was declared, and stored up to the event of the `former` checkpoint. Without `checkpoints` nothing is
    written. `restart` ends this process for a reason: an edit does not fit what the service was declared by, or the
    schema was edited. It raises FileError or ValueError for what no service can be declared by.
    """

    def __init__(
        self,
        file: File,
        service: Service,
        former: Checkpoint,
        checkpoints: Checkpoints | None,
        restart: Callable[[str], object],
    ) -> None:
        self._path, self._schema = file.data, file.schema
        self._kinds = {name: each.kind for name, each in file.declared.items()}
        self._service, self._former, self._checkpoints, self._restart = service, former, checkpoints, restart
        self.content, self.event = file.content, former.event
        self.stamp, self._schema_stamp = self._seen = file.look
        self._refused: Look | None = None  # of what cannot be served
        self._access = access_of(self._path)
        self.is_over = False
        self._is_edited = False  # since the last checkpoint
        self.seconds = 0.0  # that the last write took

    def run(self) -> None:
        """Synchronize until the process ends."""
        failure = ""
        while not self.is_over:
            time.sleep(self.pause)
            self.seconds = 0.0
            try:
                self.run_once()
                failure = ""
            except (StoreError, OSError) as error:
                if failure != (failure := getattr(error, "strerror", None) or str(error)):
                    say(f"{self._path.name}: cannot be read or written now: {failure}")

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return max(LOOK_SECONDS, self.seconds / MOST_BUSY - self.seconds)

    def run_once(self) -> None:
        """Serve an edit, when two looks have seen it, and write the file if items have changed. Raises StoreError."""
        look = stamp_of(self._path) or self.stamp, stamp_of(self._schema)  # none: an editor replaces it at this moment
        if look == self._seen and look not in ((self.stamp, self._schema_stamp), self._refused):
            self._take(*look)
        self._seen = look
        if look[0] == self.stamp and not self.is_over:
            self.write()
            self._seen = self.stamp, look[1]  # what is written here is no edit

    def finish(self) -> None:
        """Write what is not written yet, before the process ends."""
        if not self.is_over:
            with suppress(StoreError, OSError):
                self.write()
        self.is_over = True

    def write(self) -> bool:
        """Write the file, if items have changed. Returns False if others have written it since it was read."""
        changes, last = changes_since(self._service, self.event)
        if self._checkpoints and (changes or self._is_edited or self.content.given):
            content, began, data = self.content.copy(), time.monotonic(), self.content.source
            is_new = any([content.set(*each) for each in changes]) or content.given
            if is_new:
                data = b"".join(content.text())
            apart(self._checkpoints.prepare, self._former, data, last)  # who is killed then knows the file again
            if is_new:
                self._access = access_of(self._path) or self._access
                stamp = apart(replace_file, self._path, data, self.stamp, self._access)
                if not stamp:
                    return False
                self.content, self.stamp = content._replace(given=False), stamp
                self.seconds = time.monotonic() - began
            self._checkpoints.commit()
        self.event, self._is_edited = last, False
        return True

    def _take(self, stamp: Stamp, schema_stamp: Stamp) -> None:
        """Serve what was edited, or start again with it; if that cannot be, say why, and stay as it was."""
        is_data, reason = stamp != self.stamp, "its schema was edited"
        try:
            if is_data:
                edited = apart(read_data, self._path, self._kinds)
                is_other = sorted(edited.kinds()) != sorted(self.content.kinds())
                reason = "it has other names, or other types of ids" if is_other else self._serve(edited)
                if not reason:
                    self.content, self.stamp, self._is_edited = edited, stamp, True
            elif not self.write():  # so that all is checked
                return
            if reason:
                self._restart(reason)  # what is not written yet is written by the next start, as after a crash
                self.is_over = True
        except (FileError, InvalidJson, OSError, ValueError) as error:
            if is_data:
                self._refused = stamp, schema_stamp
                say(f"{error}: the last good content is served, and nothing is written")
            else:
                self._schema_stamp = schema_stamp
                say(f"{error}: the former schema is used")

    def _serve(self, edited: Content) -> str:
        """Change the items in the store as they were edited; returns why that cannot be, before anything is changed."""
        edits, order = list(self.content.differs(edited)), list(self._service.representations)
        edits = [each for each in edits if each[0] in order]
        edits.sort(key=lambda each: (each[2] is None, order.index(each[0])))
        own = [each.revision.references.values() for each in self._service.representations.values()]
        referred = {field.to for references in own for field in references}
        if any(text is None and name in referred for name, _, text in edits):
            return "an item was deleted to which others may refer"
        now = rfc3339(self._service.clock.time())
        try:
            for name, id, text in in_turns(edits, self._service.clock):
                if text is not None:
                    stored = self._service.representations[name]
                    stored.restore(value_of(text), id=stored.resource.key(id), now=now, limits=NO_LIMITS)
            _in_transactions(self._service, self._store, edits)
            moved = [each for each in self.content.moved(edited) if each[0] in order]
            for _ in range(ROUNDS):
                _in_transactions(self._service, self._move, moved)
                former, moved = moved, self._stored_since(edited)  # which is behind it, as in the file
                if moved == former:
                    break
        except (Problem, StoreError) as error:
            return f"what was edited does not fit ({error})"
        return ""

    def _stored_since(self, edited: Content) -> list[tuple[str, Id]]:
        """The items that the file does not have yet where it will: as the last, which requests have created."""
        changes, _ = changes_since(self._service, self.event)
        again = {(name, id) for name, id, text in changes if text is None}
        found = [(name, id, (name, id) in again) for name, id, text in changes if text is not None]
        return [(name, id) for name, id, is_again in found if is_again or edited.item(name, id) is None]

    def _store(self, edits: list[Edit], transaction: Transaction) -> None:
        """Store what was edited, but for what requests have changed since the file had it."""
        now = rfc3339(self._service.clock.time())
        for name, id, text in edits:
            stored, before, after = self._service.representations[name], None, None
            if is_equal(had := self.content.item(name, id), text):  # only its form is another one
                continue
            key = stored.resource.key(stored.name if stored.resource.singleton else id)
            with suppress(RecordNotFound):
                before = transaction.read(name, key)
            body, kind = before and stored.body(before), "updated" if before else "created"
            if not (is_equal(body, had) or is_equal(body, text)):
                refuse(self._path, name, id, "a request", text)
                continue
            if text is None:
                kind = "deleted"
            elif before is None:
                after = stored.restore(value_of(text), id=key, now=now, limits=NO_LIMITS)
                use_ids(stored.resource, "", after.id, transaction)
            else:
                after = stored.revise(before, value_of(text), now=now, limits=NO_LIMITS)
            if after is not before:
                at = after.updated_at if after else now
                self._service.hooks.apply(transaction, Change(kind, stored, before, after, at))

    def _move(self, items: list[tuple[str, Id]], transaction: Transaction) -> None:
        """Store items as the last of their collections: no event, and the same version."""
        for name, id in items:
            key = self._service.representations[name].resource.key(id)
            with suppress(RecordNotFound):
                record = transaction.read(name, key)
                transaction.delete(name, key)
                transaction.insert(name, record)


def changes_since(service: Service, event: str) -> tuple[list[Edit], str]:
    """The items that have changed since an event, as they are now, and the last event."""
    newest, again = dict[tuple[str, Id], Buffer | None](), list[Edit]()
    which, more = EventFilter(tuple(service.representations)), service.store.last_event() != event
    while more:
        try:
            page = service.store.events(event, which, EVENTS)
        except EventsExpired as error:
            event = error.resume
            continue
        for each in page.events:
            stored = service.representations[each.collection]
            record = Record("", 1, "", each.fingerprint, each.data, removed=each.removed)
            id = stored.name if stored.resource.singleton else item_of(stored, record)["id"]
            text: Buffer | None = stored.body(record)
            if each.type.endswith(".deleted"):  # a single item has its defaults then
                text = b"{}" if stored.resource.singleton else None
            if newest.get((stored.name, id), b"") is None:  # stored again, it is the last
                del newest[stored.name, id]
                again.append((stored.name, id, None))
            newest[stored.name, id] = text
        event, more = page.last, page.more
        time.sleep(YIELD_SECONDS)
    return again + [(*key, text) for key, text in newest.items()], event


def refuse(path: Path, name: str, id: Id, by: str, text: Buffer | None) -> None:
    """Say what of an item is not taken."""
    shown = "its deletion" if text is None else shortened(" ".join(bytes(text).decode(errors="replace").split()))
    say(f"{path.name}: {name}/{id} was changed by {by}, too; not taken: {shown}")


def access_of(path: Path) -> os.stat_result | None:
    """The mode and the owner of a file, if there is one."""
    with suppress(FileNotFoundError):
        return path.stat()
    return None


def replace_file(path: Path, data: bytes, stamp: Stamp, access: os.stat_result | None) -> Stamp:
    """Replace a file, or what it is a link to, by one that is complete; its new stamp, or none if others wrote it."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            if access:
                os.fchmod(file.fileno(), S_IMODE(access.st_mode))
                with suppress(PermissionError):
                    os.fchown(file.fileno(), access.st_uid, access.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written = stamp_of(temporary)
        if stamp_of(path) not in ((), stamp):
            return ()
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # before anything says that the file was written
    finally:
        os.close(folder)
    return written


def fill(service: Service, content: Content) -> None:
    """Store what a file has, without events. Raises FileError for an item that is not valid."""
    with progress("storing", sum(map(len, content.collections.values()))) as bar:
        for name in service.representations:
            texts = content.members[name]
            items: list[tuple[Id, Buffer]] = list(texts.items()) if isinstance(texts, dict) else [(name, texts)]
            _in_transactions(service, partial(_insert, service, content, name), items, bar.update)


def _insert(
    service: Service, content: Content, name: str, items: list[tuple[Id, Buffer]], transaction: Transaction
) -> None:
    stored, now, last = service.representations[name], rfc3339(service.clock.time()), ""
    for id, text in items:
        try:
            record = stored.restore(value_of(text), id=stored.resource.key(id), now=now, limits=NO_LIMITS)
            transaction.insert(name, record)
        except Problem as problem:
            raise content.fault(name, id, f"{problem}: change it, or the schema") from None
        last = max(last, record.id)
    use_ids(stored.resource, "", last, transaction)


def _in_transactions(
    service: Service,
    work: Callable[[list[Any], Transaction], None],
    items: list[Any],
    done: Callable[[int], object] = lambda count: None,
) -> None:
    """Work on items, TOGETHER in a transaction."""
    for first in range(0, len(items), TOGETHER):
        part = items[first : first + TOGETHER]
        service.store.write(partial(work, part))
        done(len(part))
        time.sleep(YIELD_SECONDS)


def apart(work: Callable[..., T], *arguments: Any) -> T:
    """The result of work that blocks: under gevent in a thread of its own, so that requests continue."""
    if not monkey.is_module_patched("threading"):
        return work(*arguments)
    outcome = get_hub().threadpool.apply(_outcome, (work, arguments))
    if isinstance(outcome, Exception):
        raise outcome
    done: T = outcome
    return done


def _outcome(work: Callable[..., T], arguments: tuple[Any, ...]) -> T | Exception:
    """What work returns, or the exception that it raises: gevent prints a traceback of what a thread raises."""
    try:
        return work(*arguments)
    except Exception as error:
        return error


def say(*lines: str) -> None:
    """Print lines to standard error, those after the first indented; a name of a file can have any character."""
    shown = ("".join(each if each.isprintable() else repr(each)[1:-1] for each in line) for line in lines)
    click.echo("\n  ".join(shown), err=True)
