"""Failures: how many wrong credentials and hosts an address may send, and which callers are not affected."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.errors import TooManyRequests
from restkeeper.features import limits
from restkeeper.features.limits import KNOWN_SECONDS, NOTED, SITE_QUOTAS, Failures, Quota
from restkeeper.features.limits.shared import SharedTable
from tests import issuer
from tests.callers import ADMIN, ADMIN_KEY, basic, bearer, make_key
from tests.clock import SetClock
from tests.ports import free_ports
from tests.shop import WINDOW, create_app

pytestmark = pytest.mark.needs("keys", "limits")

METRICS_TOKEN = "a-metrics-token-of-enough-characters"  # noqa: S105
LIMIT = 3

Headers = dict[str, str]
Send = Callable[[FlaskClient, str], int]


def secured(**settings: Any) -> FlaskClient:
    """A client of a service that requires credentials and allows three failures."""
    given = {"auth": "required", "admin_key": ADMIN_KEY, "failure_limit": f"{LIMIT} per {WINDOW}", **settings}
    return create_app(Config(**given)).test_client()


def key_of(client: FlaskClient) -> str:
    """The secret of a new key."""
    secret: str = make_key(client)["secret"]
    return secret


def by_bearer(client: FlaskClient, token: str) -> int:
    return client.get("/products", headers=bearer(token)).status_code


def by_header(client: FlaskClient, token: str) -> int:
    return client.get("/products", headers={"X-API-Key": token}).status_code


def by_basic(client: FlaskClient, token: str) -> int:
    return client.get("/products", headers=basic("x", token)).status_code


def for_metrics(client: FlaskClient, token: str) -> int:
    return client.get("/metrics", headers=bearer(token)).status_code


def at_nothing(client: FlaskClient, token: str) -> int:
    """Use the token on an unknown path: a wrong one is refused, a valid one gets 404."""
    status = client.get("/nothing", headers=bearer(token)).status_code
    return 200 if status == 404 else status


@pytest.mark.parametrize("send", [by_bearer, by_header, by_basic, at_nothing])
def test_the_number_of_guesses_is_limited(send: Send) -> None:
    """Beyond the limit even a valid key returns 429, in any header: the caller learns nothing more.

    The problem names the policy, and when to try again.
    """
    client = secured(rate_limit="off")
    secret = key_of(client)
    assert [send(client, f"rk_{'0' * 16}_{n}") for n in range(LIMIT + 2)] == [401] * LIMIT + [429] * 2
    assert [send(client, secret), send(client, ADMIN_KEY)] == [429, 429]
    response = client.get("/products", headers=bearer("guess"))
    assert response.status_code == 429 and response.json["type"] == "/problems/quota-exceeded"
    assert response.json["violated-policies"] == ["failures"]
    assert int(response.headers["Retry-After"]) > 0


@pytest.mark.needs("metrics")
def test_the_tokens_of_metrics_and_of_callers_are_counted_together() -> None:
    """Guesses at METRICS_TOKEN use up the same quota.

    Beyond it the right token returns 429, unless it succeeded there before.
    """
    client = secured(metrics_token=METRICS_TOKEN)
    other = {"REMOTE_ADDR": "192.0.2.9"}
    assert client.get("/metrics", headers=bearer(METRICS_TOKEN), environ_base=other).status_code == 200
    here: Headers = {}
    for base in (here, other):
        sent = [
            client.get(path, headers=bearer("wrong"), environ_base=base).status_code
            for path in ("/metrics", "/products", "/metrics", "/products", "/metrics")
        ]
        assert sent == [401] * LIMIT + [429] * 2
    assert for_metrics(client, METRICS_TOKEN) == 429
    assert client.get("/metrics", headers=bearer(METRICS_TOKEN), environ_base=other).status_code == 200
    assert client.get("/metrics", environ_base=other).status_code == 401  # this is no guess


@pytest.mark.needs("jwt")
def test_forged_tokens_are_counted_and_lock_out_no_token(tmp_path: Path) -> None:
    """Nobody can guess a signature: a valid token is accepted from any address, also for the first time."""
    client = secured(**issuer.trusted(tmp_path), rate_limit="off")
    token, unused = issuer.token(exp=time.time() + 600, scope="products:read"), key_of(client)
    unknown = issuer.token("ES256", "stranger")
    forged = [f"{token[:-6]}{n}AAAAA" for n in range(LIMIT - 1)]
    assert [by_bearer(client, each) for each in (*forged, unknown, unknown)] == [401] * LIMIT + [429]
    assert [by_bearer(client, each) for each in (token, unused, forged[0])] == [200, 429, 429]


@pytest.mark.needs("jwt")
def test_signed_tokens_that_are_not_accepted_are_no_guesses(tmp_path: Path) -> None:
    """Whoever goes on sending one that has expired, or is for another service, locks out no key."""
    client = secured(**issuer.trusted(tmp_path), rate_limit="off")
    good = {"exp": time.time() + 600}
    for wrong in ({"exp": 5}, {"aud": "other"}, {"iss": "x"}, {"sub": None}, {"sub": ""}, {"nbf": good["exp"]}):
        sent = issuer.token(**good | wrong)
        assert [by_bearer(client, sent) for _ in range(LIMIT)] == [401] * LIMIT
    response = client.get("/products", headers=bearer(sent))
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="restkeeper", error="invalid_token"'
    assert by_bearer(client, key_of(client)) == 200


@pytest.mark.needs("jwt")
def test_a_token_whose_key_may_be_new_is_no_guess(tmp_path: Path) -> None:
    """While the set cannot be fetched it is 503, however often it is sent, and locks out no key."""
    settings = issuer.trusted(tmp_path) | {"jwt_jwks": f"http://127.0.0.1:{free_ports(1)[0]}/"}
    client = secured(**settings, rate_limit="off")
    sent = [client.get("/products", headers=bearer(issuer.NEW)) for _ in range(LIMIT + 1)]
    assert [each.status_code for each in sent] == [503] * (LIMIT + 1)
    assert all(0 < int(each.headers["Retry-After"]) <= 10 for each in sent)
    assert by_bearer(client, key_of(client)) == 200


@pytest.mark.needs("jwt")
def test_an_admin_key_that_looks_like_a_token_is_a_key(tmp_path: Path) -> None:
    """Its guesses are limited, too."""
    admin = "an-admin.key-of-enough.characters"
    client = secured(**issuer.trusted(tmp_path), admin_key=admin)
    assert by_bearer(client, admin) == 200
    assert [by_bearer(client, f"{admin}{n}") for n in range(LIMIT + 1)] == [401] * LIMIT + [429]
    client = secured(**issuer.trusted(tmp_path), admin_key=admin)
    assert [by_bearer(client, each) for each in ("a.b.c", "a.b.d", "a.b.e", admin)] == [401] * LIMIT + [429]


def test_nothing_is_looked_up_for_a_guess_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes before the check of the credentials, so that it needs no read of the store."""
    client = secured()
    store = client.application.extensions["restkeeper"].store
    reads: list[Any] = []
    look_up = store.look_up
    monkeypatch.setattr(store, "look_up", lambda keys: reads.append(keys) or look_up(keys))
    for n in range(LIMIT + 50):
        by_bearer(client, f"rk_{n:016x}_secret")
    assert len(reads) == LIMIT


def test_a_success_is_known_to_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that succeeded at one worker stays accepted at another, and the failures of both are added.

    Guesses affect neither that caller at the same address, nor any other address.
    """
    monkeypatch.setattr(limits, "shared_tables", [SharedTable()])
    one, other = (secured(database_url=f"sqlite:///{tmp_path}/a.db") for _ in range(2))
    used, unused = key_of(one), key_of(one)
    assert by_bearer(one, used) == 200
    assert [by_bearer(client, "guess") for client in (one, other, one, other, one)] == [401] * LIMIT + [429] * 2
    assert [by_bearer(other, used), by_header(other, used), by_bearer(other, unused)] == [200, 200, 429]
    elsewhere = {"REMOTE_ADDR": "192.0.2.1"}
    assert other.get("/products", headers=bearer(unused), environ_base=elsewhere).status_code == 200
    assert other.get("/products").status_code == 401  # no credentials are no guess


def test_each_use_of_a_revoked_key_is_one_failure() -> None:
    client = secured()
    secret, first, second = key_of(client), key_of(client), key_of(client)
    assert by_bearer(client, secret) == 200
    id = secret.split("_")[1]
    client.delete(f"/api/v1/keys/{id}", headers=ADMIN, environ_base={"REMOTE_ADDR": "192.0.2.250"})
    assert [by_bearer(client, secret) for _ in range(LIMIT - 1)] == [401] * (LIMIT - 1)
    assert by_bearer(client, first) == 200
    assert by_bearer(client, secret) == 401
    assert by_bearer(client, second) == 429


def test_wrong_credentials_are_counted_in_open_mode() -> None:
    """AUTH=open refuses them, too; requests without credentials still succeed."""
    client = secured(auth="open")
    assert [by_bearer(client, "guess") for _ in range(LIMIT + 1)] == [401] * LIMIT + [429]
    assert client.get("/products").status_code == 200


@pytest.mark.needs("pages")
def test_refused_hosts_are_failures() -> None:
    """A malformed or unknown Host counts like a guess; beyond the limit it returns 429, unless RATE_LIMIT=off."""
    client = secured(trusted_hosts=("api.example.org",))
    statuses = [client.get("/", headers={"Host": host}).status_code for host in ("evil.example", "a b", "", "y", "z")]
    assert statuses == [400] * LIMIT + [429] * 2
    good = {"Host": "api.example.org"}
    assert client.get("/", headers=good).status_code == 200
    assert client.get("/products", headers=good | bearer("guess")).status_code == 429
    client = secured(trusted_hosts=("api.example.org",), rate_limit="off")
    assert {client.get("/", headers={"Host": "evil.example"}).status_code for _ in range(LIMIT + 2)} == {400}


class CountingStorage:
    """Counters that never expire."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        self.counts[key] += amount
        return self.counts[key]

    def get(self, key: str) -> int:
        return self.counts[key]


@pytest.fixture
def storage() -> CountingStorage:
    return CountingStorage()


@pytest.fixture
def failures(storage: CountingStorage, clock: SetClock) -> Failures:
    return Failures(Quota("failures", f"{LIMIT} per minute", storage, now=clock.time), storage, now=clock.time)


def request_from(remote: str = "192.0.2.1") -> dict[str, Any]:
    return {"REMOTE_ADDR": remote}


def is_accepted(failures: Failures, digest: str, remote: str = "192.0.2.1") -> bool:
    try:
        failures.require_room(request_from(remote), digest)
    except TooManyRequests:
        return False
    return True


def test_a_success_is_known_for_a_day(failures: Failures, clock: SetClock) -> None:
    failures.note_success(request_from(), "known")
    for seconds, is_known in ((0, True), (KNOWN_SECONDS, True), (KNOWN_SECONDS, False)):
        clock.now += seconds
        for _ in range(LIMIT):
            failures.note_failure(request_from())
        assert is_accepted(failures, "known") is is_known
        assert not is_accepted(failures, "guess 0")  # wrong credentials are never known


def test_the_cache_of_a_process_is_limited(failures: Failures) -> None:
    """If there are more pairs of address and credentials, those before are looked up again."""
    for n in range(NOTED + 10):
        failures.note_success(request_from(), f"{n}")
    assert len(failures._noted) == 10
    assert [failures.require_room(request_from(), f"{n}") for n in (9, NOTED, NOTED + 9)] == [False, True, True]


def test_a_site_of_ipv6_is_counted_as_one(failures: Failures, storage: CountingStorage) -> None:
    """A /64 has the quota, and a whole /48 sixteen quotas, so that no caller has 65,536 quotas and counters."""
    for n in range(LIMIT):
        failures.note_failure(request_from(f"2001:db8::{n}"))
    assert not is_accepted(failures, "right", "2001:db8::ffff") and is_accepted(failures, "right", "2001:db8:0:1::1")
    for n in range(1, 5000):
        if is_accepted(failures, "right", f"2001:db8:0:{n:x}::1"):
            failures.note_failure(request_from(f"2001:db8:0:{n:x}::1"))
    assert sum(storage.counts.values()) == 2 * SITE_QUOTAS * LIMIT
    assert is_accepted(failures, "right", "2001:db8:1::1")


def test_a_success_is_stored_once_for_a_site_of_ipv6(failures: Failures, storage: CountingStorage) -> None:
    """A caller with one key and many networks does not create a counter for each of them."""
    for n in range(100):
        failures.note_success(request_from(f"2001:db8:0:{n:x}::1"), "known")
    assert len(storage.counts) == 1
    for _ in range(LIMIT):
        failures.note_failure(request_from("2001:db8:0:ffff::1"))
    assert is_accepted(failures, "known", "2001:db8:0:ffff::1")
    assert not is_accepted(failures, "other", "2001:db8:0:ffff::1")
