"""Several instances on one PostgreSQL and one Redis: any of them can answer any request."""

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cluster import Cluster, running
from tests.live import HttpResponse
from tests.receiver import Receiver
from tests.shop import BOUNDS, WINDOW
from tests.waiting import SECONDS

QUOTA = 60
BEYOND = 50
ADMIN = "rk_cluster_0123456789abcdef0123456789abcdef"

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(120)]


def create(cluster: Cluster, **values: Any) -> HttpResponse:
    response = cluster.post("/products", values)
    assert response.status == 200, response
    return response


def test_a_delivery_is_sent_by_one_worker() -> None:
    """Nobody is killed, so each of the many workers could send a delivery, but one does."""
    with Receiver() as receiver, running("postgresql", WEBHOOK_ALLOW_PRIVATE="1", WEBHOOK_WORKER="inside") as made:
        inbox = receiver.inboxes["healthy"]
        webhook = {"url": f"{receiver.base}/healthy", "types": ["product.*"]}
        inbox.secret = made.post("/api/v1/webhooks", webhook).json()["secret"]
        for number in range(60):
            create(made, name=f"item {number}")
        with receiver.changed:
            assert receiver.changed.wait_for(lambda: len(set(inbox.ids)) == 60, SECONDS)
        receiver.ended.set()
    assert (inbox.tries, len(inbox.ids)) == (60, 60)


def test_a_quota_is_exact_over_all_instances() -> None:
    """Of more requests than the quota, sent at once to all instances, exactly the quota is admitted."""
    with running("postgresql", RATE_LIMIT=f"{QUOTA} per {WINDOW}") as made:
        gate = threading.Barrier(QUOTA + BEYOND)

        def send(number: int) -> int:
            gate.wait(SECONDS)
            return made.instances[number % 3].get("/products", timeout=SECONDS).status

        with ThreadPoolExecutor(QUOTA + BEYOND) as pool:
            statuses = Counter(pool.map(send, range(QUOTA + BEYOND)))
    assert statuses == {200: QUOTA, 429: BEYOND}


def test_a_key_is_revoked_everywhere_at_once() -> None:
    """After its revocation on one instance the very next request at each other worker is refused."""
    bounds = {BOUNDS: json.dumps({"failure_limit": "off"})}
    with running("postgresql", AUTH="required", ADMIN_KEY=ADMIN, **bounds) as made:
        admin = {"Authorization": f"Bearer {ADMIN}"}
        for revoker in made.instances:
            key = made.request("POST", "/api/v1/keys", {"name": "x", "scopes": ["products:read"]}, admin).json()
            use = {"Authorization": f"Bearer {key['secret']}"}
            assert {made.get("/products", use).status for _ in range(12)} == {200}  # each worker knows it now
            gone = revoker.request("DELETE", f"/api/v1/keys/{key['id']}", None, admin)
            assert gone.status == 200, gone
            assert [each.get("/products", use).status for each in made.instances for _ in range(4)] == [401] * 12
