"""What creates and lists presume: their responses are those of a process that reads its credential first."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from flask import after_this_request
from flask.testing import FlaskClient

from restkeeper import Ownership, Resource
from restkeeper.clock import rfc3339
from restkeeper.config import Config
from restkeeper.features import limits
from restkeeper.features.keys.credentials import USE_SECONDS
from restkeeper.features.limits.shared import Table
from restkeeper.resources.changes import Change
from restkeeper.service import service_of
from restkeeper.storage.contract import Store, Transaction
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.web import ahead, observe
from restkeeper.web.ahead import PRESUMED_SECONDS
from tests import stores
from tests.clock import SetClock
from tests.shop import RESOURCES, create_app
from tests.shop.products import ProductSchema

pytestmark = [pytest.mark.needs("keys"), pytest.mark.needs("idempotency"), pytest.mark.needs("limits")]

ADMIN_KEY = "an-admin-key-of-enough-characters"
ADMIN = {"X-API-Key": ADMIN_KEY}
EXPIRES = "2027-01-15T09:00:00Z"  # an hour after the clock's start
NOTES = Resource("notes", "note", type("NoteSchema", (ProductSchema,), {}), ownership=Ownership.ALL)
VARYING = {"X-Request-Id", "Location", "ETag", "Last-Modified", "RateLimit", "X-RateLimit-Remaining"}


class Process:
    """A process of a service, with a key that it may presume, and what it has asked of the store."""

    def __init__(self, url: str, clock: SetClock, resources: Sequence[Resource] = RESOURCES, **options: Any) -> None:
        config = Config(database_url=url, auth="required", admin_key=ADMIN_KEY, **options)
        self.app = create_app(config, resources, clock=clock)
        self.client: FlaskClient = self.app.test_client()
        self.store: Store = service_of(self.app).store
        self._scopes = [f"{each.name}:{action}" for each in resources for action in ("read", "write")]
        self.asked: list[str] = []
        self.token = ""
        for name in ("look_up", "read", "page", "count", "revision", "write"):
            self._watch(name)

    def _watch(self, name: str) -> None:
        function: Callable[..., Any] = getattr(self.store, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            self.asked.append(name)
            return function(*arguments, **options)

        setattr(self.store, name, watched)

    def make_key(self) -> str:
        """The id of a new key, which `post` then uses."""
        sent = {"name": "test", "scopes": self._scopes, "expires_at": EXPIRES}
        made = self.client.post("/api/v1/keys", json=sent, headers=ADMIN).json
        self.token = made["secret"]
        return str(made["id"])

    def post(self, sent: Any = None, path: str = "/products", **headers: str) -> Any:
        """Create an item with the key, by default a product, and note in `asked` what that takes."""
        self.asked.clear()
        headers = {"X-API-Key": self.token} | {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(sent, bytes):
            return self.client.post(path, data=sent, headers={"Content-Type": "application/json", **headers})
        return self.client.post(path, json=sent or {"name": "x"}, headers=headers)

    def get(self, path: str, method: str = "GET", **headers: str) -> Any:
        """Send a request with the key, and note in `asked` what that takes."""
        self.asked.clear()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.open(path, method=method, headers={"X-API-Key": self.token, **named})

    def names(self) -> list[str]:
        return [each["name"] for each in self.client.get("/products", headers=ADMIN).json]


@pytest.fixture(autouse=True)
def counters_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "shared_tables", [Table()])


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db"


@pytest.fixture
def process(url: str, clock: SetClock) -> Iterator[Process]:
    """A process that presumes its key."""
    made = Process(url, clock)
    made.make_key()
    for _ in range(2):
        assert made.post().status_code == 200
    yield made
    made.store.close()


Pair = tuple[Process, Process, str]


@pytest.fixture
def pair(url: str, clock: SetClock) -> Iterator[Pair]:
    """Two processes of one service, and the id of their key. The first one presumes it when it expires."""
    first, other = Process(url, clock), Process(url, clock)
    id = first.make_key()
    other.token = first.token
    clock.now += 3600 - PRESUMED_SECONDS / 2
    first.post({"name": "taken", "sku": "taken"})
    first.post({"name": "first"}, Idempotency_Key="first")
    assert first.asked == ["write"]
    yield first, other, id
    for process in (first, other):
        process.store.close()


def test_a_create_asks_nothing_before_its_change(process: Process, clock: SetClock) -> None:
    """Not even with an idempotency key; for a minute. Then its credential is read again."""
    assert process.post(Idempotency_Key="a").status_code == 200
    assert process.asked == ["write"]
    clock.now += PRESUMED_SECONDS - 1
    assert process.post().status_code == 200
    assert process.asked == ["write"]
    clock.now += 1
    assert process.post().status_code == 200
    assert process.asked[0] == "look_up"
    assert process.post().status_code == 200
    assert process.asked == ["write"]


def test_a_first_create_reads_its_credential(url: str, clock: SetClock) -> None:
    """Nothing is presumed of a key that has read, or that was refused."""
    process = Process(url, clock)
    process.make_key()
    assert process.client.get("/products", headers={"X-API-Key": process.token}).status_code == 200
    assert process.post({"name": ""}).status_code == 422
    for asked in (["look_up", "write"], ["write"]):
        assert process.post().status_code == 200
        assert process.asked == asked
    process.store.close()


def leave(process: Process, id: str, clock: SetClock) -> None:
    pass


def revoke(process: Process, id: str, clock: SetClock) -> None:
    assert process.client.delete(f"/api/v1/keys/{id}", headers=ADMIN).status_code == 200


def rotate(process: Process, id: str, clock: SetClock) -> None:
    assert process.client.post(f"/api/v1/keys/{id}/rotate", headers=ADMIN).status_code == 200


def expire(process: Process, id: str, clock: SetClock) -> None:
    clock.now += PRESUMED_SECONDS / 2  # it is still presumed


def restrict(process: Process, id: str, clock: SetClock) -> None:
    """As an operator might, in the database."""
    url = service_of(process.app).config.database_url
    stores.execute(url, "UPDATE items SET body = replace(body, 'products:', 'users:') WHERE body LIKE '%products:%'")


def prolong(process: Process, id: str, clock: SetClock) -> None:
    """It expires as it is presumed, and not as it is stored."""
    is_key = "collection IN ('_credentials', 'keys')"
    statement = f"UPDATE items SET body = replace(body, '2027-01-15', '2027-01-16') WHERE {is_key}"  # noqa: S608
    stores.execute(service_of(process.app).config.database_url, statement)
    expire(process, id, clock)


REQUESTS: dict[str, tuple[Any, dict[str, str]]] = {
    "valid": ({"name": "new"}, {}),
    "valid, once": ({"name": "new"}, {"Idempotency_Key": "new"}),
    "repeated": ({"name": "first"}, {"Idempotency_Key": "first"}),
    "key of another request": ({"name": "other"}, {"Idempotency_Key": "first"}),
    "key of another request, invalid": ({"name": ""}, {"Idempotency_Key": "first"}),
    "malformed key": ({"name": "new"}, {"Idempotency_Key": '"'}),
    "duplicate": ({"name": "new", "sku": "taken"}, {}),
    "invalid": ({"name": ""}, {}),
    "malformed": (b'{"name": ', {}),
    "empty": (b"", {}),
    "of another type": ({"name": "new"}, {"Content_Type": "text/plain"}),
    "large": ({"name": "new", "description": "x" * 2_000_000}, {}),
    "for another representation": ({"name": "new"}, {"Accept": "text/html"}),
    "of another list": ({"name": "new"}, {"If_Match": '"other"'}),
}


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("change", [leave, revoke, rotate, expire, prolong, restrict])
def test_the_response_is_that_of_a_process_that_reads_first(
    pair: Pair, clock: SetClock, change: Callable[[Process, str, SetClock], None], request_: str
) -> None:
    """Whatever has happened to the credential in another process, and whatever is wrong with the request."""
    first, other, id = pair
    change(other, id, clock)
    sent, headers = REQUESTS[request_]
    presumed = first.post(sent, **headers)
    if "Idempotency_Key" in headers and headers["Idempotency_Key"] == "new":
        headers = {"Idempotency_Key": "newer"}
    expected = other.post(sent, **headers)
    assert comparable_create(presumed) == comparable_create(expected)
    assert remaining(presumed) == remaining(expected) + 1, "it is counted once"
    accepted = 2 if expected.status_code == 200 and "Idempotent-Replayed" not in expected.headers else 0
    assert first.names().count("new") == accepted


def remaining(response: Any) -> int:
    return int(response.headers["X-RateLimit-Remaining"])


def comparable_create(response: Any) -> tuple[Any, ...]:
    """What does not differ between two creates that are the same."""
    body = {name: each for name, each in response.json.items() if name not in ("id", "request_id")}
    return response.status_code, body, sorted((name, each) for name, each in response.headers if name not in VARYING)


def test_a_list_asks_for_its_page_only(process: Process, clock: SetClock) -> None:
    """For a minute. If it is cached, its credential is read, with the revision of the collection."""
    for path, asked in (("/products?limit=1", ["page"]), ("/products?limit=1", ["look_up"]), ("/products", ["page"])):
        assert process.get(path).status_code == 200
        assert process.asked == asked
    clock.now += PRESUMED_SECONDS
    for limit, asked in ((2, ["look_up", "page"]), (3, ["page"])):
        assert process.get(f"/products?limit={limit}").status_code == 200
        assert process.asked == asked
    assert process.post().status_code == 200
    assert process.asked == ["write"], "a list confirms a key for creates, too"


LISTS: dict[str, tuple[str, dict[str, str]]] = {
    "page": ("/products?limit=1", {}),
    "same page": ("/products", {}),
    "filtered": ("/products?name=taken", {}),
    "counted": ("/products?name[ne]=taken&limit=1", {}),
    "searched": ("/products?q=taken", {}),
    "empty": ("/products?name=nothing", {}),
    "by offset": ("/products?offset=1&limit=1", {}),
    "in another dialect": ("/products?range=[0,0]", {}),
    "invalid in another dialect": ('/products?filter={"_page":"2"}', {}),
    "malformed in another dialect": ("/products?_sort=[name", {}),
    "unknown field": ("/products?nothing=1", {}),
    "for another representation": ("/products?limit=1", {"Accept": "text/html"}),
    "conditional": ("/products?limit=1", {"If_None_Match": "*"}),
    "of another list": ("/products?limit=1", {"If_Match": '"other"'}),
    "head": ("/products?limit=1", {"method": "HEAD"}),
    "options": ("/products", {"method": "OPTIONS"}),
}


@pytest.mark.parametrize("request_", LISTS)
@pytest.mark.parametrize("change", [leave, revoke, rotate, expire, prolong, restrict])
def test_a_list_is_that_of_a_process_that_reads_first(
    pair: Pair, clock: SetClock, change: Callable[[Process, str, SetClock], None], request_: str
) -> None:
    """As a create: also an invalid one."""
    first, other, id = pair
    assert first.get("/products").status_code == 200
    assert first.asked == ["page"]
    change(other, id, clock)
    path, options = LISTS[request_]
    presumed, expected = (process.get(path, **options) for process in (first, other))
    assert comparable(presumed) == comparable(expected)
    assert remaining(presumed) == remaining(expected) + 1, "it is counted once"


def comparable(response: Any) -> tuple[Any, ...]:
    """What does not differ between two requests that are the same."""
    id = response.headers["X-Request-Id"]
    headers = sorted((name, each) for name, each in response.headers if name not in VARYING - {"ETag"})
    return response.status_code, response.text.replace(id, "ID"), headers


@pytest.mark.needs("ownership")
def test_the_list_of_a_precondition_confirms_nothing(
    url: str, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A create that compares the list of its items reads a page first; only its transaction confirms the key."""
    process, other = (Process(url, clock, (*RESOURCES, NOTES)) for _ in range(2))
    id = process.make_key()
    assert process.post(path="/notes").status_code == 200
    tag = process.get("/notes").headers["ETag"]
    write = process.store.write

    def write_too_late(*arguments: Any, **options: Any) -> Any:
        revoke(other, id, clock)
        return write(*arguments, **options)

    monkeypatch.setattr(process.store, "write", write_too_late)
    assert process.post(path="/notes", If_Match=tag).status_code == 401
    assert process.asked[:2] == ["page", "write"]
    for each in (process, other):
        each.store.close()


@pytest.mark.needs("dialects")
def test_a_list_that_was_cached_meanwhile_is_translated_again(process: Process) -> None:
    """It is executed again, because it has not read its page: the response has all headers of its dialect."""
    other = process.app.test_client()
    address = "/products?range=[0,0]"
    asked: list[str] = []

    def fill_cache(request: Any) -> None:
        if not asked:
            asked.append(request.path)
            assert other.get(address, headers=ADMIN).status_code == 200

    process.app.before.append(fill_cache)
    response = process.get(address)
    assert process.asked == ["page", "look_up", "look_up"]
    assert response.headers["Content-Range"] == "products 0-0/2"


def test_options_is_executed_once(process: Process) -> None:
    """It asks for nothing that would confirm its key; the next list presumes that as before."""
    methods: list[str] = []
    process.app.before.append(lambda request: methods.append(request.method))
    assert process.get("/products", method="OPTIONS").status_code == 200
    assert methods == ["OPTIONS"]
    assert process.get("/products?limit=1").status_code == 200
    assert process.asked == ["page"]


def test_a_refused_request_is_no_use_of_its_key(process: Process, url: str, clock: SetClock) -> None:
    """Only what reads the key notes its use."""
    other = Process(url, clock)
    (key,) = other.client.get("/api/v1/keys", headers=ADMIN).json
    clock.now += USE_SECONDS + 1
    assert process.get("/products?limit=9").status_code == 200
    clock.now += USE_SECONDS / 2
    assert process.get("/products?limit=0").status_code == 400, "so that the next one reads the key"
    assert process.get("/products?limit=8").status_code == 200
    rotate(other, key["id"], clock)
    used = other.client.get(f"/api/v1/keys/{key['id']}", headers=ADMIN).json["last_used_at"]
    clock.now += USE_SECONDS / 2 + 1
    assert process.get("/products?limit=7").status_code == 401
    assert other.client.get(f"/api/v1/keys/{key['id']}", headers=ADMIN).json["last_used_at"] == used
    other.store.close()


def test_the_uses_of_a_key_that_is_presumed_are_noted(process: Process, url: str, clock: SetClock) -> None:
    """Whenever it is read again and the stored time is old enough, also if another process has stored that."""
    other = Process(url, clock)
    other.token = process.token
    (key,) = process.client.get("/api/v1/keys", headers=ADMIN).json
    clock.now += USE_SECONDS + PRESUMED_SECONDS
    stored = rfc3339(clock.now)
    for each, seconds, is_stored in (
        (process, 0.0, True),
        (other, USE_SECONDS, False),
        (other, PRESUMED_SECONDS - 1, False),
        (other, 1.0, True),
    ):
        clock.now += seconds
        assert each.post().status_code == 200
        stored = rfc3339(clock.now) if is_stored else stored
        assert process.client.get(f"/api/v1/keys/{key['id']}", headers=ADMIN).json["last_used_at"] == stored
    other.store.close()


def test_what_was_wrong_is_not_presumed_again(process: Process) -> None:
    """After a request that was executed again, the next one reads first: a caller of bad requests costs little more."""
    assert process.post({"name": ""}).status_code == 422
    assert process.asked == ["look_up"]
    assert process.post({"name": ""}).status_code == 422
    assert process.asked == ["look_up"]
    for asked in (["look_up", "write"], ["write"]):
        assert process.post().status_code == 200
        assert process.asked == asked


def test_a_response_of_another_process_is_found(url: str, process: Process, clock: SetClock) -> None:
    """Both presume that there is none; the second one finds it in its transaction."""
    other = Process(url, clock)
    other.token = process.token
    for _ in range(2):
        other.post()
    made, again = (each.post(Idempotency_Key="a") for each in (other, process))
    assert (again.json, again.headers["Idempotent-Replayed"]) == (made.json, "true")
    assert process.asked[0] == "write"
    assert set(process.asked[1:]) == {"look_up"}
    other.store.close()


@pytest.mark.parametrize(
    ("error", "status"), [(StoreUnavailable("the connection is lost"), 503), (RuntimeError("of our own"), 500)]
)
def test_a_change_whose_end_is_unknown_is_not_repeated(
    process: Process, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    """It may be stored: its client repeats it with the same key, or knows that it cannot."""
    write = process.store.write

    def lost(work: Callable[[Transaction], Any], **options: Any) -> Any:
        write(work, **options)
        raise error

    monkeypatch.setattr(process.store, "write", lost)
    assert process.post({"name": "once"}).status_code == status
    assert process.names().count("once") == 1


def test_a_request_that_is_executed_again_is_one(url: str, clock: SetClock, capfd: pytest.CaptureFixture[str]) -> None:
    """It has one id and one line in the log, and is executed twice at most."""
    process = Process(url, clock, log_format="json", log_level="info")
    process.make_key()
    process.post()
    capfd.readouterr()
    ids: list[str] = []
    process.app.before.append(lambda request: ids.append(observe.request_id()))
    refused = process.post({"name": ""})
    (line,) = [json.loads(each) for each in capfd.readouterr().err.splitlines()]
    assert (line["request_id"], line["status"]) == (refused.json["request_id"], 422)
    assert ids == [refused.headers["X-Request-Id"]] * 2
    process.store.close()


@pytest.mark.parametrize("change", [revoke, expire])
def test_a_use_of_a_key_that_is_not_valid_any_more_is_one_failure(
    url: str, clock: SetClock, change: Callable[[Process, str, SetClock], None]
) -> None:
    """Not two, though the request is executed twice."""
    process = Process(url, clock, failure_limit="2 per minute")
    id = process.make_key()
    clock.now += 3600 - PRESUMED_SECONDS / 2  # so that the key can expire while it is presumed
    assert process.post().status_code == 200
    change(process, id, clock)
    assert [process.post().status_code for _ in range(3)] == [401, 401, 429]
    process.store.close()


def test_what_takes_part_in_a_change_can_read(process: Process, url: str, clock: SetClock) -> None:
    """A revoked key changes nothing, also where a hook reads in the transaction."""
    seen = []

    def look(transaction: Transaction, change: Change) -> None:
        seen.append(transaction.revision("products"))

    service_of(process.app).hooks.on_change.append(look)
    assert process.post().status_code == 200
    other = Process(url, clock)
    revoke(other, process.token.split("_")[1], clock)
    assert (process.post({"name": "never"}).status_code, len(seen)) == (401, 1)
    assert "never" not in process.names()
    other.store.close()


def test_the_presumed_credentials_of_a_process_are_limited(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond are read again."""
    monkeypatch.setattr(ahead, "MOST_PRESUMED", 3)
    for _ in range(5):
        process.make_key()
        assert [process.post().status_code, process.post().status_code] == [200, 200]
        assert process.asked == ["write"]
        assert len(service_of(process.app).ahead._recent) <= 3


def test_a_credential_that_is_cached_clears_no_full_cache(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full cache is cleared for a new credential only."""
    monkeypatch.setattr(ahead, "MOST_PRESUMED", 2)
    known = process.token
    process.make_key()
    new = process.token
    for token in (new, new, known, new):
        process.token = token
        assert process.post().status_code == 200
    assert process.asked == ["write"]


class Broken(io.RawIOBase):
    """A body that comes in parts; an exception is raised, and what follows can be read after it."""

    def __init__(self, *parts: bytes | Exception) -> None:
        self._parts = list(parts)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._parts.pop(0) if self._parts else b""
        if isinstance(part, Exception):
            raise part
        buffer[: len(part)] = part
        return len(part)


@pytest.mark.parametrize(
    ("parts", "length", "detail"),
    [
        ((RuntimeError("zz"), b'{"name": "never"}'), None, "the body cannot be read: zz"),
        ((b'{"name": "x', RuntimeError("late"), b'{"name": "never"}'), None, "the body cannot be read: late"),
        ((b'{"name": "x',), "20", "the body ended before its announced length"),
    ],
)
def test_a_body_that_cannot_be_read_is_not_read_again(
    process: Process, parts: tuple[bytes | Exception, ...], length: str | None, detail: str
) -> None:
    """gunicorn would go on after a malformed chunk, and wait again for one that is late."""
    headers = {"X-API-Key": process.token, "Content-Type": "application/json"}
    ends = {"CONTENT_LENGTH": length} if length else {"wsgi.input_terminated": True}
    for _ in range(2):  # the first time its credential is presumed
        environ = {"wsgi.input": Broken(*parts), **ends}
        refused = process.client.post("/products", headers=headers, environ_overrides=environ)
        assert (refused.status_code, refused.json["detail"]) == (400, detail)
    assert "never" not in process.names()


def test_a_revoked_key_has_no_quota(url: str, clock: SetClock) -> None:
    """Its requests are counted for the address, like those of other unknown callers."""
    first, other = (Process(url, clock, rate_limit_write="3 per minute") for _ in range(2))
    id = first.make_key()
    other.token = first.token
    assert [first.post().status_code for _ in range(3)] == [200] * 3
    revoke(other, id, clock)
    refused = [each.post() for each in (first, other)]
    assert [each.status_code for each in refused] == [401, 401]
    assert remaining(refused[0]) == remaining(refused[1]) + 1
    for process in (first, other):
        process.store.close()


def test_what_a_dropped_response_was_to_get_is_dropped(url: str, clock: SetClock) -> None:
    """Flask's hooks after this request, which the request adds each time that it is executed."""
    process = Process(url, clock)
    seen = []

    @process.app.before_request
    def note() -> None:
        @after_this_request
        def count(response: Any) -> Any:
            seen.append(response.status_code)
            return response

    process.make_key()
    assert process.post().status_code == 200
    seen.clear()
    assert process.post({"name": ""}).status_code == 422
    assert seen == [422]
    process.store.close()


def fail(sent: Any) -> None:
    raise RuntimeError("a hook failed")


def test_an_error_before_the_change_is_not_shown_to_a_revoked_key(url: str, clock: SetClock) -> None:
    """No transaction was tried yet, so that the request is executed again."""
    process = Process(url, clock)
    id = process.make_key()
    assert process.post().status_code == 200
    service_of(process.app).hooks.on_body.append(fail)
    revoke(process, id, clock)
    assert process.post().status_code == 401
    process.store.close()


@pytest.mark.parametrize(
    ("name", "send"), [("write", Process.post), ("page", lambda process: process.get("/products?limit=9"))]
)
def test_what_has_waited_in_vain_does_not_wait_again(
    process: Process, monkeypatch: pytest.MonkeyPatch, name: str, send: Callable[[Process], Any]
) -> None:
    """Such as for a connection to the store: no work was tried."""

    def wait(*_: Any, **options: Any) -> Any:
        raise StoreUnavailable("there is no connection")

    monkeypatch.setattr(process.store, name, wait)
    assert send(process).status_code == 503
    assert process.asked == []
