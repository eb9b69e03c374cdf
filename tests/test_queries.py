"""Filters inside objects, by null, by a beginning and by alternatives; counts; and the list's own order and page."""

from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper import Index, Rename, Version, Versions
from restkeeper.config import Config
from restkeeper.resources import filters
from tests.shop import RESOURCES, create_app
from tests.shop.bills import BILLS
from tests.test_pages import links_of

SAMPLE: list[dict[str, Any]] = [
    {"name": "a", "total": 5, "lines": [{"sku": "LAMP-1", "price": 10}, {"sku": "DESK", "price": 99.5}]},
    {"name": "ab", "total": 7, "lines": [{"sku": "LAMP-2"}], "attributes": {"colour": "red", "size": 5, "null": None}},
    {"name": "Ab", "paid_at": "2026-03-01T10:00:00Z", "tags": ["x"], "note": "null", "attributes": {"size": "5"}},
    {
        "name": "b,c",
        "tags": ["x", "y"],
        "note": "",
        "open": False,
        "attributes": {"colour": ["red", "blue"], "on": True},
    },
    {"name": 'q"', "total": 7, "status": "sent", "lines": [{"sku": "S", "parts": [{"serial": "7"}], "data": {"k": 1}}]},
]


@pytest.fixture
def bills() -> FlaskClient:
    client = create_app(Config(), [*RESOURCES, BILLS]).test_client()
    for each in SAMPLE:
        assert client.post("/bills", json=each).status_code == 200
    return client


FOUND = {
    "lines.sku=LAMP-1": "a",
    "lines.sku[in]=LAMP-1,S": "a q",
    "lines.sku=LAMP-1&lines.sku=LAMP-2": "a ab",
    "lines.sku[ne]=DESK": "Ab ab b,c q",
    "lines.sku[starts]=LAMP": "a ab",
    "lines.price[gt]=50": "a",
    "lines.price[is]=not_null": "a",
    "lines.price=null": "Ab ab b,c q",
    "lines.parts.serial=7": "q",
    "lines.data.k=1": "q",
    "attributes.colour=red": "ab b,c",
    "attributes.colour[in]=blue,green": "b,c",
    "attributes.colour[ne]=red": "Ab a q",
    "attributes.size=5": "Ab ab",
    "attributes.size=5.0": "ab",
    "attributes.on=true": "b,c",
    "attributes.on=1": "",
    "attributes.colour[is]=null": "Ab a q",
    "attributes.null[is]=not_null": "",
    "attributes._=5": "",
    "attributes.-[is]=not_null": "",
    "attributes.none.at.all=1": "",
    "attributes.größe=1": "",
    "tags=y": "b,c",
    "paid_at=null": "a ab b,c q",
    "paid_at[ne]=null": "Ab",
    "paid_at=null&paid_at=2026-03-01T10:00:00Z&name[starts]=A": "Ab",
    "note=null": "Ab",
    "note[is]=null": "a ab q",
    "note[is]=not_null": "Ab b,c",
    "note=": "b,c",
    "name[starts]=a": "a ab",
    "name[starts]=": "Ab a ab b,c q",
    "or=(status=sent,total[lt]=6)": "a q",
    'or=(name="b,c",name=a)': "a b,c",
    r'or=(name="q\"",tags[in]="x,y",note[is]=not_null)': "Ab b,c q",
    "or=(tags=x,tags=y)&or=(note=,note=null)&name[starts]=b": "b,c",
    "or=(lines.sku=S,attributes.colour=red)": "ab b,c q",
    "or=(name=,name=a)": "a",
    "or=(name=a)": "a",
    "or=(and(total=7,status=new),name=a)": "a ab",
    "or=(and(total=7,or(status=sent,note=x)),and(name[ends]=,name[starts]=A))": "Ab q",
    'or=(and(name="b,c",tags=x),not(total=7,total=null))': "a b,c",
    "or=(name=a),name=ab)": "ab",
    "not=(status=sent)": "Ab a ab b,c",
    "not=(total[gt]=5)": "Ab a b,c",
    "not=(total=7,tags=x)": "a",
    "not=(and(total=7,status=sent))": "Ab a ab b,c",
    "not=(not(total=7))": "ab q",
    "not=(total=7)&not=(tags=y)": "Ab a",
    "not=(lines.price[gt]=50)": "Ab ab b,c q",
    "not=(name[like]=A,attributes.on=true)": "q",
    "not=(paid_at=null)": "Ab",
    "not=(note[is]=null)": "Ab b,c",
    "not=(note[ne]=null)": "Ab",
    'not=(name[nin]="a,ab")': "a ab",
    "total[nin]=5,8": "Ab ab b,c q",
    "tags[nin]=y,z": "Ab a ab q",
    "lines.sku[nin]=DESK,S": "Ab ab b,c",
    "attributes.size[nin]=5,6": "a b,c q",
    "name[nin]=a&name[nin]=ab,Ab": "b,c q",
    "status[nin]=sent": "Ab a ab b,c",
    f"or=({'not(' * 7}name=a{')' * 7})": "Ab ab b,c q",
    "name[ends]=b": "Ab ab",
    "name[ends]=Ab": "Ab",
    "name[ends]=": "Ab a ab b,c q",
    "name[ends]=xab": "",
    "note[ends]=ll": "Ab",
    "lines.sku[ends]=-1": "a",
    **dict.fromkeys((f"lines.sku[ends]={sign}" for sign in r".$(\["), ""),
    "lines.parts.serial[ends]=7": "q",
}


def test_filters(bills: FlaskClient) -> None:
    found = {}
    for query in FOUND:
        response = bills.get("/bills", query_string=f"{query.replace('+', '%2B')}&limit=9")
        assert response.status_code == 200, (query, response.text)
        assert response.headers["X-Total-Count"] == str(len(response.json))
        found[query] = " ".join(sorted(each["name"].removesuffix('"') for each in response.json))
    assert found == FOUND


FAULTS = {
    "status=lost": "must be one of: new, sent",
    "status[in]=new,lost,gone": "must be one of: new, sent",
    "lines.sku[like]=a": "is no operator of lines.sku; there are: eq, ne, gt, gte, lt, lte, in, nin, starts, ends, is",
    "attributes.size[gt]=5": "is no operator of attributes.size; there are: eq, ne, in, nin, is",
    "lines.price=ten": "must be a number",
    "note[is]=nothing": "must be null or not_null",
    "name[is]=null": "is no operator of name; there are: eq, ne, gt, gte, lt, lte, in, nin, like, starts, ends",
    "parts=null": "must be a whole number from -9223372036854775808 to 9223372036854775807",
    "attributes.a.b.c.d.e=1": "is no path of at most 5 names and 100 characters",
    f"attributes.{'x' * 100}=1": "is no path of at most 5 names and 100 characters",
    "or=(status=lost,total=1)": "has status, which must be one of: new, sent",
    **{
        f"or={text}": "must be filters like (status=open,total[gte]=100), a value with a comma or parenthesis in double"
        for text in (
            "(name=a,)",
            "()",
            "(",
            "name=a",
            '(name="a"b)',
            "(and(name=a)",
            "(and(name=a)b)",
            "(and())",
            "(x(a=b))",
        )
    },
    "not=(status=lost)": "has status, which must be one of: new, sent",
    f"or=({'not(' * 8}name=a{')' * 8})": "has more than 8 groups inside each other",
    f"or=({','.join(['and(name=a,name=b)'] * 7)})": "has too many alternatives: their combinations are more than 100",
    f"or=({','.join(['and(name=a,name=b)'] * 6)},name=c)": "is one filter too many: a list takes 100",
    "or=(limit=1,name=a)": "has limit, which is not a parameter of this list; there are: ",
    "count=note2": "cannot be 'note2'; there are: id, name, note, paid_at, total, ",
    "count=status&limit=1": "does not go with count, which has no pages",
}


def test_a_list_is_no_longer_than_a_page_for_ids_that_it_excludes(bills: FlaskClient) -> None:
    ids = [bill["id"] for bill in bills.get("/bills?limit=5").json]
    excluded = {bill["id"] for bill in bills.get(f"/bills?id[nin]={ids[0]}").json}
    assert len(excluded) == 3 and ids[0] not in excluded
    assert len(bills.get("/bills", query_string={"or": f'(id[in]="{ids[0]}",name[starts]=)'}).json) == 3


def test_faults(bills: FlaskClient) -> None:
    for query, detail in FAULTS.items():
        response = bills.get("/bills", query_string=query)
        assert response.status_code == 400, query
        assert response.json["errors"][0]["detail"].startswith(detail), query
    for name in ("attributes", "attributes.", "attributes..a", "attributes.a'b", "_position", "lines", "lines.none"):
        response = bills.get("/bills", query_string={name: "1"})
        assert response.json["errors"][0]["detail"].startswith("is not a parameter of this list"), name
    terms = ",".join(f"name={n}" for n in range(filters.MAX_FILTERS + 1))
    assert "one filter too many" in bills.get(f"/bills?or=({terms})").json["detail"]
    values = ",".join(["a"] * filters.MAX_VALUES)
    assert "one value too many" in bills.get(f'/bills?or=(name=a,name[in]="{values}")').json["detail"]
    many = ",".join(map(str, range(150)))
    wide = f'(name[in]="{many}",and(total=1,total=2,total=3))'
    assert "has more than 200 values when" in bills.get(f"/bills?or={wide}").json["detail"]


def test_a_collection_without_search_refuses_it(bills: FlaskClient) -> None:
    """An empty page would look as if nothing matched. The document has no such parameter either."""
    refused = bills.get("/bills?q=nothing")
    assert (refused.status_code, refused.json["errors"][0]["parameter"]) == (400, "q")
    assert refused.json["detail"].startswith("q searches nothing: the collection has no fields for it; use a filter")
    assert bills.get("/bills?q=").json == bills.get("/bills").json  # a form with nothing typed


def test_counts(bills: FlaskClient) -> None:
    """The values of a field, and how many items that match the filters have each: the most frequent first."""
    assert bills.get("/bills?count=status").json == [{"value": "new", "count": 4}, {"value": "sent", "count": 1}]
    counted = {
        query: [(each["value"], each["count"]) for each in bills.get(f"/bills?count={query}").json]
        for query in ("total", "open", "paid_at&paid_at=null", "id&total=99")
    }
    assert counted == {
        "total": [(None, 2), (7, 2), (5, 1)],
        "open": [(True, 4), (False, 1)],
        "paid_at&paid_at=null": [(None, 4)],
        "id&total=99": [],
    }
    response = bills.get("/bills?count=status")
    assert response.headers["X-Total-Count"] == "5" and "Link" not in response.headers
    assert bills.get("/bills?count=status", headers={"If-None-Match": response.headers["ETag"]}).status_code == 304
    bills.post("/bills", json={"name": "new"})
    after = bills.get("/bills?count=status", headers={"If-None-Match": response.headers["ETag"]})
    assert after.json[0] == {"value": "new", "count": 5}


def test_counts_have_a_bound(bills: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more values or more items than the limits it is a 400; filters make them fewer."""
    monkeypatch.setattr("restkeeper.resources.items.MAX_VALUES", 4)
    assert bills.get("/bills?count=name").status_code == 400
    assert len(bills.get("/bills?count=name&status=new").json) == 4
    monkeypatch.setattr("restkeeper.resources.items.MOST_COUNTED", 3)
    assert bills.get("/bills?count=status").status_code == 400


def test_a_list_has_its_own_order_and_page(bills: FlaskClient) -> None:
    response, found = bills.get("/bills?fields=name"), []
    assert len(response.json) == 3
    while "next" in links_of(response):
        found += [each["name"] for each in response.json]
        response = bills.get(links_of(response)["next"])
    assert [*found, *(each["name"] for each in response.json)] == ["ab", 'q"', "a", "Ab", "b,c"]
    assert [each["name"] for each in bills.get("/bills?sort=name&limit=2").json] == ["Ab", "a"]


def test_a_repeated_name_is_one_with_commas(bills: FlaskClient) -> None:
    """As most generated clients write arrays; the pages that follow have the same order."""
    page, repeated = (bills.get(f"/bills?{query}&limit=2") for query in ("sort=-open,name", "sort=-open&sort=name"))
    assert repeated.json == page.json
    following = [bills.get(links_of(each)["next"]).json for each in (page, repeated)]
    assert following[0] == following[1] != []
    assert bills.get("/bills?fields=name&fields=open,note&limit=1").json == [{"name": "ab", "note": None, "open": True}]
    assert bills.get("/bills?sort=name&sort=-name").json["detail"] == "sort names a field twice"


@pytest.mark.needs("openapi")
def test_a_list_can_have_more_than_others() -> None:
    """By its declaration, in items and in bytes; others keep the limits of the configuration."""
    large = replace(BILLS, page_limit=1250, page_bytes=10_000)
    client = create_app(Config(page_limit=2, page_limit_max=3, page_bytes=1), [*RESOURCES, large]).test_client()
    for number in range(6):
        assert client.post("/bills", json={"name": f"b{number}"}).status_code == 200
        assert client.post("/products", json={"name": f"p{number}"}).status_code == 200
    assert [len(client.get(path).json) for path in ("/bills", "/bills?limit=5", "/products")] == [6, 5, 1]
    refused = [client.get(path).json["errors"] for path in ("/bills?limit=1251", "/products?limit=4")]
    assert [fault["detail"].split()[-1] for (fault,) in refused] == ["1250", "3"]
    document = client.get("/openapi.json").json
    known = document["components"]["parameters"]
    limits = [known[name]["schema"]["maximum"] for name in ("BillLimit", "Limit")]
    lists = [document["paths"][path]["get"]["responses"]["200"] for path in ("/bills", "/products")]
    pages = [each["content"]["application/json"] for each in lists]
    assert (limits, [each["schema"]["maxItems"] for each in pages]) == ([1250, 3], [1250, 1000])


def test_wrong_declarations() -> None:
    for options, reason in (
        ({"sort": "tags"}, "bills: sort='tags': 'tags' is none of id, name, note, paid_at, "),
        ({"page_limit": 0}, "bills: page_limit=0: must be a whole number from 1 to 10000"),
        ({"page_limit": 10_001}, "bills: page_limit=10001: must be a whole number from 1 to 10000"),
        ({"page_bytes": "9"}, "bills: page_bytes='9': must be a whole number from 1 to "),
        ({"indexes": (Index("lines.none"),)}, "bills.lines.none: cannot be indexed or searched; there are: "),
        ({"indexes": (Index("attributes.*"),)}, r"bills.attributes.\*: cannot be indexed or searched; there are: "),
        ({"indexes": (Index("lines.sku", unique=True),)}, "bills.lines.sku: can have several values: write Index"),
        ({"search": ("lines.sku",)}, "bills.lines.sku: cannot be indexed or searched; there are: "),
    ):
        with pytest.raises(ValueError, match=reason):
            replace(BILLS, **options)


VERSIONS = Versions(Version("v1", successor="v2", revisions={"bills": 1}), Version("v2"), unversioned="v2")
MOVED = replace(BILLS, indexes=(), upgrades={2: [Rename("rest", "attributes"), Rename("sum", "total")]})


@pytest.mark.needs("openapi", "versions")
def test_an_older_version_has_its_own_names() -> None:
    """Also in the default order of its document, so that a second version takes nothing from the first one."""
    client = create_app(Config(), [MOVED], versions=VERSIONS).test_client()
    for each in SAMPLE:
        assert client.post("/bills", json=each).status_code == 200
    old, new = "/api/v1/bills", "/api/v2/bills"
    assert client.get(f"{old}?rest.colour=red").json[0]["rest"] == SAMPLE[1]["attributes"]
    assert client.get(f"{old}?or=(attributes.colour=red,sum=5)").status_code == 400
    assert client.get(f"{old}?count=sum").json == client.get(f"{new}?count=total").json
    names = [[each["name"] for each in client.get(path).json] for path in (old, new)]
    assert names[0] == names[1] == ["ab", 'q"', "a"]
    for version, order in (("v1", ["-sum", "name"]), ("v2", ["-total", "name"])):
        known = client.get(f"/api/{version}/openapi.json").json["components"]["parameters"]
        assert known["BillSort"]["schema"]["default"] == order
