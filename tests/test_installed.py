"""The installed engine and its three uses, in an environment that `make release` names, or else one of its own."""

import json
import os
from pathlib import Path

import pytest

from tests.installed import run
from tests.json_file import running
from tests.live import Gunicorn
from tests.redis_server import Redis

pytestmark = [pytest.mark.matrix]


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_gunicorn_serves_a_new_service(
    bin: Path, shop: Path, tmp_path: Path, redis: Redis, store: str, request: pytest.FixtureRequest
) -> None:
    """With keys, limits in Redis, metrics, and a response that is stored encrypted."""
    settings = {"AUTH": "required", "ADMIN_KEY": 32 * "a", "REDIS_URL": redis.url, "METRICS_TOKEN": 32 * "m"}
    if store == "postgresql":
        settings["DATABASE_URL"] = request.getfixturevalue("url")
    with Gunicorn(tmp_path, root=shop, app="", python=bin / "python", **settings) as server:
        admin = {"Authorization": f"Bearer {32 * 'a'}", "Idempotency-Key": "1"}
        products = [server.post("/products", {"name": "Lamp"}, admin) for _ in range(2)]
        assert [response.status for response in products] == [200, 200], products
        assert products[0].body == products[1].body
        assert [product["name"] for product in server.get("/products", admin).json()] == ["Lamp"]
        keys = [server.post("/api/v1/keys", {"name": "mine", "scopes": ["products:read"]}, admin) for _ in range(2)]
        assert keys[0].status == 200 and keys[0].json() == keys[1].json()
        assert server.get("/products", {"Authorization": f"Bearer {keys[0].json()['secret']}"}).status == 200
        metrics = server.get("/metrics", {"Authorization": f"Bearer {32 * 'm'}"}).body
        assert b'restkeeper_request_seconds_count{method="POST"' in metrics
        assert server.get("/docs").status == 200
    assert redis.calls().keys() & {"eval", "evalsha"}


def test_a_json_file_is_served(restkeeper: list[str | Path], tmp_path: Path) -> None:
    file = tmp_path / "db.json"
    file.write_text('{"posts": [{"id": 1, "title": "Hello"}]}')
    with running(file, program=[*map(str, restkeeper)], environ=os.environ) as server:
        assert server.send("GET", "/posts").json() == [{"id": 1, "title": "Hello"}]
        assert server.send("POST", "/posts", {"title": "World"}).status == 200
    assert [post["title"] for post in json.loads(file.read_text())["posts"]] == ["Hello", "World"]


def test_a_new_service_has_tests_that_pass(bin: Path, shop: Path) -> None:
    """They use the harness, by the fixture of pytest."""
    assert "5 passed" in run([bin / "pytest"], shop)
