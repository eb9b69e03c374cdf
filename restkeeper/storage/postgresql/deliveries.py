"""Deliveries in PostgreSQL: what differs, see `storage/deliveries.py`; and the recording of events."""

from restkeeper.storage.deliveries import Deliveries
from restkeeper.storage.outbox import Event
from restkeeper.storage.postgresql.dialect import PostgresDatabase
from restkeeper.storage.postgresql.feed import LOCK_FEED, NUMBER_ITEM, sequence_inside
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.schemas import Registry

_RECORD = """\
INSERT INTO events
    (type, collection, item, at, data, owner, fingerprint, older)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"""


class Outbox(Deliveries):
    """See `outbox.OutboxTransaction`."""

    def __init__(self, session: Session, registry: Registry) -> None:
        self._session = session
        self._database = PostgresDatabase(session)
        self._registry = registry

    def record(self, event: Event) -> None:
        self._session.queue(_RECORD, _row(event))

    def _record_now(self, event: Event) -> tuple[int, str]:
        """See `Deliveries`. Earlier events of its item come before it; the sequencer waits until the end."""
        ((seq,),) = self._session.rows(f"{_RECORD} RETURNING seq", _row(event))
        self._session.queue(LOCK_FEED)
        self._session.queue(NUMBER_ITEM, {"collection": event.collection, "item": event.item, "limit": None})
        ((position, origin),) = self._session.rows("SELECT position, origin FROM events WHERE seq = %s", (seq,))
        return position, origin

    def _number_all(self) -> None:
        sequence_inside(self._session)


def _row(event: Event) -> tuple[str | None, ...]:
    """The parameters of _RECORD."""
    type, collection, item, at, data, owner, fingerprint, older = event
    return type, collection, item, at, data.decode(), owner, fingerprint, None if older is None else older.decode()
