"""The parts that a process creates once, for the application, the server's hooks and the commands."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from flask import Blueprint, Flask
from marshmallow import Schema

from restkeeper.clock import Clock
from restkeeper.config import Config, ConfigError
from restkeeper.resources.call import PROGRAM, of_program
from restkeeper.resources.changes import Domain, Unit
from restkeeper.resources.checks import RESERVED, require_possible
from restkeeper.resources.functions import Items
from restkeeper.resources.item import ItemLimits
from restkeeper.resources.items import ServedCollection
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView, Views
from restkeeper.schemas.prepared import worded
from restkeeper.storage import Location, Options, Store, locate
from restkeeper.storage.errors import GONE, StoreBusy, StoreContended, StoreUnavailable, StoreUnreachable
from restkeeper.storage.interface import Collection
from restkeeper.storage.records import StoredState
from restkeeper.storage.shares import one_at_a_time
from restkeeper.versions import V1, Version, Versions, prefix_of
from restkeeper.web.application import Application
from restkeeper.web.auth import Guard
from restkeeper.web.calls import Lookup
from restkeeper.web.edge import own_site_check
from restkeeper.web.operations import Contribution, operation_of

if TYPE_CHECKING:
    from restkeeper.resources.migration import Conversion

T = TypeVar("T")

CollectionRoutes = Callable[[Blueprint, ServedCollection, Mapping[str, ServedCollection]], None]

EXTENSION = "restkeeper"  # the name in `Flask.extensions`
NAME = "Restkeeper"

START_SECONDS = 60.0  # for which a start waits for a store that is away or locked
START_PAUSE_SECONDS = 0.25  # between two attempts

# The stores that the start of the service has opened, by name, with the times when their collections were last
# converted: the server's workers inherit them. Workers create no missing store: its disk may not be mounted.
started_stores: dict[str, dict[str, str]] = {}


@dataclass(frozen=True)
class Service:
    """The configuration, the store and the other shared parts. `name` is that of the service in its documents.

    `stored` are the items of its collections as they are stored, by the name of the collection, and `of_features` the
    items of features, such as keys. `features` has the names of the open features, which take part by the seams: see
    `restkeeper.feature`. Collections of `closed` features stay in the store. The description of the service has
    `contributions`. The versions in `served` have routes, and `writes` has the items that callers of a version read and
    write, by version and collection. `collection_routes` add routes to those of a collection, of which they get the
    items, and those of the others. Its `roles` are as they are declared.
    """

    app: Application
    config: Config
    stored: Mapping[str, StoredView]
    of_features: Mapping[str, StoredView]
    location: Location
    store: Store
    clock: Clock
    features: frozenset[str]
    guard: Guard
    lookup: Lookup
    domain: Domain
    versions: Versions
    served: tuple[Version, ...]
    name: str = NAME
    closed: frozenset[str] = frozenset()
    roles: Mapping[str, Names[str]] = field(default_factory=dict)
    contributions: list[Contribution] = field(default_factory=list)
    writes: dict[str, dict[str, ServedCollection]] = field(default_factory=dict)
    collection_routes: list[CollectionRoutes] = field(default_factory=list)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The declarations of its collections."""
        return tuple(stored.resource for stored in self.stored.values())

    @property
    def default_version(self) -> str:
        """The version of the unversioned paths, or when it is retired, the one to use instead."""
        return self.versions.replacement_for(self.versions.unversioned, self.clock.time())

    def items_of(self, stored: StoredView, views: Views | None = None, **options: Any) -> ServedCollection:
        """The items of a collection, as callers see them."""
        return ServedCollection(stored, views or stored, self.store, self.config, self.domain, **options)

    @cached_property
    def related(self) -> Mapping[str, ServedCollection]:
        """The items of all collections as they are stored, with the items that they refer to, for every caller."""
        options = self.store, self.config, Domain(clock=self.clock, references=self.domain.references)
        readers = {name: ServedCollection(stored, stored, *options) for name, stored in self.stored.items()}
        for items in readers.values():
            items.relations = self.domain.references.relations_of(items, readers.values())
        return readers

    def mount(self, routes: Callable[[str], Blueprint], *, unversioned: bool = False, path: str = "") -> None:
        """Register the routes that `routes` returns for a version, for all versions: at /api/VERSION/NAME, or `path`.

        Routes that are `unversioned`, too, are also at /NAME, in the version of the unversioned paths.
        """
        for version in self.served:
            blueprint = routes(version.name)
            address = path or blueprint.name
            prefixes = {f"{version.name}_{blueprint.name}": f"{prefix_of(version.name)}/{address}"}
            if unversioned and version.name == self.versions.unversioned:
                prefixes[blueprint.name] = f"/{address}"
            for name, prefix in prefixes.items():
                self.app.register_blueprint(blueprint, url_prefix=prefix, name=name)
            self.app.mounted |= prefixes.keys()

    def write(self, work: Callable[[Unit], T], **options: Any) -> T:
        """The result of `work`, for a program in one transaction. Takes the options and raises as `Store.write`."""
        return self.store.write(lambda transaction: work(Unit(self.domain, transaction, of_program())), **options)

    def conversions(self, *, accepts: bool = False) -> "list[Conversion]":
        """The collections with items of an earlier revision, which need a `Conversion`.

        Sets in all views when their items were last converted.
        """
        states, conversions = self.store.stored(), []
        for stored in (*self.stored.values(), *self.of_features.values()):
            stored.changed_at = states[stored.name].converted_at
            revision, items, _ = states[stored.name]
            if revision < stored.revision.number:
                names = [version.name for version in self.served]
                views = {name: self.domain.views_of(stored, name).for_caller(PROGRAM) for name in names}
                older = {name: view for name, view in views.items() if view.fingerprint != stored.fingerprint}
                migration = import_module("restkeeper.resources.migration")  # most stores have nothing to convert
                conversions.append(migration.Conversion(stored, older, revision, items, accepts))
        return conversions

    def unserved(self, stored: Mapping[str, StoredState]) -> dict[str, StoredState]:
        """The collections of a store that no resource serves, by name: a selection of `stored`."""
        others = {*self.stored, *RESERVED, *self.closed}
        return {name: state for name, state in sorted(stored.items()) if name not in others and name[0] != "_"}

    def warnings(self) -> Iterator[str]:
        """Lines that say what to do with items of unserved collections, in a store that is not temporary."""
        stored = {} if self.location.temporary else self.store.stored()
        for name, (revision, items, _) in self.unserved(stored).items():
            if items:
                has = f"the store has {items:,} {'items' if items > 1 else 'item'} of {name}, which no resource serves"
                rename = "" if revision == GONE else f"`restkeeper rename {name} NEW` if it has another name now, or "
                yield f"{has}: if no newer program does, run {rename}`restkeeper forget {name}`"

    def open_store(self, wait_seconds: float = 0.0) -> bool:
        """Open the store now, so that a start without it fails. Raises StoreError.

        While a server is away or another program has the store locked, it tries again, for `wait_seconds`. A worker
        opens the store later, and this returns False: if a worker ended, the whole server would end.
        """
        if self.location.name in started_stores:
            return False
        end, waits = self.clock.monotonic() + wait_seconds, False
        while True:
            try:
                self.store.open()
                return True
            except StoreUnavailable as error:
                problem = f"DATABASE_URL={self.location.name!r}: {error}"
                can_heal = isinstance(error, StoreBusy | StoreContended | StoreUnreachable)
                if not can_heal or self.clock.monotonic() >= end:
                    raise StoreUnavailable(problem) from error
            if not waits:
                print(f"restkeeper: waits up to {wait_seconds:.0f} s for the store: {problem}", file=sys.stderr)
            waits = True
            self.clock.sleep(START_PAUSE_SECONDS)


def locate_store(config: Config) -> Location:
    """The location of the store. Raises ConfigError for a URL that no backend knows."""
    try:
        return locate(config.database_url)
    except ValueError as error:
        scheme, separator, rest = config.database_url.partition("://")
        url = config.database_url if "@" not in rest else f"{scheme}{separator}…"  # without a password
        raise ConfigError(f"DATABASE_URL={url!r}: must be {error}") from None


def make_service(
    config: Config,
    views: Sequence[StoredView],
    collections: Iterable[Collection],
    name: str = NAME,
    *,
    of_features: Iterable[StoredView] = (),
    versions: Versions = V1,
    roles: Mapping[str, Names[str]] = {},
    features: Names[str] = (),
    closed: Names[str] = (),
    clock: Clock = time,
) -> Service:
    """Create a service of these items, and of the items `of_features`. Its store has `collections`; it is not open yet.

    Raises ConfigError for an invalid URL, and DeclarationError for collections that do not fit.
    """
    require_possible([view.resource for view in views])
    location = locate_store(config)
    options = Options(
        synchronous=config.sqlite_synchronous,
        min_free_space=config.min_free_space,
        connections=config.database_connections,
        creates=location.name not in started_stores,
        clock=clock,
    )
    store = location.store(collections, options)
    listed, is_local = [origin for origin in config.cors_origins if origin != "*"], config.auth == "open"
    require_own_site = own_site_check(listed, local_only=is_local)  # any page may call, but not as its reader
    guard = Guard(required=config.auth == "required", local_only=is_local, require_own_site=require_own_site)
    guard.scopes |= dict.fromkeys(scope for view in views for scope in view.revision.scopes)
    domain = Domain(clock=clock, limits=ItemLimits(*config.item_limits), large=one_at_a_time("large bodies", clock))
    lookup = Lookup(store, clock)
    stored, feature_views = {view.name: view for view in views}, {view.name: view for view in of_features}
    domain.resources = {view.name: view.resource for view in views}
    if both := stored.keys() & feature_views.keys():
        raise ConfigError(f"features: {min(both)!r} is a collection of the service, and what a feature stores")
    for view in (*views, *feature_views.values()):
        view.changed_at = started_stores.get(location.name, {}).get(view.name, "")
    app = Application("restkeeper", static_folder=None, adding=guard.read_needs)
    service = Service(
        app,
        config,
        stored,
        feature_views,
        location,
        store,
        clock,
        frozenset(features),
        guard,
        lookup,
        domain,
        versions,
        tuple(versions.served(clock.time())),
        name,
        frozenset(closed),
        roles,
    )
    domain.items = partial(Items, collections=stored, related=lambda: service.related)
    return service


def service_of(app: Flask) -> Service:
    """The service of an application."""
    return cast(Service, app.extensions[EXTENSION])


def serve_blueprints(service: Service, blueprints: Iterable[Blueprint]) -> None:
    """Serve the blueprints of a service at their own paths, in no version of the API.

    Raises ValueError for a path of the engine or of a collection.
    """
    app = service.app
    engine_paths, reserved = {rule.rule for rule in app.url_map.iter_rules()}, {*RESERVED, *app.collections}
    names = set()
    for blueprint in blueprints:
        if not isinstance(blueprint, Blueprint):
            raise ValueError(f"blueprints: {blueprint!r}: must be a flask.Blueprint")
        app.register_blueprint(blueprint)
        names.add(blueprint.name)
    for rule in app.url_map.iter_rules():
        name = rule.rule.split("/")[1]
        if rule.endpoint.partition(".")[0] in names:
            if rule.rule in engine_paths or "<" in name or not reserved.isdisjoint({name, name.partition(".")[0]}):
                raise ValueError(f"{rule.endpoint}: {rule.rule}: the path is taken; begin it with a name like /reports")
            app.uncached.add(rule.endpoint)
            operation = operation_of(app.view_functions[rule.endpoint])
            for schema in (*operation.parameters, operation.body and operation.body.schema):
                if isinstance(schema, Schema):
                    worded(schema)
    service.contributions.append(Contribution(tags={name: f"The routes of {name}." for name in sorted(names)}))
