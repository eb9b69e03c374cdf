"""Limits of the size of items and of the faults in a response; too large items are never parsed."""

import json
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask.testing import FlaskClient
from marshmallow import ValidationError, fields, validate, validates_schema
from werkzeug.test import TestResponse

from restkeeper import exactjson
from restkeeper.config import Config
from restkeeper.errors import MOST_FAULTS, BodyTooLarge
from restkeeper.resources.item import ItemLimits
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView
from restkeeper.schemas.fields import JsonObject
from restkeeper.schemas.item import ItemSchema
from restkeeper.storage.interface import Record
from restkeeper.web.application import Application
from tests.programs import resource
from tests.shop import create_app
from tests.shop.products import RESOURCE

WAYS = ["POST", "PUT", "PATCH"]


def send(client: FlaskClient, method: str, body: Any) -> TestResponse:
    """Send a product by this method, to a new item if the method needs one."""
    where = "/products"
    if method != "POST":
        where = client.post(where, json={"name": "x"}).headers["Location"]
    data = body if isinstance(body, bytes) else json.dumps(body)
    return client.open(where, method=method, data=data, content_type="application/json")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records the bytes of each text that is parsed."""
    sizes: list[int] = []

    def counted(decode: Callable[[Any], Any], data: Any) -> Any:
        sizes.append(len(data) if isinstance(data, str) else len(bytes(data)))
        return decode(data)

    monkeypatch.setattr(exactjson, "decoded", partial(counted, exactjson.decoded))
    monkeypatch.setattr(exactjson, "_decoder", SimpleNamespace(decode=partial(counted, exactjson._decoder.decode)))
    return sizes


@pytest.mark.parametrize("method", WAYS)
def test_the_size_of_an_item_is_limited(method: str) -> None:
    """Exactly MAX_ITEM bytes are stored by any method; one byte more returns 413, which names the setting."""
    plain = len(create_app(Config()).test_client().post("/products", json={"name": "x", "description": ""}).data)
    client = create_app(Config(max_item=2000)).test_client()
    room = 2000 - plain
    fits = send(client, method, {"name": "x", "description": "d" * room})
    assert (fits.status_code, len(fits.data)) == (200, 2000)
    beyond = send(client, method, {"name": "x", "description": "d" * (room + 1)})
    assert (beyond.status_code, beyond.json["type"].rpartition("/")[2]) == (413, "body-too-large")
    assert "2001 bytes" in beyond.json["detail"] and "MAX_ITEM" in beyond.json["detail"]


def test_the_number_of_values_is_limited() -> None:
    """Objects, arrays and their members count, not what is in strings; one value more is a 413 that names the limit."""
    unlimited = create_app(Config()).test_client()
    for values in (
        *([0] * 80, [[]] * 80, [{"a": 0}] * 40, [[0]] * 40, ["[{,", '\\",', "a,b", "\\", '"'] * 16),
        [[True, None], [{"a": []}]] * 20,
    ):
        made = send(unlimited, "POST", {"name": "x", "attributes": {"v": values}})
        number = count(made.json)
        assert count(exactjson.loads(made.data)) == exactjson.count_values(made.data)
        exact, fewer = (create_app(Config(max_nodes=most)).test_client() for most in (number, number - 1))
        for method in WAYS:
            assert send(exact, method, {"name": "x", "attributes": {"v": values}}).status_code == 200
            refused = send(fewer, method, {"name": "x", "attributes": {"v": values}})
            assert refused.status_code == 413 and f"{number - 1} values" in refused.json["detail"], (method, values)


def count(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inner))


def test_a_body_of_too_many_values_is_not_parsed(client: FlaskClient, parsed: list[int]) -> None:
    parts = (b"[", b"[],", b"{},", b"0,", b'"",', b'"\\\\",', b'{"a":[', b'"\\"",')
    for method, part in product(WAYS, parts):
        body = b'{"name":"x","attributes":{"v":[' + part * ((1024 * 1024 - 100) // len(part))
        assert send(client, method, body).status_code == 413, (method, part)
        assert sum(parsed) < 1000
        parsed.clear()


PRODUCTS = StoredView(RESOURCE)


def large(fingerprint: str = "", **attributes: Any) -> Record:
    """An item of a megabyte, as a store from before there were limits may have it."""
    made = PRODUCTS.new_record(
        {"name": "x", "attributes": attributes or {"v": [[]] * 350_000}}, id="a", now="2026-01-01T00:00:00.000000Z"
    )
    return made._replace(fingerprint=fingerprint or made.fingerprint)


LIMITS = ItemLimits(128 * 1024, 10_000)
NOW = "2026-01-02T00:00:00.000000Z"


def test_a_too_large_stored_item_can_be_made_smaller(parsed: list[int]) -> None:
    """It is returned and upgraded, and replaced and merged with smaller values, without parsing it."""
    for record in (large(), large("other")):
        assert PRODUCTS.show(record.body, ("id", "stock", "gone")) == b'{"id":"a","stock":0}'
        assert len(PRODUCTS.body(record)) == len(record.body)
        assert PRODUCTS.replace(record, {"name": "y"}, now=NOW, limits=LIMITS).version == 2
        smaller = PRODUCTS.merge(record, {"attributes": None}, now=NOW, limits=LIMITS)
        assert (smaller.version, len(smaller.body) < 400) == (2, True)
        with pytest.raises(BodyTooLarge):
            PRODUCTS.merge(record, {"stock": 1}, now=NOW, limits=LIMITS)
        assert PRODUCTS.merge(record, {"stock": 0}, now=NOW, limits=LIMITS) is record
    assert max(parsed) < 1000


def test_pointers_are_limited(client: FlaskClient) -> None:
    """In each of their names, and as a whole, however deep a fault is and however long the names above it are."""
    value: Any = ["NUL"] * 200
    for name in ("a" * 50_000, *["💡" * 1000] * 20):
        value = {name: value}
    body = exactjson.dumps({"name": "x", "attributes": value}).replace(b"NUL", b"\\u0000")
    errors = send(client, "POST", body).json["errors"]
    assert len(errors) == MOST_FAULTS and all(len(each["pointer"]) < 2500 for each in errors)
    shallow = exactjson.dumps({"name": "x", "attributes": {"a" * 50_000: ["NUL"]}}).replace(b"NUL", b"\\u0000")
    assert send(client, "POST", shallow).json["errors"][0]["pointer"] == f"#/attributes/{'a' * 100}%E2%80%A6/0"


def test_faults_of_the_schema_are_limited() -> None:
    """Unknown names are listed likewise, and the response has the size of some hundred of them."""
    client = create_app(Config(max_item=2**22, max_body=2**22)).test_client()
    many: dict[str, Any] = {f"{n}{'é' * 300}": 1 for n in range(1000)}
    for method, body in product(WAYS, (many, {"tags": [5] * 100, **{str(n): 1 for n in range(3000)}})):
        response = send(client, method, {"name": "x", **body})
        assert (response.status_code, len(response.json["errors"])) == (422, MOST_FAULTS)
        assert len(response.data) < 200_000


def test_faults_of_a_query_are_limited(app: Application) -> None:
    """The response to a query of unknown names has some of them, shortened, and once the names that exist."""
    client = app.test_client()
    for query in ("&".join(f"{n:x}" for n in range(1500)), "x" * 7000, "price[in]=" + "x," * 199, "limit=0&" * 900):
        response = client.get(f"/products?{query}")
        assert (response.status_code, len(response.data) < 10_000) == (400, True)
        assert len(response.json["errors"]) <= MOST_FAULTS
        assert response.text.count("and field[operator]") <= 3  # in the fault, the detail and the message


def test_filters_are_counted_together(client: FlaskClient) -> None:
    """MAX_FILTERS and MAX_VALUES limit all parameters of a query together."""
    for query, status in (
        ("&".join(f"name[ne]={n}" for n in range(100)), 200),
        ("&".join(f"name[ne]={n}" for n in range(101)), 400),
        ("stock=1&" + "&".join(f"name[ne]={n}" for n in range(100)), 400),
        ("name[in]=" + ",".join(map(str, range(200))), 200),
        ("name[in]=" + ",".join(map(str, range(201))), 400),
        ("stock[in]=1&name[in]=" + ",".join(map(str, range(200))), 400),
        ("&".join(f"stock={n}&name={n}" for n in range(100)), 200),
        ("price=1&" + "&".join(f"stock={n}&name={n}" for n in range(100)), 400),
    ):
        assert client.get(f"/products?{query}").status_code == status, query


def test_an_import_has_the_same_limits(tmp_path: Path) -> None:
    """The content of a file has the limits of a request: the error names the line and the setting."""
    file = tmp_path / "items.ndjson"
    lines = [{"name": "a"}, {"name": "b", "description": "d" * 900}, {"name": "c", "attributes": {"v": [0] * 90}}]
    file.write_text("\n".join(map(json.dumps, lines)))
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/a.db", max_item=900, max_nodes=100))
    run = app.test_cli_runner().invoke(args=["import", "products", str(file), "--skip-bad"])
    assert (run.exit_code, "imported 1 products, skipped 2" in run.output) == (0, True)
    assert "line 2: the item would have" in run.output and "line 3: the item would have more than 100" in run.output


class HookedSchema(ItemSchema):
    free = JsonObject(load_default=dict)

    @validates_schema
    def _require_known(self, item: dict[str, Any], **_: Any) -> None:
        if "bad" in item["free"]:
            raise ValidationError("is bad", "free")


def test_patched_objects_are_validated() -> None:
    """A patch is applied as text only to objects whose members are not validated."""
    few = JsonObject(load_default={"a": 1}, validate=validate.Length(max=1, error="is too many"))
    inner = fields.Nested({"a": fields.String()}, load_default=dict)
    checked = resource({"few": few, "inner": inner, "free": JsonObject(load_default=dict)})
    for declared, patch, pointer in (
        (checked, {"few": {"b": 1}}, "#/few"),
        (checked, {"inner": {"b": 1}}, "#/inner/b"),
        (checked, {"free": {"b": "\0"}}, "#/free/b"),
        (checked, {"free": [1]}, "#/free"),
        (Resource("notes", "note", HookedSchema), {"free": {"bad": 1}}, "#/free"),
    ):
        client = create_app(Config(), [declared]).test_client()
        where = client.post("/notes", json={"free": {"a": 1}}).headers["Location"]
        assert client.patch(where, json={"free": {"c": {"d": 2}}}).json["free"] == {"a": 1, "c": {"d": 2}}
        response = client.patch(where, json=patch)
        assert (response.status_code, [fault["pointer"] for fault in response.json["errors"]]) == (422, [pointer])
