"""A database with an outbox for each test."""

from collections.abc import Iterator

import pytest

from tests.postgresql.helpers import OutboxOnly
from tests.postgresql_server import Databases


@pytest.fixture
def outbox(databases: Databases) -> Iterator[OutboxOnly]:
    """An outbox in a new database."""
    url = databases.create_database()
    outbox = OutboxOnly(url)
    outbox.create()
    yield outbox
    outbox.close()
    databases.drop_database(url)
