"""What our product defines. A module here that has a `RESOURCE` is a collection; nothing else names it."""

import pkgutil
from importlib import import_module

from resources.resource import Resource


def declared() -> tuple[Resource, ...]:
    """The resource of every module of this package that declares one, in order of name."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return tuple(module.RESOURCE for module in modules if hasattr(module, "RESOURCE"))
