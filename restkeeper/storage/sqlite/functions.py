"""Functions that queries in SQLite call."""

import json
import re
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from restkeeper.storage.sql import DATE, DATES, EXACT, TIME

_DATE, _TIME = re.compile(DATE), re.compile(TIME)
_add = EXACT.add


def fold(value: str | float | None) -> str | None:
    """A text without case; of a number, as JavaScript writes it where it has no exponent."""
    if isinstance(value, float):
        value = f"{Decimal(repr(value)).normalize():f}"
    return None if value is None else str(value).casefold()


def is_found(search: str, lists: str, *values: str | None) -> bool:
    """Whether a text without case is in one of some others (the SQL function `is_found`).

    For each value, `lists` has a 1 if it is a JSON array of texts, and otherwise a 0.
    """
    return any(
        search in str(text).casefold()
        for is_list, value in zip(lists, values, strict=True)
        if value is not None
        for text in (orjson.loads(value) if is_list == "1" else (value,))
    )


def is_inside(search: str, body: str) -> bool:
    """Whether a text without case is in one of the texts inside a JSON value (the SQL function `is_inside`)."""
    if "\\" not in body and search not in body.casefold():  # most have no escapes: they are not parsed
        return False
    values = [json.loads(body)]  # not by orjson, which refuses what a store may have, such as 1e400
    while values:
        match values.pop():
            case str(text):
                if search in text.casefold():
                    return True
            case dict(members):
                values += members.values()
            case list(elements):
                values += elements
    return False


class ExactSum:
    """The sum of numbers, integers or the texts of decimals, as a text; null without any (SQL: `exact_sum`)."""

    sum = NOTHING = Decimal()

    def step(self, number: int | str | None) -> None:
        if number is not None:
            try:
                self.sum = _add(self.sum, Decimal(number))
            except ArithmeticError:  # a number of a file is too large for all
                self.sum = Decimal("Infinity")

    def finalize(self) -> str | None:
        return None if self.sum is self.NOTHING else str(self.sum)


def local_time(time: Any, zone: str) -> str | None:
    """A time as a text that begins with the date in a time zone; a date as it is; null for other values (in SQL)."""
    if not isinstance(time, str) or not _DATE.match(time):
        return None
    with suppress(ValueError):  # it is no day
        if DATES[0] < time < DATES[1] and _TIME.fullmatch(time):
            return datetime.fromisoformat(time).astimezone(ZoneInfo(zone)).isoformat()
    return time
