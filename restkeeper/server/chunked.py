"""The content of a chunked request (RFC 9112, section 7.1), decoded strictly and in time linear in its bytes.

gunicorn's reader waits for the end of a line that is already invalid, and accepts any amount of framing: one byte of
content can cost kilobytes of chunk extensions. This reader refuses both immediately.
"""

import re
from math import inf
from typing import Any

import gevent
from gunicorn.http.body import CHUNK_EXT_RE
from gunicorn.http.errors import (
    ChunkMissingTerminator,
    InvalidChunkExtension,
    InvalidChunkSize,
    InvalidHeader,
    LimitRequestHeaders,
)

MOST_LINE = 4096  # bytes of a chunk's size with its extensions, or of a trailer field
MOST_FRAMING = 64 * 1024  # bytes of framing and trailers beyond those of the content

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*(;.*))?")
_SIZE_BEGUN = re.compile(rb"[0-9A-Fa-f]{1,16}(?:[ \t]*(?:;.*)?)\r?", re.S)


class ChunkedReader:
    """Reads the content for gunicorn's `Body`; `length` is the unread length, unknown (infinite) until the end.

    Raises gunicorn's errors if the framing is malformed or too long. After each read of the socket, other connections
    have their turn: one client's chunks occupy the process only for the time of one buffer.
    """

    def __init__(self, request: Any, unreader: Any) -> None:
        self._request, self._unreader = request, unreader
        self._buffer, self._at = b"", 0  # the received bytes, and how many of them are read
        self._left = 0  # bytes of the current chunk that are unread
        self._content = self._framing = 0
        self.length = inf

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end."""
        parts = []
        while size and self.length:
            if not self._left:
                self._begin_chunk()
                continue
            if self._at == len(self._buffer):
                self._receive(self._left)
            part = self._buffer[self._at : self._at + min(size, self._left)]
            self._at += len(part)
            self._left -= len(part)
            self._content += len(part)
            size -= len(part)
            parts.append(part)
            if not self._left:
                self._end_chunk()
        return b"".join(parts)

    def _begin_chunk(self) -> None:
        line = self._line(_SIZE_BEGUN)
        if not (size := _SIZE.fullmatch(line)):
            raise InvalidChunkSize(line)
        if size[2] and not CHUNK_EXT_RE.fullmatch(size[2]):
            raise InvalidChunkExtension("invalid chunk extension")
        self._left = int(size[1], 16)
        if not self._left:
            self._read_trailers()

    def _end_chunk(self) -> None:
        while not (end := self._buffer[self._at : self._at + 2]).startswith(b"\r\n"):
            if end not in (b"", b"\r"):
                raise ChunkMissingTerminator(end)
            self._receive()
        self._at += 2
        self._count(2)

    def _read_trailers(self) -> None:
        lines = []
        while line := self._line():
            lines.append(line)
            if len(lines) > self._request.limit_request_fields:
                raise LimitRequestHeaders("limit request trailers fields")
        if lines:
            self._request.trailers = self._request.parse_headers(b"\r\n".join(lines), from_trailer=True)
        self._unreader.unread(self._buffer[self._at :])
        self.length = 0

    def _line(self, begun: re.Pattern[bytes] | None = None) -> bytes:
        """The next line without its CRLF. Refuses an incomplete line if it is invalid or does not match `begun`."""
        while (end := self._buffer.find(b"\n", self._at)) < 0:
            rest = self._buffer[self._at :]
            if b"\r" in rest[:-1] or (begun and rest and not begun.fullmatch(rest)):
                raise InvalidChunkSize(rest[:32])
            if len(rest) > MOST_LINE:
                raise InvalidChunkSize(b"line over %d bytes" % MOST_LINE)
            self._receive()
        line = self._buffer[self._at : end]
        if not line.endswith(b"\r"):
            raise InvalidHeader("bare LF as line terminator")
        self._at = end + 1
        self._count(len(line) + 1)
        if b"\r" in line[:-1] or len(line) > MOST_LINE:
            raise InvalidChunkSize(line[:32])
        return line[:-1]

    def _count(self, framing: int) -> None:
        self._framing += framing
        if self._framing > self._content + MOST_FRAMING:
            raise InvalidChunkSize(b"more framing than content")

    def _receive(self, size: int | None = None) -> None:
        gevent.sleep(0)
        self._buffer = self._buffer[self._at :] + self._unreader.read(None, read_ahead=size)
        self._at = 0
