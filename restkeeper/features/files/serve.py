"""The application of a JSON file: its options, what it serves beside its collections, and how it starts."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from random import random, uniform
from threading import Thread
from typing import Any
from urllib.parse import quote

from flask import Blueprint, Request, Response
from werkzeug.exceptions import MethodNotAllowed

from restkeeper import exactjson, features
from restkeeper.clock import Clock, in_turns
from restkeeper.config import Config
from restkeeper.errors import Unavailable
from restkeeper.exactjson import Buffer
from restkeeper.feature import Feature, Seams
from restkeeper.features.files.collections import LISTS, Declared, declare, describe, resources_of
from restkeeper.features.files.content import LONGEST_ITEM, Content, FileError
from restkeeper.features.files.file import SCHEMA, SavedFile, can_be_replaced, read_file, say
from restkeeper.features.files.items import FileReferences, fill, views_of
from restkeeper.features.files.paths import Paths, Rule, read_rules
from restkeeper.features.files.threads import in_thread
from restkeeper.mistakes import load_module, mistake_in
from restkeeper.resources.call import KNOWN, lacking
from restkeeper.resources.checks import RESERVED
from restkeeper.resources.items import CollectionReader
from restkeeper.resources.queries import ListRequest
from restkeeper.resources.resource import Resource
from restkeeper.seams import take_part
from restkeeper.service import Service, service_of
from restkeeper.storage.interface import Query
from restkeeper.versions import prefix_of
from restkeeper.web.application import SAFE_METHODS, Application, Check, Reply, Stage
from restkeeper.web.auth import caller, needs
from restkeeper.web.bodies import JSON, require_acceptable
from restkeeper.web.calls import current_call
from restkeeper.web.operations import Result, returns

_EMPTY = 'no collections: add an array, such as "posts": []'
MOST_DESCRIBED = 2000  # items of a collection from which its schema is inferred: some 50 ms
WHOLE = "/db"  # the path of all that is served

Create = Callable[..., Application]  # `restkeeper.create_app`
Succeed = Callable[[Application], object]


@dataclass(frozen=True)
class FileOptions:
    """How a file is served: `delay` has the least and the most seconds, `fail` a probability.

    The folders of `static` are served as well as `public`, and the file `routes` has rules that rewrite paths. Names of
    fields that refer to other collections end in `suffix`; the id of an item is in `id_name`. If `quiet`, no report
    is printed. The items of the collection `login` can log in.
    """

    saves: bool = True
    read_only: bool = False
    strict: bool = False
    delay: tuple[float, float] = (0.0, 0.0)
    fail: float = 0.0
    static: tuple[Path, ...] = ()
    routes: Path | None = None
    suffix: str = ""
    id_name: str = "id"
    quiet: bool = False
    login: str = ""


def application_of(
    create: Create, path: Path, options: FileOptions, *, config: Config | None = None, succeed: Succeed | None = None
) -> Application:
    """The application of a file; exits with one line if the file cannot be served.

    With a configuration, as for tests, the application is without the file from here on. Without one it follows the
    file, and prints a report; when an edit needs another application, `succeed` gets that.
    """
    try:
        return _app_of(create, path, options, config, succeed)
    except (FileError, OSError, ValueError) as error:
        sys.exit(f"restkeeper: {mistake_in(error) or error}")


def served_file(create: Create, path: Path, options: Mapping[str, Any], succeed: Succeed) -> Application:
    """The application of a file that a server serves: see `application_of`."""
    return application_of(create, path, FileOptions(**options), succeed=succeed)


def _app_of(
    create: Create, path: Path, options: FileOptions, config: Config | None, succeed: Succeed | None, reason: str = ""
) -> Application:
    """See `application_of`; for a `reason` it is made again. Raises FileError, OSError, and ValueError.

    The last one is for a wrong declaration.
    """
    follows = not (config or Config.from_env().harness)  # else the application is without the file from here on
    is_saved = follows and options.saves
    file = in_thread(read_file, path, options.id_name)
    declared, lines = declare(file, options.suffix, infers=options.strict)
    resources = resources_of(declared, lines, strict=options.strict, read_only=options.read_only)
    blueprints = _blueprints(path.with_name("routes.py"), resources)
    guards = dict[str, str]()
    rules = read_rules(options.routes, guards if options.login else None) if options.routes else []
    set_up = partial(install, options=options, path=path, rules=rules, arrays=file.content.arrays)
    opened = [*features.FEATURES]
    if options.login:  # a webhook would send what the guards hide, and everybody could create a key that reads it
        opened = [feature for feature in opened if feature.name not in ("webhooks", "keys")]
        login = import_module("restkeeper.features.files.login")
        named = {"path": path, "name": options.login, "suffix": options.suffix, "guards": guards}
        opened.append(Feature("login", partial(login.install, **named)))
    make = partial(create, blueprints=blueprints, name=path.name)

    def set_up_and_load(service: Service) -> Seams:
        describing = partial(make, features=(*opened, Feature("file", set_up)))
        service.app.described = Description(describing, declared, service).application
        service.domain.references = FileReferences(service.stored, service.domain)
        seams, load = set_up(service), partial(fill, service, file.content)
        return replace(seams, ready=(*seams.ready, load, partial(_serve_twice, service)))

    app = make(config, resources, features=(*opened, Feature("file", set_up_and_load)))
    if follows and reason:
        say(f"{path.name}: {reason}: the service starts again, without the keys, webhooks and events until now", *lines)
    elif follows and not options.quiet:
        items, arrays = file.content.collections, file.content.arrays
        counts = [f"{len(items[name])} {name}" if name in items else name for name in declared]
        report = [f"{path.name}: {', '.join([*counts, *arrays]) or _EMPTY}", *lines, *_about_lists(file.content)]
        if is_saved and not can_be_replaced(path):
            warning = "is mounted, or its folder is read-only: a crash while it is written can damage it"
            report.append(f"{path.name} {warning}")
        if options.login:
            report.append(f"POST /login and /register: tokens of {options.login}, to try a login: it protects nothing")
        say(*report)
    if follows and succeed:
        restart = partial(_restart, create, path, options, succeed)
        saved = SavedFile(file, service_of(app), restart, saved=is_saved)
        take_part(service_of(app), saved.seams)
        Thread(target=saved.run, name="file", daemon=True).start()  # a greenlet, by gevent
    return app


def _restart(create: Create, path: Path, options: FileOptions, succeed: Succeed, reason: str) -> None:
    """Serve another application, for a reason. Raises FileError, OSError and ValueError if there can be none."""
    try:
        succeed(_app_of(create, path, options, None, succeed, reason))
    except SystemExit as end:
        raise ValueError(str(end).removeprefix("restkeeper: ")) from None


def _serve_twice(service: Service) -> None:
    """Serve the paths of the service below /_/, too: they are there whatever the names in the file are."""
    app, prefix = service.app, prefix_of(service.default_version)
    for rule in [*app.url_map.iter_rules()]:
        name, _, rest = rule.rule.removeprefix(prefix)[1:].partition("/")
        if (name in RESERVED or name == "openapi.json") and name not in app.collections:
            path = f"/_/{name}/{rest}".rstrip("/")
            alias = app.url_rule_class(path, endpoint=rule.endpoint, methods=rule.methods, defaults=rule.defaults)
            alias.provide_automatic_options = rule.provide_automatic_options  # type: ignore[attr-defined]
            app.url_map.add(alias)


def install(
    service: Service, options: FileOptions, path: Path, rules: Sequence[Rule], arrays: Mapping[str, Buffer]
) -> Seams:
    """Serve folders, `/db` and arrays, rewrite paths, and follow the options, for the file at a path."""
    folders = [folder for folder in (path.with_name("public"), *options.static) if folder.is_dir()]
    private = [path, path.with_suffix(SCHEMA), path.with_name("routes.py")]
    app, guard, config = service.app, service.guard, service.config
    paths = Paths(app, rules, folders, private, config.max_url)
    if guard.local_only and not (config.admin_key or config.jwt_jwks or options.login):
        guard.ignores_credentials = lambda: not service.store.page("keys", Query(limit=1)).bodies  # until one is made
    checks: list[Check] = [paths.answer]
    if options.fail or options.delay[1]:
        checks.append(partial(_delay_or_fail, options, service.clock))
    if options.read_only:
        checks.append(_refuse_writes)

    def add_routes() -> None:
        for number, name in enumerate(arrays):
            view = _array(name, arrays)
            for prefix in ("", prefix_of(service.default_version)):
                app.add_url_rule(f"{prefix}/{name}", endpoint=f"array_{number}", view_func=view)
        if WHOLE not in {rule.rule for rule in app.url_map.iter_rules()}:  # a collection, or a route of routes.py
            app.add_url_rule(WHOLE, view_func=_whole(service, arrays))

    at_edge = [(Stage.EDGE, check) for check in checks]
    return Seams(arriving=[paths.arriving], checking=at_edge, ready=[add_routes])


def _array(name: str, arrays: Mapping[str, Buffer]) -> Callable[[], Response]:
    """The handler of an array of other values than objects."""

    @needs(_scope(name))
    @returns(Result("The array.", {JSON: {"type": "array", "items": {}, "maxItems": LONGEST_ITEM // 2}}))
    def read_array() -> Response:
        """Read an array, as the file has it."""
        require_acceptable(JSON)
        return Reply(bytes(arrays[name]), content_type=JSON, headers={"Cache-Control": "no-store"})

    return read_array


def _scope(name: str) -> str:
    """The scope to read an array, in the form of the scopes of collections."""
    return f"{quote(name, safe='')}:read"


def _whole(service: Service, arrays: Mapping[str, Buffer]) -> Callable[[], Response]:
    """The handler of all that is served."""

    @needs(KNOWN)
    @returns(Result("Each collection, and each single item, by its name.", {JSON: {"type": "object"}}))
    def read_db() -> Response:
        """Read all that the file has, as it is now, to a caller that may read each collection of it."""
        require_acceptable(JSON)
        for scope in (*(resource.scope("read") for resource in service.resources), *map(_scope, arrays)):
            if not caller().may(scope):
                raise lacking(scope)
        items = service.writes[service.default_version].values()
        texts = _texts(service, [CollectionReader(each, current_call()) for each in items], arrays)
        return Reply(texts, content_type=JSON, headers={"Cache-Control": "no-store"})

    return read_db


def _texts(service: Service, readers: Iterable[CollectionReader], arrays: Mapping[str, Buffer]) -> Iterator[bytes]:
    """The parts of an object of all items that a caller sees."""
    members = {reader.served.resource.public_name: _pages(service, reader) for reader in readers}
    members |= {name: iter((bytes(text),)) for name, text in arrays.items()}
    for number, (name, texts) in enumerate(members.items()):
        yield b"%b%b:" % (b"," if number else b"{", exactjson.dumps(name))
        yield from texts
    yield b"}" if members else b"{}"


def _pages(service: Service, reader: CollectionReader) -> Iterator[bytes]:
    """The parts of a collection, in the order of its list: a page of it is in memory at a time; or the singleton."""
    name, limit, is_single = reader.served.name, service.config.page_limit_max, reader.served.resource.singleton
    query, page, comma = reader.query(ListRequest(Query(limit=limit), limit)), None, b""
    stored = reader.served.stored
    empty = [stored.body(stored.initial) if stored.initial else b"{}"] * is_single  # also if it may not be read
    yield b"" if is_single else b"["
    while page is None or page.more:
        page = service.store.page(name, query, service.config.page_bytes)
        bodies = reader.view.bodies(page) or empty  # none, if others have deleted the rest
        yield comma * bool(bodies) + b",".join(bodies)
        query, comma = query._replace(after=page.last), b","
    yield b"" if is_single else b"]"


def _delay_or_fail(options: FileOptions, clock: Clock, request: Request) -> None:
    """Let all requests wait, and some get a 503."""
    clock.sleep(uniform(*options.delay))  # noqa: S311 - no secret
    if random() < options.fail:  # noqa: S311
        raise Unavailable("a fault that was asked for (--fail)")


def _refuse_writes(request: Request) -> None:
    """Refuse what may change something: also an action of routes.py."""
    if request.method not in SAFE_METHODS:
        raise MethodNotAllowed(SAFE_METHODS)


@dataclass
class Description:
    """The application whose API document describes the application of a file, with schemas of its present items."""

    create: Create
    declared: Mapping[str, Declared]
    service: Service
    _tokens: Sequence[str] = ()  # of the store, at the time of the last description
    _described: Mapping[str, Declared] = field(default_factory=dict)
    _app: Application | None = None

    def application(self) -> Application:
        """The application with the description: a new one when items have other members.

        To make it takes some milliseconds for each collection: other requests continue.
        """
        if not any(declaration.is_open for declaration in self.declared.values()):
            return self.service.app
        store, names = self.service.store, {name: stored.name for name, stored in views_of(self.service).items()}
        if (tokens := [*map(store.change_token, names.values())]) != self._tokens:
            in_order, some = in_turns(names, self.service.clock), Query(limit=MOST_DESCRIBED)
            bodies = {name: store.page(names[name], some).bodies for name in in_order}
            described = in_thread(describe, self.declared, bodies.__getitem__)
            if self._app is None or described != self._described:
                self._app, self._described = in_thread(self._application, described), described
            self._tokens = tokens
        return self._app or self.service.app

    def _application(self, described: Mapping[str, Declared]) -> Application:
        pairs = zip(resources_of(described, []), self.service.resources, strict=True)
        resources = [replace(described, methods=old.methods, actions=old.actions) for described, old in pairs]
        config = replace(self.service.config, database_url="memory://", harness="", webhook_worker="apart")
        return self.create(config, resources, serves=False)


def _about_lists(content: Content) -> Iterator[str]:
    """Lines of the report about lists that do not have all items."""
    items, size = LISTS["page_limit"], LISTS["page_bytes"]
    for name in content.collections:
        begin, end = content.spans[name]
        if len(content.items(name)) > items or end - begin > size:
            yield f"{name}: a list has at most {items:,} items and {size >> 20} MiB: its Link has the next, and /db all"


def _blueprints(file: Path, resources: list[Resource]) -> list[Blueprint]:
    """The blueprints of routes.py, which also adds actions and functions to the resources. Raises ValueError."""
    if not file.is_file():
        return []
    module = load_module(file)
    if declare := getattr(module, "declare", None):
        if not callable(declare):
            raise ValueError(f"{file.name}: declare={declare!r}: must be a function of the resources, by name")
        declare({resource.public_name: resource for resource in resources})
    elif not hasattr(module, "blueprints"):
        say(f"{file.name} has neither declare(resources) nor blueprints, and adds nothing")
    blueprints = getattr(module, "blueprints", ())
    if not isinstance(blueprints, list | tuple) or not all(isinstance(item, Blueprint) for item in blueprints):
        raise ValueError(f"{file.name}: blueprints={blueprints!r}: must be a list of blueprints of Flask")
    return list(blueprints)
