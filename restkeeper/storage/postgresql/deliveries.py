"""Deliveries in PostgreSQL: what differs, see `storage/deliveries.py`; and the recording of events."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from restkeeper.storage.deliveries import Deliveries, Dialect, Row, log_in, subscriptions_in
from restkeeper.storage.outbox import Event, EventFilter, LogEntry, Subscription
from restkeeper.storage.postgresql.chain import FROM, Step
from restkeeper.storage.postgresql.events import (
    IS_UNNUMBERED,
    LOCK_FEED,
    NUMBER_ITEM,
    STORED,
    WANTED,
    parameters_of,
    sequence_all,
    sequence_inside,
)
from restkeeper.storage.postgresql.fields import clean
from restkeeper.storage.postgresql.session import Session

_RECORD = f"""\
INSERT INTO events
    (type, collection, item, at, data, owner, fingerprint, older)
SELECT %s, %s, %s, %s, %s, %s, %s, %s {FROM}"""  # noqa: S608 - a constant

_dialect = Dialect(
    "%({})s",
    for_update="FOR UPDATE",
    for_update_of_free="FOR UPDATE SKIP LOCKED",
    for_key_share="FOR KEY SHARE",
    newest="(SELECT newest FROM feed)",
    matches=f"position > %(after)s AND position <= %(until)s AND {WANTED}",
    event=STORED,
    is_chosen="deliveries.id = ANY(%(ids)s)",
    is_active="webhook = ANY(%(active)s::text[])",
    is_leased="leased",
    by_event="",
)


class _Database:
    """See `storage.deliveries.Database`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        return self._session.rows(_dialect(statement), _cleaned(parameters))

    def change(self, statement: str, parameters: Mapping[str, Any]) -> None:
        self._session.queue(_dialect(statement), _cleaned(parameters))

    def parameters_of(self, filter: EventFilter) -> dict[str, Any]:
        return parameters_of(filter)


class Outbox(Deliveries):
    """See `outbox.OutboxTransaction`."""

    def __init__(self, session: Session, learn_of: Callable[[str, str], None]) -> None:
        self._session = session
        self._database = _Database(session)
        self._learn_of = learn_of

    def record(self, event: Event) -> None:
        self._session.queue(_RECORD, _row(event), step=Step.EVENT)

    def _record_now(self, event: Event) -> tuple[int, str]:
        """See `Deliveries`. Earlier events of its item come before it; the sequencer waits until the end."""
        ((seq,),) = self._session.rows(f"{_RECORD} RETURNING seq", _row(event))
        self._session.queue(LOCK_FEED)
        self._session.queue(NUMBER_ITEM, {"collection": event.collection, "item": event.item, "limit": None})
        ((position, origin),) = self._session.rows("SELECT position, origin FROM events WHERE seq = %s", (seq,))
        return position, origin

    def _number_all(self) -> None:
        sequence_inside(self._session)

    def _register_schema(self, collection: str, fingerprint: str) -> None:
        self._learn_of(collection, fingerprint)


def find_subscriptions(session: Session, active: Sequence[str], now: float) -> list[Subscription]:
    """See `outbox.OutboxStore.subscriptions`."""
    if session.rows(f"SELECT {IS_UNNUMBERED}") == [(True,)]:
        sequence_all(session)
    return subscriptions_in(_Database(session), active, now)


def read_log(session: Session, webhook: str, before: int | None, limit: int, state: str | None) -> list[LogEntry]:
    """See `outbox.OutboxStore.deliveries`."""
    return log_in(_Database(session), webhook, before, limit, state)


def _cleaned(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters whose texts can be sent to PostgreSQL."""
    return {name: _clean(value) for name, value in parameters.items()}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    return [_clean(each) for each in value] if isinstance(value, list) else value


def _row(event: Event) -> tuple[str | None, ...]:
    """The parameters of _RECORD."""
    type, collection, item, at, data, owner, fingerprint, older = event
    return type, collection, item, at, data.decode(), owner, fingerprint, None if older is None else older.decode()
