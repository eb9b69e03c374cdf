"""The items of one collection, as requests read and change them: loaded, stored, represented."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from flask import request
from werkzeug.datastructures import Headers, ImmutableMultiDict, MultiDict

from restkeeper.clock import YIELD_SECONDS, Clock, in_turns, rfc3339, time_after
from restkeeper.config import Config
from restkeeper.errors import MOST_FAULTS, InvalidQuery, NotConvertible, NotFound, Unavailable, ValidationFailed
from restkeeper.resources.changes import Change, Hooks, IdempotencyRecord, omitted_by
from restkeeper.resources.embedding import Relation, embed
from restkeeper.resources.representation import ItemLimits, JsonObject, Representation, StoredRepresentation
from restkeeper.resources.resource import Action
from restkeeper.resources.unit import as_conflict, item_of, next_ids, run_before, use_ids, without_server_fields
from restkeeper.schemas.fields import WRITABLE_BY, Status, scopes_of
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import (
    DuplicateValue,
    RecordChanged,
    RecordNotFound,
    ReferenceMissing,
    ResponseStored,
    StoreContended,
    StoreUnavailable,
)
from restkeeper.storage.interface import Filter, Index, Kind, Op, Page, Query, Record, Sort
from restkeeper.web import exactjson, lookup
from restkeeper.web.application import Reply, address_of
from restkeeper.web.auth import caller, lacking
from restkeeper.web.exactjson import JSON, fault, read_object, read_objects, require_acceptable, require_none
from restkeeper.web.pagination import Cache, links, require_whole, resolve
from restkeeper.web.preconditions import digest, is_conditional, is_not_modified, last_modified, require_match
from restkeeper.web.queries import MAX_VALUES, ListRequest, parse, parse_item

T = TypeVar("T")

NO_ARGS: MultiDict[str, str] = ImmutableMultiDict()
MOST_TOGETHER = 100  # items that one request creates
MOST_COUNTED = 100_000  # items of a query that narrows: PostgreSQL counts so many in a second or less
PAGES_BYTES = 4 * 1024 * 1024  # of responses to lists that each process caches for a collection in one version
PAGE_OVERHEAD = 2000  # bytes that Python's objects for one response take, as measured, rounded up

CHANGE_SECONDS = 5.0  # for which a change waits for others and is retried, before it returns 503
CONTENDED_SECONDS = 0.05  # before it is retried if the store had to end it
LARGE = 16 * 1024  # bytes of an item, from which on it takes milliseconds to compute a change
LOCKS = 256  # ids share them, so that their number has a bound

# Cache-Control (RFC 9111, section 5.2.2): a cache validates its copy each time, which the ETag makes
# cheap; it does so for one caller only; it stores nothing.
REVALIDATED = "no-cache"
OF_CALLER = "private, no-cache"
UNCACHED = "no-store"


class _ListPage(NamedTuple):
    """The response to the request for a page of a list."""

    change_token: str  # of the collection, at the moment that the page was read
    tag: str
    body: bytes
    headers: list[tuple[str, str]]

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes: its Link may be longer than its body."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers) + PAGE_OVERHEAD


class Prepared(NamedTuple):
    """A write that is computed: its response, and the `work` that it does in one transaction, if it changes anything.

    `before` is the item from which it was computed: if that is not stored just so any more, it is computed again.
    `after` has the items to store, by what is before the names of their fields in a JSON Pointer, such as "3/". A PUT
    `creates` one: if another one has created it meanwhile, this is computed again.
    """

    reply: Reply
    work: Callable[[Transaction], object] | None = None
    before: Record | None = None
    after: Mapping[str, Record] = {}  # noqa: RUF012 - never changed
    creates: bool = False


class Items:
    """The items of one collection of a service.

    `representation` is how callers know them: by default as they are `stored`. `caching` is
    the Cache-Control of responses. `choices` are the values that a field, or an element of an array field, can have,
    and `defaults` those of fields that are left out, by field, where only the service knows them.
    """

    def __init__(
        self,
        stored: StoredRepresentation,
        store: Store,
        config: Config,
        hooks: Hooks,
        *,
        representation: Representation | None = None,
        clock: Clock = time,
        caching: str = REVALIDATED,
        choices: Mapping[str, Iterable[str]] | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self.stored = stored
        self.resource = stored.resource
        self.representation: Representation = representation or stored
        self.name = stored.name
        self.store = store
        self.config = config
        self.hooks = hooks
        self.apply: Callable[..., object] = hooks.apply  # what stores a change, in a transaction
        self.clock = clock
        self.choices = choices or {}
        self.defaults = dict(defaults or {})
        self.relations: Mapping[str, Relation] = {}  # what can be embedded, and in lists of other collections
        self.page_limit = min(stored.resource.page_limit or config.page_limit, config.page_limit_max)
        self.access = hooks.access(stored.resource)
        self._caching = OF_CALLER if config.auth == "required" and caching == REVALIDATED else caching
        self._limits = ItemLimits(*config.item_limits)
        self._bounds = {"max_body": config.max_body, "max_depth": config.max_depth, "max_values": config.max_nodes}
        self._locks = ItemLocks(clock)
        self._serial = self.name if self.resource.ids == "integer" else None  # the lock of new items
        self._pages: Cache[tuple[str | None, str, str, bytes], _ListPage] = Cache(PAGES_BYTES)
        chain = stored.chains.get(self.resource.oldest)
        self._steps = f"-{chain.fingerprint}" if chain else ""  # a part of a list's ETag that changes with their code

    @property
    def is_put_creating(self) -> bool:
        """Whether a PUT creates the item if there is none."""
        return self.resource.ids == "client" or (self.resource.singleton and self.stored.initial is None)

    def now(self) -> str:
        """The present time, as it is stored."""
        return rfc3339(self.clock.time())

    def body(self, *types: str) -> JsonObject:
        """The JSON object in the request's body, of one of these media types. Raises as `read_object`."""
        require_acceptable(JSON)
        return read_object(*types, **self._bounds)

    def bodies(self) -> JsonObject | list[JsonObject]:
        """As `body`, or an array of at most MOST_TOGETHER objects. Raises as `read_objects`."""
        require_acceptable(JSON)
        sent: JsonObject | list[JsonObject] = read_objects(JSON, most=MOST_TOGETHER, **self._bounds)
        return sent

    def page(self, *also: Filter) -> Reply:
        """The requested page of the list, of the items that `also` these filters select; 304 if the client has it."""
        self._before_read()
        owner, conditional = self.access.visible_owner(), is_conditional()
        path = request.root_path + request.path
        address = (owner, self.representation.fingerprint, path, request.query_string)  # what it depends on
        page = self._pages.get(address)
        change_token = None
        if page or conditional:  # as it was read with the credential, or now
            found = lookup.find(self.store, self.name)
            change_token = found if isinstance(found, str) else self.store.change_token(self.name)
        if page is None or page.change_token != change_token:
            args = request.args if request.query_string else NO_ARGS
            queryable, config = self.representation.queryable, self.config
            list_request = parse(args, queryable, self.page_limit, config.page_limit_max, self.relations)
            query = self.representation.query(list_request.query)
            query = replace(query, filters=(*query.filters, *also))
            query = resolve(list_request, replace(query, sort=query.sort or self.resource.order), request.path, args)
            if owner is None and conditional and change_token and not list_request.embed:
                if unchanged := self._not_modified(self._list_tag(change_token, list_request.limit)):
                    return unchanged  # without reading the page
            page = self._list_page(list_request, query if owner is None else replace(query, owner=owner))
            if not list_request.embed:  # which others change
                self._pages.add(address, page, page.size + sum(len(part) for part in address if part))
        if conditional and (unchanged := self._not_modified(page.tag)):
            return unchanged
        return Reply([page.body], headers=Headers(page.headers))

    def _before_read(self) -> None:
        require_acceptable(JSON)
        for before in self.hooks.before_read:
            before(self.representation)

    def read(self, id: str) -> Reply:
        """One item, or some of its fields, with what is embedded; 304 if the client has it. Raises NotFound."""
        self._before_read()
        args = request.args if request.query_string else NO_ARGS
        fields, names = parse_item(args, self.representation.queryable, self.relations) if args else (None, ())
        record = self.require_sight(id)
        if names:
            (body,) = embed(self, [self.representation.body(record)], names, fields)
            if is_conditional() and (unchanged := self._not_modified(digest(body))):
                return unchanged
            headers = {"ETag": f'"{digest(body)}"', "Cache-Control": self._caching}
            return Reply(body, content_type=JSON, headers=headers)
        if is_conditional() and (unchanged := self._not_modified(self.tag(record), self._changed_at(record))):
            return unchanged
        return self.represent(record, fields)

    def require_sight(self, id: str) -> Record:
        """An item. Raises NotFound, also for one that the caller must not know of."""
        record = self._find(id)
        self.access.require_sight(record)
        return record

    def create(self, sent: JsonObject | list[JsonObject], complete: Callable[[], object] = lambda: None) -> Reply:
        """Create an item from the request's body, or items from an array: all or none, and the response is an array.

        What was sent can be `complete` only later: not for a repetition, which gets the first response.
        """
        owner, deadline = request.args.get("owner"), deadline_of(self.clock)

        def prepare() -> Prepared:
            complete()
            with self._in_turn(deadline):
                if isinstance(sent, list):
                    return self.prepare_several(sent, owner)
                prepared = self.prepare_create(sent, owner)
            path = f"{request.path}/{self.resource.shown(prepared.after[''].id)}"
            prepared.reply.headers["Location"] = address_of(path)
            return prepared

        return self.add(self.hooks.idempotency(sent), prepare)

    def change(self, id: str, change: Callable[..., Record], sent: JsonObject) -> Reply:
        """Change an item by `change` (`replace` or `merge`) and what was sent.

        Raises NotFound, Forbidden and PreconditionFailed.
        """
        prepare = partial(self.prepare_change, id, change, sent, deadline=deadline_of(self.clock))
        return self.write_once(IdempotencyRecord(), prepare, lock=id)

    def delete(self, id: str) -> Reply:
        """Delete an item. Raises as `change`."""
        require_acceptable(JSON)
        return self.write_once(IdempotencyRecord(), partial(self.prepare_delete, id), lock=id, use_reserve=True)

    def act(self, action: Action, sent: JsonObject | None, loaded: Any, id: str | None) -> Reply:
        """Do an action, of the item with this id or of the collection, with what was sent and `loaded` by its schema.

        Raises what its function raises, and as `change`.
        """

        def work(transaction: Transaction) -> Reply:
            return done(self.prepare_action(action, loaded, id, transaction), transaction)

        return write_together(self.store, self.hooks.idempotency(sent), work, self.clock)

    # What each write computes. Alone, it does so before its transaction, so that nobody waits for it; an action, and a
    # write among others in one `transaction`, read the item there, where it is locked.

    def prepare_create(
        self, sent: JsonObject, owner: str | None = None, transaction: Transaction | None = None
    ) -> Prepared:
        """Create an item, of the `owner` that an admin names."""
        (id,) = next_ids(self.resource, transaction or self.store, self.hooks.new_id)
        record = self._new(sent, owner, id)
        return Prepared(self.represent(record), partial(self._insert, [record]), after={"": record})

    def prepare_several(self, sent: list[JsonObject], owner: str | None = None) -> Prepared:
        """Create items, all or none."""
        ids = next_ids(self.resource, self.store, self.hooks.new_id, len(sent))
        records, faults = list[Record](), list[JsonObject]()
        for number, each in in_turns(enumerate(sent), self.clock):
            try:
                records.append(self._new(each, owner, ids[number]))
            except ValidationFailed as error:
                wrong: list[JsonObject] = error.members["errors"]
                faults += [{**each, "pointer": f"#/{number}{each['pointer'].removeprefix('#')}"} for each in wrong]
                if len(faults) > MOST_FAULTS:
                    break
        require_none(faults)
        body = b"[" + b",".join(map(self.representation.body, records)) + b"]"
        reply = Reply(body, content_type=JSON, headers={"Cache-Control": self._caching})
        return Prepared(reply, partial(self._insert, records), after={f"{n}/": each for n, each in enumerate(records)})

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
            if change != self.replace or not self.is_put_creating:
                raise
            own = {} if self.resource.singleton else {"id": id}
            require_match(None, must_say=self.config.require_if_match)
            require_none([fault(["id"], "is another one in the path")] if own and sent.get("id", id) != id else [])
            with nullcontext() if transaction else self._in_turn(deadline):
                return self.prepare_create({**sent, **own})._replace(creates=True)
        with nullcontext() if transaction else self._in_turn(deadline, len(before.body)):
            after = change(before, sent, now=self.now(), limits=self._limits)
        return self._prepare_update(before, after)

    def prepare_delete(self, id: str, transaction: Transaction | None = None) -> Prepared:
        """Delete an item; the response is the item as it last was: as it is stored if it is NotConvertible."""
        before = self._find_to_change(id, transaction)
        self._run_before(before, None)
        try:
            body = self.representation.body(before)  # which is not possible for every item of a newer program
        except NotConvertible:
            body = before.body
        change = Change("deleted", self.stored, before, None, time_after(before.updated_at, self.now()))
        return Prepared(Reply(body, content_type=JSON), partial(self.apply, change=change), before)

    def prepare_action(self, action: Action, loaded: Any, id: str | None, transaction: Transaction) -> Prepared:
        """See `act`. What its function does with other items is done."""
        before = None if id is None else self._find_to_change(id, transaction)
        unit = self.hooks.unit(transaction)
        given = [] if before is None else [item_of(self.stored, before)]
        result = action.function(*given, *([loaded] if action.body else []), unit)
        unit.require_success()
        if before is None:
            return Prepared(Reply(exactjson.dumps(result), content_type=JSON))
        if (self.name, before.id) in unit.written:
            raise ValueError(f"{action.name}: changes its item by the Unit: return the changed item instead")
        after = before
        with as_conflict(self.name):
            if result is not None:
                own = without_server_fields(result)
                after = self.stored.revise(before, own, now=self.now(), limits=self._limits)
            return self._prepare_update(before, after)

    def _in_turn(self, deadline: float, size: int = 0) -> AbstractContextManager[None]:
        """For what computes items outside of a transaction: if they are large, or the body is, one after the other."""
        length = LARGE if request.content_length is None else request.content_length  # None: the body is chunked
        return self._locks.of_size(max(size, length), deadline)

    def _prepare_update(self, before: Record, after: Record) -> Prepared:
        after = self._run_before(before, after) or after
        if after is before:
            return Prepared(self.represent(before))
        change = Change("updated", self.stored, before, after, after.updated_at)
        return Prepared(self.represent(after), partial(self.apply, change=change), before, {"": after})

    def replace(self, record: Record, sent: JsonObject, **options: Any) -> Record:
        """As `Representation.replace`, by a caller: a field that it may not change, and left out, stays as it is.

        Raises Forbidden as `_require_scopes`.
        """
        foreign = {
            known
            for name, field in self.resource.newest.guarded.items()
            if (scope := field.metadata.get(WRITABLE_BY)) and not caller().may(scope)
            for known in self.representation.names_of(name)
        }
        if foreign - sent.keys():
            with suppress(NotConvertible):
                members = exactjson.cut(self.representation.body(record))
                sent = {name: exactjson.stored(members[name]) for name in foreign if name in members} | sent
        return self._require_scopes(record, self.representation.replace(record, sent, **options), sent)

    def merge(self, record: Record, patch: JsonObject, **options: Any) -> Record:
        """As `Representation.merge`, by a caller. Raises Forbidden as `_require_scopes`."""
        return self._require_scopes(record, self.representation.merge(record, patch, **options), patch)

    def _require_scopes(self, before: Record | None, after: Record, sent: JsonObject) -> Record:
        """The item. Raises Forbidden for a value, or a state, that it did not have, and the caller may not set.

        A new item had the defaults.
        """
        if not (guarded := self.resource.newest.guarded) or after is before:
            return after
        had = exactjson.cut(self.stored.present(before).body) if before else self.resource.newest.defaults
        has = exactjson.cut(after.body)
        for name, field in guarded.items():
            known = self.representation.names_of(name)
            is_set = before is not None or not sent.keys().isdisjoint(known)
            if is_set and not exactjson.equal(has[name], had.get(name, b"")):
                value = exactjson.stored(has[name])
                to = f" to {value}" if isinstance(field, Status) else ""
                for scope in scopes_of(field, value):
                    if not caller().may(scope):
                        raise lacking(scope, f"a change of {known[0]}{to}")
        return after

    def _new(self, sent: JsonObject, owner: str | None, id: str) -> Record:
        """A new item, which is not stored yet."""
        record = self.representation.create(sent, id=id, now=self.now(), limits=self._limits)
        self._require_scopes(None, record, sent)
        record = record._replace(owner=self.access.owner_of_new(owner))
        return self._run_before(None, record) or record

    def _insert(self, records: Sequence[Record], transaction: Transaction) -> None:
        use_ids(self.resource, records[0].id, records[-1].id, transaction)
        for each in in_turns(records, self.clock):
            self.apply(transaction, Change("created", self.stored, None, each, each.updated_at))

    def _run_before(self, before: Record | None, after: Record | None) -> Record | None:
        try:
            return run_before(self.stored, before, after, now=self.now(), limits=self._limits)
        except ValidationFailed as error:
            found = error.members.get("errors", ())
            error.members["errors"] = [self.representation.known_fault(each) for each in found]
            raise

    def add(self, once: IdempotencyRecord, prepare: Callable[[], Prepared]) -> Reply:
        """As `write_once`, for a new item: if the request is conditional, the list must match.

        That is the first page, as it is tagged. Raises PreconditionFailed.
        """
        if not is_conditional():
            return self.write_once(once, prepare, lock=self._serial)
        owner = self.access.visible_owner()

        def prepare_if_match() -> Prepared:
            prepared, seen = prepare(), None
            if owner is not None:
                query = Query(limit=self.page_limit, owner=owner, sort=self.resource.order)
                seen = self._list_page(ListRequest(query, self.page_limit), query)

            def work(transaction: Transaction) -> None:
                change_token = transaction.change_token(self.name)
                if seen is not None and seen.change_token != change_token:
                    raise RecordChanged("the list was changed meanwhile")
                require_match(seen.tag if seen else self._list_tag(change_token, self.page_limit))
                done(prepared, transaction)

            return prepared._replace(work=work)

        return self.write_once(once, prepare_if_match, lock=self._serial or owner)

    def write_once(
        self,
        once: IdempotencyRecord,
        prepare: Callable[[], Prepared],
        *,
        lock: str | None = None,
        use_reserve: bool = False,
    ) -> Reply:
        """Do what is prepared, in one transaction with its response; or return the response that is stored.

        Whatever takes long is prepared before the transaction, and again if others have changed the same since: under
        the `lock` of an item, if that is likely. A DuplicateValue names all fields of the item that are taken.
        """
        items = set[tuple[str, str]]()

        def attempt(deadline: float) -> Reply:
            if (stored := once.find(self.store)) is not None:
                return stored
            prepared = prepare()
            if prepared.work is None:
                return prepared.reply

            def work(transaction: Transaction) -> Reply:
                once.save(transaction, prepared.reply)
                transaction.lock(items)
                if prepared.before is not None and prepared.before.version:
                    transaction.require(self.name, prepared.before)
                return done(prepared, transaction)

            try:
                return self.store.write(work, use_reserve=use_reserve, deadline=deadline)
            except DuplicateValue as error:
                if prepared.creates:
                    with suppress(NotFound):
                        self.access.require_sight(self._find(prepared.after[""].id))
                        raise RecordChanged("the item was created meanwhile") from None
                taken = self._taken(prepared) or [self.representation.name_of(each) for each in error.fields]
                raise DuplicateValue(*taken) from None
            except ReferenceMissing as error:
                raise self.explained(error, prepared) from None

        if lock is not None:
            return self._locks.change(lock, attempt)
        return until_current(attempt, deadline_of(self.clock), self.clock)

    def explained(
        self, error: DuplicateValue | ReferenceMissing, prepared: Prepared | None
    ) -> DuplicateValue | ReferenceMissing | ValidationFailed:
        """What the store refuses, with the names of fields that callers know."""
        if isinstance(error, DuplicateValue):
            return DuplicateValue(*map(self.representation.name_of, error.fields))
        for around, record in prepared.after.items() if prepared else ():
            if record.id == error.of:
                known = self.representation.known_fault({"pointer": error.pointer, "detail": error.detail})
                pointer = around + known["pointer"].removeprefix("#/")
                return ValidationFailed(f"{pointer}: {error.detail}", errors=[{**known, "pointer": f"#/{pointer}"}])
        return error  # it is of an item that a function of the service writes

    def represent(self, record: Record, fields: Iterable[str] | None = None) -> Reply:
        """The response with an item, or with only these of its fields."""
        body = self.representation.body(record)
        tag = digest(body)
        if fields:
            body = self.representation.show(body, fields)
        headers = [
            ("Content-Type", JSON),
            ("Content-Length", str(len(body))),
            ("ETag", f'"{tag}"'),
            ("Last-Modified", last_modified(self._changed_at(record), self.clock.time())),
            ("Cache-Control", self._caching),
        ]
        return Reply([body], headers=Headers(headers))

    def tag(self, record: Record) -> str:
        """The strong ETag of an item: a digest of its representation, so that no two of them share one."""
        return digest(self.representation.body(record))

    def _find(self, id: str) -> Record:
        """An item, as it was read with the credential, or now. Raises NotFound."""
        if not isinstance(record := lookup.find(self.store, (self.name, self.resource.key(id))), Record):
            if self.stored.initial is None:
                raise NotFound("there is no such item")
            return self.stored.initial
        return record

    def _find_to_change(self, id: str, transaction: Transaction | None) -> Record:
        """An item that the caller may change. Raises NotFound, Forbidden, PreconditionFailed and PreconditionRequired.

        Without a transaction it is as it was read with the credential, or now.
        """
        record = self._find(id) if transaction is None else self.stored.read(transaction, id)
        self.access.require_change(record)
        if is_conditional() or self.config.require_if_match:
            try:
                tag = self.tag(record)
            except NotConvertible:
                tag = digest(record.body)  # the 409 has it
            require_match(tag, self._changed_at(record), must_say=self.config.require_if_match)
        return record

    def _changed_at(self, record: Record) -> str:
        """When the representation of an item last changed, by the item or by its representation."""
        return max(record.updated_at, self.representation.changed_at)

    def _taken(self, prepared: Prepared) -> list[str]:
        """The unique fields whose values others have, or earlier ones of several items: such as "sku" or "3/sku"."""
        seen, taken = set[tuple[str, Any]](), list[str]()
        own = (Filter("id", Op.NE, prepared.before.id),) if prepared.before else ()
        unique = [each for each in (Index("id", unique=not own), *self.resource.indexes) if each.unique]
        with suppress(StoreUnavailable):  # then it is the one that the store has named
            for around, record in prepared.after.items():
                item = exactjson.stored(record.body)
                for index in unique:
                    if isinstance(value := item.get(index.field), list | None):
                        continue
                    key = index.field, value.lower() if index.fold else value
                    query = Query(filters=(Filter(index.field, Op.EQ, value), *own))
                    if key in seen or self.store.count(self.name, query, most=1):
                        taken.append(around + self.representation.name_of(index.field))
                    seen.add(key)
            return taken
        return []

    def _list_page(self, list_request: ListRequest, query: Query) -> _ListPage:
        """A page of a list as callers see it. Raises as `require_whole` and `omitted_by`."""
        shown = replace(query, sort=(Sort("id"),), limit=1) if list_request.is_count else query
        page, omitted = self.store.page(self.name, shown, self.config.page_bytes), 0
        if page.others and (refused := omitted_by(self.store, (self.stored, query, page.others))):
            without = tuple(Filter("id", Op.NE, each.id) for each in refused)
            query, shown = (replace(each, filters=(*each.filters, *without)) for each in (query, shown))
            page, omitted = self.store.page(self.name, shown, self.config.page_bytes), len(refused)
        require_whole(list_request, page)
        tag = self._list_tag(page.change_token, list_request.limit)  # first: not of a later moment than the bodies
        bodies = self.representation.bodies(page)
        omitted += len(page.bodies) - len(bodies)
        if list_request.embed:
            bodies = embed(self, bodies, list_request.embed, list_request.fields)
        elif list_request.fields:
            bodies = [self.representation.show(body, list_request.fields) for body in bodies]
        body = b"[" + b",".join(bodies) + b"]"
        total = self._total(query, page)
        if list_request.is_count:
            body = self._groups(query, total)
        is_own = query.owner is not None and (total is not None or query.after)  # it does not depend on others
        if is_own or list_request.embed:
            tag = digest(b"%d %b" % (-1 if total is None else total, body))
        headers = [
            ("Content-Type", JSON),
            ("Content-Length", str(len(body))),
            ("ETag", f'"{tag}"'),
            ("Cache-Control", self._caching),
        ]
        if not list_request.is_count and (link := links(list_request, query, page, total, request.path, request.args)):
            headers.append(("Link", link))
        if total is not None:
            headers.append(("X-Total-Count", str(total)))
        if omitted:
            headers.append(("X-Omitted-Count", str(omitted)))
        return _ListPage(page.change_token, tag, body, headers)

    def _groups(self, query: Query, total: int | None) -> bytes:
        """The values of the field that a query is sorted by, each with the number of its items."""
        few = total is not None and total <= MOST_COUNTED
        groups = self.store.groups(self.name, query, MAX_VALUES + 1) if few else []
        if not few or len(groups) > MAX_VALUES:
            detail = f"is limited to {MOST_COUNTED} items and {MAX_VALUES} values, and here are more: add filters"
            raise InvalidQuery(f"count {detail}", errors=[{"parameter": "count", "detail": detail}])
        if make := {Kind.BOOLEAN: bool, Kind.SERIAL: int}.get(self.stored.revision.fields[query.sort[0].field].kind):
            groups = [(None if value is None else make(value), count) for value, count in groups]
        return exactjson.dumps([{"value": value, "count": count} for value, count in groups])

    def _total(self, query: Query, page: Page) -> int | None:
        """The number of items of a query, if it is not too large to be counted.

        On a walk by cursor through a part of the list it is not counted again.
        """
        if page.total is not None or query.after:
            return page.total
        if not page.more and (page.bodies or not query.offset):  # all up to the last one are known
            return query.offset + len(page.bodies)
        total = self.store.count(self.name, query, most=MOST_COUNTED + 1)
        known = query.offset + len(page.bodies) if page.bodies else 0  # some may have been deleted since
        return max(total, known) if total <= MOST_COUNTED else None

    def _list_tag(self, change_token: str, limit: int) -> str:
        """The strong ETag of a list: it changes with anything in the collection, so that no page is read for it."""
        return f"{change_token}-{self.representation.fingerprint}{self._steps}-{limit}-{self.config.page_bytes}"

    def _not_modified(self, tag: str, updated_at: str | None = None) -> Reply | None:
        """The 304 to a client that has this state, with what a 200 says of caching (RFC 9110, section 15.4.5)."""
        require_match(tag, updated_at)
        if not is_not_modified(tag, updated_at):
            return None
        return Reply(b"", 304, headers=Headers([("ETag", f'"{tag}"'), ("Cache-Control", self._caching)]))


def done(prepared: Prepared, transaction: Transaction) -> Reply:
    """The response to what is prepared, when it is done."""
    if prepared.work is not None:
        prepared.work(transaction)
    return prepared.reply


def write_together(
    store: Store, once: IdempotencyRecord, work: Callable[[Transaction], Reply], clock: Clock = time
) -> Reply:
    """The response of `work`, which is computed in one transaction, at most once; or the response that is stored.

    It is computed again if the store had to end the transaction because of others.
    """
    items = set[tuple[str, str]]()

    def claim_and_work(transaction: Transaction) -> Reply:
        once.claim(transaction)
        transaction.lock(items)
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
    """Until when the change of the current request waits: CHANGE_SECONDS from now, less what its reading took."""
    return clock.monotonic() + CHANGE_SECONDS - lookup.seconds()


class ItemLocks:
    """Lets changes of one item in this process happen one after the other, and changes of large items as well.

    Otherwise each of many changes of one item would be computed again after each of the others, and many changes of
    large items would all run before a small request that comes after them.
    """

    def __init__(self, clock: Clock = time) -> None:
        self._clock = clock
        self._locks: dict[int, threading.Lock] = {}
        self._large = threading.Lock()

    def change(self, id: str, attempt: Callable[[float], T]) -> T:
        """As `until_current`, under the lock of the item with this id. Raises Unavailable if it is not free in time."""
        deadline = deadline_of(self._clock)
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
