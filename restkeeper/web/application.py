"""Flask, with seams around every request in one order, and one URL adapter for all hosts.

What they call is given the request, so that they need no context-local proxy. Everything else is Flask as documented.
"""

import logging
import re
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import lru_cache
from socket import socket
from types import MethodType
from typing import Any
from urllib.parse import quote

import orjson
from flask import Flask, Request, Response
from flask.sessions import NullSession, SecureCookieSessionInterface
from flask.typing import ResponseReturnValue, RouteCallable
from werkzeug.datastructures import Headers
from werkzeug.routing import Map, MapAdapter, Rule
from werkzeug.wsgi import get_current_url, get_host

from restkeeper import exactjson
from restkeeper.hook import Hook
from restkeeper.web import current_request

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")  # which change nothing (RFC 9110, section 9.2.1)
MOST_HOST = 255  # characters
UNESCAPED = "/:@!$&'()*+,;=~"  # besides letters and digits, what a path holds unescaped (RFC 3986, section 3.3)
SLASH = "\U0010ffff"  # no character: stands for an escaped slash in `request.path`, where that is none of the path's
_LONG_LABEL = re.compile(r"[^.:]{64}")  # RFC 1035, section 2.3.4
_SLASH = quote(SLASH)
_HOSTS_KEPT = 256  # a client can name any number of hosts

# In the WSGI environment of our servers: a function that serves further listening sockets. It takes them, and variables
# that each of their requests has in its environment, too; it returns a function that closes them and their connections.
SERVE = "restkeeper.serve"
IS_CANCELLED = "restkeeper.is_cancelled"  # likewise: whether the server stops or the client has left
Serve = Callable[[list[socket], dict[str, str]], Callable[[], None]]


class Reply(Response):
    """A response. A body that is one bytes object is sent as it is; everything else takes werkzeug's own way."""

    default_mimetype = "application/json"

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        chunks = self.response
        plain = self.status_code == 200 and type(chunks) is list and len(chunks) == 1 and type(chunks[0]) is bytes
        if not plain or environ["REQUEST_METHOD"] == "HEAD":
            return super().__call__(environ, start_response)
        start_response(self.status, self.headers.to_wsgi_list())
        return chunks  # type: ignore[return-value]


def headers_of(fields: Iterable[tuple[str, str]]) -> Headers:
    """The headers with these fields; `Headers(fields)` takes twice as long."""
    headers = Headers()
    for name, value in fields:
        headers.add(name, value)
    return headers


class Route(Rule):
    """A rule. What werkzeug compiles of its text, in some 0.2 ms, is that of all applications in the process."""

    def compile(self) -> None:
        if self.defaults or self.host or self.subdomain or self.map.converters != Map.default_converters:
            return super().compile()  # of more than the text
        for name, value in _compiled(self.rule, self.merge_slashes).items():
            setattr(self, name, MethodType(value.__func__, self) if isinstance(value, MethodType) else value)


@lru_cache(maxsize=4096)  # a JSON file with 500 collections has so many
def _compiled(text: str, merge_slashes: bool | None) -> dict[str, Any]:
    """The attributes that `Rule.compile` sets."""
    rule = Rule(text, merge_slashes=merge_slashes)
    rule.map = Map()
    before = {**vars(rule)}
    rule.compile()
    return {name: value for name, value in vars(rule).items() if value is not before.get(name) or name == "arguments"}


class Sessions(SecureCookieSessionInterface):
    """The sessions of Flask. Without a SECRET_KEY all requests share the one that is empty and cannot be changed."""

    _none = NullSession()

    def make_null_session(self, app: Flask) -> NullSession:
        return self._none


_log = logging.getLogger("restkeeper")

Wsgi = Callable[..., Iterable[bytes]]
Check = Callable[[Request], Response | None]
Answered = Callable[[Request, Response], None]


class Stage(IntEnum):
    """The stages of a request before its handler, in order."""

    EDGE = 0  # an address of this service, and a page that may call it
    CALLER = 1  # who calls
    LIMIT = 2  # how often, and how much
    VERSION = 3  # of the API: where there is one
    PERMISSION = 4  # what the caller may do


Adding = Callable[[str, Callable[..., Any]], None]


class Application(Flask):
    """The WSGI application: one of Flask, with the same methods; `app.test_client()` is a client for tests.

    All other attributes are for the engine. `checking` are called before every handler, in the order of their stages; a
    response that one returns is that of the request. `answered` are called with every response, in the opposite order.
    Both are outside of hooks that are registered in Flask's way. `ready` are called once, when all routes are
    registered.

    `described` returns the application whose document describes this one: itself, or of a JSON file another one.

    `collections` are the names of paths that are not free for the service itself: see `service_path`. While the routes
    that are added `are_own`, they are those of the service itself.

    `mounted` are the names of the blueprints of the API: see `service.mount`.

    `refused` are called with the status of each request that our servers refuse before it reaches the application, or
    with "closed" for each connection that they close to make room.

    `adding` is called with the endpoint and the function of each view before its route is added.
    """

    response_class = Reply
    url_rule_class = Route
    session_interface = Sessions()

    def __init__(self, *arguments: Any, adding: Adding = lambda endpoint, view: None, **options: Any) -> None:
        self._adding = adding
        self.collections: set[str] = set()
        self.mounted: set[str] = set()
        self.are_own = False
        super().__init__(*arguments, **options)
        self.ensure_sync = lru_cache(maxsize=1024)(self.ensure_sync)  # type: ignore[method-assign]
        self.checking: Hook[Check] = Hook()
        self.answered: Hook[Answered] = Hook()
        self.ready: Hook[Callable[[], None]] = Hook()
        self.described: Callable[[], Application] = lambda: self
        self.refused: list[Callable[[str], None]] = []
        self.trusts_host: Callable[[str], bool] = lambda host: True
        self.trusts_any_host = True  # so that the client can name any host
        self._hosts: dict[tuple[str, str | None, str], tuple[str, str]] = {}
        self.uncached: set[str] = set()  # endpoints whose responses no cache may store, unless they say otherwise
        self._failures: set[tuple[Answered, type[Exception]]] = set()

    def add_url_rule(
        self,
        rule: str,
        endpoint: str | None = None,
        view_func: RouteCallable | None = None,
        provide_automatic_options: bool | None = None,
        **options: Any,
    ) -> None:
        """Add a route, as Flask does. Raises what `adding` raises."""
        if view_func:
            self._adding(endpoint or view_func.__name__, view_func)
        rule = self.service_path(rule) if self.are_own else rule
        super().add_url_rule(rule, endpoint, view_func, provide_automatic_options, **options)

    def service_path(self, path: str) -> str:
        """Where the service itself has this path, also of a version: below /_ if a collection is called so."""
        parts = path.split("/")[3 if path.startswith("/api/") else 1 :]
        return f"/_/{'/'.join(parts)}" if self.collections.intersection(parts[:1]) else path

    def make_response(self, rv: Any) -> Response:
        """The response for the result of a view, as in Flask: a text is HTML. In JSON, decimals are exact."""
        value, *rest = rv if isinstance(rv, tuple) else (rv,)
        if isinstance(value, dict | list):
            value = self.response_class(exactjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))
        elif isinstance(value, str):
            value = self.response_class(value, mimetype="text/html")
        return super().make_response((value, *rest) if rest else value)

    def preprocess_request(self) -> ResponseReturnValue | None:
        """Call what is `checking`, then the hooks of Flask."""
        request = current_request()
        for check in self.checking.functions:
            if (reply := check(request)) is not None:
                return reply
        return super().preprocess_request() if self.before_request_funcs or self.url_value_preprocessors else None

    def process_response(self, response: Response) -> Response:
        """Call the hooks of Flask, then what is `answered`."""
        response = super().process_response(response)
        request = current_request()
        if request.endpoint in self.uncached:
            response.headers.setdefault("Cache-Control", "no-store")
        for answered in reversed(self.answered.functions):
            try:
                answered(request, response)
            except Exception as error:  # the change is committed, and the response must say so
                if (failure := (answered, type(error))) not in self._failures:  # it may occur with every request
                    self._failures.add(failure)
                    name = getattr(answered, "__qualname__", repr(answered))
                    _log.error("%s failed after the handler; the response goes out", name, exc_info=error)
        return response

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """The URL adapter of Flask, for a service that has the same routes on every host.

        The request's `host` is empty if it is malformed, or if `trusts_host`, which is called once a host, refuses it.
        """
        if request is None:
            return None  # as Flask's, without a SERVER_NAME
        environ = request.environ
        key = (environ["wsgi.url_scheme"], environ.get("HTTP_HOST"), environ["SERVER_PORT"])
        if (names := self._hosts.get(key)) is None:
            names = self._names(environ)
            if len(key[1] or "") <= MOST_HOST:
                if len(self._hosts) >= _HOSTS_KEPT:
                    self._hosts.clear()
                self._hosts[key] = names
        request.host, server_name = names
        return MapAdapter(
            self.url_map,
            server_name,
            request.root_path or "/",
            "",
            key[0],
            environ.get("PATH_INFO", "").encode("latin-1").decode(errors="replace") or "/",
            request.method,
            environ.get("QUERY_STRING", ""),
        )

    def _names(self, environ: dict[str, Any]) -> tuple[str, str]:
        """The host that a request came to, empty when it is refused, and the name that routes are matched for."""
        if not (host := host_of(environ)):
            environ["HTTP_HOST"] = ""  # what comes after cannot be read either
        trusted = host if host and self.trusts_host(host) else ""
        return trusted, self.url_map.bind_to_environ(environ, subdomain="").server_name


def address_of(path: str) -> str:
    """The address of a path, escaped: below the prefix at which the current request finds the service (SCRIPT_NAME)."""
    return quote(current_request().root_path + path, UNESCAPED).replace(_SLASH, "%2F")


def host_of(environ: dict[str, Any]) -> str:
    """The host that a request came to, without the scheme's own port; empty when it is malformed."""
    host = environ.get("HTTP_HOST") or ""
    if len(host) > MOST_HOST or _LONG_LABEL.search(host):  # IDNA takes time by the square of a label's length
        return ""
    if host.rpartition("]")[2].count(":") > 1:  # werkzeug leaves out the scheme's own port before it looks
        return ""
    try:
        get_current_url(environ, host_only=True)  # raises as werkzeug would later
        return get_host(environ)
    except ValueError:  # no address, or a label that is none of IDNA's
        return ""
