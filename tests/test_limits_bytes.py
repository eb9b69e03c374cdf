"""How many bytes a caller's writes may add to the store: what counts, what is refused, what headers say."""

from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config, ConfigError
from restkeeper.features.limits import requests as limits
from restkeeper.features.limits.counters import Quota, Use, open_counters
from restkeeper.resources.changes import add_written
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
    """The bytes that an answer says remain."""
    fields = [part for part in response.headers["RateLimit"].split(", ") if part.startswith('"write-bytes";r=')]
    return int(fields[0].split(";")[1].removeprefix("r="))


def used(client: FlaskClient, method: str, path: str, body: Any = None, **headers: str) -> int:
    """The bytes that a request counted, asserted to be committed."""
    before = left(client.delete("/products/none", headers=ADMIN))
    response = client.open(path, method=method, json=body, headers=ADMIN | headers)
    assert response.status_code == 200, response.text
    return before - left(response)


def make(client: FlaskClient, **fields: Any) -> tuple[str, int]:
    """A new item: its path and its size."""
    response = client.post("/products", json={"name": "x", **fields}, headers=ADMIN)
    assert response.status_code == 200, response.text
    return response.headers["Location"], len(response.data)


@pytest.mark.needs("events")
def test_what_is_stored_counts() -> None:
    """An item and its event, for a deletion the event alone."""
    client = service()
    path, size = make(client)
    assert used(client, "POST", "/products", {"name": "y"}) == 2 * size
    changed = len(client.patch(path, json={"name": "a longer name"}, headers=ADMIN).data)
    assert used(client, "PUT", path, {"name": "a longer nome"}) == 2 * changed
    assert used(client, "PATCH", path, {"name": "a longer nome"}) == 0  # it changes nothing
    assert used(client, "DELETE", path) == changed


@pytest.mark.needs("idempotency")
def test_a_stored_response_counts_once() -> None:
    """A POST with an idempotency key stores its response, too; a replay adds nothing."""
    client = service()
    _, size = make(client)
    first = used(client, "POST", "/products", {"name": "y"}, Idempotency_Key="k") - 3 * size
    assert 0 < first < 1000  # what the response's head takes
    assert used(client, "POST", "/products", {"name": "y"}, Idempotency_Key="k") == 0


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [({"name": ""}, {}, 422), ({"name": "x"}, {"If-Match": '"no"'}, 412), ({"name": "x", "sku": "taken"}, {}, 409)],
)
def test_what_is_not_committed_counts_nothing(body: Any, headers: dict[str, str], status: int) -> None:
    """A write that is refused, also in the middle of its transaction, adds no bytes."""
    client = service()
    client.post("/products", json={"name": "x", "sku": "taken"}, headers=ADMIN)
    before = left(client.delete("/products/none", headers=ADMIN))
    response = client.post("/products", json=body, headers=ADMIN | headers)
    assert (response.status_code, left(response)) == (status, before)


@pytest.mark.needs("idempotency")
def test_what_is_rolled_back_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that fails after its item and its event were written has stored nothing."""

    def fail(*_: Any) -> None:
        raise StoreUnavailable("the disk is gone")

    client = service()
    before = left(client.delete("/products/none", headers=ADMIN))
    monkeypatch.setattr("restkeeper.storage.sqlite.items.SqliteTransaction.store_response", fail)
    response = client.post("/products", json={"name": "x"}, headers=ADMIN | {"Idempotency-Key": "k"})
    assert (response.status_code, left(response)) == (503, before)


def test_beyond_the_quota_writes_are_refused_and_reads_are_not() -> None:
    """The write that uses it up is answered, for it is counted when it is stored; the next one is 429."""
    client = service("500 per day")
    path, _ = make(client)
    assert left(client.post("/products", json={"name": "x"}, headers=ADMIN)) == 0
    count = client.get("/products", headers=ADMIN).headers["X-Total-Count"]
    for method, where in (("POST", "/products"), ("PUT", path), ("PATCH", path)):
        response = client.open(where, method=method, json={"name": "x"}, headers=ADMIN)
        assert (response.status_code, response.json["violated-policies"]) == (429, ["write-bytes"])
        assert response.json["type"].endswith("#quota-exceeded") and 0 < int(response.headers["Retry-After"]) <= DAY
    assert client.get("/products", headers=ADMIN).headers["X-Total-Count"] == count
    assert client.delete(path, headers=ADMIN).status_code == 200  # it makes room


def test_each_process_learns_it_by_a_write(tmp_path: Path) -> None:
    """What one has counted, another knows once it has counted itself."""
    one, other = (service("500 per day", database_url=f"sqlite:///{tmp_path}/a.db") for _ in range(2))
    make(one)
    assert left(one.post("/products", json={"name": "x"}, headers=ADMIN)) == 0
    statuses = [each.post("/products", json={"name": "x"}, headers=ADMIN).status_code for each in (one, other, other)]
    assert statuses == [429, 200, 429]


def writing(now: list[float], keys: list[tuple[str, ...]], lookups: list[str] | None = None) -> FlaskClient:
    """A client of an application that writes 9 bytes of 5 for each POST, of a caller with the last of these keys."""
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


def test_a_site_has_its_bytes_together() -> None:
    """Networks of one site, each of which writes once, write no more than the site may."""
    keys: list[tuple[str, ...]] = []
    client = writing([86400.0], keys)
    found = []
    for n in range(30):
        keys.append((f"network {n}", "site"))
        found.append(client.post("/").status_code)
    assert found == [200] * 9 + [429] * 21  # 16 quotas of 5 bytes, by 9
    keys.append(("another network", "another site"))
    assert client.post("/").status_code == 200


def test_callers_that_are_remembered_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as that are refused; beyond, each is let in once again."""
    monkeypatch.setattr(limits, "USED_UP", 4)
    keys: list[tuple[str, ...]] = []
    client = writing([86400.0], keys)

    def round_of(callers: str) -> list[int]:
        return [(keys.append((name,)), client.post("/").status_code)[1] for name in callers]

    assert [round_of("abcd") for _ in range(3)] == [[200] * 4, [429] * 4, [429] * 4]
    assert (round_of("eabcd"), round_of("dd")) == ([200] * 5, [429] * 2)


def test_a_new_window_is_a_new_quota() -> None:
    """Who had used it up writes again, and again without being looked up."""
    now, lookups = [86400.0], list[str]()
    client = writing(now, [("me",)], lookups)
    found = []
    for seconds in (0, 1, 60, 61):
        now[0] = 86400.0 + seconds
        before = len(lookups)
        found.append((client.post("/").status_code, len(lookups) - before))
    assert found == [(200, 0), (429, 2), (200, 1), (429, 2)]


@pytest.mark.needs("webhooks")
def test_keys_and_webhooks_count() -> None:
    """What is stored of them are bytes like those of items."""
    client = service()
    assert used(client, "POST", "/api/v1/keys", {"name": "x", "scopes": ["products:read"]}) > 100
    assert used(client, "POST", "/api/v1/webhooks", {"url": "https://example.org/"}) > 100
    webhook = client.post("/api/v1/webhooks", json={"url": "https://example.org/"}, headers=ADMIN).headers["Location"]
    assert used(client, "POST", f"{webhook}/ping") > 100  # the event of it


def test_each_caller_has_a_quota() -> None:
    """One key's writes use up nothing of another's."""
    client = service("500 per day")
    sent = {"name": "x", "scopes": ["products:write"]}
    other = {"X-API-Key": client.post("/api/v1/keys", json=sent, headers=ADMIN).json["secret"]}
    assert [client.post("/products", json={"name": "x"}, headers=ADMIN).status_code for _ in range(5)][-1] == 429
    assert client.post("/products", json={"name": "x"}, headers=other).status_code == 200


def test_writes_say_what_is_left_and_reads_are_as_they_were() -> None:
    """The policy counts content bytes; it stands beside that of requests, in answers to writes alone."""
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


def test_it_is_on_where_others_reach_it() -> None:
    """The default is 256 MiB an hour, and none on a machine of one's own."""
    assert Config(auth="required").write_quota == Config(auth="open-to-all").write_quota == "268435456 per hour"
    assert (Config().write_quota, Config(auth="required", write_bytes="off").write_quota) == ("", "")
    assert Config(write_bytes="5 per day").write_quota == "5 per day"
    with pytest.raises(ConfigError, match="^WRITE_BYTES="):
        Config.from_env({"WRITE_BYTES": "much"})
