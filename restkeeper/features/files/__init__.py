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
from restkeeper.clock import YIELD_SECONDS, Clock
from restkeeper.config import Config
from restkeeper.errors import InvalidJson, Problem
from restkeeper.features.files.declaring import JsonSchema, inlined, resource_of
from restkeeper.features.files.inference import Shape
from restkeeper.features.files.openapi import collections_of, load
from restkeeper.features.files.reading import (
    WITH_COMMENTS,
    Content,
    FileError,
    Stamp,
    load_json,
    parse,
    read,
    stamp_of,
    value_of,
)
from restkeeper.features.files.sync import LOOK_SECONDS, FileSync, apart, fill, say
from restkeeper.features.harness.control import NewFaultSchema
from restkeeper.features.harness.faults import Faults
from restkeeper.features.harness.spaces import FAULT, fail
from restkeeper.mistakes import mistake_in
from restkeeper.resources.resource import METHODS, Resource
from restkeeper.service import Service, service_of, started_stores
from restkeeper.storage.errors import StoreError
from restkeeper.web import exactjson
from restkeeper.web.application import Application

SQLITE = "sqlite:///"
SCHEMA, DATA = ".schema.json", ".data.json"  # what may be beside a JSON file, and beside an OpenAPI document
MARK, NEXT = ".mark", ".next"  # the files beside a store that have its mark, and that of the next write
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
        resources = []
        for name, kind in self.kinds:
            try:
                resource = resource_of(
                    name,
                    self.schemas[name],
                    ids="client" if kind == "singleton" else kind,
                    singleton=kind == "singleton",
                    references=self.references.get(name, {}),
                    strict=options.strict,
                    methods=("GET",) if options.read_only else self.methods.get(name, METHODS),
                    names=dict(self.kinds),
                    notes=notes,
                )
            except (AttributeError, TypeError) as error:  # such as of a maxLength that is a text
                raise ValueError(f"{name}: the schema is not understood: {error}") from None
            resources.append(resource)
        return resources


def opened(path: Path) -> tuple[Content, Declared | None]:
    """The content of a file; that of an OpenAPI document, which declares it, is in a file beside. Raises FileError."""
    lines = list[str]()
    try:
        if (document := load(path, path.read_bytes())) is None:
            return read(path), None
        found = collections_of(document, lines)
    except ValueError as error:
        raise FileError(f"{path.name}: {error}") from None
    kinds = {name: each.ids for name, each in found.items()}
    content = items_of(kinds, data := path.with_suffix(DATA))
    for name, texts in content.collections.items():
        if texts and name not in found:
            lines.append(f"{name}: not described, so its {len(texts)} items stay in {data.name}")
    schemas = {name: each.schema for name, each in found.items()}
    methods = {name: each.methods for name, each in found.items()}
    return content, Declared(schemas, {}, [*kinds.items()], lines, methods)


def items_of(kinds: Mapping[str, str], data: Path) -> Content:
    """What the file of a document has of collections with these kinds of ids, and of others. Raises FileError."""
    content = read(data) if data.exists() else Content({}, b"\n", b"  ", b"\n")
    for name, ids in kinds.items():
        if content.members.setdefault(name, {}) and (name, ids) not in content.kinds():
            wanted = "texts" if ids == "client" else "integers"
            raise FileError(f"{data.name}: {name!r} must be an array of items whose ids are {wanted}")
    return content


def declared_by(path: Path, content: Content) -> Declared:
    """What the collections of a file are declared by: those of the schema beside it, or else of its values.

    Raises FileError.
    """
    beside, parts, lines = path.with_suffix(SCHEMA), dict[str, Any](), list[str]()
    if beside.is_file() and beside.stat().st_size:  # a shell makes it before `restkeeper schema` writes to it
        try:
            document = load_json(beside.name, beside.read_bytes())
            parts = {name: inlined(part, document, name, lines) for name, part in document["properties"].items()}
        except (AttributeError, KeyError, TypeError) as error:
            raise FileError(f"{beside.name}: no JSON Schema of an object with properties: {error}") from None
        except ValueError as error:
            raise FileError(f"{beside.name}: {error}") from None
    schemas, found = dict[str, JsonSchema](), dict[str, dict[str, set[Any]]]()
    kinds = [(name, kind) for name, kind in content.kinds() if name[0] != "$"]
    with _progress("reading", sum(map(len, content.collections.values()))) as bar:
        for name, _ in kinds:
            member, shape, values = content.members[name], Shape(), found.setdefault(name, {})
            texts: Mapping[Any, Any] = member if isinstance(member, dict) else {name: member}
            for number, (id, text) in enumerate(texts.items(), start=1):
                try:
                    value = value_of(text)
                except InvalidJson as problem:
                    raise content.fault(name, id, problem.detail) from None
                if name not in parts:
                    shape.add(value)
                for key in value if isinstance(member, dict) else ():
                    if key.endswith(("Id", "_id")):
                        ids, other = values.setdefault(key, set()), value[key]
                        ids.update([] if other is None else [other if type(other) in (str, int) else None])
                if number % 1000 == 0:
                    bar.update(1000)
                    time.sleep(YIELD_SECONDS)
            part = parts.get(name) or shape.schema()
            schemas[name] = part.get("items", {}) if name in parts and isinstance(member, dict) else part
    return Declared(schemas, _relations(content.collections, found, lines), kinds, lines)


def _relations(
    collections: Mapping[str, Mapping[Any, object]], found: Mapping[str, Mapping[str, set[Any]]], lines: list[str]
) -> dict[str, dict[str, str]]:
    """The fields whose values are all ids of the collection that their name says; `lines` get what is to say."""
    references = dict[str, dict[str, str]]()
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
    return references


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
        stamps = {each: stamp_of(each) for each in (path, path.with_suffix(SCHEMA), path.with_suffix(DATA))}
        content, described = opened(path)
        data, schema = (path.with_suffix(DATA), path) if described else (path, path.with_suffix(SCHEMA))
        digest = partial(_digest, schema.read_bytes() if schema.is_file() else b"", options)
        mark = _read_mark(working, digest(content.source)) if working else None
        if working and mark and mark.digest != digest(content.source):  # it was edited meanwhile
            if described:
                content = items_of(dict([*mark.declared.kinds, *described.kinds]), data)
            _write_rest(create, data, content, stamps[data], mark, working)
            _forget(working, settings.database_url)
            return application_of(create, path, options, serves=serves, until=until)
        declared = mark.declared if mark else described or declared_by(path, content)
        resources = declared.resources(options, notes := list[str]())
        blueprints = _own(path.with_name("routes.py"), resources)
        if working and not mark:
            _forget(working, settings.database_url)

        def begin(app: Application, service: Service) -> None:
            at = app.before.index(service.guard.identify)
            if options.fail or options.delay[1]:
                app.before.insert(at, _faults(options, service.clock))
            if (folder := path.with_name("public")).is_dir():
                app.before.insert(at, _public(folder.resolve()))
            if not mark:
                with _progress("storing", len(content.source)) as bar:
                    fill(service, content, bar.update)

        app = create(config, resources, blueprints=blueprints, name=path.name, begin=begin)
    except (FileError, OSError, ValueError) as error:
        if not serves or 0 < until < time.monotonic():
            sys.exit(f"restkeeper: {mistake_in(error) or error}")
        if not until:
            say(f"{error}: waits for another one")
        time.sleep(LOOK_SECONDS)
        return application_of(create, path, options, serves=True, until=until or time.monotonic() + WAIT_SECONDS)
    service = service_of(app)
    if config or settings.harness:
        return app
    event = mark.event if mark else service.store.last_event()
    note = partial(_write_mark, working, digest, declared)
    if not mark:
        note(content.source, event)()
    lines = [*declared.lines, *notes]
    if not serves:
        members = [(name, content.members[name]) for name, _ in declared.kinds]
        counts = [f"{len(each)} {name}" if isinstance(each, dict) else name for name, each in members]
        say("\n  ".join([f"{path.name}: {', '.join(counts)}", *lines]))
        return app
    sync = FileSync(
        data,
        service,
        content,
        event=event,
        stamp=stamps[data],
        watch=partial(stamp_of, schema),
        watched=stamps[schema],
        saves=saves,
        opens=partial(items_of, dict(described.kinds)) if described else read,
        note=note,
        restart=partial(_restart, create, path, options, lines),
    )
    Thread(target=_synchronize, args=(sync,), name="file", daemon=True).start()  # a greenlet, by gevent
    atexit.register(sync.finish)
    return app


def _synchronize(sync: FileSync) -> None:
    """Run until the end; after an unexpected error the server starts another process, which writes what is missing."""
    try:
        sync.run()
    finally:
        if not sync.is_over:
            os.kill(os.getpid(), SIGTERM)


def _progress(label: str, length: int) -> Any:
    """A progress bar, if stderr is a terminal and there is something to wait for."""
    hidden = length < 10_000 or not sys.stderr.isatty()
    return click.progressbar(
        length=length, label=label, hidden=hidden, file=sys.stderr, update_min_steps=length // 200 + 1
    )


def _restart(
    create: Callable[..., Application], path: Path, options: FileOptions, said: Sequence[str], reason: str
) -> None:
    """End this process, and say what the next one has. Raises FileError or ValueError if it cannot be served."""
    content, described = apart(opened, path)
    declared = described or declared_by(path, content)
    resources = declared.resources(options, notes := list[str]())
    create(Config(), resources, begin=lambda app, service: fill(service, content))
    lines = [each for each in (*declared.lines, *notes) if each not in said]
    say("\n  ".join([f"{path.name}: {reason}: the service starts again", *lines]))
    os.kill(os.getpid(), SIGTERM)  # the server starts another one


def _faults(options: FileOptions, clock: Clock) -> Callable[[Request], None]:
    """The faults of the test harness, for all requests."""
    faults, defaults = Faults(None), NewFaultSchema()
    least, most = options.delay
    failure = {"kind": "respond", "probability": options.fail, "detail": "a fault that was asked for (--fail)"}
    for each in ({"kind": "delay", "seconds": least, "seconds_most": most}, failure):
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
    """The digest of the file that a store is of, and the event up to which the file has all; beside it is a copy."""

    digest: str
    event: str
    declared: Declared


def _read_mark(working: Path, digest: str) -> Mark | None:
    """None if there is no store. The next mark counts if the file is as that says: it was written before the end."""
    for suffix in (NEXT, MARK):
        with suppress(OSError, InvalidJson, TypeError, ValueError), working.with_suffix(suffix).open("rb") as file:
            found, event, declared = exactjson.loads(file.readline())
            if working.is_file() and (suffix == MARK or found == digest):
                working.with_suffix(suffix).replace(working.with_suffix(MARK))
                return Mark(found, event, Declared(*declared))
    return None


def _write_mark(
    working: Path | None, digest: Callable[[bytes], str], declared: Declared, data: bytes, event: str
) -> Callable[[], object]:
    """Write a mark, with a copy of what the file will be; what it returns makes it the only one."""
    if not working:
        return tuple  # which does nothing
    next = working.with_suffix(NEXT)
    with next.open("wb") as file:
        file.write(exactjson.dumps([digest(data), event, list(declared)]) + b"\n")
        file.write(data)
    return partial(next.replace, working.with_suffix(MARK))


def _forget(working: Path, url: str) -> None:
    """Delete the store, of another content."""
    started_stores.discard(url)
    for suffix in (MARK, NEXT, ".db", ".db-wal", ".db-shm"):
        working.with_suffix(suffix).unlink(missing_ok=True)


def _digest(schema: bytes, options: FileOptions, data: bytes) -> str:
    """Of all that a store follows from."""
    parts = (restkeeper.__version__.encode(), b"strict" * options.strict, schema, data)
    return blake2b(b"\0".join(blake2b(each).digest() for each in parts), digest_size=16).hexdigest()


def _write_rest(
    create: Callable[..., Application], path: Path, content: Content, stamp: Stamp, mark: Mark, working: Path
) -> None:
    """Write what the file does not have yet of the last run; the file wins where both changed. Raises FileError."""
    since = content  # if the copy is broken, by a loss of power
    with suppress(FileError):
        since = parse(working.with_suffix(MARK).read_bytes().partition(b"\n")[2], path.name)
        since.members.update({name: {} for name in content.members if name not in since.members})
    try:
        resources = mark.declared.resources(FileOptions(), [])
        service = service_of(create(replace(Config.from_env(), webhook_worker="apart"), resources))
        with closing(service.store):
            is_written = FileSync(path, service, content, event=mark.event, stamp=stamp).write(since)
    except (Problem, StoreError, ValueError) as error:
        reason = f"{working} may have what requests changed last, but cannot be read: {error}"
        raise FileError(f"{path.name}: {reason}: delete it to start without that") from None
    if not is_written:
        raise FileError(f"{path.name}: was edited at this moment")
