"""The requests in the bytes of a connection (RFC 9112).

llhttp reads the fields of a head and the chunks of content. It is given one head or one message of chunks at a time, so
that where each begins and ends is certain. Here are the rules that it lacks: of the request line, of Host, of codings,
of extensions of chunks, and the limits of sizes.
"""

import io
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

import gevent
from httptools import HttpParserError, HttpParserInvalidMethodError, HttpParserUpgrade, HttpRequestParser

from restkeeper.server.connection import Client, Refused

LINE = re.compile(rb'([A-Z][A-Z-]{2,19}) ([!"$-~]+) (HTTP/1\.[01])')
TARGET = re.compile(r"(?:(?i:https?)://([^/?]+)|(?=/))([^?]*)(?:\?(.*))?")  # authority, path, query (§3.2)
HOST = re.compile(r"[^/?#@,\s]*")  # the application checks the rest
END = b"\r\n\r\n"  # of a head
SINGLE = {"HTTP_HOST": "Host", "CONTENT_TYPE": "Content-Type"}  # two of them make a request ambiguous (RFC 9110 §5.3)
NO_TRAILERS = {b"host", b"content-length", b"transfer-encoding", b"trailer", b"authorization", b"te"}  # §6.5.1
RECEIVED = 8192  # bytes that are read at once
LONGEST_NAME = 64  # of a field whose variable is cached
MOST_DIGITS = 20  # of Content-Length
MOST_FRAMING = 64 * 1024  # bytes of chunks and trailers beyond those of the content
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"  # a head, with which llhttp reads chunks
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
QUOTED = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
SIZE = re.compile(rb"([0-9A-Fa-f]+)(?:;%b(?:=(?:%b|%b))?)*\r\n" % (TOKEN, TOKEN, QUOTED))  # of a chunk (§7.1)


class Request:
    """A request. `environ` are its variables of WSGI (PEP 3333), with those that are `common` to all of a connection.

    It `closes` the connection unless the response does, and `expects` to be told to send its content, of `length`
    bytes, or -1 if it is in chunks. llhttp calls `on_header` for each field, and then `on_headers_complete`.
    """

    content: io.BytesIO | io.BufferedReader
    unread: "Content | None" = None  # that has not arrived with the head
    has_fields = is_http11 = closes = expects = False
    length = 0

    def __init__(self, common: Mapping[str, Any]) -> None:
        self.environ = {**common}
        self._repeated = set[str]()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not (key := _variable(name) if len(name) <= LONGEST_NAME else _variable.__wrapped__(name)):
            return
        text = value.strip(b" \t").decode("latin-1")
        if key in self.environ:
            self._repeated.add(key)
            text = f"{self.environ[key]},{text}"
        self.environ[key] = text

    def on_headers_complete(self) -> None:
        self.has_fields = True

    def begin(self, line: bytes) -> None:
        """Add what the request line says, and check the whole. Raises Refused."""
        environ = self.environ
        method, uri, version, authority, path, query = _parts_of(line)
        environ["REQUEST_METHOD"], environ["RAW_URI"], environ["QUERY_STRING"] = method, uri, query or ""
        environ["PATH_INFO"] = unquote_to_bytes(path).decode("latin-1") if "%" in path else path
        environ["SERVER_PROTOCOL"], self.is_http11 = version, version == "HTTP/1.1"
        if wrong := SINGLE.keys() & self._repeated:
            raise Refused(400, f"there are two fields {SINGLE[min(wrong)]}")
        if self.is_http11 and "HTTP_HOST" not in environ:  # §3.2
            raise Refused(400, "there is no field Host")
        if authority:  # it overrides Host (§3.2.2)
            environ["HTTP_HOST"] = authority
        elif not HOST.fullmatch(host := environ.get("HTTP_HOST", "")):
            raise Refused(400, f"Host: {host}")
        options = _listed(environ.get("HTTP_CONNECTION", ""))
        self.closes = "close" in options or method == "CONNECT" or not (self.is_http11 or "keep-alive" in options)
        if (expected := environ.get("HTTP_EXPECT")) is not None:
            if _listed(expected) != {"100-continue"}:
                raise Refused(417, f"Expect: {expected}")
            self.expects = self.is_http11
        if len(length := environ.get("CONTENT_LENGTH", "0")) > MOST_DIGITS:
            raise Refused(400, "Content-Length has too many digits")
        self.length = int(length)
        if (coding := environ.get("HTTP_TRANSFER_ENCODING")) is not None:  # §6.1
            if coding.lower() != "chunked" or not self.is_http11:
                raise Refused(501 if self.is_http11 else 400, f"Transfer-Encoding: {coding}")
            self.length = -1

    def has_unread(self) -> bool:
        """Whether the application has left content unread: then the next request is not looked for."""
        if self.unread:
            return self.unread.left != 0
        return self.length > 0 and (self.content.closed or self.content.tell() < self.length)


def _listed(text: str) -> set[str]:
    """The elements of a field that is a list, in small letters."""
    return {each.strip() for each in text.lower().split(",")}


@lru_cache(maxsize=1024)
def _variable(name: bytes) -> str:
    """The variable of a field. "X_A" has none: it would be that of "X-A"."""
    key = name.decode().upper().replace("-", "_")
    return "" if b"_" in name else key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


def _parts_of(line: bytes) -> tuple[str, ...]:
    """The method, target and version of a request line, and the authority, path and query of the target (§3.2).

    Raises Refused.
    """
    if words := LINE.fullmatch(line):
        method, uri, version = map(bytes.decode, words.groups())
        if parts := TARGET.fullmatch(uri):
            return method, uri, version, *parts.groups()
        if method == "OPTIONS" and uri == "*":
            return method, uri, version, "", uri, ""
    raise Refused(400, f"not a request line: {line[:100].decode('latin-1')!r}")


def _feed(parser: HttpRequestParser, data: bytes, begin: int = 0) -> None:
    """Let llhttp read data from a position on. Raises Refused."""
    try:
        parser.feed_data(data[begin:])
    except HttpParserUpgrade:  # there is no other protocol: the request is served as any other
        pass
    except HttpParserInvalidMethodError as error:
        raise Refused(501 if re.match(rb"[A-Z-]{1,20}(?: |$)", data) else 400, str(error)) from None
    except HttpParserError as error:
        raise Refused(400, str(error)) from None


def read_request(client: Client, common: Mapping[str, Any]) -> Request | None:
    """The next request of a connection, or None if it ends before. Raises Refused, and OSError."""
    request = Request(common)
    if not _read_head(client, request):
        return None
    client.limit(client.worker.stall_timeout, client.worker.slowest)
    client.expects = request.expects
    if 0 <= request.length <= len(client.rest):
        request.content = io.BytesIO(client.rest[: request.length])
        client.rest = client.rest[request.length :]
    else:
        request.unread = Chunks(client) if request.length < 0 else Content(client, request.length)
        request.content = io.BufferedReader(request.unread)
    request.environ["wsgi.input"] = request.content
    return request


def _read_head(client: Client, request: Request) -> bool:
    """Read the head of a request; what follows it is in `client.rest`. False if the connection ends before."""
    data = client.rest
    client.begin_request()
    while data[:2] in (b"", b"\r"):
        if not (more := client.recv(RECEIVED)):
            return False
        data += more
    data = data.removeprefix(b"\r\n")  # an empty line can precede (§2.2)
    parser, known = HttpRequestParser(request), 0
    while (end := data.find(END, max(known - len(END), 0))) < 0:
        _check_sizes(client.worker, data)
        _feed(parser, data, known)
        if (stop := data.find(b"\n")) >= 0:
            _parts_of(data[:stop].removesuffix(b"\r"))
        known = len(data)
        data += client.recv(RECEIVED)
    head, client.rest = data[: end + len(END)], data[end + len(END) :]
    _check_sizes(client.worker, head.removesuffix(b"\r\n"))
    line = head[: head.index(b"\r\n")]
    try:
        _feed(parser, head, known)
    except Refused:
        if request.has_fields:  # llhttp refuses codings after them, and all with one status
            request.begin(line)
        raise
    if not request.has_fields:
        raise Refused(400, "the head does not end where it seems to end")
    request.begin(line)
    return True


def _check_sizes(worker: Any, head: bytes) -> None:
    """Refuse a head, or what has arrived of one, that is too large (RFC 6585 §5)."""
    cfg, (line, *fields) = worker.cfg, head.split(b"\r\n")
    if len(line) > cfg.limit_request_line:
        raise Refused(414, f"the request line is longer than {cfg.limit_request_line} bytes")
    longest = max(map(len, fields), default=0) + len(b"\r\n")
    if longest > cfg.limit_request_field_size or len(head) > worker.head_limit:
        raise Refused(431, f"a field is longer than {cfg.limit_request_field_size} bytes, or all are too long together")
    if len(fields) - 1 > cfg.limit_request_fields:  # the last field is not complete
        raise Refused(431, f"there are more than {cfg.limit_request_fields} fields")


class Content(io.RawIOBase):
    """The content of a request of which not all has arrived. It is received when it is read, until none is `left`."""

    def __init__(self, client: Client, length: int) -> None:
        self._client, self.left = client, length
        self._data = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._data and self.left:
            self._data = self._receive()
        size = min(len(buffer), len(self._data))
        buffer[:size], self._data = self._data[:size], self._data[size:]
        return size

    def _receive(self) -> bytes:
        """Some content, at least one byte."""
        client = self._client
        received = client.rest or client.recv(RECEIVED)
        data, client.rest = received[: self.left], received[self.left :]
        self.left -= len(data)
        return data


class Chunks(Content):
    """Content in chunks (RFC 9112 §7.1), with a limit of framing: one byte of content could cost kilobytes of it.

    llhttp is given the content of a chunk as it arrives, and all else line by line: the end of a message is that of a
    line. `left` is 1 until then.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client, 1)
        self._parts: list[bytes] = []
        self._trailers: list[bytes] = []
        self._due, self._spare, self._line = 0, MOST_FRAMING, b""  # bytes of the chunk, and of framing, to come
        self._has_size = self._has_ended = False
        self._parser = HttpRequestParser(self)
        self._parser.feed_data(CHUNKED)
        self._trailers.clear()

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_chunk_header(self) -> None:
        self._has_size = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._trailers.append(name.lower())

    def on_message_complete(self) -> None:
        self._has_ended = True

    def _receive(self) -> bytes:
        client, self._parts = self._client, []
        while self.left and not self._parts:
            data, begin = client.rest or client.recv(RECEIVED), 0
            client.rest = b""
            while self.left and begin < len(data):
                end = begin + self._due if self._due else data.find(b"\n", begin) + 1 or len(data)
                self._read(data[begin:end])
                begin = end
            client.rest = data[begin:]
            gevent.sleep(0)  # other connections have their turn
        return b"".join(self._parts)

    def _read(self, piece: bytes) -> None:
        """Read some content, or a line of framing or a part of one. Raises Refused."""
        cfg = self._client.worker.cfg
        _feed(self._parser, piece)
        if self._due:
            self._due -= len(piece)
            self._spare += len(piece)
            return
        self._line += piece
        self._spare -= len(piece)
        if len(self._line) > cfg.limit_request_field_size or self._spare < 0:
            raise Refused(400, "there is more framing than content")
        if self._has_size:
            if not (size := SIZE.fullmatch(self._line)):
                raise Refused(400, "an extension of a chunk is not valid")
            self._due, self._has_size = int(size[1], 16), False
        if wrong := NO_TRAILERS.intersection(self._trailers):
            raise Refused(400, f"{min(wrong).decode()} cannot be a trailer")
        if len(self._trailers) > cfg.limit_request_fields:
            raise Refused(431, f"there are more than {cfg.limit_request_fields} trailers")
        if piece.endswith(b"\n"):
            self._line = b""
        if self._has_ended:
            self.left = 0
            del self._parser  # which holds this object
