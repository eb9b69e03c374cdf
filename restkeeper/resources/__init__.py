"""Collections: how one is declared, and what a call reads and writes of it. Knows no HTTP."""

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from restkeeper.mistakes import DeclarationError
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
RESERVED_KINDS = set(
    "event fault grouped health index key problem webhook".split()
)  # of these, the document has schemas


def require_free_names(resources: Sequence[Resource]) -> None:
    """Raises ValueError for collections that cannot be where their names say."""
    names, kinds = [each.name for each in resources], [each.singular for each in resources]
    paths = [each.public_name for each in resources]
    for each in resources:
        taken = each.name if each.name in RESERVED else each.singular  # event types begin with a kind
        if taken in RESERVED if taken == each.name else taken in RESERVED_KINDS:
            raise DeclarationError(f"{taken}: the name is taken; call the collection something else", each.position)
    for word, values in (("name", names), ("singular", kinds), ("path", paths)):
        for number, value in enumerate(values):
            if value in values[:number]:
                schemas = " and ".join(resources[n].schema.__name__ for n in (values.index(value), number))
                why = f"{value!r} is the {word} of two collections, of {schemas}: change one"
                raise DeclarationError(why, resources[number].position)
