"""The service about itself: index, health, metrics, OpenAPI, docs page, and a page for each problem type."""

import hmac
from base64 import b64encode
from collections.abc import Sequence
from hashlib import blake2b, sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, render_template, request, send_from_directory

from restkeeper import errors
from restkeeper.config import Config
from restkeeper.errors import MetricsClosed, NotFound, Unauthorized, Unavailable, shortened
from restkeeper.features.limits.failures import Failures
from restkeeper.features.openapi.document import document
from restkeeper.features.openapi.service import UNLIMITED
from restkeeper.resources.resource import Ownership, Resource
from restkeeper.storage.contract import Store
from restkeeper.web import exactjson
from restkeeper.web.application import Reply
from restkeeper.web.auth import OWN, PUBLIC, digest_of, needs
from restkeeper.web.caller import ADMIN, caller
from restkeeper.web.content import HTML, JSON, quality, require_acceptable
from restkeeper.web.errors import known_base
from restkeeper.web.observe import Metrics
from restkeeper.web.preconditions import is_not_modified, require_match

_BEARER = {"WWW-Authenticate": 'Bearer realm="metrics"'}  # RFC 6750, section 3
PROBES = frozenset(f"service.{name}" for name in UNLIMITED)  # endpoints
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

# The docs page's assets, served from where pip put them: the page asks nothing of any network.
_SWAGGER_UI = Path(str(files("flask_swagger_ui"))) / "dist"
_ASSETS = {"swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"}
_ASSET_SECONDS = 24 * 3600

# The pages' own files, by name: media type and bytes. The small pages have their style within, known by its digest.
_TEMPLATES = Path(__file__).parent.parent / "web" / "templates"
_STYLE = b64encode(sha256((_TEMPLATES / "base.css").read_bytes().removesuffix(b"\n")).digest()).decode()

# Swagger UI shows its icons as data URIs.
_CSP = (
    f"default-src 'self'; img-src 'self' data:; style-src 'self' 'sha256-{_STYLE}'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class ServiceHandlers:
    """The handlers that are not about items."""

    def __init__(
        self,
        resources: Sequence[Resource],
        prefixes: Sequence[str],
        store: Store,
        config: Config,
        metrics: Metrics,
        failures: Failures,
    ) -> None:
        self._resources = resources
        self._store = store
        self._config = config
        self._metrics = metrics
        self._failures = failures
        self._metrics_digest = digest_of(config.metrics_token)
        self._openapi = exactjson.dumps(document(resources, config, prefixes))

    def blueprint(self) -> Blueprint:
        """The routes, all from the root."""
        routes = Blueprint("service", __name__, template_folder="../web/templates", static_folder=None)
        routes.add_url_rule("/", view_func=self.read_index)
        routes.add_url_rule("/healthz", view_func=self.read_health)
        routes.add_url_rule("/readyz", view_func=self.read_readiness)
        routes.add_url_rule("/metrics", view_func=self.read_metrics)
        routes.add_url_rule("/openapi.json", view_func=self.read_openapi)
        routes.add_url_rule("/problems/<name>", view_func=self.read_problem)
        if self._config.docs:
            routes.add_url_rule("/docs", view_func=self.read_docs)
            routes.add_url_rule("/docs/<path:name>", view_func=self.read_asset)
        routes.after_request(_current)
        return routes

    @needs(PUBLIC)
    def read_index(self) -> Response:
        """What is here: the collections, with their counts for who may read them all, and where to go on."""
        collections = [{"name": each.name, "url": f"/{each.name}"} | self._count(each) for each in self._resources]
        links = {"events": "/api/v1/events", "openapi": "/openapi.json", "health": "/healthz", "readiness": "/readyz"}
        if self._config.docs:
            links = {"docs": "/docs", **links}
        value = {"service": "restkeeper", "collections": collections, "links": links}
        base = known_base() or "https://HOST"
        return _negotiated("index.html", value, base=base, key=self._config.auth == "required")

    def _count(self, resource: Resource) -> dict[str, int]:
        all_of_it = resource.ownership is not Ownership.ALL
        may = caller().may(f"{resource.name}:read" if all_of_it else ADMIN)
        return {"items": self._store.count(resource.name)} if may else {}

    @needs(PUBLIC)
    def read_health(self) -> Response:
        """Whether the process answers."""
        require_acceptable(JSON)
        return _json({"status": "ok"})

    @needs(PUBLIC)
    def read_readiness(self) -> Response:
        """Whether requests can be served; 503 names the part that fails, and the log says why."""
        require_acceptable(JSON)
        try:
            self._store.check()
        except Unavailable as problem:
            raise Unavailable(f"store: {problem.detail}", headers=problem.headers) from problem
        return _json({"status": "ok", "store": "ok"})

    @needs(OWN)
    def read_metrics(self) -> Response:
        """Numbers for Prometheus, for the bearer of the metrics token."""
        if not self._config.metrics_token:
            raise MetricsClosed("set METRICS_TOKEN to open them to its bearer")
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._is_metrics_token(token):
            raise Unauthorized("send the metrics token as Authorization: Bearer", headers=_BEARER)
        return Reply(self._metrics.text(), content_type=PROMETHEUS)

    def _is_metrics_token(self, token: str) -> bool:
        """Raises TooManyRequests for an address that guesses."""
        digest = digest_of(token)
        self._failures.require_room(request.environ, digest)
        if not hmac.compare_digest(digest, self._metrics_digest):
            self._failures.note_failure(request.environ)
            return False
        self._failures.note_success(request.environ, digest)
        return True

    @needs(PUBLIC)
    def read_openapi(self) -> Response:
        """This interface as OpenAPI 3.1."""
        require_acceptable(JSON)
        return _document(self._openapi, JSON)

    @needs(PUBLIC)
    def read_problem(self, name: str) -> Response:
        """What a problem type means and what to do."""
        if (problem := errors.catalogue().get(name)) is None:
            raise NotFound(f"there is no problem type {shortened(name)!r}")
        return _negotiated("problem.html", {"title": problem.title, "status": problem.status, "about": problem.about})

    @needs(PUBLIC)
    def read_docs(self) -> Response:
        """The interface as a page to read and try."""
        return _page("docs.html")

    @needs(PUBLIC)
    def read_asset(self, name: str) -> Response:
        """A file of the docs page."""
        if own := _OWN.get(name):
            return _document(*own)
        if name not in _ASSETS:
            raise NotFound(f"nothing is at {shortened(request.path)}")
        reply = send_from_directory(_SWAGGER_UI, name)
        reply.headers["Cache-Control"] = f"max-age={_ASSET_SECONDS}"
        return reply


_OWN = {
    "docs.css": ((_TEMPLATES / "docs.css").read_bytes(), "text/css; charset=utf-8"),
    "start.js": (
        b"""\
window.onload = () => SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
  // Swagger UI looks for a component by the format of what a list has, and warns where there is none.
  plugins: [({ React }) => ({
    components: {
      JsonSchema_integer_int64: (props) => React.createElement(props.getComponent("JsonSchema_string"), props),
    },
  })],
});
""",
        "text/javascript; charset=utf-8",
    ),
}


def _current(response: Response) -> Response:
    """What does not say for how long it holds is asked for each time; what has no ETag to ask by is not stored."""
    response.headers.setdefault("Cache-Control", "no-cache" if "ETag" in response.headers else "no-store")
    return response


def _negotiated(template: str, value: dict[str, Any], **more: Any) -> Response:
    """A value as a page to whoever likes HTML better than JSON, who is a person with a browser."""
    require_acceptable(JSON, HTML)
    likes_html = quality(HTML) > quality(JSON)
    reply = _page(template, **value, **more) if likes_html else _document(exactjson.dumps(value), JSON)
    reply.headers["Vary"] = "Accept"
    return reply


def _page(template: str, **values: Any) -> Response:
    reply = _document(render_template(template, **values).encode(), f"{HTML}; charset=utf-8")
    reply.headers["Content-Security-Policy"] = _CSP
    reply.headers["Referrer-Policy"] = "no-referrer"
    return reply


def _document(body: bytes, content_type: str) -> Response:
    """What does not change while it has these bytes: their digest is its ETag. Raises PreconditionFailed."""
    tag = blake2b(body, digest_size=12).hexdigest()
    require_match(tag)
    reply = Reply(b"", 304) if is_not_modified(tag) else Reply(body, content_type=content_type)
    reply.headers["ETag"] = f'"{tag}"'
    return reply


def _json(value: Any) -> Response:
    return Reply(exactjson.dumps(value), content_type=JSON)
