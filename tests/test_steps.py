"""Steps between the revisions of a collection's items: every step and every chain of them converts without loss."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from marshmallow import ValidationError, fields

from restkeeper import Add, Convert, Index, ItemSchema, Money, Remove, Rename, Resource, Step, Text, Whole, exactjson
from restkeeper.errors import ValidationFailed
from restkeeper.features.versions.older import OlderView
from restkeeper.resources.views import StoredView, View
from restkeeper.schemas.item import READ_ONLY
from restkeeper.storage.interface import Record
from tests.shapes import JOBS, ORDERS
from tests.waiting import ANY_TIME

NOW, LATER = "2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z"


class BookSchema(ItemSchema):
    title = Text(1, 50, required=True)
    pages = Whole(0, 10_000, load_default=0)
    price = Money(load_default=None, allow_none=True)
    first = Text(0, 50, load_default="")
    last = Text(0, 50, load_default="")
    place = fields.Dict(load_default=dict)
    size = Text(3, 30, load_default="0 x 0")
    weight = Whole(0, 1000, load_default=7)
    copies = Whole(0, 1000, load_default=1)


def halves(name: str) -> tuple[str, str]:
    first, space, last = name.partition(" ")
    if not (first and last):
        raise ValidationError("must have two words")
    return first, last


def split(down: Callable[..., Any] = "{} {}".format, **options: Any) -> Convert:
    return Convert({"author": Text(1, 50, **(options or {"required": True}))}, ["first", "last"], halves, down)


COUNT = Text(0, 4, load_default="0")


def copies(field: Text = COUNT, down: Callable[[Any], Any] = str) -> Convert:
    return Convert({"copies": field}, ["copies"], int, down)


STEPS: dict[str, Step] = {
    "rename": Rename("name", "title"),
    "add": Add("weight", 3),
    "add with the default of the schema": Add("pages"),
    "remove": Remove("colour", Text(1, 20, load_default="red")),
    "another type": copies(Text(1, 4, required=True)),
    "one becomes two": split(),
    "two become one": Convert(
        {"width": Whole(0, 99, load_default=0), "height": Whole(0, 99, load_default=0)},
        ["size"],
        "{} x {}".format,
        lambda size: tuple(map(int, size.split(" x "))),
    ),
    "two move into an object": Convert(
        {"street": Text(0, 20, load_default=""), "town": Text(0, 20, load_default="")},
        ["place"],
        lambda street, town: {"street": street, "town": town},
        lambda place: (place.get("street", ""), place.get("town", "")),
    ),
    "other values": Convert(
        {"cents": Whole(0, 10**9, load_default=0)},
        ["price"],
        lambda cents: Decimal(cents) / 100,
        lambda price: int((price or 0) * 100),
    ),
}
CHAIN = [  # steps that change the same fields
    [Rename("writer", "author"), Remove("pages", Whole(0, 10_000, load_default=0))],
    [STEPS["one becomes two"], Rename("last", "family"), Add("pages", 5)],
    [Rename("family", "last"), Rename("cost", "copies"), STEPS["another type"]],
    [
        Convert({"copies": Whole(0, 1000, load_default=1)}, ["copies"], lambda n: n, lambda n: n),
        STEPS["two move into an object"],
    ],
]
chains = st.lists(st.sampled_from(list(STEPS)), unique=True).flatmap(
    lambda names: st.lists(st.integers(1, 3), min_size=len(names), max_size=len(names)).map(
        lambda numbers: [[STEPS[name] for name, k in zip(names, numbers, strict=True) if k == n] for n in (1, 2, 3)]
    )
)


class Books(NamedTuple):
    """The books after some revisions, and as callers of revision 1 know them."""

    newest: StoredView
    older: OlderView
    steps: list[Step]


def books(revisions: Sequence[Sequence[Step]]) -> Books:
    newest = StoredView(Resource("books", "book", BookSchema, upgrades=dict(enumerate(revisions, start=2))))
    return Books(newest, OlderView(newest, 1), [step for steps in revisions for step in steps])


def values(name: str, field: fields.Field[Any]) -> st.SearchStrategy[Any]:
    if name in ("author", "writer"):
        return st.builds("{} {}".format, st.text("ab", min_size=1, max_size=9), st.text("ab ", min_size=1, max_size=9))
    if name == "size":
        return st.builds("{} x {}".format, st.integers(0, 99), st.integers(0, 99))
    if isinstance(field, Whole):
        return st.integers(0, 99)
    if isinstance(field, Money):
        return st.decimals(0, 99, places=2)
    if isinstance(field, fields.Dict):
        return st.dictionaries(st.sampled_from(["street", "town", "floor"]), st.text("ab", max_size=3))
    return st.integers(0, 999).map(str) if name in ("copies", "cost") else st.text('abc é"\\', min_size=1, max_size=20)


@cache
def fields_of(schema: type[ItemSchema]) -> dict[str, st.SearchStrategy[Any]]:
    return {name: values(name, field) for name, field in schema().fields.items() if name not in READ_ONLY}


def items(schema: type[ItemSchema]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields_of(schema))


def some(schema: type[ItemSchema]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields_of(schema))


def shown(representation: View, record: Record) -> dict[str, Any]:
    item = exactjson.loads(representation.body(record))
    return {name: value for name, value in item.items() if name not in READ_ONLY}


def valid(representation: View, sent: dict[str, Any]) -> Record:
    """A new item; without one the example does not count."""
    try:
        return representation.new_record(sent, id="a", now=NOW)
    except ValidationFailed:
        reject()


REVISED = [books(revisions) for revisions in [*([[step]] for step in STEPS.values()), CHAIN]]
any_steps = st.one_of(st.sampled_from(REVISED), chains.map(books))


@ANY_TIME
@given(any_steps, st.data())
def test_what_an_older_version_writes_it_reads(revised: Books, data: st.DataObject) -> None:
    """A new item, and one that replaces another: whatever the steps, their order and their number in a revision."""
    older = revised.older
    first, second = data.draw(items(older.schema)), data.draw(items(older.schema))
    made = valid(older, first)
    assert shown(older, made) == first
    assert shown(older, older.replace(made, second, now=LATER)) == second


@ANY_TIME
@given(any_steps, st.data())
def test_two_versions_lose_nothing_of_each_other(revised: Books, data: st.DataObject) -> None:
    """A change by one version leaves all fields of the other that it has nothing to do with."""
    newest, older, steps = revised
    made = valid(older, data.draw(items(older.schema)))
    made = newest.replace(made, shown(newest, made) | data.draw(some(newest.schema)), now=NOW)
    name = data.draw(st.sampled_from(sorted(shown(older, made))))
    changed = older.merge(made, {name: data.draw(fields_of(older.schema)[name])}, now=LATER)
    assert without(shown(newest, changed), relatives({name}, steps)) == without(
        shown(newest, made), relatives({name}, steps)
    )
    assert without(shown(older, changed), {name}) == without(shown(older, made), {name})
    patch = data.draw(some(newest.schema))
    again = newest.merge(changed, patch, now=LATER)
    related = ancestors(set(patch), steps)
    assert without(shown(older, again), related) == without(shown(older, changed), related)


def without(item: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in names}


def ancestors(names: set[str], steps: Sequence[Step]) -> set[str]:
    """The fields of the first revision that some newest fields come from."""
    for step in reversed(steps):
        if names.intersection(step.after):
            names = names.difference(step.after).union(step.before)
    return names


def relatives(names: set[str], steps: Sequence[Step]) -> set[str]:
    """The newest fields that come from some fields of the first revision."""
    for step in steps:
        if names.intersection(step.before):
            names = names.difference(step.before).union(step.after)
    return names


NEEDS_DEFAULT = "Remove('colour'): newer items do not have the field, so it needs a default"
IN_ORDER = "books: upgrades are of the revisions 2, 3 …, each once and in this order"
NO_STEPS: list[tuple[Callable[[], object], str]] = [
    (lambda: Rename("version", "a"), "Rename: 'version' is set by the service and never changes"),
    (lambda: Add("a", {1}), "Add('a'): the default {1} is no JSON: "),
    (lambda: Convert(["a"], ["b"], str, str), "Convert: ['a']: say what the former fields were, as {'stock': Te"),  # type: ignore[arg-type]
    (lambda: Convert({"a": Text()}, ["b", "b"], halves, halves), "Convert: ['b', 'b'] must be names"),
    (lambda: Convert({"a": Text()}, ["a"], "x", str), "Convert(a): up and down are functions"),  # type: ignore[arg-type]
    (lambda: Remove("a", Text), "Remove: 'a' needs a definition such as Text(), not "),  # type: ignore[arg-type]
    (lambda: Remove("a", Whole(), "x"), "Remove('a'): the field does not allow the default 'x': "),
    (lambda: Remove("colour", Text(required=True)), NEEDS_DEFAULT),
]
NO_UPGRADES: list[tuple[dict[int, list[Step]], str]] = [
    ({2: [Rename("name", "titel")]}, "books: upgrades: Rename: there is no field 'titel' after this step"),
    ({2: [Rename("pages", "title")]}, "books: upgrades: Rename: there is a field 'pages' before this step already"),
    ({2: [Add("title")]}, "books: upgrades: Add('title'): the field is required, so older items need a default"),
    ({2: [Add("title", 7)]}, "books: upgrades: Add('title'): the field does not allow the default 7: "),
    ({2: [STEPS["remove"], Rename("b", "colour"), STEPS["remove"]]}, "books: upgrades: Remove('colour'): is there tw"),
    ({2: [copies(Text())]}, "books.copies: say required=True or what load_default is"),
    ({2: [Add("title", "x")]}, "books: upgrades: Add('title'): older items cannot all have one unique value"),
    ({2: [], 4: []}, IN_ORDER),
]


@pytest.mark.parametrize(
    ("field", "default"),
    [
        (Whole(0, dump_only=True, dump_default=3), 3),
        (Whole(0, dump_only=True, allow_none=True), None),
        (Text(dump_only=True, dump_default=lambda: "x", load_default="y"), "x"),
    ],
)
def test_a_removed_field_that_nobody_could_set_has_its_default(field: fields.Field[Any], default: Any) -> None:
    """It is written in the step as it was in the schema."""
    newest, older, _ = books([[Remove("colour", field)]])
    made = newest.new_record({"title": "x"}, id="a", now=NOW)
    assert shown(older, made)["colour"] == default and "colour" not in shown(newest, made)


def message_of(declare: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as caught:
        declare()
    return str(caught.value)


def test_what_cannot_be_is_refused() -> None:
    for declare, message in NO_STEPS:
        assert message_of(declare)[: len(message)] == message
    unique = (Index("title", unique=True),)
    for upgrades, message in NO_UPGRADES:
        found = message_of(lambda steps=upgrades: Resource("books", "book", BookSchema, unique, upgrades=steps))
        assert found[: len(message)] == message


def cannot(*values: Any) -> Any:
    raise ZeroDivisionError


TWO = {"a": Text(load_default="-"), "b": Text(load_default="-")}
WRONG: dict[str, tuple[Step, dict[str, Any], str, Any]] = {
    "it fails": (split(cannot, load_default="-"), {"first": "a"}, "author", "-"),
    "too few values": (Convert(TWO, ["size"], cannot, lambda size: "x"), {}, "a", "-"),
    "a value of another type": (copies(down=lambda copies: copies), {"copies": 3}, "copies", "0"),
    "too long": (Convert({"title": Text(1, 3, required=True)}, ["title"], str, str), {"title": "abcd"}, "title", None),
    "no JSON": (copies(down=lambda copies: {1}), {}, "copies", "0"),
    "a member of another type": (STEPS["two move into an object"], {"place": {"town": 5}}, "town", ""),
}


@pytest.mark.parametrize(("step", "fields", "name", "value"), WRONG.values(), ids=WRONG)
def test_what_an_older_version_cannot_have_is_the_default(
    step: Step, fields: dict[str, Any], name: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Null where there is none. A change of another field leaves the item as it is; the first error is logged."""
    newest, older, _ = books([[step]])
    made = newest.new_record({"title": "x", **fields}, id="a", now=NOW)
    for _ in range(2):
        assert shown(older, made)[name] == value
    assert len(caplog.records) <= 1
    if value is not None:
        changed = older.merge(made, {"weight": 9}, now=LATER)
        assert shown(newest, changed) == shown(newest, made) | {"weight": 9}


def test_an_older_view_has_the_rules_of_its_own_fields() -> None:
    """The name of a private field, and of one that not all can set, was that of another one once."""
    for declared, name, rules, scope in (
        (ORDERS, "secret", "private", "orders:secrets"),
        (JOBS, "grade", "guarded", "jobs:grade"),
    ):
        steps: dict[int, list[Step]] = {2: [Remove(name, Text(load_default=""))], 3: [Add(name)]}
        newest = StoredView(replace(declared, upgrades=steps))
        older = OlderView(newest, 1)
        assert (getattr(newest, rules), getattr(older, rules)) == (((name, scope),), set())
        newest.changed_at = NOW
        assert older.changed_at == NOW
