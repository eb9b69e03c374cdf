"""A small store in each layout that ever landed, which all later programs open (tests/test_layouts.py).

Before a migration is added, this keeps the layout that was the last one until then:

    python -m tests.layouts.sample

It writes `NNNN.sqlite.sql` and `NNNN.postgresql.sql` beside this file, with the number of the last migration, and a
`.json` for each: a key, and what the service answered. The files of former layouts never change, nor do the
declarations here, which are those of all these stores.
"""

import json
import sqlite3
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from flask.testing import FlaskClient
from marshmallow import fields

import restkeeper
from restkeeper import Application, Config, Index, ItemSchema, Money, Ownership, Reference, Resource, Text
from restkeeper.features.events.types import event_collections
from restkeeper.features.webhooks.deliverer import Deliverer
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.service import service_of
from restkeeper.storage.sql import MIGRATIONS
from tests.clock import SetClock
from tests.postgresql_server import NOBODY, PostgresServer

FOLDER = Path(__file__).parent
ADMIN = {"X-API-Key": "the-first-key-of-the-kept-stores"}
REPEATED = {"Idempotency-Key": "a-request-that-is-repeated"}
BOOK = {"title": "Repeated", "author": "ada"}
UNUSED = ("SET ", "--", "\\", "SELECT pg_catalog.set_config")  # of pg_dump: newer servers than others know


class AuthorSchema(ItemSchema):
    """Who has written books."""

    name = Text(0, 50, load_default="")
    mail = Text(0, 50, allow_none=True, load_default=None)


class BookSchema(ItemSchema):
    """A book."""

    title = Text(1, 50, required=True)
    author = Reference("authors", required=True, on_delete="cascade")
    price = Money(load_default=0)
    tags = fields.List(fields.String(), load_default=list)


class NoteSchema(ItemSchema):
    """A note of a caller."""

    text = Text(0, 50, load_default="")


class SettingsSchema(ItemSchema):
    """What holds for all."""

    theme = fields.String(load_default="light")


RESOURCES = (
    Resource("authors", "author", AuthorSchema, (Index("mail", unique=True, fold=True),), ids="client"),
    Resource("books", "book", BookSchema, (Index("price"), Index("tags")), ("title",), ids="integer"),
    Resource("notes", "note", NoteSchema, ownership=Ownership.ALL),
    Resource("settings", "settings", SettingsSchema, singleton=True),
)


class Kept:
    """The service on a store. Its clock begins where that of the program that made the store did."""

    def __init__(self, url: str, key: dict[str, str]) -> None:
        self.clock = SetClock()
        config = Config(database_url=url, auth="required", admin_key=ADMIN["X-API-Key"], webhook_allow_private=True)
        self.app: Application = restkeeper.create_app(config, RESOURCES, clock=self.clock)
        self.store = service_of(self.app).store
        self._client: FlaskClient = self.app.test_client()
        self.key = key

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The response's JSON, of a request that succeeds."""
        self.clock.now += 1
        response = self._client.open(path, method=method, json=body, headers=self.key | headers)
        assert response.status_code == 200, response.text
        return response.json

    def status(self, method: str, path: str, body: Any = None) -> int:
        return self._client.open(path, method=method, json=body, headers=self.key).status_code

    def deliver(self, *, fails: bool = False) -> list[str]:
        """Send what is due. Returns the ids of the events; the first delivery `fails`."""
        service, sent = service_of(self.app), list[str]()

        def send(url: str, headers: Mapping[str, str], body: bytes) -> DeliveryResult:
            sent.append(headers["webhook-id"])
            return DeliveryResult(500 if fails and len(sent) == 1 else 200, "", None)

        deliverer = Deliverer(
            self.store,
            service.of_features["webhooks"],
            send,
            event_collections(service.resources),
            timeout=1.0,
            retries=service.config.webhook_retries,
            at_once=1,
            now=self.clock.time,
            elapsed=self.clock.monotonic,
            chance=lambda: 0.0,
        )
        while deliverer.deliver_once():
            pass
        return sent

    def answers(self) -> dict[str, Any]:
        """What the service answers, by path."""
        hook = self.call("GET", "/api/v1/webhooks")[0]["id"]
        paths = [
            "/api/v1/authors",
            "/api/v1/authors?mail=ADA@example.org",
            "/api/v1/books?sort=-price",
            "/api/v1/books?tags=new",
            "/api/v1/books?q=3rd",
            "/api/v1/books/2",
            "/api/v1/notes",
            "/api/v1/settings",
            "/api/v1/keys",
            "/api/v1/webhooks",
            f"/api/v1/webhooks/{hook}/deliveries",
            "/api/v1/events",
        ]
        return {path: self.call("GET", path) for path in paths}


def fill(kept: Kept) -> None:
    """Store something of each kind, and leave with a key that is stored."""
    made = kept.call("POST", "/api/v1/keys", {"name": "kept", "scopes": ["admin"]})
    kept.key = {"X-API-Key": made["secret"]}
    kept.call("POST", "/api/v1/webhooks", {"url": "https://example.org/hook", "types": ["book.*"]})
    for id, mail in (("ada", "Ada@example.org"), ("bob", None), ("gone", "gone@example.org")):
        kept.call("PUT", f"/api/v1/authors/{id}", {"name": id.title(), "mail": mail})
    titles = (("ada", "1st"), ("bob", "2nd"), ("ada", "3rd"), ("gone", "4th"))
    for number, (author, title) in enumerate(titles, start=1):
        book = {"title": title, "author": author, "price": number + 0.5, "tags": ["new", f"t{number}"]}
        kept.call("POST", "/api/v1/books", book)
    kept.call("PATCH", "/api/v1/books/2", {"title": "2nd, changed"})
    kept.call("DELETE", "/api/v1/authors/gone")  # and its book
    kept.call("POST", "/api/v1/books", BOOK, **REPEATED)
    kept.call("POST", "/api/v1/notes", {"text": "of this key"})
    kept.call("PUT", "/api/v1/settings", {"theme": "dark"})
    kept.deliver(fails=True)
    kept.call("POST", "/api/v1/books", {"title": "Last", "author": "bob"})  # which is not delivered


def restore(number: int, url: str) -> str:
    """Put the store that was kept in a layout to an empty place. Returns the kind of store."""
    kind = "sqlite" if url.startswith("sqlite:") else "postgresql"
    script = (FOLDER / f"{number:04}.{kind}.sql").read_text(encoding="utf-8")
    if kind == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.executescript(script)
    else:
        with psycopg.connect(url) as database:
            database.execute(script.encode())
    return kind


def load(number: int, url: str) -> Kept:
    """The present service on such a store."""
    return Kept(url, recorded(number, restore(number, url))["key"])


def recorded(number: int, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{number:04}.{kind}.json").read_text(encoding="utf-8"))
    return found


def dump_sqlite(path: str) -> str:
    """The statements that make a file again. The schema's version is part of the store's identity."""
    with closing(sqlite3.connect(path)) as connection:
        names = ("user_version", "application_id", "schema_version")
        values = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
        pragmas = [f"PRAGMA {name} = {value};" for name, value in values.items()]
        return "\n".join([*connection.iterdump(), *pragmas, ""])


def dump_postgresql(server: PostgresServer, url: str) -> str:
    command = [server.programs / "pg_dump", "--inserts", "--no-owner", "--no-privileges", "--no-comments", url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, **NOBODY)
    return "".join(f"{line}\n" for line in done.stdout.splitlines() if line and not line.startswith(UNUSED))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server:
        for kind, url in (("sqlite", f"sqlite:///{folder}/store.db"), ("postgresql", server.create_database())):
            kept = Kept(url, ADMIN)
            fill(kept)
            about = {"key": kept.key, "now": kept.clock.now, "answers": kept.answers()}
            kept.store.close()
            script = dump_sqlite(f"{folder}/store.db") if kind == "sqlite" else dump_postgresql(server, url)
            start = FOLDER / f"{len(MIGRATIONS):04}.{kind}"
            start.with_name(f"{start.name}.sql").write_text(script, encoding="utf-8")
            start.with_name(f"{start.name}.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
