"""The items of one collection, as a call reads them: one item, and pages of the list."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple, cast

from restkeeper import exactjson
from restkeeper.config import Config
from restkeeper.errors import NotFound
from restkeeper.exactjson import JsonObject, fault, require_none
from restkeeper.resources.cache import Cache
from restkeeper.resources.call import EVERYBODY, Call, Caller
from restkeeper.resources.changes import Answer, Domain
from restkeeper.resources.filters import MAX_VALUES
from restkeeper.resources.item import digest
from restkeeper.resources.parameters import Arguments, Queryable, refused
from restkeeper.resources.queries import MOST_GROUPS, Embedding, ListRequest, parse, parse_item
from restkeeper.resources.rights import Rights
from restkeeper.resources.views import Access, StoredView, View, Views
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.interface import Filter, Groups, Kind, Page, Query, Record, Sort

PAGES_BYTES = 4 * 1024 * 1024  # of responses to lists that each process caches for a collection in one version
MOST_COUNTED = 100_000  # items of a query that narrows: PostgreSQL counts so many in a second or less


class ListPage(NamedTuple):
    """A page of a list, as a call sees it.

    `change_token` is that of the collection when it was read, `tag` the strong ETag, `body` the JSON, `page` as it is
    stored, and `total` the number of items in all pages, if they were counted.
    """

    change_token: str
    tag: str
    body: bytes
    page: Page
    total: int | None


class Relation(NamedTuple):
    """A reference, followed to the items `to`; or where it `is_back`, from the items that refer to others.

    `field` is the reference as callers know it, `path` as it is stored. The item to which it refers is embedded in the
    place of the reference, or under the name `beside`.
    """

    to: "ServedCollection"
    field: str
    path: str
    is_back: bool = False
    beside: str = ""

    @property
    def has_route(self) -> bool:
        """Whether a path lists the items that refer to an item: by a field with one value, inside no other field."""
        if not self.is_back or self.to.resource.singleton:
            return False
        field = self.to.stored.queryable.fields[self.path]
        return not field.is_many or field.kind is Kind.JSON


@dataclass(eq=False)
class ServedCollection:
    """The items of one collection in one version of the API: what all calls share.

    `views` are how callers see the items. `choices` are the values that a field, or an element of an array field, can
    have, and `defaults` the values of fields that were not sent, where only the service knows these values.
    `relations` lead to the items that can be embedded. `keeps_new` is whether new items are stored as they are loaded:
    until a feature changes one.
    """

    stored: StoredView
    views: Views
    store: Store
    config: Config
    domain: Domain
    choices: Mapping[str, Iterable[str]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    relations: Mapping[str, Relation] = field(default_factory=dict)
    keeps_new: bool = True

    def __post_init__(self) -> None:
        self.name, self.resource, config = self.stored.name, self.stored.resource, self.config
        self.page_limit = self.resource.page_limit or config.page_limit
        self.page_limit_max = max(self.page_limit, config.page_limit_max)
        self.page_bytes = self.resource.page_bytes or config.page_bytes
        name_of = self.whole.name_of
        self.order = tuple(key._replace(field=name_of(key.field)) for key in self.resource.order)
        self.pages: Cache[Any, Any] = Cache(PAGES_BYTES)  # responses to lists, also of the items that refer to one item
        # A part of a list's ETag that changes with the work of the steps.
        oldest, newest = self.resource.oldest, self.resource.revision
        has_steps = any(self.resource.upgrades.values())
        self.steps = f"-{self.resource.chain(oldest, newest).fingerprint}" if has_steps else ""

    @cached_property
    def rights(self) -> Rights | None:
        """The values that callers may set, unless all callers may set all values."""
        rights = Rights(self.stored, self.domain.resources, self.domain.references)
        return rights if rights.restricts_values else None

    @property
    def whole(self) -> View:
        """The items as they are now for callers who may read every field."""
        return self.views.for_caller(EVERYBODY)

    def relations_for(self, caller: Caller) -> Mapping[str, Relation]:
        """The `relations`, except relations by a field that the caller may not see, or that is gone."""
        return self.domain.references.relations_for(self, caller)

    def with_hops(self, queryable: Queryable, caller: Caller) -> Queryable:
        """What queries can use, with the items to which the `relations` lead, as a caller sees them."""
        return self.domain.references.with_hops(queryable, self, caller)


class CollectionReader:
    """A collection as one call reads and writes it. `view` is how its caller sees the items."""

    def __init__(self, served: ServedCollection, call: Call) -> None:
        self.served = served
        self.call, self.caller = call, call.caller
        self.view = served.views.for_caller(call.caller)

    def parse(self, args: Arguments) -> ListRequest:
        """The list that the parameters request. Raises InvalidQuery."""
        of, related = self.served, self.served.relations_for(self.caller) if "embed" in args else ()
        return parse(args, self._queryable, of.config, of.page_limit, of.page_limit_max, related, of.order)

    @cached_property
    def _queryable(self) -> Queryable:
        """What the queries of the caller can use, in this collection and in related ones."""
        return self.served.with_hops(self.view.queryable, self.caller)

    def parse_item(self, args: Arguments) -> tuple[tuple[str, ...] | None, Mapping[str, Embedding]]:
        """The fields to show of one item, None for all, and what to embed. Raises InvalidQuery."""
        related = self.served.relations_for(self.caller) if "embed" in args else ()
        return parse_item(args, self._queryable, self.served.config, related)

    def query(self, requested: ListRequest, also: Iterable[Filter] = ()) -> Query:
        """The query of the store for a list, of the items that `also` these filters select."""
        query = self.view.query(requested.query)
        sort, owners = query.sort or self.served.resource.order, self.view.access.owners(self.caller)
        return query._replace(filters=(*query.filters, *also), sort=sort, owners=owners)

    def change_token(self) -> str:
        """The change token of the collection, as it was read with the credential, or now."""
        token = self.call.read_ahead_or_now(self.served.store, self.served.name)
        return token if isinstance(token, str) else self.served.store.change_token(self.served.name)

    def find(self, id: str) -> Record:
        """An item, as it was read with the credential, or now.

        Raises NotFound, also for an item that the caller must not know of.
        """
        value = self.call.read_ahead_or_now(self.served.store, (self.served.name, self.served.resource.key(id)))
        record = value if isinstance(value, Record) else self.served.stored.initial
        if record is None:
            raise NotFound("there is no such item")
        if type(self.view.access) is not Access:
            self.view.access.require_sight(self.caller, record)
        return record

    def answer(self, record: Record, fields: Iterable[str] | None = None) -> Answer:
        """An item, or only these of its fields."""
        body = self.view.body(record)
        tag = digest(body)
        body = self.view.show(body, fields) if fields else body
        return Answer(body, tag, self.changed_at(record), record.id)

    def tag(self, record: Record) -> str:
        """The strong ETag of an item: a digest of its representation, so that no two representations share a tag."""
        return digest(self.view.body(record))

    def changed_at(self, record: Record) -> str:
        """When the representation of an item last changed, by the item or by its representation."""
        return max(record.updated_at, self.view.changed_at)

    def embed(
        self, bodies: Iterable[bytes], embed: Mapping[str, Embedding], fields: Sequence[str] | None, prefix: str
    ) -> list[bytes]:
        """Representations of items, reduced to `fields` if there are some, with the items that relations embed.

        Items that the caller may not read are left out, and references to them stay ids. Collections are at the paths
        after the `prefix`. Raises as `with_related`.
        """
        caller, relations = self.caller, self.served.relations
        parts = {name: relations[name] for name in embed if caller.may(relations[name].to.resource.scope("read"))}
        self.call.shown_collections = {self.served.name, *(relation.to.name for relation in parts.values())}
        return self.served.domain.references.with_related(caller, self.served, bodies, parts, embed, fields, prefix)

    def first_page_tag(self, transaction: Transaction, filters: tuple[Filter, ...] = ()) -> str:
        """The ETag of the list of these items, as a request without parameters gets it."""
        requested = self.parse({})
        return self.list_page(requested, self.query(requested, filters), "", transaction).tag

    def list_page(
        self, requested: ListRequest, query: Query, prefix: str, transaction: Transaction | None = None
    ) -> ListPage:
        """A page of a list. Raises InvalidQuery as `require_whole` and `embed`."""
        groups = requested.query.groups
        page_query = query
        if groups:
            page_query = query._replace(sort=(Sort("id"),), limit=1) if groups.is_plain else Query(limit=1)
        page = (transaction or self.served.store).page(self.served.name, page_query, self.served.page_bytes)
        if transaction:
            page = page._replace(change_token=transaction.change_token(self.served.name))
        require_whole(requested, page)
        tag = self.list_tag(page.change_token, requested.limit)  # before the bodies: it must not be newer than they are
        bodies = self.view.bodies(page)
        if requested.embed:
            bodies = self.embed(bodies, requested.embed, requested.fields, prefix)
        elif requested.fields:
            bodies = [self.view.show(body, requested.fields) for body in bodies]
        body = b"[" + b",".join(bodies) + b"]"
        total = None if groups and not groups.is_plain else self._total(query, page, transaction)
        if groups:
            results = self._groups(groups, query, total)
            body = exactjson.dumps(results)
            total = sum(group["count"] for group in results)
        is_own = query.owners is not None and (total is not None or query.after)  # no items of others are in it
        if is_own or requested.is_joined:
            # Link is made of these ends: after a 304, a client keeps the Link that it has. Groups have no Link.
            ends = () if groups else (page.more, page.first, page.last)
            tag = digest(repr((total, ends)).encode() + body)
        return ListPage(page.change_token, tag, body, page, total)

    def _groups(self, asked: Groups, query: Query, total: int | None) -> list[JsonObject]:
        """The groups of a query as they were asked for. Raises InvalidQuery for too many."""
        few = not asked.is_plain or (total is not None and total <= MOST_COUNTED)
        most = MAX_VALUES if asked.is_plain else MOST_GROUPS
        groups = self.served.store.groups(self.served.name, query._replace(sort=()), most + 1) if few else []
        if asked.is_plain and (not few or len(groups) > most):
            raise refused(
                "count", f"is limited to {MOST_COUNTED} items and {MAX_VALUES} values, and here are more: add filters"
            )
        shown_groups = import_module("restkeeper.resources.groups").shown_groups
        return cast(list[JsonObject], shown_groups(self.served.stored, asked, query.groups, groups))

    def _total(self, query: Query, page: Page, transaction: Transaction | None = None) -> int | None:
        """The number of items of a query, if it is not too large to be counted.

        On a walk by cursor through a part of the list it is not counted again.
        """
        if page.total is not None or query.after:
            return page.total
        if not page.more and (page.bodies or not query.offset):  # all up to the last one are known
            return query.offset + len(page.bodies)
        total = (transaction or self.served.store).count(self.served.name, query, most=MOST_COUNTED + 1)
        seen = query.offset + len(page.bodies) if page.bodies else 0  # some may have been deleted since
        return max(total, seen) if total <= MOST_COUNTED else None

    def list_tag(self, change_token: str, limit: int) -> str:
        """The strong ETag of a list: it changes with anything in the collection, so that no page is read for it."""
        return f"{change_token}-{self.view.fingerprint}{self.served.steps}-{limit}-{self.served.page_bytes}"


def require_whole(requested: ListRequest, page: Page) -> None:
    """Raises InvalidQuery for a page by offset that its bytes cut short: a client that counts would miss items."""
    if requested.by_offset and page.cut:
        fitting = len(page.bodies)
        detail = f"can be {fitting} here: more items have no room in one page. Or page by cursor"
        raise refused("limit", detail, limit=fitting)


def refer(of: ServedCollection, items: Sequence[JsonObject], field: str, id: str | int, *, is_array: bool) -> None:
    """Let new items refer by this field to the item in their path. Raises ValidationFailed for another id."""
    key = of.resource.key
    others = [n for n, item in enumerate(items) if key(item.setdefault(field, id)) != key(id)]
    detail = f"must be {id}, as in the path, or left out"
    require_none([fault([n, field] if is_array else [field], detail) for n in others])
