"""The gunicorn worker: gunicorn's gevent worker with a limit for every wait and a stricter parser.

It adds limits for slow clients, a stop that waits a second for idle connections, and the rules of RFC 9112 for Host and
the request target. It needs http_parser = "python": the C parser accepts bare LF, folded fields and a second space
after the method. TLS, HTTP/2 and a fair share for each address are left to the proxy in front.
"""

import gc
import json
import re
import signal
import socket
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from importlib import metadata
from logging import ERROR, INFO
from time import time
from typing import Any

import gevent
from gunicorn import util
from gunicorn.errors import AppImportError
from gunicorn.http import Request, RequestParser, errors, wsgi
from gunicorn.http.body import Body, ChunkedReader
from gunicorn.workers.ggevent import GeventWorker

from restkeeper.clock import YIELD_SECONDS
from restkeeper.errors import code_of
from restkeeper.features.events import IS_CANCELLED
from restkeeper.features.metrics import continue_files
from restkeeper.server.connection import Client, ClientConnections, Incomplete

NO_PRELOAD = "preload_app (--preload) is not supported: each worker creates the application"
MOST_FRAMING = 64 * 1024  # bytes of chunked framing beyond those of the content

TARGET = re.compile(r"/[^#]*|[Hh][Tt][Tt][Pp][Ss]?://([^/?#]+)(?:[/?][^#]*)?")


STATUS = {
    Incomplete: 408,
    errors.LimitRequestLine: 414,
    errors.ExpectationFailed: 417,
    errors.LimitRequestHeaders: 431,
    errors.InvalidResponseHeader: 500,
    errors.InvalidResponseHeaderName: 500,
    errors.UnsupportedTransferCoding: 501,
}


class BoundedChunks(ChunkedReader):  # type: ignore[misc]
    """gunicorn's reader of chunked content, with a limit of framing: one byte of content could cost kilobytes of it.

    After each read of the socket, other connections have their turn.
    """

    def __init__(self, request: Any, unreader: Any) -> None:
        super().__init__(request, unreader)
        self._content = self._framing = 0

    def parse_chunk_size(self, unreader: Any, data: bytes | None = None) -> tuple[int, bytes | None]:
        self._framing += 0 if data is None else len(data) + len(b"\r\n")  # the end of the last chunk
        size, rest = super().parse_chunk_size(unreader, data)
        self._content += size
        self._framing -= len(rest or b"")
        if size and self._framing > self._content + MOST_FRAMING:
            raise errors.InvalidChunkSize(b"more framing than content")
        return size, rest

    def read_into(self, unreader: Any, buf: bytearray) -> None:
        gevent.sleep(0)
        self._framing -= len(buf)
        super().read_into(unreader, buf)
        self._framing += len(buf)


class StrictRequest(Request):  # type: ignore[misc]
    """A request with limits for a slow client, and with checks that gunicorn lacks."""

    _expected_100_continue: bool

    def parse(self, unreader: Any) -> bytes:
        client, worker = unreader.sock, unreader.sock.worker
        client.begin_request(idle=not unreader.buf.tell())
        between = worker.cfg.keepalive if client.served else worker.header_timeout
        between = between if worker.alive else worker.idle_grace
        client.limit(between if client.idle else worker.header_timeout)
        self.max_buffer_headers = worker.head_limit
        return super().parse(unreader)  # type: ignore[no-any-return]

    def _peer_trusted_for_forwarded(self) -> tuple[dict[str, str], list[str]]:
        """No peer is trusted here: the application decides about forwarded headers."""
        return {}, []

    def set_body_reader(self) -> None:
        if self.version == (1, 1) and "HOST" not in dict(self.headers):
            raise errors.InvalidHeader("HOST")  # RFC 9112 §3.2; gunicorn refuses two of them, web.edge an invalid one
        target = TARGET.fullmatch(self.uri)
        if self.version > (1, 1) or (not target and (self.method, self.uri) != ("OPTIONS", "*")):
            raise errors.InvalidRequestLine(self.uri)
        codings = [value.lower() for name, value in self.headers if name == "TRANSFER-ENCODING"]
        if codings not in ([], ["chunked"]):  # §6.1
            raise errors.UnsupportedTransferCoding(", ".join(codings))
        if target and target[1]:  # §3.2.2: the target's authority overrides Host
            self.headers[:] = [field for field in self.headers if field[0] != "HOST"] + [("HOST", target[1])]
        super().set_body_reader()
        if codings:
            self.body = Body(BoundedChunks(self, self.unreader))
        client = self.unreader.sock
        client.limit(client.worker.stall_timeout, client.worker.slowest)
        client.expects = self._expected_100_continue
        self._expected_100_continue = False  # gunicorn would send "100 Continue" before the content is read

    def should_close(self) -> bool:
        """Also when content is unread, or the service stops before a response has announced that another may follow."""
        client, reader = self.unreader.sock, self.body.reader
        unread = reader.parser if isinstance(reader, ChunkedReader) else reader.length
        is_last = not client.worker.alive and not client.begun
        if unread or self.body.failed or is_last or super().should_close():
            self.force_close()  # an announced close stays
        return bool(self.must_close)


class Worker(GeventWorker):  # type: ignore[misc]
    """Serves the application. The limits are attributes, which a subclass can change, in seconds and bytes."""

    header_timeout = 10.0  # from the first byte of a request to the end of its fields
    head_limit = 64 * 1024
    stall_timeout = 30.0  # waiting for the content, unless it is faster than
    slowest = 16 * 1024  # bytes a second
    send_timeout = 30.0  # for a whole response, and longer for a large one, up to
    send_longest = 120.0
    unsent_limit = 32 * 1024 * 1024  # bytes of responses that wait for slow readers, in total
    gathered = 64 * 1024  # bytes of a response that are buffered before a system call
    linger_limit = 16 * 1024 * 1024  # bytes that are read on after a last response, so that this arrives
    linger_timeout = 10.0
    linger_silence = 1.0  # without a byte; when the service stops, in total
    idle_grace = 1.0  # for which a stopping process answers on idle connections: requests may be on their way
    check_interval = 0.005  # after which the loop has to check its sockets, see `YIELD_SECONDS`
    nearly_full = 0.9  # of worker_connections: beyond, the connection that waits longest is closed for a new one

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.connections = ClientConnections(self)

    def patch(self) -> None:
        """As gunicorn does. gevent searches all installed packages for plugins, at each module: here, once."""
        find, found = metadata.entry_points, metadata.entry_points()
        metadata.entry_points = lambda **chosen: found.select(**chosen)  # type: ignore[assignment]
        try:
            super().patch()
        finally:
            metadata.entry_points = find

    def init_process(self) -> None:
        """Store each setting as an attribute: gunicorn looks some fifteen up by name for each request."""
        gc.enable()  # which `settings` has disabled in the master
        continue_files()
        self.cfg.__dict__.update({name: setting.get() for name, setting in self.cfg.settings.items()})
        super().init_process()

    def load_wsgi(self) -> None:
        """Also end the master if the application cannot be created: every new worker would fail too.

        An application that the master has created (`preload_app`) is refused: its locks, which were created before
        gevent's patches, would block a worker.
        """
        if self.cfg.preload_app:
            raise AppImportError(NO_PRELOAD)
        try:
            super().load_wsgi()
        except SystemExit as error:
            raise AppImportError(error.code) from None

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve a connection, one request after another."""
        client, server = Client(self, client), listener.getsockname()
        parser = RequestParser(self.cfg, client, addr)
        parser.mesg_class = StrictRequest
        try:
            self.connections.open.add(client)
            self.connections.make_room(client)
            while True:
                request = next(parser)
                self.handle_request(server, request, client, addr)
                # Without this, a fast client, which never waits in recv, would delay the others.
                is_late = time() - gevent.get_hub().loop.now() > self.check_interval  # its time is of the last check
                gevent.sleep(YIELD_SECONDS if is_late else 0)
        except Exception as error:
            if not isinstance(error, StopIteration | ConnectionAbortedError):  # the harness aborts connections
                self.handle_error(parser.mesg, client, addr, error)
        finally:
            if client in self.connections.open and not client.idle and not client.lost:
                client.linger()
            self.connections.remove(client)
            client.close()

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        """Serve a request. Raises StopIteration after the last one of the connection."""
        self.nr += 1
        if self.nr == self.max_requests:
            self.handle_exit(signal.SIGTERM, None)
        response, environ = wsgi.create(req, sock, addr, listener_name, self.cfg)
        environ["wsgi.multithread"] = True
        environ[IS_CANCELLED] = partial(self.is_cancelled, sock)
        result = self.wsgi(environ, response.start_response)
        try:
            for data in result:
                response.write(data)
            response.close()
            sock.flush()
            sock.served = True
        finally:
            if hasattr(result, "close"):
                result.close()
        bare = req.method == "HEAD" or response.status_code == 304
        short = response.sent < (response.response_length or 0) and not bare
        if short or response.should_close():  # closing shows that the response is incomplete
            raise StopIteration

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Send the problem (RFC 9457), unless a response has begun; the caller then closes the connection."""
        is_client_error = isinstance(exc, errors.ParseException)
        status = STATUS.get(type(exc), 400) if is_client_error else 500
        detail = str(exc) if is_client_error else "The server met an unexpected condition."
        if not client.lost:
            self.log.log(ERROR if status == 500 else INFO, "%d: %s", status, detail, exc_info=status == 500)
        title = HTTPStatus(status).phrase
        problem = {"type": "about:blank", "code": code_of(status, title), "title": title, "status": status}
        body = json.dumps({**problem, "message": detail, "detail": detail})
        head = f"HTTP/1.1 {status} {title}\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
        head += f"Date: {util.http_date()}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        with suppress(OSError):
            if not client.begun:
                client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
                client.flush()

    def is_stopping(self) -> bool:
        """Whether the worker is stopping."""
        return not self.alive

    def is_cancelled(self, client: Client) -> bool:
        """Whether a waiting request should end: the server stops, or the client has left."""
        return not self.alive or client.has_left()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop: finish the requests in progress, and those that arrive on open connections within `idle_grace`.

        Each response then closes its connection. A proxy that finds a connection closed does not repeat a POST.
        """
        super().handle_exit(sig, frame)
        if self.connections.open:
            gevent.spawn_later(self.idle_grace, self._end_idle)

    def _end_idle(self) -> None:
        for client in [each for each in self.connections.waiting if each.idle]:
            client.end(socket.SHUT_RD)
