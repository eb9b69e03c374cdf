"""What the kernel asks about references between items: the feature `references` gives the answers."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from restkeeper.resources.call import Caller
from restkeeper.resources.parameters import Queryable
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView, View, Views
from restkeeper.storage.base import Store
from restkeeper.storage.interface import Kind, Record


class Embeddable(Protocol):
    """The items of a collection, which can be embedded in others: `resources.items.ServedCollection`."""

    name: str
    resource: Resource
    stored: StoredView
    views: Views
    store: Store
    relations: Mapping[str, "Relation"]
    page_bytes: int

    @property
    def whole(self) -> View:
        """The items for callers who may read every field."""

    def with_hops(self, queryable: Queryable, caller: Caller) -> Queryable:
        """What queries can use, with the items to which the `relations` lead, as a caller sees them."""


class Relation(NamedTuple):
    """A reference, followed to the items `to`; or where it `is_back`, from the items that refer to others.

    `field` is the reference as callers know it, `path` as it is stored. The item to which it refers is embedded in the
    place of the reference, or under the name `beside`.
    """

    to: Embeddable
    field: str
    path: str
    is_back: bool = False
    beside: str = ""

    @property
    def has_route(self) -> bool:
        """Whether a path lists the items that refer to an item: by a field with one value, inside no other field."""
        if not self.is_back or self.to.resource.singleton:
            return False
        field = self.to.stored.queryable.fields[self.path]
        return not field.is_many or field.kind is Kind.JSON


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

    def relations_of(self, items: Embeddable, others: Iterable[Embeddable]) -> Mapping[str, Relation]:
        """The relations by which items can be embedded in some items, by their names for callers."""
        return {}

    def relations_for(self, items: Embeddable, caller: Caller) -> Mapping[str, Relation]:
        """Those of the `relations` of some items that a caller may know."""
        return {}

    def with_hops(self, queryable: Queryable, items: Embeddable, caller: Caller) -> Queryable:
        """See `Embeddable.with_hops`."""
        return queryable

    def with_related(self, *arguments: Any, **options: Any) -> list[bytes]:
        """The JSON of items with what is embedded in them, see `embedding.with_related`."""
        raise NotImplementedError  # without relations, nothing is


def next_of(name: str) -> str:
    """The member that has the address of the items that follow the embedded ones."""
    return f"{name}_next"
