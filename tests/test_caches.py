"""Caches of functions: each has a limit, and this is the list of them."""

import importlib
import pkgutil
from functools import lru_cache

import restkeeper

ENTRIES = {
    "restkeeper.storage.sqlite.sql._page_statements": 64,
    "restkeeper.storage.postgresql.queries._page_statement": 64,
    "restkeeper.storage.postgresql.queries._count_statement": 64,
    "restkeeper.storage.postgresql.queries._sort_keys": 64,
    "restkeeper.storage.postgresql.items._look_up": 16,
    "restkeeper.storage.postgresql.session._required": 16,
    "restkeeper.features.keys.credentials._known": 4096,
    "restkeeper.web.auth._is_here": 1024,
    "restkeeper.web.auth._networks": 4096,
    "restkeeper.web.edge._parsed": 1024,
    "restkeeper.features.limits.shared._digest": 4096,
    "restkeeper.web.pagination._cursor": 1024,
    "restkeeper.web.preconditions._first_second_after": 4096,
    "restkeeper.web.preconditions._http_date": 2,
}
KIND = type(lru_cache(lambda: None))


def test_every_function_cache_has_a_limit() -> None:
    """A new cache must be listed here, with its largest number of results."""
    found = {}
    for module in pkgutil.walk_packages(restkeeper.__path__, "restkeeper."):
        if module.name != "restkeeper.server.settings":  # gunicorn loads it itself
            for value in vars(importlib.import_module(module.name)).values():
                if type(value) is KIND and value.__module__.startswith("restkeeper."):
                    name = f"{value.__wrapped__.__module__}.{value.__wrapped__.__qualname__}"
                    found[name] = value.cache_parameters()["maxsize"]
    assert found == ENTRIES
