"""The form in which callers see the items of a collection. A `Resource` is one: the items as they are stored."""

from collections.abc import Iterable
from typing import Protocol

from restkeeper.resources.resource import NO_LIMITS, ItemLimits, JsonObject, Resource
from restkeeper.schemas.item import ItemSchema
from restkeeper.storage.contract import Page, Query, Record
from restkeeper.web.queries import Queryable


class Form(Protocol):
    """A form of the items of a collection: it reads what callers send, and represents records.

    Records are always stored in the newest revision. What is not described here is as in `Resource`.
    """

    @property
    def name(self) -> str:
        """The name of the collection."""

    @property
    def schema(self) -> type[ItemSchema]:
        """The schema of an item."""

    @property
    def names(self) -> tuple[str, ...]:
        """The fields of an item in the order of its representation."""

    @property
    def texts(self) -> frozenset[str]:
        """The fields whose values are texts, or null."""

    @property
    def queryable(self) -> Queryable:
        """What the queries of lists can use."""

    @property
    def fingerprint(self) -> str:
        """A text that changes with the representation of items: that of records, if they are shown as stored."""

    @property
    def changed_at(self) -> str:
        """When this form last changed by the clock (RFC 3339); empty if it does not."""

    def query(self, query: Query) -> Query:
        """A query of callers as the store has it. Raises InvalidQuery."""

    def name_of(self, field: str) -> str:
        """The name for callers of a stored field; the same if they do not see it."""

    def create(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """A new item."""

    def restore(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """An exported item."""

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """The item with other content. What callers of this form do not see stays."""

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """The item with a JSON Merge Patch (RFC 7396) applied to its representation."""

    def body(self, record: Record) -> bytes:
        """The representation of a record. Raises NotConvertible."""

    def bodies(self, page: Page) -> list[bytes]:
        """The representations of the items of a page, without those that are NotConvertible."""

    def show(self, body: bytes, names: Iterable[str]) -> bytes:
        """A representation reduced to these fields."""


def newest(resource: Resource, version: str) -> Form:
    """The form of a collection in a version of the API, if all versions show the items as they are stored."""
    return resource
