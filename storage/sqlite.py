"""SQLite: one file in WAL mode, or memory behind one lock.

Writers of one process share commits: each queues its work and lets whoever is ready join; the first to get the turn
runs all that is queued, each in a savepoint, and commits once. Nothing waits inside SQLite: a file that another process
is writing to is asked again at short intervals, so that a cooperative server goes on answering meanwhile. Records and
revisions that were read are kept for as long as nothing in the file changes.
"""

import os
import re
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from errors import Duplicate, NotFound, Unavailable
from storage import health, sql
from storage.contract import ALL, Answer, Collection, Page, Query, Record, Transaction
from storage.lockfile import LockFile
from storage.migrations import MIGRATIONS, declare, migrate
from storage.sqlite_deliveries import Outbox, OutboxReader
from storage.sqlite_events import newest_id
from storage.walindex import close_index, open_index

T = TypeVar("T")

OLDEST_SQLITE = (3, 37, 0)  # STRICT tables

BUSY_SECONDS = 5.0  # how long a writer waits for another process before it answers 503
RETRY_SECONDS = 0.0005  # about one durable commit on a fast disk
READ_SECONDS = 5.0  # how long one list may be looked for
SEARCHES = 8  # that each process runs at once
STEPS = 10_000  # of SQLite's machine, a few milliseconds: how often a long search lets others work
KEPT_BYTES = 8 * 1024 * 1024  # of records that each process keeps while nothing changes
RECORD_OVERHEAD = 700  # bytes that Python's objects for one take, about
STATEMENTS = 32  # that each connection keeps prepared
BATCH = 64  # works in one commit: bounds how long the first of them waits for the last

RETRY = {"Retry-After": "1"}

_READ = f"""\
SELECT
{sql.COLUMNS}
FROM items
WHERE collection = ? AND id = ?"""  # noqa: S608 - constant columns

_INSERT = """\
INSERT INTO items
    (collection, id, version, updated_at, shape, body, owner)
VALUES (?, ?, ?, ?, ?, ?, ?)"""

_UPDATE = """\
UPDATE items SET
    version = ?,
    updated_at = ?,
    shape = ?,
    body = ?,
    owner = ?
WHERE collection = ? AND id = ?"""

_DELETE = "DELETE FROM items WHERE collection = ? AND id = ?"

_TOUCH = "UPDATE collections SET revision = revision + 1, items = items + ? WHERE name = ?"

_SWEEP = """\
DELETE FROM answers
WHERE rowid IN (SELECT rowid FROM answers ORDER BY rowid LIMIT ?) AND NOT given BETWEEN ? AND ?"""

_SCAN = f"""\
SELECT
{sql.COLUMNS}
FROM items
WHERE collection = ?
ORDER BY id"""  # noqa: S608 - constant columns


class SqliteStore(OutboxReader):
    """See `contract.Store`. `synchronous` is SQLite's: "full" or "normal"."""

    def __init__(self, path: str, collections: Iterable[Collection], *, synchronous: str = "full") -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise Unavailable(f"SQLite is {sqlite3.sqlite_version}; at least 3.37 is needed")
        self._path = path
        self._synchronous = synchronous
        self._in_memory = path == ":memory:"
        self._collections = {collection.name: collection for collection in collections}
        self._turn = threading.RLock()
        self._queue: deque[_Work] = deque()
        self._idle: list[sqlite3.Connection] = []
        self._searches = threading.BoundedSemaphore(SEARCHES)
        self._readers = 0  # connections for reading, idle or in use
        self._lock = None if self._in_memory else LockFile(path)
        self._file = self._lock and _opened_file(path, self._lock)
        with _told(f"the store {path!r} cannot be opened"):
            self._writer = self._connect(timeout=BUSY_SECONDS)
            migrate(self._writer)
            declare(self._writer, self._collections.values())
            self.epoch = _epoch(self._writer)
            self._writer.execute("PRAGMA busy_timeout = 0")  # `_patiently` does the waiting
            (mode,) = self._writer.execute("PRAGMA journal_mode").fetchone()
        if self._lock:
            self._file = self._file or health.StoreFile(path)
            self._file.has_log = mode == "wal"
        self._index = open_index(path) if mode == "wal" else None
        self._commits = 0
        self._kept = _Kept(None)

    def read(self, collection: str, id: str) -> Record:
        kept = self._present()
        try:
            record = kept.records[collection, id]
        except KeyError:
            record = self._look_up(collection, id)
            kept.add((collection, id), record)
        if record is None:
            raise _missing()
        return record

    def _present(self) -> "_Kept":
        """What is known of the store as it is at this moment. What is read after this call may be kept there."""
        state = self._index.state() if self._index else self._commits if self._in_memory else object()
        if (kept := self._kept).state != state:
            kept = self._kept = _Kept(state)
        return kept

    def _look_up(self, collection: str, id: str) -> Record | None:
        try:  # what `_reader` does, without its cost, for what is asked for most
            connection = self._idle.pop()
        except IndexError:
            with self._reader() as connection:
                return _read(connection, collection, id)
        try:
            return _read(connection, collection, id)
        except sqlite3.Error as error:
            raise _unavailable("the store does not answer", error) from error
        finally:
            self._idle.append(connection)

    def page(self, collection: str, query: Query) -> Page:
        statements, parameters = sql.select_page(self._collections[collection], query)
        wanted = sys.maxsize if query.limit is None else query.limit + 1  # one more tells whether there are more
        rows: list[Any] = []
        with self._searching(query), self._reader() as connection, _within(READ_SECONDS, connection):
            for statement in statements:
                rows += connection.execute(statement, parameters | {"limit": wanted - len(rows)})
                if len(rows) == wanted:
                    break
        more = len(rows) == wanted
        if more:
            rows.pop()
        if query.backward:
            rows.reverse()
        if not rows:
            return Page([])
        _, shapes, bodies, *_ = zip(*rows, strict=True)
        return Page(list(bodies), frozenset(shapes), more, _position(rows[0]), _position(rows[-1]))

    def count(self, collection: str, query: Query = ALL) -> int:
        if query.narrows:
            statement, parameters = sql.select_count(self._collections[collection], query)
        else:
            statement, parameters = "SELECT items FROM collections WHERE name = :name", {"name": collection}
        with self._searching(query), self._reader() as connection, _within(READ_SECONDS, connection):
            (number,) = connection.execute(statement, parameters).fetchone()
        return int(number)

    def revision(self, collection: str) -> str:
        kept = self._present()
        if (revision := kept.revisions.get(collection)) is None:
            with self._reader() as connection:
                revision = kept.revisions[collection] = _revision(connection, self.epoch, collection)
        return revision

    def last_event(self) -> str:
        kept = self._present()
        if kept.last_event is None:
            with self._reader() as connection:
                kept.last_event = newest_id(connection, self.epoch)
        return kept.last_event

    def answer(self, id: bytes) -> Answer | None:
        with self._reader() as connection:
            return _answer(connection, id)

    def write(self, work: Callable[[Transaction], T], *, patient: bool = True) -> T:
        queued = _Work(work)
        if not patient:
            self._try(queued)
            return queued.outcome()  # type: ignore[no-any-return]
        self._queue.append(queued)
        time.sleep(0)  # whoever is ready to write joins this commit
        with self._turn:
            while not queued.done:
                self._commit([self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))])
        return queued.outcome()  # type: ignore[no-any-return]

    def _try(self, queued: "_Work") -> None:
        """Commit a work by itself, if nobody is in the way. Raises Unavailable."""
        if not self._turn.acquire(blocking=False):
            raise Unavailable("the store is being written to", headers=RETRY)
        try:
            self._commit([queued], patience=0.0)
        finally:
            self._turn.release()

    def scan(self, collection: str) -> Iterator[Record]:
        with self._reader() as connection:
            yield from map(Record._make, connection.execute(_SCAN, (collection,)))

    def backup(self, target: Path) -> None:
        if target.exists():
            raise FileExistsError(f"{target} exists")
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            with self._reader() as connection, _told(f"no backup at {str(target)!r}"):
                _make_private(partial, target)
                connection.execute("VACUUM INTO ?", (str(partial),))
                _forget_epoch(partial)
            with partial.open("rb") as written:
                os.fsync(written.fileno())
            partial.rename(target)  # it has its name only once it is whole and on the disk
        finally:
            partial.unlink(missing_ok=True)

    def check(self) -> None:
        if self._file:
            self._file.check()
        if self._lock and (damage := self._lock.note):
            raise Unavailable(f"the store is damaged: {damage}")
        with self._reader() as connection:
            connection.execute("PRAGMA shrink_memory")  # so that what follows is read from the file
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (epoch,) = connection.execute("SELECT epoch FROM store").fetchone()
            connection.execute("SELECT 1 FROM items LIMIT 1").fetchone()
        if version != len(MIGRATIONS):
            raise Unavailable(f"migration {version} is in force, this program needs {len(MIGRATIONS)}")
        if epoch != self.epoch:
            raise Unavailable(f"the store's file {self._path!r} holds another store than the one that was opened")

    def close(self) -> None:
        with self._turn:
            for connection in (self._writer, *self._idle):
                connection.close()
            if len(self._idle) == self._readers:  # else some are in use: see `open_index` and `StoreFile`
                if self._index:
                    close_index(self._index)
                if self._file:
                    self._file.close()
            if self._lock:
                self._lock.close()
            self._idle.clear()
            self._index = None
            self._file = None
            self._kept = _Kept(None)

    def _require_file(self) -> None:
        """Raises StoreGone when writes would go to a file that no name leads to, or that holds something else."""
        if self._file:
            self._file.require()

    def _connect(self, timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS
        )
        connection.create_function("fold", 1, sql.fold, deterministic=True)
        _patiently(connection, "PRAGMA journal_mode = WAL")  # which does not wait by itself
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    @contextmanager
    def _searching(self, query: Query) -> Iterator[None]:
        """One of the few searches at a time: each may take long, and has a connection of its own.

        What is no search, a page in the order of ids, waits for none.
        """
        if not (query.narrows or query.sort or query.offset):
            yield
            return
        if not self._searches.acquire(timeout=READ_SECONDS):
            raise Unavailable(
                f"{SEARCHES} searches are under way; narrow yours by a field with an index", headers=RETRY
            )
        try:
            yield
        finally:
            self._searches.release()

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """A connection for this caller alone; in memory, the one there is."""
        connection = None
        try:
            if self._in_memory:
                with self._turn:
                    yield self._writer
                return
            try:
                connection = self._idle.pop()
            except IndexError:
                self._require_file()  # another file must never meet the log of this one
                connection = self._connect(timeout=BUSY_SECONDS)
                self._readers += 1
            yield connection
        except sqlite3.Error as error:
            raise _unavailable("the store does not answer", error) from error
        finally:
            if connection is not None:
                self._idle.append(connection)

    def _commit(self, batch: list["_Work"], patience: float | None = None) -> None:
        """Run works in one transaction. Each fails alone; when the transaction fails, all do."""
        connection = self._writer
        try:
            with _told("the store cannot be written to"):
                self._require_file()
                _patiently(connection, "BEGIN IMMEDIATE", patience)
                for queued in batch:
                    connection.execute("SAVEPOINT work")
                    queued.run(_Transaction(connection, self.epoch))
                    if queued.error is not None:
                        connection.execute("ROLLBACK TO work")
                    connection.execute("RELEASE work")
                connection.execute("COMMIT")
                self._commits += 1
        except Unavailable as error:
            _fail(batch, error)
        except BaseException:  # a time-out or an exit in one work: what the others did is rolled back with it
            _fail(batch, Unavailable("the write was interrupted", headers=RETRY))
            raise
        finally:
            for queued in batch:
                queued.done = True
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _fail(batch: list["_Work"], error: Unavailable) -> None:
    for queued in batch:
        queued.error = queued.error or error


class _Kept:
    """What was read while the store was in one state."""

    def __init__(self, state: object) -> None:
        self.state = state
        self.records: dict[tuple[str, str], Record | None] = {}  # None: there is none
        self.revisions: dict[str, str] = {}
        self.last_event: str | None = None
        self._bytes = 0

    def add(self, key: tuple[str, str], record: Record | None) -> None:
        """Keep a record, if need be in the place of all others; not one that takes a good part of the room."""
        size = RECORD_OVERHEAD + (len(record.body) if record else 0)
        if size > KEPT_BYTES // 16 or key in self.records:
            return
        if self._bytes + size > KEPT_BYTES:
            self.records.clear()
            self._bytes = 0
        self._bytes += size
        self.records[key] = record


class _Work:
    """A caller's work on its way through a shared commit, in that caller's context."""

    __slots__ = ("_context", "_work", "done", "error", "result")

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self._work = work
        self._context = copy_context()
        self.done = False
        self.error: Exception | None = None
        self.result: Any = None

    def run(self, transaction: Transaction) -> None:
        try:
            self.result = self._context.run(self._work, transaction)
        except sqlite3.Error:
            raise  # not this work's fault: the whole transaction is lost
        except Exception as error:
            self.error = error

    def outcome(self) -> Any:
        """What the work returned, once it is durable; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.result


class _Transaction(Outbox):
    """See `contract.Transaction`."""

    def __init__(self, connection: sqlite3.Connection, epoch: str) -> None:
        self._connection = connection
        self._epoch = epoch

    def read(self, collection: str, id: str) -> Record:
        if (record := _read(self._connection, collection, id)) is None:
            raise _missing()
        return record

    def revision(self, collection: str) -> str:
        return _revision(self._connection, self._epoch, collection)

    def insert(self, collection: str, record: Record) -> None:
        id, version, updated_at, shape, body, owner = record
        self._execute(_INSERT, (collection, id, version, updated_at, shape, body.decode(), owner))
        self._connection.execute(_TOUCH, (1, collection))

    def update(self, collection: str, record: Record) -> None:
        id, version, updated_at, shape, body, owner = record
        self._execute(_UPDATE, (version, updated_at, shape, body.decode(), owner, collection, id))
        self._connection.execute(_TOUCH, (0, collection))

    def delete(self, collection: str, id: str) -> None:
        self._execute(_DELETE, (collection, id))
        self._connection.execute(_TOUCH, (-1, collection))

    def answer(self, id: bytes) -> Answer | None:
        return _answer(self._connection, id)

    def keep_answer(self, id: bytes, answer: Answer) -> None:
        self._connection.execute("REPLACE INTO answers (id, given, body) VALUES (?, ?, ?)", (id, *answer))

    def sweep_answers(self, before: float, limit: int, *, latest: float = inf) -> int:
        return self._connection.execute(_SWEEP, (limit, before, latest)).rowcount

    def _execute(self, statement: str, parameters: tuple[Any, ...]) -> None:
        try:
            cursor = self._connection.execute(statement, parameters)
        except sqlite3.IntegrityError as error:
            index = re.search(r"index '(.+)'", str(error))
            raise _taken(sql.field_of(index[1]) if index else "id") from None
        if cursor.rowcount == 0:
            raise _missing()


def _read(connection: sqlite3.Connection, collection: str, id: str) -> Record | None:
    row = connection.execute(_READ, (collection, id)).fetchone()
    return Record._make(row) if row else None


def _answer(connection: sqlite3.Connection, id: bytes) -> Answer | None:
    row = connection.execute("SELECT given, body FROM answers WHERE id = ?", (id,)).fetchone()
    return Answer._make(row) if row else None


def _revision(connection: sqlite3.Connection, epoch: str, collection: str) -> str:
    (number,) = connection.execute("SELECT revision FROM collections WHERE name = ?", (collection,)).fetchone()
    return f"{epoch}-{number:x}"


def _missing() -> NotFound:
    return NotFound("there is no such item")


def _taken(field: str) -> Duplicate:
    detail = f"another item has this {field}"
    return Duplicate(detail, errors=[{"pointer": f"#/{field}", "detail": "is taken by another item"}])


def _position(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The place of a row of `select_page` in the order asked for: its sort keys, and its id if it is not among them."""
    id, _, _, *keys = row
    return (*(None if key == -float("inf") else key for key in keys), id)


def _opened_file(path: str, lock: LockFile) -> health.StoreFile | None:
    """The file that a store is about to open, if there is one already; looks through it after an unclean end.

    Raises Unavailable when the log beside it is another file's.
    """
    alone = lock.try_alone()
    lock.share()
    if not os.path.exists(path):
        return None
    file = health.StoreFile(path)
    try:
        file.require_own_log()
    except Unavailable:
        file.close()
        raise
    if alone and (health.log_size(path) or lock.note):  # nobody has it open, and who had it did not close it
        damage = health.find_damage(path)
        lock.note = lock.note if damage is None else damage
    return file


def _make_private(path: Path, target: Path) -> None:
    """Make a new file that its owner alone reads: a backup has secrets."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise Unavailable(f"no backup at {str(target)!r}: {error.strerror}") from error


def _forget_epoch(path: Path) -> None:
    """Let a copy get an epoch of its own when it is first opened: each that is restored from it has its own future."""
    copy = sqlite3.connect(path, isolation_level=None)
    try:
        copy.execute("PRAGMA journal_mode = MEMORY")  # which leaves no file behind
        copy.execute("UPDATE store SET epoch = ''")
    finally:
        copy.close()


def _epoch(connection: sqlite3.Connection) -> str:
    """What tells this store from all others, made where there is none."""
    (epoch,) = connection.execute("SELECT epoch FROM store").fetchone()
    if not epoch:
        connection.execute("UPDATE store SET epoch = lower(hex(randomblob(4))) WHERE epoch = ''")
        (epoch,) = connection.execute("SELECT epoch FROM store").fetchone()
    return str(epoch)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """SQLite's own errors as Unavailable, saying what could not be done and why."""
    try:
        yield
    except sqlite3.Error as error:
        raise _unavailable(what, error) from error


@contextmanager
def _within(seconds: float, connection: sqlite3.Connection) -> Iterator[None]:
    """End a search that takes longer, and let others work meanwhile (which a cooperative server's sleep does)."""
    deadline = time.monotonic() + seconds

    def is_late() -> bool:
        nonlocal deadline
        now = time.monotonic()
        late = now > deadline
        time.sleep(0)
        deadline += time.monotonic() - now  # what others took is not this search's time
        return late

    connection.set_progress_handler(is_late, STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        told = f"the search took more than {seconds:g} s; narrow it by a field with an index"
        raise Unavailable(told, headers=RETRY) from error
    finally:
        connection.set_progress_handler(None, STEPS)


def _unavailable(what: str, error: sqlite3.Error) -> Unavailable:
    return Unavailable(f"{what}: {error}", headers=RETRY)


def _patiently(connection: sqlite3.Connection, statement: str, patience: float | None = None) -> None:
    """Execute what needs a lock that another process may have, asking again until so many seconds have passed."""
    deadline = time.monotonic() + (BUSY_SECONDS if patience is None else patience)
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
