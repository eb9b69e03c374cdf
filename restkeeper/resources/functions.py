"""What a service's own functions do with items: actions, and functions before and after each write."""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from inspect import unwrap
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from restkeeper import exactjson
from restkeeper.clock import is_due
from restkeeper.errors import Conflict, InvalidQuery, Problem, ValidationFailed, shortened
from restkeeper.exactjson import JsonObject, merge_patch
from restkeeper.resources.call import EVERYBODY, NONE, Call, Conditions
from restkeeper.resources.changes import Change, Unit
from restkeeper.resources.embedding import Embeddable, with_hops
from restkeeper.resources.groups import MOST_GROUPS, shown_groups
from restkeeper.resources.item import NO_LIMITS, digest
from restkeeper.resources.parameters import GROUPED, Queryable
from restkeeper.resources.queries import ListRequest, parse
from restkeeper.resources.unique import find_unique, query_of_unique, unique_fields
from restkeeper.resources.views import StoredView
from restkeeper.schemas.fields import LONGEST_OWNER
from restkeeper.schemas.item import CLIENT_IDS
from restkeeper.storage.errors import (
    RecordChanged,
    RecordNotFound,
    SearchTooLong,
    StoreError,
    StoreUnavailable,
)
from restkeeper.storage.interface import Groups, Query, Record

T = TypeVar("T")

# Of what functions of the service change in one transaction, and of what follows a deletion: others wait for it.
MOST_CHANGES = 1000
MOST_REFERENCES = 500  # that are new: for each, a store changes a page of an index, which all other writers wait for
MOST_BYTES = 16 * 1024 * 1024  # of these items before and after
MOST_LOGGED = 10  # of the values that a function of the service sets and the schema refuses

MOST_FOUND = 1000  # items that a function finds
SLOW_SECONDS = 0.1  # after which it is logged: other writes wait
FIND_SECONDS = 0.5  # after which it is stopped; of several in a transaction, what is above SLOW_SECONDS together
_OF_VIEWS = {"fields", "embed"}  # parameters of lists that select no items; a view may show what they say

_log = logging.getLogger("restkeeper")

# In which a function of the service is called.
current_items: ContextVar["Items | None"] = ContextVar("restkeeper.items", default=None)

_WRITES = {"created": "create", "updated": "update", "deleted": "delete"}


def require_few_references(number: int) -> None:
    """Raises Conflict if so many references are too many for one request."""
    if number > MOST_REFERENCES:
        raise Conflict(f"more than {MOST_REFERENCES} references would be new: send fewer, in several requests")


class Items:
    """Items of all collections in one transaction: each change with its event, all of them or none.

    Items are dictionaries as they are stored; whose they are and who calls make no difference. What is read, found or
    counted stays so until the end: others that would change it wait. Every method raises Conflict if the item does not
    exist, and other problems; if they are not caught, they are the response. It raises ValueError for what is a fault
    of the service: what the schema refuses, and a query that no index answers. A change that has failed in its middle
    undoes all, also if that is caught.
    """

    def __init__(
        self,
        unit: Unit,
        collections: Mapping[str, StoredView],
        related: Callable[[], Mapping[str, Embeddable]] = dict,
    ) -> None:
        self.unit, self._transaction, self._collections = unit, unit.transaction, collections
        self._related = related  # the items of each collection, with their relations
        self.failure: Exception | None = None  # of a change: the transaction must end
        self.functions: list[Callable[..., Any]] = []  # that have not returned; the last one calls this
        self.deletions: list[Change] = []  # that are to be followed, see `References`
        self.referrers: Sequence[Any] = ()  # likewise, of the next one
        self._changes = self._bytes = self._references = 0
        self._slow_seconds = FIND_SECONDS - SLOW_SECONDS  # that is left to searches, besides SLOW_SECONDS of each

    @property
    def call(self) -> Call:
        """The request that this is for, with its `caller`; or that of a program."""
        return self.unit.call

    @property
    def conditions(self) -> Conditions:
        """Those of the request, or of the operation of a batch, that this is for: `If-Match` and its like."""
        return self.unit.command.conditions if self.unit.command else NONE

    def now(self) -> str:
        """The time of the service's clock, as items have it."""
        return self.unit.now()

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """What `function(items, …)` of a feature returns, in one of its seams. Raises as `invoke`."""
        return invoke(self, function, self, *arguments)

    def read(self, collection: str, id: str | int) -> JsonObject:
        """An item."""
        return item_of(self._stored(collection), self._read(collection, id))

    def find(self, collection: str, parameters: Mapping[str, Any] | None = None) -> list[JsonObject]:
        """The items of a list, by its parameters: {"tool": "t1", "until[gt]": "2026-11-26", "sort": "until"}.

        Without a `limit` it is all of them. Raises ValueError for more than 1,000.
        """
        stored, query = self._query(collection, parameters)
        find = partial(self._transaction.page, collection, query, MOST_BYTES)
        page = self._search(stored, query, find)
        wanted = query.limit if "limit" in (parameters or {}) else None
        if page.more and (wanted is None or len(page.bodies) < wanted):
            most = f"{MOST_FOUND:,} items, or {MOST_BYTES >> 20} MiB of them"
            raise ValueError(f"{collection}: items.find: more than {most}: add filters, or a limit")
        return [exactjson.decoded(body) for body in stored.bodies(page)]

    def count(self, collection: str, parameters: Mapping[str, Any] | None = None) -> int:
        """The number of the items of a list, by its parameters as `find`."""
        stored, query = self._query(collection, parameters)
        query = query._replace(sort=(), limit=None)  # which a number has not
        count = partial(self._transaction.count, collection, query, most=sys.maxsize)
        return self._search(stored, query, count)

    def groups(self, collection: str, parameters: Mapping[str, Any]) -> list[JsonObject]:
        """The groups of a list, as a response has them: {"count": "status", "aggregate[sum]": "total"}.

        Raises ValueError for more than 1,000.
        """
        stored, query = self._query(collection, parameters, is_grouped=True)
        find = partial(self._transaction.groups, collection, query, MOST_GROUPS + 1)
        try:
            return shown_groups(stored, query.groups, query.groups, self._search(stored, query, find))
        except InvalidQuery as error:
            raise ValueError(f"{collection}: items.groups: {error.detail}") from None

    def create(self, collection: str, item: JsonObject, *, owner: str | None = None) -> JsonObject:
        """Create an item, of this owner, else of the caller where items have one; return it as it is stored."""
        stored = self._stored(collection)
        name = stored.schema.id_name
        sent_id = {name: item[name]} if stored.resource.ids in CLIENT_IDS and name in item else {}
        members, owner_field = without_server_fields(stored, item) | sent_id, stored.revision.owner
        if owner is None and owner_field not in members:
            owner = stored.access.owner_of_new(self.unit.call.caller)
        if owner is not None:
            _require_owner(self.functions[-1], owner)
            members.pop(owner_field, None)
        with self._whole():
            id = stored.new_id(self.unit.domain.new_id)
            make = partial(stored.restore, id=id, now=self.unit.now(), limits=self.unit.domain.limits, owner=owner)
            record = accepted_record(self, self.functions[-1], stored, make, members)
            (record,) = self.unit.with_integer_ids(stored, [record], [sent_id])
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
        with self._whole():
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
            tag = digest(stored.of(self.unit.call.caller).body(before))
            conditions.require(tag, max(before.updated_at, stored.changed_at))
        with self._whole():
            after = changed_record(self, change, stored, before)
            with as_conflict(collection):
                return item_of(stored, self.apply(stored, before, after))

    def delete(self, collection: str, id: str | int) -> JsonObject:
        """Delete an item; return it as it last was. A singleton has its defaults then."""
        stored, before = self._stored(collection), self._read(collection, id)
        if not before.version:  # it has its defaults
            return item_of(stored, before)
        with as_conflict(collection):
            return item_of(stored, self.apply(stored, before, None))

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """A part of the work that cannot be undone alone: if it fails after a change, that is a `failure`.

        So is what the store refuses: it ends the transaction, which may be done again.
        """
        before = self._changes
        try:
            yield
        except Exception as error:
            is_refused = isinstance(error, StoreError) and not isinstance(error, RecordNotFound)
            if self._changes > before or is_refused:
                self.failure = self.failure or error
            raise

    def apply(self, stored: StoredView, before: Record | None, after: Record | None, *, bounded: bool = True) -> Record:
        """Write an item as one of the changes that may follow one of a request; return it as it is, or last was.

        If it is not `bounded`, it can be larger than an item that callers send.
        """
        with self._whole():
            limits = self.unit.domain.limits if bounded else NO_LIMITS
            change = self.unit.changing(stored, before, after, limits=limits, follows=True)
            if change.after is not before:
                self._bytes += sum(len(record.body) for record in (before, change.after) if record)
                self.require_room(1)
                self._changes += 1
                self.unit.store_change(change)
            return change.record

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

    def record(self, collection: str, id: str | int) -> Record:
        """The record of an item. Raises RecordNotFound, after which nobody else creates it until the end."""
        stored = self._stored(collection)
        with self._whole():
            with suppress(RecordNotFound):
                record = stored.read(self._transaction, id)
                if record.version:  # else it is a singleton that is not stored, and has its defaults
                    return record
            self._transaction.lock_collection(collection)
            return stored.read(self._transaction, id)

    def _read(self, collection: str, id: str | int) -> Record:
        try:
            return self.record(collection, id)
        except RecordNotFound:
            raise Conflict(f"{collection}: there is no item {shortened(str(id))!r}") from None

    def _query(
        self, collection: str, parameters: Mapping[str, Any] | None, *, is_grouped: bool = False
    ) -> tuple[StoredView, Query]:
        """Raises ValueError for wrong parameters: they are the function's, and no fault of the caller."""
        stored = self._stored(collection)
        try:
            queryable = with_hops(stored.queryable, self._related()[collection], EVERYBODY)
            found = query_of(stored, parameters, MOST_FOUND, queryable=queryable, is_grouped=is_grouped)
            return stored, found.query
        except InvalidQuery as error:
            called = "items.groups" if is_grouped else "items.find and items.count"
            raise ValueError(f"{collection}: {called}: {error.detail}") from None

    def _search(self, stored: StoredView, query: Query, search: Callable[..., T]) -> T:
        """What `search` returns, when nobody else changes items of the collection any more.

        Raises ValueError for what no index answers, and SearchTooLong: all others wait for it.
        """
        if not self._transaction.is_indexed(stored.name, query):
            names = sorted({f.field for f in query.filters if not f.join} or {key.field for key in query.sort})
            joined = [f"Index({f.field!r}) of {each.collection.name}" for each in query.joins for f in each.filters]
            raise ValueError(
                f"{stored.name}: items.find and items.count need an index: add one of these to the Resource's indexes: "
                + ", ".join([*(f"Index({name!r})" for name in names), *joined])
            )
        with self._whole():
            for name in sorted({stored.name, *(each.collection.name for each in query.joins)}):
                self._transaction.lock_collection(name)
            try:
                return search(seconds=SLOW_SECONDS + self._slow_seconds)
            except SearchTooLong as error:
                error.reason = "see the line about items.find and items.count"
                raise
            finally:
                if (seconds := self._transaction.search_seconds) > SLOW_SECONDS:
                    self._slow_seconds = max(0.0, self._slow_seconds + SLOW_SECONDS - seconds)
                    self._log_slow(stored.name, query, seconds)

    def _log_slow(self, collection: str, query: Query, seconds: float) -> None:
        """Log a search that took long, unless there was a line about one of its form."""
        form = " ".join([*(f"{f.field}[{f.op}]" for f in query.filters), *(f"sort={key.name}" for key in query.sort)])
        if not is_due((collection, form)):
            return
        wanted = self._transaction.wanted_indexes(collection, query)
        remedy = (
            f"declare {' or '.join(map(str, wanted))}" if wanted else "add filters of values that fewer items share"
        )
        plan = self._transaction.explain(collection, query)
        message = "%s: items.find or items.count took %.2f s, for which others wait, by %s: %s. Plan: %s"
        _log.warning(message, collection, seconds, form or "id", remedy, plan)

    def _stored(self, collection: str) -> StoredView:
        if not self.functions:
            raise RuntimeError("the transaction has ended: items are for the function that they were given to")
        return self._collections.get(collection) or stored_in(self._collections, collection)


def stored_in(collections: Mapping[str, StoredView], collection: str) -> StoredView:
    """A collection by its name. Raises ValueError if there is none."""
    if (stored := collections.get(collection)) is None:
        raise ValueError(f"there is no collection {collection!r}; there are: {', '.join(collections)}")
    return stored


def query_of(
    stored: StoredView,
    parameters: Mapping[str, Any] | None,
    limit: int,
    related: Names[str] | None = None,
    queryable: Queryable | None = None,
    *,
    is_grouped: bool = False,
) -> ListRequest:
    """The list by its parameters, of at most `limit` items in a page, or the groups of its items. Raises InvalidQuery.

    A value can be a list, of which any is meant, and None, True or False. Raises ValueError for an empty list, and for
    what is of responses alone: without `related`, which is what a view can embed, `fields` and `embed`, too.
    """
    of_responses = {"cursor", "export", *(() if is_grouped else GROUPED), *(_OF_VIEWS if related is None else ())}
    if wrong := of_responses.intersection(parameters or {}, stored.queryable.reserved):
        raise ValueError(f"{stored.name}: {min(wrong)}: is for responses; here it would do nothing")
    given: dict[str, list[Any]] = {}
    for name, value in (parameters or {}).items():
        if value is None and "[" not in name:
            name, value = f"{name}[is]", "null"
        elif isinstance(value, list | tuple):
            if not value:
                raise ValueError(f"{stored.name}: {name}: is an empty list, which no item has a value of")
            name = name.removesuffix("[in]")  # repeated, as a value can have a comma
        given.setdefault(name, []).extend(value if isinstance(value, list | tuple) else [value])
    requested = parse(given, queryable or stored.queryable, limit, limit, related or ())
    if is_grouped:
        groups = requested.query.groups or Groups()
        return requested._replace(query=requested.query._replace(groups=groups))
    return requested._replace(query=requested.query._replace(sort=requested.query.sort or stored.resource.order))


@contextmanager
def as_conflict(collection: str) -> Iterator[None]:
    """Raises Conflict for ValidationFailed: it is no fault of the request's body."""
    try:
        yield
    except ValidationFailed as error:
        detail = error.detail or exactjson.summary(error.members.get("errors", ())) or error.title
        raise Conflict(f"{collection}: {detail}") from None


def run_before(unit: Unit, change: Change) -> Change:
    """A write as the functions of the service that are called before it leave it: see `Resource.before`."""
    stored, before, after = change.stored, change.before, change.after
    functions = stored.resource.functions and stored.resource.functions.get(f"before {_WRITES[change.kind]}")
    if after is before or not functions:
        return change
    if after is not None:  # functions see no wrong reference, and cannot take away what a right one refers to
        unit.domain.check(unit, change, bounded=False)
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
            if before and record is before and after.removed != before.removed:  # which older versions show
                record = stored.touched(before, now=change.at)
            after = record if record is before else record._replace(removed=after.removed)
    return change._replace(after=after)


def run_after(unit: Unit, change: Change) -> None:
    """Call the functions of the service after a write: see `Resource.after`."""
    stored, before, after = change.stored, change.before, change.after
    functions = stored.resource.functions and stored.resource.functions.get(f"after {_WRITES[change.kind]}")
    if not functions:
        return
    if after:
        unit.transaction.flush()  # what a store refuses of it is refused first
    items: Items = unit.items
    for function in functions:
        shown = after and item_of(stored, after), before and item_of(stored, before)
        with as_conflict(stored.name):  # pointers into this item are no pointers into what was sent
            invoke(items, function, *shown, items, target=(stored.name, change.record.id))


def invoke(items: Items, function: Callable[..., T], *arguments: Any, target: tuple[str, str] | None = None) -> T:
    """What a function of the service returns, in which `read_item` and `find_items` read from this transaction.

    `target` is the collection and id of the item that it is called for. Raises ValueError if it changes that by
    `items`, and what one of its changes has raised, also if it has caught that.
    """
    changes, token = items.unit.changes, current_items.set(items)
    former = changes.get(target) if target else None
    items.functions.append(function)
    try:
        result = function(*arguments)
    except Exception as error:
        # What a function raises for this would be a wrong response, or the end of what is to be done again.
        if isinstance(items.failure, StoreUnavailable | RecordChanged):
            raise items.failure from items.failure.__cause__
        if isinstance(error, RecordNotFound):  # of `read_item`: it is not the item of the request
            error = Conflict(f"a function reads what does not exist: {error.detail}")
        if isinstance(error, Problem):
            problem = error.copied()  # its pointers become those of what was sent
            problem.add_note(f"raised by {name_of(function)}")
            error.__traceback__ = None  # to which each raise of a constant would add
            raise problem from error.__cause__
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        # Of this request alone: others share the commit, and the greenlet may be another one's.
        raise RuntimeError(f"{name_of(function)}: raised {error!r}") from error
    finally:
        items.functions.pop()
        current_items.reset(token)
    if items.failure:  # also if the function has caught it
        raise items.failure
    if target and changes.get(target) is not former:
        raise mistake_of(function, "changes its own item by `items`: return it changed, before the write")
    return result


def changed_item(
    items: Items, function: Callable[..., Any], stored: StoredView, record: Record, *more: Any
) -> JsonObject | None:
    """What a function of the service makes of an item, which it gets with `more`; None if it changes nothing.

    That is what it returns, else its dictionary if it has changed that in place. The fields that the server sets are
    left out. Raises ValueError for what is no item.
    """
    body = stored.body(record)
    item = exactjson.decoded(body)
    result = invoke(items, function, item, *more, target=(stored.name, record.id))
    if result is None:
        with suppress(exactjson.EncodeError):  # a value that has no JSON form is a change
            if _json(item) == body:
                return None
        result = item
    if not isinstance(result, dict):
        shown = shortened(repr(result))
        raise mistake_of(function, f"returned {shown} instead of an item (a dictionary)")
    kept = {owner: record.owner} if (owner := stored.revision.owner) and owner not in result else {}
    return without_server_fields(stored, result) | kept


def changed_record(
    items: Items, function: Callable[..., Any], stored: StoredView, before: Record, *more: Any
) -> Record:
    """A stored item as a function changes it, see `changed_item`.

    Raises Conflict, and ValueError as `accepted_record`, which names the function of the service that calls this one.
    """
    item = changed_item(items, function, stored, before, *more)
    if item is None:
        return before
    make = partial(stored.revise, before, now=items.unit.now(), limits=items.unit.domain.limits)
    with as_conflict(stored.name):
        return accepted_record(items, [function, *items.functions][-1], stored, make, item, before)


def _require_owner(function: Callable[..., Any], owner: Any) -> None:
    """Raises ValueError for what a function of the service gives as an owner, and no caller can be."""
    is_text = isinstance(owner, str) and 0 < len(owner) <= LONGEST_OWNER
    if not is_text or any(exactjson.faults_in_values(owner)):
        wanted = f"a text of 1 to {LONGEST_OWNER} characters without NUL"
        raise ValueError(f"{name_of(function)}: items.create: the owner must be {wanted}: {shortened(repr(owner))}")


def accepted_record(
    items: Items,
    function: Callable[..., Any],
    stored: StoredView,
    make: Callable[[JsonObject], Record],
    item: JsonObject,
    former: Record | None = None,
) -> Record:
    """What `make` returns for an item that a function of the service has set.

    Raises ValueError with the function, fields and values if the schema refuses them: it is no fault of the caller.
    Values of private fields are left out: the error is for the log.
    Raises ValidationFailed if it refuses only what the `former` item has, too, which was stored by another schema.
    """
    try:
        exactjson.require_numbers(item)
        return make(item)
    except (ValidationFailed, exactjson.EncodeError, RecursionError) as error:  # the last one: it contains itself
        wrong, failure = _refused(stored, error, item), error
    if former is not None:
        try:
            make(had := without_server_fields(stored, item_of(stored, former)))
        except ValidationFailed as error:
            known = _refused(stored, error, had)
            wrong = {detail: shown for detail, shown in wrong.items() if detail not in known}
    if not wrong:
        if isinstance(failure, ValidationFailed):
            seen = stored.of(items.unit.call.caller)
            exactjson.require_none([*map(seen.known_fault, failure.members["errors"])])
        raise failure
    shown = "; ".join([*wrong.values()][:MOST_LOGGED]) + ("; …" if len(wrong) > MOST_LOGGED else "")
    raise mistake_of(function, f"sets what {stored.name} cannot store: {shown}")


def _refused(stored: StoredView, error: Exception, item: JsonObject) -> dict[str, str]:
    """What is wrong in an item, each with the field and its value; and as the log has it, without private values."""
    if isinstance(error, ValidationFailed):
        faults = error.members.get("errors", ())
    else:
        faults = []
        for name in item:
            try:
                _json({name: item[name]})
            except exactjson.EncodeError:
                faults.append(exactjson.fault([name], "has no JSON form"))
    wrong, private = {}, stored.revision.private
    for fault in faults:
        steps = fault["pointer"].split("/")[1:]
        value: Any = item if steps else {name: item[name] for name in item if name not in private}
        with suppress(LookupError, TypeError, ValueError):  # what is missing, and steps that only marshmallow has
            for step in steps:
                name = unquote(step).replace("~1", "/").replace("~0", "~")
                value = value[int(name) if isinstance(value, list) else name]
        text = f"{'/'.join(steps) or 'the item'} {fault['detail']}"
        known = f"{text} (it is {shortened(repr(value))})" if value is not item else text
        wrong[known] = text if steps and steps[0] in private else known
    return wrong


def mistake_of(function: Callable[..., Any], what: str) -> ValueError:
    """The error for what a function of the service has done; as the function may be over, a note says where it is."""
    error = ValueError(f"{name_of(function)}: {what}")
    if code := getattr(unwrap(function), "__code__", None):
        error.add_note(f'  File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}')
    return error


def _json(value: Any) -> bytes:
    """The JSON text of what a function has made. Raises EncodeError if there is none."""
    text = exactjson.dumps(value)  # first: it bounds how deep the value is
    exactjson.require_numbers(value)
    return text


def returned_json(function: Callable[..., Any], result: Any) -> bytes:
    """The JSON text of what a function has returned. Raises ValueError with its name if there is none."""
    try:
        return _json(result)
    except exactjson.EncodeError as error:
        raise mistake_of(function, f"returned what has no JSON form: {error}") from error


def name_of(function: Callable[..., Any]) -> str:
    """The module and the name of a function of the service."""
    function = function.func if isinstance(function, partial) else function
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"


def item_of(stored: StoredView, record: Record) -> JsonObject:
    """The item of a record, as it is stored."""
    return cast(JsonObject, exactjson.decoded(stored.body(record)))


def without_server_fields(stored: StoredView, item: Any) -> JsonObject:
    """What a function sets, without the fields that the server sets."""
    return {name: value for name, value in item.items() if name not in stored.revision.of_server}
