"""The worker from the point of view of clients: bytes over a socket to a real gunicorn with two processes."""

import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import gevent
import gevent.socket
import pytest
from gevent.pool import Pool

from restkeeper.server.worker import Worker
from tests.live import Gunicorn, HttpResponse
from tests.waiting import SECONDS, until

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CLOSE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
EXPECT = b"Expect: 100-continue"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


class Client:
    def __init__(self, port: int, buffer: int | None = None) -> None:
        self.sock = socket.socket()
        self.sock.settimeout(SECONDS)
        if buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.sock.connect(("127.0.0.1", port))
        self.file = self.sock.makefile("rb")

    def close(self) -> None:
        self.file.close()
        self.sock.close()

    def read_response(self, method: str = "GET") -> HttpResponse:
        status = int(self.file.readline().split(b" ")[1])
        headers = {}
        while (line := self.file.readline()) != b"\r\n":
            name, value = line.decode().split(": ")
            headers[name.lower()] = value.strip()
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self.file.readline(), 16):
                body += self.file.read(size + 2)[:-2]
            assert self.file.readline() == b"\r\n"
        elif method != "HEAD" and status not in (204, 304):
            body = self.file.read(int(headers["content-length"]) if "content-length" in headers else -1)
        return HttpResponse(status, headers, body)

    def send(self, request: bytes) -> HttpResponse:
        self.sock.sendall(request)
        return self.read_response(request.split(b" ", 1)[0].decode())

    def is_readable(self, seconds: float = 0.0) -> bool:
        """Whether there is a response, or the end, after so many seconds at most."""
        return bool(select.select([self.sock], [], [], seconds)[0])

    def ended(self) -> bool:
        return self.file.read() == b""


@contextmanager
def gunicorn(folder: Path, *options: str, worker: str = "Worker", workers: int = 2) -> Iterator[Gunicorn]:
    """The small application under a kind of worker, when all workers have started: before, they would miss signals."""
    options = ("-k", f"tests.worker_app.{worker}", *options)
    with Gunicorn(folder, *options, app="tests.worker_app:app", workers=workers) as server:
        until(lambda: len(server.worker_pids()) == workers)
        started = set()
        while started != set(server.worker_pids()):
            started.add(server.get("/").json()["pid"])
        yield server


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with gunicorn(tmp_path_factory.mktemp("patient"), "--keep-alive", "75") as server:
        yield server.port


@pytest.fixture
def client(port: int) -> Iterator[Client]:
    with closing(Client(port)) as client:
        yield client


@pytest.fixture(scope="module")
def hasty_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with gunicorn(tmp_path_factory.mktemp("hasty"), "--keep-alive", "2", worker="Hasty") as server:
        yield server.port


@pytest.fixture
def hasty(hasty_port: int) -> Iterator[Client]:
    with closing(Client(hasty_port)) as client:
        yield client


def post(fields: bytes, body: bytes = b"", path: bytes = b"/") -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n\r\n" + body


def chunked(body: bytes) -> bytes:
    return post(b"Transfer-Encoding: chunked", body)


def get(fields: bytes = b"Host: a\r\n", line: bytes = b"GET / HTTP/1.1") -> bytes:
    return line + b"\r\n" + fields + b"\r\n"


REFUSED = {
    # the framing of the content: RFC 9112 sections 6 and 7
    "cl.te": (400, post(b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n")),
    "te.cl": (400, post(b"Transfer-Encoding: chunked\r\nContent-Length: 3", b"1\r\nx\r\n0\r\n\r\n")),
    "te 1.0": (400, get(b"Host: a\r\nTransfer-Encoding: chunked\r\n", b"POST / HTTP/1.0")),
    "te unknown": (501, post(b"Transfer-Encoding: xchunked", b"0\r\n\r\n")),
    "te identity": (501, post(b"Transfer-Encoding: identity")),
    "te list": (501, post(b"Transfer-Encoding: gzip, chunked", b"0\r\n\r\n")),
    "expect other": (417, post(b"Expect: x")),
    "expect empty": (417, post(b"Expect:")),
    "te twice": (400, post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"0\r\n\r\n")),
    "te empty": (400, post(b"Transfer-Encoding:", b"0\r\n\r\n")),
    "te vertical tab": (400, post(b"Transfer-Encoding: \x0bchunked", b"0\r\n\r\n")),
    "cl differ": (400, post(b"Content-Length: 1\r\nContent-Length: 2", b"xx")),
    "cl same": (400, post(b"Content-Length: 1\r\nContent-Length: 1", b"x")),
    "cl list": (400, post(b"Content-Length: 1, 1", b"x")),
    "cl plus": (400, post(b"Content-Length: +1", b"x")),
    "cl hex": (400, post(b"Content-Length: 0x1", b"x")),
    "cl underscore": (400, post(b"Content-Length: 1_0", b"x" * 10)),
    "cl unicode": (400, post(b"Content-Length: \xb2", b"xx")),
    "cl empty": (400, post(b"Content-Length:")),
    "cl zeros": (400, post(b"Content-Length: " + b"0" * 5000 + b"5", b"12345")),
    "cl endless": (400, post(b"Content-Length: " + b"9" * 5000)),
    "chunk junk": (400, chunked(b"1x\r\na\r\n0\r\n\r\n")),
    "chunk 0x": (400, chunked(b"0x1\r\na\r\n0\r\n\r\n")),
    "chunk plus": (400, chunked(b"+1\r\na\r\n0\r\n\r\n")),
    "chunk space": (400, chunked(b"1 \r\na\r\n0\r\n\r\n")),
    "chunk empty": (400, chunked(b"\r\na\r\n0\r\n\r\n")),
    "chunk huge": (400, chunked(b"f" * 17)),
    "chunk huge zero": (400, chunked(b"0" * 17)),
    "chunk extension endless": (400, chunked(b"1;" + b"a" * 9000)),
    "chunk extension nameless": (400, chunked(b"1;=b\r\nx\r\n0\r\n\r\n")),
    "chunk extension twice": (400, chunked(b"1;;a\r\nx\r\n0\r\n\r\n")),
    "chunk extension no value": (400, chunked(b"1;a=\r\nx\r\n0\r\n\r\n")),
    "chunk extension junk": (400, chunked(b'1;a=b"c"\r\nx\r\n0\r\n\r\n')),
    "chunk bare lf": (400, chunked(b"1\na\n0\n\n")),
    "chunk extension lf": (400, chunked(b"1;x\na\r\n0\r\n\r\n")),
    "chunk extension cr": (400, chunked(b"1;x\ry\r\na\r\n0\r\n\r\n")),
    "chunk too long": (400, chunked(b"1\r\nab\r\n0\r\n\r\n")),
    "chunk no crlf": (400, chunked(b"1\r\na0\r\n\r\n")),
    "trailer fold": (400, chunked(b"0\r\nX: a\r\n b\r\n\r\n")),
    "trailer junk": (400, chunked(b"0\r\njunk\r\n\r\n")),
    "trailer end lf": (400, chunked(b"0\r\n\n")),
    "trailer long": (400, chunked(b"0\r\nX: " + b"a" * 70000)),
    "trailer host": (400, chunked(b"0\r\nHost: b\r\n\r\n")),
    "trailer endless": (431, chunked(b"0\r\n" + b"X: a\r\n" * 200)),
    # the fields: sections 2.2 and 5
    "fold": (400, get(b"Host: a\r\nX: a\r\n b\r\n")),
    "fold first": (400, get(b" X: a\r\nHost: a\r\n")),
    "space before colon": (400, get(b"Host: a\r\nContent-Length : 5\r\n")),
    "no name": (400, get(b"Host: a\r\n: a\r\n")),
    "no colon": (400, get(b"Host: a\r\nX\r\n")),
    "name not a token": (400, get(b"Host: a\r\nX(y): a\r\n")),
    "bare lf": (400, b"GET / HTTP/1.1\nHost: a\n\n"),
    "one bare lf": (400, get(b"Host: a\r\nX: a\nY: b\r\n")),
    "bare cr": (400, get(b"Host: a\r\nX: a\rY: b\r\n")),
    "nul": (400, get(b"Host: a\r\nX: a\0b\r\n")),
    "control": (400, get(b"Host: a\r\nX: a\x1fb\r\n")),
    "delete": (400, get(b"Host: a\r\nX: a\x7fb\r\n")),
    "two types": (400, post(b"Content-Type: a/b\r\nContent-Type: c/d")),
    "huge field": (431, get(b"Host: a\r\nX: " + b"a" * 9000 + b"\r\n")),
    "huge unended field": (431, get(b"Host: a\r\nX: " + b"a" * 40000)),
    "huge section": (431, get(b"Host: a\r\n" + (b"X: " + b"a" * 4000 + b"\r\n") * 40)),
    "many fields": (431, get(b"Host: a\r\n" + b"X: a\r\n" * 100)),
    # the request line: section 3
    "huge line": (414, get(line=b"GET /" + b"a" * 20000 + b" HTTP/1.1")),
    "http 0.9": (400, b"GET /\r\n"),
    "bare lf without version": (400, b"GET /\n"),
    "version 0.9": (400, get(line=b"GET / HTTP/0.9")),
    "version 1.2": (400, get(line=b"GET / HTTP/1.2")),
    "version 2": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "version long": (400, get(line=b"GET / HTTP/1.10")),
    "version lower": (400, get(line=b"GET / http/1.1")),
    "two spaces": (400, get(line=b"GET  / HTTP/1.1")),
    "tab": (400, get(line=b"GET\t/ HTTP/1.1")),
    "space in target": (400, get(line=b"GET /a b HTTP/1.1")),
    "space after": (400, get(line=b"GET / HTTP/1.1 ")),
    "space before": (400, get(line=b" GET / HTTP/1.1")),
    "method not a token": (400, get(line=b"G(T / HTTP/1.1")),
    "fragment": (400, get(line=b"GET /#a HTTP/1.1")),
    "raw octets": (400, get(line=b"GET /\xc3\xa9 HTTP/1.1")),
    "relative": (400, get(line=b"GET a HTTP/1.1")),
    "asterisk": (400, get(line=b"GET * HTTP/1.1")),
    "other scheme": (400, get(line=b"GET ftp://a/ HTTP/1.1")),
    "no authority": (400, get(line=b"GET http:/// HTTP/1.1")),
    "tunnel": (400, get(line=b"CONNECT a:443 HTTP/1.1")),
    "tls": (400, b"\x16\x03\x01\x02\x00\x01\r\n\r\n"),
    # Host: section 3.2
    "no host": (400, get(b"X: a\r\n")),
    "no fields": (400, get(b"")),
    "host with a path": (400, get(b"Host: a/b\r\n")),
    "host with a user": (400, get(b"Host: u@a\r\n")),
    "hosts in a list": (400, get(b"Host: a, b\r\n")),
    "two hosts": (400, get(b"Host: a\r\nHost: a\r\n")),
}


def test_refused(port: int) -> None:
    """Each malformed request gets a problem, and is the last one. For bytes one by one see test_requests.py."""
    wrong = []
    for name, (status, request) in REFUSED.items():
        with closing(Client(port)) as client:
            response = client.send(request + SMUGGLED)
            problem, media_type = response.json(), response.headers["content-type"]
            assert problem["title"] and problem["code"] and problem["message"] == problem["detail"]
            assert parsedate_to_datetime(response.headers["date"]).tzinfo
            found = (response.status, problem["status"], problem["type"], media_type, response.headers["connection"])
            if found != (status, status, "about:blank", "application/problem+json", "close") or not client.ended():
                wrong.append((name, found))
    assert wrong == []


def test_pipelining_keeps_the_order(client: Client) -> None:
    requests = [b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(50)]
    requests += [post(b"Content-Length: 2", b"ab", b"/fifty"), chunked(b"1\r\na\r\n0\r\n\r\n"), GET]
    client.sock.sendall(b"".join(requests))
    paths = [client.read_response().json()["PATH_INFO"] for _ in requests]
    assert paths == [f"/{number}" for number in range(50)] + ["/fifty", "/", "/"]


def test_keep_alive_until_connection_close(client: Client) -> None:
    for _ in range(3):
        assert client.send(GET).headers["connection"] == "keep-alive"
    assert client.send(CLOSE).headers["connection"] == "close"
    assert client.ended()


def test_http_1_0(client: Client) -> None:
    persistent = client.send(b"GET /stream HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
    assert (persistent.headers["connection"], persistent.body) == ("close", b"onetwo")
    with closing(Client(client.sock.getpeername()[1])) as client:
        persistent = client.send(b"GET /write HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")  # of known length
        assert persistent.headers["connection"] == "keep-alive"
        assert client.send(b"GET / HTTP/1.0\r\n\r\n").headers["connection"] == "close"
        assert client.ended()


def test_content(client: Client) -> None:
    for body, content in (
        (b"0\r\n\r\n", ""),
        (b"3\r\nabc\r\n00b\r\n0123456789a\r\n0\r\n\r\n", "abc0123456789a"),
        (b'1;a=b;c=";="\r\nx\r\n0;last\r\nX-Trailer: a\r\nY:\r\n\r\n', "x"),
        (b"fFfF\r\n" + b"y" * 65535 + b"\r\n0\r\n\r\n", "y" * 65535),
    ):
        response = client.send(chunked(body)).json()
        assert (response["body"], response["wsgi.input_terminated"]) == (content, True)
        assert "CONTENT_LENGTH" not in response
    size = 2_000_000
    assert len(client.send(post(b"Content-Length: %d" % size, b"z" * size)).json()["body"]) == size


def test_expect(client: Client) -> None:
    expect = b"Expect: 100-Continue\r\nContent-Length: 2"
    client.sock.sendall(post(expect))
    assert client.file.readline() + client.file.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert client.send(b"ok").json()["body"] == "ok"


def test_expect_gets_its_response_without_content(client: Client) -> None:
    """RFC 9110 section 10.1.1: content that is not read is not requested, so the connection is closed."""
    response = client.send(post(EXPECT + b"\r\nContent-Length: 2", path=b"/refuse"))
    assert (response.status, response.headers["connection"]) == (413, "close")
    assert client.ended()


def test_expect_where_nothing_has_to_be_sent(client: Client) -> None:
    """Content that arrived with the head, and none, need no 100 (Continue); the connection stays open."""
    for fields, content, body in (
        (b"Content-Length: 2", b"ok", "ok"),
        (b"Transfer-Encoding: chunked", b"2\r\nok\r\n0\r\n\r\n", "ok"),
        (b"Content-Length: 0", b"", ""),
    ):
        response = client.send(post(EXPECT + b"\r\n" + fields, content))
        assert (response.status, response.json()["body"], response.headers["connection"]) == (200, body, "keep-alive")


def test_unread_content(port: int) -> None:
    """The connection is closed after the response: where the next request begins is not looked for."""
    for fields, content, path, body in (
        (b"Content-Length: 1", b"x", b"/refuse", b""),
        (b"Content-Length: 60000", b"x" * 60_000, b"/refuse", b""),
        (b"Transfer-Encoding: chunked", b"5\r\n", b"/refuse", b""),
        (b"Content-Length: 20000", b"ab" + b"x" * 19998, b"/half", b"ab--"),
    ):
        with closing(Client(port)) as client:
            client.sock.sendall(post(fields, content, path) + (SMUGGLED if path == b"/half" else b""))
            response = client.read_response()
            assert (response.body, response.headers["connection"]) == (body, "close")
            assert client.ended()


def test_application_catches_the_failure(hasty_port: int) -> None:
    for framing, failure in ((b"Content-Length: 9", b"Incomplete"), (b"Transfer-Encoding: chunked", b"Refused")):
        with closing(Client(hasty_port)) as hasty:
            response = hasty.send(post(framing, b"1\r\nabc", b"/catch"))
            assert (response.status, response.body, response.headers["connection"]) == (422, failure, "close")
            assert hasty.ended()


def test_what_follows_refused_content_is_no_request(port: int) -> None:
    """Also where the application catches the failure, and the whole has arrived with the head or after it."""
    for content in (b"2\r\n{}\r\n0\r\nHost: b\r\n\r\n", b"1;a=\r\nx\r\n0\r\n\r\n"):
        whole = post(b"Transfer-Encoding: chunked", content, b"/catch")
        for first in (len(whole), len(whole) - len(content)):
            with closing(Client(port)) as client:
                client.sock.sendall(whole[:first])
                assert first == len(whole) or not client.is_readable(0.1)
                client.sock.sendall(whole[first:] + SMUGGLED)
                response = client.read_response()
                assert (response.status, response.body, response.headers["connection"]) == (422, b"Refused", "close")
                assert client.ended()


def test_target(client: Client) -> None:
    for target, path, host in (
        (b"/a%20b%2Fc?q=%20", "/a b/c", "a"),
        (b"http://b:81/p/q?q=%20", "/p/q", "b:81"),
        (b"HTTP://b?q=%20", "", "b"),
        (b"http://u@b/p?q=%20", "/p", "u@b"),
        (b"//b/p?q=%20", "//b/p", "a"),
    ):
        response = client.send(get(line=b"GET " + target + b" HTTP/1.1")).json()
        found = [response[name] for name in ("PATH_INFO", "QUERY_STRING", "HTTP_HOST", "RAW_URI")]
        assert found == [path, "q=%20", host, target.decode()]
    assert client.send(get(line=b"OPTIONS * HTTP/1.1")).json()["PATH_INFO"] == "*"


def test_environ(client: Client) -> None:
    fields = b"host: [::1]:80\r\nX-Y:a \r\nX_Y: b\r\nx-y:\t c\r\nCookie: d\r\nCookie: e\r\nContent_Length: 9\r\n"
    response = client.send(b"\r\n" + get(fields)).json()
    assert (response["HTTP_HOST"], response["HTTP_X_Y"], response["HTTP_COOKIE"]) == ("[::1]:80", "a,c", "d,e")
    assert response["REMOTE_ADDR"] == "127.0.0.1"
    assert not {"CONTENT_LENGTH", "HTTP_CONTENT_LENGTH", ""} & set(response)


def test_responses_without_content(client: Client) -> None:
    for status, length in ((b"204", None), (b"304", "4")):
        response = client.send(get(line=b"GET /bare?" + status + b" HTTP/1.1"))
        assert (response.headers.get("content-length"), "transfer-encoding" in response.headers) == (length, False)
    for path, length in ((b"/long", "3"), (b"/stream", None)):
        response = client.send(get(line=b"HEAD " + path + b" HTTP/1.1"))
        assert (response.status, response.headers.get("content-length")) == (200, length)
    assert client.send(GET).status == 200


def test_no_more_than_content_length_is_sent(client: Client) -> None:
    assert client.send(get(line=b"GET /stream HTTP/1.1")).body == b"onetwo"  # in chunks
    assert client.send(get(line=b"GET /long HTTP/1.1")).body == b"123"
    assert client.send(get(line=b"GET /write HTTP/1.1")).body == b"abcde"
    assert client.send(get(line=b"GET /short HTTP/1.1")).body == b"12345"
    assert client.ended()


def test_application_fails(port: int) -> None:
    for path in (b"/fail", b"/mute", b"/inject", b"/inject?stream", b"/inject?euro", b"/inject?caught"):
        with closing(Client(port)) as client:
            response = client.send(get(line=b"GET " + path + b" HTTP/1.1"))
            assert (response.status, response.json()["title"]) == (500, "Internal Server Error"), path
            assert "x-other" not in response.headers and client.ended()


def test_empty_line_between_requests(client: Client) -> None:
    """RFC 9112, section 2.2: the empty line comes with the next request or before it."""
    assert client.send(GET + b"\r\n").status == 200
    assert client.send(GET).status == 200
    assert client.send(b"\r\n" + GET).status == 200


def test_idle_connection_is_closed(hasty: Client) -> None:
    hasty.send(GET)
    assert hasty.ended()


def test_trickled_requests(hasty_port: int) -> None:
    """A head and content that arrive byte by byte are refused after a time."""
    for begun in (b"GET / HTTP/1.1\r\nX: ", post(b"Content-Length: 99999")):
        with closing(Client(hasty_port)) as hasty:
            hasty.sock.sendall(begun)
            while not hasty.is_readable(0.05):
                hasty.sock.sendall(b"a")
            assert hasty.read_response().status == 408
            assert hasty.ended()


def test_graceful_stop(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with gunicorn(tmp_path, "--keep-alive", "75", worker="Patient") as server, ExitStack() as stack:
        port = server.port
        idle = [stack.enter_context(closing(Client(port))) for _ in range(8)]
        assert {client.send(GET).status for client in idle} == {200}
        fresh, busy, uploads = [stack.enter_context(closing(Client(port))) for _ in range(3)]
        uploads.sock.sendall(post(EXPECT + b"\r\nContent-Length: 4"))
        assert uploads.file.readline() + uploads.file.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"
        uploads.sock.sendall(b"la")
        busy.sock.sendall(get(line=b"GET /wait?" + bytes(go) + b" HTTP/1.1"))
        until((tmp_path / "go.begun").exists)
        server.process.send_signal(signal.SIGTERM)
        assert all(client.ended() for client in [*idle, fresh])
        go.touch()
        uploads.sock.sendall(b"te")
        for client in (busy, uploads):
            response = client.read_response()
            assert (response.status, response.headers["connection"]) == (200, "close")
            assert client.ended()
        assert response.json()["body"] == "late"
        assert server.process.wait(SECONDS) == 0


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_a_stop_that_waits_for_nothing_is_no_warning(seconds: float) -> None:
    """Requests in progress that end with the worker are logged where it has waited for them."""
    worker, logged = object.__new__(Worker), list[str]()
    worker.cfg = SimpleNamespace(workers=1, graceful_timeout=seconds)
    worker.pid, worker.alive, worker.sockets, worker.pool = 1, False, [], Pool(1)
    worker.log, worker.notify = SimpleNamespace(warning=lambda text, _: logged.append(text)), lambda: None
    worker.pool.spawn(gevent.sleep, SECONDS)
    worker.run()
    assert not worker.pool and len(logged) == bool(seconds)


@pytest.mark.parametrize(("seconds", "served"), [(SECONDS, 3), (0, 0)])
def test_a_stop_accepts_the_connections_that_wait(seconds: float, served: int) -> None:
    """Their requests are on their way: a closed socket would reset them. A harness waits for nobody."""
    worker, accepted = object.__new__(Worker), list[Any]()
    worker.cfg = SimpleNamespace(workers=2, graceful_timeout=seconds)
    worker.alive, worker.pool, worker.handle = False, Pool(10), lambda *connection: accepted.append(connection)
    with gevent.socket.socket() as listener, ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        for _ in range(3):
            stack.enter_context(socket.create_connection(listener.getsockname(), SECONDS))
        worker.sockets = [listener]
        worker.run()
    assert len(accepted) == served


@pytest.mark.parametrize("request_bytes", [GET, post(b"Content-Length: 4", b"late")], ids=["GET", "POST"])
def test_a_stopping_process_answers_on_idle_connections(tmp_path: Path, request_bytes: bytes) -> None:
    """A request may be on its way when the process is told to stop: a proxy would not repeat a POST."""
    begun = tmp_path / "begun"
    with gunicorn(tmp_path, worker="Draining", workers=1) as server, ExitStack() as stack:
        fresh, waits, idle = [stack.enter_context(closing(Client(server.port))) for _ in range(3)]
        assert idle.send(GET).status == 200
        waits.sock.sendall(get(line=b"GET /stopping?" + bytes(begun) + b" HTTP/1.1"))
        until(begun.exists)
        server.process.send_signal(signal.SIGTERM)
        assert waits.read_response().headers["connection"] == "close"
        for client in (idle, fresh):
            response = client.send(request_bytes)
            assert (response.status, response.headers["connection"]) == (200, "close")
            assert client.ended()
        assert server.process.wait(SECONDS) == 0


def test_what_a_response_announces_holds_when_the_process_stops(tmp_path: Path) -> None:
    """A connection that a response left open gets one more response: a proxy may have sent the next request already."""
    begun = tmp_path / "begun"
    with gunicorn(tmp_path, worker="Draining", workers=1) as server, closing(Client(server.port)) as client:
        client.sock.sendall(get(line=b"GET /begun?" + bytes(begun) + b" HTTP/1.1"))
        until(begun.exists)
        server.process.send_signal(signal.SIGTERM)
        assert client.read_response().headers["connection"] == "keep-alive"
        assert client.send(post(b"Content-Length: 4", b"late")).headers["connection"] == "close"
        assert client.ended()


def bounds_when(port: int, condition: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """The state of the process when the condition is true; read on a connection that is one of the open ones."""
    found: dict[str, int] = {}

    def is_true() -> bool:
        with closing(Client(port)) as client:
            line = b"GET /bounds HTTP/1.1"
            found.update(client.send(get(b"Host: a\r\nConnection: close\r\n", line)).json())
        return condition(found)

    until(is_true)
    return found


def test_a_refusal_arrives_before_a_large_body(port: int) -> None:
    """A client that sends everything before it reads always gets its 413: the rest is read and discarded."""
    for _ in range(10):
        with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
            connection.request("POST", "/refuse", bytes(10 * 2**20))
            assert connection.getresponse().status == 413


WAITS = {
    "idle": (b"", GET[:1], GET[1:]),
    "head": (GET[:-2], b"X: y\r\n", b"\r\n"),
    "content": (post(b"Content-Length: 3", b"o"), b"o", b"k"),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_nearly_full_process_closes_the_connection_that_waits_longest(wait: str, tmp_path: Path) -> None:
    begun, more, rest = WAITS[wait]
    options = ("--keep-alive", "75", "--worker-connections", "20")  # it is nearly full with more than 18
    with gunicorn(tmp_path, *options, worker="Patient", workers=1) as server, ExitStack() as stack:
        port = server.port
        clients = []
        for n in range(17):
            clients.append(stack.enter_context(closing(Client(port))))
            clients[-1].sock.sendall(begun)
            bounds_when(port, lambda found, n=n: found["waiting"] == n + 1)  # type: ignore[misc]
        clients[0].sock.sendall(more)
        with closing(Client(port)) as fresh, closing(Client(port)) as another:
            assert fresh.send(GET).status == another.send(GET).status == 200
        assert clients[1].ended() if wait == "idle" else clients[1].read_response().status == 408
        clients[0].sock.sendall(rest)
        clients[2].sock.sendall(more + rest)
        assert clients[0].read_response().status == clients[2].read_response().status == 200


def test_the_slowest_reader_is_closed_for_others(tmp_path: Path) -> None:
    """Three responses with an unread megabyte each exceed the limit of the process: the first is closed."""
    done = [tmp_path / str(n) for n in range(3)]
    with gunicorn(tmp_path, worker="Patient", workers=1) as server, ExitStack() as stack:
        port = server.port
        for n, file in enumerate(done):
            client = stack.enter_context(closing(Client(port, buffer=4096)))
            client.sock.sendall(get(line=b"GET /large?" + bytes(file) + b" HTTP/1.1"))
            bounds_when(port, lambda found, n=n: found["reading"] == min(n + 1, 2))  # type: ignore[misc]
        until(done[0].exists)
        found = bounds_when(port, lambda found: found["reading"] == 2)
        assert 2**21 <= found["unsent"] < 2**21 + 2**12
        assert not done[1].exists() and not done[2].exists()


def test_a_busy_client_does_not_delay_others(tmp_path: Path) -> None:
    """While 20,000 requests of one connection wait, another connection gets its response in its turn."""
    with gunicorn(tmp_path, workers=1) as server, ExitStack() as stack:
        busy, other = [stack.enter_context(closing(Client(server.port))) for _ in range(2)]
        assert other.send(GET).status == 200
        busy.sock.sendall(GET * 20_000)
        assert other.send(get(line=b"GET /bounds HTTP/1.1")).json()["requests"] < 10_000


def test_requests_that_work_for_long_do_not_delay_others(tmp_path: Path) -> None:
    """Eight connections without a pause: half of the new ones wait for no more than two requests of each.

    gevent alone would let 50 greenlets work before it looks for new connections.
    """
    with gunicorn(tmp_path, worker="Patient", workers=1) as server, ExitStack() as stack:
        busy = [stack.enter_context(closing(Client(server.port))) for _ in range(8)]
        for each in busy:
            each.sock.sendall(get(line=b"GET /work HTTP/1.1") * 500)
        served = [0]
        for _ in range(12):
            with closing(Client(server.port)) as other:
                served.append(other.send(get(line=b"GET /bounds HTTP/1.1")).json()["requests"])
        assert median(after - before for before, after in pairwise(served)) <= 2 * (len(busy) + 1)


def test_max_requests(tmp_path: Path) -> None:
    """After that number of requests a process ends and another one replaces it; no request is lost."""
    with gunicorn(tmp_path, "--max-requests", "5", workers=1) as server:
        with closing(Client(server.port)) as client:
            responses = [client.send(GET) for _ in range(3)]  # after two of the start
            assert [each.headers["connection"] for each in responses] == ["keep-alive"] * 2 + ["close"]
            assert client.ended()
        until(lambda: server.get("/").json()["pid"] != responses[0].json()["pid"])  # before, it accepts connections


def test_at_the_limit(port: int) -> None:
    for most, request, status in (
        (8190, lambda n: get(line=b"GET /" + b"a" * (n - 14) + b" HTTP/1.1"), 414),
        (8190, lambda n: get(b"Host: a\r\nX: " + b"a" * (n - 5) + b"\r\n"), 431),
        (100, lambda n: get(b"Host: a\r\n" + b"X: a\r\n" * (n - 1)), 431),
    ):
        with closing(Client(port)) as client:
            assert client.send(request(most)).status == 200
            assert client.send(request(most + 1)).status == status
