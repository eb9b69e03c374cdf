"""`python -m bench.calls`: the calls of our functions by one request, by module, and those from one module into
another one.

The service itself (app.py, resources/, schemas/) is one module here. Resumed comprehensions and generators are no
calls. The requests have a key, limits and a log, and run in this process, on a store in memory, after some requests of
the same kind, so that work that is done only once is not counted.
"""

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr
from inspect import CO_GENERATOR
from io import StringIO
from itertools import count as count_up
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from uuid import uuid4

import orjson
from werkzeug.test import EnvironBuilder, run_wsgi_app

from app import create_app
from restkeeper import Config

ROOT = Path(__file__).parent.parent
ENGINE = ROOT / "restkeeper"
SERVICE = (ROOT / "app.py", ROOT / "resources", ROOT / "schemas")
IN_PLACE = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
ADMIN_KEY = "an-admin-key-of-enough-characters"
WARM_UP = 3  # requests of each kind


class Counts(NamedTuple):
    """`calls` of our functions, by module; `changes`: calls from one module (of our nearest caller) into another."""

    calls: Counter[str]
    changes: Counter[tuple[str, str]]


def module_of(file: Path) -> str:
    """The module of a file, below `restkeeper`; empty for one that is not ours."""
    if file.is_relative_to(ENGINE):
        return file.relative_to(ENGINE).with_suffix("").as_posix().removesuffix("/__init__")
    return "the service" if any(file.is_relative_to(part) for part in SERVICE) else ""


class _Counter:
    """A profile function (sys.setprofile) that fills `counts`."""

    def __init__(self) -> None:
        self.counts = Counts(Counter(), Counter())
        self._modules: dict[CodeType, str] = {}
        self._started: list[FrameType] = []  # generators: a stored frame cannot be reused for another call

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not (module := self._module(frame)):
            return
        if frame.f_code.co_flags & CO_GENERATOR:
            if any(frame is each for each in self._started):
                return
            self._started.append(frame)
        self.counts.calls[module] += 1
        if (caller := self._caller(frame)) and caller != module:
            self.counts.changes[caller, module] += 1

    def _module(self, frame: FrameType) -> str:
        code = frame.f_code
        if (module := self._modules.get(code)) is None:
            module = "" if code.co_name in IN_PLACE else module_of(Path(code.co_filename))
            self._modules[code] = module
        return module

    def _caller(self, frame: FrameType) -> str:
        """The module of our nearest function that called this one."""
        above = frame.f_back
        while above is not None:
            if module := self._module(above):
                return module
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
    """The counts of a create with an idempotency key, of a list that is not cached, and of one item, by request."""
    app = create_app(Config(auth="required", admin_key=ADMIN_KEY, log_level="info"))

    def call(method: str, path: str, key: str, body: bytes = b"") -> Any:
        headers = {"X-API-Key": key} | ({"Idempotency-Key": uuid4().hex} if method == "POST" else {})
        builder = EnvironBuilder(path, method=method, data=body, content_type="application/json", headers=headers)
        content, status, _ = run_wsgi_app(app, builder.get_environ(), buffered=True)
        assert status == "200 OK", status  # noqa: S101
        return orjson.loads(b"".join(content))

    scopes = ["products:read", "products:write"]
    key = call("POST", "/api/v1/keys", ADMIN_KEY, orjson.dumps({"name": "bench", "scopes": scopes}))["secret"]
    limits = count_up(1)

    def create() -> Any:
        return call("POST", "/products", key, orjson.dumps({"name": "Lamp", "price": 49.9, "tags": ["office"]}))

    def list_uncached() -> None:
        call("GET", f"/products?limit={next(limits)}", key)

    for _ in range(WARM_UP):
        id = create()["id"]
        list_uncached()
        call("GET", f"/products/{id}", key)
    return {
        "POST /products": count(create),
        "GET /products": count(list_uncached),
        "GET /products/ID": count(lambda: call("GET", f"/products/{id}", key)),
    }


def main() -> None:
    with redirect_stderr(StringIO()):
        counted = counts_of_requests()
    for request, (calls, changes) in counted.items():
        print(f"{request}: {calls.total()} calls in {len(calls)} modules, {changes.total()} changes of module")
        print("  calls    ", ", ".join(f"{module} {number}" for module, number in calls.most_common()))
        print("  changes  ", ", ".join(f"{one} → {other} {n}" for (one, other), n in changes.most_common()))


if __name__ == "__main__":
    main()
