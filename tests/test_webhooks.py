"""Webhooks as a resource: their fields, their secrets, their logs."""

import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.features.webhooks.deliverer import Deliverer
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.service import Service
from restkeeper.storage.deliveries import Deliveries
from restkeeper.web.application import Application
from tests.shop import create_app

pytestmark = pytest.mark.needs("webhooks")

HOOKS = "/api/v1/webhooks"
URL = "https://shop.example.org/hooks"
INVALID = r"""
http://shop.example.org/ ftp://shop.example.org/ shop.example.org https:// https:///path
https://user@shop.example.org/ https://user:secret@shop.example.org/ https://shop.example.org/#fragment
https://shop.example.org:0/ https://shop.example.org:99999/ https://shop.example.org\@evil.example/
https://shöp.example.org/ https://[::1/ https://localhost/ https://127.0.0.1/ https://10.0.0.1/ https://[::1]/
https://169.254.169.254/latest/meta-data https://[::ffff:10.0.0.1]/ https://224.0.0.1/
"""


def make(client: FlaskClient, **fields: Any) -> Any:
    response = client.post(HOOKS, json={"url": URL, **fields})
    assert response.status_code == 200, response.text
    return response.json


def faults(response: Any) -> list[str]:
    assert response.status_code == 422, response.text
    return [fault["pointer"] for fault in response.json["errors"]]


class TestResource:
    def test_a_webhook_is_created_with_defaults(self, client: FlaskClient) -> None:
        """Active, for all events, with a random secret of 32 bytes."""
        response = client.post(HOOKS, json={"url": URL})
        made = response.json
        assert (made["types"], made["status"], made["description"], made["version"]) == (["*"], "active", "", 1)
        assert re.fullmatch(r"whsec_[A-Za-z0-9+/]+=*", made["secret"]) and len(b64decode(made["secret"][6:])) == 32
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Location"] == f"{HOOKS}/{made['id']}"

    def test_the_secret_is_shown_once(self, client: FlaskClient) -> None:
        """It is not returned when the webhook is read, listed, changed or deleted."""
        made = make(client)
        secret, path = made.pop("secret"), f"{HOOKS}/{made['id']}"
        assert client.get(path).json == made and client.get(HOOKS).json == [made]
        changed = client.patch(path, json={"description": "x"})
        shown = [client.get(path), client.get(HOOKS), changed, client.put(path, json={"url": URL}), client.delete(path)]
        assert all(response.status_code == 200 and secret not in response.text for response in shown)

    def test_a_webhook_can_be_paused_and_resumed(self, client: FlaskClient) -> None:
        path = f"{HOOKS}/{make(client)['id']}"
        for status in ("paused", "active"):
            assert client.patch(path, json={"status": status}).json["status"] == status
        refused = client.patch(path, json={"status": "disabled"})
        assert (refused.status_code, refused.json["allowed"]) == (409, ["paused"])
        assert faults(client.post(HOOKS, json={"url": URL, "status": "disabled"})) == ["#/status"]

    def test_if_match_works_for_webhooks(self, client: FlaskClient) -> None:
        response = client.post(HOOKS, json={"url": URL})
        path, old = response.headers["Location"], {"If-Match": response.headers["ETag"]}
        assert client.patch(path, json={"description": "x"}, headers=old).status_code == 200
        assert client.patch(path, json={"description": "y"}, headers=old).status_code == 412
        assert client.post(f"{path}/rotate", headers=old).status_code == 412
        assert client.delete(path, headers=old).status_code == 412
        assert client.delete(path).status_code == 200 and client.get(path).status_code == 404

    def test_an_invalid_url_is_refused(self, client: FlaskClient) -> None:
        """When the webhook is created or changed; its host name is resolved only for deliveries."""
        path = f"{HOOKS}/{make(client)['id']}"
        for url in (*INVALID.split(), "https://shop.example.org/a b", "https://x.org/\n", "https://" + "x" * 2048):
            assert faults(client.post(HOOKS, json={"url": url})) == ["#/url"], url
            assert faults(client.patch(path, json={"url": url})) == ["#/url"], url
        assert client.get(path).json["url"] == URL

    def test_private_addresses_can_be_allowed(self) -> None:
        client = create_app(Config(webhook_allow_private=True)).test_client()
        for url in ("http://127.0.0.1:9000/x", "http://localhost/", "https://10.0.0.1/", URL):
            assert client.post(HOOKS, json={"url": url}).status_code == 200, url
        assert faults(client.post(HOOKS, json={"url": "http://me@127.0.0.1/"})) == ["#/url"]

    def test_a_webhook_with_a_forbidden_url_can_be_paused(self, tmp_path: Path) -> None:
        database_url = f"sqlite:///{tmp_path}/x.db"
        before, after = (
            create_app(Config(database_url=database_url, webhook_allow_private=allow)).test_client()
            for allow in (True, False)
        )
        path = f"{HOOKS}/{make(before, url='http://127.0.0.1/')['id']}"
        assert after.patch(path, json={"status": "paused"}).json["status"] == "paused"
        assert after.patch(path, json={"description": "x"}).status_code == 200
        assert faults(after.patch(path, json={"status": "active"})) == ["#/url"]
        assert faults(after.patch(path, json={"url": "http://10.0.0.1/"})) == ["#/url"]

    def test_only_existing_types_are_accepted(self, client: FlaskClient) -> None:
        """`*`, all of a kind, or one; the response points to each unknown one, and to the URL."""
        made = make(client, types=["product.*", "user.deleted", "webhook.disabled"])
        assert made["types"] == ["product.*", "user.deleted", "webhook.disabled"]
        wrong = {
            "url": "http://shop.example.org/",
            "types": ["product.created", "order.created", "webhook.ping", "*.created"],
        }
        assert faults(client.post(HOOKS, json=wrong)) == ["#/url", "#/types/1", "#/types/2", "#/types/3"]
        assert faults(client.post(HOOKS, json=wrong | {"status": "paused"})) == faults(client.post(HOOKS, json=wrong))
        assert faults(client.patch(f"{HOOKS}/{made['id']}", json={"types": ["x"], "status": "paused"})) == ["#/types/0"]
        assert faults(client.post(HOOKS, json={"url": URL, "types": []})) == ["#/types"]


class TestRotation:
    def test_former_secrets_sign_for_a_day(self, app: Application, client: FlaskClient) -> None:
        """Each for a day after its rotation, also after two rotations in a day; then only the newest."""
        made = make(client)
        path = f"{HOOKS}/{made['id']}/rotate"
        service: Service = app.extensions["restkeeper"]
        store, webhooks = service.store, service.of_features["webhooks"]
        secrets = [made["secret"], *(client.post(path).json["secret"] for _ in range(2))]
        stored = store.write(lambda transaction: Deliveries(transaction).secrets(made["id"]))
        assert [each.value for each in stored] == secrets[::-1]
        assert stored[0].until is None and stored[1].until is not None and stored[2].until is not None
        assert stored[2].until < stored[1].until
        signatures: list[str] = []

        def note(url: str, headers: Any, body: bytes) -> DeliveryResult:
            signatures.append(headers["webhook-signature"])
            return DeliveryResult(200, "", None)

        for now in (stored[2].until - 1, (stored[1].until + stored[2].until) / 2, stored[1].until + 1):
            client.post(f"{HOOKS}/{made['id']}/ping")
            worker = Deliverer(store, webhooks, note, (), timeout=1.0, retries=(), now=lambda now=now: now)
            worker.deliver_once()
            worker.close()
        assert [len(each.split(" ")) for each in signatures] == [3, 2, 1]

    def test_rotating_an_unknown_webhook_returns_404(self, client: FlaskClient) -> None:
        for method, rest in [("POST", "/rotate"), ("POST", "/ping"), ("GET", "/deliveries"), ("GET", "/deliveries/1")]:
            assert client.open(f"{HOOKS}/none{rest}", method=method).status_code == 404
        assert client.post(f"{HOOKS}/none/deliveries/1/redeliver").status_code == 404


class TestLog:
    def test_the_log_is_paged_from_the_newest(self, client: FlaskClient) -> None:
        """`next` links lead to the end, each delivery once, with the filter of the request."""
        hook = f"{HOOKS}/{make(client)['id']}"
        ids = [client.post(f"{hook}/ping").json["id"] for _ in range(5)]
        path, seen = f"{hook}/deliveries?limit=2&state=pending", []
        while path:
            response = client.get(path)
            seen += [entry["id"] for entry in response.json]
            path = next((link.split(">")[0][1:] for link in response.headers["Link"].split(", ") if "next" in link), "")
        assert seen == ids[::-1]
        assert client.get(f"{hook}/deliveries?state=failed").json == []
        assert client.get(f"{hook}/deliveries").headers["Cache-Control"] == "no-store"

    def test_invalid_parameters_are_refused(self, client: FlaskClient) -> None:
        hook = f"{HOOKS}/{make(client)['id']}"
        for query in ("state=lost", "limit=0", "limit=1001", "cursor=x", "cursor=0", "offset=1"):
            response = client.get(f"{hook}/deliveries?{query}")
            assert (response.status_code, response.json["errors"][0]["parameter"]) == (400, query.split("=")[0])

    def test_a_delivery_is_read_by_its_number(self, client: FlaskClient) -> None:
        """Only below its own webhook, while there is that; anything else returns 404."""
        hook, other = (f"{HOOKS}/{make(client)['id']}" for _ in range(2))
        ping = client.post(f"{hook}/ping").json
        assert client.get(f"{hook}/deliveries/{ping['id']}").json == ping
        for path in (
            f"{other}/deliveries/{ping['id']}",
            *(f"{hook}/deliveries/{id}" for id in ("9", "0", "x", "9" * 30)),
        ):
            assert client.get(path).status_code == 404
            assert client.post(f"{path}/redeliver").status_code == 404
        client.delete(hook)
        assert client.get(f"{hook}/deliveries/{ping['id']}").status_code == 404
        assert client.post(f"{hook}/deliveries/{ping['id']}/redeliver").status_code == 404
