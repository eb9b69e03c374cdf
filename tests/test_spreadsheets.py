"""A list as CSV: the page in the cells of exports, with its links, its tag and its negotiation."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from restkeeper import Config, ItemSchema, Resource, Text
from restkeeper.resources.cells import MOST_COLUMNS
from tests.callers import ADMIN, ADMIN_KEY, key
from tests.json_file import client_of
from tests.shop import create_app
from tests.shop.related import create_app as create_related
from tests.test_pages import links_of
from tests.test_private import CONFIG, CUSTOMERS, JOBS

CSV = {"Accept": "text/csv"}
BOM = b"\xef\xbb\xbf"


def rows(response: TestResponse) -> list[dict[str, str]]:
    assert (response.status_code, response.content_type) == (200, "text/csv; charset=utf-8"), response.text
    return list(csv.DictReader(io.StringIO(response.text.removeprefix("\ufeff"), newline="")))


def fill(client: FlaskClient) -> None:
    for n, name in enumerate(("Desk, oak", 'a "b"\r\nc', "é", "5", "null")):
        sent = {"name": name, "price": [None, 1.5][n % 2], "tags": ["x", "y"][:n], "attributes": {"n": -n}}
        assert client.post("/products", json=sent).status_code == 200


def test_the_cells_are_those_of_an_export(tmp_path: Path) -> None:
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db"))
    fill(client := app.test_client())
    exported = app.test_cli_runner().invoke(args=["export", "products", f"{tmp_path}/a.csv"])
    assert exported.exit_code == 0, exported.output
    assert client.get("/products", headers=CSV).data == (tmp_path / "a.csv").read_bytes()
    download = client.get("/products?export=csv")
    assert download.data == BOM + (tmp_path / "a.csv").read_bytes()  # by which spreadsheets know UTF-8
    assert download.headers["Content-Disposition"] == 'attachment; filename="products.csv"'
    assert "Content-Disposition" not in client.get("/products", headers=CSV).headers
    (tmp_path / "b.csv").write_bytes(download.data)
    again = app.test_cli_runner().invoke(args=["import", "products", f"{tmp_path}/b.csv"])
    assert again.stdout.startswith("imported 0 products, 5 already there\n"), again.output


def test_no_cell_is_a_formula(client: FlaskClient, tmp_path: Path) -> None:
    """Texts that would be one have an apostrophe before them, also as the names of columns; numbers stay numbers."""
    for name in ("=1+1", "+1", "-1", "@a", "\tx", "\rx", "a=1"):
        client.post("/products", json={"name": name, "stock": 7})
    found = rows(client.get("/products?export=csv&fields=name,stock&sort=created_at"))
    assert [each["name"] for each in found] == ["'=1+1", "'+1", "'-1", "'@a", "'\tx", "'\rx", "a=1"]
    assert {each["stock"] for each in found} == {"7"}
    client.post("/products", json={"name": "a;=1+1", "description": "b\n-2", "tags": ["c;@d"]})  # another separator
    (found,) = rows(client.get("/products?export=csv&name=a;%3D1%2B1"))
    assert [found[name] for name in ("name", "description", "tags")] == ["a;'=1+1", "b\n'-2", '["c;\'@d"]']
    things = client_of(tmp_path, {"things": [{"id": 1, "n": -5, "=cmd()": "@x"}]})
    assert rows(things.get("/things?export=csv")) == [{"id": "1", "n": "-5", "'=cmd()": "'@x"}]


def test_columns_have_a_bound(tmp_path: Path) -> None:
    """Where items have any names, each can have others: the table would be as large as their square."""
    names = [f"n{n}" for n in range(MOST_COLUMNS)]
    client = client_of(tmp_path, {"things": [{"id": 1, **dict.fromkeys(names, 1)}]})
    refused = client.get("/things?export=csv")
    assert refused.status_code == 400 and refused.json["errors"][0]["parameter"] == "fields"
    assert len(rows(client.get("/things?export=csv&fields=id,n1,n2"))[0]) == 3


def test_pages_and_columns(client: FlaskClient) -> None:
    fill(client)
    listed = client.get("/products?sort=name").json
    for start, headers in (("export=csv", {}), ("", CSV)):
        response = client.get(f"/products?{start}&sort=name&limit=2&fields=version,name", headers=headers)
        assert response.headers["X-Total-Count"] == "5"
        found = rows(response)
        while following := links_of(response).get("next"):
            response = client.get(following, headers=headers)
            found += rows(response)
        assert [list(each) for each in found] == [["name", "version"]] * 5
        texts = [each["name"] for each in listed]
        assert [each["name"] for each in found] == ['"null"' if text == "null" else text for text in texts]
    following = links_of(client.get("/products?limit=2"))["next"]
    assert len(rows(client.get(f"{following}&export=csv"))) == 2  # a cursor is that of the list, in any format
    assert rows(client.get("/products?name=none&export=csv")) == []
    assert client.get("/products?name=none&export=csv").data.startswith(BOM + b"id,name,")


def test_its_tag_is_not_that_of_the_json(client: FlaskClient) -> None:
    fill(client)
    as_json, as_csv, download = (
        client.get(path, headers=headers)
        for path, headers in (("/products", {}), ("/products", CSV), ("/products?export=csv", {}))
    )
    tag = as_csv.headers["ETag"]
    assert as_json.headers["ETag"] != tag == download.headers["ETag"]
    for each in (as_json, as_csv, download):
        assert each.headers["Vary"].startswith("Accept")
    for path, headers in (("/products", CSV), ("/products?export=csv", {})):
        unchanged = client.get(path, headers={**headers, "If-None-Match": tag})
        assert (unchanged.status_code, unchanged.data, unchanged.headers["ETag"]) == (304, b"", tag)
        assert unchanged.headers["Vary"].startswith("Accept")
        assert client.get(path, headers={**headers, "If-None-Match": as_json.headers["ETag"]}).status_code == 200
        head = client.head(path, headers=headers)
        assert (head.data, head.content_length) == (b"", len(client.get(path, headers=headers).data))
        assert head.content_type == "text/csv; charset=utf-8"
    assert client.get("/products", headers={"If-None-Match": tag}).json == as_json.json
    client.post("/products", json={"name": "new"})
    assert client.get("/products", headers={**CSV, "If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    ("query", "accept", "found"),
    [
        ("", "text/csv", "text/csv"),
        ("", "text/*", "text/csv"),
        ("", "application/json;q=0.5, text/csv", "text/csv"),
        ("", "text/csv;q=0.5, application/json", "application/json"),
        ("", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json"),
        ("?export=csv", "text/html,application/xhtml+xml,*/*;q=0.8", "text/csv"),
        ("?export=csv", "application/json", "text/csv"),
        ("?export=csv", "text/html", 406),
        ("", "text/html", 406),
        ("?export=xls", "*/*", 400),
        ("?export=csv&export=csv", "*/*", 400),
        ("?export=csv&count=status", "*/*", 400),
        ("?count=status", "text/csv", 400),
        ("?_page=1&_per_page=2", "text/csv", "text/csv"),
        ("?range=[0,1]", "text/csv", "text/csv"),
    ],
)
@pytest.mark.needs("dialects")
def test_negotiation(client: FlaskClient, query: str, accept: str, found: str | int) -> None:
    fill(client)
    response = client.get(f"/products{query}", headers={"Accept": accept})
    assert found in (response.status_code, response.mimetype)
    if found == "text/csv":
        assert rows(response)
    item = client.get(f"/products/{client.get('/products').json[0]['id']}", headers=CSV)
    assert item.status_code == 406


@pytest.mark.needs("keys", "ownership", "versions", "openapi")
def test_lists_of_an_item_and_related_items() -> None:
    client = create_related(Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off")).test_client()
    ann = client.post("/people", json={"name": "Ann"}, headers=ADMIN).json["id"]
    for _ in range(2):
        made = client.post(f"/people/{ann}/orders", json={"lines": []}, headers=ADMIN)
        assert made.status_code == 200, made.json
    response = client.get(f"/people/{ann}/orders?export=csv", headers=ADMIN)
    assert len(rows(response)) == 2 and response.headers["Content-Disposition"].endswith('"orders.csv"')
    for query, headers in (("export=csv&", {}), ("", CSV)):
        refused = client.get(f"/orders?{query}embed=lines.thing", headers={**ADMIN, **headers})
        assert (refused.status_code, refused.json["errors"][0]["parameter"]) == (400, "embed")


@pytest.mark.needs("keys", "events", "batch", "idempotency", "dialects", "versions", "webhooks", "openapi")
def test_private_fields_are_no_columns() -> None:
    client = create_app(CONFIG, (CUSTOMERS, JOBS)).test_client()
    client.post("/jobs", json={"title": "a", "note": "secret"}, headers=ADMIN)
    reader = key(client, "jobs:read")
    seen, whole = (rows(client.get("/jobs?export=csv", headers=headers)) for headers in (reader, ADMIN))
    assert "note" not in seen[0] and whole[0]["note"] == "secret"
    assert list(seen[0]) == list(client.get("/jobs", headers=reader).json[0])


def test_a_json_file(tmp_path: Path) -> None:
    """It has a column for each member of its items."""
    posts: list[dict[str, Any]] = [{"id": 1, "title": "a", "author": {"n": 1}}, {"views": 5, "id": 2, "title": "c"}]
    client = client_of(tmp_path, {"posts": posts})
    assert rows(client.get("/posts?export=csv")) == [
        {"id": "1", "title": "a", "author": '{"n":1}', "views": ""},
        {"id": "2", "title": "c", "author": "", "views": "5"},
    ]
    assert rows(client.get("/posts?fields=title,id&export=csv&id=2")) == [{"title": "c", "id": "2"}]


def test_a_field_can_be_called_export() -> None:
    class GoodSchema(ItemSchema):
        export = Text(1, 9, required=True)

    client = create_app(Config(), (Resource("goods", "good", GoodSchema),)).test_client()
    for value in ("csv", "no"):
        client.post("/goods", json={"export": value})
    assert [each["export"] for each in client.get("/goods?export=csv").json] == ["csv"]
    assert [each["export"] for each in rows(client.get("/goods", headers=CSV))] == ["csv", "no"]
