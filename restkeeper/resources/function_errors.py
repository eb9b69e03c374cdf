"""The errors for what a function of a service does wrong: they name the function, the fields and the values."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from inspect import unwrap
from typing import Any
from urllib.parse import unquote

from restkeeper import exactjson
from restkeeper.errors import Conflict, Duplicate, ValidationFailed, shortened
from restkeeper.exactjson import JsonObject
from restkeeper.resources.views import StoredView
from restkeeper.schemas.fields import LONGEST_OWNER
from restkeeper.storage.errors import DuplicateValue

MOST_LOGGED = 10  # values that a function of the service sets and the schema refuses


def name_of(function: Callable[..., Any]) -> str:
    """The module and the name of a function of the service."""
    function = function.func if isinstance(function, partial) else function
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"


def mistake_of(function: Callable[..., Any], what: str) -> ValueError:
    """The error of a function of the service. A note says where the function is, because it may have returned."""
    error = ValueError(f"{name_of(function)}: {what}")
    if code := getattr(unwrap(function), "__code__", None):
        error.add_note(f'  File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}')
    return error


def require_owner(function: Callable[..., Any], owner: Any) -> None:
    """Raises ValueError for an owner that a function of the service names, and that no caller can be."""
    is_text = isinstance(owner, str) and 0 < len(owner) <= LONGEST_OWNER
    if not is_text or any(exactjson.faults_in_values(owner)):
        rule = f"a text of 1 to {LONGEST_OWNER} characters without NUL"
        raise ValueError(f"{name_of(function)}: items.create: the owner must be {rule}: {shortened(repr(owner))}")


def unstorable(function: Callable[..., Any], stored: StoredView, wrong: Mapping[str, str]) -> ValueError:
    """The error for values that a function sets and the schema refuses, see `refusals`."""
    values = "; ".join([*wrong.values()][:MOST_LOGGED]) + ("; …" if len(wrong) > MOST_LOGGED else "")
    return mistake_of(function, f"sets what {stored.name} cannot store: {values}")


def refusals(stored: StoredView, error: Exception, item: JsonObject) -> dict[str, str]:
    """What is wrong in an item, with the fields and their values; and as the log has it, without private values."""
    if isinstance(error, ValidationFailed):
        faults = error.members.get("errors", ())
    else:
        faults = []
        for name in item:
            try:
                _json({name: item[name]})
            except exactjson.EncodeError:
                faults.append(exactjson.fault([name], "has no JSON form"))
    wrong, private = {}, stored.revision.private
    for fault in faults:
        steps = fault["pointer"].split("/")[1:]
        value: Any = item if steps else {name: item[name] for name in item if name not in private}
        with suppress(LookupError, TypeError, ValueError):  # what is missing, and steps that only marshmallow has
            for step in steps:
                name = unquote(step).replace("~1", "/").replace("~0", "~")
                value = value[int(name) if isinstance(value, list) else name]
        text = f"{'/'.join(steps) or 'the item'} {fault['detail']}"
        detail = f"{text} (it is {shortened(repr(value))})" if value is not item else text
        wrong[detail] = text if steps and steps[0] in private else detail
    return wrong


def _json(value: Any) -> bytes:
    """The JSON text of a value of a function. Raises EncodeError if there is none."""
    text = exactjson.dumps(value)  # first: it bounds how deep the value is
    exactjson.require_numbers(value)
    return text


def returned_json(function: Callable[..., Any], result: Any) -> bytes:
    """The JSON text of the result of a function. Raises ValueError with the function's name if there is none."""
    try:
        return _json(result)
    except exactjson.EncodeError as error:
        raise mistake_of(function, f"returned what has no JSON form: {error}") from error


def duplicate_of_function(error: DuplicateValue) -> Duplicate:
    """The problem of an item that a function of the service writes: its field is not in the body of the request."""
    return Duplicate(f"{error.collection}: {error.detail}")


@contextmanager
def as_conflict(collection: str) -> Iterator[None]:
    """Raises Conflict for ValidationFailed: a function caused the error, not the body of the request."""
    try:
        yield
    except ValidationFailed as error:
        detail = error.detail or exactjson.summary(error.members.get("errors", ())) or error.title
        raise Conflict(f"{collection}: {detail}") from None
