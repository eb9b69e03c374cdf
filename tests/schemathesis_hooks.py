"""Rules for valid requests that JSON Schema cannot express. Schemathesis loads this module (see schemathesis.toml)."""

import os
import re
from itertools import count
from typing import Any
from urllib.parse import urlencode

import requests
import schemathesis
from schemathesis import Case, HookContext
from schemathesis.generation.meta import TestPhase

from restkeeper.config import Config
from restkeeper.features.events import LONGEST
from restkeeper.resources.filters import MAX_VALUES
from restkeeper.resources.parameters import AGGREGATES, GROUPED
from tests.documents import unfolded
from tests.waiting import SECONDS

_keys = count()
SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1
LONGEST_LIST = Config().max_url // 2  # the maximum in the document
ADDRESS_BYTES = 1_000  # of a query: the Link to the next page repeats it, and has at most 4096
OPTION = re.compile(r"(fields|limit|sort|where)\[.+\]")
WAITS = {str(seconds) for seconds in range(2, LONGEST + 1)}


@schemathesis.hook
def before_load_schema(context: HookContext, raw_schema: dict[str, Any]) -> None:
    """Schemathesis knows one server, and one schema of a response."""
    raw_schema.update(unfolded(raw_schema))


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Change valid requests so that they follow the rules that the document has only as text."""
    _shorten_wait(case.query)
    _remove_duplicates(case.query)
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    for condition in (
        "If-Match",
        "If-Unmodified-Since",
    ):  # their result depends on the state: generated ones return 412
        case.headers.pop(condition, None)
    if case.method != "GET":
        case.headers.pop("If-None-Match", None)
    if "Idempotency-Key" in case.headers:  # a key belongs to one body, and every body is new
        case.headers["Idempotency-Key"] = f"key-{next(_keys)}"
    if "delivery" in case.path_parameters and case.meta.phase.name != TestPhase.STATEFUL:
        case.path_parameters.update(_delivery(case.operation.base_url))  # no generator guesses these ids
    _mend_query(case.query)
    if isinstance(case.body, dict):
        case.body = _sendable(case.body)


def _shorten_wait(query: dict[str, Any]) -> None:
    """Limit each wait to a second, in any mode, because there are hundreds of requests."""
    if str(query.get("wait")) in WAITS:
        query["wait"] = 1


def _remove_duplicates(query: dict[str, Any]) -> None:
    """Remove repeated values of lists, in any mode: one long list would fill the whole URL."""
    for name, value in query.items():
        if isinstance(value, str) and len(value) > ADDRESS_BYTES and len(values := value.split(",")) <= LONGEST_LIST:
            query[name] = ",".join(dict.fromkeys(values))


def _delivery(base: str) -> dict[str, Any]:
    """The path parameters of an existing delivery."""
    place, headers = f"{base.rstrip('/')}/api/v1/webhooks", {"X-API-Key": os.environ["ADMIN_KEY"]}
    sent = {"url": "https://example.org/hook"}
    webhook = requests.post(place, json=sent, headers=headers, timeout=SECONDS).json()["id"]
    queued = requests.post(f"{place}/{webhook}/ping", headers=headers, timeout=SECONDS).json()
    return {"id": webhook, "delivery": queued["id"]}


def _mend_query(query: dict[str, Any]) -> None:
    if not isinstance(
        query.get("cursor"), int
    ):  # a cursor that is no number has a checksum: only the service can create it
        query.pop("cursor", None)
    for name in ("or", "not"):  # filters as text
        query.pop(name, None)
    for name in [name for name in query if OPTION.fullmatch(name)]:  # of what is embedded, which is another parameter
        query.pop(name)
    grouped = [name for name in GROUPED if name in query]
    for name in ("limit", "offset", "sort", "fields", "embed", "cursor") if grouped else ():  # groups have no pages
        query.pop(name, None)
    if not {"embed", "timezone", *grouped}.isdisjoint(query):  # CSV has the fields of items
        query.pop("export", None)
    if "timezone" in query:
        query["timezone"] = "Europe/Berlin"
        query["count"] = "month(created_at)"
    for name in grouped[2:]:  # of two functions, each can have its own fields
        if name in AGGREGATES:
            del query[name]
    for name in AGGREGATES:
        if name in query and len(grouped) > 1:
            query[name] = str(query[name]).split(",")[0]
    if "sort" in query:  # each field once, in either direction
        query["sort"] = ",".join({key.lstrip("-"): key for key in query["sort"].split(",")}.values())
    room, values = ADDRESS_BYTES, MAX_VALUES  # of all parameters together
    for name, value in list(query.items()):
        size, many = len(urlencode({name: value})) + 1, str(value).count(",") + 1
        if size > room or many > values:
            del query[name]
        else:
            room, values = room - size, values - many


def _sendable(value: Any) -> Any:
    """The value with prices of two decimals (`multipleOf: 0.01` is not exact in binary) and integers of 64 bits."""
    if isinstance(value, dict):
        value = {name: _sendable(inner) for name, inner in value.items()}
        if isinstance(value.get("price"), float):
            value["price"] = round(value["price"], 2)
        if isinstance(value.get("expires_at"), str):  # must be in the future
            value["expires_at"] = "2999-12-31T23:59:59Z"
        return value
    if isinstance(value, list):
        return [_sendable(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return max(SMALLEST_INTEGER, min(LARGEST_INTEGER, value))
    return value
