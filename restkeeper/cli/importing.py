"""`restkeeper import`: the items of files, in NDJSON, JSON or CSV.

The input is read and validated first, and the items are written to temporary files on the store's disk. Only then is
the store locked, for short times; once for a longer one, if items refer to others that come later.
"""

import hashlib
import os
import pickle
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple
from uuid import UUID

import click
from flask.cli import with_appcontext

from restkeeper.cli.common import (
    MOST_FAILURES,
    Command,
    in_batches,
    items_of,
    message_of,
    progress_bar,
    service_of_app,
)
from restkeeper.cli.formats import BOM, FILE_FORMATS, READERS, Entries, format_of
from restkeeper.clock import rfc3339
from restkeeper.errors import (
    BodyTooLarge,
    IllegalTransition,
    InvalidJson,
    NotConvertible,
    Problem,
    ValidationFailed,
    shortened,
)
from restkeeper.resources.changes import Change, Hooks
from restkeeper.resources.references import missing, required_by
from restkeeper.resources.representation import MOVING, ItemLimits, JsonObject, Representation, StoredRepresentation
from restkeeper.resources.unit import use_ids
from restkeeper.resources.writes import deadline_of, until_current
from restkeeper.schemas.fields import Refers
from restkeeper.schemas.item import GIVEN_ID, INTEGERS, READ_ONLY
from restkeeper.schemas.prepared import fields_of
from restkeeper.service import Service
from restkeeper.storage.base import Transaction
from restkeeper.storage.digests import DigestCounts
from restkeeper.storage.errors import DuplicateValue, RecordChanged, RecordNotFound, ReferenceMissing, StoreError
from restkeeper.storage.interface import POSITION, Record
from restkeeper.web import exactjson

# Of items that refer to later ones: one transaction stores them, and others wait meanwhile.
MOST_WAITING = 5_000
MOST_WAITING_BYTES = 16 * 1024 * 1024

MOST_ROWS = 100  # of the table of changes
MOST_CHARACTERS = 40  # of a value in it

Outcome = bool | Problem | StoreError  # of an item: whether it is new, or why it is bad


class _Undone(Exception):
    """What a transaction has done is undone on purpose."""


class Options(NamedTuple):
    """The options of the command that are about items; see its help."""

    skip_bad: bool
    update: bool
    dry_run: bool


class Item(NamedTuple):
    """An item of a file: its position there, the fields that it did not have, and its record.

    `before` is the stored one that it changes, if it does.
    """

    number: int
    made: list[str]
    record: Record
    before: Record | None = None

    @property
    def kind(self) -> str:
        """That of the `Change`."""
        return "updated" if self.before else "created"


@click.command("import", cls=Command)
@click.argument("names_and_files", metavar="NAME FILE [NAME FILE]...", nargs=-1, required=True)
@click.option(
    "--format", "file_format", type=click.Choice(FILE_FORMATS), help="The format of FILE, if it is not to be detected."
)
@click.option("--version", help="The version of the API in whose form the items are; default: as they are stored.")
@click.option("--skip-bad", is_flag=True, help="Import the good lines, list the bad ones, and exit with 0.")
@click.option("--update", is_flag=True, help="Change the items that lines with their ids have other values for.")
@click.option("--dry-run", is_flag=True, help="Change nothing: validate the lines, and show what they would change.")
@with_appcontext
def import_items(
    names_and_files: tuple[str, ...], file_format: str | None, version: str | None, **options: bool
) -> None:
    """Add the items of FILE to the collection NAME. FILE can be "-" for stdin.

    Items are validated as those that clients send; if any is not valid, none is imported. An item that has an id, times
    and a version is imported with them, so that an export is restored exactly; an item without an id gets one from its
    content, so that a FILE that has grown adds only its new lines. NDJSON and CSV are read line by line, of any length;
    a JSON array is read into memory as a whole. The first line of CSV names the fields, between commas, semicolons or
    tabs. Numbers, lists and objects are JSON in their cell. An empty cell means that the field is left out; `null` is
    null, and `""` an empty text (as a cell, after CSV's quotes).

    With --update an edited export changes the items. What a line leaves out stays as it is: a field, or an empty cell.
    A line is refused if its version is not that of the item, which has changed since the export. Other read-only fields
    are not written.

    The service can read and write meanwhile. After an interruption, run the same command again: an item that exists
    with the same id and content is counted as already there. A unique value that another item has stops the import at
    that line; with --skip-bad that line is skipped. Items can refer to any others of the files, also to later ones.
    """
    pairs = [*zip(names_and_files[::2], names_and_files[1::2], strict=False)]
    if len(names_and_files) % 2:
        raise click.UsageError(f"{names_and_files[-1]}: write NAME FILE, and again for each further file")
    if sum(file == "-" for _, file in pairs) > 1:
        raise click.UsageError("-: stdin can be read once")
    chosen = Options(**options)
    service = service_of_app(creates=not chosen.dry_run)
    shown, waiting = [items_of(service, name, version) for name, _ in pairs], _Waiting()
    with ExitStack() as stack:
        imports = [
            _Import(service, each, stack.enter_context(_opened(file, service)), stack, waiting, chosen)
            for each, (_, file) in zip(shown, pairs, strict=True)
        ]
        for each, (_, file) in zip(imports, pairs, strict=True):
            each.read(file, file_format, f"{file}, " * (len(pairs) > 1))
        if not chosen.dry_run:
            _insert(service, imports, waiting)
    for each in imports:
        each.report()
    if not chosen.dry_run:
        click.echo(f"the store has {service.location.size():,} bytes now")


class _Waiting:
    """Items that refer to what is not there yet; and those behind them, where a collection is in that order."""

    def __init__(self) -> None:
        self._items: list[tuple[_Import, Item]] = []
        self._bytes = 0
        self.names = set[str]()  # of their collections

    @property
    def is_full(self) -> bool:
        """Whether some must be stored before others can wait; one transaction may still add its own."""
        return len(self._items) >= MOST_WAITING or self._bytes >= MOST_WAITING_BYTES

    def add(self, each: "_Import", item: Item) -> None:
        self._items.append((each, item))
        self._bytes += len(item.record.body)
        self.names.add(each.stored.name)

    def take(self) -> list[tuple["_Import", Item]]:
        """All of them, which then wait no more."""
        taken, self._items, self._bytes = self._items, [], 0
        self.names.clear()
        return taken


class _Import:
    """The import of a file: how many items are bad, there already, to be written, and committed (`done`)."""

    def __init__(
        self,
        service: Service,
        shown: Representation,
        source: BinaryIO,
        stack: ExitStack,
        waiting: _Waiting,
        options: Options,
    ) -> None:
        self.stored = service.representations[shown.name]
        self._service, self._shown, self._source, self._options = service, shown, source, options
        self._limits = ItemLimits(*service.config.item_limits)
        self._read_only = {name for name, field in fields_of(shown.schema()).items() if field.dump_only} - {"id"}
        # Temporary files are on the store's disk, which needs space for the items anyway.
        self._spool: IO[bytes] = stack.enter_context(tempfile.TemporaryFile(dir=service.location.folder))
        self._equal_lines = DigestCounts(service.location.folder, stack)
        self._now = rfc3339(service.clock.time())
        self._unit = "line"
        self._listed: list[tuple[int, str]] = []
        self._changes: list[tuple[str, ...]] = []  # the first rows of the table
        self._changed = 0  # all of them
        self._last = ""
        self._waiting = waiting
        self.bad = self.existing = 0
        self.planned, self._written, self.done = Counter[str](), Counter[str](), Counter[str]()  # by `Item.kind`

    @property
    def is_over(self) -> bool:
        """Whether an item is bad, and none may be."""
        return bool(self.bad) and not self._options.skip_bad

    def read(self, file: str, file_format: str | None, label: str) -> None:
        """Write valid items to a temporary file. Raises ClickException if one is bad, without --skip-bad.

        What is wrong is said after the `label`.
        """
        size = self._source.seek(0, os.SEEK_END)
        self._source.seek(0)
        with progress_bar("reading", size) as bar:
            lines = _counted(self._source, bar.update)
            first = next(lines, b"").removeprefix(BOM)
            file_format = file_format or format_of(file, first)
            self._unit = label + ("element" if file_format == "json" else "line")
            try:
                self._validate(READERS[file_format](chain([first], lines), self._shown, self._service.config))
            except (click.ClickException, InvalidJson) as error:
                raise click.ClickException(f"{label}{error}") from None
        if self.is_over:
            self.list_bad()
            raise click.ClickException(
                f"nothing was imported: {self.bad} of {self.planned.total() + self.existing + self.bad} are bad"
            )

    def _validate(self, entries: Entries) -> None:
        for number, read in entries:
            try:
                value = read()
                if not isinstance(value, dict):
                    raise ValidationFailed(errors=[{"pointer": "#", "detail": "must be an object"}])
                item = self._item_of(number, value)
            except (BodyTooLarge, IllegalTransition, InvalidJson, NotConvertible, ValidationFailed) as problem:
                self._note(number, problem)
                continue
            if item is None:
                self.existing += 1
                continue
            self._last = max(self._last, item.record.id) if self.stored.resource.ids in INTEGERS else ""
            pickle.dump((number, item.made, tuple(item.record), item.before and tuple(item.before)), self._spool)
            self.planned[item.kind] += 1

    def _item_of(self, number: int, value: JsonObject) -> Item | None:
        """The item of a line; None if it is known to be there already. Raises what is wrong with the line."""
        made, id = [name for name in READ_ONLY if name not in value], self._id_for(value)
        found = self._find(value.get("id", id)) if self._options.update or self._options.dry_run else None
        if found and self._options.update and not self._is_of_line(made):
            return self._update(number, found, value)
        if not found and self._options.update and "version" in value and "version" in self._read_only:
            raise _refused("version", "there is no such item (any more); a line without a version adds it")
        item = Item(number, made, self._shown.restore(value, id=id, now=self._now, limits=self._limits))
        if found:
            self._require_same(found, item)
            return None
        return item

    def _find(self, id: Any) -> Record | None:
        resource = self.stored.resource
        key = resource.name if resource.singleton else resource.key(id) if re.fullmatch(GIVEN_ID, str(id)) else ""
        with suppress(RecordNotFound):
            return self._service.store.read(resource.name, key)
        return None

    def _update(self, number: int, before: Record, value: JsonObject) -> Item | None:
        """The stored item with the values of a line; None if they are its own. Raises as `_item_of`."""
        shown = exactjson.stored(self._shown.body(before))
        sent = {name: each for name, each in value.items() if name not in self._read_only}
        stale = None
        if "version" in value.keys() & self._read_only:
            given, now = (exactjson.dumps(each["version"]).decode() for each in (value, shown))
            if given != now:
                stale = _refused(
                    "version", f"is {shortened(given)}, and that of the item is {now}: it has changed since"
                )
        try:
            after = self._shown.replace(before, shown | sent, now=self._now, limits=self._limits)
        except (IllegalTransition, ValidationFailed) as problem:
            raise stale or problem from None
        if after is before:  # also for a line that was imported before
            return None
        if stale:
            raise stale
        if self._options.dry_run:
            self._add_changes(before, after)
        return Item(number, [], after, before)

    def _add_changes(self, before: Record, after: Record) -> None:
        """Add what differs between two versions of an item to the table of changes."""
        id = str(self.stored.resource.shown(after.id))
        old, new = (exactjson.cut(self._shown.body(each)) for each in (before, after))
        for name in dict.fromkeys([*old, *new]):
            texts = [bytes(members.get(name, b"")) for members in (old, new)]
            if name not in MOVING & self._read_only and not exactjson.equal(*texts):
                self._changed += 1
                if self._changed <= MOST_ROWS:
                    self._changes.append((id, *(_cell(text.decode()) for text in (name.encode(), *texts))))

    def _id_for(self, value: JsonObject) -> str:
        """The id of a line, if it names none; for integers, which no content can give, one that is refused."""
        if self.stored.resource.ids in INTEGERS:
            return "-1"
        if "id" in value:
            return ""  # which is not used
        try:
            content = exactjson.dumps(value, sort=True)
        except exactjson.EncodeError:  # the line is bad
            return ""
        digest = hashlib.blake2b(content, digest_size=16).digest()
        return id_of(digest, self._equal_lines.add(digest))

    def insert(self) -> None:
        """Insert the items of the temporary file, but for those that wait; ends at a bad one if none may be.

        Raises StoreError.
        """
        self._spool.seek(0)
        total = self.planned.total()
        store, items = self._service.store, (pickle.load(self._spool) for _ in range(total))  # noqa: S301 - our own file
        if self._last:  # later items continue after them
            reserve = partial(use_ids, self.stored.resource, "", self._last)
            until_current(partial(_write, self._service, reserve), deadline_of(self._service.clock))
        with progress_bar("writing", total) as bar:
            for batch in in_batches(store, items, self._insert):
                self.commit()
                bar.update(len(batch))
                if self._waiting.is_full:
                    _insert_waiting(self._service, self._waiting.take(), is_last=False)
                if self.is_over:
                    break

    def _insert(self, transaction: Transaction, fields: tuple[Any, ...]) -> None:
        if self.is_over:
            return
        number, made, record, before = fields
        item = Item(number, made, Record(*record), before and Record(*before))
        is_ordered = any(key.field == POSITION for key in self.stored.resource.order)
        if not (is_ordered and self.stored.name in self._waiting.names):
            outcome = self.store(transaction, item, self._service.hooks.apply)
            if not isinstance(outcome, ReferenceMissing):
                self.settle(item, outcome)
                return
        self._waiting.add(self, item)

    def change(self, item: Item) -> Change:
        """The change that an item is."""
        at = item.record.updated_at if item.before else self._now
        return Change(item.kind, self.stored, item.before, item.record, at)

    def write(self, transaction: Transaction, item: Item, write: Callable[[Transaction, Change], None]) -> None:
        """Write an item by one of the `Hooks`. Raises RecordChanged if what it changes is not as it was read."""
        if item.before:
            transaction.require(self.stored.name, item.before)
        write(transaction, self.change(item))

    def store(self, transaction: Transaction, item: Item, write: Callable[[Transaction, Change], None]) -> Outcome:
        """As `write`; returns what became of it."""
        try:
            with transaction.savepoint():
                self.write(transaction, item, write)
            return True
        except RecordChanged:
            if not item.before:
                raise
            return _refused("id", "the item has changed since the line was read: by a caller, or another line")
        except (DuplicateValue, ReferenceMissing) as problem:
            if isinstance(problem, ReferenceMissing) and problem.of != item.record.id:
                raise  # it is of an item that a function of the service writes
            if item.before:
                return problem
            try:
                self._require_same(transaction.read(self.stored.name, item.record.id), item)
            except RecordNotFound:  # another item has the value
                return problem
            except ValidationFailed as refusal:
                return refusal
            return False

    def settle(self, item: Item, outcome: Outcome) -> None:
        """Count an item, or note why it is bad."""
        if outcome is True:
            self._written[item.kind] += 1
        elif outcome is False:
            self.existing += 1
        else:
            self._note(item.number, outcome)

    def commit(self) -> None:
        """Count what was settled as done."""
        self.done = self._written.copy()

    def list_bad(self) -> None:
        """Print the bad lines to stderr, the first of them in full."""
        for number, text in self._listed:
            click.echo(f"{self._unit} {number}: {text}", err=True)
        if self.bad > MOST_FAILURES:
            click.echo(f"and {self.bad - MOST_FAILURES} more", err=True)

    def report(self) -> None:
        """Print what was done, or would be."""
        self.list_bad()
        if self._changes:
            _print_table([("id", "field", "before", "after"), *self._changes])
        if self._changed > MOST_ROWS:
            click.echo(f"and {self._changed - MOST_ROWS} more")
        is_planned = self._options.dry_run
        counts = self.planned if is_planned else self.done
        updated = f", update{'' if is_planned else 'd'} {counts['updated']}" if counts["updated"] else ""
        existing = f", {self.existing} already there" if self.existing else ""
        skipped = f", skipped {self.bad}" if self.bad else ""
        imported = f"{'would import' if is_planned else 'imported'} {counts['created']} {self.stored.name}"
        click.echo(f"{imported}{updated}{existing}{skipped}")

    def _is_of_line(self, made: Sequence[str]) -> bool:
        """Whether an item has the id that is made for its line: it is not changed by that line later."""
        return "id" in made and not self.stored.resource.singleton

    def _require_same(self, found: Record, item: Item) -> None:
        """Raises ValidationFailed if the store has an item of the file with other content.

        They are compared in the form of the file, and without the fields that were `made`.
        """
        if self._is_of_line(item.made):
            return
        with suppress(NotConvertible):
            old, new = (exactjson.loads(self._shown.body(each)) for each in (found, item.record))
            for name in item.made:
                old.pop(name, None)
                new.pop(name, None)
            if exactjson.dumps(old, sort=True) == exactjson.dumps(new, sort=True):
                return
        raise _refused(
            "id", f"the item {self.stored.resource.shown(item.record.id)} is there already, with other content"
        )

    def _note(self, number: int, problem: Problem | StoreError) -> None:
        self.bad += 1
        self._listed = sorted([*self._listed, (number, message_of(problem))])[:MOST_FAILURES]


def _insert(service: Service, imports: Sequence[_Import], waiting: _Waiting) -> None:
    """Insert the items of all files. Raises ClickException for a bad one, without --skip-bad."""
    order = _referred_first(service.representations)
    try:
        for each in sorted(imports, key=lambda each: order.index(each.stored.name)):
            each.insert()
            if any(other.is_over for other in imports):  # also one whose items have waited
                break
        else:
            _insert_waiting(service, waiting.take(), is_last=True)
    except BaseException:
        click.echo(f"{_done(imports)}; the same command continues from there", err=True)
        raise
    if any(each.is_over for each in imports):
        for each in imports:
            each.list_bad()
        raise click.ClickException(f"stopped there: {_done(imports)}; the same command with --skip-bad continues")


def _done(imports: Sequence[_Import]) -> str:
    return (
        f"{sum(each.done.total() for each in imports)} of {sum(each.planned.total() for each in imports)} were imported"
    )


def _insert_waiting(service: Service, waiting: list[tuple[_Import, Item]], *, is_last: bool) -> None:
    """Insert items that refer to each other, in one transaction, but for bad ones. Raises StoreError."""
    while waiting := _without_bad(service, waiting, "" if is_last else f": no more than {MOST_WAITING:,} can wait"):
        if any(each.is_over for each, _ in waiting):
            return
        work = partial(_store_all, service.hooks, waiting)
        refused: dict[int, Outcome] = until_current(partial(_write, service, work), deadline_of(service.clock))
        for number, (each, item) in enumerate(waiting):
            if number in refused or not refused:
                each.settle(item, refused.get(number, True))
                each.commit()
        waiting = [pair for number, pair in enumerate(waiting) if refused and number not in refused]


def _without_bad(service: Service, waiting: Sequence[tuple[_Import, Item]], hint: str) -> list[tuple[_Import, Item]]:
    """The items that refer to nothing but each other and what is stored; the others are bad."""
    keys = [(each.stored.name, item.record.id) for each, item in waiting]
    left, bad = Counter(keys), set[int]()
    referring: dict[tuple[str, str], list[tuple[int, Refers, str | int, str]]] = {}
    for number, (each, item) in enumerate(waiting):
        for field, id, pointer in required_by(each.stored, item.record):
            key = field.to, service.representations[field.to].resource.key(id)
            referring.setdefault(key, []).append((number, field, id, pointer))
    gone = [key for key in referring if not left[key] and not _is_there(service, *key)]
    while gone:
        for number, field, id, pointer in referring.get(gone.pop(), ()):
            if number not in bad:
                bad.add(number)
                each, item = waiting[number]
                refusal = missing(field, id, pointer, item.record)
                refusal.detail += hint
                each.settle(item, refusal)
                left[key := keys[number]] -= 1
                if not left[key] and not _is_there(service, *key):
                    gone.append(key)
    return [pair for number, pair in enumerate(waiting) if number not in bad]


def _is_there(service: Service, name: str, id: str) -> bool:
    with suppress(RecordNotFound):
        service.store.read(name, id)
        return True
    return False


def _store_all(hooks: Hooks, waiting: Sequence[tuple[_Import, Item]], transaction: Transaction) -> dict[int, Outcome]:
    """Write all items; or none of them, and return what is wrong with some, by their places."""
    changes = [each.change(item) for each, item in waiting]
    try:
        with transaction.savepoint():
            for each, item in waiting:
                each.write(transaction, item, hooks.write)
            for change in changes:
                hooks.check(transaction, change)
    except (DuplicateValue, RecordChanged):  # PostgreSQL does not say of which
        refused = dict[int, Outcome]()
        with suppress(_Undone), transaction.savepoint():
            outcomes = [each.store(transaction, item, hooks.write) for each, item in waiting]
            refused = {number: each for number, each in enumerate(outcomes) if each is not True}
            raise _Undone from None
        if not refused:
            raise RecordChanged("others had such a value for a moment") from None
        return refused
    hooks.announce(transaction, *changes)
    return {}


def _write(service: Service, work: Callable[[Transaction], Any], deadline: float) -> Any:
    return service.store.write(work, deadline=deadline)


def _referred_first(representations: Mapping[str, StoredRepresentation]) -> list[str]:
    """The collections, each after those that its items refer to, but for circles."""
    order, seen = list[str](), set[str]()

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for field in representations[name].revision.references.values():
                visit(field.to)
            order.append(name)

    for name in representations:
        visit(name)
    return order


def id_of(digest: bytes, number: int) -> str:
    """The id of a line that names none: a UUIDv8 (RFC 9562, section 5.8).

    It is made of a digest of the line's content, of 16 bytes, and its number among equal lines.
    """
    bits = int.from_bytes(hashlib.blake2b(digest + number.to_bytes(8), digest_size=16).digest())
    return str(UUID(int=bits & ~(0xF << 76 | 0b11 << 62) | 0x8 << 76 | 0b10 << 62))


def _refused(field: str, detail: str) -> ValidationFailed:
    return ValidationFailed(errors=[{"pointer": f"#/{field}", "detail": detail}])


def _cell(text: str) -> str:
    """A value in a table: without what a terminal would obey."""
    short = text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in short)


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _opened(file: str, service: Service) -> BinaryIO:
    """The file; for a pipe, a temporary copy."""
    source = sys.stdin.buffer if file == "-" else Path(file).open("rb")
    if file != "-" and source.seekable():
        return source
    spool = tempfile.TemporaryFile(dir=service.location.folder)
    with source:
        shutil.copyfileobj(source, spool)
    spool.seek(0)
    return spool


def _counted(lines: Iterable[bytes], count: Callable[[int], None]) -> Iterator[bytes]:
    for line in lines:
        yield line
        count(len(line))
