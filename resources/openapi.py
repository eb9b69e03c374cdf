"""The interface as OpenAPI 3.1, from the same declarations and schemas that serve it."""

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin

import errors
from config import Config
from resources.resource import Resource
from schemas.item import READ_ONLY
from storage.contract import Field, Kind, Op
from web.content import JSON, MERGE_PATCH
from web.errors import PROBLEM_JSON
from web.queries import MAX_OFFSET, MAX_VALUES, OPERATORS

Part = dict[str, Any]

_KIND_SCHEMAS: dict[Kind, Part] = {
    Kind.TEXT: {"type": "string"},
    Kind.TIME: {"type": "string", "format": "date-time"},
    Kind.INTEGER: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    Kind.NUMBER: {"type": "number"},
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.LIST: {"type": "string"},
}

_MEANINGS = {
    Op.EQ: "equal to",
    Op.NE: "not equal to",
    Op.GT: "greater than",
    Op.GTE: "greater than or equal to",
    Op.LT: "less than",
    Op.LTE: "less than or equal to",
    Op.IN: "one of (comma-separated)",
    Op.LIKE: "containing, without regard to case,",
}

_HEADERS: dict[str, Part] = {
    "X-Request-Id": {"description": "The request's id, as sent or made.", "schema": {"type": "string"}},
    "ETag": {
        "description": "Strong validator (RFC 9110, section 8.8.3).",
        "schema": {"type": "string", "pattern": '^"[^"]+"$'},
    },
    "Last-Modified": {"description": "When the item last changed.", "schema": {"type": "string"}},
    "Cache-Control": {"description": "Whether and how the answer may be kept.", "schema": {"type": "string"}},
    "Location": {"description": "Where the item is.", "schema": {"type": "string", "format": "uri-reference"}},
    "Link": {
        "description": "Pages: first, prev, next, last, as far as there are such (RFC 8288).",
        "schema": {"type": "string"},
    },
    "X-Total-Count": {
        "description": "Items in all pages; left out of the further pages of a filtered walk by cursor.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "Allow": {"description": "The methods that this address takes.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds after which to try again.", "schema": {"type": "integer", "minimum": 0}},
}

_PROBLEM_HEADERS = {405: ("Allow",), 503: ("Retry-After",), 412: ("ETag",)}

_PROBLEM: Part = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "required": ["type", "title", "status", "instance", "request_id"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference", "description": "Names the kind; a page explains it."},
        "title": {"type": "string", "description": "The kind in words."},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string", "description": "What happened this time."},
        "instance": {"type": "string", "format": "uri-reference", "description": "The path of the request."},
        "request_id": {"type": "string", "description": "The id that the log has."},
        "errors": {
            "type": "array",
            "description": "Every fault of a body (`pointer`) or of a query (`parameter`).",
            "items": {
                "type": "object",
                "required": ["detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON Pointer as a URI fragment (RFC 6901)."},
                    "parameter": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}

_CONDITIONS: Part = {
    "IfMatch": ("If-Match", "Do it only if the ETag is (one of) this."),
    "IfNoneMatch": ("If-None-Match", "Only if the ETag is none of these; a read is answered 304 otherwise."),
    "IfUnmodifiedSince": ("If-Unmodified-Since", "Do it only if nothing has changed since (an HTTP date)."),
    "IfModifiedSince": ("If-Modified-Since", "Answer 304 if nothing has changed since (an HTTP date)."),
}
_ANY = (errors.BadRequest, errors.NotAcceptable, errors.UriTooLong, errors.InternalError, errors.Unavailable)
_BODY = (errors.InvalidJson, errors.BodyTooLarge, errors.UnsupportedMediaType, errors.ValidationFailed)


def document(resources: Sequence[Resource], config: Config, prefixes: Sequence[str]) -> Part:
    """The OpenAPI 3.1 document of the collections, each under all `prefixes`, and of the service."""
    spec = APISpec(
        title="Restkeeper",
        version=_version(),
        openapi_version="3.1.0",
        plugins=[MarshmallowPlugin()],
        info={
            "description": "A service that keeps REST resources. Errors are problem details (RFC 9457).",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        servers=[{"url": "/", "description": "This service"}],
        security=[],
    )
    for resource in resources:
        spec.components.schema(_name(resource), schema=resource.schema)
        spec.tag({"name": resource.name, "description": f"The {resource.name} collection."})
    spec.tag({"name": "service", "description": "The service about itself."})
    whole: Part = spec.to_dict()
    components = whole["components"]
    for resource in resources:
        components["schemas"] |= _item_schemas(resource, components["schemas"][_name(resource)])
    components["schemas"]["Problem"] = _PROBLEM
    components["headers"] = _HEADERS
    components["parameters"] = {
        name: {"name": header, "in": "header", "description": about, "schema": {"type": "string"}}
        for name, (header, about) in _CONDITIONS.items()
    }
    for prefix in prefixes:
        for resource in resources:
            whole["paths"] |= _Collection(resource, config, prefix).paths()
    whole["paths"] |= _service_paths(config)
    return whole


def _version() -> str:
    try:
        return installed_version("restkeeper")
    except PackageNotFoundError:
        return "0.1.0"


def _name(resource: Resource) -> str:
    return resource.singular.title().replace("_", "")


def _item_schemas(resource: Resource, schema: Part) -> Part:
    """The item as answered, as sent whole, and as a patch."""
    name, properties = _name(resource), schema["properties"]
    own = {field: properties[field] for field in resource.names if field not in READ_ONLY}
    required = schema.get("required", [])
    patch = {field: part if field in required else _or_null(part) for field, part in own.items()}
    return {
        name: {
            "type": "object",
            "properties": {field: properties[field] for field in resource.names},
            "required": list(resource.names),
            "additionalProperties": False,
        },
        f"{name}Input": schema | {"properties": own},
        f"{name}Patch": {
            "type": "object",
            "description": "JSON Merge Patch (RFC 7396): null gives a field its default.",
            "properties": {field: {k: v for k, v in part.items() if k != "default"} for field, part in patch.items()},
            "additionalProperties": False,
        },
    }


def _or_null(part: Part) -> Part:
    kind = part.get("type")
    if kind is None or kind == "null" or (isinstance(kind, list) and "null" in kind):
        return part
    nullable = part | {"type": [*(kind if isinstance(kind, list) else [kind]), "null"]}
    return nullable | {"enum": [*part["enum"], None]} if "enum" in part else nullable


class _Collection:
    """The paths of one collection under one prefix."""

    def __init__(self, resource: Resource, config: Config, prefix: str) -> None:
        self._resource = resource
        self._config = config
        self._path = f"{prefix}/{resource.name}"
        self._suffix = prefix.replace("/api/", "_").replace("/", "_")  # operationIds are unique

    def paths(self) -> Part:
        one, many, name = self._resource.singular, self._resource.name, _name(self._resource)
        item = {"$ref": f"#/components/schemas/{name}"}
        item_body = {"schema": item, "examples": {one: {"value": self._example(whole=True)}}}
        changed = (errors.NotFound, errors.PreconditionFailed)
        if self._config.require_if_match:
            changed = (*changed, errors.PreconditionRequired)  # type: ignore[assignment]
        written = (*_BODY, errors.Duplicate)
        id_parameter = {
            "name": "id",
            "in": "path",
            "required": True,
            "description": f"Id of the {one}.",
            "schema": {"type": "string", "minLength": 1},
        }
        fields = self._fields_parameter()
        conditions = [_condition("IfMatch"), _condition("IfNoneMatch")]
        item_headers = ("ETag", "Last-Modified", "Cache-Control")
        page = {
            "type": "array",
            "items": item | {},
            "maxItems": max(self._config.page_limit_max, MAX_VALUES),
        }
        reading = [*conditions, _condition("IfModifiedSince"), _condition("IfUnmodifiedSince")]
        changing = [*conditions, _condition("IfUnmodifiedSince")]
        return {
            self._path: {
                "get": self._operation(
                    f"list_{many}",
                    f"List {many}",
                    "A page of items. Follow `next` in the Link header to see every item exactly once.",
                    {
                        "200": _answer(
                            "The page.", {JSON: {"schema": page}}, ("ETag", "Link", "X-Total-Count", "Cache-Control")
                        ),
                        "304": _answer("Nothing has changed.", {}, ("ETag", "Cache-Control")),
                    },
                    (errors.InvalidQuery, errors.PreconditionFailed),
                    [*self._list_parameters(), fields, *conditions],
                ),
                "post": self._operation(
                    f"create_{one}",
                    f"Create a {one}",
                    "Keeps a new item and answers it as kept.",
                    {"200": _answer("The item.", {JSON: item_body}, (*item_headers, "Location"))},
                    (*written, errors.PreconditionFailed),
                    conditions,
                    self._body(f"{name}Input", JSON),
                ),
            },
            f"{self._path}/{{id}}": {
                "parameters": [id_parameter],
                "get": self._operation(
                    f"read_{one}",
                    f"Read a {one}",
                    "One item.",
                    {
                        "200": _answer("The item.", {JSON: item_body}, item_headers),
                        "304": _answer("Nothing has changed.", {}, item_headers),
                    },
                    (errors.NotFound, errors.InvalidQuery, errors.PreconditionFailed),
                    [fields, *reading],
                ),
                "put": self._operation(
                    f"replace_{one}",
                    f"Replace a {one}",
                    "Optional fields that are left out take their defaults. The same again changes nothing.",
                    {"200": _answer("The item.", {JSON: item_body}, item_headers)},
                    (*changed, *written, errors.IllegalTransition),
                    changing,
                    self._body(f"{name}Input", JSON),
                ),
                "patch": self._operation(
                    f"merge_{one}",
                    f"Change a {one}",
                    "JSON Merge Patch (RFC 7396).",
                    {"200": _answer("The item.", {JSON: item_body}, item_headers)},
                    (*changed, *written, errors.IllegalTransition),
                    changing,
                    self._body(f"{name}Patch", MERGE_PATCH, JSON),
                ),
                "delete": self._operation(
                    f"delete_{one}",
                    f"Delete a {one}",
                    "Answers the item as it last was.",
                    {"200": _answer("The item that was.", {JSON: item_body}, ())},
                    changed,
                    changing,
                ),
            },
        }

    def _operation(
        self,
        name: str,
        summary: str,
        description: str,
        answers: Part,
        problems: Sequence[type[errors.Problem]],
        parameters: Sequence[Part],
        body: Part | None = None,
    ) -> Part:
        operation = {
            "operationId": name + self._suffix,
            "summary": summary,
            "description": description,
            "tags": [self._resource.name],
            "parameters": list(parameters),
            "responses": answers | _problems((*_ANY, *problems)),
        }
        return operation | {"requestBody": body} if body else operation

    def _body(self, schema: str, *types: str) -> Part:
        content = {
            "schema": {"$ref": f"#/components/schemas/{schema}"},
            "examples": {self._resource.singular: {"value": self._example(whole=False)}},
        }
        return {"required": True, "content": {each: content for each in types}}

    def _example(self, *, whole: bool) -> Part:
        """An item made of the examples and defaults that the schema's fields give."""
        fields = self._resource.schema().fields
        made: Part = {}
        for name in self._resource.names:
            if name in READ_ONLY:
                if whole:
                    made[name] = _READ_ONLY_EXAMPLES[name]
            elif examples := fields[name].metadata.get("examples"):
                made[name] = examples[0]
            elif whole and not fields[name].required:
                default = fields[name].load_default
                made[name] = default() if callable(default) else default
        return made

    def _list_parameters(self) -> list[Part]:
        config, fields = self._config, self._resource.collection.fields
        sortable = "|".join(name for name, field in fields.items() if field.kind is not Kind.LIST)
        parameters = [
            _query(
                "limit",
                "Items a page; where ids are named, all of those unless given.",
                _whole(1, config.page_limit_max) | {"default": config.page_limit},
            ),
            _query("offset", "Items to pass over; not together with cursor.", _whole(0, MAX_OFFSET)),
            _query(
                "cursor", "Where to go on, from a Link header.", {"type": "string", "pattern": "^[A-Za-z0-9_-]{12,}$"}
            ),
            _query(
                "sort",
                "Fields to sort by, the most significant first; `-` before one turns it around. Ties go by id.",
                {"type": "string", "pattern": f"^-?({sortable})(,-?({sortable}))*$"},
            ),
        ]
        if self._resource.search:
            about = f"Items in which {', '.join(self._resource.search)} contain this, without regard to case."
            parameters.append(_query("q", about, {"type": "string"}))
        for field in fields.values():
            for op in OPERATORS[field.kind]:
                name = field.name if op is Op.EQ else f"{field.name}[{op}]"
                parameters.append(_query(name, _told(field, op), _schema_for(field, op)))
        return parameters

    def _fields_parameter(self) -> Part:
        names = "|".join(self._resource.names)
        return _query(
            "fields", "Only these fields of each item.", {"type": "string", "pattern": f"^({names})(,({names}))*$"}
        )


_READ_ONLY_EXAMPLES = {
    "id": "01912d68-783e-7a03-8467-5661c1243ad4",
    "created_at": "2026-01-31T12:00:00.000000Z",
    "updated_at": "2026-01-31T12:00:00.000000Z",
    "version": 1,
}


def _told(field: Field, op: Op) -> str:
    if field.kind is Kind.LIST:
        return f"Items whose {field.name} contain {'this' if op is Op.EQ else 'one of these (comma-separated)'}."
    return f"Items whose {field.name} is {_MEANINGS[op]} this."


def _schema_for(field: Field, op: Op) -> Part:
    if op is Op.IN and field.kind in (Kind.INTEGER, Kind.NUMBER):
        return {"type": "string", "pattern": r"^-?\d{1,15}(,-?\d{1,15})*$"}
    return _KIND_SCHEMAS[field.kind]


def _query(name: str, about: str, schema: Part) -> Part:
    return {"name": name, "in": "query", "description": about, "schema": schema}


def _whole(low: int, high: int) -> Part:
    return {"type": "integer", "minimum": low, "maximum": high}


def _condition(name: str) -> Part:
    return {"$ref": f"#/components/parameters/{name}"}


def _answer(about: str, content: Mapping[str, Part], headers: Sequence[str]) -> Part:
    named = {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Request-Id", *headers)}
    answer: Part = {"description": about, "headers": named}
    return answer | {"content": dict(content)} if content else answer


def _problems(kinds: Sequence[type[errors.Problem]]) -> Part:
    """A response for each status, telling of all its kinds."""
    by_status: dict[int, list[type[errors.Problem]]] = {}
    for kind in sorted(set(kinds), key=lambda kind: (kind.status, kind.name)):
        by_status.setdefault(kind.status, []).append(kind)
    content = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        str(status): _answer(
            " ".join(f"{kind.title} (`{kind.name}`)." for kind in same),
            content,
            ("Cache-Control", *_PROBLEM_HEADERS.get(status, ())),
        )
        for status, same in by_status.items()
    }


def _service_paths(config: Config) -> Part:
    object_ = {"schema": {"type": "object"}}
    html = {"text/html": {"schema": {"type": "string"}}}
    text = {"text/plain": {"schema": {"type": "string"}}}
    operations: list[tuple[str, str, str, Part, tuple[type[errors.Problem], ...]]] = [
        ("/", "read_index", "What is here", {JSON: object_} | html, ()),
        ("/healthz", "read_health", "Whether the process answers", {JSON: object_}, ()),
        ("/readyz", "read_readiness", "Whether requests can be served", {JSON: object_}, ()),
        ("/metrics", "read_metrics", "Numbers for Prometheus", text, (errors.MetricsClosed,)),
        ("/openapi.json", "read_openapi", "This document", {JSON: object_}, ()),
        ("/problems/{name}", "read_problem", "What a problem type means", {JSON: object_} | html, (errors.NotFound,)),
    ]
    if config.docs:
        operations.append(("/docs", "read_docs", "The interface as a page", html, ()))
    paths: Part = {}
    for path, name, summary, content, problems in operations:
        operation = {
            "operationId": name,
            "summary": summary,
            "description": f"{summary}.",
            "tags": ["service"],
            "responses": {"200": _answer(f"{summary}.", content, ())} | _problems((*_ANY, *problems)),
        }
        paths[path] = {"get": operation}
    names = list(errors.catalogue())
    paths["/problems/{name}"]["parameters"] = [
        {
            "name": "name",
            "in": "path",
            "required": True,
            "description": "The last part of the type's URI.",
            "schema": {"type": "string", "enum": names},
        }
    ]
    return paths
