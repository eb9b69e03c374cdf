"""A store in PostgreSQL whose transactions and sessions a test holds, and threads that run at the same time."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from restkeeper.storage.interface import Collection
from restkeeper.storage.location import Options
from restkeeper.storage.postgresql.items import PostgresTransaction
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.postgresql.store import PostgresStore
from tests.outbox import event
from tests.waiting import SECONDS, until

BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class Held(PostgresStore):
    """A store with the collection `things`."""

    def __init__(self, url: str) -> None:
        super().__init__(url, [Collection("things", {})], Options(connections=32))

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._parts.session() as session:
            yield session
            session.roll_back_if_open()

    @contextmanager
    def transaction(self) -> Iterator[PostgresTransaction]:
        """A transaction that is committed at the end of the block."""
        with self.session() as session:
            session.begin()
            transaction = PostgresTransaction(session, self._collections, self._unique)
            yield transaction
            transaction.finish()

    def record(self, *items: str, at: str = "2026-01-01") -> None:
        self.write(lambda transaction: [transaction.add_event(event(item, at=at)) for item in items])

    def rows(self, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        with self.session() as session:
            return session.fetch(statement, parameters)

    def wait_until_blocked(self) -> None:
        """Wait until one transaction waits for another."""
        until(lambda: self.rows(BLOCKED) == [(1,)])


class Parallel:
    """Threads that run at the same time. `join` waits for them, and raises the first error of one."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(32)
        self._futures: list[Future[Any]] = []

    def start(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        self._futures.append(self._pool.submit(function, *arguments))
        return self._futures[-1]

    def join(self) -> None:
        for each in self._futures:
            each.result(SECONDS)
        self._pool.shutdown()
