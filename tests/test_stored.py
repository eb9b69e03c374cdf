"""Stored items after a change of their schema: what they do not fit is named at the start, with the steps to write."""

from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from marshmallow import Schema, fields, validate

from restkeeper.resources.evolution import Add, Convert, Remove, Rename
from restkeeper.resources.resource import Resource
from restkeeper.schemas.fields import Lifecycle, ListOf, Money, Status, Text, Whole
from restkeeper.schemas.item import ItemSchema
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Index
from tests.programs import Programs, resource
from tests.recorder import next_of

TITLE = Text(1, 50, required=True)
COLOUR = Text(load_default="red")
BEFORE = {"title": TITLE, "count": Whole(load_default=0), "note": Text(load_default=None, allow_none=True)}


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def without(*names: str, **more: Any) -> dict[str, Any]:
    return {name: field for name, field in BEFORE.items() if name not in names} | more


INCOMPATIBLE = {
    "a new required field": (
        without(weight=Whole(required=True)),
        '"weight" is required, and stored items do not have it',
        'NOTES = {2: [Add("weight", …)]}',
    ),
    "a removed field, and a new one of the same type": (
        without("title", name=TITLE),
        'stored items have "title" (string), and the schema does not; "name" is required',
        'NOTES = {2: [Rename("title", "name")]} or NOTES = {2: [Remove("title", …), Add("name", …)]}',
    ),
    "a removed field, and a new optional one": (
        without("title", name=COLOUR),
        'stored items have "title"',
        'NOTES = {2: [Rename("title", "name")]} or NOTES = {2: [Remove("title", …)]}',
    ),
    "another type": (
        without(count=Text(load_default="0")),
        '"count" is of type string, and in stored items of type integer',
        'NOTES = {2: [Convert({"count": …}, ["count"], up=…, down=…)]}',
    ),
    "no longer nullable": (
        without(note=COLOUR),
        '"note" must not be null, and in stored items it can be',
        'NOTES = {2: [Convert({"note": …}, ["note"], up=…, down=…)]}',
    ),
    "two of them": (
        without("count", weight=Money(required=True)),
        'stored items have "count" (integer), and the schema does not; "weight" is required',
        'NOTES = {2: [Remove("count", …), Add("weight", …)]}',
    ),
}


@pytest.mark.parametrize(("after", "reason", "steps"), INCOMPATIBLE.values(), ids=INCOMPATIBLE)
def test_a_start_names_what_stored_items_do_not_fit(
    programs: Programs, after: dict[str, Any], reason: str, steps: str
) -> None:
    """The collection, the field, what stored items have, and the line to write. A command says the same in a line."""
    client = programs.start(resource(BEFORE))
    where = client.post("/notes", json={"title": "x"}).headers["Location"]
    with pytest.raises(StoreUnavailable) as caught:
        programs.start(resource(after))
    assert "notes: " in caught.value.detail and "storage/upgrades.py" in caught.value.detail
    assert reason in caught.value.detail and caught.value.detail.endswith(
        f"{steps}, and upgrades=NOTES in resources/notes.py"
    )
    for command in ("migrate", "export"):
        result = programs.run(resource(after), command, *["notes"] * (command == "export"))
        assert result.exit_code == 1 and len(result.stderr.splitlines()) == 1 and steps in result.stderr
    assert client.get(where).json["title"] == "x"


COMPATIBLE = {
    "the same": BEFORE,
    "a new optional field": without(colour=COLOUR),
    "another order": dict(reversed(BEFORE.items())),
    "other bounds": without(title=Text(0, 10, required=True)),
    "another default": without(count=Whole(load_default=9)),
    "required now": without(count=Whole(required=True)),
    "optional now": without(title=COLOUR),
    "nullable now": without(title=Text(required=True, allow_none=True)),
    "a wider type": without(count=Money(load_default=0)),
    "any value": without(count=fields.Raw(load_default=0)),
}


@pytest.mark.parametrize("after", COMPATIBLE.values(), ids=COMPATIBLE)
def test_a_compatible_change_needs_nothing(programs: Programs, after: dict[str, Any]) -> None:
    """A stored item is returned with exactly the fields of the schema."""
    where = programs.start(resource(BEFORE)).post("/notes", json={"title": "x", "count": 5}).headers["Location"]
    item = programs.start(resource(after)).get(where).json
    assert item.keys() == {*after, "id", "created_at", "updated_at", "version"}
    assert (item["title"], item["count"]) == ("x", 5)


def test_each_schema_with_items_is_compared(programs: Programs) -> None:
    """An item from before a field was optional, and then required, does not have it, until a step gives it that."""
    programs.start(resource({"title": TITLE}, events=False)).post("/notes", json={"title": "x"})
    optional = {"title": TITLE, "colour": COLOUR}
    programs.start(resource(optional, events=False)).post("/notes", json={"title": "y"})
    required = {"title": TITLE, "colour": Text(required=True)}
    with pytest.raises(StoreUnavailable, match='"colour" is required'):
        programs.start(resource(required, events=False))
    given = Convert({"colour": COLOUR}, ["colour"], up=str, down=str)
    items = programs.start(resource(required, given, events=False)).get("/notes").json
    assert [each["colour"] for each in items] == ["red", "red"]


@pytest.mark.parametrize("events", [False, pytest.param(True, marks=pytest.mark.needs("events"))])
def test_a_collection_without_items_and_events_can_change_freely(programs: Programs, events: bool) -> None:
    """For prototypes. An event of a deleted item is not of the next schema either."""
    client = programs.start(resource(BEFORE, events=events))
    client.delete(client.post("/notes", json={"title": "x"}).headers["Location"])
    with pytest.raises(StoreUnavailable, match='stored items have "title"') if events else nullcontext():
        programs.start(resource(without("title", weight=Whole(required=True))))


def test_a_state_that_is_gone_can_be_left(programs: Programs) -> None:
    """The item keeps it until it is changed; then any state can follow, as nothing says which. So with other values."""
    states = {"draft": ("open",), "open": ("done",), "done": ()}

    def definitions(*gone: str) -> dict[str, Any]:
        left = {old: tuple(new for new in moves if new not in gone) for old, moves in states.items() if old not in gone}
        sizes = validate.OneOf([each for each in "sm" if each not in gone])
        return {"status": Status(Lifecycle("done", left)), "size": Text(load_default="m", validate=(sizes,))}

    before, all_states = programs.start(resource(definitions())), [("draft", "s"), ("open", "s"), ("done", "s")]
    made = [before.post("/notes", json={"status": status, "size": size}) for status, size in all_states]
    first, second, third = (each.headers["Location"] for each in made)
    client = programs.start(resource(definitions("draft", "s")))
    assert [(each["status"], each["size"]) for each in client.get("/notes").json] == all_states
    refused = client.patch(first, json={})
    assert refused.status_code == 422
    assert {each["pointer"] for each in refused.json["errors"]} == {"#/status", "#/size"}
    for where in (first, second):
        mended = client.patch(where, json={"status": "done", "size": "m"})
        assert (mended.status_code, mended.json["status"]) == (200, "done")
    assert client.patch(third, json={"status": "open", "size": "m"}).status_code == 409


def test_steps_that_do_not_lead_to_the_schema_are_refused(programs: Programs) -> None:
    """The older revision, as the steps define it, is compared with the stored one."""
    programs.start(resource(BEFORE)).post("/notes", json={"title": "x"})
    after = without("title", name=TITLE)
    with pytest.raises(StoreUnavailable, match=r'have "title" .*\{2: \[Rename\("title", "label"\)'):
        programs.start(resource(after, Rename("label", "name")))


def test_upgrades_that_begin_too_late_are_refused(programs: Programs) -> None:
    """Steps can be deleted when no item or event of their revision is stored any more."""
    programs.start(resource(BEFORE)).post("/notes", json={"title": "x"})
    upgrades = {2: [Rename("title", "name")], 3: [Add("colour")]}
    after = without("title", name=TITLE, colour=COLOUR)
    with pytest.raises(StoreUnavailable, match="items or events of revision 1, and upgrades begins after 2"):
        programs.start(resource(after, upgrades={3: upgrades[3]}))
    programs.start(resource(after, upgrades=upgrades))


def test_an_unknown_older_program_is_refused(programs: Programs) -> None:
    """It cannot work with the items of a later one; one that has run before starts, and waits."""
    programs.start(resource(BEFORE)).post("/notes", json={"title": "x"})
    programs.start(resource(without("title", name=TITLE), Rename("title", "name"))).post("/notes", json={"name": "x"})
    assert programs.start(resource(BEFORE)).get("/notes").status_code == 503
    with pytest.raises(StoreUnavailable, match="a newer program stored items of revision 2; this one has revision 1"):
        programs.start(resource(without(count=Whole(load_default=3))))


def test_migrate_deletes_indexes_that_are_not_declared(programs: Programs) -> None:
    """Its output names them; the second time there are none."""
    programs.start(resource(BEFORE, indexes=(Index("title"), Index("count")))).post("/notes", json={"title": "x"})
    programs.start(resource(without(colour=COLOUR), indexes=(Index("title"),)))
    declared = resource(BEFORE, indexes=(Index("title"),))
    lines = [programs.run(declared, "migrate").stdout.splitlines() for _ in range(2)]
    assert lines[0][1].startswith("deleted the index items.notes.count")  # on PostgreSQL it ends in a digest
    assert lines[1] == lines[0][:1] == ["nothing is to be converted"]


def test_a_default_that_a_function_makes_is_the_same_in_each_process() -> None:
    """Its values differ: else each start would store items of another schema."""
    numbers = iter(range(9))

    def fingerprint(default: Any) -> str:
        schema = ItemSchema.from_dict({"number": Whole(0, load_default=default)})
        return Resource("lamps", "Lamp", schema).newest.fingerprint

    one, two = (fingerprint(lambda: next(numbers)) for _ in range(2))
    assert one == two
    assert len({one, fingerprint(0), fingerprint(1)}) == 3


class Point(Schema):
    x = Whole(required=True)
    label = Text(load_default=None, allow_none=True)
    next = fields.Nested(lambda: Point(), load_default=None, allow_none=True)  # a schema can be inside itself


INSIDE: dict[str, tuple[Callable[[type[Schema]], fields.Field[Any]], Any]] = {
    "an object": (lambda schema: fields.Nested(schema, required=True), {"x": 1}),
    "an array": (lambda schema: ListOf(fields.Nested(schema), required=True), [{"x": 1}]),
    "arrays of arrays": (lambda schema: ListOf(ListOf(fields.Nested(schema)), required=True), [[{"x": 1}]]),
    "a dictionary": (lambda schema: fields.Dict(values=fields.Nested(schema), required=True), {"a": {"x": 1}}),
}


class Narrower(Point):
    class Meta:
        exclude = ("label",)


Wider = Point.from_dict({"y": Whole(required=True)})
Other = Point.from_dict({"x": Text(required=True)})
Same = Point.from_dict({"x": Whole(0, 9, load_default=0), "more": Text(load_default="")})


@pytest.mark.parametrize(("make", "points"), INSIDE.values(), ids=INSIDE)
def test_schemas_inside_are_compared(programs: Programs, make: Callable[[type[Schema]], Any], points: Any) -> None:
    """As the one around them: what is new and required, gone, or of another type needs a step for the field."""
    where = programs.start(resource({"at": make(Point)})).post("/notes", json={"at": points}).headers["Location"]
    expected = {
        Wider: '"y" is required, and stored items do not have it',
        Narrower: 'stored items have "label" (string), and the schema does not',
        Other: '"x" is of type string, and in stored items of type integer',
    }
    for schema, reason in expected.items():
        with pytest.raises(StoreUnavailable) as caught:
            programs.start(resource({"at": make(schema)}))
        assert 'notes: in "at", ' in caught.value.detail and reason in caught.value.detail
        steps = 'NOTES = {2: [Convert({"at": …}, ["at"], up=…, down=…)]}, and upgrades=NOTES in resources/notes.py'
        assert caught.value.detail.endswith(steps)
    assert programs.start(resource({"at": make(Same)})).patch(where, json={}).status_code == 200


def test_the_step_to_write_is_of_the_next_revision(programs: Programs) -> None:
    programs.start(resource(BEFORE)).post("/notes", json={"title": "a"})
    second = without("title", name=TITLE)
    upgrades: dict[int, list[Any]] = {2: [Rename("title", "name")]}
    programs.start(resource(second, upgrades=upgrades)).post("/notes", json={"name": "b"})
    third = {name: field for name, field in second.items() if name != "count"}
    with pytest.raises(StoreUnavailable, match=r'NOTES = \{3: \[Remove\("count", …\)\]\}$'):
        programs.start(resource(third, upgrades=upgrades))
    programs.start(resource(third, upgrades=upgrades | {3: [Remove("count", Whole(load_default=0))]}))


def test_a_walk_by_a_new_field_visits_each_item(programs: Programs) -> None:
    """Also those that were stored without it, in each order and with pages of each size."""
    before = programs.start(resource(BEFORE))
    for title in "abc":
        before.post("/notes", json={"title": title})
    size = {"size": Text(0, 9, load_default="m"), "rank": Whole(load_default=5)}
    client = programs.start(resource(BEFORE | size, indexes=(Index("size"),)))
    for title, value in (("d", "a"), ("e", "z")):
        client.post("/notes", json={"title": title, "size": value, "rank": 9})
    for key, limit in product(("size", "-size", "rank", "-rank"), (1, 2, 3)):
        seen, path = "", f"/notes?sort={key}&limit={limit}"
        while path:
            page = client.get(path)
            seen += "".join(item["title"] for item in page.json)
            path = next_of(page)
        assert sorted(seen) == list("abcde"), (key, limit)
