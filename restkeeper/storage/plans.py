"""Which indexes have the items of a query, and in which order."""

from typing import NamedTuple

from restkeeper.storage.interface import MOST_INDEXED, Collection, Index, Op, Query

OWNERS = "owners,"  # the index of the owners; a field cannot have this name
_ID = Index("id", unique=True)
_RANGES = (Op.GT, Op.GTE, Op.LT, Op.LTE, Op.STARTS)


class Plan(NamedTuple):
    """How the items of a query are found: by the indexes of the filters with these numbers, and OWNERS for the owners.

    Without `filters`, it is by any. If it `is_unique`, there is one item for each value, and if it `is_ordered`, they
    are found in the order of the query.
    """

    filters: frozenset[int | str] | None = None
    is_unique: bool = False
    is_ordered: bool = True

    @property
    def used(self) -> frozenset[int | str]:
        """The filters."""
        return self.filters or frozenset()


ANY_PLAN = Plan()


def equality_plans(collection: Collection, query: Query) -> list[Plan]:
    """The plans by an index that has an equality, unique ones first, and without those that others have a part of."""
    free = [(n, each) for n, each in enumerate(query.filters) if not (each.negated or each.group)]
    equal: dict[str, tuple[int, Op, bool]] = {}  # of a field's filter: number, operator, and whether it has one value
    for number, filter in free:
        is_many, is_null = collection.field(filter.field).is_many, filter[1:3] == (Op.IS, True)
        if filter.op in (Op.EQ, Op.IN) or (is_null and not is_many):
            equal.setdefault(filter.field, (number, filter.op, filter.op is not Op.IN and not is_many))
    order = _order(query)
    order = tuple(field for field in order if not (field in equal and equal[field][2]))
    plans = []
    for index in (_ID, *collection.indexes):
        numbers, has_one, left = [], True, index.fields
        while left and has_one and left[0] in equal:
            number, op, has_one = equal[left[0]]
            if index.unique and (op is Op.IS or (len(index.fields) > 1 and not has_one)):
                break
            numbers.append(number)
            left = left[1:]
        if not numbers or (index.unique and left):
            continue
        is_ordered = has_one and left == order
        if has_one and left:
            numbers += [number for number, filter in free if filter.field == left[0] and filter.op in _RANGES]
        plans.append(Plan(frozenset(numbers), index.unique, is_ordered))
    if collection.has_owner_index:
        indexed = {index.field for index in collection.indexes if not index.unique}
        for field, (number, op, has_one) in equal.items():
            if collection.field(field).is_owner and field not in indexed and op is not Op.IS:
                plans.append(Plan(frozenset({number}), False, has_one and not order))
        if query.owners is not None:
            plans.append(Plan(frozenset({OWNERS}), False, len(query.owners) == 1 and not order))
    best: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (not plan.is_unique, -len(plan.used), not plan.is_ordered)):
        if not any(plan.used <= other.used and other.is_ordered >= plan.is_ordered for other in best):
            best.append(plan)
    return best


def order_plan(collection: Collection, query: Query) -> Plan | None:
    """The plan by the index that has the order of a query, if there is one."""
    order = _order(query) or _ID.fields
    if order != _ID.fields and not any(index.fields == order for index in collection.indexes if not index.unique):
        return None
    of_order = ((n, each) for n, each in enumerate(query.filters) if each.field == order[0])
    return Plan(frozenset(n for n, each in of_order if not (each.negated or each.group)))


def is_indexed(collection: Collection, query: Query) -> bool:
    """See `base.Transaction`. A unique index has no order and no null: it answers equality alone, as that of owners."""
    if not (query.filters or query.search):
        return any(order_plan(collection, query._replace(sort=sort)) for sort in (query.sort, query.sort[:1]))
    indexed = {index.field for index in collection.indexes if not index.unique} | {"id"}
    free = (each for each in query.filters if not (each.negated or each.group))
    has_range = any(each.field in indexed and each.op in (*_RANGES, Op.IS) for each in free)
    return has_range or bool(equality_plans(collection, query))


def wanted_indexes(collection: Collection, query: Query) -> list[Index]:
    """See `base.Transaction`: of the fields that have one value, then one that has a range, or else the order."""
    free = [
        each
        for each in query.filters
        if not (each.negated or each.group) and each.field != "id" and collection.field(each.field).sortable
    ]
    equal = dict.fromkeys(each.field for each in free if each.op in (Op.EQ, Op.IN) or each[1:3] == (Op.IS, True))
    last = dict.fromkeys(each.field for each in free if each.op in _RANGES) or dict.fromkeys(_order(query)[:1])
    fields = [(*equal, field) for field in last if field not in equal] or ([(*equal,)] if equal else [])
    existing = {index.fields for index in collection.indexes if not index.unique}
    return [Index(*each) for each in fields if each not in existing and len(each) <= MOST_INDEXED]


def _order(query: Query) -> tuple[str, ...]:
    """The fields by which a query is sorted, without the id."""
    return tuple(key.field for key in query.sort if key.field != "id")
