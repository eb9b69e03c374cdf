"""The tables of a store in PostgreSQL, the indexes that the collections declare, and their schemas.

Migrations run in one transaction; indexes are built after it and one by one, while others read and write (`CREATE INDEX
CONCURRENTLY`). Those of a new store are created with its tables, which is faster.

A request queues behind a statement that waits for a lock of its table, even if it would get its own lock at once. So a
migration waits for locks for less time than a request notices, and tries again after a pause, in which requests run.
What a start itself waits for is logged.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from math import inf
from typing import NamedTuple

import psycopg
from psycopg.errors import DeadlockDetected, LockNotAvailable

from restkeeper.clock import Clock
from restkeeper.storage.errors import StoreBusy, StoreUnavailable
from restkeeper.storage.interface import Collection, Index
from restkeeper.storage.postgresql import limits
from restkeeper.storage.postgresql.dialect import DIALECT
from restkeeper.storage.postgresql.items import CREATE_COUNTERS, SHARDS
from restkeeper.storage.postgresql.queries import PostgresColumn
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.records import is_registered, register
from restkeeper.storage.sql import (
    BETWEEN_FIELDS,
    MIGRATIONS,
    is_breaking,
    literal,
    not_unique,
    oldest_of,
    require_layout,
    require_usable,
)

TABLES = ("items", "counters", "schemas", "responses", "events", "feed", "subscriptions", "deliveries", "store")

_COUNTERS = "SELECT count(*) FROM counters WHERE collection = %s"

_IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"

_TABLES = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NOT NULL"

_COLUMNS = """\
SELECT attname FROM pg_attribute WHERE attrelid IN (to_regclass('items'), to_regclass('store')) AND attnum > 0"""

_INDEXES = """\
SELECT relname::text, indisvalid
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = 'items'::regclass AND starts_with(relname::text, %s)"""

# PostgreSQL cancels an autovacuum only for a transaction that has waited for it for `deadlock_timeout` (1 s). In less
# than twice that time, no deadlock with an index that is built ends that one in place of the migration.
_LIMIT_TO_VACUUM = """\
SELECT set_config('lock_timeout', least(1.5 * setting::int, 10000)::int::text, true)
FROM pg_settings
WHERE name = 'deadlock_timeout'"""

LONGEST_NAME = 23  # characters of the names of a collection and a field in the name of an index, which has 63 bytes

log = logging.getLogger("restkeeper.start")  # is enabled also where the service is only tried (`server/settings.py`)


class Lock(NamedTuple):
    """An advisory lock, which one program has at a time, for a task."""

    key: int
    task: str


MIGRATES = Lock(0x7265737463, "migrates this store")
BUILDS = Lock(0x7265737462, "builds indexes")
CONVERTS = Lock(0x7265737476, "converts items")
USES = Lock(0x7265737475, "uses this store")  # shared, by each connection; a copy or a renaming has it alone


class _Wait:
    """A wait that is logged after some seconds, and then rarely."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._due = self._since + limits.QUIET_SECONDS

    @property
    def seconds(self) -> float:
        return self._clock.monotonic() - self._since

    def note(self, message: str) -> None:
        if (now := self._clock.monotonic()) >= self._due:
            self._due = now + limits.LOG_SECONDS
            log.warning("waits for %s (see pg_stat_activity)", message)


@contextmanager
def holding(
    session: Session, lock: Lock, clock: Clock, seconds: float = inf, refusal: StoreUnavailable | None = None
) -> Iterator[None]:
    """Meanwhile no other program has the lock. If one has it for so many seconds more, the `refusal` is raised.

    It asks for it again and again: whoever builds an index would wait for the end of a statement that waits.
    """
    wait = _Wait(clock)
    while session.fetch("SELECT pg_try_advisory_lock(%s)", (lock.key,)) != [(True,)]:
        if refusal and wait.seconds >= seconds:
            raise refusal
        wait.note(f"another program, which {lock.task}")
        clock.sleep(limits.OTHERS_SECONDS)
    try:
        yield
    finally:
        if not session.closed:  # or the server has released it
            session.roll_back_if_open()  # or it could not release the lock, which the next start would still find
            session.fetch("SELECT pg_advisory_unlock(%s)", (lock.key,))


def share(session: Session) -> None:
    """Use the store with this connection, until it is closed. Raises StoreUnavailable if another one has it alone."""
    if session.fetch("SELECT pg_try_advisory_lock_shared(%s)", (USES.key,)) != [(True,)]:
        raise StoreUnavailable("the store is being moved, or a collection of it renamed")


@contextmanager
def _unshared(session: Session) -> Iterator[None]:
    """Do not use the store meanwhile: of programs that start together, one shall have it alone."""
    session.fetch("SELECT pg_advisory_unlock_shared(%s)", (USES.key,))
    try:
        yield
    finally:
        if not session.closed:
            share(session)


def migrate_alone(session: Session, collections: Sequence[Collection], clock: Clock) -> None:
    """Create what is missing in a transaction, while no other program migrates.

    If others have locks that it needs, it is done again, until limits.MIGRATION_SECONDS have passed; then nothing is
    changed. Raises StoreUnavailable.
    """
    with holding(session, MIGRATES, clock):
        wait = _Wait(clock)
        while True:
            session.begin()
            try:
                _complete(session, collections)
                session.commit()
                return
            except (LockNotAvailable, DeadlockDetected) as caught:
                error = caught
            finally:
                session.roll_back_if_open()
            if wait.seconds >= limits.MIGRATION_SECONDS:
                detail = f"the store cannot be migrated: others used its tables for {limits.MIGRATION_SECONDS:.0f} s"
                remedy = "see pg_stat_activity; wait until they have ended, or end them by pg_terminate_backend"
                raise StoreUnavailable(detail, reason=f"{remedy}, and start again") from error
            wait.note("transactions that use its tables")
            clock.sleep(limits.MIGRATION_PAUSE_SECONDS)


@contextmanager
def waiting_for_any_time(session: Session) -> Iterator[None]:
    """Statements wait for locks for any time, which is for those that nobody else waits for."""
    before = session.fetch("SELECT current_setting('lock_timeout')")[0]
    session.apply("SET lock_timeout = 0")
    try:
        yield
    finally:
        if not session.closed:
            session.fetch("SELECT set_config('lock_timeout', %s, false)", before)


def migrate(session: Session, collections: Sequence[Collection], clock: Clock, *, indexed: bool = True) -> None:
    """Run the migrations that are missing, register the schemas, and if `indexed` build the indexes.

    A start that is refused changes nothing but indexes, so that the program before can start again. Raises
    StoreUnavailable as `require_layout`, `require_usable`, `register` and `migrate_alone`.
    """
    require_layout_of(session)
    if (present := _migration_of(session)) < len(MIGRATIONS):
        with ExitStack() as stack:
            if is_breaking(present):
                stack.enter_context(_unshared(session))
            stack.enter_context(holding(session, BUILDS, clock))  # no migration locks a table whose index is built
            if is_breaking(_migration_of(session)):
                busy = StoreBusy("the store must be migrated: stop all that uses it with a former program")
                stack.enter_context(holding(session, USES, clock, limits.MIGRATION_SECONDS, busy))
            migrate_alone(session, collections, clock)
    elif not all(
        session.fetch(_COUNTERS, (collection.name,)) == [(SHARDS,)] and is_registered(session, collection)
        for collection in collections
    ):
        migrate_alone(session, collections, clock)
    require_usable(session, len(MIGRATIONS))
    if indexed:
        _build_indexes(session, collections, clock)


def _complete(session: Session, collections: Sequence[Collection]) -> None:
    """Create what is missing but the indexes, of a new store these as well.

    The schemas are registered before migrations lock the tables, as that can read all items.
    """
    if (is_new := is_empty(session)) or is_breaking(_migration_of(session)):  # and nobody writes
        run_missing(session)
    require_usable(session, len(MIGRATIONS))  # a newer program can have been first
    for collection in collections:
        register(session, collection)
        if is_new:
            for statement in indexes_of(collection).values():
                session.queue(statement.replace(" CONCURRENTLY", "", 1))
    run_missing(session)
    for collection in collections:
        session.apply(CREATE_COUNTERS, (collection.name, collection.revision))


def drop_undeclared(session: Session, collections: Iterable[Collection], clock: Clock) -> list[str]:
    """Drop the indexes of these collections that they do not declare; return their names."""
    names = [
        name
        for collection in collections
        for name in present_indexes(session, collection)
        if name not in indexes_of(collection)
    ]
    with holding(session, BUILDS, clock), waiting_for_any_time(session):
        for name in names:
            log.info("deletes the index %s; this waits for all transactions (see pg_stat_activity)", name)
            session.apply(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')
    return names


def require_layout_of(session: Session) -> None:
    """Raises StoreUnavailable as `require_layout`, but for an empty database."""
    if columns := session.fetch(_COLUMNS):
        require_layout([name for (name,) in columns], "the database")


def is_empty(session: Session) -> bool:
    """Whether the database has no store.

    It reads the catalog: to_regclass would not see a table that was made while this transaction waited for its turn.
    """
    return session.fetch("SELECT 1 FROM pg_class WHERE relname = 'store' AND pg_table_is_visible(oid)") == []


def _migration_of(session: Session) -> int:
    """The number of migrations that the store has; 0 in an empty database, and while a tool restores it."""
    rows = [] if is_empty(session) else session.fetch("SELECT migration FROM store")
    return int(rows[0][0]) if rows else 0


def run_missing(session: Session) -> None:
    """Run the migrations that are missing, in the transaction that is open."""
    present = _migration_of(session)
    if 0 < present < len(MIGRATIONS):
        # Wait for others that vacuum or change a table, in a way that requests do not wait for; then wait for a moment
        # only for each lock.
        tables = [name for (name,) in session.fetch(_TABLES, (list(TABLES),))]
        session.fetch(_LIMIT_TO_VACUUM)
        session.apply(f"LOCK TABLE {', '.join(tables)} IN SHARE UPDATE EXCLUSIVE MODE")
        session.apply(f"SET LOCAL lock_timeout = {limits.MIGRATION_LOCK_SECONDS * 1000:.0f}")
    for number, migration in enumerate(MIGRATIONS[present:], start=present + 1):
        script = DIALECT.script(migration)
        oldest = oldest_of(script)
        session.execute(script.encode())  # without parameters it may have several statements
        session.apply("UPDATE store SET migration = %s, oldest = greatest(oldest, %s)", (number, oldest))


def _build_indexes(session: Session, collections: Iterable[Collection], clock: Clock) -> None:
    """Build what is missing, and again what was interrupted."""
    missing = [
        (collection, name, statement)
        for collection in collections
        for present in [present_indexes(session, collection)]
        for name, statement in indexes_of(collection).items()
        if not present.get(name)
    ]
    if not missing:
        return
    with holding(session, BUILDS, clock), waiting_for_any_time(session):
        for collection, name, statement in missing:
            states = session.fetch(_IS_VALID, (f'"{name}"',))
            if states == [(True,)]:
                continue  # another program has built it meanwhile
            if states:
                session.apply(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')
            log.info("builds the index %s; this waits for others (see pg_stat_progress_create_index)", name)
            try:
                session.apply(statement)
            except psycopg.errors.UniqueViolation as error:
                session.apply(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')
                raise not_unique(session, collection, unique_fields(collection)[name]) from error


def present_indexes(session: Session, collection: Collection) -> dict[str, bool]:
    """The indexes of a collection: name to whether it is complete."""
    return dict(session.fetch(_INDEXES, (index_prefix(collection),)))


def index_prefix(collection: Collection) -> str:
    """The prefix of the names of a collection's indexes; names of collections and fields have no dot."""
    return f"items.{_short(collection.name)}."


def indexes_of(collection: Collection) -> dict[str, str]:
    """The declared indexes: name to CREATE statement. A name has a digest of the definition, so it never changes."""
    of_collection = f"collection = {literal(collection.name)}"
    definitions = [_index(collection, index) for index in collection.indexes]
    if collection.has_owner_index:
        definitions.append(("owner", False, f"(owner, id) WHERE {of_collection}"))
    return dict(_named(collection, *definition) for definition in definitions)


def unique_fields(collection: Collection) -> dict[str, tuple[str, ...]]:
    """The fields of the unique indexes, by the names of the indexes."""
    return {
        _named(collection, *_index(collection, index))[0]: index.fields for index in collection.indexes if index.unique
    }


def _index(collection: Collection, index: Index) -> tuple[str, bool, str]:
    columns = [PostgresColumn.of(collection, field) for field in index.fields]
    indexed, suffix = columns[0], BETWEEN_FIELDS.join(index.fields)
    where = f"collection = {literal(collection.name)}"
    if indexed.field.is_many:
        # Without a list of new entries, which each search reads to its end, and for which plans avoid the index.
        return suffix, False, f"USING gin (({indexed.values}) jsonb_path_ops) WITH (fastupdate = off) WHERE {where}"
    if not index.unique:
        return suffix, False, f"({', '.join(column.order for column in columns)}, id) WHERE {where}"
    where += f" AND {indexed.value} IS NOT NULL" if indexed.field.nullable and len(columns) == 1 else ""
    return suffix, True, f"({', '.join(column.unique for column in columns)}) WHERE {where}"


def _named(collection: Collection, suffix: str, is_unique: bool, definition: str) -> tuple[str, str]:
    name = f"{index_prefix(collection)}{_short(suffix)}.{_digest(definition)}"
    unique = "UNIQUE " if is_unique else ""
    return name, f'CREATE {unique}INDEX CONCURRENTLY IF NOT EXISTS "{name}" ON items {definition}'


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{_digest(name)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()
