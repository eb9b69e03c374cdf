"""Caches of functions: each has a limit."""

import importlib
import pkgutil
from functools import lru_cache

import restkeeper

MOST = 4096  # results of any function
KIND = type(lru_cache(lambda: None))


def test_every_function_cache_has_a_limit() -> None:
    """One without a limit would grow with what clients send."""
    limits = {}
    for module in pkgutil.walk_packages(restkeeper.__path__, "restkeeper."):
        if module.name != "restkeeper.server.settings":  # gunicorn loads it itself
            for value in vars(importlib.import_module(module.name)).values():
                if type(value) is KIND and value.__module__.startswith("restkeeper."):
                    limits[value.__wrapped__.__qualname__] = value.cache_parameters()["maxsize"]
    assert limits
    assert {name: most for name, most in limits.items() if most is None or most > MOST} == {}
