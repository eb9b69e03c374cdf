"""Faults that a test asks for: what a service, its store or the network does on a bad day, for chosen requests."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from math import inf
from random import Random
from threading import Lock
from types import SimpleNamespace
from typing import Any

from restkeeper.errors import Conflict

KINDS = {
    "respond": "A response with a `status`: the problem of that, or a `body`.",
    "delay": "Some seconds; then the next fault, or the service.",
    "close": "The connection ends, and the service does nothing.",
    "drop_response": "The service does its work, and the connection ends before the response.",
    "cut_response": "The response ends in the middle of its content.",
    "fail_store": "A response as while the store is away: before the work, or with `committed` after it.",
}
MOST_FAULTS = 100
_VERSION = re.compile(r"/api/v\d+(?=/)")

Fault = SimpleNamespace  # with the fields of control.NewFaultSchema


class Faults:
    """The faults of a space, in order. With a seed, the same requests in the same order have the same faults."""

    def __init__(self, seed: int | None) -> None:
        self._random = Random(seed)  # noqa: S311 - no secret
        self._lock = Lock()
        self._faults: list[Fault] = []

    def add(self, declared: Mapping[str, Any]) -> None:
        """Add a fault, with the fields of control.NewFaultSchema. Raises Conflict for more than MOST_FAULTS."""
        if len(self._faults) >= MOST_FAULTS:
            raise Conflict(f"a space has at most {MOST_FAULTS} faults")
        self._faults.append(Fault(**declared, met=0))

    def clear(self) -> None:
        """Have none any more."""
        self._faults.clear()

    def chosen(self, environ: Mapping[str, Any]) -> tuple[float, Fault | None]:
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


def is_at(path: bytes, pattern: str) -> bool:
    """Whether a path, in any version of the API, is that of a pattern with `*`."""
    text = path.decode(errors="replace")
    return fnmatchcase(text, pattern) or fnmatchcase(_VERSION.sub("", text, 1), pattern)


def _is_for(fault: Fault, environ: Mapping[str, Any]) -> bool:
    """Whether a fault is for a request."""
    keys = {name: name.upper().replace("-", "_") for name in fault.headers}
    given = {name: environ.get(f"HTTP_{key}", environ.get(key, "")) for name, key in keys.items()}
    return (
        fnmatchcase(environ["REQUEST_METHOD"], fault.method.upper())
        and is_at(environ["PATH_INFO"].encode("latin-1"), fault.path)
        and all(fnmatchcase(given[name], pattern) for name, pattern in fault.headers.items())
    )
