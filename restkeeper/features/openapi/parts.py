"""What every collection's part of the OpenAPI document is made of: headers, conditions, paging, problems."""

from collections.abc import Iterable, Sequence
from typing import Any

from restkeeper import errors
from restkeeper.config import Config
from restkeeper.errors import Problem
from restkeeper.web.errors import PAGES, PROBLEM_JSON
from restkeeper.web.queries import MAX_OFFSET

Part = dict[str, Any]

_COUNT: Part = {"type": "integer", "minimum": 0}


def text(most: int, **more: Any) -> Part:
    """A string of at most so many characters."""
    return {"type": "string", "maxLength": most, **more}


TIME = text(27, format="date-time")  # 2026-01-31T12:00:00.000000Z

# OpenAPI, like HTTP, does not care for the case of a header's name. Rules of others take `RateLimit` and
# `X-RateLimit-Limit` for two ways of which an answer has one; clients of either are served.
_LIMIT_HEADERS: Part = {
    "RateLimit-Policy": {
        "description": "The quotas: q requests in w seconds, for reading (GET, HEAD, OPTIONS) and for writing. "
        "Missing where nothing is limited, as are the other headers on limits.",
        "schema": text(1024),
    },
    "RateLimit": {
        "description": "Of the request's quota, r requests remain for the next t seconds.",
        "schema": text(256),
    },
    "x-ratelimit-limit": {"description": "The request's quota.", "schema": _COUNT},
    "x-ratelimit-remaining": {"description": "What remains of it.", "schema": _COUNT},
    "x-ratelimit-reset": {"description": "When it is whole again, seconds since 1970.", "schema": _COUNT},
}
HEADERS: Part = _LIMIT_HEADERS | {
    "X-Request-Id": {"description": "The request's id, as sent or made.", "schema": text(128)},
    "ETag": {
        "description": "Strong validator (RFC 9110, section 8.8.3).",
        "schema": text(200, pattern='^"[^"]+"$'),
    },
    "Last-Modified": {"description": "When the item last changed.", "schema": text(29)},
    "Cache-Control": {"description": "Whether and how the answer may be kept.", "schema": text(100)},
    "Location": {"description": "Where the item is.", "schema": text(2048, format="uri-reference")},
    "Link": {
        "description": "Pages: first, prev, next, last, as far as there are such (RFC 8288). "
        "Whoever follows next by cursor sees every item that stays exactly once, whatever is written meanwhile. "
        "The feed of events always has a next; where a cursor expired, it leads to the oldest event that is kept.",
        "schema": text(4096),
    },
    "X-Total-Count": {
        "description": "Items in all pages; left out of the further pages of a filtered walk by cursor.",
        "schema": _COUNT,
    },
    "WWW-Authenticate": {"description": "How to show who one is.", "schema": text(1024)},
    "Idempotent-Replayed": {
        "description": "That this is the answer to an earlier request with the same key.",
        "schema": {"type": "string", "const": "true"},
    },
    "Retry-After": {"description": "Seconds after which to try again.", "schema": _COUNT},
}

METRICS_TOKEN: Part = {"MetricsToken": {"type": "http", "scheme": "bearer", "description": "`METRICS_TOKEN`."}}
SECURITY_SCHEMES: Part = {
    "Bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a JSON Web Token."},
    "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
    "Basic": {"type": "http", "scheme": "basic", "description": "An API key's id as user, its secret as password."},
}

_CONDITIONS = {
    "IfMatch": ("If-Match", "Do it only if the ETag is (one of) this."),
    "IfNoneMatch": ("If-None-Match", "Only if the ETag is none of these; a read is answered 304 otherwise."),
    "IfUnmodifiedSince": ("If-Unmodified-Since", "Do it only if nothing has changed since (an HTTP date)."),
    "IfModifiedSince": ("If-Modified-Since", "Answer 304 if nothing has changed since (an HTTP date)."),
}

_PROBLEM_HEADERS = {
    401: ("WWW-Authenticate",),
    410: ("Link",),
    412: ("ETag",),
    429: ("Retry-After",),
    503: ("Retry-After",),
    507: ("Retry-After",),
}

PROBLEM: Part = {
    "type": "object",
    "description": "Problem details (RFC 9457). Some types have members of their own besides these; "
    "`instance` and `request_id` are missing where the server refused what is no HTTP request to it.",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference", "description": "Names the type; a page explains it."},
        "title": {"type": "string", "description": "The type in words."},
        "status": {"type": "integer", "minimum": 400, "maximum": 599, "description": "The status of the answer."},
        "detail": {"type": "string", "description": "What happened this time."},
        "instance": {"type": "string", "format": "uri-reference", "description": "The path of the request."},
        "request_id": {"type": "string", "description": "The id that the log has."},
        "errors": {
            "type": "array",
            "description": "Every fault of a body (`pointer`) or of a query (`parameter`).",
            "items": {"$ref": "#/components/schemas/Fault"},
        },
    },
}

FAULT: Part = {
    "type": "object",
    "description": "One thing that is wrong with a request.",
    "required": ["detail"],
    "properties": {
        "pointer": {"type": "string", "description": "JSON Pointer as a URI fragment (RFC 6901)."},
        "parameter": {"type": "string", "description": "Name of the query parameter."},
        "detail": {"type": "string", "description": "What would be right."},
    },
}

EXAMPLE_ID = "01912d68-783e-7a03-8467-5661c1243ad4"

_ANYWHERE = (
    errors.BadRequest,
    errors.Unauthorized,
    errors.Forbidden,
    errors.NotAcceptable,
    errors.UriTooLong,
    errors.TooManyRequests,
    errors.HeadersTooLarge,
    errors.InternalError,
    errors.Unavailable,
)


def ref(section: str, name: str) -> Part:
    """A reference to a component."""
    return {"$ref": f"#/components/{section}/{name}"}


def refs(*names: str) -> list[Part]:
    """References to parameters."""
    return [ref("parameters", name) for name in names]


def query(name: str, about: str, schema: Part) -> Part:
    """A query parameter of one value."""
    return {"name": name, "in": "query", "description": about, "schema": schema}


def query_list(name: str, about: str, item: Part, **bounds: Any) -> Part:
    """A query parameter of at least one value; several are separated by commas."""
    several = {"type": "array", "items": item, "minItems": 1, **bounds}
    return query(name, about, several) | {"style": "form", "explode": False}


def in_path(name: str, about: str, schema: Part) -> Part:
    """A parameter that is a segment of the path."""
    return {"name": name, "in": "path", "required": True, "description": about, "schema": schema}


def answer(about: str, headers: Iterable[str] = (), content: Part | None = None) -> Part:
    """A response with these of HEADERS, and a schema and examples by media type."""
    named = {name: ref("headers", name) for name in ("X-Request-Id", *_LIMIT_HEADERS, *headers)}
    return {"description": about, "headers": named} | ({"content": content} if content else {})


def operation_id(id: str, prefix: str) -> str:
    """The operationId of an operation under `prefix`."""
    return id + prefix.replace("/api/", "_").replace("/", "_")


def guarded_operation(
    id: str, prefix: str, tag: str, about: str, config: Config, parameters: list[Part], responses: Part
) -> Part:
    """An operation under `prefix` that asks for credentials, its summary made of the id."""
    ways: list[Part] = [{scheme: []} for scheme in SECURITY_SCHEMES]
    return {
        "operationId": operation_id(id, prefix),
        "summary": id.replace("_", " ").capitalize(),
        "description": about,
        "tags": [tag],
        "parameters": parameters,
        "responses": responses,
        "security": ways if config.auth == "required" else [{}, *ways],
    }


def shared_parameters(config: Config) -> Part:
    """The parameters that are the same for every collection."""
    size = {"type": "integer", "minimum": 1, "maximum": config.page_limit_max, "default": config.page_limit}
    place = {"type": "integer", "minimum": 0, "maximum": MAX_OFFSET}
    conditions = {
        name: {"name": header, "in": "header", "description": about, "schema": {"type": "string"}}
        for name, (header, about) in _CONDITIONS.items()
    }
    cursor = {"type": "string", "pattern": "^[A-Za-z0-9_-]{12,}$"}
    bare, quoted = "[!#-~]([ -~]*[!-~])?", r'"([ !#-\[\]-~]|\\["\\])+"'
    key = {"type": "string", "minLength": 1, "maxLength": 512, "pattern": f"^({bare}|{quoted})$"}
    once = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": config.idempotency == "required",
        "description": "A new one for each thing to do, the same one when it is sent again: it is then done once, and "
        f"answered as it first was, for {config.idempotency_ttl} seconds. 1 to 255 characters, bare or quoted.",
        "schema": key,
    }
    return conditions | {
        "IdempotencyKey": once,
        "Limit": query("limit", "Items a page; where ids are named, all of those unless given.", size),
        "Offset": query("offset", "Items to pass over. Not together with `cursor`.", place),
        "Cursor": query("cursor", "Where to go on: from a Link header, not to be made up.", cursor),
    }


class ProblemResponses:
    """The responses that tell of problems. Each set of types that some operation answers with is one component."""

    def __init__(self) -> None:
        self.components: Part = {}

    def __call__(self, *kinds: type[Problem]) -> Part:
        """A response for each status of `kinds` and of the problems that any operation can have."""
        by_status: dict[int, list[type[Problem]]] = {}
        possible: set[type[Problem]] = {*_ANYWHERE, *kinds}
        for kind in sorted(possible, key=lambda kind: (kind.status, kind.name)):
            by_status.setdefault(kind.status, []).append(kind)
        return {str(status): self._component(status, same) for status, same in by_status.items()}

    def _component(self, status: int, kinds: Sequence[type[Problem]]) -> Part:
        name = "Or".join(kind.__name__ for kind in kinds)
        if name not in self.components:
            about = " ".join(f"{kind.title} (`{kind.name}`)." for kind in kinds)
            content = {"schema": ref("schemas", "Problem"), "examples": {kind.name: _example(kind) for kind in kinds}}
            headers = ("Cache-Control", *_PROBLEM_HEADERS.get(status, ()))
            self.components[name] = answer(about, headers, {PROBLEM_JSON: content})
        return ref("responses", name)


def _example(kind: type[Problem]) -> Part:
    value = {
        "type": kind.uri or f"{PAGES}{kind.name}",
        "title": kind.title,
        "status": kind.status,
        "instance": f"/products/{EXAMPLE_ID}",
        "request_id": "3a6bd7f4b8f24e2e8c1f7e0f3f1a9d52",
    }
    return {"summary": kind.title, "value": value}
