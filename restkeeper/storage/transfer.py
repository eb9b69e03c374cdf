"""A store as rows, for its copy to a store of another kind.

The source is marked first: programs that use it, also those that run already, can read and cannot write. The copy has
the same epoch, revisions and positions, so all ETags, cursors and ids of events stay valid. Therefore only one of the
two may ever change: the target is marked, too, until it is complete, and no program opens it before.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from restkeeper.storage.errors import StoreUnavailable

Row = tuple[Any, ...]


class Part(NamedTuple):
    """Rows of one kind: texts, numbers, bytes and None, in these `columns`. The first `keys` of them order the rows."""

    name: str
    columns: tuple[str, ...]
    keys: int = 1

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that order the rows; no two rows have the same values in them."""
        return self.columns[: self.keys]


# In the order of the copy: deliveries refer to events. `numbers` has the last number of each kind that was given.
PARTS = (
    Part("counters", ("collection", "items", "changes")),
    Part("schemas", ("place", "collection", "fingerprint", "revision", "oldest", "fields")),
    Part("items", ("collection", "id", "owner", "version", "updated_at", "fingerprint", "body", "older"), keys=2),
    Part("answers", ("given", "id", "body"), keys=2),
    Part("events", ("position", "origin", "type", "collection", "item", "owner", "at", "data", "fingerprint", "older")),
    Part("subscriptions", ("webhook", "position", "held", "secrets")),
    Part(
        "deliveries",
        ("id", "webhook", "event", "item", "state", "due", "lease", "leased", "attempts", "attempted", "status")
        + ("seconds", "excerpt"),
    ),
    Part("numbers", ("name", "last")),
)


class MarkKind(StrEnum):
    """What a mark means."""

    MOVING = "moving"  # a source: its copy is not complete
    MOVED = "moved"  # a source: its copy is complete, and may have changed since
    INCOMPLETE = "incomplete"  # a target


DETAILS = {
    MarkKind.MOVING: "the store is being moved to another one: until then it can be read, and not changed",
    MarkKind.MOVED: "the store was moved to another one: this one can be read, and not changed",
    MarkKind.INCOMPLETE: "the store is an incomplete copy: run restkeeper copy again",
}


class Mark(NamedTuple):
    """Why a store does not serve as usual. Source and target have the same `copy`, a random text.

    `other` is the name of the other store, without a password.
    """

    kind: MarkKind
    copy: str
    other: str

    @property
    def text(self) -> str:
        """As it is stored."""
        return " ".join(self)

    def refuse(self, *kinds: MarkKind) -> None:
        """Raises StoreUnavailable if it is one of these kinds."""
        if self.kind in kinds:
            raise StoreUnavailable(DETAILS[self.kind])

    def require_readable(self) -> None:
        """Raises StoreUnavailable if no program may use the store."""
        self.refuse(MarkKind.INCOMPLETE)

    def require_current(self) -> None:
        """Raises StoreUnavailable if the store may have less than another one."""
        self.refuse(MarkKind.INCOMPLETE, MarkKind.MOVED)

    def require_writable(self) -> None:
        """Raises StoreUnavailable."""
        self.refuse(*MarkKind)


def mark_in(text: str) -> Mark | None:
    """The mark in a text that was stored, if there is one."""
    if not text:
        return None
    kind, copy, other = text.split(" ", 2)
    return Mark(MarkKind(kind), copy, other)


class Transfer(Protocol):
    """A store as a source or a target. Every method raises StoreUnavailable."""

    @property
    def epoch(self) -> str:
        """The epoch of the store; empty if there is none at that place."""

    @property
    def mark(self) -> Mark | None:
        """The mark of the store."""

    def freeze(self, mark: Mark) -> None:
        """Migrate a source, and mark it: from the end of this call on, no program changes it."""

    def release(self, *, renew: bool = False) -> None:
        """Delete the mark of a source or a target. To `renew` is to give it a new epoch: its ETags become invalid."""

    def create(self, epoch: str, mark: Mark) -> None:
        """Create a target without rows, with this epoch and mark. Raises StoreUnavailable if there is a store."""

    def clear(self, mark: Mark) -> None:
        """Delete all rows of a target, and mark it."""

    def count(self, part: Part) -> int:
        """The number of rows."""

    def read(self, part: Part, after: Row = ()) -> Iterator[Row]:
        """The rows with a higher key in order. Read them to the end before any other call."""

    def last(self, part: Part) -> Row:
        """The key of the last row; empty without rows."""

    def write(self, part: Part, rows: Sequence[Row]) -> None:
        """Add rows in one transaction. Those of `numbers` replace others."""

    def close(self) -> None:
        """Close the connection."""


def cleaned(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows as every database can store them: without U+0000 in texts, which only rows of early programs have."""
    for row in rows:
        yield tuple(each.replace("\0", "\ufffd") if isinstance(each, str) else each for each in row)
