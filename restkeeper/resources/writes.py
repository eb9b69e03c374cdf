"""The items of one collection, as requests change them: each write is computed, and done in one transaction."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from flask import has_request_context, request

from restkeeper.clock import WRITE_TURN_SECONDS, YIELD_SECONDS, Clock, in_turns, rfc3339, time_after
from restkeeper.errors import MOST_FAULTS, NotFound, Unavailable, ValidationFailed
from restkeeper.resources.changes import Change, IdempotencyRecord
from restkeeper.resources.items import Items
from restkeeper.resources.references import added, may_read, required_by
from restkeeper.resources.representation import ItemLimits, JsonObject, Representation
from restkeeper.resources.resource import Action
from restkeeper.resources.unit import (
    as_conflict,
    changed_item,
    next_ids,
    require_few_references,
    revised,
    run_before,
    use_ids,
)
from restkeeper.schemas.fields import WRITABLE_BY, Status, scopes_of
from restkeeper.schemas.item import INTEGERS
from restkeeper.storage.base import Locked, Store, Transaction
from restkeeper.storage.errors import (
    DuplicateValue,
    ItemsIncomplete,
    RecordChanged,
    RecordNotFound,
    ReferenceMissing,
    ResponseStored,
    StoreContended,
    StoreUnavailable,
)
from restkeeper.storage.interface import Filter, Index, Op, Query, Record
from restkeeper.web import exactjson, lookup
from restkeeper.web.application import SLASH, Reply, address_of
from restkeeper.web.auth import caller, lacking
from restkeeper.web.exactjson import JSON, fault, read_object, require_acceptable, require_none
from restkeeper.web.preconditions import is_conditional, require_match

T = TypeVar("T")

CHANGE_SECONDS = 5.0  # for which a change waits for others and is retried, before it returns 503
CONTENDED_SECONDS = 0.05  # before it is retried if the store had to end it
LARGE = 16 * 1024  # bytes of an item, from which on it takes milliseconds to compute a change
LOCKS = 256  # ids share them, so that their number has a bound
_DEADLINE = "restkeeper.deadline"  # in the WSGI environment: that of all waits of the request


class Prepared(NamedTuple):
    """A write that is computed: its response, and the `work` that it does in one transaction, if it changes anything.

    `before` is the item from which it was computed: if that is not stored just so any more, it is computed again.
    `after` has the items to store, by what is before the names of their fields in a JSON Pointer, such as "3/". A PUT
    `creates` one: if another one has created it meanwhile, this is computed again. With `use_reserve` it is done also
    on a disk that is almost full.
    """

    reply: Reply
    work: Callable[[Transaction], object] | None = None
    before: Record | None = None
    after: Mapping[str, Record] = {}  # noqa: RUF012 - never changed
    creates: bool = False
    use_reserve: bool = False


@dataclass(eq=False)
class Writes(Items):
    """The items of one collection, as requests read and write them; `apply` stores a change, in a transaction."""

    apply: Callable[..., object] | None = None  # by default `Hooks.apply`

    def __post_init__(self) -> None:
        super().__post_init__()
        self._apply = self.apply or self.hooks.apply
        self._limits = ItemLimits(*self.config.item_limits)
        self._locks = ItemLocks(self.clock)
        self._serial = self.name if self.resource.ids in INTEGERS else None  # the lock of new items

    def body(self, *types: str, most: int = 0) -> Any:
        """The JSON object in the request's body, or an array of them. Raises as `read_object`."""
        require_acceptable(JSON)
        return read_object(*types, most=most, **self.config.body_limits)

    def create(self, sent: JsonObject | list[JsonObject], complete: Callable[[], object] = lambda: None) -> Reply:
        """Create an item from the request's body, or items from an array: all or none, and the response is an array.

        What was sent can be `complete` only later: not for a repetition, which gets the first response.
        """
        owner, deadline = request.args.get("owner"), deadline_of(self.clock)

        def prepare() -> Prepared:
            complete()
            with self._alone(deadline):
                prepared = self.prepare_create(sent, owner)
            if record := prepared.after.get(""):
                id = str(self.resource.shown(record.id)).replace("/", SLASH)
                prepared.reply.headers["Location"] = address_of(f"{request.path}/{id}")
            return prepared

        return self.add(self.hooks.idempotency(sent), prepare)

    def change(self, id: str, change: Callable[..., Record], sent: JsonObject) -> Reply:
        """Change an item by `change` (`replace` or `merge`) and what was sent.

        Raises NotFound, Forbidden and PreconditionFailed.
        """
        prepare = partial(self.prepare_change, id, change, sent, deadline=deadline_of(self.clock))
        return self.write_once(IdempotencyRecord(), prepare, id)

    def delete(self, id: str) -> Reply:
        """Delete an item. Raises as `change`."""
        require_acceptable(JSON)
        return self.write_once(IdempotencyRecord(), partial(self.prepare_delete, id), id)

    def act(self, action: Action, sent: JsonObject | None, loaded: Any, id: str | None) -> Reply:
        """Do an action, of the item with this id or of the collection, with what was sent and `loaded` by its schema.

        Raises what its function raises, and as `change`.
        """

        def work(transaction: Transaction) -> Reply:
            return done(self.prepare_action(action, loaded, id, transaction), transaction)

        return write_together(self.store, self.hooks.idempotency(sent), work, self.clock)

    def _now(self) -> str:
        return rfc3339(self.clock.time())

    # What each write computes. Alone, it does so before its transaction, so that nobody waits for it; an action, and a
    # write among others in one `transaction`, read the item there, where it is locked.

    def prepare_create(
        self, sent: JsonObject | list[JsonObject], owner: str | None = None, transaction: Transaction | None = None
    ) -> Prepared:
        """Create an item, of the `owner` that an admin names, or those of an array, all or none."""
        several = sent if isinstance(sent, list) else [sent]
        ids = next_ids(self.resource, transaction or self.store, self.hooks.new_id, several)
        records, faults, references = list[Record](), list[JsonObject](), 0
        for number, each in in_turns(enumerate(several), self.clock):
            try:
                records.append(self._new(each, owner, ids[number]))
                if several is sent and self.stored.revision.references:  # before the work of the others and of a store
                    require_few_references(references := references + len([*required_by(self.stored, records[-1])]))
            except ValidationFailed as error:
                if several is not sent:
                    raise
                wrong: list[JsonObject] = error.members["errors"]
                faults += [{**each, "pointer": f"#/{number}{each['pointer'].removeprefix('#')}"} for each in wrong]
                if len(faults) > MOST_FAULTS:
                    break
        require_none(faults)
        work = partial(self._insert, records, ids)
        if several is not sent:
            return Prepared(self.represent(records[0]), work, after={"": records[0]})
        body = b"[" + b",".join(map(self.representation.body, records)) + b"]"
        reply = Reply(body, content_type=JSON, headers={"Cache-Control": self.caching})
        return Prepared(reply, work, after={f"{n}/": each for n, each in enumerate(records)})

    def prepare_change(
        self,
        id: str,
        change: Callable[..., Record],
        sent: JsonObject,
        transaction: Transaction | None = None,
        *,
        deadline: float = 0.0,
    ) -> Prepared:
        """See `change`. Outside of a transaction, large items are changed one after the other."""
        try:
            before = self._find_to_change(id, transaction)
        except (NotFound, RecordNotFound):
            if change != self.replace or not self.stored.is_put_creating:
                raise
            require_match(None, must_say=self.config.require_if_match)
            if not self.resource.singleton:
                known = self.resource.shown(key) if (key := self.resource.key(id)) else id
                name = self.resource.schema.id_name
                sent = sent if name in sent else {name: known, **sent}
                is_other = self.resource.key(sent[name]) != self.resource.key(id)
                require_none([fault([name], "is another one in the path")] if is_other else [])
            with nullcontext() if transaction else self._alone(deadline):
                return self.prepare_create(sent)._replace(creates=True)
        with nullcontext() if transaction else self._alone(deadline, len(before.body)):
            after = change(before, sent, now=self._now(), limits=self._limits)
        return self._prepare_update(before, after)

    def prepare_delete(self, id: str, transaction: Transaction | None = None) -> Prepared:
        """Delete an item; the response is the item as it last was."""
        before = self._find_to_change(id, transaction)
        self._run_before(before, None)
        body = self.representation.body(before)
        change = Change("deleted", self.stored, before, None, time_after(before.updated_at, self._now()))
        work = partial(self._apply, change=change)
        return Prepared(Reply(body, content_type=JSON), work, before, use_reserve=True)

    def prepare_action(self, action: Action, loaded: Any, id: str | None, transaction: Transaction) -> Prepared:
        """See `act`. What its function does with other items is done."""
        before = None if id is None else self._find_to_change(id, transaction)
        unit = self.hooks.unit(transaction)
        more = (*([loaded] if action.body else []), unit)
        if before is None:
            result = action.function(*more)
            unit.require_success()
            return Prepared(Reply(exactjson.dumps(result), content_type=JSON))
        item = changed_item(action.function, self.stored, before, *more)
        unit.require_success()
        if (self.name, before.id) in unit.written:
            raise ValueError(f"{action.name}: changes its item by the Unit: return the changed item instead")
        with as_conflict(self.name):
            after = revised(action.function, self.stored, before, item, now=self._now(), limits=self._limits)
            return self._prepare_update(before, after)

    def _alone(self, deadline: float, size: int = 0) -> AbstractContextManager[None]:
        """For what computes items outside of a transaction: if they are large, or the body is, one after the other."""
        length = LARGE if request.content_length is None else request.content_length  # None: the body is chunked
        return self._locks.of_size(max(size, length), deadline)

    def _prepare_update(self, before: Record, after: Record) -> Prepared:
        after = self._run_before(before, after) or after
        if after is before:
            return Prepared(self.represent(before))
        change = Change("updated", self.stored, before, after, after.updated_at)
        return Prepared(self.represent(after), partial(self._apply, change=change), before, {"": after})

    def replace(self, record: Record, sent: JsonObject, **options: Any) -> Record:
        """As `Representation.replace`, by a caller: a field that it may not change, and left out, stays as it is.

        Raises Forbidden as `_require_scopes`.
        """
        foreign = {
            known
            for name, field in self.stored.revision.guarded.items()
            if (scope := field.metadata.get(WRITABLE_BY)) and not caller().may(scope)
            for known in self.representation.names_of(name)
        }
        if foreign - sent.keys():
            members = exactjson.cut(self.representation.body(record))
            sent = {name: exactjson.stored(members[name]) for name in foreign if name in members} | sent
        return self._require_scopes(record, self.representation.replace(record, sent, **options), sent)

    def merge(self, record: Record, patch: JsonObject, **options: Any) -> Record:
        """As `Representation.merge`, by a caller. Raises Forbidden as `_require_scopes`."""
        return self._require_scopes(record, self.representation.merge(record, patch, **options), patch)

    def _require_scopes(self, before: Record | None, after: Record, sent: JsonObject) -> Record:
        """The item. Raises Forbidden for a value, or a state, that it did not have, and the caller may not set.

        That is also a reference to a collection that it may not read: it must not learn which items exist. A new item
        had the defaults.
        """
        if after is before:
            return after
        self._require_readable(before, after)
        if not (guarded := self.stored.revision.guarded):
            return after
        had = exactjson.cut(self.stored.present(before).body) if before else self.stored.revision.defaults
        has = exactjson.cut(after.body)
        for name, field in guarded.items():
            known = self.representation.names_of(name)
            is_set = before is not None or not sent.keys().isdisjoint(known)
            if is_set and not exactjson.equal(has.get(name, b"null"), had.get(name, b"null")):
                value = exactjson.stored(has.get(name, b"null"))
                to = f" to {value}" if isinstance(field, Status) else ""
                for scope in scopes_of(field, value):
                    if not caller().may(scope):
                        raise lacking(scope, f"a change of {known[0]}{to}")
        return after

    def _require_readable(self, before: Record | None, after: Record) -> None:
        """Raises Forbidden for a reference: see `_require_scopes`. Who writes in a collection knows its items."""
        others = {field.to for field in self.stored.revision.references.values()} - {self.name}
        if not (foreign := {each for each in others if not may_read(self.hooks.resources[each])}):
            return
        had = self.stored.present(before).body if before else exactjson.joined(self.stored.revision.defaults)
        for field, new in added(self.stored, had, after.body):
            if new and field.to in foreign:
                known = self.representation.known_fault({"pointer": next(iter(new.values())), "detail": ""})
                raise lacking(
                    self.hooks.resources[field.to].scope("read"),
                    f"a new reference in {known['pointer'].removeprefix('#/')}",
                )

    def _new(self, sent: JsonObject, owner: str | None, id: str) -> Record:
        """A new item, which is not stored yet."""
        record = self.representation.create(sent, id=id, now=self._now(), limits=self._limits)
        self._require_scopes(None, record, sent)
        record = record._replace(owner=self.access.owner_of_new(owner))
        return self._run_before(None, record) or record

    def _insert(self, records: Sequence[Record], made: Sequence[str], transaction: Transaction) -> None:
        """Store new items, of which some have ids that were `made` for them."""
        use_ids(
            self.resource,
            next(filter(None, made), ""),
            max((each.id for each in records), key=self.resource.number),
            transaction,
        )
        for each in in_turns(records, self.clock, WRITE_TURN_SECONDS):
            self._apply(transaction, Change("created", self.stored, None, each, each.updated_at))

    def _run_before(self, before: Record | None, after: Record | None) -> Record | None:
        try:
            return run_before(self.stored, before, after, now=self._now(), limits=self._limits)
        except ValidationFailed as error:
            found = error.members.get("errors") or [fault((), str(error))]  # so that an array has one for its item
            error.members["errors"] = [self.representation.known_fault(each) for each in found]
            raise

    def add(self, once: IdempotencyRecord, prepare: Callable[[], Prepared]) -> Reply:
        """As `write_once`, for a new item: if the request is conditional, the list must match.

        That is the first page, as it is tagged. Raises PreconditionFailed.
        """
        lock = self._serial
        if is_conditional():
            owner = self.access.visible_owner()
            prepare, lock = partial(self._prepare_if_match, prepare, owner), lock or owner
        return self.write_once(once, prepare, lock)

    def _prepare_if_match(self, prepare: Callable[[], Prepared], owner: str | None) -> Prepared:
        prepared = prepare()
        seen, tag = (None, None) if owner is None else self.first_page(owner)

        def work(transaction: Transaction) -> None:
            change_token = transaction.change_token(self.name)
            if seen not in (None, change_token):
                raise RecordChanged("the list was changed meanwhile")
            require_match(tag or self.list_tag(change_token, self.page_limit))
            done(prepared, transaction)

        return prepared._replace(work=work)

    def write_once(self, once: IdempotencyRecord, prepare: Callable[[], Prepared], lock: str | None) -> Reply:
        """Do what is prepared, in one transaction with its response; or return the response that is stored.

        Whatever takes long is prepared before the transaction, and again if others have changed the same since: under
        the `lock` of an item, if that is likely. A DuplicateValue names all fields of the item that are taken.
        """
        return self._locks.change(lock, partial(self._attempt, once, prepare, Locked()))

    def _attempt(
        self, once: IdempotencyRecord, prepare: Callable[[], Prepared], locked: Locked, deadline: float
    ) -> Reply:
        """See `write_once`; for what is `locked` see `Transaction.lock`."""
        if (stored := once.find(self.store)) is not None:
            return stored
        prepared = prepare()
        if prepared.work is None:
            return prepared.reply

        def work(transaction: Transaction) -> Reply:
            once.save(transaction, prepared.reply)
            transaction.lock(locked)
            if prepared.before is not None and prepared.before.version:
                transaction.require(self.name, prepared.before)
            return done(prepared, transaction)

        try:
            return self.store.write(work, use_reserve=prepared.use_reserve, deadline=deadline)
        except DuplicateValue as error:
            if prepared.creates:
                with suppress(NotFound):
                    self.require_sight(str(self.resource.shown(prepared.after[""].id)))
                    raise RecordChanged("the item was created meanwhile") from None
            taken = self._taken(prepared) or [self.representation.name_of(each) for each in error.fields]
            raise DuplicateValue(*taken) from None
        except ReferenceMissing as error:
            raise explained(self.representation, error, prepared) from None

    def _taken(self, prepared: Prepared) -> list[str]:
        """The unique fields whose values others have, or earlier ones of several items: such as "sku" or "3/sku"."""
        seen, taken = set[tuple[str, Any]](), list[str]()
        own = (Filter("id", Op.NE, prepared.before.id),) if prepared.before else ()
        unique = [each for each in (Index("id", unique=not own), *self.resource.indexes) if each.unique]
        with suppress(StoreUnavailable, ItemsIncomplete):  # then it is the one that the store has named
            for around, record in prepared.after.items():
                item = exactjson.stored(record.body)
                for index in unique:
                    value = record.id if index.field == "id" else item.get(index.field)
                    if isinstance(value, list | None):
                        continue
                    key = index.field, value.lower() if index.fold else value
                    query = Query(filters=(Filter(index.field, Op.EQ, value), *own))
                    if key in seen or self.store.count(self.name, query, most=1):
                        taken.append(around + self.representation.name_of(index.field))
                    seen.add(key)
            return taken
        return []

    def _find_to_change(self, id: str, transaction: Transaction | None) -> Record:
        """An item that the caller may change. Raises NotFound, Forbidden, PreconditionFailed and PreconditionRequired.

        Without a transaction it is as it was read with the credential, or now.
        """
        record = self.find(id) if transaction is None else self.stored.read(transaction, id)
        self.access.require_change(record)
        if is_conditional() or self.config.require_if_match:
            require_match(self.tag(record), self.changed_at(record), must_say=self.config.require_if_match)
        return record


def done(prepared: Prepared, transaction: Transaction) -> Reply:
    """The response to what is prepared, when it is done."""
    if prepared.work is not None:
        prepared.work(transaction)
    return prepared.reply


def explained(
    representation: Representation, error: DuplicateValue | ReferenceMissing, prepared: Prepared | None
) -> DuplicateValue | ReferenceMissing | ValidationFailed:
    """What the store refuses, with the names of fields that callers know."""
    if isinstance(error, DuplicateValue):
        return DuplicateValue(*map(representation.name_of, error.fields))
    for around, record in prepared.after.items() if prepared else ():
        if record.id == error.of:
            known = representation.known_fault({"pointer": error.pointer, "detail": error.detail})
            pointer = around + known["pointer"].removeprefix("#/")
            return ValidationFailed(f"{pointer}: {error.detail}", errors=[{**known, "pointer": f"#/{pointer}"}])
    return error  # it is of an item that a function of the service writes


def write_together(
    store: Store, once: IdempotencyRecord, work: Callable[[Transaction], Reply], clock: Clock = time
) -> Reply:
    """The response of `work`, which is computed in one transaction, at most once; or the response that is stored.

    It is computed again if the store had to end the transaction because of others.
    """
    locked = Locked()

    def claim_and_work(transaction: Transaction) -> Reply:
        once.claim(transaction)
        transaction.lock(locked)
        reply = work(transaction)
        once.save(transaction, reply)
        return reply

    def attempt(deadline: float) -> Reply:
        stored = once.find(store)
        return store.write(claim_and_work, deadline=deadline) if stored is None else stored

    return until_current(attempt, deadline_of(clock), clock)


def until_current(attempt: Callable[[float], T], deadline: float, clock: Clock = time) -> T:
    """What `attempt` returns, called again while it raises RecordChanged, ResponseStored or StoreContended.

    It is given the deadline of all its waits. Raises Unavailable after `deadline`, by `clock`.
    """
    while True:
        try:
            return attempt(deadline)
        except (RecordChanged, ResponseStored, StoreContended) as error:
            if clock.monotonic() >= deadline:
                raise Unavailable("others change this item at the same time; try again") from None
            pause = CONTENDED_SECONDS if isinstance(error, StoreContended) else YIELD_SECONDS
        clock.sleep(pause)


def deadline_of(clock: Clock) -> float:
    """Until when the change of the current request waits: CHANGE_SECONDS in all, with what its reading took."""
    environ = request.environ if has_request_context() else {}
    deadline: float = environ.setdefault(_DEADLINE, clock.monotonic() + CHANGE_SECONDS - lookup.seconds())
    return deadline


class ItemLocks:
    """Lets changes of one item in this process happen one after the other, and changes of large items as well.

    Otherwise each of many changes of one item would be computed again after each of the others, and many changes of
    large items would all run before a small request that comes after them.
    """

    def __init__(self, clock: Clock = time) -> None:
        self._clock = clock
        self._locks: dict[int, threading.Lock] = {}
        self._large = threading.Lock()

    def change(self, id: str | None, attempt: Callable[[float], T]) -> T:
        """As `until_current`, under the lock of an item, if given. Raises Unavailable if it is not free in time."""
        deadline = deadline_of(self._clock)
        if id is None:
            return until_current(attempt, deadline, self._clock)
        lock = self._locks.setdefault(hash(id) % LOCKS, threading.Lock())
        if not lock.acquire(blocking=False):
            if not lock.acquire(timeout=max(0.0, deadline - self._clock.monotonic())):
                raise Unavailable("others are changing this item; try again")
            lookup.forget()
        try:
            return until_current(attempt, deadline, self._clock)
        finally:
            lock.release()

    @contextmanager
    def of_size(self, size: int, deadline: float) -> Iterator[None]:
        """The lock to compute a change of so many bytes: none if it is small, else the one of all large changes.

        Raises Unavailable when it is not free before the deadline.
        """
        if size < LARGE:
            yield
            return
        if not self._large.acquire(timeout=max(0.0, deadline - self._clock.monotonic())):
            raise Unavailable("others are changing large items; try again")
        try:
            yield
        finally:
            try:
                self._clock.sleep(YIELD_SECONDS)  # with the lock, so that the server's sockets come before the next one
            finally:
                self._large.release()
