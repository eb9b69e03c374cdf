"""SQL that is written once: the dialect of each database, names, and migrations.

Names in statements come from the declaration only; values are always parameters.

The first line of a migration is `-- oldest: N`: a program that has the first N migrations can work with the store after
this one, too. Old and new programs can then use it at the same time.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from decimal import Context
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Protocol

import orjson

from restkeeper.storage.errors import EpochMissing, RevisionDiffers, StoreUnavailable
from restkeeper.storage.interface import FREE_NAME, Collection, Page, Query

Row = tuple[Any, ...]

MIGRATIONS = sorted((Path(__file__).parent / "migrations").glob("[0-9]*.sql"))

LAYOUT = "layout_4"  # a column whose name changes with the tables of the first migration, which stay from 1.0 on
_EVER = ("collection", "id", "owner", "version", "updated_at", "body")  # columns of items in every layout

DATES = ("0001-01-02", "9999-12-31")  # between which a time has a date in each time zone
DATE = "[0-9][0-9][0-9][0-9]-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"  # a regular expression
TIME = DATE + "T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
EXACT = Context(prec=1000)  # digits: as many as a sum of doubles can have
SORTED = 300  # characters of a text of kind JSON
CREATED, UPDATED, DELETED = ".created", ".updated", ".deleted"  # the ends of types of events

_NAME, _FREE_NAME = re.compile(r"\w+", re.ASCII), re.compile(FREE_NAME)

BETWEEN_FIELDS = "+"  # between the fields of one index, in its name
MOST_NAMED = 10  # items that have a value that is to be unique
MOST_SHOWN = 80  # characters of that


def record_columns(as_bytes: str) -> str:
    """The columns of a record. `as_bytes` is how a database returns a text as bytes."""
    return (
        f"id, version, updated_at, fingerprint, {as_bytes.format('body')}, owner, {as_bytes.format('removed_fields')}"
    )


def event_columns(as_bytes: str, type: str = "events.type") -> str:
    """The columns of a stored event, for `stored_event`."""
    data, removed_fields = as_bytes.format("data"), as_bytes.format("removed_fields")
    return f"position, origin, {type}, at, {data}, collection, fingerprint, {removed_fields}, owner, former"


def event_type(in_all: str, has: str, had: str) -> str:
    """The type of an event for the readers of an `EventFilter`, by conditions of these."""
    return f"""\
CASE
    WHEN former IS NULL OR {in_all} OR ({has} AND {had}) THEN events.type
    WHEN {has} THEN replace(events.type, '{UPDATED}', '{CREATED}')
    ELSE replace(events.type, '{UPDATED}', '{DELETED}')
END"""


class Dialect(dict[str, str]):
    """Statements as a database understands them, by their general form; `name` is the name of the database.

    `parameter` is how it writes a parameter, where they have `:name`. `parts` are what stands for the names in braces.
    `as_bytes`, `is_in` and `is_like` are how it returns a text as bytes, and compares with texts, and with patterns.
    """

    def __init__(self, name: str, parameter: str, *, as_bytes: str, is_in: str, is_like: str, **parts: str) -> None:
        super().__init__()
        self._name = name
        self._parameter = parameter.format(r"\1")
        in_all, in_own = (f"collection {is_in.format(names)}" for names in ("collections", "own"))
        has, had = (f"{owner} {is_in.format('owners')}" for owner in ("owner", "former"))
        type = event_type(in_all, has, had)
        self._parts = parts | {
            "layout": LAYOUT,
            "item": record_columns(as_bytes),
            "event": event_columns(as_bytes),
            "event_for_readers": event_columns(as_bytes, type),
            "wanted": f"({in_all} OR (({has} OR {had}) AND {in_own}))"
            f" AND {is_like.format(type)} AND (item = :item OR CAST(:item AS text) IS NULL)",
        }

    def __missing__(self, statement: str) -> str:
        self[statement] = re.sub(r"(?<!:):(\w+)", self._parameter, statement.format_map(self._parts))
        return self[statement]

    def script(self, migration: Path) -> str:
        """The statements of a migration, in which a line can end with the name of the only database that it is for."""
        of_another = rf"(?m)^.* -- (?!{self._name})\w+ only\n"
        return re.sub(of_another, "", migration.read_text(encoding="utf-8")).format_map(self._parts)


class Database(Protocol):
    """A connection that executes statements of any dialect. `columns` is its class of `Column`."""

    columns: ClassVar[type[Any]]

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        """The rows of a statement in the database's own words."""

    def records(self, statement: str, parameters: Mapping[str, Any], max_bytes: int) -> Iterable[Row]:
        """The rows of parts `related_rows`, at least until their records have more bytes."""

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        """The rows of a statement. A list among the parameters is for a part of the dialect."""

    def page(self, collection: Collection, query: Query, max_bytes: int | None, *, bounded: bool = False) -> Page:
        """See `base.Store.page`. If it is `bounded`, it reads what an equality has, not an order in search of it."""

    def explain(self, collection: Collection, query: Query) -> list[str]:
        """How the items of a query are found in a transaction, in the database's own words."""

    def change(self, statement: str, parameters: Mapping[str, Any]) -> None:
        """Make a change, now or before the next statement."""

    def commit(self) -> None:
        """End the transaction; all its changes are stored."""


def literal(name: str) -> str:
    """A checked name as an SQL string literal."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r}: names of collections and fields are ASCII letters, digits and underscores")
    return f"'{name}'"


def path_of(name: str) -> list[str]:
    """The names on the path of a field, each checked."""
    names = name.split(".")
    if wrong := [name for name in names if not _FREE_NAME.fullmatch(name)]:
        raise ValueError(f"{wrong[0]!r} is no name of a field")
    return names


_SELECT_DUPLICATES = """\
WITH taken AS (SELECT {named}, count(*) AS items FROM items WHERE {where} GROUP BY {values} HAVING count(*) > 1)
SELECT id, body, (SELECT sum(items) FROM taken), {values}
FROM items
WHERE {where} AND ({values}) IN (SELECT {names} FROM taken)
ORDER BY {values}, id
LIMIT {most}"""


def not_unique(database: Database, collection: Collection, fields: Sequence[str]) -> StoreUnavailable:
    """Why fields cannot become unique: the first items that share their values, and how many more there are."""
    values = [database.columns.of(collection, name).folded for name in fields]
    where = " AND ".join([f"collection = {literal(collection.name)}", *(f"{value} IS NOT NULL" for value in values)])
    rows = database.fetch(
        _SELECT_DUPLICATES.format(
            values=", ".join(values),
            named=", ".join(f"{value} AS v{n}" for n, value in enumerate(values)),
            names=", ".join(f"v{n}" for n in range(len(values))),
            where=where,
            most=MOST_NAMED,
        ),
        {},
    )
    conflicts = []
    for _, same in groupby(rows, key=itemgetter(slice(3, None))):  # of folded values, which the first one shows
        items = [{"id": id} | orjson.loads(body) for id, body, *_ in same]
        text = ", ".join(orjson.dumps(items[0].get(name)).decode() for name in fields)
        text = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
        conflicts.append(f"{text}: {', '.join(str(item['id']) for item in items)}")
    conflicts += [f"and {more} more items" for _, _, total, *_ in rows[-1:] if (more := total - len(rows))]
    reason = "; ".join([*conflicts, "change or delete them with the former program"])
    return StoreUnavailable(
        f"some items of {collection.name} have the same {' and '.join(fields)}, which must be unique", reason=reason
    )


def change_token(epoch: str, changes: int | None) -> str:
    """The change token of a collection with this number of changes. Raises EpochMissing."""
    if not epoch:
        raise EpochMissing
    return f"{epoch}-{changes or 0:x}"


def require_revision(collection: Collection, revision: int | None) -> None:
    """Raises RevisionDiffers for another revision of its items than the collection's; None is that of none."""
    if revision not in (collection.revision, None):
        raise RevisionDiffers(collection.name, collection.revision, revision)


def oldest_of(script: str) -> int:
    """The number in the first line of a migration. Raises ValueError."""
    if not (match := re.match(r"-- oldest: (\d+)\n", script)):
        raise ValueError("the first line of a migration is: -- oldest: N")
    return int(match[1])


def is_breaking(present: int) -> bool:
    """Whether a store with so many migrations, if it has some, cannot be used by its programs after the others."""
    missing = MIGRATIONS[present:] if present else ()
    return any(oldest_of(migration.read_text(encoding="utf-8")) > present for migration in missing)


def require_known(migration: int, oldest: int, available: int, name: str = "the store") -> None:
    """Raises StoreUnavailable if the store needs a program that has more migrations than the `available` ones."""
    if oldest > available:
        raise StoreUnavailable(
            f"{name} is of a newer program (migration {migration} of {available}): use one that has migration {oldest}"
        )


def require_layout(columns: Container[str], name: str) -> None:
    """Raises StoreUnavailable unless columns of `items` and `store` are those that the migrations continue."""
    if not all(column in columns for column in _EVER):
        raise StoreUnavailable(f"{name} has the tables of another program: name another one")
    if LAYOUT not in columns:
        remedy = "export its items there, and import them here"
        raise StoreUnavailable(f"{name} has tables made by a version before 1.0: {remedy}")


def require_usable(database: Database, available: int, *, complete: bool = False) -> None:
    """Raises StoreUnavailable if a program with so many `available` migrations cannot use the store, or it was moved.

    If it must be `complete`, it has all of these.
    """
    if not (rows := database.rows("SELECT {migration}, oldest, moved_to FROM store", {})):
        raise StoreUnavailable("the store is being restored: its tables are there, and not its rows")
    ((migration, oldest, moved_to),) = rows
    if complete and migration < available:
        raise StoreUnavailable(f"the store has migration {migration}, this program needs {available}")
    require_known(migration, oldest, available)
    if moved_to:
        raise StoreUnavailable(
            f"the store was moved to {moved_to}: set DATABASE_URL to that one, or if that copy did not end, repeat it"
        )
