"""Connections of clients, with limits of time for each and of memory for all in a process."""

import socket
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any

import gevent.socket

from restkeeper.errors import Unavailable


class Refused(Exception):
    """A request that is not valid, and the status that says so."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Incomplete(Refused, OSError):
    """The request did not arrive completely and in time (RFC 9110 §15.5.9)."""

    def __init__(self) -> None:
        super().__init__(408, "The request did not arrive completely and in time.")


class Client(gevent.socket.socket):  # type: ignore[misc]
    """A connection. `patience` is the time left to wait for it, in seconds; each byte adds 1 / `slowest`.

    An `idle` connection has sent nothing of its next request; a `lost` one cannot receive a response any more. A
    client that `expects` has to be sent "100 Continue" before it sends the content. `rest` are bytes that have arrived
    and belong to what is read next; a response has `begun` when its head is written.
    """

    application: Any = None  # that serves the present request

    def __init__(self, worker: Any, sock: Any, listener: Any = None) -> None:
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.worker, self.listener = worker, listener
        self.lost = self.served = False
        self.rest, self.written = b"", b""
        self.begin_request()

    def begin_request(self) -> None:
        """Reset the state for the next request."""
        worker, self.idle = self.worker, not self.rest
        self.begun = self.expects = False
        self.flushed, self.delayed_at = 0, 0.0
        between = worker.cfg.keepalive if self.served else worker.header_timeout
        between = between if worker.alive else worker.idle_grace
        self.limit(between if self.idle else worker.header_timeout)

    def limit(self, seconds: float, slowest: float = inf) -> None:
        self.patience, self.most, self.slowest = seconds, seconds, slowest

    def recv(self, size: int, flags: int = 0) -> bytes:
        try:
            data: bytes = self._sock.recv(size)  # most are there already if others had their turns
        except BlockingIOError:
            data = self._wait_for(size)
        except OSError:
            self.lost, data = True, b""
        if self.idle:  # a timeout or an end between requests needs no response
            self.idle = not data
            self.limit(self.worker.header_timeout)
            return data
        if not data:  # RFC 9112 §8: an incomplete request is not valid
            raise Incomplete
        self.patience = min(self.most, self.patience + len(data) / self.slowest)
        return data

    def _wait_for(self, size: int) -> bytes:
        """The data that arrive next; none if the client is too slow, or the connection ends."""
        if self.patience <= 0:
            return b""
        self.settimeout(self.patience)
        start = monotonic()
        self.worker.connections.begin_wait(self)
        try:
            if self.expects:  # the application reads the content (RFC 9110 §10.1.1)
                self.expects = False
                super().sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            return bytes(super().recv(size))
        except OSError as error:
            self.lost = not isinstance(error, TimeoutError)
            return b""
        finally:
            self.worker.connections.waiting.pop(self, None)
            self.patience -= monotonic() - start

    def write(self, data: bytes) -> None:
        """Send data; small ones are gathered first. Large ones are not copied: copies would wait for slow readers."""
        is_large = len(data) >= self.worker.gathered
        if not is_large:
            self.written += data
        if is_large or len(self.written) >= self.worker.gathered:
            self.flush()
        if is_large:
            self._send(data)

    def flush(self) -> None:
        """Send what has been gathered."""
        data, self.written = self.written, b""
        self._send(data)

    def _send(self, data: bytes) -> None:
        self.flushed += len(data)
        self.lost = True
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._send_rest(data, sent)
        self.lost = False

    def _send_rest(self, data: bytes, sent: int) -> None:
        """Send the rest to a slow reader; the time limit is that of the whole response."""
        worker, view = self.worker, memoryview(data)[sent:]
        self.delayed_at = self.delayed_at or monotonic()
        deadline = self.delayed_at + min(worker.send_longest, worker.send_timeout + self.flushed / worker.slowest)
        worker.connections.begin_wait(self, len(data))
        try:
            while view:
                if (left := deadline - monotonic()) <= 0:
                    raise TimeoutError("the client reads too slowly")
                self.settimeout(left)
                view = view[self.send(view) :]
        finally:
            worker.connections.waiting.pop(self, None)

    def linger(self) -> None:
        """Read and discard for a while: closing with unread content could destroy the response (RFC 9112 §9.6)."""
        worker, unread, begun = self.worker, self.worker.linger_limit, monotonic()
        self.end(socket.SHUT_WR)
        self.expects = False
        while unread > 0:
            longest = worker.linger_timeout if worker.alive else worker.linger_silence
            self.limit(min(begun + longest - monotonic(), worker.linger_silence))
            self.idle = True
            if self.patience <= 0 or not (data := self.recv(worker.gathered)):
                break
            unread -= len(data)
            gevent.sleep(0)  # without this, a fast sender would delay the others

    def has_left(self) -> bool:
        """Whether the client has closed its side."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def end(self, how: int) -> None:
        """End one side of the connection or both (`SHUT_RD` and its like), and the waits for the client there.

        With SHUT_RD what has arrived is still served: gevent's shutdown would discard it.
        """
        with suppress(OSError):
            self._sock.shutdown(how)


class ClientConnections:
    """The open connections of a process, and those that wait for their client, the one that waits longest first.

    `waiting` has for each the bytes of a response that are not sent; 0 if the client has to send something.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.open: set[Client] = set()
        self.waiting: dict[Client, int] = {}

    def begin_wait(self, client: Client, unsent: int = 0) -> None:
        """Note that a connection waits for its client."""
        self.waiting[client] = unsent
        self.make_room(client)

    def remove(self, client: Client) -> None:
        """Remove a connection."""
        self.open.discard(client)
        self.waiting.pop(client, None)

    def make_room(self, newest: Client) -> None:
        """If there are too many connections, or unsent bytes, close the one that waits longest, but not the newest."""
        worker = self._worker
        most, sends = worker.worker_connections * worker.nearly_full, self.waiting.get(newest, 0) > 0
        while (is_full := len(self.open) > most) or (sends and sum(self.waiting.values()) > worker.unsent_limit):
            longest = next((each for each, unsent in self.waiting.items() if is_full or unsent), newest)
            if longest is newest:
                return
            worker.note_refusal("closed", f"connections are closed for others: {len(self.open)} are open")
            longest.end(socket.SHUT_RDWR if self.waiting[longest] else socket.SHUT_RD)
            self.remove(longest)


class Bodies:
    """The bytes of bodies that a process holds, by caller: of those above UNCOUNTED, until their requests have ended.

    They are limited, in total and for a caller. Beyond its share a caller can still have one body, which counts as the
    share: so each length that the application allows is possible.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.sizes: dict[str, int] = {}

    def hold(self, caller: str, held: int, size: int) -> None:
        """Hold another size of a body than it `held`, 0 at its end. Raises Unavailable if there is no room."""
        share, rest = self._worker.body_share, self.sizes.get(caller, 0) - held
        sizes = {**self.sizes, caller: rest + size}
        is_full = sum(min(share, total) for total in sizes.values()) > self._worker.body_limit
        if size and (is_full or (rest and rest + size > share)):
            raise Unavailable("too many large bodies arrive at this moment, in all or from this caller; try again")
        self.sizes = sizes if rest + size else {name: total for name, total in sizes.items() if total}
