"""Writes of items: a command says what to do, and a unit does commands in one transaction, all or none."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import Any

from restkeeper.clock import in_turns, rfc3339
from restkeeper.errors import (
    MOST_FAULTS,
    BodyTooLarge,
    Conflict,
    Duplicate,
    NotFound,
    Problem,
    Unavailable,
    ValidationFailed,
)
from restkeeper.exactjson import JsonObject, fault, require_none
from restkeeper.resources.call import NONE, Call, Conditions
from restkeeper.resources.changes import Answer, Change, Command, Domain, Once, Operation, Unit
from restkeeper.resources.declaration import Action, Ownership
from restkeeper.resources.function_errors import as_conflict, duplicate_of_function, returned_json
from restkeeper.resources.functions import Items, changed_record, invoke, require_few_references
from restkeeper.resources.item import Loaded
from restkeeper.resources.items import CollectionReader, ServedCollection
from restkeeper.resources.unique import find_unique, query_of_unique
from restkeeper.resources.views import View
from restkeeper.resources.write_parameters import owner_fault
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, RecordChanged, RecordNotFound, ReferenceMissing, ResponseStored
from restkeeper.storage.interface import Record

Refusal = DuplicateValue | ReferenceMissing  # of a record, by the store

Completion = Callable[[list[Command]], list[Command]]  # see `Commands`


class CommandUnit(Unit):
    """A unit that does commands. `reader` returns the items of a collection as the caller sees them, by its name."""

    def __init__(
        self, domain: Domain, transaction: Transaction, call: Call, reader: Callable[[str], CollectionReader]
    ) -> None:
        super().__init__(domain, transaction, call)
        self.reader = reader

    def do(self, command: Command) -> Answer:
        """Do a command; the answer is the item as it is, or last was, or the result of an action of the collection.

        Raises NotFound, RecordNotFound, Forbidden, problems of conditions, and problems of functions of the service.
        """
        self.command, to = command, self.reader(command.collection)
        before = self.read_to_change(to, command) if command.id or command.unique else None
        match command.action:
            case Operation() as operation:
                return operation.work(self, to, before, command.body)
            case Action() as action:
                return self._act(to, action, before, command.body)
        if before is not None:
            return self._change(to, command, before)
        command = as_creation(to, command)
        return to.answer(self.create(to, [command], new_records(to, [command]))[0])

    def _change(self, to: CollectionReader, command: Command, before: Record) -> Answer:
        if command.kind == "delete":
            with as_conflict(to.served.name):  # there is no body that a function could refuse
                self.write_item(to, before, None)
            return Answer(to.view.body(before))
        if command.owner not in (None, before.owner):
            raise Conflict("this item exists, and the `owner` in the query cannot change its owner")
        rights, sent = to.served.rights, command.body
        if rights:
            rights.require_owner(to.caller, to.view, sent, before)
        change = to.view.merge if command.kind == "merge" or command.unique else to.view.replace
        after = change(before, sent, now=self.now(), limits=self.domain.limits)
        if rights and after is not before:
            rights.require_values(to.caller, to.view, sent, before, after)
        return to.answer(self.write_item(to, before, after))

    def create(self, to: CollectionReader, commands: Sequence[Command], new: list[Record]) -> list[Record]:
        """Create the `new` items of commands for one collection; they are as functions of the service leave them."""
        if commands[0].conditions is not NONE:
            self.require_list(to, commands[0].conditions)
        records = self.with_integer_ids(to.served.stored, new)
        for n in in_turns([*range(len(records))], to.served.domain.clock, self.transaction.turn_seconds):
            self.command = commands[n]
            records[n] = self.write_item(to, None, records[n])
        last = (self.changes[to.served.name, record.id] for record in records)
        present = [change.after for change in last if change.after]  # as functions have left them
        if len(present) < len(records):  # all are created, or none
            detail = "one of these items deletes another one when it is created: send them separately"
            raise Conflict(f"{to.served.name}: {detail}")
        return present

    def _act(self, to: CollectionReader, action: Action, before: Record | None, loaded: Any) -> Answer:
        """Do an action, of an item or of the collection. Raises what its function raises."""
        items: Items = self.items
        if action.schema:
            self.domain.references.check_body(self, action.schema, loaded)
        more = (*([deepcopy(loaded)] if action.body else []), items)  # it may be called again
        if before is None:
            return Answer(returned_json(action.function, invoke(items, action.function, *more)))
        after = changed_record(items, action.function, to.served.stored, before, *more)
        with as_conflict(to.served.name):
            return to.answer(self.write_item(to, before, after))

    def write_item(self, to: CollectionReader, before: Record | None, after: Record | None) -> Record:
        """Write an item, and return it as it is, or last was. Raises ValidationFailed with the fields of callers."""
        try:
            return self.write(to.served.stored, before, after)
        except ValidationFailed as error:
            faults = error.members.get("errors") or [fault((), str(error))]  # so that an array has one for its item
            error.members["errors"] = [*map(to.view.known_fault, faults)]
            raise

    def read_to_change(self, to: CollectionReader, command: Command) -> Record | None:
        """An item that the caller may change, locked; None where an upsert creates it."""
        conditions, is_replacing = command.conditions, bool(command.id) and command.kind != "act"
        must_say = is_replacing and to.served.config.require_if_match
        try:
            record = self._read(to, command)
            to.view.access.require_change(self.call.caller, record)
        except (NotFound, RecordNotFound):
            if command.kind != "upsert":
                raise
            conditions.require(None, must_say=must_say)
            return None
        if conditions is not NONE or must_say:
            conditions.require(to.tag(record), to.changed_at(record), must_say=must_say)
        return record

    def _read(self, to: CollectionReader, command: Command) -> Record:
        """Raises NotFound and RecordNotFound."""
        if not command.unique:
            return to.served.stored.read(self.transaction, command.id)
        query = query_of_unique(to.view, command.unique, command.body)
        if (record := find_unique(self.transaction, command.collection, query)) is None:
            raise NotFound("there is no such item")
        return record

    def require_list(self, to: CollectionReader, conditions: Conditions) -> None:
        """Raises PreconditionFailed unless the list, by its first page, matches the conditions."""
        change_token = self.transaction.change_token(to.served.name)  # which locks the collection
        is_own = to.view.access.owners(to.caller) is not None
        tag = to.first_page_tag(self.transaction, conditions.of) if is_own else None
        conditions.require(tag or to.list_tag(change_token, to.served.page_limit))


class Execution:
    """The work of a request with the items of some `collections`, in one transaction with its response.

    The store can begin the work again, so it has no other effects: `unit` is the unit of the last attempt. Work with
    `use_reserve` is done also on a disk that is almost full. The `locked` collections, which it surely changes, are
    locked at the beginning. A `large` request waits for its turn before its bodies are loaded. Subclasses are
    `Commands`, `Creations`, and a batch.
    """

    use_reserve = False
    unit: CommandUnit | None = None
    early_answer: Answer | None = None  # the answer, unless a feature changes the items

    def __init__(
        self,
        call: Call,
        collections: Iterable[ServedCollection],
        store: Store,
        domain: Domain,
        *,
        locked: Iterable[str],
        large: bool = False,
    ) -> None:
        self.call, self._store, self._clock, self._domain, self._large = call, store, domain.clock, domain, large
        self._collections = {collection.name: collection for collection in collections}
        self._readers = dict[str, CollectionReader]()
        self._locked = [*locked]

    def reader(self, name: str) -> CollectionReader:
        """The items of a collection as the caller sees them."""
        if (reader := self._readers.get(name)) is None:
            reader = self._readers[name] = CollectionReader(self._collections[name], self.call)
        return reader

    def load(self) -> None:
        """Load what was sent, once, before the transaction. It can set the `early_answer`."""

    def do_all(self, unit: CommandUnit) -> Answer:
        """Do the work."""
        raise NotImplementedError

    def explain(self, error: Problem | Refusal) -> Problem:
        """The problem of the response for a problem of the work, or for a refusal of the store, with pointers.

        `new_records` sets the pointers of new items before the transaction.
        """
        if isinstance(error, Problem):
            return self.with_pointers(error, self.unit.command if self.unit else None)
        change = self.unit.change_of(error) if self.unit else None
        return self.with_pointers(self._explained(error, change), change.command if change else None)

    def with_pointers(self, problem: Problem, command: Command | None) -> Problem:
        """A problem with the pointers into the body that a command has in the request."""
        return at_pointer(problem, command.pointer) if command else problem

    def _explained(self, error: Refusal, change: Change | None) -> Problem:
        """The problem for a refusal of the store, with the fields that callers know."""
        command = change.command if change and not change.follows else None
        if change is None or command is None or command.action:  # a function has set it
            if isinstance(error, DuplicateValue):
                return duplicate_of_function(error)
            return Conflict(known_in(change.stored.for_caller(self.call.caller), error).text if change else error.text)
        view = self.reader(command.collection).view
        if isinstance(error, DuplicateValue):
            renamed = DuplicateValue(*dict.fromkeys(map(view.name_of, error.fields)))
            return Duplicate(renamed.detail, errors=renamed.faults)
        missing = known_in(view, error)
        summary = f"{missing.pointer.removeprefix('#/')}: {missing.detail}"
        return ValidationFailed(summary, errors=[{"pointer": missing.pointer, "detail": missing.detail}])

    def run(self, once: Once) -> Any:
        """The response, or the stored response of the same request. Raises the problem of a response."""
        store, deadline = self._store, self.call.deadline(self._clock)
        if (stored := once.find(self.call, store)) is not None:
            return stored
        with self._domain.large(deadline) if self._large else nullcontext():
            self.load()

        def work(transaction: Transaction) -> Any:
            self.unit = unit = CommandUnit(self._domain, transaction, self.call, self.reader)
            if self.early_answer:  # to store the response claims the key, too
                response = once.save(transaction, self.early_answer)
                self.do_all(unit)
                return response
            once.claim(transaction)
            return once.save(transaction, self.do_all(unit))

        while stored is None:
            try:
                return store.write(work, collections=self._locked, use_reserve=self.use_reserve, deadline=deadline)
            except ResponseStored:  # by a repetition of the request, whose commit can still fail
                if (stored := once.find(self.call, store)) is None and self._clock.monotonic() >= deadline:
                    raise Unavailable("others repeat this request at the same time; try again") from None
            except (Problem, DuplicateValue, ReferenceMissing) as error:
                raise self.explain(error) from error.__cause__
        return stored


class Commands(Execution):
    """The commands of one request for one collection: one, or those of an array.

    Before the transaction, `complete` adds what the commands lack. It is not called for a repetition.
    """

    def __init__(
        self,
        of: ServedCollection,
        call: Call,
        commands: list[Command],
        complete: Completion = list,
        *,
        large: bool = False,
    ) -> None:
        super().__init__(call, [of], of.store, of.domain, locked=[of.name], large=large)
        self.commands, self.complete = commands, complete
        self.to = self._readers[of.name] = CollectionReader(of, call)
        self.is_array = bool(commands[0].pointer)
        self.use_reserve = commands[0].kind == "delete"  # which makes room

    def load(self) -> None:
        self.commands = [with_body(self.to, command, command.body) for command in self.complete(self.commands)]

    def do_all(self, unit: CommandUnit) -> Answer:
        answers, remaining = list[Answer](), self.to.served.config.page_bytes
        for command in in_turns(self.commands, self._clock, unit.transaction.turn_seconds):
            answers.append(unit.do(command))
            remaining -= len(answers[-1].body) if self.is_array else 0
            if remaining < 0:
                raise beyond_page("an array with on_conflict")
        return array_of(answer.body for answer in answers) if self.is_array else answers[0]


class Creations(Commands):
    """New items of one request for one collection: one, or those of an array, which are created together."""

    new: list[Record]

    def load(self) -> None:
        self.commands = self.complete(self.commands)
        self.new = new_records(self.to, self.commands, is_array=self.is_array)
        of, conditions = self.to.served, self.commands[0].conditions
        keeps_new = of.keeps_new and {"before create", "after create"}.isdisjoint(of.resource.functions)
        if keeps_new and conditions is NONE and not of.resource.has_integer_ids:
            self.early_answer = self._answer(self.new)

    def do_all(self, unit: CommandUnit) -> Answer:
        records = unit.create(self.to, self.commands, self.new)
        if self.early_answer and records != self.new:  # by a feature
            self.early_answer, self.to.served.keeps_new = None, False
            raise RecordChanged("a feature has changed a new item")  # the store repeats the work
        return self.early_answer or self._answer(records)

    def _answer(self, records: Sequence[Record]) -> Answer:
        return array_of(map(self.to.view.body, records)) if self.is_array else self.to.answer(records[0])


def array_of(bodies: Iterable[bytes]) -> Answer:
    """The answer with an array of these items."""
    return Answer(b"[" + b",".join(bodies) + b"]")


def beyond_page(what: str) -> BodyTooLarge:
    """The problem of a response whose items are together larger than a page."""
    return BodyTooLarge(f"the items of {what} have at most PAGE_BYTES together")


def with_body(to: CollectionReader, command: Command, sent: Any) -> Command:
    """The command with the sent body, as its action or the view of its caller loads it.

    The body of a creation, or of a merge, is loaded with the item. Raises ValidationFailed.
    """
    if action := command.action:
        sent = action.load(sent)
    elif command.kind in ("replace", "upsert") and not command.unique:
        sent = to.view.loaded(sent)
    return command._replace(body=sent)


def new_records(to: CollectionReader, commands: Sequence[Command], *, is_array: bool = False) -> list[Record]:
    """New items, which are not stored yet. For an array, raises the faults of all items, with their pointers."""
    records, faults, references, owner = list[Record](), list[JsonObject](), 0, commands[0].owner
    stored, rights, domain = to.served.stored, to.served.rights, to.served.domain
    if owner is None and to.served.resource.ownership is not Ownership.NONE:
        owner = to.view.access.owner_of_new(to.caller)
    elif owner is not None:
        names = to.view.names_of(stored.revision.owner)
        if name := next((name for command in commands for name in names if name in command.body), ""):
            raise owner_fault(f"is {name} in the item, too: send one of them")
    for command in in_turns(commands, domain.clock):
        try:
            id, now, sent = stored.provisional_id(domain.new_id), rfc3339(domain.clock.time()), command.body
            if rights:
                rights.require_owner(to.caller, to.view, sent, None)
            record = to.view.new_record(sent, id=id, now=now, limits=domain.limits, owner=owner)
            if rights:
                rights.require_values(to.caller, to.view, sent, None, record)
            records.append(record)
            if stored.revision.references:  # too many are refused before more work is done
                require_few_references(references := references + domain.references.number(stored, record))
        except ValidationFailed as error:
            if not is_array:
                raise
            faults += faults_below(command.pointer, error.members["errors"])
            if len(faults) > MOST_FAULTS:
                break
    require_none(faults)
    return records


def as_creation(to: CollectionReader, command: Command) -> Command:
    """The creation of the item in the path of an upsert. Raises ValidationFailed for another id in the body.

    The conditions of the upsert were about the item, and have been compared.
    """
    resource, sent = to.served.resource, command.body
    if not command.id:
        return command
    command = command._replace(kind="create", conditions=NONE)
    if resource.singleton:
        return command
    key, name = resource.key(command.id), resource.schema.id_name
    item = sent if name in sent else {name: resource.public_id(key) if key else command.id, **sent}
    require_none([fault([name], "is another one in the path")] if resource.key(item[name]) != key else [])
    return command._replace(body=Loaded(item, sent.text) if isinstance(sent, Loaded) else item)


def faults_below(pointer: str, faults: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Faults of a part of a body, with the pointer of this part, such as "/3"."""
    for item in faults:
        yield {**item, "pointer": f"#{pointer}{item['pointer'].removeprefix('#')}"} if "pointer" in item else item


def at_pointer(problem: Problem, pointer: str) -> Problem:
    """A problem of a part of a body, whose faults get the pointer of this part."""
    if pointer and (faults := problem.members.get("errors")):
        problem.members["errors"] = [*faults_below(pointer, faults)]
    return problem


def known_in(view: View, error: ReferenceMissing) -> ReferenceMissing:
    """The error with the fields that callers know, and without values that they may not read."""
    member = view.known_fault({"pointer": error.pointer, "detail": error.detail})
    return ReferenceMissing(member["pointer"], member["detail"], error.of)
