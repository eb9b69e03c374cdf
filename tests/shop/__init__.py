"""The service for the engine's tests: its own collections, so that those at the top can change freely.

RESTKEEPER_TESTS_CLOSE names the features that are closed in this run of the tests (`pytest --close`, see conftest.py).
RESTKEEPER_TESTS_BOUNDS has other values, as JSON, for fields of `Config` that are no settings.
"""

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import restkeeper
from restkeeper import Application, Config, Resource, Seams
from tests import stores
from tests.shop import products, users

RESOURCES: Sequence[Resource] = (products.RESOURCE, users.RESOURCE)

WINDOW = "9999 days"  # of a limit, so that none ends while a test runs
CLOSE = "RESTKEEPER_TESTS_CLOSE"
BOUNDS = "RESTKEEPER_TESTS_BOUNDS"
BUILT_ON = {"events": "webhooks", "openapi": "browse"}  # a feature, and those that depend on it


def closed_features() -> set[str]:
    """The features that are closed in this run: the named ones, and those that depend on them."""
    closed = set(os.environ.get(CLOSE, "").split())
    return closed | {BUILT_ON[name] for name in closed if name in BUILT_ON}


def create_app(config: Config | None = None, resources: Sequence[Resource] = RESOURCES, **options: Any) -> Application:
    """The WSGI application, with all features but the closed ones, on the store that `pytest --store` chooses."""
    if config:
        config = replace(config, database_url=stores.url(config.database_url))
    with bounded(json.loads(os.environ.get(BOUNDS, "{}"))):
        app = restkeeper.create_app(config, resources, **{"without": closed_features(), **options})
    stores.opened(app)
    return app


def take_part(app: Application, seams: Seams) -> None:
    """Let a feature take part in the requests of an application that is no service."""
    for stage, check in seams.checking:
        app.checking.add(check, stage=stage)
    app.answered.add(*seams.answered)


def bounded(bounds: dict[str, Any]) -> AbstractContextManager[object]:
    """Meanwhile `Config.from_env` returns these values."""
    if not bounds:
        return nullcontext()
    from unittest import mock  # takes a tenth of a server's start

    from_env = Config.from_env
    return mock.patch.object(Config, "from_env", lambda: replace(from_env(), **bounds))
