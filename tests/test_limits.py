"""Rate limits: how callers are counted, what responses say, and how Redis is used."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper import clock as clocks
from restkeeper.config import Config, ConfigError
from restkeeper.features import limits
from restkeeper.features.limits import CLOCKS_DIFFER, Quota
from restkeeper.features.limits.counters import RETRY_SECONDS, CounterTable, RedisOrOwn, open_counters
from restkeeper.service import service_of
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.web import errors, observe
from restkeeper.web.application import Application
from tests.clock import SetClock
from tests.redis_server import Redis, RedisServer
from tests.shop import create_app, take_part
from tests.waiting import join

QUOTA_EXCEEDED = "/problems/quota-exceeded"
QUOTAS = {"read": "3 per minute", "write": "2 per minute"}
HEADERS = ("RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")


NOW = 1_000_000.9  # a window of a minute has 20 s left


def limited(
    quotas: dict[str, str] = QUOTAS,
    *,
    now: Callable[[], float] = lambda: NOW,
    table: CounterTable | None = None,
    redis_url: str = "",
    clock: clocks.Clock = time,
) -> FlaskClient:
    app = Application("limited")
    observe.install(app, None)
    errors.install(app)
    each = open_counters(app, table or CounterTable(), redis_url, clock=clock)
    made = {name: Quota(name, text, each, now=now) for name, text in quotas.items()}
    take_part(app, limits.limit_requests(made, is_limited=lambda endpoint: endpoint != "probe"))
    app.add_url_rule("/", "index", lambda: "here", methods=["GET", "POST", "DELETE"])
    app.add_url_rule("/probe", "probe", lambda: "well")
    return app.test_client()


def admitted(client: FlaskClient, count: int = 10, **options: Any) -> int:
    return [client.get("/", **options).status_code for _ in range(count)].count(200)


def test_reads_and_writes_are_counted_separately() -> None:
    client = limited()
    reads = [client.open("/", method=method).status_code for method in ("GET", "HEAD", "OPTIONS", "GET")]
    writes = [client.open("/", method=method).status_code for method in ("POST", "DELETE", "POST")]
    assert (reads, writes) == ([200, 200, 200, 429], [200, 200, 429])


def test_every_response_has_the_remaining_quota() -> None:
    """RateLimit-Policy has the quotas, RateLimit that of the request; the older headers have the same values."""
    client = limited()
    client.get("/")
    response = client.get("/")
    assert {name: response.headers[name] for name in HEADERS} == {
        "RateLimit-Policy": '"read";q=3;w=60, "write";q=2;w=60',
        "RateLimit": '"read";r=1;t=20',
        "X-RateLimit-Limit": "3",
        "X-RateLimit-Remaining": "1",
        "X-RateLimit-Reset": "1000020",
    }
    assert client.post("/").headers["RateLimit"] == '"write";r=1;t=20'


def test_errors_are_counted_like_other_requests() -> None:
    client = limited({"read": "5 per minute", "write": "5 per minute"})
    sent = [("GET", "/nothing", 404), ("PUT", "/", 405), ("POST", "/probe", 405)]
    responses = [client.open(path, method=method) for method, path, _ in sent]
    assert [response.status_code for response in responses] == [status for _, _, status in sent]
    assert [response.headers["X-RateLimit-Remaining"] for response in responses] == ["4", "4", "3"]
    client = limited()
    responses = [client.get("/probe") for _ in range(10)]
    assert {response.status_code for response in responses} == {200}
    assert not any(name in responses[-1].headers for name in HEADERS)
    assert admitted(client) == 3


def test_a_429_is_the_quota_exceeded_problem() -> None:
    """It has the quota's name, and a Retry-After at the end of the window; it is not cached."""
    client = limited()
    response = [client.post("/") for _ in range(3)][-1]
    assert response.status_code == 429 and response.content_type == "application/problem+json"
    assert response.json["type"] == QUOTA_EXCEEDED
    assert response.json["violated-policies"] == ["write"]
    assert response.json["title"] and "2 write requests in 60 s" in response.json["detail"]
    assert response.headers["Retry-After"] == "20" and response.headers["RateLimit"] == '"write";r=0;t=20'
    assert response.headers["Cache-Control"] == "no-store"


def test_the_next_window_has_the_whole_quota() -> None:
    """It begins exactly at the time of Retry-After."""
    clock = SetClock(NOW)
    client = limited(now=clock.time)
    assert admitted(client) == 3
    clock.now = 1_000_019.99
    assert admitted(client) == 0
    assert client.get("/").headers["Retry-After"] == "1"
    clock.now = 1_000_020.0
    assert client.get("/").headers["RateLimit"] == '"read";r=2;t=60'


def test_a_caller_is_an_address_or_a_network_of_ipv6() -> None:
    """IPv4 addresses are counted each, those of IPv6 by their /64, an IPv4-mapped one as IPv4."""
    pairs = {
        ("192.0.2.1", "192.0.2.2"): False,
        ("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"): True,
        ("2001:db8::1", "2001:db8:0:1::1"): False,
        ("::ffff:192.0.2.1", "192.0.2.1"): True,
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2"): False,
        ("fe80::1%eth0", "fe80::2%eth0"): True,
        ("unix:", "unix:"): True,
    }
    found = {}
    for pair in pairs:
        client = limited()
        first, second = (admitted(client, environ_base={"REMOTE_ADDR": address}) for address in pair)
        assert first == 3
        found[pair] = second == 0
    assert found == pairs


def test_a_site_of_ipv6_has_a_quota_as_a_whole() -> None:
    """All networks of a /48 have sixteen quotas together, so that one site cannot fill the table."""
    client = limited()
    keys: list[str] = []
    (limiter,) = client.application.extensions["limiter"]
    incr = limiter.storage.incr
    limiter.storage.incr = lambda key, *rest: keys.append(key) or incr(key, *rest)
    networks = [f"2001:db8:0:{n:x}::1" for n in range(100)]
    statuses = [admitted(client, 1, environ_base={"REMOTE_ADDR": each}) for each in networks]
    assert statuses == [1] * 48 + [0] * 52
    assert (len(set(keys)), len(keys)) == (49, 148)
    last = client.get("/", environ_base={"REMOTE_ADDR": networks[0]})
    assert (last.status_code, last.headers["RateLimit"]) == (429, '"read";r=0;t=20')
    assert admitted(client, environ_base={"REMOTE_ADDR": "2001:db8:1::1"}) == 3
    client = limited()
    for n in range(46):
        client.get("/", environ_base={"REMOTE_ADDR": f"2001:db8:0:{n:x}::1"})
    last = client.get("/", environ_base={"REMOTE_ADDR": "2001:db8:0:ff::1"})
    assert (last.status_code, last.headers["RateLimit"]) == (200, '"read";r=1;t=20')


def test_quotas_of_different_windows_do_not_mix(redis: Redis) -> None:
    table = CounterTable()
    one, other = limited(table=table), limited({"read": "5 per 10 seconds"}, table=table)
    assert (admitted(one), admitted(other)) == (3, 5)
    one, other = (limited(redis_url=redis.url) for _ in range(2))
    assert (admitted(one, 2), admitted(other)) == (2, 1)


@pytest.mark.needs("health", "limits", "metrics")
def test_the_service_is_limited_as_configured() -> None:
    """Also requests that are refused early; not health, readiness and metrics. By default nothing is."""
    assert "RateLimit-Policy" not in create_app(Config()).test_client().get("/products").headers
    client = create_app(Config(rate_limit="5 per day", rate_limit_write="off")).test_client()
    assert client.get("/products").headers["RateLimit-Policy"] == '"read";q=5;w=86400'
    assert "RateLimit" in client.get("/products", headers={"Host": "not a host"}).headers
    assert [client.get("/api/v1/users").status_code for _ in range(4)] == [200, 200, 200, 429]
    for path in ("/healthz", "/readyz", "/metrics"):
        assert "RateLimit-Policy" not in client.get(path).headers
    assert client.post("/products", json={"name": "x"}).status_code == 200
    assert client.get("/problems/quota-exceeded").status_code == 429


@pytest.mark.needs("keys", "limits")
def test_an_unknown_caller_is_limited_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store fails, a request with a key returns 503; its address is still limited."""
    app = create_app(Config(auth="required", rate_limit="1 per minute"), clock=SetClock())

    def fail(*_: object) -> None:
        raise StoreUnavailable("busy")

    for name in ("read", "look_up"):
        monkeypatch.setattr(service_of(app).store, name, fail)
    headers = {"X-API-Key": "rk_0123456789abcdef_x"}
    assert [app.test_client().get("/products", headers=headers).status_code for _ in range(2)] == [503, 429]


def test_quotas_have_the_syntax_of_the_library() -> None:
    """The library parses each quota that the configuration accepts; for another the message says what is allowed."""
    for text in ("600 per minute", "1/second", "50 per 10 seconds", "10 per 2 hours", "9/day"):
        assert Config(rate_limit=text).quotas == {"read": text, "write": text}
        assert limited({"read": text}).get("/").status_code == 200
    for text in ("600", "0 per minute", "-1 per day", "5 per year", "1/second;5/minute", "often", " "):
        for key in ("RATE_LIMIT", "RATE_LIMIT_WRITE"):
            with pytest.raises(ConfigError, match=f"{key}='{text}': must be off, or how many per second"):
                Config.from_env({key: text})
    assert Config(rate_limit_write="1/day").quotas == {"write": "1/day"}
    assert Config(rate_limit="2/day", rate_limit_write="off").quotas == {"read": "2/day"}
    assert Config(rate_limit="2/day", rate_limit_write="1/day").quotas == {"read": "2/day", "write": "1/day"}


def test_a_check_is_one_round_trip(redis: Redis) -> None:
    """A request is one command to Redis, once the script is loaded and the connection is open."""
    client = limited(redis_url=redis.url)
    client.get("/")
    before = redis.calls()
    admitted(client, 10)
    after = redis.calls()
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert grown.pop("info") == 1
    assert grown.pop("incrby") == 10  # called by the script, inside Redis
    assert grown == {"evalsha": 10}
    limited(redis_url=redis.url).get("/")
    (key,) = redis.client.keys()
    assert 20 < redis.client.ttl(key) <= 20 + CLOCKS_DIFFER


def test_a_lost_redis_connection_is_tried_once() -> None:
    """A request does not try a second time: the local limits are used instead."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        attempts: list[int] = []

        def hang_up() -> None:
            with suppress(OSError):  # the end of the test
                while True:
                    connection, _ = server.accept()
                    attempts.append(1)
                    connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        client = limited(redis_url=f"redis://127.0.0.1:{server.getsockname()[1]}")
        attempts.clear()
        status = client.get("/").status_code
        server.shutdown(socket.SHUT_RDWR)
        join(thread)
    assert (status, len(attempts)) == (200, 1)


def test_without_redis_limits_are_local(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so once; then Redis counts again."""
    clock = SetClock(0.0)
    client = limited(redis_url=redis_server.url, clock=clock)
    assert admitted(client, 2) == 2
    redis_server.stop()
    assert admitted(client) == 3
    clock.now += RETRY_SECONDS + 1
    assert admitted(client) == 0
    redis_server.start()
    assert admitted(client) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Redis does not respond" in caplog.text
    clock.now += RETRY_SECONDS + 1
    assert admitted(client) == 3  # a restarted Redis
    assert ["Redis responds again" in record.message for record in caplog.records] == [False, True]
    assert redis_server.calls()["incrby"] == 10


def test_one_request_at_a_time_retries_a_failed_redis() -> None:
    """The other requests of those seconds do not wait for it."""
    attempts: list[str] = []

    class Gone:
        base_exceptions = OSError

        def incr(self, key: str, expiry: int, amount: int = 1) -> int:
            attempts.append(key)
            if len(attempts) > 1:
                shared.incr("meanwhile", 60)
            raise OSError("gone")

    class Own:
        def incr(self, key: str, expiry: int, amount: int = 1) -> int:
            return 1

    clock = SetClock(0.0)
    shared = RedisOrOwn(Gone(), Own(), clock.monotonic)  # type: ignore[arg-type]
    for _ in range(5):
        shared.incr("first", 60)
    clock.now += RETRY_SECONDS
    for _ in range(5):
        shared.incr("second", 60)
    assert attempts == ["first", "second"]
