"""Events as clients and webhooks receive them: JSON in the form of Standard Webhooks 1.0.0, with the id added."""

from restkeeper.storage.outbox import StoredEvent


def enveloped(event: StoredEvent) -> bytes:
    """The JSON text of an event."""
    head = f'{{"id":"{event.id}","type":"{event.type}","timestamp":"{event.at}","data":'
    return head.encode() + event.data + b"}"
