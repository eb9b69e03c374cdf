"""What the functions of a service do with items: actions, and functions before and after a write."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from restkeeper import exactjson
from restkeeper.errors import Conflict, Problem, ValidationFailed, shortened
from restkeeper.exactjson import JsonObject, merge_patch
from restkeeper.resources.call import NONE, Call, Conditions
from restkeeper.resources.changes import Change, Unit
from restkeeper.resources.function_errors import as_conflict, mistake_of, name_of, refusals, require_owner, unstorable
from restkeeper.resources.item import NO_LIMITS, digest
from restkeeper.resources.items import ServedCollection
from restkeeper.resources.unique import find_unique, query_of_unique, unique_fields
from restkeeper.resources.views import StoredView, stored_in
from restkeeper.schemas.item import CLIENT_IDS
from restkeeper.storage.errors import RecordChanged, RecordNotFound, StoreError, StoreUnavailable
from restkeeper.storage.interface import Record

if TYPE_CHECKING:
    from restkeeper.resources.searches import Searches

T = TypeVar("T")

# The most that functions of the service, and deletions, change in one transaction: other writers wait for it.
MOST_CHANGES = 1000  # items
MOST_REFERENCES = 500  # new references: for each one, a store changes a page of an index
MOST_BYTES = 16 * 1024 * 1024  # of these items, before and after their changes

current_items: ContextVar["Items | None"] = ContextVar("restkeeper.items", default=None)  # those of a function


def require_few_references(number: int) -> None:
    """Raises Conflict if so many references are too many for one request."""
    if number > MOST_REFERENCES:
        raise Conflict(f"more than {MOST_REFERENCES} references would be new: send fewer, in several requests")


class Items:
    """The items of all collections in one transaction: all changes with their events, or none.

    Items are dictionaries as they are stored; their owners and the caller make no difference. Items that were read,
    found or counted stay as they are until the end: other writers wait. Every method raises Conflict if the item does
    not exist, and other problems; a problem that the function does not catch is the response. Faults of the service
    raise ValueError: a value that the schema refuses, and a query that no index answers. A change that fails in its
    middle undoes the whole transaction, also if the function catches the error.
    """

    def __init__(
        self,
        unit: Unit,
        collections: Mapping[str, StoredView],
        related: Callable[[], Mapping[str, ServedCollection]] = dict,
    ) -> None:
        self.unit, self._transaction, self._collections = unit, unit.transaction, collections
        self._related = related  # the items of each collection, with their relations
        self.failure: Exception | None = None  # of a change: the transaction must end
        self.functions: list[Callable[..., Any]] = []  # all that have not returned; the last one calls these methods
        self.deletions: list[Change] = []  # those that `References` has to follow
        self.referrers: Sequence[Any] = ()  # the items that refer to the item of the next deletion
        self._changes = self._bytes = self._references = 0

    @cached_property
    def _searches(self) -> "Searches":
        searches = import_module("restkeeper.resources.searches").Searches
        return cast("Searches", searches(self._transaction, self._related, self.undo_all_on_error))

    @property
    def call(self) -> Call:
        """The request, with its `caller`; or the call of a program."""
        return self.unit.call

    @property
    def conditions(self) -> Conditions:
        """The conditions of the request, or of the operation of a batch: `If-Match` and similar fields."""
        return self.unit.command.conditions if self.unit.command else NONE

    def now(self) -> str:
        """The time of the service's clock, as items have it."""
        return self.unit.now()

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call `function(items, …)` of a feature, in one of its seams; return its result."""
        return invoke(self, function, self, *arguments)

    def read(self, collection: str, id: str | int) -> JsonObject:
        """The item with this id."""
        return item_of(self._stored(collection), self._read(collection, id))

    def find(self, collection: str, parameters: Mapping[str, Any] | None = None) -> list[JsonObject]:
        """The items of a list, by its parameters: `{"tool": "t1", "until[gt]": "2026-11-26", "sort": "until"}`.

        Without a `limit` it is all of them. Raises ValueError for more than 1,000.
        """
        return self._searches.find(self._stored(collection), parameters, MOST_BYTES)

    def count(self, collection: str, parameters: Mapping[str, Any] | None = None) -> int:
        """The number of the items of a list, by its parameters as `find`."""
        return self._searches.count(self._stored(collection), parameters)

    def groups(self, collection: str, parameters: Mapping[str, Any]) -> list[JsonObject]:
        """The groups of a list, as a response has them: `{"count": "status", "aggregate[sum]": "total"}`.

        Raises ValueError for more than 1,000.
        """
        return self._searches.groups(self._stored(collection), parameters)

    def create(self, collection: str, item: JsonObject, *, owner: str | None = None) -> JsonObject:
        """Create an item, and return it as it is stored. Its owner is this `owner`, or else the caller."""
        stored = self._stored(collection)
        name = stored.schema.id_name
        sent_id = {name: item[name]} if stored.resource.ids in CLIENT_IDS and name in item else {}
        members, owner_field = without_server_fields(stored, item) | sent_id, stored.revision.owner
        if owner is None and owner_field not in members:
            owner = stored.access.owner_of_new(self.unit.call.caller)
        if owner is not None:
            require_owner(self.functions[-1], owner)
            members.pop(owner_field, None)
        with self.undo_all_on_error():
            id = stored.provisional_id(self.unit.domain.new_id)
            make = partial(stored.restore, id=id, now=self.unit.now(), limits=self.unit.domain.limits, owner=owner)
            record = accepted_record(self, self.functions[-1], stored, make, members)
            (record,) = self.unit.with_integer_ids(stored, [record])
            with as_conflict(collection):
                return item_of(stored, self.apply(stored, None, record))

    def upsert(
        self, collection: str, item: JsonObject, *, on: str | Sequence[str], owner: str | None = None
    ) -> JsonObject:
        """Change the item that has the same values in these fields of a unique index, or create it; return it.

        What `item` leaves out stays, as with a PATCH. Raises as `create` and `change`, and ValueError if no unique
        index has the fields.
        """
        stored = self._stored(collection)
        try:
            names = unique_fields(stored.resource, stored, [on] if isinstance(on, str) else on)
        except ValueError as error:
            raise ValueError(f"{collection}: items.upsert: on {error}") from None
        query = query_of_unique(stored, names, item)
        with self.undo_all_on_error():
            record = find_unique(self._transaction, collection, query)
        if record is None:
            return self.create(collection, item, owner=owner)
        return self.change(collection, stored.resource.public_id(record.id), lambda present: merge_patch(present, item))

    def change(
        self,
        collection: str,
        id: str | int,
        change: Callable[[JsonObject], JsonObject | None],
        *,
        conditions: Conditions = NONE,
    ) -> JsonObject:
        """Change an item by a function, which gets it; return it as it is stored.

        The function returns the changed item, or changes its dictionary in place and returns None. The `conditions` are
        compared with the item as the caller sees it in the newest version. Raises PreconditionFailed.
        """
        stored, before = self._stored(collection), self._read(collection, id)
        if conditions is not NONE:
            tag = digest(stored.for_caller(self.unit.call.caller).body(before))
            conditions.require(tag, max(before.updated_at, stored.changed_at))
        with self.undo_all_on_error():
            after = changed_record(self, change, stored, before)
            with as_conflict(collection):
                return item_of(stored, self.apply(stored, before, after))

    def delete(self, collection: str, id: str | int) -> JsonObject:
        """Delete an item, and return it as it last was. A singleton has its defaults then."""
        stored, before = self._stored(collection), self._read(collection, id)
        if not before.version:  # it has its defaults
            return item_of(stored, before)
        with as_conflict(collection):
            return item_of(stored, self.apply(stored, before, None))

    @contextmanager
    def undo_all_on_error(self) -> Iterator[None]:
        """Work that cannot be undone alone: if it fails after a change, the error is the `failure`.

        An error of the store is a `failure`, too: it ends the transaction, which may be done again.
        """
        changes_before = self._changes
        try:
            yield
        except Exception as error:
            is_refused = isinstance(error, StoreError) and not isinstance(error, RecordNotFound)
            if self._changes > changes_before or is_refused:
                self.failure = self.failure or error
            raise

    def apply(self, stored: StoredView, before: Record | None, after: Record | None, *, bounded: bool = True) -> Record:
        """Write an item for a function, or after a deletion; return the item as it is, or last was.

        An item that is not `bounded` can be larger than callers can send.
        """
        with self.undo_all_on_error():
            limits = self.unit.domain.limits if bounded else NO_LIMITS
            change = self.unit.prepared_change(stored, before, after, limits=limits, follows=True)
            if change.after is not before:
                self._bytes += sum(len(record.body) for record in (before, change.after) if record)
                self.require_room(1)
                self._changes += 1
                self.unit.write_change(change)
            return change.record

    def require_room(self, changes: int = 0) -> None:
        """Raises Conflict if there would be too many changes with these more `changes`."""
        changes += self._changes
        if changes > MOST_CHANGES or (self._bytes > MOST_BYTES and changes > 1):
            most = f"{MOST_CHANGES} items, or {MOST_BYTES >> 20} MiB of them"
            raise Conflict(f"more than {most}, would change with this: change or delete some of them first")

    def add_references(self, number: int) -> None:
        """Count new references. Raises Conflict if there are too many."""
        self._references += number
        require_few_references(self._references)

    def record(self, collection: str, id: str | int) -> Record:
        """The record of an item. Raises RecordNotFound, after which nobody else creates it until the end."""
        stored = self._stored(collection)
        with self.undo_all_on_error():
            with suppress(RecordNotFound):
                record = stored.read(self._transaction, id)
                if record.version:  # 0 is a singleton that is not stored, and has its defaults
                    return record
            self._transaction.lock_collection(collection)
            return stored.read(self._transaction, id)

    def _read(self, collection: str, id: str | int) -> Record:
        try:
            return self.record(collection, id)
        except RecordNotFound:
            raise Conflict(f"{collection}: there is no item {shortened(str(id))!r}") from None

    def _stored(self, collection: str) -> StoredView:
        if not self.functions:
            raise RuntimeError("the transaction has ended: items are for the function that they were given to")
        return self._collections.get(collection) or stored_in(self._collections, collection)


def run_before(unit: Unit, change: Change) -> Change:
    """A change as the functions before it leave it: see `Resource.before`."""
    stored, before, after = change.stored, change.before, change.after
    write = "create" if before is None else "update" if after else "delete"
    functions = stored.resource.functions.get(f"before {write}")
    if after is before or not functions:
        return change
    if after is not None:  # functions see no wrong reference, and cannot delete the item of a right one
        unit.domain.references.check(unit, change, bounded=False)
        unit.transaction.flush()
    items: Items = unit.items
    for function in functions:
        present = before and item_of(stored, before)
        if after is None:
            invoke(items, function, None, present, items, target=(stored.name, change.record.id))
        elif (item := changed_item(items, function, stored, after, present, items)) is not None:
            create = partial(stored.restore, id=after.id, owner=after.owner)
            make = partial(stored.revise, before) if before else create
            record = accepted_record(items, function, stored, partial(make, now=change.at, limits=change.limits), item)
            if (
                before and record is before and after.removed_fields != before.removed_fields
            ):  # which older versions show
                record = stored.touched(before, now=change.at)
            after = record if record is before else record._replace(removed_fields=after.removed_fields)
    return change._replace(after=after)


def run_after(unit: Unit, change: Change) -> None:
    """Call the functions of the service after a write: see `Resource.after`."""
    stored, before, after = change.stored, change.before, change.after
    write = "create" if before is None else "update" if after else "delete"
    functions = stored.resource.functions.get(f"after {write}")
    if not functions:
        return
    if after:
        unit.transaction.flush()  # the store refuses a wrong item before a function is called
    items: Items = unit.items
    for function in functions:
        item, item_before = after and item_of(stored, after), before and item_of(stored, before)
        with as_conflict(stored.name):  # pointers into this item are no pointers into what was sent
            invoke(items, function, item, item_before, items, target=(stored.name, change.record.id))


def invoke(items: Items, function: Callable[..., T], *arguments: Any, target: tuple[str, str] | None = None) -> T:
    """The result of a function of the service, in which `read_item` and `find_items` read from this transaction.

    `target` is the collection and id of the item of the call. Raises ValueError if the function changes this item by
    `items`, and the error of a change by `items` also if the function has caught this error.
    """
    changes, token = items.unit.changes, current_items.set(items)
    change_before = changes.get(target) if target else None
    items.functions.append(function)
    try:
        result = function(*arguments)
    except Exception as error:
        # The store does the transaction again, or answers 503: what the function raises instead would prevent both.
        if isinstance(items.failure, StoreUnavailable | RecordChanged):
            raise items.failure from items.failure.__cause__
        if isinstance(error, RecordNotFound):  # of `read_item`: it is not the item of the request
            error = Conflict(f"a function reads what does not exist: {error.detail}")
        if isinstance(error, Problem):
            problem = error.copied()  # the original keeps its pointers
            problem.add_note(f"raised by {name_of(function)}")
            raise problem from error.__cause__
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        # A fault of this request alone: other requests share the commit, and perhaps the greenlet.
        raise RuntimeError(f"{name_of(function)}: raised {error!r}") from error
    finally:
        items.functions.pop()
        current_items.reset(token)
    if items.failure:  # also if the function has caught it
        raise items.failure
    if target and changes.get(target) is not change_before:
        raise mistake_of(function, "changes its own item by `items`: return it changed, before the write")
    return result


def changed_item(
    items: Items, function: Callable[..., Any], stored: StoredView, record: Record, *more: Any
) -> JsonObject | None:
    """An item as a function of the service changes it, without the fields of the server; None if nothing changes.

    The function gets the item and `more`. It returns an item, or changes its dictionary in place and returns None.
    Raises ValueError for a result that is no item.
    """
    body = stored.body(record)
    item = exactjson.decoded(body)
    result = invoke(items, function, item, *more, target=(stored.name, record.id))
    if result is None:
        with suppress(exactjson.EncodeError):  # a value that has no JSON form is a change
            if exactjson.dumps(item) == body:
                exactjson.require_numbers(item)
                return None
        result = item
    if not isinstance(result, dict):
        raise mistake_of(function, f"returned {shortened(repr(result))} instead of an item (a dictionary)")
    present_owner = {owner: record.owner} if (owner := stored.revision.owner) and owner not in result else {}
    return without_server_fields(stored, result) | present_owner


def changed_record(
    items: Items, function: Callable[..., Any], stored: StoredView, before: Record, *more: Any
) -> Record:
    """A stored item as a function changes it, see `changed_item`. Raises Conflict, and as `accepted_record`."""
    item = changed_item(items, function, stored, before, *more)
    if item is None:
        return before
    make = partial(stored.revise, before, now=items.unit.now(), limits=items.unit.domain.limits)
    with as_conflict(stored.name):
        return accepted_record(items, [function, *items.functions][-1], stored, make, item, before)


def accepted_record(
    items: Items,
    function: Callable[..., Any],
    stored: StoredView,
    make: Callable[[JsonObject], Record],
    item: JsonObject,
    before: Record | None = None,
) -> Record:
    """What `make` returns for an item that a function of the service has set.

    Raises ValueError with the function, the fields and the public values that the schema refuses.
    Raises ValidationFailed if the item `before` the change has all refused values, too: another schema stored it.
    """
    try:
        exactjson.require_numbers(item)
        return make(item)
    except (ValidationFailed, exactjson.EncodeError, RecursionError) as error:  # the last one: it contains itself
        wrong, failure = refusals(stored, error, item), error
    if before is not None:
        try:
            make(item_before := without_server_fields(stored, item_of(stored, before)))
        except ValidationFailed as error:
            refused_before = refusals(stored, error, item_before)
            wrong = {detail: text for detail, text in wrong.items() if detail not in refused_before}
    if not wrong:
        if isinstance(failure, ValidationFailed):
            view = stored.for_caller(items.unit.call.caller)
            exactjson.require_none([*map(view.known_fault, failure.members["errors"])])
        raise failure
    raise unstorable(function, stored, wrong)


def item_of(stored: StoredView, record: Record) -> JsonObject:
    """The item of a record, as it is stored."""
    return cast(JsonObject, exactjson.decoded(stored.body(record)))


def without_server_fields(stored: StoredView, item: Any) -> JsonObject:
    """The fields that a function sets, without the fields that the server sets."""
    return {name: value for name, value in item.items() if name not in stored.revision.of_server}
