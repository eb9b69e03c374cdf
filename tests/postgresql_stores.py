"""`pytest --store postgresql`: each application and each server of the tests has a database of its own on PostgreSQL.

A database stands in the place of each SQLite store that a test names: another one for memory://, one and the same for
each use of a file. It is the test's, or the fixture's, that asked for it first, until the end of this; others then get
it as it was when it was new.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from restkeeper.app import stored_collections
from restkeeper.service import service_of
from restkeeper.web.application import Application
from tests.postgresql_reuse import Reused
from tests.postgresql_server import Databases, shared_server
from tests.shop import RESOURCES

_COLLECTIONS = stored_collections(RESOURCES)  # of most tests; the first one that uses a database makes their indexes
_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"


class PostgresStores:
    """The databases of one process of the tests: a plugin of pytest, and what `tests.stores` chooses."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._users: list[ExitStack] = []  # the running test, and the fixtures that are being set up
        self._of_files: dict[str, str] = {}

    @cached_property
    def _databases(self) -> Databases:
        return shared_server(*run(self._config))

    @cached_property
    def _reused(self) -> Reused:
        return Reused(self._databases)

    def url(self, url: str) -> str:
        if not self._users:  # an application that is made to read its routes, while the tests are collected
            return url
        if url == "memory://":
            return self._new()
        if not url.startswith("sqlite:///"):
            return url
        return self._of_files[url] if url in self._of_files else self._note(url, self._new())

    def without_store(self, url: str) -> str:
        made = self._databases.create_database()
        self._users[-1].callback(self._databases.drop_database, made)
        return self._note(url, made)

    def exists(self, url: str) -> bool:
        return self.execute(url, "SELECT to_regclass('store') IS NOT NULL") == [(True,)]

    def _note(self, url: str, database: str) -> str:
        """Let a database stand in the place of a file."""
        self._of_files[url] = database
        self._users[-1].callback(self._of_files.pop, url)
        return database

    def _new(self) -> str:
        url = self._reused.take(_COLLECTIONS)
        self._users[-1].callback(self._reused.give_back, url)
        return url

    def execute(self, url: str, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url(url), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def content(self, url: str) -> bytes:
        found = []
        with psycopg.connect(self.url(url)) as connection:
            for (table,) in connection.execute(_TABLES).fetchall():
                statement = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(table))
                with connection.cursor().copy(statement) as rows:
                    found += map(bytes, rows)
        return b"".join(found)

    @contextmanager
    def held(self, url: str) -> Iterator[None]:
        with psycopg.connect(self.url(url)) as connection:
            connection.execute("LOCK TABLE items IN EXCLUSIVE MODE")
            yield

    @contextmanager
    def away(self, url: str) -> Iterator[None]:
        with self._databases.closed(self.url(url)):
            yield

    def opened(self, app: Application) -> None:
        if self._users:
            self._users[-1].callback(service_of(app).store.close)

    def outdate(self, url: str) -> None:
        self.execute(url, "UPDATE store SET migration = 99, oldest = 99")

    @contextmanager
    def used_by(self, user: ExitStack) -> Iterator[None]:
        self._users.append(user)
        try:
            yield
        finally:
            assert self._users.pop() is user

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        databases = ExitStack()
        fixturedef.addfinalizer(databases.close)  # the first one is called last, after the fixture's own end
        with self.used_by(databases):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        with ExitStack() as databases, self.used_by(databases):
            return (yield)


def run(config: pytest.Config) -> tuple[Path, int]:
    """The temporary folder of a run of the tests, which all of its processes have, and the first of these."""
    own: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # the fixture's, for a plugin
    return (own.parent, os.getppid()) if hasattr(config, "workerinput") else (own, os.getpid())
