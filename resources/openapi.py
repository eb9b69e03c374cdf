"""The interface as OpenAPI 3.1, from the same declarations, schemas and handlers that serve it."""

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin

import errors
from config import Config
from resources.collection import CollectionHandlers
from resources.openapi_limits import add_limits
from resources.openapi_parts import (
    EXAMPLE_ID,
    FAULT,
    HEADERS,
    PROBLEM,
    Part,
    ProblemResponses,
    answer,
    in_path,
    query,
    query_list,
    ref,
    refs,
    shared_parameters,
)
from resources.openapi_service import SERVICE_SCHEMAS, service_paths
from resources.resource import Resource
from schemas.item import READ_ONLY
from storage.contract import Field, Kind, Op
from web.content import JSON, MERGE_PATCH
from web.queries import MAX_VALUES, OPERATORS

_ABOUT = """\
A service that keeps REST resources.

Errors are problem details (RFC 9457). Lists are paged by the `Link` header (RFC 8288). Writes can be made conditional
on an `ETag` (RFC 9110, section 13). Every `GET` has its `HEAD`, and every address answers `OPTIONS`.

JSON is read strictly (RFC 7493): a name occurs once in its object, integers are of 64 bits, other numbers are within
the range of a double, and no string holds NUL."""

_KIND_SCHEMAS: dict[Kind, Part] = {
    Kind.TEXT: {"type": "string"},
    Kind.TIME: {"type": "string", "format": "date-time"},
    Kind.INTEGER: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    Kind.NUMBER: {"type": "number"},
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.LIST: {"type": "string"},
}

_MEANINGS = {
    Op.EQ: "is this; given repeatedly, any of these",
    Op.NE: "is not this",
    Op.GT: "is greater than this",
    Op.GTE: "is greater than or equal to this",
    Op.LT: "is less than this",
    Op.LTE: "is less than or equal to this",
    Op.IN: "is one of these, separated by commas",
    Op.LIKE: "contains this, without regard to case",
}
_LIST_MEANINGS = {Op.EQ: "contain this; given repeatedly, any of these", Op.IN: "contain one of these"}

_READ_ONLY_EXAMPLES: Part = {
    "id": EXAMPLE_ID,
    "created_at": "2026-01-31T12:00:00.000000Z",
    "updated_at": "2026-01-31T12:00:00.000000Z",
    "version": 1,
}

_BODY = (errors.InvalidJson, errors.BodyTooLarge, errors.UnsupportedMediaType, errors.ValidationFailed)
_READ = (errors.InvalidQuery, errors.PreconditionFailed)
_WRITE = (*_BODY, errors.Duplicate)
_CREATE = (*_WRITE, errors.PreconditionFailed)
_CHANGE = (errors.NotFound, errors.PreconditionFailed)
_ITEM_HEADERS = ("ETag", "Last-Modified", "Cache-Control")
_ON_LISTS = ("IfMatch", "IfNoneMatch")
_ON_ITEMS = ("IfMatch", "IfNoneMatch", "IfUnmodifiedSince")

_Handler = Callable[..., Any]
_Problems = Sequence[type[errors.Problem]]


def document(resources: Sequence[Resource], config: Config, prefixes: Sequence[str]) -> Part:
    """The OpenAPI 3.1 document of the collections, each under all `prefixes`, and of the service."""
    problems = ProblemResponses()
    schemas = _marshmallow_schemas(resources)
    paths: Part = {}
    components: Part = {
        "schemas": schemas | SERVICE_SCHEMAS | {"Problem": PROBLEM, "Fault": FAULT},
        "parameters": shared_parameters(config),
        "headers": HEADERS,
        "requestBodies": {},
        "responses": {"NotModified": answer("Nothing has changed.", ("ETag", "Cache-Control"))},
        "securitySchemes": {"MetricsToken": {"type": "http", "scheme": "bearer", "description": "`METRICS_TOKEN`."}},
    }
    for resource in resources:
        collection = _Collection(resource, schemas[_name(resource)], config, problems)
        for section, parts in collection.components().items():
            components[section] |= parts
        for prefix in prefixes:
            paths |= collection.paths(prefix)
    paths |= service_paths(config, problems)
    refusal = problems.alone(errors.TooManyRequests) if config.quotas else {}
    components["responses"] |= problems.components
    if refusal:
        add_limits(paths, components, refusal)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Restkeeper",
            "version": _version(),
            "description": _ABOUT,
            "contact": {"name": "The operator of this service"},
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "This service"}],
        "security": [],
        "tags": [
            *({"name": each.name, "description": f"The {each.name} that are kept."} for each in resources),
            {"name": "service", "description": "The service about itself."},
        ],
        "paths": paths,
        "components": components,
    }


def _version() -> str:
    try:
        return installed_version("restkeeper")
    except PackageNotFoundError:
        return "0.1.0"


def _name(resource: Resource) -> str:
    return resource.singular.title().replace("_", "")


def _marshmallow_schemas(resources: Sequence[Resource]) -> Part:
    """The resources' schemas, and those nested in them, as JSON Schema."""
    spec = APISpec("Restkeeper", _version(), "3.1.0", plugins=[MarshmallowPlugin()])
    for resource in resources:
        spec.components.schema(_name(resource), schema=resource.schema)
    schemas: Part = spec.to_dict()["components"]["schemas"]
    return schemas


class _Collection:
    """One collection: the components that it adds, and its paths under a prefix."""

    def __init__(self, resource: Resource, schema: Part, config: Config, problems: ProblemResponses) -> None:
        self._resource = resource
        self._schema = schema
        self._config = config
        self._problems = problems
        self._name = _name(resource)
        self._filters = dict(self._filter_parameters())

    def components(self) -> Part:
        """What the paths refer to, by section and name."""
        name, one = self._name, self._resource.singular
        id = in_path("id", f"Id of the {one}.", {"type": "string", "minLength": 1})
        return {
            "schemas": self._schemas(),
            "parameters": {f"{name}Id": id} | self._parameters() | self._filters,
            "requestBodies": {
                f"{name}Input": self._body(f"{name}Input", JSON),
                f"{name}Patch": self._body(f"{name}Patch", MERGE_PATCH, JSON),
            },
            "responses": self._responses(),
        }

    def paths(self, prefix: str) -> Part:
        """The operations on the list and on an item of it."""
        name, handlers = self._name, CollectionHandlers
        listing = ("Limit", "Offset", "Cursor", *self._parameters(), *self._filters, *_ON_LISTS)
        reading = (f"{name}Fields", *_ON_ITEMS, "IfModifiedSince")
        required = (errors.PreconditionRequired,) if self._config.require_if_match else ()
        change = (*_CHANGE, *required)
        write = (*change, *_WRITE, errors.IllegalTransition)

        def operation(
            handler: _Handler, done: str, problems: _Problems, parameters: Sequence[str], **body: Part
        ) -> Part:
            return self._operation(handler, prefix, f"{name}{done}", problems, parameters) | body

        whole = {"requestBody": ref("requestBodies", f"{name}Input")}
        patch = {"requestBody": ref("requestBodies", f"{name}Patch")}
        return {
            f"{prefix}/{self._resource.name}": {
                "get": operation(handlers.list_items, "Page", _READ, listing),
                "post": operation(handlers.create_item, "Created", _CREATE, _ON_LISTS, **whole),
            },
            f"{prefix}/{self._resource.name}/{{id}}": {
                "parameters": refs(f"{name}Id"),
                "get": operation(handlers.read_item, "Read", (*_READ, errors.NotFound), reading),
                "put": operation(handlers.replace_item, "Kept", write, _ON_ITEMS, **whole),
                "patch": operation(handlers.merge_item, "Kept", write, _ON_ITEMS, **patch),
                "delete": operation(handlers.delete_item, "Deleted", change, _ON_ITEMS),
            },
        }

    def _operation(
        self, handler: _Handler, prefix: str, done: str, problems: _Problems, parameters: Sequence[str]
    ) -> Part:
        own = handler.__name__.replace("items", self._resource.name).replace("item", self._resource.singular)
        unchanged = {"304": ref("responses", "NotModified")} if own.startswith(("list", "read")) else {}
        return {
            "operationId": own + prefix.replace("/api/", "_").replace("/", "_"),
            "summary": own.replace("_", " ").capitalize(),
            "description": handler.__doc__,
            "tags": [self._resource.name],
            "parameters": refs(*parameters),
            "responses": {"200": ref("responses", done), **unchanged, **self._problems(*problems)},
        }

    def _schemas(self) -> Part:
        """The item as answered, with only some fields, as sent whole, as a patch; the names of fields."""
        name, properties = self._name, {each: self._schema["properties"][each] for each in self._resource.names}
        own = {field: part for field, part in properties.items() if field not in READ_ONLY}
        required = self._schema.get("required", [])
        patch = {field: part if field in required else _or_null(part) for field, part in own.items()}
        typed = self._resource.collection.fields.values()
        sortable = [field.name for field in typed if field.sortable]
        closed = {"type": "object", "additionalProperties": False}
        return {
            name: closed | {"properties": properties, "required": list(properties)},
            f"{name}Part": closed | {"properties": properties, "description": "The fields that `fields` asked for."},
            f"{name}Input": closed | {"properties": own, "required": required},
            f"{name}Patch": closed
            | {
                "description": "JSON Merge Patch (RFC 7396): null gives a field its default.",
                "properties": {field: _without_default(part) for field, part in patch.items()},
            },
            f"{name}Field": {"type": "string", "enum": list(properties)},
            f"{name}SortKey": {"type": "string", "enum": [way + each for each in sortable for way in ("", "-")]},
        }

    def _parameters(self) -> Part:
        """The parameters of this collection but for its filters, by component name."""
        name = self._name
        about = (
            "Fields to sort by, each once, the most significant first; `-` before one turns it around. Ties go by id."
        )
        parameters = {
            f"{name}Sort": query_list("sort", about, ref("schemas", f"{name}SortKey"), uniqueItems=True),
            f"{name}Fields": query_list("fields", "Only these fields of each item.", ref("schemas", f"{name}Field")),
        }
        if searched := ", ".join(self._resource.search):
            about = f"Items in which {searched} contain this, without regard to case."
            parameters[f"{name}Search"] = query("q", about, {"type": "string"})
        return parameters

    def _filter_parameters(self) -> Iterator[tuple[str, Part]]:
        """A parameter for each field and operator, by component name: plain equality first."""
        pairs = [(op, field) for field in self._resource.collection.fields.values() for op in OPERATORS[field.kind]]
        for op, field in sorted(pairs, key=lambda pair: pair[0] is not Op.EQ):
            yield f"{self._name}.{field.name}.{op}", _filter(field, op)

    def _body(self, schema: str, *types: str) -> Part:
        content = {"schema": ref("schemas", schema)} | _examples(self._resource.singular, self._example(whole=False))
        return {"required": True, "content": {each: content for each in types}}

    def _responses(self) -> Part:
        name, one, example = self._name, self._resource.singular, self._example(whole=True)
        whole = ref("schemas", name)
        some = {"anyOf": [whole, ref("schemas", f"{name}Part")]}
        page = {"type": "array", "items": some, "maxItems": max(self._config.page_limit_max, MAX_VALUES)}
        pages = {"schema": page} | _examples(self._resource.name, [example] if example else None)
        item, part = ({"schema": schema} | _examples(one, example) for schema in (whole, some))
        headers = ("ETag", "Link", "X-Total-Count", "Cache-Control")
        return {
            f"{name}Page": answer("The page.", headers, {JSON: pages}),
            f"{name}Read": answer("The item.", _ITEM_HEADERS, {JSON: part}),
            f"{name}Created": answer("The item as kept.", (*_ITEM_HEADERS, "Location"), {JSON: item}),
            f"{name}Kept": answer("The item as kept.", _ITEM_HEADERS, {JSON: item}),
            f"{name}Deleted": answer("The item as it last was.", (), {JSON: item}),
        }

    def _example(self, *, whole: bool) -> Part | None:
        """An item made of the examples and defaults that the schema's fields give, None where they do not suffice."""
        fields = self._resource.schema().fields
        made = dict(_READ_ONLY_EXAMPLES)
        for name, field in fields.items():
            if examples := field.metadata.get("examples"):
                made[name] = examples[0]
            elif field.required:
                return None
            elif whole and name not in READ_ONLY:
                made[name] = field.load_default() if callable(field.load_default) else field.load_default
        return {name: made[name] for name in self._resource.names if name in made and (whole or name not in READ_ONLY)}


def _examples(name: str, value: Any) -> Part:
    return {"examples": {name: {"value": value}}} if value else {}


def _or_null(part: Part) -> Part:
    kind = part.get("type")
    if kind is None or kind == "null" or (isinstance(kind, list) and "null" in kind):
        return part
    nullable = part | {"type": [*(kind if isinstance(kind, list) else [kind]), "null"]}
    return nullable | {"enum": [*part["enum"], None]} if "enum" in part else nullable


def _without_default(part: Part) -> Part:
    return {key: value for key, value in part.items() if key != "default"}


def _filter(field: Field, op: Op) -> Part:
    name = field.name if op is Op.EQ else f"{field.name}[{op}]"
    meaning = f"{field.name} {(_LIST_MEANINGS if field.kind is Kind.LIST else _MEANINGS)[op]}"
    schema = _KIND_SCHEMAS[field.kind]
    if op is Op.IN:
        return query_list(name, f"Items whose {meaning}.", schema, maxItems=MAX_VALUES)
    return query(name, f"Items whose {meaning}.", schema)
