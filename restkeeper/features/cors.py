"""Which pages of other origins a browser lets read this service: CORS (the Fetch standard, section 3.2)."""

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
MAX_AGE = "600"  # seconds that a browser may keep the answer to a preflight; Chromium keeps none for longer than 7200

_LOCAL = re.compile(r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?")
_PREFLIGHT_VARY = "Access-Control-Request-Method, Access-Control-Request-Headers"


def install(app: Application, service: Service) -> None:
    """Let pages of the configured origins read what `app` answers."""
    allow_origins(app, service.config.cors_origins, local_only=service.guard.local_only)


def allow_origins(app: Application, origins: Collection[str] = (), *, local_only: bool = False) -> None:
    """Let pages of `origins` read what `app` answers, errors too: `https://app.example.org` exactly, or `*` for all.

    With `local_only` and no origins, those of this machine; and no page of another site is answered at all, for such a
    page reaches what is open on its reader's machine: also what it cannot read costs, and its size and time tell
    something. Where no origin can be allowed, nothing is installed. Credentials that a browser adds by itself are never
    asked for: keys travel in header fields that pages set.
    """
    if not origins and not local_only:
        return
    allows = _allowance(origins)
    answer_all = "*" in origins
    refuses_sites = local_only and not answer_all

    def admit(asked: Request) -> Response | None:
        environ = asked.environ
        if (origin := environ.get("HTTP_ORIGIN")) is None:
            if refuses_sites and environ.get("HTTP_SEC_FETCH_SITE") == "cross-site" and not _is_navigation(environ):
                raise CrossOrigin(
                    "this is a request of a page of another site; CORS_ORIGINS lists the origins that may"
                )
            return None
        if not allows(origin):
            if local_only and origin != f"{environ['wsgi.url_scheme']}://{asked.host}":
                raise CrossOrigin("the Origin is not the service's own; CORS_ORIGINS lists others that may")
            return None
        if (
            asked.method == "OPTIONS"
            and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ
            and not asked.routing_exception
        ):
            return _preflight()
        return None

    def tell(asked: Request, response: Response) -> None:
        headers = response.headers
        origin = asked.environ.get("HTTP_ORIGIN")
        if origin is not None and allows(origin):
            headers.add("Access-Control-Allow-Origin", "*" if answer_all else origin)
            headers.add("Access-Control-Expose-Headers", EXPOSED_HEADERS)
        # Also without an Origin: a cache that keeps such an answer must not give it to a page, which could not read it.
        if varies := [value for name, value in headers if name == "Vary"]:  # as all here spell it; get() takes longer
            headers["Vary"] = ", ".join([*varies, "Origin"])
        else:
            headers.add("Vary", "Origin")

    app.before.append(admit)
    app.after.append(tell)


def _is_navigation(environ: dict[str, Any]) -> bool:
    """Whether a person goes to a page, as by a link (Fetch Metadata, sections 2.1 and 2.2): no other page reads it."""
    return (
        environ["REQUEST_METHOD"] in ("GET", "HEAD")
        and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
        and environ.get("HTTP_SEC_FETCH_DEST") == "document"
    )


def _allowance(origins: Collection[str]) -> Callable[[str], bool]:
    """What tells whether an origin is allowed; `null`, which any page can make itself, never is."""
    if "*" in origins:
        return lambda origin: origin != "null"
    if origins:
        return frozenset(origins).__contains__
    return lambda origin: _LOCAL.fullmatch(origin) is not None


def _preflight() -> Response:
    """What a page may send to the address; who may do so is asked when it does."""
    adapter = request_ctx.url_adapter
    methods = ", ".join(sorted(adapter.allowed_methods())) if adapter else ""
    headers = {
        "Access-Control-Allow-Methods": methods,
        "Access-Control-Allow-Headers": ALLOWED_HEADERS,
        "Access-Control-Max-Age": MAX_AGE,
        "Vary": _PREFLIGHT_VARY,
    }
    return Reply(status=204, headers=headers)
