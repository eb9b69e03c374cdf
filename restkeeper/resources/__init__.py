"""Collections: how one is declared, and what a call reads and writes of it. Knows no HTTP."""

import pkgutil
from importlib import import_module
from types import ModuleType

from restkeeper.resources.resource import Resource


def find_resources(package: ModuleType) -> tuple[Resource, ...]:
    """The `RESOURCE` of every module of a package that has one, in order of the modules' names.

    Raises ValueError for a collection that a module has by another name only.
    """
    modules = [import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    declared = [module.RESOURCE for module in modules if hasattr(module, "RESOURCE")]
    resources = tuple(
        {id(resource): resource for resource in declared}.values()
    )  # a module can import from another one
    for module in modules:
        file = f"{module.__name__.replace('.', '/')}.py"
        for name, value in vars(module).items():
            if isinstance(value, Resource) and value not in resources:
                raise ValueError(f"{file}: {name} is a collection, and is not served: write RESOURCE = Resource(…)")
            if name == "RESOURCE" and not isinstance(value, Resource):
                raise ValueError(f"{file}: RESOURCE is a {type(value).__name__}: write RESOURCE = Resource(…)")
    return resources
