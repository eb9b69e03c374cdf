"""The journal of a space: its last requests and their responses."""

import io
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from werkzeug.datastructures import EnvironHeaders
from werkzeug.wrappers import Response
from werkzeug.wsgi import get_content_length

from restkeeper.features.harness.faults import is_at, is_like

MOST_REQUESTS = 500
MOST_CONTENT = 16 * 1024  # bytes that are kept of a request's content, of its fields, and of a response's content
MOST_BYTES = 4 * 1024 * 1024  # of all that is kept in a space


class Kept(io.RawIOBase):
    """The content of a request, of which the beginning is kept as it is read."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.content = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(len(buffer))
        buffer[: len(data)] = data
        self.content += data[: MOST_CONTENT + 1 - len(self.content)]  # one more shows that it is cut
        return len(data)

    def keep_rest(self, environ: dict[str, Any]) -> None:
        """Keep the beginning also if the service has not read it, unless the client waits to be asked for it."""
        if "HTTP_EXPECT" not in environ:
            with suppress(OSError, ValueError):  # the client has left, or the server has closed what is no content
                self.read(max(0, min(get_content_length(environ) or 0, MOST_CONTENT + 1) - len(self.content)))


class Journal:
    """The last requests, at most MOST_REQUESTS and MOST_BYTES. Each is a JSON object."""

    def __init__(self) -> None:
        self._entries: deque[tuple[dict[str, Any], int]] = deque()
        self._number = self._bytes = 0

    def add(self, environ: dict[str, Any], reply: Response | None, **entry: Any) -> None:
        """Add a request, whose input is Kept, and its response, if there is one."""
        self._number += 1
        headers, body = dict(EnvironHeaders(environ)), environ["wsgi.input"].content
        response = reply.get_data() if reply else b""
        sizes = {"headers": sum(map(len, headers.values())), "body": len(body), "response": len(response)}
        cut = [name for name, size in sizes.items() if size > MOST_CONTENT]
        whole = {
            "number": self._number,
            "method": environ["REQUEST_METHOD"],
            "path": quote(environ["PATH_INFO"].encode("latin-1")),
            "query": environ.get("QUERY_STRING", ""),
            "headers": {} if "headers" in cut else headers,
            "body": body[:MOST_CONTENT].decode(errors="replace"),
            "status": reply and reply.status_code,
            "response_headers": dict(reply.headers) if reply else {},
            "response": response[:MOST_CONTENT].decode(errors="replace"),
            "cut": cut,
        }
        size = sum(len(str(each)) for each in whole.values())
        self._entries.append((whole | entry, size))
        self._bytes += size
        while len(self._entries) > MOST_REQUESTS or self._bytes > MOST_BYTES:
            self._bytes -= self._entries.popleft()[1]

    def find(self, *, method: str = "*", path: str = "*", unmatched: bool = False) -> Iterator[dict[str, Any]]:
        """The entries, the oldest first. The texts are patterns with `*`; `unmatched` ones had no route."""
        for entry, _ in list(self._entries):
            is_there = is_like(entry["method"], method.upper()) and is_at(unquote_to_bytes(entry["path"]), path)
            if is_there and (not unmatched or not entry["matched"]):
                yield entry
