"""Which indexes have the items of a query, and in which order."""

from collections.abc import Mapping, Set
from typing import NamedTuple

from restkeeper.storage.interface import MOST_INDEXED, Collection, Filter, Index, Op, Query

SKIPPED = 1000  # items before a page that an index skips in less than a millisecond

_ID = Index("id", unique=True)
_RANGES = (Op.GT, Op.GTE, Op.LT, Op.LTE, Op.STARTS)


class Plan(NamedTuple):
    """How the items of a query are found: by the indexes of the filters with these numbers, or that of the owners.

    Without `filters`, it is by any. If it `is_unique`, there is one item for each value, and if it `is_ordered`, they
    are found in the order of the query.
    """

    filters: frozenset[int] | None = None
    by_owners: bool = False
    is_unique: bool = False
    is_ordered: bool = True

    @property
    def used(self) -> frozenset[int]:
        """The filters."""
        return self.filters or frozenset()

    @property
    def size(self) -> int:
        """The number of conditions that are used."""
        return len(self.used) + self.by_owners


ANY_PLAN = Plan()


def equality_plans(collection: Collection, query: Query) -> list[Plan]:
    """The plans by an index that has an equality, unique ones first, and without those that others have a part of."""
    equal: dict[str, int] = {}  # the numbers of the filters that name the values of a field
    for number, filter in _required(query):
        is_null = _is_null(filter) and not collection.field(filter.field).is_many
        if filter.op in (Op.EQ, Op.IN) or is_null or (filter.join and filter.join.is_first):
            equal.setdefault(filter.field, number)
    several = {
        name for name, n in equal.items() if query.filters[n].op in (Op.IN, Op.HAS) or collection.field(name).is_many
    }
    order = _order(query)
    indexes = [_ID, *collection.indexes]
    if collection.has_owner_index:
        indexed = {index.field for index in collection.indexes if not index.unique}
        owned = (name for name in equal if collection.field(name).is_owner and not _is_null(query.filters[equal[name]]))
        indexes += [Index(name) for name in owned if name not in indexed]
    plans = [plan for index in indexes if (plan := _index_plan(index, query, equal, several, order))]
    if collection.has_owner_index and query.owners is not None:
        plans.append(Plan(frozenset(), by_owners=True, is_ordered=len(query.owners) == 1 and not order))
    best: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (not plan.is_unique, -plan.size, not plan.is_ordered)):
        if not any(
            plan.used <= other.used and plan.by_owners <= other.by_owners and plan.is_ordered <= other.is_ordered
            for other in best
        ):
            best.append(plan)
    return best


def _index_plan(
    index: Index, query: Query, equal: Mapping[str, int], several: Set[str], order: tuple[str, ...]
) -> Plan | None:
    """The plan by an index whose first fields have filters of `equal`, if any; the last can be one of `several` values.

    After single values, its next field can have ranges, or be the order. A unique index has all of its fields equal.
    """
    end = 0
    while end < len(index.fields) and index.fields[end] in equal and several.isdisjoint(index.fields[:end]):
        end += 1
    numbers, rest = {equal[name] for name in index.fields[:end]}, index.fields[end:]
    is_single = several.isdisjoint(index.fields[:end])
    has_null = any(_is_null(query.filters[number]) for number in numbers)
    if not numbers or (index.unique and (rest or has_null or (end > 1 and not is_single))):
        return None
    if is_single and rest:
        numbers |= {n for n, filter in _required(query) if filter.field == rest[0] and filter.op in _RANGES}
    sorted_by = tuple(name for name in order if name not in index.fields[:end])
    return Plan(frozenset(numbers), is_unique=index.unique, is_ordered=is_single and rest == sorted_by)


def order_plan(collection: Collection, query: Query) -> Plan | None:
    """The plan by the index that has the order of a query, if there is one."""
    order = _order(query) or _ID.fields
    if order != _ID.fields and not any(index.fields == order for index in collection.indexes if not index.unique):
        return None
    return Plan(frozenset(number for number, filter in _required(query) if filter.field == order[0]))


def is_indexed(collection: Collection, query: Query) -> bool:
    """See `base.Transaction`. A unique index has no order and no null: it answers equality alone, as that of owners."""
    if not all(is_indexed(join.collection, join.query) for join in query.joins):
        return False
    if not (query.filters or query.search):
        return any(order_plan(collection, query._replace(sort=sort)) for sort in (query.sort, query.sort[:1]))
    indexed = {index.field for index in collection.indexes if not index.unique} | {"id"}
    has_range = any(filter.field in indexed and filter.op in (*_RANGES, Op.IS) for _, filter in _required(query))
    is_joined = any(filter.join and filter.join.field for _, filter in _required(query))
    return has_range or is_joined or bool(equality_plans(collection, query))


def wanted_indexes(collection: Collection, query: Query) -> list[Index]:
    """See `base.Transaction`: of the fields that have one value, then one that has a range, or else the order."""
    filters = [
        filter for _, filter in _required(query) if filter.field != "id" and collection.field(filter.field).sortable
    ]
    equal = dict.fromkeys(filter.field for filter in filters if filter.op in (Op.EQ, Op.IN) or _is_null(filter))
    order = [key.field for key in query.sort[:1] if not key.join and key.field != "id"]
    last = dict.fromkeys(filter.field for filter in filters if filter.op in _RANGES) or dict.fromkeys(order)
    fields = [(*equal, field) for field in last if field not in equal] or ([(*equal,)] if equal else [])
    existing = {index.fields for index in collection.indexes if not index.unique}
    return [Index(*names) for names in fields if names not in existing and len(names) <= MOST_INDEXED]


def is_sorted(collection: Collection, query: Query) -> bool:
    """Whether more than a page is read although an index has it: it has several values, in another order.

    So it is where items are those that others refer to: these are looked for beside each item, or all of them first.
    """
    order = query.sort[0].name if query.sort else "id"
    return len(query.owners or ()) > 1 or any(
        (filter.op is not Op.EQ or filter.negated or collection.field(filter.field).is_many)
        and (filter.field != order or filter.join)
        for filter in query.filters
    )


def is_search(collection: Collection, query: Query, *, reads_all: bool = False) -> bool:
    """Whether a query can examine or sort many items: no index has its items, or them in its order.

    If it `reads_all` that it finds, it is one although an index has these, unless they have unique values.
    """
    if not (query.narrows or query.sort or reads_all or query.groups):  # in order of id
        return query.offset > SKIPPED
    if any(key.join for key in query.sort):
        return True
    if any(is_search(join.collection, join.query, reads_all=not join.filters) for join in query.joins):
        return True  # no index has what is joined
    operators = {Op.NE if filter.negated or filter[1:3] == (Op.IS, False) else filter.op for filter in query.filters}
    has_alternatives = any(filter.group for filter in query.filters)
    if query.search or query.offset > SKIPPED or has_alternatives or {Op.LIKE, Op.ENDS} & operators:
        return True
    best = next(iter(equality_plans(collection, query)), ANY_PLAN)
    if best.is_unique:
        return False  # one item for each value
    if reads_all or query.groups:
        return True
    if best.is_ordered and best.size == len(query.filters) + (query.owners is not None) > 0:
        return False  # all that an index finds, in its order
    fields = ({filter.field for filter in query.filters} | {key.field for key in query.sort}) - {"id"}
    by_owners = query.owners is not None
    indexed = {index.field for index in collection.indexes if not index.unique and len(index.fields) == 1}
    if collection.has_owner_index and {Op.EQ, Op.IN} >= operators:  # a filter by the owner uses it, an order its own
        names = {filter.field for filter in query.filters} - indexed
        owner_fields = {name for name in names if collection.field(name).is_owner}
        if owner_fields and owner_fields.isdisjoint(key.field for key in query.sort):
            fields, by_owners = fields - owner_fields, True
    return Op.NE in operators or len(fields) + by_owners > 1 or not fields <= indexed


def _required(query: Query) -> list[tuple[int, Filter]]:
    """The filters that each item of a query satisfies, with their numbers."""
    return [(number, filter) for number, filter in enumerate(query.filters) if not (filter.negated or filter.group)]


def _is_null(filter: Filter) -> bool:
    return (filter.op, filter.value) == (Op.IS, True)


def _order(query: Query) -> tuple[str, ...]:
    """The fields by which a query is sorted, without the id."""
    return tuple(key.name for key in query.sort if key.name != "id")
