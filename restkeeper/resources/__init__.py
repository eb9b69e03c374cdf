"""Collections: how one is declared, and what a call reads and writes of it. Knows no HTTP."""

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from restkeeper.resources.resource import Resource


def find_resources(package: ModuleType) -> tuple[Resource, ...]:
    """The `RESOURCE` of every module of a package that has one, in order of the modules' names.

    Raises ValueError for a collection that a module has by another name only.
    """
    modules = [import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    named = [module.RESOURCE for module in modules if hasattr(module, "RESOURCE")]
    found = tuple({id(each): each for each in named}.values())  # a module can import that of another one
    for module in modules:
        file = f"{module.__name__.replace('.', '/')}.py"
        for name, value in vars(module).items():
            if isinstance(value, Resource) and value not in found:
                raise ValueError(f"{file}: {name} is a collection, and is not served: write RESOURCE = Resource(…)")
            if name == "RESOURCE" and not isinstance(value, Resource):
                raise ValueError(f"{file}: RESOURCE is a {type(value).__name__}: write RESOURCE = Resource(…)")
    return found


# Paths of the service itself, and the kinds of their resources.
RESERVED = set("api batch browse docs events healthz keys metrics openapi problems readyz webhooks".split())
RESERVED_KINDS = set("event fault health index key problem webhook".split())  # of these, the document has schemas


def require_free_names(resources: Sequence[Resource]) -> None:
    """Raises ValueError for collections that cannot be where their names say."""
    names, kinds = [each.name for each in resources], [each.singular for each in resources]
    paths = [each.public_name for each in resources]
    if taken := RESERVED.intersection(names) | RESERVED_KINDS.intersection(kinds):  # event types begin with a kind
        raise ValueError(f"{', '.join(sorted(taken))}: the name is taken; call the collection something else")
    for word, values in (("name", names), ("singular", kinds), ("path", paths)):
        if twice := next((value for value in values if values.count(value) > 1), ""):
            schemas = (each.schema.__name__ for each, value in zip(resources, values, strict=True) if value == twice)
            raise ValueError(f"{twice!r} is the {word} of two collections, of {' and '.join(schemas)}: change one")
