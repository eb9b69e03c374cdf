"""What a request gets: the response of the service or of a fault, some of it, or none."""

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

from flask import Request
from werkzeug.exceptions import HTTPException, NotFound
from werkzeug.wrappers import Response as WsgiResponse

from restkeeper.features.harness.faults import Declared
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.web.application import IS_CANCELLED, Reply
from restkeeper.web.bodies import EVENT_STREAM

FAULT = "restkeeper.fault"  # in the WSGI environment: the fault of a request, or None
STUB = "restkeeper.stub"  # there: a function that returns the stub for a request without a route
ROUTES = "restkeeper.routes"  # there: its route or None, and the stub that it has met
SOCKET = "gunicorn.socket"  # there: the connection, unless the client is in this process
ENDINGS = ("close", "drop_response", "cut_response", "reset", "stall")  # requests without a response
ERRORS: dict[str, type[OSError]] = {"reset": ConnectionResetError, "stall": TimeoutError}


def stalled(data: bytes, environ: dict[str, Any], pause: Callable[[], object]) -> Iterator[bytes]:
    """A content with a pause in the middle."""
    yield data[: len(data) // 2]
    if client := environ.get(SOCKET):
        client.flush()  # which gathers small contents
    pause()
    yield data[len(data) // 2 :]


def reply_to(app: Any, environ: dict[str, Any], fault: Declared | None) -> WsgiResponse:
    """The response to a request; with a stall it is complete. Raises ConnectionAbortedError where the connection ends.

    A client in this process has no connection: a fault that would end the connection or stop it, also in the middle of
    the content, raises one of ERRORS, or else ConnectionAbortedError.
    """
    if fault is None:
        return _served(app, environ)
    kind, is_partial = fault.kind, fault.kind in ("cut_response", "stall")
    connection = environ.get(SOCKET)
    if kind == "fail_store" and fault.committed:
        WsgiResponse.from_app(app, environ | {FAULT: None}, buffered=True)
    reply = WsgiResponse()
    if kind != "close" and (kind != "reset" or fault.committed):
        reply = _served(app, environ)
    data = reply.get_data()
    if kind in ENDINGS and not (is_partial and connection and data):
        if kind == "reset" and connection:
            _reset(connection)
        error = ConnectionAbortedError if connection else ERRORS.get(kind, ConnectionAbortedError)
        raise error(f"{kind}: a fault of the test harness")
    if is_partial:
        reply.content_length = len(data)
    if kind == "cut_response":
        reply.response = [data[: len(data) // 2]]
    if fault.retry_after is not None:
        reply.headers["Retry-After"] = str(fault.retry_after)
    return reply


def _served(app: Any, environ: dict[str, Any]) -> WsgiResponse:
    """The response of the service; header fields of a fault or a stub replace the usual ones."""
    if EVENT_STREAM in environ.get("HTTP_ACCEPT", ""):
        environ[IS_CANCELLED] = lambda: True  # only present events: the client soon requests the next ones
    reply = WsgiResponse.from_app(app, environ, buffered=True)
    for declared in (environ[FAULT], *environ[ROUTES]):
        reply.headers.update(getattr(declared, "headers", {}))
    return reply


def answer(request: Request) -> Reply | None:
    """The response of a fault or a stub, if there is one: then nothing else happens. Raises as Faults.stub_for."""
    fault: Declared | None = request.environ[FAULT]
    if fault and fault.kind == "fail_store":
        raise StoreUnavailable("the store is away: a fault of the test harness")
    if fault and fault.kind == "respond" and not fault.content:
        error = HTTPException(fault.detail)
        error.code = fault.status
        raise error
    declared = fault if fault and fault.kind == "respond" else None
    if declared is None and request.url_rule is None:
        is_missing = isinstance(request.routing_exception, NotFound)
        if declared := request.environ[STUB](is_missing=is_missing):
            request.environ[ROUTES].append(declared)
    if declared is None:
        return None
    content, kind = declared.content or (b"", "text/plain; charset=utf-8")
    reply = Reply(content, declared.status)
    reply.content_type = declared.content_type or kind
    return reply


def _reset(connection: Any) -> None:
    """Close a connection by RST (RFC 9293, section 3.5.2): without the FIN that a shutdown would send."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.close(connection.detach())  # not os.close, which gevent puts off to the next pass of its loop
