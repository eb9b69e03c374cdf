"""The API as OpenAPI 3.1 (/openapi.json) and as a page (/docs). Install it last: it describes the registered routes.

There is one document for each version of the API, at /api/VERSION/openapi.json; /openapi.json is that of the version of
the unversioned paths. With ?webhooks=no it is without its `webhooks`, of which some generators make code that does not
compile. /docs?version=v2 shows another one.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path

from flask import Blueprint, Response, request, send_from_directory

from restkeeper import exactjson
from restkeeper.errors import NotFound, PreconditionFailed, shortened
from restkeeper.feature import Seams
from restkeeper.resources.call import PUBLIC
from restkeeper.service import Service, service_of
from restkeeper.versions import prefix_of
from restkeeper.web import preconditions
from restkeeper.web.application import Application, address_of
from restkeeper.web.auth import needs
from restkeeper.web.bodies import HTML, JSON, require_acceptable
from restkeeper.web.operations import CONDITIONS, NOT_MODIFIED, Result, returns, takes

_FOLDER = Path(__file__).parent
_OWN = {"docs.css": "text/css; charset=utf-8", "start.js": "text/javascript; charset=utf-8"}

_ASSETS = {"swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"}

_OPENAPI = {"type": "object", "required": ["openapi"], "properties": {"openapi": {"type": "string", "const": "3.1.0"}}}
_DOCUMENT = Result("This document.", {JSON: _OPENAPI}, ("ETag",))
_PAGE = replace(_DOCUMENT, about="The page.", content={HTML: {"type": "string"}})


def install(service: Service) -> Seams:
    """Serve the documents and, unless DOCS=0, the page."""
    routes = Blueprint("openapi", __name__)
    for version in (version.name for version in service.served):
        read = _reader(service, version)
        routes.add_url_rule(f"{prefix_of(version)}/openapi.json", f"read_openapi_{version}", read)
        if version == service.default_version:
            routes.add_url_rule("/openapi.json", view_func=read)
    if service.config.docs:
        routes.add_url_rule("/docs", view_func=read_docs)
        routes.add_url_rule("/docs/<path:name>", view_func=read_asset)
    return Seams(routes=(routes,))


def _reader(service: Service, version: str) -> Callable[[], Response]:
    """The handler of the document of one version."""
    making = threading.Lock()

    @lru_cache(maxsize=4)  # it is slow, and built for the first request, and again after each sunset
    def text_of(described: Application, mount: str, left_out: str, sunsets: int) -> bytes:
        document = import_module("restkeeper.features.openapi.document").document
        parts = document(described, service_of(described), version, mount)
        return exactjson.dumps({name: section for name, section in parts.items() if name != left_out})

    @needs(PUBLIC)
    @takes(*CONDITIONS)
    @returns(_DOCUMENT, NOT_MODIFIED, PreconditionFailed)
    def read_openapi() -> Response:
        """This API as OpenAPI 3.1."""
        require_acceptable(JSON)
        sunsets = sum(deprecation.is_over(service.clock.time()) for deprecation in service.versions.deprecations)
        left_out = "webhooks" if request.args.get("webhooks") == "no" else ""
        with making:  # who asks meanwhile gets the same document
            text = text_of(service.app.described(), address_of(""), left_out, sunsets)
        return preconditions.document(text, JSON)

    return read_openapi


@needs(PUBLIC)
@takes(*CONDITIONS)
@returns(_PAGE, NOT_MODIFIED, PreconditionFailed)
def read_docs() -> Response:
    """The API as a page to read and try."""
    return preconditions.page((_FOLDER / "docs.html").read_text("utf-8"))


@needs(PUBLIC)
def read_asset(name: str) -> Response:
    """A file of the docs page."""
    if name in _OWN:
        return preconditions.document((_FOLDER / name).read_bytes(), _OWN[name])
    if name not in _ASSETS:
        raise NotFound(f"nothing is at {shortened(request.root_path + request.path)}")
    reply = send_from_directory(Path(str(files("flask_swagger_ui"))) / "dist", name)  # a pip package: no other server
    reply.headers["Cache-Control"] = f"max-age={24 * 3600}"
    return reply
