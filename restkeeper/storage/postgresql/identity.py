"""The epoch: a random text that distinguishes a database and its present history from every other.

A copy continues an older history: the same revisions and positions occur again, with other contents. So it needs
another epoch. The store keeps, beside the epoch, the database where it was made: its number, the start of its server,
which is another one on every server and after files were put back, and the reset of its statistics, which a recovery
after a crash makes, as it can lose what was committed asynchronously. All users may read these. A new connection that
finds another one sets a new epoch. A process that has seen an event which the database does not have any more, or
whose client has, sets one, too, and so does `restkeeper restore`: what is restored while the server runs has the same
database. After a failover or a restart that has lost nothing the epoch changes without need, which costs clients their
cached responses.
"""

import psycopg

from restkeeper.storage.postgresql.session import Session

NEW_EPOCH = "left(gen_random_uuid()::text, 8)"

_DATABASE = """\
SELECT concat_ws(
    '/',
    (SELECT oid FROM pg_database WHERE datname = current_database()),
    extract(epoch FROM pg_postmaster_start_time()),
    (SELECT extract(epoch FROM stats_reset) FROM pg_stat_bgwriter)
)"""

_MOVE = f"""\
UPDATE store SET
    epoch = CASE WHEN database = '' THEN epoch ELSE {NEW_EPOCH} END,
    database = %(database)s
WHERE database <> %(database)s"""  # noqa: S608 - a constant expression

_RENEW = f"""\
UPDATE store SET epoch = {NEW_EPOCH}
WHERE (SELECT newest FROM feed) < %(seen)s AND epoch = %(known)s"""  # noqa: S608 - likewise


def note_database(session: Session) -> None:
    """Set a new epoch if the store was moved here from another database. A store that names none keeps its epoch."""
    try:
        ((database,),) = session.rows(_DATABASE)
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InsufficientPrivilege):
        database = "unknown"  # as in CockroachDB
    session.change(_MOVE, {"database": database})


def note_loss(session: Session, known: str, seen: int) -> bool:
    """Set a new epoch if it is still the `known` one, and the database has no event at the position `seen` any more."""
    return bool(session.change(_RENEW, {"known": known, "seen": seen}))


def make_epoch(session: Session) -> None:
    """Set a new epoch: the store has another history, also than one that it was moved to."""
    session.change(f"UPDATE store SET epoch = {NEW_EPOCH}, moved_to = ''")  # noqa: S608 - likewise
