"""The bounds of the test harness: docs/bounds.md."""

from collections.abc import Iterator
from typing import Any

import pytest

from restkeeper import LiveServer, Space
from restkeeper.features import harness
from restkeeper.features.harness import journal, spaces
from tests.shop import RESOURCES

CONTROL = "/__harness__/spaces"


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with LiveServer(resources=RESOURCES, in_process=True) as running:
        yield running


@pytest.fixture
def api(server: LiveServer) -> Iterator[Space]:
    with server.space() as made:
        yield made


def control(api: Space, method: str, path: str, **sent: Any) -> Any:
    """The response of a space's control."""
    return api.app.test_client().open(f"{CONTROL}/{api.id}{path}", method=method, **sent)


def test_spaces_are_limited(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one has its place when one is dropped."""
    monkeypatch.setattr(spaces, "MOST_SPACES", 3)
    made = [server.space() for _ in range(3)]
    with pytest.raises(ValueError, match="at most 3 spaces"):
        server.space()
    made[0].drop()
    server.space()


def test_snapshots_and_faults_are_limited(api: Space) -> None:
    """Beyond that they are refused, and those before stay."""
    names = [api.snapshot() for _ in range(20)]
    for _ in range(100):
        api.faults.delay("PUT", "/products", 0)
    assert control(api, "POST", "/snapshots").status_code == 409
    assert control(api, "POST", "/faults", json={"kind": "close"}).status_code == 409
    api.faults.clear(), api.faults.close("GET", "/products/*"), api.faults.clear()
    assert len(api.faults.unmet) == 100 and api.faults.unmet[-1].kind == "close"
    api.restore(names[0])
    assert api.client.get("/products").status_code == 200


@pytest.mark.no_cover
def test_a_seed_is_limited(api: Space) -> None:
    """In bytes and values; both may be more than a service accepts."""
    large = {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(harness.MOST_BODY + 1)}
    assert control(api, "POST", "/seed", environ_overrides=large).status_code == 413
    long = [{"name": str(number), "description": "x" * 300} for number in range(4000)]
    assert api.seed({"products": long}) == {"products": 4000}
    with pytest.raises(ValueError, match=f"more than {harness.MOST_VALUES} values"):
        api.seed({"products": [{"name": "a", "tags": ["b"] * 1000}] * 200})


def test_the_requests_that_are_shown_are_limited(api: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """In number, and in bytes: of all, of a content and of header fields."""
    monkeypatch.setattr(journal, "MOST_REQUESTS", 3)
    for _ in range(5):
        api.client.post("/products", json={"name": "a", "x": "b" * 20_000}, headers={"X-A": "c" * 17_000})
    shown = api.requests()
    assert [(each.number, len(each.body)) for each in shown] == [(number, 16 * 1024) for number in (3, 4, 5)]
    assert not any(each.headers for each in shown) and shown[0].cut == ["headers", "body"]
    with pytest.raises(AssertionError, match="only the requests from number 3 on are kept"):
        api.assert_requested("POST", "/products", times=3)
    with pytest.raises(AssertionError, match="its content is too long to be compared"):
        api.assert_requested("POST", "/products", json={"name": "a"})
    api.assert_requested("POST", "/products")
    sizes = {}
    for size in (16 * 1024, 16 * 1024 + 1):
        api.faults.respond("*", "/*", 200, text="c" * size, times=1)
        api.client.post("/none", data=b"b" * size)
        sizes[size] = api.requests()[-1]
    assert [(each.cut, len(each.body), len(each.response)) for each in sizes.values()] == [
        ([], 16 * 1024, 16 * 1024), (["body", "response"], 16 * 1024, 16 * 1024)
    ]  # fmt: skip
    monkeypatch.setattr(journal, "MOST_BYTES", 40_000)
    api.client.get("/products")
    assert len(api.requests()) == 2


@pytest.mark.needs("webhooks")
def test_deliveries_are_limited(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In number; and the time to wait for one."""
    monkeypatch.setattr("restkeeper.features.harness.webhooks.MOST_CAUGHT", 3)
    with server.space() as api:
        for number in range(4):
            api.client.post("/products", json={"name": str(number)})
        assert len(api.webhooks.deliveries()) == 3
        assert control(api, "GET", "/deliveries?within=31").status_code == 400
