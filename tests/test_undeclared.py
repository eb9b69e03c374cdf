"""Lists that are filtered, sorted and searched by names that no schema declares (`Resource(..., undeclared=True)`)."""

import re
from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient
from marshmallow import INCLUDE, fields

from restkeeper import Config, Index, ItemSchema, JsonObject, Resource, Text, Whole
from restkeeper.storage.interface import POSITION
from tests.shapes import LOGS
from tests.shop import create_app
from tests.test_openapi import fits
from tests.test_pages import links_of


class PostSchema(ItemSchema):
    """A post, of which the service knows a part."""

    class Meta:
        unknown = INCLUDE
        exclude = ("created_at", "updated_at", "version")

    title = Text(0, 1000)  # too long to be sorted by
    rank = Whole()
    rank_gte = Whole()
    any = fields.Raw()
    free = JsonObject()


INDEXES = (Index("first-name"), Index("rank"))
POSTS = Resource("posts", "post", PostSchema, INDEXES, ids="client", undeclared=True, sort=POSITION, page_limit=9)
ITEMS: list[dict[str, Any]] = [
    {"id": "a", "title": "One", "rank": 5, "views": 10, "author": {"name": "Ann", "age": 9}, "first-name": "x"},
    {"id": "b", "rank_gte": 1, "views": "9", "author": {"name": "Bob"}, "opt_in": True, "any": 3, "tags": ["x", "y"]},
    {"id": "c", "views": None, "author": [{"name": "ÄNN"}], "any": "x", "free": {"a": 1}, "_type": "t", "größe": 1.5},
    {"id": "d", "views": 9.5, "_position": 7, "limit": 5, "version": "v", "first-name": ["x", 2], "free": {"a": 2}},
]


@pytest.fixture
def client() -> FlaskClient:
    client = create_app(Config(), [POSTS]).test_client()
    for each in ITEMS:
        assert client.post("/posts", json=each).status_code == 200
    return client


FOUND = {
    "": "abcd",
    "views=10": "a",
    "views=10.0": "a",
    "views[gte]=9.5": "ad",
    "views[gte]=9": "abd",
    "views=null": "c",
    "views[ne]=null": "abd",
    "views[is]=not_null": "abd",
    "views[in]=null,9": "bc",
    "views[nin]=null,9": "ad",
    "views[like]=9": "bd",
    "first-name=x": "ad",
    "first-name[gt]=1": "ad",
    "author.name[like]=än": "c",
    "author.name[like]=ann": "a",
    "author.name=Bob&opt_in=true": "b",
    "author=null": "d",
    "tags=y": "b",
    "größe[lt]=2": "c",
    "none=1": "",
    "none[ne]=1": "abcd",
    "any=x": "c",
    "free.a[gt]=1": "d",
    "version=v": "d",
    "title.x=1": "",
    "or=(views=10,not(author.name[is]=not_null))": "ad",
    "_=1700000000&_type=none&callback=f": "abcd",
    "_type[eq]=t": "c",
    "or=(_type=t,views=10)": "ac",
    "or=(views=null,views=10)": "ac",
    "not=(views=null)&views[starts]=9": "b",
    "q=ÄN": "c",
    "q=y": "b",
    "q=10": "",
    "sort=views": "cdab",
    "sort=-views": "badc",
    "sort=author.name": "cdab",
    "sort=-any,views": "cbda",
    "sort=größe,-none&limit=2": "db",
    "limit=1": "a",
    "limit[gte]=5": "d",
}
JSON_SERVER = {
    "views_gte=9.5": "ad",
    "views:gte=9.5": "ad",
    "views_ne=10": "bcd",
    "author.name_like=nn": "ac",
    "author.name:startsWith=B": "b",
    "first-name_like=X": "ad",
    "views:in=10,9": "ab",
    "opt_in=true": "b",
    "rank_gte=1": "b",  # it is declared
    "rank:gte=1": "a",
    "rank_in=5,6": "a",
    "_sort=views&_order=desc": "badc",
    "_sort=-author.name": "badc",
    "_page=2&_limit=3&_sort=views": "b",
    '_where={"or":[{"views":{"gte":10}},{"author":{"name":"Bob"}},{"views":null}]}': "abc",
    'filter={"_type":"t"}': "c",
    'filter={"views":[10,null],"author":{"age":9}}': "a",
    "q=ann&_=5": "a",
}


def found(client: FlaskClient, query: str) -> str:
    response = client.get("/posts", query_string=query)
    assert response.status_code == 200, (query, response.text)
    return "".join(each["id"] for each in response.json)


def test_lists(client: FlaskClient) -> None:
    assert {query: found(client, query) for query in FOUND} == FOUND


@pytest.mark.needs("dialects")
def test_lists_in_words_of_json_server(client: FlaskClient) -> None:
    """A suffix is an operator unless the very name is declared, but `_in`, with which many names end."""
    assert {query: found(client, query) for query in JSON_SERVER} == JSON_SERVER


def test_pages_by_cursor_are_the_whole_list(client: FlaskClient) -> None:
    for sort in ("views", "-views", "author.name,-views", "none"):
        path, seen = f"/posts?sort={sort}&limit=1&_=5", ""
        while path:
            page = client.get(path)
            seen += page.json[0]["id"]
            path = links_of(page).get("next", "")
        assert seen == found(client, f"sort={sort}")


def test_fields_and_counts(client: FlaskClient) -> None:
    """Fields are shown in the order of the item; one that it does not have is left out."""
    shown = client.get("/posts?fields=views,id,none,_type").json
    assert [list(each) for each in shown] == [
        ["id", "views"],
        ["id", "views"],
        ["_type", "id", "views"],
        ["id", "views"],
    ]
    assert client.get("/posts/a?fields=author,none&_=5").json == {"author": {"name": "Ann", "age": 9}}
    assert client.get("/posts?count=opt_in").json == [{"value": None, "count": 3}, {"value": True, "count": 1}]
    assert client.get("/posts?count=views").json[1] == {"value": 9.5, "count": 1}
    assert client.get("/posts?count=rank&rank[is]=not_null").json == [{"value": 5, "count": 1}]


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("a'b=1", "is not a parameter of this list"),
        (
            "views[near]=1",
            "is no operator of views; there are: eq, ne, gt, gte, lt, lte, in, nin, like, starts, ends, is",
        ),
        ("a.b.c.d.e.f=1", "is no path of at most 5 names and 100 characters"),
        (f"{'x' * 101}=1", "is no path of at most 5 names and 100 characters"),
        (f"sort={'x' * 101}", "which is no path of at most 5 names and 100 characters"),
        ("sort=a'b", "which is no path of"),
        ('sort=a"b', "which is no path of"),
        ("sort=a..b", "which is no path of"),
        ("sort=*", "cannot be '*'"),
        ("sort=title", "cannot be 'title'"),
        ("rank=five", "must be a whole number"),
        ("count=a%", "which is no path of"),
        ("_position[gt]=1", "is not a parameter of this list"),
        (f"sort={POSITION}", "which is no path of"),
        ("limit=x", "must be a whole number"),
    ],
)
def test_faults(client: FlaskClient, query: str, fault: str) -> None:
    """What is no name at all, or is declared and used otherwise; bounds hold here, too."""
    response = client.get("/posts", query_string=query)
    assert (response.status_code, fault in response.json["detail"]) == (400, True), response.text


@pytest.mark.needs("openapi")
def test_the_document_says_that_any_name_filters(client: FlaskClient) -> None:
    document = client.get("/openapi.json").json
    parameters = document["components"]["parameters"]
    listed = [
        parameters.get(each.get("$ref", "").rpartition("/")[2], each)
        for each in document["paths"]["/posts"]["get"]["parameters"]
    ]
    (others,) = [each["schema"] for each in listed if each["name"] == "others"]
    for name in ("views", "any", "author.name[like]", "first-name[gte]", "a.b.c.d.e", "titles", "views[is]"):
        fits(document, others, {name: "null"})
    for name in ("rank", "id", "limit", "rank[gte]", "title[like]", "views[near]", "callback", "a.b.c.d.e.f"):
        assert not any(re.search(pattern, name) for pattern in others["patternProperties"]), name
    assert document["components"]["schemas"]["PostSortKey"]["x-extensible"] is True
    assert "any texts" in next(each["description"] for each in listed if each["name"] == "q")


def test_wrong_declarations() -> None:
    with pytest.raises(ValueError, match=r"logs: undeclared=True: items have no other fields: .*unknown = INCLUDE"):
        replace(LOGS, undeclared=True)
    for options in ({"indexes": (Index("*"),)}, {"indexes": (Index("a", unique=True),)}, {"search": ("none",)}):
        with pytest.raises(ValueError, match="posts"):
            replace(POSTS, **options)
