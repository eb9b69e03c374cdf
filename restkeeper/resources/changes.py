"""Changes of items: the one door to the store, and the hooks by which features take part.

The defaults of the hooks are those of a service without features. While items of older schemas are stored whose values
have another form, no unique value is taken twice, and no list leaves out an item without saying so.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from restkeeper.clock import uuid7
from restkeeper.errors import NotConvertible, Unavailable
from restkeeper.resources.evolution import revision_of
from restkeeper.resources.representation import Representation, StoredRepresentation
from restkeeper.resources.resource import Ownership, Resource
from restkeeper.schemas.item import READ_ONLY
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, RecordChanged
from restkeeper.storage.interface import Query, Record, root_of
from restkeeper.web import exactjson
from restkeeper.web.application import Reply

KINDS = ("created", "updated", "deleted")
MOST_COMPARED = 100  # older items with which a new unique value is compared
MOST_NAMED = 5  # items that are to be changed, in one response


class Change(NamedTuple):
    """One write of one item: its kind, the item before and after (None where there is none), and when (RFC 3339).

    A migration to a new schema, or a note beside the item, is no change: the version stays.
    """

    kind: str
    representation: StoredRepresentation
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

    def claim(self, transaction: Transaction) -> None:
        """Let repetitions of the request wait for this transaction, which will `save` a response. Raises as `save`."""

    def save(self, transaction: Transaction, reply: Reply) -> None:
        """Store the response in the transaction of the change. Raises ResponseStored: then `find` returns another."""


class Access:
    """What the current caller may do with the items of a collection, beyond scopes: here, everything."""

    def owner_of_new(self, named: str | None = None) -> str | None:
        """The owner of an item that the caller creates, for the one that it has `named`. Raises Forbidden."""
        return None

    def visible_owner(self) -> str | None:
        """The owner whose items alone the caller sees; None if it sees everybody's."""
        return None

    def require_sight(self, record: Record) -> None:
        """Raises NotFound for an item that the caller must not know of."""

    def require_change(self, record: Record) -> None:
        """Raises Forbidden for an item that the caller may only read, NotFound as `require_sight`."""


@dataclass
class Hooks:
    """The hooks of a service.

    `check` is called before every write, in its transaction, or after several, whose items may refer to each other;
    `on_change` are called after it. `idempotency` returns the record of the current request, given the JSON value of
    its body and whether the response holds a `secret`. `access` returns what callers may do with a collection's items.
    `before_read` are called before items are read, with how callers know these. `represent` returns how the callers of
    a version of the API know the items of a collection. `unit` returns the `Unit` of a transaction. `dependents` are
    the collections whose items the current request deletes with the item that they refer to, although on_delete is
    "null". While it `clears`, a deletion sets weak references to the item to null. `described` returns the application
    whose document describes this one. `new_id` returns the id of a new item, in the order of their creation.
    `resources` are the collections by their names.
    """

    check: Callable[..., None] = lambda transaction, change, bounded=True: None
    on_change: list[Callable[[Transaction, Change], None]] = field(default_factory=list)
    idempotency: Callable[..., IdempotencyRecord] = lambda sent, secret=False: IdempotencyRecord()
    access: Callable[[Resource], Access] = lambda resource: Access()
    before_read: list[Callable[[Representation, int], None]] = field(default_factory=list)
    represent: Callable[[StoredRepresentation, str], Representation] = lambda stored, version: stored
    unit: Callable[[Transaction], Any] = lambda transaction: None
    dependents: Callable[[], Collection[str]] = lambda: ()
    described: Callable[[Any], Any] = lambda app: app
    clears: bool = True
    new_id: Callable[[], str] = uuid7
    resources: Mapping[str, Resource] = field(default_factory=dict)

    def apply(self, transaction: Transaction, change: Change) -> None:
        """Write a change: the one door. Raises as `write`, and what `check` and `on_change` raise."""
        self.check(transaction, change)
        self.write(transaction, change)
        self.announce(transaction, change)

    def write(self, transaction: Transaction, change: Change) -> None:
        """Write a change that the caller does `check` and `announce` in the same transaction.

        Raises DuplicateValue, also as `_require_unique`, Unavailable as that, and RecordNotFound for an item
        that is not there; RecordChanged for a singleton that is stored since it was read.
        """
        name, after = change.representation.name, change.after
        if after is not None and change.representation.resource.unique:
            _require_unique(change.representation, change.before, after, transaction)
        if after is None:
            transaction.delete(name, change.record.id)
        elif change.before is None:
            transaction.insert(name, after)
        elif not change.before.version:  # a singleton that is not stored yet
            try:
                with transaction.savepoint():
                    transaction.insert(name, after)
            except DuplicateValue:
                raise RecordChanged("it was stored meanwhile") from None
        else:
            transaction.update(name, after)

    def announce(self, transaction: Transaction, *changes: Change) -> None:
        """Do what follows writes: of several, all have their events before a function of the service changes more."""
        for listen in self.on_change:
            for change in changes:
                listen(transaction, change)


def omitted_by(store: Store, *lists: tuple[StoredRepresentation, Query, Sequence[str]]) -> list[Record]:
    """The items that lists leave out: the query uses a field that has changed, and they are NotConvertible.

    Raises Unavailable if such a field has another form in further items of the `others` of a list, its third part, see
    `interface.Page`. One query of the store finds all of these.
    """
    changed, omitted = [], list[Record]()
    for representation, query, others in lists:
        fields = {root_of(filter.field) for filter in query.filters} | {key.field for key in query.sort}
        fields.update(representation.resource.search if query.search else ())
        if differing := _differing(representation, fields, others):
            changed.append((representation, query.owner, differing))
    wanted = [(representation.name, differing) for representation, _, differing in changed]
    found = store.of_fingerprints(wanted, MOST_COMPARED + 1) if wanted else []
    for (representation, owner, _), records in zip(changed, found, strict=True):
        refused = _refused(representation, records)
        if not records or len(records) > MOST_COMPARED or len(refused) < len(records):
            raise _unconverted(representation, refused)
        omitted += [each for each in refused if owner in (None, each.owner)]
    return omitted


def require_found(representation: StoredRepresentation, field: str, transaction: Transaction) -> None:
    """Raises Unavailable if a query by this field would miss an older item, or one of a newer program."""
    if _differing(representation, {field}, transaction.other_fingerprints(representation.name)):
        raise _unconverted(representation, ())


def _require_unique(
    representation: StoredRepresentation, before: Record | None, after: Record, transaction: Transaction
) -> None:
    """Raises DuplicateValue if a unique value is new, and an older item has it; Unavailable if that is unknown."""
    resource = representation.resource
    now = exactjson.cut(representation.present(after).body)
    was = exactjson.cut(representation.present(before).body) if before else {}
    values = {name: bytes(now[name]) for name in resource.unique.intersection(now)}
    new = {name: text for name, text in values.items() if text not in (b"null", bytes(was.get(name, b"")))}
    if not new:
        return
    fingerprints = transaction.other_fingerprints(resource.name)
    if not (differing := _differing(representation, new.keys(), fingerprints)):
        return
    (others,) = transaction.of_fingerprints([(resource.name, differing)], MOST_COMPARED + 1)
    if len(others) > MOST_COMPARED:
        raise _unconverted(representation, _refused(representation, others))
    folded = {index.field for index in resource.indexes if index.fold}
    for other in others:
        members = exactjson.cut(representation.present(other).body) if other.id != after.id else {}
        for name, text in new.items():
            same = bytes(members.get(name, b"null"))
            if exactjson.equal(same, text) or (name in folded and same.lower() == text.lower()):
                raise DuplicateValue(name)


def _differing(representation: StoredRepresentation, fields: Set[str], others: Sequence[str]) -> list[str]:
    """Those fingerprints of older items in which one of these fields has another form.

    Raises Unavailable if a newer program has stored items in which it may have.
    """
    if fields <= set(READ_ONLY):
        return []
    for fingerprint in others:
        representation.known.require_readable(fingerprint)
    resource = representation.resource
    oldest = [(max(revision_of(each), resource.oldest), each) for each in others]
    return [each for revision, each in oldest if not fields.isdisjoint(resource.converted.get(revision, ()))]


def _refused(representation: StoredRepresentation, records: Iterable[Record]) -> list[Record]:
    """Those that are NotConvertible."""
    refused = []
    for record in records:
        try:
            representation.upgraded(record)
        except NotConvertible:
            refused.append(record)
    return refused


def _unconverted(representation: StoredRepresentation, refused: Sequence[Record]) -> Unavailable:
    found = () if representation.resource.ownership is Ownership.ALL else refused[:MOST_NAMED]
    shown = ", ".join(str(representation.resource.shown(each.id)) for each in found)
    return Unavailable(
        f"some items of {representation.name} are still to be brought into the present form (`restkeeper migrate`) or, "
        f"where it cannot convert them, to be changed or deleted{shown and f' (as {shown})'}: until then no list can "
        f"use a field that has changed, no item can be deleted to which one refers, and, if they are more than "
        f"{MOST_COMPARED}, no item can get a unique value of one"
    )
