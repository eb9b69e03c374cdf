"""`restkeeper import`: the items of files, in NDJSON, JSON or CSV.

The input is read and validated first, and the items are written to temporary files on the store's disk. Only then is
the store locked, for short times; once for a longer one, if items refer to others that come later.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import click
from flask.cli import with_appcontext

from restkeeper.command import Command, in_batches, progress_bar, service_of_app
from restkeeper.errors import Problem, ValidationFailed
from restkeeper.features.transfer import items_of
from restkeeper.features.transfer.lines import Item, Lines, Options, refusal_of
from restkeeper.resources.call import of_program
from restkeeper.resources.changes import Change, Unit
from restkeeper.resources.function_errors import duplicate_of_function
from restkeeper.resources.references import missing_reference, required_by
from restkeeper.resources.views import StoredView
from restkeeper.schemas.fields import Refers
from restkeeper.service import Service
from restkeeper.storage.errors import DuplicateValue, RecordChanged, RecordNotFound, ReferenceMissing, StoreError
from restkeeper.storage.interface import POSITION
from restkeeper.web.errors import problem_of

# Of items that refer to later ones: one transaction stores them, and others wait meanwhile.
MOST_WAITING = 5_000
MOST_WAITING_BYTES = 16 * 1024 * 1024

Outcome = bool | Problem | StoreError  # of an item: whether it is new, or why it is bad


class _Undone(Exception):
    """What a transaction has done is undone on purpose."""


@click.command("import", cls=Command)
@click.argument("names_and_files", metavar="NAME FILE [NAME FILE]...", nargs=-1, required=True)
@click.option("--version", help="The version of the API in whose form the items are; default: as they are stored.")
@click.option("--revision", type=int, help="The revision whose export the files are: its items are converted.")
@click.option("--skip-bad", is_flag=True, help="Import the good lines, list the bad ones, and exit with 0.")
@click.option("--update", is_flag=True, help="Change the items that lines with their ids have other values for.")
@click.option("--key", metavar="FIELD", help="As --update, but the items have the same value of this unique field.")
@click.option("--dry-run", is_flag=True, help="Change nothing: validate the lines, and count what they would change.")
@with_appcontext
def import_items(names_and_files: tuple[str, ...], version: str | None, revision: int | None, **options: Any) -> None:
    """Add the items of FILE to the collection NAME. FILE can be "-" for stdin.

    Items are validated as those that clients send; if any is not valid, none is imported. An item that has an id, times
    and a version is imported with them, so that an export is restored exactly; an item without an id gets one from its
    content, so that a FILE that has grown adds only its new lines. NDJSON and CSV are read line by line, of any length;
    a JSON array is read into memory as a whole. The first line of CSV names the fields, between commas, semicolons or
    tabs. Numbers, lists and objects are JSON in their cell. An empty cell means that the field is left out; `null` is
    null, and `""` an empty text (as a cell, after CSV's quotes).

    With --update an edited export changes the items. What a line leaves out stays as it is: a field, or an empty cell.
    A line is refused if its version is not that of the item, which has changed since the export. Other read-only fields
    are not written. With --key FIELD a line changes the item with the same value of that unique field (of several, in
    this form: customer,number); other lines add items.

    The service can read and write meanwhile. After an interruption, run the same command again: an item that exists
    with the same id and content is counted as already there. A unique value that another item has stops the import at
    that line; with --skip-bad that line is skipped. Items can refer to any others of the files, also to later ones.
    """
    pairs = [*zip(names_and_files[::2], names_and_files[1::2], strict=False)]
    if len(names_and_files) % 2:
        raise click.UsageError(f"{names_and_files[-1]}: write NAME FILE, and again for each further file")
    if sum(file == "-" for _, file in pairs) > 1:
        raise click.UsageError("-: stdin can be read once")
    chosen = Options(**options | {"update": bool(options["update"] or options["key"])})
    service = service_of_app(creates=not chosen.dry_run)
    views, waiting = [items_of(service, name, version, revision) for name, _ in pairs], _Waiting()
    with ExitStack() as stack:
        imports = [
            _Import(
                service, Lines(service, view, stack.enter_context(click.open_file(file, "rb")), stack, chosen), waiting
            )
            for view, (_, file) in zip(views, pairs, strict=True)
        ]
        for file_import, (_, file) in zip(imports, pairs, strict=True):
            file_import.lines.read(file, f"{file}, " * (len(pairs) > 1))
        if not chosen.dry_run:
            _insert(service, imports, waiting)
    for file_import in imports:
        file_import.report(is_dry=chosen.dry_run)
    if not chosen.dry_run:
        click.echo(f"the store has {service.location.size():,} bytes now")


class _Waiting:
    """Items that refer to items which are not stored yet; and the items behind them, in a collection with an order."""

    def __init__(self) -> None:
        self._items: list[tuple[_Import, Item]] = []
        self._bytes = 0
        self.names = set[str]()  # of their collections

    @property
    def is_full(self) -> bool:
        """Whether items must be stored before more items can wait; a running transaction may still add its items."""
        return len(self._items) >= MOST_WAITING or self._bytes >= MOST_WAITING_BYTES

    def add(self, file_import: "_Import", item: Item) -> None:
        self._items.append((file_import, item))
        self._bytes += len(item.record.body) + (len(item.before.body) if item.before else 0)
        self.names.add(file_import.stored.name)

    def take(self) -> list[tuple["_Import", Item]]:
        """All of them, which then wait no more."""
        items, self._items, self._bytes = self._items, [], 0
        self.names.clear()
        return items


class _Import:
    """The import of the items of a file, of which some are committed: `done`, by `Item.kind`."""

    def __init__(self, service: Service, lines: Lines, waiting: _Waiting) -> None:
        self.lines, self.stored = lines, lines.stored
        self._service, self._waiting = service, waiting
        self.done = Counter[str]()

    def insert(self) -> None:
        """Insert the items of the file, but for those that wait; ends at a bad one if none may be.

        Raises StoreError.
        """
        if self.lines.last_id:  # later items continue after them
            _write(self._service, lambda unit: unit.use_ids(self.stored, [self.lines.last_id]))
        with progress_bar("writing", self.lines.planned.total()) as bar:
            for batch in in_batches(self._service, self.lines.items(), self._insert, self._ends):
                for item, outcome in batch:
                    if outcome is None or isinstance(outcome, ReferenceMissing):
                        self._waiting.add(self, item)
                    else:
                        self.settle(item, outcome)
                bar.update(len(batch))
                if self._waiting.is_full:
                    _insert_waiting(self._service, self._waiting.take(), is_last=False)
                if self.lines.is_over:
                    break

    def _insert(self, unit: Unit, item: Item) -> tuple[Item, Outcome | None]:
        """Returns what became of an item: None if it waits behind others.

        The `unit` is its own: its functions have bounds of their own, and see nothing of an item that was undone.
        """
        unit.transaction.lock_collection(self.stored.name, shared=True)  # before what the items refer to
        if self._is_ordered and self.stored.name in self._waiting.names:
            return item, None
        return item, self.store(unit, item, unit.write_change)

    @property
    def _is_ordered(self) -> bool:
        return any(key.field == POSITION for key in self.stored.resource.order)

    def _ends(self, result: tuple[Item, Outcome | None]) -> bool:
        """Whether the items after this one depend on what became of it."""
        _, outcome = result
        if isinstance(outcome, ReferenceMissing):
            return self._is_ordered
        return not (isinstance(outcome, bool | None) or self.lines.options.skip_bad)

    def change(self, item: Item) -> Change:
        """The change that an item is."""
        at = item.record.updated_at if item.before else self.lines.now
        return Change(self.stored, item.before, item.record, at)

    def write(self, unit: Unit, item: Item, write: Callable[[Change], None]) -> None:
        """Write an item by the `unit`. Raises RecordChanged if what it changes is not as it was read."""
        try:
            is_same = item.before is None or unit.transaction.read(self.stored.name, item.before.id) == item.before
        except RecordNotFound:
            is_same = False
        if not is_same:
            raise RecordChanged("the item was changed meanwhile")
        write(self.change(item))

    def store(self, unit: Unit, item: Item, write: Callable[[Change], None]) -> Outcome:
        """As `write`; returns what became of it."""
        try:
            with unit.transaction.savepoint():
                self.write(unit, item, write)
            return True
        except Problem as problem:  # of a function of the service, which refuses this item
            if problem.status >= 500:
                raise
            return problem
        except RecordChanged:
            if not item.before:
                raise
            return refusal_of("id", "the item has changed since the line was read: by a caller, or another line")
        except (DuplicateValue, ReferenceMissing) as problem:
            if problem.of is not item.record:  # it is of an item that a function of the service writes
                return duplicate_of_function(problem) if isinstance(problem, DuplicateValue) else problem_of(problem)
            if item.before:
                return problem
            try:
                self.lines.require_same(unit.transaction.read(self.stored.name, item.record.id), item)
            except RecordNotFound:  # another item has the value
                return problem
            except ValidationFailed as refusal:
                return refusal
            return False

    def settle(self, item: Item, outcome: Outcome) -> None:
        """Count an item, or note why it is bad."""
        if outcome is True:
            self.done[item.kind] += 1
        elif outcome is False:
            self.lines.existing += 1
        else:
            self.lines.note(item.number, outcome)

    def report(self, *, is_dry: bool) -> None:
        """Print what was done, or would be."""
        self.lines.list_bad()
        counts = self.lines.planned if is_dry else self.done
        updated = f", update{'' if is_dry else 'd'} {counts['updated']}" if counts["updated"] else ""
        existing = f", {self.lines.existing} already there" if self.lines.existing else ""
        skipped = f", skipped {self.lines.bad}" if self.lines.bad else ""
        imported = f"{'would import' if is_dry else 'imported'} {counts['created']} {self.stored.name}"
        click.echo(f"{imported}{updated}{existing}{skipped}")


def _insert(service: Service, imports: Sequence[_Import], waiting: _Waiting) -> None:
    """Insert the items of all files. Raises ClickException for a bad one, without --skip-bad."""
    order = _referred_first(service.stored)
    try:
        for file_import in sorted(imports, key=lambda file_import: order.index(file_import.stored.name)):
            file_import.insert()
            if any(other.lines.is_over for other in imports):  # also one whose items have waited
                break
        else:
            _insert_waiting(service, waiting.take(), is_last=True)
    except BaseException:
        click.echo(f"{_done(imports)}; the same command continues from there", err=True)
        raise
    if any(file_import.lines.is_over for file_import in imports):
        for file_import in imports:
            file_import.lines.list_bad()
        raise click.ClickException(f"stopped there: {_done(imports)}; the same command with --skip-bad continues")


def _done(imports: Sequence[_Import]) -> str:
    done = sum(file_import.done.total() for file_import in imports)
    planned = sum(file_import.lines.planned.total() for file_import in imports)
    return f"{done} of {planned} were imported"


def _insert_waiting(service: Service, waiting: list[tuple[_Import, Item]], *, is_last: bool) -> None:
    """Insert items that refer to each other, in one transaction, but for bad ones. Raises StoreError."""
    while waiting := _without_bad(service, waiting, "" if is_last else f": no more than {MOST_WAITING:,} can wait"):
        if any(file_import.lines.is_over for file_import, _ in waiting):
            return
        try:
            refused: dict[int, Outcome] = _write(service, partial(_store_all, waiting))
        except DuplicateValue as error:  # a duplicate of the items themselves is among the refused ones
            raise duplicate_of_function(error) from None
        for number, (file_import, item) in enumerate(waiting):
            if number in refused or not refused:
                file_import.settle(item, refused.get(number, True))
        waiting = [pair for number, pair in enumerate(waiting) if refused and number not in refused]


def _without_bad(service: Service, waiting: Sequence[tuple[_Import, Item]], hint: str) -> list[tuple[_Import, Item]]:
    """The items whose references are stored, or are among these items; the others are bad."""
    keys = [(file_import.stored.name, item.record.id) for file_import, item in waiting]
    counts, bad = Counter(keys), set[int]()
    referring: dict[tuple[str, str], list[tuple[int, Refers, str | int, str]]] = {}
    for number, (file_import, item) in enumerate(waiting):
        for field, id, pointer in required_by(file_import.stored, item.record):
            key = field.to, service.stored[field.to].resource.key(id)
            referring.setdefault(key, []).append((number, field, id, pointer))
    gone = [key for key in referring if not counts[key] and not _is_there(service, *key)]
    while gone:
        for number, field, id, pointer in referring.get(gone.pop(), ()):
            if number not in bad:
                bad.add(number)
                file_import, item = waiting[number]
                refusal = missing_reference(service.stored[field.to].resource, id, pointer, item.record)
                refusal.detail += hint
                file_import.settle(item, refusal)
                counts[key := keys[number]] -= 1
                if not counts[key] and not _is_there(service, *key):
                    gone.append(key)
    return [pair for number, pair in enumerate(waiting) if number not in bad]


def _is_there(service: Service, name: str, id: str) -> bool:
    with suppress(RecordNotFound):
        service.store.read(name, id)
        return True
    return False


def _store_all(waiting: Sequence[tuple[_Import, Item]], unit: Unit) -> dict[int, Outcome]:
    """Write all items; or none of them, and return what is wrong with some, by their places."""
    for name in sorted({file_import.stored.name for file_import, _ in waiting}):
        unit.transaction.lock_collection(name, shared=True)
    changes, refused = [file_import.change(item) for file_import, item in waiting], dict[int, Outcome]()
    with suppress(_Undone), unit.transaction.savepoint():
        outcomes = [file_import.store(unit, item, unit.write_unchecked) for file_import, item in waiting]
        if refused := {number: outcome for number, outcome in enumerate(outcomes) if outcome is not True}:
            raise _Undone
        for change in changes:
            unit.domain.references.check(unit, change)
        unit.follow(*changes)
    return refused


def _write(service: Service, work: Callable[[Unit], Any]) -> Any:
    return service.write(work, deadline=of_program().deadline(service.clock))


def _referred_first(collections: Mapping[str, StoredView]) -> list[str]:
    """The collections, each after those that its items refer to, but for circles."""
    order, seen = list[str](), set[str]()

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for field in collections[name].revision.references.values():
                visit(field.to)
            order.append(name)

    for name in collections:
        visit(name)
    return order
