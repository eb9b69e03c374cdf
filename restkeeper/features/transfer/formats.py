"""NDJSON, JSON and CSV: how items are read from a file, and written to one."""

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import click
import msgspec

from restkeeper import exactjson
from restkeeper.config import Config
from restkeeper.errors import InvalidJson, ValidationFailed, shortened
from restkeeper.exactjson import JsonObject
from restkeeper.resources.cells import cells_of, csv_line, is_formula, value_in
from restkeeper.resources.views import View

FILE_FORMATS = ("ndjson", "json", "csv")
SEPARATORS = ",;\t"  # of cells, that of RFC 4180 first; spreadsheets write others where "," is in numbers

_BY_SUFFIX = {".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv"}

OWNER_MEMBER = "$owner"  # of an item, in a file: no field has this name

Entries = Iterator[tuple[int, Callable[[], Any]]]  # the position in the file, and a function that reads its value


class Columns(NamedTuple):
    """The name of a collection, the columns of its items in a file, in order, and those columns that have texts."""

    name: str
    names: tuple[str, ...]
    texts: Set[str]

    @classmethod
    def of(cls, view: View, *, owner: bool = False) -> Self:
        """Those of items as they are `shown`, with the `owner` beside them."""
        more = (OWNER_MEMBER,) * owner
        return cls(view.name, (*view.names, *more), view.texts.union(more))


def format_by_name(file: str) -> str | None:
    """The format by the suffix of a file's name."""
    return _BY_SUFFIX.get(Path(file).suffix.lower())


def format_of(file: str, head: bytes) -> str:
    """The format by the first character, else by the file's name, else CSV."""
    by_content = {b"[": "json", b"{": "ndjson"}.get(head.lstrip()[:1])
    return by_content or format_by_name(file) or "csv"


def _read_ndjson(lines: Iterable[bytes], _: Columns, config: Config) -> Entries:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, partial(_line, line.rstrip(), config.max_depth)


def _line(line: bytes, max_depth: int) -> Any:
    try:
        return exactjson.loads(line, max_depth)
    except InvalidJson as problem:  # the message has the line in the file already
        raise InvalidJson(problem.detail.replace("(line 1, column ", "(column ")) from None


def _read_json(lines: Iterable[bytes], _: Columns, config: Config) -> Entries:
    try:
        elements = msgspec.json.decode(b"".join(lines), type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidJson(f"the file cannot be read as one JSON array: {error}") from None
    for number, element in enumerate(elements, start=1):
        yield number, partial(exactjson.loads, bytes(element), config.max_depth)


def _read_csv(lines: Iterable[bytes], columns: Columns, config: Config) -> Entries:
    csv.field_size_limit(2 * config.max_body)  # an item can be longer in CSV than in JSON
    texts = _texts(lines)
    header_line, before = next(texts, ""), 0  # the header, and the number of lines before it
    separator = max(SEPARATORS, key=header_line.count)
    if header_line.startswith("sep=") and (said := header_line[4:].rstrip("\r\n")) in (*SEPARATORS, "|"):  # of Excel
        header_line, before, separator = next(texts, ""), 1, said
    begins = before + 1  # the first line of the next row
    reader = csv.reader(chain([header_line], texts), delimiter=separator, strict=True)
    try:
        header = next(reader, [])
        if unknown := [name for name in header if name not in columns.names]:
            wrong, names = shortened(", ".join(map(repr, unknown))), ", ".join(columns.names)
            raise click.ClickException(f"line {begins}: no fields of {columns.name}: {wrong}; there are {names}")
        if len(set(header)) < len(header):
            raise click.ClickException(f"line {begins}: a field is named twice")
        begins += reader.line_num
        for row in reader:
            if any(row):  # spreadsheets write lines of separators below the data
                yield begins, partial(_item, row, header, columns, config.max_depth)
            begins = before + reader.line_num + 1
    except csv.Error as error:
        raise click.ClickException(f"line {begins}: not CSV: {error}") from None


def _texts(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise click.ClickException(f"line {number}: not UTF-8 (byte {error.start})") from None


def _item(row: list[str], header: list[str], columns: Columns, max_depth: int) -> JsonObject:
    if len(row) != len(header):
        detail = f"must have {len(header)} cells, as the header; it has {len(row)}"
        raise ValidationFailed(errors=[{"pointer": "#", "detail": detail}])
    cells = zip(header, row, strict=True)
    return {name: value_in(cell, name in columns.texts, max_depth - 1) for name, cell in cells if cell}


def _write_ndjson(bodies: Iterable[bytes], *_: Any) -> Iterator[bytes]:
    for body in bodies:
        yield body + b"\n"


def _write_json(bodies: Iterable[bytes], *_: Any) -> Iterator[bytes]:
    before = b"[\n"
    for body in bodies:
        yield before + body
        before = b",\n"
    yield b"\n]\n" if before == b",\n" else b"[]\n"


def _write_csv(bodies: Iterable[bytes], columns: Columns, formulas: Counter[str]) -> Iterator[bytes]:
    yield csv_line(columns.names)
    for body in bodies:
        item = exactjson.loads(body)
        cells = cells_of(item, columns.names, columns.texts)
        pairs = zip(columns.names, cells, strict=True)
        formulas.update(name for name, cell in pairs if is_formula(item.get(name), cell))
        yield csv_line(cells)


READERS = {"ndjson": _read_ndjson, "json": _read_json, "csv": _read_csv}
WRITERS: dict[str, Callable[[Iterable[bytes], Columns, Counter[str]], Iterator[bytes]]] = {
    "ndjson": _write_ndjson,
    "json": _write_json,
    "csv": _write_csv,
}  # formulas are counted by field
