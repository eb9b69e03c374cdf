"""Filters of a list: by its fields, by what is in other collections, and in groups with `or`, `and` and `not`."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product
from math import prod
from typing import Any, NamedTuple, TypeVar

from restkeeper.parsing import whole
from restkeeper.resources.operators import OPERATORS, PARTS, Operator, operators_of
from restkeeper.resources.parameters import FILTER, Hop, Queryable, Reader, compared_text, is_option, number_of, text_of
from restkeeper.storage.interface import EQUALITY, POSITION, Field, Filter, Kind, Op, field_in, root_of, serial

GROUPS = ("or", "not")  # parameters with filters in parentheses

MAX_FILTERS = 100  # of one query: what stores prepare for each combination takes memory
MAX_VALUES = 200  # of all filters of one query: as many ids as an address of 8 KiB has room for
MOST_NESTED = 8  # groups inside each other
MOST_JOINED = 10  # filters by what is in other collections, of which those on one item are one
MOST_CHOICES = 50  # values that a fault lists
MOST_WORDS = 10  # that one query looks for

NULLS = {"null": True, "not_null": False}  # the values of the operator `is`
TEXTS = (Kind.TEXT, Kind.LIST, Kind.JSON)  # kinds of values that can be the text "null"

_SEVERAL = tuple(f"[{operator.name}]" for operator in OPERATORS.values() if operator.op is Op.IN)  # take commas
_INTEGER, _SERIAL = whole(-(2**63), 2**63 - 1), whole(0, 2**63 - 1)
_GROUP = re.compile(r"(and|or|not)\(")
_TERM = re.compile(r"""([^=,"()]+)=("(?:[^"\\]|\\.)*"|[^",][^,]*|)""", re.DOTALL)
_INNER = re.compile(r"""([^=,"()]+)=("(?:[^"\\]|\\.)*"|[^",)][^,)]*|)""", re.DOTALL)  # inside another group
_NO_GROUP = "must be filters like (status=open,total[gte]=100), a value with a comma or parenthesis in double quotes"

T = TypeVar("T")
Parts = list[tuple[str, Any]]  # of a group: the name and the text of a filter, or the name of a group and its parts


def filters_of(reader: Reader, queryable: Queryable) -> tuple[Filter, ...]:
    """The filters of all parameters that are not reserved. Beyond the limit the rest is ignored."""
    single, grouped, values = list[Filter](), list[Filter](), 0
    reserved = queryable.reserved
    names = [name for name in reader.args if name in GROUPS or not (name in reserved or queryable.ignores(name))]
    names = [name for name in names if not is_option(name)]
    for count, name in enumerate(names, start=1):
        texts = reader.args[name]
        is_group = name in GROUPS and name in reserved
        is_several = is_group or name.endswith(_SEVERAL)
        values += sum(text_of(text).count(",") + 1 for text in texts) if is_several else len(texts)
        if values > MAX_VALUES:
            reader.fault(name, f"is one value too many: all filters of a list together take {MAX_VALUES}")
            break
        if not is_group:
            single += _parameter(reader, name, texts, queryable, group=len(single + grouped) + 1)
        for text in texts if is_group else ():
            grouped += group_of(reader, name, text_of(text), queryable, before=len(single + grouped))
        if max(count, len(single + grouped)) > MAX_FILTERS:
            reader.fault(name, f"is one filter too many: a list takes {MAX_FILTERS}")
            break
    filters = (*_merged(single), *grouped)
    if sum(filter.join is not None for filter in filters) > MOST_JOINED:
        most = f"{MOST_JOINED} filters by what is in other collections, when its alternatives are combined"
        reader.fault(names[-1], f"is one too many: a list takes {most}")
    return filters


def group_of(
    reader: Reader, name: str, text: str, queryable: Queryable, *, kind: str = "", before: int = 0
) -> list[Filter]:
    """The filters of a group such as (status=open,and(total[gte]=100,not(paid=true))), with numbers after `before`.

    It is of the `kind` that a parameter is called, unless that says another one.
    """
    inner = Reader({}, reader.config)

    def read(name: str, content: Any, *, negated: bool) -> list[Filter]:
        terms = content.terms if isinstance(content, _Together) else [(name, content)]
        filters = _merged(filter for name, text in terms for filter in _parameter(inner, name, [text], queryable))
        return [filter._replace(negated=filter.negated is not negated) for filter in filters]

    try:
        if not text.startswith("(") or not text.endswith(")"):
            raise ValueError(_NO_GROUP)
        clauses = clauses_of(kind or name, _together(_parts(text[1:-1], 0, 1)[0], queryable), read)
        if sum(map(_size, chain.from_iterable(clauses))) > 2 * MAX_VALUES:
            # In an object, a value can be two: a text, and the number that is written so.
            raise ValueError(f"has more than {MAX_VALUES} values when its alternatives are combined")
    except ValueError as error:
        reader.fault(name, str(error))
        return []
    for fault in inner.faults:
        reader.fault(name, f"has {fault['parameter']}, which {fault['detail']}")
    filters = list[Filter]()
    for clause in clauses:
        group = before + len(filters) + 1 if len(clause) > 1 else 0
        filters += [filter._replace(group=group) for filter in clause]
    return filters


def clauses_of(
    group: str, parts: Parts, filters: Callable[..., Iterable[T]], *, negated: bool = False
) -> list[tuple[T, ...]]:
    """What a group asks for, or where it is `negated` what it excludes, as clauses that all hold.

    `or` asks for one of its parts, `and` for all, `not` for none; a clause, for one of its filters. `filters` returns
    those of a name, a text and `negated`. Raises ValueError for too many clauses.
    """
    negated = negated is not (group == "not")
    clauses = [
        [(filter,) for filter in filters(name, content, negated=negated)]
        if not isinstance(content, list)
        else clauses_of(name, content, filters, negated=negated)
        for name, content in parts
    ]
    if (group == "and") is not negated:
        return list(chain.from_iterable(clauses))
    if prod(map(len, clauses)) > MAX_FILTERS:
        raise ValueError(f"has too many alternatives: their combinations are more than {MAX_FILTERS}")
    return [tuple(dict.fromkeys(chain.from_iterable(chosen))) for chosen in product(*clauses)]


def _parts(text: str, at: int, depth: int) -> tuple[Parts, int]:
    """The parts of a group that begins at a place of a text, and the place of its end. Raises ValueError."""
    parts: Parts = []
    while True:
        if group := _GROUP.match(text, at):
            if depth == MOST_NESTED:
                raise ValueError(f"has more than {MOST_NESTED} groups inside each other")
            inner, at = _parts(text, group.end(), depth + 1)
            parts.append((group[1], inner))
            at += 1
        elif term := (_INNER if depth > 1 else _TERM).match(text, at):
            value = re.sub(r"\\(.)", r"\1", term[2][1:-1]) if term[2].startswith('"') else term[2]
            parts.append((term[1], value))
            at = term.end()
        else:
            raise ValueError(_NO_GROUP)
        if text[at : at + 1] != ",":
            break
        at += 1
    if text[at : at + 1] != (")" if depth > 1 else ""):
        raise ValueError(_NO_GROUP)
    return parts, at


class _Together(NamedTuple):
    """Filters on one item of another collection, by their names and texts."""

    terms: list[tuple[str, str]]


def _together(parts: Parts, queryable: Queryable, *, is_and: bool = False) -> Parts:
    """The parts of a group, in which filters on one collection in an `and` are together."""
    others, joined = Parts(), dict[str, _Together]()
    for name, content in parts:
        term = FILTER.fullmatch(name) if is_and and isinstance(content, str) else None
        hop, path = queryable.hop(term[1]) if term else (None, "")
        if isinstance(content, list):
            others.append((name, _together(content, queryable, is_and=name == "and")))
        elif not hop or not path:
            others.append((name, content))
        elif hop.name in joined:
            joined[hop.name].terms.append((name, content))
        else:
            joined[hop.name] = _Together([(name, content)])
            others.append((name, joined[hop.name]))
    return others


def _merged(filters: Iterable[Filter]) -> list[Filter]:
    """The filters, in which those on one collection, by one reference, are one: they hold for one and the same item."""
    merged, numbers = list[Filter](), dict[Any, int]()
    for filter in filters:
        if not filter.join or filter.group or filter.negated:
            merged.append(filter)
            continue
        number = numbers.setdefault((filter.field, replace(filter.join, filters=())), len(merged))
        if number == len(merged):
            merged.append(filter)
        elif join := merged[number].join:
            group = len(join.filters) + 1  # that no other filters have
            more = (inner._replace(group=inner.group and group) for inner in filter.join.filters)
            merged[number] = filter._replace(join=replace(join, filters=(*join.filters, *more)))
    return merged


def _size(filter: Filter) -> int:
    """The number of values of a filter."""
    if filter.join:
        return 1 + sum(map(_size, filter.join.filters))
    return len(filter.value) if isinstance(filter.value, tuple) else 1


def _parameter(
    reader: Reader, name: str, values: Sequence[Any], queryable: Queryable, *, group: int = 0
) -> list[Filter]:
    """A parameter's filters. One that is repeated means any of the values for eq and in, all of them for the others.

    Of nin, that is none of the values.

    `group` is a number that no other filters have.
    """
    parts = FILTER.fullmatch(name)
    path, called = (parts[1], parts[2] or "eq") if parts else (POSITION, "")
    if parts and (fault := queryable.fault(path)):
        reader.fault(name, fault)
        return []
    hop, behind = queryable.hop(path) if parts else (None, "")
    if hop:
        return _joined(reader, name, values, hop, behind)
    field = field_in(queryable.fields, path) if path != POSITION else None
    if not field:
        start = f"{root_of(name)}."
        if ways := [name.replace(start, f"{way}.", 1) for way in queryable.hops() if way.startswith(start)]:
            reader.fault(name, f"is by one of several references: write {' or '.join(ways)}")
        else:
            reader.unknown(name, "this list", (*queryable.reserved, *queryable.fields, "and field[operator]"))
        return []
    operators = operators_of(field)
    if not (operator := operators.get(called)):
        reader.fault(name, f"is no operator of {field.name}; there are: {', '.join(operators)}")
        return []
    op = operator.op
    if op is Op.IN:
        values = [one for value in values for one in (value.split(",") if isinstance(value, str) else [value])]
    conditions = [reader.value(name, partial(_condition, operator=operator, field=field), value) for value in values]
    filters = [condition for condition in conditions if condition]
    if op is Op.EQ and len(filters) > 1 and any(filter.op is Op.IS for filter in filters):
        return [filter._replace(group=group) for filter in filters]
    if op is Op.IN or (op is Op.EQ and (len(filters) > 1 or field.kind is Kind.JSON)):
        several = (filter.value if isinstance(filter.value, tuple) else (filter.value,) for filter in filters)
        return [Filter(field.name, Op.IN, tuple(chain.from_iterable(several)), negated=operator.negated)]
    return filters


def _joined(reader: Reader, name: str, values: Sequence[Any], hop: Hop, path: str) -> list[Filter]:
    """The filter by a parameter that leads to another collection, to a path in it. Raises Forbidden."""
    operator, fields, before = name.partition("[")[2].rstrip("]"), hop.queryable.fields, hop.name
    if not path:  # whether there are some
        words = [text_of(value) for value in values]
        if operator != "is" or any(word not in NULLS for word in words):
            reader.fault(name, f"can only be {before}[is]=null or {before}[is]=not_null; a field is after a dot")
            return []
        return [Filter(hop.field, Op.HAS, None, negated=NULLS[word], join=hop.join(())) for word in words]
    if root_of(path) not in hop.queryable.refused and (path == POSITION or not field_in(fields, path)):
        names = ", ".join(f"{before}.{field}" for field in fields)
        reader.fault(name, f"is not a parameter of this list; there are: {names}, and field[operator]")
        return []
    if hop.many and operator in OPERATORS and OPERATORS[operator].excludes:
        reader.fault(name, f"is no operator where there can be several: write not=({before}.{path}=…)")
        return []
    inner = Reader({}, reader.config)
    filters = _parameter(inner, name.removeprefix(f"{before}."), values, hop.queryable, group=1)
    for fault in inner.faults:
        reader.fault(name, fault["detail"])
    return [Filter(hop.field, Op.HAS, None, join=hop.join(tuple(filters)))] if filters else []


def _condition(value: Any, operator: Operator, field: Field) -> Filter:
    """The filter of a field by one value: a text, or a value of Python. Raises ValueError with what would be right."""
    word, op = text_of(value), operator.op
    if op is Op.IS:
        if word not in NULLS:
            raise ValueError(f"must be {' or '.join(NULLS)}")
        return Filter(field.name, op, NULLS[word])
    is_null = word == "null" and field.nullable and op in (Op.EQ, Op.NE)
    null = Filter(field.name, Op.IS, op is Op.EQ) if is_null else None
    if null and (field.expected or field.kind not in TEXTS):
        return null
    try:
        compared = _compared(value, op, field)
    except ValueError:
        if null:  # it is no text of this field
            return null
        raise
    if field.choices and op in EQUALITY and compared not in field.choices:
        more = ", …" if len(field.choices) > MOST_CHOICES else ""
        raise ValueError(f"must be one of: {', '.join(map(str, field.choices[:MOST_CHOICES]))}{more}")
    return Filter(field.name, op, compared, negated=operator.negated)


def _compared(value: Any, op: Op, field: Field) -> Any:
    if op in PARTS:
        return compared_text(value)
    if field.read:
        return field.read(compared_text(value) if isinstance(value, str) else value)
    return value_of(value, field)


def value_of(value: Any, field: Field) -> Any:
    """The value in a filter of a field, of a text or a value of Python. Raises ValueError with what would be right."""
    text, number = text_of(value), number_of(value)
    match field.kind:
        case Kind.INTEGER:
            is_integer = number is not None and number == number.to_integral_value()
            return _INTEGER(str(int(number)) if is_integer and number is not None else text)  # 5.0 is 5
        case Kind.SERIAL:
            return serial(_SERIAL(text))
        case Kind.NUMBER:
            if number is None:
                raise ValueError("must be a number")
            return number
        case Kind.BOOLEAN:
            if text not in ("true", "false"):
                raise ValueError("must be true or false")
            return text == "true"
        case Kind.JSON if not field.read:  # a value of any kind that is written so
            words = {"true": (True,), "false": (False,), "null": (None,) if field.sortable else ()}
            return (compared_text(value), *([] if number is None else [number]), *words.get(text, ()))
        case _:
            return compared_text(value)


def words_of(text: str) -> tuple[str, ...]:
    """The words to look for; a text in quotes is one phrase."""
    text = compared_text(text)
    words = (text[1:-1],) if len(text) > 2 and text[0] == text[-1] == '"' else tuple(text.split())
    if len(words) > MOST_WORDS:
        raise ValueError(f'must have at most {MOST_WORDS} words; quotes make one of them: "desk lamp"')
    return words


def no_words(text: str) -> tuple[str, ...]:
    """Nothing, for the empty text, which a form with nothing typed sends."""
    if text:
        raise ValueError("searches nothing: the collection has no fields for it; use a filter, such as name[like]=lamp")
    return ()
