"""Faults that a test asks for: what a service, its store or the network does on a bad day, for chosen requests."""

import re
import threading
from collections.abc import Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from werkzeug.datastructures import EnvironHeaders

from restkeeper.errors import Conflict
from restkeeper.web.application import Application
from restkeeper.web.exactjson import require_none

KINDS = {
    "respond": "A response with a `status`: the problem of that, or a `text` or `json`; and with more `headers`.",
    "delay": "Some seconds; then the next fault, or the service.",
    "close": "The connection ends, and the service does nothing.",
    "drop_response": "The service does its work, and the connection ends before the response.",
    "reset": "The connection is reset, and the service does nothing, or with `committed` its work.",
    "cut_response": "The response ends in the middle of its content.",
    "stall": "The response stops in the middle of its content, for some seconds.",
    "fail_store": "A response as while the store is away: before the work, or with `committed` after it.",
}
MOST_FAULTS = 100
_VERSION = re.compile(r"/api/v\d+(?=/)")

Fault = SimpleNamespace  # with the fields of control.NewFaultSchema


class Faults:
    """The faults of a space, in order. With a seed, the same requests in the same order have the same faults.

    Requests that the application cannot get have none.
    """

    def __init__(self, seed: int | None, app: Application) -> None:
        self._random = Random(seed)  # noqa: S311 - no secret
        self._app = app
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._missed: list[Fault] = []  # that were cleared, and that no request had matched
        self._stubs: list[Fault] = []  # the last one first

    def add(self, declared: Mapping[str, Any]) -> None:
        """Add a fault, with the fields of control.NewFaultSchema.

        Raises Conflict for more than MOST_FAULTS, and ValidationFailed for one that cannot happen.
        """
        self._require_possible(declared["method"].upper(), declared["path"])
        self._faults.append(Fault(**declared, met=0))

    def add_stub(self, declared: Mapping[str, Any]) -> None:
        """Add a stub, with the fields of control.StubSchema. Raises as `add`, and ValidationFailed for a route."""
        self._require_possible(declared["method"].upper(), declared["path"], is_stub=True)
        self._stubs.insert(0, Fault(**declared))

    def stub_for(self, environ: dict[str, Any]) -> Fault | None:
        """The stub for a request."""
        return next((each for each in self._stubs if _is_for(each, environ)), None)

    @property
    def unmet(self) -> list[Fault]:
        """The faults that no request has matched, also those that were cleared."""
        return [each for each in self._missed + self._faults if not each.met]

    def clear(self) -> None:
        """Have none any more."""
        self._missed, self._faults = self.unmet[-MOST_FAULTS:], []

    def _require_possible(self, method: str, path: str, *, is_stub: bool = False) -> None:
        if len(self._faults) + len(self._stubs) >= MOST_FAULTS:
            raise Conflict(f"a space has at most {MOST_FAULTS} faults and stubs")
        rules, here, wrong = [*self._app.url_map.iter_rules()], _methods_at(self._app, path), {}
        methods = sorted({each for rule in rules for each in rule.methods or ()})
        if not any(is_like(each, method) for each in methods):
            wrong["method"] = f"is none of {', '.join(methods)}, nor a pattern with `*`"
        if "?" in path or "#" in path:
            wrong["path"] = "must be without a query: a path is one with every query"
        elif is_stub and any(is_like(each, method) for each in here):
            wrong["path"] = "is a route of the service, which a fault can respond for"
        elif not (is_stub or here or "*" in path or any(is_at(path.encode(), each.path) for each in self._stubs)):
            close = get_close_matches(path, [_VERSION.sub("", each.rule) for each in rules], 1)
            meant = f"; did you mean {close[0]}?" if close else ""
            wrong["path"] = f"is no route, no stub, and no pattern with `*`{meant}"
        require_none([{"pointer": f"#/{name}", "detail": text} for name, text in wrong.items()])

    def chosen(self, environ: dict[str, Any]) -> tuple[float, Fault | None]:
        """What a request meets: so many seconds of delay, and a fault."""
        seconds = 0.0
        with self._lock:
            for fault in filter(lambda each: _is_for(each, environ), self._faults):
                fault.met += 1
                last = inf if fault.times is None else fault.skip + fault.times
                if not fault.skip < fault.met <= last or self._random.random() >= fault.probability:
                    continue
                if fault.kind != "delay":
                    return seconds, fault
                seconds += self._random.uniform(fault.seconds, fault.seconds_most or fault.seconds)
        return seconds, None


def _methods_at(app: Application, path: str) -> set[str]:
    """The methods of the routes at a path, in any version of the API."""
    prefixes = {found[0] for rule in app.url_map.iter_rules() if (found := _VERSION.match(rule.rule))}
    adapter = app.url_map.bind("localhost")
    return {method for each in ("", *prefixes) for method in adapter.allowed_methods(each + path)}


def is_like(text: str, pattern: str) -> bool:
    """Whether a text is that of a pattern: `*` stands for any characters, all others, such as `[`, for themselves."""
    return fnmatchcase(text, re.sub(r"[?[]", r"[\g<0>]", pattern))


def is_at(path: bytes, pattern: str) -> bool:
    """Whether a path, in any version of the API, is that of a pattern with `*`; this can be percent-encoded."""
    text, pattern = path.decode(errors="replace"), unquote(pattern)
    return is_like(text, pattern) or is_like(_VERSION.sub("", text, 1), pattern)


def _is_for(fault: Fault, environ: dict[str, Any]) -> bool:
    """Whether a fault is for a request."""
    headers = EnvironHeaders(environ)
    return (
        is_like(environ["REQUEST_METHOD"], fault.method.upper())
        and is_at(environ["PATH_INFO"].encode("latin-1"), fault.path)
        and all(is_like(headers.get(name, ""), pattern) for name, pattern in fault.request_headers.items())
    )
