"""The ids of items: given by clients, and integers."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper import Config, IntegerReference, ItemSchema, Reference, Resource, Text, find_items, read_item
from restkeeper.storage.errors import StoreUnavailable
from tests.callers import ADMIN_KEY, key, pointers
from tests.documents import parameters
from tests.live import Gunicorn, send
from tests.programs import resource
from tests.shop import create_app as create_shop
from tests.shop.open import create_app as create_open
from tests.shop.posts import POSTS
from tests.shop.posts import create_app as create_posts
from tests.shop.tags import create_app

pytestmark = pytest.mark.needs("batch", "events", "idempotency", "keys", "openapi", "ownership")

ANY = {"If-None-Match": "*"}


@pytest.fixture
def client() -> FlaskClient:
    return create_app(Config()).test_client()


@pytest.mark.parametrize("ids", ["integer", "client"])
def test_an_item_is_loaded_once(ids: Any) -> None:
    """Outside of the transaction, also where its id is known only inside, or only then that it is a new one."""
    loaded = list[str]()
    text = Text(0, 10, load_default="", validate=loaded.append)
    client = create_shop(Config(), [resource({"text": text}, ids=ids)]).test_client()
    loaded.clear()  # the default, at the declaration
    if ids == "integer":
        made = client.post("/notes", json=[{"text": "a"}, {"text": "b"}])
        assert ([each["id"] for each in made.json], loaded) == ([1, 2], ["a", "b"])
        assert [client.get(f"/notes/{n}").json["text"] for n in (1, 2)] == ["a", "b"]
    else:
        made = client.put("/notes/x", json={"text": "a"})
        assert (made.json["id"], made.json["text"], loaded) == ("x", "a", ["a"])
        assert client.get("/notes/x").data == made.data


def test_a_put_has_conditions(client: FlaskClient) -> None:
    made = client.put("/tags/red", json={}, headers=ANY)
    assert made.status_code == 200
    taken = client.put("/tags/red", json={"label": "x"}, headers=ANY)
    assert (taken.status_code, taken.headers["ETag"]) == (412, made.headers["ETag"])
    client = create_app(Config(require_if_match=True)).test_client()
    assert client.put("/tags/red", json={}).status_code == 428
    assert [client.put("/tags/red", json={}, headers=ANY).status_code for _ in range(2)] == [200, 412]
    assert client.put("/tags/red", json={}).status_code == 428
    assert client.put("/tags/red", json={}, headers={"If-None-Match": '"x"'}).status_code == 428


def test_a_post_can_have_an_id(client: FlaskClient) -> None:
    assert client.post("/tags", json={"id": "red", "code": "r"}).headers["Location"] == "/tags/red"
    assert len(client.post("/tags", json={}).json["id"]) == 36
    taken = client.post("/tags", json={"id": "red", "code": "r"})
    assert taken.status_code == 409 and pointers(taken) in (["#/code"], ["#/id"])
    several = client.post("/tags", json=[{"id": "a"}, {"id": "b"}, {"id": "a"}, {"id": "red"}])
    assert (several.status_code, pointers(several)) == (409, ["#/2/id"])
    assert client.post("/tags", json=[{"id": "a"}, {"id": "b"}]).status_code == 200


def test_a_path_has_a_possible_id(client: FlaskClient) -> None:
    for path in ("/tags/a%20b", f"/tags/{'x' * 65}", "/tags/a%00"):
        response = client.put(path, json={})
        assert (response.status_code, pointers(response)) == (422, ["#/id"]), path
    made = client.put(f"/tags/{'~' * 64}", json={})
    assert made.status_code == 200 and client.get(f"/tags/{'~' * 64}").status_code == 200


def test_a_function_of_the_service_can_give_an_id(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    assert client.post("/tags/make", json={"id": "red"}).json["id"] == "red"
    assert len(client.post("/tags/make", json={}).json["id"]) == 36
    assert client.post("/tags/make", json={"id": "red"}).status_code == 409
    client.application.testing = False
    assert client.post("/tags/make", json={"id": "a b"}).status_code == 500 and len(client.get("/tags").json) == 2
    assert "sets what tags cannot store: id must be 1 to 64 of" in caplog.text and "(it is 'a b')" in caplog.text


def test_a_batch_creates_by_put(client: FlaskClient) -> None:
    put = {"method": "PUT", "path": "/tags/red", "body": {"label": "Red"}, "name": "red"}
    again = {"method": "PUT", "path": "/tags/$red", "body": {"label": "red"}}
    response = client.post("/api/v1/batch", json={"operations": [put, again]})
    assert [each["body"]["version"] for each in response.json["results"]] == [1, 2]


def test_nobody_creates_what_another_has() -> None:
    """A condition shows no more of an item that the caller may not see; without one: see test_crossings.py."""
    client = create_app(Config(auth="required", admin_key=ADMIN_KEY)).test_client()
    one, two = (key(client, "notes:read", "notes:write") for _ in range(2))
    assert client.put("/notes/a", json={"label": "mine"}, headers=one).status_code == 200
    put = client.put("/notes/a", json={}, headers={**two, **ANY})
    assert (put.status_code, pointers(put)) == (409, ["#/id"])
    for path in ("/notes/a", "/notes/b"):
        assert client.put(path, json={}, headers={**two, "If-Match": "*"}).status_code == 412


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


def test_a_taken_value_of_an_item_that_a_batch_deletes_and_creates(client: FlaskClient) -> None:
    """No other request has created the item, which is there until the end of the batch."""
    for sent in ({"id": "a", "label": "a"}, {"id": "b", "label": "b", "code": "bb"}):
        assert client.post("/tags", json=sent).status_code == 200
    put = {"method": "PUT", "path": "/tags/a", "body": {"label": "c", "code": "bb"}}
    refused = client.post("/api/v1/batch", json={"operations": [{"method": "DELETE", "path": "/tags/a"}, put]})
    assert (refused.status_code, refused.json["operation"]) == (409, 1)
    assert pointers(refused) == ["#/operations/1/body/code"]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_taken_value_of_an_item_that_is_there(client: FlaskClient, method: str) -> None:
    """It is refused at once: nobody has created the item meanwhile."""
    for id in ("a", "b"):
        assert client.put(f"/tags/{id}", json={"label": id, "code": f"{id}{id}"}).status_code == 200
    change = {"label": "c", "code": "bb"}
    batch = {"operations": [{"method": method, "path": "/tags/a", "body": change}]}
    for refused in (client.open("/tags/a", method=method, json=change), client.post("/api/v1/batch", json=batch)):
        assert refused.status_code == 409, refused.text
        assert pointers(refused)[0].endswith("/code")


def test_the_document_says_who_gives_ids_and_of_what_kind(client: FlaskClient, posts: FlaskClient) -> None:
    document = client.get("/openapi.json").json
    schemas, paths = document["components"]["schemas"], document["paths"]
    assert schemas["TagInput"]["properties"]["id"]["pattern"] == r"^(?!\.{1,2}$)[A-Za-z0-9._~-]{1,64}$"
    assert "id" not in schemas["TagInput"]["required"] and "id" not in schemas["TagPatch"]["properties"]
    assert schemas["Tag"]["properties"]["id"]["description"].startswith("Free to choose")
    put = paths["/tags/{id}"]["put"]
    sent = put["requestBody"]["content"]["application/json"]["schema"]
    assert sent == {"$ref": "#/components/schemas/TagReplacement"}
    assert list(schemas["TagReplacement"]["properties"]) == ["label", "code"]
    assert "404" not in put["responses"] and "create" in put["description"]
    assert "404" in paths["/tags/{id}"]["patch"]["responses"]
    document = posts.get("/openapi.json").json
    parts = document["components"]
    integer = {"type": "integer", "minimum": 1, "maximum": 2**53 - 1, "format": "int64"}
    assert parts["parameters"]["PostId"]["schema"] == integer
    for schema, field in (("Post", "id"), ("Comment", "post"), ("CommentInput", "post")):
        assert integer.items() <= parts["schemas"][schema]["properties"][field].items()
    assert parameters(document, document["paths"]["/posts"]["get"])["id[gt]"]["schema"]["type"] == "integer"
    assert "id" not in parts["schemas"]["PostInput"]["properties"]


@pytest.mark.needs("references")
def test_ids_and_references_are_declared_soundly() -> None:
    with pytest.raises(ValueError, match="tags: ids='uuid': must be 'server' or 'client' or 'integer' or "):
        Resource("tags", "tag", ItemSchema, ids="uuid")
    for made, ids, write in ((Reference, "integer", "IntegerReference"), (IntegerReference, "server", "Reference")):
        schema = ItemSchema.from_dict({"to": made("things", required=True)})
        with pytest.raises(ValueError, match=rf"links.to: write {write}\('things'\)"):
            create_shop(
                Config(),
                [Resource("things", "thing", ItemSchema, ids=ids), Resource("links", "link", schema)],  # type: ignore[arg-type]
            )


@pytest.fixture
def posts() -> FlaskClient:
    return create_posts(Config()).test_client()


def ids(response: Any) -> list[int]:
    return [each["id"] for each in response.json]


def test_integers_count_items(posts: FlaskClient) -> None:
    """Each is greater than all before; that of a deleted item is never given again. Functions before a write see it."""
    made = posts.post("/posts", json={})
    assert (made.status_code, made.headers["Location"], made.json["title"]) == (200, "/posts/1", "post 1")
    assert (made.json, made.data) == (posts.get("/posts/1").json, posts.get("/posts/1").data)
    several = posts.post("/posts", json=[{}, {"title": "x"}, {}])
    assert ids(several) == [2, 3, 4] and several.json[2]["title"] == "post 4"
    assert posts.delete("/posts/4").json["id"] == 4
    assert posts.post("/posts", json={}).json["id"] == 5
    assert ids(posts.get("/posts")) == [1, 2, 3, 5]
    feed = posts.get("/api/v1/events?limit=100").json
    assert [each["data"]["id"] for each in feed] == [1, 2, 3, 4, 4, 5]


def test_an_integer_is_an_address(posts: FlaskClient) -> None:
    """In one form only."""
    posts.post("/posts", json=[{}, {}])
    changed = posts.put("/posts/2", json={"id": 2, "title": "x"})
    assert (changed.status_code, changed.json["id"]) == (200, 2)
    for path in ("/posts/02", "/posts/3", "/posts/0", "/posts/2.0", f"/posts/{'9' * 17}"):
        assert posts.get(path).status_code == 404


def test_lists_compare_integers_as_numbers(posts: FlaskClient) -> None:
    posts.post("/posts", json=[{}] * 12)
    for query, expected in (
        ("id=2", [2]),
        ("id=2&id=10&id=99", [2, 10]),
        ("id[in]=10,2", [2, 10]),
        ("id[gt]=9", [10, 11, 12]),
        ("id[lte]=2", [1, 2]),
        ("id[ne]=1&id[lt]=4", [2, 3]),
        ("or=(id=1,id[gte]=11)", [1, 11, 12]),
        ("sort=-id&limit=4", [12, 11, 10, 9]),
        ("sort=-title&limit=2", [9, 8]),
        ("_sort=id&_order=desc&_start=1&_end=3", [11, 10]),
        ('filter={"id":[1,12]}', [1, 12]),
        ("id=0", []),
    ):
        response = posts.get(f"/posts?{query}")
        assert response.status_code == 200 and ids(response) == expected


def test_a_walk_follows_integers(posts: FlaskClient) -> None:
    """Also backward; and their values are counted."""
    posts.post("/posts", json=[{}] * 12)
    found, path = list[int](), "/posts?sort=-id&limit=5"
    while path:
        page = posts.get(path)
        found += ids(page)
        path = next((each.split(">")[0].strip(" <") for each in page.headers["Link"].split(",") if "next" in each), "")
    assert found == [*range(12, 0, -1)]
    assert posts.get("/posts?count=id&id[lt]=2").json == [{"value": 1, "count": 1}]
    for wrong in ("x", "-1", "1.5", "9223372036854775808"):
        assert posts.get(f"/posts?id={wrong}").status_code == 400


@pytest.mark.needs("references")
def test_references_are_integers(posts: FlaskClient) -> None:
    """They are checked, filtered and followed as others are, also inside lists and objects."""
    posts.post("/posts", json=[{}] * 12)
    made = posts.post("/comments", json={"post": 12, "others": [1, 2]})
    assert (made.status_code, made.json["post"], made.json["others"]) == (200, 12, [1, 2])
    refused = posts.post("/comments", json={"post": 1, "others": [1, 99]})
    assert (refused.status_code, pointers(refused)) == (422, ["#/others/1"])
    posts.post("/lists", json={"lines": [{"post": 3}, {"post": 12}], "best": 4})
    assert ids(posts.get("/comments?post[gt]=9")) == [1] and posts.get("/comments?post=1").json == []
    assert len(posts.get("/lists?lines.post=12").json) == 1 and ids(posts.get("/comments?others=2&others=7")) == [1]
    assert [posts.delete(f"/posts/{id}").status_code for id in (1, 3, 4, 5)] == [409, 409, 200, 200]
    assert posts.get("/lists").json[0]["best"] is None
    posts.patch(f"/lists/{posts.get('/lists').json[0]['id']}", json={"lines": []})
    assert posts.delete("/posts/12").status_code == 200 and posts.get("/comments").json == []


def test_functions_of_the_service_know_integers(posts: FlaskClient) -> None:
    posts.post("/posts", json={})
    assert posts.post("/posts/1/copy").status_code == 200
    assert [each["title"] for each in posts.get("/posts").json] == ["post 1", "COPY OF 1"]
    assert posts.get("/comments").json[0]["post"] == 2
    assert posts.post("/posts", json={}).json["id"] == 4
    with posts.application.app_context():
        assert read_item("posts", 2)["id"] == 2
        assert [each["id"] for each in find_items("posts", {"id[gt]": 1})] == [2, 4]


def test_a_batch_names_integers(posts: FlaskClient) -> None:
    post = {"method": "POST", "path": "/posts", "body": {}, "name": "post"}
    comment = {"method": "POST", "path": "/comments", "body": {"post": "$post"}}
    change = {"method": "PATCH", "path": "/posts/$post", "body": {"title": "x"}}
    response = posts.post("/api/v1/batch", json={"operations": [{**post, "name": "first"}, post, comment, change]})
    assert response.status_code == 200, response.json
    assert [each["body"]["id"] for each in response.json["results"]] == [1, 2, 1, 2]
    assert response.json["results"][2]["body"]["post"] == 2


def test_many_create_integers_at_once(tmp_path: Path) -> None:
    """One by one, in arrays and in batches, by several processes: each id is given once, and each key has one."""
    with Gunicorn(tmp_path, app="tests.shop.posts:create_app()", workers=2, RATE_LIMIT="off") as server:

        def create(number: int) -> list[int]:
            match number % 4:
                case 0:
                    return [each["id"] for each in server.post("/posts", [{}, {}, {}]).json()]
                case 1:
                    operations = [{"method": "POST", "path": "/posts", "body": {}}] * 2
                    results = server.post("/api/v1/batch", {"operations": operations}).json()["results"]
                    return [each["body"]["id"] for each in results]
                case 2:
                    twins = [server.post("/posts", {}, {"Idempotency-Key": str(number)}) for _ in range(2)]
                    assert twins[0].body == twins[1].body
                    return [twins[0].json()["id"]]
            return [server.post("/posts", {}).json()["id"]]

        with ThreadPoolExecutor(8) as pool:
            given = [id for made in pool.map(create, range(80)) for id in made]
        assert len(given) == len(set(given)) == 140
        listed = [each["id"] for offset in (0, 100) for each in server.get(f"/posts?limit=100&offset={offset}").json()]
        assert listed == sorted(given)


def test_an_import_keeps_integers(tmp_path: Path) -> None:
    """Later items continue after them; the export is the same again."""
    app = create_posts(Config(database_url=f"sqlite:///{tmp_path}/a.db"))
    source, target = tmp_path / "posts.json", tmp_path / "out.json"
    source.write_text('[{"id": 7, "title": "a"}, {"id": 120, "title": "b"}, {"id": 3, "title": "c"}]')
    command = app.test_cli_runner()
    for there in ("", ", 3 already there"):
        result = command.invoke(args=["import", "posts", str(source)])
        assert f"imported {0 if there else 3} posts{there}" in result.output, result.output
    client = app.test_client()
    assert client.post("/posts", json={}).json["id"] == 121
    client.delete("/posts/121")
    (table := tmp_path / "posts.csv").write_text("id,title\n121,d\n")
    csv = command.invoke(args=["import", "posts", str(table)])
    assert csv.exit_code == 0 and client.post("/posts", json={}).json["id"] == 122, csv.output
    command.invoke(args=["export", "posts", str(target)])
    assert [each["id"] for each in json.loads(target.read_text())] == [3, 7, 120, 121, 122]
    for wrong in ('{"title": "x"}', '{"id": "7"}', '{"id": 0}', '{"id": 9007199254740992}'):
        source.write_text(wrong)
        result = command.invoke(args=["import", "posts", str(source)])
        assert result.exit_code == 1 and "line 1: #/id: must be" in result.output
    source.write_text('{"id": 9007199254740991}')
    command.invoke(args=["import", "posts", str(source)])
    last = client.post("/posts", json={})
    assert (last.status_code, last.json["detail"]) == (409, "posts: all ids have been given")
    assert client.get("/posts/9007199254740991").json["title"] == ""


def test_stored_ids_stay_as_they_are(tmp_path: Path) -> None:
    """Integers can become those that callers give."""
    config = Config(database_url=f"sqlite:///{tmp_path}/a.db")
    create_posts(config).test_client().post("/posts", json=[{}, {}])
    texts = replace(POSTS, ids="server")
    with pytest.raises(StoreUnavailable, match="posts: ids='server': stored items have other ids, which never change"):
        create_shop(config, [texts])
    client = create_shop(config, [replace(POSTS, ids="client-integer")]).test_client()
    assert (client.get("/posts/2").json["id"], client.post("/posts", json={}).json["id"]) == (2, 3)


LARGEST = 2**63 - 1


@pytest.fixture
def entries() -> FlaskClient:
    """A client of the service with entries."""
    return create_open(Config()).test_client()


def test_callers_give_integers(entries: FlaskClient) -> None:
    """A POST may have an id, a PUT creates; without one the greatest is continued, also in arrays and batches."""
    create = partial(entries.post, "/entries")
    assert [create(json=each).json["id"] for each in ({}, {"id": 7}, {}, {"id": 3}, {"id": 0}, {})] == [
        1,
        7,
        8,
        3,
        0,
        9,
    ]
    assert ids(create(json=[{}, {"id": 20}, {"text": "x"}, {"id": 15}])) == [21, 20, 22, 15]
    assert entries.put("/entries/40", json={"text": "y"}).text == '{"id":40,"text":"y"}'
    assert entries.put("/entries/40", json={"text": "z"}).json == {"id": 40, "text": "z"}
    assert entries.delete("/entries/40").status_code == 200 and create(json={}).json["id"] == 41
    operations = [{"method": "POST", "path": "/entries", "body": each} for each in ({"id": 50}, {}, {})]
    operations.append({"method": "PUT", "path": "/entries/60", "body": {}})
    results = entries.post("/api/v1/batch", json={"operations": operations}).json["results"]
    assert [each["body"]["id"] for each in results] == [50, 51, 52, 60]
    assert entries.post("/entries/7/copy").status_code == 200
    assert [each["id"] for each in entries.get("/entries?id[gte]=60").json] == [60, 107, 108]
    assert entries.get("/entries/107").json == {"id": 107, "text": "copy", "read": 107}


def test_the_integers_that_callers_give(entries: FlaskClient) -> None:
    """From 0 to 2**63 - 1, in one form, each once; the greatest one ends the series."""
    big = 1234567890123456789
    assert entries.get("/entries/01").status_code == 404
    assert pointers(entries.put("/entries/9223372036854775808", json={})) == ["#/id"]
    for id in (big, 10**16, 10**16 - 1, 2**53 + 1, 9):
        made = entries.post("/entries", json={"id": id})
        assert (made.json, made.headers["Location"]) == ({"id": id}, f"/entries/{id}")
        assert entries.get(made.headers["Location"]).json == {"id": id}
    assert ids(entries.get("/entries")) == [9, 2**53 + 1, 10**16 - 1, 10**16, big]
    assert ids(entries.get(f"/entries?id[gt]={10**16 - 1}&id[ne]={big}")) == [10**16]
    assert entries.get(f"/entries?count=id&id={big}").json == [{"value": big, "count": 1}]
    taken = entries.post("/entries", json=[{"id": 9}, {}, {"id": 8, "code": "a"}, {"id": 7, "code": "a"}])
    assert (taken.status_code, pointers(taken)) == (409, ["#/0/id"])
    assert entries.put(f"/entries/{LARGEST}", json={}).json == {"id": LARGEST}
    ended = entries.post("/entries", json={})
    assert (ended.status_code, ended.json["detail"]) == (409, "entries: all ids have been given")
    assert entries.post("/entries", json=[{"id": 1}, {}]).status_code == 409
    assert entries.post("/entries", json={"id": 2}).status_code == entries.put("/entries/4", json={}).status_code == 200


@pytest.mark.needs("references")
def test_references_to_integers_that_callers_give(entries: FlaskClient) -> None:
    for id in (0, LARGEST):
        entries.post("/entries", json={"id": id})
        made = entries.post("/remarks", json={"entry": id})
        assert made.json["entry"] == id and ids(entries.get(f"/remarks?entry={id}")) == [made.json["id"]]
        assert entries.get(f"/entries/{id}?embed=remarks").json["remarks"] == [made.json]
        assert entries.get(f"/entries/{id}/remarks").json == [made.json]
        assert entries.delete(f"/entries/{id}").status_code == 200
    assert entries.get("/remarks").json == []
    assert entries.post("/remarks", json={}).json == {"id": 3}


def test_many_give_integers_at_once(tmp_path: Path) -> None:
    """With and without ids, one by one, in arrays and by PUT, by several processes: each id is given once."""
    with Gunicorn(tmp_path, app="tests.shop.open:create_app()", workers=2, RATE_LIMIT="off") as server:

        def create(number: int) -> list[int]:
            match number % 4:
                case 0:
                    array = [{}, {"id": 1000 + 100 * number}, {}]  # an id that the others do not count up to
                    return [each["id"] for each in server.post("/entries", array).json()]
                case 1:
                    given = server.post("/entries", {"id": number // 8})  # others may have it
                    return [given.json()["id"]] if given.status == 200 else []
                case 2:
                    given = send(server.port, "PUT", f"/entries/{2000 + number}", {}, ANY)
                    return [given.json()["id"]] if given.status == 200 else []
            return [server.post("/entries", {}).json()["id"]]

        with ThreadPoolExecutor(8) as pool:
            given = [id for made in pool.map(create, range(60)) for id in made]
        assert len(given) == len(set(given))
        assert sorted(given) == [each["id"] for each in server.get("/entries?limit=100").json()]


def test_integers_of_callers_are_imported(tmp_path: Path) -> None:
    """And the export is the same; stored integers stay when callers can give them."""
    config = Config(database_url=f"sqlite:///{tmp_path}/a.db")
    app = create_open(config)
    run, client, file = app.test_cli_runner().invoke, app.test_client(), tmp_path / "entries.json"
    items = [{"id": 0, "b": 1}, {"a": 1, "id": 12}, {"id": 10**18}]
    file.write_text(json.dumps(items))
    assert run(args=["import", "entries", str(file)]).exit_code == 0
    assert client.get("/entries").text == json.dumps(items, separators=(",", ":"))
    assert client.post("/entries", json={}).json["id"] == 10**18 + 1
    file.write_text("[{}]")
    result = run(args=["import", "entries", str(file)])
    assert result.exit_code == 1 and "element 1: #/id: must be from 0 to 9223372036854775807" in result.output


def test_the_document_says_who_gives_integers(entries: FlaskClient) -> None:
    document = entries.get("/openapi.json").json
    schemas = document["components"]["schemas"]
    bounds = {"type": "integer", "minimum": 0, "maximum": LARGEST, "format": "int64"}
    for part in (
        *(schemas[name]["properties"]["id"] for name in ("Entry", "EntryInput")),
        schemas["RemarkInput"]["properties"]["entry"],
    ):
        assert {**bounds, "type": part["type"]}.items() <= part.items()
    assert document["components"]["parameters"]["EntryId"]["schema"] == bounds
    assert schemas["EntryInput"]["required"] == [] and "id" not in schemas["EntryReplacement"]["properties"]
