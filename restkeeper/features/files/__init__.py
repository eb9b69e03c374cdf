"""A JSON file as a service: its arrays are collections, its objects singletons."""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread

from flask import Blueprint

from restkeeper import features
from restkeeper.clock import in_turns
from restkeeper.config import Config
from restkeeper.feature import Feature, Seams
from restkeeper.features.files.declarations import LISTS, Declared, declare, describe, resources_of
from restkeeper.features.files.file import File, can_be_replaced, read_file, say
from restkeeper.features.files.items import FileReferences
from restkeeper.features.files.options import FileOptions as FileOptions
from restkeeper.features.files.options import install
from restkeeper.features.files.reading import Content, FileError
from restkeeper.features.files.saving import SavedFile, fill, in_thread
from restkeeper.mistakes import load_module, mistake_in
from restkeeper.resources.checks import RESERVED
from restkeeper.resources.resource import Resource
from restkeeper.seams import take_part
from restkeeper.service import Service, service_of
from restkeeper.storage.interface import Query
from restkeeper.versions import prefix_of
from restkeeper.web.application import Application

_EMPTY = 'no collections: add an array, such as "posts": []'
MOST_DESCRIBED = 2000  # items of a collection from which its schema is inferred: some 50 ms

Create = Callable[..., Application]  # `restkeeper.create_app`
Replace = Callable[[Application], object]


def application_of(
    create: Create, path: Path, options: FileOptions, *, config: Config | None = None, replace: Replace | None = None
) -> Application:
    """The application of a file; exits with one line if the file cannot be served.

    With a configuration, as for tests, the application is without the file from here on. Without one it follows the
    file, and prints a report; when an edit needs another application, `replace` gets that.
    """
    try:
        return _app_of(create, path, options, config, replace)
    except (FileError, OSError, ValueError) as error:
        sys.exit(f"restkeeper: {mistake_in(error) or error}")


def _app_of(
    create: Create, path: Path, options: FileOptions, config: Config | None, replace: Replace | None, reason: str = ""
) -> Application:
    """See `application_of`; for a `reason` it is made again. Raises FileError, OSError, and ValueError.

    The last one is for a wrong declaration.
    """
    follows = not (config or Config.from_env().harness)  # else the application is without the file from here on
    is_saved = follows and options.saves
    file = in_thread(read_file, path, options.id_name)
    declared, resources, lines = _declared_by(file, options)
    blueprints = _blueprints(path.with_name("routes.py"), resources)
    set_up = partial(install, options=options, path=path, arrays=file.content.arrays)
    opened = [*features.FEATURES]
    if options.login:  # a webhook would send what the guards hide
        opened = [feature for feature in opened if feature.name != "webhooks"]
        opened.append(Feature("login", partial(_install_login, options, path)))
    make = partial(create, blueprints=blueprints, name=path.name)

    def set_up_and_load(service: Service) -> Seams:
        describing = partial(make, features=(*opened, Feature("file", set_up)))
        service.app.described = Description(describing, declared, service).application
        service.domain.references = FileReferences(service.stored, service.domain)
        seams, load = set_up(service), partial(fill, service, file.content, declared)
        return dataclasses.replace(seams, ready=(*seams.ready, load, partial(_serve_twice, service)))

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
    if follows and replace:
        restart = partial(_restart, create, path, options, replace)
        saved = SavedFile(file, service_of(app), restart, saved=is_saved)
        take_part(service_of(app), saved.seams)
        Thread(target=saved.run, name="file", daemon=True).start()  # a greenlet, by gevent
    return app


def _restart(create: Create, path: Path, options: FileOptions, replace: Replace, reason: str) -> None:
    """Serve another application, for a reason. Raises FileError, OSError and ValueError if there can be none."""
    try:
        replace(_app_of(create, path, options, None, replace, reason))
    except SystemExit as end:
        raise ValueError(str(end).removeprefix("restkeeper: ")) from None


def _install_login(options: FileOptions, path: Path, service: Service) -> Seams:
    seams: Seams = import_module("restkeeper.features.files.login").install(service, options, path)
    return seams


def _declared_by(file: File, options: FileOptions) -> tuple[Mapping[str, Declared], list[Resource], list[str]]:
    """The declarations of a file, its resources, and lines about them. Raises FileError and ValueError."""
    declared, lines = declare(file, options.suffix, infers=options.strict)
    notes = list[str]()
    resources = resources_of(declared, notes, strict=options.strict, read_only=options.read_only)
    return declared, resources, [*lines, *notes]


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
        store, names = self.service.store, {resource.public_name: resource.name for resource in self.service.resources}
        if (tokens := [*map(store.change_token, names.values())]) != self._tokens:
            some = Query(limit=MOST_DESCRIBED)
            read = in_turns(self.declared, self.service.clock)
            bodies = {name: store.page(names[name], some).bodies for name in read}
            described = in_thread(describe, self.declared, bodies.__getitem__)
            if self._app is None or described != self._described:
                self._app, self._described = in_thread(self._application, described), described
            self._tokens = tokens
        return self._app or self.service.app

    def _application(self, described: Mapping[str, Declared]) -> Application:
        pairs = zip(resources_of(described, []), self.service.resources, strict=True)
        resources = [
            dataclasses.replace(resource, methods=served.methods, actions=served.actions) for resource, served in pairs
        ]
        config = dataclasses.replace(self.service.config, database_url="memory://", harness="", webhook_worker="apart")
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
