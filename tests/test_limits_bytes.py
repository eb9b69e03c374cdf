"""Quotas of bytes that a caller's writes may store: what is counted, refused, and reported in headers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config, ConfigError
from restkeeper.features.limits import requests as limits
from restkeeper.features.limits.counters import Quota, Use, open_counters
from restkeeper.resources.changes import add_written
from restkeeper.service import service_of
from restkeeper.storage.contract import Transaction
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.web import errors, observe
from restkeeper.web.application import Application, Reply
from tests.shop import create_app

pytestmark = pytest.mark.needs("keys", "limits")

ADMIN_KEY = "an-admin-key-of-enough-characters"
ADMIN = {"X-API-Key": ADMIN_KEY}
DAY = 86400


def service(quota: str = "100000 per day", **settings: Any) -> FlaskClient:
    given = {"auth": "required", "admin_key": ADMIN_KEY, "write_bytes": quota, **settings}
    return create_app(Config(**given)).test_client()


def left(response: Any) -> int:
    """The remaining bytes in a response's headers."""
    fields = [part for part in response.headers["RateLimit"].split(", ") if part.startswith('"write-bytes";r=')]
    return int(fields[0].split(";")[1].removeprefix("r="))


def used(client: FlaskClient, method: str, path: str, body: Any = None, **headers: str) -> int:
    """The bytes that a request has counted; they must equal the committed bytes."""
    before = left(client.delete("/products/none", headers=ADMIN))
    response = client.open(path, method=method, json=body, headers=ADMIN | headers)
    assert response.status_code == 200, response.text
    return before - left(response)


def make(client: FlaskClient, **fields: Any) -> tuple[str, int]:
    """Create an item; its path and its size."""
    response = client.post("/products", json={"name": "x", **fields}, headers=ADMIN)
    assert response.status_code == 200, response.text
    return response.headers["Location"], len(response.data)


@pytest.mark.needs("events")
def test_stored_bytes_are_counted() -> None:
    """An item and its event; for a deletion only the event."""
    client = service()
    path, size = make(client)
    assert used(client, "POST", "/products", {"name": "y"}) == 2 * size
    changed = len(client.patch(path, json={"name": "a longer name"}, headers=ADMIN).data)
    assert used(client, "PUT", path, {"name": "a longer nome"}) == 2 * changed
    assert used(client, "PATCH", path, {"name": "a longer nome"}) == 0  # it changes nothing
    assert used(client, "DELETE", path) == changed


@pytest.mark.needs("idempotency")
def test_a_stored_response_is_counted_once() -> None:
    """A POST with an idempotency key stores its response, too; a replay adds nothing."""
    client = service()
    _, size = make(client)
    first = used(client, "POST", "/products", {"name": "y"}, Idempotency_Key="k") - 3 * size
    assert 0 < first < 1000  # the size of the response's head
    assert used(client, "POST", "/products", {"name": "y"}, Idempotency_Key="k") == 0


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [({"name": ""}, {}, 422), ({"name": "x"}, {"If-Match": '"no"'}, 412), ({"name": "x", "sku": "taken"}, {}, 409)],
)
def test_a_refused_write_counts_no_bytes(body: Any, headers: dict[str, str], status: int) -> None:
    """Also if it is refused in the middle of its transaction."""
    client = service()
    client.post("/products", json={"name": "x", "sku": "taken"}, headers=ADMIN)
    before = left(client.delete("/products/none", headers=ADMIN))
    response = client.post("/products", json=body, headers=ADMIN | headers)
    assert (response.status_code, left(response)) == (status, before)


@pytest.mark.needs("idempotency")
def test_a_rolled_back_write_counts_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that fails after its response, item and event were written has stored nothing."""

    client = service()
    store = service_of(client.application).store
    write = store.write

    def fail(work: Callable[[Transaction], Any], **options: Any) -> None:
        def fail_late(transaction: Transaction) -> None:
            work(transaction)
            raise StoreUnavailable("the disk is gone")

        write(fail_late, **options)

    before = left(client.delete("/products/none", headers=ADMIN))
    monkeypatch.setattr(store, "write", fail)
    response = client.post("/products", json={"name": "x"}, headers=ADMIN | {"Idempotency-Key": "k"})
    assert (response.status_code, left(response)) == (503, before)


def test_beyond_the_quota_writes_are_refused_and_reads_are_not() -> None:
    """The write that exceeds it succeeds, because it is counted when it is stored; the next one returns 429."""
    client = service("500 per day")
    path, _ = make(client)
    assert left(client.post("/products", json={"name": "x"}, headers=ADMIN)) == 0
    count = client.get("/products", headers=ADMIN).headers["X-Total-Count"]
    for method, where in (("POST", "/products"), ("PUT", path), ("PATCH", path)):
        response = client.open(where, method=method, json={"name": "x"}, headers=ADMIN)
        assert (response.status_code, response.json["violated-policies"]) == (429, ["write-bytes"])
        assert response.json["type"].endswith("#quota-exceeded") and 0 < int(response.headers["Retry-After"]) <= DAY
    assert client.get("/products", headers=ADMIN).headers["X-Total-Count"] == count
    assert client.delete(path, headers=ADMIN).status_code == 200  # it frees space


def test_a_process_knows_other_counts_after_a_write(tmp_path: Path) -> None:
    """It knows the bytes that another process counted after its own next count."""
    one, other = (service("500 per day", database_url=f"sqlite:///{tmp_path}/a.db") for _ in range(2))
    make(one)
    assert left(one.post("/products", json={"name": "x"}, headers=ADMIN)) == 0
    statuses = [each.post("/products", json={"name": "x"}, headers=ADMIN).status_code for each in (one, other, other)]
    assert statuses == [429, 200, 429]


def writing(now: list[float], keys: list[tuple[str, ...]], lookups: list[str] | None = None) -> FlaskClient:
    """A client of an application with a quota of 5 bytes, whose POST writes 9. The caller has the last of `keys`."""
    app = Application("limited", static_folder=None)
    quota = Quota("write-bytes", "5 per minute", open_counters(app), now=lambda: now[0])
    look = quota.look

    def look_and_record(keys: tuple[str, ...]) -> Use:
        if lookups is not None:
            lookups.append(keys[0])
        return look(keys)

    quota.look = look_and_record  # type: ignore[method-assign]
    observe.install(app, None)
    errors.install(app)
    limits.limit_requests(app, {}, write_bytes=quota, identify=lambda _: keys[-1])
    app.add_url_rule("/", "write", lambda: (add_written(9), Reply(b"{}"))[1], methods=["POST"])
    return app.test_client()


def test_networks_of_a_site_share_their_bytes() -> None:
    """Many networks of one site, with one write each, store no more than the site may."""
    keys: list[tuple[str, ...]] = []
    client = writing([86400.0], keys)
    found = []
    for n in range(30):
        keys.append((f"network {n}", "site"))
        found.append(client.post("/").status_code)
    assert found == [200] * 9 + [429] * 21  # 16 quotas of 5 bytes, by 9
    keys.append(("another network", "another site"))
    assert client.post("/").status_code == 200


def test_the_cache_of_refused_callers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """That many are refused; each further one is allowed once more."""
    monkeypatch.setattr(limits, "USED_UP", 4)
    keys: list[tuple[str, ...]] = []
    client = writing([86400.0], keys)

    def round_of(callers: str) -> list[int]:
        return [(keys.append((name,)), client.post("/").status_code)[1] for name in callers]

    assert [round_of("abcd") for _ in range(3)] == [[200] * 4, [429] * 4, [429] * 4]
    assert (round_of("eabcd"), round_of("dd")) == ([200] * 5, [429] * 2)


def test_a_new_window_is_a_new_quota() -> None:
    """A caller that had used it up can write again, also without a lookup."""
    now, lookups = [86400.0], list[str]()
    client = writing(now, [("me",)], lookups)
    found = []
    for seconds in (0, 1, 60, 61):
        now[0] = 86400.0 + seconds
        before = len(lookups)
        found.append((client.post("/").status_code, len(lookups) - before))
    assert found == [(200, 0), (429, 2), (200, 1), (429, 2)]


@pytest.mark.needs("webhooks")
def test_keys_and_webhooks_are_counted() -> None:
    """Their stored bytes count like those of items."""
    client = service()
    assert used(client, "POST", "/api/v1/keys", {"name": "x", "scopes": ["products:read"]}) > 100
    assert used(client, "POST", "/api/v1/webhooks", {"url": "https://example.org/"}) > 100
    webhook = client.post("/api/v1/webhooks", json={"url": "https://example.org/"}, headers=ADMIN).headers["Location"]
    assert used(client, "POST", f"{webhook}/ping") > 100  # its event


def test_each_caller_has_a_quota() -> None:
    """The writes of one key use up nothing of another's quota."""
    client = service("500 per day")
    sent = {"name": "x", "scopes": ["products:write"]}
    other = {"X-API-Key": client.post("/api/v1/keys", json=sent, headers=ADMIN).json["secret"]}
    assert [client.post("/products", json={"name": "x"}, headers=ADMIN).status_code for _ in range(5)][-1] == 429
    assert client.post("/products", json={"name": "x"}, headers=other).status_code == 200


def test_only_writes_report_the_remaining_bytes() -> None:
    """The policy counts content bytes; it is sent beside that of requests, in responses to writes only."""
    client = service(rate_limit="50 per day")
    write, read = client.post("/products", json={"name": "x"}, headers=ADMIN), client.get("/products", headers=ADMIN)
    requests = '"read";q=50;w=86400, "write";q=50;w=86400'
    assert write.headers["RateLimit-Policy"] == f'{requests}, "write-bytes";q=100000;qu="content-bytes";w=86400'
    assert write.headers["RateLimit"].startswith('"write";r=49;t=')
    assert (read.headers["RateLimit-Policy"], "write-bytes" in read.headers["RateLimit"]) == (requests, False)
    assert write.headers["X-RateLimit-Limit"] == "50"
    free = service(rate_limit="off")
    assert free.post("/products", json={"name": "x"}, headers=ADMIN).headers["RateLimit"].startswith('"write-bytes";r=')
    assert "RateLimit-Policy" not in free.get("/products", headers=ADMIN).headers


def test_the_default_quota_is_for_network_services() -> None:
    """It is 256 MiB an hour; a service on loopback has none."""
    assert Config(auth="required").write_quota == Config(auth="open-to-all").write_quota == "268435456 per hour"
    assert (Config().write_quota, Config(auth="required", write_bytes="off").write_quota) == ("", "")
    assert Config(write_bytes="5 per day").write_quota == "5 per day"
    with pytest.raises(ConfigError, match="^WRITE_BYTES="):
        Config.from_env({"WRITE_BYTES": "much"})
