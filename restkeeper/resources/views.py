"""The items of a collection as callers see them: stored, in a version, without fields that are gone or private.

Every view except the stored one is made from another view.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial, reduce
from typing import Any, Protocol

from msgspec import Raw

from restkeeper import exactjson
from restkeeper.clock import Clock, rfc3339
from restkeeper.errors import ValidationFailed
from restkeeper.exactjson import JsonObject, fault, require_none
from restkeeper.resources.call import Caller, lacking
from restkeeper.resources.item import NO_ID, NO_LIMITS, ItemForm, ItemLimits, digest
from restkeeper.resources.parameters import Queryable
from restkeeper.resources.resource import Resource
from restkeeper.resources.revision import schema_with
from restkeeper.schemas.fields import WRITABLE_BY
from restkeeper.schemas.item import CLIENT_IDS, READ_ONLY, ItemSchema
from restkeeper.schemas.prepared import fields_of
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.interface import Collection, Page, Query, Record, root_of, serial

UNREADABLE = "has fields that you may not read, and with these it would not be valid"
MOST_SETS = 64  # sets of fields that are gone, hidden or locked: a process keeps a view for each set

_NEVER = "1970-01-01T00:00:00.000000Z"  # when a singleton that is not stored changed

End = tuple[float, str, str]  # of a field: when (seconds since 1970), its name, and why it cannot be used then


class Access:
    """What callers may do with the items of others, beyond scopes: here, everything."""

    def owner_of_new(self, caller: Caller) -> str | None:
        """The owner of an item that the caller creates, if it does not name another one of the caller's owners."""
        return None

    def owners(self, caller: Caller) -> tuple[str, ...] | None:
        """The owners whose items alone the caller sees; None if it sees everybody's."""
        return None

    def require_owner(self, caller: Caller, owner: str | None) -> None:
        """Raises Forbidden if the caller may not give an item to this owner, or to none."""

    def require_sight(self, caller: Caller, record: Record) -> None:
        """Raises NotFound for an item that the caller must not know of."""

    def require_change(self, caller: Caller, record: Record) -> None:
        """Raises Forbidden for an item that the caller may only read, NotFound as `require_sight`."""


class Views(Protocol):
    """How the callers of a version of the API see the items of a collection."""

    def for_caller(self, caller: Caller) -> "View":
        """How one caller sees the items now."""


class View(Protocol):
    """The items of a collection as some callers know them: it reads what they send, and represents records.

    `name` is the name of the collection, `schema` the schema of an item, `form` the revision that the callers see.
    `names` are the fields of an item in order, `texts` the fields with a text or null as value; `queryable` says what
    the queries of lists can use. To read a `private` field, or to set a `guarded` field, a caller needs the scope
    beside it; `hidden` are the fields that these callers may not read, and `locked` the fields that they may not set.
    The `fingerprint` changes with the representation of items. `changed_at` is when the representation last changed by
    the clock, or by a conversion (RFC 3339); empty if it did not. The `owner_field` is empty if the callers know no
    such field. `access` says what a caller may do with the items of others.
    """

    name: str
    form: ItemForm
    schema: type[ItemSchema]
    names: tuple[str, ...]
    texts: frozenset[str]
    queryable: Queryable
    fingerprint: str
    changed_at: str = ""
    owner_field: str = ""
    access: Access = Access()
    private: Iterable[tuple[str, str]] = ()
    guarded: Iterable[tuple[str, str]] = ()
    hidden: Mapping[str, str] = {}
    locked: Mapping[str, str] = {}

    @cached_property
    def _partial(self) -> "PartialViews":
        return PartialViews(self)

    def for_caller(self, caller: Caller) -> "View":
        """See `Views`."""
        return self._partial.for_caller(caller) if self.private or self.guarded else self

    def query(self, query: Query) -> Query:
        """A query of callers as the store has it."""
        return query

    def names_of(self, field: str) -> tuple[str, ...]:
        """The callers' names of the fields that make a stored field; the stored name if they have no such field."""
        return (field,)

    def name_of(self, field: str) -> str:
        """The first name of `names_of`."""
        return next(iter(self.names_of(field)), field)

    def is_converted(self, field: str) -> bool:
        """Whether a stored field is made of fields that callers know: then a body without these fields sets it, too."""
        return False

    def known_fault(self, error: JsonObject) -> JsonObject:
        """A fault of a stored item, with its pointer for callers."""
        return error

    def new_record(
        self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS, owner: str | None = None
    ) -> Record:
        """A new item from a request's body, of this owner if the body names no owner.

        Raises ValidationFailed with its faults, BodyTooLarge, and Forbidden for a field that these callers may not set.
        """

    def restore(
        self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS, owner: str | None = None
    ) -> Record:
        """An item that was exported, or that a function made: fields of the server that are not in `sent` are new.

        The owner is the one in `sent`, or else `owner`. Raises as `new_record`.
        """

    def loaded(self, sent: JsonObject) -> JsonObject:
        """A body for `replace`, Loaded if the stored item makes no difference. Raises as `new_record`."""
        return sent

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """The item with the content `sent`; the same record if nothing changes.

        Fields that these callers do not see, or may not set, stay, and so does an owner that is left out. Raises as
        `new_record`, and IllegalTransition when its status cannot move so.
        """

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """The item with a JSON Merge Patch (RFC 7396) applied to its representation. Returns and raises as `replace`.

        A null for an unknown field, or for a field of the server, is a fault like any other value.
        """

    def body(self, record: Record) -> bytes:
        """The representation of a record. Raises RevisionDiffers."""

    def bodies(self, page: Page) -> list[bytes]:
        """The representations of the items of a page. Raises RevisionDiffers."""
        rows = zip(page.fingerprints, page.bodies, page.owners, page.removed_fields, strict=True)
        return [self.body(Record("", 0, "", *row)) for row in rows]

    def reduced(self, body: bytes) -> bytes:
        """An item of the `form` without the fields that these callers do not see."""
        return body

    def show(self, body: bytes, names: Iterable[str]) -> bytes:
        """A representation reduced to these fields, or to the values at these paths."""
        return exactjson.joined(reduced(exactjson.cut(body), tree_of(names)))


Tree = dict[str, Any]  # the names on some paths, with the trees of the names after them, which are empty at an end


def tree_of(paths: Iterable[str]) -> Tree:
    """The tree of some paths; a path includes all longer paths that begin with it."""
    tree: Tree = {}
    for path in sorted(paths, reverse=True):  # a path after the longer paths that begin with it
        *around, last = path.split(".")
        reduce(lambda inner, name: inner.setdefault(name, {}), around, tree)[last] = {}
    return tree


def reduced(members: Mapping[str, exactjson.Buffer], tree: Tree) -> dict[str, exactjson.Buffer]:
    """The members of an object, reduced to a tree. A list on a path stands for its elements; nothing is in a scalar."""

    def inside(text: exactjson.Buffer, tree: Tree) -> exactjson.Buffer | None:
        value = exactjson.outermost(text) if tree else None
        if isinstance(value, dict):
            return Raw(exactjson.joined(reduced(value, tree)))
        if isinstance(value, list):
            elements = (inside(element, tree) for element in value)
            return Raw(b"[%b]" % b",".join(element for element in elements if element is not None))
        return text if value is None else None

    texts = {name: inside(text, tree[name]) for name, text in members.items() if name in tree}
    return {name: text for name, text in texts.items() if text is not None}


class StoredView(ItemForm, View):
    """The items of a collection as they are stored: in its newest revision."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource, resource.newest)
        self.form = self
        self.private = tuple(self.revision.private.items())
        self.guarded = tuple(
            (name, field.metadata[WRITABLE_BY])
            for name, field in self.revision.guarded.items()
            if WRITABLE_BY in field.metadata
        )
        self.owner_field = self.revision.owner
        self.initial: Record | None = None  # of a singleton whose fields have defaults, until it is stored: version 0
        if resource.singleton:
            with suppress(ValidationFailed):
                self.initial = self.new_record({}, id=self.name, now=_NEVER)._replace(version=0)

    @property
    def collection(self) -> Collection:
        """The declaration of the collection for a store."""
        return self.resource.collection

    @property
    def is_put_creating(self) -> bool:
        """Whether a PUT creates the item if there is none."""
        return self.resource.ids in CLIENT_IDS or (self.resource.singleton and self.initial is None)

    def id_of(self, record: Record) -> str | int:
        """The id of an item as its body has it."""
        return self.resource.public_id(record.id)

    def id_variants(self, key: str) -> tuple[str | int, ...]:
        """The values by which others can refer to an item."""
        return (self.resource.public_id(key),)

    def cleared(self, record: Record, path: str, *, now: str) -> Record:
        """The item with null in a field that refers to a deleted item. Raises ValidationFailed."""
        item = exactjson.decoded(self.body(record))
        kept = {name: value for name, value in item.items() if name not in self.revision.of_server}
        return self.revise(record, {**kept, path: None}, now=now)

    def read(self, source: Store | Transaction, id: str | int) -> Record:
        """The record with this id, or the initial one. Raises RecordNotFound."""
        try:
            return source.read(self.name, self.resource.key(id))
        except RecordNotFound:
            if self.initial is None:
                raise
            return self.initial

    def provisional_id(self, make: Callable[[], str]) -> str:
        """The id of a new item: one that `make` returns, or NO_ID until `Unit.with_integer_ids` replaces it."""
        return NO_ID if self.resource.has_integer_ids else make()

    def numbered(self, record: Record, number: int) -> Record:
        """A new item with an integer as its id, which its body has, too, where items show it."""
        members, name = exactjson.cut(record.body), self.schema.id_name
        shown_id = {name: b"%d" % number} if name in members else {}
        return record._replace(id=serial(number), body=exactjson.joined({**members, **shown_id}))

    def bodies(self, page: Page) -> list[bytes]:
        if all(fingerprint == self.fingerprint for fingerprint in page.fingerprints):
            return list(map(self.shown, page.bodies)) if self.revision.hidden else page.bodies
        return super().bodies(page)


def stored_in(collections: Mapping[str, StoredView], collection: str) -> StoredView:
    """A collection by its name. Raises ValueError if there is none."""
    if (stored := collections.get(collection)) is None:
        raise ValueError(f"there is no collection {collection!r}; there are: {', '.join(collections)}")
    return stored


class PartialViews:
    """See `Views`: the `whole` without the fields that are gone now, and the fields that a caller may not see."""

    def __init__(self, whole: View, ends: Iterable[End] = (), clock: Clock = time) -> None:
        ordered = sorted(ends)
        self._times = [end for end, _, _ in ordered]
        self._private, self._guarded = sorted(whole.private), sorted(whole.guarded)
        self._clock = clock

        @lru_cache(MOST_SETS)
        def reduced(count: int, hidden: tuple[tuple[str, str], ...], locked: tuple[tuple[str, str], ...]) -> Any:
            return PartialView(whole, ordered[:count], dict(hidden), dict(locked))

        self._whole, self._reduced = whole, reduced

    def for_caller(self, caller: Caller) -> View:
        hidden = tuple((name, scope) for name, scope in self._private if not caller.may(scope))
        locked = tuple((name, scope) for name, scope in self._guarded if not caller.may(scope))
        count = bisect_right(self._times, self._clock.time()) if self._times else 0
        return self._reduced(count, hidden, locked) if count or hidden or locked else self._whole


class PartialView(View):
    """A representation without the `gone` and the `hidden` fields; the `locked` fields cannot be set.

    Hidden and locked fields have the scopes that callers need.
    """

    def __init__(self, whole: View, gone: Sequence[End], hidden: Mapping[str, str], locked: Mapping[str, str]) -> None:
        self._whole = whole
        self.hidden = hidden
        self._gone = {name: reason for _, name, reason in gone if name not in hidden}
        self.locked = {**hidden} | {name: scope for name, scope in locked.items() if name not in self._gone}
        self._gone_at = max((rfc3339(end) for end, _, _ in gone), default="")
        self._without = without = self._gone.keys() | hidden.keys()
        self.name, self.form, self.access = whole.name, whole.form, whole.access
        self.names = tuple(name for name in whole.names if name not in without)
        self.texts = whole.texts - without
        self.owner_field = "" if whole.owner_field in without else whole.owner_field
        self.fingerprint, self.schema, self.queryable = whole.fingerprint, whole.schema, whole.queryable
        if not without:
            return
        self.fingerprint += f"-{digest(' '.join(sorted(without)).encode())}"
        fields = fields_of(whole.schema())
        remaining = {name: fields[name] for name in self.names if name not in READ_ONLY or not fields[name].dump_only}
        self.schema = schema_with(whole.schema, remaining)
        before = whole.queryable
        queried = {name: field for name, field in before.fields.items() if root_of(name) not in without}
        refused = {name: why for name, why in before.refused.items() if name not in hidden}
        self.queryable = Queryable(queried, self.names, {**refused, **self._gone}, before.is_searched)

    @property
    def changed_at(self) -> str:  # type: ignore[override]
        return max(self._gone_at, self._whole.changed_at)

    def query(self, query: Query) -> Query:
        return self._whole.query(query)

    def names_of(self, field: str) -> tuple[str, ...]:
        return self._whole.names_of(field)

    def is_converted(self, field: str) -> bool:
        return self._whole.is_converted(field)

    def known_fault(self, error: JsonObject) -> JsonObject:
        return self._readable(self._whole.known_fault(error))

    def _readable(self, error: JsonObject) -> JsonObject:
        """A fault; for a hidden field it does not say what is wrong."""
        name = error["pointer"].removeprefix("#/").partition("/")[0]
        return fault((), UNREADABLE) if name in self.hidden else error

    def new_record(self, sent: JsonObject, **options: Any) -> Record:
        return self._read(sent, partial(self._whole.new_record, **options))

    def restore(self, sent: JsonObject, **options: Any) -> Record:
        return self._read(sent, partial(self._whole.restore, **options))

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        members = exactjson.cut(self._whole.body(record))
        stays = (self._without | self.locked.keys()) & members.keys()
        unseen = {name: exactjson.decoded(members[name]) for name in stays}
        return self._read(sent, lambda visible: self._whole.replace(record, visible | unseen, now=now, limits=limits))

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        return self._read(patch, lambda visible: self._whole.merge(record, visible, now=now, limits=limits))

    def _read(self, sent: JsonObject, make: Callable[[JsonObject], Record]) -> Record:
        """The record that `make` returns for the fields that are not gone.

        Raises ValidationFailed with the faults of all fields, and Forbidden for a locked field, whatever its value.
        """
        if refused := next((name for name in sent if name in self.locked), None):
            raise lacking(self.locked[refused], f"a change of {refused}")
        faults = [fault([name], self._gone[name]) for name in sent if name in self._gone]
        try:
            record = make({name: value for name, value in sent.items() if name not in self._gone})
        except ValidationFailed as error:
            require_none(faults + [*map(self._readable, error.members["errors"])])
            raise
        require_none(faults)
        return record

    def body(self, record: Record) -> bytes:
        return self.reduced(self._whole.body(record))

    def bodies(self, page: Page) -> list[bytes]:
        return [self.reduced(body) for body in self._whole.bodies(page)]

    def reduced(self, body: bytes) -> bytes:
        if not (without := self._without):
            return body
        return exactjson.joined({name: text for name, text in exactjson.cut(body).items() if name not in without})
