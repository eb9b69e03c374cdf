"""The fields of a schema as queries know them: which values a filter takes, and how these are stored and ordered."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from marshmallow import ValidationError, fields, validate

from restkeeper.clock import rfc3339
from restkeeper.resources.filters import value_of
from restkeeper.resources.parameters import MOST_NAMES, number_of, text_of
from restkeeper.schemas.fields import IntegerReference, Money, Owner, Time, forms_of
from restkeeper.schemas.item import IntegerId
from restkeeper.schemas.prepared import EXPECTED, ISO, LONGEST, fields_of
from restkeeper.storage.interface import Field, Kind

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)  # of a collection or a field
LONGEST_KEY = 300  # characters of a value that can be sorted by
_LONGEST_FORM = 60  # characters of a value of a format, such as a time or an address


class _Compared(NamedTuple):
    """How queries compare the values of a type of field: `expected` and `is_ordered` are those of a `Field`."""

    type: type[fields.Field[Any]]
    kind: Kind
    expected: str = ""
    is_ordered: bool = True


_COMPARED = (  # the first that fits
    _Compared(Time, Kind.TIME, EXPECTED[fields.DateTime]),
    _Compared(fields.NaiveDateTime, Kind.TEXT, EXPECTED[fields.NaiveDateTime]),
    _Compared(fields.DateTime, Kind.TIME, EXPECTED[fields.DateTime]),
    _Compared(fields.Date, Kind.TEXT, EXPECTED[fields.Date]),
    _Compared(fields.Time, Kind.TEXT, EXPECTED[fields.Time]),
    _Compared(fields.UUID, Kind.TEXT, EXPECTED[fields.UUID]),
    _Compared(fields.IPv4, Kind.TEXT, EXPECTED[fields.IPv4], is_ordered=False),
    _Compared(fields.IPv6, Kind.TEXT, EXPECTED[fields.IPv6], is_ordered=False),
    _Compared(fields.IP, Kind.TEXT, EXPECTED[fields.IP], is_ordered=False),
    _Compared(fields.String, Kind.TEXT),
    _Compared(IntegerId, Kind.SERIAL),
    _Compared(fields.Integer, Kind.INTEGER),
    *(_Compared(type, Kind.NUMBER) for type in (fields.Decimal, fields.Float, fields.TimeDelta)),
    _Compared(fields.Boolean, Kind.BOOLEAN),
    _Compared(fields.List, Kind.LIST),
)
_MEMBERS = {
    str: _Compared(fields.Enum, Kind.TEXT, "one of its members", is_ordered=False),
    int: _Compared(fields.Enum, Kind.INTEGER),
}
_DATED = (Time, fields.DateTime, fields.NaiveDateTime, fields.Date)
_TEXTS = (Kind.TEXT, Kind.TIME)
_SCALARS = {  # what a text stands for in a filter of these kinds
    Kind.INTEGER: (Kind.INTEGER,),
    Kind.NUMBER: (Kind.NUMBER,),
    Kind.BOOLEAN: (Kind.NUMBER, Kind.BOOLEAN),
}

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LOST_PLUS = re.compile(r" (\d\d:?\d\d)$")  # an unescaped "+" is read as a space


def queryable_fields(name: str, field: fields.Field[Any], around: tuple[type, ...] = ()) -> Iterator[Field]:
    """A field as queries know it, or those inside it; none that they cannot use. `around` are the schemas around it."""
    inner = field.inner if isinstance(field, fields.List) else field
    is_deep = name.count(".") == MOST_NAMES - 1
    if isinstance(inner, fields.Nested):
        schema = inner.schema
        if type(schema) not in around and not is_deep:
            for key, inner_field in fields_of(schema).items():
                if NAME.fullmatch(key) and not inner_field.load_only:
                    yield from queryable_fields(f"{name}.{key}", inner_field, (*around, type(schema)))
    elif isinstance(inner, fields.Dict):
        if not is_deep:
            yield Field(f"{name}.*", Kind.JSON, nullable=True, sortable=False, **_reading(inner.value_field))
    elif compared := _compared(inner if isinstance(inner, IntegerReference) else field):
        is_inside, is_list = "." in name, inner is not field
        yield Field(
            name,
            compared.kind,
            nullable=is_inside or field.allow_none,
            sortable=not (is_inside or is_list) and _is_short(field),
            choices=_choices(inner),
            listed=is_list and compared.kind is not Kind.LIST,
            is_ordered=compared.is_ordered,
            is_owner=isinstance(field, Owner),
            is_dated=compared.type in _DATED,
            places=_places(field),
            **_reading(inner, *(_TEXTS if compared.kind is Kind.LIST else (*_TEXTS, *_SCALARS))),
        )


def _reading(field: fields.Field[Any] | None, *kinds: Kind) -> dict[str, Any]:
    """How filters read a value of a field: nothing to do if it is of no text, or of none of these kinds."""
    compared = field and _compared(field)
    if not field or not compared or compared.kind not in (kinds or _TEXTS):
        return {}
    return {"read": partial(_stored, field, compared), "expected": compared.expected}


def _compared(field: fields.Field[Any]) -> _Compared | None:
    """How queries compare the values of a field; None if they cannot use it."""
    if isinstance(field, fields.Enum):
        types = {type(choice) for choice in _choices(field)}
        return _MEMBERS.get(types.pop()) if len(types) == 1 else None
    if getattr(field, "format", None) not in ISO:
        return None
    return next((compared for compared in _COMPARED if isinstance(field, compared.type)), None)


def _stored(field: fields.Field[Any], compared: _Compared, filter_value: Any) -> Any:
    """What a field stores of a value in a filter, as of that in a body; of a text, also as of the number written so.

    Its validators may refuse that; those of a format do so here, too, but that a time can be a date only, which is
    before the times of that day. A number that is no value of the field is compared as it is, and so is the name of no
    member. Raises ValueError.
    """
    forms = forms_of(field) if compared.kind is Kind.TEXT else []
    written: Any = text_of(filter_value)
    if compared.kind in _SCALARS and not isinstance(filter_value, str):
        number = filter_value if isinstance(filter_value, bool) else number_of(filter_value)
        written = written if number is None else number
    written = _LOST_PLUS.sub(r"+\1", written) if compared.expected or forms else written
    try:
        value = _loaded(field, forms, written)
        return value_of(str(value), Field("", compared.kind)) if compared.kind is Kind.INTEGER else value
    except ValidationError as error:
        refusal = error
    if compared.kind in _SCALARS:
        for kind in _SCALARS[compared.kind]:
            with suppress(ValidationError, ValueError):
                return _loaded(field, forms, value_of(filter_value, Field("", kind)))
        return value_of(filter_value, Field("", compared.kind))
    if isinstance(field, fields.Enum):
        return written
    if compared.kind is Kind.TIME:
        return _time(written, compared.expected)
    raise ValueError(f"must be {compared.expected}" if compared.expected else refusal.messages[0])


def _loaded(field: fields.Field[Any], forms: Iterable[Callable[[Any], Any]], value: Any) -> Any:
    """What a field stores of a value of a body. Raises ValidationError."""
    for load in field.pre_load:
        value = load(value)
    value = field._deserialize(value, None, None)
    for require in forms:
        is_day = field.metadata.get("format") == "date-time" and _DAY.fullmatch(value)
        require(f"{value}T00:00:00Z" if is_day else value)
    for load in field.post_load:
        value = load(value)
    return _plain(field._serialize(value, None, None))


def _time(text: str, expected: str) -> str:
    """A time in UTC: in a filter, it can have no offset, and be a date only. Raises ValueError."""
    try:
        time = datetime.fromisoformat(text)
        return rfc3339(time if time.tzinfo else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise ValueError(f"must be {expected}") from None


def _plain(value: Any) -> Any:
    """A stored value as filters have it: a number with a fraction is a decimal, as in JSON."""
    return Decimal(repr(value)) if isinstance(value, float) else value


def _places(field: fields.Field[Any]) -> int | None:
    """The decimals that the numbers of a field can have, if that is fixed."""
    places = Decimal("0.01") if isinstance(field, Money) else getattr(field, "places", None)
    exponent = places.as_tuple().exponent if isinstance(places, Decimal) else None
    return -exponent if isinstance(exponent, int) else None


def _choices(field: fields.Field[Any]) -> tuple[Any, ...]:
    """The only values of a field, as they are stored; none if there are others."""
    if isinstance(field, fields.Enum):
        return tuple(member.value if field.by_value else member.name for member in field.enum)
    choices = next((check.choices for check in field.validators if isinstance(check, validate.OneOf)), ())
    return tuple(_plain(field._serialize(choice, "", None)) for choice in choices)


def longest_text(field: fields.Field[Any]) -> int:
    """The characters of the longest text that a field can have; 0 if its values are no texts."""
    compared = _compared(field)
    if not compared or compared.kind not in _TEXTS:
        return 0
    if choices := _choices(field):
        return max(len(str(choice)) for choice in choices)
    lengths = [check.max for check in field.validators if isinstance(check, validate.Length) and check.max is not None]
    lengths += [most for of, most in LONGEST.items() if isinstance(field, of)]
    return min(lengths, default=_LONGEST_FORM if compared.expected else sys.maxsize)


def _is_short(field: fields.Field[Any]) -> bool:
    """Whether a value is short enough for a cursor, which is part of a URL."""
    if isinstance(field, fields.String) and not isinstance(field, Time) and not field.validators:
        return field.dump_only and field.metadata.get("maxLength", LONGEST_KEY + 1) <= LONGEST_KEY
    most = [check.max for check in field.validators if isinstance(check, validate.Length)]
    return all(length is not None and length <= LONGEST_KEY for length in most)
