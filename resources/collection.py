"""The one set of handlers that serves every collection. Each makes three moves: load, store, represent."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from flask import Blueprint, request
from werkzeug.datastructures import ImmutableMultiDict, MultiDict

from clock import utc_now
from config import Config
from errors import BodyTooLarge, Forbidden, NotFound, ValidationFailed
from resources.changes import delete_item, insert_item, update_item
from resources.resource import JsonObject, Ownership, Resource
from storage.contract import Query, Record, Store, Transaction
from web.application import OwnHeaders, Reply
from web.auth import needs
from web.caller import ADMIN, caller
from web.content import JSON, MERGE_PATCH, read_object, require_acceptable
from web.idempotency import Idempotency
from web.pagination import links, resolve
from web.preconditions import http_date, is_conditional, is_not_modified, require_match
from web.queries import Asked, parse, parse_fields
from web.recent import Recent
from web.uuid7 import uuid7

NO_ARGS: MultiDict[str, str] = ImmutableMultiDict()
PAGES_BYTES = 4 * 1024 * 1024  # of answers to lists, that each process keeps of a collection
PAGE_OVERHEAD = 2000  # bytes that Python's objects for one answer take, as measured, rounded up
CACHING = "no-cache"  # keep it, but ask whether it is still so: the ETag makes the question cheap
OF_CALLER = "private, no-cache"  # likewise, but not where others are answered from (RFC 9111, section 5.2.2.7)


class _Page(NamedTuple):
    tag: str
    body: bytes
    headers: list[tuple[str, str]]

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes: its Link may be longer than its body."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers) + PAGE_OVERHEAD


class CollectionHandlers:
    """The handlers of one collection. `now` tells the time, `new_id` makes an id."""

    caching = CACHING

    def __init__(
        self,
        resource: Resource,
        store: Store,
        config: Config,
        idempotency: Idempotency,
        *,
        now: Callable[[], str] = utc_now,
        new_id: Callable[[], str] = uuid7,
    ) -> None:
        self.resource = resource
        self.name = resource.name
        self._store = store
        self._config = config
        self._idempotency = idempotency
        self._owned = resource.ownership is not Ownership.NONE
        self._caching = OF_CALLER if config.auth == "required" and self.caching == CACHING else self.caching
        self._now = now
        self._new_id = new_id
        self._pages: Recent[tuple[str, str | None, str, bytes], _Page] = Recent(PAGES_BYTES)

    def blueprint(self) -> Blueprint:
        """The routes, relative to wherever the collection is mounted."""
        routes = Blueprint(self.name, __name__)
        routes.add_url_rule("", view_func=self.list_items, methods=["GET"])
        routes.add_url_rule("", view_func=self.create_item, methods=["POST"])
        routes.add_url_rule("/<id>", view_func=self.read_item, methods=["GET"])
        routes.add_url_rule("/<id>", view_func=self.replace_item, methods=["PUT"])
        routes.add_url_rule("/<id>", view_func=self.merge_item, methods=["PATCH"])
        routes.add_url_rule("/<id>", view_func=self.delete_item, methods=["DELETE"])
        return routes

    @needs("read")
    def list_items(self) -> Reply:
        """List the items of the collection, a page at a time."""
        require_acceptable(JSON)
        revision, owner = self._store.revision(self.name), self._only_of()
        key = (revision, owner, request.path, request.query_string)
        if (page := self._pages.get(key)) is None:
            asked = self._ask()
            query = resolve(asked, request.path, request.args)
            tag = self._list_tag(revision, asked.limit, owner)
            if is_conditional() and (answer := self._unchanged(tag)):
                return answer
            page = self._page(asked, query if owner is None else replace(query, owner=owner), tag)
            self._pages.keep(key, page, page.size + len(request.query_string))
        elif is_conditional() and (answer := self._unchanged(page.tag)):
            return answer
        return Reply([page.body], headers=OwnHeaders(page.headers.copy()))

    @needs("write")
    def create_item(self) -> Reply:
        """Create an item."""
        require_acceptable(JSON)
        sent = self._read(JSON)
        once, now = self._idempotency.once(sent), self._now()
        try:
            record = self._allowed(self.resource.create(sent, id=self._new_id(), now=now))
        except ValidationFailed:
            if (reply := once.kept(self._store)) is not None:
                return reply  # what was valid when it was answered
            raise
        if self._owned:
            record = record._replace(owner=caller().id)

        def work(transaction: Transaction) -> Reply:
            if (reply := once.kept(transaction)) is not None:
                return reply
            self._require_list_match(transaction)
            insert_item(transaction, self.resource, record, now=now)
            reply = self._item(record)
            reply.headers["Location"] = f"{request.path}/{record.id}"
            return once.keep(transaction, reply)

        return self._store.write(work)

    @needs("read")
    def read_item(self, id: str) -> Reply:
        """Read one item."""
        require_acceptable(JSON)
        fields = parse_fields(request.args, self.resource.names) if request.query_string else None
        record = self._store.read(self.name, id)
        if self._owned:
            self._require_sight(record)
        if is_conditional() and (answer := self._unchanged(self._tag(record), record.updated_at)):
            return answer
        return self._item(record, fields)

    @needs("write")
    def replace_item(self, id: str) -> Reply:
        """Replace an item: optional fields that are left out take their defaults."""
        return self._change(id, self._read(JSON), self.resource.replace)

    @needs("write")
    def merge_item(self, id: str) -> Reply:
        """Change some fields of an item (JSON Merge Patch, RFC 7396)."""
        return self._change(id, self._read(MERGE_PATCH, JSON), self.resource.merge)

    @needs("write")
    def delete_item(self, id: str) -> Reply:
        """Delete an item; the answer is the item as it last was."""
        require_acceptable(JSON)

        def work(transaction: Transaction) -> Record:
            record = transaction.read(self.name, id)
            self._require_right(record)
            self._require_match(record)
            delete_item(transaction, self.resource, record, now=self._now())
            return record

        record = self._store.write(work, use_reserve=True)
        return Reply(self.resource.body(record), content_type=JSON)

    def _change(self, id: str, sent: JsonObject, change: Callable[..., Record]) -> Reply:
        require_acceptable(JSON)

        def work(transaction: Transaction) -> Record:
            record = transaction.read(self.name, id)
            self._require_right(record)
            self._require_match(record)
            now = self._now()
            changed = change(record, sent, now=now)
            if changed is not record:
                self._update(transaction, record, self._allowed(changed), now)
            return changed

        return self._item(self._store.write(work))

    def _update(self, transaction: Transaction, former: Record, record: Record, now: str) -> None:
        """Keep a changed item in the place of what it was."""
        update_item(transaction, self.resource, record, now=now)

    def _ask(self) -> Asked:
        args = request.args if request.query_string else NO_ARGS
        resource, config = self.resource, self._config
        return parse(args, resource.collection, resource.names, config.page_limit, config.page_limit_max)

    def _page(self, asked: Asked, query: Query, tag: str) -> _Page:
        """A page as it is answered. Its total is left out where counting again at each step would cost most."""
        page = self._store.page(self.name, query)
        bodies = page.bodies
        if page.shapes - {self.resource.shape}:
            bodies = [self.resource.reshape(body) for body in bodies]
        if asked.fields:
            bodies = [self.resource.show(body, asked.fields) for body in bodies]
        body = b"[" + b",".join(bodies) + b"]"
        total = None if query.narrows and query.after else self._store.count(self.name, query)
        headers = [
            ("Content-Type", JSON),
            ("Content-Length", str(len(body))),
            ("ETag", f'"{tag}"'),
            ("Cache-Control", self._caching),
            ("Link", links(asked, query, page, total, request.path, request.args)),
        ]
        if total is not None:
            headers.append(("X-Total-Count", str(total)))
        return _Page(tag, body, headers)

    def _read(self, *types: str) -> JsonObject:
        return read_object(*types, max_body=self._config.max_body, max_depth=self._config.max_depth)

    def _allowed(self, record: Record) -> Record:
        """The record, if it may be kept: a client can send back what it reads. Raises BodyTooLarge: patches add up."""
        if len(record.body) > self._config.max_body:
            raise BodyTooLarge(f"the item would have more than {self._config.max_body} bytes")
        return record

    def _require_match(self, record: Record) -> None:
        require_match(self._tag(record), record.updated_at, must_say=self._config.require_if_match)

    def _only_of(self) -> str | None:
        """Whose items alone the caller sees, None for everybody's."""
        if self.resource.ownership is not Ownership.ALL or caller().may(ADMIN):
            return None
        return caller().id

    def _require_sight(self, record: Record) -> None:
        """Raises NotFound for an item that the caller may not even know of."""
        if self._only_of() not in (None, record.owner):
            raise NotFound("there is no such item")

    def _require_right(self, record: Record) -> None:
        """Raises Forbidden for an item that the caller may only read, NotFound as `_require_sight`."""
        if self._owned:
            self._require_sight(record)
            if record.owner != caller().id and not caller().may(ADMIN):
                raise Forbidden("only its owner may change this item")

    def _require_list_match(self, transaction: Transaction) -> None:
        """What a POST may be conditional on: the list that it adds to, as its first page is tagged."""
        if is_conditional():
            revision = transaction.revision(self.name)
            require_match(self._list_tag(revision, self._config.page_limit, self._only_of()))

    def _tag(self, record: Record) -> str:
        """The strong ETag of an item: its version in this store, and the shape that it is represented in."""
        return f"{record.version}-{self._store.epoch}-{self.resource.shape}"

    def _list_tag(self, revision: str, limit: int, owner: str | None) -> str:
        """The strong ETag of a list: it changes with anything in the collection, so no page need be read to know it."""
        tag = f"{revision}-{self.resource.shape}-{limit}"
        return tag if owner is None else f"{tag}-{blake2b(owner.encode(), digest_size=4).hexdigest()}"

    def _item(self, record: Record, fields: Iterable[str] | None = None) -> Reply:
        body = self.resource.body(record)
        if fields:
            body = self.resource.show(body, fields)
        headers = [
            ("Content-Type", JSON),
            ("Content-Length", str(len(body))),
            ("ETag", f'"{self._tag(record)}"'),
            ("Last-Modified", _last_modified(record.updated_at[:19])),
            ("Cache-Control", self._caching),
        ]
        return Reply([body], headers=OwnHeaders(headers))

    def _unchanged(self, tag: str, updated_at: str | None = None) -> Reply | None:
        """The 304 to a read that finds nothing new, with what a 200 says of caching (RFC 9110, section 15.4.5)."""
        require_match(tag, updated_at)
        if not is_not_modified(tag, updated_at):
            return None
        return Reply(b"", 304, headers=OwnHeaders([("ETag", f'"{tag}"'), ("Cache-Control", self._caching)]))


@lru_cache(maxsize=4096)
def _last_modified(second: str) -> str:
    return http_date(f"{second}Z")
