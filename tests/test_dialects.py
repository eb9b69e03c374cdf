"""Clients of other packages, unmodified: the requests that they send, and what they read from the responses.

Recorded from ra-data-json-server 5.15.3, ra-data-simple-rest 5.15.3 and @refinedev/simple-rest 6.0.1; json-server
0.17.4 gives the same results for its requests.
"""

import re
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from restkeeper import ItemSchema, Resource, Text
from restkeeper.config import Config
from restkeeper.features import dialects
from restkeeper.resources import items as resource_items
from tests.json_file import client_of
from tests.shop import RESOURCES, create_app
from tests.shop.bills import BILLS
from tests.shop.related import create_app as create_related
from tests.test_queries import SAMPLE

pytestmark = pytest.mark.needs("dialects")

COUNT = 12
PATHS = ("/products", "/api/v1/products")


def fill(client: FlaskClient, count: int = COUNT) -> list[dict[str, Any]]:
    """Products named p00, p01, …: every third has a stock, every fifth is a draft, the odd ones have a tag."""
    made = []
    for n in range(count):
        chosen = {"status": "active" if n % 5 else "draft", "tags": ["odd" if n % 2 else "even"]}
        made.append(client.post("/products", json={"name": f"p{n:02}", "price": n, "stock": n % 3, **chosen}).json)
    return made


def shown(response: TestResponse) -> list[int]:
    """The numbers of the products of a list, in order."""
    assert response.status_code == 200, response.text
    return [int(item["name"][1:]) for item in response.get_json()]


def fault(response: TestResponse) -> str:
    """The fault of the one bad parameter of a problem."""
    assert (response.status_code, response.content_type) == (400, "application/problem+json"), response.text
    assert response.get_json()["type"].endswith("/problems/invalid-query")
    (error,) = response.get_json()["errors"]
    return f"{error['parameter']} {error['detail']}"


JSON_SERVER = [
    # ra-data-json-server: getList, with a page, order and filters; getManyReference
    ("_end=5&_order=DESC&_sort=price&_start=0", [11, 10, 9, 8, 7], 12),
    ("_end=15&_order=ASC&_sort=id&_start=10", [10, 11], 12),
    ("_end=30&_order=ASC&_sort=id&_start=20", [], 12),
    ("_end=10&_order=ASC&_sort=id&_start=0&status=draft", [0, 5, 10], 3),
    ("_end=2&_order=ASC&_sort=id&_start=0&stock=1&stock=2&tags=odd", [1, 5], 4),
    ("_end=10&_order=ASC&_sort=id&_start=0&price_gte=5&price_lte=7&q=P0", [5, 6, 7], 3),
    ("_end=4&_order=DESC&_sort=price&_start=2&status=draft", [0], 3),
    # refine: getList with sorters, filters (contains, ne, in), a search
    ("_end=6&_order=asc%2Cdesc&_sort=stock%2Cprice&_start=1", [6, 3, 0, 10, 7], 12),
    ("_end=10&_start=0&name_like=P0&price_gte=5&price_lte=9&status=active&stock_ne=0", [7, 8], 2),
    # json-server: what test_json_server.py does not compare
    ("_page=0&_limit=2", [0, 1], 12),
    ("_page=2&_limit=2&_start=7&_end=9", [2, 3], 12),
    ("_start=10", [10, 11], 12),
    ("_sort=stock,price&_order=desc&_limit=3", [2, 5, 8], 12),
    ("_order=desc&_limit=2", [0, 1], 12),
    ("_sort=&_limit=2", [0, 1], 12),
    ("stock_ne=1&stock_ne=2", [0, 3, 6, 9], 4),
    # with parameters of ours: there is one order and one range
    ("sort=-price&_start=1&_end=3&stock[ne]=1", [9, 8], 8),
    ("_sort=price&_order=desc&limit=2&offset=1", [10, 9], 12),
]


def test_clients_of_json_server(client: FlaskClient) -> None:
    """Lists of ra-data-json-server, refine and json-server have their items, order and total, on every path."""
    fill(client)
    for (query, items, total), path in product(JSON_SERVER, PATHS):
        response = client.get(f"{path}?{query}")
        assert (query, shown(response), response.headers["X-Total-Count"]) == (query, items, str(total))
        assert "Content-Range" not in response.headers


SIMPLE_REST = [
    ("filter=%7B%7D&range=%5B0%2C4%5D&sort=%5B%22price%22%2C%22DESC%22%5D", [11, 10, 9, 8, 7], "0-4/12"),
    ("filter=%7B%7D&range=%5B5%2C9%5D&sort=%5B%22name%22%2C%22ASC%22%5D", [5, 6, 7, 8, 9], "5-9/12"),
    ("filter=%7B%7D&range=%5B10%2C14%5D&sort=%5B%22id%22%2C%22ASC%22%5D", [10, 11], "10-11/12"),
    ("filter=%7B%7D&range=%5B20%2C29%5D&sort=%5B%22id%22%2C%22ASC%22%5D", [], "*/12"),
    ("filter=%7B%22stock%22%3A2%7D&range=%5B0%2C9%5D&sort=%5B%22id%22%2C%22ASC%22%5D", [2, 5, 8, 11], "0-3/4"),
    ("filter=%7B%22stock%22%3A%5B1%2C2%5D%2C%22tags%22%3A%5B%22odd%22%5D%7D&range=%5B0%2C1%5D", [1, 5], "0-1/4"),
    ("filter=%7B%22price_gte%22%3A5%2C%22price_lte%22%3A7.5%2C%22q%22%3A%22P0%22%7D&range=[0,9]", [5, 6, 7], "0-2/3"),
    ('filter={"stock":[]}&range=[0,9]', [], "*/0"),
    ('filter={"price":{"gte":2,"lt":5},"stock":{"ne":0}}&range=[0,9]', [2, 4], "0-1/2"),
    ('filter={"id":{"lt":""}}&range=[0,9]', [], "*/0"),
    ("range=[3,3]&fields=name", [3], "3-3/12"),
]


def test_clients_of_simple_rest(client: FlaskClient) -> None:
    """Lists of ra-data-simple-rest have their items and order, and the total in Content-Range, also with HEAD.

    A Range header alone changes nothing (RFC 9110, section 14.2), and 304 and problems have no Content-Range.
    """
    fill(client)
    headers = {"Range": "products=0-9", "Accept": "*/*"}
    for (query, items, content_range), path in product(SIMPLE_REST, PATHS):
        expected = f"products {content_range}"
        response = client.get(f"{path}?{query}", headers=headers)
        assert (query, shown(response), response.headers["Content-Range"]) == (query, items, expected)
        assert client.head(f"{path}?{query}", headers=headers).headers["Content-Range"] == expected
    alone = client.get("/products?limit=3", headers={"Range": "products=5-6"})
    assert shown(alone) == [0, 1, 2]
    again = client.get("/products?range=[0,2]", headers={"If-None-Match": alone.headers["ETag"]})
    refused = client.get("/products?range=[0,2]&colour=red")
    assert (again.status_code, refused.status_code) == (304, 400)
    assert not [response for response in (alone, again, refused) if "Content-Range" in response.headers]


def test_content_range_of_more_items_than_are_counted(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """These clients need a number: it says that there are more than this page and than are counted."""
    monkeypatch.setattr(resource_items, "MOST_COUNTED", 4)
    monkeypatch.setattr(dialects, "MOST_COUNTED", 4)
    fill(client)
    path = '/products?filter={{"status":"active"}}&range=[{},{}]'
    found = [client.get(path.format(*ends)).headers["Content-Range"] for ends in ((0, 1), (2, 9), (100, 101))]
    assert found == ["products 0-1/5", "products 2-8/9", "products */103"]
    totals = [client.get(f"/products?status=active&_start={n}&_limit=2").headers["X-Total-Count"] for n in (0, 4, 7)]
    assert totals == ["5", "7", "9"]


@pytest.mark.parametrize("by", ["id", "filter"])
def test_get_many(client: FlaskClient, by: str) -> None:
    """getMany returns every named item, also more than a page; unknown ids are omitted, no ids return no items."""
    ids = [item["id"] for item in fill(client, 120)]
    assert client.delete(f"/products/{ids[7]}", headers={"Content-Type": "text/plain"}).status_code == 200  # as sent

    def many(*ids: str) -> str:
        in_json = "[" + ",".join(f'"{id}"' for id in ids) + "]"
        return urlencode([("id", id) for id in ids] if by == "id" else {"filter": f'{{"id":{in_json}}}'})

    assert shown(client.get(f"/products?{many(ids[3], ids[1])}")) == [1, 3]
    assert shown(client.get(f"/products?{many(ids[5])}")) == [5]
    assert shown(client.get(f"/products?{many(*ids)}")) == [n for n in range(120) if n != 7]
    assert shown(client.get(f"/products?{many(*ids[:60])}&limit=2")) == [0, 1]
    if by == "filter":
        assert shown(client.get(f"/products?{many()}")) == []


ARRAYS = {
    "sort=stock,-price": (
        "sort[0]=stock&sort%5B1%5D=-price",
        "sort[]=stock&sort[]=-price",
        "sort[]=stock,-price",
    ),
    "_sort=stock,price&_order=asc,desc": (
        "_sort=stock&_sort=price&_order=asc&_order=desc",
        "_sort[]=stock&_sort[]=price&_order[]=asc&_order[]=desc",
    ),
    "fields=name,price": ("fields[]=name&fields[]=price",),
    "stock[in]=1,2": (
        "stock[0]=1&stock[1]=2",
        "stock[in][0]=1&stock[in][1]=2",
        "stock[]=1&stock[]=2",
        "stock_in[]=1&stock_in[]=2",
    ),
}


def test_arrays_whose_name_has_brackets_or_is_repeated(client: FlaskClient) -> None:
    """Each such request means what it means with commas, with the order and the pages of that."""
    fill(client)
    for expected, others in ARRAYS.items():
        page = client.get(f"/products?{expected}")
        assert page.status_code == 200
        for other in others:
            found = client.get(f"/products?{other}")
            assert found.json == page.json, other
            assert found.headers["X-Total-Count"] == page.headers["X-Total-Count"]
    path = f"/products/{client.get('/products').json[0]['id']}"
    assert client.get(f"{path}?fields[]=name&fields[]=price").json == {"name": "p00", "price": 0}


THEIRS = ("_sort=id", "_sort=id&_order=asc", "price_gte=0", "price:gte=0", "filter={}", 'sort=["id","ASC"]', "_start=0")
OURS = ("sort=id", "sort[]=id", "price[gte]=0", "status=active", "_sort=id&limit=3", "_start=1&limit=3")


def test_a_list_in_their_words_has_all_items(client: FlaskClient) -> None:
    """Up to PAGE_LIMIT_MAX, with a next page after that; in our own words it has a page."""
    short = create_app(Config(page_limit=3, page_limit_max=5)).test_client()
    fill(short, 7)
    for query in THEIRS:
        page = short.get(f"/products?{query}")
        following = short.get(page.headers["Link"].partition('>; rel="next"')[0].rpartition("<")[2])
        assert (query, len(page.json), len(following.json)) == (query, 5, 2)
        assert page.headers["X-Total-Count"] == "7"
    assert [len(short.get(f"/products?{query}").json) for query in (*OURS, "offset=1")] == [3] * 7
    rests = {"_start=1": 5, "_start=4": 3, "_sort=id&offset=3": 4}
    assert {query: len(short.get(f"/products?{query}").json) for query in rests} == rests
    ids = [item["id"] for item in short.get("/products?_sort=id").json]
    assert len(short.get("/products?_sort=id&" + urlencode([("id", id) for id in ids + ids[:1]])).json) == 5
    assert short.get(f"/products/{ids[0]}?_embed=nothing").json["errors"][0]["parameter"] == "embed"
    large = create_app(Config(page_bytes=2000)).test_client()
    fill(large, 40)
    for query in THEIRS:  # a length that the service has chosen is no error
        assert 2 < len(large.get(f"/products?{query}").json) < 20
    assert re.match("limit can be [0-9]+ here", fault(large.get("/products?_start=1")))  # no cursor leads on from it
    fill(client, 40)
    assert len(client.get("/products?_start=0&_end=302").json) == len(client.get("/products?_sort=id").json) == 40


INSIDE = {
    '{"note":null}': "a ab q",
    '{"note":{"ne":null},"paid_at":null}': "b,c",
    '{"note":[null,""]}': "a ab b,c q",
    '{"total":null}': "Ab b,c",
    '{"attributes":{"colour":"red"}}': "ab b,c",
    '{"attributes":{"colour":["blue","green"]},"open":false}': "b,c",
    '{"lines":{"sku":{"startsWith":"LAMP"},"data":{}}}': "a ab",
    '{"lines":{"parts":{"serial":"7"}}}': "q",
    '{"total":{"gte":5,"lt":7},"name":{"in":["a","ab"]}}': "a",
}


def test_a_filter_of_simple_rest_has_null_and_objects() -> None:
    client = create_app(Config(), [*RESOURCES, BILLS]).test_client()
    for bill in SAMPLE:
        client.post("/bills", json=bill)
    found = {text: client.get("/bills", query_string={"filter": text}) for text in INSIDE}
    names = {text: sorted(bill["name"].removesuffix('"') for bill in page.json) for text, page in found.items()}
    assert {text: " ".join(each) for text, each in names.items()} == INSIDE


def test_a_filter_of_simple_rest_is_by_a_field_also_if_a_parameter_has_its_name() -> None:
    names = ("limit", "sort", "fields", "q")
    schema = ItemSchema.from_dict({name: Text(0, 20, load_default="", allow_none=True) for name in names})
    client = create_app(Config(), [Resource("cards", "card", schema)]).test_client()
    for limit, sort in (("5", "a"), ("7", "b"), (None, "q")):
        client.post("/cards", json={"limit": limit, "sort": sort})
    for text, found in {
        '{"limit":"7"}': ["b"],
        '{"limit":["5","7"],"sort":"a"}': ["a"],
        '{"limit":null}': ["q"],
        '{"fields":"","sort":"b"}': ["b"],
    }.items():
        page = client.get("/cards", query_string={"filter": text})
        assert [item["sort"] for item in page.json] == found, text


@pytest.mark.needs("versions", "ownership")
def test_related_items() -> None:
    """json-server's `_embed` and `_expand`, and `embed` of ra-data, are `embed`: in lists, at an item, and below it."""
    client = create_related(Config(page_limit=2)).test_client()
    person = client.post("/people", json={"name": "Ann"}).json["id"]
    order = client.post("/orders", json={"customer": person}).json["id"]
    for path in (f"/orders/{order}", "/orders", f"/people/{person}/orders"):
        expected = client.get(f"{path}?embed=customer&embed=orders").json
        one, both = 'embed="customer"&_embed[]=orders', 'embed=["customer","orders"]'
        for query in ("_expand=customer&_embed=orders", "embed[]=customer&embed[]=orders", one, both):
            assert client.get(f"{path}?{query}").json == expected and person in str(expected), query
    response = client.get(f"/people/{person}/orders?_sort=id&_order=desc&_start=0&_end=5&_embed=customer")
    assert (response.json[0]["customer"]["name"], response.headers["X-Total-Count"]) == ("Ann", "1")
    for _ in range(2):
        client.post("/people", json={"name": "Eve"})
    assert len(client.get("/people?_sort=id&_embed=orders").json) == 3  # all, also where something is embedded
    assert fault(client.get(f"/orders/{order}?_expand=user")).startswith("embed cannot be 'user'; there are: orders,")


MALFORMED = [
    ("_start=10&_end=10", "_end must be greater than _start, which is 10"),
    ("_start=-1&_end=5", "_start must be a whole number"),
    ("_page=two", "_page must be a whole number"),
    ("_start=1&_start=2", "_start is given more than once"),
    ("_limit=0", "limit must be a whole number from 1"),
    ("_page=999999999&_limit=99", "offset must be a whole number from 0"),
    ("_sort=colour&_order=ASC", "sort cannot be 'colour'; there are: id, name,"),
    ("_sort=id,price&_order=asc,up", "_order cannot be 'up'; there are: asc, desc"),
    ('sort=["id","ASC"]&sort=["price","ASC"]', "sort is given more than once"),
    ("_sort=price&sort=price", "sort names a field twice"),
    ("limit[]=1&limit[]=2", "limit is given more than once"),
    ("colour_gte=5", "colour_gte is not a parameter of this list; there are: limit,"),
    ("tags_like=x", "tags[like] is no operator of tags; there are: eq, in"),
    ("_embed=comments", "embed cannot be 'comments'; there are: none here"),
    ("embed=[1]", "embed must be names of what to embed"),
    ("range=[0,9", "range must be JSON"),
    ("range=[9,0]", "range must be [first, last]"),
    ('range=["0","9"]', "range must be [first, last]"),
    ("range=0-9", "range is not a parameter of this list"),
    ("range=[0,9]&cursor=x", "offset does not go with cursor"),
    ('sort=["id"]', 'sort must be ["field", "ASC"]'),
    ('sort=["id","UP"]', "sort cannot be 'UP'; there are: asc, desc"),
    ("filter={", "filter must be JSON"),
    ("filter=[]", "filter is not a parameter of this list"),
    ('filter={"name":null}', "name[is] is no operator of name; there are: eq,"),
    ('filter={"price":{"colour":5}}', "price.colour is not a parameter of this list"),
    ('filter={"price":{"gte":"much"}}', "price[gte] must be a number"),
    ('filter={"id":[["x"]]}', "filter has for 'id' no comparison of a field with a text, number, boolean or null"),
    ('filter={"a\'b":1}', 'filter has for "a\'b" no comparison of a field'),
    (f'filter={{{"%22a%22:{" * 8}"a":1{"}" * 9}', "filter has more than 8 objects inside each other"),
    ('filter={"price":true}', "price must be a number"),
    ('filter={"or":"(name=p00)"}', "or[eq] is not a parameter"),
]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("_sort=author.name&_order=DESC&_start=0&_end=2", [3, 2]),  # react-admin and refine, with json-server 0.17
        ("_sort=-author.name&_page=1&_per_page=2", [3, 2]),  # with json-server 1
        ('filter={"author.name":"Bob"}&sort=["author.name","DESC"]&range=[0,1]', [2]),  # simple-rest
        # ra-data-json-server and ra-data-simple-rest: a form's input with source="author.name", and `meta`
        ("_embed=author&_end=2&_order=ASC&_sort=author.name&_start=0&author.name=Cid&author.name=Ann", [1, 3]),
        ('embed="author"&filter={"author":{"name":["Cid","Ann"]}}&range=[0,1]&sort=["author.name","DESC"]', [3, 1]),
        ('filter={"author":{"name_like":"N"}}&range=[0,1]', [1]),
        ("author.name_like=n", [1]),
        ("author.name_ne=Ann", [2, 3]),
        ("author.name:ne=Ann", [2, 3]),
        ('_where={"author":{"name":{"eq":"Ann"}}}', [1]),
    ],
)
def test_related_names_in_their_words(tmp_path: Path, query: str, ids: list[int]) -> None:
    """A list is sorted and filtered by a field of the item that each of its items refers to."""
    authors = [{"id": n, "name": name} for n, name in enumerate(("Ann", "Bob", "Cid"), 1)]
    client = client_of(tmp_path, {"authors": authors, "posts": [{"id": n, "authorId": n} for n in (1, 2, 3)]})
    found = client.get(f"/posts?{query}").json
    assert [each["id"] for each in (found["data"] if isinstance(found, dict) else found)] == ids


def test_malformed_queries(client: FlaskClient) -> None:
    """A malformed query is refused with one fault, which names the parameter and the valid values."""
    faults = [(query, message, fault(client.get("/products", query_string=query))) for query, message in MALFORMED]
    assert [(query, found) for query, message, found in faults if not found.startswith(message)] == []


def test_the_service_works_without_dialects() -> None:
    """Without this feature our own parameters work, and those of others are unknown."""
    client = create_app(Config(), RESOURCES, without={"dialects"}).test_client()
    ids = [item["id"] for item in fill(client, 30)]
    assert shown(client.get("/products?sort=-price&limit=2&offset=1&price[lt]=9")) == [7, 6]
    assert shown(client.get("/products", query_string={"id": ids})) == list(range(30))
    assert fault(client.get("/products?_start=0")).startswith("_start is not a parameter of this list")
    assert fault(client.get("/products?range=[0,9]")).startswith("range is not a parameter of this list")
