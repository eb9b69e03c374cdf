"""`restkeeper import`: the items of a file, in NDJSON, JSON or CSV.

The input is read and validated first, and the items are written to a temporary file on the store's disk. Only then is
the store locked, for short times.
"""

import hashlib
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO
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
from restkeeper.errors import BodyTooLarge, InvalidJson, NotConvertible, Problem, ValidationFailed
from restkeeper.resources.changes import Change
from restkeeper.resources.representation import ItemLimits, Representation, StoredRepresentation
from restkeeper.resources.unit import use_ids
from restkeeper.resources.writes import deadline_of, until_current
from restkeeper.schemas.item import INTEGERS, READ_ONLY
from restkeeper.service import Service
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import DuplicateValue, RecordNotFound
from restkeeper.storage.interface import Record
from restkeeper.web import exactjson

Item = tuple[int, list[str], tuple[Any, ...]]  # its position in the input, the fields that it did not have, its record


@click.command("import", cls=Command)
@click.argument("name")
@click.argument("file")
@click.option(
    "--format", "file_format", type=click.Choice(FILE_FORMATS), help="The format of FILE, if it is not to be detected."
)
@click.option("--version", help="The version of the API in whose form the items are; default: as they are stored.")
@click.option("--skip-bad", is_flag=True, help="Import the good lines, list the bad ones, and exit with 0.")
@with_appcontext
def import_items(name: str, file: str, file_format: str | None, version: str | None, skip_bad: bool) -> None:
    """Add the items of FILE to the collection NAME. FILE can be "-" for stdin.

    Items are validated as those that clients send; if any is not valid, none is imported. An item that has an id, times
    and a version is imported with them, so that an export is restored exactly; an item without an id gets one from the
    content of FILE and its place in it. NDJSON and CSV are read line by line, of any length; a JSON array is read into
    memory as a whole. The first line of CSV names the fields; lists and objects are JSON in their cell, and an empty
    cell means that the field is left out.

    The service can read and write meanwhile. After an interruption, run the same command again: an item that exists
    with the same id and content is counted as already there. A unique value that another item has stops the import at
    that line; with --skip-bad that line is skipped.
    """
    service = service_of_app(creates=True)
    shown = items_of(service, name, version)
    # Temporary files are on the store's disk, which needs space for the items anyway.
    with _opened(file, service) as source, tempfile.TemporaryFile(dir=service.location.folder) as spool:
        digest = hashlib.file_digest(source, "blake2b").digest()  # type: ignore[arg-type]
        size = source.tell()
        source.seek(0)
        with progress_bar("reading", size) as bar:
            lines = _counted(source, bar.update)
            first = next(lines, b"").removeprefix(BOM)
            file_format = file_format or format_of(file, first)
            entries = READERS[file_format](chain([first], lines), shown, service.config)
            unit = "element" if file_format == "json" else "line"
            run = _Import(service, service.representations[name], shown, unit, skip_bad)
            run.validate(entries, digest, spool)
        spool.seek(0)
        run.insert(spool)
    run.report()
    existing = f", {run.existing} already there" if run.existing else ""
    click.echo(f"imported {run.done} {name}{existing}" + (f", skipped {run.bad}" if run.bad else ""))
    click.echo(f"the store has {service.location.size():,} bytes now")


class _Import:
    """One run of `restkeeper import`: how many items are good, bad, there already, and committed (`done`)."""

    def __init__(
        self, service: Service, stored: StoredRepresentation, shown: Representation, unit: str, skip_bad: bool
    ) -> None:
        self._service, self._stored, self._shown = service, stored, shown
        self._unit, self._skip_bad = unit, skip_bad
        self._now = rfc3339(service.clock.time())
        self._listed: list[str] = []
        self._inserted = 0
        self._last = ""
        self.good = self.bad = self.existing = self.done = 0

    @property
    def _is_over(self) -> bool:
        return bool(self.bad) and not self._skip_bad

    def validate(self, entries: Entries, digest: bytes, spool: BinaryIO) -> None:
        """Write valid items to the temporary file. Raises ClickException if one is bad, without --skip-bad."""
        limits = ItemLimits(*self._service.config.item_limits)
        for number, read in entries:
            try:
                value = read()
                if not isinstance(value, dict):
                    raise ValidationFailed(errors=[{"pointer": "#", "detail": "must be an object"}])
                id = id_at(digest, number) if self._stored.resource.ids not in INTEGERS else "-1"
                record = self._shown.restore(value, id=id, now=self._now, limits=limits)
                self._last = max(self._last, record.id) if self._stored.resource.ids in INTEGERS else ""
                made = [name for name in READ_ONLY if name not in value]
                pickle.dump((number, made, tuple(record)), spool)
                self.good += 1
            except (BodyTooLarge, InvalidJson, ValidationFailed) as problem:
                self._note(number, problem)
        if self._is_over:
            self.report()
            raise click.ClickException(f"nothing was imported: {self.bad} of {self.good + self.bad} are bad")

    def insert(self, spool: BinaryIO) -> None:
        """Insert the items of the temporary file. Raises ClickException for a duplicate, without --skip-bad."""
        store, items = self._service.store, (pickle.load(spool) for _ in range(self.good))  # noqa: S301 - our own file
        if self._last:  # later items continue after them
            reserve = partial(use_ids, self._stored.resource, "", self._last)
            until_current(lambda deadline: store.write(reserve, deadline=deadline), deadline_of(self._service.clock))
        try:
            with progress_bar("writing", self.good) as bar:
                for batch in in_batches(store, items, self._insert):
                    self.done = self._inserted
                    bar.update(len(batch))
                    if self._is_over:
                        break
        except BaseException:
            click.echo(f"{self.done} of {self.good} were imported; the same command continues from there", err=True)
            raise
        if self._is_over:
            self.report()
            raise click.ClickException(
                f"stopped there: {self.done} of {self.good} were imported; the same command with --skip-bad continues"
            )

    def report(self) -> None:
        """Print the bad lines to stderr, the first of them in full."""
        for line in self._listed:
            click.echo(line, err=True)
        if self.bad > MOST_FAILURES:
            click.echo(f"and {self.bad - MOST_FAILURES} more", err=True)

    def _insert(self, transaction: Transaction, item: Item) -> None:
        if self._is_over:
            return
        number, made, fields = item
        record = Record(*fields)
        try:
            with transaction.savepoint():
                change = Change("created", self._stored, None, record, self._now)
                self._service.hooks.apply(transaction, change)
            self._inserted += 1
        except DuplicateValue as problem:
            try:
                found = transaction.read(self._stored.name, record.id)
            except RecordNotFound:  # another item has the value
                self._note(number, problem)
                return
            if self._is_same(found, record, made):
                self.existing += 1
            else:
                detail = f"the item {self._stored.resource.shown(record.id)} is there already, with other content"
                self._note(number, ValidationFailed(errors=[{"pointer": "#/id", "detail": detail}]))

    def _is_same(self, found: Record, record: Record, made: list[str]) -> bool:
        """Whether the store has an item of the file, in the form of the file and but for the fields `made` for it."""
        is_of_file = "id" in made and not self._stored.resource.singleton
        if is_of_file and found.version > record.version:  # its id is of this file: it was imported, and then changed
            return True
        try:
            old, new = (exactjson.loads(self._shown.body(each)) for each in (found, record))
        except NotConvertible:
            return False
        for name in made:
            old.pop(name, None)
            new.pop(name, None)
        return exactjson.dumps(old, sort=True) == exactjson.dumps(new, sort=True)

    def _note(self, number: int, problem: Problem | DuplicateValue) -> None:
        self.bad += 1
        if self.bad <= MOST_FAILURES:
            self._listed.append(f"{self._unit} {number}: {message_of(problem)}")


def id_at(digest: bytes, number: int) -> str:
    """The id of an item without one: a UUIDv8 (RFC 9562, section 5.8) from the file's content and the position in it.

    The ids of one file are in its order; the same file gives the same ids again.
    """
    bits = int.from_bytes(digest[:16])
    first, second, last = bits >> 80, bits >> 64 & 0xFFF, bits & (1 << 30) - 1
    return str(UUID(int=first << 80 | 0x8 << 76 | second << 64 | 0b10 << 62 | (number & 0xFFFFFFFF) << 30 | last))


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
