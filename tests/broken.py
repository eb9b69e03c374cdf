"""A service that breaks a promise, for tests of the recorder: a request names the promise in the header `Broken`."""

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


def lost_updates(app: Wsgi) -> Wsgi:
    """It ignores If-Match."""
    return _without(app, "HTTP_IF_MATCH")


def doubled_creates(app: Wsgi) -> Wsgi:
    """It ignores Idempotency-Key."""
    return _without(app, "HTTP_IDEMPOTENCY_KEY")


def stale_reads(app: Wsgi) -> Wsgi:
    """It answers each tenth GET of an item from a cache that no write changes."""
    turns = count(1)
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


def phantom_successes(app: Wsgi) -> Wsgi:
    """It makes each tenth change, and says that it was refused."""
    turns = count(1)

    def refused(environ: Environ, start: Start) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("PATCH", "PUT") or next(turns) % 10:
            return app(environ, start)
        _response(app, environ)
        start("412 Precondition Failed", [("Content-Length", "0")])
        return []

    return refused


def lost_events(app: Wsgi) -> Wsgi:
    """It leaves out the first event of each tenth page of the feed."""
    return _with_other_events(app, lambda events: events[1:])


def doubled_events(app: Wsgi) -> Wsgi:
    """It returns the last event of each tenth page of the feed twice."""
    return _with_other_events(app, lambda events: [*events, *events[-1:]])


PROMISES = (lost_updates, doubled_creates, stale_reads, phantom_successes, lost_events, doubled_events)


def create_broken() -> Wsgi:
    """The service of the tests, broken for the requests that name a promise."""
    app = create_app()
    broken = {each.__name__: each(app) for each in PROMISES}
    return lambda environ, start: broken.get(environ.get("HTTP_BROKEN", ""), app)(environ, start)


def _without(app: Wsgi, header: str) -> Wsgi:
    def without(environ: Environ, start: Start) -> Iterable[bytes]:
        environ.pop(header, None)
        return app(environ, start)

    return without


def _with_other_events(app: Wsgi, changed: Callable[[list[Any]], list[Any]]) -> Wsgi:
    turns = count(1)

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
