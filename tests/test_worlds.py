"""What a caller may not see changes no response, and each operation shows a field to those who may read it.

`tests.worlds` makes random requests in two worlds that differ in what is hidden. The table of the second part is
written from docs/security.md.
"""

from itertools import product
from typing import Any, NamedTuple
from unittest import mock

import pytest
from flask.testing import FlaskClient

from restkeeper import Config, create_app
from tests.callers import ADMIN, ADMIN_KEY, key
from tests.record import ALL_OWNERS, BOTH, READ
from tests.shapes import RESOURCES, VERSIONS
from tests.worlds import EXAMINED, SEEN, STORES, differences

pytestmark = pytest.mark.needs("keys", "ownership", "events", "batch", "idempotency", "versions", "openapi", "dialects")


@pytest.mark.sqlite
@pytest.mark.parametrize("examined", EXAMINED)
def test_two_worlds_are_alike(examined: str) -> None:
    """For each caller, but for what docs/ says."""
    assert [*differences(examined, "sqlite", 2, 120)] == []


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("scope", "number"),
    [
        ("orders:secrets", 500),
        pytest.param("orders:all", 250, marks=pytest.mark.matrix),
        pytest.param("notes:all", 600, marks=pytest.mark.matrix),
    ],
)
def test_a_caller_who_may_see_what_differs_sees_it(scope: str, number: int) -> None:
    """So the comparison finds a leak of private fields, of orders and of notes."""
    with mock.patch.dict(EXAMINED, {"ada": ([*SEEN, scope], ["ada"])}):
        assert any(differences("ada", "sqlite", 2, number))


@pytest.mark.matrix
@pytest.mark.parametrize(("examined", "store"), [*product(EXAMINED, STORES)])
def test_two_worlds_are_alike_for_long(examined: str, store: str) -> None:
    """On both stores."""
    assert [*differences(examined, store, 3, 600)] == []


class Caller(NamedTuple):
    """Who calls: scopes and owner."""

    scopes: tuple[str, ...]
    owner: str = "other"

    def has(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes


class Row(NamedTuple):
    """A field, what a caller sets it to, and what it needs for that."""

    collection: str
    field: str
    value: Any
    reads: str = ""  # the scope that reads the field
    sets: str = ""  # the scope that sets it
    others: int = 200  # what other callers get who read the item
    change: int = 200  # and who change it
    omitted: int = 200  # what a PUT without the field gets: its default can be a state to which the item cannot move
    queries: tuple[str, ...] = ("?{0}={1}", "?sort={0}", "?count={0}", "?fields=id,{0}")
    whole: dict[str, Any] = {}  # what a PUT has, too


CALLERS = {
    "nobody": Caller(()),
    "reader": Caller(READ),
    "other owner": Caller(tuple(BOTH)),
    "owner": Caller(tuple(BOTH), "ada"),
    "staff": Caller((*BOTH, *ALL_OWNERS, "orders:secrets", "jobs:grade", "products:archive"), "staff"),
    "admin": Caller(("admin",)),
}
ROWS = (
    Row("orders", "secret", "new", "orders:secrets", "orders:secrets", 404, 404),
    Row("jobs", "grade", 7, sets="jobs:grade", change=403, whole={"title": "x"}),
    Row("jobs", "owner", "zoe", sets="jobs:all", change=403, whole={"title": "x"}),
    Row("notes", "owner", "zoe", sets="notes:all", others=404, change=404, whole={"text": "x"}),
    Row("products", "status", "archived", sets="products:archive", omitted=409, whole={"name": "x"}),
)


def model(caller: Caller, row: Row) -> dict[str, Any]:
    """What the caller gets, by the tables of docs/security.md and the options of docs/fields.md."""
    reads, writes = (caller.has(f"{row.collection}:{each}") for each in ("read", "write"))
    if not reads:
        return dict.fromkeys(OPERATIONS, 401)
    reached = caller.owner == "ada" or caller.has(f"{row.collection}:all")
    item = 200 if reached else row.others
    shown = item == 200 and (not row.reads or caller.has(row.reads))
    query = 200 if not row.reads or caller.has(row.reads) else 400
    write = (200 if reached else row.change) if writes else 403
    is_set = write if write != 200 or caller.has(row.sets) else 403
    omitted = row.omitted if write == 200 else write
    seen = (item == 200, shown)
    creates = 403 if not writes or not caller.has(row.sets) else 200
    expected = [item if item != 200 else (True, shown), seen, seen, seen, *[query] * 4]
    return dict(zip(OPERATIONS, [*expected, creates, is_set, is_set, is_set, omitted, write], strict=True))


OPERATIONS = (
    *("read", "list", "events", "embedded", "filter", "sort", "count", "fields"),
    *("create and replay", "batch", "merge", "replace", "without the field", "delete"),
)


def found(client: FlaskClient, headers: dict[str, str], base: str, row: Row) -> dict[str, Any]:
    """What the caller gets from the service, for an item of ada."""
    of = client.post("/products", json={"name": "Lamp"}, headers=ADMIN).json["id"]
    ada = key(client, *BOTH, owners=["ada"])
    body = {"orders": {"lines": [{"product": of}]}, "jobs": {"title": "a", "product": of}, "notes": {"text": "a"}}
    path = f"{base}/{row.collection}"
    id = of if row.collection == "products" else client.post(path, json=body[row.collection], headers=ada).json["id"]
    if row.collection == "products":
        client.patch(f"/products/{id}", json={"status": "active"}, headers=ADMIN)
    if row.field == "secret":
        client.patch(f"/orders/{id}", json={"secret": "x"}, headers=ADMIN)

    def seen(response: Any, items: Any = None) -> Any:
        if response.status_code != 200:
            return response.status_code
        listed = response.json if items is None else items(response.json)
        mine = [each for each in (listed if isinstance(listed, list) else [listed]) if each["id"] == id]
        return bool(mine), bool(mine) and all(row.field in each for each in mine)

    def get(path: str) -> Any:
        return client.get(path, headers=headers)

    def send(method: str, path: str, sent: Any = None, more: dict[str, str] | None = None) -> Any:
        return client.open(path, method=method, json=sent, headers={**headers, **(more or {})})

    one, change = f"{path}/{id}", {row.field: row.value}
    embedded = {"orders": "orders", "jobs": "jobs"}.get(row.collection)
    feed = f"{base or '/api/v2'}/events?collection={row.collection}&item={id}"
    results = [
        seen(get(one)),
        seen(get(f"{path}?sort=-created_at&limit=50")),
        seen(get(feed), lambda events: [each["data"] for each in events]),
        seen(get(f"{base}/products/{of}?embed={embedded}"), lambda item: item[embedded])
        if embedded
        else seen(get(f"{path}?id={id}")),
        *(get(path + query.format(row.field, row.value)).status_code for query in row.queries),
    ]
    made = [send("POST", path, {**body.get(row.collection, {}), **row.whole, **change}, {"Idempotency-Key": id})]
    made.append(send("POST", path, {**body.get(row.collection, {}), **row.whole, **change}, {"Idempotency-Key": id}))
    assert made[0].status_code != 200 or made[0].text == made[1].text
    patch = {"operations": [{"method": "PATCH", "path": f"/{row.collection}/{id}", "body": change}]}
    results += [
        made[1].status_code,
        send("POST", f"{base or '/api/v2'}/batch", patch).status_code,
        send("PATCH", one, change).status_code,
        send("PUT", one, {**row.whole, **change}).status_code,
        send("PUT", one, row.whole).status_code,
        send("DELETE", one).status_code,
    ]
    return dict(zip(OPERATIONS, results, strict=True))


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    config = Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off", rate_limit_write="off", failure_limit="off")
    return create_app(config, RESOURCES, versions=VERSIONS).test_client()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.collection}.{row.field}")
@pytest.mark.parametrize("name", CALLERS)
def test_each_operation_shows_and_sets_what_the_caller_may(client: FlaskClient, name: str, row: Row) -> None:
    """In both versions."""
    caller = CALLERS[name]
    headers = key(client, *caller.scopes, owners=[caller.owner]) if caller.scopes else {}
    for base in ("/api/v1", ""):
        assert found(client, headers, base, row) == model(caller, row), base
