"""The values of an item that queries compare, as they are stored beside its body."""

from typing import Any

import orjson

NUL = "\0"  # PostgreSQL has no such character. Items have none; texts of a query may have it
INSTEAD = "\ufffd"


def clean(text: str) -> str:
    """A text as it can be sent to PostgreSQL."""
    return text.replace(NUL, INSTEAD) if NUL in text else text


def fields_of(body: bytes) -> tuple[str, str | None]:
    """Two JSON objects: the values of an item that can be compared, and those texts that have another folded form.

    Null is left out, and so are objects and mixed lists. Folding is `str.casefold`; for other texts, PostgreSQL's
    `lower` of the collation "C" is the same.
    """
    item = orjson.loads(body)
    if not isinstance(item, dict):  # a record of a feature, which no query compares
        return "{}", None
    values = {name: value for name, value in item.items() if _is_comparable(value)}
    folded = {
        name: other
        for name, value in values.items()
        if not _is_ascii(value) and (other := _each(str.casefold, value)) != value
    }
    return orjson.dumps(values).decode(), orjson.dumps(folded).decode() if folded else None


def _is_comparable(value: Any) -> bool:
    if isinstance(value, list):
        return all(type(each) is str for each in value)
    return value is not None and not isinstance(value, dict)


def _is_ascii(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii()
    return not isinstance(value, list) or all(each.isascii() for each in value)


def _each(change: Any, value: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    return [change(each) for each in value] if isinstance(value, list) else value
