"""The conversion of a collection's items to its newest revision: of all items in one transaction, or of none."""

from collections.abc import Callable, Mapping, Sequence

from restkeeper import exactjson
from restkeeper.errors import shortened
from restkeeper.resources.evolution import Add, Rename
from restkeeper.resources.former import converted, former_body
from restkeeper.resources.step import Untranslatable, revision_of
from restkeeper.resources.views import StoredView, View
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, StoreUnavailable
from restkeeper.storage.interface import Record

TOGETHER = 50  # items that are read and stored at a time
MOST_LISTED = 20  # refused items in the error

Advance = Callable[[int], object]  # is told how many more items are done


class ConversionRefused(StoreUnavailable):
    """Some items cannot be converted, or would be seen otherwise; nothing was changed."""


class Conversion:
    """The conversion of a collection's items from a `former` revision.

    All `views`, by the names of versions, must show the same as before, unless it `accepts` differences.
    """

    def __init__(self, stored: StoredView, views: Mapping[str, View], former: int, items: int, accepts: bool) -> None:
        self.stored, self._views, self._accepts = stored, views, accepts
        self.name, self.revision, self.former, self.items = stored.name, stored.revision.number, former, items
        self.refused, self.listed, self.would_differ = 0, list[str](), False
        upgrades = stored.resource.upgrades
        self._steps = [step for number in upgrades if number > abs(former) for step in upgrades[number]]

    @property
    def loses(self) -> bool:
        """Whether the former items cannot be made again from the new ones."""
        return any(not isinstance(step, Add | Rename) for step in self._steps)

    def convert(self, transaction: Transaction, advance: Advance) -> None:
        """Convert all items; `refused` counts the items that cannot be converted."""
        after, source = "", self.name
        changed = {name for step in self._steps for name in step.after}
        if not self.stored.resource.compared.isdisjoint(changed):
            source = transaction.set_aside(self.name)
        while records := transaction.unconverted(source, after, TOGETHER):
            self._store(transaction, source, [self._converted(record) for record in records])
            after = records[-1].id
            advance(len(records))

    def _store(self, transaction: Transaction, source: str, records: Sequence[Record]) -> None:
        try:
            with transaction.savepoint():
                for record in records:
                    transaction.store_converted(self.name, source, record)
        except DuplicateValue as error:
            if len(records) > 1:
                for record in records:
                    self._store(transaction, source, [record])
                return
            members = exactjson.cut(records[0].body)
            values = ", ".join(f"{field} {_text(members.get(field, b'null'))}" for field in error.fields)
            self._refuse(records[0], f"{values}: another item has it, too")

    def _converted(self, record: Record) -> Record:
        """The record as it will be. `listed` has the reasons if it cannot be converted."""
        if not self._steps:
            return record  # also with what this program does not know
        try:
            newest = converted(self.stored, record)
        except Untranslatable as error:
            names = self.stored.resource.chain(revision_of(record.fingerprint), self.revision).origins(error.step)
            members = exactjson.cut(record.body)
            values = ", ".join(f"{name} {_text(members[name])}" for name in names)
            self._refuse(record, f"{values}: {error.reason}")
            return record
        for version, view in () if self._accepts else self._views.items():
            before, after = exactjson.cut(former_body(view, record)), exactjson.cut(view.body(newest))
            for name in (name for name in before if not exactjson.equal(before[name], after[name])):
                self.would_differ = True
                self._refuse(record, f"{name} {_text(before[name])} would be {_text(after[name])} in {version}")
        return newest

    def _refuse(self, record: Record, reason: str) -> None:
        self.refused += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append(f"{self.stored.name}: the item {self.stored.resource.public_id(record.id)}: {reason}")


def convert(store: Store, conversions: Sequence[Conversion], now: str, advance: Advance = lambda done: None) -> None:
    """Convert collections in one transaction.

    Raises ConversionRefused, which lists refused items with the reasons, and as `Store.convert`.
    """

    def work(transaction: Transaction) -> None:
        for conversion in conversions:
            conversion.convert(transaction, advance)
        if refused := sum(conversion.refused for conversion in conversions):
            lines = [line for conversion in conversions for line in conversion.listed][:MOST_LISTED]
            remedy = "change them with the former program, or correct the steps"
            if any(conversion.would_differ for conversion in conversions):
                remedy += ", or accept what versions would show (`restkeeper migrate --accept`)"
            more = [f"and {refused - len(lines)} more"] if refused > len(lines) else []
            raise ConversionRefused("\n".join([*lines, *more, f"nothing was changed: {remedy}"]))

    keeps = any(conversion.loses and conversion.items for conversion in conversions)
    store.convert([conversion.name for conversion in conversions], work, now, keeps=keeps)
    for conversion in conversions:
        conversion.stored.changed_at = now


def _text(text: exactjson.Buffer) -> str:
    return shortened(bytes(text).decode())
