"""The login of a JSON file, as json-server-auth has it: users, tokens and guards."""

import json
import math
import re
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import jwt
import pytest
from flask.testing import FlaskClient
from werkzeug.security import check_password_hash

from restkeeper.app import create_app
from restkeeper.config import Config
from restkeeper.features.files import FileOptions, application_of
from tests.clock import SetClock
from tests.json_file import client_of, running
from tests.live import ROOT, send
from tests.waiting import until

USERS: dict[str, Any] = {
    "users": [
        {"id": 1, "email": "ann@example.org", "password": "secret", "name": "Ann"},
        {"id": 2, "email": "Bob@example.org", "password": 1234},
        {"id": 3, "email": "cy@example.org"},
        {"id": 4, "email": "di@example.org", "password": "$2a$10$w4sn4tNdFDvyaDt9PbLO5u"},
    ],
    "messages": [{"id": 1, "text": "a", "userId": 1}, {"id": 2, "text": "b", "userId": "2"}, {"id": 3, "text": "c"}],
    "posts": [{"id": 1, "title": "Hello"}],
}
ANN = {"email": "ann@example.org", "password": "secret"}
EVE = {"email": "eve@example.org", "password": "sesame"}
REQUIRED, SHORT = "Email and password are required", "Password is too short"
TAKEN, FORMAT = "Email already exists", "Email format is invalid"

Serve = Callable[..., FlaskClient]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """A function that serves a file with users, with rules for its paths and options."""

    def serve(data: Any = USERS, *, rules: Any = None, config: Config | None = None, **options: Any) -> FlaskClient:
        (routes := tmp_path / "routes.json").write_text(json.dumps(rules))
        given = {"login": "users", "routes": None if rules is None else routes}
        return client_of(tmp_path, data, config, **{**given, **options})

    return serve


def bearer(client: FlaskClient, user: Any = ANN) -> dict[str, str]:
    """The header with a token of a user."""
    return {"Authorization": f"Bearer {client.post('/login', json=user).json['accessToken']}"}


def statuses(client: FlaskClient, path: str, headers: Any) -> list[int]:
    """Those of a read of a list, of one's own item and another one, a creation, and changes of both items."""
    own, other = f"{path}/1", f"{path}/2"
    sent = [("GET", path), ("GET", own), ("GET", other), ("POST", path), ("PATCH", own), ("PATCH", other)]
    sent += [("PUT", own), ("PUT", other), ("DELETE", other)]
    body = {"text": "x", "userId": 1}
    return [
        client.open(
            where, method=method, json=None if method in ("GET", "DELETE") else body, headers=headers
        ).status_code
        for method, where in sent
    ]


def test_a_user_registers_and_logs_in(serve: Serve) -> None:
    """At each path of json-server-auth; no response has the password, and the token says whose it is."""
    client = serve()
    for number, path in enumerate(("/register", "/signup", "/users", "/600/users"), start=5):
        user = {**EVE, "email": f"eve{number}@example.org"}
        made = client.post(path, json={**user, "age": 3})
        assert (made.status_code, made.json["user"]) == (201, {"id": number, "email": user["email"], "age": 3})
        for place in ("/login", "/signin"):
            found = client.post(place, json=user)
            assert (found.status_code, found.json["user"]) == (200, made.json["user"])
        claims = jwt.decode(made.json["accessToken"], options={"verify_signature": False})
        assert (claims["sub"], claims["email"]) == (str(number), user["email"])
        assert claims["exp"] - claims["iat"] == 3600
        assert client.get("/me", headers=bearer(client, user)).json == made.json["user"]
    assert client.get("/api/v1/users/5").json == client.get("/users/5").json


@pytest.mark.needs("idempotency")
def test_a_repeated_registration_gets_the_first_response(serve: Serve) -> None:
    client = serve()
    first, again = (client.post("/register", json=EVE, headers={"Idempotency-Key": "1"}) for _ in range(2))
    assert (again.status_code, again.data, again.headers["Idempotent-Replayed"]) == (201, first.data, "true")


@pytest.mark.parametrize(
    ("path", "sent", "detail"),
    [
        ("/login", {**ANN, "password": "Secret"}, "Incorrect password"),
        ("/login", {"email": "cy@example.org", "password": "None"}, "Incorrect password"),
        ("/login", {**ANN, "email": "nobody@example.org"}, "Cannot find user"),
        ("/login", {"email": "di@example.org", "password": "secret"}, "the file has a hash of bcrypt, which is"),
        ("/login", {"email": "ann@example.org"}, REQUIRED),
        ("/login", {"email": ["ann@example.org"], "password": {}}, REQUIRED),
        ("/register", {**EVE, "password": " "}, REQUIRED),
        ("/register", {**EVE, "password": 12345}, REQUIRED),
        ("/register", {**EVE, "email": "eve@"}, FORMAT),
        ("/register", {**EVE, "email": "e" * 250 + "@x.y"}, ""),
        ("/register", {**EVE, "email": "e" * 251 + "@x.y"}, FORMAT),
        ("/register", {**EVE, "password": "abc"}, SHORT),
        ("/register", {**EVE, "email": "Ann@Example.org"}, TAKEN),
        ("/api/v1/users", {**EVE, "email": "bob@example.org"}, TAKEN),
        ("/api/v1/users", {"name": "Eve"}, REQUIRED),
    ],
)
def test_what_is_wrong_is_a_400(path: str, sent: Any, detail: str, serve: Serve) -> None:
    """With the words of json-server-auth, where it has some; an empty detail is none."""
    response = serve().post(path, json=sent)
    assert (response.status_code, response.json.get("detail", "")[: len(detail) or None]) == (
        400 if detail else 201,
        detail,
    )


def test_a_user_of_the_file_logs_in(serve: Serve) -> None:
    """By a password that was written by hand, also as a number; capitals of the address make no difference."""
    client = serve()
    assert client.post("/login", json={**ANN, "email": "ANN@example.org"}).json["user"]["id"] == 1
    assert client.post("/login", json={"email": "bob@example.org", "password": "1234"}).json["user"]["id"] == 2
    twins = [{"id": "x", **ANN, "password": "other"}, *USERS["users"]]
    assert serve({"users": twins}).post("/login", json=ANN).json["user"] == {
        "id": 1,
        "email": ANN["email"],
        "name": "Ann",
    }


def test_a_changed_password_is_another_one(serve: Serve) -> None:
    """By PATCH and PUT; a PUT without a password leaves it, and so does a PATCH of something else."""
    client = serve()
    assert client.patch("/users/1", json={"password": "sesame"}).json == {"id": 1, "email": ANN["email"], "name": "Ann"}
    assert client.post("/login", json=ANN).status_code == 400
    changed = {**ANN, "password": "sesame"}
    assert client.put("/users/1", json={"email": ANN["email"]}).json == {"id": 1, "email": ANN["email"]}
    assert client.patch("/users/1", json={"name": "A"}).json["name"] == "A"
    assert client.post("/login", json=changed).status_code == 200
    assert client.put("/users/1", json=ANN).status_code == 200 and client.post("/login", json=ANN).status_code == 200
    refused = {"password": "abc"}, {"password": None}, {"email": "x"}, {"email": "BOB@example.org"}
    found = [client.patch("/users/1", json=each).json["detail"] for each in refused]
    assert found == [SHORT, REQUIRED, FORMAT, TAKEN]
    assert client.patch("/users/3", json={"name": "Cy"}).status_code == 200


QUERIES = (
    *("password=sesame1", "password_like=s", "password[starts]=s", "password.x=1", "sort=password", "_sort=password"),
    *(
        "fields=password",
        "count=password",
        "aggregate[max]=password",
        "or=(password=sesame1)",
        "not=(password=sesame1)",
    ),
    *('_where={"password":{"gt":"s"}}', 'filter={"password":"sesame1"}', "q=sesame1"),
)


@pytest.mark.needs("dialects", "events", "batch")
@pytest.mark.parametrize("strict", [False, True])
def test_no_response_tells_a_password(strict: bool, serve: Serve) -> None:
    """Neither that of an item, of a list in JSON or CSV, of a batch, an event or all; nor does a query."""
    plain = {**USERS, "users": [{"id": n, "email": f"u{n}@x.y", "password": f"sesame{n}"} for n in (1, 2)]}
    client = serve({**plain, "messages": USERS["messages"][:2]}, strict=strict)
    sent = {"method": "PATCH", "path": "/users/1", "body": {"password": "sesame3"}}
    paths = ("/users", "/users/1", "/users?export=csv", "/messages?_expand=user", "/messages?embed=user", "/db", "/")
    texts = [client.get(path).text for path in (*paths, "/openapi.json", "/users?email=u1@x.y&_page=1&_per_page=5")]
    texts.append(client.post("/api/v1/batch", json={"operations": [sent]}).text)
    texts += [client.delete("/users/2").text, client.get("/api/v1/events").text]
    assert all("u1@" in text for text in texts[:5]) and len(client.get("/api/v1/events").json) > 1
    assert not [text for text in texts if "sesame" in text or "scrypt" in text]
    for query in QUERIES:
        assert client.get(f"/users?{query}").status_code == 400, query
    for query in QUERIES[:4]:
        assert client.get(f"/messages?user.{query}").status_code == 400, query
    for query in ("sort=user.password", "fields=user.password", "or=(user.password=sesame1)"):
        assert client.get(f"/messages?{query}").status_code == 400, query
    schemas = client.get("/openapi.json").json["components"]["schemas"]
    assert "password" in schemas["UserInput"]["properties"] and "password" not in schemas["User"]["properties"]


LOGGED_IN = {  # the statuses of a caller who is not logged in, and of a user who is
    600: ([401] * 9, [200, 200, 403, 200, 200, 403, 200, 403, 403]),
    640: ([401] * 9, [200, 200, 200, 200, 200, 403, 200, 403, 403]),
    644: ([200] * 3 + [401] * 6, [200, 200, 200, 200, 200, 403, 200, 403, 403]),
    660: ([401] * 9, [200] * 9),
    664: ([200] * 3 + [401] * 6, [200] * 9),
    666: ([200] * 9, [200] * 9),
    400: ([401] * 3 + [403] * 6, [200, 200, 403] + [403] * 6),
    440: ([401] * 3 + [403] * 6, [200] * 3 + [403] * 6),
    444: ([200] * 3 + [403] * 6, [200] * 3 + [403] * 6),
}


@pytest.mark.parametrize("mode", LOGGED_IN)
@pytest.mark.parametrize("where", ["/messages", "/api/v1/messages", "/MODE/messages", "/MODE/api/v1/messages"])
def test_a_guard(mode: int, where: str, serve: Serve) -> None:
    """By the file of routes, for each path of the collection; or in the path, for one request."""
    rules = {} if "MODE" in where else {"messages": str(mode) if mode == 640 else mode}
    path = where.replace("MODE", str(mode))
    nobody, user = LOGGED_IN[mode]
    assert statuses(serve(rules=rules), path, {}) == nobody
    client = serve(rules=rules)
    assert statuses(client, path, bearer(client)) == user


@pytest.mark.needs("cors")
def test_a_guard_as_a_rule_of_paths(serve: Serve) -> None:
    """As json-server-auth has it, too; a browser may ask what it may send, and users register all the same."""
    client = serve(rules={"/users*": "/600/users$1", "/messages*": "/640/messages$1"})
    assert [client.get(path).status_code for path in ("/users", "/messages/1", "/messages/", "/posts")] == [401] * 3 + [
        200
    ]
    asked = {"Origin": "http://localhost:5173", "Access-Control-Request-Method": "PUT"}
    for path in ("/messages/1", "/640/messages/1", "/600/users/1"):
        assert client.options(path, headers=asked).headers["Access-Control-Allow-Origin"] == asked["Origin"]
        assert client.options(path).status_code == 200
    assert client.post("/users", json=EVE).status_code == 201
    page = client.get("/messages?_page=1&_limit=1", headers=bearer(client, EVE))
    assert '</640/messages?limit=1&offset=1>; rel="next"' in page.headers["Link"]


def test_an_owner_sees_and_changes_its_own(serve: Serve) -> None:
    """In lists, embedded, below another item and at /db; a user is its own owner."""
    client = serve(rules={"users": 600, "messages": 600, "/api/*": "/$1"})
    ann = client.environ_base["HTTP_AUTHORIZATION"] = bearer(client)["Authorization"]
    own = USERS["messages"][:1]
    shown = {"id": 1, "email": ANN["email"], "name": "Ann"}
    assert client.get("/messages").json == client.get("/api/messages/?_page=1").json == own
    assert client.get("/messages?_page=1&_limit=5").headers["X-Total-Count"] == "1"
    assert client.get("/users").json == [shown] and client.get("/messages?_expand=user").json == [
        {**own[0], "user": shown}
    ]
    assert client.get("/users/1/messages").json == own and client.get("/users/2/messages").status_code == 403
    assert client.get("/db").json == {"users": [shown], "messages": own, "posts": USERS["posts"]}
    assert client.patch("/users/2", json={"password": "sesame"}).status_code == 403
    assert client.patch("/messages/1", json={"userId": 2}).json["detail"].startswith("Private resource replacement")
    refused = client.post("/messages", json={"text": "x"})
    assert refused.json["detail"] == "Private resource creation: request body must have a reference to the owner id"
    assert refused.status_code == 403 and client.get("/messages/2").json["detail"].startswith("Private resource access")
    assert client.post("/messages", json={"text": "x", "userId": "1"}).status_code == 200
    assert client.delete("/users/1").status_code == 200
    assert client.get("/messages", headers={"Authorization": ann}).status_code == 401


def test_the_whole_file_is_json_whoever_reads_it(serve: Serve) -> None:
    """Also without a single item that only its owner sees."""
    client = serve({**USERS, "mine": {"userId": 1}, "other": {"userId": 2}}, rules={"mine": 600, "other": 600})
    whole = client.get("/db", headers=bearer(client)).json
    assert (whole["mine"], whole["other"], whole["posts"]) == ({"userId": 1}, {}, USERS["posts"])


@pytest.mark.needs("batch", "events")
def test_a_guard_holds_in_a_batch_and_in_events(serve: Serve) -> None:
    """As for single requests."""
    client = serve(rules={"users": 600, "messages": 600})
    ann, path = bearer(client), "/api/v1/batch"

    def batch(headers: Any, method: str, path: str, **body: Any) -> int:
        sent = {"operations": [{"method": method, "path": path, "body": body or None}]}
        return client.post("/api/v1/batch", json=sent, headers=headers).status_code

    assert [batch(headers, "PATCH", "/users/2", name="x") for headers in ({}, ann)] == [403, 403]
    assert [batch(ann, "PATCH", f"/messages/{n}", text="x") for n in (1, 2)] == [200, 403]
    assert [batch(ann, "POST", "/messages", text="x", userId=n) for n in (1, 2)] == [200, 403]
    twice = {"operations": [{"method": "POST", "path": "/users", "body": EVE}] * 2}
    assert client.post(path, json=twice, headers=ann).json["detail"] == TAKEN
    assert client.post("/api/v1/users", json=[EVE, EVE], headers=ann).json["detail"] == TAKEN
    assert client.post("/register", json=EVE).status_code == 201
    eve = bearer(client, EVE)
    assert {each["type"] for each in client.get("/api/v1/events", headers=ann).json} == {
        "message.updated",
        "message.created",
    }
    assert [each["type"] for each in client.get("/api/v1/events", headers=eve).json] == ["user.created"]
    assert client.get("/api/v1/events").json == []
    for path in ("webhooks", "keys"):  # which would pass by the guards
        assert client.post(f"/api/v1/{path}", json={"url": "https://example.org/"}).status_code == 404


def test_a_token_that_is_not_valid_is_none(serve: Serve, tmp_path: Path) -> None:
    """After an hour, of a deleted user, or of another service: what needs none is served, also another login."""
    clock = SetClock()
    (file := tmp_path / "db.json").write_text(json.dumps(USERS))
    (routes := tmp_path / "routes.json").write_text('{"messages": 640}')

    def create(*arguments: Any, **options: Any) -> Any:
        return create_app(*arguments, clock=clock, **options)

    client = application_of(create, file, FileOptions(login="users", routes=routes), config=Config()).test_client()

    def found(headers: Any) -> list[int]:
        return [client.get(path, headers=headers).status_code for path in ("/messages", "/me", "/posts")]

    ann = bearer(client)
    eve = {"Authorization": f"Bearer {client.post('/register', json=EVE).json['accessToken']}"}
    clock.now += 3599
    assert found(ann) == found(eve) == [200] * 3
    client.delete("/users/5")
    clock.now += 0.5
    assert found(eve) == [401, 401, 200]
    clock.now += 0.5
    none = jwt.encode({"sub": "1", "exp": 2e9}, "", algorithm="none")
    others = [f"Bearer {jwt.encode({'sub': '1', 'exp': 2e9}, 'x' * 32)}", f"Bearer {none}", "Bearer x", "Basic YTpi"]
    key = sha256(f"restkeeper --login {file}".encode()).digest()  # which everybody can make
    wrong = [{"sub": "1", "exp": exp} for exp in ("2e9", [1], math.inf, 2e9)] + [
        {"sub": "\ud800", "exp": clock.now + 9}
    ]
    others += [f"Bearer {jwt.encode(claims, key)}" for claims in wrong]
    for headers in (ann, *({"Authorization": each} for each in others * 6)):
        assert found(headers) == [401, 401, 200], headers
        assert client.post("/login", json=ANN, headers=headers).status_code == 200
    refused = client.get("/me")
    assert refused.headers["WWW-Authenticate"].startswith("Bearer ") and "authorization" in refused.json["detail"]


@pytest.mark.parametrize(
    ("data", "options", "reason"),
    [
        ({"posts": []}, {}, "db.json: --login users: must be an array, of items with email and password"),
        ({"users": {}}, {}, "db.json: --login users: must be an array"),
        ({"users": [{"id": 1, "name": "x"}]}, {"strict": True}, "db.json: --login users: must be an array"),
        (USERS, {"rules": {"nobody": 640}}, "db.json: nobody: there is no such collection to guard"),
        (USERS, {"rules": {"users": 604}}, "routes.json: 'users': a guard needs --login, and is one of 400, 440, 444"),
        (USERS, {"rules": {"users": 600}, "login": ""}, "routes.json: 'users': a guard needs --login"),
    ],
)
def test_a_login_that_cannot_be_is_refused(data: Any, options: Any, reason: str, serve: Serve) -> None:
    """The start ends with one line."""
    with pytest.raises(SystemExit) as error:
        serve(data, **options)
    assert str(error.value).startswith(f"restkeeper: {reason}")


def test_a_login_is_for_this_machine_alone(serve: Serve) -> None:
    """Where others may call, it is refused; it is not loaded if nobody asks for it."""
    for auth in ("required", "open-to-all"):
        with pytest.raises(SystemExit, match="--login protects nothing, and is for this machine alone"):
            serve(config=Config(auth=auth))
    assert serve().post("/login", json=ANN, headers={"X-Forwarded-For": "192.0.2.1"}).status_code == 403
    assert serve(login="").post("/login", json=ANN).status_code == 404


def test_names_that_the_file_has(serve: Serve) -> None:
    """A collection goes before a path of the login; the users can be called otherwise, and so can ids and owners."""
    data = {"people": [{"_id": "a", **ANN}], "notes": [{"_id": "n", "person_ref": "a"}, {"_id": "m"}], "login": []}
    client = serve(data, login="people", rules={"notes": 600}, id_name="_id", suffix="_ref")
    made = client.post("/_/login", json=ANN)
    ann = {"Authorization": f"Bearer {made.json['accessToken']}"}
    assert client.get("/login").json == [] and client.post("/signin", json=ANN).json["user"]["_id"] == "a"
    assert [each["_id"] for each in client.get("/notes", headers=ann).json] == ["n"]
    assert client.post("/people", json=EVE).status_code == 201
    client = serve({"menschen ü": []}, login="menschen ü", rules={"menschen ü": 600})
    assert client.post("/menschen ü", json=EVE).status_code == 201
    assert [each["id"] for each in client.get("/menschen ü", headers=bearer(client, EVE)).json] == [1]
    assert client.get("/644/menschen ü").status_code == 401  # the guard of the file holds
    client = serve({"menschen ü": []}, login="menschen ü")
    assert client.post("/menschen ü", json=EVE).status_code == 201
    assert client.get("/644/menschen ü").json == [{"id": 1, "email": EVE["email"]}]
    assert client.get("/600/menschen ü").status_code == 401


def test_a_real_server(tmp_path: Path) -> None:
    """The file has a hash, and a token is valid after a restart; of registrations at once with an address, one.

    What is edited in the file stays plain, and can have another owner.
    """
    messages = [{"id": 1, "userId": 1}]
    (file := tmp_path / "db.json").write_text(json.dumps({"users": [], "messages": messages}))
    (routes := tmp_path / "routes.json").write_text('{"messages": 600}')
    with running(file, "--login", "users", "-r", str(routes)) as server:
        assert "POST /login and /register: tokens of users, to try a login: it protects nothing" in server.lines
        with ThreadPoolExecutor(8) as pool:
            made = [*pool.map(lambda _: server.send("POST", "/register", EVE), range(8))]
        assert sorted(each.status for each in made) == [201] + [400] * 7
        (response,) = (each for each in made if each.status == 201)
        (user,) = json.loads(file.read_text())["users"]
        assert list(user) == ["id", "email", "password"] and check_password_hash(user["password"], EVE["password"])
        long = {"email": "long@example.org", "password": "x" * 1024 * 1024}
        assert server.send("POST", "/register", long).status == 201
        assert server.send("POST", "/login", long).status == 200
        token = {"Authorization": f"Bearer {response.json()['accessToken']}"}
        assert send(server.port, "GET", "/messages", headers=token).json() == messages
        file.write_text(json.dumps({"users": [user, {"id": 7, **ANN}], "messages": [{"id": 1, "userId": 7}]}))
        until(lambda: server.send("POST", "/login", ANN).status == 200)
        assert json.loads(file.read_text())["users"][1] == {"id": 7, **ANN}
        assert send(server.port, "GET", "/messages", headers=token).json() == []
        server.end(signal.SIGTERM)
    with running(file, "--login", "users") as server:
        assert send(server.port, "GET", "/me", headers=token).json() == {"id": 1, "email": EVE["email"]}


def test_the_example_of_the_page(serve: Serve) -> None:
    """Its file, its rules and its calls."""
    page = (ROOT / "docs" / "prototyping.md").read_text(encoding="utf-8").partition("## A login to try")[2]
    data, rules = (
        json.loads(page.partition(f"```log {name}\n")[2].partition("```")[0]) for name in ("db.json", "routes.json")
    )
    client = serve(data, rules=rules)
    (sent,) = re.findall(r"`POST /login` with `(.*?)`", page)
    ann = bearer(client, json.loads(sent))
    assert client.get("/api/messages", headers=ann).json == data["messages"]
    assert {*re.findall(r"`(\d{3})`", page)} == {str(mode) for mode in LOGGED_IN} - {"666"}


def test_a_server_of_other_machines_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "db.json").write_text(json.dumps(USERS))
    environ = ("env", "AUTH=open-to-all", sys.executable, "-P", "-m", "restkeeper")
    with (
        pytest.raises(RuntimeError, match="restkeeper: --login protects nothing, and is for this machine alone"),
        running(file, "--login", "users", program=environ),
    ):
        pass
