"""The stores of the tests' applications and servers: those that they name, or others that `pytest --store` chooses.

A test names a store by its URL for SQLite, and reaches it beside the service by `stores.url`, `stores.held` and so on,
which are the methods of the chosen kind of stores, so that it runs on each of them.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from restkeeper.web.application import Application


class SqliteStores:
    """The stores that the tests name."""

    def url(self, url: str) -> str:
        """The DATABASE_URL to use instead of one for SQLite."""
        return url

    def without_store(self, url: str) -> str:
        """As `url`, where no service has created its store yet."""
        return url

    def exists(self, url: str) -> bool:
        """Whether there is a store."""
        return _file(url).exists()

    def opened(self, app: Application) -> None:
        """Note that an application has opened its store: other kinds have to close it at the end of the test."""

    def execute(self, url: str, statement: str) -> list[tuple[Any, ...]]:
        """The rows of an SQL statement, which another program executes and commits."""
        with closing(sqlite3.connect(f"file:{_file(url)}?mode=rw", uri=True)) as connection, connection:
            return connection.execute(statement).fetchall()

    def content(self, url: str) -> bytes:
        """Everything that is stored."""
        return b"".join(path.read_bytes() for path in _file(url).parent.glob(f"{_file(url).name}*"))

    @contextmanager
    def held(self, url: str) -> Iterator[None]:
        """Another program has changed items, and has not committed."""
        with closing(sqlite3.connect(_file(url), isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def away(self, url: str) -> Iterator[None]:
        """The store cannot be reached."""
        elsewhere = _file(url).rename(_file(url).with_suffix(".away"))
        yield
        elsewhere.rename(_file(url))

    def require_whole(self, url: str) -> None:
        """Fail if a store has damaged tables or indexes."""
        assert self.execute(url, "PRAGMA integrity_check") == [("ok",)]

    def outdate(self, url: str) -> None:
        """Let a newer program migrate the store so that this one cannot work with it."""
        for statement in ("UPDATE store SET oldest = 99", "PRAGMA user_version = 99"):
            self.execute(url, statement)


def _file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


_chosen: list[Any] = [SqliteStores()]


def choose(stores: Any) -> None:
    """Let all applications and servers of this process have stores of this kind, an object like SqliteStores."""
    _chosen[:] = [stores]


def name_of(url: str) -> str:
    """The name of a store's file or database."""
    return urlsplit(_chosen[0].url(url)).path.rpartition("/")[2]


def __getattr__(name: str) -> Any:
    """What the chosen kind of stores has."""
    return getattr(_chosen[0], name)
