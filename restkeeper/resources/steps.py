"""Steps from one revision of a collection's items to the next: what became of a field.

    upgrades={2: [Rename("name", "title")], 3: [Add("weight"), Remove("colour", Text(load_default=None))]}

A step relates some fields of the older revision, `before`, to some fields of the newer one, `after`. All other fields
are the same in both. Every step works in both directions: up for stored items and for what callers of older versions
send, down for what those callers receive. Items are converted as the JSON texts of their members.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from marshmallow import fields, missing

from restkeeper.storage.contract import Op
from restkeeper.web import exactjson

Fields = Mapping[str, fields.Field[Any]]
Members = Mapping[str, exactjson.Buffer]  # an item, or a part of it, as the JSON texts of its members

EQUALITY = (Op.EQ, Op.NE, Op.IN)  # the comparisons that do not depend on the order of values


class Step:
    """Base of all steps. Its subclasses set `before` and `after`."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    is_additive = False  # whether code of the older revision can work with items of the newer one
    operators: tuple[Op, ...] = ()  # the comparisons with `before` that are possible with `after`, by `value`

    def definitions(self, newer: Fields) -> Fields:
        """The definitions of the fields `before`, given those of the newer revision."""
        raise NotImplementedError

    def up(self, texts: Members, current: Members) -> Members:
        """The texts of the fields `after`; `current` has those of an item that is changed, and otherwise none.

        Raises ValueError, with the reason, for values that have no equivalent in the newer revision.
        """
        raise NotImplementedError

    def down(self, texts: Members) -> Members:
        """The texts of the fields `before`."""
        raise NotImplementedError

    def value(self, value: Any) -> Any:
        """The value of the field `after` for one of `before`, in a comparison. Raises ValueError."""
        return value


class Rename(Step):
    """The field `before` has the name `after` now."""

    operators = tuple(Op)

    def __init__(self, before: str, after: str) -> None:
        self.before, self.after = (before,), (after,)

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
        self.after = (name,)
        self._texts = {} if default is missing else {name: exactjson.dumps(default)}

    def definitions(self, newer: Fields) -> Fields:
        name = self.after[0]
        if newer[name].required and not self._texts:
            raise ValueError(f"Add({name!r}): the field is required, so older items need a default")
        return {}

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
        default = field.load_default if default is missing else default
        if default is missing:
            raise ValueError(f"Remove({name!r}): newer items do not have the field, so it needs a default")
        self.before = (name,)
        self._field = field
        self._texts = {name: exactjson.dumps(default() if callable(default) else default)}

    def definitions(self, newer: Fields) -> Fields:
        return {self.before[0]: self._field}

    def up(self, texts: Members, current: Members) -> Members:
        return {}

    def down(self, texts: Members) -> Members:
        return self._texts


class Convert(Step):
    """The values of some fields became those of others, by a pair of functions.

    `before` has the former fields with their definitions. `up` is called with their values, and returns those of the
    fields `after`, in order; `down` is the reverse. For more than one field they return a tuple. `up` may raise
    ValueError with the reason why a value has no equivalent.
    """

    def __init__(self, before: Fields, after: Sequence[str], up: Callable[..., Any], down: Callable[..., Any]) -> None:
        self.before, self.after = tuple(before), tuple(after)
        self._fields, self._up, self._down = before, up, down

    def definitions(self, newer: Fields) -> Fields:
        return self._fields

    def up(self, texts: Members, current: Members) -> Members:
        return _called(self._up, [texts[name] for name in self.before], self.after)

    def down(self, texts: Members) -> Members:
        return _called(self._down, [texts[name] for name in self.after], self.before)


class Retype(Convert):
    """The field `name`, which was defined as `field`, has another type now: see Convert."""

    operators = EQUALITY

    def __init__(
        self, name: str, field: fields.Field[Any], *, up: Callable[[Any], Any], down: Callable[[Any], Any]
    ) -> None:
        super().__init__({name: field}, [name], up, down)

    def value(self, value: Any) -> Any:
        return self._up(value)


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
        self.before, self.after = tuple(before), (into,)
        self._fields = before

    def definitions(self, newer: Fields) -> Fields:
        return self._fields

    def up(self, texts: Members, current: Members) -> Members:
        """The other members of the object stay."""
        into = self.after[0]
        value = (exactjson.stored(current[into]) if into in current else None) or {}
        return {into: exactjson.dumps(value | {name: exactjson.stored(text) for name, text in texts.items()})}

    def down(self, texts: Members) -> Members:
        value = exactjson.stored(texts[self.after[0]]) or {}
        return {name: exactjson.dumps(value.get(name, _default_of(self._fields[name]))) for name in self.before}


def _called(convert: Callable[..., Any], texts: Sequence[exactjson.Buffer], names: Sequence[str]) -> Members:
    """The texts of what a function returns for the values of these texts."""
    returned = convert(*map(exactjson.stored, texts))
    values = [returned] if len(names) == 1 else returned
    return {name: exactjson.dumps(value) for name, value in zip(names, values, strict=True)}


def _default_of(field: fields.Field[Any]) -> Any:
    default = None if field.load_default is missing else field.load_default
    return default() if callable(default) else default


class Untranslatable(Exception):
    """Values of these fields, of the older revision of a step, have no equivalent in the newer one, for this reason."""

    def __init__(self, number: int, names: Sequence[str], reason: str) -> None:
        super().__init__(reason)
        self.number, self.names, self.reason = number, names, reason


class Chain:
    """The steps from a revision of a collection's items to its newest one.

    A field that a step removes is stored beside the item: in a JSON object, by the revision that removed it and its
    name.
    """

    def __init__(self, upgrades: Mapping[int, Sequence[Step]], revision: int) -> None:
        later = sorted(number for number in upgrades if number > revision)
        self.steps = [step for number in later for step in upgrades[number]]
        self._homes = [f"{number}." for number in later for _ in upgrades[number]]

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
        homes = dict(exactjson.cut(older)) if older else {}
        levels = [{}] * (len(self.steps) + 1) if current is None else [*self._descend(current, older)][::-1]
        item = dict(members)
        for number, step in enumerate(self.steps):
            texts = {name: item.pop(name) for name in step.before}
            if not step.after:
                homes |= {self._homes[number] + name: text for name, text in texts.items()}
            elif levels[number] and all(equal(text, levels[number][name]) for name, text in texts.items()):
                item |= {name: levels[number + 1][name] for name in step.after}
            else:
                present = levels[number + 1]
                item |= self._up(number, texts, {name: present[name] for name in step.after if name in present})
        return item, exactjson.joined(homes) if homes else None

    def _up(self, number: int, texts: Members, current: Members) -> Members:
        step = self.steps[number]
        try:
            return step.up(texts, current)
        except (ValueError, TypeError, LookupError, ArithmeticError, exactjson.EncodeError) as error:
            raise Untranslatable(number, step.before, str(error)) from error

    def _descend(self, members: Members, older: bytes | None) -> Iterator[Members]:
        """An item in the newest revision, and before each step, the last one first."""
        homes = exactjson.cut(older) if older else {}
        item = dict(members)
        yield item
        for home, step in zip(reversed(self._homes), reversed(self.steps), strict=True):
            item = dict(item)
            found = step.down({name: item.pop(name) for name in step.after})
            item |= found if step.after else {name: homes.get(home + name, text) for name, text in found.items()}
            yield item


def equal(one: exactjson.Buffer, other: exactjson.Buffer) -> bool:
    """Whether two JSON texts have equal values: true is not 1, and the order of an object's names does not matter."""
    one, other = bytes(one), bytes(other)
    if one == other:
        return True
    return exactjson.dumps(exactjson.stored(one), sort=True) == exactjson.dumps(exactjson.stored(other), sort=True)
