"""The conversion of a collection's items to its newest revision: all of them, in one transaction, or none."""

from collections.abc import Callable, Mapping, Sequence

from restkeeper.resources.evolution import Add, Rename, Untranslatable, revision_of
from restkeeper.resources.representation import Representation, StoredRepresentation
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, StoreUnavailable
from restkeeper.storage.interface import Record
from restkeeper.web import exactjson

TOGETHER = 50  # items that are read and stored at a time
MOST_LISTED = 20  # of the items that are not converted
MOST_SHOWN = 80  # characters of a value

Advance = Callable[[int], object]  # is told how many more items are done


class ConversionRefused(StoreUnavailable):
    """Some items cannot be converted, or would be seen otherwise; nothing was changed."""


class Conversion:
    """Converts the items of a collection from a `former` revision. `shown` has what served versions show, by name.

    What one of these shows must stay, unless it `accepts` that.
    """

    def __init__(
        self,
        stored: StoredRepresentation,
        shown: Mapping[str, Representation],
        former: int,
        items: int,
        *,
        accepts: bool,
    ) -> None:
        self._stored, self._shown, self._accepts = stored, dict(shown), accepts
        self.name, self.revision, self.former, self.items = stored.name, stored.revision.number, former, items
        self._refused, self._listed, self._would_differ = 0, list[str](), False

    def run(self, store: Store, now: str, advance: Advance = lambda done: None) -> None:
        """Raises ConversionRefused, which lists the first items and what is wrong, and as `Store.convert`."""
        upgrades = self._stored.resource.upgrades
        loses = any(not isinstance(step, Add | Rename) for steps in upgrades.values() for step in steps)
        store.convert(self.name, lambda transaction: self._convert(transaction, advance), now, keeps=loses)
        self._stored.changed_at = now

    def _convert(self, transaction: Transaction, advance: Advance) -> None:
        resource, after = self._stored.resource, ""
        changed = {name for steps in resource.upgrades.values() for step in steps for name in step.after}
        source = self.name if resource.unique.isdisjoint(changed) else transaction.park(self.name)
        while found := transaction.unconverted(source, after, TOGETHER):
            self._store(transaction, source, [self._converted(each) for each in found])
            after = found[-1].id
            advance(len(found))
        if self._refused:
            more = self._refused - len(self._listed)
            remedy = "change them with the former program, or correct the steps"
            remedy += ", or accept what versions would show (`restkeeper migrate --accept`)" * self._would_differ
            lines = [*self._listed, *([f"and {more} more"] if more else []), f"nothing was changed: {remedy}"]
            raise ConversionRefused("\n".join(lines))

    def _store(self, transaction: Transaction, source: str, records: Sequence[Record]) -> None:
        try:
            with transaction.savepoint():
                for each in records:
                    transaction.put(self.name, source, each)
        except DuplicateValue as error:
            if len(records) > 1:
                for each in records:
                    self._store(transaction, source, [each])
                return
            members = exactjson.cut(records[0].body)
            values = ", ".join(f"{field} {_text(members[field])}" for field in error.fields)
            self._refuse(records[0], f"{values}: another item has it, too")

    def _converted(self, record: Record) -> Record:
        """The record as it will be. What is wrong with it is noted."""
        try:
            converted = self._stored.converted(record)
        except Untranslatable as error:
            names = self._stored.chains[revision_of(record.fingerprint)].origins(error.step)
            members = exactjson.cut(record.body)
            values = ", ".join(f"{name} {_text(members[name])}" for name in names)
            self._refuse(record, f"{values}: {error.reason}")
            return record
        for version, shown in () if self._accepts else self._shown.items():
            before, after = exactjson.cut(shown.former(record)), exactjson.cut(shown.body(converted))
            for name in (name for name in before if not exactjson.equal(before[name], after[name])):
                self._would_differ = True
                self._refuse(record, f"{name} {_text(before[name])} would be {_text(after[name])} in {version}")
        return converted

    def _refuse(self, record: Record, reason: str) -> None:
        self._refused += 1
        if len(self._listed) < MOST_LISTED:
            self._listed.append(f"{self._stored.name}: the item {self._stored.resource.shown(record.id)}: {reason}")


def _text(text: exactjson.Buffer) -> str:
    shown = bytes(text).decode()
    return shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}…"
