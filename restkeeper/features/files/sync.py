"""A file and the store that serves it: changes are written back, and edits of the file are served.

The file is the truth. The store is beside it: what was answered is durable there, and its feed of events is the journal
of what the file does not have yet.
"""

import os
import tempfile
import time
from collections.abc import Callable, Container
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from gevent import get_hub, monkey

from restkeeper.clock import YIELD_SECONDS, in_turns, rfc3339
from restkeeper.errors import InvalidJson, Problem, shortened
from restkeeper.features.files.reading import Content, FileError, Id, Stamp, is_equal, read, stamp_of, value_of
from restkeeper.resources.changes import Change
from restkeeper.resources.representation import NO_LIMITS, StoredRepresentation
from restkeeper.resources.unit import item_of, use_ids
from restkeeper.service import Service
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import EventsExpired, RecordNotFound, StoreError
from restkeeper.storage.interface import Record
from restkeeper.storage.outbox import EventFilter
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

    `content` is that of the file, which has all changes up to the `event`; it was read when the file had the `stamp`.
    `note` is called with what is to be written, and the event up to which that is; what it returns, when it is written.
    `restart` ends this process for a reason: an edit does not fit what the service was declared by, or `watch` returns
    something else than what was `watched`. It raises FileError or ValueError for what no service can be declared by.
    Without `saves` nothing is written.
    """

    def __init__(
        self,
        path: Path,
        service: Service,
        content: Content,
        *,
        event: str,
        stamp: Stamp,
        watch: Callable[[], Stamp] = tuple,
        watched: Stamp = (),
        saves: bool = True,
        note: Callable[[bytes, str], Callable[[], object]] = lambda data, event: tuple,  # which does nothing
        opens: Callable[[Path], Content] = read,
        restart: Callable[[str], object] = lambda reason: None,
    ) -> None:
        self._path, self._service, self._saves = path, service, saves
        self._note, self._open, self._restart = note, opens, restart
        self._watch, self._watched = watch, watched
        self._filter = EventFilter(tuple(service.representations))
        self._seen: Stamp = ()  # of a file that cannot be read, or of a schema that was edited
        os.umask(umask := os.umask(0o077))
        self._mode, self._owner = 0o666 & ~umask, (-1, -1)
        self._remember_access()
        self.content, self.event, self.stamp = content, event, stamp
        self.is_bad = self.is_over = False
        self.is_edited = False  # since the last note
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
        """Read the file if it was edited, and write it if items have changed. Raises StoreError."""
        watched, stamp = self._watch(), stamp_of(self._path) or self.stamp  # none: an editor replaces it at this moment
        if stamp != self.stamp:
            self._read(stamp, stamp + watched)
        elif self.is_bad:  # it is as it was
            self.is_bad, self._seen = False, ()
        elif watched != self._watched:
            self._declare(watched)
        if not self.is_bad and not self.is_over:
            self.write()

    def finish(self) -> None:
        """Write what is not written yet, before the process ends."""
        if not (self.is_over or self.is_bad):
            with suppress(StoreError, OSError):
                self.write()
        self.is_over = True

    def write(self, since: Content | None = None) -> bool:
        """Write the file, if items have changed. Returns False if others have written it since it was read.

        With the content `since` which it was edited, no item is replaced that was.
        """
        changes, last = self.changes()
        if since:
            kinds = {*self.content.kinds()}.intersection(since.kinds())
            changes = [each for each in changes if not self._is_refused(*each, since, dict(kinds))]
        former = [(name, id, self.content.item(name, id)) for name, id, _ in changes]
        if self._saves and (any([self.content.set(*each) for each in changes]) or self.content.given):
            began, is_written = time.monotonic(), False
            data = b"".join(self.content.text())
            try:
                written = apart(self._note, data, last)  # first: who is killed between them knows the file again
                is_written = apart(self._replace, data)
            finally:
                if not is_written:  # the content is that of the file
                    for each in former:
                        self.content.put(*each)
            if not is_written:
                return False
            written()
            self.content = self.content._replace(given=False)
            self.seconds = time.monotonic() - began
        elif self.is_edited:
            apart(self._note, self.content.source, last)()
        self.event, self.is_edited = last, False
        return True

    def _is_refused(self, name: str, id: Id, text: Buffer | None, since: Content, same: Container[str]) -> bool:
        """Whether this item was edited, and is another one: then it says so. `same` are names of the same kind."""
        edited = self.content.item(name, id)
        is_free = is_equal(edited, since.item(name, id)) and name in same
        if is_refused := not (is_free or is_equal(edited, text)):
            self._refuse(name, id, "an edit", text)
        return is_refused

    def _refuse(self, name: str, id: Id, by: str, text: Buffer | None) -> None:
        shown = "its deletion" if text is None else shortened(" ".join(bytes(text).decode(errors="replace").split()))
        say(f"{self._path.name}: {name}/{id} was changed by {by}, too; not taken: {shown}")

    def changes(self) -> tuple[list[Edit], str]:
        """The items that have changed since the event, as they are now, and the last event."""
        newest, again = dict[tuple[str, Id], Buffer | None](), list[Edit]()
        after, more = self.event, self._service.store.last_event() != self.event
        while more:
            try:
                page = self._service.store.events(after, self._filter, EVENTS)
            except EventsExpired as error:
                after = error.resume
                continue
            for event in page.events:
                stored = self._service.representations[event.collection]
                record = Record("", 1, "", event.fingerprint, event.data, removed=event.removed)
                id = stored.name if stored.resource.singleton else item_of(stored, record)["id"]
                is_deleted = event.type.endswith(".deleted")
                if newest.get((stored.name, id), b"") is None:  # stored again, it is the last
                    del newest[stored.name, id]
                    again.append((stored.name, id, None))
                newest[stored.name, id] = None if is_deleted else stored.body(record)
            after, more = page.last, page.more
            time.sleep(YIELD_SECONDS)
        return again + [(*key, text) for key, text in newest.items()], after

    def _read(self, stamp: Stamp, look: Stamp) -> None:
        """Serve what was edited; of a file that cannot be served, say why, and stay as it was."""
        if self.is_bad and look == self._seen:
            return
        try:
            edited = apart(self._open, self._path)
            is_other = sorted(edited.kinds()) != sorted(self.content.kinds())
            if reason := "it has other names, or other types of ids" if is_other else self._serve(edited):
                self._restart(reason)  # what is not written yet is written by the next start, as after a crash
                self.is_over = True
            else:
                self.content, self.stamp, self.is_edited = edited, stamp, True
                self.is_bad, self._seen = False, ()
        except (FileError, InvalidJson, ValueError) as error:
            if look == self._seen:  # else it may be written at this moment
                say(f"{error}: the last good content is served, and nothing is written")
                self.is_bad = True
            self._seen = look

    def _declare(self, watched: Stamp) -> None:
        """Start again with a schema that was edited, if two looks see the same; if that cannot be, say why."""
        if watched != self._seen:
            self._seen = watched
        elif self.write():  # so that all is checked
            self._watched = watched
            try:
                self._restart("its schema was edited")
                self.is_over = True
            except (FileError, InvalidJson, OSError, ValueError) as error:
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
            for first in range(0, len(edits), TOGETHER):
                self._service.store.write(partial(self._store, edits[first : first + TOGETHER]))
            moved = [each for each in self.content.moved(edited) if each[0] in order]
            for _ in range(ROUNDS):
                for first in range(0, len(moved), TOGETHER):
                    self._service.store.write(partial(self._move, moved[first : first + TOGETHER]))
                former, moved = moved, self._stored_since(edited)  # which is behind it, as in the file
                if moved == former:
                    break
        except (Problem, StoreError) as error:
            return f"what was edited does not fit ({error})"
        return ""

    def _stored_since(self, edited: Content) -> list[tuple[str, Id]]:
        """The items that the file does not have yet where it will: as the last, which requests have created."""
        changes, _ = self.changes()
        again = {(name, id) for name, id, text in changes if text is None}
        found = [(name, id, (name, id) in again) for name, id, text in changes if text is not None]
        return [(name, id) for name, id, is_again in found if is_again or edited.item(name, id) is None]

    def _store(self, edits: list[Edit], transaction: Transaction) -> None:
        """Store what was edited, but for what requests have changed since the file had it."""
        now = rfc3339(self._service.clock.time())
        for name, id, text in edits:
            stored, before, after = self._service.representations[name], None, None
            key = stored.resource.key(stored.name if stored.resource.singleton else id)
            with suppress(RecordNotFound):
                before = transaction.read(name, key)
            body, kind = before and stored.body(before), "updated" if before else "created"
            if not (is_equal(body, self.content.item(name, id)) or is_equal(body, text)):
                self._refuse(name, id, "a request", text)
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

    def _remember_access(self) -> None:
        with suppress(FileNotFoundError):
            found = self._path.stat()
            self._mode, self._owner = found.st_mode & 0o7777, (found.st_uid, found.st_gid)

    def _replace(self, data: bytes) -> bool:
        """Replace the file, or what it is a link to, by one that is complete; False if it was written by others."""
        target = Path(os.path.realpath(self._path))
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
                self._remember_access()
                os.fchmod(descriptor, self._mode)
                with suppress(PermissionError):
                    os.fchown(descriptor, *self._owner)
            if stamp_of(self._path) not in ((), self.stamp):
                return False
            os.replace(name, target)
            self.stamp = stamp_of(self._path)
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # before anything says that the file was written
            finally:
                os.close(folder)
            return True
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)


def fill(service: Service, content: Content, progress: Callable[[int], object] = lambda count: None) -> None:
    """Store what a file has, without events. Raises FileError for items that are not valid."""
    for name, stored in service.representations.items():
        texts, wrong = content.members[name], list[tuple[Id, Problem]]()
        items: list[tuple[Id, Buffer]] = list(texts.items()) if isinstance(texts, dict) else [(name, texts)]
        for first in range(0, len(items), TOGETHER * 5):
            part = items[first : first + TOGETHER * 5]
            wrong += service.store.write(partial(_insert, service, stored, part))
            progress(sum(len(bytes(text)) for _, text in part))
            time.sleep(YIELD_SECONDS)
        for id, problem in wrong:
            count = f"{len(wrong)} of {len(items)} do not fit the schema: change them, or it"
            raise content.fault(name, id, f"{problem} ({count})")


def _insert(
    service: Service, stored: StoredRepresentation, items: list[tuple[Id, Buffer]], transaction: Transaction
) -> list[tuple[Id, Problem]]:
    now, last, wrong = rfc3339(service.clock.time()), "", list[tuple[Id, Problem]]()
    for id, text in items:
        try:
            record = stored.restore(value_of(text), id=stored.resource.key(id), now=now, limits=NO_LIMITS)
            transaction.insert(stored.name, record)
            last = max(last, record.id)
        except Problem as problem:
            wrong.append((id, problem))
    if last:
        use_ids(stored.resource, "", last, transaction)
    return wrong


def apart(work: Callable[..., T], *arguments: Any) -> T:
    """The result of work that blocks: under gevent in a thread of its own, so that requests continue."""
    if not monkey.is_module_patched("threading"):
        return work(*arguments)
    result, error = get_hub().threadpool.apply(_outcome, (work, arguments))
    if error:
        raise error
    done: T = result
    return done


def _outcome(work: Callable[..., T], arguments: tuple[Any, ...]) -> tuple[T | None, Exception | None]:
    """What work returns, or raises of a file: gevent prints a traceback of what a thread raises."""
    try:
        return work(*arguments), None
    except (FileError, InvalidJson, OSError, ValueError) as error:
        return None, error


say = partial(click.echo, err=True)
