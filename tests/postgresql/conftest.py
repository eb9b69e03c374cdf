"""A database with an outbox for each test."""

from collections.abc import Iterator

import pytest

from tests.postgresql.helpers import OutboxOnly


@pytest.fixture
def outbox(url: str) -> Iterator[OutboxOnly]:
    """An outbox in a new database."""
    outbox = OutboxOnly(url)
    outbox.create()
    yield outbox
    outbox.close()
