"""The stores of the tests' applications and servers: those that they name, or others that `pytest --store` chooses."""

from typing import Protocol

from restkeeper.web.application import Application


class Stores(Protocol):
    """Gives each application of a test its store."""

    def url(self, url: str) -> str:
        """The DATABASE_URL to use instead of one for SQLite."""

    def secret(self, url: str) -> str:
        """The secret of the store at an URL that `url` gave."""

    def opened(self, app: Application) -> None:
        """Note that an application has opened its store, so that it is closed at the end of the test."""


_chosen: list[Stores] = []


def choose(stores: Stores) -> None:
    """Let all applications and servers of this process have stores of this kind."""
    _chosen[:] = [stores]


def chosen() -> Stores | None:
    """What `pytest --store` chose; None for SQLite."""
    return _chosen[0] if _chosen else None


def url(url: str) -> str:
    """The URL of the store for a test that names one of SQLite: on PostgreSQL, that of a database in its place."""
    stores = chosen()
    return stores.url(url) if stores else url
