"""The items of one collection, as requests change them: each write is computed, and done in one transaction."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from dataclasses import field as field_of
from functools import partial
from typing import Any, TypeVar

from restkeeper.clock import YIELD_SECONDS, Clock, in_turns, rfc3339
from restkeeper.errors import (
    MOST_FAULTS,
    Conflict,
    Duplicate,
    Forbidden,
    NotFound,
    Problem,
    Unavailable,
    ValidationFailed,
)
from restkeeper.exactjson import JsonObject, fault, require_none
from restkeeper.resources.call import NONE, Call, lacking
from restkeeper.resources.changes import Answer, Change, IdempotencyRecord
from restkeeper.resources.functions import (
    Items,
    as_conflict,
    changed_record,
    current_records,
    invoke,
    require_few_references,
    returned_json,
    run_before,
)
from restkeeper.resources.item import Loaded
from restkeeper.resources.items import CollectionReader
from restkeeper.resources.queries import Arguments
from restkeeper.resources.references import number_of_references
from restkeeper.resources.representation import Representation
from restkeeper.resources.resource import Action, Ownership
from restkeeper.storage.base import Locked, Store, Transaction
from restkeeper.storage.errors import (
    DuplicateValue,
    RecordChanged,
    RecordNotFound,
    ReferenceMissing,
    ResponseStored,
    StoreContended,
    StoreDeadlocked,
)
from restkeeper.storage.interface import Filter, Record

T = TypeVar("T")
Refusal = DuplicateValue | ReferenceMissing  # of a record, by the store

CONTENDED_SECONDS = 0.05  # before it is retried if the store had to end it
OWNER_QUERY = "owner"  # the parameter of who the owner of a new item is
OWNER_UNUSED = "can be used only by a request that creates an item with an owner"


@dataclass
class Write:
    """One write: its `work` is done in a transaction, and returns the response, which is stored with it.

    `response` is that, if it is known before. The work may be done again, so it has no other effects. After it,
    `before` is the item that it has changed, and `after` has those that it has stored, or tried to, by what is before
    the names of their fields in a JSON Pointer, such as "3/", or None for one that was not sent. `creates` is the id of
    the one that a PUT creates. With `use_reserve` it is done also on a disk that is almost full.
    """

    work: Callable[[Transaction, "Write"], Answer]
    response: Answer | None = None
    use_reserve: bool = False
    before: Record | None = None
    after: dict[str | None, Record] = field_of(default_factory=dict)
    creates: str = ""


class CollectionWriter(CollectionReader):
    """What one call writes to a collection."""

    def require_owner_used(self, args: Arguments) -> None:
        """Raises ValidationFailed unless the owner of a new item can be named beside it.

        Raises Forbidden as its field, and for one that is not the caller's.
        """
        if len(args[OWNER_QUERY]) > 1:
            raise owner_fault("is given more than once")
        if self.of.resource.ownership is Ownership.NONE:
            raise owner_fault(OWNER_UNUSED)
        for name, scope in (*self.of.stored.private, *self.of.stored.guarded):
            if name == self.of.stored.revision.owner and not self.caller.may(scope):
                raise lacking(scope, "an owner beside the item")  # also for one that is there: nothing is compared
        if name := self.view.owner_field:
            raise owner_fault(f"is the field {name} here: send it in the item")
        if args[OWNER_QUERY][0] not in self.caller.owners:
            raise Forbidden("the owner in the query is none of the caller's own")

    # What each write does in its transaction. Only what does not depend on stored items is computed before.

    def creation(
        self,
        sent: JsonObject | list[JsonObject],
        owner: str | None = None,
        *,
        at_list: bool = False,
        filters: tuple[Filter, ...] = (),
    ) -> Write:
        """Create an item, of the `owner` that is named beside it, or those of an array, all or none.

        Where the request is `at_list`, one that has these `filters`, and is conditional, the list must match.
        """
        several = sent if isinstance(sent, list) else [sent]
        new = self._new_records(several, sent, owner)

        def answer(records: Sequence[Record]) -> Answer:
            if several is sent:
                return Answer(b"[" + b",".join(map(self.view.body, records)) + b"]")
            return self.answer(records[0])._replace(id=self.of.resource.shown(records[0].id))

        def work(transaction: Transaction, write: Write) -> Answer:
            if at_list:
                self.require_list(transaction, filters)
            records = self.of.stored.numbered(new, several, transaction, self.of.limits)
            write.after = {f"{number}/" if several is sent else "": record for number, record in enumerate(records)}
            for place in in_turns([*write.after], self.of.clock, transaction.turn_seconds):
                self._store_item(transaction, write, None, write.after[place], place)
            return write.response or answer(current_records(transaction, self.of.stored, write.after.values()))

        resource, is_conditional = self.of.resource, self.call.conditions is not NONE
        is_known = not (resource.has_integer_ids or is_conditional or resource.functions)
        return Write(work, answer(new) if is_known else None)

    def update(self, id: str, change: Callable[..., Record], sent: JsonObject, owner: str | None = None) -> Write:
        """Change an item by `change` (`replace` or `merge`) and what was sent, or create it by a PUT.

        Raises NotFound, Forbidden, PreconditionFailed, and Conflict for another `owner` of an item that is there.
        """
        if change == self.replace:
            sent = self.view.loaded(sent)

        def work(transaction: Transaction, write: Write) -> Answer:
            try:
                before = write.before = self._read_to_change(id, transaction)
            except (NotFound, RecordNotFound):
                if change != self.replace or not self.of.stored.is_put_creating:
                    raise
                self.call.conditions.require(None, must_say=self.of.config.require_if_match)
                write.creates = id
                return self._creation_at(id, sent, owner).work(transaction, write)
            if owner not in (None, before.owner):
                raise Conflict("this item exists, and the `owner` in the query cannot change its owner")
            after = change(before, sent, now=self._now(), limits=self.of.limits)
            return self.answer(self._store_item(transaction, write, before, after))

        return Write(work)

    def _creation_at(self, id: str, sent: JsonObject, owner: str | None) -> Write:
        """Create an item by a PUT. Raises ValidationFailed for another id in the body."""
        if not self.of.resource.singleton:
            key, name = self.of.resource.key(id), self.of.resource.schema.id_name
            item = sent if name in sent else {name: self.of.resource.shown(key) if key else id, **sent}
            is_other = self.of.resource.key(item[name]) != key
            sent = Loaded(item, sent.text) if isinstance(sent, Loaded) else item
            require_none([fault([name], "is another one in the path")] if is_other else [])
        return self.creation(sent, owner)

    def deletion(self, id: str) -> Write:
        """Delete an item; the response is the item as it last was. Raises as `update`."""

        def work(transaction: Transaction, write: Write) -> Answer:
            before = write.before = self._read_to_change(id, transaction)
            with as_conflict(self.of.name):  # there is no body that a function could refuse
                self._store_item(transaction, write, before, None)
            return Answer(self.view.body(before))

        return Write(work, use_reserve=True)

    def execution(self, action: Action, loaded: Any, id: str | None) -> Write:
        """Do an action, of the item with this id or of the collection, with what its schema has `loaded`.

        Raises what its function raises, and as `update`.
        """

        def work(transaction: Transaction, write: Write) -> Answer:
            before = write.before = None if id is None else self._read_to_change(id, transaction)
            items: Items = self.of.hooks.items(transaction, self.call)
            if action.schema:
                self.of.hooks.check_body(transaction, self.call, action.schema, loaded)
            more = (*([deepcopy(loaded)] if action.body else []), items)  # it may be called again
            if before is None:
                result = invoke(items, action.function, *more)
                return Answer(returned_json(action.function, result))
            after = changed_record(items, action.function, self.of.stored, before, *more)
            with as_conflict(self.of.name):
                return self.answer(self._store_item(transaction, write, before, after, None))

        return Write(work)

    def _store_item(
        self,
        transaction: Transaction,
        write: Write,
        before: Record | None,
        after: Record | None,
        place: str | None = "",
    ) -> Record:
        """Write an item, and return it as it is, or last was; `place` is that of its faults in what was sent."""
        change = Change.now(self.of.stored, before, after, self.of.clock, self.call)
        if after is not None:
            write.after[place] = after
        try:
            change = run_before(self.of.hooks, transaction, change, self.of.limits)
            if change.after is not before:
                if change.after is not None:
                    write.after[place] = change.after
                if transaction.items and (key := (self.of.name, change.record.id)) in transaction.items.written:
                    transaction.items.written[key] = change  # the last one, for `current_records`
                (self.of.apply or self.of.hooks.apply)(transaction, change)
            return change.record
        except ValidationFailed as error:
            faults = error.members.get("errors") or [fault((), str(error))]  # so that an array has one for its item
            error.members["errors"] = list(placed_faults(place or "", map(self.view.known_fault, faults)))
            raise

    def _now(self) -> str:
        return rfc3339(self.of.clock.time())

    def replace(self, record: Record, sent: JsonObject, **options: Any) -> Record:
        """As `Representation.replace`, as far as the caller may do that. Raises as `Rights.permit`, too."""
        return self._permitted(sent, record, partial(self.view.replace, record, sent, **options))

    def merge(self, record: Record, patch: JsonObject, **options: Any) -> Record:
        """As `Representation.merge`, as far as the caller may do that. Raises as `Rights.permit`, too."""
        return self._permitted(patch, record, partial(self.view.merge, record, patch, **options))

    def _permitted(self, sent: JsonObject, before: Record | None, make: Callable[[], Record]) -> Record:
        rights = self.of.rights
        return rights.permit(self.caller, self.view, sent, before, make) if rights else make()

    def _new_records(self, several: Sequence[JsonObject], sent: object, owner: str | None) -> list[Record]:
        """New items, which are not stored yet. If they were sent as an array, the faults of all are raised."""
        records, faults, references = list[Record](), list[JsonObject](), 0
        names = self.view.names_of(self.of.stored.revision.owner)
        if owner is not None and (known := next((name for item in several for name in names if name in item), "")):
            raise owner_fault(f"is {known} in the item, too: send one of them")
        owner = self.of.access.owner_of_new(self.caller) if owner is None else owner
        for number, item in in_turns(enumerate(several), self.of.clock):
            try:
                options: Any = {"now": self._now(), "limits": self.of.limits, "owner": owner}
                id = self.of.stored.new_id(self.of.hooks.new_id)
                record = self._permitted(item, None, partial(self.view.create, item, id=id, **options))
                records.append(record)
                if self.of.stored.revision.references:  # before the work of the others and of a store
                    require_few_references(references := references + number_of_references(self.of.stored, record))
            except ValidationFailed as error:
                if several is not sent:
                    raise
                faults += placed_faults(f"{number}/", error.members["errors"])
                if len(faults) > MOST_FAULTS:
                    break
        require_none(faults)
        return records

    def require_list(self, transaction: Transaction, filters: tuple[Filter, ...] = ()) -> None:
        """Raises PreconditionFailed unless the list, by its first page, matches the condition of the request."""
        if self.call.conditions is NONE:
            return
        change_token = transaction.change_token(self.of.name)  # which locks the collection
        is_own = self.owners() is not None
        tag = self.first_page(transaction, filters) if is_own else self.list_tag(change_token, self.of.page_limit)
        self.call.conditions.require(tag)

    def write(self, prepare: Callable[[], Write], once: IdempotencyRecord) -> Any:
        """As `write_once`."""

        def explain(error: Refusal, write: Write) -> Exception:
            if isinstance(error, DuplicateValue):
                self.require_creation(write)
            return explained_refusal(self.view, error, write)

        return write_once(self.of.store, self.call, once, prepare, self.of.clock, explain, [self.of.name])

    def require_creation(self, write: Write) -> None:
        """Raises RecordChanged if the item that a PUT was to create is there now, so that it is done again."""
        if write.creates:
            with suppress(NotFound):
                self.find(write.creates)
                raise RecordChanged("the item was created meanwhile")

    def _read_to_change(self, id: str, transaction: Transaction) -> Record:
        """An item that the caller may change.

        Raises NotFound, Forbidden, PreconditionFailed and PreconditionRequired.
        """
        record = self.of.stored.read(transaction, id)
        self.of.access.require_change(self.caller, record)
        conditions, must_say = self.call.conditions, self.of.config.require_if_match
        if conditions is not NONE or must_say:
            conditions.require(self.tag(record), self.changed_at(record), must_say=must_say)
        return record


def owner_fault(detail: str) -> ValidationFailed:
    """The error of a write that names an owner beside its item."""
    return ValidationFailed(f"{OWNER_QUERY} {detail}", errors=[{"parameter": OWNER_QUERY, "detail": detail}])


def placed_faults(place: str, faults: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Faults with their pointers below this place, such as "3/"; empty for the whole body."""
    for item_fault in faults:
        pointer = item_fault["pointer"].removeprefix("#")
        yield {**item_fault, "pointer": f"#/{place.removesuffix('/')}{pointer}"} if place else item_fault


def explained_refusal(representation: Representation, error: Refusal, write: Write) -> Refusal | Problem:
    """What the store refuses: at its place in what was sent, with the names of fields that callers know."""
    for place, record in write.after.items():
        if record is error.of and place is not None:
            if isinstance(error, DuplicateValue):
                return DuplicateValue(*dict.fromkeys(place + representation.name_of(field) for field in error.fields))
            known = representation.known_fault({"pointer": error.pointer, "detail": error.detail})
            (refusal,) = placed_faults(place, [known])
            return ValidationFailed(f"{refusal['pointer'].removeprefix('#/')}: {refusal['detail']}", errors=[refusal])
    return duplicate_of_function(error) if isinstance(error, DuplicateValue) else error


def duplicate_of_function(error: DuplicateValue) -> Duplicate:
    """The problem of an item that a function of the service writes: it is no field of what was sent."""
    return Duplicate(f"{error.collection}: {error.detail}")


def write_once(
    store: Store,
    call: Call,
    once: IdempotencyRecord,
    prepare: Callable[[], Write],
    clock: Clock,
    explain: Callable[[Refusal, Write], Exception],
    collections: Iterable[str],
) -> Any:
    """Do a write in one transaction with its response, at most once; or return the response that is stored.

    It is prepared if there is none, and done again if the store had to end the transaction because of others. `explain`
    returns what to raise for what the store refuses. It begins with the locks of the `collections` that it changes.
    """
    locked, prepared = Locked(dict.fromkeys(collections, False)), list[Write]()

    def work(transaction: Transaction) -> Any:
        write, response = prepared[0], None
        write.before, write.after, write.creates = None, {}, ""
        if write.response:
            response = once.save(transaction, write.response)
        else:
            once.claim(transaction)
        transaction.lock(locked)
        answer = write.work(transaction, write)
        return response if write.response else once.save(transaction, answer)

    def attempt(deadline: float) -> Any:
        if (stored := once.find(call, store)) is not None:
            return stored
        if not prepared:
            prepared.append(prepare())
        try:
            return store.write(work, use_reserve=prepared[0].use_reserve, deadline=deadline)
        except (DuplicateValue, ReferenceMissing) as error:
            raise explain(error, prepared[0]) from None
        except StoreDeadlocked:  # the next attempt has these collections alone
            locked.collections.update(dict.fromkeys(locked.collections, True))
            raise

    return until_current(attempt, call.deadline(clock), clock)


def until_current(attempt: Callable[[float], T], deadline: float, clock: Clock = time) -> T:
    """What `attempt` returns, called again while it raises RecordChanged, ResponseStored or StoreContended.

    It is given the deadline of all its waits. Raises Unavailable after `deadline`, by `clock`.
    """
    while True:
        try:
            return attempt(deadline)
        except (RecordChanged, ResponseStored, StoreContended) as error:
            if clock.monotonic() >= deadline:
                raise Unavailable("others change this item at the same time; try again") from None
            pause = CONTENDED_SECONDS if isinstance(error, StoreContended) else YIELD_SECONDS
        clock.sleep(pause)
