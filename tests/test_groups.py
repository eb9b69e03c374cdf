"""Groups of items in a response: by several values, by parts of times, with sums and averages; and for functions."""

from typing import Any

import pytest
from flask.testing import FlaskClient
from marshmallow import INCLUDE, fields

from restkeeper import (
    Index,
    Items,
    ItemSchema,
    JsonObject,
    Lifecycle,
    Money,
    Ownership,
    Reference,
    Rename,
    Resource,
    Status,
    Text,
    Time,
    Version,
    Versions,
    Whole,
    find_items,
)
from restkeeper.config import Config
from restkeeper.errors import InvalidQuery
from tests.callers import ADMIN_KEY, key
from tests.shop import create_app


class OrderSchema(ItemSchema):
    status = Status(Lifecycle("open", {"open": ("paid",), "paid": ()}))
    customer = Text(1, 20, load_default=None, allow_none=True)
    total = Money(load_default=None, allow_none=True)
    rate = fields.Decimal(places=3, load_default=0)
    weight = fields.Float(load_default=0.1)
    pieces = Whole(load_default=1)
    paid_at = Time(load_default=None, allow_none=True)
    due = fields.Date(load_default=None, allow_none=True)
    big = fields.Decimal(load_default=0)
    address = fields.Dict(load_default=dict)
    secret = Whole(load_default=1, readable_by="orders:secrets")


ORDERS = Resource("orders", "order", OrderSchema, (Index("customer"),), ownership=Ownership.ALL)


@ORDERS.action("add-up", of="collection")
def add_up(items: Items) -> list[JsonObject]:
    return items.groups("orders", {"customer": "ann", "count": "status", "aggregate[sum]": "total"})


@ORDERS.action("spoil", of="collection")
def spoil(items: Items) -> list[JsonObject]:
    return items.groups("orders", {"total": 5, "count": "status"})


@ORDERS.action("mistake", of="collection")
def mistake(items: Items) -> list[JsonObject]:
    return items.groups("orders", {"customer": "ann", "count": "none"})


SAMPLE: list[dict[str, Any]] = [
    {"customer": "ann", "total": 0.1, "paid_at": "2026-01-31T23:30:00Z", "due": "2026-02-01", "rate": 0.125},
    {"customer": "ann", "total": 0.2, "paid_at": "2026-02-01T00:30:00+02:00", "status": "paid", "pieces": 2},
    {"customer": "bob", "total": 9999999999999.99, "due": "2027-02-01", "weight": 0.2},
    {"total": 9999999999999.98, "status": "paid", "weight": 0.3, "pieces": -3},
    {"customer": "bob"},
]


@pytest.fixture
def client() -> FlaskClient:
    client = create_app(Config(), [ORDERS]).test_client()
    for each in SAMPLE:
        assert client.post("/orders", json=each).status_code == 200
    return client


FOUND: dict[str, list[Any]] = {
    "count=status&aggregate[sum]=total&aggregate[avg]=total,pieces": [
        {
            "group": {"status": "open"},
            "count": 3,
            "sum": {"total": 10000000000000.09},
            "avg": {"total": 5000000000000.045, "pieces": 1},
        },
        {
            "group": {"status": "paid"},
            "count": 2,
            "sum": {"total": 10000000000000.18},
            "avg": {"total": 5000000000000.09, "pieces": -0.5},
        },
    ],
    "aggregate[sum]=total,weight&aggregate[avg]=weight,rate&customer=ann": [
        {"group": {}, "count": 2, "sum": {"total": 0.3, "weight": 0.2}, "avg": {"weight": 0.1, "rate": 0.0625}}
    ],
    "aggregate[sum]=total&aggregate[min]=total&customer=none": [
        {"group": {}, "count": 0, "sum": {"total": None}, "min": {"total": None}}
    ],
    "aggregate[min]=customer,paid_at,due&aggregate[max]=customer,paid_at,due": [
        {
            "group": {},
            "count": 5,
            "min": {"customer": "ann", "paid_at": "2026-01-31T22:30:00.000000Z", "due": "2026-02-01"},
            "max": {"customer": "bob", "paid_at": "2026-01-31T23:30:00.000000Z", "due": "2027-02-01"},
        }
    ],
    "count=customer,status": [
        {"group": {"customer": "bob", "status": "open"}, "count": 2},
        {"group": {"customer": None, "status": "paid"}, "count": 1},
        {"group": {"customer": "ann", "status": "open"}, "count": 1},
        {"group": {"customer": "ann", "status": "paid"}, "count": 1},
    ],
    "count=month(paid_at)&paid_at[is]=not_null": [{"group": {"month(paid_at)": "2026-01"}, "count": 2}],
    "count=day(paid_at)&paid_at[is]=not_null&timezone=Europe/Berlin": [
        {"group": {"day(paid_at)": "2026-01-31"}, "count": 1},
        {"group": {"day(paid_at)": "2026-02-01"}, "count": 1},
    ],
    "count=year(due),year(paid_at)&timezone=America/New_York&customer=bob": [
        {"group": {"year(due)": None, "year(paid_at)": None}, "count": 1},
        {"group": {"year(due)": "2027", "year(paid_at)": None}, "count": 1},
    ],
    "count=month(due)&due[is]=not_null": [
        {"group": {"month(due)": "2026-02"}, "count": 1},
        {"group": {"month(due)": "2027-02"}, "count": 1},
    ],
}


@pytest.mark.parametrize("query", FOUND)
def test_groups(client: FlaskClient, query: str) -> None:
    """The form of the response, exactly, with the number of all items and the ETag of a list."""
    response = client.get(f"/orders?{query}")
    assert response.json == FOUND[query]
    assert response.headers["X-Total-Count"] == str(sum(each["count"] for each in FOUND[query]))
    assert "Link" not in response.headers
    again = client.get(f"/orders?{query}", headers={"If-None-Match": response.headers["ETag"]})
    assert again.status_code == 304
    assert '"sum":{"total":10000000000000.09}' in client.get("/orders?aggregate[sum]=total&status=open").text


REFUSED = {
    "aggregate[sum]=customer": "aggregate[sum] cannot be 'customer'; there are: total, rate, weight, pieces, big, ",
    "aggregate[max]=address": "aggregate[max] cannot be 'address'; there are: id, status, customer, total, rate, ",
    "aggregate[median]=total": "aggregate[median] is not a parameter of this list; there are: limit, ",
    "aggregate[sum]=total,total": "aggregate[sum] names a field twice",
    "aggregate[sum]=total,rate&aggregate[max]=due,id": "aggregate is limited to 3 fields",
    "aggregate[sum]=total&sort=total": "sort does not go with aggregate[sum], which has no pages",
    "count=status,customer,due,pieces": "count has at most 3 names",
    "count=status,status": "count names a field twice",
    "count=month(customer)": "count cannot be 'month(customer)'; there are: month(paid_at), month(due), month(",
    "count=week(due)": "count cannot be 'week(due)'; there are: id, status, ",
    "count=month(paid_at)&timezone=Mars/Base": "timezone must be the name of a time zone, such as Europe/Berlin",
    "count=month(paid_at)&timezone=CET": "timezone must be the name of a time zone, such as Europe/Berlin, or UTC",
    "count=month(due)&timezone=Europe/Berlin": "timezone goes with a part of a time, such as count=month(created_at)",
    "aggregate[sum]=total&export=csv": "aggregate[sum] does not go with CSV",
    "timezone=UTC": "timezone goes with a part of a time, such as count=month(created_at)",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_cannot_be_grouped(client: FlaskClient, query: str) -> None:
    response = client.get(f"/orders?{query}")
    assert (response.status_code, response.json["detail"].startswith(REFUSED[query])) == (400, True), response.json


def test_groups_have_a_bound(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("restkeeper.resources.groups.MOST_GROUPS", 3)
    assert len(client.get("/orders?count=customer&aggregate[sum]=total").json) == 3
    found = client.get("/orders?count=customer,status")
    assert (found.status_code, found.json["detail"]) == (
        400,
        "count is limited to 3 groups, and here are more: add filters",
    )


def test_a_sum_that_is_no_number_of_json(client: FlaskClient) -> None:
    """Nobody could read it."""
    for _ in range(2):
        assert client.post("/orders", json={"big": "1.7e308", "customer": "zoe"}).status_code == 200
    assert client.get("/orders?aggregate[avg]=big&customer=zoe").json[0]["avg"] == {"big": 1.7e308}
    found = client.get("/orders?aggregate[sum]=big")
    assert (found.status_code, found.json["detail"]) == (
        400,
        "aggregate[sum] is beyond the range of numbers: add filters",
    )


def test_a_field_that_is_called_so_has_its_filters() -> None:
    schema = ItemSchema.from_dict(
        {"timezone": Text(1, 40, required=True), "at": Time(load_default=None, allow_none=True)}
    )
    client = create_app(Config(), [Resource("users", "user", schema, ids="integer")]).test_client()
    for _ in range(2):
        client.post("/users", json={"timezone": "Europe/Berlin"})
    assert client.get("/users?aggregate[max]=id,timezone&timezone=Europe/Berlin").json == [
        {"group": {}, "count": 2, "max": {"id": 2, "timezone": "Europe/Berlin"}}
    ]
    assert client.get("/users?timezone=Asia/Tokyo&count=month(at)").json == []


@pytest.mark.needs("keys", "ownership")
def test_only_what_the_caller_sees_takes_part() -> None:
    """Neither items of other owners nor private fields."""
    client = create_app(Config(auth="required", admin_key=ADMIN_KEY), [ORDERS]).test_client()
    ada, bob = (key(client, "orders:read", "orders:write", owners=[name]) for name in ("ada", "bob"))
    for caller, total in ((ada, 1), (ada, 2), (bob, 4)):
        assert client.post("/orders", json={"total": total}, headers=caller).status_code == 200
    found = client.get("/orders?aggregate[sum]=total&aggregate[max]=total", headers=ada)
    assert found.json == [{"group": {}, "count": 2, "sum": {"total": 3}, "max": {"total": 2}}]
    tag = found.headers["ETag"]
    client.post("/orders", json={"total": 9}, headers=bob)
    again = client.get("/orders?aggregate[sum]=total&aggregate[max]=total", headers={**ada, "If-None-Match": tag})
    assert again.status_code == 304  # it does not depend on others
    refused = client.get("/orders?aggregate[sum]=secret", headers=ada)
    assert refused.status_code == 400 and "secret," not in refused.json["detail"]


@pytest.mark.needs("actions")
def test_functions_get_groups(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    """Of what an index finds; without one it is a fault of the service."""
    expected = [
        {"group": {"status": "open"}, "count": 1, "sum": {"total": 0.1}},
        {"group": {"status": "paid"}, "count": 1, "sum": {"total": 0.2}},
    ]
    assert client.post("/orders/add-up").json == expected
    for action, reason in (("spoil", "need an index: add one of these"), ("mistake", "items.groups: count cannot be")):
        assert client.post(f"/orders/{action}").status_code == 500
        assert reason in caplog.text


def test_views_get_groups(client: FlaskClient) -> None:
    """By `find_items`, with private fields, too."""
    with client.application.app_context():
        found = [*find_items("orders", {"status": "paid", "aggregate[sum]": ["pieces", "secret"]})]
        assert found == [{"group": {}, "count": 2, "sum": {"pieces": -1, "secret": 2}}]
        assert [*find_items("orders", {"count": "status"})] == client.get("/orders?count=status").json
        with pytest.raises(InvalidQuery, match="limit does not go with count"):
            find_items("orders", {"count": "status", "limit": 5})


VERSIONS = Versions(Version("v1", successor="v2", revisions={"orders": 1}), Version("v2"), unversioned="v2")


@pytest.mark.needs("versions")
def test_an_older_version_has_its_own_names() -> None:
    resource = Resource(
        "orders", "order", OrderSchema, upgrades={2: [Rename("amount", "total"), Rename("paid", "paid_at")]}
    )
    client = create_app(Config(), [resource], versions=VERSIONS).test_client()
    for each in SAMPLE:
        assert client.post("/orders", json=each).status_code == 200
    found = client.get("/api/v1/orders?count=month(paid),status&aggregate[sum]=amount&customer=ann").json
    assert found == [
        {"group": {"month(paid)": "2026-01", "status": "open"}, "count": 1, "sum": {"amount": 0.1}},
        {"group": {"month(paid)": "2026-01", "status": "paid"}, "count": 1, "sum": {"amount": 0.2}},
    ]
    assert client.get("/api/v1/orders?aggregate[sum]=total").status_code == 400


def test_filters_by_other_collections() -> None:
    """They select the items, and the response changes with those of the other collection."""
    users = ItemSchema.from_dict({"name": Text(1, 20, required=True)})
    orders = ItemSchema.from_dict({"customer": Reference("users", required=True), "total": Money(required=True)})
    client = create_app(Config(), [Resource("users", "user", users), Resource("orders", "order", orders)]).test_client()
    ids = [client.post("/users", json={"name": name}).json["id"] for name in ("Ann", "Bob")]
    for n, total in enumerate((0.1, 0.2, 0.4)):
        client.post("/orders", json={"customer": ids[n % 2], "total": total})
    path = "/orders?customer.name=Ann&count=customer&aggregate[sum]=total"
    found = client.get(path)
    assert found.json == [{"group": {"customer": ids[0]}, "count": 2, "sum": {"total": 0.5}}]
    client.patch(f"/users/{ids[1]}", json={"name": "Ann"})
    again = client.get(path, headers={"If-None-Match": found.headers["ETag"]})
    assert [each["sum"] for each in again.json] == [{"total": 0.5}, {"total": 0.2}]


class PostSchema(ItemSchema):
    class Meta:
        unknown = INCLUDE

    title = Text(1, 40, required=True)


def test_undeclared_numbers() -> None:
    """Of names that are not declared, numbers take part, and texts behind them."""
    client = create_app(Config(), [Resource("posts", "post", PostSchema, undeclared=True)]).test_client()
    for n, views in enumerate((1, 2.5, "7", True, None, [1])):
        client.post("/posts", json={"title": f"p{n}", "views": views})
    names = "&".join(f"aggregate[{each}]=views,author.none" for each in ("sum", "avg", "min", "max"))
    (found,) = client.get(f"/posts?{names}").json
    expected = {"sum": 3.5, "avg": 1.75, "min": 1, "max": "7"}
    assert found == {"group": {}, "count": 6} | {
        name: {"views": value, "author.none": None} for name, value in expected.items()
    }
    client.post("/posts", json={"title": "dated", "at": "2026-01-31T23:30:00Z", "day": "2026-02-01"})
    found = client.get("/posts?title=dated&count=month(at),year(day)&timezone=Europe/Berlin").json
    assert found == [{"group": {"month(at)": "2026-02", "year(day)": "2026"}, "count": 1}]
    assert client.get("/posts?count=month(views)").json == [{"group": {"month(views)": None}, "count": 7}]
