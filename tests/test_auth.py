"""Authentication: which credentials are accepted, which are refused, and how."""

import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.web.application import Application
from tests import stores
from tests.callers import ADMIN, ADMIN_KEY, basic, bearer, make_key
from tests.clock import SetClock
from tests.shop import RESOURCES, create_app

pytestmark = pytest.mark.needs("keys")

WAIT_SECONDS = 5.0  # for which a change waits for others, in each kind of store
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
INVALID = "the credentials are not valid, or not any more"


@pytest.fixture
def app(clock: SetClock) -> Application:
    config = Config(auth="required", admin_key=ADMIN_KEY)
    return create_app(config, RESOURCES, clock=clock)


def test_requests_without_credentials_return_401(client: FlaskClient) -> None:
    response = client.get("/products")
    assert (response.status_code, response.json["type"]) == (401, "/problems/unauthorized")
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="restkeeper"'
    assert response.headers["Cache-Control"] == "no-store"
    response = client.get("/products", headers=ADMIN | bearer(ADMIN_KEY))
    assert (response.status_code, response.json["detail"]) == (400, "send Authorization or X-API-Key, not both")


def test_a_key_is_accepted_in_all_three_headers(client: FlaskClient) -> None:
    key = make_key(client)
    token = key["secret"]
    ways = [bearer(token), {"X-API-Key": token}, basic(key["id"], token.split("_", 2)[2]), basic("x", token)]
    for way in ways:
        assert client.get("/products", headers=way).status_code == 200
    not_base64 = {"Authorization": ways[2]["Authorization"].replace(" ", " !")}
    assert client.get("/products", headers=not_base64).status_code == 401
    for way in (ADMIN, bearer(ADMIN_KEY), basic("admin", ADMIN_KEY)):
        assert client.post("/products", json={"name": "x"}, headers=way).status_code == 200


@pytest.mark.parametrize("auth", ["open", "required"])
def test_bad_credentials_are_never_anonymous(auth: str) -> None:
    """Invalid credentials return 401 with the challenge of their scheme, also where none are required."""
    client = create_app(Config(auth=auth, failure_limit="off")).test_client()
    for way in (
        *(bearer("nonsense"), bearer(""), bearer("rk_0123456789abcdef_" + "x" * 43), bearer("ä")),
        *({"X-API-Key": ""}, {"X-API-Key": "x" * 10_000}, {"Authorization": "Bearer"}, {"Authorization": ""}),
        *(basic("admin", "wrong"), {"Authorization": "Basic !!!"}, {"Authorization": "Digest x"}),
        *({"Authorization": "Basic " + b64encode(b"\xff\xfe").decode()}, {"Authorization": "Basic"}),
    ):
        response = client.get("/products", headers=way)
        assert response.status_code == 401, way
        scheme = "Basic" if "Basic" in way.get("Authorization", "") else "Bearer"
        assert response.headers["WWW-Authenticate"].startswith(f'{scheme} realm="restkeeper"')


def test_an_expired_key_is_refused(client: FlaskClient, clock: SetClock) -> None:
    key = make_key(client, expires_at="2100-01-01T00:00:00Z")
    assert client.get("/products", headers=bearer(key["secret"])).status_code == 200
    clock.now = 4102444800.0  # 2100-01-01
    assert client.get("/products", headers=bearer(key["secret"])).status_code == 401
    response = client.post(f"/api/v1/keys/{key['id']}/rotate", headers=ADMIN)
    assert (response.status_code, response.json["errors"][0]["pointer"]) == (422, "#/expires_at")


def test_a_secret_is_shown_once_and_never_stored(client: FlaskClient) -> None:
    key = make_key(client)
    assert key["secret"].startswith(f"rk_{key['id']}_")
    own = {"id", "name", "scopes", "owners", "expires_at", "last_used_at", "created_at", "updated_at", "version"}
    assert key.keys() == own | {"secret"}
    assert "secret" not in client.get(f"/api/v1/keys/{key['id']}", headers=ADMIN).json
    assert key["secret"] not in client.get("/api/v1/keys", headers=ADMIN).text
    store = client.application.extensions["restkeeper"].store
    for collection in ("keys", "_credentials"):
        stored = b"".join(record.body for record in store.scan(collection))
        assert key["secret"].split("_", 2)[2].encode() not in stored


def test_a_revoked_key_is_refused_at_once(client: FlaskClient) -> None:
    """Unknown and wrong keys get the same response, which does not reveal the keys that exist."""
    key = make_key(client)
    assert client.get("/products", headers=bearer(key["secret"])).status_code == 200
    wrong = client.get("/products", headers=bearer(key["secret"][:-1] + "!"))
    assert client.delete(f"/api/v1/keys/{key['id']}", headers=ADMIN).json["id"] == key["id"]
    unknown, revoked = (
        client.get("/products", headers=bearer(token)) for token in (f"rk_{'0' * 16}_{'x' * 43}", key["secret"])
    )
    assert [each.status_code for each in (wrong, unknown, revoked)] == [401] * 3
    assert [each.json["detail"] for each in (wrong, unknown, revoked)] == [INVALID] * 3
    assert client.get(f"/api/v1/keys/{key['id']}", headers=ADMIN).status_code == 404


def test_the_last_use_is_stored_to_the_minute(client: FlaskClient, clock: SetClock) -> None:
    """`last_used_at` has the first use; it is not written again at 60 seconds, but just after them."""
    key = make_key(client)
    assert key["last_used_at"] is None
    began, noted = clock.now, []
    for seconds in (0, 0, 60, 60.5):
        clock.now = began + seconds
        assert client.get("/products", headers=bearer(key["secret"])).status_code == 200
        noted.append(client.get(f"/api/v1/keys/{key['id']}", headers=ADMIN).json["last_used_at"])
    assert None is not noted[0] == noted[1] == noted[2] < noted[3]


def test_processes_share_the_last_use_and_no_request_waits_for_it(tmp_path: Path) -> None:
    """The time of the last use is stored once a minute, by any process."""
    url = f"sqlite:///{tmp_path}/a.db"
    config = Config(database_url=url, auth="required", admin_key=ADMIN_KEY)
    one, other = (create_app(config).test_client() for _ in range(2))
    key = make_key(one)
    found = []
    for client in (one, other):
        assert client.get("/products", headers=bearer(key["secret"])).status_code == 200
        found.append(one.get(f"/api/v1/keys/{key['id']}", headers=ADMIN).json["last_used_at"])
    assert found[0] == found[1] is not None
    key = make_key(one)
    with stores.held(url):
        start = time.monotonic()
        assert one.get("/products", headers=bearer(key["secret"])).status_code == 200
        assert time.monotonic() - start < WAIT_SECONDS
    assert one.get(f"/api/v1/keys/{key['id']}", headers=ADMIN).json["last_used_at"] is None


def test_a_use_does_not_change_the_version(client: FlaskClient) -> None:
    key = make_key(client)
    path = f"/api/v1/keys/{key['id']}"
    before = client.get(path, headers=ADMIN)
    client.get("/products", headers=bearer(key["secret"]))
    after = client.get(path, headers=ADMIN)
    assert (before.json["version"], before.headers["ETag"]) != (after.json["version"], after.headers["ETag"])
    assert before.json == {**after.json, "last_used_at": None}
    for seen, status in ((before, 412), (after, 200)):
        headers = ADMIN | {"If-Match": seen.headers["ETag"]}
        assert client.delete(path, headers=headers).status_code == status


def test_keys_are_created_like_items(client: FlaskClient) -> None:
    """With an ETag and a Location, and with If-Match on the list; rotating needs no condition."""
    tag = client.get("/api/v1/keys", headers=ADMIN).headers["ETag"]
    sent = {"name": "x", "scopes": ["admin"]}
    made = client.post("/api/v1/keys", json=sent, headers=ADMIN | {"If-Match": tag})
    assert made.status_code == 200
    path = made.headers["Location"]
    assert client.get(path, headers=ADMIN).headers["ETag"] == made.headers["ETag"]
    assert client.post("/api/v1/keys", json=sent, headers=ADMIN | {"If-Match": tag}).status_code == 412
    rotated = client.post(f"{path}/rotate", headers=ADMIN | {"If-Match": made.headers["ETag"]})
    assert rotated.status_code == 200 and rotated.headers["ETag"] != made.headers["ETag"]
    assert client.post(f"{path}/rotate", headers=ADMIN | {"If-Match": tag}).status_code == 412


def test_an_invalid_key_is_refused(client: FlaskClient) -> None:
    """It has at least one existing scope, and an expiry in the future; the other fields are read-only."""
    good = {"name": "x", "scopes": ["admin"]}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"name": "x", "scopes": []}, "#/scopes"),
        ({"name": "x", "scopes": ["orders:read"]}, "#/scopes/0"),
        ({"name": "x", "scopes": ["products:destroy"]}, "#/scopes/0"),
        ({"name": "x"}, "#/scopes"),
        ({"scopes": ["admin"]}, "#/name"),
        (good | {"expires_at": "2001-01-01T00:00:00Z"}, "#/expires_at"),
        (good | {"last_used_at": None}, "#/last_used_at"),
        (good | {"secret": "mine"}, "#/secret"),
    ]
    for sent, pointer in cases:
        response = client.post("/api/v1/keys", json=sent, headers=ADMIN)
        assert response.status_code == 422
        assert [fault["pointer"] for fault in response.json["errors"]] == [pointer]


def test_open_mode_refuses_other_machines() -> None:
    """AUTH=open serves its own machine only, whatever server and address the application has."""
    client = create_app(Config()).test_client()
    assert client.get("/products", environ_base={"REMOTE_ADDR": "10.0.0.7"}).status_code == 403
    assert client.get("/products", environ_base={"REMOTE_ADDR": "::1"}).status_code == 200
    for proxied in ({"X-Forwarded-For": "203.0.113.9"}, {"X-Forwarded-For": "127.0.0.1, x"}, {"Forwarded": "for=x"}):
        assert client.get("/products", headers=proxied).status_code == 403
    assert client.get("/products", headers={"X-Forwarded-For": "::1, 127.0.0.1"}).status_code == 200
    everybody = create_app(Config(auth="open-to-all")).test_client()
    assert everybody.get("/products", environ_base={"REMOTE_ADDR": "10.0.0.7"}).status_code == 200


def test_a_browser_without_a_credential_is_asked_for_one(client: FlaskClient) -> None:
    """By Basic in a field of its own, as Chromium reads it; a program is not."""
    bearer_alone = ['Bearer realm="restkeeper"']
    both = [*bearer_alone, 'Basic realm="restkeeper", charset="UTF-8"']
    for accept, challenges in (
        *((BROWSER["Accept"], both), ("text/html", both), ("application/json;q=0.5, text/html", both)),
        *((None, bearer_alone), ("*/*", bearer_alone), ("application/json", bearer_alone), ("", bearer_alone)),
        *(("text/html;q=0.5, */*", bearer_alone), ("image/avif,*/*;q=0.8", bearer_alone)),
    ):
        refused = client.get("/products", headers={"Accept": accept} if accept is not None else {})
        assert refused.status_code == 401
        assert refused.headers.getlist("WWW-Authenticate") == challenges, accept
    refused = client.get("/products", headers=BROWSER | basic("x", "wrong"))
    assert (refused.status_code, refused.headers.getlist("WWW-Authenticate")) == (401, both[1:])


@pytest.mark.needs("cors")
def test_pages_of_other_sites_cannot_use_what_a_browser_holds() -> None:
    """A browser sends Basic by itself: only for pages of the service, of listed origins, and by a link."""
    evil, page = {"Origin": "https://evil.example"}, {"Origin": "https://app.example"}
    for origins, of_listed in (((), 403), (("https://app.example",), 200), (("*",), 403)):
        client = create_app(Config(auth="required", admin_key=ADMIN_KEY, cors_origins=origins)).test_client()
        for method, fields, status in (
            *(("POST", evil, 403), ("POST", evil | LINK, 403), ("POST", LINK, 403), ("GET", evil, 403)),
            ("POST", {"Origin": "null"}, 403),
            ("POST", {"Origin": "https://localhost"}, 403),  # the name of the service, but not its scheme
            *(("GET", LINK | {"Sec-Fetch-Dest": "iframe"}, 403), ("GET", LINK | {"Sec-Fetch-Mode": "no-cors"}, 403)),
            *(("GET", LINK, 200), ("POST", page, of_listed), ("POST", {"Origin": "http://localhost"}, 200)),
            ("POST", {"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 200),
            ("POST", {"Origin": "https://localhost", "Sec-Fetch-Site": "same-origin"}, 200),  # behind a proxy with TLS
            ("POST", {}, 200),  # a program that is no browser
        ):
            for credential, expected in ((basic("x", ADMIN_KEY), status), (ADMIN, 200), (bearer(ADMIN_KEY), 200)):
                found = client.open("/products", method=method, json={"name": "x"}, headers=credential | fields)
                assert found.status_code == expected, (origins, method, fields, credential)
                assert expected == 200 or found.json["code"] == "cross-origin"
