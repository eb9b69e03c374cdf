"""Changes of items: the unit in which a call makes them, and the seams by which features take part."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

from restkeeper import exactjson
from restkeeper.clock import Clock, rfc3339, time_after, uuid7
from restkeeper.errors import Conflict
from restkeeper.exactjson import JsonObject
from restkeeper.hook import Hook
from restkeeper.resources.call import NONE, Call, Conditions
from restkeeper.resources.declaration import Action
from restkeeper.resources.item import NO_ID, NO_LIMITS, ItemLimits
from restkeeper.resources.relations import References
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView, View, Views
from restkeeper.schemas.item import INTEGERS
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, RecordNotFound, ReferenceMissing
from restkeeper.storage.interface import LAST_IDS, Record

KINDS = ("created", "updated", "deleted")


class Answer(NamedTuple):
    """The result of a call: JSON; for an item also the ETag, the last change, and the id as it is stored."""

    body: bytes
    tag: str = ""
    changed_at: str = ""
    id: str = ""


class Operation(NamedTuple):
    """An operation of a feature: `work` gets the unit, its `CollectionReader`, the item, and the body.

    The body is the result of `load` for the sent body; `load` is called once, before the transaction. The item is None
    for an operation of the collection. `work` returns the `Answer`.
    """

    work: Callable[..., Answer]
    load: Callable[[Any], Any] = lambda sent: sent


class Command(NamedTuple):
    """What to do with an item, or with a collection.

    The `kind` is "create", "replace", "merge", "upsert" (replace, or create if there is none), "delete" or "act"; an
    `action` says how. The `body` is as it was sent, or as it is loaded, later. The `conditions` are about the item with
    this `id`; for a creation, about the list. Pointers of faults begin with the `pointer` of the body in the request:
    "", "/3" or "/operations/2/body". The `owner` of a new item is named beside it. With `unique` fields, "upsert" looks
    for the item that has the sent values of these fields, and merges the body.
    """

    kind: str
    collection: str
    id: str = ""
    body: Any = None
    action: Action | Operation | None = None
    conditions: Conditions = NONE
    pointer: str = ""
    owner: str | None = None
    unique: tuple[str, ...] = ()


class Change(NamedTuple):
    """One write of one item: the item before and after (None where there is none), and when (RFC 3339).

    It `follows` the change of a command if a function of the service makes it, or if it follows from the deletion of
    another item. Without a command it is a change of a program, or of a feature. A migration to a new schema, or a note
    beside the item, is no change: the version stays. A function that changes the item stays within the `limits`.
    """

    stored: StoredView
    before: Record | None
    after: Record | None
    at: str
    command: Command | None = None
    follows: bool = False
    limits: ItemLimits = NO_LIMITS

    @property
    def kind(self) -> str:
        """The kind of the change: "created", "updated" or "deleted"."""
        return "created" if self.before is None else "updated" if self.after else "deleted"

    @property
    def record(self) -> Record:
        """The item as it is now, or as it last was."""
        record = self.after or self.before
        assert record is not None  # noqa: S101 - a change has one of them
        return record

    @property
    def item(self) -> JsonObject | None:
        """The item after it, as it is stored; None if it is deleted."""
        return None if self.after is None else exactjson.decoded(self.stored.body(self.after))

    @property
    def item_before(self) -> JsonObject | None:
        """The item before it, as it is stored; None if it is new."""
        return None if self.before is None else exactjson.decoded(self.stored.body(self.before))

    def revised(self, item: JsonObject) -> "Change":
        """The change to this item instead, which the schema validates. Raises ValidationFailed and BodyTooLarge."""
        if self.before is None:
            make = partial(self.stored.restore, id=self.record.id, owner=self.record.owner)
        else:
            make = partial(self.stored.revise, self.before)
        return self._replace(after=make(item, now=self.at, limits=self.limits))

    def marked(self, **values: Any) -> "Change":
        """A change that only sets these fields of an item that exists, also in place of its deletion.

        It is not validated: an item can be marked whatever else it has.
        """
        assert self.before is not None  # noqa: S101 - it exists
        record = self.stored.touched(self.before, now=self.at)
        members = {**exactjson.cut(record.body)} | {name: exactjson.dumps(value) for name, value in values.items()}
        return self._replace(after=record._replace(body=exactjson.joined(members)))


class Once:
    """How a repeated request gets the stored response. This one stores nothing: a subclass for a key does.

    `render` makes the response of an answer: in the transaction, and again for every attempt.
    """

    def __init__(self, render: Callable[[Answer], Any]) -> None:
        self.render = render

    def find(self, call: Call, store: Store) -> Any:
        """The stored response, if there is one. Raises a Problem if it is the response to another request."""
        return None

    def claim(self, transaction: Transaction) -> None:
        """Let repetitions of the request wait for this transaction, which will `save` a response. Raises as `save`.

        A store can send the claim together with the next statements.
        """

    def save(self, transaction: Transaction, answer: Answer) -> Any:
        """Store the response in the transaction of the change, and return it.

        Raises ResponseStored: then `find` returns another.
        """
        return self.render(answer)


@dataclass
class Domain:
    """What all reads and writes of a service share, and the seams by which features take part in them.

    `resources` are the collections by their names, and `items` returns the `Items` of a unit. `new_id` returns the id
    of a new item; ids are in the order of creation. Items have their times from the `clock`, and are within the
    `limits`. Large bodies are loaded one after the other, in the context of `large`, which waits for its turn until a
    deadline: so later small requests need not wait for many large ones.

    `view` return how callers of a version of the API see the items of a collection, from the views so far. `query` are
    called before items are read or deleted, with the view of the caller, and the most items of a page. `once` returns
    the record of the current request, for the JSON value of its body, the function that renders an answer, and whether
    the response holds a `secret`. `changing` return a change as it will be written: so do the functions of a service.
    `changed` are called after the write: for the event, for items that refer to a deleted item, and for functions.
    """

    clock: Clock = time
    limits: ItemLimits = NO_LIMITS
    new_id: Callable[[], str] = uuid7
    resources: Mapping[str, Resource] = field(default_factory=dict)
    items: Callable[["Unit"], Any] = lambda unit: None
    large: Callable[[float], AbstractContextManager[None]] = lambda deadline: nullcontext()
    references: References = field(default_factory=References)
    view: Hook[Callable[[Views, StoredView, str], Views]] = field(default_factory=Hook)
    query: Hook[Callable[[View, int], None]] = field(default_factory=Hook)
    once: Callable[..., Once] = lambda sent, render, secret=False: Once(render)
    changing: Hook[Callable[["Unit", Change], Change]] = field(default_factory=Hook)
    changed: Hook[Callable[["Unit", Change], None]] = field(default_factory=Hook)

    def views_of(self, stored: StoredView, version: str) -> Views:
        """How the callers of a version of the API see the items of a collection."""
        views: Views = stored
        for next_views in self.view.functions:
            views = next_views(views, stored, version)
        return views


class Unit:
    """The changes of one request in one transaction: all of them, or none. Only commands of operators write without it.

    `items` are the `Items` of the transaction, and `call` is the request with its `caller`. `changes` has the last
    change of each item, by collection and id. The `command` is the present one.
    """

    def __init__(self, domain: Domain, transaction: Transaction, call: Call) -> None:
        self.domain, self.transaction, self.call = domain, transaction, call
        self.changes: dict[tuple[str, str], Change] = {}
        self.command: Command | None = None
        self._tried: list[Change] = []  # in order, also those that the store refuses

    @cached_property
    def items(self) -> Any:
        """What functions of the service do in it: see `Domain`."""
        return self.domain.items(self)

    def now(self) -> str:
        """The time, as items have it."""
        return rfc3339(self.domain.clock.time())

    def prepared_change(
        self,
        stored: StoredView,
        before: Record | None,
        after: Record | None,
        *,
        limits: ItemLimits = NO_LIMITS,
        follows: bool = False,
    ) -> Change:
        """A change, as functions of the service leave it; if nothing changes, `after` is the record `before`.

        It has the time of the item after it; a deletion is at this moment. Raises what functions raise.
        """
        at = after.updated_at if after else time_after(before.updated_at if before else "", self.now())
        change = Change(stored, before, after, at, self.command, follows, limits)
        self._tried.append(change)
        for changing in self.domain.changing.functions:
            if (changed := changing(self, change)) is not change:
                self._tried.append(change := changed)
        return change

    def write(self, stored: StoredView, before: Record | None, after: Record | None) -> Record:
        """Write an item as functions of the service leave it; return it as it is, or last was.

        Raises as `write_change`.
        """
        change = self.prepared_change(stored, before, after, limits=self.domain.limits)
        if change.after is not before:
            self.write_change(change)
        return change.record

    def write_change(self, change: Change) -> None:
        """Check a change, write it, and do what follows it. Raises as `write_unchecked`, and what the seams raise."""
        self.domain.references.check(self, change)
        self.write_unchecked(change)
        self.follow(change)

    def write_unchecked(self, change: Change) -> None:
        """Write a change alone: `write_change` also checks it before, and follows it.

        Raises DuplicateValue, RecordChanged, RevisionDiffers, and RecordNotFound for an item that is not there.
        """
        name, before, after = change.stored.name, change.before, change.after
        self.changes[name, change.record.id] = change
        if after is None:
            self.transaction.delete(name, change.record.id)
        elif before and before.version:
            self.transaction.update(name, after)
        else:  # also a singleton that is not stored yet
            self.transaction.insert(name, after)

    def follow(self, *changes: Change) -> None:
        """Do what follows writes. Of several together, all have their events before a function is called."""
        for changed in self.domain.changed.functions:
            for change in changes:
                changed(self, change)

    def put_record(self, name: str, record: Record, *, is_new: bool = False) -> None:
        """Write a record of a feature, or that of an item that stays as it is. Raises as `write_unchecked`."""
        (self.transaction.insert if is_new else self.transaction.update)(name, record)

    def put_records(self, name: str, new: Sequence[Record]) -> None:
        """Write new records together."""
        self.transaction.insert_all(name, new)

    def remove_record(self, name: str, id: str) -> None:
        """Delete a record. Raises RecordNotFound."""
        self.transaction.delete(name, id)

    def change_of(self, error: DuplicateValue | ReferenceMissing) -> Change | None:
        """The change that the store refuses, if that is one of an item."""
        if error.of is None:
            return None
        return next((change for change in self._tried if change.after is error.of), None)

    def with_integer_ids(self, stored: StoredView, records: Sequence[Record]) -> list[Record]:
        """New items, with the next integers in place of NO_ID, if the collection has such ids.

        Raises BodyTooLarge, and as `use_ids`.
        """
        numbered = [*records]
        if not stored.resource.has_integer_ids:
            return numbered
        new = [n for n, record in enumerate(records) if record.id == NO_ID]
        ids = self.use_ids(stored, [record.id for record in records if record.id != NO_ID], len(new))
        for n, id in zip(new, ids, strict=True):
            numbered[n] = stored.numbered(records[n], id)
            self.domain.limits.require(numbered[n].body)
        return numbered

    def use_ids(self, stored: StoredView, ids: Iterable[str], new: int = 0) -> Sequence[int]:
        """So many `new` ids, if they are integers; no later item gets one of them, nor one of `ids`, which are in use.

        Raises Conflict if there are no more, and as `Transaction.insert` for the first ones.
        """
        resource, before = stored.resource, None
        if not resource.has_integer_ids:
            return []
        with suppress(RecordNotFound):
            before = self.transaction.read(LAST_IDS.name, stored.name)
        last_before = before.version if before else 0
        last = max([last_before, *(id for id in map(resource.public_id, ids) if isinstance(id, int))])
        if new and last + new > INTEGERS[resource.ids][1]:
            raise Conflict(f"{stored.name}: all ids have been given")
        if last + new > last_before:
            record = Record(stored.name, last + new, "", "", b"{}")
            self.put_record(LAST_IDS.name, record, is_new=before is None)
        return range(last + 1, last + new + 1)
