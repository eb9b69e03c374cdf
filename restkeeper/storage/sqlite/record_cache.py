"""What a process has read of a store, for as long as nothing in the store changes."""

from restkeeper.storage.contract import Record

CACHE_BYTES = 8 * 1024 * 1024  # of memory that the records take in each process
RECORD_OVERHEAD = 600  # bytes that Python's objects for one take, as measured, without its body and owner
LARGEST_CHARACTER = 4  # bytes that Python has for one


class RecordCache:
    """What was read while the store was in one state."""

    def __init__(self, state: object) -> None:
        self.state = state
        self.records: dict[tuple[str, str], Record] = {}
        self.revisions: dict[str, str] = {}
        self.epoch = ""
        self.last_event = ""
        self._bytes = 0

    def add(self, collection: str, record: Record) -> None:
        """Cache a record, if need be in the place of all others; not one that takes a good part of the room.

        What does not exist is not cached: callers choose the ids that they ask for.
        """
        size = RECORD_OVERHEAD + len(record.body) + LARGEST_CHARACTER * len(record.owner or "")
        if size > CACHE_BYTES // 16:
            return
        if (total := self._bytes + size) > CACHE_BYTES:
            self.records.clear()
            total = size
        self._bytes = total
        self.records[collection, record.id] = record
