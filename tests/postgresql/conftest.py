"""A new database with a store for each test."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.postgresql.helpers import Held


@pytest.fixture
def outbox(url: str) -> Iterator[Held]:
    with closing(Held(url)) as store:
        store.open()
        yield store
