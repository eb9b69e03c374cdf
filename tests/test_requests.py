"""Requests as bytes: what is read of them, how they are refused, and that the next request begins where it begins."""

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import gevent.socket
import pytest

from restkeeper.server import request
from restkeeper.server.connection import Client, Refused
from tests.test_connection import parts_of_a_worker
from tests.test_worker import REFUSED, SMUGGLED, chunked, get, post

NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
HOST = b"Host: a\r\n"

ACCEPTED = {  # the bytes, the method, the target and the content
    "get with content": (get(HOST + b"Content-Length: 2\r\n") + b"ab", "GET", "/", b"ab"),
    "content that looks like a request": (post(b"Content-Length: 35", SMUGGLED), "POST", "/", SMUGGLED),
    "content of line ends": (post(b"Content-Length: 4", b"\r\n\r\n"), "POST", "/", b"\r\n\r\n"),
    "length with zeros": (post(b"Content-Length: 0002", b"ab"), "POST", "/", b"ab"),
    "no such length": (post(b"Content_Length: 5\r\nContent-Length: 2", b"ab"), "POST", "/", b"ab"),
    "no such coding": (post(b"Transfer_Encoding: chunked\r\nContent-Length: 2", b"ab"), "POST", "/", b"ab"),
    "sizes of chunks": (
        chunked(b"0000000000000002\r\nab\r\nA\r\n0123456789\r\n000\r\n\r\n"),
        "POST",
        "/",
        b"ab0123456789",
    ),
    "chunk of line ends": (chunked(b"4\r\n\r\n\r\n\r\n0\r\n\r\n"), "POST", "/", b"\r\n\r\n"),
    "chunk that looks like the last one": (chunked(b"5\r\n0\r\n\r\n\r\n0\r\n\r\n"), "POST", "/", b"0\r\n\r\n"),
    "extensions": (chunked(b'1;a;b=c;d="\\";\xe9"\r\nx\r\n0;e\r\n\r\n'), "POST", "/", b"x"),
    "trailers": (chunked(b"0\r\nX: a\r\nHosts: b\r\nX:\r\n\r\n"), "POST", "/", b""),
    "coding in capitals": (post(b"TRANSFER-ENCODING: Chunked", b"0\r\n\r\n"), "POST", "/", b""),
    "http 1.0": (get(b"", b"GET / HTTP/1.0"), "GET", "/", b""),
    "upgrade": (get(HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"), "GET", "/", b""),
    "upgrade to HTTP/2": (get(HOST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"), "GET", "/", b""),
    "any text": (get(HOST + b'X: \t!"#~\x80\xff \t\r\nY:\r\n'), "GET", "/", b""),
}


@pytest.fixture(params=[request.RECEIVED, 1], ids=["at once", "byte by byte"])
def received(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many bytes are received at once."""
    monkeypatch.setattr("restkeeper.server.request.RECEIVED", request.param)


def read(data: bytes) -> list[Any]:
    """What is read of a connection: method, target and content of each request, and the status of a refusal."""
    ours, theirs = gevent.socket.socketpair()
    client, found = Client(parts_of_a_worker(), ours), list[Any]()
    theirs.sendall(data)
    theirs.shutdown(gevent.socket.SHUT_WR)
    try:
        while request_read := request.read_request(client, {}):
            environ = request_read.environ
            content = environ["wsgi.input"].read()
            found.append((environ["REQUEST_METHOD"], environ["RAW_URI"], content))
    except Refused as error:
        found.append(error.status)
    finally:
        client.close()
        theirs.close()
    return found


@pytest.mark.usefixtures("received")
def test_accepted() -> None:
    """Each is read as a whole, and so is what follows it; what has been cut off is awaited."""
    for name, (data, *expected) in ACCEPTED.items():
        assert read(data + NEXT) == [tuple(expected), ("GET", "/next", b"")], name
        assert read(data[:-1]) == [408], name


@pytest.mark.usefixtures("received")
def test_refused() -> None:
    """None is read, nor what follows it."""
    for name, (status, data) in REFUSED.items():
        if request.RECEIVED > 1 or len(data) < 2000:
            assert read(data + SMUGGLED) == [status], name


AT_ONCE = {  # the beginning of a request that is refused although more could follow
    "line feed": b"GET /\n",
    "line feed in a field": get(HOST + b"X: a\nY: b")[:-2],
    "line feed at the end": b"GET / HTTP/1.1\r\nHost: a\n\n",
    "fold": b"GET / HTTP/1.1\r\nHost: a\r\n b",
    "two lengths": post(b"Content-Length: 1\r\nContent-Length: 1\r\n")[:-2],
    "length and coding": post(b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n")[:-2],
    "coding and length": post(b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n")[:-2],
    "second request": get() + b"GET /\n",
    "size": chunked(b"x"),
    "endless size": chunked(b"0" * 17),
    "size of 4 GiB": chunked(b"100000000"),
    "size of 64 bits": chunked(b"f" * 9),
    "size with line feed": chunked(b"1\n"),
    "size with carriage return": chunked(b"1\ra"),
    "extension": chunked(b"1;a\0"),
    "chunk that is too long": chunked(b"1\r\nab"),
    "chunk with line feed": chunked(b"1\r\na\n"),
    "trailer": chunked(b"0\r\nX y"),
    "trailer with carriage return": chunked(b"0\r\nX: a\rb"),
    "forbidden trailer": chunked(b"0\r\nTE:"),
}


@pytest.mark.usefixtures("received")
def test_refused_at_once() -> None:
    for name, data in AT_ONCE.items():
        assert read(data)[-1] == 400, name


# The grammar of RFC 9110 and 9112 for whole requests, with no more than what the mutations can make of them.
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
TEXT = rb"[\t -~\x80-\xff]*"
AUTHORITY = rb"[][A-Za-z0-9_.~!$&'()*+,;=:%@-]+"
TARGET = rb'/[!"$-~]*|http://%b(?:[/?][!"$-~]*)?' % AUTHORITY
HEAD = re.compile(rb"(?:\r\n)?(GET|POST) (%b) HTTP/1\.([01])\r\n((?:%b:%b\r\n)*)\r\n" % (TARGET, TOKEN, TEXT))
QUOTED = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
CHUNK = re.compile(rb"(0{0,8}[0-9A-Fa-f]{1,8})(?:;%b(?:=(?:%b|%b))?)*\r\n" % (TOKEN, TOKEN, QUOTED))
TRAILERS = re.compile(rb"(?:%b:%b\r\n)*\r\n" % (TOKEN, TEXT))
NO_TRAILERS = {b"host", b"content-length", b"transfer-encoding", b"trailer", b"authorization", b"te"}


def requests_of(data: bytes) -> Iterator[tuple[str, str, bytes]]:
    """The requests in these bytes, up to one that is not valid or not complete."""
    while head := HEAD.match(data):
        method, target, minor, lines = head.groups()
        fields: dict[bytes, list[bytes]] = {}
        for line in lines.splitlines():
            name, value = line.split(b":", 1)
            fields.setdefault(name.lower(), []).append(value.strip(b" \t"))
        hosts, lengths = fields.get(b"host", []), fields.get(b"content-length", [])
        codings, types = fields.get(b"transfer-encoding", []), fields.get(b"content-type", [])
        is_clear = len(hosts) <= 1 and len(types) <= 1 and len(lengths) + len(codings) <= 1
        has_host = bool(hosts) or minor == b"0"
        is_valid = all(re.fullmatch(rb"[^/?#@,\s]*", host) or target[:1] != b"/" for host in hosts)
        if not (is_clear and has_host and is_valid) or (codings and minor == b"0"):
            return
        if codings and codings[0].lower() != b"chunked":
            return
        if any(not re.fullmatch(rb"[0-9]{1,20}", length) for length in lengths):
            return
        data = data[head.end() :]
        content = data[: int(lengths[0])] if lengths else b""
        if lengths and len(content) < int(lengths[0]):
            return
        data = data[len(content) :]
        while codings:
            if not (chunk := CHUNK.match(data)):
                return
            data, size = data[chunk.end() :], int(chunk[1], 16)
            if not size:
                break
            if data[size : size + 2] != b"\r\n":
                return
            content, data = content + data[:size], data[size + 2 :]
        if codings:
            trailers = TRAILERS.match(data)
            if not trailers or NO_TRAILERS & {line.split(b":")[0].lower() for line in trailers[0].splitlines()}:
                return
            data = data[trailers.end() :]
        yield method.decode(), target.decode(), content


SEED, MUTATIONS = 36, 800
BASES = [
    get(HOST + b"X-Y: a\r\n", b"GET /a?b=c HTTP/1.1") + post(b"Content-Length: 3", b"abc") + NEXT,
    post(b"Transfer-Encoding: chunked", b'3;a="b"\r\nabc\r\n1\r\nd\r\n0\r\nX: a\r\n\r\n') + NEXT,
    post(b"Content-Type: a/b\r\nContent-Length: 2", b"{}") + chunked(b"a\r\n0123456789\r\n0;x=y\r\n\r\n") + NEXT,
    get(b"Connection: keep-alive\r\n", b"GET / HTTP/1.0") + get(line=b"GET http://b:1/c HTTP/1.1") + NEXT,
]
PIECES = [bytes([each]) for each in b'\r\n\t\0\x0b\x7f\x80 :;,=#/@"\\_-019aFgX'] + [
    b"\r\n",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    HOST,
]


def mutated(random: Random) -> bytes:
    """Some requests with one to three changes."""
    data = random.choice(BASES)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(data))
        to = at + random.choice((0, 0, 1, 1, 2, random.randrange(40)))
        piece = random.choice((b"", random.choice(PIECES), random.choice(PIECES), data[at : at + random.randrange(40)]))
        data = data[:at] + piece + data[to:]
    return data


def test_what_is_read_is_what_the_grammar_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of changed requests no more is read, and no less, in whatever pieces they arrive."""
    random = Random(SEED)  # noqa: S311
    for n in range(MUTATIONS):
        data = mutated(random)
        expected = list(requests_of(data))
        monkeypatch.setattr(request, "RECEIVED", 1 if n % 20 == 0 else random.choice((7, 50, 8192)))
        found = read(data)
        assert [each for each in found if isinstance(each, tuple)] == expected, (n, data, found)
