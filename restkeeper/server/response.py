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

OURS = {  # fields that the application cannot set, but for a date
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "trailers"),
    *("transfer-encoding", "upgrade", "server", "date"),
}
HEAD = re.compile(r"HTTP/1\.[01] [0-9]{3}[ -~\x80-\xff]*(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~\x80-\xff]*)*")
_date = (0, "")


class Response:
    """The response to a request. `closes` is whether the connection ends after it."""

    def __init__(self, request: Request, client: Any) -> None:
        self._request, self._client = request, client
        self._head = ""  # what start_response has given
        self._left: int | None = None  # bytes of the content to come; None if its length is not known
        self._is_chunked = self._is_dated = self.closes = False

    def start_response(
        self, status: str, headers: Sequence[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        """Keep the status and the fields until the first content is sent.

        Raises ValueError for what is not valid: a line break in a field could begin another one.
        """
        if exc_info and self._client.begun:
            raise exc_info[1].with_traceback(exc_info[2])
        if self._head and not exc_info:
            raise AssertionError("start_response was called twice")
        never = status[0] == "1" or status[:3] == "204"  # has content, nor a length (RFC 9110 §8.6)
        is_bare = never or status[:3] == "304" or self._request.environ["REQUEST_METHOD"] == "HEAD"
        self._left = 0 if is_bare else None
        lines = [f"HTTP/1.{int(self._request.is_http11)} {status}"]
        for name, value in headers:
            key = name.lower()
            if key in OURS or (never and key == "content-length"):
                if key != "date":
                    continue
                self._is_dated = True  # by a clock that a test moves
            if key == "content-length":
                self._left = 0 if is_bare else int(value)
            lines.append(f"{name}: {value}")
        head = "\r\n".join(lines)
        if head.count("\n") >= len(lines) or not HEAD.fullmatch(head):
            raise ValueError("the status or a field of the response is not valid")
        self._head = head
        return self.write

    def write(self, data: bytes) -> None:
        """Send some of the content, not more than there is to be; before the first of it, the head."""
        if not data:
            return
        if not self._client.begun:
            self._client.write(self._begin())
        if self._is_chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        elif self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        self._client.write(data)
        if self._left is None:  # more may come much later
            self._client.flush()

    def end(self) -> None:
        """Send what is left to send. The connection closes also if content is missing, or was not read."""
        if not self._client.begun:
            self._client.write(self._begin())
        if self._is_chunked:
            self._client.write(b"0\r\n\r\n")
        self._client.flush()
        self.closes |= bool(self._left or self._request.content.left)

    def _begin(self) -> bytes:
        """The head. It announces whether another request can follow."""
        if not self._head:
            raise AssertionError("the application has not called start_response")
        request, has_length = self._request, self._left is not None
        self._is_chunked = request.is_http11 and not has_length
        has_end = has_length or self._is_chunked
        self.closes = request.closes or not has_end or not self._client.worker.alive or request.content.left != 0
        connection = "close" if self.closes else "keep-alive"
        dated = "" if self._is_dated else f"Date: {date()}\r\n"
        coding = "Transfer-Encoding: chunked\r\n" if self._is_chunked else ""
        self._client.begun, self._client.expects = True, False
        head = f"{self._head}\r\nServer: gunicorn\r\n{dated}Connection: {connection}\r\n{coding}\r\n"
        return head.encode("latin-1")


def problem(status: int, detail: str) -> bytes:
    """The response to a request that never reached the application (RFC 9457)."""
    title = HTTPStatus(status).phrase
    members = {"type": "about:blank", "code": code_of(status, title), "title": title, "status": status}
    body = json.dumps({**members, "message": detail, "detail": detail})
    head = f"HTTP/1.1 {status} {title}\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
    head += f"Date: {date()}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def date() -> str:
    """The present time as in the field Date (RFC 9110 §6.6.1), made once a second."""
    global _date
    now = int(time())
    if _date[0] != now:
        _date = now, formatdate(now, usegmt=True)
    return _date[1]
