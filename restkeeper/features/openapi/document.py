"""The interface as OpenAPI 3.1, from the same declarations, schemas and handlers that serve it."""

from collections.abc import Sequence

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin

from restkeeper import __version__
from restkeeper.config import Config
from restkeeper.features.events.types import known_types
from restkeeper.features.keys.handlers import KEYS, known_scopes
from restkeeper.features.openapi.bounds import bounded
from restkeeper.features.openapi.collection import CollectionPaths, KeyPaths, part_name
from restkeeper.features.openapi.events import EventPaths, sent_to_webhooks
from restkeeper.features.openapi.parts import (
    FAULT,
    HEADERS,
    METRICS_TOKEN,
    PROBLEM,
    SECURITY_SCHEMES,
    Part,
    ProblemResponses,
    answer,
    shared_parameters,
)
from restkeeper.features.openapi.service import SERVICE_SCHEMAS, service_paths
from restkeeper.features.openapi.webhooks import WebhookPaths
from restkeeper.features.webhooks.handlers import WEBHOOKS
from restkeeper.resources.resource import Resource

_ABOUT = """\
A service that keeps REST resources.

Errors are problem details (RFC 9457). Lists are paged by the `Link` header (RFC 8288). Writes can be made conditional
on an `ETag` (RFC 9110, section 13), and a `POST` with an `Idempotency-Key` can be sent again until it is answered.
Every `GET` has its `HEAD`, and every address answers `OPTIONS`.

Every change of an item is an event: follow `/api/v1/events`, or make a webhook, which is sent what "Webhooks" lists.

JSON is read strictly (RFC 7493): a name occurs once in its object, integers are of 64 bits, other numbers are within
the range of a double, and no string holds NUL."""


def document(resources: Sequence[Resource], config: Config, prefixes: Sequence[str]) -> Part:
    """The OpenAPI 3.1 document of the collections, each under all `prefixes`, and of the service."""
    problems = ProblemResponses()
    schemas = _marshmallow_schemas((*resources, KEYS, WEBHOOKS))
    local = config.auth == "open"  # then it serves its own machine alone
    longest = max(config.max_body, 2**20)  # of what is sent; no page of the service is longer
    of_problem = 4 * longest  # a pointer names what is in the body, and escapes that
    paths: Part = {}
    components: Part = {
        "schemas": schemas | SERVICE_SCHEMAS | bounded({"Problem": PROBLEM, "Fault": FAULT}, of_problem, config),
        "parameters": shared_parameters(config),
        "headers": HEADERS,
        "requestBodies": {},
        "responses": {"NotModified": answer("Nothing has changed.", ("ETag", "Cache-Control"))},
        "securitySchemes": METRICS_TOKEN | SECURITY_SCHEMES,
    }
    mounted: list[tuple[CollectionPaths | EventPaths, Sequence[str]]] = [
        (CollectionPaths(each, schemas[part_name(each)], config, problems), prefixes) for each in resources
    ]
    mounted += (
        (part, ["/api/v1"])
        for part in (
            KeyPaths(schemas[part_name(KEYS)], known_scopes(resources), config, problems),
            WebhookPaths(schemas[part_name(WEBHOOKS)], known_types(resources), config, problems),
            EventPaths(resources, config, problems),
        )
    )
    for collection, places in mounted:
        for section, parts in collection.components().items():
            components[section] |= parts
        for prefix in places:
            paths |= collection.paths(prefix)
    paths |= service_paths(config, problems)
    components["responses"] |= problems.components
    whole = {
        "openapi": "3.1.0",
        "info": {
            "title": "Restkeeper",
            "version": __version__,
            "description": _ABOUT,
            "contact": {"name": "The operator of this service"},
            "license": {"name": "MIT", "url": "https://opensource.org/license/mit"},
        },
        "servers": [
            {"url": "/", "description": f"This service, {'local' if local else 'in production'}", "x-internal": local}
        ],
        "security": [{}],
        "tags": [
            *({"name": each.name, "description": f"The {each.name} that are kept."} for each in resources),
            {"name": KEYS.name, "description": "Who may call, and what."},
            {"name": "events", "description": "What happened, in its order, for whoever follows."},
            {"name": WEBHOOKS.name, "description": "Who is told of events by HTTP, and what they are sent."},
            {"name": "service", "description": "The service about itself."},
        ],
        "paths": paths,
        "webhooks": sent_to_webhooks(resources, config),
        "components": components,
    }
    found: Part = bounded(whole, longest, config)
    return found


def _marshmallow_schemas(resources: Sequence[Resource]) -> Part:
    """The resources' schemas, and those nested in them, as JSON Schema."""
    spec = APISpec("Restkeeper", __version__, "3.1.0", plugins=[MarshmallowPlugin()])
    for resource in resources:
        spec.components.schema(part_name(resource), schema=resource.schema)
    schemas: Part = spec.to_dict()["components"]["schemas"]
    return schemas
