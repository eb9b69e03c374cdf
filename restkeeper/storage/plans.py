"""Which indexes have the items of a query, and in which order."""

from typing import NamedTuple

from restkeeper.storage.interface import Collection, Index, Op, Query

OWNERS = "owners,"  # the index of the owners; a field cannot have this name
_ID = Index("id", unique=True)


class Plan(NamedTuple):
    """How the items of a query are found: by the indexes of the filters with these numbers, and OWNERS for the owners.

    Without `filters`, it is by any. If it `is_unique`, there is one item for each value, and if it `is_ordered`, they
    are found in the order of the query.
    """

    filters: frozenset[int | str] | None = None
    is_unique: bool = False
    is_ordered: bool = True


ANY_PLAN = Plan()


def equality_plans(collection: Collection, query: Query) -> list[Plan]:
    """The plans by an index that has an equality, unique ones first."""
    equal: dict[str, tuple[int, Op, bool]] = {}  # of a field's filter: number, operator, and whether it has one value
    for number, filter in enumerate(query.filters):
        is_many, is_null = collection.field(filter.field).is_many, filter[1:3] == (Op.IS, True)
        if not (filter.negated or filter.group) and (filter.op in (Op.EQ, Op.IN) or (is_null and not is_many)):
            equal.setdefault(filter.field, (number, filter.op, filter.op is not Op.IN and not is_many))
    in_order = all(key.field == "id" or (key.field in equal and equal[key.field][2]) for key in query.sort)
    plans, indexed = [], set[str]()
    for index in (_ID, *collection.indexes):
        number, op, has_one = equal.get(index.field, (0, Op.IS, False))
        if index.field in equal and not (index.unique and op is Op.IS):
            plans.append(Plan(frozenset({number}), index.unique, has_one and in_order))
        indexed |= {index.field} if not index.unique else set()
    if collection.has_owner_index:
        for field, (number, op, has_one) in equal.items():
            if collection.field(field).is_owner and field not in indexed and op is not Op.IS:
                plans.append(Plan(frozenset({number}), False, has_one and in_order))
        if query.owners is not None:
            plans.append(Plan(frozenset({OWNERS}), False, len(query.owners) == 1 and in_order))
    return sorted(plans, key=lambda plan: not plan.is_unique)


def order_plan(collection: Collection, query: Query) -> Plan | None:
    """The plan by the index that has the order of a query, if there is one."""
    fields = [key.field for key in query.sort if key.field != "id"] or ["id"]
    if not any([index.field] == fields for index in (_ID, *collection.indexes) if index is _ID or not index.unique):
        return None
    of_order = ((n, each) for n, each in enumerate(query.filters) if each.field == fields[0])
    return Plan(frozenset(n for n, each in of_order if not (each.negated or each.group)))
