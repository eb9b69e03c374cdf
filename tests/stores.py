"""The stores of the tests' applications and servers: those that they name, or others that `pytest --store` chooses.

A test names a store by its URL for SQLite, and reaches it beside the service by the functions of this module, so that
it runs on each kind of store.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from restkeeper.web.application import Application


class SqliteStores:
    """The stores that the tests name, and what the functions below do with them."""

    def url(self, url: str) -> str:
        return url

    def without_store(self, url: str) -> str:
        return url

    def exists(self, url: str) -> bool:
        return _file(url).exists()

    def opened(self, app: Application) -> None:
        """Note that an application has opened its store: other kinds have to close it at the end of the test."""

    def execute(self, url: str, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{_file(url)}?mode=rw", uri=True)) as connection, connection:
            return connection.execute(statement).fetchall()

    def content(self, url: str) -> bytes:
        return b"".join(path.read_bytes() for path in _file(url).parent.glob(f"{_file(url).name}*"))

    @contextmanager
    def held(self, url: str) -> Iterator[None]:
        with closing(sqlite3.connect(_file(url), isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def away(self, url: str) -> Iterator[None]:
        elsewhere = _file(url).rename(_file(url).with_suffix(".away"))
        yield
        elsewhere.rename(_file(url))

    def require_whole(self, url: str) -> None:
        assert self.execute(url, "PRAGMA integrity_check") == [("ok",)]

    def outdate(self, url: str) -> None:
        for statement in ("UPDATE store SET oldest = 99", "PRAGMA user_version = 99"):
            self.execute(url, statement)


def _file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


_chosen: list[Any] = [SqliteStores()]


def choose(stores: Any) -> None:
    """Let all applications and servers of this process have stores of this kind, an object like SqliteStores."""
    _chosen[:] = [stores]


def chosen() -> Any:
    """What `pytest --store` chose."""
    return _chosen[0]


def url(url: str) -> str:
    """The DATABASE_URL to use instead of one for SQLite."""
    return chosen().url(url)


def without_store(url: str) -> str:
    """As `url`, where no service has created its store yet."""
    return chosen().without_store(url)


def exists(url: str) -> bool:
    """Whether there is a store."""
    return chosen().exists(url)


def name_of(url: str) -> str:
    """The name of a store's file or database."""
    return urlsplit(chosen().url(url)).path.rpartition("/")[2]


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    """The rows of an SQL statement, which another program executes and commits."""
    return chosen().execute(url, statement)


def content(url: str) -> bytes:
    """Everything that is stored."""
    return chosen().content(url)


def held(url: str) -> AbstractContextManager[None]:
    """Another program has changed items, and has not committed."""
    return chosen().held(url)


def away(url: str) -> AbstractContextManager[None]:
    """The store cannot be reached."""
    return chosen().away(url)


def require_whole(url: str) -> None:
    """Fail if a store has damaged tables or indexes."""
    chosen().require_whole(url)


def outdate(url: str) -> None:
    """Let a newer program migrate the store so that this one cannot work with it."""
    chosen().outdate(url)
