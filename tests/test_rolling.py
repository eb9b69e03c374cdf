"""Two programs of one revision on one store, of which one has additional fields: neither loses those of the other."""

from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from marshmallow import fields

from restkeeper.errors import BodyTooLarge
from restkeeper.resources.item import ItemLimits
from restkeeper.schemas.fields import JsonObject, ListOf, Text, Whole
from restkeeper.service import service_of
from restkeeper.storage.feed import EventFilter, find_events
from restkeeper.storage.interface import Index, Record
from tests.programs import Programs, resource

TITLE = Text(1, 50, required=True)
TAGS = ListOf(Text(), load_default=list)
LENGTH = fields.Function(lambda item: len(item["title"]))
OLD = resource({"title": TITLE, "tags": TAGS, "length": LENGTH}, indexes=(Index("title", unique=True),))
NEW = resource(
    {
        "title": TITLE,
        "weight": Whole(load_default=7),
        "tags": TAGS,
        "more": JsonObject(load_default=dict),
        "length": LENGTH,
    },
    indexes=(Index("title", unique=True), Index("weight")),
)
ADDED = {"weight", "more"}


@pytest.fixture
def old(tmp_path: Path) -> FlaskClient:
    return Programs(tmp_path).serve(OLD)


@pytest.fixture
def new(old: FlaskClient, tmp_path: Path) -> FlaskClient:
    """The later program, which starts after the old one, on the same store."""
    return Programs(tmp_path).serve(NEW)


def stored(client: FlaskClient, where: str) -> Record:
    return service_of(client.application).store.read("notes", where.rpartition("/")[2])


def known(item: dict[str, Any]) -> dict[str, Any]:
    """What the old program knows of an item."""
    return {name: value for name, value in item.items() if name not in ADDED}


def test_both_change_an_item_in_turn(old: FlaskClient, new: FlaskClient) -> None:
    """Each returns what it knows, with its own defaults and computed values; who writes, stamps."""
    where = old.post("/notes", json={"title": "a"}).headers["Location"]
    assert (new.get(where).json["weight"], new.get(where).json["length"]) == (7, 1)
    expected = new.patch(where, json={"weight": 9, "more": {"x": 1.50}}).json
    for number, client in enumerate([old, new, old, old, new]):
        changed = client.patch(where, json={"title": "x" * (number + 2)})
        assert changed.status_code == 200
        expected |= {"title": "x" * (number + 2), "length": number + 2}
        expected |= {"version": number + 3, "updated_at": changed.json["updated_at"]}
        assert new.get(where).json == expected and new.get("/notes").json == [expected]
        assert old.get(where).json == known(expected) and old.get("/notes").json == [known(expected)]
        assert changed.json == (expected if client is new else known(expected))
        assert list(new.get(where).json) == list(expected)
        assert stored(old, where).fingerprint == (
            f"{OLD.newest.fingerprint}+" if client is old else NEW.newest.fingerprint
        )
    assert old.get("/notes?title=xxxxxx&sort=title").json == [known(expected)]
    assert new.post("/notes", json={"title": "xxxxxx"}).status_code == 409


def test_an_item_is_sent_back_to_the_old_program(old: FlaskClient, new: FlaskClient) -> None:
    """PUT of what the new one returned: fields that are not known are accepted as they are, and refused otherwise."""
    made = new.post("/notes", json={"title": "a", "weight": 3, "more": {"y": [1, None]}})
    where, item = made.headers["Location"], made.json
    assert old.put(where, json=item).json == known(item)
    assert old.put(where, json=item | {"title": "b"}).json["version"] == 2
    assert old.put(where, json={"title": "c"}).status_code == 200
    shown = new.get(where).json
    assert (shown["weight"], shown["more"]) == (3, {"y": [1, None]})  # whoever does not know a field does not delete it
    refused = old.put(where, json=shown | {"weight": 4})
    assert (refused.status_code, refused.json["errors"][0]["pointer"]) == (422, "#/weight")
    assert old.patch(where, json={"weight": None}).status_code == 422


def test_a_program_without_fields_of_the_server_alone_takes_what_the_new_one_returned(tmp_path: Path) -> None:
    """It reads a body early where it can, which it cannot if there are fields that it does not know."""
    old = Programs(tmp_path).serve(resource({"title": TITLE}))
    new = Programs(tmp_path).serve(resource({"title": TITLE, "weight": Whole(load_default=7)}))
    made = new.post("/notes", json={"title": "a", "weight": 3})
    assert old.put(made.headers["Location"], json=made.json | {"title": "b"}).status_code == 200
    assert new.get(made.headers["Location"]).json["weight"] == 3


@pytest.mark.needs("events")
def test_events_lose_nothing(old: FlaskClient, new: FlaskClient) -> None:
    """What the old program writes in one has the fields that only the new one shows."""
    where = new.post("/notes", json={"title": "a", "weight": 3}).headers["Location"]
    old.patch(where, json={"title": "b"})
    old.delete(where)
    for client, weights in ((new, [3, 3, 3]), (old, [None] * 3)):
        data = [each["data"] for each in client.get("/api/v1/events").json]
        assert [(each["title"], each.get("weight")) for each in data] == list(zip("abb", weights, strict=True))
    events = find_events(service_of(old.application).store, "", EventFilter(("notes",)), 10).events
    assert all(b'"weight":3' in each.data for each in events)


def test_what_a_program_does_not_know_counts(old: FlaskClient, new: FlaskClient) -> None:
    """The limit of an item's size includes it."""
    where = new.post("/notes", json={"title": "a", "more": {"x": "y" * 100}}).headers["Location"]
    items = service_of(old.application).stored["notes"]
    record, now = stored(old, where), "2026-01-01T00:00:00.000000Z"
    size = len(items.merge(record, {"title": "b"}, now=now).body)
    assert items.merge(record, {"title": "b"}, now=now, limits=ItemLimits(size, 100)).version == 2
    with pytest.raises(BodyTooLarge, match=f"can have {size - 1}"):
        items.merge(record, {"title": "b"}, now=now, limits=ItemLimits(size - 1, 100))
