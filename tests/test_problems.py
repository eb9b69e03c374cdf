"""Every error has one form, whatever raised it."""

import errno
import logging
import os
import time
from collections import defaultdict
from typing import NoReturn

import pytest
from flask.testing import FlaskClient
from werkzeug.exceptions import HTTPException

from restkeeper import FEATURES, clock
from restkeeper.config import Config
from restkeeper.errors import Problem
from restkeeper.feature import loaded
from restkeeper.features.keys import new_token
from restkeeper.hook import Hook
from restkeeper.storage import Store, locate
from restkeeper.storage.errors import (
    DuplicateValue,
    RecordNotFound,
    StoreBusy,
    StoreError,
    StoreFailing,
    StoreFull,
    StoreGone,
    StoreUnavailable,
    StoreUnreachable,
)
from restkeeper.storage.records import StoredState
from restkeeper.web import observe
from restkeeper.web.application import Application
from restkeeper.web.auth import needs
from tests import stores
from tests.shop import closed_features, create_app

for feature in FEATURES:
    loaded(feature.install)  # with its types
TYPES = Problem.__subclasses__()
KINDS = {kind.name: kind for kind in TYPES}


def feature_of(kind: type[Problem]) -> list[str]:
    """The feature that raises a problem, if only one does."""
    _, part, *names = kind.__module__.split(".")
    return names[:1] if part == "features" else []


ERRORS: list[tuple[str, str, dict[str, str], int, str]] = [
    ("GET", "/nothing", {}, 404, "not-found"),
    ("GET", "/products/none", {}, 404, "not-found"),
    ("GET", "/products/a/b", {}, 404, "not-found"),
    ("GET", "/%ff%fe", {}, 404, "not-found"),
    ("GET", "/api//v1/products", {}, 404, "not-found"),
    ("DELETE", "/products", {}, 405, "method-not-allowed"),
    ("TRACE", "/products/x", {}, 405, "method-not-allowed"),
    ("BREW", "/products", {}, 405, "method-not-allowed"),
    ("GET", "/products", {"Accept": "text/html"}, 406, "not-acceptable"),
    ("GET", "/products", {"Accept": "application/json;q=0"}, 406, "not-acceptable"),
    ("GET", "/products?colour=red", {}, 400, "invalid-query"),
    ("GET", "/products?name=" + "x" * 9000, {}, 414, "uri-too-long"),
    ("GET", "/products", {"Host": "not a host"}, 400, "bad-request"),
    ("GET", "/metrics", {}, 403, "metrics-closed"),
    ("POST", "/products", {}, 415, "unsupported-media-type"),
]


@pytest.mark.needs("metrics")
def test_every_error_has_one_form(client: FlaskClient) -> None:
    """An error is problem details (RFC 9457): the same in each set-up, with a code and a message beside them."""
    for method, path, headers, status, name in ERRORS:
        response = client.open(path, method=method, headers={"X-Request-Id": "mine", **headers})
        assert response.status_code == status, (method, path)
        assert response.content_type == "application/problem+json"
        assert response.headers["Cache-Control"] == "no-store"
        problem = response.json
        assert (problem["type"], problem["code"]) == (f"/problems/{name}", name)
        assert (problem["status"], problem["title"]) == (status, KINDS[name].title)
        assert problem["detail"] == problem["message"]
        assert problem["request_id"] == response.headers["X-Request-Id"] == "mine"
        assert problem["instance"].startswith("/")


@pytest.mark.needs("openapi", "batch")
def test_the_document_has_every_member_of_a_problem(client: FlaskClient) -> None:
    known = client.get("/openapi.json").json["components"]["schemas"]["Problem"]
    post = {"method": "POST", "path": "/products", "body": {"name": "a", "status": "none"}}
    lamp = client.post("/products", json={"name": "Lamp", "sku": "L", "status": "archived"}).json["id"]
    problems = [
        client.get("/products?colour=red").json,
        client.post("/products", json={"sku": "L"}).json,
        client.post("/api/v1/batch", json={"operations": [post]}).json,
        client.patch(f"/products/{lamp}", json={"status": "draft"}).json,
    ]
    shown = [set(problem) for problem in problems]
    assert {"operation", "errors", "from", "to", "allowed"} <= set().union(*shown) <= known["properties"].keys()
    assert all(set(known["required"]) <= names for names in shown)
    elsewhere = {"limit", "resume", "sunset", "successor", "violated-policies"}
    assert elsewhere <= known["properties"].keys()


@pytest.mark.needs("pages")
def test_the_index_has_the_preferred_media_type(client: FlaskClient) -> None:
    """The most specific range of Accept counts; parameters of a range are ignored (RFC 9110, section 12.5.1)."""
    for accept, media_type in {
        "application/json;charset=utf-8": "application/json",
        "application/*, text/html;q=0.5": "application/json",
        "text/html;charset=utf-8": "text/html",
        "text/html, application/json;q=0.9, */*;q=0.8": "text/html",
        "*/*, application/json;q=0": "text/html",
        "text/csv, application/json;q=0.1": "application/json",
        "*/*": "application/json",
    }.items():
        response = client.get("/", headers={"Accept": accept})
        assert response.mimetype == media_type and "Accept" in response.headers["Vary"].split(", ")


@pytest.mark.needs("pages")
def test_every_type_has_a_page(client: FlaskClient) -> None:
    """The URI of a problem type is a page that explains it, in HTML and in JSON; not those of closed features."""
    usual = {feature.name for feature in FEATURES if feature.usual} - closed_features()
    for name, kind in KINDS.items():
        if not usual.issuperset(feature_of(kind)):
            continue
        page = client.get(f"/problems/{name}", headers={"Accept": "text/html"})
        assert (page.status_code, page.mimetype) == (200, "text/html"), name
        assert kind.title in page.text
        assert client.get(f"/problems/{name}").json == {"title": kind.title, "status": kind.status, "about": kind.about}
    assert len(KINDS) == len({kind.title for kind in TYPES}) == len({kind.about for kind in TYPES}) == len(TYPES)


class _Broken:
    """A store that opens and closes, and whose every other method raises an error."""

    secret = "00" * 16

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.beginning: Hook[object] = Hook()
        self.committing: Hook[object] = Hook()

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def stored(self) -> dict[str, StoredState]:
        return defaultdict(lambda: StoredState(99, 0, ""))  # the start converts nothing

    def __getattr__(self, name: str) -> object:
        if isinstance(getattr(Store, name), property):
            raise self._error
        return self._fail

    def _fail(self, *_: object, **__: object) -> None:
        raise self._error


def _client_of_broken_store(error: Exception, monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    """A client of a new service, which has logged nothing yet."""
    location = locate(stores.url(Config().database_url))
    monkeypatch.setattr(clock, "_logged", {})
    monkeypatch.setattr(type(location), "store", lambda *_, **__: _Broken(error))
    return create_app(Config()).test_client()


def test_a_500_reveals_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    client = _client_of_broken_store(ZeroDivisionError("the secret cause"), monkeypatch)
    with caplog.at_level(logging.ERROR, "restkeeper"):
        response = client.get("/products/x", headers={"X-Request-Id": "find-me"})
    assert (response.status_code, response.json["request_id"]) == (500, "find-me")
    assert response.json["message"] == "Internal error" and "detail" not in response.json
    assert not [word for word in ("secret", "ZeroDivision", "Traceback", ".py") if word in response.text]
    (record,) = caplog.records
    assert record.exc_info and "the secret cause" in str(record.exc_info[1])
    assert record.__dict__["request_id"] == "find-me"


TAKEN = [{"pointer": "#/sku", "detail": "is taken by another item"}]


def test_exceptions_of_a_store_are_problems(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Each has its status, type, headers and members; the log has those that are the server's fault, with the cause.

    One that the store has logged, with a reason, is not logged again.
    """
    for error, status, name, retry, members in (
        (RecordNotFound("gone"), 404, "not-found", None, {"detail": "gone"}),
        (DuplicateValue("sku"), 409, "duplicate", None, {"detail": "another item has this sku", "errors": TAKEN}),
        (StoreUnavailable("busy"), 503, "unavailable", "1", {"detail": "busy"}),
        (StoreFull("full"), 507, "insufficient-storage", "1", {"detail": "full"}),
        (StoreUnreachable("away", reason="it stops"), 503, "unavailable", "1", {"detail": "away"}),
    ):
        caplog.clear()
        client = _client_of_broken_store(error, monkeypatch)
        for response in (client.post("/products", json={"name": "x"}), client.get("/products/x")):
            assert (response.status_code, response.headers.get("Retry-After")) == (status, retry)
            assert response.json["type"].endswith(f"/problems/{name}")
        standard = ("type", "code", "title", "status", "message", "instance", "request_id")
        assert {key: value for key, value in response.json.items() if key not in standard} == members
        is_logged = status >= 500 and not getattr(error, "reason", "")
        assert caplog.messages == [f"requests get {status}: {members['detail']}"] * is_logged
        assert not [record for record in caplog.records if record.exc_info]
        caplog.clear()
        error.__cause__ = OSError("the secret cause")
        monkeypatch.setattr(clock, "_logged", {})
        assert client.get("/products/x").json["detail"] == members["detail"]
        logged = [record.exc_text or record.getMessage() for record in caplog.records]
        assert [("the secret cause" in text) for text in logged] == ([True] if status >= 500 else [])


@pytest.mark.needs("health")
@pytest.mark.parametrize(
    ("kind", "status", "cause"),
    [
        *((kind, 503, OSError("/disk/a.db")) for kind in (StoreGone, StoreBusy, StoreFailing)),
        (StoreFull, 507, OSError("/disk/a.db")),
        (StoreUnavailable, 503, ValueError("/disk/a.db")),
    ],
)
def test_a_store_that_fails_is_one_line_in_the_log(
    kind: type[StoreError],
    status: int,
    cause: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Again after a minute: each request meets it. A mistake has its traceback. The service is not ready then."""
    error = kind("it is missing")
    error.__cause__ = cause
    client = _client_of_broken_store(error, monkeypatch)
    assert [client.get(path).status_code for path in ("/products/x", "/products", "/products/y")] == [status] * 3
    (record,) = caplog.records
    assert record.getMessage() == f"requests get {status}: it is missing: /disk/a.db"
    assert bool(record.exc_info) is isinstance(cause, ValueError)
    assert client.get("/readyz").status_code == 503
    before = time.monotonic() - clock.LOG_SECONDS
    monkeypatch.setattr(clock, "_logged", dict.fromkeys(clock._logged, before))
    assert client.get("/products").status_code == status
    assert len(caplog.records) == 2


def test_causes_of_the_same_class_have_a_line_each(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Numbers in them make no difference. What the detail says already is not repeated; the memory is bounded."""

    def logged(detail: str, cause: str = "") -> list[str]:
        caplog.clear()
        error.detail, error.__cause__ = detail, OSError(cause) if cause else None
        assert client.get("/products/x").status_code == 503
        return caplog.messages

    client = _client_of_broken_store(error := StoreUnavailable(""), monkeypatch)
    monkeypatch.setattr(clock, "_MOST_LOGGED", 4)
    assert logged("250 requests already wait") == ["requests get 503: 250 requests already wait"]
    assert logged("251 requests already wait") == []
    assert logged("the store is damaged") == ["requests get 503: the store is damaged"]
    assert logged("it fails: is locked", "is locked") == ["requests get 503: it fails: is locked"]
    for name in "abcdef":
        assert logged(name) and len(clock._logged) <= 4


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_without_file_descriptors_a_request_is_not_served_now(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever it needs one: it can be repeated. The log has one line; another error of the system stays a 500."""
    client = _client_of_broken_store(OSError(number, os.strerror(number)), monkeypatch)
    for response in (client.get("/products/x"), client.post("/products", json={"name": "x"})):
        assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
        assert response.json["detail"] == "the server has no file descriptor left; try again"
    (record,) = caplog.records
    assert os.strerror(number) in record.getMessage() and not record.exc_info
    client = _client_of_broken_store(OSError(errno.EIO, "x"), monkeypatch)
    assert client.get("/products/x").status_code == 500


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_key_in_a_path_is_masked_in_the_log(
    form: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the line of the request and in all others, so that who reads the log cannot use it; its id stays."""
    token, logger = new_token("0123456789abcdef"), logging.getLogger("restkeeper")
    for name in ("handlers", "propagate", "level"):
        monkeypatch.setattr(logger, name, list(logger.handlers) if name == "handlers" else getattr(logger, name))
    observe.configure_logging(form, "info")
    logger.warning("nothing is at %s", token)
    write = observe.access_log(form, "info")
    assert write
    write({"time": "2026", "level": "info", "event": "request", "path": f"/products/{token}/{token}", "status": 404})
    printed = capfd.readouterr().err
    assert token[20:] not in printed and printed.count("rk_0123456789abcdef_***") == 3
    assert "404" in printed


def test_an_exception_without_description_has_no_detail(app: Application) -> None:
    class Teapot(HTTPException):
        code = 418

    @app.get("/teapot")
    @needs("public")
    def refuse() -> NoReturn:
        raise Teapot

    response = app.test_client().get("/teapot")
    assert (response.status_code, response.json["title"]) == (418, "I'm a teapot")
    assert "detail" not in response.json
