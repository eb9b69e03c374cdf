"""`on_conflict`: an item is looked for by a unique index, and changed or created."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper import (
    Add,
    Config,
    Conflict,
    Index,
    Items,
    ItemSchema,
    JsonObject,
    Ownership,
    Rename,
    Resource,
    Text,
    Version,
    Versions,
    Whole,
)
from tests.callers import ADMIN, ADMIN_KEY, events, key, pointers
from tests.shop import create_app

Item = dict[str, Any]
PRIVATE = "secret"  # the field

pytestmark = pytest.mark.needs("batch", "events", "idempotency", "keys", "versions")


class MemberSchema(ItemSchema):
    """A member, known by e-mail and by the number in a club."""

    email = Text(1, 60, allow_none=True, load_default=None)
    club = Text(1, 20, load_default="main")
    number = Whole(0, 10**6, allow_none=True, load_default=None)
    name = Text(1, 60, required=True)
    note = Text(0, 60, load_default="")
    extra = JsonObject(load_default=dict)
    secret = Text(0, 60, load_default="none", readable_by="members:secrets")


def members(**options: Any) -> Resource:
    """The collection, with two unique indexes."""
    unique = (
        Index("email", unique=True, fold=True),
        Index("club", "number", unique=True),
    )
    return Resource("members", "member", MemberSchema, indexes=unique, **options)


@pytest.fixture
def client() -> FlaskClient:
    return create_app(Config(), [members()]).test_client()


def put(client: FlaskClient, on: str = "email", headers: Any = None, **sent: Any) -> Any:
    response = client.post(f"/members?on_conflict={on}", json=sent, headers=headers)
    assert response.status_code == 200, response.text
    return response.json


def test_it_creates_an_item_or_merges_it(client: FlaskClient) -> None:
    """What is not sent stays, and null is a value, as in a PATCH; each has its event."""
    new = put(client, email="ada@x", name="Ada", note="first")
    same = put(client, email="ADA@x", name="Ada L.", number=5)
    assert (same["id"], same["version"]) == (new["id"], 2)
    assert (same["email"], same["name"], same["note"], same["number"]) == ("ADA@x", "Ada L.", "first", 5)
    assert put(client, email="ADA@x")["version"] == 2  # nothing changes
    assert put(client, "number,club", club="main", number=5, email=None)["email"] is None
    other = client.post("/members?on_conflict=club,number", json={"club": "main", "number": 6, "name": "Eve"})
    assert other.headers["Location"] == f"/members/{other.json['id']}" and other.headers["ETag"]
    assert events(client) == ["member.created", *["member.updated"] * 2, "member.created"]


def test_without_a_value_it_creates(client: FlaskClient) -> None:
    """Null occurs any number of times in a unique index; a half item that nobody has is not valid."""
    assert put(client, email=None, name="A")["id"] != put(client, name="B")["id"]
    refused = client.post("/members?on_conflict=email", json={"email": "new@x"})
    assert (refused.status_code, pointers(refused)) == (422, ["#/name"])
    refused = client.post("/members?on_conflict=email", json={"email": 5, "name": "A"})
    assert (refused.status_code, pointers(refused)) == (422, ["#/email"])
    put(client, email="ada@x", name="Ada", club="a", number=1)
    put(client, email="eve@x", name="Eve", club="a", number=2)
    taken = client.post("/members?on_conflict=email", json={"email": "eve@x", "number": 1})
    assert (taken.status_code, pointers(taken)) == (409, ["#/club", "#/number"])


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("on_conflict=name", "must have the fields of a unique index: email or club,number"),
        ("on_conflict=club", "must have the fields of a unique index: email or club,number"),
        ("on_conflict=", "must have the fields of a unique index: email or club,number"),
    ],
)
def test_another_field_is_refused(client: FlaskClient, query: str, detail: str) -> None:
    """The problem names what there is."""
    refused = client.post(f"/members?{query}", json={"name": "A"})
    assert refused.status_code == 400
    assert refused.json["errors"] == [{"parameter": "on_conflict", "detail": detail}]


def test_it_takes_no_conditions(client: FlaskClient) -> None:
    """Those of a POST are of the list."""
    refused = client.post("/members?on_conflict=email", json={"name": "A"}, headers={"If-Match": "*"})
    assert refused.status_code == 400 and "leave out the conditions" in refused.json["detail"]


def test_what_creates_nothing_refuses_it(client: FlaskClient) -> None:
    """It would ignore it."""
    id = put(client, email="ada@x", name="Ada")["id"]
    for method in ("PUT", "PATCH", "DELETE"):
        refused = client.open(f"/members/{id}?on_conflict=email", method=method, json={"name": "B"})
        assert refused.status_code == 400 and refused.json["detail"] == "on_conflict is for a POST that creates items"


def test_what_is_no_collection_of_the_service_refuses_it() -> None:
    """A key, which has no unique field, would be made anew each time."""
    client = create_app(Config(auth="required", admin_key=ADMIN_KEY)).test_client()
    sent = {"name": "a", "scopes": ["products:read"]}
    refused = client.post("/api/v1/keys?on_conflict=name", json=sent, headers=ADMIN)
    assert refused.status_code == 400 and "on_conflict is for" in refused.json["detail"]


def test_the_index_is_that_of_the_version() -> None:
    """A field of the newest revision can have the name of another one in an older version."""

    class Schema(ItemSchema):
        sku = Text(1, 60, required=True)
        code = Text(1, 60, allow_none=True, load_default=None)

    steps = {2: [Rename("code", "sku"), Add("code")]}
    resource = Resource("things", "thing", Schema, indexes=(Index("code", unique=True),), upgrades=steps)
    versions = Versions(Version("v1", revisions={"things": 1}, successor="v2"), Version("v2"), unversioned="v2")
    client = create_app(Config(), [resource], versions=versions).test_client()
    assert client.post("/things?on_conflict=code", json={"sku": "s", "code": "c"}).json["code"] == "c"
    refused = client.post("/api/v1/things?on_conflict=code", json={"code": "s"})
    assert refused.status_code == 400 and "needs a unique index" in refused.json["detail"]


def test_an_array_has_a_bound() -> None:
    """Of what it returns, as a batch: a small request can change large items."""
    client = create_app(Config(page_bytes=1000), [members()]).test_client()
    put(client, email="ada@x", name="Ada", note="n" * 60)
    for number, status in ((2, 200), (5, 413)):
        sent = [{"email": "ada@x", "number": n} for n in range(number)]
        assert client.post("/members?on_conflict=email", json=sent).status_code == status
    assert client.get("/members").json[0]["version"] == 3


@pytest.mark.needs("openapi")
def test_it_needs_a_unique_index() -> None:
    """A collection without one says so, and its document has no such parameter."""
    client = create_app(Config(), [members(), Resource("logs", "log", MemberSchema)]).test_client()
    assert "needs a unique index" in client.post("/logs?on_conflict=name", json={"name": "A"}).json["detail"]
    parameters = client.get("/openapi.json").json["components"]["parameters"]
    assert parameters["MemberConflict"]["schema"]["enum"] == ["email", "club,number"]
    assert "LogConflict" not in parameters


def test_an_array_is_all_or_none(client: FlaskClient) -> None:
    """An item of it can change another one; the first that is wrong has its place."""
    put(client, email="ada@x", name="Ada")
    eve = "eve@x"
    sent = [{"email": "ada@x", "note": "1"}, {"email": eve, "name": "Eve"}, {"email": eve, "note": "2"}]
    answer = client.post("/members?on_conflict=email", json=sent)
    shown = [(each["name"], each["note"], each["version"]) for each in answer.json]
    assert shown == [("Ada", "1", 2), ("Eve", "", 1), ("Eve", "2", 2)]
    refused = client.post("/members?on_conflict=email", json=[{"email": "ada@x", "note": "9"}, {"email": "new@x"}])
    assert (refused.status_code, pointers(refused)) == (422, ["#/1/name"])
    assert sorted(each["note"] for each in client.get("/members").json) == ["1", "2"]


def test_a_batch_and_a_key(client: FlaskClient) -> None:
    """An operation has the query of a request; a repetition gets the first response."""
    operations = [
        {"method": "POST", "path": "/members?on_conflict=email", "body": {"email": "ada@x", "name": name}}
        for name in ("Ada", "Eve")
    ]
    first, second = client.post("/api/v1/batch", json={"operations": operations}).json["results"]
    assert first["body"]["id"] == second["body"]["id"] and second["body"]["name"] == "Eve"
    wrong = [{"method": "PATCH", "path": f"/members/{first['body']['id']}?on_conflict=email", "body": {}}]
    refused = client.post("/api/v1/batch", json={"operations": wrong})
    assert refused.status_code == 400 and pointers(refused) == ["#/operations/0/path"]
    once = {"Idempotency-Key": "k"}
    one = put(client, headers=once, email="ada@x", name="X")
    put(client, email="ada@x", name="Y")
    assert put(client, headers=once, email="ada@x", name="X") == one
    assert client.get(f"/members/{one['id']}").json["name"] == "Y"


def test_of_twenty_callers_one_creates(tmp_path: Path) -> None:
    """All others change what it has created: nobody gets a conflict."""
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db"), [members()])

    def write(number: int) -> Any:
        return put(app.test_client(), email=f"{number % 4}@x", name=str(number))

    with ThreadPoolExecutor(20) as pool:
        answers = [*pool.map(write, range(80))]
    listed = app.test_client().get("/members").json
    assert len(listed) == 4 and sorted(each["version"] for each in listed) == [20] * 4
    assert sorted(each["version"] for each in answers) == sorted([*range(1, 21)] * 4)


def test_private_fields_stay() -> None:
    """Who may not read a field does not change it."""
    app = create_app(Config(auth="required", admin_key=ADMIN_KEY), [members()])
    client = app.test_client()
    staff = key(client, "members:write", "members:read", "members:secrets")
    other = key(client, "members:write", "members:read")
    new = put(client, headers=staff, email="ada@x", name="Ada", **{PRIVATE: "s"})
    seen = put(client, headers=other, email="ada@x", note="n")
    assert PRIVATE not in seen and client.get(f"/members/{new['id']}", headers=ADMIN).json[PRIVATE] == "s"


def test_an_item_of_another_owner_is_a_conflict() -> None:
    """As for a POST without the parameter: it is not changed."""
    app = create_app(Config(auth="required", admin_key=ADMIN_KEY), [members(ownership=Ownership.ALL)])
    client = app.test_client()
    ada, bob = (key(client, "members:write", "members:read") for _ in range(2))
    new = put(client, headers=ada, email="ada@x", name="Ada")
    refused = client.post("/members?on_conflict=email", json={"email": "ada@x", "name": "B"}, headers=bob)
    assert (refused.status_code, pointers(refused)) == (409, ["#/email"])
    assert put(client, headers=ada, email="ada@x", name="A.")["id"] == new["id"]


def test_a_function_does_the_same() -> None:
    """`items.upsert` takes one field or several."""
    resource = members()

    @resource.action("sync", of="collection")
    def sync(items: Items) -> list[Item]:
        """Create, and change, and change again."""
        first = items.upsert("members", {"email": "ada@x", "name": "Ada", "number": 1, "extra": {"a": 1}}, on="email")
        second = items.upsert("members", {"email": "Ada@x", "note": "n"}, on=["email"])
        third = items.upsert("members", {"number": 1, "club": "main", "extra": {"b": 2}}, on=("number", "club"))
        if (second["note"], third["note"], third["extra"]) != ("n", "n", {"a": 1, "b": 2}):
            raise Conflict(f"it has lost something: {third}")
        try:
            items.upsert("members", {"name": "A"}, on="name")
        except ValueError as error:
            raise Conflict(str(error)) if "unique index: email" not in str(error) else Conflict("right") from None
        return [first, second, third]

    client = create_app(Config(), [resource]).test_client()
    assert client.post("/members/sync").json["detail"] == "right"
    assert client.get("/members").json == []


def matching(one: Item, other: Item, names: tuple[str, ...]) -> bool:
    """Whether two items have the same values, none of which is null, without regard to case."""
    values = [[item.get(name) for name in names] for item in (one, other)]
    return None not in values[0] and str(values[0]).lower() == str(values[1]).lower()


def test_random_operations_are_those_of_a_dictionary(client: FlaskClient) -> None:
    """400 of them, by both indexes, each as a plain model says."""
    chance, known = random.Random(4), list[Item]()  # noqa: S311 - no secret
    indexes = [("email",), ("club", "number")]
    for number in range(400):
        on = chance.choice(indexes)
        sent = {"email": chance.choice([None, "a@x", "B@x", "b@x", "c@x"]), "club": chance.choice("ab")}
        sent |= {"number": chance.choice([None, 1, 2])}
        sent = {name: value for name, value in sent.items() if chance.random() < 0.8} | {"name": str(number)}
        found = next((each for each in known if matching(sent, each, on)), None)
        after = {"email": None, "club": "main", "number": None} | (found or {}) | sent
        others = [each for each in known if each is not found]
        is_taken = any(matching(after, each, names) for each in others for names in indexes)
        response = client.post(f"/members?on_conflict={','.join(on)}", json=sent)
        assert response.status_code == (409 if is_taken else 200), (sent, found, response.json)
        if not is_taken:
            known = [*others, after]
            assert {name: response.json[name] for name in after} == after
    assert len(known) == len(client.get("/members?limit=1000").json) > 3


def test_import_by_a_field(tmp_path: Path) -> None:
    """`--key` changes the items with the same value, whose ids the file need not have."""
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db"))
    file, run = tmp_path / "users.ndjson", app.test_cli_runner().invoke
    file.write_text('{"email": "ada@x.org", "name": "Ada"}\n{"email": "eve@x.org", "name": "Eve"}\n')
    assert run(args=["import", "users", str(file), "--key", "email"]).exit_code == 0
    file.write_text('{"email": "ADA@x.org", "name": "Ada L."}\n{"email": "bob@x.org"}\n')
    result = run(args=["import", "users", str(file), "--key", "email"])
    assert result.output.splitlines()[0] == "imported 1 users, updated 1", result.output
    shown = [(each["email"], each["name"], each["version"]) for each in app.test_client().get("/users?sort=email").json]
    assert shown == [("ADA@x.org", "Ada L.", 2), ("bob@x.org", None, 1), ("eve@x.org", "Eve", 1)]
    refused = run(args=["import", "users", str(file), "--key", "name"])
    assert refused.exit_code != 0 and "--key name must have the fields of a unique index: email" in refused.output
