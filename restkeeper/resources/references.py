"""References: what they refer to exists, in every transaction; and what follows when it is deleted."""

from collections.abc import Iterator, Mapping
from typing import Any

from flask import has_request_context

from restkeeper.clock import Clock, rfc3339, time_after
from restkeeper.errors import Conflict, NotFound, shortened
from restkeeper.resources.changes import Access, Change, Hooks, require_found
from restkeeper.resources.representation import NO_LIMITS, StoredRepresentation
from restkeeper.resources.resource import Ownership
from restkeeper.resources.unit import MOST_CHANGES, Unit, as_conflict, item_of, without_server_fields
from restkeeper.schemas.fields import IntegerReference, Reference, Refers
from restkeeper.schemas.item import INTEGERS
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import RecordNotFound, ReferenceMissing
from restkeeper.storage.interface import Filter, Op, Query, Record, root_of
from restkeeper.web import exactjson
from restkeeper.web.auth import caller, lacking

_UNKNOWN = "items that the caller may not read refer to it"


class StillReferenced(Conflict):
    """Other items refer to this one, so that it cannot be deleted. Change or delete them first."""


class References:
    """The references between the collections of a service.

    Raises ValueError for one to a collection that does not exist, or whose rule cannot work.
    """

    def __init__(self, representations: Mapping[str, StoredRepresentation], hooks: Hooks, clock: Clock) -> None:
        self._hooks = hooks
        self._clock = clock
        self._keys = {name: stored.resource.key for name, stored in representations.items()}
        self._to: dict[str, list[tuple[StoredRepresentation, str, str]]] = {}
        self._private: dict[str, Access | None] = {
            name: hooks.access(stored.resource) if stored.resource.ownership is Ownership.ALL else None
            for name, stored in representations.items()
        }
        for name, stored in representations.items():
            own = stored.revision.definitions.values()
            for path, field in stored.revision.references.items():
                if field.to not in representations or representations[field.to].resource.singleton:
                    known = ", ".join(name for name, each in representations.items() if not each.resource.singleton)
                    raise ValueError(f"{name}.{path}: Reference({field.to!r}): must be one of {known}")
                kind = IntegerReference if representations[field.to].resource.ids in INTEGERS else Reference
                if not isinstance(field, kind):
                    raise ValueError(f"{name}.{path}: write {kind.__name__}({field.to!r})")
                if field.on_delete == "null" and not (field.allow_none and field in own):
                    raise ValueError(f"{name}.{path}: on_delete='null' needs allow_none=True, and no field around it")
                self._to.setdefault(field.to, []).append((stored, path, field.on_delete))

    def check(self, transaction: Transaction, change: Change) -> None:
        """Require what an item newly refers to. Raises ReferenceMissing, also later in the transaction."""
        if change.after is None:
            return
        before = change.before.body if change.before and change.before.version else b"{}"
        for field, new in added(change.representation, before, change.after.body):
            refusals = {
                self._keys[field.to](id): missing(field, id, pointer, change.after) for id, pointer in new.items()
            }
            if (access := self._private[field.to]) is None or not has_request_context():
                transaction.require_present(field.to, refusals)
                continue
            for id, refusal in refusals.items():  # one by one: the first is refused that the caller must not know of
                transaction.require_present(field.to, {id: refusal})
                try:
                    access.require_sight(transaction.read(field.to, id))
                except (NotFound, RecordNotFound):
                    raise refusal from None

    def follow(self, transaction: Transaction, change: Change) -> None:
        """Do what a deletion means for the items that refer to the deleted one.

        Raises StillReferenced, Conflict as `Unit.apply`, Unavailable as `require_found`, and Forbidden for what the
        request, but not its caller, may delete.
        """
        if change.after is not None or change.representation.name not in self._to:
            return
        unit: Unit = self._hooks.unit(transaction)
        unit.deletions.append(change)
        if len(unit.deletions) > 1:
            return  # it follows another deletion: a chain may be long
        while unit.deletions:
            self._follow(transaction, unit, unit.deletions[0])
            unit.deletions.popleft()

    def _follow(self, transaction: Transaction, unit: Unit, change: Change) -> None:
        for stored, path, on_delete in self._to.get(change.representation.name, ()):
            require_found(stored, root_of(path), transaction)
            own = change.representation.resource.shown(change.record.id)
            query = Query(filters=(Filter(path, Op.EQ, own),))
            is_chosen = on_delete == "null" and stored.name in self._hooks.dependents()
            if is_chosen and not caller().may(scope := f"{stored.name}:write"):
                raise lacking(scope)  # also if there is none: who may not know, learns nothing
            known = stored.name if may_read(stored.name) else ""
            ids = transaction.find(stored.name, query, 1 if on_delete == "restrict" else MOST_CHANGES + 1)
            if ids and on_delete == "restrict":
                raise StillReferenced(f"{path} of {known} refers to it" if known else _UNKNOWN)
            for id in sorted(ids):  # in one order, so that deletions do not wait for each other
                try:
                    before = transaction.read(stored.name, id)
                except RecordNotFound:
                    continue  # it went with one before it, or others have deleted it
                if own not in (found for _, found in _found(exactjson.stored(before.body), path)):
                    continue
                now, after = time_after(before.updated_at, rfc3339(self._clock.time())), None
                if is_chosen:
                    self._hooks.access(stored.resource).require_change(before)
                with as_conflict(known or _UNKNOWN):
                    if on_delete == "null" and not is_chosen:
                        cleared = without_server_fields(stored, {**item_of(stored, before), path: None})
                        after = stored.revise(before, cleared, now=now, limits=NO_LIMITS)
                    left = unit.apply(stored, before, after, now, NO_LIMITS)
                if on_delete == "null" and not is_chosen and item_of(stored, left).get(path) is not None:
                    raise StillReferenced(f"{path} of {known} refers to it, and stays" if known else _UNKNOWN)


def added(stored: StoredRepresentation, before: bytes, after: bytes) -> Iterator[tuple[Refers, dict[str | int, str]]]:
    """What the JSON of an item refers to `after` a change and did not before: by field, each id with its pointer."""
    if not (own := stored.revision.references):
        return
    had, has = exactjson.stored(before), exactjson.stored(after)
    for path, field in own.items():
        former = {id for _, id in _found(had, path)}
        yield field, {id: pointer for pointer, id in _found(has, path) if id not in former}


def required_by(stored: StoredRepresentation, record: Record) -> Iterator[tuple[Refers, str | int, str]]:
    """What an item refers to: the field, the id, and its JSON Pointer."""
    item = exactjson.stored(record.body)
    for path, field in stored.revision.references.items():
        for pointer, id in _found(item, path):
            yield field, id, pointer


def may_read(collection: str) -> bool:
    """Whether the caller may know the items of a collection, beyond their owners. A command may."""
    return not has_request_context() or caller().may(f"{collection}:read")


def missing(field: Refers, id: str | int, pointer: str, record: Record) -> ReferenceMissing:
    """The error of an item that refers to nothing."""
    return ReferenceMissing(pointer, f"there is no item {shortened(str(id))!r} in {field.to}", record.id)


def _found(value: Any, path: str, pointer: str = "#") -> Iterator[tuple[str, str | int]]:
    """The ids at a path, each with its JSON Pointer; a list stands for each of its elements."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _found(each, path, f"{pointer}/{number}")
    elif isinstance(value, dict):
        name, _, rest = path.partition(".")
        yield from _found(value.get(name), rest, f"{pointer}/{name}")
    elif isinstance(value, str | int):
        yield pointer, value
