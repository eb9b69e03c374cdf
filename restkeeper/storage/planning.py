"""Which index answers a query, and what is asked about all items of one.

The database cannot know: SQLite has no statistics, and PostgreSQL uses none of partial indexes. It would take the index
of a range before that of an equality, and that of the order before both. So a query is written in a way that leaves it
one: the others do not fit conditions that are `unindexed`. Which one has the fewest items is counted, up to a bound.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import isqrt
from typing import Any

from restkeeper.storage.interface import Collection, Filter, Query
from restkeeper.storage.plans import ANY_PLAN, Plan, equality_plans, is_search, order_plan
from restkeeper.storage.queries import conditions, outline, parameters
from restkeeper.storage.records import state_of
from restkeeper.storage.sql import Database, Row, literal, require_revision

MOST_COUNTED = 50_000  # items of an equality, in some milliseconds; to read them takes some hundreds


def plan_of(
    database: Database,
    collection: Collection,
    query: Query,
    items: Callable[[], int] | None = None,
    *,
    bounded: bool = False,
) -> Plan:
    """The plan for a query; for a page of it, `items` returns the number of the collection's items.

    A page is read in its order until it is full, unless an equality has so few items that sorting these costs less. If
    it is `bounded`, and other conditions can refuse what is read, more of an equality is read: the order may cost all.
    """
    plans = equality_plans(collection, query)
    if not plans or plans[0].is_unique:
        return plans[0] if plans else ANY_PLAN
    in_order = None if items is None or query.limit is None else order_plan(collection, query)
    if len(plans) == 1 and (plans[0].is_ordered or in_order is None):
        return plans[0]
    most = MOST_COUNTED
    has_others = len(query.filters) + bool(query.search) + bool(query.owners) > 1
    if items is not None and query.limit is not None and in_order and not (bounded and has_others):
        examined = query.offset + query.limit + 1
        most = isqrt(examined * items())  # among so many items of the order are those of the page
    counts = [_count(database, collection, query, plan, most + 1) for plan in plans]
    if min(counts) <= most:
        return plans[counts.index(min(counts))]
    return next((plan for plan in plans if plan.is_ordered), in_order or plans[0])


def with_few(database: Database, query: Query, items: Callable[[], int]) -> Query:
    """The query, in which what refers to its items is found first, where that costs less than a look beside each item.

    `items` returns the number of the collection's items. Raises RevisionDiffers for a collection that is joined.
    """

    def chosen(filter: Filter) -> Filter:
        if not (join := filter.join):
            return filter
        others = state_of(database, join.collection)[1]
        is_plain = len(join.id_types) == 1 and join.field and not join.collection.field(join.field).is_many
        if filter.negated or filter.group or not join.filters or not is_plain:
            return filter
        plan = next(iter(equality_plans(join.collection, join.query)), None)
        if plan is None and is_search(join.collection, join.query):
            return filter
        examined = items() if query.limit is None else query.offset + query.limit + 1
        most = isqrt(examined * others)  # if so many refer to items, as many items are examined until the page is full
        plan = plan or Plan(frozenset(range(len(join.filters))), by_owners=True)
        few = _count(database, join.collection, join.query, plan, most + 1) <= most
        return filter._replace(join=replace(join, few=few))

    for key in query.sort:
        if key.join:
            state_of(database, key.join.collection)
    return query._replace(filters=tuple(map(chosen, query.filters))) if query.joins else query


def _count(database: Database, collection: Collection, query: Query, plan: Plan, most: int) -> int:
    """The number of items that a plan finds, at most so many."""
    kind: Any = database.columns
    filters = tuple(filter for number, filter in enumerate(query.filters) if number in plan.used)
    counted = kind.exact(collection, Query(filters, owners=query.owners if plan.by_owners else None))
    values: dict[str, Any] = {**parameters(collection, counted, kind), "most": most}
    return int(database.fetch(_count_statement(collection, outline(counted, kind.outlined), kind), values)[0][0])


@lru_cache(maxsize=64)
def _count_statement(collection: Collection, query: Query, kind: Any) -> str:
    items = f"SELECT 1 FROM items WHERE {conditions(collection, query, kind)} LIMIT {kind.parameter.format('most')}"  # noqa: S608 - declared names only
    return f"SELECT count(*) FROM ({items}) AS counted"  # noqa: S608 - likewise


_OF_REVISION = """\
SELECT revision, selected.*
FROM (SELECT max(revision) AS revision FROM counters WHERE collection = {collection}) AS state
LEFT JOIN ({selected}) AS selected ON true"""


def rows_about(database: Database, statement: str, collection: Collection, query: Query, most: int | None) -> list[Row]:
    """The rows of a statement about the items of a query, of which the last column is not null."""
    kind = database.columns
    query = kind.exact(collection, query)._replace(limit=None)
    query = with_few(database, query, lambda: state_of(database, collection)[1])
    items = f"FROM items WHERE {conditions(collection, query, kind, plan_of(database, collection, query))}"
    values = {**parameters(collection, query, kind), "most": sys.maxsize if most is None else most}
    name = literal(collection.name)
    selected = statement.format(items=items, most=kind.parameter.format("most"), name=name)
    rows = database.fetch(_OF_REVISION.format(collection=name, selected=selected), values)
    require_revision(collection, rows[0][0])
    return [row[1:] for row in rows if row[-1] is not None]


def find_ids(database: Database, collection: Collection, query: Query, most: int) -> list[str]:
    """The ids of some items of a query, at most so many."""
    return [id for (id,) in rows_about(database, "SELECT id {items} LIMIT {most}", collection, query, most)]


def count_items(database: Database, collection: Collection, query: Query, most: int | None) -> int:
    """The number of the items of a query, at most so many; that of all is stored."""
    of_some = "SELECT count(*) FROM (SELECT 1 {items} LIMIT {most}) AS counted"
    of_all = "SELECT coalesce(sum(items), 0) FROM counters WHERE collection = {name}"
    count = int(rows_about(database, of_some if query.narrows else of_all, collection, query, most)[0][0])
    return count if most is None else min(count, most)
