"""What the kernel asks about references between items: the feature `references` gives the answers."""

from collections.abc import Iterable, Mapping
from typing import Any

from restkeeper.errors import Conflict
from restkeeper.resources.call import Caller
from restkeeper.resources.parameters import Queryable
from restkeeper.resources.views import StoredView
from restkeeper.storage.interface import Record


class StillReferenced(Conflict):
    """Other items refer to this one, so that it cannot be deleted. Change or delete them first."""


class References:
    """The references between the items of a service: none. The feature `references` derives those that there are.

    `check` checks the references of a change before every write, or after several writes, whose items may refer to each
    other; before functions see an item, it is called with `bounded=False`, which counts nothing. `check_body` checks
    the loaded body of an action. `follow` changes and deletes what refers to a deleted item.
    """

    def check(self, unit: Any, change: Any, *, bounded: bool = True) -> None:
        """Require the items of new references, or for a deletion, that nothing restricts it."""

    def check_body(self, unit: Any, schema: Any, loaded: Any) -> None:
        """Require the items to which a body refers."""

    def follow(self, unit: Any, change: Any) -> None:
        """Do what follows from a deletion."""

    def added(self, stored: StoredView, before: bytes, after: bytes) -> Iterable[tuple[Any, dict[str | int, str]]]:
        """The references that an item has after a change, and not before: by field, the ids with their pointers."""
        return ()

    def number(self, stored: StoredView, record: Record) -> int:
        """The number of items that must exist for a new item."""
        return 0

    def relations_of(self, items: Any, others: Iterable[Any]) -> Mapping[str, Any]:
        """The relations by which items can be embedded in some items, by their names for callers."""
        return {}

    def relations_for(self, items: Any, caller: Caller) -> Mapping[str, Any]:
        """Those of the `relations` of some items that a caller may know."""
        return {}

    def with_hops(self, queryable: Queryable, items: Any, caller: Caller) -> Queryable:
        """What queries of some items can use, with the items to which their relations lead, as a caller sees them."""
        return queryable

    def with_related(self, *arguments: Any, **options: Any) -> list[bytes]:
        """The JSON of items with what is embedded in them, see `embedding.with_related`."""
        raise NotImplementedError  # without relations, nothing is


def next_of(name: str) -> str:
    """The member that has the address of the items that follow the embedded ones."""
    return f"{name}_next"
