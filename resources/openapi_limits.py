"""What rate limits add to the OpenAPI document: a refusal to each operation, and headers to each answer."""

from resources.openapi_parts import Part, ref
from resources.openapi_service import UNLIMITED

_STRING: Part = {"type": "string"}
_COUNT: Part = {"type": "integer", "minimum": 0}

_HEADERS: Part = {
    "RateLimit-Policy": {
        "description": "The quotas: q requests in w seconds, for reading (GET, HEAD, OPTIONS) and for writing.",
        "schema": _STRING,
    },
    "RateLimit": {
        "description": "Of the request's quota, r requests remain for the next t seconds.",
        "schema": _STRING,
    },
    "X-RateLimit-Limit": {"description": "The request's quota.", "schema": _COUNT},
    "X-RateLimit-Remaining": {"description": "What remains of it.", "schema": _COUNT},
    "X-RateLimit-Reset": {"description": "When it is whole again, seconds since 1970.", "schema": _COUNT},
}


def add_limits(paths: Part, components: Part, refusal: Part) -> None:
    """Tell of limits, in place, at every operation but those that have none; `refusal` is the response by status."""
    components["headers"] = components["headers"] | _HEADERS
    headers = {name: ref("headers", name) for name in _HEADERS}
    operations = [part for item in paths.values() for part in item.values() if "responses" in part]
    for operation in operations:
        if operation["operationId"] not in UNLIMITED:
            operation["responses"] = dict(sorted((operation["responses"] | refusal).items()))
            for response in operation["responses"].values():
                if "headers" in response:
                    response["headers"] |= headers
    for response in components["responses"].values():
        response["headers"] |= headers
