"""Connections of clients, with limits of time for each and of memory for all in a process."""

import socket
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any

import gevent.socket
from gunicorn.http import errors

from restkeeper.web.caller import address_keys


class Incomplete(errors.ParseException, OSError):  # type: ignore[misc]
    """The request did not arrive completely and in time (RFC 9110 §15.5.9)."""


class Client(gevent.socket.socket):  # type: ignore[misc]
    """A connection. `patience` is the time left to wait for it, in seconds; each byte adds 1 / `slowest`.

    An `idle` connection has sent nothing of its next request; a `lost` one cannot receive a response any more.
    """

    def __init__(self, worker: Any, sock: Any, peer: Any) -> None:
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.worker = worker
        self.address = address_keys({"REMOTE_ADDR": peer[0]})[0] if isinstance(peer, tuple) else ""
        self.idle = self.begun = self.lost = self.served = self.in_head = self.expects = False
        self.written, self.flushed, self.delayed_at = b"", 0, 0.0
        self.limit(worker.header_timeout)

    def limit(self, seconds: float, slowest: float = inf) -> None:
        self.patience, self.most, self.slowest = seconds, seconds, slowest

    def begin_request(self, idle: bool) -> None:
        """Reset the state for the next request. Unless `idle`, its first bytes have arrived."""
        self.begun = self.expects = False
        self.in_head, self.idle = True, idle
        self.flushed, self.delayed_at = 0, 0.0
        if idle:
            self.worker.connections.idle[self] = None

    def begin_content(self, expects: bool) -> None:
        """Note that the head is complete; `expects` is whether the client waits for "100 Continue"."""
        self.in_head, self.expects = False, expects
        self.worker.connections.heads.pop(self, None)

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.settimeout(max(0.001, self.patience))
        if self.in_head and not self.idle:
            self.worker.connections.heads[self] = None
        elif not self.idle:
            self.worker.connections.contents[self] = None
        start, data = monotonic(), b""
        try:
            if self.expects:  # the application reads the content (RFC 9110 §10.1.1)
                self.expects = False
                super().sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            data = super().recv(size, flags)
        except OSError as error:
            self.lost = not isinstance(error, TimeoutError)
        finally:
            self.worker.connections.contents.pop(self, None)
        if self.idle:  # a timeout or an end between requests needs no response
            self.idle = not data
            self.worker.connections.idle.pop(self, None)
            self.limit(self.worker.header_timeout)
            return data
        if not data:  # RFC 9112 §8: an incomplete request is not valid
            raise Incomplete("The request did not arrive completely and in time.")
        self.patience = min(self.most, self.patience - (monotonic() - start) + len(data) / self.slowest)
        return data

    def sendall(self, data: bytes, flags: int = 0) -> None:
        """Buffer the data, to send the head and the content of a response together."""
        self.begun = True
        if len(data) >= self.worker.gathered:
            self.flush(data)  # not copied: two copies of large data would wait for a slow reader
            return
        self.written += data
        if len(self.written) >= self.worker.gathered:
            self.flush()

    def flush(self, content: bytes = b"") -> None:
        """Send the buffer, and then the content."""
        head, self.written = self.written, b""
        self.flushed += len(head) + len(content)
        self.lost = True
        try:
            sent = self._sock.sendmsg([head, content]) if content else self._sock.send(head)
        except BlockingIOError:
            sent = 0
        if sent < len(head):
            self._send_rest(head, sent)
        if (sent := max(sent - len(head), 0)) < len(content):
            self._send_rest(content, sent)
        self.lost = False

    def _send_rest(self, data: bytes, sent: int) -> None:
        """Send the rest to a slow reader; the time limit is that of the whole response."""
        worker, view = self.worker, memoryview(data)
        self.delayed_at = self.delayed_at or monotonic()
        deadline = self.delayed_at + min(worker.send_longest, worker.send_timeout + self.flushed / worker.slowest)
        worker.connections.begin_waiting(self, len(data))
        try:
            while sent < len(data):
                if (left := deadline - monotonic()) <= 0:
                    raise TimeoutError("the client reads too slowly")
                self.settimeout(left)
                sent += self.send(view[sent:])
        finally:
            worker.connections.end_waiting(self)

    def has_left(self) -> bool:
        """Whether the client has closed its side."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def linger(self) -> None:
        """Read and discard for a while: closing with unread content could destroy the response (RFC 9112 §9.6)."""
        worker, begun, unread = self.worker, monotonic(), self.worker.linger_limit
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            while unread > 0:
                longest = worker.linger_longest if worker.alive else worker.linger_timeout
                if (left := begun + longest - monotonic()) <= 0:
                    break
                self.settimeout(min(left, worker.linger_timeout))
                if not (data := super().recv(worker.gathered)):
                    break
                unread -= len(data)
                gevent.sleep(0)  # without this, a fast sender would delay the others

    def stop_reading(self) -> None:
        """Stop receiving; requests that have arrived are still served."""
        with suppress(OSError):  # not gevent's shutdown: it discards what has just arrived
            self._sock.shutdown(socket.SHUT_RD)

    def abort(self) -> None:
        """End the connection; all waits for the client fail."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class Connections:
    """The open connections of a process, and the order in which they are closed if there are too many.

    `idle` connections have sent nothing, `heads` a part of a head, `contents` a part of the content. Of `waiting` ones,
    the number of bytes is stored that a slow reader has not received. Each begins with the one that waits longest.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.open: set[Client] = set()
        self.idle: dict[Client, None] = {}
        self.heads: dict[Client, None] = {}
        self.contents: dict[Client, None] = {}
        self.waiting: dict[Client, int] = {}
        self.unsent = 0
        self._per_address: dict[str, int] = {}
        self._lingering = 0

    def admit(self, client: Client) -> bool:
        """Add a connection; if there are too many, a waiting one is closed for it. False if there is no room."""
        worker, address = self._worker, client.address
        self.open.add(client)
        if self._is_nearly_full() and not self._end_one(""):
            self._end_busy()
        if not address or worker.connections_per_address is None:
            client.address = ""
            return True
        if self._per_address.get(address, 0) >= worker.connections_per_address and not self._end_one(address):
            client.address = ""
            return False
        self._per_address[address] = self._per_address.get(address, 0) + 1
        return True

    def _is_nearly_full(self) -> bool:
        return bool(len(self.open) > self._worker.worker_connections * self._worker.nearly_full)

    def _end_one(self, address: str) -> bool:
        """End the connection that waits longest, of an address or of all. Returns whether there is one."""
        for table in (self.idle, self.heads):
            for client in table:
                if address in ("", client.address):
                    self._forget(client)
                    client.stop_reading()
                    return True
        return False

    def _end_busy(self) -> None:
        """End the connection that waits longest for content, or else for the client to read a response."""
        if client := next(iter(self.contents), None):
            self.contents.pop(client)
            client.stop_reading()
        elif client := next(iter(self.waiting), None):
            self.end_waiting(client)
            client.abort()

    def remove(self, client: Client) -> None:
        """Remove a closed connection."""
        self.open.discard(client)
        self._forget(client)

    def _forget(self, client: Client) -> None:
        self.idle.pop(client, None)
        self.heads.pop(client, None)
        if address := client.address:
            client.address = ""
            self._per_address[address] -= 1
            if not self._per_address[address]:
                del self._per_address[address]

    def begin_waiting(self, client: Client, size: int) -> None:
        """Count unsent bytes for a slow reader; beyond the limit, end the connections that wait longest."""
        self.waiting[client] = size
        self.unsent += size
        if self._is_nearly_full() and len(self.waiting) > 1:
            self._end_busy()  # new ones may arrive faster than responses are read
        while self.unsent > self._worker.unsent_limit and len(self.waiting) > 1:
            longest = next(iter(self.waiting))
            self.end_waiting(longest)
            longest.abort()

    def end_waiting(self, client: Client) -> None:
        """Stop counting the unsent bytes of a connection."""
        self.unsent -= self.waiting.pop(client, 0)

    def linger(self, client: Client) -> None:
        """Let a client finish sending, unless too many do so already."""
        if self._lingering < self._worker.most_lingering:
            self._lingering += 1
            try:
                client.linger()
            finally:
                self._lingering -= 1
