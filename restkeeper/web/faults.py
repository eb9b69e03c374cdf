"""The faults of a body, each with a JSON Pointer (RFC 6901) to its value: the `errors` of a problem."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from restkeeper.errors import MOST_FAULTS, ValidationFailed
from restkeeper.web import exactjson

Fault = dict[str, Any]


def fault(path: Iterable[object], detail: str) -> Fault:
    """A fault of the value at a path."""
    return {"pointer": exactjson.pointer(path), "detail": detail}


def faults_in(messages: Mapping[Any, Any] | list[Any], path: tuple[object, ...] = ()) -> Iterator[Fault]:
    """marshmallow's nested messages as a flat list."""
    if isinstance(messages, list):
        yield from (fault(path, message) for message in messages)
        return
    for name, inner in messages.items():
        yield from faults_in(inner, path if name == "_schema" else (*path, name))


def listed(faults: Iterable[Fault]) -> list[Fault]:
    """The faults that one response lists, and one more, which shows that there are others."""
    return list(islice(faults, MOST_FAULTS + 1))


def require_none(faults: list[Fault]) -> None:
    """Raises ValidationFailed if there are faults: a summary of the first, and a list with pointers."""
    if faults:
        raise ValidationFailed(_summary(faults), errors=faults[:MOST_FAULTS])


def _summary(faults: list[Fault]) -> str:
    summary = [f"{each['pointer'].removeprefix('#/') or 'the body'} {each['detail']}" for each in faults[:3]]
    if len(faults) > MOST_FAULTS:
        summary.append(f"and more than {MOST_FAULTS - 3} more")
    elif len(faults) > 3:
        summary.append(f"and {len(faults) - 3} more")
    return "; ".join(summary)
