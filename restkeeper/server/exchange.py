"""The exchange with clients: the requests of connections, one after another, and the responses of the application.

`request` reads what a client sends, `response` sends what the application returns, and `connection` has the limits of
both for slow clients. Here are the loop of a connection and a stop that waits a second for idle ones. TLS, HTTP/2 and a
fair share for each address are left to the proxy in front.
"""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from threading import Thread
from time import time
from typing import Any

import gevent
from gevent.event import Event
from gevent.pool import Pool
from gevent.server import StreamServer

from restkeeper.clock import YIELD_SECONDS, is_due
from restkeeper.errors import Unavailable
from restkeeper.net import most_files
from restkeeper.server.connection import Bodies, Client, ClientConnections, Refused
from restkeeper.server.request import Request, read_request
from restkeeper.server.response import Response, problem
from restkeeper.web.application import IS_CANCELLED, SERVE

LINE, FIELDS = 8190, 100  # bytes of a request line, and of a field; fields
KEEPALIVE = 75  # seconds; longer than the idle time-outs of the usual proxies (60), so that they close first
GRACEFUL = 30  # seconds for requests in progress to finish
CONNECTIONS = 1000
NONE: dict[str, str] = {}
SPARE_FILES = 100  # descriptors for all but connections: of the store, of the logs, of metrics and of deliveries
_log = logging.getLogger("restkeeper")


class Exchange:
    """Serves the application `wsgi`. The limits are attributes, which a subclass can change, in seconds and bytes.

    `cfg` has limits by the names of gunicorn's settings. `nr` are the requests so far, of `max_requests`.
    """

    header_timeout = 10.0  # from the first byte of a request to the end of its fields
    head_limit = 64 * 1024
    stall_timeout = 30.0  # waiting for the content, unless it is faster than
    slowest = 16 * 1024  # bytes a second
    send_timeout = 30.0  # for a whole response, and longer for a large one, up to
    send_longest = 120.0
    unsent_limit = 32 * 1024 * 1024  # bytes of responses that wait for slow readers, in total
    body_limit = 32 * 1024 * 1024  # bytes of bodies that are held, in total, and
    body_share = body_limit // 4  # for a caller
    gathered = 64 * 1024  # bytes of a response that are buffered before a system call
    linger_limit = 16 * 1024 * 1024  # bytes that are read on after a last response, so that this arrives
    linger_timeout = 10.0
    linger_silence = 1.0  # without a byte; when the service stops, in total
    idle_grace = 1.0  # for which a stopping process answers on idle connections: requests may be on their way
    check_interval = 0.005  # after which the loop has to check its sockets, see `YIELD_SECONDS`
    nearly_full = 0.9  # of worker_connections: beyond, the connection that waits longest is closed for a new one

    cfg: Any
    log: Any
    wsgi: Any
    sockets: list[Any]
    notify: Callable[[], object]  # shows each second that this process is alive
    beside: Sequence[Thread] = ()  # what goes on beside requests, and is given some time to end
    alive = True
    nr, max_requests = 0, sys.maxsize

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.connections, self.bodies = ClientConnections(self), Bodies(self)
        self.stopped = Event()

    def begin(self) -> None:
        """Have room for as many connections as this process may have files."""
        # At least two: the only one would be closed for nobody.
        self.worker_connections = int(max(2, min(self.cfg.worker_connections, most_files() - SPARE_FILES)))
        self.pool = Pool(self.worker_connections)  # of all connections

    def run(self) -> None:
        """Serve until a stop, and then until all connections are closed, or no time is left for them."""
        servers = [StreamServer(each, self._handler(each), spawn=self.pool) for each in self.sockets]
        for server in servers:
            server.max_accept = 1 if self.cfg.workers > 1 else server.max_accept
            server.start()
        while self.alive:
            self.notify()
            self.stopped.wait(1.0)
        for server in servers:
            self._close(server)
        end = time() + self.cfg.graceful_timeout
        while not self.pool.join(min(1.0, end - time())) and time() < end:
            self.notify()
        if self.pool:
            if self.cfg.graceful_timeout:  # else nobody waits for requests in progress
                self.log.warning("Worker graceful timeout (pid:%s)", os.getpid())
            self.pool.kill(timeout=1.0)

    def _close(self, server: Any) -> None:
        """Close a socket. Connections that wait there are accepted before: the last process to close it resets them."""
        server.stop_accepting()
        while self.cfg.graceful_timeout and not self.pool.full() and (connection := server.do_read()):
            server.do_handle(*connection)
        server.close()

    def serve_also(self, listeners: list[Any], variables: dict[str, str]) -> Callable[[], None]:
        """See `SERVE`."""
        is_open = True

        def handle(serve: Any, sock: Any, addr: Any) -> None:
            if is_open:
                serve(sock, addr)
            else:  # it was accepted just before
                sock.close()

        def end() -> None:
            nonlocal is_open
            is_open = False
            for server in servers:
                server.close()
            for client in [each for each in self.connections.open if each.listener in listeners]:
                client.end(socket.SHUT_RDWR)

        servers = [
            StreamServer(each, partial(handle, self._handler(each, variables)), spawn=self.pool) for each in listeners
        ]
        for server in servers:
            server.start()
        return end

    def _handler(self, listener: Any, variables: dict[str, str] = NONE) -> Any:
        """What serves the connections of a socket; its address is read now, as a stop closes it before the last one."""
        return partial(self.handle, listener, listener.getsockname(), variables)

    def handle(self, listener: Any, server: Any, variables: dict[str, str], sock: Any, addr: Any) -> None:
        """Serve a connection to the address `server`, one request after another. All of them have the `variables`."""
        client = Client(self, sock, listener)
        common = self._environ_of(client, server, addr) | variables
        try:
            self.connections.open.add(client)
            self.connections.make_room(client)
            while (request := read_request(client, common)) and self._serve(request, client):
                # Without this, a fast client, which never waits in recv, would delay the others.
                is_late = time() - gevent.get_hub().loop.now() > self.check_interval  # its time is of the last check
                gevent.sleep(YIELD_SECONDS if is_late else 0)
        except ConnectionAbortedError:  # by the harness
            pass
        except Exception as error:
            self._refuse(client, error, common["REMOTE_ADDR"])
        finally:
            if client in self.connections.open and not client.idle and not client.lost:
                client.linger()
            self.connections.remove(client)
            client.close()

    def _environ_of(self, client: Client, server: Any, addr: Any) -> dict[str, Any]:
        """The variables of WSGI that are the same for all requests of a connection (PEP 3333)."""
        name, port, *_ = server if isinstance(server, tuple) else ("localhost", 80)  # where it is a socket of Unix
        address, source, *_ = addr if isinstance(addr, tuple) else ("", "")
        return {
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",  # the application decides about forwarded fields
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": self.cfg.workers > 1,
            "wsgi.run_once": False,
            "wsgi.input_terminated": True,
            "gunicorn.socket": client,
            "SERVER_SOFTWARE": "gunicorn",
            "SCRIPT_NAME": os.environ.get("SCRIPT_NAME", "").rstrip("/"),
            "SERVER_NAME": name,
            "SERVER_PORT": str(port),
            "REMOTE_ADDR": address,
            "REMOTE_PORT": str(source),
            IS_CANCELLED: partial(self.is_cancelled, client),
            SERVE: self.serve_also,
        }

    def _serve(self, request: Request, client: Client) -> bool:
        """Serve a request, and return whether another one can follow on the connection."""
        self.nr += 1
        if self.nr == self.max_requests:
            self.handle_exit(signal.SIGTERM, None)
        environ, response, client.application = request.environ, Response(request, client), self.wsgi
        if prefix := environ["SCRIPT_NAME"]:
            path = environ["PATH_INFO"]
            if not f"{path}/".startswith(f"{prefix}/"):
                raise Refused(404, f"the service is below {prefix}")
            environ["PATH_INFO"] = path.removeprefix(prefix)
        result: Any = ()
        try:
            result = client.application(environ, response.start_response)
            for data in result:
                response.write(data)
            response.end()
            client.served = True
        finally:
            request.content.release()
            if hasattr(result, "close"):
                result.close()
        return not response.closes

    def _refuse(self, client: Client, error: Exception, address: str) -> None:
        """Send the problem (RFC 9457), unless a response has begun; the caller then closes the connection."""
        status, detail = 500, "The server met an unexpected condition."
        if isinstance(error, Refused | Unavailable):
            status, detail = error.status, str(error)
        if status == 500 and not client.lost:
            self.log.error("500: %s", detail, exc_info=True)
        elif not client.lost:
            self.note_refusal(str(status), f"requests get {status}: {detail} (from {address})")
        if not client.begun:
            client.begun = True
            with suppress(OSError):
                client.write(problem(status, detail))
                client.flush()

    def note_refusal(self, status: str, line: str) -> None:
        """Count what the application does not see, and log a line about it, once a minute for each status."""
        for count in getattr(self.wsgi, "refused", ()):
            count(status)
        if is_due(status):
            _log.info("%s", line)

    def is_cancelled(self, client: Client) -> bool:
        """Whether a waiting request should end: the server stops, its application is replaced, or the client left."""
        return not self.alive or client.application is not self.wsgi or client.has_left()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop: finish the requests in progress, and those that arrive on open connections within `idle_grace`.

        Each response then closes its connection. A proxy that finds a connection closed does not repeat a POST.
        """
        self.alive = False
        self.stopped.set()
        if self.connections.open:
            gevent.spawn_later(self.idle_grace, self._end_idle)

    def _end_idle(self) -> None:
        for client in [each for each in self.connections.waiting if each.idle]:
            client.end(socket.SHUT_RD)


def patch_with(patch: Callable[[], object]) -> None:
    """Patch the standard library. gevent searches all installed packages for plugins, at each module: here, never."""
    find, metadata.entry_points = metadata.entry_points, lambda **chosen: ()  # type: ignore[assignment]
    try:
        patch()
    finally:
        metadata.entry_points = find
