"""The ids of items: given by clients."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper import Config, ItemSchema, Resource
from tests.callers import ADMIN, ADMIN_KEY, make_key
from tests.live import Gunicorn, send
from tests.shop.tags import create_app

pytestmark = pytest.mark.needs("batch", "events", "idempotency", "keys", "openapi", "ownership")

ANY = {"If-None-Match": "*"}


@pytest.fixture
def client() -> FlaskClient:
    """A client of the service with tags, open to all on this machine."""
    return create_app(Config()).test_client()


def events(client: FlaskClient) -> list[str]:
    return [each["type"] for each in client.get("/api/v1/events?limit=100").json]


def pointers(response: Any) -> list[str]:
    return [each["pointer"] for each in response.json["errors"]]


def test_a_put_creates_and_replaces(client: FlaskClient) -> None:
    """With 200 both times; the same again changes nothing."""
    made = client.put("/tags/red", json={"label": "Red"})
    assert (made.status_code, made.json["id"], made.json["version"]) == (200, "red", 1)
    read = client.get("/tags/red")
    assert (read.json, read.headers["ETag"]) == (made.json, made.headers["ETag"])
    again = client.put("/tags/red", json={"label": "Red", "id": "red"})
    assert (again.status_code, again.data) == (200, made.data)
    replaced = client.put("/api/v1/tags/red", json={"id": "red"})
    assert (replaced.status_code, replaced.json["label"], replaced.json["version"]) == (200, "", 2)
    assert events(client) == ["tag.created", "tag.updated"]
    assert client.patch("/tags/blue", json={"label": "Blue"}).status_code == 404
    assert client.delete("/tags/blue").status_code == 404


def test_a_put_has_conditions(client: FlaskClient) -> None:
    """Only to create, or only to replace what was read."""
    absent = client.put("/tags/red", json={}, headers={"If-Match": "*"})
    assert (absent.status_code, absent.json["detail"]) == (412, "there is no such item")
    made = client.put("/tags/red", json={}, headers=ANY)
    assert made.status_code == 200
    taken = client.put("/tags/red", json={"label": "x"}, headers=ANY)
    assert (taken.status_code, taken.headers["ETag"]) == (412, made.headers["ETag"])
    tag = {"If-Match": made.headers["ETag"]}
    assert client.put("/tags/red", json={"label": "x"}, headers=tag).status_code == 200
    assert client.put("/tags/red", json={"label": "y"}, headers=tag).status_code == 412
    assert client.get("/tags/red").json["label"] == "x"


def test_a_put_must_have_a_condition_if_all_changes_must() -> None:
    client = create_app(Config(require_if_match=True)).test_client()
    assert client.put("/tags/red", json={}).status_code == 428
    assert [client.put("/tags/red", json={}, headers=ANY).status_code for _ in range(2)] == [200, 412]
    assert client.put("/tags/red", json={}).status_code == 428
    assert client.put("/tags/red", json={}, headers={"If-None-Match": '"x"'}).status_code == 428


def test_a_post_can_have_an_id(client: FlaskClient) -> None:
    """In an array too; one that is taken is refused as each unique value is."""
    made = client.post("/tags", json={"id": "red", "code": "r"})
    assert (made.status_code, made.json["id"], made.headers["Location"]) == (200, "red", "/tags/red")
    assert len(client.post("/tags", json={}).json["id"]) == 36
    taken = client.post("/tags", json={"id": "red", "code": "r"})
    assert (taken.status_code, sorted(pointers(taken))) == (409, ["#/code", "#/id"])
    several = client.post("/tags", json=[{"id": "a"}, {"id": "b"}, {"id": "a"}, {"id": "red"}])
    assert (several.status_code, pointers(several)) == (409, ["#/2/id", "#/3/id"])
    assert client.post("/tags", json=[{"id": "a"}, {"id": "b"}]).status_code == 200
    other = client.put("/tags/c", json={"code": "r"})
    assert (other.status_code, pointers(other)) == (409, ["#/code"])


def test_an_id_is_given_once_for_a_key(client: FlaskClient) -> None:
    """A repeated POST gets the first response, and no 409."""
    headers = {"Idempotency-Key": "one"}
    first, again = (client.post("/tags", json={"id": "red"}, headers=headers) for _ in range(2))
    assert (first.status_code, first.data) == (200, again.data) and again.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("id", ["", "x" * 65, ".", "..", "a b", "a/b", "ä", "a\n", 5, None, [], {}])
def test_an_id_must_be_possible_in_a_path(client: FlaskClient, id: Any) -> None:
    """All faults of the request are told at once."""
    response = client.post("/tags", json={"id": id, "label": 5})
    assert (response.status_code, sorted(pointers(response))) == (422, ["#/id", "#/label"])


def test_a_path_has_a_possible_id_and_no_other_than_the_body(client: FlaskClient) -> None:
    for path, sent in (("/tags/a%20b", {}), (f"/tags/{'x' * 65}", {}), ("/tags/a%00", {}), ("/tags/a", {"id": "b"})):
        response = client.put(path, json=sent)
        assert (response.status_code, pointers(response)) == (422, ["#/id"]), path
    assert pointers(client.put("/tags/a", json={"version": 1})) == ["#/version"]
    made = client.put(f"/tags/{'~' * 64}", json={})
    assert made.status_code == 200 and client.get(f"/tags/{'~' * 64}").status_code == 200
    assert events(client) == ["tag.created"]


def test_a_function_of_the_service_can_give_an_id(client: FlaskClient) -> None:
    assert client.post("/tags/make", json={"id": "red"}).json["id"] == "red"
    assert len(client.post("/tags/make", json={}).json["id"]) == 36
    assert client.post("/tags/make", json={"id": "red"}).status_code == 409
    assert client.post("/tags/make", json={"id": "a b"}).json["detail"].startswith("tags: id must be 1 to 64 of")


def test_a_batch_creates_by_put(client: FlaskClient) -> None:
    """As a request alone."""
    put = {"method": "PUT", "path": "/tags/red", "body": {"label": "Red"}, "name": "red"}
    again = {"method": "PUT", "path": "/tags/$red", "body": {"label": "red"}}
    response = client.post("/api/v1/batch", json={"operations": [put, again]})
    assert [each["body"]["version"] for each in response.json["results"]] == [1, 2]
    absent = {**put, "path": "/tags/blue", "if_match": "*"}
    response = client.post("/api/v1/batch", json={"operations": [put, absent]})
    assert (response.status_code, response.json["operation"]) == (412, 1)
    assert client.get("/tags/red").json["label"] == "red"


def test_nobody_creates_what_another_has() -> None:
    """The id of an item that the caller may not see is taken, as by a POST; no condition of it shows more."""
    client = create_app(Config(auth="required", admin_key=ADMIN_KEY)).test_client()
    scopes = ["notes:read", "notes:write"]
    one, two = ({"X-API-Key": make_key(client, *scopes)["secret"]} for _ in range(2))
    assert client.put("/notes/a", json={"label": "mine"}, headers=one).status_code == 200
    for headers in (two, {**two, **ANY}):
        put, post = (
            client.put("/notes/a", json={}, headers=headers),
            client.post("/notes", json={"id": "a"}, headers=two),
        )
        assert (put.status_code, pointers(put)) == (post.status_code, pointers(post)) == (409, ["#/id"])
    for path in ("/notes/a", "/notes/b"):
        assert client.put(path, json={}, headers={**two, "If-Match": "*"}).status_code == 412
    operation = {"method": "PUT", "path": "/notes/a", "body": {}}
    assert client.post("/api/v1/batch", json={"operations": [operation]}, headers=two).status_code == 409
    assert client.put("/notes/c?owner=me", json={}, headers=ADMIN).status_code == 200
    assert client.put("/notes/d?owner=me", json={}, headers=one).status_code == 403
    reader = {"X-API-Key": make_key(client, "notes:read")["secret"]}
    assert client.put("/notes/e", json={}, headers=reader).status_code == 403


def test_two_put_the_same_id_at_once(tmp_path: Path) -> None:
    """One creates, the others replace, or are refused by their condition: no update is lost."""
    with Gunicorn(tmp_path, app="tests.shop.tags:create_app()", RATE_LIMIT="off") as server:
        for number in range(10):
            path, batch = f"/tags/t{number}", f"/tags/b{number}"

            def put(label: int, path: str = path) -> int:
                sent = {"label": str(label), "code": path[-2:]}
                return send(server.port, "PUT", path, sent, ANY if label % 2 else {}).status

            def operate(label: int, path: str = batch) -> int:
                operation = {"method": "PUT", "path": path, "body": {"label": str(label)}}
                return server.post("/api/v1/batch", {"operations": [operation]}).status

            with ThreadPoolExecutor(12) as pool:
                alone, together = [pool.submit(put, n) for n in range(8)], [pool.submit(operate, n) for n in range(4)]
                counts = Counter(each.result() for each in alone)
                assert {each.result() for each in together} == {200}
            assert counts.keys() <= {200, 412} and counts[412] in (3, 4), counts
            assert server.get(path).json()["version"] == counts[200]
            assert server.get(batch).json()["version"] == 4


def test_the_document_says_who_gives_ids(client: FlaskClient) -> None:
    document = client.get("/openapi.json").json
    schemas, paths = document["components"]["schemas"], document["paths"]
    assert schemas["TagInput"]["properties"]["id"]["pattern"] == r"^(?!\.{1,2}$)[A-Za-z0-9._~-]{1,64}$"
    assert "id" not in schemas["TagInput"]["required"] and "id" not in schemas["TagPatch"]["properties"]
    assert schemas["Tag"]["properties"]["id"]["description"].startswith("Given by the caller")
    put = paths["/tags/{id}"]["put"]
    assert "404" not in put["responses"] and "create" in put["description"]
    assert "404" in paths["/tags/{id}"]["patch"]["responses"]


def test_ids_are_declared_soundly() -> None:
    with pytest.raises(ValueError, match="tags: ids='uuid': must be 'server' or 'client'"):
        Resource("tags", "tag", ItemSchema, ids="uuid")
