"""Embedded items, and lists at the path of an item: as single reads show them, to each caller, in each version."""

import random
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import pytest
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator
from marshmallow import fields
from openapi_spec_validator import OpenAPIV31SpecValidator

from restkeeper import Config, ItemSchema, Reference, Resource
from restkeeper.resources import embedding
from restkeeper.storage.sqlite.connection import SqliteConnection
from tests.callers import ADMIN, ADMIN_KEY, key
from tests.documents import unfolded
from tests.recorder import next_of
from tests.shop import create_app as create_shop
from tests.shop.open import create_app as create_open
from tests.shop.posts import create_app as create_posts
from tests.shop.related import ORDERS, PEOPLE, REVIEWS, THINGS, create_app

pytestmark = pytest.mark.needs("keys", "ownership", "versions", "openapi")

Item = dict[str, Any]
READ = ("people:read", "things:read", "orders:read", "reviews:read")
WRITE = tuple(scope.replace("read", "write") for scope in READ)
EMBEDDED = {
    "people": ["orders", "reviews.writer", "reviews.about"],
    "things": ["orders.lines.thing", "orders.gifts"],
    "orders": ["customer", "lines.thing", "gifts", "after", "orders"],
    "reviews": ["writer", "about"],
}
TARGETS = {"customer": "people", "after": "orders", "writer": "people", "about": "people"}
NAMES = {"customer": "buyer"}  # in v1


@pytest.fixture
def client() -> FlaskClient:
    return create_app(Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off")).test_client()


def new(client: FlaskClient, path: str, headers: dict[str, str] = ADMIN, **sent: Any) -> str:
    response = client.post(path, json=sent, headers=headers)
    assert response.status_code == 200, response.json
    return str(response.json["id"])


def fill(client: FlaskClient, owners: list[dict[str, str]]) -> dict[str, list[str]]:
    """Some items of each collection, which refer to each other at random; one person has many orders."""
    chance = random.Random(7)  # noqa: S311
    people = [new(client, "/people", name=f"p{n}") for n in range(4)]
    things = [new(client, "/things", title=f"t{n}") for n in range(6)]
    orders: list[str] = []
    for n in range(30):
        lines = [{"thing": chance.choice(things), "count": n} for _ in range(n % 3)]
        sent = {"lines": lines, "gifts": chance.sample(things, n % 2), "after": chance.choice([None, *orders[-2:]])}
        who = owners[n % 2] if sent["after"] is None else ADMIN
        orders.append(new(client, "/orders", who, customer=chance.choice([*people, people[0], people[0]]), **sent))
    reviews = [new(client, "/reviews", writer=chance.choice(people), about=people[0]) for _ in range(12)]
    return {"people": people, "things": things, "orders": orders, "reviews": reviews}


class Expected(NamedTuple):
    """What single reads show to a caller in a version, for the items of one collection."""

    client: FlaskClient
    prefix: str
    headers: dict[str, str]
    of: str

    def get(self, path: str) -> Any:
        return self.client.get(f"{self.prefix}{path}", headers=self.headers)

    def name(self, field: str) -> str:
        return NAMES.get(field, field) if self.prefix == "/api/v1" else field

    def target(self, collection: str, id: str | None) -> Any:
        found = self.get(f"/{collection}/{id}")
        return found.json if found.status_code == 200 else id

    def item(self, item: Item, name: str) -> None:
        """Embed what a name stands for."""
        if name == "lines.thing":
            item["lines"] = [{**line, "thing": self.target("things", line["thing"])} for line in item["lines"]]
        elif name == "gifts":
            item["gifts"] = [self.target("things", id) for id in item["gifts"]]
        elif (field := self.name(name)) in item and name in TARGETS:
            item[field] = self.target(TARGETS[name], item[field])
        else:
            collection, _, field = name.partition(".")
            field = field or {"people": self.name("customer"), "orders": "after"}[self.of]
            first = self.get(f"/{collection}?{field}={item['id']}&sort=-id&limit=10")
            if first.status_code == 200:
                item[name] = first.json
                more = int(first.headers["X-Total-Count"]) > 10
                rest = f"{self.prefix}/{collection}?{field}={item['id']}&sort=-id&offset=10"
                item[f"{name}_next"] = rest if more else None


@pytest.mark.parametrize("prefix", ["", "/api/v1"])  # the latest version, and an older one
def test_it_is_what_single_reads_show(client: FlaskClient, prefix: str) -> None:
    """Each name alone and all together, of one item and of a list: to an admin, two owners, and without some scopes."""
    owners = [key(client, *READ, *WRITE) for _ in range(2)]
    fill(client, owners)
    callers = [ADMIN, *owners, key(client, "orders:read", "people:read"), key(client, *READ[1:])]
    document = unfolded(client.get(f"{prefix or '/api/v2'}/openapi.json").json)
    nexts = 0
    for caller, (of, names) in product(callers, EMBEDDED.items()):
        expected = Expected(client, prefix, caller, of)
        if expected.get(f"/{of}").status_code == 403:
            continue
        for chosen in (*([name] for name in names), names):
            query = ",".join(expected.name(name) for name in chosen)
            found = expected.get(f"/{of}?limit=100&embed={query}")
            items = expected.get(f"/{of}?limit=100").json
            for item, name in product(items, chosen):
                expected.item(item, name)
            assert found.json == items, (prefix, of, query)
            response = document["paths"][f"{prefix}/{of}"]["get"]["responses"]["200"]
            schema = response["content"]["application/json"]["schema"]
            Draft202012Validator({**schema, "components": document["components"]}).validate(found.json)
            for item in items[:3]:
                one = expected.get(f"/{of}/{item['id']}?embed={query}")
                assert one.json == item
                urls = [url for name, url in item.items() if "_next" in name and url]
                nexts += sum(len(client.get(url, headers=caller).json) > 0 for url in urls)
    assert nexts


def test_ids_can_be_integers() -> None:
    """On both sides of a reference, alone and in lists, and at the path of an item."""
    client = create_posts(Config()).test_client()
    one, two = (client.post("/posts", json={}).json for _ in range(2))
    assert client.post("/posts/2/comments.post", json={"post": 1}).json["errors"][0]["detail"].startswith("must be 2, ")
    comment = client.post("/posts/1/comments.post", json={"others": [2, 1]}).json
    assert client.get("/comments/1?embed=post,others").json == {**comment, "post": one, "others": [two, one]}
    found = client.get("/posts?embed=comments.post,comments.others").json
    shown = [(each["comments.post"], each["comments.others"]) for each in found]
    assert shown == [([comment], [comment]), ([], [comment])]
    assert client.get("/posts/1/comments.post").json == [comment]
    assert client.get("/posts/2/comments.post").json == []


def test_the_etag_covers_all_that_is_shown(client: FlaskClient) -> None:
    """A change of what is embedded is seen at once, in lists as well; a write compares the item's own ETag."""
    person = new(client, "/people", name="Ann")
    order = new(client, "/orders", customer=person)
    paths = [f"/orders/{order}?embed=customer", "/orders?embed=customer", "/people?embed=orders&fields=id"]
    before = [client.get(path, headers=ADMIN) for path in paths]
    assert "Last-Modified" not in before[0].headers

    def again() -> list[int]:
        tags = [ADMIN | {"If-None-Match": each.headers["ETag"]} for each in before]
        return [client.get(path, headers=tag).status_code for path, tag in zip(paths, tags, strict=True)]

    assert again() == [304, 304, 304]
    assert client.patch(f"/people/{person}", json={"name": "Eve"}, headers=ADMIN).status_code == 200
    assert again() == [200, 200, 304]
    assert client.get(paths[1], headers=ADMIN).json[0]["customer"]["name"] == "Eve"
    refused = client.patch(f"/orders/{order}", json={}, headers=ADMIN | {"If-Match": before[0].headers["ETag"]})
    own = client.get(f"/orders/{order}", headers=ADMIN).headers["ETag"]
    assert (refused.status_code, refused.headers["ETag"]) == (412, own)
    assert client.patch(f"/orders/{order}", json={"after": order}, headers=ADMIN | {"If-Match": own}).status_code == 200
    assert again() == [200, 200, 200]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Those that read on SQLite, each once: it begins again with what takes longer than some milliseconds."""
    seen: set[str] = set()
    execute = SqliteConnection.execute

    def note(connection: SqliteConnection, statement: str, *rest: Any) -> Any:
        seen.update([statement] if statement.startswith(("SELECT", "WITH")) else [])
        return execute(connection, statement, *rest)

    monkeypatch.setattr(SqliteConnection, "execute", note)
    return seen


def test_one_query_finds_all(client: FlaskClient, statements: set[str]) -> None:
    """More than a list needs alone; none is counted on PostgreSQL, whose wire has a test of its own."""
    fill(client, [ADMIN, ADMIN])
    for of, names in EMBEDDED.items():
        numbers = []
        for query in (f"embed={','.join(names)}", "limit=99", f"limit=98&embed={','.join(names)}"):
            statements.clear()  # the first request reads the schemas
            assert client.get(f"/{of}?{query}", headers=ADMIN).status_code == 200
            numbers.append(len(statements))
        assert numbers[2] - numbers[1] == bool(statements), statements


REFUSED = [
    ("/people?embed=name", "cannot be 'name'; there are: orders, reviews.writer, reviews.about"),
    ("/people/{}?embed=customer", "cannot be 'customer'; there are: orders"),
    ("/people?embed=", "cannot be ''; there are: orders"),
    (f"/people?embed={','.join('abcdefghijk')}", "has at most 10 values"),
    ("/people?embed=orders&count=id", "does not go with count"),
    (
        "/people?embed=orders,reviews.writer,reviews.about",
        "would add more than 4000 bytes here: ask for fewer items (limit), or embed less",
    ),
    ("/orders?embed=customer", "would add more than 4000 bytes here"),
    ("/orders?embed=lines.thing", "would look into more than 5 elements of lists here"),
]


def test_too_much_or_unknown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "MOST_ELEMENTS", 5)
    client = create_app(Config(page_bytes=4000)).test_client()
    person = new(client, "/people", {}, name="x" * 1900)
    for n in range(3):
        lines = [{"thing": new(client, "/things", {}, title=str(n))} for _ in range(2)]
        new(client, "/orders", {}, customer=person, lines=lines, gifts=[lines[0]["thing"]] * 16)
        new(client, "/reviews", {}, writer=person, about=person)
    for path, detail in REFUSED:
        refused = client.get(path.format(person))
        assert refused.status_code == 400 and len(refused.json["errors"]) == 1
        assert refused.json["errors"][0]["parameter"] == "embed"
        assert refused.json["errors"][0]["detail"].startswith(detail), refused.json
    assert client.get("/orders?embed=customer&limit=1").status_code == 200


def test_as_many_bytes_as_a_page_has_can_be_embedded() -> None:
    """An item counts as often as it is shown, and the last byte is allowed."""
    name = "x" * 1900
    alone = create_app(Config()).test_client()
    size = len(alone.get(f"/people/{new(alone, '/people', {}, name=name)}").data)
    for page_bytes, status in ((2 * size, 200), (2 * size - 1, 400)):
        client = create_app(Config(page_bytes=page_bytes)).test_client()
        person = new(client, "/people", {}, name=name)
        for _ in range(2):
            new(client, "/orders", {}, customer=person, lines=[{"thing": new(client, "/things", {}, title="a")}])
        assert client.get("/orders?embed=customer").status_code == status


class TestAtAnItem:
    def test_it_is_the_list_with_one_more_filter(self, client: FlaskClient) -> None:
        """With filters, order, pages, counts, and what is embedded; for each caller and in each version."""
        owners = [key(client, *READ, *WRITE) for _ in range(2)]
        person = fill(client, owners)["people"][0]
        queries = ("", "sort=-id&limit=3", "offset=2&limit=2", "count=customer", "embed=lines.thing&fields=id", "q=")
        for caller, query in product((ADMIN, *owners), queries):
            nested = client.get(f"/people/{person}/orders?{query}", headers=caller)
            plain = client.get(f"/orders?{query}&customer={person}", headers=caller)
            assert nested.json == plain.json and nested.json, query
            assert nested.headers.get("X-Total-Count") == plain.headers.get("X-Total-Count")
            again = client.get(
                f"/people/{person}/orders?{query}", headers=caller | {"If-None-Match": nested.headers["ETag"]}
            )
            assert again.status_code == 304
        path, ids = f"/api/v1/people/{person}/orders?limit=4", []
        while path:
            page = client.get(path, headers=ADMIN)
            ids += [each["id"] for each in page.json]
            path = next_of(page)
        assert ids == [each["id"] for each in client.get(f"/orders?customer={person}&limit=100", headers=ADMIN).json]
        assert client.get(f"/people/{person}/reviews.about?writer={person}", headers=ADMIN).status_code == 200

    def test_the_item_is_found_before_the_parameters_are_read(self, client: FlaskClient) -> None:
        """Who may not know of it learns nothing by a wrong parameter."""
        for query in ("sort=nothing", "_limit=x"):
            assert client.get(f"/people/nobody/orders?{query}", headers=ADMIN).status_code == 404
        person = new(client, "/people")
        assert client.get(f"/people/{person}/orders?_limit=x", headers=ADMIN).status_code == 400

    def test_it_needs_both(self, client: FlaskClient) -> None:
        """The scopes of both collections, and an item that the caller may see."""
        mine, other = key(client, *READ, *WRITE), key(client, *READ, *WRITE)
        person = new(client, "/people")
        order = new(client, "/orders", mine, customer=person)
        assert client.get(f"/orders/{order}/orders", headers=mine).json == []
        for path, headers, status in (
            (f"/orders/{order}/orders", other, 404),
            ("/people/none/orders", ADMIN, 404),
            (f"/people/{person}/orders", key(client, "orders:read", "orders:write"), 403),
            (f"/people/{person}/orders", key(client, "people:read"), 403),
        ):
            assert client.get(path, headers=headers).status_code == status
            assert client.post(path, json={"customer": person}, headers=headers).status_code == status
        assert client.get(f"/people/{person}/lines", headers=ADMIN).status_code == 404

    def test_a_repetition_gets_the_first_response(self, client: FlaskClient) -> None:
        """Also when the item in the path has gone since, and the new one with it."""
        writer, person = new(client, "/people"), new(client, "/people")
        at, once = f"/people/{person}/reviews.about", ADMIN | {"Idempotency-Key": "once"}
        made = client.post(at, json={"writer": writer}, headers=once)
        assert client.delete(f"/people/{person}", headers=ADMIN).status_code == 200
        again = client.post(at, json={"writer": writer}, headers=once)
        assert (again.status_code, again.data, again.headers["Location"]) == (200, made.data, made.headers["Location"])
        assert client.post(at, json={"writer": writer}, headers=ADMIN).status_code == 404

    def test_a_post_can_be_conditional_on_it(self, client: FlaskClient) -> None:
        """Its ETag matches until one of the caller's items refers to the same one, or to it no more: then it is 412."""
        mine, other = key(client, *READ, *WRITE), key(client, *READ, *WRITE)
        person, neighbour = new(client, "/people"), new(client, "/people")
        at = f"/people/{person}/orders"

        def post(tag: str, sent: Any) -> int:
            return client.post(at, json=sent, headers=mine | {"If-Match": tag}).status_code

        first = client.get(at, headers=mine).headers["ETag"]
        new(client, "/orders", mine, customer=neighbour)
        new(client, at, other)
        assert [post(first, {}), post(first, {})] == [200, 412]
        second = client.get(at, headers=mine)
        assert [post(client.get("/orders", headers=mine).headers["ETag"], {}), len(second.json)] == [412, 1]
        assert client.delete(f"/orders/{second.json[0]['id']}", headers=mine).status_code == 200
        assert [post(second.headers["ETag"], [{}, {}]), post(first, [{}, {}])] == [412, 200]
        tag = client.get(at, headers=ADMIN).headers["ETag"]
        made = [client.post(at, json={}, headers=ADMIN | {"If-Match": tag}).status_code for _ in range(2)]
        assert made == [200, 412]

    def test_an_action_cannot_have_its_path(self) -> None:
        people = replace(PEOPLE)
        people.action("orders")(lambda person, items: person)
        with pytest.raises(ValueError, match=r"^people: action\('orders'\): is the path of the orders that refer to "):
            create_shop(Config(), [people, THINGS, ORDERS, REVIEWS])


def test_the_document_says_what_can_be_embedded(client: FlaskClient) -> None:
    """In each version by its names; what is embedded changes no schema of other responses."""
    for version, names in (("v1", ["after", "buyer"]), ("v2", ["after", "customer"])):
        document = client.get(f"/api/{version}/openapi.json").json
        OpenAPIV31SpecValidator(document).validate()
        embed = document["components"]["parameters"]["OrderEmbed"]["schema"]
        assert embed["items"]["enum"] == [*names, "gifts", "lines.thing", "orders"]
        nested = document["paths"]["/people/{id}/orders"]
        ids = [nested[each]["operationId"] for each in ("get", "post")]
        assert ids == ["list_orders_of_person", "create_order_of_person"]
        assert "412" in nested["post"]["responses"]
        sent = nested["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert sent["$ref"].endswith("/OrderReferringInput")
        assert "required" in document["components"]["schemas"]["OrderInput"]
    assert "PersonEmbed" in document["components"]["parameters"]
    plain = create_shop(Config()).test_client().get("/openapi.json").json
    assert not [name for part in plain["components"].values() for name in part if "Embed" in name]


def test_a_reference_inside_what_can_be_null() -> None:
    """The document has it; and it is embedded where it is."""
    client = create_posts(Config()).test_client()
    post = client.post("/posts", json={"title": "t"}).json
    line, path = {"post": post["id"]}, "/lists?embed=first.post,lines.post&fields=first"
    for sent in ({}, {"first": line, "lines": [None, line]}):
        assert client.post("/lists", json=sent).status_code == 200
    shown = client.get(path).json
    assert shown == [{"first": None, "lines": []}, {"first": {"post": post}, "lines": [None, {"post": post}]}]
    document = client.get("/openapi.json").json
    OpenAPIV31SpecValidator(document).validate()
    schema = {"$ref": "#/components/schemas/ListEmbedded", "components": document["components"]}
    for each in shown:
        Draft202012Validator(schema).validate(each)


class TestBeside:
    """What an item refers to, under another name than the reference."""

    @pytest.fixture
    def client(self) -> FlaskClient:
        client = create_open(Config()).test_client()
        for id, like in (("a", []), ("b", ["a"]), ("c", ["b", "a"])):
            client.put(f"/words/{id}", json={"likeIds": like})
        client.post("/entries", json={"id": 0, "text": "x"})
        for sent in ({"wordId": "a", "entry_id": 0, "word": 5}, {"wordId": "b", "entry_id": None}, {"wordId": "c"}):
            client.post("/pairs", json=sent)
        return client

    def test_the_id_stays(self, client: FlaskClient) -> None:
        """The item is beside it, or null; it has the place of an unknown field of this name."""
        a, b, _ = client.get("/words").json
        pairs = client.get("/pairs?embed=word,entry").json
        entry = {"id": 0, "text": "x"}
        assert pairs[0] == {"id": 1, "wordId": "a", "entry_id": 0, "word": a, "entry": entry}
        assert pairs[1] == {"id": 2, "wordId": "b", "entry_id": None, "word": b, "entry": None}
        assert pairs[2]["entry"] is None and "entry_id" not in pairs[2]
        assert client.get("/pairs/1?embed=entry&fields=id").json == {"id": 1, "entry": entry}
        assert client.get("/pairs/1?_expand=word&_fields=1").status_code == 400
        assert client.get("/pairs/1?embed=wordId").json["detail"].startswith("embed cannot be 'wordId'; there are: wo")
        assert client.get("/words/c?embed=like").json == {"id": "c", "likeIds": ["b", "a"], "like": [b, a]}

    def test_the_list_of_those_that_refer_has_its_own_limit(self, client: FlaskClient) -> None:
        for _ in range(12):
            client.post("/pairs", json={"wordId": "a"})
        found = client.get("/words/a?embed=pairs").json
        assert [each["id"] for each in found["pairs"]] == [*range(15, 3, -1)]
        assert client.get(found["pairs_next"]).json[0]["id"] == 1
        assert len(client.get("/words/b?embed=words").json["words"]) == 1

    def test_the_document_has_it(self, client: FlaskClient) -> None:
        document = client.get("/openapi.json").json
        schemas = document["components"]["schemas"]
        for path, name in (("/pairs?embed=word,entry", "PairEmbedded"), ("/words?embed=like,pairs", "WordEmbedded")):
            for item in client.get(path).json:
                Draft202012Validator({**schemas[name], "components": document["components"]}).validate(item)
        assert schemas["WordEmbedded"]["properties"]["pairs"]["maxItems"] == 12
        assert "wordId" not in schemas["PairEmbedded"]["properties"]  # it stays as it is
        assert "at most 10 or 12 with" in document["components"]["parameters"]["WordEmbed"]["description"]

    def test_names_that_cannot_be(self) -> None:
        inside = fields.Nested({"y": Reference("words", embed_as="z")}, required=True)
        for field, path in ((Reference("words", embed_as="x", required=True), "x"), (inside, "x.y")):
            with pytest.raises(ValueError, match=f"links.{path}: embed_as=.*: must be a name that no field has"):
                Resource("links", "link", ItemSchema.from_dict({"x": field}))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="links: embed_limit=0: must be a whole number from 1"):
            Resource("links", "link", ItemSchema, embed_limit=0)
