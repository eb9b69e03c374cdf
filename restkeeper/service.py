"""What a process makes once for a service and hands on: to the application, the server's hooks and the commands."""

import time
from collections.abc import Collection as Names
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from flask import Flask

from restkeeper.clock import Clock
from restkeeper.config import Config, ConfigError
from restkeeper.resources import require_free_names
from restkeeper.resources.changes import Hooks
from restkeeper.resources.resource import Resource
from restkeeper.storage import Location, Store, locate, open_store
from restkeeper.storage.contract import Collection
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.web.guard import Guard

EXTENSION = "restkeeper"  # the name in `Flask.extensions`


@dataclass(frozen=True)
class Service:
    """The parts that all others are made from.

    `clock` is asked for every time, of the day or elapsed. `features` names those that are open; they take part by
    `guard` and `hooks`. A service that only a command uses `serves` no requests.
    """

    config: Config
    resources: tuple[Resource, ...]
    location: Location
    store: Store
    clock: Clock
    features: frozenset[str]
    guard: Guard
    hooks: Hooks
    serves: bool


def locate_store(config: Config) -> Location:
    """Where the configuration has the store. Raises ConfigError for a URL that no backend knows."""
    try:
        return locate(config.database_url)
    except ValueError as error:
        raise ConfigError(f"DATABASE_URL={config.database_url!r}: must be {error}") from None


def make_service(
    config: Config,
    resources: Sequence[Resource],
    collections: Iterable[Collection],
    *,
    features: Names[str] = (),
    clock: Clock = time,
    serves: bool = True,
) -> Service:
    """A service of `resources`, whose store holds `collections`.

    The store is opened now if it `serves`, else when it is first used. Raises ConfigError for a store that cannot be,
    StoreUnavailable when it cannot be opened, and ValueError for names that a collection cannot have.
    """
    require_free_names(resources)
    location = locate_store(config)
    try:
        store = open_store(
            location,
            collections,
            synchronous=config.sqlite_synchronous,
            min_free_space=config.min_free_space,
            lazily=not serves,
            clock=clock,
        )
    except StoreUnavailable as error:
        raise StoreUnavailable(f"DATABASE_URL={location.name!r}: {error.detail}") from error
    guard = Guard(required=config.auth == "required", local_only=config.auth == "open")
    return Service(config, tuple(resources), location, store, clock, frozenset(features), guard, Hooks(), serves)


def service_of(app: Flask) -> Service:
    """The service that an application was made for."""
    return cast(Service, app.extensions[EXTENSION])
