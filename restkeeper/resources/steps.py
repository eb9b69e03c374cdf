"""Steps from one revision of a collection's items to the next: what became of a field.

    upgrades={2: [Rename("name", "title")], 3: [Add("weight"), Remove("colour", Text(load_default=None))]}

A step relates some fields of the older revision, `before`, to some fields of the newer one, `after`. All other fields
are the same in both. Every step works in both directions: up for stored items and for what callers of older versions
send, down for what those callers receive. Items are converted as the JSON texts of their members.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from types import CodeType
from typing import Any

from marshmallow import ValidationError, fields, missing

from restkeeper.schemas.fields import default_of
from restkeeper.schemas.item import READ_ONLY
from restkeeper.storage.contract import Op
from restkeeper.web import exactjson

_log = logging.getLogger("restkeeper")

Fields = Mapping[str, fields.Field[Any]]
Members = Mapping[str, exactjson.Buffer]  # an item, or a part of it, as the JSON texts of its members

NO_EQUIVALENT = "has no equivalent in newer versions"
EQUALITY = (Op.EQ, Op.NE, Op.IN)  # the comparisons that do not depend on the order of values


class Step:
    """Base of all steps. Its subclasses set `before` and `after`."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    is_additive = False  # whether code of the older revision can work with items of the newer one
    operators: tuple[Op, ...] = ()  # the comparisons with `before` that are possible with `after`, by `value`

    def definitions(self, newer: Fields) -> Fields:
        """The definitions of the fields `before`, given those of the newer revision. Raises ValueError."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """A text that changes with what the step does."""
        return repr((type(self).__name__, self.before, self.after))

    def up(self, texts: Members, current: Members) -> Members:
        """The texts of the fields `after`; `current` has those of an item that is changed, and otherwise none.

        Raises Untranslatable.
        """
        raise NotImplementedError

    def down(self, texts: Members) -> Members:
        """The texts of the fields `before`."""
        raise NotImplementedError

    def value(self, value: Any) -> Any:
        """The value of the field `after` for one of `before`, in a comparison. Raises Untranslatable."""
        return value


class Rename(Step):
    """The field `before` has the name `after` now."""

    operators = tuple(Op)

    def __init__(self, before: str, after: str) -> None:
        self.before, self.after = _names("Rename", [before]), _names("Rename", [after])

    def definitions(self, newer: Fields) -> Fields:
        return {self.before[0]: newer[self.after[0]]}

    def up(self, texts: Members, current: Members) -> Members:
        return {self.after[0]: texts[self.before[0]]}

    def down(self, texts: Members) -> Members:
        return {self.before[0]: texts[self.after[0]]}


class Add(Step):
    """There is a new field. An older item gets `default`, or else the `load_default` of the schema."""

    is_additive = True

    def __init__(self, name: str, default: Any = missing) -> None:
        self.after = _names("Add", [name])
        self._default = default
        self._texts = {} if default is missing else {name: exactjson.dumps(default)}

    def definitions(self, newer: Fields) -> Fields:
        name = self.after[0]
        if newer[name].required and not self._texts:
            raise ValueError(f"Add({name!r}): the field is required, so older items need a default")
        if self._texts:
            _require_valid(f"Add({name!r})", newer[name], self._default)
        return {}

    @property
    def is_constant(self) -> bool:
        """Whether all older items get the same value, which is not null."""
        return self._default not in (missing, None)

    @property
    def fingerprint(self) -> str:
        return f"{super().fingerprint} {self._texts}"

    def up(self, texts: Members, current: Members) -> Members:
        return self._texts

    def down(self, texts: Members) -> Members:
        return {}


class Remove(Step):
    """The field `name`, which was defined as `field`, is gone.

    Callers of older versions read and write it as before: its value is stored beside the item. An item that was created
    without one has `default`, or else the `load_default` of the field.
    """

    def __init__(self, name: str, field: fields.Field[Any], default: Any = missing) -> None:
        self.before = _names("Remove", [name])
        _require_fields("Remove", {name: field})
        if default is missing and field.load_default is missing:
            raise ValueError(f"Remove({name!r}): newer items do not have the field, so it needs a default")
        value = default_of(field) if default is missing else default
        _require_valid(f"Remove({name!r})", field, value)
        self._field = field
        self._texts = {name: exactjson.dumps(value)}

    def definitions(self, newer: Fields) -> Fields:
        return {self.before[0]: self._field}

    @property
    def fingerprint(self) -> str:
        return f"{super().fingerprint} {self._texts}"

    def up(self, texts: Members, current: Members) -> Members:
        return {}

    def down(self, texts: Members) -> Members:
        return self._texts


class Convert(Step):
    """The values of some fields became those of others, by a pair of functions.

    `before` has the former fields with their definitions. `up` is called with their values, and returns those of the
    fields `after`, in order; `down` is the reverse. For more than one field they return a tuple. `up` may raise
    marshmallow's ValidationError with the reason why a value has no equivalent. If `down` fails, or returns what the
    definition of a field does not allow, callers of older versions get the default of the field.
    """

    def __init__(self, before: Fields, after: Sequence[str], up: Callable[..., Any], down: Callable[..., Any]) -> None:
        what = type(self).__name__
        self.before, self.after = _names(what, before), _names(what, after)
        if not (callable(up) and callable(down)):
            raise ValueError(f"{what}({', '.join(self.before)}): up and down are functions")
        self._older = _OlderFields(_require_fields(what, before))
        self._up, self._down = up, down

    @property
    def fingerprint(self) -> str:
        return f"{super().fingerprint} {_code_of(self._up)} {_code_of(self._down)}"

    def definitions(self, newer: Fields) -> Fields:
        return self._older.definitions

    def up(self, texts: Members, current: Members) -> Members:
        values = self._upgraded([exactjson.stored(texts[name]) for name in self.before])
        for wrong in exactjson.faults_in_values(list(values)):
            raise Untranslatable(self, wrong["detail"])
        try:
            return _texts(self.after, values)
        except exactjson.EncodeError as error:
            raise Untranslatable(self, f"becomes what is no JSON: {error}") from error

    def _upgraded(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values of the fields `after` for those of `before`. Raises Untranslatable."""
        try:
            return _listed(self._up(*values), self.after)
        except ValidationError as error:
            raise Untranslatable(self, ", ".join(map(str, error.messages))) from error
        except Exception as error:  # the function is of the service: whatever it raises is about these values
            raise Untranslatable(self) from error

    def down(self, texts: Members) -> Members:
        try:
            found = self._down(*[exactjson.stored(texts[name]) for name in self.after])
            return self._older.texts(dict(zip(self.before, _listed(found, self.before), strict=True)))
        except Exception as error:  # likewise: one item must not end a whole list
            return self._older.defaults_after(error)


class Retype(Convert):
    """The field `name`, which was defined as `field`, has another type now: see Convert.

    It is `exact` if `up` and `down` are the inverse of each other for all values; then callers of older versions can
    filter by it.
    """

    def __init__(
        self,
        name: str,
        field: fields.Field[Any],
        *,
        up: Callable[[Any], Any],
        down: Callable[[Any], Any],
        exact: bool = False,
    ) -> None:
        super().__init__({name: field}, [name], up, down)
        self.operators = EQUALITY if exact else ()

    def value(self, value: Any) -> Any:
        (newer,) = self._upgraded([value])
        if self._down(newer) != value:
            raise Untranslatable(self)
        return newer


class Split(Convert):
    """The field `name`, which was defined as `field`, became the fields `into`: see Convert."""

    def __init__(
        self,
        name: str,
        field: fields.Field[Any],
        *,
        into: Sequence[str],
        up: Callable[[Any], Sequence[Any]],
        down: Callable[..., Any],
    ) -> None:
        super().__init__({name: field}, into, up, down)


class Merge(Convert):
    """Some fields, given with their definitions, became the field `into`: see Convert."""

    def __init__(
        self, before: Fields, *, into: str, up: Callable[..., Any], down: Callable[[Any], Sequence[Any]]
    ) -> None:
        super().__init__(before, [into], up, down)


class Move(Step):
    """Some fields, given with their definitions, are members of the object `into` now."""

    def __init__(self, before: Fields, *, into: str) -> None:
        self.before, self.after = _names("Move", before), _names("Move", [into])
        self._older = _OlderFields(_require_fields("Move", before))

    def definitions(self, newer: Fields) -> Fields:
        return self._older.definitions

    def up(self, texts: Members, current: Members) -> Members:
        """The other members of the object stay."""
        into = self.after[0]
        value = exactjson.stored(current[into]) if into in current else {}
        value = value if isinstance(value, dict) else {}
        return {into: exactjson.dumps(value | {name: exactjson.stored(text) for name, text in texts.items()})}

    def down(self, texts: Members) -> Members:
        value = exactjson.stored(texts[self.after[0]])
        members = value if isinstance(value, dict) else {}
        try:
            return {**self._older.defaults, **self._older.texts({n: members[n] for n in self.before if n in members})}
        except ValidationError as error:
            return self._older.defaults_after(error)


class _OlderFields:
    """The fields of the older revision that a step converts to."""

    def __init__(self, definitions: Fields) -> None:
        self.definitions = definitions
        self._has_failed = False

    @cached_property
    def defaults(self) -> Members:
        """The texts of their defaults; null where there is none."""
        return _texts(self.definitions, map(default_of, self.definitions.values()))

    def texts(self, values: Mapping[str, Any]) -> Members:
        """The texts of values. Raises ValidationError if a definition does not allow one."""
        for name, value in values.items():
            self.definitions[name].deserialize(value)
        return _texts(values, values.values())

    def defaults_after(self, error: Exception) -> Members:
        """The defaults, for an item that the older revision cannot have; the first such error is logged."""
        if not self._has_failed:
            self._has_failed = True
            names = ", ".join(self.definitions)
            _log.warning("an item has no equivalent for %s in older versions: %s", names, error, exc_info=error)
        return self.defaults


def _removed(step: Step) -> tuple[str, ...]:
    return () if step.after else step.before


def _names(step: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names of a step. Raises ValueError for what cannot be names of fields."""
    listed = () if isinstance(names, str) else tuple(names)
    if not listed or not all(isinstance(name, str) for name in listed) or len(set(listed)) < len(listed):
        raise ValueError(f"{step}: {names!r} must be names of fields, each once")
    if wrong := [name for name in listed if name in READ_ONLY]:
        raise ValueError(f"{step}: {wrong[0]!r} is set by the service and never changes")
    return listed


def _require_fields(step: str, definitions: Fields) -> Fields:
    """Raises ValueError for what is no definition of a field."""
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


def _code_of(function: Callable[..., Any]) -> str:
    """A text that changes with the code of a function, and not from process to process."""
    code = getattr(function, "__code__", None)
    return repr(getattr(function, "__qualname__", type(function))) if code is None else _text_of(code)


def _text_of(code: CodeType) -> str:
    inner = [_text_of(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return repr((code.co_code, inner, code.co_names))


def _texts(names: Iterable[str], values: Iterable[Any]) -> Members:
    return {name: exactjson.dumps(value) for name, value in zip(names, values, strict=True)}


class Untranslatable(Exception):
    """Values of the fields `before` of a step have no equivalent in the newer revision, for this reason.

    `others` is what `Chain.up` made of the other fields, and `lost` are the fields of the newest revision without
    a value.
    """

    others: tuple[Members, bytes | None] = {}, None
    lost: Set[str] = frozenset()

    def __init__(self, step: Step, reason: str = NO_EQUIVALENT) -> None:
        super().__init__(reason)
        self.step, self.reason = step, reason


class Chain:
    """The steps from a revision of a collection's items to its newest one.

    A field that a step removes is stored beside the item: in a JSON object, by the revision that removed it and its
    name.
    """

    def __init__(self, upgrades: Mapping[int, Sequence[Step]], revision: int) -> None:
        later = sorted(number for number in upgrades if number > revision)
        self.steps = [step for number in later for step in upgrades[number]]
        self.revisions = [number for number in later for _ in upgrades[number]]  # that the steps lead to
        self._prefixes = [f"{number}." for number in self.revisions]
        pairs = zip(self._prefixes, self.steps, strict=True)
        stored = [(prefix, name) for prefix, step in pairs for name in _removed(step)]
        if twice := [name for prefix, name in stored if stored.count((prefix, name)) > 1]:
            raise ValueError(f"Remove({twice[0]!r}): is there twice in one revision")

    @property
    def fingerprint(self) -> str:
        """A text that changes with what the steps do."""
        return blake2b("\n".join([step.fingerprint for step in self.steps]).encode(), digest_size=4).hexdigest()

    def definitions(self, newest: Fields) -> Fields:
        """The definitions of the fields in the older revision. Raises ValueError for steps that do not fit."""
        defined = dict(newest)
        for step in reversed(self.steps):
            if absent := [name for name in step.after if name not in defined]:
                raise ValueError(f"{type(step).__name__}: there is no field {absent[0]!r} after this step")
            definitions = step.definitions(defined)
            place = next((n for n, name in enumerate(defined) if name in step.after), len(defined))
            rest = [(name, field) for name, field in defined.items() if name not in step.after]
            if taken := [name for name in definitions if name in dict(rest)]:
                raise ValueError(f"{type(step).__name__}: there is a field {taken[0]!r} before this step already")
            defined = dict([*rest[:place], *definitions.items(), *rest[place:]])
        return defined

    def down(self, members: Members, older: bytes | None) -> Members:
        """An item of the newest revision in the older one. `older` is the object of the removed fields."""
        *_, item = self._descend(members, older)
        return item

    def up(self, members: Members, older: bytes | None, current: Members | None) -> tuple[Members, bytes | None]:
        """An item of the older revision in the newest one, and the object of the removed fields.

        It changes the item `current` of the newest revision, if given: where the fields of a step have the values that
        `current` has in the older revision, `current` has those in the newer one. Raises Untranslatable.
        """
        removed = dict(exactjson.cut(older)) if older else {}
        stages = [{}] * (len(self.steps) + 1) if current is None else [*self._descend(current, older)][::-1]
        item, lost, failure = dict(members), set[str](), None
        for number, step in enumerate(self.steps):
            texts = {name: item.pop(name) for name in step.before if name in item}
            if not lost.isdisjoint(step.before):
                lost = lost.difference(step.before).union(step.after)
            elif not step.after:
                removed |= {self._prefixes[number] + name: text for name, text in texts.items()}
            elif stages[number] and all(exactjson.equal(text, stages[number][name]) for name, text in texts.items()):
                item |= {name: stages[number + 1][name] for name in step.after}
            else:
                present = stages[number + 1]
                try:
                    item |= step.up(texts, {name: present[name] for name in step.after if name in present})
                except Untranslatable as error:
                    failure = failure or error
                    lost.update(step.after)
        older = exactjson.joined(removed) if removed else None
        if failure:
            failure.others, failure.lost = (item, older), lost
            raise failure
        return item, older

    def origins(self, step: Step) -> tuple[str, ...]:
        """The fields of the older revision that those before a step come from."""
        names = step.before
        for earlier in reversed(self.steps[: self.steps.index(step)]):
            before = [earlier.before if name in earlier.after else (name,) for name in names]
            names = tuple(dict.fromkeys(chain.from_iterable(before)))
        return names

    def _descend(self, members: Members, older: bytes | None) -> Iterator[Members]:
        """An item in the newest revision, and before each step, the last one first."""
        removed = exactjson.cut(older) if older else {}
        item = dict(members)
        yield item
        for prefix, step in zip(reversed(self._prefixes), reversed(self.steps), strict=True):
            item = dict(item)
            found = step.down({name: item.pop(name) for name in step.after})
            item |= found if step.after else {name: removed.get(prefix + name, text) for name, text in found.items()}
            yield item
