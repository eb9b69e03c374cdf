"""What a store raises. `detail` is a sentence for whoever called; a `__cause__` is for the log alone."""


class StoreError(Exception):
    """Base of all that a store raises."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class RecordNotFound(StoreError):
    """There is no such record, webhook, event or delivery (any more)."""


class DuplicateValue(StoreError):
    """Another record of the collection has this value of a unique `field`, which can be its id."""

    def __init__(self, field: str) -> None:
        super().__init__(f"another item has this {field}")
        self.field = field


class EventsExpired(StoreError):
    """What came after a cursor is not stored any more. From the cursor `resume` on, nothing is missing."""

    def __init__(self, detail: str, *, resume: str) -> None:
        super().__init__(detail)
        self.resume = resume


class StoreUnavailable(StoreError):
    """The store is busy, damaged, not there, or not of this program; nothing was changed."""


class StoreGone(StoreUnavailable):
    """What the store was opened from is not there any more, or holds something else."""


class StoreFull(StoreError):
    """There is no space left to write to, or less than is reserved; nothing was changed."""
