"""The items of one collection, as requests read them: one item, and pages of the list."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from werkzeug.datastructures import ImmutableMultiDict, MultiDict

from restkeeper import exactjson
from restkeeper.clock import Clock
from restkeeper.config import Config
from restkeeper.errors import InvalidQuery, NotFound
from restkeeper.exactjson import fault, require_none
from restkeeper.resources.changes import Hooks
from restkeeper.resources.embedding import Relation, embed
from restkeeper.resources.representation import ItemLimits, JsonObject, Representation, StoredRepresentation
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.interface import Filter, Kind, Page, Query, Record, Sort
from restkeeper.web import current_request, lookup
from restkeeper.web.application import Reply, headers_of
from restkeeper.web.bodies import JSON, require_acceptable
from restkeeper.web.pagination import Cache, links, require_whole, resolve
from restkeeper.web.preconditions import digest, is_conditional, is_not_modified, last_modified, require_match
from restkeeper.web.queries import MAX_VALUES, ListRequest, parse, parse_item

NO_ARGS: MultiDict[str, str] = ImmutableMultiDict()
MOST_COUNTED = 100_000  # items of a query that narrows: PostgreSQL counts so many in a second or less
PAGES_BYTES = 4 * 1024 * 1024  # of responses to lists that each process caches for a collection in one version
PAGE_OVERHEAD = 2000  # bytes that Python's objects for one response take, as measured, rounded up

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


@dataclass(eq=False)
class CollectionReader:
    """The items of one collection of a service.

    `representation` is how callers know them. `caching` is the Cache-Control of responses. `choices` are the values
    that a field, or an element of an array field, can have, and `defaults` those of fields that are left out, by field,
    where only the service knows them. `relations` are what can be embedded, and in lists of other collections.
    """

    stored: StoredRepresentation
    representation: Representation
    store: Store
    config: Config
    hooks: Hooks
    clock: Clock
    caching: str = REVALIDATED
    choices: Mapping[str, Iterable[str]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    relations: Mapping[str, Relation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name, self.resource, config = self.stored.name, self.stored.resource, self.config
        self.page_limit = self.resource.page_limit or config.page_limit
        self.page_limit_max = max(self.page_limit, config.page_limit_max)
        self.page_bytes = self.resource.page_bytes or config.page_bytes
        self.limits = ItemLimits(*config.item_limits)
        self.access = self.hooks.access(self.resource)
        if config.auth == "required" and self.caching == REVALIDATED:
            self.caching = OF_CALLER
        self._pages: Cache[tuple[tuple[str, ...] | None, str, str, bytes], _ListPage] = Cache(PAGES_BYTES)
        known = self.representation.name_of
        self._order = tuple(each._replace(field=known(each.field)) for each in self.resource.order)
        chain = self.stored.chains.get(self.resource.oldest)
        self._steps = f"-{chain.fingerprint}" if chain else ""  # a part of a list's ETag that changes with what they do

    def page(self, *also: Filter) -> Reply:
        """The requested page of the list, of the items that `also` these filters select; 304 if the client has it."""
        self._before_read(self.page_limit_max)
        owners, conditional, request = self.access.owners(), is_conditional(), current_request()
        path = request.root_path + request.path
        address = (owners, self.representation.fingerprint, path, request.query_string)  # what it depends on
        page = self._pages.get(address)
        change_token = None
        if page or conditional:  # as it was read with the credential, or now
            found = lookup.find(self.store, self.name)
            change_token = found if isinstance(found, str) else self.store.change_token(self.name)
        if page is None or page.change_token != change_token:
            args = request.args if request.query_string else NO_ARGS
            queryable = self.representation.queryable
            list_request = parse(args, queryable, self.page_limit, self.page_limit_max, self.relations, self._order)
            query = self.representation.query(list_request.query)
            sort = query.sort or self.resource.order
            query = query._replace(filters=(*query.filters, *also), sort=sort, owners=owners)
            query = resolve(list_request, query, request.path, args)
            if owners is None and conditional and change_token and not list_request.embed:
                if unchanged := self._not_modified(self.list_tag(change_token, list_request.limit)):
                    return unchanged  # without reading the page
            page = self._list_page(list_request, query)
            if not list_request.embed:  # which others change
                self._pages.add(address, page, page.size + sum(map(len, (*address[1:], *(owners or ())))))
        if conditional and (unchanged := self._not_modified(page.tag)):
            return unchanged
        return Reply([page.body], headers=headers_of(page.headers))

    def _before_read(self, most: int = 0) -> None:
        require_acceptable(JSON)
        for before in self.hooks.before_read:
            before(self.representation, most)

    def read(self, id: str) -> Reply:
        """One item, or some of its fields, with what is embedded; 304 if the client has it. Raises NotFound."""
        self._before_read()
        request = current_request()
        args = request.args if request.query_string else NO_ARGS
        fields, names = parse_item(args, self.representation.queryable, self.relations) if args else (None, ())
        record = self.require_sight(id)
        if names:
            (body,) = embed(self, [self.representation.body(record)], names, fields)
            if is_conditional() and (unchanged := self._not_modified(digest(body))):
                return unchanged
            headers = {"ETag": f'"{digest(body)}"', "Cache-Control": self.caching}
            return Reply(body, content_type=JSON, headers=headers)
        if is_conditional() and (unchanged := self._not_modified(self.tag(record), self.changed_at(record))):
            return unchanged
        return self.represent(record, fields)

    def require_sight(self, id: str) -> Record:
        """An item. Raises NotFound, also for one that the caller must not know of."""
        record = self.find(id)
        self.access.require_sight(record)
        return record

    def find(self, id: str) -> Record:
        """An item, as it was read with the credential, or now. Raises NotFound."""
        if not isinstance(record := lookup.find(self.store, (self.name, self.resource.key(id))), Record):
            if self.stored.initial is None:
                raise NotFound("there is no such item")
            return self.stored.initial
        return record

    def refer(self, items: Sequence[JsonObject], field: str, id: str | int, *, is_array: bool = False) -> None:
        """Let new items refer by this field to the one in their path. Raises ValidationFailed for another one."""
        key = self.resource.key
        others = [n for n, each in enumerate(items) if key(each.setdefault(field, id)) != key(id)]
        detail = f"must be {id}, as in the path, or left out"
        require_none([fault([n, field] if is_array else [field], detail) for n in others])

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
            ("Last-Modified", last_modified(self.changed_at(record), self.clock.time())),
            ("Cache-Control", self.caching),
        ]
        return Reply([body], headers=headers_of(headers))

    def tag(self, record: Record) -> str:
        """The strong ETag of an item: a digest of its representation, so that no two of them share one."""
        return digest(self.representation.body(record))

    def changed_at(self, record: Record) -> str:
        """When the representation of an item last changed, by the item or by its representation."""
        return max(record.updated_at, self.representation.changed_at)

    def first_page(self, owners: tuple[str, ...], transaction: Transaction, filters: tuple[Filter, ...] = ()) -> str:
        """The ETag of the list of these items, as a request without parameters gets it."""
        query = Query(filters=filters, limit=self.page_limit, owners=owners, sort=self.resource.order)
        return self._list_page(ListRequest(Query(), self.page_limit, order=self._order), query, transaction).tag

    def _list_page(self, list_request: ListRequest, query: Query, transaction: Transaction | None = None) -> _ListPage:
        """A page of a list as callers see it. Raises as `require_whole` and `embed`."""
        shown = query._replace(sort=(Sort("id"),), limit=1) if list_request.is_count else query
        page = (transaction or self.store).page(self.name, shown, self.page_bytes)
        if transaction:
            page = page._replace(change_token=transaction.change_token(self.name))
        require_whole(list_request, page)
        tag = self.list_tag(page.change_token, list_request.limit)  # first: not of a later moment than the bodies
        bodies = self.representation.bodies(page)
        if list_request.embed:
            bodies = embed(self, bodies, list_request.embed, list_request.fields)
        elif list_request.fields:
            bodies = [self.representation.show(body, list_request.fields) for body in bodies]
        body = b"[" + b",".join(bodies) + b"]"
        total = self._total(query, page, transaction)
        if list_request.is_count:
            body = self._groups(query, total)
        is_own = query.owners is not None and (total is not None or query.after)  # it does not depend on others
        if is_own or list_request.embed:
            tag = digest(b"%d %b" % (-1 if total is None else total, body))
        headers = [
            ("Content-Type", JSON),
            ("Content-Length", str(len(body))),
            ("ETag", f'"{tag}"'),
            ("Cache-Control", self.caching),
        ]
        request = current_request()
        if not list_request.is_count and (link := links(list_request, query, page, total, request.path, request.args)):
            headers.append(("Link", link))
        if total is not None:
            headers.append(("X-Total-Count", str(total)))
        return _ListPage(page.change_token, tag, body, headers)

    def _groups(self, query: Query, total: int | None) -> bytes:
        """The values of the field that a query is sorted by, each with the number of its items."""
        few = total is not None and total <= MOST_COUNTED
        groups = self.store.groups(self.name, query, MAX_VALUES + 1) if few else []
        if not few or len(groups) > MAX_VALUES:
            detail = f"is limited to {MOST_COUNTED} items and {MAX_VALUES} values, and here are more: add filters"
            raise InvalidQuery(f"count {detail}", errors=[{"parameter": "count", "detail": detail}])
        makes: Mapping[Kind, Callable[[Any], Any]] = {Kind.BOOLEAN: bool, Kind.SERIAL: self.resource.shown}
        if make := makes.get(self.stored.collection.field(query.sort[0].field).kind):
            groups = [(None if value is None else make(value), count) for value, count in groups]
        return exactjson.dumps([{"value": value, "count": count} for value, count in groups])

    def _total(self, query: Query, page: Page, transaction: Transaction | None = None) -> int | None:
        """The number of items of a query, if it is not too large to be counted.

        On a walk by cursor through a part of the list it is not counted again.
        """
        if page.total is not None or query.after:
            return page.total
        if not page.more and (page.bodies or not query.offset):  # all up to the last one are known
            return query.offset + len(page.bodies)
        total = (transaction or self.store).count(self.name, query, most=MOST_COUNTED + 1)
        known = query.offset + len(page.bodies) if page.bodies else 0  # some may have been deleted since
        return max(total, known) if total <= MOST_COUNTED else None

    def list_tag(self, change_token: str, limit: int) -> str:
        """The strong ETag of a list: it changes with anything in the collection, so that no page is read for it."""
        return f"{change_token}-{self.representation.fingerprint}{self._steps}-{limit}-{self.page_bytes}"

    def _not_modified(self, tag: str, updated_at: str | None = None) -> Reply | None:
        """The 304 to a client that has this state, with what a 200 says of caching (RFC 9110, section 15.4.5)."""
        require_match(tag, updated_at)
        if not is_not_modified(tag, updated_at):
            return None
        return Reply(b"", 304, headers=headers_of([("ETag", f'"{tag}"'), ("Cache-Control", self.caching)]))
