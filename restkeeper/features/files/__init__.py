"""A JSON file as a service: its arrays are collections, its objects singletons."""

import atexit
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from signal import SIGTERM
from threading import Thread

from flask import Blueprint, Request, Response, send_file
from werkzeug.exceptions import MethodNotAllowed

import restkeeper
from restkeeper.clock import Clock
from restkeeper.config import Config
from restkeeper.errors import Problem
from restkeeper.features.files.checkpoint import Checkpoint, Checkpoints
from restkeeper.features.files.declaring import resources_of
from restkeeper.features.files.file import File, declare, read_data, read_file
from restkeeper.features.files.reading import WITH_COMMENTS, Content, FileError, is_equal, parse
from restkeeper.features.files.sync import (
    LOOK_SECONDS,
    FileSync,
    access_of,
    apart,
    changes_since,
    fill,
    refuse,
    replace_file,
    say,
)
from restkeeper.features.harness.control import NewFaultSchema
from restkeeper.features.harness.faults import Faults
from restkeeper.features.harness.spaces import FAULT, fail
from restkeeper.mistakes import load_module, mistake_in
from restkeeper.resources.resource import Resource
from restkeeper.service import Service, service_of
from restkeeper.storage.errors import StoreError
from restkeeper.web.application import SAFE_METHODS, Application

SQLITE = "sqlite:///"
WAIT_SECONDS = 20.0  # for a file that can be served, while a worker starts: the server ends one that takes longer

Create = Callable[..., Application]  # `restkeeper.create_app`


@dataclass(frozen=True)
class FileOptions:
    """How a file is served: `delay` has the least and the most seconds, `fail` a probability."""

    saves: bool = True
    read_only: bool = False
    strict: bool = False
    delay: tuple[float, float] = (0.0, 0.0)
    fail: float = 0.0


def application_of(
    create: Create, path: Path, options: FileOptions, *, config: Config | None = None, serves: bool = False
) -> Application:
    """The application of a file; exits with one line if there can be none.

    With a configuration, as for tests, it is without the file from here on. Without one, the process `serves` it and
    synchronizes the file, or it only tries that: then it prints what it found. One that serves, and so follows another
    one, waits some time for a file that is being edited.
    """
    end = 0.0
    while True:
        try:
            return _application_of(create, path, options, config, serves)
        except (FileError, OSError, ValueError) as error:
            if not serves or 0 < end < time.monotonic():
                sys.exit(f"restkeeper: {mistake_in(error) or error}")
            if not end:
                say(f"{error}: waits for another one")
                end = time.monotonic() + WAIT_SECONDS
            time.sleep(LOOK_SECONDS)


def _application_of(
    create: Create, path: Path, options: FileOptions, config: Config | None, serves: bool
) -> Application:
    """See `application_of`. Raises FileError, OSError, and ValueError for what is declared wrong."""
    settings = config or Config.from_env()
    saves = options.saves and not config and settings.database_url.startswith(SQLITE)
    if saves and path.suffix.lower() in WITH_COMMENTS:
        raise FileError(f"{path.name}: comments would be lost in writing: add --no-save")
    file, found, checkpoints = read_file(path), None, None
    if saves:
        others = restkeeper.__version__.encode(), b"strict" * options.strict, file.schema_source
        checkpoints = Checkpoints(Path(settings.database_url.removeprefix(SQLITE)), others)
        found = checkpoints.find(file.content.source)
        if found and found.digest != checkpoints.digest(file.content.source):  # it was edited meanwhile
            if _write_rest(create, file, found, checkpoints):
                checkpoints.delete_store()
            return _application_of(create, path, options, config, serves)
    declared, lines = (found.declared, found.lines) if found else declare(file)
    notes = list[str]()
    resources = resources_of(declared, notes, strict=options.strict, read_only=options.read_only)
    blueprints = _blueprints(path.with_name("routes.py"), resources)
    if checkpoints and not found:
        checkpoints.delete_store()

    def begin(app: Application, service: Service) -> None:
        at = app.before.index(service.guard.identify)
        if options.read_only:
            app.before.insert(at, _read_only)
        if options.fail or options.delay[1]:
            app.before.insert(at, _faults(options, service.clock))
        if (folder := path.with_name("public")).is_dir():
            app.before.insert(at, _public(folder.resolve()))
        if not found:
            fill(service, file.content)

    app = create(config, resources, blueprints=blueprints, name=path.name, begin=begin)
    service = service_of(app)
    if config or settings.harness:
        return app
    former = found or Checkpoint("", service.store.last_event(), declared, lines)
    if checkpoints and not found:
        checkpoints.prepare(former, file.content.source, former.event)
        checkpoints.commit()
    if serves:
        sync = FileSync(file, service, former, checkpoints, partial(_restart, create, path, options))
        Thread(target=_synchronize, args=(sync,), name="file", daemon=True).start()  # a greenlet, by gevent
        atexit.register(sync.finish)
    else:
        members = [(name, file.content.members[name]) for name in declared]
        counts = [f"{len(each)} {name}" if isinstance(each, dict) else name for name, each in members]
        say(f"{path.name}: {', '.join(counts)}", *lines, *notes)
    return app


def _write_rest(create: Create, file: File, found: Checkpoint, checkpoints: Checkpoints) -> bool:
    """Write what the file does not have yet of the last run; the file wins where both changed.

    Returns False if others have written the file at this moment. Raises FileError.
    """
    content = file.content
    if file.declared:
        both = {**found.declared, **file.declared}
        content = read_data(file.data, {name: each.kind for name, each in both.items()})
    formers = list[Content]()  # what is of one of them was not edited
    for data in checkpoints.copies():
        with suppress(FileError):  # it is broken, by a loss of power
            formers.append(parse(data, file.data.name))
            formers[-1].members.update({name: {} for name in content.members if name not in formers[-1].members})
    formers = formers or [content]
    try:
        config = replace(Config.from_env(), webhook_worker="apart")
        service = service_of(create(config, resources_of(found.declared, [])))
        with closing(service.store):
            changes, _ = changes_since(service, found.event)
    except (Problem, StoreError, ValueError) as error:
        reason = f"{checkpoints.store} may have what requests changed last, but cannot be read: {error}"
        raise FileError(f"{file.data.name}: {reason}: delete it to start without that") from None
    same = dict({*content.kinds()}.intersection(formers[0].kinds()))  # of the same kinds
    edited, is_new = content.copy(), content.given
    for name, id, text in changes:
        now = content.item(name, id)
        if name in same and any(is_equal(now, each.item(name, id)) for each in formers):
            is_new |= edited.set(name, id, text)
        elif not is_equal(now, text):
            refuse(file.data, name, id, "an edit", text)
    return not is_new or bool(replace_file(file.data, b"".join(edited.text()), file.look[0], access_of(file.data)))


def _synchronize(sync: FileSync) -> None:
    """Run until the end; after an unexpected error the server starts another process, which writes what is missing."""
    try:
        sync.run()
    finally:
        if not sync.is_over:
            os.kill(os.getpid(), SIGTERM)


def _restart(create: Create, path: Path, options: FileOptions, reason: str) -> None:
    """End this process, and say what the next one has. Raises FileError or ValueError if it cannot be served."""
    file, notes = apart(read_file, path), list[str]()
    declared, lines = declare(file)
    resources = resources_of(declared, notes, strict=options.strict, read_only=options.read_only)
    create(Config(), resources, begin=lambda app, service: fill(service, file.content))
    say(f"{path.name}: {reason}: the service starts again", *lines, *notes)
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


def _read_only(request: Request) -> None:
    """Refuse what may change something: also an action of routes.py."""
    if request.method not in SAFE_METHODS:
        raise MethodNotAllowed(SAFE_METHODS)


def _public(folder: Path) -> Callable[[Request], Response | None]:
    """Files of a folder, for a GET of what is no route: none that begins with a dot, or is elsewhere."""

    def send(request: Request) -> Response | None:
        if request.url_rule or request.method not in ("GET", "HEAD") or "/." in request.path:
            return None
        with suppress(OSError, ValueError, RuntimeError):  # a name that is too long, or has NUL; a link to itself
            file = (folder / request.path.lstrip("/")).resolve()
            if file.is_dir():
                file = (file / "index.html").resolve()
            elif request.path[-1] == "/":
                return None
            is_hidden = any(part[0] == "." for part in file.relative_to(folder).parts)  # ValueError: it is elsewhere
            if file.is_file() and not is_hidden:
                return send_file(file, conditional=True, max_age=0)
        return None

    return send


def _blueprints(file: Path, resources: list[Resource]) -> list[Blueprint]:
    """What routes.py adds: actions and functions of the resources, and blueprints. Raises ValueError for others."""
    if not file.is_file():
        return []
    module = load_module(file)
    if declare := getattr(module, "declare", None):
        if not callable(declare):
            raise ValueError(f"{file.name}: declare={declare!r}: must be a function of the resources, by name")
        declare({each.name: each for each in resources})
    blueprints = getattr(module, "blueprints", ())
    if not isinstance(blueprints, list | tuple) or not all(isinstance(each, Blueprint) for each in blueprints):
        raise ValueError(f"{file.name}: blueprints={blueprints!r}: must be a list of blueprints of Flask")
    return list(blueprints)
