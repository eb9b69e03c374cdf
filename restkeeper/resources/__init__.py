"""Collections: how one is declared, and what a call reads and writes of it. Knows no HTTP."""

import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from types import ModuleType

from restkeeper.mistakes import DeclarationError
from restkeeper.resources.resource import Resource, references_in
from restkeeper.schemas.fields import IntegerReference, Owner, Reference, Refers, Status, WeakReference


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
RESERVED_KINDS = set("event fault grouped health index key problem webhook".split())  # the document has schemas of them


def require_possible(resources: Sequence[Resource]) -> None:
    """Raises DeclarationError for the first that cannot work with the others, which it does not know by itself."""
    for check in (_names, _references, _states):
        for resource, sentence in check(resources):
            raise DeclarationError(sentence, resource.position)


Faults = Iterable[tuple[Resource, str]]


def _names(resources: Sequence[Resource]) -> Faults:
    """Of the names that the service has, and of those that two collections have."""
    for each in resources:
        if each.name in RESERVED or each.singular in RESERVED_KINDS:  # event types begin with a kind
            taken = each.name if each.name in RESERVED else each.singular
            yield each, f"{taken}: the name is taken; call the collection something else"
    for word, attribute in (("name", "name"), ("singular", "singular"), ("path", "public_name")):
        first = dict[str, Resource]()
        for each in resources:
            other = first.setdefault(value := getattr(each, attribute), each)
            if other is not each:
                schemas = f"{other.schema.__name__} and {each.schema.__name__}"
                yield each, f"{value!r} is the {word} of two collections, of {schemas}: change one"


def _references(resources: Sequence[Resource]) -> Faults:
    """Of references to a collection that is not there, or that has other ids."""
    by_name = {each.name: each for each in resources if not each.singleton}
    for each in resources:
        for where, field in _followed(each):
            is_owner = isinstance(field, Owner)
            if (to := by_name.get(field.to)) is None:
                called = "Owner(to=" if is_owner else "Reference("
                yield each, f"{where}: {called}{field.to!r}): must be one of {', '.join(by_name)}"
                continue
            kind = IntegerReference if to.has_integer_ids else Reference
            if is_owner and to.has_integer_ids:
                yield each, f"{where}: Owner(to={field.to!r}): its ids are integers, and owners texts"
            if not isinstance(field, (kind, Owner, WeakReference)):
                yield each, f"{where}: write {kind.__name__}({field.to!r})"


def _followed(resource: Resource) -> Iterator[tuple[str, Refers | Owner]]:
    """Where the references of items and of the bodies of actions stand, and each of them."""
    for path, field in resource.newest.followed.items():
        yield f"{resource.name}.{path}", field
    for action in resource.actions.values():
        for path, field in references_in(action.schema) if action.schema else ():
            yield f"{resource.name}: action({action.name!r}): {path}", field


def _states(resources: Sequence[Resource]) -> Faults:
    """Of states that no action sets: the actions of a collection are declared after it."""
    for each in resources:
        for name, field in each.newest.guarded.items():
            for state, action in field.lifecycle.by_actions.items() if isinstance(field, Status) else ():
                if action not in each.actions:
                    why = f"{state!r} is set by {action!r}, and there is no such action"
                    yield each, f"{each.name}.{name}: by_actions: {why}"
