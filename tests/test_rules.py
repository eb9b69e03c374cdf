"""Functions that look at other items before they write: rules, in the transaction of the write."""

import gc
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import gevent
import pytest
from flask import Blueprint
from flask.testing import FlaskClient

from restkeeper import (
    Config,
    Conflict,
    Index,
    Items,
    Ownership,
    Resource,
    clock,
    find_items,
    needs,
    read_item,
)
from restkeeper.resources import functions, searches
from restkeeper.resources.views import StoredView
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import StoreContended
from tests import stores
from tests.callers import ADMIN, ADMIN_KEY, make_key, pointers
from tests.shapes import BRANDS, PaymentSchema, ProductSchema
from tests.shop import create_app as create_shop
from tests.waiting import SECONDS, until

Item = dict[str, Any]

pytestmark = pytest.mark.needs("batch", "events", "keys")


@pytest.fixture
def things() -> Resource:
    return Resource(
        "things", "thing", ProductSchema, indexes=(Index("sku", unique=True), Index("name"), Index("price"))
    )


NAMED = {"name": "a"}


def serve(*resources: Resource, **options: Any) -> FlaskClient:
    return create_shop(Config(**options), [*resources, BRANDS]).test_client()


def run(things: Resource, do: Callable[[Items], Any], **options: Any) -> Any:
    """The response to an action that does this in its transaction."""
    things.action("do", of="collection")(do)
    return serve(things, **options).post("/things/do")


def make(client: FlaskClient, path: str, **sent: Any) -> Any:
    response = client.post(path, json=NAMED | sent)
    assert response.status_code == 200, response.text
    return response.json


@pytest.mark.needs("ownership")
def test_what_a_function_does_with_items(things: Resource) -> None:
    """Each method sees what those before it did."""
    others = Resource("others", "other", ProductSchema, ownership=Ownership.ALL)

    @things.action("do", of="collection")
    def do(items: Items) -> Item:
        made = [items.create("others", {"name": name}, owner=owner) for name, owner in zip("ab", owners, strict=True)]
        items.change("others", made[0]["id"], lambda other: {**other, "price": 5})
        shown = [items.read("others", made[0]["id"])["price"], read_item("others", made[0]["id"])["price"]]
        counts = [items.count("others"), items.delete("others", made[1]["id"])["name"], items.count("others")]
        found = items.find("others", {"sort": "id"})
        return {"shown": shown, "counts": counts, "same": found == [*find_items("others", {})], "found": len(found)}

    app = create_shop(Config(auth="required", admin_key=ADMIN_KEY), [things, others, BRANDS])
    client = app.test_client()
    made = [make_key(client, "others:read") for _ in range(2)]
    owners, keys = [f"key:{each['id']}" for each in made], [{"X-API-Key": each["secret"]} for each in made]
    done = client.post("/things/do", headers=ADMIN)
    assert done.json == {"shown": [5, 5], "counts": [2, "b", 1], "same": True, "found": 1}
    assert [[each["name"] for each in client.get("/others", headers=own).json] for own in keys] == [["a"], []]


def test_which_functions_before_a_write_get_items(things: Resource) -> None:
    """Those with a third parameter, whatever its name, and whether it has a default."""
    seen: list[int] = []
    things.before("create")(lambda thing, before: None)
    things.before("create")(lambda thing, before, store: seen.append(store.count("things")))
    things.before("create")(lambda thing, before, items=None: seen.append(items.count("things")))
    make(serve(things), "/things")
    assert seen == [0, 0]


def test_a_reference_that_a_function_sets_is_compared_after_it(things: Resource) -> None:
    """What was sent is compared before: see test_crossings.py."""

    @things.before("create", "update")
    def see(thing: Item, before: Item | None, items: Items) -> None:
        if thing["name"] == "set":
            thing["brand"] = 99
        if thing["name"] == "delete":
            items.delete("brands", thing["brand"])

    client = serve(things)
    brand = client.post("/brands", json={"title": "a"}).json
    for name in ("set", "delete"):
        response = client.post("/things", json={"name": name, "brand": brand["id"]})
        assert (response.status_code, pointers(response)) == (422, ["#/brand"]), response.text
    assert (client.get("/things").json, client.get("/brands").json) == ([], [brand])


CODE = UUID("01a225ca-e2c4-7c2c-9c08-06ac2a992b4b")
GIVEN = {"price": 3, "is_new": False, "stock": 5, "score": 0.1, "weight": Decimal("1.5"), "code": str(CODE)}
GIVEN |= {"released": "2026-11-29", "seen_at": "2026-11-29T00:00:00Z"}
VALUES: list[tuple[dict[str, Any], list[str]]] = [
    ({"name": "a,b"}, ["a,b"]),
    ({"name": "x y+z%41&"}, ["x y+z%41&"]),
    ({"name": ["a,b", "c"]}, ["a,b", "c"]),
    ({"name[in]": ("a,b", "c")}, ["a,b", "c"]),
    ({"name[in]": "c,d"}, ["c"]),
    ({"name": "None"}, []),
    ({"price[gte]": Decimal("2.50"), "price[lt]": 9}, ["a,b"]),
    ({"price[gte]": 3, "name[nin]": "a,b"}, ["a,b"]),
    *(
        ({"name": ["a,b", "c"], field: value}, [name])
        for field, value, name in (
            *(("price", None, "c"), ("price[ne]", None, "a,b"), ("is_new", False, "a,b"), ("is_new", True, "c")),
            *(("stock", 5, "a,b"), ("stock", 5.0, "a,b"), ("score", 0.1, "a,b"), ("weight", Decimal("1.50"), "a,b")),
            *(("released[gt]", date(2026, 11, 28), "a,b"), ("seen_at", datetime(2026, 11, 29, tzinfo=UTC), "a,b")),
            *(("code", CODE, "a,b"), ("code[in]", [CODE, UUID(int=1)], "a,b")),
        )
    ),
]


@pytest.mark.parametrize(("parameters", "found"), VALUES)
def test_values_of_a_search(things: Resource, parameters: dict[str, Any], found: list[str]) -> None:
    """They need no other form than in an item."""

    def do(items: Items) -> list[str]:
        items.create("things", {"name": "a,b", **GIVEN})
        for name in ("c", "x y+z%41&"):
            items.create("things", {"name": name})
        return [each["name"] for each in items.find("things", {**parameters, "sort": "name"})]

    assert run(things, do).json == found


def test_what_the_store_refuses_undoes_all_also_if_it_is_caught(things: Resource) -> None:
    """It is the response on each store: the function cannot tell what of its work is stored."""

    @things.before("create")
    def create(thing: Item, before: None, items: Items) -> None:
        if thing["name"] == "x":
            with suppress(Exception):
                items.create("things", {"name": "y", "brand": 99})

    @things.after("create")
    def count(thing: Item, before: None, items: Items) -> None:
        items.count("things")

    refused = serve(things).post("/things", json={"name": "x"})
    assert refused.status_code in (409, 422) and "99" in refused.json["detail"]


@pytest.mark.sqlite
def test_a_time_out_of_a_function_ends_its_request_alone(
    tmp_path: Path, things: Resource, caplog: pytest.LogCaptureFixture
) -> None:
    """A write of another caller is stored, in whose thread the function runs, as both share a commit."""

    @things.before("create")
    def wait(thing: Item, before: None, items: Items) -> None:
        if thing["name"] == "waits":
            with gevent.Timeout(SECONDS) as passed:
                raise passed  # as gevent does

    app = create_shop(Config(database_url=f"sqlite:///{tmp_path}/rk.db"), [things, BRANDS])
    writer = app.extensions["restkeeper"].store._writer
    with ThreadPoolExecutor(2) as pool:
        with writer.exclusively():
            posts = []
            for name in ("goes", "waits"):
                posts.append(pool.submit(app.test_client().post, "/things", json={"name": name}))
                until(lambda: len(writer._queue) == len(posts))
        responses = [each.result() for each in posts]
    assert [each.status_code for each in responses] == [200, 500]
    assert app.test_client().get("/things").json == [responses[0].json]
    assert "wait: raised <Timeout" in caplog.text
    caplog.clear()  # or it keeps the transaction


FAULTS: list[tuple[Callable[[Items], Any], str]] = [
    (lambda items: items.find("things", {"cursor": "x"}), "cursor: is for responses"),
    (
        lambda items: items.find("things", {"weight": 3}),
        'need an index: add one of these to the Resource"s indexes: Index("weight")',
    ),
    (lambda items: items.count("things", {"weight[gt]": 3, "is_new": True}), 'Index("is_new"), Index("weight")'),
    (lambda items: items.find("things", {"sort": "-weight", "limit": 1}), 'Index("weight")'),
    (lambda items: items.find("things", {"sort": "-sku", "limit": 1}), 'Index("sku")'),  # beside the unique one
    (lambda items: items.count("things", {"sku[gt]": "a"}), 'Index("sku")'),
    (lambda items: items.find("things", {"name[ne]": "a"}), "need an index"),
    (lambda items: items.find("things", {"or": "(name=a,weight=3)"}), "need an index"),
    (lambda items: items.find("things"), "items.find: more than 3 items"),
    (lambda items: items.find("things", {"name[in]": []}), "name[in]: is an empty list"),
    (lambda items: items.find("things", {"mod": "a"}), "mod is not a parameter of this list"),
    (lambda items: items.find("things", {"price": "many"}), "price must be a number"),
    (lambda items: items.find("things", {"price": float("nan")}), "price must be a number"),
    (lambda items: items.find("things", {"stock": True}), "stock must be a whole number"),
    (lambda items: items.find("things", {"stock": 1.5}), "stock must be a whole number"),
    (lambda items: items.find("things", {"stock": 2**63}), "stock must be a whole number"),
    (lambda items: items.find("things", {"name": "a\0"}), "name must not hold NUL"),
    (lambda items: items.find("thing"), 'there is no collection "thing"'),
]


@pytest.mark.parametrize(("search", "reason"), FAULTS)
def test_a_search_that_is_a_fault_of_the_service(
    things: Resource,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    search: Callable[[Items], Any],
    reason: str,
) -> None:
    """The caller learns nothing, and the log has what is wrong. Nothing is stored."""
    monkeypatch.setattr(searches, "MOST_FOUND", 3)

    @things.action("do", of="collection")
    def do(items: Items) -> None:
        for _ in range(4):
            items.create("things", NAMED)
        search(items)

    client = serve(things)
    with caplog.at_level(logging.ERROR, "restkeeper"):
        response = client.post("/things/do")
    assert (response.status_code, "detail" in response.json) == (500, False)
    error = caplog.records[0].exc_info
    assert error and reason in str(error[1]).replace("'", '"')
    assert client.get("/things").json == []


@pytest.mark.sqlite
def test_the_time_limit_of_a_search_ends_its_work_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, things: Resource
) -> None:
    """It is a 503 that can be repeated. Others that share its commit are stored."""
    monkeypatch.setattr(searches, "FIND_SECONDS", 0.0)

    @things.before("create")
    def look(thing: Item, before: Item | None, items: Items) -> None:
        if thing["name"] == "slow":
            items.create("things", {"name": "lost"})
            items.find("things", {"name": "many"})

    app = create_shop(Config(database_url=f"sqlite:///{tmp_path}/rk.db"), [things, BRANDS])
    client = app.test_client()
    for _ in range(3):
        assert client.post("/things", json=[{"name": "many"}] * 100).status_code == 200

    def create(number: int) -> int:
        sent = {"name": "slow" if number % 2 else "quick"}
        response = app.test_client().post("/things", json=sent)
        assert ("Retry-After" in response.headers) is (response.status_code == 503)
        return response.status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(create, range(40)))
    assert statuses == [200, 503] * 20
    totals = {name: client.get(f"/things?count=name&name={name}").json for name in ("quick", "lost", "slow")}
    assert [sum(each["count"] for each in found) for found in totals.values()] == [20, 0, 0]


def test_a_slow_search_is_logged_with_its_plan_and_the_index_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, things: Resource
) -> None:
    """Once a minute for each form of query, whatever its values."""
    monkeypatch.setattr(searches, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(searches, "FIND_SECONDS", SECONDS)
    monkeypatch.setattr(clock, "_logged", {})

    def do(items: Items) -> None:
        for name in "ab":
            items.find("things", {"name": name, "price[gt]": 1, "weight[lt]": 5, "sort": "-price"})
        items.count("things", {"name": "a", "sku": None})
        items.find("things", {"name": "a"})

    with caplog.at_level(logging.WARNING, "restkeeper"):
        assert run(things, do).status_code == 200
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 3
    taken = "for which others wait, by name[eq] price[gt] weight[lt] sort=price: declare Index('name', 'price') or "
    assert lines[0].startswith("things: items.find or items.count took ") and taken in lines[0]
    assert "Index('name', 'weight'). Plan: " in lines[0] and "items.things." in lines[0]
    assert "by name[eq] sku[is]: declare Index('name', 'sku'). Plan: " in lines[1]
    assert "by name[eq]: add filters of values that fewer items share. Plan: " in lines[2]


def test_searches_of_one_transaction_share_what_they_take_too_long(
    monkeypatch: pytest.MonkeyPatch, things: Resource
) -> None:
    """So many of them make others wait no longer than one does."""
    limits: list[float] = []
    monkeypatch.setattr(clock, "_logged", {})

    def page(transaction: Transaction, *arguments: Any, seconds: float, **options: Any) -> Any:
        limits.append(seconds)
        found = search(transaction, *arguments, seconds=SECONDS, **options)
        transaction.search_seconds = 0.3
        return found

    search = Transaction.page
    monkeypatch.setattr(Transaction, "page", page)
    assert run(things, lambda items: [items.find("things", {"name": "a"}) for _ in range(4)]).status_code == 200
    assert limits == pytest.approx([0.5, 0.3, 0.1, 0.1])


@pytest.mark.parametrize("raises", [True, False])
def test_a_function_that_catches_everything_is_called_again(
    things: Resource, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    """When the store asks for it: neither its own problem nor its own item is the response then."""
    calls, read = [], StoredView.read

    def read_once(stored: StoredView, *arguments: Any, **options: Any) -> Any:
        if functions.current_items.get() and len(calls) < 3:
            calls.append(stored.name)
            raise StoreContended("others wait")
        return read(stored, *arguments, **options)

    @things.action("look")
    def look(thing: Item, items: Items) -> Item:
        try:
            return {**thing, "name": items.read("things", thing["id"])["name"] + "er"}
        except Exception as error:
            if raises:
                raise Conflict("it is not there") from error
            return {**thing, "name": "nothing"}

    client = serve(things)
    path = f"/things/{make(client, '/things', name='old')['id']}"
    monkeypatch.setattr(StoredView, "read", read_once)
    assert client.post(f"{path}/look").json["name"] == "older"
    assert len(calls) == 3


@pytest.mark.parametrize("fails", [False, True])
def test_items_are_for_the_function_that_gets_them(things: Resource, fails: bool) -> None:
    """What is kept of them does nothing, also while an exception still refers to the transaction."""
    kept: list[Items] = []

    @things.before("create")
    def keep(thing: Item, before: Item | None, items: Items) -> None:
        kept.append(items)
        if fails:
            raise Conflict("no")

    client = serve(things)
    client.post("/things", json=NAMED)
    (items,) = kept
    for use in (
        lambda: items.read("things", "x"),
        lambda: items.find("things"),
        lambda: items.count("things"),
        lambda: items.create("things", NAMED),
        lambda: items.change("things", "x", lambda thing: None),
        lambda: items.delete("things", "x"),
    ):
        with pytest.raises(RuntimeError, match="the transaction has ended"):
            use()
    assert len(client.get("/things").json) == (0 if fails else 1)
    kept.clear()  # or it keeps the transaction


TAKEN = "another item has this sku"


@pytest.mark.parametrize(
    ("path", "sent", "detail", "places"),
    [
        ("", {"name": "other"}, f"others: {TAKEN}", None),
        ("", [NAMED | {"sku": "new"}, {"name": "other"}], f"others: {TAKEN}", None),
        ("", {"name": "thing"}, f"things: {TAKEN}", None),
        ("", [{"name": "next"}, NAMED | {"sku": "next"}], TAKEN, ["#/1/sku"]),
        ("", [{"name": "next"}, NAMED | {"sku": "next"}, NAMED | {"sku": "thing"}], TAKEN, ["#/1/sku"]),
        ("", NAMED | {"sku": "thing"}, TAKEN, ["#/sku"]),
        ("/1/do", None, f"things: {TAKEN}", None),
        ("/do-all", None, f"others: {TAKEN}", None),
    ],
)
def test_a_value_that_another_item_has(
    things: Resource, path: str, sent: Any, detail: str, places: list[str] | None
) -> None:
    """One that a function of the service has set is nowhere in what was sent."""
    others = Resource("others", "other", ProductSchema, indexes=(Index("sku", unique=True),))

    @things.after("create")
    def create(thing: Item, before: None, items: Items) -> None:
        match thing["name"]:
            case "other":
                items.create("others", NAMED | {"sku": "other"})
            case "thing" | "next" as sku:
                items.create("things", NAMED | {"sku": sku})

    things.action("do")(lambda thing, items: {**thing, "sku": "thing"})
    things.action("do-all", of="collection")(lambda items: items.create("others", NAMED | {"sku": "other"}))
    client = serve(things, others)
    make(client, "/others", sku="other")
    make(client, "/things", sku="thing")
    id = make(client, "/things")["id"]
    refused = client.post(f"/things{path.replace('1', id)}", json=sent)
    assert (refused.status_code, refused.json["code"]) == (409, "duplicate")
    assert refused.json["detail"] == detail
    assert (sorted(pointers(refused)) if "errors" in refused.json else None) == places
    assert len(client.get("/things").json) == 2


def test_nothing_is_kept_of_a_change_that_failed(things: Resource) -> None:
    """Its exception refers to the transaction, which refers to what has failed in it."""

    @things.before("create")
    def fail(thing: Item, before: Item | None, items: Items) -> None:
        if not thing["sku"]:
            for _ in range(2):
                items.create("things", NAMED | {"sku": "taken"})

    client = serve(things)
    for _ in range(3):
        assert client.post("/things", json=NAMED).status_code == 409
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Transaction)]


def test_views_read_what_is_committed(tmp_path: Path, things: Resource) -> None:
    """Also while a function of a transaction that changes it is running."""
    views, shown = Blueprint("views", __name__), []

    @views.get("/seen/<id>")
    @needs("public")
    def see(id: str) -> Item:
        return {"name": read_item("things", id)["name"], "found": len([*find_items("things", {"name": "new"})])}

    @things.action("do")
    def do(thing: Item, items: Items) -> None:
        items.create("things", {"name": "new"})
        with ThreadPoolExecutor(1) as pool:
            shown.append(pool.submit(lambda: app.test_client().get(f"/seen/{thing['id']}").json).result())
        shown.append({"name": read_item("things", thing["id"])["name"], "found": len([*find_items("things", NEW)])})
        thing["name"] = "new"

    app = create_shop(Config(database_url=f"sqlite:///{tmp_path}/rk.db"), [things, BRANDS], blueprints=[views])
    client = app.test_client()
    id = make(client, "/things", name="old")["id"]
    assert client.post(f"/things/{id}/do").status_code == 200
    assert shown == [{"name": "old", "found": 0}, {"name": "old", "found": 1}]
    assert client.get(f"/seen/{id}").json == {"name": "new", "found": 2}


NEW = {"name": "new"}


def test_a_function_that_is_called_again_gets_the_body_as_it_was_sent(things: Resource) -> None:
    """Also if it has changed that: the first attempt has left nothing."""
    calls: list[Item] = []

    @things.action("do", of="collection", body=PaymentSchema)
    def do(body: Item, items: Items) -> Item:
        calls.append({**body})
        method = body.pop("method")
        if len(calls) == 1:
            raise StoreContended("others wait")
        return {"method": method}

    response = serve(things).post("/things/do", json={"method": "card"})
    assert (response.status_code, response.json, len(calls)) == (200, {"method": "card"}, 2)


def test_a_function_before_a_create_that_is_done_again_gets_what_was_sent(things: Resource) -> None:
    calls: list[str] = []

    @things.before("create")
    def mark(thing: Item, before: None) -> None:
        thing["name"] += "!"

    @things.after("create")
    def contend(thing: Item, before: None, items: Items) -> None:
        calls.append(thing["name"])
        if len(calls) == 2:
            raise StoreContended("others wait")

    response = serve(things).post("/things", json=[{"name": "a"}, {"name": "b"}])
    assert (response.status_code, calls) == (200, ["a!", "b!", "a!", "b!"])


def test_an_array_is_answered_as_it_is_stored(things: Resource) -> None:
    """When functions after the creation of one item have changed another."""

    @things.after("create")
    def mark(thing: Item, before: None, items: Items) -> None:
        for other in items.find("things", {"name": "newest"}):
            if other["id"] != thing["id"]:
                items.change("things", other["id"], lambda other: {**other, "name": "old"})

    client = serve(things)
    made = client.post("/things", json=[{"name": "newest"}, {"name": "newest"}], headers={"Idempotency-Key": "a"})
    again = client.post("/things", json=[{"name": "newest"}, {"name": "newest"}], headers={"Idempotency-Key": "a"})
    assert [each["name"] for each in made.json] == ["old", "newest"] and made.data == again.data
    assert [client.get(f"/things/{each['id']}").json for each in made.json] == made.json


@pytest.mark.parametrize("when", ("before", "after"))
def test_an_array_of_which_one_item_deletes_another_is_a_conflict(things: Resource, when: str) -> None:
    """It creates all or none: no response shows an item that is not stored. In two requests both writes are done."""

    def replace_former(thing: Item, before: None, items: Items) -> None:
        for other in items.find("things", {"name": thing["name"]}):
            if other["id"] != thing.get("id"):
                items.delete("things", other["id"])

    getattr(things, when)("create")(replace_former)
    client = serve(things)
    twins = [{"name": "a"}, {"name": "b"}, {"name": "a"}]
    refused = client.post("/things", json=twins)
    assert (refused.status_code, refused.json["code"], client.get("/things").json) == (409, "conflict", [])
    assert "deletes another one" in refused.json["detail"]
    assert client.get("/api/v1/events").json == []
    made = [client.post("/things", json=sent) for sent in (twins[:2], twins[2])]
    assert [each.status_code for each in made] == [200, 200]
    assert {each["id"] for each in client.get("/things").json} == {made[0].json[1]["id"], made[1].json["id"]}


def test_an_item_that_is_created_again_is_answered_as_it_is_stored() -> None:
    """Also where an earlier function of the same transaction has changed or deleted the one that had its id."""
    things = Resource("things", "thing", ProductSchema, ids="client")

    @things.before("create")
    def write_former(thing: Item, before: None, items: Items) -> None:
        if thing["name"] == "delete":
            items.delete("things", "a")
        if thing["name"] == "change":
            items.change("things", "a", lambda other: {**other, "price": 1})

    client = serve(things)
    delete, change, again = ({"id": id, "name": name} for id, name in [("b", "delete"), ("c", "change"), ("a", "new")])
    make(client, "/things", id="a")
    made = client.post("/things", json=[delete, again])
    assert made.status_code == 200 and client.get("/things").json == made.json[::-1]
    operations = [
        {"method": "POST", "path": "/things", "body": change},
        {"method": "DELETE", "path": "/things/a"},
        {"method": "PUT", "path": "/things/a", "body": {"name": "newer"}},
        {"method": "POST", "path": "/things", "body": {**delete, "id": "d"}},
        {"method": "PUT", "path": "/things/a", "body": {"name": "newest"}},
    ]
    for number in (3, 5):
        done = client.post("/api/v1/batch", json={"operations": operations[:number]})
        assert done.status_code == 200, done.text
        last, stored = done.json["results"][-1], client.get("/things/a")
        assert (last["body"], last["headers"]["ETag"]) == (stored.json, stored.headers["ETag"])
        client.delete("/things/c")


def test_a_function_that_sends_a_request_that_writes(things: Resource, tmp_path: Path) -> None:
    """On SQLite that is refused, and the commit of this and other requests goes on; reading is free."""
    found: list[Any] = []

    @things.action("do", of="collection")
    def do(items: Items) -> None:
        items.create("things", {"name": "first"})
        inner = app.test_client()
        found.extend([inner.get("/things").status_code, inner.post("/things", json=NAMED).status_code])

    url = f"sqlite:///{tmp_path}/a.db"
    is_sqlite = stores.url(url) == url
    app = create_shop(Config(database_url=url), [things, BRANDS])
    assert app.test_client().post("/things/do").status_code == 200
    assert found == [200, 503 if is_sqlite else 200]
    assert len(app.test_client().get("/things").json) == (1 if is_sqlite else 2)


def test_a_limit_that_the_bytes_do_not_reach_is_a_fault(things: Resource, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule does not decide on a part of what it has asked for."""
    monkeypatch.setattr(functions, "MOST_BYTES", 600)

    @things.action("do", of="collection")
    def do(items: Items) -> int:
        return len(items.find("things", {"limit": 3}))

    client = serve(things)
    assert [client.post("/things", json=NAMED).status_code for _ in range(3)] == [200] * 3
    assert client.post("/things/do").status_code == 500
