"""The evolution of a collection's items: the steps from one revision to the next, and what fits stored schemas.

    upgrades={2: [Rename("name", "title")], 3: [Add("weight"), Remove("colour", Text(load_default=None))]}

A step relates some fields of the older revision, `before`, to some fields of the newer one, `after`. All other fields
are the same in both. Every step works in both directions: up for stored items and for what callers of older versions
send, down for what those callers receive. Items are converted as the JSON texts of their members.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from hashlib import blake2b
from typing import Any

from marshmallow import ValidationError, fields, missing

from restkeeper import exactjson
from restkeeper.mistakes import position_of
from restkeeper.resources.step import Fields, Members, Step, Untranslatable
from restkeeper.schemas.fields import default_of
from restkeeper.schemas.item import READ_ONLY

_log = logging.getLogger("restkeeper")


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
        self.is_constant = default not in (missing, None)
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
    """The values of some fields became the values of other fields, by a pair of functions.

    `before` has the former fields with their definitions. `up` is called with their values, and returns the values of
    the fields `after`, in order; `down` is the reverse. For more than one field they return a tuple. `up` may raise
    marshmallow's ValidationError with the reason why a value has no equivalent. If `down` fails, or returns a value
    that the definition of a field does not allow, callers of older versions get the default of the field. When you
    change what the functions return, change `version`, too: ETags change with it.
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
            results = _listed(self._up(*values), self.after)
        except ValidationError as error:
            raise Untranslatable(self, ", ".join(map(str, error.messages))) from error
        except Exception as error:  # the function is of the service: whatever it raises is about these values
            raise Untranslatable(self) from error
        for wrong in exactjson.faults_in_values(results):
            raise Untranslatable(self, wrong["detail"])
        try:
            return _texts(self.after, results)
        except exactjson.EncodeError as error:
            raise Untranslatable(self, f"becomes what is no JSON: {error}") from error

    def down(self, texts: Members) -> Members:
        try:
            results = _listed(self._down(*[exactjson.decoded(texts[name]) for name in self.after]), self.before)
            for field, value in zip(self._definitions.values(), results, strict=True):
                field.deserialize(value)
            return _texts(self.before, results)
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
    declared: Any = definitions
    if not isinstance(declared, Mapping):
        raise ValueError(f"{step}: {declared!r}: say what the former fields were, as {{'stock': Text(required=True)}}")
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


def _listed(result: Any, names: Sequence[str]) -> list[Any]:
    """The values that a function returned for some fields: for more than one field it must be a tuple or a list."""
    if len(names) == 1:
        return [result]
    if not isinstance(result, tuple | list) or len(result) != len(names):
        raise TypeError(f"{len(names)} values are needed, for {', '.join(names)}; there is {result!r}")
    return list(result)


def _texts(names: Iterable[str], values: Iterable[Any]) -> Members:
    return {name: exactjson.dumps(value) for name, value in zip(names, values, strict=True)}


class Chain:
    """The steps from a revision of a collection's items to a later one.

    A field that a step removes is stored beside the item: in a JSON object, by the removing revision and its name.
    """

    def __init__(self, upgrades: Mapping[int, Sequence[Step]], first: int, last: int) -> None:
        """Raises ValueError for a field that is removed twice in one revision."""
        later = range(first + 1, last + 1)
        self.steps = [step for number in later for step in upgrades[number]]
        self._prefixes = [f"{number}." for number in later for _ in upgrades[number]]
        pairs = zip(self._prefixes, self.steps, strict=True)
        removed_fields = [(prefix, name) for prefix, step in pairs if not step.after for name in step.before]
        if twice := [name for prefix, name in removed_fields if removed_fields.count((prefix, name)) > 1]:
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
            if existing := [name for name in definitions if name in dict(rest)]:
                raise ValueError(f"{type(step).__name__}: there is a field {existing[0]!r} before this step already")
            defined = dict([*rest[:position], *definitions.items(), *rest[position:]])
        return defined

    def down(self, members: Members, removed_fields: bytes | None) -> Members:
        """An item of the later revision in the older one, with the object of the removed fields."""
        *_, item = self._descend(members, removed_fields)
        return item

    def up(
        self, members: Members, removed_fields: bytes | None, current: Members | None = None
    ) -> tuple[Members, bytes | None]:
        """An item of the older revision in the later one, and the object of the removed fields.

        With an item `current` of the later revision, the result is a change of it: if the fields of a step have the
        same values as `current` in the older revision, the values of `current` stay. Raises Untranslatable.
        """
        beside = dict(exactjson.cut(removed_fields)) if removed_fields else {}
        stages = [{}] * (len(self.steps) + 1) if current is None else [*self._descend(current, removed_fields)][::-1]
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
        """The fields of the older revision from which the fields before a step come."""
        names = list(step.before)
        for earlier in reversed(self.steps[: self.steps.index(step)]):
            origins = [earlier.before if name in earlier.after else (name,) for name in names]
            names = list(dict.fromkeys(name for origin in origins for name in origin))
        return tuple(names)

    def _descend(self, members: Members, removed_fields: bytes | None) -> Iterator[Members]:
        """An item in the later revision, and before each step, the last one first."""
        beside = exactjson.cut(removed_fields) if removed_fields else {}
        item = dict(members)
        yield item
        for prefix, step in zip(reversed(self._prefixes), reversed(self.steps), strict=True):
            item = dict(item)
            texts = step.down({name: item.pop(name) for name in step.after})
            item |= texts if step.after else {name: beside.get(prefix + name, text) for name, text in texts.items()}
            yield item
