"""The databases that tests have with `pytest --store postgresql`, and the count of the tests that passed there."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from flask.testing import FlaskClient

from restkeeper.app import stored_collections
from restkeeper.config import Config
from restkeeper.resources.resource import Resource
from restkeeper.schemas.item import ItemSchema
from restkeeper.service import service_of
from restkeeper.storage.interface import Index
from tests.postgresql_reuse import Reused
from tests.postgresql_server import Databases, PostgresServer
from tests.shop import RESOURCES, create_app


def epoch_of(url: str) -> str:
    """The epoch of the store in a database."""
    with psycopg.connect(url) as connection:
        ((epoch,),) = connection.execute("SELECT epoch FROM store")
    return str(epoch)


def everything_in(url: str) -> dict[str, Any]:
    """The rows of tables, the numbers of sequences, and the names of these and of indexes; not the store's identity."""
    of_kind = {"r": "*", "S": "last_value, is_called"}
    with psycopg.connect(url) as connection:
        statement = "SELECT relname, relkind FROM pg_class WHERE relname !~ '^(pg_|sql_)'"
        names = dict(connection.execute(statement).fetchall())
        found: dict[str, Any] = {"": names}
        for name in [name for name in names if names[name] in of_kind]:
            columns = "migration, oldest" if name == "store" else of_kind[names[name]]
            found[name] = sorted(connection.execute(f"SELECT {columns} FROM {name}".encode()), key=str)  # noqa: S608
    return found


@contextmanager
def service(url: str, *resources: Resource) -> Iterator[FlaskClient]:
    """A client of a service with the tests' resources, and others."""
    app = create_app(Config(database_url=url), [*RESOURCES, *resources])
    with closing(service_of(app).store) as store:
        store.open()
        yield app.test_client()


def test_the_default_collation_is_the_reverse_of_code_points() -> None:
    """An order without a collation is wrong at once. Lower case is that of all letters."""
    words = "SELECT string_agg(word, '' ORDER BY word), lower('Ä') FROM unnest(ARRAY['b', 'a', 'B', 'A']) AS word"
    with PostgresServer() as server, psycopg.connect(server.create_database()) as connection:
        assert connection.execute(words).fetchone() == ("baBA", "ä")


@pytest.mark.needs("events", "idempotency", "webhooks")
def test_a_database_that_is_used_again_is_as_new(databases: Databases) -> None:
    """No row, no number of a sequence and no index is left; the store has another epoch."""
    reused, collections = Reused(databases), stored_collections(RESOURCES)
    new, used = databases.create_database(), reused.take(collections)
    with service(new):
        pass
    with service(used, Resource("notes", "note", ItemSchema, indexes=[Index("created_at")])) as client:
        hook = client.post("/api/v1/webhooks", json={"url": "https://example.org/"}).headers["Location"]
        assert client.post("/products", json={"name": "x"}, headers={"Idempotency-Key": "k"}).status_code == 200
        assert client.post(f"{hook}/ping").status_code == 200
    as_new, as_used = everything_in(new), everything_in(used)
    changed = {"items", "schemas", "counters", "responses", "events", "feed", "subscriptions", "deliveries", ""}
    assert changed <= {name for name in as_new if as_new[name] != as_used[name]}
    epoch = epoch_of(used)
    reused.give_back(used)
    assert reused.take(collections) == used
    with service(used):
        pass
    assert everything_in(used) == as_new and epoch_of(used) != epoch
    for url in (new, used):
        databases.drop_database(url)
