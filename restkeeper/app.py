"""The application: what each stage of a request does, and the features that take part."""

import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, cast

from flask import Blueprint

from restkeeper.cli.commands import add_commands, is_running
from restkeeper.clock import Clock
from restkeeper.config import Config, ConfigError
from restkeeper.errors import Unavailable
from restkeeper.feature import Feature, Viewed, loaded
from restkeeper.features import FEATURES
from restkeeper.resources.checks import RESERVED, followed
from restkeeper.resources.declaration import Ownership
from restkeeper.resources.functions import run_after, run_before
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView
from restkeeper.seams import mount_routes, seams_of, take_part
from restkeeper.service import EXTENSION, NAME, Service, make_service, serve_blueprints
from restkeeper.storage import BACKENDS
from restkeeper.storage.base import MemoryStore
from restkeeper.storage.errors import StoreError
from restkeeper.storage.interface import LAST_IDS
from restkeeper.storage.interface import Collection as StoredCollection
from restkeeper.stores import START_SECONDS, convert_former, open_store
from restkeeper.versions import V1, Versions
from restkeeper.web import edge, errors, observe
from restkeeper.web.application import Application, Stage
from restkeeper.web.handlers import CollectionHandlers, require_query_used


def create_app(
    config: Config | None,
    resources: Sequence[Resource],
    *,
    versions: Versions = V1,
    roles: Mapping[str, Collection[str]] = {},
    features: Collection[Feature | str] = FEATURES,
    without: Collection[str] = (),
    stores: Collection[str] = tuple(BACKENDS),
    blueprints: Sequence[Blueprint] = (),
    name: str = NAME,
    clock: Clock = time,
    serves: bool = True,
) -> Application:
    """The WSGI application of a service with these collections.

    Without a `config` the settings are those of the environment; `Config()` is for tests, with a new store in memory.

    `versions` are the versions of the API, by default v1 alone. `roles` maps the name of a role to its scopes: keys and
    tokens can have a role in place of scopes.

    `features` are the open features, without those whose names are in `without`: `without={"webhooks"}` closes one, and
    `features=(*FEATURES, AUDIT)` opens one of your own.

    `stores` are the schemes of DATABASE_URL that the service accepts. `blueprints` are Flask's: each view is served at
    its own path, and declares what it `needs`. `name` is the title of the API document. `clock` gives the time, in
    place of the module `time`. `serves` is false for a command, which answers no requests.

    Raises ConfigError for settings or declarations that cannot work, StoreUnavailable if the store cannot be opened,
    and Unavailable if the counters of rate limits cannot. Without a `config` it waits some time for a store that is
    away or locked, and an error ends the program with one line.
    """
    is_program = config is None
    try:
        if config is None:
            config, serves = Config.from_env(), not is_running()
        elif config.webhook_worker == "inside":
            raise ConfigError(
                "webhook_worker='inside': only a server delivers: set WEBHOOK_WORKER=inside, and call create_app "
                "without a configuration; in a test, use restkeeper.LiveServer"
            )
        opened, closed = _open(features, without, config)
        declared = _require_resources(resources)
        declared += [resource for feature in opened for resource in feature.stored().collections]
        _require_possible(opened, closed, config, declared, versions, roles)
        _require_store(config, stores)
        program = _Program(config, declared, versions, roles, opened, closed, blueprints, name, serves)
        for feature in opened if serves else ():
            if feature.serve:
                return cast(Application, loaded(feature.serve)(program.application, create_app, config))
        return program.application(clock, START_SECONDS if is_program else 0.0)
    except (ConfigError, StoreError, Unavailable) as error:
        if is_program:
            sys.exit(f"restkeeper: {error}")
        raise


@dataclass
class _Program:
    """The parts of the applications of a service: it has one application, or in a harness one for each space."""

    config: Config
    resources: Sequence[Resource]
    versions: Versions
    roles: Mapping[str, Collection[str]]
    features: Sequence[Feature]
    closed: Sequence[Feature]
    blueprints: Sequence[Blueprint]
    name: str
    serves: bool
    _empty: Any = None  # the content of an empty store of a harness, so that the stores of spaces are quick to make

    def application(self, clock: Clock, wait_seconds: float = 0.0) -> Application:
        """An application with a store, for which it waits this time."""
        service = self._service(clock)
        if self.serves:
            service.store.initial_content = self._empty
        is_open = self.serves and open_store(service, wait_seconds)  # a command opens it when it needs it
        if is_open and self.config.harness and not self._empty:
            self._empty = cast(MemoryStore, service.store).saved()
        app = _application(service, self.features, self.blueprints)
        add_commands(app, self.features, self.closed)
        if is_open:
            convert_former(service)
        for ready in app.ready.functions:
            ready()
        return app

    def _service(self, clock: Clock) -> Service:
        parts = [feature.stored() for feature in self.features]
        views = [each.stored_view() if isinstance(each, Viewed) else StoredView(each) for each in self.resources]
        of_features = [StoredView(resource) for part in parts for resource in part.items]
        records = [collection for part in parts for collection in part.records]
        return make_service(
            self.config,
            views,
            _collections([*views, *of_features], records),
            self.name,
            of_features=of_features,
            versions=self.versions,
            roles=self.roles,
            features=[feature.name for feature in self.features],
            closed=[loaded(resource).name for feature in self.closed for resource in feature.collections],
            clock=clock,
        )


def _application(service: Service, features: Sequence[Feature], blueprints: Sequence[Blueprint]) -> Application:
    """The application of a service: what each stage of a request does, then its routes."""
    app, config, guard, domain = service.app, service.config, service.guard, service.domain
    app.url_map.merge_slashes = False
    app.config["MAX_CONTENT_LENGTH"] = config.max_body  # also of views that read the body by themselves
    app.extensions[EXTENSION] = service
    app.collections = {resource.public_name for resource in service.resources}
    app.collections |= {"docs", "browse"} if "openapi.json" in app.collections else set()  # which read what is beside
    if config.trusted_proxies:
        behind = import_module("restkeeper.web.proxies").TrustedProxies
        app.wsgi_app = behind(app.wsgi_app, config.trusted_proxies)  # type: ignore[method-assign]

    log = observe.access_log(config.log_format, config.log_level)
    observe.install(app, log, now=service.clock.time, details=config.log_format in observe.SHORT)  # its id and log line
    errors.install(app)  # whatever is raised, as a problem
    edge.install(  # a sane address, of this service
        app,
        config.max_url,
        config.trusted_hosts,
        local_only=guard.local_only,
        count_refused_host=lambda environ: guard.failures.note_failure(environ) if config.quotas else None,
    )
    if guard.local_only or config.harness:  # where a page could do what nobody wants
        edge.refuse_other_sites(app, config.cors_origins, local_only=guard.local_only)
    app.checking.add(guard.identify, stage=Stage.CALLER)
    app.checking.add(guard.authorize, stage=Stage.PERMISSION)
    app.checking.add(require_query_used, stage=Stage.PERMISSION)  # a write that would ignore a part of its query

    parts = [seams_of(feature, service) for feature in features]
    for seams in parts:
        take_part(service, seams)
    if config.auth == "required" and not guard.identifying.functions:
        raise ConfigError(
            "AUTH='required': nobody could call while the feature 'keys' is closed; open it, or 'jwt' and set JWT_JWKS"
        )
    domain.changing.add(run_before)
    domain.changed.add(domain.references.follow)
    domain.changed.add(run_after)

    for version in service.served:
        service.writes[version.name] = collections = {
            name: service.items_of(stored, domain.views_of(stored, version.name))
            for name, stored in service.stored.items()
        }
        for items in collections.values():
            items.relations = domain.references.relations_of(items, collections.values())
    for name, stored in service.stored.items():
        service.mount(partial(_routes_of, service, name), unversioned=True, path=stored.resource.path)
    for seams in parts:
        mount_routes(service, seams)
    serve_blueprints(service, blueprints)
    service.lookup.register(app)
    return app


def _routes_of(service: Service, name: str, version: str) -> Blueprint:
    """The routes of a collection in a version, with those that features add to them."""
    collections = service.writes[version]
    routes = CollectionHandlers(collections[name]).blueprint()
    for add in service.collection_routes:
        add(routes, collections[name], collections)
    return routes


def stored_collections(resources: Iterable[Resource]) -> list[StoredCollection]:
    """All that a store holds for a service with these resources and every feature."""
    parts = [feature.stored() for feature in FEATURES]
    items = [collection for part in parts for collection in (*part.collections, *part.items)]
    return _collections([*resources, *items], [collection for part in parts for collection in part.records])


def _collections(items: Iterable[Resource | StoredView], records: Iterable[StoredCollection]) -> list[StoredCollection]:
    """All that a store holds for these items, of the service and of features, and for these records of features."""
    resources = [item.resource if isinstance(item, StoredView) else item for item in items]
    last_ids = [LAST_IDS] if any(resource.has_integer_ids for resource in resources) else []
    return [*(resource.collection for resource in resources), *last_ids, *records]


def _open(
    features: Iterable[Feature | str], without: Iterable[str], config: Config
) -> tuple[list[Feature], list[Feature]]:
    """The open features, in their order, and the closed ones. Raises ConfigError for a name that is no feature."""
    for names in (features, without):
        if isinstance(names, str):
            raise ConfigError(f"features: {names!r} is a text; give a set of names, such as {{{names!r}}}")
    by_name, opened, without = {feature.name: feature for feature in FEATURES}, set[str](), {*without}
    for feature in features:
        if isinstance(feature, Feature) and by_name.setdefault(feature.name, feature) is not feature:
            raise ConfigError(f"features: {feature.name!r} is the name of two features: change one")
        if not isinstance(feature, Feature | str):
            raise ConfigError(f"features has {feature!r}: must be a Feature(…), or the name of one")
        if isinstance(feature, str) or feature.usual:
            opened.add(feature if isinstance(feature, str) else feature.name)
    unusual = [feature for feature in by_name.values() if not feature.usual]
    opened |= {feature.name for feature in unusual if any(_is_set(config, name) for name in feature.settings[:1])}
    if unknown := sorted({*opened, *without} - by_name.keys()):
        raise ConfigError(f"features: there is no {unknown[0]!r}; there are {', '.join(by_name)}")
    opened -= without
    closed = [feature for name, feature in by_name.items() if name not in opened]
    return [feature for name, feature in by_name.items() if name in opened], closed


def _is_set(config: Config, name: str) -> bool:
    """Whether a setting has another value than by default, and is not turned off."""
    return getattr(config, name) not in (getattr(Config, name), "off")


def _require_store(config: Config, stores: Collection[str]) -> None:
    """Raises ConfigError for a store of another kind than these."""
    scheme = config.database_url.partition("://")[0]
    backend = BACKENDS.get(scheme)  # tests use any memory
    if backend and backend not in [BACKENDS[name] for name in ("memory", *stores)]:
        names = " or ".join(stores) or "no store"
        raise ConfigError(f"DATABASE_URL={scheme}://…: this service is made for {names}")


def _require_resources(resources: Any) -> list[Resource]:
    """The collections of a service. Raises ValueError for what is none."""
    if not isinstance(resources, Collection) or not all(isinstance(resource, Resource) for resource in resources):
        raise ValueError(
            f"resources={resources!r}: must be Resources: find_resources(PACKAGE) returns those of a package"
        )
    return [*resources]


def _require_possible(
    opened: Sequence[Feature],
    closed: Sequence[Feature],
    config: Config,
    resources: Sequence[Resource],
    versions: Versions,
    roles: Mapping[str, Collection[str]],
) -> None:
    """Raises ConfigError for features that cannot be closed as they are, and ValueError for versions that are none."""
    if not isinstance(versions, Versions):
        raise ValueError(f"versions={versions!r}: must be Versions(…)")
    features = {feature.name for feature in opened}
    for feature in opened:
        if absent := [name for name in feature.needs if name not in features]:
            raise ConfigError(f"features: {feature.name!r} is built on {absent[0]!r}, which is closed; close both")
    for feature in closed:
        for setting in () if any(other.serve for other in opened) else feature.settings:
            if _is_set(config, setting):
                why = f"has no effect while the feature {feature.name!r} is closed"
                raise ConfigError(f"{setting.upper()}: is set, and {why}")
    if (paths := RESERVED.intersection(resource.path for resource in resources)) and len(list(versions)) > 1:
        raise ConfigError(f"path={min(paths)!r}: each version has a page there: choose another one")
    if "versions" not in features and (len(list(versions)) > 1 or versions.deprecations):
        raise ConfigError("features: the service declares versions or deprecations, so 'versions' cannot be closed")
    if "roles" not in features and roles:
        raise ConfigError("features: the service declares roles, so 'roles' cannot be closed")
    names = [resource.name for resource in resources if resource.ownership is not Ownership.NONE]
    if names and "ownership" not in features:
        raise ConfigError(f"features: {names[0]!r} declares an ownership, so 'ownership' cannot be closed")
    names = [where for resource in resources for where, _ in followed(resource)]
    if names and "references" not in features:
        raise ConfigError(f"features: {names[0]} is a reference, so 'references' cannot be closed")
