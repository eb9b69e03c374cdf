"""An outbox in PostgreSQL without the items of a store, for the tests of its two modules."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import psycopg

from restkeeper.storage.deliveries import find_subscriptions, newest_id, read_log
from restkeeper.storage.outbox import EventFilter, Events, LogEntry, Subscription
from restkeeper.storage.postgresql import feed
from restkeeper.storage.postgresql.dialect import PostgresDatabase
from restkeeper.storage.postgresql.feed import Outbox
from restkeeper.storage.postgresql.migrations import run_missing
from restkeeper.storage.postgresql.pool import connect
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.records import Registry
from tests.outbox import event
from tests.waiting import SECONDS

T = TypeVar("T")
EPOCH = "0123abcd"


def ignore(collection: str, fingerprint: str) -> None:
    """The registry of schemas of events that have none."""


class OutboxOnly:
    """The part of a store that `outbox` describes; each call has a connection, as if it were of another process."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[Session] = []

    def create(self) -> None:
        with self.session() as session:
            run_missing(session)
            session.change("UPDATE store SET epoch = %s", (EPOCH,))

    @contextmanager
    def session(self) -> Iterator[Session]:
        session = self._idle.pop() if self._idle else connect(self._url)
        try:
            yield session
        finally:
            session.undo()
            self._idle.append(session)

    @contextmanager
    def transaction(self) -> Iterator[Outbox]:
        """A transaction that is committed at the end of the block."""
        with self.session() as session:
            session.begin()
            yield Outbox(session, Registry([]))
            session.commit()

    def write(self, work: Callable[[Outbox], T]) -> T:
        with self.transaction() as outbox:
            return work(outbox)

    def record(self, *items: str, at: str = "2026-01-01") -> None:
        with self.transaction() as outbox:
            for item in items:
                outbox.record(event(item, at=at))

    def last_event(self) -> str:
        with self.session() as session:
            return newest_id(PostgresDatabase(session), partial(feed.sequence_all, session))

    def events(self, after: str, filter: EventFilter, limit: int) -> Events:
        with self.session() as session:
            return feed.find_events(session, after, filter, limit, ignore)

    def subscriptions(self, active: Sequence[str], now: float) -> list[Subscription]:
        with self.session() as session:
            feed.number_all(session)
            return find_subscriptions(PostgresDatabase(session), active, now)

    def deliveries(self, webhook: str, before: int | None, limit: int, state: str | None = None) -> list[LogEntry]:
        with self.session() as session:
            return read_log(PostgresDatabase(session), webhook, before, limit, state)

    def rows(self, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        with self.session() as session:
            return session.rows(statement, parameters)

    def close(self) -> None:
        for session in self._idle:
            with suppress(psycopg.Error):
                session.close()

    def wait_until_blocked(self) -> None:
        """Wait until one transaction waits for another."""
        count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        end = time.monotonic() + SECONDS
        while self.rows(count) != [(1,)]:
            assert time.monotonic() < end, "nothing waits"


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
