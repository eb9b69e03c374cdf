"""The journal of a space: its last requests, each from its arrival on, and their responses."""

import io
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from werkzeug.datastructures import EnvironHeaders
from werkzeug.wrappers import Response
from werkzeug.wsgi import get_content_length

from restkeeper.features.harness.matching import is_at, is_like

MOST_REQUESTS = 500
MOST_HEADERS = 16 * 1024  # bytes of a request's fields
MOST_BYTES = 4 * 1024 * 1024  # of all that is kept in a space, or
MOST_CONTENTS = 4  # times the bytes that a content can have, if this is more
PIECE = 8192  # bytes that are received at once


class Content(io.BytesIO):
    """The content of a request: up to `most` bytes and one more, which shows that there are more.

    It is received at the request's arrival, unless the client waits to be asked for it; what that raised is raised
    again for the service when it reads as far.
    """

    def __init__(self, environ: dict[str, Any], most: int) -> None:
        super().__init__()
        length, has_end = get_content_length(environ), environ.get("wsgi.input_terminated")
        self._missing = min(most + 1, (most + 1 if has_end else 0) if length is None else length)
        self._source = environ["wsgi.input"]
        self._error: Exception | None = None

    def receive(self) -> None:
        """Receive the rest of the content, for which the client is asked."""
        if not self._missing:
            return
        try:
            while piece := self._source.read(min(PIECE, self._missing)):
                self.write(piece)
                self._missing -= len(piece)
        except Exception as error:  # by PEP 3333, a server can raise any exception
            self._error = error
        self.release()
        self.seek(0)

    def release(self) -> None:
        """Keep only the data of the request, which has ended."""
        self._source, self._missing = None, 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.receive()
        data = super().read(size)
        if self._error and len(data) != size:
            raise self._error
        return data


class Sent:
    """A request, and its response when it has ended: `ms` is None until then, `status` also if there was none."""

    def __init__(self, number: int, at: str, environ: dict[str, Any], most: int) -> None:
        self.number, self.at, self.content, self._most = number, at, Content(environ, most), most
        self._begun, self.size = time.perf_counter(), 0
        self.method, self.path = environ["REQUEST_METHOD"], environ["PATH_INFO"].encode("latin-1")
        self.query, self.headers = environ.get("QUERY_STRING", ""), dict(EnvironHeaders(environ))
        self.ms: float | None = None
        self.status: int | None = None
        self.fault: str | None = None
        self.matched: bool | None = None  # by a route or a stub
        self.response, self.response_headers = b"", dict[str, str]()

    def end(self, reply: Response | None, *, matched: bool) -> None:
        """Note its response, if there is one."""
        self.content.release()
        self.ms, self.matched = round((time.perf_counter() - self._begun) * 1000, 3), matched
        if reply:
            self.status, self.response = reply.status_code, reply.get_data()[: self._most + 1]
            self.response_headers = {name: ", ".join(reply.headers.getlist(name)) for name in reply.headers.keys()}
        fields = [*self.headers.items(), *self.response_headers.items()]
        texts = (text for field in fields for text in field)
        self.size = sum(map(len, (self.content.getvalue(), self.response, *texts)))

    @property
    def cut(self) -> list[str]:
        """The names of parts that are longer than in `document`."""
        sizes = {"body": len(self.content.getvalue()), "response": len(self.response)}
        long = ["headers"] * (sum(map(len, self.headers.values())) > MOST_HEADERS)
        return long + [name for name, size in sizes.items() if size > self._most]

    def document(self) -> dict[str, Any]:
        """A JSON object, see documents.RequestSchema."""
        names = ("number", "at", "ms", "method", "query", "status", "response_headers", "matched", "fault")
        body, response = (data[: self._most] for data in (self.content.getvalue(), self.response))
        return {name: getattr(self, name) for name in names} | {
            "path": quote(self.path),
            "headers": {} if "headers" in self.cut else self.headers,
            "body": body.decode(errors="replace"),
            "response": response.decode(errors="replace"),
            "cut": self.cut,
        }


class Journal:
    """The last requests in the order of their arrival, with contents of up to `most` bytes.

    There are at most MOST_REQUESTS. Requests that have ended have at most MOST_BYTES, or more if `most` is large.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._sent: deque[Sent] = deque()
        self._number = self._bytes = 0

    def begin(self, environ: dict[str, Any], at: str) -> Sent:
        """Add a request, and receive its content."""
        with self._lock:
            self._number += 1
            self._sent.append(sent := Sent(self._number, at, environ, self._most))
            self._forget()
        environ["wsgi.input"] = sent.content
        if "HTTP_EXPECT" not in environ:
            sent.content.receive()
        return sent

    def end(self, sent: Sent, reply: Response | None, *, matched: bool) -> None:
        """Note the response to a request, if there is one."""
        with self._lock:
            sent.end(reply, matched=matched)
            if sent.number > self._number - len(self._sent):  # else it is forgotten
                self._bytes += sent.size
                self._forget()

    def _forget(self) -> None:
        while len(self._sent) > MOST_REQUESTS or self._bytes > max(MOST_BYTES, MOST_CONTENTS * self._most):
            self._bytes -= self._sent.popleft().size

    def __iter__(self) -> Iterator[Sent]:
        """All requests, the oldest first."""
        return iter(list(self._sent))

    def find(self, *, method: str = "*", path: str = "*", unmatched: bool = False) -> list[Sent]:
        """The requests with this method and path, patterns with `*`, the oldest first; `unmatched`: without a route."""
        requests = [sent for sent in self if is_like(sent.method, method.upper()) and is_at(sent.path, path)]
        return [sent for sent in requests if not unmatched or sent.matched is False]
