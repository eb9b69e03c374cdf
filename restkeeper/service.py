"""What a process makes once for a service and hands on: to the application, the server's hooks and the commands."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from flask import Flask

from restkeeper.clock import Clock
from restkeeper.config import Config
from restkeeper.errors import Unavailable
from restkeeper.resources import require_free_names, stored
from restkeeper.resources.resource import Resource
from restkeeper.storage import Store, open_store

EXTENSION = "restkeeper"  # the name in `Flask.extensions`


@dataclass(frozen=True)
class Service:
    """The parts that all others are made from. `clock` is asked for every time, of the day or elapsed."""

    config: Config
    resources: tuple[Resource, ...]
    store: Store
    clock: Clock


def make_service(
    config: Config, resources: Sequence[Resource], *, clock: Clock = time, lazily: bool = False
) -> Service:
    """A service whose store is opened now, or `lazily` when it is first used.

    Raises Unavailable when the store cannot be opened, and ValueError for names that a collection cannot have.
    """
    require_free_names(resources)
    try:
        store = open_store(
            config.database_url,
            stored(resources),
            synchronous=config.sqlite_synchronous,
            min_free_space=config.min_free_space,
            lazily=lazily,
            clock=clock,
        )
    except Unavailable as error:
        raise Unavailable(f"DATABASE_URL={config.database_url!r}: {error.detail}") from error
    return Service(config, tuple(resources), store, clock)


def service_of(app: Flask) -> Service:
    """The service that an application was made for."""
    return cast(Service, app.extensions[EXTENSION])
