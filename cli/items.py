"""`flask import` and `flask export`: items as files, in NDJSON, JSON or CSV."""

import csv
import io
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import click
from flask.cli import with_appcontext

from cli.common import Command, service_of_app, told_of
from clock import utc_now
from config import Config
from errors import BodyTooLarge, Duplicate, InvalidJson, Problem, ValidationFailed
from resources.changes import insert_item
from resources.resource import ItemLimits, JsonObject, Resource
from storage.contract import Kind, Record, Transaction
from web import exactjson
from web.uuid7 import uuid7

SHOWN = 20  # bad lines that are told in full

_BOM = b"\xef\xbb\xbf"  # spreadsheets begin their CSV with it
_BY_SUFFIX = {".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson"}

Entries = Iterator[tuple[int, Callable[[], Any]]]  # where in the file, and what reads the value there


@click.command("import", cls=Command)
@click.argument("name")
@click.argument("file")
@click.option("--format", "form", type=click.Choice(["ndjson", "json", "csv"]), help="Instead of what FILE looks like.")
@click.option("--skip-bad", is_flag=True, help="Keep the good lines, tell of the bad ones, and exit with 0.")
@with_appcontext
def import_items(name: str, file: str, form: str | None, skip_bad: bool) -> None:
    """Add the items of FILE ("-": stdin) to the collection NAME: all of them or, if any is bad, none.

    Items are validated as those that clients send. The id, times and version that an item brings are kept, so that an
    export comes back as it was. NDJSON and CSV are read a line at a time, of any length; a JSON array is read into
    memory whole. The first line of CSV names the fields; lists and objects are JSON in their cell, and an empty cell is
    a field left out. The service answers reads meanwhile; writes wait, or are told to come again.
    """
    service = service_of_app()
    resource = service.resource(name)
    with _lines(file) as lines:
        first = next(lines, b"").removeprefix(_BOM)
        form = form or _form_of(file, first)
        entries = _READERS[form](chain([first], lines), resource, service.config)
        limits = ItemLimits(service.config.max_item, service.config.max_nodes)
        run = _Import(resource, entries, "element" if form == "json" else "line", skip_bad, limits)
        service.store.write(run.work)
    run.tell()
    click.echo(f"imported {run.kept} {name}" + (f", skipped {run.bad}" if run.bad else ""))


@click.command("export", cls=Command)
@click.argument("name")
@click.argument("file", default="-")
@click.option("--format", "form", type=click.Choice(["ndjson", "json", "csv"]), default="ndjson", show_default=True)
@with_appcontext
def export_items(name: str, file: str, form: str) -> None:
    """Write the items of the collection NAME to FILE (default: stdout), in order of id, as of one moment.

    NDJSON and JSON come back exactly by `flask import`. CSV has no null: null and an empty text are both an empty cell.
    """
    service = service_of_app()
    resource = service.resource(name)
    bodies = map(resource.body, service.store.scan(name))
    with click.open_file(file, "wb") as out:
        for chunk in _WRITERS[form](bodies, resource):
            out.write(chunk)


class _Import:
    """One run of `flask import`: the work to do in its transaction, and what came of it."""

    def __init__(self, resource: Resource, entries: Entries, unit: str, skip_bad: bool, limits: ItemLimits) -> None:
        self._resource = resource
        self._limits = limits
        self._entries = entries
        self._unit = unit
        self._skip_bad = skip_bad
        self._now = utc_now()  # all are of one moment, as they are of one transaction
        self._told: list[str] = []
        self.kept = 0
        self.bad = 0

    def work(self, transaction: Transaction) -> None:
        """Insert what is good. Raises ClickException at the end when anything was bad and must not be."""
        for number, read in self._entries:
            try:
                insert_item(transaction, self._resource, self._record(read()), now=self._now)
                self.kept += 1
            except (BodyTooLarge, Duplicate, InvalidJson, ValidationFailed) as problem:
                self._note(number, problem)
        if self.bad and not self._skip_bad:
            self.tell()
            raise click.ClickException(f"nothing was imported: {self.bad} of {self.kept + self.bad} are bad")

    def tell(self) -> None:
        """The bad lines, the first of them in full, to stderr."""
        for line in self._told:
            click.echo(line, err=True)
        if self.bad > SHOWN:
            click.echo(f"and {self.bad - SHOWN} more", err=True)

    def _record(self, value: Any) -> Record:
        if not isinstance(value, dict):
            raise ValidationFailed(errors=[{"pointer": "#", "detail": "must be an object"}])
        return self._resource.restore(value, id=uuid7(), now=self._now, limits=self._limits)

    def _note(self, number: int, problem: Problem) -> None:
        self.bad += 1
        if self.bad <= SHOWN:
            self._told.append(f"{self._unit} {number}: {told_of(problem)}")


@contextmanager
def _lines(file: str) -> Iterator[Iterator[bytes]]:
    """The lines of a file ("-": stdin), under a progress bar while a person looks on and the size is known."""
    size = 0 if file == "-" else Path(file).stat().st_size
    bar = click.progressbar(
        length=size, hidden=not (size and sys.stderr.isatty()), file=sys.stderr, update_min_steps=size // 200 + 1
    )
    with _opened(file) as source, bar:
        yield _counted(source, bar.update)


def _opened(file: str) -> BinaryIO:
    """The file, or all of stdin: the store's write lock must not wait for whoever writes there."""
    if file != "-":
        return Path(file).open("rb")
    spool = tempfile.TemporaryFile()
    shutil.copyfileobj(sys.stdin.buffer, spool)
    spool.seek(0)
    return spool


def _counted(lines: Iterable[bytes], count: Callable[[int], None]) -> Iterator[bytes]:
    for line in lines:
        yield line
        count(len(line))


def _form_of(file: str, first: bytes) -> str:
    """By the first character, else by the file's name; what neither tells is CSV."""
    by_content = {b"[": "json", b"{": "ndjson"}.get(first.lstrip()[:1])
    return by_content or _BY_SUFFIX.get(Path(file).suffix.lower(), "csv")


def _read_ndjson(lines: Iterable[bytes], _: Resource, config: Config) -> Entries:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, partial(_line, line.rstrip(), config.max_depth)


def _line(line: bytes, max_depth: int) -> Any:
    try:
        return exactjson.loads(line, max_depth)
    except InvalidJson as problem:  # the line is told already, and it is the file's
        raise InvalidJson(problem.detail.replace("(line 1, column ", "(column ")) from None


def _read_json(lines: Iterable[bytes], _: Resource, config: Config) -> Entries:
    text = b"".join(lines).decode()
    for number, element in enumerate(_elements(text), start=1):
        yield number, partial(exactjson.loads, element, config.max_depth)


_MARK = re.compile(r"[ \t\n\r]*(.?)[ \t\n\r]*", re.DOTALL)
_ROUGH = json.JSONDecoder(parse_int=str, parse_float=str)  # finds where a value ends, and makes nothing of it


def _elements(text: str) -> Iterator[str]:
    """The texts of an array's elements, so that one that is bad does not spoil the others. Raises InvalidJson."""
    mark = _mark(text, 0, "[")
    if _MARK.match(text, mark.end())[1] == "]":  # type: ignore[index]  # it matches anything
        mark = _mark(text, mark.end(), "]")
    while mark[1] != "]":
        end = _end_of_value(text, mark.end())
        yield text[mark.end() : end]
        mark = _mark(text, end, ",]")
    if mark.end() < len(text):
        raise InvalidJson(f"something follows the array at character {mark.end()}")


def _mark(text: str, at: int, allowed: str) -> re.Match[str]:
    mark = _MARK.match(text, at)
    if not mark or not mark[1] or mark[1] not in allowed:
        raise InvalidJson(f"a JSON array needs {' or '.join(allowed)} at character {at}")
    return mark


def _end_of_value(text: str, at: int) -> int:
    try:
        return _ROUGH.raw_decode(text, at)[1]
    except json.JSONDecodeError as error:
        raise InvalidJson(f"{error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise InvalidJson(f"nesting is far too deep at character {at}") from None


def _read_csv(lines: Iterable[bytes], resource: Resource, config: Config) -> Entries:
    csv.field_size_limit(2 * config.max_body)  # an item can be written longer than it was sent
    rows = _rows(csv.reader(_texts(lines), strict=True))
    _, header = next(rows, (1, []))
    _require_fields(header, resource)
    for number, row in rows:
        yield number, partial(_item, row, header, resource, config.max_depth)


def _rows(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the line that it begins on."""
    begins = 1
    try:
        for row in reader:
            if row:
                yield begins, row
            begins = reader.line_num + 1
    except csv.Error as error:
        raise click.ClickException(f"line {begins}: not CSV: {error}") from None


def _texts(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise click.ClickException(f"line {number}: not UTF-8 (byte {error.start})") from None


def _require_fields(header: list[str], resource: Resource) -> None:
    unknown = [name for name in header if name not in resource.names]
    if unknown:
        told, names = ", ".join(map(repr, unknown)), ", ".join(resource.names)
        raise click.ClickException(f"line 1: no fields of {resource.name}: {told}; there are {names}")
    if len(set(header)) < len(header):
        raise click.ClickException("line 1: a field is named twice")


def _item(row: list[str], header: list[str], resource: Resource, max_depth: int) -> JsonObject:
    if len(row) != len(header):
        detail = f"must have {len(header)} cells, as the first line; it has {len(row)}"
        raise ValidationFailed(errors=[{"pointer": "#", "detail": detail}])
    cells = zip(header, row, strict=True)
    item = {name: cell if _is_text(resource, name) else _value(cell, max_depth - 1) for name, cell in cells if cell}
    return item


def _value(cell: str, max_depth: int) -> Any:
    try:
        return exactjson.loads(cell, max_depth)
    except InvalidJson:
        return cell  # a text: the schema says what it must be instead


def _is_text(resource: Resource, name: str) -> bool:
    field = resource.collection.fields.get(name)
    return field is not None and field.kind in (Kind.TEXT, Kind.TIME)


def _write_ndjson(bodies: Iterable[bytes], _: Resource) -> Iterator[bytes]:
    for body in bodies:
        yield body + b"\n"


def _write_json(bodies: Iterable[bytes], _: Resource) -> Iterator[bytes]:
    before = b"[\n"
    for body in bodies:
        yield before + body
        before = b",\n"
    yield b"\n]\n" if before == b",\n" else b"[]\n"


def _write_csv(bodies: Iterable[bytes], resource: Resource) -> Iterator[bytes]:
    yield _csv_line(resource.names)
    for body in bodies:
        item = exactjson.loads(body)
        yield _csv_line(_cell(item.get(name), _is_text(resource, name)) for name in resource.names)


def _cell(value: Any, is_text: bool) -> str:
    if value is None:
        return ""
    return str(value) if is_text else exactjson.dumps(value).decode()


def _csv_line(cells: Iterable[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)  # RFC 4180: CRLF, quotes where needed
    return line.getvalue().encode()


_READERS = {"ndjson": _read_ndjson, "json": _read_json, "csv": _read_csv}
_WRITERS = {"ndjson": _write_ndjson, "json": _write_json, "csv": _write_csv}
