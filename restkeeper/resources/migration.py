"""The conversion of a collection's items to its newest revision: all of them, in one transaction, or none."""

from collections.abc import Callable, Mapping, Sequence

from restkeeper import exactjson
from restkeeper.errors import shortened
from restkeeper.resources.evolution import Add, Rename, Untranslatable, revision_of
from restkeeper.resources.former import converted, former_body
from restkeeper.resources.views import StoredView, View
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, StoreUnavailable
from restkeeper.storage.interface import Record

TOGETHER = 50  # items that are read and stored at a time
MOST_LISTED = 20  # of the items that are not converted

Advance = Callable[[int], object]  # is told how many more items are done


class ConversionRefused(StoreUnavailable):
    """Some items cannot be converted, or would be seen otherwise; nothing was changed."""


class Conversion:
    """The conversion of a collection's items from a `former` revision. `shown` has what versions show, by name.

    What one of these shows must stay, unless it `accepts` that.
    """

    def __init__(self, stored: StoredView, shown: Mapping[str, View], former: int, items: int, accepts: bool) -> None:
        self.stored, self._shown, self._accepts = stored, shown, accepts
        self.name, self.revision, self.former, self.items = stored.name, stored.revision.number, former, items
        self.refused, self.listed, self.would_differ = 0, list[str](), False
        upgrades = stored.resource.upgrades
        self._steps = [step for number in upgrades if number > abs(former) for step in upgrades[number]]

    @property
    def loses(self) -> bool:
        """Whether the former items cannot be made again from the new ones."""
        return any(not isinstance(step, Add | Rename) for step in self._steps)

    def convert(self, transaction: Transaction, advance: Advance) -> None:
        """Convert each item; those that cannot be are noted."""
        after, source = "", self.name
        changed = {name for step in self._steps for name in step.after}
        if not self.stored.resource.compared.isdisjoint(changed):
            source = transaction.set_aside(self.name)
        while found := transaction.unconverted(source, after, TOGETHER):
            self._store(transaction, source, [self._converted(each) for each in found])
            after = found[-1].id
            advance(len(found))

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
            members = exactjson.cut(records[0].body)
            values = ", ".join(f"{field} {_text(members.get(field, b'null'))}" for field in error.fields)
            self._refuse(records[0], f"{values}: another item has it, too")

    def _converted(self, record: Record) -> Record:
        """The record as it will be. What is wrong with it is noted."""
        if not self._steps:
            return record  # also with what this program does not know
        try:
            made = converted(self.stored, record)
        except Untranslatable as error:
            names = self.stored.resource.chain(revision_of(record.fingerprint), self.revision).origins(error.step)
            members = exactjson.cut(record.body)
            values = ", ".join(f"{name} {_text(members[name])}" for name in names)
            self._refuse(record, f"{values}: {error.reason}")
            return record
        for version, shown in () if self._accepts else self._shown.items():
            before, after = exactjson.cut(former_body(shown, record)), exactjson.cut(shown.body(made))
            for name in (name for name in before if not exactjson.equal(before[name], after[name])):
                self.would_differ = True
                self._refuse(record, f"{name} {_text(before[name])} would be {_text(after[name])} in {version}")
        return made

    def _refuse(self, record: Record, reason: str) -> None:
        self.refused += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append(f"{self.stored.name}: the item {self.stored.resource.public_id(record.id)}: {reason}")


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

    store.convert(
        [each.name for each in conversions], work, now, keeps=any(each.loses and each.items for each in conversions)
    )
    for each in conversions:
        each.stored.changed_at = now


def _text(text: exactjson.Buffer) -> str:
    return shortened(bytes(text).decode())
