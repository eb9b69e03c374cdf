"""Lists: paging in both styles, filters, order, fields, search."""

from itertools import product
from typing import Any

import orjson
import pytest
from flask.testing import FlaskClient
from werkzeug.datastructures import MultiDict
from werkzeug.test import TestResponse

from restkeeper.resources import items
from restkeeper.resources.cache import Cache
from restkeeper.resources.items import PAGES_BYTES
from restkeeper.resources.queries import ListRequest
from restkeeper.storage.interface import Query, Sort
from restkeeper.web import pagination
from tests.test_pages import links_of


def fill(client: FlaskClient, count: int) -> list[dict[str, Any]]:
    return [
        client.post(
            "/products",
            json={"name": f"{n:03}", "price": n % 3 or None, "tags": [f"t{n % 2}"], "stock": n, "sku": f"SKU-{n}"},
        ).json
        for n in range(count)
    ]


def names(response: TestResponse) -> list[str]:
    assert response.status_code == 200, response.text
    return [item["name"] for item in response.json]


def test_next_and_prev_walk_the_whole_list(client: FlaskClient) -> None:
    """`next` links lead through all items once and in order, `prev` links lead back, and `last` is the end."""
    fill(client, 25)
    queries = ("", "sort=-price", "sort=price,-name", "tags=t0&sort=-stock", "q=sku-1&fields=name")
    for query, style in product(queries, ("", "offset=0&")):
        whole = names(client.get(f"/products?limit=100&{query}"))
        response = client.get(f"/products?{style}limit=4&{query}")
        pages = [names(response)]
        assert response.headers["X-Total-Count"] == str(len(whole))
        while "next" in links_of(response):
            response = client.get(links_of(response)["next"])
            pages.append(names(response))
        assert [name for page in pages for name in page] == whole
        assert names(client.get(links_of(response)["first"])) == pages[0]
        last = names(client.get(links_of(response)["last"]))
        assert last == whole[-len(last) :]
        for page in reversed(pages[:-1]):
            response = client.get(links_of(response)["prev"])
            assert names(response) == page
        assert "prev" not in links_of(client.get(f"/products?{style}limit=4&{query}"))


def test_a_search_finds_each_word(client: FlaskClient) -> None:
    """In any searched field, in any order and case; a text in quotes is one phrase, and other quotes are letters."""
    for name, sku in (
        ("Desk lamp", "A 1"),
        ("lamp for a DESK", "B 2"),
        ("Desk", "LAMP 3"),
        ("Lamp", "C 4"),
        ('5" disk', "D"),
    ):
        client.post("/products", json={"name": name, "sku": sku})
    for text, found in (
        ("desk lamp", ["Desk lamp", "lamp for a DESK", "Desk"]),
        ("  lamp   DESK ", ["Desk lamp", "lamp for a DESK", "Desk"]),
        ('"desk lamp"', ["Desk lamp"]),
        ("lamp 3 des", ["Desk"]),
        ('5"', ['5" disk']),
        ('"', ['5" disk']),
        ('"5" disk"', ['5" disk']),
        ("lamp stool", []),
    ):
        assert names(client.get("/products", query_string={"q": text, "sort": "created_at"})) == found, text
    many = client.get("/products?q=" + "+".join("a" * 11))
    assert many.status_code == 400 and 'at most 10 words; quotes make one of them: "desk lamp"' in many.json["detail"]


def test_a_page_has_20_items_by_default(client: FlaskClient) -> None:
    """The parameter `limit` makes it smaller or larger, up to 100."""
    fill(client, 30)
    assert [len(client.get(f"/products{query}").json) for query in ("", "?limit=1", "?limit=100")] == [20, 1, 30]


def test_an_empty_list_and_its_links(client: FlaskClient) -> None:
    for style in ("", "?offset=0"):
        response = client.get(f"/products{style}")
        assert (response.json, response.headers["X-Total-Count"]) == ([], "0")
        assert links_of(response).keys() == {"first", "last"}
        assert client.get(links_of(response)["last"]).json == []
    assert client.get("/products?offset=50").json == []
    for query in ("range=[0,9]", "_start=0&_end=x", "cursor=x"):
        assert client.options(f"/products?{query}").status_code == 200
    fill(client, 3)
    response = client.get("/products?limit=1&q=SKU%26-&tags=t0&offset=0")
    assert links_of(response)["first"] == "/products?limit=1&q=SKU%26-&tags=t0&offset=0"


def test_bad_parameters_are_named(client: FlaskClient) -> None:
    for query in (
        *("limit=0", "limit=1001", "limit=-1", "limit=ten", "limit=", "limit=1&limit=2", "limit=٣"),
        *("offset=-1", "offset=99999999999999999999", "cursor=nonsense", "cursor=", "cursor=%00", "cursor=é"),
        *("sort=colour", "sort=", "sort=name,name", "sort=tags", "sort=description", "fields=", "colour=red"),
        *("price[bigger]=1", "tags[gt]=1", "price=ten", "price=NaN", "stock=1.5", "stock=9223372036854775808"),
        *("created_at[gt]=yesterday", "attributes=1"),
    ):
        response = client.get(f"/products?{query}")
        assert response.status_code == 400, query
        assert response.json["type"].endswith("/problems/invalid-query")
        assert [fault["parameter"] for fault in response.json["errors"]] == [query.partition("=")[0]]
    response = client.get("/products?limit=0&colour=red&sort=size&price=x")
    assert {fault["parameter"] for fault in response.json["errors"]} == {"limit", "colour", "sort", "price"}
    assert "created_at" in next(fault["detail"] for fault in response.json["errors"] if fault["parameter"] == "colour")


def test_a_cursor_is_bound_to_its_list(client: FlaskClient) -> None:
    """A cursor is refused for another collection, sort or filter, and with an offset; limit and fields may change."""
    fill(client, 5)
    cursor = links_of(client.get("/products?limit=2"))["next"].partition("cursor=")[2]
    for other in ("/users?", "/products?sort=name&", "/products?tags=t1&", "/products?q=x&"):
        assert client.get(f"{other}cursor={cursor}").status_code == 400
    assert names(client.get(f"/products?cursor={cursor}&limit=3&fields=name")) == ["002", "003", "004"]
    response = client.get(f"/products?cursor={cursor}&offset=1")
    assert (response.status_code, response.json["errors"][0]["parameter"]) == (400, "offset")


def test_a_changed_cursor_is_refused(client: FlaskClient) -> None:
    fill(client, 3)
    cursor = links_of(client.get("/products?limit=1"))["next"].partition("cursor=")[2].partition("&")[0]
    for place in range(len(cursor)):
        changed = cursor[:place] + ("B" if cursor[place] == "A" else "A") + cursor[place + 1 :]
        assert client.get(f"/products?limit=1&cursor={changed}").status_code == 400
    assert client.get(f"/products?limit=1&cursor={cursor}").status_code == 200


def test_a_cursor_without_a_position_in_the_list_is_refused(client: FlaskClient) -> None:
    """Its checksum is right, as it is not secret, but it is no position in this list."""
    wrong: tuple[object, ...] = (5, [], [False, {"a": 1}], [False, "a", "b"], ["x", "a"], [True, [1]], {"a": 1})
    keys = [2**63, 2**64 - 1, True, [], {}]
    for query, position in (*(({}, each) for each in wrong), *(({"sort": "stock"}, [False, key, "x"]) for key in keys)):
        payload = orjson.dumps(position)
        asked = Query(sort=tuple(Sort(name) for name in query.values()))
        bound = pagination._bound("/products", MultiDict(query), ListRequest(asked, 20))
        token = pagination._token(pagination._checksum(payload, bound) + payload)
        response = client.get("/products", query_string={**query, "cursor": token})
        assert (response.status_code, response.json["errors"][0]["parameter"]) == (400, "cursor"), position


FOUND = [
    ("name=001", ["001"]),
    ("name=001&name=003", ["001", "003"]),
    ("name[in]=001,004,nope", ["001", "004"]),
    ("name[ne]=001&stock[lt]=3", ["000", "002"]),
    ("name[like]=00", ["000", "001", "002", "003", "004", "005"]),
    ("sku[like]=sku-3", ["003"]),
    ("stock[gte]=2&stock[lte]=3", ["002", "003"]),
    ("stock[gt]=4", ["005"]),
    ("price[gte]=2", ["002", "005"]),
    ("price=2.0", ["002", "005"]),
    ("tags=t1", ["001", "003", "005"]),
    ("tags[in]=t1,t9&stock[lt]=2", ["001"]),
    ("q=SKU-5", ["005"]),
    ("q=t1&stock=1", ["001"]),
    ("status=archived", []),
    ("version=1&limit=1", ["000"]),
    ("sort=-stock&limit=2", ["005", "004"]),
    ("sort=price,-stock&limit=3", ["003", "000", "004"]),
    ("created_at[gt]=2020-01-01&limit=1", ["000"]),
    ("created_at[lt]=2020-01-01T00:00:00Z", []),
    ("created_at[gt]=2020-01-01T00:00:00+01:00&limit=1", ["000"]),
]


def test_filters_and_order(client: FlaskClient) -> None:
    fill(client, 6)
    for query, found in FOUND:
        response = client.get(f"/products?{query}")
        assert (query, names(response)) == (query, found)
        if "limit" not in query:
            assert response.headers["X-Total-Count"] == str(len(found))


def test_more_items_than_are_counted_have_no_total(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page itself shows needs no count, and the number of all items is always known."""
    monkeypatch.setattr(items, "MOST_COUNTED", 4)
    fill(client, 6)
    matching = "/products?stock[gte]={}&limit=2&offset={}"
    totals = {
        (least, offset): client.get(matching.format(least, offset)).headers.get("X-Total-Count")
        for least in (0, 1, 2)
        for offset in (0, 2, 4, 6)
    }
    assert totals == {
        **{(0, 0): None, (0, 2): None, (0, 4): "6", (0, 6): None},
        **{(1, 0): None, (1, 2): None, (1, 4): "5", (1, 6): None},
        **{(2, 0): "4", (2, 2): "4", (2, 4): "4", (2, 6): "4"},
    }
    assert set(links_of(client.get(matching.format(0, 2)))) == {"first", "prev", "next"}
    assert client.get("/products?limit=2").headers["X-Total-Count"] == "6"


def test_texts_are_found_without_regard_to_case_and_without_nul(client: FlaskClient) -> None:
    client.post("/users", json={"email": "Ada@Example.org"})
    assert len(client.get("/users?email=ada@EXAMPLE.ORG").json) == 1
    client.post("/products", json={"name": "a\ufffdb", "tags": ["\ufffd"]})
    for query in ("q=a%00b", "name=%00", "name[like]=a%00", "name[ne]=%00", "tags=%00", "id[in]=a,%00"):
        refused = client.get(f"/products?{query}")
        assert refused.status_code == 400
        assert refused.json["errors"] == [{"parameter": query.partition("=")[0], "detail": "must not hold NUL"}]


def test_the_cache_of_lists_is_limited(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lists are requested, the cache stays within its bytes, and each response is right."""
    cache_sizes: list[int] = []
    add = Cache.add

    def watched(self: Cache[Any, Any], key: Any, value: Any, size: int) -> None:
        add(self, key, value, size)
        cache_sizes.append(sum(size for _, size in self._cached.values()))
        assert size > len(value.headers[-2][1])  # the Link counts, too

    monkeypatch.setattr(Cache, "add", watched)
    for n in range(700):
        assert client.get(f"/products?q={n}{'x' * 7000}").json == []
    assert len(cache_sizes) == 700 and max(cache_sizes) <= PAGES_BYTES
    assert cache_sizes[-1] > PAGES_BYTES / 2
