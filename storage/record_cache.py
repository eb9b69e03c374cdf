"""What a process has read of a store, for as long as nothing in the store changes."""

from storage.contract import Record

KEPT_BYTES = 8 * 1024 * 1024  # of records that each process keeps while nothing changes
LARGEST_CHARACTER = 4  # bytes that Python has for one
RECORD_OVERHEAD = 700  # bytes that Python's objects for one take, about, without its texts of any length


class RecordCache:
    """What was read while the store was in one state."""

    def __init__(self, state: object) -> None:
        self.state = state
        self.records: dict[tuple[str, str], Record | None] = {}  # None: there is none
        self.revisions: dict[str, str] = {}
        self.epoch = ""
        self.last_event = ""
        self._bytes = 0

    def add(self, key: tuple[str, str], record: Record | None) -> None:
        """Keep a record, if need be in the place of all others; not one that takes a good part of the room."""
        size = _size(key, record)
        if size > KEPT_BYTES // 16 or key in self.records:
            return
        if self._bytes + size > KEPT_BYTES:
            self.records.clear()
            self._bytes = 0
        self._bytes += size
        self.records[key] = record


def _size(key: tuple[str, str], record: Record | None) -> int:
    """Bytes of memory. Callers choose the ids that they ask for, also of items that do not exist."""
    size = RECORD_OVERHEAD + LARGEST_CHARACTER * len(key[1])
    if record is None:
        return size
    return size + LARGEST_CHARACTER * (len(record.id) + len(record.owner or "")) + len(record.body)
