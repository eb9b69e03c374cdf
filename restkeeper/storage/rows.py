"""Objects of the outbox from rows of a database, and the text that secrets are stored as."""

from collections.abc import Sequence
from typing import Any

import orjson

from restkeeper.storage.eventid import id_of
from restkeeper.storage.outbox import Attempt, Delivery, LogEntry, Secret, StoredEvent


def stored_event(position: int, origin: str, *rest: Any) -> StoredEvent:
    """The event of a row: its position, its origin, and the rest of a StoredEvent."""
    return StoredEvent(id_of(position, origin), *rest)


def delivery(id: int, lease: int, webhook: str, manual: bool, attempts: int, *event: Any) -> Delivery:
    """The delivery of a row: its fields, the event's as in `stored_event`."""
    return Delivery(id, lease, webhook, bool(manual), attempts, stored_event(*event))


def log_entry(id: int, position: int, origin: str, *rest: Any) -> LogEntry:
    """The entry of a row: its fields, but for the event's position and origin."""
    return LogEntry(id, id_of(position, origin), *rest)


def state_after(attempt: Attempt) -> str:
    """The state of a delivery after an attempt, see LogEntry."""
    return "delivered" if attempt.succeeded else "failed" if attempt.is_final else "pending"


def dump_secrets(secrets: Sequence[Secret]) -> str:
    """Secrets as they are stored: a JSON text."""
    return orjson.dumps([list(secret) for secret in secrets]).decode()


def load_secrets(text: str) -> tuple[Secret, ...]:
    """The secrets in a text that `dump_secrets` returned."""
    return tuple(Secret(*each) for each in orjson.loads(text))
