"""A JSON file as a service: its arrays are collections, its objects singletons."""

import atexit
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from signal import SIGTERM
from threading import Thread
from typing import Any, NamedTuple

import click
from flask import Blueprint, Request, Response, send_file

import restkeeper
from restkeeper.clock import Clock
from restkeeper.config import Config
from restkeeper.errors import InvalidJson, Problem
from restkeeper.features.files.declaring import JsonSchema, inlined, resource_of
from restkeeper.features.files.inference import Shape
from restkeeper.features.files.openapi import collections_of, load
from restkeeper.features.files.reading import (
    WITH_COMMENTS,
    Content,
    FileError,
    Id,
    parse,
    read,
    stamp_of,
    value_of,
)
from restkeeper.features.files.sync import LOOK_SECONDS, FileSync, fill, say
from restkeeper.features.harness.control import NewFaultSchema
from restkeeper.features.harness.faults import Faults
from restkeeper.features.harness.spaces import FAULT, fail
from restkeeper.resources.resource import METHODS, Resource
from restkeeper.service import Service, service_of, started_stores
from restkeeper.storage.errors import StoreError
from restkeeper.web import exactjson
from restkeeper.web.application import Application

SQLITE = "sqlite:///"
WAIT_SECONDS = 20.0  # for a file that can be served, while a worker starts: the server ends one that takes longer
_IRREGULAR = {"person": "people", "child": "children", "man": "men", "woman": "women"}


@dataclass(frozen=True)
class FileOptions:
    """How a file is served: `delay` has the least and the most seconds, `fail` a probability."""

    saves: bool = True
    read_only: bool = False
    strict: bool = False
    delay: tuple[float, float] = (0.0, 0.0)
    fail: float = 0.0


class Declared(NamedTuple):
    """What the collections of a file are declared by: JSON Schemas, and by collection the fields that refer to others.

    `lines` are what the start says of it. Of an OpenAPI document, `methods` has those that it describes.
    """

    schemas: dict[str, JsonSchema]
    references: dict[str, dict[str, str]]
    kinds: list[tuple[str, str]]
    lines: list[str]
    methods: Mapping[str, Sequence[str]] = {}  # noqa: RUF012 - never changed

    def resources(self, options: FileOptions, notes: list[str]) -> list[Resource]:
        """The declarations; `notes` gets what fields cannot check. Raises ValueError."""
        return [
            resource_of(
                name,
                self.schemas[name],
                ids="client" if kind == "singleton" else kind,
                singleton=kind == "singleton",
                references=self.references.get(name, {}),
                strict=options.strict,
                methods=("GET",) if options.read_only else self.methods.get(name, METHODS),
                notes=notes,
            )
            for name, kind in self.kinds
        ]


def opened(path: Path) -> tuple[Content, Declared | None]:
    """The content of a file; an OpenAPI document has no items, and declares its collections. Raises FileError."""
    lines = list[str]()
    try:
        if (document := load(path, path.read_bytes())) is None:
            return read(path), None
        found = collections_of(document, lines)
    except ValueError as error:
        raise FileError(f"{path.name}: {error}") from None
    schemas = {name: each.schema for name, each in found.items()}
    methods = {name: each.methods for name, each in found.items()}
    kinds = [(name, each.ids) for name, each in found.items()]
    content = Content({name: {} for name in found}, source=path.read_bytes())
    return content, Declared(schemas, {}, kinds, lines, methods)


def declared_by(path: Path, content: Content) -> Declared:
    """What the collections of a file are declared by: those of the schema beside it, or else of its values.

    Raises FileError.
    """
    beside = path.with_suffix(".schema.json")
    parts: dict[str, Any] = {}
    lines: list[str] = []
    if beside.is_file() and beside.stat().st_size:  # a shell makes it before `restkeeper schema` writes to it
        try:
            document = exactjson.loads(beside.read_bytes())
            parts = {name: inlined(part, document, name, lines) for name, part in document["properties"].items()}
        except (AttributeError, InvalidJson, KeyError, TypeError) as error:
            raise FileError(f"{beside.name}: no JSON Schema of an object with properties: {error}") from None
        except ValueError as error:
            raise FileError(f"{beside.name}: {error}") from None
    schemas, found = dict[str, JsonSchema](), dict[str, dict[str, set[Any]]]()
    with _progress("reading", sum(map(len, content.collections.values()))) as bar:
        for name, member in content.members.items():
            if name[0] == "$":
                continue
            shape, values = Shape(), found.setdefault(name, {})
            texts: Mapping[Id, Any] = member if isinstance(member, dict) else {name: member}
            for number, (id, text) in enumerate(texts.items(), start=1):
                try:
                    value = value_of(text)
                except InvalidJson as problem:
                    raise FileError(f"{path.name}: {name}/{id}: {problem.detail}") from None
                if name not in parts:
                    shape.add(value)
                for key in value if isinstance(member, dict) else ():
                    if key.endswith(("Id", "_id")) and (other := value[key]) is not None:
                        values.setdefault(key, set()).add(other if type(other) in (str, int) else None)
                if number % 1000 == 0:
                    bar.update(1000)
            part = parts.get(name) or shape.schema()
            is_list = name in parts and isinstance(member, dict)
            schemas[name] = part.get("items", {}) if is_list else part
    references, relations = _relations(content.collections, found)
    lines += relations
    kinds = [(name, kind) for name, kind in content.kinds() if name[0] != "$"]
    return Declared(schemas, references, kinds, lines)


def _relations(
    collections: Mapping[str, Mapping[Id, object]], found: Mapping[str, Mapping[str, set[Any]]]
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The fields whose values are all ids of the collection that their name says, and what is to say of each."""
    references, lines = dict[str, dict[str, str]](), []
    for name, values in found.items():
        for field, ids in values.items():
            target = next((each for each in _plurals(field[:-2].rstrip("_")) if each in collections), None)
            if target is None:
                continue
            if missing := sum(id not in collections[target] for id in ids):
                lines.append(f"{name}.{field}: {missing} of {len(ids)} values are no ids of {target}: no relation")
            else:
                references.setdefault(name, {})[field] = target
                lines.append(f"{name}.{field} → {target}")
    return references, lines


def _plurals(singular: str) -> list[str]:
    """The names that a collection of such items can have, by the simplest rules of English."""
    stems = [singular, singular[:-1] + "ies"] if singular.endswith("y") else [singular]
    return [_IRREGULAR.get(singular, f"{singular}s"), f"{singular}es", stems[-1]]


def application_of(
    create: Callable[..., Application],
    path: Path,
    options: FileOptions,
    *,
    config: Config | None = None,
    serves: bool = False,
    until: float = 0.0,
) -> Application:
    """The application of a file, by `restkeeper.create_app`; exits with one line if there can be none.

    With a configuration, as for tests, it is without the file from here on. Without one, the process `serves` it and
    synchronizes the file, or it only tries that: then it prints what it found. One that serves, and so follows another
    one, waits some time for a file that is being edited (`until` a time of `time.monotonic`).
    """
    settings = config or Config.from_env()
    saves = options.saves and not config and settings.database_url.startswith(SQLITE)
    working = Path(settings.database_url.removeprefix(SQLITE)) if saves else None
    try:
        if saves and path.suffix.lower() in WITH_COMMENTS:
            raise FileError(f"{path.name}: comments would be lost in writing: add --no-save")
        stamp, (content, described) = stamp_of(path), opened(path)
        saves = saves and not described
        digest = _digest(path, content.source, options)
        mark = _read_mark(working, digest) if working else None
        if working and mark and mark.digest != digest:  # it was edited meanwhile
            if not described:
                since = content  # if the copy is broken, by a loss of power
                with suppress(FileError):
                    since = parse(_mark_of(working).read_bytes().partition(b"\n")[2], path.name)
                _write_rest(create, path, content, stamp, mark, since, settings)
                stamp, content = stamp_of(path), read(path)
            mark = None
        declared = mark.declared if mark else described or declared_by(path, content)
        notes: list[str] = []
        resources = declared.resources(options, notes)
        blueprints = _own(path.with_name("routes.py"), resources)
        if working and not mark:
            _forget(working, settings.database_url)

        def begin(app: Application, service: Service) -> None:
            _install(app, service, path, options)
            if not mark:
                with _progress("storing", len(content.source)) as bar:
                    fill(service, content, bar.update)

        app = create(config, resources, blueprints=blueprints, name=path.name, begin=begin)
    except (FileError, OSError, ValueError) as error:
        if not serves or 0 < until < time.monotonic():
            sys.exit(f"restkeeper: {error}")
        if not until:
            say(f"{error}: waits for another one")
        time.sleep(LOOK_SECONDS)
        return application_of(create, path, options, serves=True, until=until or time.monotonic() + WAIT_SECONDS)
    service = service_of(app)
    if config or settings.harness:
        return app
    event = mark.event if mark else service.store.last_event()

    def note(data: bytes, event: str) -> Callable[[], object]:
        assert working  # noqa: S101
        return _write_mark(working, Mark(_digest(path, data, options), event, declared), data)

    if working and not mark:
        note(content.source, event)()
    if not serves:
        counts = [f"{len(each)} {name}" if isinstance(each, dict) else name for name, each in content.members.items()]
        say("\n  ".join([f"{path.name}: {', '.join(counts)}", *declared.lines, *notes]))
        return app
    if described:
        return app

    sync = FileSync(
        path,
        service,
        content,
        event=event,
        stamp=stamp,
        saves=saves,
        note=note if working else None,
        check=partial(_try, create, path, options),
        restart=partial(os.kill, os.getpid(), SIGTERM),  # the server starts another process
    )
    Thread(target=sync.run, name="file", daemon=True).start()  # a greenlet, by gevent
    atexit.register(sync.finish)
    return app


def _progress(label: str, length: int) -> Any:
    """A progress bar, if stderr is a terminal and there is something to wait for."""
    hidden = length < 10_000 or not sys.stderr.isatty()
    return click.progressbar(
        length=length, label=label, hidden=hidden, file=sys.stderr, update_min_steps=length // 200 + 1
    )


def _try(create: Callable[..., Application], path: Path, options: FileOptions, content: Content) -> None:
    """Serve a content in memory. Raises FileError or ValueError if that cannot be."""
    resources = declared_by(path, content).resources(options, [])
    create(Config(), resources, begin=lambda app, service: fill(service, content))


def _faults(options: FileOptions, clock: Clock) -> Callable[[Request], None]:
    """The faults of the test harness, for all requests."""
    faults, defaults = Faults(None), NewFaultSchema()
    least, most = options.delay
    for each in (
        {"kind": "delay", "seconds": least, "seconds_most": most},
        {"kind": "respond", "probability": options.fail, "detail": "a fault that was asked for (--fail)"},
    ):
        faults.add(defaults.load(each))

    def meet(request: Request) -> None:
        seconds, request.environ[FAULT] = faults.chosen(request.environ)
        clock.sleep(seconds)
        fail(request)

    return meet


def _public(folder: Path) -> Callable[[Request], Response | None]:
    """Files of a folder, for a GET of what is no route: none that begins with a dot, or is elsewhere."""

    def send(request: Request) -> Response | None:
        parts = [each for each in request.path.split("/") if each]
        if request.url_rule or request.method not in ("GET", "HEAD") or any(part[0] == "." for part in parts):
            return None
        with suppress(OSError, ValueError, RuntimeError):  # a name that is too long, or has NUL; a link to itself
            file = folder.joinpath(*parts).resolve()
            is_folder = file.is_dir()
            file = (file / "index.html").resolve() if is_folder else file
            is_hidden = any(part[0] == "." for part in file.relative_to(folder).parts)  # ValueError: it is elsewhere
            if file.is_file() and not is_hidden and (is_folder or request.path[-1] != "/"):
                return send_file(file, conditional=True, max_age=0)
        return None

    return send


def _install(app: Application, service: Service, path: Path, options: FileOptions) -> None:
    """Have the faults that are asked for, and serve the folder public."""
    at = app.before.index(service.guard.identify)
    if options.fail or options.delay[1]:
        app.before.insert(at, _faults(options, service.clock))
    if (folder := path.with_name("public")).is_dir():
        app.before.insert(at, _public(folder.resolve()))


def _own(file: Path, resources: list[Resource]) -> list[Blueprint]:
    """What routes.py adds: actions and functions of the resources, and blueprints."""
    if not file.is_file():
        return []
    spec = spec_from_file_location("routes", file)
    assert spec and spec.loader  # noqa: S101 - it is a file that ends in .py
    module = sys.modules["routes"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    if declare := getattr(module, "declare", None):
        declare({each.name: each for each in resources})
    return list(getattr(module, "blueprints", ()))


class Mark(NamedTuple):
    """What the store beside a file is of: the digest of the file, and the event up to which the file has all.

    It is stored with a copy of the file.
    """

    digest: str
    event: str
    declared: Declared


def _mark_of(working: Path) -> Path:
    return working.with_suffix(".mark")


def _next_of(working: Path) -> Path:
    return working.with_suffix(".next")


def _read_mark(working: Path, digest: str) -> Mark | None:
    """None if there is no store. The next mark counts if the file is as that says: it was written before the end."""
    if not working.is_file():
        return None
    with suppress(OSError):
        if (next := _mark_in(_next_of(working))) and next.digest == digest:
            _next_of(working).replace(_mark_of(working))
    return _mark_in(_mark_of(working))


def _mark_in(path: Path) -> Mark | None:
    with suppress(OSError, InvalidJson, TypeError, ValueError), path.open("rb") as file:
        digest, event, declared = exactjson.loads(file.readline())
        return Mark(digest, event, Declared(*declared))
    return None


def _write_mark(working: Path, mark: Mark, data: bytes) -> Callable[[], object]:
    """Write a mark, with a copy of what the file will be; what it returns makes it the only one."""
    next = _next_of(working)
    with next.open("wb") as file:
        file.write(exactjson.dumps([*mark[:2], list(mark.declared)]) + b"\n")
        file.write(data)
    return partial(next.replace, _mark_of(working))


def _forget(working: Path, url: str) -> None:
    """Delete the store, of another content."""
    started_stores.discard(url)
    for each in (_mark_of(working), _next_of(working), working, *(Path(f"{working}{end}") for end in ("-wal", "-shm"))):
        each.unlink(missing_ok=True)


def _digest(path: Path, data: bytes, options: FileOptions) -> str:
    """Of all that a store follows from."""
    beside = path.with_suffix(".schema.json")
    schema = beside.read_bytes() if beside.is_file() else b""
    parts = (restkeeper.__version__.encode(), b"strict" * options.strict, schema, data)
    return blake2b(b"\0".join(blake2b(each).digest() for each in parts), digest_size=16).hexdigest()


def _write_rest(
    create: Callable[..., Application],
    path: Path,
    content: Content,
    stamp: tuple[int, ...],
    mark: Mark,
    since: Content,
    settings: Config,
) -> None:
    """Write what the file does not have yet of the last run; the file wins where both have changed `since`."""
    try:
        resources = mark.declared.resources(FileOptions(), [])
        service = service_of(create(replace(settings, webhook_worker="apart"), resources))
        with closing(service.store):
            FileSync(path, service, content, event=mark.event, stamp=stamp).write(since)
    except (Problem, StoreError, ValueError) as error:
        say(f"{path.name}: what was not written to it when the service ended is lost: {error}")
