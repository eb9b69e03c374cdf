"""Conditions about items of other collections, by references in one direction or the other: see `SemiJoin`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from restkeeper.storage.interface import Collection, Field, Filter, Kind, Op, SemiJoin
from restkeeper.storage.plans import ANY_PLAN, Plan, equality_plans


class Joins(ABC):
    """What a join needs of a column, in the words of a dialect, which are its other methods: see `queries.Column`.

    `gathered` is what statements select as the parameter of IN, and `outer_id` the id of an item around them.
    """

    field: Field
    gathered: ClassVar[str]
    outer_id: ClassVar[str]

    @classmethod
    @abstractmethod
    def of(cls, collection: Collection, name: str) -> Self: ...

    @property
    @abstractmethod
    def value(self) -> str: ...

    @abstractmethod
    def condition(self, filter: Filter, parameter: str) -> str: ...

    @property
    @abstractmethod
    def outer_value(self) -> str:
        """The value of a reference in the item around a statement: a text, or a number where ids are numbers."""

    @staticmethod
    @abstractmethod
    def number_of(id: str) -> str:
        """The number that the id of an item is, or null if it is none."""

    @staticmethod
    @abstractmethod
    def id_of(number: str) -> str:
        """The id that is a number."""

    @abstractmethod
    def has_one(self, values: Sequence[str]) -> str:
        """Whether it has one of some values, which are expressions. It has no statement around these."""

    def in_found(self, values: Sequence[str], where: str) -> str:
        """Whether it has one of some expressions of values, of an item that satisfies a condition."""
        selects = " UNION ALL ".join(f"SELECT {value} AS value FROM items WHERE {where}" for value in values)  # noqa: S608 - declared names only
        return self.condition(Filter(self.field.name, Op.IN, None), self.gathered.format(selects))

    def joined(self, join: SemiJoin, prefix: str, conditions: Callable[..., str]) -> str:
        """The condition of the filter HAS, of a reference, or of the id that others refer to.

        The names of its parameters have the `prefix`; `conditions` are those of `queries`.
        """
        other, kind, joined = join.collection, type(self), join.query
        plan = next(iter(equality_plans(other, joined)), ANY_PLAN)
        if not join.field:
            return self.in_found(self.values_of("id", join.id_types), conditions(other, joined, kind, plan, prefix))
        reference = self.of(other, join.field)
        if join.few:
            id = self.id_of(reference.value) if join.id_types == {int} else reference.value
            return self.in_found([id], conditions(other, joined, kind, plan, prefix))
        query = joined._replace(filters=(*join.filters, Filter(join.field, Op.EQ, None)))
        by_reference = (plan for plan in equality_plans(other, query) if len(join.filters) in plan.used)
        where = conditions(other, joined, kind, next(by_reference, Plan(frozenset())), prefix)
        has_one = reference.has_one(reference.values_of(self.outer_id, join.id_types))
        # PostgreSQL would join all at once, by estimates that no statistics support: OFFSET keeps it from that.
        return f"EXISTS (SELECT 1 FROM items AS other WHERE {where} AND {has_one} LIMIT 1 OFFSET 0)"  # noqa: S608 - declared names only

    def referred(self, join: SemiJoin, prefix: str, conditions: Callable[..., str]) -> tuple[str, str]:
        """What is before an expression of the item that this refers to, and after it, in a statement of the item."""
        where = conditions(join.collection, join.query, type(self), Plan(frozenset()), prefix)
        id = self.outer_value
        if join.id_types == {int}:
            id = self.id_of(id)
        elif int in join.id_types:  # of a file: see `values_of`
            number, marked = f"CAST({id} AS integer)", self.number_of(f"ltrim({id}, '~')")
            text = f"CASE WHEN {marked} IS NULL THEN {id} ELSE '~' || {id} END"
            is_number = f"CAST({number} AS text) = CAST({id} AS text) AND {number} >= 0"
            id = f"CASE WHEN {is_number} THEN {self.id_of(number)} ELSE {text} END"
        return "(SELECT ", f" FROM items AS other WHERE {where} AND id = {id})"

    def values_of(self, id: str, types: frozenset[type]) -> list[str]:
        """Its values that refer to the item with an id, as expressions.

        Where ids are numbers or texts, a text that looks like the id of a number has a sign before it.
        """
        number = self.number_of(id)
        if len(types) == 1:
            return [number if int in types else id]
        marked = self.number_of(f"ltrim({id}, '~')")
        text = f"coalesce(CAST({number} AS text), CASE WHEN {marked} IS NULL THEN {id} ELSE substr({id}, 2) END)"
        values: dict[Any, list[str]] = {Kind.JSON: [text, number], Kind.INTEGER: [number]}
        return values.get(self.field.kind, [text])
