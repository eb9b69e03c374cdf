"""A store in PostgreSQL as the source of a copy."""

import time

import psycopg
import pytest

from restkeeper.storage import open_store
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.postgresql.transfer import PostgresTransfer
from restkeeper.storage.transfer import Mark, MarkKind
from tests.things import THINGS, insert, record


def test_a_copy_waits_for_no_reader(url: str) -> None:
    """While a transaction reads, as a `pg_dump` does, changes can be refused, and allowed again."""
    store = open_store(url, [THINGS])
    insert(store, record("a"))
    transfer = PostgresTransfer(url, time)
    with psycopg.connect(url) as reader:
        reader.execute("SELECT 1 FROM items, events, store")
        reader.execute("SELECT 1 FROM answers, counters, feed, deliveries, schemas, subscriptions")
        for kind in (MarkKind.MOVING, MarkKind.MOVED):
            transfer.freeze(Mark(kind, "copy", "another"))
            with pytest.raises(StoreUnavailable, match="moved to another"):
                insert(store, record("b"))
            assert store.read("things", "a") == record("a")
        transfer.release()
        insert(store, record("b"))
    transfer.freeze(Mark(MarkKind.MOVED, "copy", "another"))
    with pytest.raises(StoreUnavailable, match="moved to another"):
        insert(store, record("c"))
    transfer.release()
    insert(store, record("c"))
    transfer.close()
    store.close()
