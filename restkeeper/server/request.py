"""The requests in the bytes of a connection (RFC 9112).

llhttp reads the fields of a head, one head at a time, so that where each ends is certain. Here are the rules that it
lacks, of the request line, of Host, of codings and sizes, and the lines of chunks. What cannot become valid any more is
refused at once.
"""

import io
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

import gevent
import httptools

from restkeeper.server.connection import Client, Refused
from restkeeper.web.auth import caller_keys

LINE = re.compile(rb'(?:\r\n)?([A-Z][A-Z-]{2,19}) ([!"$-~]+) (HTTP/1\.[01])\r\n')  # an empty one can precede (§2.2)
METHOD = re.compile(rb"(?:\r\n)?[A-Z-]{1,20}(?: |$)")  # that may be one which llhttp does not know
TARGET = re.compile(r"(?:(?i:https?)://([^/?]+)|(?=/))([^?]*)(?:\?(.*))?")  # authority, path, query (§3.2)
HOST = re.compile(r"[^/?#@,\s]*")  # the application checks the rest
END = b"\r\n\r\n"  # of a head
SINGLE = {"HTTP_HOST": "Host", "CONTENT_TYPE": "Content-Type"}  # two of them make a request ambiguous (RFC 9110 §5.3)
RECEIVED = 8192  # bytes that are read at once
UNCOUNTED = 16 * 1024  # bytes of a body for which there is always room: see `Bodies`
MOST_DIGITS = 20  # of Content-Length
MOST_FRAMING = 64 * 1024  # bytes of chunks and trailers beyond those of the content

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
QUOTED = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
TEXT = rb"[\t -~\x80-\xff]*"
# The lines of chunks (§7.1), and what can become one of them. Some fields cannot be trailers (§6.5.1).
# A size has up to eight digits, and zeros before them: no body has 4 GiB.
SIZE = re.compile(rb"(0{0,8}[0-9A-Fa-f]{1,8})(?:;%b(?:=(?:%b|%b))?)*\r\n" % (TOKEN, TOKEN, QUOTED))
SIZE_BEGUN = re.compile(rb"(?:0{0,8}[0-9A-Fa-f]{1,8}(?:;%b)?\r?)?" % TEXT)
CHUNK_END, CHUNK_END_BEGUN = re.compile(rb"\r\n"), re.compile(rb"\r?")
NO_TRAILER = rb"(?!(?i:host|content-length|transfer-encoding|trailer|authorization|te):)"
TRAILER = re.compile(rb"(?:%b%b:%b)?\r\n" % (NO_TRAILER, TOKEN, TEXT))
TRAILER_BEGUN = re.compile(rb"(?:%b%b(?::%b)?)?\r?" % (NO_TRAILER, TOKEN, TEXT))


class Request:
    """A request. `environ` are its variables of WSGI (PEP 3333), with those that are `common` to all of a connection.

    It `closes` the connection unless the response does, and `expects` to be told to send its content, of `length`
    bytes, or -1 if it is in chunks. llhttp calls `on_header` for each field, and then `on_headers_complete`.
    """

    content: "Content"
    closes = is_http11 = expects = False
    length = 0

    def __init__(self, common: Mapping[str, Any]) -> None:
        self.environ = {**common}
        self._authority: str | None = None
        self._repeated = set[str]()

    def begin(self, head: bytes) -> None:
        """Add what the request line says (§3). Raises Refused."""
        method, uri, version = map(bytes.decode, _line_of(head))
        if not (parts := TARGET.fullmatch(uri)) and (method, uri) != ("OPTIONS", "*"):
            raise Refused(400, f"not a target: {uri[:100]}")
        self._authority, path, query = parts.groups() if parts else (None, uri, None)
        self.is_http11 = version == "HTTP/1.1"
        environ = self.environ
        environ["REQUEST_METHOD"], environ["RAW_URI"], environ["SERVER_PROTOCOL"] = method, uri, version
        environ["PATH_INFO"] = unquote_to_bytes(path).decode("latin-1") if "%" in path else path
        environ["QUERY_STRING"] = query or ""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a field."""
        if not (key := _variable(name)):
            return
        text = value.strip(b" \t").decode("latin-1")
        if key in self.environ:
            self._repeated.add(key)
            text = f"{self.environ[key]},{text}"
        self.environ[key] = text

    def on_headers_complete(self) -> None:
        """Check what llhttp does not. Raises Refused."""
        environ = self.environ
        if wrong := SINGLE.keys() & self._repeated:
            raise Refused(400, f"there are two fields {SINGLE[min(wrong)]}")
        if self.is_http11 and "HTTP_HOST" not in environ:  # §3.2
            raise Refused(400, "there is no field Host")
        if self._authority:  # it overrides Host (§3.2.2)
            environ["HTTP_HOST"] = self._authority
        elif not HOST.fullmatch(environ.get("HTTP_HOST", "")):
            raise Refused(400, "the field Host is not the name of a host")
        options = _listed(environ.get("HTTP_CONNECTION", ""))
        is_last = "close" in options or environ["REQUEST_METHOD"] == "CONNECT"
        self.closes = is_last or not (self.is_http11 or "keep-alive" in options)
        if (expected := environ.get("HTTP_EXPECT")) is not None:
            if _listed(expected) != {"100-continue"}:
                raise Refused(417, "the field Expect has another value than 100-continue")
            self.expects = self.is_http11
        if len(length := environ.get("CONTENT_LENGTH", "0")) > MOST_DIGITS:
            raise Refused(400, "Content-Length has too many digits")
        self.length = int(length)
        if (coding := environ.get("HTTP_TRANSFER_ENCODING")) is not None:  # §6.1
            if coding.lower() != "chunked" or not self.is_http11:
                raise Refused(501 if self.is_http11 else 400, "Transfer-Encoding can be chunked, of HTTP/1.1")
            self.length = -1


def _listed(text: str) -> set[str]:
    """The elements of a field that is a list, in small letters."""
    return {each.strip() for each in text.lower().split(",")}


@lru_cache(maxsize=256)  # of names that clients choose
def _variable(name: bytes) -> str:
    """The variable of a field. "X_A" has none: it would be that of "X-A"."""
    key = name.decode().upper().replace("-", "_")
    return "" if b"_" in name else key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


def _line_of(head: bytes) -> tuple[bytes, ...]:
    """The method, target and version of the request line. Raises Refused."""
    if not (found := LINE.match(head)):
        line = re.split(rb"[\r\n]", head.removeprefix(b"\r\n"), maxsplit=1)[0]  # what follows can be a secret
        raise Refused(400, f"not a request line: {line[:100].decode('latin-1')!r}")
    return found.groups()


def read_request(client: Client, common: Mapping[str, Any]) -> Request | None:
    """The next request of a connection, or None if it ends before. Raises Refused, and OSError."""
    request, data, known = Request(common), client.rest, 0
    parser = httptools.HttpRequestParser(request)
    client.begin_request()
    while (end := data.find(END)) < 0:
        if data:
            _check_sizes(client.worker, data)
            if b"\n" in data.removeprefix(b"\r\n"):
                _line_of(data)
            _feed(parser, data, known)
            known = len(data)
        if not (more := client.recv(RECEIVED)):
            return None
        data += more
    head, client.rest = data[: end + len(END)], data[end + len(END) :]
    _check_sizes(client.worker, head.removesuffix(b"\r\n"))
    request.begin(head)
    _feed(parser, head, known)
    client.limit(client.worker.stall_timeout, client.worker.slowest)
    client.expects = request.expects
    environ, length = request.environ, request.length
    request.content = Chunks(client, environ) if length < 0 else Content(client, environ, length)
    environ["wsgi.input"] = io.BufferedReader(request.content) if length else io.BytesIO()
    return request


def _check_sizes(worker: Any, head: bytes) -> None:
    """Refuse a head, or what has arrived of one, that is too large (RFC 6585 §5)."""
    cfg, (line, *fields) = worker.cfg, head.removeprefix(b"\r\n").split(b"\r\n")
    if len(line) > cfg.limit_request_line:
        raise Refused(414, f"the request line is longer than {cfg.limit_request_line} bytes")
    longest = max(map(len, fields), default=0) + len(b"\r\n")
    if longest > cfg.limit_request_field_size or len(head) > worker.head_limit:
        raise Refused(431, f"a field is longer than {cfg.limit_request_field_size} bytes, or all are too long together")
    if len(fields) - 1 > cfg.limit_request_fields:  # the last field is not complete
        raise Refused(431, f"there are more than {cfg.limit_request_fields} fields")


def _feed(parser: httptools.HttpRequestParser, head: bytes, begin: int) -> None:
    """Let llhttp read a head, or what has arrived of one, from a position on. Raises Refused."""
    try:
        parser.feed_data(head[begin:])
    except httptools.HttpParserUpgrade:  # there is no other protocol: the request is served as any other
        pass
    except httptools.HttpParserCallbackError as error:
        raise error.__context__ or error from None
    except httptools.HttpParserInvalidMethodError as error:
        raise Refused(501 if METHOD.match(head) else 400, str(error)) from None
    except httptools.HttpParserError as error:
        raise Refused(400, str(error)) from None


class Content(io.RawIOBase):
    """The content of a request, which is received when it is read; `left` are the bytes that are not.

    What has been read is held until the request has ended; see `Bodies`.
    """

    _size, _caller = 0, ""

    def __init__(self, client: Client, environ: dict[str, Any], left: int = -1) -> None:
        self._client, self._environ, self.left = client, environ, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        client, most = self._client, min(len(buffer), self.left)
        if most and not client.rest:
            self._receive()
        data = client.rest[:most]
        if (size := self._size + len(data)) > UNCOUNTED:  # of the caller, or of the address before that is known
            self._caller = self._caller or caller_keys(self._environ)[0]
            client.worker.bodies.hold(self._caller, self._held(), size)
        client.rest = client.rest[len(data) :]
        buffer[: len(data)] = data
        self.left -= len(data)
        self._size = size
        return len(data)

    def release(self) -> None:
        """Hold it no more: the request has ended."""
        if held := self._held():
            self._client.worker.bodies.hold(self._caller, held, 0)

    def _held(self) -> int:
        return self._size if self._size > UNCOUNTED else 0

    def _receive(self) -> None:
        self._client.rest += self._client.recv(RECEIVED)


class Chunks(Content):
    """Content in chunks (§7.1). `left` are the bytes of a chunk, -1 before its size is known, 0 at the end of all.

    Framing has a limit: one byte of content could cost kilobytes of it.
    """

    def __init__(self, client: Client, environ: dict[str, Any]) -> None:
        super().__init__(client, environ)
        self._spare = MOST_FRAMING

    def readinto(self, buffer: Any) -> int:
        if self.left < 0:
            self.left = int(self._read(SIZE, SIZE_BEGUN)[1], 16) or self._read_trailers()
        size = super().readinto(buffer)
        self._spare += size
        if size and not self.left:
            self.left = -1
            self._read(CHUNK_END, CHUNK_END_BEGUN)
        return size

    def _read_trailers(self) -> int:
        """Read the trailers, which are not used; 0 bytes are left then."""
        most = self._client.worker.cfg.limit_request_fields
        for _ in range(most + 1):
            if self._read(TRAILER, TRAILER_BEGUN)[0] == b"\r\n":
                return 0
        raise self._refused(431, f"there are more than {most} trailers")

    def _read(self, line: re.Pattern[bytes], begun: re.Pattern[bytes]) -> re.Match[bytes]:
        """Read a line, of which some may have `begun`."""
        client, most = self._client, self._client.worker.cfg.limit_request_field_size
        while not (end := client.rest.find(b"\n") + 1) and len(client.rest) < most and begun.fullmatch(client.rest):
            self._receive()
        if not (found := line.fullmatch(client.rest, 0, min(end, most))):
            raise self._refused(400, "the size, the end or a trailer of a chunk is not valid")
        self._spare -= end
        if self._spare < 0:
            raise self._refused(400, "there is more framing than content")
        client.rest = client.rest[end:]
        return found

    def _refused(self, status: int, detail: str) -> Refused:
        self.close()  # also for an application that catches this: what follows is no content
        return Refused(status, detail)

    def _receive(self) -> None:
        super()._receive()
        gevent.sleep(0)  # other connections have their turn
