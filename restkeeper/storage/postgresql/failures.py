"""Errors of PostgreSQL: what a caller gets of them, and what the log gets."""

import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from restkeeper.storage.errors import (
    StoreBusy,
    StoreContended,
    StoreDeadlocked,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnreachable,
)
from restkeeper.storage.postgresql import limits

FAILED = "the database does not answer"
REFUSED_US = "the database refuses connections"
UNKNOWN = "the connection to the database was lost: it is not known whether the change was stored"
OTHERS = "others change the same items; try again"

_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))  # in the message of an error of the disk
_CONTENDED = {"40001": StoreContended, "40P01": StoreDeadlocked}  # a serialization failure, a deadlock
_READ_ONLY = "25006"
_BUSY = ("55P03", "57014", "25P03", "25P04")  # time-outs of a lock, a statement and a transaction

# What errors mean to a caller. The message of the server is for the log.
_CAUSES = {
    "57014": "the database worked for longer than it may (statement_timeout); narrow a search by a field with an index",
    "22023": "the database does not know a time zone that the service knows",
    "55P03": OTHERS,
    "40001": OTHERS,
    "40P01": OTHERS,
    "25P03": "the transaction took too long",
    "25P04": "the transaction took too long",
    "42501": "the database refuses a right that the service needs",
    "42P01": "the database has no table that the service needs, or hides it",
    "53300": "the database has no connection left",
    "57P01": "the database starts or stops",
    "57P02": "the database starts or stops",
    "57P03": "the database starts or stops",
}

_log = logging.getLogger("restkeeper")
_logged: dict[str, float] = {}  # the time of the last line about each kind of failure


def store_error(error: psycopg.Error) -> StoreUnavailable:
    """The error of a store: what a caller can know of the reason. The log gets the server's message, not too often."""
    code = error.sqlstate or "08000"  # the connection is lost
    is_away = code[:2] in ("08", "57") and code != "57014"
    if code in _CONTENDED:
        log_rarely(code, "a change is repeated, as the database ended it: %s", first_line(error))
        return _CONTENDED[code](_CAUSES[code])
    is_full = code == "53100" or (code == "58030" and any(message in str(error) for message in _FULL))
    if cause_of(error) is None:
        status = 507 if is_full else 503
        log_rarely("outage" if is_away else code, "requests get %d: %s", status, first_line(error))
    if is_full:
        return StoreFull("the disk of the database is full")
    if code == _READ_ONLY:
        return StoreReadOnly(reason=first_line(error))
    kind = StoreUnreachable if is_away or code == "53300" else StoreBusy if code in _BUSY else StoreUnavailable
    unknown = REFUSED_US if "FATAL:" in str(error) else FAILED  # a connection that it has answered
    return kind(_CAUSES.get(code, unknown), reason=first_line(error))


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise store_error(error) from cause_of(error)


def cause_of(error: psycopg.Error) -> psycopg.Error | None:
    """The cause to log in full for each request: a mistake in a statement, but not what happens in an outage."""
    code = error.sqlstate or "08000"  # lost
    return None if code in (*_CAUSES, _READ_ONLY) or code[:2] in ("08", "53", "57", "58") else error


def first_line(error: psycopg.Error) -> str:
    """The message of an error, which can have further lines with parts of the statement."""
    return str(error).partition("\n")[0]


def log_rarely(kind: str, message: str, *arguments: object) -> None:
    """Log a line, unless there was one of its kind in the last limits.LOG_SECONDS."""
    now = time.monotonic()
    if now - _logged.get(kind, -limits.LOG_SECONDS) >= limits.LOG_SECONDS:
        _logged[kind] = now
        _log.warning(message, *arguments)
