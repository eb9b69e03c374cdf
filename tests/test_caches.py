"""What functions remember: every such cache has a bound, and the bounds are these."""

import importlib
import pkgutil
from functools import lru_cache

import cli
import delivery
import resources
import schemas
import storage
import web

ENTRIES = {
    "storage.sql._page_statements": 64,
    "web.auth._known": 4096,
    "web.auth._is_here": 1024,
    "web.caller._networks": 4096,
    "web.edge._parsed": 1024,
    "web.mapped._digest": 4096,
    "web.observe._second": 2,
    "web.pagination._cursor": 1024,
    "web.preconditions._first_second_after": 4096,
    "web.preconditions._http_date": 2,
    "web.worker._date": 2,
}
KIND = type(lru_cache(lambda: None))


def test_every_cache_of_a_function_has_its_bound() -> None:
    """A new one is written down here, with how many results it holds at most."""
    found = {}
    for package in (cli, delivery, resources, schemas, storage, web):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if type(value) is KIND and value.__module__.partition(".")[0] == package.__name__:
                    name = f"{value.__wrapped__.__module__}.{value.__wrapped__.__qualname__}"
                    found[name] = value.cache_parameters()["maxsize"]
    assert found == ENTRIES
