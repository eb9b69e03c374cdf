"""Flask, less what a service of stored bytes does not need, through Flask's and werkzeug's own override points.

No session is opened, the URL adapter's host is prepared once a host, and a response that is one string of bytes goes
out without being taken apart. Everything else is Flask as documented.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from flask import Flask, Request, Response
from flask.sessions import NullSession, SessionInterface
from werkzeug.datastructures import Headers
from werkzeug.routing import MapAdapter
from werkzeug.wsgi import get_host

_HOSTS_KEPT = 256  # a client can name any number of hosts


class Reply(Response):
    """A response whose body is bytes. HEAD and bodiless statuses take werkzeug's own way."""

    default_mimetype = "application/json"

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        chunks = self.response
        plain = self._status_code == 200 and type(chunks) is list and len(chunks) == 1
        if not plain or environ["REQUEST_METHOD"] == "HEAD":
            return super().__call__(environ, start_response)
        start_response(self._status, list(self.headers))
        return chunks  # type: ignore[return-value]


class OwnHeaders(Headers):
    """Headers of our own making, taken as they are: without the checks that a caller's words would need."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._list = pairs


class _NoSession(SessionInterface):
    _null = NullSession()

    def open_session(self, app: Flask, request: Request) -> NullSession:
        return self._null

    def is_null_session(self, obj: object) -> bool:
        return True


class Application(Flask):
    """The WSGI application."""

    response_class = Reply
    session_interface = _NoSession()
    _hosts: ClassVar[dict[tuple[str, str], str]] = {}

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """As it is: nothing here is a coroutine, and asking every hook of every request whether it is takes time."""
        return func

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """As Flask's, for a service that answers alike on every host it is reached by."""
        if request is None:
            return super().create_url_adapter(None)
        environ = request.environ
        request.host = get_host(environ, request.trusted_hosts)
        known = (environ["wsgi.url_scheme"], request.host)
        server_name = self._hosts.get(known)
        if server_name is None:
            if len(self._hosts) >= _HOSTS_KEPT:
                self._hosts.clear()
            server_name = self._hosts[known] = self.url_map.bind_to_environ(environ, subdomain="").server_name
        return MapAdapter(
            self.url_map,
            server_name,
            environ.get("SCRIPT_NAME") or "/",
            "",
            known[0],
            environ.get("PATH_INFO", "").encode("latin-1").decode(errors="replace") or "/",
            request.method,
            environ.get("QUERY_STRING", ""),
        )
