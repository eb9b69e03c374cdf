"""`python -m bench.calls`: the calls of our functions by one request: how many, in how many modules, and how many go
up, from a module to one of a higher floor.

The service itself is one module here. Resumed comprehensions and generators are no calls. The requests run in this
process, after some requests of the same kind, so that work that is done only once is not counted. Those of the first
two have a key, limits and a log.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from functools import partial
from inspect import CO_GENERATOR
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, NamedTuple
from uuid import uuid4

import orjson
from werkzeug.test import EnvironBuilder, run_wsgi_app

import resources
import restkeeper
from restkeeper import Application, Config, ItemSchema, Resource, Whole, find_resources
from restkeeper.features import files
from restkeeper.service import service_of
from tests.clock import SetClock
from tests.postgresql_server import PostgresServer
from versions import VERSIONS

ROOT = Path(__file__).parent.parent
ENGINE = ROOT / "restkeeper"
SERVICE = (ROOT / "app.py", ROOT / "reports.py", ROOT / "resources", ROOT / "schemas", ROOT / "bench")
FLOORS = (  # from the lowest to the highest: the order of docs/architecture.md
    {"clock", "errors", "exactjson", "net", "parsing", "versions", "mistakes"},
    *({"config"}, {"storage"}, {"schemas"}, {"resources"}),
    *({"web"}, {"service"}, {"features"}, {"cli"}, {"app"}, {"server"}, {"the service"}),
)
IN_PLACE = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
ADMIN_KEY = "an-admin-key-of-enough-characters"
WARM_UP = 3  # requests of each kind
ROUNDS = 5  # of which the one with the fewest calls counts: some requests also delete what has expired


class Counts(NamedTuple):
    """`calls` of our functions, by module; `changes`: calls from one module (of our nearest caller) into another."""

    calls: Counter[str]
    changes: Counter[tuple[str, str]]

    @property
    def up(self) -> Counter[tuple[str, str]]:
        """The changes from a floor to a higher one."""
        return Counter({pair: n for pair, n in self.changes.items() if floor_of(pair[0]) < floor_of(pair[1])})

    @property
    def summary(self) -> tuple[int, int, int]:
        """Calls, modules, and calls up."""
        return self.calls.total(), len(self.calls), self.up.total()


def floor_of(module: str) -> int:
    """The number of a module's floor, from 0."""
    part = module.partition("/")[0]
    return next(number for number, parts in enumerate(FLOORS) if part in parts)


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


class CounterSchema(ItemSchema):
    """What a function counts."""

    count = Whole(0, load_default=0)


def counters() -> Resource:
    """Items with a function before each change."""
    resource = Resource("counters", "counter", CounterSchema)

    @resource.before("update")
    def add(counter: dict[str, Any], before: dict[str, Any] | None, items: restkeeper.Items) -> None:
        """Count a change, if there is the counter."""
        counter["count"] += 1 if items.read("counters", counter["id"]) else 0

    return resource


def call(app: Application, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """The body of a successful response to a request with this JSON."""
    data = b"" if body is None else orjson.dumps(body)
    builder = EnvironBuilder(path, method=method, data=data, content_type="application/json", headers=headers)
    content, status, _ = run_wsgi_app(app, builder.get_environ(), buffered=True)
    assert status.startswith("20"), (status, b"".join(content))  # noqa: S101
    return orjson.loads(b"".join(content))


@contextmanager
def with_key() -> Iterator[dict[str, Callable[[], object]]]:
    """Requests to a service in memory, with a key."""
    config = Config(auth="required", admin_key=ADMIN_KEY, log_level="info")
    clock = SetClock()  # nothing is due between two requests, however long they take
    app = restkeeper.create_app(config, find_resources(resources), versions=VERSIONS, clock=clock)
    sent = {"name": "bench", "scopes": ["products:read", "products:write"]}
    key = {"X-API-Key": call(app, "POST", "/api/v1/keys", sent, **{"X-API-Key": ADMIN_KEY})["secret"]}

    def create() -> Any:
        lamp = {"name": "Lamp", "price": 49.9, "tags": ["office"]}
        return call(app, "POST", "/products", lamp, **key, **{"Idempotency-Key": uuid4().hex})

    path = f"/products/{create()['id']}"
    yield {"GET of one item": lambda: call(app, "GET", path, **key), "POST with a key": create}


@contextmanager
def on_postgresql(url: str) -> Iterator[dict[str, Callable[[], object]]]:
    """A batch of one PATCH, before which a function reads the item, on an empty database."""
    app = restkeeper.create_app(Config(database_url=url), [counters()])
    path = f"/counters/{call(app, 'POST', '/counters', {})['id']}"
    batch = {"operations": [{"method": "PATCH", "path": path, "body": {"count": 5}}]}
    yield {"batch with a function on PostgreSQL": lambda: call(app, "POST", "/api/v1/batch", batch)}
    service_of(app).store.close()


@contextmanager
def of_file(file: Path) -> Iterator[dict[str, Callable[[], object]]]:
    """A POST to a JSON file."""
    file.write_text('{"posts": [{"id": 1, "title": "a"}]}', encoding="utf-8")
    create = partial(restkeeper.create_app, clock=SetClock())
    app = files.application_of(create, file, files.FileOptions(), config=Config())
    yield {"POST to a JSON file": lambda: call(app, "POST", "/posts", {"title": "b"})}


def counts_of_requests(url: str) -> dict[str, Counts]:
    """The counts of four requests, by name; `url` is of an empty PostgreSQL database."""
    with ExitStack() as stack, redirect_stderr(StringIO()):
        file = Path(stack.enter_context(TemporaryDirectory())) / "db.json"
        requests = [stack.enter_context(each) for each in (with_key(), on_postgresql(url), of_file(file))]
        counts = {}
        for name, act in (pair for part in requests for pair in part.items()):
            for _ in range(WARM_UP):
                act()
            counts[name] = min((count(act) for _ in range(ROUNDS)), key=lambda counted: counted.calls.total())
        return counts


def main() -> None:
    with PostgresServer() as server:
        counted = counts_of_requests(server.create_database())
    for request, counts in counted.items():
        calls, modules, up = counts.summary
        print(f"{request}: {calls} calls in {modules} modules, {up} up")
        print("  calls ", ", ".join(f"{module} {number}" for module, number in counts.calls.most_common()))
        print("  up    ", ", ".join(f"{one} → {other} {n}" for (one, other), n in counts.up.most_common()))


if __name__ == "__main__":
    main()
