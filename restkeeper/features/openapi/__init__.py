"""The interface as OpenAPI 3.1, and as a page."""

from importlib.resources import files
from pathlib import Path

from flask import Blueprint, Response, request, send_from_directory

from restkeeper.errors import NotFound, shortened
from restkeeper.features.openapi.document import document as openapi_document
from restkeeper.service import Service
from restkeeper.web import exactjson
from restkeeper.web.application import Application
from restkeeper.web.content import JSON, require_acceptable
from restkeeper.web.guard import PUBLIC, needs
from restkeeper.web.pages import document, page

# The docs page's assets, served from where pip put them: the page asks nothing of any network.
_SWAGGER_UI = Path(str(files("flask_swagger_ui"))) / "dist"
_ASSETS = {"swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"}
_ASSET_SECONDS = 24 * 3600

_FOLDER = Path(__file__).parent
_OWN = {
    "docs.css": ((_FOLDER / "docs.css").read_bytes(), "text/css; charset=utf-8"),
    "start.js": ((_FOLDER / "start.js").read_bytes(), "text/javascript; charset=utf-8"),
}


def install(app: Application, service: Service) -> None:
    """Answer /openapi.json and, unless DOCS says otherwise, /docs."""
    handlers = OpenApiHandlers(service)
    routes = Blueprint("openapi", __name__)
    routes.add_url_rule("/openapi.json", view_func=handlers.read_openapi)
    if service.config.docs:
        routes.add_url_rule("/docs", view_func=handlers.read_docs)
        routes.add_url_rule("/docs/<path:name>", view_func=handlers.read_asset)
    app.register_blueprint(routes)


class OpenApiHandlers:
    """The handlers of the document and of the docs page."""

    def __init__(self, service: Service) -> None:
        self._openapi = exactjson.dumps(openapi_document(service.resources, service.config, ["", "/api/v1"]))

    @needs(PUBLIC)
    def read_openapi(self) -> Response:
        """This interface as OpenAPI 3.1."""
        require_acceptable(JSON)
        return document(self._openapi, JSON)

    @needs(PUBLIC)
    def read_docs(self) -> Response:
        """The interface as a page to read and try."""
        return page((_FOLDER / "docs.html").read_text("utf-8"))

    @needs(PUBLIC)
    def read_asset(self, name: str) -> Response:
        """A file of the docs page."""
        if own := _OWN.get(name):
            return document(*own)
        if name not in _ASSETS:
            raise NotFound(f"nothing is at {shortened(request.path)}")
        reply = send_from_directory(_SWAGGER_UI, name)
        reply.headers["Cache-Control"] = f"max-age={_ASSET_SECONDS}"
        return reply
