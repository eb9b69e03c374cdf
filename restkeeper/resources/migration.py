"""The conversion of a collection's items to its newest revision: all of them, in one transaction, or none."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain

from restkeeper.errors import shortened
from restkeeper.resources.changes import Hooks
from restkeeper.resources.evolution import Add, Rename, Untranslatable, revision_of
from restkeeper.resources.references import rename_references
from restkeeper.resources.representation import JsonObject, Representation, StoredRepresentation
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, RevisionDiffers, StoreUnavailable
from restkeeper.storage.interface import Record
from restkeeper.web import exactjson

TOGETHER = 50  # items that are read and stored at a time
MOST_LISTED = 20  # of the items that are not converted

Advance = Callable[[int], object]  # is told how many more items are done


class ConversionRefused(StoreUnavailable):
    """Some items cannot be converted, or would be seen otherwise; nothing was changed."""


class Conversion:
    """The conversion of a collection's items from a `former` revision. `shown` has what versions show, by name.

    What one of these shows must stay, unless it `accepts` that. The items are those of its `source`, which can be
    another collection; `scopes` are those that there are.
    """

    def __init__(
        self,
        stored: StoredRepresentation,
        shown: Mapping[str, Representation],
        former: int,
        items: int,
        source: str,
        hooks: Hooks,
        scopes: Collection[str],
        *,
        accepts: bool,
    ) -> None:
        self.stored, self._shown, self._accepts = stored, shown, accepts
        self.source, self._hooks, self._scopes = source, hooks, scopes
        self.name, self.revision, self.former, self.items = stored.name, stored.revision.number, former, items
        self.refused, self.listed, self.would_differ = 0, list[str](), False
        upgrades = stored.resource.upgrades
        self._steps = [step for number in upgrades if number > abs(former) for step in upgrades[number]]

    @property
    def is_move(self) -> bool:
        """Whether the items are those of another collection."""
        return self.source != self.name

    @property
    def done(self) -> str:
        """What the items have done after it."""
        return f"have come from {self.source}" if self.is_move else f"have revision {self.revision} now"

    def needed(self) -> StoreUnavailable:
        """Why a program cannot start before it."""
        if self.is_move:
            return StoreUnavailable(
                f"the items of {self.source} are to be those of {self.name}: run `restkeeper migrate`"
            )
        return RevisionDiffers(self.name, self.revision, self.former)

    @property
    def loses(self) -> bool:
        """Whether the former items cannot be made again from the new ones."""
        return any(not isinstance(step, Add | Rename) for step in self._steps)

    def convert(self, transaction: Transaction, advance: Advance) -> None:
        """Convert each item; those that cannot be are noted."""
        resource, after, source = self.stored.resource, "", self.source
        changed = {name for step in self._steps for name in step.after}
        if self.is_move:
            transaction.require_fitting(self.name, source)
        elif not resource.compared.isdisjoint(changed):
            source = transaction.set_aside(self.name)
        while found := transaction.unconverted(source, after, TOGETHER):
            self._store(transaction, source, [self._converted(each) for each in found])
            after = found[-1].id
            advance(len(found))

    def finish(self, transaction: Transaction, now: str) -> None:
        """After all conversions, give what is named after the `source` the names of this collection."""
        resource, others = self.stored.resource, {each.singular for each in self._hooks.resources.values()}
        types = transaction.event_types(self.source)
        kinds = {type.rpartition(".")[0] for type in types} or {  # or else what it was, in all likelihood
            self.source,
            *(self.source.removesuffix(plural) + end for plural, end in (("s", ""), ("es", ""), ("ies", "y"))),
        }

        def renamed(text: str) -> Sequence[str]:
            collection, is_scope, way = text.partition(":")
            if is_scope and collection == self.source:
                new = resource.scope(way)
                return [each for each in (new, text) if each in self._scopes] or [new]
            kind, is_type, change = text.partition(".")
            return [f"{resource.singular}.{change}" if is_type and kind in kinds - others else text]

        for rename in self._hooks.on_rename:
            rename(transaction, renamed, now)
        rename_references(transaction, self.source, self.name)
        named = {type: f"{resource.singular}.{type.rpartition('.')[2]}" for type in types}
        transaction.take_over(self.name, self.source, named, now, id=self.name if resource.singleton else "")

    def _store(self, transaction: Transaction, source: str, records: Sequence[Record]) -> None:
        try:
            with transaction.savepoint():
                for each in records:
                    transaction.store_converted(self.name, source, each)
        except DuplicateValue as error:
            if len(records) > 1:
                for each in records:
                    self._store(transaction, source, [each])
                return
            members, former = exactjson.cut(records[0].body), not self.stored.resource.compared.issuperset(error.fields)
            values = ", ".join(f"{field} {_text(members.get(field, b'null'))}" for field in error.fields)
            why = "an index of a former version allows it once: add --tidy" if former else "another item has it, too"
            self._refuse(records[0], f"{values}: {why}")

    def _converted(self, record: Record) -> Record:
        """The record as it will be. What is wrong with it is noted."""
        if not self._steps:
            return record  # also with what this program does not know
        try:
            converted = self.stored.converted(record)
        except Untranslatable as error:
            names = self.stored.chains[revision_of(record.fingerprint)].origins(error.step)
            members = exactjson.cut(record.body)
            values = ", ".join(f"{name} {_text(members[name])}" for name in names)
            self._refuse(record, f"{values}: {error.reason}")
            return record
        for version, shown in () if self._accepts else self._shown.items():
            before, after = exactjson.cut(shown.converted_body(record)), exactjson.cut(shown.body(converted))
            for name in (name for name in before if not exactjson.equal(before[name], after[name])):
                self.would_differ = True
                self._refuse(record, f"{name} {_text(before[name])} would be {_text(after[name])} in {version}")
        return converted

    def _refuse(self, record: Record, reason: str) -> None:
        self.refused += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append(f"{self.stored.name}: the item {self.stored.resource.shown(record.id)}: {reason}")


def convert(store: Store, conversions: Sequence[Conversion], now: str, advance: Advance = lambda done: None) -> None:
    """Convert collections in one transaction. Raises ConversionRefused, which lists the first items, and what is wrong
    with each, and as `Store.convert`.
    """

    def work(transaction: Transaction) -> None:
        for each in conversions:
            each.convert(transaction, advance)
        if refused := sum(each.refused for each in conversions):
            lines = [line for each in conversions for line in each.listed][:MOST_LISTED]
            remedy = "change them with the former program, or correct the steps"
            if any(each.would_differ for each in conversions):
                remedy += ", or accept what versions would show (`restkeeper migrate --accept`)"
            more = [f"and {refused - len(lines)} more"] if refused > len(lines) else []
            raise ConversionRefused("\n".join([*lines, *more, f"nothing was changed: {remedy}"]))
        for each in conversions:
            if each.is_move:
                each.finish(transaction, now)

    store.convert(
        [each.name for each in conversions], work, now, keeps=any(each.loses and each.items for each in conversions)
    )
    for each in conversions:
        each.stored.changed_at = now


def rename_in(
    stored: StoredRepresentation,
    names: Sequence[str],
    transaction: Transaction,
    renamed: Callable[[str], Sequence[str]],
    now: str,
) -> dict[str, JsonObject]:
    """Rename the texts in these lists of all items; returns those that this changes, as they are then, by their ids."""

    def changed(record: Record) -> JsonObject:
        item = exactjson.stored(record.body)
        lists = {name: [*dict.fromkeys(chain(*map(renamed, item[name])))] for name in names if name in item}
        return {name: texts for name, texts in lists.items() if texts != item[name]}

    after, items = "", dict[str, JsonObject]()
    while found := transaction.unconverted(stored.name, after, TOGETHER):
        after = found[-1].id
        for each in transaction.read_all(stored.name, [each.id for each in found if changed(each)]):  # and lock them
            items[each.id] = exactjson.stored(each.body) | changed(each)
            record = stored.touched(each._replace(body=exactjson.dumps(items[each.id])), now=now)
            transaction.store_converted(stored.name, stored.name, record)
    if items:
        transaction.note_change(stored.name)
    return items


def _text(text: exactjson.Buffer) -> str:
    return shortened(bytes(text).decode())
