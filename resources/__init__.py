"""What our product defines. A module here that has a `RESOURCE` is a collection; nothing else names it."""

import pkgutil
from collections.abc import Sequence
from importlib import import_module

from resources.keys import KEYS
from resources.resource import Resource
from storage.contract import Collection
from web.auth import CREDENTIALS


def declared() -> tuple[Resource, ...]:
    """The resource of every module of this package that declares one, in order of name."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return tuple(module.RESOURCE for module in modules if hasattr(module, "RESOURCE"))


# Paths of the service's own, and what they are about.
# Paths of the service's own, and what they are about.
RESERVED = {"api", "docs", "events", "healthz", "keys", "metrics", "openapi", "problems", "readyz", "webhooks"}


def require_free_names(resources: Sequence[Resource]) -> None:
    """Raises ValueError for collections that cannot be where their names say."""
    names = [each.name for each in resources]
    if taken := {name for name in names if name in RESERVED or names.count(name) > 1}:
        raise ValueError(f"{', '.join(sorted(taken))}: the name is taken; call the collection something else")


def stored(resources: Sequence[Resource]) -> list[Collection]:
    """All that a store keeps for a service with these resources: theirs, and what the service needs for itself."""
    return [*(each.collection for each in (*resources, KEYS)), CREDENTIALS]
