"""A database with an outbox for each test."""

from collections.abc import Iterator

import pytest

from tests.postgresql.helpers import OutboxOnly
from tests.postgresql_server import Databases


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """A new database."""
    made = databases.create_database()
    yield made
    databases.drop_database(made)


@pytest.fixture
def outbox(url: str) -> Iterator[OutboxOnly]:
    """An outbox in a new database."""
    outbox = OutboxOnly(url)
    outbox.create()
    yield outbox
    outbox.close()
