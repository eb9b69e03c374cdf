"""Services with faults that a history shows, for tests of the recorder: WSGI applications around the tests' service."""

import json
import re
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from tests.shop import create_app

Start = Callable[..., Any]
Environ = dict[str, Any]
Wsgi = Callable[[Environ, Start], Iterable[bytes]]

ONE_PRODUCT = re.compile(r"/products/[^/]+")
EVENTS = "/api/v1/events"


def lost_updates() -> Wsgi:
    """It ignores If-Match."""
    return _without("HTTP_IF_MATCH")


def doubled_creates() -> Wsgi:
    """It ignores Idempotency-Key."""
    return _without("HTTP_IDEMPOTENCY_KEY")


def stale_reads() -> Wsgi:
    """It answers each tenth GET of an item from a cache that no write changes."""
    app, turns = create_app(), count(1)
    cache: dict[str, tuple[tuple[Any, ...], list[bytes]]] = {}

    def cached(environ: Environ, start: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] != "GET" or not ONE_PRODUCT.fullmatch(path) or "HTTP_IF_NONE_MATCH" in environ:
            return app(environ, start)
        if next(turns) % 10 or path not in cache:
            cache[path] = _response(app, environ)
        head, body = cache[path]
        start(*head)
        return body

    return cached


def phantom_successes() -> Wsgi:
    """It makes each tenth change, and says that it was refused."""
    app, turns = create_app(), count(1)

    def refused(environ: Environ, start: Start) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("PATCH", "PUT") or next(turns) % 10:
            return app(environ, start)
        _response(app, environ)
        start("412 Precondition Failed", [("Content-Length", "0")])
        return []

    return refused


def lost_events() -> Wsgi:
    """It leaves out the first event of each tenth page of the feed."""
    return _with_other_events(lambda events: events[1:])


def doubled_events() -> Wsgi:
    """It returns the last event of each tenth page of the feed twice."""
    return _with_other_events(lambda events: [*events, *events[-1:]])


def _without(header: str) -> Wsgi:
    app = create_app()

    def without(environ: Environ, start: Start) -> Iterable[bytes]:
        environ.pop(header, None)
        return app(environ, start)

    return without


def _with_other_events(changed: Callable[[list[Any]], list[Any]]) -> Wsgi:
    app, turns = create_app(), count(1)

    def other(environ: Environ, start: Start) -> Iterable[bytes]:
        if environ["PATH_INFO"] != EVENTS:
            return app(environ, start)
        (status, headers), parts = _response(app, environ)
        body = b"".join(parts)
        if len(body) > 2 and not next(turns) % 10:
            body = json.dumps(changed(json.loads(body))).encode()
        kept = [(name, value) for name, value in headers if name.lower() != "content-length"]
        start(status, [*kept, ("Content-Length", str(len(body)))])
        return [body]

    return other


def _response(app: Wsgi, environ: Environ) -> tuple[tuple[Any, ...], list[bytes]]:
    """A complete response: the arguments of `start`, and the body."""
    heads: list[tuple[Any, ...]] = []
    body = list(app(environ, lambda *arguments: heads.append(arguments)))
    return heads[0][:2], body
