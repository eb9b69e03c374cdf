"""The recipes of docs/recipes.md work, in one service, with 10 items in each collection and with 200,000.

A search of a function that takes 0.5 s is a 503, and a list that takes 5 s: a success is within these bounds.
"""

import json
import re
import runpy
import smtplib
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests

from tests.live import ROOT, Gunicorn
from tests.redis_server import Redis
from tests.test_readme import BASE, Block, blocks, environ_of, run_block, service_of

pytestmark = [
    pytest.mark.sqlite,
    pytest.mark.top,
    pytest.mark.needs("cors", "dialects", "events", "keys", "ownership", "references", "transfer"),
]

PAGE = "recipes.md"
CALLERS = 20
WITHOUT_TITLE = 600  # places of the former program, more than one transaction of the recipe changes
EXPIRED = 3  # orders that the job of the night changes
CACHE_KIB = 500_000  # of the store that is filled: the indexes of all collections
NUMBER = "0000001"  # of an item that is copied: its copies have other numbers

# One item of each collection, of which the store has many copies.
COPIED = {
    "articles": {
        "id": f"article-{NUMBER}",
        "title": f"Lamp {NUMBER}",
        "text": "It is bright.",
        "slug": f"lamp-{NUMBER}",
    },
    "audits": {"id": f"0-{NUMBER}", "collection": "users", "item": "ada", "kind": "created", "caller": "program"},
    "bookings": {
        "id": f"booking-{NUMBER}",
        "room": "blue",
        "start": "2026-01-01T10:00:00Z",
        "end": "2026-01-01T11:00:00Z",
    },
    "files": {"id": f"file-{NUMBER}", "name": "cat.jpg"},
    "invoices": {"id": f"invoice-{NUMBER}", "amount": 5, "number": 1},
    "orders": {
        "id": f"order-{NUMBER}",
        "customer": f"customer-{NUMBER}",
        "product": f"product-{NUMBER}",
        "quantity": 2,
        "total": 5,
        "status": "sent",
        "created_at": "2026-01-15T12:00:00Z",
    },
    "places": {"id": f"place-{NUMBER}", "name": "Here", "title": "Here"},
    "products": {"id": f"product-{NUMBER}", "name": "Lamp", "sku": f"L-{NUMBER}", "price": 2.5, "stock": 1},
    "users": {"id": f"user-{NUMBER}", "email": f"user-{NUMBER}@example.org"},
}
OPEN = {"product": f"product-{NUMBER}", "status": "open", "created_at": "2026-01-15T12:00:00Z"}
COPY = """
WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO items (collection, id, owner, version, updated_at, fingerprint, body)
SELECT
    collection,
    replace(id, :number, printf('%07d', n)),
    replace(owner, :number, printf('%07d', n)),
    version,
    updated_at,
    fingerprint,
    replace(replace(body, :number, printf('%07d', n)), '"number":1,', '"number":' || n || ',')
FROM items CROSS JOIN numbers
WHERE id LIKE '%-' || :number"""

COUNT = "UPDATE counters SET items = items + :more, changes = changes + :more WHERE collection = :collection"


class Recipes(NamedTuple):
    """A running service with all recipes."""

    server: Gunicorn
    service: Path
    environ: dict[str, str]
    count: int

    def run(self, *arguments: str) -> str:
        """The output of the command `restkeeper`."""
        return restkeeper(self.service, self.environ, *arguments)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """The JSON of the response to a request that succeeds."""
        response = self.server.post(path, body, headers)
        assert response.status == 200, response.json()
        return response.json()

    def get(self, path: str, **headers: str) -> Any:
        response = self.server.get(path, headers)
        assert response.status == 200, response.json()
        return response.json()

    def at_once(self, path: str, bodies: list[Any]) -> list[int]:
        """The statuses of POST requests that are sent together."""
        with ThreadPoolExecutor(CALLERS) as pool:
            return [response.status for response in pool.map(lambda body: self.server.post(path, body), bodies)]


def restkeeper(service: Path, environ: dict[str, str], *arguments: str) -> str:
    command = ["restkeeper", *arguments]
    done = subprocess.run(command, cwd=service, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def import_items(service: Path, environ: dict[str, str], items: dict[str, list[Any]]) -> None:
    named = []
    for name, lines in items.items():
        file = service / f"{name}.ndjson"
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        named += [name, str(file)]
    restkeeper(service, environ, "import", *named)


def without_title(places: str) -> str:
    """The declaration of places before the recipe for a new name."""
    declared = re.sub("^    title = .*\n", "", places.partition("RESOURCE =")[0], flags=re.M)
    return f'{declared}RESOURCE = Resource("places", "place", PlaceSchema)\n'


def fill(service: Path, environ: dict[str, str], count: int) -> None:
    """Store some items, and `count` copies of one item of each collection: rows, because an import takes minutes."""
    places = service / "resources" / "places.py"
    recipe = places.read_text(encoding="utf-8")
    places.write_text(without_title(recipe), encoding="utf-8")
    import_items(service, environ, {"places": [{"name": f"Old {n}"} for n in range(WITHOUT_TITLE)]})
    places.write_text(recipe, encoding="utf-8")
    import_items(service, environ, {name: [item] for name, item in sorted(COPIED.items(), reverse=True)})
    import_items(service, environ, {"orders": [{"id": f"open-{n}", **OPEN} for n in range(EXPIRED)]})
    file = environ["DATABASE_URL"].removeprefix("sqlite:///")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(COPY, {"count": count, "number": NUMBER})
        for name in COPIED:
            connection.execute(COUNT, {"more": count - 1, "collection": name})


@pytest.fixture(
    scope="module",
    params=[10, pytest.param(200_000, marks=pytest.mark.matrix)],
)
def recipes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recipes]:
    """The service of the page, with this number of items in each collection."""
    folder = tmp_path_factory.mktemp("recipes")
    service, environ = service_of(PAGE, folder), environ_of(folder)
    fill(service, environ, request.param)
    text = "".join(block.text for block in blocks(PAGE, "text"))
    origins = dict(re.findall(r"^(CORS_ORIGINS)=(\S+) restkeeper serve$", text, re.M))
    with Gunicorn(folder, root=service, app="", PYTHONPATH=str(ROOT), **origins) as server:
        yield Recipes(server, service, {**environ, "BASE": server.base}, request.param)


def test_the_commands_of_the_page_run(recipes: Recipes) -> None:
    """In their order, with the output below them."""
    for block, following in pairwise([*blocks(PAGE), Block("", "", "")]):
        if block.language == "sh":
            expected = following.text if (following.language, following.note) == ("log", "output") else ""
            script = block.text.replace(BASE, recipes.server.base)
            run_block(script, recipes.service, recipes.environ, expected)


def test_a_price_is_computed(recipes: Recipes) -> None:
    """When the quantity changes it is computed again, and not when anything else does; no price is a 409."""
    lamp = recipes.post("/products", {"name": "Lamp", "price": 12.5})["id"]
    order = recipes.post("/orders", {"product": lamp, "quantity": 3})
    assert order["total"] == 37.5
    path = f"/orders/{order['id']}"
    assert recipes.server.request("PATCH", f"/products/{lamp}", {"price": 20}).status == 200
    assert recipes.server.request("PATCH", path, {"status": "sent"}).json()["total"] == 37.5
    assert recipes.server.request("PATCH", path, {"quantity": 2}).json()["total"] == 40
    assert recipes.server.post("/orders", {"product": lamp, "total": 1}).status == 422
    unpriced = recipes.post("/products", {"name": "Gift"})["id"]
    assert recipes.server.post("/orders", {"product": unpriced}).json()["detail"] == "the product has no price"


def test_a_room_is_booked_once_at_a_time(recipes: Recipes) -> None:
    """Of 20 overlapping bookings of the room that has all the others, at once, one succeeds."""
    times = [(f"2027-01-{n + 1:02}T00:00:00Z", f"2027-02-{n + 1:02}T00:00:00Z") for n in range(CALLERS)]
    bookings = [{"room": "blue", "start": start, "end": end} for start, end in times]
    assert sorted(recipes.at_once("/bookings", bookings)) == [200] + [409] * (CALLERS - 1)
    recipes.post("/bookings", {**bookings[0], "room": "red"})
    assert recipes.server.post("/bookings", {**bookings[0], "end": bookings[0]["start"]}).status == 422


def test_invoices_have_numbers_without_a_gap(recipes: Recipes) -> None:
    """Of 50 creates, at once."""
    assert {*recipes.at_once("/invoices", [{"amount": n} for n in range(50)])} == {200}
    newest = recipes.get("/invoices?sort=-number&limit=51&fields=number")
    assert [invoice["number"] for invoice in newest] == [*range(recipes.count + 50, recipes.count - 1, -1)]


def test_a_deleted_article_is_kept_and_logged(recipes: Recipes) -> None:
    """Callers do not see it any more, its slug stays taken, and the log has both changes."""
    article = recipes.post("/articles", {"title": "A lamp & a desk"})
    assert article["slug"] == "a-lamp-a-desk"
    path = f"/articles/{article['id']}"
    assert recipes.server.request("DELETE", path).status == 200
    assert recipes.server.get(path).status == 404 and recipes.get("/articles?slug=a-lamp-a-desk") == []
    assert recipes.server.post("/articles", {"title": "A lamp, a desk"}).json()["code"] == "duplicate"
    assert recipes.server.post("/articles", {"title": "灯"}).status == 422
    kinds = [entry["kind"] for entry in recipes.get("/audits?limit=2")]
    assert kinds == ["updated", "created"]


def test_a_field_is_hidden_from_customers(recipes: Recipes) -> None:
    """Staff see the note of an order; for its customer, there is no such field."""
    scopes = ("--scope", "orders:read", "--scope", "products:read")
    customer = recipes.run("keys", "create", "Cid", "--owner", "cid", *scopes).strip()
    staff = recipes.run("keys", "create", "desk", *scopes, "--scope", "orders:all", "--scope", "orders:manage").strip()
    order = recipes.post("/orders", {"product": f"product-{NUMBER}", "customer": "cid", "note": "Rings twice."})
    path = f"/orders/{order['id']}"
    assert recipes.get(path, **{"X-API-Key": staff})["note"] == "Rings twice."
    assert "note" not in recipes.get(path, **{"X-API-Key": customer})
    assert recipes.server.get("/orders?note=x", {"X-API-Key": customer}).status == 400


def test_an_address_for_an_upload_is_signed(recipes: Recipes, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the example of AWS, "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)"."""
    monkeypatch.setenv("S3_HOST", "examplebucket.s3.amazonaws.com")
    monkeypatch.setenv("S3_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("S3_SECRET", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    signed = runpy.run_path(str(recipes.service / "resources" / "files.py"))["signed"]
    address = signed("GET", "test.txt", "2013-05-24T00:00:00.000000Z", 86400)
    assert address.endswith("=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404")
    made = recipes.post("/files/upload", {"name": "cat.jpg"})
    assert recipes.get(f"/files/{made['id']}")["name"] == "cat.jpg" and f"/{made['id']}?" in made["url"]


class EndOfEvents(Exception):
    """Ends a program that follows events without an end."""


def followed(recipes: Recipes, name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[[], None]:
    """A program of the page that follows events, from the newest one; each call gives it the events until now."""
    text = (recipes.service / name).read_text(encoding="utf-8").replace(BASE, recipes.server.base)
    (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(recipes.service))
    real = requests.get

    def get(url: str, **options: Any) -> Any:
        page = real(url.replace("wait=30", "wait=0"), **options)
        if "latest" not in url and not page.json():
            raise EndOfEvents
        return page

    monkeypatch.setattr("requests.get", get)

    def run() -> None:
        with pytest.raises(EndOfEvents):
            runpy.run_path(str(folder / name))

    return run


def test_a_queue_gets_each_change(
    recipes: Recipes, redis: Redis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In order, also those of the time in which the program does not run."""
    monkeypatch.setattr("redis.Redis", lambda: redis.client)
    run = followed(recipes, "to_queue.py", monkeypatch, tmp_path)
    run()
    names = [f"Desk {n}" for n in range(3)]
    for name in names:
        recipes.post("/products", {"name": name})
    run()
    run()
    products = [json.loads(event) for event in redis.client.lrange("changes", 0, -1)]
    assert [event["data"]["name"] for event in products if event["type"] == "product.created"] == names


def test_a_mail_is_sent_for_each_order(recipes: Recipes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An order whose mail fails is tried again."""
    sent: list[str] = []

    class Server:
        def __init__(self, host: str) -> None:
            self.fails = host != "localhost" or not sent

        def __enter__(self) -> "Server":
            return self

        def __exit__(self, *exc: object) -> None: ...

        def send_message(self, mail: Any) -> None:
            sent.append(mail["Subject"])
            if self.fails:
                raise smtplib.SMTPServerDisconnected

    monkeypatch.setattr("smtplib.SMTP", Server)
    run = followed(recipes, "mails.py", monkeypatch, tmp_path)
    run()
    order = recipes.post("/orders", {"product": f"product-{NUMBER}", "quantity": 2})
    with pytest.raises(smtplib.SMTPServerDisconnected):
        run()
    run()
    assert sent == [f"Order {order['id']}"] * 2


def test_the_job_of_the_night_changes_what_is_old(recipes: Recipes) -> None:
    """By the line for cron: the old orders that were open are expired, and no others."""
    text = "".join(block.text for block in blocks(PAGE, "text"))
    (command,) = re.findall(r"^0 3 \* \* \* cd \S+ && DATABASE_URL=\S+ \.venv/bin/restkeeper (.+)$", text, re.M)
    recipes.run(*command.split())
    expired = recipes.get("/orders?status=expired&fields=id")
    assert [order["id"] for order in expired] == [f"open-{n}" for n in range(EXPIRED)]


def test_a_field_has_another_name_without_a_pause(recipes: Recipes) -> None:
    """Both names are right, whichever of them a client writes; a script gives the title to the older items."""
    place = recipes.post("/places", {"name": "Bar"})
    path = f"/places/{place['id']}"
    for method, body in (
        ("PATCH", {"title": "Cafe"}),
        ("PATCH", {"name": "Inn"}),
        ("PUT", {"title": "Pub"}),
        ("PUT", {"name": "Club"}),
    ):
        changed = recipes.server.request(method, path, body).json()
        assert {changed["name"], changed["title"]} == {*body.values()}, body
    unnamed = recipes.post("/places", {})["id"]
    recipes.run("run", "copy_names.py")
    assert [place["id"] for place in recipes.get("/places?title=&limit=2")] == [unnamed]
    old = recipes.get("/places?title[starts]=Old&fields=name,title&limit=1000")
    assert len(old) == WITHOUT_TITLE and all(place["name"] == place["title"] for place in old)


def test_a_page_shows_the_newest_products(recipes: Recipes) -> None:
    recipes.post("/products", {"name": "<Newest>"})
    assert b"<ul><li>&lt;Newest&gt;</li><li>" in recipes.server.get("/newest").body


def test_a_service_is_behind_a_prefix(recipes: Recipes, tmp_path: Path) -> None:
    """Its addresses have the prefix."""
    (prefix,) = re.findall(r"^SCRIPT_NAME=(\S+) ", "".join(block.text for block in blocks(PAGE, "text")), re.M)
    url = recipes.environ["DATABASE_URL"]
    settings = {"SCRIPT_NAME": prefix, "DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
    with Gunicorn(tmp_path, root=recipes.service, app="", workers=1, **settings) as server:
        response = server.get(f"{prefix}/products?limit=1")
    assert response.status == 200 and f"<{prefix}/products?" in response.headers["link"]


def test_each_tenant_has_a_service(tmp_path: Path) -> None:
    """With a store that has none of the items of the other one."""
    service = service_of(PAGE, tmp_path)
    text = "".join(block.text for block in blocks(PAGE, "text"))
    names = re.findall(r"^DATABASE_URL=sqlite:////srv/(\w+)\.db PORT=\d+ restkeeper serve$", text, re.M)
    assert len(names) == 2
    counts = []
    for name in names:
        (folder := tmp_path / name).mkdir()
        with Gunicorn(folder, root=service, app="", workers=1, PYTHONPATH=str(ROOT)) as server:
            assert server.post("/products", {"name": name}).status == 200
            counts.append(server.get("/products").json()[0]["name"])
            assert len(server.get("/products").json()) == 1
    assert counts == names


def test_the_report_of_months_has_all_orders(recipes: Recipes) -> None:
    (january, *_) = recipes.get("/orders?count=month(created_at)&aggregate[sum]=total&created_at[lt]=2026-02-01")
    assert january["group"] == {"month(created_at)": "2026-01"}
    assert (january["count"], january["sum"]["total"]) == (recipes.count + EXPIRED, recipes.count * 5)


def test_each_recipe_has_code_or_commands() -> None:
    """A recipe has code or commands, which are run here; one is about a field of another recipe."""
    text = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    recipes = re.findall(r"^## (.+)\n((?:(?!^## ).*\n)+)", text, re.M)
    assert len(recipes) >= 25
    for heading, recipe in recipes:
        assert "```" in recipe or heading == "Hide a field from some callers", heading
