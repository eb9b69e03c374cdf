"""Pages limited in bytes: paging returns every item once, and the links are short enough for a header."""

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from restkeeper.config import Config
from restkeeper.errors import InvalidQuery
from restkeeper.resources.items import require_whole
from restkeeper.resources.queries import ListRequest
from restkeeper.service import service_of
from restkeeper.storage.interface import Page, Query
from restkeeper.web.pagination import LINK_BYTES, link_header
from tests.shop import create_app

QUERIES = (
    *("", "sort=-price", "sort=price,-name", "status=active&sort=-name", "fields=name"),
    "q=n&fields=name&sort=stock",
)


def links_of(response: TestResponse) -> dict[str, str]:
    return {rel: target for target, rel in re.findall(r'<([^>]*)>; rel="([\w-]+)"', response.headers.get("Link", ""))}


def fill(client: FlaskClient, chance: random.Random, count: int) -> None:
    """Products of random sizes, with prices that tie."""
    for n in range(count):
        item = {"name": f"n{n:03}", "price": n % 3 or None, "description": "d" * chance.choice([0, 10, 500, 3000])}
        assert client.post("/products", json=item).status_code == 200


def walk(client: FlaskClient, target: str, rel: str) -> Iterator[list[str]]:
    while target:
        response = client.get(target)
        assert response.status_code == 200, response.text
        yield [item["name"] for item in response.json]
        target = links_of(response).get(rel, "")


@pytest.mark.parametrize("seed", range(5))
def test_paging_returns_every_item_once(seed: int) -> None:
    """Whatever the sizes of items and pages, `next` links lead through all items in order, and `prev` links back."""
    chance = random.Random(seed)  # noqa: S311
    config = Config(page_bytes=chance.choice([1024, 2000, 5000]), page_limit_max=100)
    client = create_app(config).test_client()
    fill(client, chance, 23)
    for query in QUERIES:
        whole = [item["name"] for n in range(23) for item in client.get(f"/products?offset={n}&limit=1&{query}").json]
        limit = chance.choice([1, 3, 7, 100])
        there = list(walk(client, f"/products?limit={limit}&{query}", "next"))
        assert [name for page in there for name in page] == whole
        assert all(1 <= len(page) <= limit for page in there) and (limit == 1 or len(there) > 23 / limit)
        last = links_of(client.get(f"/products?limit={limit}&{query}"))["last"]
        back = list(walk(client, last, "prev"))
        assert [name for page in reversed(back) for name in page] == whole


def test_a_page_has_exactly_its_bytes() -> None:
    """Items with as many bytes as a page has are one page; with one byte more the last item is on the next page."""
    client = create_app(Config()).test_client()
    sizes = [len(client.post("/products", json={"name": "x", "description": "d" * 700}).data) for _ in range(3)]
    assert len(set(sizes)) == 1
    for bytes_, count in ((3 * sizes[0], 3), (3 * sizes[0] - 1, 2), (1024, 1)):
        client = create_app(Config(page_bytes=bytes_)).test_client()
        for _ in range(3):
            client.post("/products", json={"name": "x", "description": "d" * 700})
        response = client.get("/products")
        assert (len(response.json), "next" in links_of(response)) == (count, count < 3)


def test_a_cut_page_by_offset_is_refused() -> None:
    """A client that counts pages would miss items: 400 names a limit with which paging returns all."""
    client = create_app(Config(page_bytes=5000)).test_client()
    fill(client, random.Random(1), 20)  # noqa: S311
    seen: list[str] = []
    while len(seen) < 20:
        limit = 20
        response = client.get(f"/products?offset={len(seen)}&limit={limit}")
        if response.status_code == 400:
            assert [fault["parameter"] for fault in response.json["errors"]] == ["limit"]
            limit = response.json["limit"]
            assert client.get(f"/products?offset={len(seen)}&limit={limit + 1}").status_code == 400
            response = client.get(f"/products?offset={len(seen)}&limit={limit}")
        seen += [item["name"] for item in response.json]
    assert seen == [f"n{n:03}" for n in range(20)]
    assert client.get("/products?range=[0,19]").status_code == 400
    require_whole(
        ListRequest(Query(), 20), Page([b"{}"], [""], [None], [None], cut=True)
    )  # with a cursor, paging continues


def test_a_page_is_cached_with_the_revision_of_its_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write between the check of the revision and the read of the page is in the page, which has the new ETag."""
    app = create_app(Config())
    client, other = app.test_client(), app.test_client()
    client.post("/products", json={"name": "a"})
    store = service_of(app).store
    read = store.page

    def late(*arguments: Any, **options: Any) -> Page:
        monkeypatch.setattr(store, "page", read)
        assert other.post("/products", json={"name": "b"}).status_code == 200
        return read(*arguments, **options)

    monkeypatch.setattr(store, "page", late)
    first = client.get("/products")
    again = client.get("/products")
    assert [item["name"] for item in first.json] == [item["name"] for item in again.json] == ["a", "b"]
    assert first.headers["ETag"] == again.headers["ETag"]
    assert client.get("/products", headers={"If-None-Match": first.headers["ETag"]}).status_code == 304


def test_long_links_are_omitted() -> None:
    """From a Link header of more than 4 KiB last, first and prev are omitted in this order; next alone must fit."""
    overhead = len('<>; rel="next"')

    def rels(size: int) -> list[str]:
        value = link_header({rel: "x" * size for rel in ("first", "prev", "next", "last")})
        assert len(value) <= LINK_BYTES
        return re.findall(r'rel="(\w+)"', value)

    assert rels(1000) == ["first", "prev", "next", "last"]
    assert rels(1100) == ["first", "prev", "next"]
    assert rels(2000) == ["prev", "next"]
    assert rels(LINK_BYTES - overhead) == ["next"]
    with pytest.raises(InvalidQuery, match="fewer values"):
        rels(LINK_BYTES - overhead + 1)
    assert link_header({"first": "x" * 5000, "last": "x" * 5000}) == ""


@pytest.mark.needs("events")
def test_a_list_of_many_ids_has_a_short_link(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of 180 ids returns all items, with a Link short enough for any proxy; a page of it does, or is 400."""
    all_ids = [client.post("/products", json={"name": "x"}).json["id"] for _ in range(180)]
    for count in (20, 60, 85, 180):
        query = "&".join(f"id={id}" for id in all_ids[:count])
        response = client.get(f"/products?{query}")
        assert (len(response.json), len(response.headers.get("Link", "")) <= LINK_BYTES) == (count, True)
        part = client.get(f"/products?{query}&limit=5")
        if count > 90:
            assert (part.status_code, "fewer values" in part.json["detail"]) == (400, True)
        else:
            assert "next" in links_of(part) and len(part.headers["Link"]) <= LINK_BYTES
    assert client.get("/api/v1/events?type=" + ",".join(["product.*"] * 200)).status_code == 200
    monkeypatch.setattr("restkeeper.features.events.find_events", None)  # it is refused before
    response = client.get("/api/v1/events?type=" + ",".join(["product.*"] * 700))
    assert (response.status_code, "fewer values" in response.json["detail"]) == (400, True)


def test_positions_near_the_ends_and_of_another_store(client: FlaskClient) -> None:
    """`prev` of offset 1 begins at 0; if the total is a multiple of the limit, `last` is a full page."""
    for n in range(6):
        client.post("/products", json={"name": str(n)})
    assert links_of(client.get("/products?offset=1&limit=3"))["prev"] == "/products?limit=3&offset=0"
    assert links_of(client.get("/products?offset=0&limit=3"))["last"] == "/products?limit=3&offset=3"
    assert len(client.get("/products?limit=3&offset=3").json) == 3
    target = links_of(client.get("/products?limit=2"))["next"]
    restored = create_app(Config()).test_client()
    assert (restored.get(target).status_code, restored.get(target).json) == (200, [])
