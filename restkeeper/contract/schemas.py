"""The comparison of schemas (JSON Schema 2020-12, as OpenAPI 3.1 uses it), in one direction."""

from collections.abc import Iterator, Sequence
from itertools import chain

from restkeeper.contract.components import ALTERNATIVES, Components
from restkeeper.contract.context import SchemaContext
from restkeeper.contract.findings import (
    CHANGED,
    HARMLESS,
    NARROWED,
    WIDENED,
    Change,
    Direction,
    Effect,
    Json,
    Severity,
)
from restkeeper.contract.keywords import COMPARED, LOOSER, KeywordChange, extensions
from restkeeper.contract.properties import PropertyComparison
from restkeeper.contract.schema import PROSE, is_choice, is_nullable, says_type, text, types_of, without_null
from restkeeper.contract.windows import Calendar, marks, removal, rules_of

# Keywords that hold one schema: their names in ids.
ONE_SCHEMA = {
    "then": "then",
    "else": "else",
    "contains": "contains",
    "propertyNames": "property-names",
    "unevaluatedItems": "unevaluated-items",
    "unevaluatedProperties": "unevaluated-properties",
    "contentSchema": "content-schema",
    "items": "items",
}
BRANCHES = {
    "anyOf": ("any-of", NARROWED, WIDENED),
    "oneOf": ("one-of", NARROWED, WIDENED),
    "allOf": ("all-of", Effect(Severity.JUDGE, Severity.BREAKING), NARROWED),
}


class SchemaComparison:
    """Compares the schemas of two documents. A pair of components is compared once, so recursion ends."""

    def __init__(self, before: Json, after: Json, calendar: Calendar) -> None:
        self.before, self.after, self._calendar = Components(before), Components(after), calendar
        self._properties = PropertyComparison(self.before, self.after, calendar, self.changes)
        self._is_marked = "x-dialects" in before  # else it is from before documents had these, and all defaults
        self._known: dict[tuple[str, str, str, SchemaContext], tuple[Change, ...]] = {}

    def changes(self, before: Json | bool, after: Json | bool, at: SchemaContext) -> tuple[Change, ...]:
        """The changes from one schema to another."""
        (was_named, one), (is_named, other) = self.before.plain(before), self.after.plain(after)
        if not (was_named and is_named):
            return tuple(self._changes(one, other, at))
        nullable = f"{is_nullable(one)}{is_nullable(other)}"
        if at.subject not in ("parameter", "header"):
            at = at._replace(name="", schema=is_named)
        key = (was_named, is_named, nullable, at)
        if key not in self._known:
            self._known[key] = ()
            self._known[key] = tuple(dict.fromkeys(self._changes(one, other, at)))
        return self._known[key]

    def _changes(self, one: Json, other: Json, at: SchemaContext) -> Iterator[Change]:
        if (wrapped := self._wrapped(one, other, at)) is not None:
            yield from wrapped
            return
        one, other = _with_enumerations(one, other)
        compared = (*COMPARED, extensions) if self._is_marked else COMPARED
        for found in chain.from_iterable(compare(one, other) for compare in compared):
            yield self._of_keyword(found, one, at)
        yield from self._value_steps(one, other, at)
        for found in self._extra(one, other):
            yield at.change(f"{at.prefix}-{found.id}", found.effect, found.what)
        if not types_of(one) or not types_of(other) or types_of(one) & types_of(other):
            yield from self._inner(one, other, at)

    def _of_keyword(self, found: KeywordChange, one: Json, at: SchemaContext) -> Change:
        """A change of a keyword, in a window if it is the end of a deprecated value."""
        prefix, effect = at.prefix, found.effect
        unseen = "read" if at.direction is Direction.REQUEST else "write"
        if at.unseen:
            prefix = prefix.replace("-property", f"-{unseen}-only-property")
        if found.id == "enum-value-removed":
            rules = rules_of(f"{prefix}-enum-value")
            step = removal(_value_marks(one, found.value), rules, self._calendar)
            what = found.what if step.id == rules.removed else f"the value {found.value} was {step.what}"
            harmless = step.effect is HARMLESS
            return at.change(step.id, HARMLESS if harmless else effect, what, step.remedy, found.value)
        was_hidden = "default" not in one and not self._is_marked  # one that a function makes
        if found.id.startswith("default-value") and (at.fixed or was_hidden):
            effect = HARMLESS
        if effect.response is Severity.JUDGE and at.name.rpartition(".")[2] == "id":
            effect = effect._replace(response=Severity.BREAKING)  # clients store ids in the form that was documented
        return at.change(f"{prefix}-{found.id}", effect, found.what, found.remedy, found.value)

    def _extra(self, one: Json, other: Json) -> Iterator[KeywordChange]:
        """Whether properties without a declaration are valid."""
        was, now = one.get("additionalProperties", True), other.get("additionalProperties", True)
        if was is False and now is not False:
            what = "fields that are not declared are allowed now"
            yield KeywordChange("additional-properties-allowed", LOOSER, what)
        elif was is not False and now is False:
            what = "fields that are not declared are forbidden now"
            yield KeywordChange("additional-properties-forbidden", NARROWED, what)

    def _wrapped(self, one: Json, other: Json, at: SchemaContext) -> Iterator[Change] | None:
        """The changes between a schema and a choice that has taken its place, or back; None if that is not so."""
        for keyword in ALTERNATIVES:
            if says_type(one) and keyword not in one and is_choice(other, keyword):
                if keyword == "oneOf" and one.get("properties") and len(other["oneOf"]) > 1:
                    what = "is one of several schemas now, and was one"
                    return iter([at.change(f"{at.prefix}-wrapped-in-one-of", CHANGED, what)])
                branches = self._branches(keyword, [without_null(one)], other[keyword], at)
            elif says_type(other) and keyword not in other and is_choice(one, keyword):
                branches = self._branches(keyword, one[keyword], [without_null(other)], at)
            else:
                continue
            return chain(self._null(one, other, at), branches)
        return None

    def _null(self, one: Json, other: Json, at: SchemaContext) -> Iterator[Change]:
        """Whether null is an alternative."""
        if other.get("nullable") and not one.get("nullable"):
            yield at.change(f"{at.prefix}-became-nullable", WIDENED, "can be null")
        elif one.get("nullable") and not other.get("nullable"):
            yield at.change(f"{at.prefix}-became-not-nullable", NARROWED, "can no longer be null")

    def _inner(self, one: Json, other: Json, at: SchemaContext) -> Iterator[Change]:
        yield from self._properties.changes(one, other, at)
        for keyword, name in ONE_SCHEMA.items():
            yield from self._schema(keyword, name, one, other, at)
        for keyword, (name, *_) in BRANCHES.items():
            if keyword in one and keyword in other:
                yield from self._branches(keyword, one[keyword], other[keyword], at, bool(one.get("x-extensible")))
            elif keyword in other:
                yield at.change(f"{at.prefix}-{name}-added", NARROWED, f"{keyword} was added")
            elif keyword in one:
                yield at.change(f"{at.prefix}-{name}-removed", WIDENED, f"{keyword} was removed")
        was, now = one.get("additionalProperties", True), other.get("additionalProperties", True)
        if False not in (was, now) and (was, now) != (True, True):
            yield from self.changes(was, now, at.inside("*"))

    def _schema(self, keyword: str, name: str, one: Json, other: Json, at: SchemaContext) -> Iterator[Change]:
        """A keyword that holds one schema."""
        was, now = (_effective(each, keyword) for each in (one, other))
        if was is None and now is not None:
            yield at.change(f"{at.prefix}-{name}-added", NARROWED, f"{keyword} was added")
        elif was is not None and now is None:
            yield at.change(f"{at.prefix}-{name}-removed", WIDENED, f"{keyword} was removed")
        elif was is not None and now is not None:
            yield from self.changes(was, now, at.inside("[]" if "tems" in keyword or keyword == "contains" else ""))

    # Branches of anyOf, oneOf, allOf

    def _branches(
        self, keyword: str, was: Sequence[Json], now: Sequence[Json], at: SchemaContext, extensible: bool = False
    ) -> Iterator[Change]:
        name, when_removed, when_added = BRANCHES[keyword]
        pairs, gone, new = self._matched(was, now, at)
        for before, after in pairs:
            yield from self.changes(before, after, at)
        for part, word, effect in (
            *((each, "removed", when_removed) for each in gone),
            *((each, "added", HARMLESS if extensible else when_added) for each in new),
        ):
            only = "-annotation-only" if keyword == "allOf" and not part.keys() - PROSE else ""
            what = f"{_title(part)} was {word} {'to' if word == 'added' else 'from'} {keyword}"
            yield at.change(f"{at.prefix}-{name}-{word}{only}", HARMLESS if only else effect, what)

    def _matched(
        self, was: Sequence[Json], now: Sequence[Json], at: SchemaContext
    ) -> tuple[list[tuple[Json, Json]], list[Json], list[Json]]:
        """The branches that belong together: of one name, equal, compatible, or the only ones that are left."""
        pairs: list[tuple[Json, Json]] = []
        gone, new = list(was), list(now)
        for belong in (_same_title, _equal, lambda one, other: self._is_compatible(one, other, at)):
            for one in list(gone):
                if (other := next((each for each in new if belong(one, each)), None)) is not None:
                    pairs.append((one, other))
                    gone.remove(one)
                    new.remove(other)
        if len(gone) == len(new) == 1:
            return [*pairs, (gone[0], new[0])], [], []
        return pairs, gone, new

    def _is_compatible(self, one: Json, other: Json, at: SchemaContext) -> bool:
        return all(each.severity is Severity.COMPATIBLE for each in self.changes(one, other, at))

    def _value_steps(self, before: Json, after: Json, at: SchemaContext) -> Iterator[Change]:
        """The deprecation of values of an enumeration that stay."""
        for value in after.get("enum") or ():
            if value in (before.get("enum") or ()):
                rules = rules_of(f"{at.prefix}-enum-value")
                shown = text(value)
                for step in marks(_value_marks(before, shown), _value_marks(after, shown), rules, self._calendar):
                    yield at.change(step.id, step.effect, f"the value {shown}: {step.what}", step.remedy, shown)


def _effective(schema: Json, keyword: str) -> Json | bool | None:
    """The schema of a keyword; None if it allows all. Only `contains` requires an item even then."""
    held: Json | bool | None = schema.get(keyword)
    return None if held in ({}, True) and keyword != "contains" else held


def _value_marks(schema: Json, shown: str) -> Json:
    """The deprecation of a value, in the form of an element's; `shown` is the value as JSON."""
    marked = schema.get("x-deprecated-values", {}).get(shown.strip('"'))
    return {} if marked is None else {"deprecated": True, "x-sunset": marked.get("sunset", "")}


def _with_enumerations(one: Json, other: Json) -> tuple[Json, Json]:
    """The schemas with a constant as an enumeration, if the other one has an enumeration."""

    def with_enum(schema: Json, other: Json) -> Json:
        if "const" in schema and "enum" in other:
            rest = {key: value for key, value in schema.items() if key != "const"}
            return {**rest, "enum": [schema["const"]]}
        return schema

    return with_enum(one, other), with_enum(other, one)


def _title(branch: Json) -> str:
    return str(branch.get("$ref", "")).rpartition("/")[2] or branch.get("title") or "a schema"


def _same_title(one: Json, other: Json) -> bool:
    return _title(one) == _title(other) != "a schema"


def _equal(one: Json, other: Json) -> bool:
    return text(one) == text(other)
