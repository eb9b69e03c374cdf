"""Databases with a store that the tests of one process use one after the other.

To create a database with its tables and indexes, and to drop it, takes a quarter of a second of a processor, far more
than a test; to empty it takes a hundredth.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

import psycopg
from psycopg import sql

from restkeeper.storage.interface import Collection
from restkeeper.storage.postgresql.migrations import TABLES, indexes_of
from restkeeper.storage.sql import MIGRATIONS
from tests.postgresql_server import CUT, Databases

USES = 50  # of a database: nothing vacuums it

# What a new database has after its migrations.
_EMPTY = [
    f"{CUT} AND datname = current_database()",
    *(f"DELETE FROM {table}" for table in TABLES if table not in ("feed", "store")),  # noqa: S608 - constants
    "UPDATE feed SET newest = 0",
    "UPDATE store SET epoch = left(md5(random()::text), 8), database = ''",
    "SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S'",
]

_INDEXES = """\
SELECT relname::text
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = 'items'::regclass AND starts_with(relname::text, 'items.')"""


class Reused:
    """The databases of one process of the tests: `take` one, and `give_back` it."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._spare: defaultdict[frozenset[str], list[str]] = defaultdict(list)
        self._indexes: dict[str, frozenset[str]] = {}
        self._uses: Counter[str] = Counter()

    def take(self, collections: Iterable[Collection]) -> str:
        """The URL of a database that is empty, or has an empty store and no other indexes than these collections."""
        indexes = frozenset(name for each in collections for name in indexes_of(each))
        spare = self._spare[indexes]
        url = spare.pop() if spare else self._databases.create_database()
        self._indexes[url] = indexes
        self._uses[url] += 1
        return url

    def give_back(self, url: str) -> None:
        """End the use of a database. Its connections are closed."""
        indexes = self._indexes.pop(url)
        if self._uses[url] < USES and empty(url, indexes):
            self._spare[indexes].append(url)
        else:
            self._databases.drop_database(url)


def empty(url: str, indexes: frozenset[str]) -> bool:
    """Make the store in a database as it was when it was new, but for these indexes. Returns whether it is so."""
    try:
        with psycopg.connect(url) as connection:
            if connection.execute("SELECT migration FROM store").fetchall() != [(len(MIGRATIONS),)]:
                return False
            present = {name for (name,) in connection.execute(_INDEXES)}
            for name in present - indexes:
                connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
            connection.execute("; ".join(_EMPTY).encode())
            return True
    except psycopg.Error:  # it has no store, or one that a test has changed in other ways
        return False
