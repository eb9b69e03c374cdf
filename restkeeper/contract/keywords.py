"""The keywords of a schema that hold no further schema: what a change of each one means.

Each function of `COMPARED` compares two schemas and yields the end of a rule's id, the effect, and what changed.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from restkeeper.contract.findings import (
    CHANGED,
    HARMLESS,
    NARROWED,
    NEW_VERSION,
    SHARED,
    UNCLEAR,
    WIDENED,
    Effect,
    Json,
    Severity,
)
from restkeeper.contract.schema import bare, is_nullable, text, types_of


class KeywordChange(NamedTuple):
    """A change of a keyword: the end of its rule's id, its effect, and what changed. `value` is of an enumeration."""

    id: str
    effect: Effect
    what: str
    value: str = ""
    remedy: str = NEW_VERSION


class Bound(NamedTuple):
    """A keyword that bounds values from above or below, and its name in rules' ids."""

    keyword: str
    name: str
    is_upper: bool


BOUNDS = (
    Bound("maximum", "max", True),
    Bound("exclusiveMaximum", "exclusive-max", True),
    Bound("maxLength", "max-length", True),
    Bound("maxItems", "max-items", True),
    Bound("maxProperties", "max-properties", True),
    Bound("maxContains", "max-contains", True),
    Bound("minimum", "min", False),
    Bound("exclusiveMinimum", "exclusive-min", False),
    Bound("minLength", "min-length", False),
    Bound("minItems", "min-items", False),
    Bound("minProperties", "min-properties", False),
    Bound("minContains", "min-contains", False),
)
COUNTED = {"minLength", "minItems", "minProperties"}  # 0 is no bound


class KeywordRule(NamedTuple):
    """A keyword whose value is compared as a whole: its name in rules' ids, and the effects of its changes."""

    name: str
    added: Effect
    removed: Effect
    changed: Effect


LOOSER = Effect(Severity.COMPATIBLE, Severity.JUDGE)  # clients may have relied on the former form of a response
KEYWORD_RULES = {
    "pattern": KeywordRule("pattern", NARROWED, LOOSER, Effect(Severity.BREAKING, Severity.JUDGE)),
    "default": KeywordRule("default-value", NARROWED, NARROWED, NARROWED),  # what a request without the field means
    "const": KeywordRule("const", NARROWED, WIDENED, CHANGED),
    "multipleOf": KeywordRule("multiple-of", NARROWED, WIDENED, CHANGED),
    "uniqueItems": KeywordRule("unique-items", NARROWED, WIDENED, CHANGED),
    "contentMediaType": KeywordRule("content-media-type", CHANGED, CHANGED, CHANGED),
    "contentEncoding": KeywordRule("content-encoding", CHANGED, CHANGED, CHANGED),
    "if": KeywordRule("if", NARROWED, WIDENED, CHANGED),
    "not": KeywordRule("not", NARROWED, WIDENED, CHANGED),
}
ALWAYS_CHANGED = {"contentMediaType", "contentEncoding"}  # their ids have no other end
ANY_TEXT = {".*", "^.*$", "^.*", ".*$", ""}


class Extension(NamedTuple):
    """A keyword of ours, for what clients depend on beside the schema: what the end and the beginning of a part mean.

    A part is an element of a list, a move of a lifecycle, or the keyword itself if it is true.
    """

    name: str
    removed: Effect
    says_removed: str
    added: Effect
    says_added: str


EXTENSIONS = {
    "x-unique": Extension("unique", UNCLEAR, "several items can have one value", CHANGED, "is unique now"),
    "x-fold": Extension(
        "fold", CHANGED, "upper and lower case differ now", CHANGED, "upper and lower case are equal now"
    ),
    "x-search": Extension("search", CHANGED, "does not search {} any more", HARMLESS, "searches {}, too"),
    "x-transitions": Extension("transition", CHANGED, "cannot go {} any more", HARMLESS, "can go {}, too"),
    "x-dialects": Extension("dialect", CHANGED, "{}: not understood any more", HARMLESS, "{}: understood, too"),
}

WIDER = {("integer", "number")}
WIDER_FORMATS = {("int32", "int64"), ("float", "double")}


def _includes(wide: frozenset[str], narrow: frozenset[str]) -> bool:
    """Whether each value of the types `narrow` has one of the types `wide`; no types are all."""
    covered = all(each in wide or any((each, other) in WIDER for other in wide) for each in narrow)
    return not wide or (bool(narrow) and covered)


def _types(one: Json, other: Json) -> Iterator[KeywordChange]:
    was, now = types_of(one), types_of(other)
    what = f"type changed from {_shown(one)} to {_shown(other)}"
    many = len(was) > 1 or len(now) > 1
    if was == now:
        yield from _formats(one, other, what)
    elif _includes(now, was):
        yield KeywordChange("list-of-types-widened" if many and was and now else "type-generalized", WIDENED, what)
    elif _includes(was, now):
        yield KeywordChange("list-of-types-narrowed" if many and was and now else "type-specialized", NARROWED, what)
    else:
        yield KeywordChange("type-changed", CHANGED, what)


def _formats(one: Json, other: Json, what: str) -> Iterator[KeywordChange]:
    was, now = one.get("format"), other.get("format")
    if was == now:
        return
    if not now or (was, now) in WIDER_FORMATS:
        yield KeywordChange("type-generalized", WIDENED, what)
    elif not was or (now, was) in WIDER_FORMATS:
        yield KeywordChange("type-specialized", NARROWED, what)
    else:
        yield KeywordChange("type-changed", CHANGED, what)


def _shown(schema: Json) -> str:
    named = " or ".join(sorted(types_of(schema))) or "any"
    return f"{named} ({schema['format']})" if schema.get("format") else named


def _nullability(one: Json, other: Json) -> Iterator[KeywordChange]:
    was, now = is_nullable(one), is_nullable(other)
    if was is False and now:
        yield KeywordChange("became-nullable", WIDENED, "can be null")
    elif was and now is False:
        yield KeywordChange("became-not-nullable", NARROWED, "can no longer be null")


def _values(schema: Json) -> dict[str, Any] | None:
    """The values of an enumeration by their JSON, without null."""
    values = schema.get("enum")
    return None if values is None else {text(value): value for value in values if value is not None}


def _enumerations(one: Json, other: Json) -> Iterator[KeywordChange]:
    was, now = _values(one), _values(other)
    if now is None:
        yield from [] if was is None else [KeywordChange("enum-removed", WIDENED, "no longer one of a list of values")]
    elif was is None:
        yield KeywordChange("became-enum", NARROWED, f"must be one of {', '.join(now)}")
    else:
        for value in sorted(was.keys() - now.keys()):
            yield KeywordChange("enum-value-removed", NARROWED, f"the value {value} was removed", value)
        for value in sorted(now.keys() - was.keys()):
            effect = HARMLESS if one.get("x-extensible") else WIDENED
            yield KeywordChange("enum-value-added", effect, f"the value {value} was added", value)


def _are_enumerated(*schemas: Json) -> bool:
    """Whether the schemas list their values, so that bounds and patterns say nothing more."""
    return all("enum" in each or "const" in each for each in schemas)


def _bounds(one: Json, other: Json) -> Iterator[KeywordChange]:
    if _are_enumerated(one, other):
        return
    for keyword, name, is_upper in BOUNDS:
        was, now = (_bound(schema, keyword) for schema in (one, other))
        if was is None and now is not None:
            yield KeywordChange(f"{name}-set", NARROWED, f"{keyword} is {now} now, and there was none")
        elif was is not None and now is None:
            yield KeywordChange(f"{name}-unset", WIDENED, f"{keyword} was {was}, and there is none now")
        elif was != now:
            word = "increased" if now > was else "decreased"
            effect = WIDENED if (now > was) is is_upper else NARROWED
            yield KeywordChange(f"{name}-{word}", effect, f"{keyword} {word} from {was} to {now}")


def _bound(schema: Json, keyword: str) -> Any:
    value = schema.get(keyword)
    return None if value == 0 and keyword in COUNTED else value


def _exact(one: Json, other: Json) -> Iterator[KeywordChange]:
    for keyword, rule in KEYWORD_RULES.items():
        if keyword in ("pattern", "multipleOf") and _are_enumerated(one, other):
            continue
        was, now = (_value(schema, keyword) for schema in (one, other))
        if was == now and isinstance(was, bool) is isinstance(now, bool):  # True is 1 in Python, and not in JSON
            continue
        if was is None or now is None:
            end, effect = ("added", rule.added) if was is None else ("removed", rule.removed)
            end = "changed" if keyword in ALWAYS_CHANGED else end
            what = f"{keyword} {text(was if now is None else now)} was {end}"
            yield KeywordChange(f"{rule.name}-{end}", effect, what)
        elif keyword == "pattern" and now in ANY_TEXT:
            yield KeywordChange("pattern-generalized", LOOSER, f"pattern changed from {was} to {now}")
        else:
            what = f"{keyword} changed from {text(was)} to {text(now)}"
            yield KeywordChange(f"{rule.name}-changed", rule.changed, what)


def _value(schema: Json, keyword: str) -> Any:
    """The value of a keyword; None if it is as good as absent."""
    value = schema.get(keyword)
    if keyword in ("if", "not"):
        return bare(value)
    return None if keyword == "uniqueItems" and not value else value


def extensions(one: Json, other: Json) -> Iterator[KeywordChange]:
    """What ends and what begins of the keywords of ours."""
    for keyword, rule in EXTENSIONS.items():
        parts = _moves if keyword == "x-transitions" else partial(_parts, keyword)
        was, now = parts(one, other), parts(other, one)
        for word, changed, effect, says in (
            ("removed", was - now, rule.removed, rule.says_removed),
            ("added", now - was, rule.added, rule.says_added),
        ):
            if changed:
                what = says.format(", ".join(sorted(changed)))
                yield KeywordChange(f"{rule.name}-{word}", effect, what, remedy=SHARED)


def _parts(keyword: str, schema: Json, other: Json) -> set[str]:
    value = schema.get(keyword) or ()
    return {keyword} if value is True else set(value)


def _moves(schema: Json, other: Json) -> set[str]:
    """The moves of a lifecycle between states that both have; without one all are possible."""
    states = [{value for value in each.get("enum", ()) if isinstance(value, str)} for each in (schema, other)]
    moves = schema.get("x-transitions", dict.fromkeys(states[0], states[0]))
    both = states[0] & states[1]
    return {f"from {old} to {new}" for old in moves for new in moves[old] if {old, new} <= both and old != new}


Comparison = Callable[[Json, Json], Iterator[KeywordChange]]
COMPARED: tuple[Comparison, ...] = (
    _types,
    _nullability,
    _enumerations,
    _bounds,
    _exact,
)
