"""A response of the application (PEP 3333): its head is one join, and a small response one write."""

import json
import re
from collections.abc import Callable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from time import time
from typing import Any

from restkeeper.errors import code_of
from restkeeper.server.request import Request

OURS = {  # fields that the application cannot set
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "trailers"),
    *("transfer-encoding", "upgrade", "server", "date"),
}
HEAD = re.compile(r"HTTP/1\.[01] [0-9]{3}[ -~\x80-\xff]*(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~\x80-\xff]*)*")
_date = (0, "")


class Response:
    """The response to a request. `closes` is whether the connection ends after it."""

    def __init__(self, request: Request, client: Any) -> None:
        self._request, self._client = request, client
        self._head = b""  # what start_response has given
        self.status = 0
        self.left: int | None = None  # bytes of the content that are not sent; None if the length is not known
        self.closes = self._is_chunked = self._is_bare = False

    def start_response(
        self, status: str, headers: Sequence[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        """Keep the status and the fields until the first content is sent.

        Raises ValueError for what is not valid: a line break in a field could begin another one.
        """
        if exc_info and self._client.begun:
            raise exc_info[1].with_traceback(exc_info[2])
        if self.status and not exc_info:
            raise AssertionError("start_response was called twice")
        self.status, self.left = int(status[:3]), None
        is_head = self._request.environ["REQUEST_METHOD"] == "HEAD"
        self._is_bare = is_head or self.status in (204, 304) or self.status < 200
        lines = [f"HTTP/1.{int(self._request.is_http11)} {status}"]
        for name, value in headers:
            key = name.lower()
            if key == "content-length":
                if self.status == 204 or self.status < 200:  # RFC 9110 §8.6
                    continue
                self.left = int(value)
            if key not in OURS:
                lines.append(f"{name}: {value}")
        head = "\r\n".join(lines)
        if head.count("\n") >= len(lines) or not HEAD.fullmatch(head):
            raise ValueError("the status or a field of the response is not valid")
        self._head = head.encode("latin-1")
        return self.write

    def write(self, data: bytes) -> None:
        """Send some of the content, not more than there is to be."""
        head = b"" if self._client.begun else self._begin()
        if self._is_bare:
            data = b""
        elif self.left is not None:
            data = data[: self.left]
            self.left -= len(data)
        elif self._is_chunked and data:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._client.write(head, data)

    def end(self) -> None:
        """Send what is left to send. The connection closes also if content is missing, or was not read."""
        if not self._client.begun:
            self.write(b"")
        self._client.write(b"0\r\n\r\n" if self._is_chunked else b"", b"")
        self._client.flush()
        self.closes |= bool(self.left and not self._is_bare) or self._request.has_unread()

    def _begin(self) -> bytes:
        """The head. It announces whether another request can follow."""
        if not self._head:
            raise AssertionError("the application has not called start_response")
        request, worker = self._request, self._client.worker
        has_end = self._is_bare or self.left is not None
        self._is_chunked = request.is_http11 and not has_end
        has_end |= self._is_chunked
        self.closes = request.closes or not (has_end and worker.alive) or request.has_unread()
        coding = "\r\nTransfer-Encoding: chunked" if self._is_chunked else ""
        connection = "close" if self.closes else "keep-alive"
        more = f"\r\nServer: gunicorn\r\nDate: {date()}\r\nConnection: {connection}{coding}\r\n\r\n"
        self._client.begun = True
        return self._head + more.encode()


def problem(status: int, detail: str) -> tuple[bytes, bytes]:
    """The head and the content of the response to a request that never reached the application (RFC 9457)."""
    title = HTTPStatus(status).phrase
    members = {"type": "about:blank", "code": code_of(status, title), "title": title, "status": status}
    body = json.dumps({**members, "message": detail, "detail": detail})
    head = f"HTTP/1.1 {status} {title}\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
    head += f"Date: {date()}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode(), body.encode()


def date() -> str:
    """The present time as in the field Date (RFC 9110 §6.6.1), made once a second."""
    global _date
    now = int(time())
    if _date[0] != now:
        _date = now, formatdate(now, usegmt=True)
    return _date[1]
