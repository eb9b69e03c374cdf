"""The test harness, without a server: spaces, their data, clocks, faults, journals and webhooks."""

import io
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import ANY

import jsonschema
import pytest
from flask.testing import FlaskClient
from openapi_spec_validator import validate
from standardwebhooks.webhooks import Webhook

from restkeeper import LiveServer, Space, create_app
from restkeeper.config import Config
from restkeeper.errors import NotFound
from restkeeper.features.harness import spaces as harness_spaces
from restkeeper.features.harness import webhooks as harness_webhooks
from restkeeper.features.harness.ports import Ports
from restkeeper.features.harness.spaces import LATEST, SPACE, SpaceClock, Spaces
from restkeeper.storage.sqlite import store as sqlite_store
from tests.callers import ADMIN, ADMIN_KEY, bearer
from tests.endpoint import OK, serving
from tests.shapes import BRANDS, PARTS, PRODUCTS
from tests.waiting import join, until

START = "2026-01-01T00:00:00.000000Z"
DEPRECATED = """
from datetime import date
from restkeeper import Deprecation, Version, Versions, create_app as create

def create_app(config=None):
    v1 = Deprecation(version="v1", since=date(2026, 10, 1), sunset=date(2027, 6, 1))
    versions = Versions(Version("v1", successor="v2"), Version("v2"), unversioned="v2", deprecations=[v1])
    return create(config, [], versions=versions)
"""


RESOURCES = [PARTS, PRODUCTS, BRANDS]
HOOK = "https://example.org/hook"
KEY = {"Idempotency-Key": "k"}
ANNA = {"id": "anna", "name": "Anna"}
SEED = {"products": [ANNA], "parts": [{"id": "p1", "name": "a part", "product": "anna"}]}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer(resources=RESOURCES, in_process=True) as running:
        yield running


@pytest.fixture
def space(server: LiveServer) -> Iterator[Space]:
    with server.space() as made:
        yield made


@pytest.fixture
def other(server: LiveServer) -> Iterator[Space]:
    """Another space, which nothing that a test does to `space` changes."""
    with server.space() as made:
        yield made


@pytest.fixture
def client(server: LiveServer) -> FlaskClient:
    """Of the whole server."""
    assert server._app
    return server._app.test_client()


@pytest.fixture
def spaces() -> Spaces:
    return Spaces(lambda clock: create_app(Config(database_url="memory://"), RESOURCES, clock=clock), Ports(Config()))


@contextmanager
def frozen(**settings: str) -> Iterator[Space]:
    """A space of a server with these settings, whose clock stands."""
    with LiveServer(resources=RESOURCES, in_process=True, **settings) as server, server.space() as made:
        made.clock.freeze(START)
        yield made


def names(space: Space) -> list[str]:
    return sorted(each["name"] for each in space.client.get("/products").json)


def create(space: Space, name: str, **headers: str) -> Any:
    return space.client.post("/products", json={"name": name, "sku": name}, headers=headers)


def subscribe(space: Space, *types: str) -> None:
    made = space.client.post("/api/v1/webhooks", json={"url": HOOK, "types": types})
    assert made.status_code == 200, made.text


class TestSpaces:
    """Each is the whole service of one test."""

    def test_each_has_its_own_data(self, space: Space, other: Space, client: FlaskClient) -> None:
        """Beside others, and beside the service that has no space; a dropped one says so."""
        create(space, "Anna"), create(other, "Bert")
        assert (names(space), names(other), client.get("/products").json) == (["Anna"], ["Bert"], [])
        assert space.client.get(f"{space.url}/products").json == space.client.get("products").json
        other.drop(), other.drop()
        answer = other.client.get("/products")
        assert answer.status_code == 404 and "it was dropped" in answer.json["detail"]
        with pytest.raises(ValueError, match="there is no such space"):
            other.reset()

    def test_one_after_another_uses_the_same_application(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing of the former one is left: data, counts of limits, keys, clock, faults and requests."""
        made: list[Any] = []
        create = harness_spaces.Instance.__init__
        monkeypatch.setattr(harness_spaces.Instance, "__init__", lambda *given: (made.append(create(*given)), None)[1])
        settings = {"RATE_LIMIT": "2 per minute", "AUTH": "required", "ADMIN_KEY": ADMIN_KEY}
        sent = {"json": {"name": "Anna"}, "headers": ADMIN | {"Idempotency-Key": "k"}}
        with LiveServer(resources=RESOURCES, in_process=True, **settings) as server:
            for _ in range(20):
                with server.space() as space:
                    assert abs(space.clock.now.timestamp() - time.time()) < 60
                    space.clock.freeze()  # no minute ends between two requests
                    answers = [space.client.post("/products", **sent) for _ in range(3)]
                    found = [(each.status_code, each.headers.get("Idempotent-Replayed")) for each in answers]
                    assert found == [(200, None), (200, "true"), (429, None)]
                    assert len(space.client.get("/products", headers=ADMIN).json) == 1 and len(space.requests()) == 4
                    space.clock.advance(hours=20), space.faults.close("GET", "*")
            assert len(made) == harness_spaces.SPARE + 1  # the server's own

    def test_the_store_of_a_space_is_a_copy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of an empty one of the same collections: its tables and indexes are made once, and each has its own data."""
        migrated: list[Any] = []
        migrate = sqlite_store.migrate
        monkeypatch.setattr(sqlite_store, "migrate", lambda *a, **b: (migrated.append(a), migrate(*a, **b))[1])
        with LiveServer(resources=RESOURCES, in_process=True) as server:
            made = [server.space(seed={"products": [{"name": str(number), "sku": str(number)}]}) for number in range(4)]
            assert [names(each) for each in made] == [["0"], ["1"], ["2"], ["3"]] and names(server) == []
            assert create(made[0], "0").status_code == 409
            assert len({each.client.get("/products").headers["ETag"] for each in made}) == 4
        assert [[each.name for each in collections].count("products") for _, collections in migrated].count(1) == 1

    def test_many_at_once_use_the_same_applications(self, spaces: Spaces) -> None:
        """Each time: memory grows with the most spaces that there were at once, and not further."""
        rounds = []
        for _ in range(3):
            made = [spaces.create() for _ in range(12)]
            rounds.append({each.instance for each in made})
            list(map(spaces.drop, made))
        assert rounds[0] == rounds[1] == rounds[2]

    def test_an_application_in_use_is_not_used_again(self, spaces: Spaces) -> None:
        """What a request writes after its space was dropped or reset is in no other space, nor after a second end."""
        space = spaces.create()
        for end in (spaces.renew, spaces.drop):
            with spaces.using(space) as instance:
                end(space)
                others = [spaces.create() for _ in range(4)]
                assert instance not in [each.instance for each in others]
                list(map(spaces.drop, others))
        spaces.drop(space)
        with pytest.raises(NotFound), spaces.using(space):
            pass
        assert len({spaces.create().instance for _ in range(4)}) == 4

    @pytest.mark.parametrize(
        "added",
        [
            "app.add_url_rule('/hello', view_func=restkeeper.needs('public')(lambda: 'hello'))",
            "app.before_request(print)",
        ],
    )
    def test_what_spaces_lack_is_refused(self, tmp_path: Path, added: str) -> None:
        """What is tested against would not be what is deployed."""
        (tmp_path / "app.py").write_text(
            "import restkeeper\n\n\ndef create_app(given=None):\n    app = restkeeper.create_app(given, [])\n"
            f"    {added}\n    return app\n"
        )
        with LiveServer(tmp_path, in_process=True) as server, pytest.raises(ValueError, match="blueprints="):
            server.space()

    def test_two_resets_at_once(self, spaces: Spaces) -> None:
        """No two spaces have one application afterwards."""
        space = spaces.create()
        for _ in range(10):
            running = [Thread(target=spaces.renew, args=(space,)) for _ in range(4)]
            for each in running:
                each.start()
            join(*running)
            made = [space, *(spaces.create() for _ in range(4))]
            assert len({each.instance for each in made}) == 5
            list(map(spaces.drop, made[1:]))


def test_a_server_without_spaces(tmp_path: Path) -> None:
    """It has not been started, or keeps its data."""
    with pytest.raises(RuntimeError, match="with LiveServer"):
        LiveServer(resources=RESOURCES).space()
    lasting = LiveServer(resources=RESOURCES, in_process=True, DATABASE_URL=f"sqlite:///{tmp_path}/a.db")
    with lasting, pytest.raises(RuntimeError, match="DATABASE_URL"):
        lasting.space()


class TestControl:
    """The documents by which any language controls spaces."""

    @pytest.mark.needs("openapi")
    def test_its_document(self, server: LiveServer, client: FlaskClient) -> None:
        """It is valid and complete, and each response fits it; what cannot be is refused."""
        document = client.get("/__harness__/openapi.json").json
        validate(document)
        left = {path for path in document["paths"] if path.startswith("/spaces")}
        space, users = server.space(), {"seed": {"products": [{"name": "Anna"}]}}
        snapshot = space.snapshot()
        for method, path, body, status in [
            ("POST", "", users, 201), ("POST", "", {"seed": 5}, 422), ("POST", "", {"seed": {"cars": []}}, 404),
            ("POST", "", {"seed": {"brands": [{}]}}, 422), ("POST", "", {"seed": {"products": [ANNA] * 2}}, 409),
            ("POST", "", {"colour": "red"}, 422), ("POST", "", [], 422), ("POST", "/{id}/seed", users, 200),
            ("POST", "/{id}/snapshots", None, 201), ("POST", "/{id}/restore", {"name": snapshot}, 200),
            ("POST", "/{id}/restore", {}, 422), ("POST", "/{id}/restore", {"name": "9"}, 404),
            ("PATCH", "/{id}/clock", {"advance": 5.5}, 200), ("PATCH", "/{id}/clock", {"now": START}, 200),
            ("PATCH", "/{id}/clock", {"now": "1969-12-31T23:59:59Z"}, 400), ("PATCH", "/{id}/clock", {"now": 5}, 422),
            ("PATCH", "/{id}/clock", {"advance": 100 * 366 * 24 * 3600 + 1}, 422),
            ("POST", "/{id}/faults", {"kind": "none"}, 422), ("POST", "/{id}/faults", {"kind": "close"}, 200),
            ("POST", "/{id}/faults", {"kind": "close", "request_headers": {"X": 5}}, 422),
            ("POST", "/{id}/stubs", {"path": "/rates"}, 200), ("GET", "/{id}/faults", None, 200),
            ("POST", "/{id}/stubs", {"path": "/rates", "bytes": "?"}, 422),
            ("POST", "/{id}/stubs", {"path": "/rates", "request_query": {"a": {}}}, 422),
            ("POST", "/{id}/assert_requested", {"path": "/products", "query": {"a": [1, True, "b"]}}, 200),
            ("POST", "/{id}/assert_requested", {"method": "POST", "json": None, "partial": True}, 200),
            ("POST", "/{id}/assert_requested", {"times": -1}, 422), ("DELETE", "/{id}/requests", None, 200),
            ("POST", "/{id}/faults", {"kind": "close", "path": "/none"}, 422),
            ("DELETE", "/{id}/faults", None, 200), ("GET", "/{id}/requests", None, 200),
            ("PUT", "/{id}/responses", {"statuses": [500]}, 200), ("PUT", "/{id}/responses", {"statuses": [1]}, 422),
            ("GET", "/{id}/deliveries", None, 200), ("POST", "/{id}/reset", None, 200), ("DELETE", "/{id}", None, 200),
        ]:  # fmt: skip
            target = f"/__harness__/spaces{path.replace('{id}', space.id)}"
            answer = client.open(target, method=method, json=body)
            assert answer.status_code == status, (method, path, body, answer.text)
            operation = document["paths"][f"/spaces{path}"][method.lower()]
            found = operation["responses"][str(status)]
            if "$ref" in found:
                found = document["components"]["responses"][found["$ref"].rpartition("/")[2]]
            for described in found.get("content", {}).values():
                jsonschema.validate(answer.json, described["schema"] | {"components": document["components"]})
            left.discard(f"/spaces{path}")
        assert left == set()

    def test_a_server_of_spaces_alone(self) -> None:
        """Its own address is no service, whatever is asked: a client that leaves its space sees that."""
        client = create_app(Config(harness="spaces"), RESOURCES).test_client()
        for method, path in [("GET", "/products"), ("POST", "/products"), ("GET", "/"), ("PUT", "/__harness__x")]:
            answer = client.open(path, method=method)
            assert (answer.status_code, answer.json["code"]) == (421, "misdirected-request")
            assert "POST /__harness__/spaces makes one" in answer.json["detail"]
        assert client.get("/healthz").json == {"status": "ok"}
        for sent, status in [({}, 201), ({"content_type": "application/json"}, 201), ({"data": "{}"}, 415)]:
            assert client.post("/__harness__/spaces", **sent).status_code == status

    def test_for_other_machines_pages_of_others_are_refused(self) -> None:
        """By what controls it and by its services, also pages of this machine; CORS_ORIGINS allows others."""
        allowed: Any = {"cors_origins": ("http://front.test",), "trusted_hosts": ("harness.test",)}
        client = create_app(Config(harness="remote", auth="open-to-all", **allowed), RESOURCES).test_client()
        id = client.post("/__harness__/spaces", headers={"Host": "harness.test:8000"}).json["id"]
        for headers, status in (
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "http://localhost:5173"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Host": "evil.example"}, 400),  # such a page, whose name points to this machine
            ({"Origin": "http://front.test"}, 201),
            ({"Origin": "http://harness.test"}, 201),  # its own
        ):
            headers = {"Host": "harness.test"} | headers
            assert client.post("/__harness__/spaces", headers=headers).status_code == status
            found = client.get("/products", headers=headers, environ_overrides={SPACE: id})
            assert found.status_code == (200 if status == 201 else status)

    def test_pages_of_others_are_refused(self, client: FlaskClient) -> None:
        """A page that a browser of this machine shows cannot control it, whatever its name points to."""
        page = "https://evil.example"
        for headers in ({"Origin": page}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
            assert client.post("/__harness__/spaces", json={}, headers=headers).status_code in (400, 403)


class TestState:
    """What a test begins with, and how it gets back there."""

    def test_seeds(self, server: LiveServer, tmp_path: Path) -> None:
        """Of an object or a file, in any order of the collections; a wrong one changes nothing."""
        (tmp_path / "data.json").write_text(json.dumps(SEED))
        with server.space(seed=SEED) as one, server.space(seed=tmp_path / "data.json") as two:
            for space in (one, two):
                assert space.client.get("/parts/p1").json["product"] == "anna"
            assert one.seed({"products": [{"name": "Bert"}, {"name": "Carl"}]}) == {"products": 2}
            for wrong, place in [({"name": ""}, "#/seed/products/1/name"), (ANNA, "#/seed/products/1.*id")]:
                with pytest.raises(ValueError, match=place):
                    one.seed({"products": [{"name": "Dora"}, wrong]})
            with pytest.raises(ValueError, match="#/seed/parts/0/product: there is no item 'nobody' in products"):
                one.seed({"parts": [{"name": "a", "product": "nobody"}]})
            assert names(one) == ["Anna", "Bert", "Carl"]

    def test_seeds_are_exact(self, space: Space, tmp_path: Path) -> None:
        """Decimals of a file and of Python have all of their digits; times are moments with an offset."""
        exact = "0.12345678901234567890"
        (tmp_path / "data.json").write_text(f'{{"products": [{{"name": "Anna", "attributes": {{"ratio": {exact}}}}}]}}')
        space.seed(tmp_path / "data.json")
        bert = {"name": "Bert", "attributes": {"ratio": Decimal(exact)}, "created_at": datetime(2026, 3, 1, tzinfo=UTC)}
        space.seed({"products": [bert]})
        assert space.client.get("/products").text.count(f'"ratio":{exact}') == 2

    def test_numbers_that_json_has_not(self, space: Space, tmp_path: Path) -> None:
        """They would be null: of Python, also of a stub, and of a file."""
        for value in (float("nan"), float("-inf"), Decimal("NaN")):
            with pytest.raises(ValueError, match="#/seed/products/1/attributes/a: must be in the range of a double"):
                space.seed({"products": [{"name": "Anna"}, {"name": "Bert", "attributes": {"a": value}}]})
        for wrong in ([float("nan")], (float("inf"),)):
            with pytest.raises(ValueError, match="#/json/0: must"):
                space.stub("GET", "/rates", json=wrong)
        (tmp_path / "data.json").write_text('{"products": [{"name": "Anna", "attributes": {"a": NaN}}]}')
        with pytest.raises(ValueError, match=r"data.json: .*NaN"):
            space.seed(tmp_path / "data.json")
        assert names(space) == []

    def test_reset(self, server: LiveServer) -> None:
        """All is as in a new space, also clock, faults and requests; but a snapshot stays."""
        with server.space(seed=SEED, random=7) as space:
            name, first = space.snapshot(), space.client.get("/products")
            created = create(space, "Bert").json["id"]
            space.clock.advance(hours=1), space.faults.close("GET", "*")

            class Resetting(io.BytesIO):
                def read(self, *size: Any) -> bytes:
                    space.reset()
                    return super().read(*size)

            # The request that is under way ends in the former application.
            under_way = {"input_stream": Resetting(b'{"name": "Carl"}'), "content_length": 16}
            assert space.client.post("/products", content_type="application/json", **under_way).status_code == 200
            assert space.requests() == [] and abs(space.clock.now.timestamp() - time.time()) < 60
            assert space.client.get("/products", headers={"If-None-Match": first.headers["ETag"]}).json == []
            space.seed(SEED)
            assert create(space, "Bert").json["id"] == created  # as at first
            space.restore(name)
            assert names(space) == ["Anna"]

    def test_snapshots(self, space: Space) -> None:
        """Data come back any number of times; ETags of lists and items, and stored responses, belong to them."""
        create(space, "Anna")
        first = space.snapshot()
        create(space, "Bert", **KEY)
        second, listed = space.snapshot(), space.client.get("/products")
        for name, expected in [(first, ["Anna"]), (second, ["Anna", "Bert"]), (first, ["Anna"])]:
            space.restore(name)
            answer = space.client.get("/products", headers={"If-None-Match": listed.headers["ETag"]})
            assert [each["name"] for each in answer.json] == expected
        assert create(space, "Bert", **KEY).headers.get("Idempotent-Replayed") != "true"
        assert [each["data"]["name"] for each in space.client.get("/api/v1/events").json] == ["Anna", "Bert"]
        last = space.client.get("/api/v1/events").json[-1]["id"]
        space.restore(first)
        assert space.client.get(f"/api/v1/events?after={last}").status_code == 410  # the feed is another one

    def test_random(self, server: LiveServer) -> None:
        """Ids of items and of requests are those of every run; other numbers have others. The clock goes on."""
        found = []
        for number in (7, 7, 8):
            with server.space(random=number) as space:
                assert abs(space.clock.now.timestamp() - time.time()) < 60
                space.clock.freeze(START), space.seed({"products": [{"name": "Zoe"}]})
                answer = create(space, "Anna")
                found.append((answer.json, answer.headers["X-Request-Id"], space.client.get("/products").json))
                assert [each["name"] for each in found[-1][2]] == ["Zoe", "Anna"]  # ids are in order
        assert found[0] == found[1] and found[0][0]["created_at"] == START
        assert found[0][0]["id"] != found[2][0]["id"]

    def test_ids_depend_on_creates_alone(self, server: LiveServer) -> None:
        """Not on other requests, faults, webhooks, or the clock; nor on those that are done before."""
        with server.space(random=7) as one, server.space(random=7) as other:
            expected = [create(one, name).json["id"] for name in "ab"]
            other.webhooks.deliveries(), subscribe(other, "product.created")
            other.faults.drop_response("POST", "/products", times=1)
            with pytest.raises(ConnectionAbortedError):
                create(other, "a", **KEY)
            assert create(other, "a", **KEY).json["id"] == expected[0]
            other.client.get("/products"), other.clock.advance(hours=5), other.faults.delay("GET", "*", 0, 0.001)
            names(other), other.clock.set("1999-01-01T00:00:00Z")
            assert create(other, "b").json["id"] == expected[1] > expected[0]


class TestClock:
    """It is the service's only clock of days, for one space."""

    def test_it_stands_runs_and_jumps(self, space: Space, other: Space) -> None:
        """Forwards and backwards, from 1970 to 9999."""
        moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
        before = other.clock.now
        assert space.clock.freeze(moment) == space.clock.now == moment
        assert create(space, "Anna").json["created_at"] == "2026-03-01T12:00:00.000000Z"
        assert space.clock.advance(hours=75) == datetime(2026, 3, 4, 15, tzinfo=UTC)
        assert space.clock.set("1970-01-01T00:00:00+00:00").year == 1970
        assert create(space, "Bert").status_code == 200
        begun = space.clock.run()
        until(lambda: space.clock.now > begun)
        assert space.clock.freeze().year == 1970
        wrong_form = "^#/now: must be a time with an offset, such as 2026-01-31T12:00:00Z$"
        for wrong in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59-01:00"):
            with pytest.raises(ValueError, match="1970 to 9999"):
                space.clock.set(wrong)
        no_moments: list[Any] = ["2026-01-01T00:00:00", "2026-01-01", "tomorrow", 5]
        for wrong, change in product(no_moments, (space.clock.set, space.clock.freeze)):
            with pytest.raises(ValueError, match=wrong_form):
                change(wrong)
        assert (other.clock.now - before).total_seconds() < 60

    @pytest.mark.needs("idempotency")
    def test_idempotency_keys_expire(self) -> None:
        """When IDEMPOTENCY_TTL is over."""
        with frozen(IDEMPOTENCY_TTL="3600") as space:
            create(space, "Anna", **KEY), space.clock.advance(seconds=3599)
            assert create(space, "Anna", **KEY).headers["Idempotent-Replayed"] == "true"
            space.clock.advance(seconds=10)
            assert create(space, "Anna", **KEY).status_code == 409

    @pytest.mark.needs("limits")
    def test_windows_of_limits_end(self) -> None:
        """At the time of Retry-After."""
        with frozen(RATE_LIMIT="2 per minute") as space:
            answers = [space.client.get("/products") for _ in range(3)]
            assert [answer.status_code for answer in answers] == [200, 200, 429]
            space.clock.advance(seconds=int(answers[2].headers["Retry-After"]))
            assert space.client.get("/products").status_code == 200

    @pytest.mark.needs("keys")
    def test_keys_expire(self) -> None:
        """API keys that were made with `expires_at`."""
        wanted = {"name": "x", "scopes": ["products:read"], "expires_at": "2026-02-01T00:00:00Z"}
        with frozen(AUTH="required", ADMIN_KEY=ADMIN_KEY) as space:
            key = bearer(space.client.post("/api/v1/keys", json=wanted, headers=ADMIN).json["secret"])
            for days, status in [(0, 200), (30, 200), (2, 401)]:
                space.clock.advance(days=days)
                assert space.client.get("/products", headers=key).status_code == status

    @pytest.mark.needs("webhooks")
    def test_webhooks_are_sent_again(self, space: Space) -> None:
        """Each attempt at its own time, however far the clock moves."""
        space.clock.freeze(START)
        subscribe(space, "product.created"), space.webhooks.respond(500, 500), create(space, "Anna")
        assert [sent.status for sent in space.webhooks.deliveries()] == [500]
        assert space.clock.advance(hours=75) == datetime(2026, 1, 4, 3, tzinfo=UTC)
        sent = space.webhooks.deliveries()
        assert [each.status for each in sent] == [500, 500, 200]
        assert len({each.headers["webhook-id"] for each in sent}) == 1
        first, second, third = (int(each.headers["webhook-timestamp"]) for each in sent)
        assert 5 <= second - first <= 10 and 300 <= third - second <= 600

    @pytest.mark.needs("versions")
    def test_deprecation_and_sunset(self, tmp_path: Path) -> None:
        """Of a folder's service, with its versions."""
        (tmp_path / "app.py").write_text(DEPRECATED)
        with LiveServer(tmp_path, in_process=True) as server, server.space() as space:
            found = []
            for moment in ("2026-11-01", "2027-05-01", "2027-06-02"):
                space.clock.set(f"{moment}T00:00:00Z")
                answer = space.client.get("/api/v1/events")
                found.append((answer.status_code, "Sunset" in answer.headers))
            assert found == [(200, True), (200, True), (410, True)]

    def test_elapsed_time_never_goes_back(self) -> None:
        """Also for the next space: what an application did last lies in its past."""
        clock = SpaceClock()
        clock.set(LATEST)
        assert clock.time() == LATEST  # from where it cannot run
        elapsed = clock.monotonic()
        clock.set(0), clock.run()
        assert clock.monotonic() >= elapsed > LATEST - time.time() and clock.time() <= time.time()


class TestFaults:
    """What a service, its store or the network does on a bad day."""

    def test_a_response(self, space: Space, other: Space) -> None:
        """The problem of a status, with a Retry-After, or any body; the service has done nothing."""
        space.faults.respond("POST", "/products", 429, times=1, retry_after=7, detail="slowly")
        answer = create(space, "Anna")
        assert (answer.status_code, answer.headers["Retry-After"], answer.json["detail"]) == (429, "7", "slowly")
        assert create(space, "Anna").status_code == create(other, "Anna").status_code == 200
        space.faults.respond("*", "/products", 503, json={"a": Decimal("1.10")}, retry_after=2)
        answer = space.client.get("/products")
        assert (answer.status_code, answer.text, answer.headers["Retry-After"]) == (503, '{"a":1.10}', "2")
        assert space.client.head("/products").data == b"" and answer.content_type == "application/json"
        for status in (204, 301, 304, 404, 418, 500, 599):
            for text in (None, "text"):
                space.faults.clear(), space.faults.respond("GET", "/*", status, text=text)
                answer = space.client.get("/products")
                assert answer.status_code == status and bool(answer.data) == (status not in (204, 304))
        space.faults.clear()
        assert names(space) == ["Anna"]

    def test_what_a_proxy_responds(self, space: Space) -> None:
        """A page of HTML with fields of its own, also in the place of what the service adds; pages may read it."""
        fields = {"Server-Timing": "edge", "content-type": "text/html", "X-Name": "Zo\xeb", "X-Request-Id": "mine"}
        space.faults.respond("GET", "/products", 502, text="<html>", headers=fields)
        answer = space.client.get("/products", headers={"Origin": "http://localhost:3000"})
        assert (answer.status_code, answer.text) == (502, "<html>")
        assert {name: answer.headers[name] for name in fields} == fields
        assert answer.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
        space.faults.respond("POST", "/products", 418, text="a,b", content_type="text/csv", detail="no")
        assert create(space, "Anna").content_type == "text/csv"
        space.faults.respond("PUT", "/products/*", 500, headers={"X-A": "b"})
        answer = space.client.put("/products/1", json={})
        assert (answer.headers["X-A"], answer.content_type) == ("b", "application/problem+json")

    @pytest.mark.parametrize(
        ("kind", "options", "message"),
        [
            ("respond", {"headers": {"X-A": "b\r\nX-C: d"}}, "Latin-1, without a line break"),
            ("respond", {"headers": {"X-A": "b" * 8191}}, "at most 8,190 characters"),
            ("respond", {"headers": {"X" * 101: "b"}}, "must be the name of a header field"),
            ("close", {"request_headers": {"X-A": "b" * 8191}}, "at most 8,190 characters"),
            ("respond", {"headers": {f"X-{each}": "b" for each in range(101)}}, "at most 100 items"),
            ("close", {"request_headers": {f"X-{each}": "b" for each in range(101)}}, "at most 100 items"),
            ("respond", {"headers": {"Trailer": "X-A"}}, "none of connection, content-length, .*, trailer"),
            ("respond", {"headers": {"A b": "c"}}, "must be the name"),
            ("respond", {"content_type": "text/html\n"}, "without a line break"),
            ("respond", {"text": "a", "json": 1}, "cannot be with json"),
            ("respond", {"text": "a" * (256 * 1024 + 1)}, "at most 262144 characters"),
            ("respond", {"json": "a" * 256 * 1024}, "at most 262144 bytes"),
            ("close", {"headers": {"X-Client": "b"}}, "the fields of requests are request_headers"),
            ("close", {"probability": 0}, "#/probability: must be more than 0"),
            ("respond", {"headers": {"X-A": ["b"] * 101}}, "#/headers: must be at most 100 fields"),
            ("respond", {"headers": {"X-A": ["b", 5]}}, "#/headers/X-A/value: must be a text or an array of texts"),
            ("respond", {"json": None, "bytes": b"a"}, "#/bytes: cannot be with json"),
            ("respond", {"bytes": b"a" * (256 * 1024 + 1)}, "#/bytes: must have at most 262144 bytes"),
            ("close", {"request_json": "a" * 256 * 1024}, "#/request_json: must have at most 262144 bytes"),
            ("close", {"request_query": {"a": [[]]}}, "#/request_query/a/value: must be a text, a number"),
        ],
    )
    def test_options_that_cannot_be(self, space: Space, kind: str, options: dict[str, Any], message: str) -> None:
        """They are refused: also those that have no effect on this kind of fault."""
        with pytest.raises(ValueError, match=message):
            space.faults._add(kind, "GET", "/products", **options)

    def test_what_ends_early(self, space: Space) -> None:
        """In process there is no connection: what would end or stop it raises, also in the middle of the content."""
        faults = space.faults
        for declare, error, count in [
            (lambda: faults.close("POST", "/products"), ConnectionAbortedError, 0),
            (lambda: faults.reset("POST", "/products"), ConnectionResetError, 0),
            (lambda: faults.reset("POST", "/products", committed=True), ConnectionResetError, 1),
            (lambda: faults.drop_response("POST", "/products"), ConnectionAbortedError, 2),
            (lambda: faults.cut_response("POST", "/products"), ConnectionAbortedError, 3),
            (lambda: faults.stall("POST", "/products", 60), TimeoutError, 4),
        ]:
            declare()
            with pytest.raises(error, match=": a fault of the test harness"):
                create(space, f"Anna {count}")
            faults.clear()
            assert len(names(space)) == count
        faults.delay("POST", "/products", 60)
        Thread(target=lambda: [until(lambda: not faults.unmet), space.drop()]).start()
        with pytest.raises(ConnectionAbortedError, match="the space was dropped"):
            create(space, "Anna")

    @pytest.mark.needs("idempotency")
    def test_a_key_has_the_response_of_the_service(self, space: Space) -> None:
        """Never the fault: whoever tries again gets what the first attempt did."""
        faults = space.faults
        faults.respond("POST", "/products", 500, times=1), faults.close("POST", "/products", times=1)
        faults.fail_store("POST", "/products", times=1), faults.fail_store("POST", "/products", committed=True, times=1)
        faults.drop_response("POST", "/products", times=1), faults.cut_response("POST", "/products", times=1)
        found: list[Any] = []
        for _ in range(7):
            try:
                answer = create(space, "Anna", **KEY)
                found.append((answer.status_code, answer.headers.get("Idempotent-Replayed")))
            except ConnectionAbortedError:  # also in the middle of the content
                found.append(None)
        assert found == [(500, None), None, (503, None), (503, None), None, None, (200, "true")]
        assert json.loads(space.requests()[2].response)["type"].endswith("/unavailable")
        assert names(space) == ["Anna"]

    def test_for_which_requests(self, space: Space) -> None:
        """By method, path in any version, fields, and number; in order, with all delays before."""
        faults, get = space.faults, lambda path, **headers: space.client.get(path, headers=headers).status_code
        faults.respond("get", "/products/*", 500, request_headers={"X-Client": "b*"}, skip=1, times=2)
        faults.respond("*", "/parts", 501)
        assert get("/products/1", **{"X-Client": "a"}) == get("/products/1") == 404
        for expected, path in [(404, "/1"), (500, "/2"), (500, "/3/x"), (404, "/1")]:
            assert get(f"/api/v1/products{path}", **{"X-Client": "bb"}) == expected
        assert get("/parts") == get("/api/v1/parts") == 501 and get("/products") == 200
        faults.clear()
        faults.delay("*", "*", 0.02, 0.03), faults.delay("*", "/products", 0.02), faults.respond("*", "*", 500)
        assert get("/products") == 500 and 40 <= space.requests()[-1].ms < 2000

    @pytest.mark.parametrize(
        ("method", "path", "message"),
        [
            ("GTE", "/products", "#/method: is none of DELETE, GET, HEAD, .*, nor a pattern"),
            ("GET", "/products?name=Anna", "#/path.*must be without a query"),
            ("GET", "/product", r"is no route, no stub, and no pattern with `\*`"),
            ("GET", "/api/v9/products", "is no route"),
            ("*", "/", None),
            ("p*", "/webhooks", None),
            ("DELETE", "/api/v1/products/anna", None),
            ("GET", "/none/*", None),
        ],
    )
    def test_what_cannot_happen_is_refused(self, space: Space, method: str, path: str, message: str | None) -> None:
        """When it is declared: a method that is none, a path with a query, and one that is no route or pattern."""
        with pytest.raises(ValueError, match=message) if message else nullcontext():
            space.faults.close(method, path)
        assert len(space.faults.unmet) == (message is None)

    def test_those_that_have_not_happened(self, space: Space) -> None:
        """All their times, or once: each is listed with its count, also when it is cleared; until a reset."""
        faults = space.faults
        faults.respond("GET", "/products", 500, skip=5), faults.delay("GET", "/products", 0, probability=1e-9)
        faults.close("GET", "/products", request_headers={"X-Client": "b"}), faults.delay("GET", "/products", 0)
        faults.respond("POST", "/product*", 500, times=2)
        expected = [f"{kind} GET /products: 0 of 1 times" for kind in ("respond", "delay", "close")]
        expected.append("respond POST /product*: 1 of 2 times")
        assert space.client.get("/products").status_code == 200 and create(space, "Anna").status_code == 500
        for _ in range(2):
            assert [each.message for each in faults.unmet] == expected
            faults.clear()
        assert faults.unmet[2].request_headers == {"X-Client": "b"} and faults.unmet[3].met == 1
        space.reset()
        assert faults.unmet == []

    def test_stubs_and_responses_that_nothing_has_used(self, space: Space) -> None:
        """They are unmet, too, and those that others replace."""
        space.stub("GET", "/rates"), space.stub("GET", "/prices", bytes=b"\xff"), space.client.get("/rates")
        space.webhooks.respond(500, 501), create(space, "Anna"), space.clock.advance(seconds=1)
        expected = ["stub GET /prices: 0 of 1 times", "webhooks.respond 500, 501: 1 of 2 times"]
        assert [each.message for each in space.faults.unmet] == expected
        space.client.get("/prices"), space.webhooks.respond()
        assert [each.message for each in space.faults.unmet] == expected[1:]

    def test_all_requests_count(self, server: LiveServer) -> None:
        """Also those that another fault takes, whichever was declared first."""
        declare = [
            lambda space: space.faults.respond("GET", "/products", 503, times=2),
            lambda space: space.faults.drop_response("GET", "/products", skip=2, times=1),
        ]
        for order in (declare, declare[::-1]):
            with server.space() as space:
                for each in order:
                    each(space)
                assert [space.client.get("/products").status_code for _ in range(2)] == [503, 503]
                with pytest.raises(ConnectionAbortedError):
                    space.client.get("/products")
                assert space.client.get("/products").status_code == 200 and space.faults.unmet == []

    def test_faults_for_a_query_and_a_content(self, space: Space) -> None:
        """As those of stubs: all else is left alone."""
        space.faults.respond("GET", "/products", 500, request_query={"limit": 5})
        space.faults.respond("POST", "/products", 501, request_json={"name": "Anna"}, partial=True)
        assert space.client.get("/products?limit=4").status_code == create(space, "Bert").status_code == 200
        assert space.client.get("/products?sort=name&limit=5").status_code == 500
        assert space.client.post("/products", json={"attributes": {}, "name": "Anna"}).status_code == 501

    def test_probabilities_are_replayed(self, server: LiveServer) -> None:
        """With `random`, the same requests meet the same faults."""
        found = []
        for number in (3, 3, 4):
            with server.space(random=number) as space:
                space.faults.respond("GET", "*", 500, probability=0.5)
                found.append([space.client.get("/products").status_code for _ in range(40)])
        assert found[0] == found[1] != found[2] and {200, 500} == set(found[0])


class TestStubs:
    """Responses for routes that the service does not have."""

    def test_it_responds(self, space: Space, other: Space) -> None:
        """In the place of another service: without a key, in any version; the last one that fits; until a reset."""
        with frozen(AUTH="required", ADMIN_KEY=ADMIN_KEY) as closed:
            closed.stub("GET", "/rates", json={"EUR": Decimal("1.10")})
            assert closed.client.get("/rates").text == '{"EUR":1.10}'
            assert closed.client.get("/products").status_code == 401
        assert space.client.get("/rates").status_code == 404
        space.stub("GET", "/rates*", json=[], headers={"ETag": '"1"', "X-Request-Id": "own"})
        space.stub("POST", "/rates", status=204)
        space.stub("GET", "/rates", text="a,b", content_type="text/csv", request_headers={"Accept": "text/csv"})
        for path, accept, text in [("/api/v1/rates", "text/csv", "a,b"), ("/rates?a", "", "[]")]:
            answer = space.client.get(path, headers={"Accept": accept})
            assert (answer.status_code, answer.text) == (200, text)
            assert answer.headers.getlist("X-Request-Id") == (["own"] if text == "[]" else [ANY])
        assert answer.headers["ETag"] == '"1"' and answer.content_type == "application/json"
        assert space.client.post("/rates", json={"a": 1}).status_code == 204
        space.stub("PUT", "/rates"), space.stub("OPTIONS", "/rates", headers={"Access-Control-Allow-Headers": "*"})
        page = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "PUT"}
        answer = space.client.options("/rates", headers=page)
        assert answer.headers["Access-Control-Allow-Origin"] == page["Origin"] and answer.status_code == 200
        assert space.client.put("/rates").data == b"" and answer.headers["Access-Control-Allow-Headers"] == "*"
        assert [each.path for each in space.unmatched] == ["/rates"] and other.client.get("/rates").status_code == 404
        space.reset()
        assert space.client.get("/rates").status_code == 404

    def test_contents(self, space: Space, tmp_path: Path) -> None:
        """Null is JSON; bytes and files are as they are, files of the type that their name has."""
        (tmp_path / "logo.png").write_bytes(b"\x89PNG")
        space.folder = tmp_path
        space.stub("GET", "/null", json=None), space.stub("GET", "/bytes", bytes=b"\xff\x00")
        space.stub("GET", "/file", file="logo.png"), space.stub("GET", "/csv", file="logo.png", content_type="text/csv")
        space.faults.respond("GET", "/products", 500, json=None)
        for path, content, kind in [
            ("/null", b"null", "application/json"), ("/bytes", b"\xff\x00", "application/octet-stream"),
            ("/file", b"\x89PNG", "image/png"), ("/csv", b"\x89PNG", "text/csv"),
            ("/products", b"null", "application/json"),
        ]:  # fmt: skip
            answer = space.client.get(path)
            assert (answer.data, answer.content_type) == (content, kind)

    def test_fields_of_one_name(self, space: Space) -> None:
        """An array of them: two cookies."""
        space.stub("GET", "/rates", headers={"Set-Cookie": ["a=1", "b=2"], "X-A": "b"})
        assert space.client.get("/rates").headers.getlist("Set-Cookie") == ["a=1", "b=2"]
        shown = space.requests()[0].response_headers
        assert (shown["Set-Cookie"], shown["X-A"]) == ("a=1, b=2", "b")

    def test_by_query_and_content(self, space: Space) -> None:
        """Parameters are values, in any order and coding; of a content in part, objects may have more."""
        space.stub("GET", "/rates", json="all")
        space.stub("GET", "/rates", json=1, request_query={"to": "a b", "n": 1})
        space.stub("GET", "/rates", json="two", request_query={"to": ["x", "y"], "at": None})
        space.stub("POST", "/rates", json="part", request_json={"a": [{"b": 1}]}, partial=True)
        space.stub("POST", "/rates", json="whole", request_json={"a": [{"b": 1}]})
        for query, found in [
            ("", "all"), ("?to=a+b", "all"), ("?n=1&more=&to=a%20b", 1), ("?to=a+b&n=1", 1), ("?to=x&to=y", "two"),
            ("?to=y&to=x", "all"), ("?to=x&to=y&at=1", "all"),
        ]:  # fmt: skip
            assert space.client.get(f"/rates{query}").json == found
        for sent, found in [({"a": [{"b": 1}]}, "whole"), ({"a": [{"b": 1.0, "c": 2}], "d": 3}, "part")]:
            assert space.client.post("/rates", json=sent).json == found
        for sent in ({"a": [{"b": True}]}, {"a": [{"b": 1}, {}]}, {"a": []}, None):
            assert space.client.post("/rates", json=sent).status_code == 404

    def test_a_request_that_asks_before_its_content(self, space: Space) -> None:
        """As curl does: it is asked, where a stub depends on that."""
        space.stub("POST", "/rates", json="it", request_json={"a": 1})
        sent = {"json": {"a": 1}, "headers": {"Expect": "100-continue"}}
        assert space.client.post("/rates", **sent).json == "it"

    def test_what_it_is_not_for(self, space: Space) -> None:
        """The 404 at its path names the stub, and where the request differs."""
        space.stub("GET", "/rates", json=1, request_query={"to": "EUR"})
        for method, path, wrong in [
            ("POST", "/rates", "its method is POST, not GET"),
            ("GET", "/rates?to=USD", "its parameter to is USD, not EUR"),
            ("GET", "/rates", "its parameter to is left out, not EUR"),
        ]:
            answer = space.client.open(path, method=method)
            detail = f"no route, and the stub GET /rates is not for this request: {wrong}"
            assert (answer.status_code, answer.json["detail"]) == (404, detail)
        assert len(space.unmatched) == 3 and "stub" not in space.client.get("/other").json["detail"]
        space.stub("GET", "/*")
        assert space.client.delete("/products").status_code == 405

    def test_with_faults(self, space: Space) -> None:
        """Those of a stub's path can be declared, and go first."""
        with pytest.raises(ValueError, match="is no route, no stub"):
            space.faults.close("GET", "/rates/1")
        space.stub("GET", "/rates/*", json=1)
        space.faults.respond("GET", "/rates/1", 500, times=1), space.faults.drop_response("GET", "/rates/1", times=1)
        assert space.client.get("/rates/1").status_code == 500 and space.client.get("/rates/2").json == 1
        with pytest.raises(ConnectionAbortedError):
            space.client.get("/rates/1")
        assert space.client.get("/rates/1").json == 1 and space.faults.unmet == []

    def test_routes_of_the_service_stay(self, space: Space) -> None:
        """They are refused, and a pattern leaves them alone; another method of the path can be a stub."""
        for method, path in [("GET", "/products"), ("*", "/products/1"), ("PATCH", "/api/v1/products/1")]:
            with pytest.raises(ValueError, match="#/path.*is a route of the service, which a fault can respond for"):
                space.stub(method, path, json=1)
        space.stub("*", "/*", json=1), space.stub("DELETE", "/products", json=2)
        assert space.client.get("/products").json == [] and space.client.get("/x").json == 1
        assert space.client.delete("/products").json == 2


class TestJournal:
    """What a space was asked for, and what it responded."""

    def test_its_entries(self, space: Space) -> None:
        """A request with all it had, its response, and the fault that it met."""
        space.clock.freeze("2026-01-01T00:00:00Z")
        space.faults.respond("POST", "/products", 500, skip=1, times=1), space.faults.close("DELETE", "*")
        for name in ("", "Bert"):
            space.client.post("/products?a=b", json={"name": name}, headers={"X-Client": "x"})
        with pytest.raises(ConnectionAbortedError):
            space.client.delete("/products/1")
        space.client.post("/none", json=[1])
        one, two, three, four = space.requests()
        assert (one.number, one.method, one.path, one.query, one.at) == (1, "POST", "/products", "a=b", START)
        assert one.headers["X-Client"] == "x" and json.loads(one.body) == {"name": ""} and one.ms >= 0
        assert (one.status, one.fault, one.matched) == (422, None, True)
        assert one.response_headers["Content-Type"] == "application/problem+json" and json.loads(one.response)
        assert (two.status, two.fault, json.loads(two.body)) == (500, "respond", {"name": "Bert"})
        assert (three.status, three.fault, three.response, three.response_headers) == (None, "close", "", {})
        assert (four.status, four.matched, four.body) == (404, False, "[1]")
        assert [each.path for each in space.unmatched] == ["/none"]
        assert [each.number for each in space.requests(method="post", path="/pr*")] == [1, 2]
        assert [each.number for each in space.requests(limit=1)] == [4]

    def test_it_is_cleared_alone(self, space: Space) -> None:
        """Faults, stubs, clock and data stay; the next request is number 1, and those before count nothing."""
        space.stub("GET", "/rates"), create(space, "Anna"), space.client.get("/rates")
        space.clear_requests()
        assert space.requests() == [] and names(space) == ["Anna"] and space.client.get("/rates").status_code == 200
        assert [each.number for each in space.requests()] == [1, 2]
        space.assert_requested("*", "*", times=2), space.assert_requested("POST", "/products", times=0)

    def test_how_many_were_expected(self, space: Space) -> None:
        """At least, at most, or both; without a number one, and with at most alone also none."""
        names(space), names(space)
        check = space.assert_requested
        for numbers in ({"at_least": 2}, {"at_most": 2}, {"at_least": 1, "at_most": 3}):
            check("GET", "/products", **numbers)
        check("PUT", "/products", at_most=1)
        for numbers, amount in [
            ({"at_least": 3}, "at least 3"), ({"at_most": 1}, "at most 1"), ({"at_least": 3, "at_most": 4}, "3 to 4"),
            ({"at_least": 0, "at_most": 0}, "0"), ({"at_least": 0, "at_most": 1}, "at most 1"),
        ]:  # fmt: skip
            with pytest.raises(AssertionError, match=f"^{amount} GET /products expected, and 2 found$"):
                check("GET", "/products", **numbers)

    def test_what_a_request_had(self, space: Space) -> None:
        """Parameters as values, header fields, and a part of the content."""
        sent = {"json": {"name": "Anna", "attributes": {"a": 1, "b": [1, {"c": 2}]}}, "headers": {"X-Client": "web 1"}}
        space.client.post("/products?sort=b+c&sort=d&limit=5&is=true", **sent)

        def check(message: str = "", **expected: Any) -> None:
            with pytest.raises(AssertionError, match=f": {message}$") if message else nullcontext():
                space.assert_requested("POST", "/products", **expected)

        check(query={"limit": 5, "sort": ["b c", "d"], "is": True, "none": None}), check(query={"sort": ["b*", "d"]})
        check("its parameter sort is b c, d, not d", query={"sort": "d"})
        check("its parameter limit is 5, not left out", query={"limit": None})
        check(headers={"x-client": "web*", "X-None": None})
        check("its field X-None is left out, not a", headers={"X-None": "a"})
        check(json={"attributes": {"b": [1, {}]}}, partial=True)
        unlike = {"attributes": {"b": [], "d": None}}
        check("#/attributes/b is .*, not .*; #/attributes/d is left out, not null", json=unlike, partial=True)

    def test_requests_that_are_waited_for(self, space: Space) -> None:
        """As long as it is to be; it ends as soon as all is as expected."""
        sending = Thread(target=lambda: [until(space.requests), names(space), create(space, "Anna")])
        sending.start()
        space.client.get("/parts")
        begun = time.monotonic()
        space.assert_requested("GET", "/products", times=1, within=30)
        space.assert_requested("POST", "/products", within=30)
        assert time.monotonic() - begun < 25
        join(sending)
        with pytest.raises(AssertionError, match="2 GET /products expected, and 1 found"):
            space.assert_requested("GET", "/products", times=2, within=0.05)
        with pytest.raises(ValueError, match="#/within"):
            space.assert_requested("GET", "/products", within=31)

    def test_content_that_the_server_refuses(self, space: Space) -> None:
        """It has its response and its entry: a server closes what is no content, such as a chunk without a size."""

        class Refused(io.RawIOBase):
            def readable(self) -> bool:
                return True

            def readinto(self, buffer: Any) -> int:
                self.close()
                raise OSError("not valid in chunks")

        chunked = {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
        sent = {"CONTENT_TYPE": "application/json", "wsgi.input": io.BufferedReader(Refused()), **chunked}
        assert space.client.post("/products", environ_overrides=sent).status_code == 400
        assert [(each.status, each.body) for each in space.requests()] == [(400, "")]

    def test_what_was_expected(self, space: Space) -> None:
        """How often there was such a request; if not, the message has the nearest one, and where it differs."""
        sent = {"name": "Anna", "attributes": {"a": [1, 1.1, True]}}
        for _ in range(2):
            space.client.post("/products?a=b&a=c", json=sent, headers={"X-Client": "web 1"})
        space.client.get("/products"), space.client.put("/products/1", data=b"{")
        check = space.assert_requested
        check("post", "/products", times=2, json=sent), check("POST", "/products?a=b*", times=2)
        (
            check("GET", "/products?"),
            check("GET", "/products"),
            check("*", "/product*", times=4),
            check("DELETE", "/products", times=0),
        )
        post = "a POST /products expected, and 0 found; the nearest is number 2, POST /products 200: "
        unlike = {"name": "Anna", "attributes": {"a": [True, 1.10, 1], "b": {}}}
        differs = "#/attributes/a/0 is 1, not true; #/attributes/a/2 is true, not 1; #/attributes/b is left out, not {}"
        whole = '# is {"attributes":{"a":[1,1.1,true]},"name":"Anna"}, not []'
        for wanted, message in [(unlike, differs), ([], whole)]:
            with pytest.raises(AssertionError, match=f"{re.escape(post + message)}$"):
                check("POST", "/products", json=wanted)
        with pytest.raises(AssertionError, match="^1 POST /products expected, and 2 found$"):
            check("POST", "/products", times=1)
        with pytest.raises(AssertionError, match="is number 4, PUT /products/1 415: its content is no JSON"):
            check("PUT", "/products/*", json={})
        space.client.get("/products?age[gte]=3&name=a?"), space.client.get("/products/[a]")
        for path in ("/products?age[gte]=*", "/products?age[gte]=3&name=a?", "/products/[a]"):
            check("GET", path, times=1)
        check("GET", "/products?age[get]=3&name=ab", times=0), check("GET", "/products/a", times=0)
        with pytest.raises(AssertionError, match="POST /products 200: its query is 'a=b&a=c', not 'a=d'$"):
            check("POST", "/products?a=d")
        space.reset()
        with pytest.raises(AssertionError, match="a GET /products expected, and 0 found$"):
            check("GET", "/products")

    def test_paths(self, space: Space) -> None:
        """In any version and any language, as those of faults; what could be none is refused."""
        space.faults.respond("GET", "/products/Zoë*", 500)
        for path, status in [("/api/v1/products/Zoë", 500), ("/products/Zoë", 500), ("/products/Zo", 404)]:
            assert space.client.get(path).status_code == status
        assert [each.number for each in space.requests(path="/products/Zoë")] == [1, 2]
        space.faults.respond("GET", "/products/a%20b", 502)
        assert space.client.get("/products/a%20b").status_code == 502
        for path in ("/products/a b", "/products/a%20b", "/products/Zo%C3%AB", "/products/Zoë"):
            space.assert_requested("GET", path)
        with pytest.raises(AssertionError, match="number 4, GET .* 502: its path is /products/a%20b, not /a b$"):
            space.assert_requested("GET", "/a b")
        with pytest.raises(ValueError, match="must begin with"):
            space.requests(path="products")
        with pytest.raises(ValueError, match="must begin with"):
            space.faults.close("GET", "products")


@pytest.mark.needs("webhooks")
class TestWebhooks:
    """What a space sends is caught, without a server."""

    def test_those_that_are_waited_for(self, space: Space, other: Space) -> None:
        """Also those from before the first wait; so many of a type, or those after one that a test has."""
        first = (create(space, "Anna"), space.webhooks.wait("product.created"))[1]
        with pytest.raises(AssertionError, match="^1 of 2 deliveries of .* in 0.01 s; there are: .'product.created'.$"):
            space.webhooks.wait("product.created", 0.01, times=2)
        with pytest.raises(AssertionError, match="^no delivery of product.created"):
            space.webhooks.wait("product.created", after=first)
        create(space, "Bert"), create(space, "Carl")
        found = space.webhooks.wait("product.created", times=3)
        assert [each.body["data"]["name"] for each in found] == ["Anna", "Bert", "Carl"]
        assert [each.number for each in space.webhooks.wait("*", times=1, after=first)] == [2, 3]
        assert space.webhooks.wait("product.created", after=found[1]).body["data"]["name"] == "Carl"
        assert other.webhooks.deliveries() == []

    def test_seeds_are_no_news(self, space: Space) -> None:
        """A test waits for what it did: not for seeds, nor for what was before a snapshot is restored."""
        space.seed(SEED)
        create(space, "Bert"), space.webhooks.respond(500)
        assert [sent.body["data"]["name"] for sent in space.webhooks.deliveries()] == ["Bert"]
        space.reset(), create(space, "Carl"), space.restore(space.snapshot())
        assert space.webhooks.deliveries() == []

    def test_deliveries_come_in_order(self, server: LiveServer) -> None:
        """One after another, and again at the same times in each run."""
        runs: list[Any] = []
        for _ in range(2):
            with server.space(random=1) as space:
                space.clock.freeze(START)
                subscribe(space, "product.*")
                for name in "abcdef":
                    create(space, name)
                space.webhooks.respond(200, 500), space.clock.advance(hours=1)
                sent = space.webhooks.deliveries("product.*")
                runs.append(
                    [(each.body["data"]["name"], each.headers["webhook-timestamp"], each.status) for each in sent]
                )
        assert runs[0] == runs[1] and "".join(name for name, *_ in runs[0]) == "abcdefb"

    def test_a_paused_webhook_does_not_hold_the_clock(self, space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its delivery stays due, and those of others are sent at their times."""
        monkeypatch.setattr(harness_webhooks, "LONGEST_SECONDS", 1e9)  # what waits for it would not end
        subscribe(space, "product.created"), space.webhooks.respond(500)
        create(space, "Anna"), space.webhooks.deliveries()
        (hook,) = space.client.get("/api/v1/webhooks").json
        address = f"/api/v1/webhooks/{hook['id']}"
        assert space.client.patch(address, json={"status": "paused"}).status_code == 200
        space.clock.advance(hours=1)
        assert len(space.webhooks.deliveries()) == 1
        assert space.client.patch(address, json={"status": "active"}).status_code == 200
        assert [sent.status for sent in space.webhooks.deliveries()] == [500, 200]

    def test_webhooks_of_the_test(self, space: Space) -> None:
        """Endpoints on this machine get them, and their own responses count; others are never called."""
        with socket.create_server(("127.0.0.1", 0)) as closed:
            url = f"http://127.0.0.1:{closed.getsockname()[1]}/hook"
        assert space.client.post("/api/v1/webhooks", json={"url": url, "types": ["*"]}).status_code == 200
        subscribe(space, "part.created"), space.seed(SEED)
        sent = space.webhooks.deliveries()
        found = {(each.type, each.url, each.status) for each in sent}
        assert found == {("product.created", url, None), ("part.created", url, None), ("part.created", HOOK, 200)}

    def test_responses_in_place_of_an_endpoint(self, server: LiveServer) -> None:
        """One on this machine does not get what has such a response, but the next attempt."""
        with serving(OK) as endpoint, server.space() as space:
            space.client.post("/api/v1/webhooks", json={"url": endpoint.url})
            space.webhooks.respond(500), create(space, "Anna"), space.clock.advance(minutes=1)
            assert [sent.status for sent in space.webhooks.deliveries()] == [500, 200]
            assert len(endpoint.requests) == 1

    def test_what_a_receiver_verifies(self, server: LiveServer) -> None:
        """With its own clock, also after the space's has moved, and while a former secret still signs."""
        with serving(OK) as endpoint, server.space() as space:
            space.clock.freeze("2031-01-01T00:00:00Z")
            hook = space.client.post("/api/v1/webhooks", json={"url": endpoint.url}).json
            rotated = space.client.post(f"/api/v1/webhooks/{hook['id']}/rotate").json
            create(space, "Anna")
            space.webhooks.wait("product.created")
            head, _, body = endpoint.requests[0].decode().partition("\r\n\r\n")
            sent = {name.lower(): value for name, value in (line.split(": ", 1) for line in head.splitlines()[1:])}
            for secret in (hook["secret"], rotated["secret"]):
                Webhook(secret).verify(body, sent)

    def test_a_service_without_webhooks(self, tmp_path: Path) -> None:
        """Says so; all else works."""
        (tmp_path / "app.py").write_text(
            "import restkeeper\ncreate_app = lambda given=None: restkeeper.create_app(given, [], without={'webhooks'})"
        )
        with LiveServer(tmp_path, in_process=True) as server, server.space() as space:
            with pytest.raises(ValueError, match="has no webhooks"):
                space.webhooks.deliveries()
            assert space.clock.advance(hours=1) and space.client.get("/").status_code == 200
