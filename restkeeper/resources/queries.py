"""A list's query parameters: which items, in which order, which stretch, which fields."""

from collections.abc import Collection, Mapping
from functools import partial
from importlib import import_module
from typing import NamedTuple

from restkeeper.config import Config
from restkeeper.errors import shortened
from restkeeper.parsing import whole
from restkeeper.resources.filters import filters_of, group_of, no_words, words_of
from restkeeper.resources.parameters import GROUPED, Arguments, Hop, Queryable, Reader, is_option, one_of, require_once
from restkeeper.storage.interface import Filter, Query, Sort

EXPORTS = ("csv",)  # the values of the parameter `export`

MAX_OFFSET = 2**31 - 1
MOST_EMBEDDED = 10  # names in `embed`
MOST_CHOSEN = 1000  # items that are embedded in all items together, where a parameter says how many
MOST_GROUPS = 1000  # of one list

_OFFSET = whole(0, MAX_OFFSET)


class Embedding(NamedTuple):
    """The fields that embedded items show: these `fields`, or all if there are none.

    Of the items that refer to one, it is at most so many (`limit`, or as the collection says), with these `filters`, in
    this order. `others` are the parameters of the list of all of them that select and sort it so.
    """

    fields: tuple[str, ...] = ()
    limit: int | None = None
    sort: tuple[Sort, ...] = ()
    filters: tuple[Filter, ...] = ()
    others: tuple[tuple[str, str], ...] = ()


class ListRequest(NamedTuple):
    """The parsed query of a list. `fields` are the selected ones, or paths; None for all. `cursor` is not decoded yet.

    `embed` has what is embedded by its name, `order` the sort keys of a list that is not sorted.

    With an `export`, one of EXPORTS, the page is a file in that format.
    """

    query: Query
    limit: int
    fields: tuple[str, ...] | None = None
    embed: Mapping[str, Embedding] = {}
    cursor: str | None = None
    by_offset: bool = False
    order: tuple[Sort, ...] = ()
    export: str = ""

    @property
    def is_joined(self) -> bool:
        """Whether it depends on other collections."""
        return bool(self.embed or self.query.joins)


def parse(
    args: Arguments,
    queryable: Queryable,
    config: Config,
    limit: int,
    limit_max: int,
    related: Collection[str] = (),
    order: tuple[Sort, ...] = (),
) -> ListRequest:
    """The list that the parameters request.

    It is `limit` items unless they say, and where they name ids, all of those. `related` is what can be embedded,
    `order` that of a list that is not sorted. Raises InvalidQuery with every fault, each naming what would be right.
    """
    if not args:
        return ListRequest(Query(limit=limit), limit, order=order)
    reader = Reader(args, config)
    filters = filters_of(reader, queryable)
    ids = (filter.value for filter in filters if filter.field == "id" and not (filter.group or filter.negated))
    limit = next((len(value) for value in ids if isinstance(value, tuple)), limit)
    grouped = [name for name in GROUPED if name in args and name in queryable.reserved]
    grouping = import_module("restkeeper.resources.grouping") if grouped else None  # few requests ask for groups
    groups = grouping.groups_in(reader, queryable, grouped) if grouping else None
    fields, embed = _shown(reader, queryable, related)
    listing = ListRequest(
        Query(
            filters=filters,
            search=reader.one("q", words_of if queryable.is_searched else no_words, ()),
            sort=reader.joined("sort", partial(_sort, queryable=queryable), ()),
            groups=groups,
            limit=(size := reader.one("limit", whole(1, limit_max), limit)),
            offset=reader.one("offset", _OFFSET, 0),
        ),
        size,
        fields,
        embed,
        reader.one("cursor", str, None),
        by_offset="offset" in args,
        order=order,
        export=reader.one("export", one_of(EXPORTS), "") if "export" in queryable.reserved else "",
    )
    if "cursor" in args and "offset" in args:
        reader.fault("offset", "does not go with cursor: page by one or the other")
    reader.finish()
    return listing


def parse_item(
    args: Arguments, queryable: Queryable, config: Config, related: Collection[str]
) -> tuple[tuple[str, ...] | None, Mapping[str, Embedding]]:
    """The fields to show of one item, None for all, and what to embed. Raises InvalidQuery."""
    reader = Reader(args, config)
    fields, embed = _shown(reader, queryable, related)
    if not queryable.is_open:
        reader.only(("fields", "embed", *filter(is_option, args)), "an item")
    reader.finish()
    return fields, embed


def _sort(text: str, queryable: Queryable) -> tuple[Sort, ...]:
    keys = [_sort_key(name.removeprefix("-"), name.startswith("-"), queryable) for name in text.split(",")]
    require_once([key.name for key in keys])
    return tuple(keys)


def _sort_key(field: str, descending: bool, queryable: Queryable) -> Sort:
    """A sort key, which can lead to the item that an item refers to. Raises Forbidden."""
    hop, path = queryable.hop(field)
    more = ", each also with - before it"
    if not hop or not path:
        queryable.require(field, queryable.sortable, more=more)
        return Sort(field, descending)
    if hop.many:
        raise ValueError(f"cannot be {field!r}: an item can have several {hop.name}")
    hop.queryable.require(path, hop.queryable.sortable, f"{hop.name}.", more=more)
    return Sort(hop.field, descending, hop.join(()), hop.stored(path))


def _shown(
    reader: Reader, queryable: Queryable, related: Collection[str]
) -> tuple[tuple[str, ...] | None, Mapping[str, Embedding]]:
    """The fields to show, None for all, and what is embedded: also what fields are inside of."""
    inside: dict[str, list[str]] = {}
    fields: tuple[str, ...] | None = reader.joined("fields", partial(_names, queryable=queryable, inside=inside), None)
    is_there = "embed" in reader.args and "embed" in queryable.reserved
    names = reader.several("embed", one_of(related), MOST_EMBEDDED) if is_there else ()
    embed = {name: Embedding() for name in names} | {name: Embedding(tuple(paths)) for name, paths in inside.items()}
    for parameter in filter(is_option, reader.args):
        if (name := parameter[:-1].partition("[")[2]) in embed and name in queryable.hops():
            embed[name] = _option(reader, parameter, embed[name], queryable.hops()[name])
        else:
            reader.fault(parameter, f"is about what is not embedded: write embed={shortened(name)}")
    if len(embed) > MOST_EMBEDDED:
        reader.fault("fields", f"is inside more than {MOST_EMBEDDED} related items")
    return fields, embed


def _option(reader: Reader, parameter: str, embedding: Embedding, hop: Hop) -> Embedding:
    """An embedding with one more parameter."""
    option, to, others = parameter.partition("[")[0], hop.queryable, embedding.others
    if option == "fields":
        names = reader.joined(parameter, partial(_names, queryable=to, inside={}), ())
        return embedding._replace(fields=(*embedding.fields, *names))
    if hop.field != "id":
        reader.fault(parameter, "is for lists, and this is what the item refers to: write fields[…]")
        return embedding
    if option == "limit":
        return embedding._replace(limit=reader.one(parameter, whole(1, MOST_CHOSEN), None))
    if option == "sort":
        sort = reader.joined(parameter, partial(_sort, queryable=to), ())
        others = (*others, ("sort", reader.joined(parameter, str, "")))
        return embedding._replace(sort=sort, others=others)
    text = reader.one(parameter, str, "()")
    filters = tuple(group_of(reader, parameter, text, to, kind="and"))
    return embedding._replace(filters=filters, others=(*others, ("or", f"(and{text})")))


def _names(text: str, queryable: Queryable, inside: dict[str, list[str]]) -> tuple[str, ...]:
    """The fields, or paths, to show. What leads to other items is `inside`, by the name before it. Raises Forbidden."""
    names = list[str]()
    for name in text.split(","):
        hop, path = queryable.hop(name)
        if hop and path:
            hop.queryable.require_shown(path, f"{hop.name}.")
            hop.join(())
            inside.setdefault(hop.name, []).append(path)
            names += [hop.name] if hop.field == hop.name else []
        else:
            queryable.require_shown(name)
            names.append(name)
    return queryable.in_order(names)
