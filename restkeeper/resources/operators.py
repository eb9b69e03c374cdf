"""The operators of filters: what callers write in brackets after a field, as in `price[gte]=10`."""

from typing import NamedTuple

from restkeeper.storage.interface import Field, Kind, Op

RANGES = (Op.GT, Op.GTE, Op.LT, Op.LTE)
PARTS = (Op.LIKE, Op.STARTS, Op.ENDS)  # take a part of a text

_TEXTS = (Kind.TEXT, Kind.JSON)
_NUMBERS = (Kind.SERIAL, Kind.INTEGER, Kind.NUMBER)
_ORDERED = (*_TEXTS, *_NUMBERS, Kind.TIME)
_LISTED = (*_TEXTS, *_NUMBERS, Kind.LIST)


class Operator(NamedTuple):
    """An operator of the fields of some `kinds`: a comparison in the store, or its negation.

    Its `words` are between a field and a value, in the OpenAPI document and on the page `browse`.
    """

    name: str
    op: Op
    words: str
    kinds: tuple[Kind, ...]
    negated: bool = False

    @property
    def excludes(self) -> bool:
        """Whether items without a value satisfy it."""
        return self.negated or self.op is Op.NE


_ALL = (
    Operator("eq", Op.EQ, "is", (*Kind,)),
    Operator("ne", Op.NE, "is not", (*_ORDERED, Kind.BOOLEAN)),
    Operator("gt", Op.GT, ">", _ORDERED),
    Operator("gte", Op.GTE, "≥", _ORDERED),
    Operator("lt", Op.LT, "<", _ORDERED),
    Operator("lte", Op.LTE, "≤", _ORDERED),
    Operator("in", Op.IN, "is one of", _LISTED),
    Operator("nin", Op.IN, "is none of", _LISTED, negated=True),
    Operator("like", Op.LIKE, "contains", _TEXTS),
    Operator("starts", Op.STARTS, "begins with", _TEXTS),
    Operator("ends", Op.ENDS, "ends with", _TEXTS),
    Operator("is", Op.IS, "has", (*Kind,)),  # if the field is nullable
)
OPERATORS = {operator.name: operator for operator in _ALL}


def operators_of(field: Field) -> dict[str, Operator]:
    """The operators of a field, by their names."""
    is_free = field.kind is Kind.JSON
    refused = {Op.LIKE} if "." in field.name and not is_free else set()
    refused.update((*PARTS, *RANGES) if is_free and not field.sortable else ())  # in a JsonObject, as promised so far
    refused.update(PARTS if field.expected else ())
    refused.update(RANGES if not field.is_ordered else ())
    refused.update(() if field.nullable else (Op.IS,))
    return {name: of for name, of in OPERATORS.items() if field.kind in of.kinds and of.op not in refused}
