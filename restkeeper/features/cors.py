"""CORS: the origins whose pages a browser lets read the responses (the Fetch standard, section 3.2)."""

import re
from collections.abc import Callable, Collection
from typing import Any

from flask import Request, Response
from flask.globals import request_ctx

from restkeeper.errors import CrossOrigin
from restkeeper.service import Service
from restkeeper.web.application import Application, Reply

ALLOWED_HEADERS = (
    "Content-Type, Authorization, X-API-Key, Idempotency-Key, If-Match, If-None-Match, If-Modified-Since, "
    "If-Unmodified-Since, Range, X-Request-Id"
)
EXPOSED_HEADERS = (
    "ETag, Link, Location, X-Total-Count, Content-Range, RateLimit, RateLimit-Policy, Retry-After, "
    "Idempotent-Replayed, X-Request-Id, Deprecation, Sunset, X-RateLimit-Limit, X-RateLimit-Remaining, "
    "X-RateLimit-Reset"
)
MAX_AGE = "600"  # seconds that a browser may cache the response to a preflight; Chromium's own limit is 7200

_LOCAL = re.compile(r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?")
_PREFLIGHT_VARY = "Access-Control-Request-Method, Access-Control-Request-Headers"


def install(app: Application, service: Service) -> None:
    """Let pages of the configured origins read the responses of `app`."""
    allow_origins(app, service.config.cors_origins, local_only=service.guard.local_only)


def allow_origins(app: Application, origins: Collection[str] = (), *, local_only: bool = False) -> None:
    """Let pages of `origins` read all responses of `app`: `https://app.example.org` exactly, or `*` for all.

    With `local_only` and no origins, the origins of this machine are allowed, and requests from pages of other sites
    are refused: an open service on the reader's machine would be reachable to them, and even unreadable responses cost
    time and reveal their size. Without allowed origins nothing is installed. Credentials that a browser adds by itself
    are not allowed: pages set the header fields with keys.
    """
    if not origins and not local_only:
        return
    allows = _origin_check(origins)
    allow_all = "*" in origins
    refuses_sites = local_only and not allow_all

    def admit(request: Request) -> Response | None:
        environ = request.environ
        if (origin := environ.get("HTTP_ORIGIN")) is None:
            if refuses_sites and environ.get("HTTP_SEC_FETCH_SITE") == "cross-site" and not _is_navigation(environ):
                raise CrossOrigin("this request is from a page of another site; CORS_ORIGINS lists the allowed origins")
            return None
        if not allows(origin):
            if local_only and origin != f"{environ['wsgi.url_scheme']}://{request.host}":
                raise CrossOrigin("the Origin is not the service's own; CORS_ORIGINS lists other allowed origins")
            return None
        if (
            request.method == "OPTIONS"
            and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ
            and not request.routing_exception
        ):
            return _preflight()
        return None

    def add_headers(request: Request, response: Response) -> None:
        headers = response.headers
        origin = request.environ.get("HTTP_ORIGIN")
        if origin is not None and allows(origin):
            headers.add("Access-Control-Allow-Origin", "*" if allow_all else origin)
            headers.add("Access-Control-Expose-Headers", EXPOSED_HEADERS)
        # Also without an Origin: a cache must not return such a response to a page, which could not read it.
        if varies := [
            value for name, value in headers if name == "Vary"
        ]:  # always in this spelling; get() takes longer
            headers["Vary"] = ", ".join([*varies, "Origin"])
        else:
            headers.add("Vary", "Origin")

    app.before.append(admit)
    app.after.append(add_headers)


def _is_navigation(environ: dict[str, Any]) -> bool:
    """Whether a person navigates to a page, as by a link (Fetch Metadata, sections 2.1 and 2.2)."""
    return (
        environ["REQUEST_METHOD"] in ("GET", "HEAD")
        and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
        and environ.get("HTTP_SEC_FETCH_DEST") == "document"
    )


def _origin_check(origins: Collection[str]) -> Callable[[str], bool]:
    """A function that returns whether an origin is allowed; never `null`, which any page can produce."""
    if "*" in origins:
        return lambda origin: origin != "null"
    if origins:
        return frozenset(origins).__contains__
    return lambda origin: _LOCAL.fullmatch(origin) is not None


def _preflight() -> Response:
    """The methods and headers that a page may send to the address; authorization follows with the request itself."""
    adapter = request_ctx.url_adapter
    methods = ", ".join(sorted(adapter.allowed_methods())) if adapter else ""
    headers = {
        "Access-Control-Allow-Methods": methods,
        "Access-Control-Allow-Headers": ALLOWED_HEADERS,
        "Access-Control-Max-Age": MAX_AGE,
        "Vary": _PREFLIGHT_VARY,
    }
    return Reply(status=204, headers=headers)
