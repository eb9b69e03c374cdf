"""The hooks by which features take part in changes of items. The defaults are those of a service without features."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from restkeeper.resources.form import Form, newest
from restkeeper.resources.resource import Resource
from restkeeper.storage.contract import Record, Store, Transaction
from restkeeper.web.application import Reply

KINDS = ("created", "updated", "deleted")


class Change(NamedTuple):
    """One write of one item: its kind, the item before and after (None where there is none), and when (RFC 3339).

    A migration to a new schema, or a note beside the item, is no change: the version stays.
    """

    kind: str
    resource: Resource
    before: Record | None
    after: Record | None
    at: str

    @property
    def record(self) -> Record:
        """The item as it is now, or as it last was."""
        record = self.after or self.before
        assert record is not None  # noqa: S101 - a change has one of them
        return record


class IdempotencyRecord:
    """What is stored of a request that is done once: of this one, which has no key, nothing."""

    def find(self, store: Store) -> Reply | None:
        """The response that was given before, if any. Raises a Problem if that was to another request."""
        return None

    def save(self, transaction: Transaction, reply: Reply) -> None:
        """Store the response in the transaction of the change. Raises ResponseStored: then `find` returns another."""


class Access:
    """What the current caller may do with the items of a collection, beyond scopes: here, everything."""

    def owner_of_new(self) -> str | None:
        """The owner of an item that the caller creates."""
        return None

    def visible_owner(self) -> str | None:
        """The owner whose items alone the caller sees; None if it sees everybody's."""
        return None

    def require_sight(self, record: Record) -> None:
        """Raises NotFound for an item that the caller must not know of."""

    def require_change(self, record: Record) -> None:
        """Raises Forbidden for an item that the caller may only read, NotFound as `require_sight`."""


def _no_record(sent: Any, *, secret: bool = False) -> IdempotencyRecord:
    return IdempotencyRecord()


def _full_access(resource: Resource) -> Access:
    return Access()


@dataclass
class Hooks:
    """The hooks of a service.

    `on_change` are called with every change, in its transaction. `idempotency` returns the record of the current
    request, given the JSON value of its body and whether the response holds a `secret`. `access` returns what callers
    may do with a collection's items. `before_list` are called before a list of items is read, with their form.
    `on_body` are called with the JSON object that a request has sent. `form` returns how the items of a collection look
    in a version of the API.
    """

    on_change: list[Callable[[Transaction, Change], None]] = field(default_factory=list)
    idempotency: Callable[..., IdempotencyRecord] = _no_record
    access: Callable[[Resource], Access] = _full_access
    before_list: list[Callable[[Form], None]] = field(default_factory=list)
    on_body: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    form: Callable[[Resource, str], Form] = newest

    def apply(self, transaction: Transaction, change: Change) -> None:
        """Write a change: the one door.

        Raises DuplicateValue, also as `Resource.require_unique`, Unavailable as that, and RecordNotFound for an item
        that is not there.
        """
        name, after = change.resource.name, change.after
        if after is not None:
            change.resource.require_unique(change.before, after, transaction)
        if after is None:
            transaction.delete(name, change.record.id)
        elif change.before is None:
            transaction.insert(name, after)
        else:
            transaction.update(name, after)
        for listen in self.on_change:
            listen(transaction, change)
