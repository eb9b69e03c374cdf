"""The ids of events: the position in the feed, and the origin, which is the epoch of the store that wrote the event."""

from restkeeper.storage.outbox import is_event_id


def id_of(position: int, origin: str) -> str:
    """The id of an event."""
    return f"evt_{origin}_{position:x}"


def parse_id(id: str) -> tuple[int, str]:
    """The position and origin in an event's id; those of no event for any other text."""
    if not is_event_id(id):
        return -1, ""
    _, origin, position = id.split("_")
    return int(position, 16), origin
