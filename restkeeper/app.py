"""The application: the way of a request in order, as plain calls, and the features by name."""

import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, cast

from flask import Blueprint

from restkeeper.cli.commands import add_commands, is_running
from restkeeper.clock import Clock, rfc3339
from restkeeper.config import Config, ConfigError
from restkeeper.errors import Unavailable
from restkeeper.features import (
    batch,
    browse,
    cors,
    dialects,
    events,
    health,
    idempotency,
    jwt,
    keys,
    limits,
    metrics,
    openapi,
    ownership,
    pages,
    webhooks,
)
from restkeeper.features import versions as versioning
from restkeeper.features.webhooks.handlers import WEBHOOKS
from restkeeper.resources import RESERVED
from restkeeper.resources.embedding import relations_of
from restkeeper.resources.functions import run_after, run_before
from restkeeper.resources.migration import convert
from restkeeper.resources.references import References
from restkeeper.resources.resource import Ownership, Resource
from restkeeper.resources.views import StoredView
from restkeeper.service import EXTENSION, NAME, START_SECONDS, Service, make_service, mount, serve_blueprints
from restkeeper.storage import BACKENDS
from restkeeper.storage.base import MemoryStore
from restkeeper.storage.errors import RevisionDiffers, StoreError
from restkeeper.storage.interface import LAST_IDS
from restkeeper.storage.interface import Collection as StoredCollection
from restkeeper.versions import V1, Versions
from restkeeper.web import edge, errors, observe
from restkeeper.web.application import Application
from restkeeper.web.handlers import CollectionHandlers, require_query_used


class Feature(NamedTuple):
    """How a feature is opened, and what it stores beside the items of the service: items of its own, or only records.

    `settings` are refused while it is closed: they would have no effect.
    """

    install: Callable[[Application, Service], None]
    resources: tuple[Resource, ...] = ()
    collections: tuple[StoredCollection, ...] = ()
    settings: tuple[str, ...] = ()


_FEATURES = {
    "metrics": Feature(metrics.install, settings=("metrics_token",)),
    "cors": Feature(cors.install, settings=("cors_origins",)),
    "limits": Feature(limits.install, settings=("rate_limit", "rate_limit_write", "redis_url")),
    "keys": Feature(keys.install, (keys.KEYS,), (keys.CREDENTIALS,), settings=("admin_key",)),
    "jwt": Feature(jwt.install, settings=("jwt_jwks", "jwt_owner")),
    "ownership": Feature(ownership.install),
    "idempotency": Feature(idempotency.install, settings=("idempotency",)),
    "dialects": Feature(dialects.install),
    "events": Feature(events.install),
    "batch": Feature(batch.install),
    "webhooks": Feature(
        webhooks.install, (WEBHOOKS,), settings=("webhook_timeout", "webhook_retries", "webhook_allow_private")
    ),
    "versions": Feature(versioning.install),
    "health": Feature(health.install),
    "pages": Feature(pages.install),
    "browse": Feature(browse.install),
    "openapi": Feature(openapi.install),
}
FEATURES = frozenset(_FEATURES)  # by name; `create_app(…, without={"webhooks"})` closes one


def create_app(
    config: Config | None,
    resources: Sequence[Resource],
    *,
    versions: Versions = V1,
    features: Collection[str] = FEATURES,
    without: Collection[str] = (),
    stores: Collection[str] = tuple(BACKENDS),
    blueprints: Sequence[Blueprint] = (),
    name: str = NAME,
    clock: Clock = time,
    serves: bool = True,
    begin: Callable[[Application, Service], object] = lambda app, service: None,
) -> Application:
    """The WSGI application with these collections, on one of these kinds of stores (schemes of URLs).

    `features` are open, except those in `without`: `without={"webhooks"}` closes one.

    `blueprints` are served at their own paths; every view says what it `needs`. `name` is the title of the documents.

    `Config()` is what a test wants: a store in memory, its own. None takes the configuration from the environment.
    `clock` gives the time everywhere: a test may have one that it moves, and a harness has its own. `serves` is false
    for a command, which answers no requests. `begin` is called with each application that is made and its service,
    whose store is then open.

    With a configuration, raises ConfigError for one that cannot work, StoreUnavailable when the store cannot be opened,
    and Unavailable when the counters cannot. Without one it is a program that starts: it waits some time
    for a store that is away or locked, and an error ends it with one line.
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
        opened = _open(features, without)
        _require_possible(opened, config, resources, versions)
        scheme = config.database_url.partition("://")[0]
        backend = BACKENDS.get(scheme)  # tests use any memory
        if backend and not backend.temporary and backend not in [BACKENDS[each] for each in stores]:
            known = " or ".join(stores) or "no store"
            raise ConfigError(f"DATABASE_URL={scheme}://…: this service is made for {known}")

        first = list[Any]()

        def make(clock: Clock, wait_seconds: float = 0.0) -> Application:
            stored = [(each.represented_by or StoredView)(each) for each in resources]
            of_features = [StoredView(each) for each in _resources_of(opened)]
            service = make_service(
                config,
                stored,
                _collections([*stored, *of_features], opened),
                name,
                of_features=of_features,
                versions=versions,
                features=opened,
                clock=clock,
            )
            if serves:
                service.store.first = first[0] if first else None
            is_open = serves and service.open_store(wait_seconds)  # a command opens it when it needs it
            if is_open and config.harness and not first:
                first.append(cast(MemoryStore, service.store).saved())  # so that those of spaces are quick to make
            app = _application(service, blueprints)
            if is_open:
                _convert(service)
            begin(app, service)
            return app

        if config.harness and serves:
            harness = import_module("restkeeper.features.harness")  # of no other server
            auth = "open-to-all" if config.harness == "remote" else "open"
            bounds = {"max_body": harness.MOST_BODY, "max_nodes": harness.MOST_VALUES}
            seeds = Config(**bounds, auth=auth, trusted_hosts=config.trusted_hosts)
            make_control = partial(create_app, seeds, [], features={"cors", "health", "openapi", "pages"})
            return cast(Application, harness.application_of(make, make_control))
        return make(clock, START_SECONDS if is_program else 0.0)
    except (ConfigError, StoreError, Unavailable) as error:
        if is_program:
            sys.exit(f"restkeeper: {error}")
        raise


def _convert(service: Service) -> None:
    """Convert what is of an earlier revision, at a start. Raises StoreError: also for items that other programs use.

    Those of features, which are keys, are converted beside other programs: these accept credentials all the same.

    A program of the former revision starts while they are converted: it can be that they stay so.
    """
    found, is_shared = service.conversions(), service.location.shared
    found = [each for each in found if not (is_shared and each.former == -each.revision)]
    for each in found:
        if is_shared and each.items and each.name in service.stored:
            raise RevisionDiffers(each.name, each.revision, each.former)
    if found:
        convert(service.store, found, rfc3339(service.clock.time()))
    for each in found:
        print(f"restkeeper: the items of {each.name} have revision {each.revision} now", file=sys.stderr)
    for line in service.warnings():
        print(f"restkeeper: {line}", file=sys.stderr)


def _application(service: Service, blueprints: Sequence[Blueprint]) -> Application:
    """The application of a service."""
    config, guard = service.config, service.guard
    app = Application("restkeeper", static_folder=None)
    app.url_map.merge_slashes = False
    app.config["MAX_CONTENT_LENGTH"] = config.max_body  # also of views that read the body by themselves
    app.extensions[EXTENSION] = service
    app.collections = {each.public_name for each in service.resources}
    app.collections |= {"docs", "browse"} if "openapi.json" in app.collections else set()  # which read what is beside

    def install(*names: str) -> None:
        app.are_own = True
        for name in names:
            if name in service.features:
                _FEATURES[name].install(app, service)
        app.are_own = False

    if config.trusted_proxies:
        app.wsgi_app = edge.TrustedProxies(app.wsgi_app, config.trusted_proxies)  # type: ignore[method-assign]

    # The way of a request, in order; what runs after the handler runs in the opposite order.
    log = observe.access_log(config.log_format, config.log_level)
    observe.install(app, log, now=service.clock.time, details=config.log_format in observe.SHORT)  # its id and log line
    install("metrics")
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
    install("cors")  # which pages may read; before the caller is known
    install("keys", "jwt")  # which credentials there are
    app.before.append(guard.identify)  # who calls
    install("limits")  # how often, and how much
    install("versions")  # of the API: where there is one, and how items look there
    app.before.append(guard.authorize)  # what they may do
    app.before.append(require_query_used)  # a write that would ignore a part of its query
    install("ownership", "idempotency", "dialects", "events")  # what takes part in reading and writing items
    references = References(service.stored, service.hooks)
    service.hooks.check, service.hooks.check_body = references.check, references.check_body
    service.hooks.after_write += [references.follow, run_after]
    service.hooks.before_write = run_before
    for version in service.served:
        service.writes[version.name] = found = {
            name: service.items_of(stored, service.hooks.represent(stored, version.name))
            for name, stored in service.stored.items()
        }
        for each in found.values():
            each.relations = relations_of(each, found.values())
    for name, stored in service.stored.items():
        mount(app, service, partial(_routes_of, service, name), unversioned=True, path=stored.resource.path)
    install("batch", "webhooks", "health", "pages", "browse", "openapi")  # the last one documents what there is
    serve_blueprints(app, service, blueprints)
    guard.register(app)
    service.lookup.register(app)
    for check in app.ready:
        check()

    add_commands(app)  # flask keys | import | export | backup | restore | migrate | rename | forget | reap | deliver
    return app


def _routes_of(service: Service, name: str, version: str) -> Blueprint:
    """The routes of a collection in a version: load, store, represent."""
    found = service.writes[version]
    return CollectionHandlers(found[name], others=found).blueprint()


def stored_collections(resources: Iterable[Resource]) -> list[StoredCollection]:
    """All that a store holds for a service with these resources and every feature."""
    return _collections([*resources, *_resources_of(FEATURES)], FEATURES)


def _collections(items: Iterable[Resource | StoredView], features: Collection[str]) -> list[StoredCollection]:
    """All that a store holds for these items, of the service and of features, and for these features."""
    resources = [each.resource if isinstance(each, StoredView) else each for each in items]
    records = [each for name in _FEATURES if name in features for each in _FEATURES[name].collections]
    last_ids = [LAST_IDS] if any(each.has_integer_ids for each in resources) else []
    return [*(each.collection for each in resources), *last_ids, *records]


def _resources_of(features: Collection[str]) -> list[Resource]:
    """The items that features have."""
    return [each for name in _FEATURES if name in features for each in _FEATURES[name].resources]


def _open(features: Collection[str], without: Collection[str]) -> frozenset[str]:
    """The open features. Raises ConfigError for a name that is no feature."""
    for names in (features, without):
        if isinstance(names, str):
            raise ConfigError(f"features: {names!r} is a text; give a set of names, such as {{{names!r}}}")
    if unknown := sorted({*features, *without} - FEATURES):
        raise ConfigError(f"features: there is no {unknown[0]!r}; there are {', '.join(_FEATURES)}")
    return frozenset(features) - frozenset(without)


def _require_possible(
    features: Collection[str], config: Config, resources: Sequence[Resource], versions: Versions
) -> None:
    """Raises ConfigError for features that cannot be closed as they are, and ValueError for versions that are none."""
    if not isinstance(versions, Versions):
        raise ValueError(f"versions={versions!r}: must be Versions(…)")
    declared: Any = resources
    if not isinstance(declared, Collection) or not all(isinstance(each, Resource) for each in declared):
        raise ValueError(
            f"resources={declared!r}: must be Resources: find_resources(PACKAGE) returns those of a package"
        )
    if "webhooks" in features and "events" not in features:
        raise ConfigError("features: 'webhooks' is built on 'events', which is closed; close both")
    for name, feature in _FEATURES.items():
        for setting in feature.settings if name not in features and not config.harness else ():
            if getattr(config, setting) not in (getattr(Config, setting), "off"):
                raise ConfigError(f"{setting.upper()}: is set, and has no effect while the feature {name!r} is closed")
    if config.auth == "required" and "keys" not in features and not ("jwt" in features and config.jwt_jwks):
        raise ConfigError(
            "AUTH='required': nobody could call while the feature 'keys' is closed; open it, or 'jwt' and set JWT_JWKS"
        )
    if taken := [each.path for each in resources if each.path in RESERVED and len(list(versions)) > 1]:
        raise ConfigError(f"path={taken[0]!r}: each version has a page there: choose another one")
    if "versions" not in features and (len(list(versions)) > 1 or versions.deprecations):
        raise ConfigError("features: the service declares versions or deprecations, so 'versions' cannot be closed")
    if owned := [each.name for each in resources if each.ownership is not Ownership.NONE]:
        if "ownership" not in features:
            raise ConfigError(f"features: {owned[0]!r} declares an ownership, so 'ownership' cannot be closed")
