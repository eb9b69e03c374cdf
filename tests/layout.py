"""Stores of former releases, as SQL in layouts/, and what clients have to find in them.

`python -m tests.layout NAME` writes those of this program: NAME.sqlite.sql, NAME.postgresql.sql and NAME.json. A
release whose tables differ adds its own; the files of former releases stay as they are.
"""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from restkeeper import Config
from restkeeper.features.webhooks.deliverer import Deliverer
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.service import service_of
from restkeeper.web.application import Application
from tests.clock import SetClock
from tests.postgresql_server import PostgresServer, programs
from tests.shop import create_app

FOLDER = Path(__file__).parent / "layouts"
ADMIN_KEY = "an-admin-key-of-enough-characters"
ADMIN = {"X-API-Key": ADMIN_KEY}
LAMP = {"name": "Lamp ☃", "sku": "L-1", "price": 12.50, "tags": ["light"]}
NUMBERS = ("application_id", "user_version")  # of a file of SQLite
LATER = 600.0  # seconds until the next attempts
CREATE: dict[str, Any] = {"path": "/products", "json": LAMP, "headers": ADMIN | {"Idempotency-Key": "layout-0001"}}
WEBHOOK = {"url": "https://hooks.example.org/", "types": ["product.created", "product.updated", "product.deleted"]}


def service(url: str, now: float) -> Application:
    """The service of the tests on a store, at a time."""
    clock = SetClock(now)
    return create_app(Config(auth="required", admin_key=ADMIN_KEY, database_url=url), clock=clock)


def sent_deliveries(app: Application, status: int = 500) -> list[Any]:
    """The messages that are due, to each of which the endpoint responds with this status."""
    service, bodies = service_of(app), list[Any]()

    def note(url: str, headers: Any, body: bytes) -> DeliveryResult:
        bodies.append([headers["webhook-id"], json.loads(body)])
        return DeliveryResult(status, "", None)

    options: dict[str, Any] = {"timeout": 1.0, "retries": (60.0,), "now": service.clock.time}
    names, webhooks = [*service.stored], service.of_features["webhooks"]
    with closing(Deliverer(service.store, webhooks, note, names, **options)) as deliverer:
        while deliverer.deliver_once():
            pass
    return sorted(bodies, key=itemgetter(0))


def fill(url: str, now: float) -> dict[str, Any]:
    """Fill an empty store; returns what clients find in it."""
    app = service(url, now)
    client = app.test_client()
    reader = {"name": "reader", "scopes": ["products:read"]}
    token = client.post("/api/v1/keys", json=reader, headers=ADMIN).json["secret"]
    client.post("/api/v1/webhooks", json=WEBHOOK, headers=ADMIN)
    created = client.post(**CREATE)
    path = created.headers["Location"]
    client.patch(path, json={"price": 9.95, "stock": 3}, headers=ADMIN)
    client.post("/users", json={"email": "Ada@example.org"}, headers=ADMIN)
    gone = client.post("/products", json={"name": "gone"}, headers=ADMIN).headers["Location"]
    client.delete(gone, headers=ADMIN)
    sent_deliveries(app)
    return {"now": now, "token": token, "path": path, "created": created.text, **read(app, token, path)}


def read(app: Application, token: str, path: str) -> dict[str, Any]:
    """What clients read of a store."""
    client = app.test_client()
    return {
        "item": client.get(path, headers={"Authorization": f"Bearer {token}"}).text,
        "tag": client.get(path, headers=ADMIN).headers["ETag"],
        "products": client.get("/products?price[lt]=10&sort=-name", headers=ADMIN).json,
        "users": client.get("/users?email=ada@example.org", headers=ADMIN).json,
        "events": client.get("/api/v1/events", headers=ADMIN).json,
        "webhooks": client.get("/api/v1/webhooks", headers=ADMIN).json,
    }


def load(name: str, url: str) -> None:
    """Fill an empty file, or an empty database, with a store of this name."""
    kind, _, path = url.partition(":///") if url.startswith("sqlite") else ("postgresql", "", url)
    script = (FOLDER / f"{name}.{kind}.sql").read_text(encoding="utf-8")
    if kind == "sqlite":
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)
            return
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(script.encode())


def _sqlite_script(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        numbers = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        }
        lines = [*(f"PRAGMA {name} = {number};" for name, number in numbers.items()), *connection.iterdump()]
    return "".join(f"{line}\n" for line in lines)


def _postgresql_script(server: PostgresServer, url: str) -> str:
    command = [programs(server.folder) / "pg_dump", "--inserts", "--no-owner", "--no-privileges", url]
    dumped = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return "".join(f"{line}\n" for line in _statements(dumped))


def _statements(dumped: str) -> Iterator[str]:
    for line in dumped.splitlines():
        if line and not line.startswith(("--", "\\", "SET ", "SELECT pg_catalog.set_config")):
            yield re.sub(r"^CREATE SCHEMA public;$", "", line)


def main(name: str) -> None:
    """Write the files."""
    now = 1_800_000_000.0
    with TemporaryDirectory() as folder, PostgresServer() as server:
        file, database = Path(folder) / "store.db", server.create_database()
        urls = {"sqlite": f"sqlite:///{file}", "postgresql": database}
        facts = {kind: fill(url, now) for kind, url in urls.items()}
        scripts = {"sqlite": _sqlite_script(file), "postgresql": _postgresql_script(server, database)}
        for kind, url in urls.items():
            facts[kind]["deliveries"] = sent_deliveries(service(url, now + LATER), 204)
    for kind, script in scripts.items():
        (FOLDER / f"{name}.{kind}.sql").write_text(script, encoding="utf-8")
    text = json.dumps(facts, indent=1, ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
