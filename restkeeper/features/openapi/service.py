"""The OpenAPI document's part on the service itself: what `resources/service.py` answers."""

from restkeeper import errors
from restkeeper.config import Config
from restkeeper.features.openapi.parts import Part, ProblemResponses, answer, in_path, ref, refs
from restkeeper.web.content import HTML, JSON

UNLIMITED = ("read_health", "read_readiness", "read_metrics")  # a probe must never be refused for asking often

_OK: Part = {"type": "string", "enum": ["ok"]}

SERVICE_SCHEMAS: Part = {
    "Index": {
        "type": "object",
        "description": "What is here.",
        "required": ["service", "collections", "links"],
        "properties": {
            "service": {"type": "string", "const": "restkeeper"},
            "collections": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name", "url"],
                    "properties": {
                        "name": {"type": "string"},
                        "url": {"type": "string", "format": "uri-reference"},
                        "items": {
                            "type": "integer",
                            "minimum": 0,
                            "description": "How many there are; left out for who may not read them all.",
                        },
                    },
                },
            },
            "links": {"type": "object", "additionalProperties": {"type": "string", "format": "uri-reference"}},
        },
    },
    "Health": {
        "type": "object",
        "description": "That all is well, and of readiness also its parts.",
        "required": ["status"],
        "properties": {"status": _OK},
        "additionalProperties": _OK,
    },
    "ProblemType": {
        "type": "object",
        "description": "What a problem type means.",
        "required": ["title", "status", "about"],
        "properties": {
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "about": {"type": "string"},
        },
    },
}


def service_paths(config: Config, problems: ProblemResponses) -> Part:
    """The operations of the service about itself."""
    text, html = {"schema": {"type": "string", "maxLength": 2**26}}, {HTML: {"schema": {"type": "string"}}}

    def json(schema: str) -> Part:
        return {JSON: {"schema": ref("schemas", schema)}}

    def read(what: str, summary: str, content: Part, *kinds: type[errors.Problem]) -> Part:
        done = answer(f"{summary}.", ("Cache-Control",), content)
        return {
            "operationId": f"read_{what}",
            "summary": summary,
            "description": f"{summary}.",
            "tags": ["service"],
            "responses": {"200": done, **problems(*kinds)},
        }

    def read_document(what: str, summary: str, content: Part, *kinds: type[errors.Problem]) -> Part:
        operation = read(what, summary, content, errors.PreconditionFailed, *kinds)
        operation["responses"]["200"]["headers"]["ETag"] = ref("headers", "ETag")
        operation["responses"]["304"] = ref("responses", "NotModified")
        return operation | {"parameters": refs("IfMatch", "IfNoneMatch")}

    this = {
        JSON: {
            "schema": {
                "type": "object",
                "required": ["openapi"],
                "properties": {"openapi": {"type": "string", "const": "3.1.0"}},
            }
        }
    }
    metrics = read("metrics", "Numbers for Prometheus", {"text/plain": text}, errors.Unauthorized, errors.MetricsClosed)
    named = read_document("problem", "What a problem type means", json("ProblemType") | html, errors.NotFound)
    names = {"type": "string", "enum": list(errors.catalogue())}
    paths = {
        "/": {"get": read_document("index", "What is here", json("Index") | html)},
        "/healthz": {"get": read("health", "Whether the process answers", json("Health"))},
        "/readyz": {"get": read("readiness", "Whether requests can be served", json("Health"))},
        "/metrics": {"get": metrics | {"security": [{"MetricsToken": []}]}},
        "/openapi.json": {"get": read_document("openapi", "This document", this)},
        "/problems/{name}": {
            "parameters": [in_path("name", "The last part of the type's URI.", names)],
            "get": named,
        },
    }
    return paths | ({"/docs": {"get": read_document("docs", "This interface as a page", html)}} if config.docs else {})
