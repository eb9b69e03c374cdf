"""What the collections of a JSON file accept, as json-server does."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.features.files import Description
from tests.json_file import client_of

DATA: dict[str, Any] = {
    "posts": [{"id": 1, "title": "Hello", "views": 100}, {"id": "2", "title": "World", "views": "many"}],
    "comments": [{"id": "a", "postId": "1"}, {"id": "b", "postId": 1}, {"id": "c", "postId": 99}],
    "empty": [],
    "profile": {"name": "typicode"},
}


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    return client_of(tmp_path, DATA)


def ids(client: FlaskClient, path: str) -> list[Any]:
    return [each["id"] for each in client.get(path).json]


def test_nothing_is_required_and_every_value_is_data(client: FlaskClient) -> None:
    """Null, other types than those of the other items, names that none has, in the order in which they are sent."""
    sent = {"title": None, "views": [{"deep": {}}], "new-name": 1.50, "a b": True, "postId": {"no": "id"}}
    for method, path in (("post", "/posts"), ("put", "/posts/1"), ("put", "/profile")):
        reply = client.open(path, method=method, data=json.dumps(sent), content_type="application/json")
        assert reply.status_code == 200 and list(reply.json) == [*["id"] * ("posts" in path), *sent], reply.text
        assert reply.json == {**sent, **{name: reply.json[name] for name in ("id",) if "posts" in path}}
    assert client.post("/posts", json={}).json.keys() == {"id"}


def test_a_patch_replaces_members_and_stores_null(client: FlaskClient) -> None:
    """Objects are not merged; an id is ignored, also in a PUT."""
    assert client.patch("/posts/1", json={"author": {"a": 1}}).status_code == 200
    patched = client.patch("/posts/1", json={"author": {"b": 2}, "title": None, "id": 9})
    assert patched.json == {"id": 1, "title": None, "views": 100, "author": {"b": 2}}
    assert client.put("/posts/1", json={"views": 1, "id": "x"}).json == {"views": 1, "id": 1}
    assert client.put("/posts/77", json={"views": 1}).status_code == 404
    tag = client.get("/posts/1").headers["ETag"]
    again = client.put("/posts/1", json={"views": 1.0})
    assert again.headers["ETag"] == tag and client.patch("/posts/1", json={}).headers["ETag"] == tag


def test_ids_are_texts_or_numbers(client: FlaskClient) -> None:
    """1 and "1" are one; an empty collection takes either; new ones continue, or are texts among texts."""
    assert [client.post("/posts", json={"id": id}).status_code for id in ("1", 2)] == [409, 409]
    for number, id in enumerate((7, "x y", "ü", 1.5, -3, "007", "a" * 300), start=1):
        created = client.post("/empty", json={"id": id})
        assert created.json == {"id": id} and client.get(created.headers["Location"]).json == {"id": id}
        assert len(client.get("/empty").json) == number
    assert client.post("/empty", json={}).json == {"id": 8}
    assert isinstance(client.post("/comments", json={}).json["id"], str)
    assert ids(client, "/empty?id=7&id=x y&id=ü") == [7, "x y", "ü"]
    for wrong in (True, [1], {"a": 1}):
        assert client.post("/empty", json={"id": wrong}).json["errors"][0]["pointer"] == "#/id"


def test_lists_know_every_name(client: FlaskClient) -> None:
    """Also one that was written at this moment; what no item has matches nothing."""
    assert ids(client, "/posts?views=100") == ids(client, "/posts?views_gte=50&title_like=h") == [1]
    assert ids(client, "/posts?colour=red") == ids(client, "/posts?colour_ne=x&views=1") == []
    client.post("/posts", json={"colour": "red", "deep": {"er": "needle"}})
    assert len(ids(client, "/posts?colour=red")) == len(ids(client, "/posts?q=NEEDLE")) == 1
    assert ids(client, "/posts?_sort=-views&_limit=2") == ["2", 1]
    assert len(ids(client, "/posts?_=1234&callback=x&_type=1")) == 3
    assert client.get("/posts?fields=title,nothing&id=1").json == [{"title": "Hello"}]


def test_references_are_for_embedding_and_nesting(client: FlaskClient) -> None:
    """As a text or a number, and to nothing; a deletion sets them to null, or deletes what is named."""
    assert [each["id"] for each in client.get("/posts?_embed=comments").json[0]["comments"]] == ["b", "a"]
    assert ids(client, "/posts/1/comments") == ["a", "b"]
    posts = [each["post"] and each["post"]["id"] for each in client.get("/comments?_expand=post").json]
    assert posts == [1, 1, None]
    assert client.post("/posts/1/comments", json={"text": "x"}).json["postId"] == 1
    assert client.post("/comments", json={"postId": 1234, "emptyId": [1]}).status_code == 200
    assert client.delete("/posts/1").status_code == 200
    assert [each["postId"] for each in client.get("/comments").json] == [None, None, 99, None, 1234]
    client.patch("/comments/a", json={"postId": 2})
    assert client.delete("/posts/2?_dependent=comments").status_code == 200
    assert "a" not in ids(client, "/comments")


def test_the_document_follows_the_data(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is required, and everything can be null. It is made again only for items with other members."""
    made_again, make = Counter[int](), Description._application
    monkeypatch.setattr(Description, "_application", lambda *given: made_again.update([0]) or make(*given))
    schema = client.get("/openapi.json").json["components"]["schemas"]["PostInput"]
    assert schema["required"] == [] and schema["properties"]["title"]["type"] == ["string", "null"]
    assert "views" in schema["properties"] and "type" not in schema["properties"]["views"]  # a number, and a text
    before = client.get("/openapi.json").headers["ETag"]
    client.post("/posts", json={"title": "Another", "views": 1})
    assert client.get("/openapi.json").headers["ETag"] == before and made_again.total() == 1
    client.post("/empty", json={"made": "2026-01-31", "postId": 1})
    document = client.get("/openapi.json").json
    made = document["components"]["schemas"]["Empty"]["properties"]
    assert (made["made"]["format"], made["postId"]["x-references"]) == ("date", "posts")


def test_what_stays_strict(tmp_path: Path) -> None:
    """With --strict, and with a schema beside the file: of the other collections everything is accepted."""
    data = {"posts": [{"id": 1, "title": "a"}], "notes": [{"id": 1}]}
    strict = client_of(tmp_path, data, strict=True)
    for sent in ({}, {"title": 1}):
        refused = strict.post("/posts", json=sent)
        assert (refused.status_code, refused.json["errors"][0]["pointer"]) == (422, "#/title")
    assert strict.post("/posts", json={"title": "a", "more": 1}).status_code == 422
    assert strict.put("/posts/7", json={"title": "b"}).json == {"id": 7, "title": "b"}
    part = {"properties": {"posts": {"items": {"properties": {"title": {"type": "string"}}, "required": ["title"]}}}}
    (tmp_path / "db.schema.json").write_text(json.dumps(part))
    client = client_of(tmp_path, data)
    assert client.post("/posts", json={}).status_code == 422
    assert client.post("/posts", json={"title": "a", "more": 1}).status_code == 200
    assert client.post("/notes", json={"title": 1}).json == {"id": 2, "title": 1}


def test_ids_that_are_odd(tmp_path: Path) -> None:
    """None, the largest numbers, texts that look like keys of the store, and characters that are no text."""
    client = client_of(tmp_path, {"a": [{"id": 1}, {"id": "0000000000000001"}, {"id": "~A0000000000000000001"}]})
    assert ids(client, "/a") == [1, "0000000000000001", "~A0000000000000000001"]
    assert client.get("/a/0000000000000001").json == {"id": "0000000000000001"}
    assert client.get("/a/~A0000000000000000001").json == {"id": "~A0000000000000000001"}
    client = client_of(tmp_path, {"a": [{"id": 1}]})
    assert [client.post("/a", json={"id": id}).json["id"] for id in (None, "", 10**18 - 1)] == [2, 3, 10**18 - 1]
    assert client.post("/a", json={}).json["id"] == 10**18
    assert client.post("/a", json={"id": 2**63 - 1}).status_code == 200
    assert client.post("/a", json={}).json["code"] == "conflict"
    assert client.post("/a", data=b'{"id": "\\ud800"}', content_type="application/json").status_code == 422
    client = client_of(tmp_path, {"posts": [], "comments": []})
    assert client.post("/posts", json={}).json == {"id": 1}
    assert client.post("/posts/1/comments", json={"postId": "1"}).json == {"id": 1, "postId": "1"}


def test_what_our_json_has_not_is_in_the_way_of_nothing(tmp_path: Path) -> None:
    """References of twenty digits, and items so deep that they cannot be written anew."""
    deep = "[" * 400 + "]" * 400
    comments = f'[{{"id": 1, "postId": 1, "deep": {deep}}}, {{"id": 2, "postId": 99999999999999999999}}]'
    client = client_of(tmp_path, f'{{"posts": [{{"id": 1}}, {{"id": 99999999999999999999}}], "comments": {comments}}}')
    assert [each["id"] for each in client.get("/posts?_embed=comments").json[0]["comments"]] == [1]
    assert client.delete("/posts/1").status_code == 200
    assert '"postId":null,"deep":[[' in client.get("/comments").text
    assert client.get("/", headers={"Accept": "text/html"}).status_code == 200


def test_many_collections_start(tmp_path: Path) -> None:
    """Those of more than a dozen have the references that their items have, and no other ones."""
    data = {f"c{number}": [{"id": 1, f"c{number - 1}Id": 1}] for number in range(60)}
    client = client_of(tmp_path, data)
    assert client.get("/c5/1/c6").json == data["c6"] and client.get("/c6/1/c5").status_code == 404


def test_who_may_not_write_deletes_nothing_by_another_item(tmp_path: Path) -> None:
    """The scope is that of the collection as callers know it."""
    key = "rk_0123456789abcdef_" + "a" * 43
    data = {"posts": [{"id": 1}], "keys": [{"id": 1, "postId": 1}], "keys_2": []}
    client, admin = client_of(tmp_path, data, Config(auth="required", admin_key=key)), {"X-API-Key": key}
    for scopes, status in ((["posts:write", "keys_2:write"], 403), (["posts:write", "keys:write"], 200)):
        sent = {"name": "a", "scopes": [*scopes, "posts:read", "keys:read"]}
        secret = client.post("/_/keys", json=sent, headers=admin).json["secret"]
        reply = client.delete("/posts/1?_dependent=keys", headers={"X-API-Key": secret})
        assert reply.status_code == status, reply.text
    assert client.get("/db", headers=admin).json == {"posts": [], "keys": [], "keys_2": []}


def test_a_collection_without_a_plural_is_embedded(tmp_path: Path) -> None:
    """`children` can refer to `rights`: a `childrenId` that no item has does not take the name."""
    data = {"rights": [{"id": 1}], "children": [{"id": 3, "rightId": 1}], "news": [{"id": 7, "childrenId": 3}]}
    client = client_of(tmp_path, data)
    assert client.get("/rights?_embed=children").json[0]["children"] == data["children"]
    assert client.get("/rights/1/children").json == data["children"]
    assert client.get("/news/7?_expand=children").json["children"] == data["children"][0]
    assert client.post("/rights", json={"childrenId": 3}).status_code == 200
    assert ids(client, "/children/3/rights") == [2]


def test_names_of_the_file_are_filters(tmp_path: Path) -> None:
    """Also those that begin with an underscore, as parameters do that are no filters."""
    client = client_of(tmp_path, {"ads": [{"id": 1, "_date": "a"}, {"id": 2, "_date": "b", "_by": {"name": "x"}}]})
    assert ids(client, "/ads?_date=a") == ids(client, "/ads?_date=a&_=5") == [1]
    assert ids(client, "/ads?_by.name=x") == ids(client, "/ads?_date_ne=a") == [2]


def test_what_one_item_does_not_know_is_ignored(client: FlaskClient) -> None:
    """As by json-server 0.17: the mock of a login is a single item, whatever is asked."""
    assert client.get("/profile?user=ann&page=1&_limit=2").json == DATA["profile"]
    assert client.get("/posts/1?verbose=true&_=5").json == DATA["posts"][0]
    assert client.get("/posts/1?embed=nothing").status_code == 400


def test_strict_items_have_names_in_every_alphabet(tmp_path: Path) -> None:
    """Also inside of an item: names of equally many characters that are not ASCII are not one name."""
    weak = {"화": "30", "수": "10", "own__": "x", "a-b": 1, "a b": 2, "own_a_b": 3}
    client = client_of(tmp_path, {"monsters": [{"id": 1, "weak": weak}]}, strict=True)
    assert client.post("/monsters", json={"weak": weak}).json == {"id": 2, "weak": weak}
    wrong = client.post("/monsters", json={"weak": {**weak, "수": 10, "own__": 5}}).json["errors"]
    assert [fault["pointer"] for fault in wrong] == ["#/weak/%EC%88%98", "#/weak/own__"]
