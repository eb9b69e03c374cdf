"""The tables of a store in PostgreSQL, the indexes that the collections declare, and their schemas.

Migrations run in one transaction; indexes are
built after it and one by one, while others read and write (`CREATE INDEX CONCURRENTLY`). Those of a new store are
created with its tables, which is faster.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

import psycopg

from restkeeper.clock import Clock
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.interface import Collection
from restkeeper.storage.postgresql.dialect import DIALECT, PostgresDatabase, note_database
from restkeeper.storage.postgresql.expressions import index_prefix, indexes_of, unique_fields
from restkeeper.storage.postgresql.items import CREATE_COUNTERS, SHARDS
from restkeeper.storage.postgresql.migrations.locks import (
    BUILDS,
    holders_of_tables,
    holding,
    lock_briefly,
    log,
    migrate_alone,
    waiting_for_any_time,
)
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.records import is_registered, register
from restkeeper.storage.sql import MIGRATIONS, oldest_of, require_current, require_known

_PRESENT = """\
SELECT
    relname::text,
    indisvalid
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = 'items'::regclass AND starts_with(relname::text, %s)"""


def migrate(session: Session, collections: Sequence[Collection], clock: Clock) -> None:
    """Run the migrations that are missing, register the schemas, and build the indexes.

    A start that is refused changes nothing but indexes, so that the program before can start again. Raises
    StoreUnavailable as `require_readable`, `register` and `migrate_alone`.
    """
    if _migration_of(session) < len(MIGRATIONS):
        with holding(session, BUILDS, clock):  # no migration gets the lock of a table whose index is built
            migrate_alone(session, partial(_complete, session, collections), clock)
    elif not all(_is_declared(session, each) for each in collections):
        migrate_alone(session, partial(_complete, session, collections), clock)
    require_readable(session)
    with suppress(psycopg.errors.ReadOnlySqlTransaction):  # a standby has the history of its primary
        note_database(session)
    _build_indexes(session, collections, clock)


def _complete(session: Session, collections: Sequence[Collection]) -> None:
    """Create what is missing but the indexes, of a new store these as well.

    The schemas are registered before migrations lock the tables, as that can read all items.
    """
    if is_new := is_empty(session):  # and nobody writes yet
        run_missing(session)
    require_readable(session)  # a newer program can have been first
    for collection in collections:
        register(PostgresDatabase(session), collection)
        session.change(CREATE_COUNTERS, (collection.name,))
        if is_new:
            for statement in indexes_of(collection).values():
                session.queue(statement.replace(" CONCURRENTLY", "", 1))
    run_missing(session)


def require_readable(session: Session) -> None:
    """Raises StoreUnavailable if this program may not use the store.

    A newer program has migrated it so that this one cannot work with it, or it was moved to another one.
    """
    migration, oldest, moved_to = session.rows("SELECT migration, oldest, moved_to FROM store")[0]
    require_known(migration, oldest, len(MIGRATIONS))
    require_current(moved_to)


def require_present(session: Session) -> None:
    """As `require_readable`; also raises StoreUnavailable if migrations are missing."""
    if (migration := _migration_of(session)) < len(MIGRATIONS):
        raise StoreUnavailable(f"the store has migration {migration}, this program needs {len(MIGRATIONS)}")
    require_readable(session)


def drop_undeclared(session: Session, collections: Iterable[Collection], clock: Clock) -> list[str]:
    """Drop the indexes of these collections that they do not declare; return their names."""
    names = [name for each in collections for name in _present(session, each) if name not in indexes_of(each)]
    with holding(session, BUILDS, clock), waiting_for_any_time(session):
        for name in names:
            log.info("deletes the index %s; this waits for: %s", name, holders_of_tables(session))
            session.change(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')
    return names


def is_empty(session: Session) -> bool:
    """Whether the database has no store.

    It reads the catalog: to_regclass would not see a table that was made while this transaction waited for its turn.
    """
    return session.row("SELECT 1 FROM pg_class WHERE relname = 'store' AND pg_table_is_visible(oid)") is None


def _migration_of(session: Session) -> int:
    """The number of migrations that the store has; 0 in an empty database."""
    if is_empty(session):
        return 0
    row = session.row("SELECT migration FROM store")
    return int(row[0]) if row else 0


def run_missing(session: Session) -> None:
    """Run the migrations that are missing, in the transaction that is open."""
    present = _migration_of(session)
    if 0 < present < len(MIGRATIONS):
        lock_briefly(session)
    for number, migration in enumerate(MIGRATIONS[present:], start=present + 1):
        script = DIALECT.script(migration)
        oldest = oldest_of(script)
        session.execute(script.encode())  # without parameters it may have several statements
        session.change("UPDATE store SET migration = %s, oldest = greatest(oldest, %s)", (number, oldest))


def _is_declared(session: Session, collection: Collection) -> bool:
    counted = session.row("SELECT count(*) FROM counters WHERE collection = %s", (collection.name,))
    return counted == (SHARDS,) and is_registered(PostgresDatabase(session), collection)


def _build_indexes(session: Session, collections: Iterable[Collection], clock: Clock) -> None:
    """Build what is missing, and again what was interrupted."""
    missing = [
        (each, name, statement)
        for each in collections
        for present in [_present(session, each)]
        for name, statement in indexes_of(each).items()
        if not present.get(name)
    ]
    if not missing:
        return
    with holding(session, BUILDS, clock), waiting_for_any_time(session):
        for collection, name, statement in missing:
            found = session.row("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", (f'"{name}"',))
            if found == (True,):
                continue  # another program has built it meanwhile
            if found:
                session.change(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')
            holders = holders_of_tables(session)
            log.info("builds the index %s (see pg_stat_progress_create_index); this waits for: %s", name, holders)
            try:
                session.change(statement)
            except psycopg.errors.UniqueViolation as error:
                session.change(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')
                field = unique_fields(collection)[name]
                message = f"some items of {collection.name} have the same {field}, which must be unique"
                raise StoreUnavailable(message) from error


def _present(session: Session, collection: Collection) -> dict[str, bool]:
    """The indexes of a collection: name to whether it is complete."""
    return dict(session.rows(_PRESENT, (index_prefix(collection),)))
