"""Changes of items: how one is written, and the hooks by which features take part.

The defaults of the hooks are those of a service without features.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from marshmallow import Schema

from restkeeper.clock import Clock, rfc3339, time_after, uuid7
from restkeeper.resources.call import Call
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView, View, Views
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, RecordChanged
from restkeeper.storage.interface import Record

KINDS = ("created", "updated", "deleted")


class Answer(NamedTuple):
    """What a call returns: JSON; of an item also the ETag, the last change, and the id as it is stored."""

    body: bytes
    tag: str = ""
    changed_at: str = ""
    id: str = ""


class Change(NamedTuple):
    """One write of one item: the item before and after (None where there is none), when (RFC 3339), and by which call.

    A migration to a new schema, or a note beside the item, is no change: the version stays.
    """

    stored: StoredView
    before: Record | None
    after: Record | None
    at: str
    call: Call

    @classmethod
    def now(cls, stored: StoredView, before: Record | None, after: Record | None, clock: Clock, call: Call) -> "Change":
        """A change at the time that the item has after it; a deletion is at this moment."""
        at = after.updated_at if after else time_after(before.updated_at if before else "", rfc3339(clock.time()))
        return cls(stored, before, after, at, call)

    @property
    def kind(self) -> str:
        """One of KINDS."""
        return "created" if self.before is None else "updated" if self.after else "deleted"

    @property
    def record(self) -> Record:
        """The item as it is now, or as it last was."""
        record = self.after or self.before
        assert record is not None  # noqa: S101 - a change has one of them
        return record


class IdempotencyRecord:
    """What is stored of a request that is done once: of this one, which has no key, nothing.

    `render` makes the response of an answer.
    """

    def __init__(self, render: Callable[[Answer], Any]) -> None:
        self.render = render

    def find(self, call: Call, store: Store) -> Any:
        """The response that was given before, if any. Raises a Problem if that was to another request."""
        return None

    def claim(self, transaction: Transaction) -> None:
        """Let repetitions of the request wait for this transaction, which will `save` a response. Raises as `save`."""

    def save(self, transaction: Transaction, answer: Answer) -> Any:
        """Store the response in the transaction of the change, and return it.

        Raises ResponseStored: then `find` returns another.
        """
        return self.render(answer)


@dataclass
class Hooks:
    """The hooks of a service.

    `check` is called before every write, in its transaction, or after several, whose items may refer to each other;
    `check_body` before each action, with the schema of its body and what that has loaded; `on_change` after a write.
    `idempotency` returns the record of the current request, given the JSON value of its body, what makes the response
    of an answer, and whether that holds a `secret`.
    `before_read` are called before items are read, with how the caller sees these. `represent` returns how the callers
    of a version of the API see the items of a collection. `items` returns the `Items` of a transaction and a call.
    `dependents` are the collections whose items the current request deletes with the item that they refer to, although
    on_delete is "null". While it `clears`, a deletion sets weak references to the item to null. `described` returns the
    application whose document describes this one. `new_id` returns the id of a new item, in the order of their
    creation.
    `resources` are the collections by their names. In the context of `large`, which waits until a deadline, what is in
    large bodies is computed, so that those of many requests do not run before a small one that comes after them.
    """

    check: Callable[..., None] = lambda transaction, change, bounded=True: None
    check_body: Callable[[Transaction, Call, Schema, Any], None] = lambda transaction, call, schema, loaded: None
    on_change: list[Callable[[Transaction, Change], None]] = field(default_factory=list)
    idempotency: Callable[..., IdempotencyRecord] = lambda sent, render, secret=False: IdempotencyRecord(render)
    before_read: list[Callable[[View, int], None]] = field(default_factory=list)
    represent: Callable[[StoredView, str], Views] = lambda stored, version: stored
    items: Callable[[Transaction, Call], Any] = lambda transaction, call: None
    dependents: Callable[[], Collection[str]] = lambda: ()
    described: Callable[[Any], Any] = lambda app: app
    clears: bool = True
    new_id: Callable[[], str] = uuid7
    resources: Mapping[str, Resource] = field(default_factory=dict)
    large: Callable[[float], AbstractContextManager[None]] = lambda deadline: nullcontext()

    def apply(self, transaction: Transaction, change: Change) -> None:
        """Check a change, write and announce it. Raises as `write`, and what `check` and `on_change` raise."""
        self.check(transaction, change)
        self.write(transaction, change)
        self.announce(transaction, change)

    def write(self, transaction: Transaction, change: Change) -> None:
        """Write a change that the caller does `check` and `announce` in the same transaction.

        Raises DuplicateValue, RevisionDiffers, and RecordNotFound for an item that is not there;
        RecordChanged for a singleton that is stored since it was read.
        """
        name, after = change.stored.name, change.after
        if after is None:
            transaction.delete(name, change.record.id)
        elif change.before is None:
            transaction.insert(name, after)
        elif not change.before.version:  # a singleton that is not stored yet
            try:
                with transaction.savepoint():
                    transaction.insert(name, after)
            except DuplicateValue as error:
                if error.of is not after:  # an earlier change, which a store may refuse only here
                    raise
                raise RecordChanged("it was stored meanwhile") from None
        else:
            transaction.update(name, after)

    def announce(self, transaction: Transaction, *changes: Change) -> None:
        """Do what follows writes: of several, all have their events before a function of the service changes more."""
        for listen in self.on_change:
            for change in changes:
                listen(transaction, change)
