"""Items of a service for its views, as they are stored."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from flask import current_app

from restkeeper import exactjson
from restkeeper.resources.call import EVERYBODY
from restkeeper.resources.functions import current_items
from restkeeper.resources.groups import shown_groups
from restkeeper.resources.items import ServedCollection
from restkeeper.resources.parameters import GROUPED
from restkeeper.resources.queries import MOST_GROUPS, ListRequest
from restkeeper.resources.searches import query_of
from restkeeper.resources.views import stored_in
from restkeeper.service import Service, service_of
from restkeeper.web.application import address_of
from restkeeper.web.auth import caller


def shown(collection: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """An item that `read_item` or `find_items` has returned, without the fields that the present caller may not see.

    Embedded items have no such fields either.
    """
    service = service_of(current_app)
    stored, items = stored_in(service.stored, collection), current_items.get()
    private = stored.for_caller(items.unit.call.caller if items else caller()).hidden
    public: Any = {name: value for name, value in item.items() if name not in private}
    for name, relation in service.related[collection].relations.items():
        steps = [name] if relation.is_back or relation.beside else name.split(".")
        public = _changed_at(steps, public, partial(shown, relation.to.name))
    return cast(dict[str, Any], public)


def _changed_at(steps: Sequence[str], value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A value with each object at a path changed; a list stands for each of its elements."""
    if isinstance(value, list):
        return [_changed_at(steps, element, change) for element in value]
    if not isinstance(value, dict):
        return value
    if not steps:
        return change(value)
    name, *more = steps
    return value | {name: _changed_at(more, value[name], change)} if name in value else value


def read_item(collection: str, id: str | int) -> dict[str, Any]:
    """An item as it is stored, for a view; its owner and the caller make no difference. Raises RecordNotFound.

    It has private fields, too: put only the result of `shown` into a response. In an action, and in a function before
    or after a write, it is read as by `items`.
    """
    service = service_of(current_app)
    stored, items = stored_in(service.stored, collection), current_items.get()
    record = items.record(collection, id) if items else stored.read(service.store, id)
    return cast(dict[str, Any], exactjson.decoded(stored.body(record)))


def find_items(collection: str, parameters: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """The items of a list, as `read_item`, also with private fields. Raises InvalidQuery.

    The parameters are those of lists: `{"status": "open", "total[gte]": 100, "sort": "-total"}`. Without `limit` it is
    all of the items, read page by page: an item that stays is there once, whatever is written meanwhile. With `embed`,
    embedded items are as they are stored, too. With `count`, and with `aggregate[sum]` and similar parameters, the
    result is the groups of the items as in a response. Raises ValueError for a parameter that only responses have.
    """
    service = service_of(current_app)
    stored, most = stored_in(service.stored, collection), service.config.page_limit_max
    is_grouped = not {*GROUPED}.isdisjoint({*(parameters or ())}.intersection(stored.queryable.reserved))
    if items := current_items.get():
        return iter(items.groups(collection, parameters or {}) if is_grouped else items.find(collection, parameters))
    related = service.related[collection]
    if is_grouped:
        query = query_of(related, parameters, most, is_grouped=True).query
        groups = service.store.groups(collection, query, MOST_GROUPS + 1)
        return iter(shown_groups(stored, query.groups, query.groups, groups))
    requested = query_of(related, parameters, most, related.relations)
    limit = requested.query.limit if "limit" in (parameters or {}) else None
    return _pages(service, related, requested, limit, min(most, related.page_limit) if requested.embed else most)


def _pages(
    service: Service, items: ServedCollection, requested: ListRequest, remaining: int | None, size: int
) -> Iterator[dict[str, Any]]:
    """The `remaining` items of a list, or all; `size` is the most items of a page."""
    query, page = requested.query, None
    parts = {name: items.relations[name] for name in requested.embed}
    while page is None or (page.more and remaining != 0):
        query = query._replace(limit=size if remaining is None else min(remaining, size))
        page = service.store.page(items.name, query, service.config.page_bytes)
        bodies = items.stored.bodies(page)
        if parts:
            embed, fields = requested.embed, requested.fields
            references = service.domain.references
            bodies = references.with_related(EVERYBODY, items, bodies, parts, embed, fields, address_of(""))
        elif requested.fields:
            bodies = [items.stored.show(body, requested.fields) for body in bodies]
        yield from map(exactjson.decoded, bodies)
        remaining = remaining and remaining - len(page.bodies)
        query = query._replace(after=page.last, offset=0)
