"""The evolution of a collection's items: the steps from one revision to the next, and what fits stored schemas.

    upgrades={2: [Rename("name", "title")], 3: [Add("weight"), Remove("colour", Text(load_default=None))]}

A step relates some fields of the older revision, `before`, to some fields of the newer one, `after`. All other fields
are the same in both. Every step works in both directions: up for stored items and for what callers of older versions
send, down for what those callers receive. Items are converted as the JSON texts of their members.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson
from marshmallow import Schema, ValidationError, fields, missing

from restkeeper import exactjson
from restkeeper.mistakes import position_of
from restkeeper.schemas.fields import Owner, Time, default_of
from restkeeper.schemas.item import READ_ONLY

_log = logging.getLogger("restkeeper")

Fields = Mapping[str, fields.Field[Any]]
Members = Mapping[str, exactjson.Buffer]  # an item, or a part of it, as the JSON texts of its members

NO_EQUIVALENT = "has no equivalent in newer versions"


class Step:
    """Base of all steps. Its subclasses set `before` and `after`, and as `texts` the values that items get by it."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    texts: Members = {}

    def definitions(self, newer: Fields) -> Fields:
        """The definitions of the fields `before`, given those of the newer revision. Raises ValueError."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """A text that changes with what the step does."""
        return repr((type(self).__name__, self.before, self.after, self.texts))

    def up(self, texts: Members) -> Members:
        """The texts of the fields `after`. Raises Untranslatable."""
        raise NotImplementedError

    def down(self, texts: Members) -> Members:
        """The texts of the fields `before`."""
        raise NotImplementedError


class Rename(Step):
    """The field `before` has the name `after` now."""

    def __init__(self, before: str, after: str) -> None:
        self.before, self.after = _names("Rename", [before]), _names("Rename", [after])

    def definitions(self, newer: Fields) -> Fields:
        return {self.before[0]: newer[self.after[0]]}

    def up(self, texts: Members) -> Members:
        return dict(zip(self.after, texts.values(), strict=False))  # none if an Add without a default has added it

    def down(self, texts: Members) -> Members:
        return {self.before[0]: texts[self.after[0]]}


class Add(Step):
    """There is a new field. An older item gets `default`, or else the `load_default` of the schema."""

    def __init__(self, name: str, default: Any = missing) -> None:
        self.after = _names("Add", [name])
        self._default = default
        try:
            self.texts = {} if default is missing else {name: exactjson.dumps(default)}
        except exactjson.EncodeError as error:
            raise ValueError(f"Add({name!r}): the default {default!r} is no JSON: {error}") from None

    def definitions(self, newer: Fields) -> Fields:
        name = self.after[0]
        if newer[name].required and not self.texts:
            raise ValueError(f"Add({name!r}): the field is required, so older items need a default")
        if self.texts:
            _require_valid(f"Add({name!r})", newer[name], self._default)
        return {}

    @property
    def is_constant(self) -> bool:
        """Whether all older items get the same value, which is not null."""
        return self._default not in (missing, None)

    def up(self, texts: Members) -> Members:
        return self.texts

    def down(self, texts: Members) -> Members:
        return {}


class Remove(Step):
    """The field `name`, which was defined as `field`, is gone.

    Callers of older versions read and write it as before: its value is stored beside the item. An item that was created
    without one has `default`, or else that of the field, as a new item had it.
    """

    def __init__(self, name: str, field: fields.Field[Any], default: Any = missing) -> None:
        self.before = _names("Remove", [name])
        _require_fields("Remove", {name: field})
        self._field = field = copy(field)
        if field.dump_only and field.dump_default is not missing:
            field.load_default = field.dump_default  # as items have it
        has_default = field.load_default is not missing or (field.dump_only and field.allow_none)
        if default is missing and not has_default:
            how = f"write Remove({name!r}, …, default) with a value that the field had"
            raise ValueError(f"Remove({name!r}): newer items do not have the field, so it needs a default: {how}")
        value = default_of(field) if default is missing else default
        _require_valid(f"Remove({name!r})", field, value)
        self.texts = {name: exactjson.dumps(value)}

    def definitions(self, newer: Fields) -> Fields:
        return {self.before[0]: self._field}

    def up(self, texts: Members) -> Members:
        return {}

    def down(self, texts: Members) -> Members:
        return self.texts


class Convert(Step):
    """The values of some fields became those of others, by a pair of functions.

    `before` has the former fields with their definitions. `up` is called with their values, and returns those of the
    fields `after`, in order; `down` is the reverse. For more than one field they return a tuple. `up` may raise
    marshmallow's ValidationError with the reason why a value has no equivalent. If `down` fails, or returns what the
    definition of a field does not allow, callers of older versions get the default of the field. Where the functions do
    something else than before, give it another `version`: ETags change with that.
    """

    def __init__(
        self,
        before: Fields,
        after: Sequence[str],
        up: Callable[..., Any],
        down: Callable[..., Any],
        *,
        version: int = 1,
    ) -> None:
        self._definitions = _require_fields("Convert", before)
        self.before, self.after = _names("Convert", before), _names("Convert", after)
        if not (callable(up) and callable(down)):
            raise ValueError(f"Convert({', '.join(self.before)}): up and down are functions")
        self._up, self._down, self._version, self._has_failed = up, down, version, False

    @property
    def fingerprint(self) -> str:
        return f"{super().fingerprint} {self._version}"

    def definitions(self, newer: Fields) -> Fields:
        return self._definitions

    def up(self, texts: Members) -> Members:
        fields = self._definitions.items()  # an Add without a default may have added some
        values = [exactjson.decoded(texts[name]) if name in texts else default_of(field) for name, field in fields]
        try:
            found = _listed(self._up(*values), self.after)
        except ValidationError as error:
            raise Untranslatable(self, ", ".join(map(str, error.messages))) from error
        except Exception as error:  # the function is of the service: whatever it raises is about these values
            raise Untranslatable(self) from error
        for wrong in exactjson.faults_in_values(found):
            raise Untranslatable(self, wrong["detail"])
        try:
            return _texts(self.after, found)
        except exactjson.EncodeError as error:
            raise Untranslatable(self, f"becomes what is no JSON: {error}") from error

    def down(self, texts: Members) -> Members:
        try:
            found = _listed(self._down(*[exactjson.decoded(texts[name]) for name in self.after]), self.before)
            for field, value in zip(self._definitions.values(), found, strict=True):
                field.deserialize(value)
            return _texts(self.before, found)
        except Exception as error:  # likewise: one item must not end a whole list
            if not self._has_failed:
                self._has_failed = True
                down = getattr(self._down, "__qualname__", type(self._down))
                kind, position = type(error).__name__, position_of(error) or f"the result of {down}"
                names = ", ".join(self.before)  # the text of the error can have the value of a private field
                _log.warning("an item has no equivalent for %s in older versions: %s in %s", names, kind, position)
            return _texts(self.before, map(default_of, self._definitions.values()))


def _names(step: str, names: Any) -> tuple[str, ...]:
    """The names of a step. Raises ValueError for what cannot be names of fields."""
    listed = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else ()
    if not listed or not all(isinstance(name, str) for name in listed) or len(set(listed)) < len(listed):
        raise ValueError(f"{step}: {names!r} must be names of fields, each once")
    if wrong := [name for name in listed if name in READ_ONLY]:
        raise ValueError(f"{step}: {wrong[0]!r} is set by the service and never changes")
    return listed


def _require_fields(step: str, definitions: Fields) -> Fields:
    """Raises ValueError for what is no definition of a field."""
    given: Any = definitions
    if not isinstance(given, Mapping):
        raise ValueError(f"{step}: {given!r}: say what the former fields were, as {{'stock': Text(required=True)}}")
    for name, field in definitions.items():
        if not isinstance(field, fields.Field):
            raise ValueError(f"{step}: {name!r} needs a definition such as Text(), not {field!r}")
    return definitions


def _require_valid(step: str, field: fields.Field[Any], value: Any) -> None:
    """Raises ValueError for a default that the field does not allow."""
    try:
        field.deserialize(value)
        exactjson.dumps(value)
    except (ValidationError, exactjson.EncodeError) as error:
        raise ValueError(f"{step}: the field does not allow the default {value!r}: {error}") from None


def _listed(found: Any, names: Sequence[str]) -> list[Any]:
    """What a function returned for some fields: for more than one an array of values, and no text."""
    if len(names) == 1:
        return [found]
    if not isinstance(found, tuple | list) or len(found) != len(names):
        raise TypeError(f"{len(names)} values are needed, for {', '.join(names)}; there is {found!r}")
    return list(found)


def _texts(names: Iterable[str], values: Iterable[Any]) -> Members:
    return {name: exactjson.dumps(value) for name, value in zip(names, values, strict=True)}


class Untranslatable(Exception):
    """Values of the fields `before` of a step have no equivalent in the newer revision, for this reason."""

    def __init__(self, step: Step, reason: str = NO_EQUIVALENT) -> None:
        super().__init__(reason)
        self.step, self.reason = step, reason


class Chain:
    """The steps from a revision of a collection's items to a later one.

    A field that a step removes is stored beside the item: in a JSON object, by the revision that removed it and its
    name.
    """

    def __init__(self, upgrades: Mapping[int, Sequence[Step]], first: int, last: int) -> None:
        """Raises ValueError for a field that is removed twice in one revision."""
        later = range(first + 1, last + 1)
        self.steps = [step for number in later for step in upgrades[number]]
        self._prefixes = [f"{number}." for number in later for _ in upgrades[number]]
        pairs = zip(self._prefixes, self.steps, strict=True)
        removed = [(prefix, name) for prefix, step in pairs if not step.after for name in step.before]
        if twice := [name for prefix, name in removed if removed.count((prefix, name)) > 1]:
            raise ValueError(f"Remove({twice[0]!r}): is there twice in one revision")

    @property
    def fingerprint(self) -> str:
        """A text that changes with what the steps do."""
        return blake2b("\n".join([step.fingerprint for step in self.steps]).encode(), digest_size=4).hexdigest()

    def definitions(self, later: Fields) -> Fields:
        """The definitions of the fields in the older revision. Raises ValueError for steps that do not fit."""
        defined = dict(later)
        for step in reversed(self.steps):
            if absent := [name for name in step.after if name not in defined]:
                raise ValueError(f"{type(step).__name__}: there is no field {absent[0]!r} after this step")
            definitions = step.definitions(defined)
            position = next((n for n, name in enumerate(defined) if name in step.after), len(defined))
            rest = [(name, field) for name, field in defined.items() if name not in step.after]
            if taken := [name for name in definitions if name in dict(rest)]:
                raise ValueError(f"{type(step).__name__}: there is a field {taken[0]!r} before this step already")
            defined = dict([*rest[:position], *definitions.items(), *rest[position:]])
        return defined

    def down(self, members: Members, removed: bytes | None) -> Members:
        """An item of the later revision in the older one. `removed` is the object of the removed fields."""
        *_, item = self._descend(members, removed)
        return item

    def up(
        self, members: Members, removed: bytes | None, current: Members | None = None
    ) -> tuple[Members, bytes | None]:
        """An item of the older revision in the later one, and the object of the removed fields.

        It changes the item `current` of the later revision, if given: where the fields of a step have the values that
        `current` has in the older revision, `current` has those in the newer one. Raises Untranslatable.
        """
        beside = dict(exactjson.cut(removed)) if removed else {}
        stages = [{}] * (len(self.steps) + 1) if current is None else [*self._descend(current, removed)][::-1]
        item = dict(members)
        for number, step in enumerate(self.steps):
            texts = {name: item.pop(name) for name in step.before if name in item}
            if not step.after:
                beside |= {self._prefixes[number] + name: text for name, text in texts.items()}
            elif stages[number] and all(exactjson.equal(text, stages[number][name]) for name, text in texts.items()):
                item |= {name: stages[number + 1][name] for name in step.after}
            else:
                item |= step.up(texts)
        return item, exactjson.joined(beside) if beside else None

    def origins(self, step: Step) -> tuple[str, ...]:
        """The fields of the older revision that those before a step come from."""
        names = list(step.before)
        for earlier in reversed(self.steps[: self.steps.index(step)]):
            before = [earlier.before if name in earlier.after else (name,) for name in names]
            names = list(dict.fromkeys(name for each in before for name in each))
        return tuple(names)

    def _descend(self, members: Members, removed: bytes | None) -> Iterator[Members]:
        """An item in the later revision, and before each step, the last one first."""
        beside = exactjson.cut(removed) if removed else {}
        item = dict(members)
        yield item
        for prefix, step in zip(reversed(self._prefixes), reversed(self.steps), strict=True):
            item = dict(item)
            found = step.down({name: item.pop(name) for name in step.after})
            item |= found if step.after else {name: beside.get(prefix + name, text) for name, text in found.items()}
            yield item


_ANY = "any value"
_TYPES: tuple[tuple[type[fields.Field[Any]], str], ...] = (
    (Time, "time"),
    (Owner, "owner"),  # a string that is stored already would not be it
    (fields.String, "string"),
    (fields.Integer, "integer"),
    (fields.Number, "number"),
    (fields.Boolean, "boolean"),
    (fields.Mapping, "object"),
    (fields.Nested, "object"),
    (fields.Raw, _ANY),
)
_ARRAY = "array of "
OTHERS = "+"  # behind the fingerprint of an item that has members which its writer does not know
OPEN = "*"  # in the description of a schema whose items have other fields, too
DEEPEST = 10  # schemas inside one another that are described

# Types whose values are also values of another one.
_WIDER = {("integer", "number"), ("time", "string"), ("array of integer", "array of number")}


def revision_of(fingerprint: str) -> int:
    """The revision in a fingerprint."""
    number, dash, _ = fingerprint.partition("-")
    return int(number) if dash else 1


class StoredField(NamedTuple):
    """A field as a schema in the store describes it.

    `inside` has the fields of the objects that it holds, as far as they have a schema; the values of a dictionary are
    those of one field, `*`.
    """

    type: str
    required: bool
    nullable: bool
    inside: Mapping[str, Sequence[Any]] | None = None


def describe(definitions: Fields, *, is_open: bool = False) -> str:
    """The description of a schema in a `StoredSchema`, a JSON object of its fields."""
    described: dict[str, Any] = {name: _described(field) for name, field in definitions.items()}
    return orjson.dumps(described | ({OPEN: [_ANY, False, True]} if is_open else {})).decode()


def was_open(stored: str) -> bool:
    """Whether items of a schema, which is given by its description, have fields that it does not name."""
    return OPEN in orjson.loads(stored)


def _described(field: fields.Field[Any], above: tuple[type[Schema], ...] = ()) -> list[Any]:
    """What a `StoredField` has, without `inside` if there is none."""
    inside = inside_of(field, above)
    return [_type_of(field), field.required, field.allow_none, *([] if inside is None else [inside])]


def inside_of(field: fields.Field[Any], above: tuple[type[Schema], ...] = ()) -> dict[str, list[Any]] | None:
    """See `StoredField.inside`. Of a schema that is inside itself, `above`, the second one is not described."""
    if isinstance(field, fields.List):
        return inside_of(field.inner, above)
    if isinstance(field, fields.Mapping) and field.value_field:
        return {"*": _described(field.value_field, above)}
    if not isinstance(field, fields.Nested) or len(above) == DEEPEST:
        return None
    schema = field.schema
    if type(schema) in above:
        return None
    inner = {each.data_key or name: each for name, each in schema.load_fields.items()}
    return {name: _described(each, (*above, type(schema))) for name, each in inner.items()}


def _type_of(field: fields.Field[Any]) -> str:
    if isinstance(field, fields.List):
        return f"{_ARRAY}{_type_of(field.inner)}"
    name = next((name for of, name in _TYPES if isinstance(field, of)), type(field).__name__)
    return f"{_ARRAY}{name}" if isinstance(field, fields.Nested) and field.many else name


class Difference(NamedTuple):
    """Why items of a schema do not fit another one, and the steps that may be missing, in Python, by preference.

    It is `common` if it is of a field that both have, and no value of it can be of both types.
    """

    reason: str
    steps: tuple[str, ...]
    common: bool = False


def differences(
    stored: str,
    definitions: Fields,
    *,
    is_open: bool = False,
    distinct: Set[str] = frozenset(),
    filled: Set[str] = frozenset(),
) -> list[Difference]:
    """What does not fit a schema with these fields in items of a `stored` one, which is given by its description.

    Those that are `distinct` are unique, and have a default that is not null; an item stores a value of those that are
    `filled`, see `Revision`.
    """
    before, after = orjson.loads(stored), {name: _described(field) for name, field in definitions.items()}
    has_others = before.pop(OPEN, None) is not None
    found = list(_compared({name: each for name, each in before.items() if name in after or not is_open}, after))
    for name in (name for name in definitions if name not in before):
        if name in distinct:
            found.append(Difference(f'"{name}" is unique, and its default is not null', (f'Add("{name}", …)',)))
        elif name in filled:
            found.append(Difference(f'"{name}" is new, and stored items need its value', (f'Add("{name}")',)))
    for name, (type, required, *_) in after.items() if has_others else ():
        if name not in before and type != _ANY:
            found.append(Difference(f'stored items can have any value as "{name}"', ()))
        elif name in before and required and not before[name][1]:
            found.append(Difference(f'"{name}" is required, and stored items can be without it', ()))
    if has_others and not is_open:
        found.append(Difference("stored items can have fields that the schema does not name", ()))
    return found


def steps_for(found: Sequence[Difference]) -> list[str]:
    """The steps for these differences as lists in Python: with fields that have another name, and without."""
    lists = ([each.steps[choice] for each in found] for choice in (0, -1))
    return list(dict.fromkeys(f"[{', '.join(dict.fromkeys(steps))}]" for steps in lists))


def _compared(before: Mapping[str, Sequence[Any]], after: Mapping[str, Sequence[Any]]) -> Iterator[Difference]:
    new = {name: StoredField(*each) for name, each in after.items()}
    added = [name for name in new if name not in before]
    for name, each in before.items():
        field = StoredField(*each)
        if name in new:
            yield from _changed(name, field, new[name])
            continue
        reason = f'stored items have "{name}" ({field.type}), and the schema does not'
        remove = f'Remove("{name}", …)'
        if renamed := next((each for each in added if new[each].type == field.type), ""):
            added.remove(renamed)
            rename = f'Rename("{name}", "{renamed}")'
            yield Difference(reason, (rename, remove))
            if new[renamed].required:
                yield _added(renamed, rename)
        else:
            yield Difference(reason, (remove,))
    yield from (_added(name) for name in added if new[name].required)


def _added(name: str, *rename: str) -> Difference:
    return Difference(f'"{name}" is required, and stored items do not have it', (*rename, f'Add("{name}", …)'))


def _changed(name: str, before: StoredField, after: StoredField) -> Iterator[Difference]:
    steps = (f'Convert({{"{name}": …}}, ["{name}"], up=…, down=…)',)
    if before.type != after.type and (before.type, after.type) not in _WIDER and after.type != _ANY:
        common = (after.type, before.type) not in _WIDER and before.type != _ANY
        yield Difference(f'"{name}" is of type {after.type}, and in stored items of type {before.type}', steps, common)
    elif before.nullable and not after.nullable:
        yield Difference(f'"{name}" must not be null, and in stored items it can be', steps)
    elif before.inside is not None and after.inside is not None:
        for each in _compared(before.inside, after.inside):
            yield Difference(f'in "{name}", {each.reason}', steps, each.common)
