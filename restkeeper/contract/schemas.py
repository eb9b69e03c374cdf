"""The comparison of schemas (JSON Schema 2020-12, as OpenAPI 3.1 uses it), in one direction."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from restkeeper.contract.findings import (
    CHANGED,
    DEPRECATE,
    HARMLESS,
    NARROWED,
    NEW_VERSION,
    OPTIONAL,
    UNCLEAR,
    WIDENED,
    Change,
    Direction,
    Effect,
    Json,
    Severity,
)
from restkeeper.contract.keywords import COMPARED, LOOSER, PROSE, Said, is_nullable, stability, text, types_of
from restkeeper.contract.windows import Calendar, Step, marks, removal, rules_of

# The prefixes of ids of what is inside, and ids that do not follow the pattern.
INSIDE = {
    "request-body": "request-property",
    "response-body": "response-property",
    "request-parameter": "request-parameter-property",
    "request-header": "request-header-property",
    "response-header": "response-header-property",
}
IRREGULAR = {
    "request-body-type-specialized": "request-body-type-changed",
    "request-property-type-specialized": "request-property-type-changed",
    "request-parameter-type-specialized": "request-parameter-type-changed",
    "response-body-enum-value-removed": "response-mediatype-enum-value-removed",
}
SHAPE = {"type", "properties", "items", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"}

# Keywords that hold one schema, and those that hold schemas by name: their names in ids.
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
SCHEMAS_BY_NAME = {"dependentSchemas": "dependent-schema", "patternProperties": "pattern-property"}
BRANCHES = {
    "anyOf": ("any-of", NARROWED, WIDENED),
    "oneOf": ("one-of", NARROWED, WIDENED),
    "allOf": ("all-of", Effect(Severity.JUDGE, Severity.BREAKING), NARROWED),
}
ALTERNATIVES = ("anyOf", "oneOf")


class Spot(NamedTuple):
    """Where two schemas are compared.

    `name` is the field in dotted words within the component `schema`, if there is one. `subject` is "body", "field",
    "parameter" or "header". A value that is `fixed` is always sent, so its default has no meaning. The other side
    never sees an `unseen` value: one of a request that is read-only, or one of a response that is write-only.
    """

    direction: Direction
    prefix: str
    subject: str
    name: str = ""
    schema: str = ""
    fixed: bool = False
    unseen: bool = False

    def inside(self, name: str, *, fixed: bool = True) -> "Spot":
        """A value inside this one; `name` begins with "[" or is that of a field."""
        joined = self.name + name if name.startswith("[") or not self.name else f"{self.name}.{name}"
        subject = "field" if self.subject == "body" else self.subject
        return self._replace(
            name=joined.lstrip(".") or "[]", prefix=INSIDE.get(self.prefix, self.prefix), subject=subject, fixed=fixed
        )

    def change(self, id: str, effect: Effect, what: str, remedy: str = NEW_VERSION, value: str = "") -> Change:
        """A change of this value, by the whole id of its rule."""
        severity = Severity.COMPATIBLE if self.unseen else effect.of(self.direction)
        subject = self.subject
        if value and subject in ("body", "field"):
            subject = "value"
        elif value and remedy == DEPRECATE:  # there is no declaration for a value of a parameter
            remedy = NEW_VERSION
        return Change(
            IRREGULAR.get(id, id), severity, self.direction, what, subject, self.name, self.schema, remedy, value
        )

    def step(self, step: Step) -> Change:
        """A change of this value's deprecation."""
        return self.change(step.id, step.effect, step.what, step.remedy)


class Components:
    """The components of a document, and what a reference means."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def resolve(self, part: Json | bool) -> tuple[str, Json]:
        """What a part or a reference is, and the component's name. Raises ValueError for a reference to nothing."""
        name = ""
        if isinstance(part, bool):
            return name, {} if part else {"not": {}}
        seen: set[str] = set()
        while (reference := part.get("$ref")) is not None:
            if reference in seen or not reference.startswith("#/"):
                raise ValueError(f"{reference} is not a reference to a part of the document")
            seen.add(reference)
            name = name or reference.rpartition("/")[2]
            part = {**self._at(reference), **{key: each for key, each in part.items() if key != "$ref"}}
        return name, part

    def _at(self, reference: str) -> Json:
        found = self._document
        for step in reference[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            if step not in found:
                raise ValueError(f"{reference} is a reference to nothing")
            found = found[step]
        return found

    def plain(self, schema: Json | bool) -> tuple[str, Json]:
        """A schema with its name; a choice between one schema and null is that schema, nullable."""
        name, plain = self.resolve(schema)
        for keyword in ALTERNATIVES:
            others = [each for each in plain.get(keyword, ()) if each != {"type": "null"}]
            rest = {key: value for key, value in plain.items() if key != keyword}
            if keyword in plain and len(others) < len(plain[keyword]) and not _constraints(rest):
                if len(others) == 1:
                    name, only = self.resolve(others[0])
                    return name, {**only, **rest, "nullable": True}
                return name, {**rest, keyword: others, "nullable": True}
        return name, plain


class SchemaComparison:
    """Compares the schemas of two documents. A pair of components is compared once, so recursion ends."""

    def __init__(self, before: Json, after: Json, calendar: Calendar) -> None:
        self.before, self.after, self._calendar = Components(before), Components(after), calendar
        self._known: dict[tuple[str, str, str, Spot], tuple[Change, ...]] = {}

    def changes(self, before: Json | bool, after: Json | bool, at: Spot) -> tuple[Change, ...]:
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

    def _changes(self, one: Json, other: Json, at: Spot) -> Iterator[Change]:
        if (wrapped := self._wrapped(one, other, at)) is not None:
            yield from wrapped
            return
        one, other = _alike(one, other)
        for compare in COMPARED:
            for said in compare(one, other):
                yield self._said(said, one, at)
        yield from self._value_steps(one, other, at)
        for said in self._extra(one, other):
            yield at.change(f"{at.prefix}-{said.id}", said.effect, said.what)
        if not types_of(one) or not types_of(other) or types_of(one) & types_of(other):
            yield from self._inner(one, other, at)

    def _said(self, said: Said, one: Json, at: Spot) -> Change:
        """A change of a keyword, in a window if it is the end of a deprecated value."""
        prefix, effect = at.prefix, said.effect
        unseen = "read" if at.direction is Direction.REQUEST else "write"
        if at.unseen:
            prefix = prefix.replace("-property", f"-{unseen}-only-property")
        if said.id == "enum-value-removed":
            rules = rules_of(f"{prefix}-enum-value")
            step = removal(_value_marks(one, said.value), rules, self._calendar)
            what = said.what if step.id == rules.removed else f"the value {said.value} was {step.what}"
            harmless = step.effect is HARMLESS
            return at.change(step.id, HARMLESS if harmless else effect, what, step.remedy, said.value)
        if said.id.startswith("default-value") and at.fixed:
            effect = HARMLESS
        return at.change(f"{prefix}-{said.id}", effect, said.what, value=said.value)

    def _extra(self, one: Json, other: Json) -> Iterator[Said]:
        """Whether properties without a declaration are valid."""
        was, now = one.get("additionalProperties", True), other.get("additionalProperties", True)
        if was is False and now is not False:
            yield Said("additional-properties-allowed", LOOSER, "fields that are not declared are allowed now")
        elif was is not False and now is False:
            yield Said("additional-properties-forbidden", NARROWED, "fields that are not declared are forbidden now")

    def _wrapped(self, one: Json, other: Json, at: Spot) -> Iterator[Change] | None:
        """The changes between a schema and a choice that has taken its place, or back; None if that is not so."""
        for keyword in ALTERNATIVES:
            if keyword in other and keyword not in one and SHAPE & one.keys() and not _has_shape(other, keyword):
                if keyword == "oneOf" and one.get("properties") and len(other["oneOf"]) > 1:
                    what = "is one of several schemas now, and was one"
                    return iter([at.change(f"{at.prefix}-wrapped-in-one-of", CHANGED, what)])
                return self._branches(keyword, [one], other[keyword], at)
            if keyword in one and keyword not in other and SHAPE & other.keys() and not _has_shape(one, keyword):
                return self._branches(keyword, one[keyword], [other], at)
        return None

    def _inner(self, one: Json, other: Json, at: Spot) -> Iterator[Change]:
        yield from self._properties(one, other, at)
        for keyword, name in ONE_SCHEMA.items():
            yield from self._schema(keyword, name, one, other, at)
        for keyword, name in SCHEMAS_BY_NAME.items():
            yield from self._schemas(name, one.get(keyword, {}), other.get(keyword, {}), at)
        yield from self._items_by_position(one.get("prefixItems", ()), other.get("prefixItems", ()), at)
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

    def _schema(self, keyword: str, name: str, one: Json, other: Json, at: Spot) -> Iterator[Change]:
        """A keyword that holds one schema."""
        was, now = (_effective(each, keyword) for each in (one, other))
        if was is None and now is not None:
            yield at.change(f"{at.prefix}-{name}-added", NARROWED, f"{keyword} was added")
        elif was is not None and now is None:
            yield at.change(f"{at.prefix}-{name}-removed", WIDENED, f"{keyword} was removed")
        elif was is not None and now is not None:
            yield from self.changes(was, now, at.inside("[]" if "tems" in keyword or keyword == "contains" else ""))

    def _schemas(self, name: str, was: Json, now: Json, at: Spot) -> Iterator[Change]:
        """A keyword that holds schemas by name."""
        for key in sorted({*was, *now}):
            if key not in was:
                yield at.change(f"{at.prefix}-{name}-added", NARROWED, f"a schema for {key} was added")
            elif key not in now:
                yield at.change(f"{at.prefix}-{name}-removed", WIDENED, f"the schema for {key} was removed")
            else:
                yield from self.changes(was[key], now[key], at.inside(key))

    def _items_by_position(self, was: Sequence[Json], now: Sequence[Json], at: Spot) -> Iterator[Change]:
        for place in range(max(len(was), len(now))):
            if place >= len(was):
                yield at.change(f"{at.prefix}-prefix-items-added", CHANGED, f"item {place} has a schema now")
            elif place >= len(now):
                yield at.change(f"{at.prefix}-prefix-items-removed", CHANGED, f"item {place} has no schema any more")
            else:
                yield from self.changes(was[place], now[place], at.inside(f"[{place}]"))

    # Branches of anyOf, oneOf, allOf

    def _branches(
        self, keyword: str, was: Sequence[Json], now: Sequence[Json], at: Spot, extensible: bool = False
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
        self, was: Sequence[Json], now: Sequence[Json], at: Spot
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

    def _is_compatible(self, one: Json, other: Json, at: Spot) -> bool:
        return all(each.severity is Severity.COMPATIBLE for each in self.changes(one, other, at))

    # Properties

    def _properties(self, one: Json, other: Json, at: Spot) -> Iterator[Change]:
        was, now = one.get("properties", {}), other.get("properties", {})
        needed, needs = set(one.get("required", ())), set(other.get("required", ()))
        for name in sorted({*was, *now, *needed, *needs}):
            here = at.inside(name, fixed=name in needed or name in needs)
            before = self.before.plain(was[name])[1] if name in was else None
            after = self.after.plain(now[name])[1] if name in now else None
            if before is not None and after is not None:
                yield from self._kept(before, after, here, name in needed, name in needs)
                unseen = at.unseen or (_is_unseen(before, at) and _is_unseen(after, at))
                yield from self.changes(was[name], now[name], here._replace(unseen=unseen))
            elif before is not None:
                yield from self._removed(before, here, name in needed)
            elif after is not None:
                yield from self._added(after, here, name in needs)
            else:
                yield from self._required(here.prefix, here, name in needed, name in needs)

    def _removed(self, before: Json, at: Spot, required: bool) -> Iterator[Change]:
        unseen = _is_unseen(before, at)
        if at.direction is Direction.REQUEST and unseen:
            return
        if at.direction is Direction.REQUEST:
            rules = rules_of(at.prefix)
        else:
            kind = f"{'required' if required else 'optional'}{'-write-only' * unseen}"
            rules = rules_of(at.prefix, removed=_kind_id(at.prefix, kind, "removed"))
        yield at._replace(unseen=at.unseen or unseen).step(removal(before, rules, self._calendar))

    def _added(self, after: Json, at: Spot, required: bool) -> Iterator[Change]:
        unseen = _is_unseen(after, at)
        if at.direction is Direction.RESPONSE:
            kind = f"{'required' if required else 'optional'}{'-write-only' * unseen}"
            yield at.change(_kind_id(at.prefix, kind, "added"), HARMLESS, "added")
        elif not unseen and required:
            default = "-with-default" if "default" in after else ""
            yield at.change(f"new-required-{at.prefix}{default}", NARROWED, "added, and it is required", OPTIONAL)
        elif not unseen:
            yield at.change(f"new-optional-{at.prefix}", HARMLESS, "added")

    def _kept(self, before: Json, after: Json, at: Spot, was: bool, now: bool) -> Iterator[Change]:
        """A field that stays: whether it is required, who sees it, its deprecation."""
        unseen = _is_unseen(before, at) and _is_unseen(after, at)
        prefix = at.prefix
        if unseen and at.direction is Direction.RESPONSE:
            prefix = prefix.replace("-property", "-write-only-property")
        at = at._replace(unseen=at.unseen or unseen)
        default = "-with-default" if "default" in after and at.direction is Direction.REQUEST else ""
        yield from self._required(prefix, at, was, now, default)
        yield from self._visibility(before, after, at, now)
        yield from map(at.step, marks(before, after, rules_of(at.prefix), self._calendar))
        for said in stability(before, after, at.prefix):
            yield at.change(said.id, said.effect, said.what)

    def _required(self, prefix: str, at: Spot, was: bool, now: bool, default: str = "") -> Iterator[Change]:
        if was and not now:
            yield at.change(f"{prefix}-became-optional", WIDENED, "no longer required")
        elif now and not was:
            yield at.change(f"{prefix}-became-required{default}", NARROWED, "required now", OPTIONAL)

    def _visibility(self, before: Json, after: Json, at: Spot, required: bool) -> Iterator[Change]:
        """Read-only and write-only: in which direction the field exists."""
        for keyword, name, loses, gains in (
            ("readOnly", "read-only", Direction.REQUEST, required),
            ("writeOnly", "write-only", Direction.RESPONSE, False),
        ):
            was, now = bool(before.get(keyword)), bool(after.get(keyword))
            if was == now:
                continue
            broken = at.direction is loses and (now or gains)
            effect = CHANGED if broken else HARMLESS
            kind = "required" if required else "optional"
            end = f"became-{'' if now else 'not-'}{name}"
            if end == "became-not-write-only" and required and at.direction is Direction.RESPONSE:
                effect = UNCLEAR  # a new field of responses, which was kept from them with a reason
            yield at.change(_kind_id(at.prefix, kind, end), effect, f"is {'' if now else 'no longer '}{name}")

    def _value_steps(self, before: Json, after: Json, at: Spot) -> Iterator[Change]:
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


def _kind_id(prefix: str, kind: str, end: str) -> str:
    """The id of a kind of property: the kind is before the word "property"."""
    head, _, tail = prefix.rpartition("-")
    return f"{head}-{kind}-{tail}-{end}"


def _is_unseen(schema: Json, at: Spot) -> bool:
    return bool(schema.get("readOnly" if at.direction is Direction.REQUEST else "writeOnly"))


def _value_marks(schema: Json, shown: str) -> Json:
    """The deprecation of a value, in the form of an element's; `shown` is the value as JSON."""
    marked = schema.get("x-deprecated-values", {}).get(shown.strip('"'))
    return {} if marked is None else {"deprecated": True, "x-sunset": marked.get("sunset", "")}


def _alike(one: Json, other: Json) -> tuple[Json, Json]:
    """The schemas with a constant as an enumeration, if the other one has an enumeration."""

    def with_enum(schema: Json, other: Json) -> Json:
        if "const" in schema and "enum" in other:
            rest = {key: value for key, value in schema.items() if key != "const"}
            return {**rest, "enum": [schema["const"]]}
        return schema

    return with_enum(one, other), with_enum(other, one)


def _constraints(schema: Json) -> set[str]:
    return {key for key in schema.keys() - PROSE - {"default"} if not key.startswith("x-")}


def _has_shape(schema: Json, but: str) -> bool:
    """Whether a schema says what its values are, beside the keyword `but`."""
    return bool((SHAPE - {but}) & schema.keys())


def _title(branch: Json) -> str:
    return str(branch.get("$ref", "")).rpartition("/")[2] or branch.get("title") or "a schema"


def _same_title(one: Json, other: Json) -> bool:
    return _title(one) == _title(other) != "a schema"


def _equal(one: Json, other: Json) -> bool:
    return text(one) == text(other)
