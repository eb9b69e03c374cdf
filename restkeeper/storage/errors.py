"""The exceptions of a store. `detail` is a sentence for the client; a `__cause__` is for the log only."""

GONE = 2**31 - 1  # the revision of a collection that has another name now, or whose items are being deleted


class StoreError(Exception):
    """Base of all exceptions that a store raises."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class RecordNotFound(StoreError):
    """The record, webhook, event or delivery does not exist, or no longer."""


class DuplicateValue(StoreError):
    """Another record of the `collection` has the values of these `fields` of a unique index, as the record `of` has.

    That can be unknown. A field can be the id.
    """

    def __init__(self, *fields: str, collection: str = "", of: object = None) -> None:
        super().__init__(f"another item has this {' and this '.join(fields)}")
        self.fields = fields
        self.faults = [{"pointer": f"#/{name}", "detail": "is taken by another item"} for name in fields]
        self.collection = collection
        self.of = of


class ReferenceMissing(StoreError):
    """The record `of` refers to one that does not exist, by the value at a JSON Pointer."""

    def __init__(self, pointer: str, detail: str, of: object) -> None:
        super().__init__(detail)
        self.pointer = pointer
        self.of = of

    @property
    def text(self) -> str:
        """With the value's place before it."""
        return f"{self.pointer.removeprefix('#/')}: {self.detail}"


class RecordChanged(StoreError):
    """The record is not the one (any more) that a change was computed from; nothing was changed."""


class ResponseStored(StoreError):
    """A response to this request is stored already; nothing was changed."""


class EventsExpired(StoreError):
    """Events after a cursor are deleted. After the cursor `resume` none is missing."""

    def __init__(self, detail: str, *, resume: str) -> None:
        super().__init__(detail)
        self.resume = resume


class StoreUnavailable(StoreError):
    """The store is busy, damaged, missing, or of another program; nothing was changed.

    If the connection to a database server is lost during a commit, it is not known whether the change was stored; then
    `detail` says so. The `reason` is for the operator only; who gives one without a cause has logged it.
    """

    def __init__(self, detail: str, *, reason: str = "") -> None:
        super().__init__(detail)
        self.reason = reason

    def __str__(self) -> str:
        """For the operator."""
        return f"{self.detail} ({self.reason})" if self.reason else self.detail


class RevisionDiffers(StoreUnavailable):
    """The items of a collection are of another revision than the one of this program: see `interface.Collection`."""

    def __init__(self, collection: str, program_revision: int, revision: int | None = None) -> None:
        stored, remedy = f"the items of {collection} have revision {revision}", "update this program"
        if revision is None:
            stored, remedy = f"the items of {collection} have another revision", "see `/readyz`"
        elif revision < 0:
            stored, remedy = f"the items of {collection} are being converted", "wait, or repeat `restkeeper migrate`"
        elif revision == GONE:
            stored = f"{collection} has another name now, or is being deleted"
        elif revision < program_revision:
            remedy = "run `restkeeper migrate`"
        has = "" if revision == GONE else f", this program has revision {program_revision}"
        super().__init__(f"{stored}{has}: {remedy}")


class SearchTooLong(StoreUnavailable):
    """A search in a transaction took longer than the `seconds` that it may take; nothing was changed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the searches in a change took too long; the last one had {seconds:.2g} s")
        self.seconds = seconds


class StoreGone(StoreUnavailable):
    """The file of the store is missing, or was replaced while the store was open."""


class StoreUnopened(StoreUnavailable):
    """A process that does not create the store cannot open it now. A later use tries again."""


class EpochMissing(StoreUnavailable):
    """The store was restored: it needs a new epoch before it is read."""

    def __init__(self, detail: str = "the store was restored at this moment", *, reason: str = "") -> None:
        super().__init__(detail, reason=reason)


class StoreFailing(StoreUnavailable):
    """The disk or the file of the store refuses to be read or written."""


class StoreDamaged(StoreFailing):
    """What was read of the store is damaged, or could not be read."""


class StoreBusy(StoreUnavailable):
    """Another program has the store locked, or keeps it busy. A later attempt can succeed."""


class StoreContended(StoreUnavailable):
    """Others change the same items in another order, so that the store had to end one change; it can be repeated.

    If it is about the items of one `collection`, the next attempt has that alone.
    """

    def __init__(self, detail: str, collection: str = "", *, reason: str = "") -> None:
        super().__init__(detail, reason=reason)
        self.collection = collection


class StoreDeadlocked(StoreContended):
    """They wait for each other, such as for values of unique fields, whose order no lock of the store keeps."""


class StoreUnreachable(StoreUnavailable):
    """The server of the store refuses connections, or does not respond."""


class StoreReadOnly(StoreUnavailable):
    """The server only reads: it is a standby, or was the primary before a switchover."""

    def __init__(self, detail: str = "the database is a copy that can only be read", *, reason: str = "") -> None:
        super().__init__(detail, reason=reason)


class StoreFull(StoreUnavailable):
    """The disk is full, a quota is reached, or less space is free than is reserved; nothing was changed."""
