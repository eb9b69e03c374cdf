"""The locks of a start: requests wait for a moment at most, and what the start itself waits for is logged.

A request queues behind a statement that waits for a lock of its table, even if it would get its own lock at once. So a
migration waits for locks for less time than a request notices, and tries again after a pause, in which requests run.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from psycopg.errors import DeadlockDetected, LockNotAvailable

from restkeeper.clock import Clock
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.postgresql import limits
from restkeeper.storage.postgresql.session import Session

TABLES = ("items", "counters", "schemas", "responses", "events", "feed", "subscriptions", "deliveries", "store")

_USE_TABLES = "relation IN (SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)"
_HAVE_ADVISORY = "locktype = 'advisory' AND (classid::bigint << 32) + objid::bigint = %s"

# The sessions that have a lock, the oldest transactions first; a prepared one has no session. Of those of other users
# only the pid and the name are visible, unless this one has the role pg_read_all_stats.
_HOLDERS = """\
SELECT
    pid,
    coalesce(nullif(application_name, ''), backend_type, 'unknown'),
    state,
    extract(epoch FROM clock_timestamp() - coalesce(xact_start, backend_start))::float8
FROM (
    SELECT DISTINCT pid
    FROM pg_locks
    WHERE granted AND pid IS DISTINCT FROM pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND {}
) AS holders LEFT JOIN pg_stat_activity USING (pid)
ORDER BY coalesce(xact_start, backend_start) NULLS FIRST
LIMIT 3"""

_PRESENT = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NOT NULL"

# PostgreSQL cancels an autovacuum only for a transaction that has waited for it for `deadlock_timeout` (1 s). In less
# than twice that time, no deadlock with an index that is built ends that one in place of the migration.
_LIMIT_TO_VACUUM = """\
SELECT set_config('lock_timeout', least(1.5 * setting::int, 10000)::int::text, true)
FROM pg_settings
WHERE name = 'deadlock_timeout'"""

log = logging.getLogger("restkeeper.start")  # is enabled also where the service is only tried (`server/settings.py`)


class Lock(NamedTuple):
    """An advisory lock, which one program has at a time, for a task."""

    key: int
    task: str


MIGRATES = Lock(0x7265737463, "migrates this store")
BUILDS = Lock(0x7265737462, "builds indexes")
USES = Lock(0x7265737475, "uses this store")  # shared, by each connection; a copy has it alone


class _Wait:
    """A wait that is logged after some seconds, and then rarely."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._due = self._since + limits.QUIET_SECONDS

    @property
    def seconds(self) -> float:
        return self._clock.monotonic() - self._since

    def note(self, message: str, holders: Callable[[], str]) -> None:
        """Log why it waits, unless that was done lately."""
        if (now := self._clock.monotonic()) >= self._due:
            self._due = now + limits.LOG_SECONDS
            log.warning("waits for %s: %s", message, holders())


@contextmanager
def holding(session: Session, lock: Lock, clock: Clock) -> Iterator[None]:
    """Meanwhile no other program has the lock.

    It asks for it again and again: whoever builds an index would wait for the end of a statement that waits.
    """
    wait = _Wait(clock)
    while session.row("SELECT pg_try_advisory_lock(%s)", (lock.key,)) != (True,):
        wait.note(f"another program, which {lock.task}", lambda: _holders(session, _HAVE_ADVISORY, lock.key))
        clock.sleep(limits.OTHERS_SECONDS)
    try:
        yield
    finally:
        if not session.closed:  # or the server has released it
            session.row("SELECT pg_advisory_unlock(%s)", (lock.key,))


def share(session: Session) -> None:
    """Use the store with this connection, until it is closed. Raises StoreUnavailable if it is being moved."""
    if session.row("SELECT pg_try_advisory_lock_shared(%s)", (USES.key,)) != (True,):
        raise StoreUnavailable("the store is being moved to another one")


def use_alone(session: Session) -> None:
    """Use the store with this connection alone, until it is closed. Raises StoreUnavailable if another one uses it."""
    if session.row("SELECT pg_try_advisory_lock(%s)", (USES.key,)) != (True,):
        users = _holders(session, _HAVE_ADVISORY, USES.key)
        raise StoreUnavailable(
            f"the store is in use: stop the service, its delivery workers and all commands first; it is used by {users}"
        )


def migrate_alone(session: Session, work: Callable[[], None], clock: Clock) -> None:
    """Do some work in a transaction, while no other program migrates.

    If others have locks that it needs, it is done again, until limits.MIGRATION_SECONDS have passed; then nothing is
    changed. Raises StoreUnavailable.
    """
    with holding(session, MIGRATES, clock):
        wait = _Wait(clock)
        while True:
            session.begin()
            try:
                work()
                session.commit()
                return
            except (LockNotAvailable, DeadlockDetected) as caught:
                error = caught
            finally:
                session.undo()
            if wait.seconds >= limits.MIGRATION_SECONDS:
                detail = f"the store cannot be migrated: others used its tables for {limits.MIGRATION_SECONDS:.0f} s"
                remedy = "wait until they have ended, or end them by pg_terminate_backend, and start again"
                raise StoreUnavailable(detail, reason=f"{holders_of_tables(session)}; {remedy}") from error
            wait.note("transactions that use its tables", lambda: holders_of_tables(session))
            clock.sleep(limits.MIGRATION_PAUSE_SECONDS)


def lock_briefly(session: Session) -> None:
    """Let the rest of a transaction change tables, and wait for a moment only for each lock.

    Before, it waits for others that vacuum or change a table, in a way that requests do not wait for.
    """
    present = [name for (name,) in session.rows(_PRESENT, (list(TABLES),))]
    session.rows(_LIMIT_TO_VACUUM)
    session.change(f"LOCK TABLE {', '.join(present)} IN SHARE UPDATE EXCLUSIVE MODE")
    session.change(f"SET LOCAL lock_timeout = {limits.MIGRATION_LOCK_SECONDS * 1000:.0f}")


@contextmanager
def waiting_for_any_time(session: Session) -> Iterator[None]:
    """Statements wait for locks for any time, which is for those that nobody else waits for."""
    before = session.rows("SELECT current_setting('lock_timeout')")[0]
    session.change("SET lock_timeout = 0")
    try:
        yield
    finally:
        if not session.closed:
            session.rows("SELECT set_config('lock_timeout', %s, false)", before)


def holders_of_tables(session: Session) -> str:
    """The open transactions that have used tables of the store, the oldest three."""
    return _holders(session, _USE_TABLES, list(TABLES))


def _holders(session: Session, condition: str, parameter: int | Sequence[str]) -> str:
    found = []
    for pid, name, state, seconds in session.rows(_HOLDERS.format(condition), (parameter,)):
        about = f"{name}, {state}, for {seconds:.0f} s" if state else name
        found.append("a prepared transaction (see pg_prepared_xacts)" if pid is None else f"pid {pid} ({about})")
    return ", ".join(found) or "none at this moment"
