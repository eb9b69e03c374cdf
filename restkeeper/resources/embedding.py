"""Embedded items: in the same response, the items to which an item refers, and the items that refer to it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, reduce
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson
from msgspec import Raw

from restkeeper import exactjson
from restkeeper.errors import InvalidQuery
from restkeeper.resources.call import Caller, lacking
from restkeeper.resources.items import Relation, ServedCollection
from restkeeper.resources.parameters import Hop, Queryable, refused
from restkeeper.resources.queries import MOST_CHOSEN, Embedding
from restkeeper.resources.relations import next_of
from restkeeper.resources.views import reduced, tree_of
from restkeeper.schemas.fields import Owner, Refers
from restkeeper.storage.interface import (
    POSITION,
    Filter,
    Kind,
    Query,
    Related,
    SemiJoin,
    Sort,
    field_in,
    root_of,
    serial,
)

MOST_ELEMENTS = 2000  # of lists with references, in one response: each takes some microseconds


def relations_of(items: ServedCollection, others: Iterable[ServedCollection]) -> Mapping[str, Relation]:
    """The relations by which items can be embedded in some items, by their names for callers. `others` are all items.

    Items that refer to an item have the name of their collection. If this is the name of a field, or several fields
    refer to the item, it includes the field: "orders.customer".
    """
    by_name = {collection.name: collection for collection in others}
    back = [
        Relation(collection, field, path, is_back=True)
        for collection in by_name.values()
        if any(reference.to == items.name for reference in collection.stored.revision.followed.values())
        for field, path, reference in _references(collection)
        if reference.to == items.name and not items.resource.singleton  # which does not show its id
    ]
    to = [
        Relation(by_name[reference.to], field, path, beside=reference.embed_as)
        for field, path, reference in _references(items)
    ]
    names = {*items.whole.names, *(relation.beside for relation in to)}
    counts, relations = Counter(relation.to.name for relation in back), {}
    for relation in back:
        name = relation.to.resource.public_name
        is_free = counts[relation.to.name] == 1 and names.isdisjoint({name, next_of(name)})
        relations[name if is_free else f"{name}.{relation.field}"] = relation
    return relations | {relation.beside or relation.field: relation for relation in to}


def require_free(items: ServedCollection, relations: Mapping[str, Relation]) -> None:
    """Raises ValueError if items have a field at the path of a relation."""
    queried = items.whole.queryable
    for name, relation in relations.items():
        if relation.is_back and field_in(queried.fields, name) and not queried.is_open:
            why = f"is a field, and what leads to {relation.to.name}: give it another name"
            raise ValueError(f"{items.name}: {name}: {why}")


def relations_for(items: ServedCollection, caller: Caller) -> Mapping[str, Relation]:
    """The `relations` of some items, except relations by a field that the caller may not see, or that is gone."""
    names = items.views.for_caller(caller).names

    def is_seen(relation: Relation) -> bool:
        if relation.is_back:
            return root_of(relation.path) not in relation.to.stored.for_caller(caller).hidden
        return root_of(relation.field) in names

    return {name: relation for name, relation in items.relations.items() if is_seen(relation)}


def with_hops(queryable: Queryable, items: ServedCollection, caller: Caller) -> Queryable:
    """What the queries of some items can use, with the items to which their relations lead, as a caller sees them."""
    if not items.relations:
        return queryable

    @cache
    def hops() -> Mapping[str, Hop]:
        relations, others = relations_for(items, caller).items(), items.stored.queryable.known
        return {
            name: _hop(name, items, relation, caller) for name, relation in relations if root_of(name) not in others
        }

    return replace(queryable, hops=hops)


def _hop(name: str, items: ServedCollection, relation: Relation, caller: Caller) -> Hop:
    to, view = relation.to, relation.to.views.for_caller(caller)
    referred, field = (items, to) if relation.is_back else (to, items)

    def join(filters: tuple[Filter, ...]) -> SemiJoin:
        if not caller.may(scope := to.resource.scope("read")):
            raise lacking(scope, f"a query by {to.resource.public_name}")
        return SemiJoin(
            to.stored.collection,
            relation.path if relation.is_back else "",
            view.query(Query(filters)).filters,
            view.access.owners(caller),
            frozenset(map(type, referred.stored.id_variants(serial(1)))),
        )

    kind = field.stored.queryable.fields[relation.path]
    many = relation.is_back or (kind.is_many and kind.kind is not Kind.JSON) or "." in relation.path

    def stored(field: str) -> str:
        return view.query(Query(sort=(Sort(field),))).sort[0].field

    return Hop(name, view.queryable, "id" if relation.is_back else relation.field, many, join, stored)


def _references(items: ServedCollection) -> Iterator[tuple[str, str, Refers | Owner]]:
    """The references of some items: the field as callers know it and as it is stored, and its definition."""
    declared = items.stored.revision.followed
    for field in items.whole.queryable.fields if declared else ():
        path = items.whole.query(Query(sort=(Sort(field),))).sort[0].field
        if path in declared:
            yield field, path, declared[path]


class _Id(NamedTuple):
    """A reference in an item. The item that the relation with this number finds takes its place."""

    number: int
    id: str | int


class _Ids:
    """The references in some items: how often they occur, and the number of elements of the lists around them."""

    def __init__(self) -> None:
        self.counts = Counter[_Id]()
        self.elements = 0

    def open(self, text: Any, tree: Any) -> Any:
        """The value at a tree, with an _Id in place of every id to which the tree leads. Raises InvalidQuery."""
        value = exactjson.outermost(text) if isinstance(text, Raw) else text
        if isinstance(value, list):
            self.elements += len(value)
            if self.elements > MOST_ELEMENTS:
                raise _too_much(f"would look into more than {MOST_ELEMENTS} elements of lists here")
            return [self.open(element, tree) for element in value]
        if isinstance(tree, dict) and isinstance(value, dict):
            return value | {name: self.open(value[name], inner) for name, inner in tree.items() if name in value}
        if isinstance(tree, dict) or not isinstance(value, str | int):
            return text
        self.counts[reference := _Id(tree, value)] += 1
        return reference


def with_related(
    caller: Caller,
    items: ServedCollection,
    bodies: Iterable[bytes],
    parts: Mapping[str, Relation],
    embed: Mapping[str, Embedding],
    fields: Sequence[str] | None,
    prefix: str,
) -> list[bytes]:
    """Representations of items, with the items that these relations embed as `embed` says and a caller sees them.

    Items are reduced to `fields` if there are some. Collections are at the paths after the `prefix`.

    One query of the store finds the embedded items. Raises InvalidQuery for more than MOST_ELEMENTS, or more bytes
    than a page has, and RevisionDiffers.
    """
    tree: dict[str, Any] = {}  # the names on the paths of references, with the numbers of the relations at their ends
    for number, (name, relation) in enumerate(parts.items()):
        *around, last = name.split(".")
        if not (relation.is_back or relation.beside):
            reduce(lambda inner, step: inner.setdefault(step, {}), around, tree)[last] = number
    beside = [
        (number, name, relation.field) for number, (name, relation) in enumerate(parts.items()) if relation.beside
    ]
    opened, ids, results = _Ids(), list[str | int](), list[dict[str, Any]]()
    chosen_tree = (
        None if fields is None else tree_of((*fields, *(name for name in tree if name not in map(root_of, fields))))
    )
    for members in map(exactjson.cut, bodies):
        ids.append(exactjson.decoded(members.get(items.resource.schema.id_name, b"null")))
        chosen = members if chosen_tree is None else reduced(members, chosen_tree)
        besides = {name: opened.open(members.get(field, Raw(b"null")), number) for number, name, field in beside}
        results.append(opened.open({**chosen}, tree) | besides)
    relations = list(parts.values())
    embedded = _find(caller, items, parts, embed, ids, opened.counts)
    for number, (name, relation) in enumerate(parts.items()):
        for item, id in zip(results, ids, strict=True) if relation.is_back else ():
            referring = embedded.get((number, items.resource.key(id)), [])
            most = embed[name].limit or relation.to.resource.embed_limit
            sort = {} if relation.to.resource.sort == POSITION else {"sort": "-id"}
            query = urlencode({relation.field: id, **sort, **dict(embed[name].others), "offset": most})
            item[name] = [orjson.Fragment(body) for body in referring[:most]]
            item[next_of(name)] = (
                f"{prefix}/{quote(relation.to.resource.public_name)}?{query}" if len(referring) > most else None
            )

    def write(value: Raw | _Id) -> Any:
        if isinstance(value, Raw):
            return orjson.Fragment(bytes(value))
        relation = relations[value.number]
        body = embedded.get((value.number, relation.to.resource.key(value.id)), [b""])[0]
        return orjson.Fragment(body) if body else None if relation.beside else value.id

    return [orjson.dumps(item, default=write) for item in results]


def _find(
    caller: Caller,
    items: ServedCollection,
    relations: Mapping[str, Relation],
    embed: Mapping[str, Embedding],
    ids: Sequence[str | int],
    counts: Counter[_Id],
) -> dict[tuple[int, str], list[bytes]]:
    """The representations that the relations find, by the number of the relation and the key."""
    parts, chosen = list(relations.values()), [embed[name] for name in relations]
    queries, resource, keys = [], items.resource, Counter[tuple[int, str]]()
    views = [relation.to.views.for_caller(caller) for relation in parts]
    for (number, id), times in counts.items():
        keys[number, parts[number].to.resource.key(id)] += times
    for number, (to, _, path, is_back, _) in enumerate(parts):
        values: Sequence[str | int] = [key for relation_number, key in keys if relation_number == number]
        if is_back:
            values = [form for id in ids for form in items.stored.id_variants(resource.key(id))]
        most = (chosen[number].limit or to.resource.embed_limit) + 1 if is_back else 1
        in_order = to.resource.sort == POSITION
        owners = views[number].access.owners(caller)
        query = views[number].query(Query(chosen[number].filters, sort=chosen[number].sort))
        field = path if is_back else "id"
        queries.append(Related(to.name, field, values, most, owners, in_order, query.filters, query.sort))
    bodies_by_key: dict[tuple[int, str], list[bytes]] = {}
    stored_bytes, shown_bytes, most = 0, 0, items.page_bytes
    rows = items.store.related(queries, most) if any(related.values for related in queries) else ()
    for number, value, record in rows:
        body = views[number].body(record)
        body = views[number].show(body, chosen[number].fields) if chosen[number].fields else body
        key = number, resource.key(value) if parts[number].is_back else record.id
        bodies_by_key.setdefault(key, []).append(body)
        stored_bytes += len(record.body) + len(record.removed_fields or b"")
        shown_bytes += len(body) * keys.get(key, 1)
    if max(stored_bytes, shown_bytes) > most:
        raise _too_much(f"would add more than {most} bytes here")
    counted = ((chosen[number].limit, len(bodies)) for (number, _), bodies in bodies_by_key.items())
    if sum(min(limit, count) for limit, count in counted if limit) > MOST_CHOSEN:
        raise _too_much(f"would add more than {MOST_CHOSEN} items here")
    return bodies_by_key


def _too_much(detail: str) -> InvalidQuery:
    return refused("embed", f"{detail}: ask for fewer items (limit), or embed less")
