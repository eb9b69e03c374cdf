"""Embedded items: those that an item refers to, and those that refer to it, in the same response."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, reduce
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

import orjson
from msgspec import Raw

from restkeeper import exactjson
from restkeeper.errors import InvalidQuery
from restkeeper.resources.call import Caller, lacking
from restkeeper.resources.parameters import Hop, Queryable
from restkeeper.resources.queries import MOST_CHOSEN, Embedding
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView, View, Views, reduced, tree_of
from restkeeper.schemas.fields import Owner, Refers
from restkeeper.storage.base import Store
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


class Embeddable(Protocol):
    """The items of a collection, which can be embedded in others: `resources.items.ServedCollection`."""

    name: str
    resource: Resource
    stored: StoredView
    views: Views
    store: Store
    relations: Mapping[str, "Relation"]
    page_bytes: int

    @property
    def whole(self) -> View:
        """The items for callers who may read every field."""


class Relation(NamedTuple):
    """A reference, followed to the items `to`; or where it `is_back`, from the items that refer to others.

    `field` is that of the reference as callers know it, `path` as it is stored. What it refers to is embedded in its
    place, or under the name `beside`.
    """

    to: Embeddable
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


def relations_of(items: Embeddable, others: Iterable[Embeddable]) -> Mapping[str, Relation]:
    """What can be embedded in some items, by its name for callers. `others` are the items of all collections.

    What refers to them has the name of its collection. Where that is a field of the item, or several fields refer to
    it, the field is a part of the name: "orders.customer". Raises ValueError if the item has a field at that path.
    """
    by_name = {each.name: each for each in others}
    back = [
        Relation(each, field, path, is_back=True)
        for each in by_name.values()
        if any(reference.to == items.name for reference in each.stored.revision.followed.values())
        for field, path, reference in _references(each)
        if reference.to == items.name and not items.resource.singleton  # which does not show its id
    ]
    to = [
        Relation(by_name[reference.to], field, path, beside=reference.embed_as)
        for field, path, reference in _references(items)
    ]
    taken = {*items.whole.names, *(each.beside for each in to)}
    counts, found = Counter(each.to.name for each in back), {}
    for each in back:
        name = each.to.resource.public_name
        is_free = counts[each.to.name] == 1 and taken.isdisjoint({name, next_of(name)})
        name = name if is_free else f"{name}.{each.field}"
        queried = items.whole.queryable
        if field_in(queried.fields, name) and not (queried.is_open or items.resource.represented_by):
            raise ValueError(
                f"{items.name}: {name}: is a field, and what leads to {each.to.name}: give it another name"
            )
        found[name] = each
    return found | {each.beside or each.field: each for each in to}


def relations_for(items: Embeddable, caller: Caller) -> Mapping[str, Relation]:
    """The `relations` of some items but those by a field that the caller may not see, or that is gone from these."""
    names = items.views.of(caller).names

    def is_seen(relation: Relation) -> bool:
        if relation.is_back:
            return root_of(relation.path) not in relation.to.stored.of(caller).hidden
        return root_of(relation.field) in names

    return {name: relation for name, relation in items.relations.items() if is_seen(relation)}


def with_hops(queryable: Queryable, items: Embeddable, caller: Caller) -> Queryable:
    """What the queries of some items can use, with what their relations lead to, as a caller sees it."""
    if not items.relations:
        return queryable

    @cache
    def hops() -> Mapping[str, Hop]:
        found, own = relations_for(items, caller), items.resource.schema.known_others
        return {name: _hop(name, items, each, caller) for name, each in found.items() if root_of(name) not in own}

    return replace(queryable, hops=hops)


def _hop(name: str, items: Embeddable, relation: Relation, caller: Caller) -> Hop:
    to, view = relation.to, relation.to.views.of(caller)
    referred, field = (items, to) if relation.is_back else (to, items)

    def join(filters: tuple[Filter, ...]) -> SemiJoin:
        if not caller.may(scope := to.resource.scope("read")):
            raise lacking(scope, f"a query by {to.resource.public_name}")
        return SemiJoin(
            to.stored.collection,
            relation.path if relation.is_back else "",
            view.query(Query(filters)).filters,
            view.access.owners(caller),
            frozenset(map(type, referred.resource.forms(serial(1)))),
        )

    kind = field.stored.queryable.fields[relation.path]
    many = relation.is_back or (kind.is_many and kind.kind is not Kind.JSON) or "." in relation.path

    def stored(field: str) -> str:
        return view.query(Query(sort=(Sort(field),))).sort[0].field

    return Hop(name, view.queryable, "id" if relation.is_back else relation.field, many, join, stored)


def _references(items: Embeddable) -> Iterator[tuple[str, str, Refers | Owner]]:
    """The references of some items: the field as callers know it and as it is stored, and its definition."""
    declared = items.stored.revision.followed
    for field in items.whole.queryable.fields if declared else ():
        path = items.whole.query(Query(sort=(Sort(field),))).sort[0].field
        if path in declared:
            yield field, path, declared[path]


def next_of(name: str) -> str:
    """The member that has the address of the items that follow the embedded ones."""
    return f"{name}_next"


class _Id(NamedTuple):
    """A reference in an item, to be replaced by what the part with this number finds."""

    part: int
    id: str | int


class _Ids:
    """The references in some items: how often there is each, and the number of elements of the lists around them."""

    def __init__(self) -> None:
        self.counts = Counter[_Id]()
        self.elements = 0

    def open(self, text: Any, tree: Any) -> Any:
        """What a tree leads into, with an _Id in place of each id that it leads to. Raises InvalidQuery."""
        value = exactjson.outermost(text) if isinstance(text, Raw) else text
        if isinstance(value, list):
            self.elements += len(value)
            if self.elements > MOST_ELEMENTS:
                raise _too_much(f"would look into more than {MOST_ELEMENTS} elements of lists here")
            return [self.open(each, tree) for each in value]
        if isinstance(tree, dict) and isinstance(value, dict):
            return value | {name: self.open(value[name], inner) for name, inner in tree.items() if name in value}
        if isinstance(tree, dict) or not isinstance(value, str | int):
            return text
        self.counts[found := _Id(tree, value)] += 1
        return found


def with_related(
    caller: Caller,
    items: Embeddable,
    bodies: Iterable[bytes],
    parts: Mapping[str, Relation],
    embed: Mapping[str, Embedding],
    fields: Sequence[str] | None,
    prefix: str,
) -> list[bytes]:
    """Representations of items with what these relations embed, as a caller sees it: of that what `embed` says.

    Items are reduced to `fields` if there are some. Collections are at the paths after the `prefix`.

    One query of the store finds it. Raises InvalidQuery for more than MOST_ELEMENTS, or than the bytes of a page, and
    RevisionDiffers.
    """
    tree: dict[str, Any] = {}  # the names on the paths of references, and at the end of each the number of a part
    for number, (name, each) in enumerate(parts.items()):
        *around, last = name.split(".")
        if not (each.is_back or each.beside):
            reduce(lambda inner, step: inner.setdefault(step, {}), around, tree)[last] = number
    numbers = {name: number for number, name in enumerate(parts)}
    opened, ids, shown = _Ids(), list[str | int](), list[dict[str, Any]]()
    chosen_tree = (
        None if fields is None else tree_of((*fields, *(name for name in tree if name not in map(root_of, fields))))
    )
    for members in map(exactjson.cut, bodies):
        ids.append(exactjson.decoded(members.get(items.resource.schema.id_name, b"null")))
        chosen = members if chosen_tree is None else reduced(members, chosen_tree)
        besides = {name: members.get(each.field, Raw(b"null")) for name, each in parts.items() if each.beside}
        opened_besides = {name: opened.open(text, numbers[name]) for name, text in besides.items()}
        shown.append(opened.open({**chosen}, tree) | opened_besides)
    relations = list(parts.values())
    found = _find(caller, items, parts, embed, ids, opened.counts)
    for number, (name, each) in enumerate(parts.items()):
        for item, id in zip(shown, ids, strict=True) if each.is_back else ():
            referring = found.get((number, items.resource.key(id)), [])
            most = embed[name].limit or each.to.resource.embed_limit
            sort = {} if each.to.resource.sort == POSITION else {"sort": "-id"}
            query = urlencode({each.field: id, **sort, **dict(embed[name].others), "offset": most})
            item[name] = [orjson.Fragment(body) for body in referring[:most]]
            item[next_of(name)] = (
                f"{prefix}/{quote(each.to.resource.public_name)}?{query}" if len(referring) > most else None
            )

    def write(value: Raw | _Id) -> Any:
        if isinstance(value, Raw):
            return orjson.Fragment(bytes(value))
        body = found.get((value.part, relations[value.part].to.resource.key(value.id)), [b""])[0]
        return orjson.Fragment(body) if body else None if relations[value.part].beside else value.id

    return [orjson.dumps(item, default=write) for item in shown]


def _find(
    caller: Caller,
    items: Embeddable,
    relations: Mapping[str, Relation],
    embed: Mapping[str, Embedding],
    ids: Sequence[str | int],
    counts: Counter[_Id],
) -> dict[tuple[int, str], list[bytes]]:
    """The representations that each part finds by each key."""
    parts, chosen = list(relations.values()), [embed[name] for name in relations]
    wanted, resource, keys = [], items.resource, Counter[tuple[int, str]]()
    views = [each.to.views.of(caller) for each in parts]
    for (part, id), times in counts.items():
        keys[part, parts[part].to.resource.key(id)] += times
    for number, (to, _, path, is_back, _) in enumerate(parts):
        values: Sequence[str | int] = [key for part, key in keys if part == number]
        if is_back:
            values = [form for id in ids for form in resource.forms(resource.key(id))]
        most = (chosen[number].limit or to.resource.embed_limit) + 1 if is_back else 1
        in_order = to.resource.sort == POSITION
        owners = views[number].access.owners(caller)
        query = views[number].query(Query(chosen[number].filters, sort=chosen[number].sort))
        field = path if is_back else "id"
        wanted.append(Related(to.name, field, values, most, owners, in_order, query.filters, query.sort))
    found: dict[tuple[int, str], list[bytes]] = {}
    stored, shown, most = 0, 0, items.page_bytes
    for number, value, record in items.store.related(wanted, most) if any(each.values for each in wanted) else ():
        body = views[number].body(record)
        body = views[number].show(body, chosen[number].fields) if chosen[number].fields else body
        key = number, resource.key(value) if parts[number].is_back else record.id
        found.setdefault(key, []).append(body)
        stored += len(record.body) + len(record.removed or b"")
        shown += len(body) * keys.get(key, 1)
    if max(stored, shown) > most:
        raise _too_much(f"would add more than {most} bytes here")
    counts_of = ((each.limit, len(bodies)) for (part, _), bodies in found.items() for each in (chosen[part],))
    if sum(min(limit, number) for limit, number in counts_of if limit) > MOST_CHOSEN:
        raise _too_much(f"would add more than {MOST_CHOSEN} items here")
    return found


def _too_much(detail: str) -> InvalidQuery:
    detail += ": ask for fewer items (limit), or embed less"
    return InvalidQuery(f"embed {detail}", errors=[{"parameter": "embed", "detail": detail}])
