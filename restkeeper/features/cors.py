"""CORS: the origins whose pages a browser lets read the responses (the Fetch standard, section 3.2)."""

import re
from collections.abc import Collection

from flask import Request, Response
from flask.globals import request_ctx

from restkeeper.feature import Seams
from restkeeper.service import Service
from restkeeper.web.application import Reply, Stage
from restkeeper.web.edge import origin_check

# What a page may ask to send: names (RFC 9110, section 5.6.2) with commas, and the longest that is granted.
_TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - as RFC 9110 calls it
_NAMES = re.compile(rf"{_TOKEN}(?:[ \t]*,[ \t]*{_TOKEN})*")
MOST_REQUESTED = 1024  # characters
EXPOSED_HEADERS = (
    "ETag, Link, Location, X-Total-Count, Content-Range, RateLimit, RateLimit-Policy, Retry-After, "
    "Idempotent-Replayed, X-Request-Id, Deprecation, Sunset, X-RateLimit-Limit, X-RateLimit-Remaining, "
    "X-RateLimit-Reset"
)
MAX_AGE = "600"  # seconds that a browser may cache the response to a preflight; Chromium's own limit is 7200


def install(service: Service) -> Seams:
    """Let pages of the configured origins read all responses."""
    return allow_origins(service.config.cors_origins, local_only=service.guard.local_only)


def allow_origins(origins: Collection[str] = (), *, local_only: bool = False) -> Seams:
    """Let pages of `origins` read all responses: `https://app.example.org` exactly, or `*` for all.

    With `local_only` and no origins, the origins of this machine are allowed. Without allowed origins nothing is
    done. Credentials that a browser adds by itself are allowed to pages of this machine where no caller needs any,
    `local_only`; others set the header fields with keys. So they may send any others, too: those that they ask for are
    granted.
    """
    if not origins and not local_only:
        return Seams()
    allows, is_local = origin_check(origins), origin_check(())

    def answer_preflight(request: Request) -> Response | None:
        environ = request.environ
        is_preflight = request.method == "OPTIONS" and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ
        if not is_preflight or request.routing_exception or not allows(environ.get("HTTP_ORIGIN", "null")):
            return None
        adapter = request_ctx.url_adapter  # authorization follows with the request itself
        requested = environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "")
        headers = {
            "Access-Control-Allow-Methods": ", ".join(sorted(adapter.allowed_methods())) if adapter else "",
            "Access-Control-Max-Age": MAX_AGE,
            "Vary": "Access-Control-Request-Method, Access-Control-Request-Headers",
        }
        if len(requested) <= MOST_REQUESTED and _NAMES.fullmatch(requested):
            headers["Access-Control-Allow-Headers"] = requested
        return Reply(status=204, headers=headers)

    def add_headers(request: Request, response: Response) -> None:
        headers = response.headers
        origin = request.environ.get("HTTP_ORIGIN")
        if origin is not None and allows(origin):
            may_have_credentials = local_only and is_local(origin)
            is_any = "*" in origins and not may_have_credentials  # browsers refuse * with them
            headers.add("Access-Control-Allow-Origin", "*" if is_any else origin)
            if may_have_credentials:
                headers.add("Access-Control-Allow-Credentials", "true")
            headers.add("Access-Control-Expose-Headers", EXPOSED_HEADERS)
        # Also without an Origin: a cache must not return such a response to a page, which could not read it.
        if varies := [value for name, value in headers if name == "Vary"]:  # in this spelling; get() takes longer
            headers["Vary"] = ", ".join([*varies, "Origin"])
        else:
            headers.add("Vary", "Origin")

    return Seams(checking=((Stage.EDGE, answer_preflight),), answered=(add_headers,))
