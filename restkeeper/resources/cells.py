"""The cells of CSV (RFC 4180): how the values of items are written, and how they are read back."""

import csv
import io
import re
from collections.abc import Iterable, Sequence, Set
from itertools import chain
from typing import Any

from restkeeper import exactjson
from restkeeper.clock import Clock, in_turns
from restkeeper.errors import InvalidJson
from restkeeper.exactjson import JsonObject

BOM = b"\xef\xbb\xbf"  # at the beginning of CSV from, and for, spreadsheets
DEEPEST = 200  # levels of nesting that a service can allow
MOST_COLUMNS = 200  # of a list
FORMULA = tuple("=+-@\t\r")  # spreadsheets read a cell that begins with one of these as a formula


_LATER_FORMULA = re.compile(r"(?<=[;|\t\r\n])(?=[=+\-@])")


def table_of(items: Sequence[JsonObject], names: Iterable[str], texts: Set[str], clock: Clock) -> bytes:
    """Items for a spreadsheet: a column for each of these names, then for each other member that an item has.

    An apostrophe comes before what a spreadsheet would run as a formula. Raises ValueError for more than MOST_COLUMNS.
    """
    names = list(dict.fromkeys(chain(names, chain.from_iterable(items))))
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"has {len(names)} columns here, and at most {MOST_COLUMNS}: choose them with `fields`")
    lines = [csv_line(_defused(name, name) for name in names)]
    for item in in_turns(items, clock):
        cells = zip(names, cells_of(item, names, texts), strict=True)
        lines.append(csv_line(_defused(item.get(name), cell) for name, cell in cells))
    return b"".join(lines)


def _defused(value: Any, cell: str) -> str:
    """The cell of a value without a formula, also where another character than the comma is taken for the separator."""
    return _LATER_FORMULA.sub("'", f"'{cell}" if is_formula(value, cell) else cell)


def cells_of(item: JsonObject, names: Iterable[str], texts: Set[str]) -> list[str]:
    """The cells of an item; one is empty if the item does not have the field."""
    return [_cell(item[name], name in texts) if name in item else "" for name in names]


def is_formula(value: Any, cell: str) -> bool:
    """Whether a spreadsheet would read the cell of a value as a formula: never that of a number."""
    return isinstance(value, str) and cell.startswith(FORMULA)


def csv_line(cells: Iterable[str]) -> bytes:
    """A line of CSV: CRLF, quotes where needed."""
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode()


def value_in(cell: str, is_text: bool, max_depth: int) -> Any:
    """The value of a cell: in a field of texts the cell itself, unless it is null or a text in JSON."""
    if is_text and cell != "null" and not cell.startswith('"'):
        return cell
    try:
        return exactjson.loads(cell, max_depth)
    except InvalidJson:
        return cell  # validation reports what it must be


def _cell(value: Any, is_text: bool) -> str:
    if isinstance(value, str) and value and value == value_in(value, is_text, DEEPEST):  # read back as it is
        return value
    return exactjson.dumps(value).decode()
