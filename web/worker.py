"""The gunicorn worker: gunicorn's own on gevent, with every wait bounded and its parser's gaps closed.

Added are limits for slow clients, a fair share for each connection, a stop that does not wait for idle ones,
and what RFC 9112 says of Host and the request target. It needs http_parser = "python": the C parser accepts
bare LF, folded fields and a second space after the method. TLS and HTTP/2 belong to the proxy in front.
"""

import json
import re
import signal
import socket
from contextlib import suppress
from functools import lru_cache, partial
from http import HTTPStatus
from logging import ERROR, INFO
from math import inf
from time import monotonic, time
from typing import Any, ClassVar

import gevent
from gunicorn import util
from gunicorn.http import Request, RequestParser, errors, wsgi
from gunicorn.http.wsgi import HEADER_VALUE_RE as VALUE
from gunicorn.workers.ggevent import GeventWorker

from web.longpoll import IN_VAIN

AUTHORITY = r"(?:[A-Za-z0-9._~%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?"
TARGET = re.compile(rf"/[^#]*|[Hh][Tt][Tt][Pp][Ss]?://({AUTHORITY})(?:[/?][^#]*)?")


class Incomplete(errors.ParseException, OSError):  # type: ignore[misc]
    """The request did not arrive, or not in time (RFC 9110 §15.5.9)."""


STATUS = {Incomplete: 408, errors.LimitRequestLine: 414, errors.LimitRequestHeaders: 431}
STATUS |= {errors.ExpectationFailed: 417, errors.UnsupportedTransferCoding: 501}
STATUS |= {errors.InvalidResponseHeader: 500, errors.InvalidResponseHeaderName: 500}


class Client(gevent.socket.socket):  # type: ignore[misc]
    """A connection: waiting wears out its `patience`, of so many seconds; a byte restores 1 / `slowest`."""

    def __init__(self, worker: "Worker", sock: Any) -> None:
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.worker, self.idle, self.begun, self.lost = worker, False, False, False
        self.written, self.served = b"", False

    def limit(self, seconds: float, slowest: float = inf) -> None:
        self.patience, self.most, self.slowest = seconds, seconds, slowest

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.settimeout(max(0.001, self.patience))
        start, data = monotonic(), b""
        try:
            data = super().recv(size, flags)
        except OSError as error:
            self.lost = not isinstance(error, TimeoutError)
        if self.idle:  # neither silence between requests nor an end needs an answer
            self.idle = not data
            self.limit(self.worker.header_timeout)
            return data
        if not data:  # RFC 9112 §8: what is incomplete must not pass for complete
            raise Incomplete("The request did not arrive whole and in time.")
        self.patience = min(self.most, self.patience - (monotonic() - start) + len(data) / self.slowest)
        return data

    def sendall(self, data: bytes, flags: int = 0) -> None:
        """Gather what is written: the head of a response and its content leave together."""
        self.begun = True
        self.written += data
        if len(self.written) >= self.worker.gathered:
            self.flush()

    def has_left(self) -> bool:
        """Whether the client has closed its side."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def flush(self) -> None:
        data, self.written = self.written, b""
        self.lost = True
        self.settimeout(self.worker.send_timeout + len(data) / self.worker.slowest)
        if (sent := self.send(data)) < len(data):  # gevent's sendall asks the kernel for its buffer's size each time
            super().sendall(data[sent:])
        self.lost = False


class StrictRequest(Request):  # type: ignore[misc]
    """A request that limits how long its client is waited for, and refuses what gunicorn lets pass."""

    def parse(self, unreader: Any) -> bytes:
        client, worker = unreader.sock, unreader.sock.worker
        client.begun, client.idle = False, not unreader.buf.tell()
        between = worker.cfg.keepalive if client.served else worker.header_timeout
        between = between if worker.alive else 0.1  # for who connects while the service stops
        client.limit(between if client.idle else worker.header_timeout)
        self.max_buffer_headers = worker.head_limit
        return super().parse(unreader)  # type: ignore[no-any-return]

    def _peer_trusted_for_forwarded(self) -> tuple[dict[str, str], list[str]]:
        """No peer: whom to believe is the application's to say."""
        return {}, []

    def set_body_reader(self) -> None:
        host = dict(self.headers).get("HOST", "" if self.version == (1, 1) else "localhost")
        if not re.fullmatch(AUTHORITY, host):  # RFC 9112 §3.2; gunicorn has refused a second one
            raise errors.InvalidHeader("HOST")
        target = TARGET.fullmatch(self.uri)
        if self.version > (1, 1) or (not target and (self.method, self.uri) != ("OPTIONS", "*")):
            raise errors.InvalidRequestLine(self.uri)
        codings = [value.lower() for name, value in self.headers if name == "TRANSFER-ENCODING"]
        if codings not in ([], ["chunked"]):  # §6.1
            raise errors.UnsupportedTransferCoding(", ".join(codings))
        if target and target[1]:  # §3.2.2: the target's authority overrides Host
            self.headers[:] = [field for field in self.headers if field[0] != "HOST"] + [("HOST", target[1])]
        super().set_body_reader()
        client = self.unreader.sock
        client.limit(client.worker.stall_timeout, client.worker.slowest)

    def should_close(self) -> bool:
        """Also when the service stops, or what is unread of the content is too much or of unknown length."""
        worker, reader = self.unreader.sock.worker, self.body.reader
        unread = inf if getattr(reader, "parser", None) else getattr(reader, "length", 0)
        if self.body.failed or unread > worker.discard_limit or not worker.alive or super().should_close():
            self.force_close()  # a close once announced is kept to
        return bool(self.must_close)


class Answer(wsgi.Response):  # type: ignore[misc]
    """A response whose fields are checked together: by gunicorn's rules, and singly where names are new."""

    known: ClassVar[set[str]] = set()  # names that gunicorn sends on as they are; an application has some dozens

    def process_headers(self, headers: list[tuple[str, str]]) -> None:
        fields = dict(headers)
        if len(fields) == len(headers) and self.known.issuperset(fields) and VALUE.fullmatch("".join(fields.values())):
            self.headers.extend(headers)
            if "Content-Length" in fields:
                self.response_length = int(fields["Content-Length"])
            return
        super().process_headers(headers)
        if len(self.known) < 256:
            self.known.update(name for name, _ in self.headers if name.lower() not in ("content-length", "upgrade"))
            self.known.add("Content-Length")

    def default_headers(self) -> list[str]:
        """As gunicorn's, with the date written once a second."""
        if self.upgrade:
            return super().default_headers()  # type: ignore[no-any-return]
        connection = "close" if self.should_close() else "keep-alive"
        first = f"HTTP/{self.req.version[0]}.{self.req.version[1]} {self.status}\r\nServer: {self.version}\r\n"
        lines = [first, f"Date: {_date(int(time()))}\r\n", f"Connection: {connection}\r\n"]
        return [*lines, "Transfer-Encoding: chunked\r\n"] if self.chunked else lines


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return util.http_date(second)  # type: ignore[no-any-return]


class Worker(GeventWorker):  # type: ignore[misc]
    """Serves the application; seconds and bytes are attributes, for a subclass to change."""

    header_timeout = 10.0  # from the first byte of a request to the end of its fields
    head_limit = 64 * 1024
    stall_timeout = 30.0  # waiting for the content, unless it comes faster than
    slowest = 16 * 1024  # bytes a second
    send_timeout = 30.0  # and more by size
    gathered = 64 * 1024  # bytes of a response that are worth a call of the system
    discard_limit = 64 * 1024  # unread content that is worth reading to keep the connection

    def init_process(self) -> None:
        self.clients: set[Client] = set()
        signal.signal(signal.SIGTERM, self.handle_exit)  # the arbiter's handler, still set, would swallow it
        self.cfg.__dict__.update({name: each.get() for name, each in self.cfg.settings.items()})  # looked up often
        super().init_process()

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve a connection, one request after the other."""
        client, server = Client(self, client), listener.getsockname()
        self.clients.add(client)
        parser = RequestParser(self.cfg, client, addr)
        parser.mesg_class = StrictRequest
        try:
            while True:
                self.handle_request(server, next(parser), client, addr)
                gevent.sleep(0)  # a quick client never waits in recv, so it would keep the others waiting
        except Exception as error:
            if not isinstance(error, StopIteration):
                self.handle_error(parser.mesg, client, addr, error)
        finally:
            self.clients.discard(client)
            client.limit(1.0)
            if not client.idle and not client.lost:  # a reset could destroy our last words (RFC 9112 §9.6)
                util.close_graceful(client, 1.0, self.discard_limit)
            client.close()

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        """Answer a request; `StopIteration` says that it was the last."""
        self.nr += 1
        if self.nr == self.max_requests:
            self.handle_exit(signal.SIGTERM, None)
        response, environ = wsgi.create(req, sock, addr, listener_name, self.cfg, Answer)
        environ["wsgi.multithread"] = True
        environ[IN_VAIN] = partial(self.is_in_vain, sock)
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
        if short or response.should_close():  # only closing tells that less came than was announced
            raise StopIteration

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Say what was wrong (RFC 9457), unless a response has begun; the connection is then closed."""
        theirs = isinstance(exc, errors.ParseException)
        status = STATUS.get(type(exc), 400) if theirs else 500
        detail = str(exc) if theirs else "The server met an unexpected condition."
        if not client.lost:
            self.log.log(ERROR if status == 500 else INFO, "%d: %s", status, detail, exc_info=status == 500)
        title = HTTPStatus(status).phrase
        body = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail})
        head = f"HTTP/1.1 {status} {title}\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
        head += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        with suppress(OSError):
            if not client.begun:
                client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
                client.flush()

    def is_stopping(self) -> bool:
        """Whether it has been asked to stop."""
        return not self.alive

    def is_in_vain(self, client: Client) -> bool:
        """Whether to wait for what may yet happen makes no sense any more: the server stops, or the client has gone."""
        return not self.alive or client.has_left()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop: requests in flight are finished, idle connections closed at once."""
        super().handle_exit(sig, frame)
        for client in [client for client in self.clients if client.idle]:
            with suppress(OSError):  # not gevent's shutdown: it discards what has just arrived
                client._sock.shutdown(socket.SHUT_RD)
