"""What a service's own functions do with items: actions, and functions before and after each write."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, cast
from urllib.parse import unquote
from weakref import ref

from flask import has_request_context

from restkeeper.clock import Clock, rfc3339, time_after
from restkeeper.errors import Conflict, ValidationFailed, shortened
from restkeeper.resources.changes import Change, Hooks
from restkeeper.resources.representation import ItemLimits, JsonObject, StoredRepresentation
from restkeeper.resources.resource import Resource
from restkeeper.schemas.item import GIVEN, INTEGERS
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, RecordChanged, RecordNotFound
from restkeeper.storage.interface import Collection, Record
from restkeeper.web import exactjson

LAST_IDS = Collection("_ids", {})  # of the collections with integers: the version is the greatest id
# Of what functions of the service change in one transaction, and of what follows a deletion: others wait for it.
MOST_CHANGES = 1000
MOST_REFERENCES = 500  # that are new: for each, a store changes a page of an index, which all other writers wait for
MOST_BYTES = 16 * 1024 * 1024  # of these items before and after
MOST_LOGGED = 10  # of the values that a function of the service sets and the schema refuses

_WRITES = {"created": "create", "updated": "update", "deleted": "delete"}


def require_few_references(number: int) -> None:
    """Raises Conflict if so many references are too many for one request."""
    if number > MOST_REFERENCES:
        raise Conflict(f"more than {MOST_REFERENCES} references would be new: send fewer, in several requests")


class Unit:
    """Items of all collections in one transaction: each change with its event, all of them or none.

    Items are dictionaries as they are stored; whose they are and who calls make no difference. An item that is read is
    locked until the end. Every method raises Conflict if the item does not exist, and other problems; if they are not
    caught, they are the response. It raises ValueError for what the schema refuses: a fault of the service. A change
    that has failed in its middle undoes all, also if that is caught.
    """

    def __init__(
        self,
        transaction: Transaction,
        representations: Mapping[str, StoredRepresentation],
        hooks: Hooks,
        limits: ItemLimits,
        clock: Clock,
    ) -> None:
        self._ref = ref(transaction)  # which has ended when nobody else refers to it
        self._representations = representations
        self._hooks = hooks
        self._limits = limits
        self._clock = clock
        self._failure: Exception | None = None
        self.written: dict[tuple[str, str], Record | None] = {}  # by collection and id, the last change of each
        self.deletions: list[Change] = []  # that are to be followed, see `References`
        self.referrers: Sequence[Any] = ()  # likewise, of the next one
        self._changes = self._bytes = self._references = 0

    @property
    def _transaction(self) -> Transaction:
        transaction = self._ref()
        if transaction is None:
            raise RuntimeError("the transaction has ended: a Unit is for the function that it was given to")
        return transaction

    def require_success(self) -> None:
        """Raises the exception of a change, also if the function has caught it: the transaction must end."""
        if self._failure is not None:
            raise self._failure

    def read(self, collection: str, id: str | int) -> JsonObject:
        """An item, which is locked until the end."""
        return item_of(self._stored(collection), self._read(collection, id))

    def create(self, collection: str, item: JsonObject) -> JsonObject:
        """Create an item; return it as it is stored."""
        stored, now = self._stored(collection), rfc3339(self._clock.time())
        name = stored.schema.id_name
        given = {name: item[name]} if stored.resource.ids in GIVEN and name in item else {}
        (id,) = next_ids(stored.resource, self._transaction, self._hooks.new_id, [given])
        write = partial(stored.restore, id=id, now=now, limits=self._limits)
        record = accepted(self.create, stored, write, without_server_fields(stored, item) | given)
        if has_request_context() and (owner := self._hooks.access(stored.resource).owner_of_new()) is not None:
            record = record._replace(owner=owner)
        use_ids(stored.resource, id, record.id, self._transaction)
        with as_conflict(collection):
            return item_of(stored, self.apply(stored, None, record, now, self._limits))

    def change(self, collection: str, id: str | int, change: Callable[[JsonObject], JsonObject | None]) -> JsonObject:
        """Change an item by a function, which gets it; return it as it is stored.

        The function returns the changed item, or changes its dictionary in place and returns None.
        """
        stored, now = self._stored(collection), rfc3339(self._clock.time())
        before = self._read(collection, id)
        changed = changed_item(change, stored, before)
        with as_conflict(collection):
            after = revised(change, stored, before, changed, now=now, limits=self._limits)
            return item_of(stored, self.apply(stored, before, after, now, self._limits))

    def delete(self, collection: str, id: str | int) -> JsonObject:
        """Delete an item; return it as it last was. A singleton has its defaults then."""
        stored = self._stored(collection)
        before = self._read(collection, id)
        if not before.version:  # it has its defaults
            return item_of(stored, before)
        now = time_after(before.updated_at, rfc3339(self._clock.time()))
        with as_conflict(collection):
            return item_of(stored, self.apply(stored, before, None, now, self._limits))

    def apply(
        self, stored: StoredRepresentation, before: Record | None, after: Record | None, now: str, limits: ItemLimits
    ) -> Record:
        """Write a change of an item; return the record as it is now, or as it last was."""
        after = run_before(stored, before, after, now=now, limits=limits)
        if after is not before:
            self._changes += 1
            self._bytes += sum(len(each.body) for each in (before, after) if each)
            self.require_room()
            kind = "created" if before is None else "updated" if after else "deleted"
            change = Change(kind, stored, before, after, after.updated_at if after else now)
            try:
                self._hooks.apply(self._transaction, change)
            except Exception as error:  # a part of the change is done
                self._failure = error
                raise
            self.written[stored.name, change.record.id] = after
        return cast(Record, after or before)

    def require_room(self, changes: int = 0) -> None:
        """Raises Conflict if with so many more `changes` there are too many."""
        changes += self._changes
        if changes > MOST_CHANGES or (self._bytes > MOST_BYTES and changes > 1):
            most = f"{MOST_CHANGES} items, or {MOST_BYTES >> 20} MiB of them"
            raise Conflict(f"more than {most}, would change with this: change or delete some of them first")

    def add_references(self, number: int) -> None:
        """Count new references. Raises Conflict if there are too many."""
        self._references += number
        require_few_references(self._references)

    def _read(self, collection: str, id: str | int) -> Record:
        try:
            return self._stored(collection).read(self._transaction, id)
        except RecordNotFound:
            raise Conflict(f"{collection}: there is no item {shortened(str(id))!r}") from None

    def _stored(self, collection: str) -> StoredRepresentation:
        if (stored := self._representations.get(collection)) is None:
            raise ValueError(f"there is no collection {collection!r}; there are: {', '.join(self._representations)}")
        return stored


def last_ids_of(resources: Iterable[Resource]) -> list[Collection]:
    """What a store holds of the ids of these items, besides them."""
    return [LAST_IDS] if any(each.ids in INTEGERS for each in resources) else []


def last_id(resource: Resource, store: Store | Transaction) -> int:
    """The greatest id that an item of a collection with integers was given."""
    try:
        return store.read(LAST_IDS.name, resource.name).version
    except RecordNotFound:
        return 0


def next_ids(
    resource: Resource, store: Store | Transaction, new_id: Callable[[], str], items: Sequence[JsonObject] = ({},)
) -> list[str]:
    """The ids of new items; integers are to be used by `use_ids`, and those that items have are empty texts here."""
    if resource.ids not in INTEGERS:
        return [new_id() for _ in items]
    given = [each[resource.schema.id_name] for each in items if resource.has_id(each)] if resource.ids in GIVEN else []
    last = max([last_id(resource, store), *(id for id in given if type(id) is int)])
    if len(given) < len(items) and last + len(items) - len(given) > INTEGERS[resource.ids][1]:
        raise Conflict(f"{resource.name}: all ids have been given")
    series = count(last + 1)
    return ["" if given and resource.has_id(each) else resource.key(next(series)) for each in items]


def use_ids(resource: Resource, first: str, last: str, transaction: Transaction) -> None:
    """Give no later item one of these ids. Raises RecordChanged if one was given since.

    Without a `first` id, such as for an import, earlier ones may have been given.
    """
    if resource.ids not in INTEGERS:
        return
    before, greatest = last_id(resource, transaction), resource.number(last)
    if before >= greatest and not first:
        return
    if before < resource.number(first or last):
        with suppress(DuplicateValue), transaction.savepoint():  # that others give the first one at the same time
            write = transaction.update if before else transaction.insert
            return write(LAST_IDS.name, Record(resource.name, greatest, "", "", b"{}"))
    raise RecordChanged("others have this id")


@contextmanager
def as_conflict(collection: str) -> Iterator[None]:
    """Raises Conflict for ValidationFailed: it is no fault of the request's body."""
    try:
        yield
    except ValidationFailed as error:
        detail = error.detail or exactjson.summary(error.members.get("errors", ())) or error.title
        raise Conflict(f"{collection}: {detail}") from None


def run_after(hooks: Hooks, transaction: Transaction, change: Change) -> None:
    """Call the functions of the service after a write: see `Resource.after`."""
    stored, before, after = change.representation, change.before, change.after
    for function in stored.resource.functions.get(f"after {_WRITES[change.kind]}", ()):
        unit: Unit = hooks.unit(transaction)
        written = unit.written.get(key := (stored.name, change.record.id))
        function(after and item_of(stored, after), before and item_of(stored, before), unit)
        unit.require_success()
        if unit.written.get(key) is not written:
            raise ValueError(f"{name_of(function)}: changes the item itself: do that before the write")


def run_before(
    stored: StoredRepresentation, before: Record | None, after: Record | None, *, now: str, limits: ItemLimits
) -> Record | None:
    """What is to be stored, when the functions of the service have seen it: see `Resource.before`."""
    if after is before:
        return after
    kind = "create" if before is None else "update" if after else "delete"
    for function in stored.resource.functions.get(f"before {kind}", ()):
        present = before and item_of(stored, before)
        if after is None:
            function(None, present)
        elif (item := changed_item(function, stored, after, present)) is not None:
            write = partial(stored.restore, id=after.id) if before is None else partial(stored.revise, before)
            made = accepted(function, stored, partial(write, now=now, limits=limits), item)
            after = made if made is before else made._replace(owner=after.owner, removed=after.removed)
    return after


def changed_item(
    function: Callable[..., Any], stored: StoredRepresentation, record: Record, *more: Any
) -> JsonObject | None:
    """What a function of the service makes of an item, which it gets with `more`; None if it changes nothing.

    That is what it returns, else its dictionary if it has changed that in place. The fields that the server sets are
    left out. Raises ValueError for what is no item.
    """
    body = stored.body(record)
    item = exactjson.stored(body)
    result = function(item, *more)
    if result is None:
        with suppress(exactjson.EncodeError):  # a value that has no JSON form is a change
            if exactjson.dumps(item) == body:
                return None
        result = item
    if not isinstance(result, dict):
        shown = shortened(repr(result))
        raise ValueError(f"{name_of(function)}: returned {shown} instead of an item (a dictionary)")
    return without_server_fields(stored, result)


def revised(
    function: Callable[..., Any],
    stored: StoredRepresentation,
    before: Record,
    item: JsonObject | None,
    *,
    now: str,
    limits: ItemLimits,
) -> Record:
    """A stored item as a function has changed it, if it has. Raises as `accepted`."""
    if item is None:
        return before
    write = partial(stored.revise, before, now=now, limits=limits)
    return accepted(function, stored, write, item, before)


def accepted(
    function: Callable[..., Any],
    stored: StoredRepresentation,
    write: Callable[[JsonObject], Record],
    item: JsonObject,
    former: Record | None = None,
) -> Record:
    """What `write` makes of an item that a function of the service has set.

    Raises ValueError with the function, fields and values if the schema refuses them: it is no fault of the caller.
    Raises ValidationFailed if it refuses only what the `former` item has, too, which was stored by another schema.
    """
    try:
        return write(item)
    except (ValidationFailed, exactjson.EncodeError) as error:
        wrong, failure = _refused(error, item), error
    if former is not None:
        try:
            write(had := without_server_fields(stored, item_of(stored, former)))
        except ValidationFailed as error:
            known = _refused(error, had)
            wrong = [each for each in wrong if each not in known]
    if not wrong:
        raise failure
    shown = "; ".join(wrong[:MOST_LOGGED]) + ("; …" if len(wrong) > MOST_LOGGED else "")
    raise ValueError(f"{name_of(function)}: sets what {stored.name} cannot store: {shown}")


def _refused(error: Exception, item: JsonObject) -> list[str]:
    """What is wrong in an item, each with the field and its value."""
    if isinstance(error, ValidationFailed):
        faults = error.members.get("errors", ())
    else:
        faults = [exactjson.fault([name], "has no JSON form") for name in item if not _is_json({name: item[name]})]
    shown = []
    for each in faults:
        value: Any = item
        steps = each["pointer"].split("/")[1:]
        with suppress(LookupError, TypeError, ValueError):  # what is missing, and steps that only marshmallow has
            for step in steps:
                name = unquote(step).replace("~1", "/").replace("~0", "~")
                value = value[int(name) if isinstance(value, list) else name]
        known = f" (it is {shortened(repr(value))})" if value is not item or not steps else ""
        shown.append(f"{'/'.join(steps) or 'the item'} {each['detail']}{known}")
    return shown


def _is_json(value: Any) -> bool:
    try:
        exactjson.dumps(value)
    except exactjson.EncodeError:
        return False
    return True


def name_of(function: Callable[..., Any]) -> str:
    """The module and the name of a function of the service."""
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"


def item_of(stored: StoredRepresentation, record: Record) -> JsonObject:
    """The item of a record, as it is stored."""
    return cast(JsonObject, exactjson.stored(stored.body(record)))


def without_server_fields(stored: StoredRepresentation, item: Any) -> JsonObject:
    """What a function sets, without the fields that the server sets."""
    return {name: value for name, value in item.items() if name not in stored.revision.of_server}
