"""What cannot work in the declarations of collections, with a sentence for their author.

There is a table for one by itself, and one for several together. A fault is where it stands, after the name of the
collection, and what is wrong with what to write instead.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import iscoroutinefunction, signature, unwrap
from typing import Any

from marshmallow import Schema, fields

from restkeeper.positions import DeclarationError
from restkeeper.resources.call import ADMIN, KNOWN, PUBLIC, SCOPE
from restkeeper.resources.declaration import ALL_OWNERS, METHODS, Action, Declaration, Ownership
from restkeeper.resources.queried import NAME, longest_text
from restkeeper.resources.revision import references_in
from restkeeper.resources.step import Step
from restkeeper.schemas.fields import (
    READABLE_BY,
    IntegerReference,
    Owner,
    Reference,
    Refers,
    Status,
    scopes_of,
)
from restkeeper.schemas.item import IDS, READ_ONLY, ItemSchema
from restkeeper.schemas.prepared import all_fields_in, prepared, refusals
from restkeeper.storage.interface import ANY, MOST_INDEXED, POSITION, Index, field_in

_ACTION = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_TAKEN = ("list", "create", "read", "replace", "merge", "delete")
OF_SINGLETON = ("GET", "PUT", "PATCH")

LARGEST_PAGE = 10_000  # items
LONGEST_INDEXED = 600  # characters of several fields of an index: PostgreSQL has 2,704 bytes for them
LONGEST_PATH = 64  # characters

_TEXT, _SEQUENCE = (str, "a text"), (Sequence, "a tuple or a list")
_PARTS: Mapping[str, tuple[type, str]] = {
    "name": _TEXT,
    "singular": _TEXT,
    "schema": (type, "a class"),
    "indexes": _SEQUENCE,
    "search": _SEQUENCE,
    "upgrades": (Mapping, "a dictionary, such as {2: [Rename('title', 'name')]}"),
    "sort": _TEXT,
    "path": _TEXT,
    "ownership": (Ownership, "one of Ownership.NONE, Ownership.CHANGES and Ownership.ALL"),
}
_LIMITS = {"page_limit": LARGEST_PAGE, "page_bytes": 2**31, "embed_limit": LARGEST_PAGE}


Faults = Iterable[tuple[str, str]]


def _parts(resource: Any) -> Faults:
    """The faults of the types of a declaration: a service can pass values of any type."""
    for name, (kind, words) in _PARTS.items():
        value = getattr(resource, name)
        if not isinstance(value, kind) or (kind is Sequence and isinstance(value, str)):
            yield "", f"{name}={value!r}: must be {words}"
    if resource.ids not in IDS:
        yield "", f"ids={resource.ids!r}: must be {' or '.join(map(repr, IDS))}"
    if not issubclass(resource.schema, ItemSchema):
        yield "", f"schema={resource.schema.__name__}: must be a subclass of ItemSchema"
    for index in resource.indexes:
        if not isinstance(index, Index):
            yield "", f"indexes has {index!r}: write Index({index!r})"
    for name, most in _LIMITS.items():
        value = getattr(resource, name)
        if (type(value) is not int or not 0 < value <= most) and (value is not None or name == "embed_limit"):
            yield "", f"{name}={value!r}: must be a whole number from 1 to {most}"
    methods, possible = resource.methods, OF_SINGLETON if resource.singleton else METHODS
    if isinstance(methods, str) or "GET" not in methods or not {*possible}.issuperset(methods):
        yield "", f"methods={methods!r}: must be 'GET' and some of {possible[1:]}"


def _upgrades(resource: Declaration) -> Faults:
    for revision, steps in resource.upgrades.items():
        if not isinstance(steps, Sequence) or not all(isinstance(step, Step) for step in steps):
            wrong = f"a {type(steps).__name__}" if isinstance(steps, Step) else repr(steps)
            yield "", f"upgrades: {revision} has {wrong}: must be a list of steps"
    if [*resource.upgrades] != [*range(resource.oldest + 1, resource.revision + 1)] or resource.oldest < 1:
        yield "", "upgrades are of the revisions 2, 3 …, each once and in this order"
    if resource.upgrades and resource.newest.is_open:
        yield "", "upgrades: no step knows all that items of an open schema have: leave it out"
    for step in (step for steps in resource.upgrades.values() for step in steps):
        if step.is_constant and step.after[0] in resource.unique:
            yield "", f"upgrades: Add({step.after[0]!r}): older items cannot all have one unique value"


def _names(resource: Declaration) -> Faults:
    fields = (name for revision in resource.revisions.values() for name in revision.definitions)
    for name in (resource.name, resource.singular, *fields):
        if not NAME.fullmatch(name):
            address = f"; path={name!r} is the address" if name == resource.name and not no_path(name) else ""
            yield "", f"{name!r} is no name: use ASCII letters, digits and underscores{address}"
    if resource.path and (reason := no_path(resource.path)):
        yield "", f"path={resource.path!r}: {reason}"
    if resource.needs:
        if not re.fullmatch(f"{ADMIN}|{SCOPE}", resource.needs):
            yield "", f"needs={resource.needs!r}: must be 'admin', or a scope like 'reports:read'"
        yield from _reserved("", resource.needs)
        if resource.ownership is not Ownership.NONE:
            yield "", "needs: who has this scope reads all items, and others none: leave out the ownership"


def no_path(text: str) -> str:
    """Why a collection cannot be called so; an empty text if it can."""
    if not 0 < len(text) <= LONGEST_PATH:
        return f"must have 1 to {LONGEST_PATH} characters"
    if text in ("_", ".", "..") or "/" in text or "<" in text or not text.isprintable():
        return "must be printable, without / and <, and none of _ . and .."
    return ""


def _schemas(resource: Declaration) -> Faults:
    """Of the schema of each revision."""
    for number, revision in resource.revisions.items():
        schema = prepared(revision.schema)
        if "id" in revision.hidden and not resource.singleton:
            yield "", f"{resource.schema.__name__}.Meta: leaves out id: exclude only times and version"
        for name in READ_ONLY:
            field = schema.declared_fields[name]
            if name not in revision.hidden and (not field.dump_only or READABLE_BY in field.metadata):
                yield f".{name}", "the server sets it: use another name"
            if not field.dump_only:
                yield f".{name}", f"Meta.exclude leaves it out: write own_{name} = …(data_key={name!r})"
        for reason in refusals(schema, is_newest=number == resource.revision):
            path, _, sentence = reason.partition(": ")
            yield f".{path}", sentence
        for path, reference in revision.followed.items():
            if (name := reference.embed_as) and (name in revision.names or "." in path or not NAME.fullmatch(name)):
                why = "must be a name that no field has, of a reference that is in no other field"
                yield f".{path}", f"embed_as={name!r}: {why}"
        for path, reference in revision.references.items():
            is_clearable = reference.allow_none and reference in revision.definitions.values()
            if reference.on_delete == "null" and not is_clearable:
                yield f".{path}", "on_delete='null' needs allow_none=True, and no field around it"
        yield from _unusable(".", schema)
        for name, field in revision.guarded.items():
            for scope in scopes_of(field):
                if not re.fullmatch(f"{ADMIN}|{SCOPE}", str(scope)):
                    yield f".{name}", f"{scope!r} is no scope: write one like orders:manage"
                yield from _reserved(f".{name}", scope)
    if resource.undeclared and not resource.newest.is_open:
        yield "", "undeclared=True: items have no other fields: needs Meta.unknown = INCLUDE"


def _reserved(where: str, scope: str) -> Faults:
    if scope.endswith(f":{ALL_OWNERS}"):
        yield where, f"{scope!r} is reserved for reaching the items of all owners: choose another name"


def _unusable(where: str, schema: Schema) -> Faults:
    """The fields of a schema that do not work here, and the references in a place where no request checks them."""
    checked = [field for _, field in references_in(schema)]
    for path, field, _ in all_fields_in(schema):
        if isinstance(field, fields.Pluck):
            yield f"{where}{path}", "Pluck: use Nested, or the field of the other schema itself"
        if isinstance(field, Refers) and field not in checked:
            yield f"{where}{path}", "Reference: can be inside Nested and List(…) of these only"


def _owners(resource: Declaration) -> Faults:
    for revision in resource.revisions.values():
        owners = [name for name, field in revision.definitions.items() if isinstance(field, Owner)]
        if owners and resource.ownership is Ownership.NONE:
            yield f".{owners[0]}", "Owner: items have no owners: set ownership=Ownership.ALL or Ownership.CHANGES"
        if len(owners) > 1:
            yield f".{owners[1]}", f"Owner: {owners[0]} is one already, and an item has one owner"


def _indexes(resource: Declaration) -> Faults:
    fields, definitions = resource.newest.fields, resource.newest.definitions
    for name in (*(name for index in resource.indexes for name in index.fields), *resource.search):
        is_known = name in fields if name in resource.search else field_in(fields, name)
        if not is_known or "*" in name or ("." in name and name in resource.search):
            yield f".{name}", f"cannot be indexed or searched; there are: {', '.join(fields)}"
    for index in resource.indexes:
        several = len(index.fields) > 1
        for name in index.fields:
            if (field := field_in(fields, name)) and field.is_many and (index.unique or index.fold or several):
                yield f".{name}", f"can have several values: write Index({name!r})"
        if several and index.fold:
            yield "", f"{index}: is of several fields: write fold=True in an Index of each text"
        if not len({*index.fields}) == len(index.fields) <= MOST_INDEXED:
            yield "", f"{index}: must be of 1 to {MOST_INDEXED} fields, each once"
        lengths = [longest_text(field) for name, field in definitions.items() if name in index.fields]
        if several and sum(lengths) > LONGEST_INDEXED:
            why = f"its texts can have more than {LONGEST_INDEXED} characters: give them a bound, as Text(1, 100)"
            yield "", f"{index}: {why}"


def _order(resource: Declaration) -> Faults:
    fields = resource.newest.fields
    sortable = [name for name, field in fields.items() if field.sortable and name != ANY]
    for key in resource.order:
        is_free = resource.undeclared and key.field not in fields
        if key.field not in sortable and not is_free and resource.sort != POSITION:
            yield "", f"sort={resource.sort!r}: {key.field!r} is none of {', '.join(sortable)}"


def _private(resource: Declaration) -> Faults:
    """What would show private values to who may not read them."""
    uses = {**dict.fromkeys(resource.search, "search"), **dict.fromkeys(resource.compared, "a unique Index")}
    uses |= {key.field: "sort" for key in resource.order}
    for name in resource.newest.private:
        if use := "undeclared=True" if resource.undeclared else uses.get(name):
            yield f".{name}", f"readable_by: {use} would show its values to who may not read it"


def _singleton(resource: Declaration) -> Faults:
    of_lists = (resource.indexes, resource.search, resource.sort, resource.page_limit, resource.page_bytes)
    has_more = any(of_lists) or resource.ownership is not Ownership.NONE or resource.ids != "server"
    if resource.singleton and has_more:
        more = "indexes, search, sort, page_limit, page_bytes, ownership and ids"
        yield "", f"a singleton is one item of all callers: leave out {more}"


def of_action(resource: Declaration, action: Action, of: str) -> Faults:
    """The faults of an action that is declared now."""
    what, scope, body = f"action({action.name!r})", action.scope, action.body
    if not _ACTION.fullmatch(action.name) or action.name in resource.actions:
        yield "", f"{what}: must be a new name of small letters, digits and dashes, such as mark-paid"
    if action.name in _TAKEN:
        yield "", f"{what}: is an operation of each collection: choose another name"
    scoped = f"action({action.name!r}, scope={scope!r})"
    if not re.fullmatch(f"read|write|{KNOWN}|{PUBLIC}|{ADMIN}|{SCOPE}", str(scope)):
        yield "", f"{scoped}: write one like {resource.name}:{action.name}"
    yield from _reserved(f": {scoped}", scope)
    if of not in (kinds := ("item",) if resource.singleton else ("item", "collection")):
        yield "", f"action({action.name!r}, of={of!r}): must be {' or '.join(map(repr, kinds))}"
    is_schema = isinstance(body, type) and issubclass(body, Schema)
    if not is_schema and (body is not None or action.partial):
        yield "", f"action({action.name!r}, body={body!r}): must be a schema class of marshmallow"
    arguments = (*["item"] * action.of_item, *["body"] * (body is not None), "items")
    yield from of_function(what, action.function, arguments)
    if action.schema:
        yield from _unusable(f": {what}: ", action.schema)
    if getattr(unwrap(action.function), "is_replaced", False):
        yield "", f"{what}: @returns has problems only: its result is JSON as it is"


def of_function(what: str, function: Callable[..., Any], arguments: Sequence[str]) -> Faults:
    """Why a function cannot be called with these arguments in a transaction."""
    if iscoroutinefunction(function):
        yield "", f"{what}: {function.__name__} is async: a transaction cannot wait: write def"
    try:
        signature(function).bind(*arguments)
    except TypeError as error:
        yield "", f"{what}: is called with ({', '.join(arguments)}): {error}"


CHECKS = (_parts, _upgrades, _names, _schemas, _owners, _indexes, _order, _private, _singleton)


# Paths of the service itself, and the kinds of their resources.
RESERVED = set("api batch browse docs events healthz keys metrics openapi problems readyz webhooks".split())
RESERVED_KINDS = set("event fault grouped health index key problem webhook".split())  # the document has schemas of them


SharedFaults = Iterable[tuple[Declaration, str]]


def require_possible(resources: Sequence[Declaration]) -> None:
    """Raises DeclarationError for the first that cannot work with the others, which it does not know by itself."""
    for check in (_shared_names, _targets, _states):
        for resource, sentence in check(resources):
            raise DeclarationError(sentence, resource.position)


def _shared_names(resources: Sequence[Declaration]) -> SharedFaults:
    """Of the names that the service has, and of those that two collections have."""
    for resource in resources:
        if resource.name in RESERVED or resource.singular in RESERVED_KINDS:  # event types begin with a kind
            name = resource.name if resource.name in RESERVED else resource.singular
            yield resource, f"{name}: the name is taken; call the collection something else"
    for word, attribute in (("name", "name"), ("singular", "singular"), ("path", "public_name")):
        by_value = dict[str, Declaration]()
        for resource in resources:
            other = by_value.setdefault(value := getattr(resource, attribute), resource)
            if other is not resource:
                schemas = f"{other.schema.__name__} and {resource.schema.__name__}"
                yield resource, f"{value!r} is the {word} of two collections, of {schemas}: change one"


def _targets(resources: Sequence[Declaration]) -> SharedFaults:
    """Of references to a collection that is not there, or that has other ids."""
    by_name = {resource.name: resource for resource in resources if not resource.singleton}
    for resource in resources:
        for where, field in followed(resource):
            is_owner = isinstance(field, Owner)
            if (to := by_name.get(field.to)) is None:
                called = "Owner(to=" if is_owner else "Reference("
                yield resource, f"{where}: {called}{field.to!r}): must be one of {', '.join(by_name)}"
                continue
            kind = IntegerReference if to.has_integer_ids else Reference
            if is_owner and to.has_integer_ids:
                yield resource, f"{where}: Owner(to={field.to!r}): its ids are integers, and owners texts"
            if field.checked and not isinstance(field, kind):
                yield resource, f"{where}: write {kind.__name__}({field.to!r})"


def followed(resource: Declaration) -> Iterator[tuple[str, Refers | Owner]]:
    """Where the references of items and of the bodies of actions stand, and resource of them."""
    for path, field in resource.newest.followed.items():
        yield f"{resource.name}.{path}", field
    for action in resource.actions.values():
        for path, field in references_in(action.schema) if action.schema else ():
            yield f"{resource.name}: action({action.name!r}): {path}", field


def _states(resources: Sequence[Declaration]) -> SharedFaults:
    """Of states that no action sets: the actions of a collection are declared after it."""
    for resource in resources:
        for name, field in resource.newest.guarded.items():
            for state, action in field.lifecycle.by_actions.items() if isinstance(field, Status) else ():
                if action not in resource.actions:
                    why = f"{state!r} is set by {action!r}, and there is no such action"
                    yield resource, f"{resource.name}.{name}: by_actions: {why}"
