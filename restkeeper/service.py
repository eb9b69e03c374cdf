"""The parts that a process creates once, for the application, the server's hooks and the commands."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Collection as Names
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar, cast

from flask import Blueprint, Flask
from marshmallow import Schema

from restkeeper.clock import Clock
from restkeeper.config import Config, ConfigError
from restkeeper.resources.call import of_program
from restkeeper.resources.changes import Domain, Unit
from restkeeper.resources.checks import RESERVED, require_possible
from restkeeper.resources.functions import Items
from restkeeper.resources.item import ItemLimits
from restkeeper.resources.items import ServedCollection
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView, Views
from restkeeper.schemas.prepared import worded
from restkeeper.storage import Location, Options, Store, locate
from restkeeper.storage.interface import Collection
from restkeeper.storage.shares import one_at_a_time
from restkeeper.versions import V1, Version, Versions, prefix_of
from restkeeper.web.application import Application
from restkeeper.web.auth import Guard
from restkeeper.web.calls import Lookup
from restkeeper.web.edge import own_site_check
from restkeeper.web.operations import Contribution, operation_of

T = TypeVar("T")

CollectionRoutes = Callable[[Blueprint, ServedCollection, Mapping[str, ServedCollection]], None]

EXTENSION = "restkeeper"  # the name in `Flask.extensions`
NAME = "Restkeeper"

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
