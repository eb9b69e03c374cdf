"""The one set of handlers that serves every collection. Each makes three moves: load, store, represent."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

from flask import Blueprint, request
from werkzeug.datastructures import ImmutableMultiDict, MultiDict

from restkeeper.clock import Clock, rfc3339
from restkeeper.config import Config
from restkeeper.errors import (
    BodyTooLarge,
    IllegalTransition,
    InvalidQuery,
    NotFound,
    PreconditionFailed,
    PreconditionRequired,
    ValidationFailed,
)
from restkeeper.resources.changes import Change, Hooks, IdempotencyRecord
from restkeeper.resources.resource import ItemLimits, JsonObject, Resource
from restkeeper.resources.turns import LARGE, Stale, Turns
from restkeeper.storage.contract import Page, Query, Record, Store, Transaction
from restkeeper.web.application import OwnHeaders, Reply
from restkeeper.web.content import JSON, MERGE_PATCH, read_object, require_acceptable
from restkeeper.web.guard import needs
from restkeeper.web.operation import (
    CHANGE_PROBLEMS,
    CONDITIONS,
    ITEM_CONDITIONS,
    KEY_PROBLEMS,
    NOT_MODIFIED,
    WRITE_PROBLEMS,
    Body,
    Result,
    returns,
    takes,
)
from restkeeper.web.pagination import links, require_whole, resolve
from restkeeper.web.preconditions import is_conditional, is_not_modified, last_modified, require_match
from restkeeper.web.queries import MAX_VALUES, Asked, parse, parse_fields
from restkeeper.web.recent import Recent
from restkeeper.web.uuid7 import uuid7

NO_ARGS: MultiDict[str, str] = ImmutableMultiDict()
PAGES_BYTES = 4 * 1024 * 1024  # of answers to lists, that each process keeps of a collection
PAGE_OVERHEAD = 2000  # bytes that Python's objects for one answer take, as measured, rounded up
CACHING = "no-cache"  # keep it, but ask whether it is still so: the ETag makes the question cheap
OF_CALLER = "private, no-cache"  # likewise, but not where others are answered from (RFC 9111, section 5.2.2.7)


# What the handlers of every collection take and return.
SOME = ("{}", "{}Part")
PAGE_HEADERS = ("ETag", "Link", "X-Total-Count", "Cache-Control")
ITEM_HEADERS = ("ETag", "Last-Modified", "Cache-Control")
PAGE = Result("The page.", {JSON: SOME}, PAGE_HEADERS, name="{}Page", at_most=MAX_VALUES)
READ = Result("The item.", {JSON: SOME}, ITEM_HEADERS, name="{}Read")
KEPT = Result("The item as stored.", {JSON: "{}"}, ITEM_HEADERS, name="{}Kept")
CREATED = replace(KEPT, headers=(*ITEM_HEADERS, "Location", "Idempotent-Replayed"), name="{}Created")
DELETED = Result("The item as it last was.", {JSON: "{}"}, (), name="{}Deleted")
INPUT = Body("{}Input")
PATCH = Body("{}Patch", (MERGE_PATCH, JSON))


class _Page(NamedTuple):
    revision: str  # of the collection, at the moment that the page was read
    tag: str
    body: bytes
    headers: list[tuple[str, str]]

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes: its Link may be longer than its body."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers) + PAGE_OVERHEAD


class _Found(NamedTuple):
    """What a list was found to be: `total` is None where it was not counted."""

    page: Page
    body: bytes
    total: int | None
    tag: str


class CollectionHandlers:
    """The handlers of one collection. `new_id` makes an id. `choices` has what only a service knows of a schema: the
    values of an array field."""

    caching = CACHING
    choices: Mapping[str, Sequence[str]] = {}

    def __init__(
        self,
        resource: Resource,
        store: Store,
        config: Config,
        hooks: Hooks,
        *,
        clock: Clock = time,
        new_id: Callable[[], str] = uuid7,
    ) -> None:
        self.resource = resource
        self.name = resource.name
        self._store = store
        self._config = config
        self._hooks = hooks
        self._access = hooks.access(resource)
        self._caching = OF_CALLER if config.auth == "required" and self.caching == CACHING else self.caching
        self._limits = ItemLimits(*config.item_limits)
        self._turns = Turns(clock)
        self._time = clock.time
        self._new_id = new_id
        self._pages: Recent[tuple[str, str | None, str, bytes], _Page] = Recent(PAGES_BYTES)

    def _now(self) -> str:
        """This moment, as it is stored."""
        return rfc3339(self._time())

    def blueprint(self) -> Blueprint:
        """The routes, relative to wherever the collection is mounted."""
        routes = Blueprint(self.name, __name__)
        for before in self._hooks.before_list:
            routes.before_request(before(self.resource.collection))
        routes.add_url_rule("", view_func=self.list_items, methods=["GET"])
        routes.add_url_rule("", view_func=self.create_item, methods=["POST"])
        routes.add_url_rule("/<id>", view_func=self.read_item, methods=["GET"])
        routes.add_url_rule("/<id>", view_func=self.replace_item, methods=["PUT"])
        routes.add_url_rule("/<id>", view_func=self.merge_item, methods=["PATCH"])
        routes.add_url_rule("/<id>", view_func=self.delete_item, methods=["DELETE"])
        return routes

    @needs("read")
    @takes("Limit", "Offset", "Cursor", "{}Sort", "{}Fields", "{}Search", "{}Filters", *CONDITIONS)
    @returns(PAGE, NOT_MODIFIED, InvalidQuery, PreconditionFailed)
    def list_items(self) -> Reply:
        """List the items of the collection, a page at a time."""
        require_acceptable(JSON)
        revision, owner = self._store.revision(self.name), self._access.visible_owner()
        path, query_string = request.path, request.query_string
        if (page := self._pages.get((revision, owner, path, query_string))) is None:
            asked = self._ask()
            query = resolve(asked, path, request.args)
            if (
                owner is None
                and is_conditional()
                and (answer := self._unchanged(self._list_tag(revision, asked.limit)))
            ):
                return answer  # without reading the page
            page = self._page(asked, query if owner is None else replace(query, owner=owner))
            size = page.size + len(path) + len(query_string) + len(owner or "")
            self._pages.keep((page.revision, owner, path, query_string), page, size)
        if is_conditional() and (answer := self._unchanged(page.tag)):
            return answer
        return Reply([page.body], headers=OwnHeaders(page.headers.copy()))

    @needs("write")
    @takes(*CONDITIONS, "IdempotencyKey", body=INPUT)
    @returns(CREATED, *WRITE_PROBLEMS, *KEY_PROBLEMS, PreconditionFailed)
    def create_item(self) -> Reply:
        """Create an item."""
        require_acceptable(JSON)
        sent = self._read(JSON)
        once, now = self._hooks.idempotency(sent), self._now()
        made = self._new(once, lambda: self.resource.create(sent, id=self._new_id(), now=now, limits=self._limits))
        if isinstance(made, Reply):
            return made
        owner = self._access.owner_of_new()
        record = made if owner is None else made._replace(owner=owner)

        def insert(transaction: Transaction) -> Reply:
            self._hooks.apply(transaction, Change("created", self.resource, None, record, now))
            reply = self._item(record)
            reply.headers["Location"] = f"{request.path}/{record.id}"
            return once.save(transaction, reply)

        return self._add(once, insert)

    @needs("read")
    @takes("{}Fields", *ITEM_CONDITIONS, "IfModifiedSince")
    @returns(READ, NOT_MODIFIED, NotFound, InvalidQuery, PreconditionFailed)
    def read_item(self, id: str) -> Reply:
        """Read one item."""
        require_acceptable(JSON)
        fields = parse_fields(request.args, self.resource.names) if request.query_string else None
        record = self._store.read(self.name, id)
        self._access.require_sight(record)
        if is_conditional() and (answer := self._unchanged(self._tag(record), record.updated_at)):
            return answer
        return self._item(record, fields)

    @needs("write")
    @takes(*ITEM_CONDITIONS, body=INPUT)
    @returns(KEPT, *CHANGE_PROBLEMS, PreconditionRequired, *WRITE_PROBLEMS, IllegalTransition)
    def replace_item(self, id: str) -> Reply:
        """Replace an item: optional fields that are left out take their defaults."""
        return self._change(id, self._read(JSON), self.resource.replace)

    @needs("write")
    @takes(*ITEM_CONDITIONS, body=PATCH)
    @returns(KEPT, *CHANGE_PROBLEMS, PreconditionRequired, *WRITE_PROBLEMS, IllegalTransition)
    def merge_item(self, id: str) -> Reply:
        """Change some fields of an item (JSON Merge Patch, RFC 7396)."""
        return self._change(id, self._read(MERGE_PATCH, JSON), self.resource.merge)

    @needs("write")
    @takes(*ITEM_CONDITIONS)
    @returns(DELETED, *CHANGE_PROBLEMS, PreconditionRequired)
    def delete_item(self, id: str) -> Reply:
        """Delete an item; the answer is the item as it last was."""
        require_acceptable(JSON)

        def work(transaction: Transaction) -> Record:
            record = transaction.read(self.name, id)
            self._access.require_change(record)
            self._require_match(record)
            self._hooks.apply(transaction, Change("deleted", self.resource, record, None, self._now()))
            return record

        record = self._store.write(work, use_reserve=True)
        return Reply(self.resource.body(record), content_type=JSON)

    def _new(self, once: IdempotencyRecord, make: Callable[[], Record]) -> Record | Reply:
        """A new item, or the response to the same request that was answered while this was a valid one."""
        try:
            return make()
        except (ValidationFailed, BodyTooLarge):
            if (reply := once.find(self._store)) is not None:
                return reply
            raise

    def _add(self, once: IdempotencyRecord, insert: Callable[[Transaction], Reply]) -> Reply:
        """Add a new item, unless this was done before or the list is not the one that the request is conditional on.

        That is the first page, as it is tagged. What a caller sees of a list with owners is read before the
        transaction, and again where the collection has changed since.
        """
        owner = self._access.visible_owner() if is_conditional() else None

        def attempt(deadline: float | None = None) -> Reply:
            seen = None if owner is None else self._first_page(owner)

            def work(transaction: Transaction) -> Reply:
                if (reply := once.find(transaction)) is not None:
                    return reply
                if is_conditional():
                    self._require_list_match(transaction, seen)
                return insert(transaction)

            return self._store.write(work, deadline=deadline)

        return attempt() if owner is None else self._turns.change(owner, attempt)

    def _change(self, id: str, sent: JsonObject, change: Callable[..., Record]) -> Reply:
        """Change an item: all that takes long is done before the transaction, and again where the item has changed."""
        require_acceptable(JSON)

        def attempt(deadline: float) -> Record:
            record = self._store.read(self.name, id)
            self._access.require_change(record)
            self._require_match(record)
            now = self._now()
            length = LARGE if request.content_length is None else request.content_length  # None: it came in chunks
            with self._turns.of_size(max(len(record.body), length), deadline):
                changed = change(record, sent, now=now, limits=self._limits)
            if changed is record:
                return record
            self._require_valid(record, changed)

            def work(transaction: Transaction) -> None:
                if transaction.read(self.name, id) != record:
                    raise Stale
                self._update(transaction, record, changed, now)

            self._store.write(work, deadline=deadline)
            return changed

        return self._item(self._turns.change(id, attempt))

    def _require_valid(self, former: Record, record: Record) -> None:
        """What there is to check of a change that the schema does not say. Raises ValidationFailed."""

    def _update(self, transaction: Transaction, former: Record, record: Record, now: str) -> None:
        """Keep a changed item in the place of what it was."""
        self._hooks.apply(transaction, Change("updated", self.resource, former, record, now))

    def _ask(self) -> Asked:
        args = request.args if request.query_string else NO_ARGS
        resource, config = self.resource, self._config
        return parse(args, resource.collection, resource.names, config.page_limit, config.page_limit_max)

    def _page(self, asked: Asked, query: Query) -> _Page:
        """A page as it is answered."""
        page, body, total, tag = self._find(asked, query)
        headers = [
            ("Content-Type", JSON),
            ("Content-Length", str(len(body))),
            ("ETag", f'"{tag}"'),
            ("Cache-Control", self._caching),
        ]
        if link := links(asked, query, page, total, request.path, request.args):
            headers.append(("Link", link))
        if total is not None:
            headers.append(("X-Total-Count", str(total)))
        return _Page(page.revision, tag, body, headers)

    def _find(self, asked: Asked, query: Query) -> _Found:
        """What the store has. The total is left out where counting again at each step would cost most."""
        page = self._store.page(self.name, query, self._config.page_bytes)
        require_whole(asked, page)
        bodies = page.bodies
        if page.fingerprints - {self.resource.fingerprint}:
            bodies = [self.resource.reshape(body) for body in bodies]
        if asked.fields:
            bodies = [self.resource.show(body, asked.fields) for body in bodies]
        body = b"[" + b",".join(bodies) + b"]"
        total = None if query.narrows and query.after else self._store.count(self.name, query)
        if query.owner is None:
            tag = self._list_tag(page.revision, asked.limit)
        else:  # one that says nothing of what others do
            tag = _digest(b"%d %b" % (-1 if total is None else total, body))
        return _Found(page, body, total, tag)

    def _first_page(self, owner: str) -> _Found:
        """The list as a caller who sees its own items alone gets it without parameters."""
        limit = self._config.page_limit
        query = Query(limit=limit, owner=owner)
        return self._find(Asked(query, limit), query)

    def _read(self, *types: str) -> JsonObject:
        config = self._config
        return read_object(*types, max_body=config.max_body, max_depth=config.max_depth, max_values=config.max_nodes)

    def _require_match(self, record: Record) -> None:
        if is_conditional() or self._config.require_if_match:
            require_match(self._tag(record), record.updated_at, must_say=self._config.require_if_match)

    def _require_list_match(self, transaction: Transaction, seen: _Found | None) -> None:
        """What a POST may be conditional on. Raises Stale when `seen` is not what there is now."""
        revision = transaction.revision(self.name)
        if seen is None:
            require_match(self._list_tag(revision, self._config.page_limit))
        elif seen.page.revision != revision:
            raise Stale
        else:
            require_match(seen.tag)

    def _tag(self, record: Record) -> str:
        """The strong ETag of an item: a digest of its representation, so that no two of them share one."""
        return _digest(self.resource.body(record))

    def _list_tag(self, revision: str, limit: int) -> str:
        """The strong ETag of a list: it changes with anything in the collection, so no page need be read to know it."""
        return f"{revision}-{self.resource.fingerprint}-{limit}-{self._config.page_bytes}"

    def _item(self, record: Record, fields: Iterable[str] | None = None) -> Reply:
        body = self.resource.body(record)
        tag = _digest(body)
        if fields:
            body = self.resource.show(body, fields)
        headers = [
            ("Content-Type", JSON),
            ("Content-Length", str(len(body))),
            ("ETag", f'"{tag}"'),
            ("Last-Modified", last_modified(record.updated_at, self._time())),
            ("Cache-Control", self._caching),
        ]
        return Reply([body], headers=OwnHeaders(headers))

    def _unchanged(self, tag: str, updated_at: str | None = None) -> Reply | None:
        """The 304 to a read that finds nothing new, with what a 200 says of caching (RFC 9110, section 15.4.5)."""
        require_match(tag, updated_at)
        if not is_not_modified(tag, updated_at):
            return None
        return Reply(b"", 304, headers=OwnHeaders([("ETag", f'"{tag}"'), ("Cache-Control", self._caching)]))


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=12).hexdigest()
