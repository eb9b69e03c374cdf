"""What a test asks for: faults, as a service, its store or the network has them on a bad day, and other responses."""

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain
from random import Random
from types import SimpleNamespace
from typing import Any

from restkeeper import exactjson
from restkeeper.errors import Conflict, NotFound
from restkeeper.exactjson import require_none
from restkeeper.features.harness.matching import VERSION, is_at, is_for, is_like, unlike
from restkeeper.web.application import Application
from restkeeper.web.bodies import JSON

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
STUB, RESPONSES = "stub", "webhooks.respond"  # kinds of declarations that are no faults
MOST_FAULTS = 100


class Declared(SimpleNamespace):
    """A fault or a stub, with the fields of its schema in `documents`, or responses to deliveries.

    `met` is how many times it has happened, and `seen` how many requests it was for.
    """

    kind: str
    times: int | None = None
    met = seen = 0

    @property
    def is_met(self) -> bool:
        """Whether the fault or stub has happened as often as declared, or once."""
        return self.met >= (self.times or 1)

    @property
    def message(self) -> str:
        """What it is, and how often it has happened."""
        what = ", ".join(map(str, self.statuses)) if self.kind == RESPONSES else f"{self.method} {self.path}"
        return f"{self.kind} {what}: {self.met} of {self.times or 1} times"

    @property
    def content(self) -> tuple[bytes, str] | None:
        """The content of a response that is declared, and its media type."""
        if hasattr(self, "json"):
            return exactjson.dumps(self.json), JSON
        if self.bytes is not None:
            return self.bytes, "application/octet-stream"
        return None if self.text is None else (self.text.encode(), "text/plain; charset=utf-8")


class Faults:
    """The faults of a space, in order, its stubs, and its responses to deliveries, each with one of these `numbers`.

    With a seed, the same requests in the same order have the same faults. Requests that the application cannot get have
    none.
    """

    def __init__(self, seed: int | None, app: Application, numbers: Iterator[int]) -> None:
        self._random = Random(seed)  # noqa: S311 - no secret
        self._app, self._numbers = app, numbers
        self._lock = threading.Lock()
        self._faults: list[Declared] = []
        self._stubs: list[Declared] = []  # the last one first
        self._responses: list[Declared] = []  # one, or none
        self._missed = deque[Declared](maxlen=MOST_FAULTS)  # that have ended, and were unmet

    def add(self, declared: Mapping[str, Any]) -> Declared:
        """Add a fault.

        Raises Conflict for more than MOST_FAULTS, and ValidationFailed for a fault that cannot happen.
        """
        self._require_possible(declared["method"].upper(), declared["path"])
        self._faults.append(fault := Declared(**declared, number=next(self._numbers)))
        return fault

    def add_stub(self, declared: Mapping[str, Any]) -> Declared:
        """Add a stub. Raises as `add`, and ValidationFailed for a route."""
        self._require_possible(declared["method"].upper(), declared["path"], is_stub=True)
        self._stubs.insert(0, stub := Declared(**declared, kind=STUB, number=next(self._numbers)))
        return stub

    def set_responses(self, statuses: list[int]) -> Declared:
        """Have these statuses of the next responses to deliveries."""
        number, times = next(self._numbers), len(statuses)
        declared = Declared(kind=RESPONSES, statuses=statuses, times=times, number=number)
        self._end(self._responses)
        self._responses = [declared] if statuses else []
        return declared

    def next_status(self) -> int | None:
        """The status of the next response to a delivery, if a test has one."""
        for declared in self._responses:
            if not declared.is_met:
                declared.met += 1
                return int(declared.statuses[declared.met - 1])
        return None

    def stub_for(self, sent: Any, *, is_missing: bool) -> Declared | None:
        """The stub for a request. If all else `is_missing`, raises NotFound if there are only others at its path."""
        at_path = [stub for stub in self._stubs if is_at(sent.path, stub.path)]
        if stub := next((stub for stub in at_path if _is_for(sent, stub)), None):
            stub.met += 1
        elif at_path and is_missing:
            other = at_path[0]
            wrong = "; ".join(unlike(sent, other))
            raise NotFound(f"no route, and the stub {other.method} {other.path} is not for this request: {wrong}")
        return stub

    @property
    def unmet(self) -> list[Declared]:
        """The declarations that have not happened as often as declared, also cleared and replaced ones."""
        present = chain(self._missed, self._faults, self._stubs, self._responses)
        return [declared for declared in present if not declared.is_met]

    def clear(self) -> None:
        """Have no faults any more."""
        self._end(self._faults)
        self._faults = []

    def _end(self, declared: list[Declared]) -> None:
        self._missed.extend(declaration for declaration in declared if not declaration.is_met)

    def _require_possible(self, method: str, path: str, *, is_stub: bool = False) -> None:
        if len(self._faults) + len(self._stubs) >= MOST_FAULTS:
            raise Conflict(f"a space has at most {MOST_FAULTS} faults and stubs")
        rules, here, wrong = [*self._app.url_map.iter_rules()], _methods_at(self._app, path), {}
        methods = sorted({method for rule in rules for method in rule.methods or ()})
        if not any(is_like(existing, method) for existing in methods):
            wrong["method"] = f"is none of {', '.join(methods)}, nor a pattern with `*`"
        if "?" in path or "#" in path:
            wrong["path"] = "must be without a query: a path is one with every query"
        elif is_stub and any(is_like(allowed, method) for allowed in here):
            wrong["path"] = "is a route of the service, which a fault can respond for"
        elif not (is_stub or here or "*" in path or any(is_at(path.encode(), stub.path) for stub in self._stubs)):
            wrong["path"] = "is no route, no stub, and no pattern with `*`"
        require_none([{"pointer": f"#/{name}", "detail": text} for name, text in wrong.items()])

    def chosen(self, sent: Any) -> tuple[float, Declared | None]:
        """What a request meets: so many seconds of delay, and a fault. All that are for it count it."""
        seconds, chosen = 0.0, None
        with self._lock:
            for fault in [fault for fault in self._faults if _is_for(sent, fault)]:
                fault.seen += 1
                is_due = chosen is None and fault.seen > fault.skip and fault.met != fault.times
                if not is_due or self._random.random() >= fault.probability:
                    continue
                fault.met += 1
                if fault.kind == "delay":
                    seconds += self._random.uniform(fault.seconds, fault.seconds_most or fault.seconds)
                else:
                    chosen = fault
        return seconds, chosen


def _is_for(sent: Any, declared: Declared) -> bool:
    if hasattr(declared, "request_json"):
        sent.content.receive()
    return is_for(sent, declared)


def _methods_at(app: Application, path: str) -> set[str]:
    """The methods of the routes at a path, in any version of the API."""
    prefixes = {version[0] for rule in app.url_map.iter_rules() if (version := VERSION.match(rule.rule))}
    adapter = app.url_map.bind("localhost")
    return {method for prefix in ("", *prefixes) for method in adapter.allowed_methods(prefix + path)}
