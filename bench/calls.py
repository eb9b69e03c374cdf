"""`python -m bench.calls`: how many of our functions one request calls, and how often a call enters another room.

A room is the first folder or module under `restkeeper/`, and each feature (`features/keys`); the service itself
(app.py, resources/, schemas/) is one, too. Resumed comprehensions and generators are no calls. The requests run in this
process, on a store in memory, after some requests of the same kind, so that work that is done only once is not counted.
"""

import sys
from collections import Counter
from collections.abc import Callable
from inspect import CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import orjson
from werkzeug.test import EnvironBuilder, run_wsgi_app

from app import create_app
from restkeeper import Config

ROOT = Path(__file__).parent.parent
ENGINE = ROOT / "restkeeper"
SERVICE = (ROOT / "app.py", ROOT / "resources", ROOT / "schemas")
IN_PLACE = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
WARM_UP = 3  # requests of each kind


class Counts(NamedTuple):
    """`calls` of our functions, by room; `changes`: calls from one room (of our nearest caller) into another."""

    calls: Counter[str]
    changes: Counter[tuple[str, str]]


def room_of(file: Path) -> str:
    """The room that a file belongs to; empty for one that is not ours."""
    if file.is_relative_to(ENGINE):
        first, *others = file.relative_to(ENGINE).with_suffix("").parts
        return f"features/{others[0]}" if first == "features" and others else first
    return "the service" if any(file.is_relative_to(part) for part in SERVICE) else ""


class _Counter:
    """A profile function (sys.setprofile) that fills `counts`."""

    def __init__(self) -> None:
        self.counts = Counts(Counter(), Counter())
        self._rooms: dict[CodeType, str] = {}
        self._started: list[FrameType] = []  # generators: a stored frame cannot be reused for another call

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not (room := self._room(frame)):
            return
        if frame.f_code.co_flags & CO_GENERATOR:
            if any(frame is each for each in self._started):
                return
            self._started.append(frame)
        self.counts.calls[room] += 1
        if (caller := self._caller(frame)) and caller != room:
            self.counts.changes[caller, room] += 1

    def _room(self, frame: FrameType) -> str:
        code = frame.f_code
        if (room := self._rooms.get(code)) is None:
            room = "" if code.co_name in IN_PLACE else room_of(Path(code.co_filename))
            self._rooms[code] = room
        return room

    def _caller(self, frame: FrameType) -> str:
        """The room of our nearest function that called this one."""
        above = frame.f_back
        while above is not None:
            if room := self._room(above):
                return room
            above = above.f_back
        return ""


def count(act: Callable[[], object]) -> Counts:
    """The calls that `act` makes."""
    counter = _Counter()
    sys.setprofile(counter)
    try:
        act()
    finally:
        sys.setprofile(None)
    return counter.counts


def counts_of_requests() -> dict[str, Counts]:
    """The counts of a create and of the list with the new item, by request."""
    app = create_app(Config())

    def call(method: str, body: bytes = b"") -> None:
        environ = EnvironBuilder("/products", method=method, data=body, content_type="application/json").get_environ()
        _, status, _ = run_wsgi_app(app, environ, buffered=True)
        assert status == "200 OK", status  # noqa: S101

    def create() -> None:
        call("POST", orjson.dumps({"name": "Lamp", "price": 49.9, "tags": ["office"]}))

    for _ in range(WARM_UP):
        create()
        call("GET")
    return {"POST /products": count(create), "GET /products": count(lambda: call("GET"))}


def main() -> None:
    for request, counts in counts_of_requests().items():
        print(f"{request}: {counts.calls.total()} calls, {counts.changes.total()} changes of room")
        print("  calls    ", ", ".join(f"{room} {number}" for room, number in counts.calls.most_common()))
        print("  changes  ", ", ".join(f"{one} → {other} {n}" for (one, other), n in counts.changes.most_common()))


if __name__ == "__main__":
    main()
