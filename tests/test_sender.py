"""Messages to untrusted URLs go only to public addresses, end in time, and never raise.

These are also the tests of `restkeeper/web/client.py`, which sends them.
"""

import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from restkeeper.features.webhooks.sender import EXCERPT, MOST_BYTES, DeliveryResult, Sender
from tests.endpoint import OK, Endpoint, EndpointConnection, Script, replying, responding_with, self_signed, serving
from tests.live import ROOT
from tests.waiting import SECONDS

PUBLIC, OTHER_PUBLIC = "93.184.216.34", "2606:4700::1111"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
FAKE = b"HTTP/1.1 500 Fake\r\nContent-Length: 0\r\n\r\n" * (MOST_BYTES // 20)


@pytest.fixture
def sender() -> Iterator[Sender]:
    """A sender that may call this machine and has a long timeout."""
    with closing(Sender(allow_private=True, timeout=SECONDS)) as made:
        yield made


@pytest.fixture
def guarded() -> Iterator[Sender]:
    """A sender that may call public addresses only."""
    with closing(Sender(timeout=SECONDS)) as made:
        yield made


@contextmanager
def sending_in_time(timeout: float) -> Iterator[Sender]:
    """A sender with this time-out; asserts that the use of it takes no longer than SECONDS."""
    began = time.monotonic()
    with closing(Sender(allow_private=True, timeout=timeout)) as made:
        yield made
    assert time.monotonic() - began < SECONDS


class Net:
    """A resolver with the addresses of the test, and a network that routes public addresses to this machine."""

    def __init__(self) -> None:
        self.names: dict[str, list[list[str]]] = {}  # the result of each resolution of a name; the last one is repeated
        self.lookups: list[str] = []
        self.ports: dict[str, int] = {}
        self.connected: list[str] = []
        self.seconds: list[float] = []
        self._connect = socket.socket.connect

    def resolve(self, host: str, port: int, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        self.lookups.append(host)
        brought = self.names.get(host, [[]])
        found = brought.pop(0) if len(brought) > 1 else brought[0]
        families = [socket.AF_INET6 if ":" in each else socket.AF_INET for each in found]
        return [(family, 1, 6, "", (each, port)) for family, each in zip(families, found, strict=True)]

    def connect(self, sock: socket.socket, address: tuple[str, int]) -> None:
        self.connected.append(address[0])
        self.seconds.append(sock.gettimeout() or 0.0)
        if address[0] not in self.ports:
            raise ConnectionRefusedError
        self._connect(sock, ("127.0.0.1", self.ports[address[0]]))


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    made = Net()
    monkeypatch.setattr(socket, "getaddrinfo", made.resolve)
    monkeypatch.setattr(socket.socket, "connect", lambda sock, address: made.connect(sock, address))
    return made


def _reset(connection: EndpointConnection) -> None:
    """Reset a connection."""
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


# Requests


def test_a_request_has_the_given_headers_and_few_others(sender: Sender) -> None:
    """One POST with its body, the given headers, and Content-Type, Content-Length, Host and User-Agent."""
    with serving(OK) as endpoint:
        assert sender(endpoint.url, {"webhook-id": "1"}, b'{"a": 1}') == DeliveryResult(200, "ok", None)
    head, _, body = endpoint.requests[0].partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    assert line == "POST /hook?x=1 HTTP/1.1" and body == b'{"a": 1}' and len(endpoint.requests) == 1
    assert sorted(fields) == [
        "Accept-Encoding: identity",
        "Content-Length: 8",
        "Content-Type: application/json",
        f"Host: 127.0.0.1:{endpoint.port}",
        "User-Agent: Restkeeper",
        "webhook-id: 1",
    ]


def test_redirects_are_not_followed(sender: Sender) -> None:
    """The response's status is returned, and its Location is not called."""
    with serving(OK) as inside:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {inside.url}\r\nContent-Length: 0\r\n\r\n"
        with serving(responding_with(moved.encode())) as endpoint:
            assert sender(endpoint.url, {}, b"{}") == DeliveryResult(307, "", None)
    assert inside.connected == 0 and len(endpoint.requests) == 1


# Responses


EXCERPTS = {
    b"a" * 5000: "a" * EXCERPT,
    b"\xff\xfe ok \xc3\xa9": "�� ok é",
    b"a\0b\x1b[2Jc\x7f\x85d": "a�b�[2Jc��d",
    "a\u202eb\u2028c".encode(): "a�b�c",
    b"one\r\ntwo\n\tthree": "one\ntwo\n\tthree",
}


def test_an_excerpt_is_short_and_harmless(sender: Sender) -> None:
    """It has at most 1024 bytes, and no control characters that affect a terminal or a page."""
    with serving(replying(*(HEAD % len(content) + content for content in EXCERPTS))) as endpoint:
        assert [sender(endpoint.url, {}, b"{}").excerpt for _ in EXCERPTS] == list(EXCERPTS.values())


RETRY_AFTER = {
    "120": 120.0,
    "0": 0.0,
    "  7 ": 7.0,
    "Sun, 06 Nov 1994 08:49:37 GMT": 0.0,
    **dict.fromkeys(("-1", "1.5", "soon", "", "9" * 5000, "٣", "Sun, 99 Nov 1994 08:49:37 GMT")),
    **dict.fromkeys(("Sun, 06 Nov 1994 08:49:37 +99999999999999", "Sun, 06 Nov 999999 08:49:37 GMT")),
}


def test_retry_after_is_seconds_or_a_date(sender: Sender) -> None:
    """Seconds are returned unchanged, a past date as 0, and any other value as None."""
    head = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: %s\r\n\r\n"
    with serving(replying(*((head % field).encode() for field in RETRY_AFTER))) as endpoint:
        found = {field: sender(endpoint.url, {}, b"{}") for field in RETRY_AFTER}
    assert found == {field: DeliveryResult(503, "", seconds) for field, seconds in RETRY_AFTER.items()}


def test_a_retry_after_date_is_converted_to_seconds(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the three date forms (RFC 9110, section 5.6.7) gives the seconds until then, in any time zone."""
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    then, forms = time.gmtime(time.time() + 5000), ("%a, %d %b %Y %T GMT", "%A, %d-%b-%y %T GMT", "%a %b %d %T %Y")
    head = "HTTP/1.1 429 Slow\r\nContent-Length: 0\r\nRetry-After: %s\r\n\r\n"
    with serving(replying(*((head % time.strftime(form, then)).encode() for form in forms))) as endpoint:
        assert [sender(endpoint.url, {}, b"{}").retry_after for _ in forms] == pytest.approx([5000] * 3, abs=60)
    monkeypatch.undo()
    time.tzset()


def test_interim_responses_are_skipped(sender: Sender) -> None:
    interim = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
    )
    with serving(responding_with(interim + HEAD % 2 + b"ok")) as endpoint:
        assert [sender(endpoint.url, {}, b"{}") for _ in range(2)] == [DeliveryResult(200, "ok", None)] * 2
    assert endpoint.connected == 1


def test_a_response_before_the_end_of_the_request_is_used(sender: Sender) -> None:
    """An endpoint may refuse a long body and close the connection before it has read all of it."""

    def script(connection: EndpointConnection) -> None:
        connection.sock.recv(1)
        connection.send(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    with serving(script) as endpoint:
        assert sender(endpoint.url, {}, b" " * 30_000_000).status == 413


# Connections


@pytest.mark.parametrize("reset", [False, True])
def test_a_request_is_resent_if_a_reused_connection_breaks(sender: Sender, reset: bool) -> None:
    """If the endpoint closes the connection on the next request, that is sent once more on a new one."""

    def script(connection: EndpointConnection) -> None:
        connection.request()
        connection.send(HEAD % 0)
        connection.request()
        if reset and connection.number == 1:
            _reset(connection)

    with serving(script) as endpoint:
        assert [sender(endpoint.url, {}, b"{}").status for _ in range(2)] == [200, 200]
        assert endpoint.connected == 2 and len(endpoint.requests) >= 3


def test_unrequested_data_is_not_a_response(sender: Sender) -> None:
    """Data that an endpoint sends on an idle connection is not used as the response to the next request."""
    sent_event = threading.Event()

    def script(connection: EndpointConnection) -> None:
        connection.request()
        connection.send(HEAD % 0)
        go.wait(SECONDS)
        connection.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        sent_event.set()

    go = threading.Event()
    with serving(script) as endpoint:
        assert sender(endpoint.url, {}, b"{}").status == 200
        go.set()
        assert sent_event.wait(SECONDS)
        assert sender(endpoint.url, {}, b"{}").status == 200


def test_idle_connections_are_limited(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used connection is closed first; `close` closes all of them."""
    monkeypatch.setattr("restkeeper.features.webhooks.sender.MAX_IDLE", 2)
    with serving(OK) as one, serving(OK) as two, serving(OK) as three:
        for endpoint in (one, two, three, three, two, one):
            assert sender(endpoint.url, {}, b"{}").status == 200
        assert [one.connected, two.connected, three.connected] == [2, 1, 1]
        sender.close()
        assert sender(one.url, {}, b"{}").status == 200 and one.connected == 3


def test_a_connection_is_not_idle_for_long(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall may have forgotten it without a word: each request on one would wait in vain."""
    with serving(OK) as endpoint:
        for seconds, connected in ((30.0, 1), (30.0, 1), (0.0, 2)):
            monkeypatch.setattr("restkeeper.features.webhooks.sender.IDLE_SECONDS", seconds)
            assert (sender(endpoint.url, {}, b"{}").status, endpoint.connected) == (200, connected)


def test_a_new_connection_that_breaks_is_a_failure(sender: Sender) -> None:
    """The request is not sent again, because the endpoint may have received it."""
    with serving(replying(b"")) as endpoint:
        assert sender(endpoint.url, {}, b"{}") == DeliveryResult(None, "connection closed without a response", None)
        assert endpoint.connected == 1


@pytest.mark.parametrize("reset", [False, True])
def test_a_reused_connection_that_breaks_in_the_response_is_a_failure(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, reset: bool
) -> None:
    receive, has_begun = socket.socket.recv, threading.Event()

    def recv(sock: socket.socket, size: int) -> bytes:
        data = receive(sock, size)
        if data.endswith(b"HTTP/1.1 2"):
            has_begun.set()
        return data

    def script(connection: EndpointConnection) -> None:
        replying(HEAD % 0, b"HTTP/1.1 2")(connection)
        if reset:
            assert has_begun.wait(SECONDS)
            _reset(connection)

    monkeypatch.setattr(socket.socket, "recv", recv)

    with serving(script) as endpoint:
        assert [sender(endpoint.url, {}, b"{}").status for _ in range(2)] == [200, None]
        assert endpoint.connected == 1


# Limits


def _no_response(connection: EndpointConnection) -> None:
    connection.request()
    connection.endpoint.stopped.wait(SECONDS)


def _slow_head(connection: EndpointConnection) -> None:
    connection.request()
    connection.send_slowly(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000)


def _endless_100(connection: EndpointConnection) -> None:
    connection.request()
    while True:
        connection.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 10)
        if connection.endpoint.stopped.wait(0.01):
            return


def _not_reading(connection: EndpointConnection) -> None:
    connection.endpoint.stopped.wait(SECONDS)


@pytest.mark.parametrize("script", [_no_response, _slow_head, _endless_100, _not_reading])
def test_a_send_without_a_response_ends_in_time(script: Script) -> None:
    """One deadline limits the whole send, wherever an endpoint delays it."""
    with serving(script) as endpoint, sending_in_time(0.5) as sender:
        assert sender(endpoint.url, {}, b" " * 30_000_000) == DeliveryResult(None, "timed out after 0.5 s", None)
        assert endpoint.connected <= 1  # it may not even have accepted the connection


def test_a_slow_response_body_ends_in_time() -> None:
    """The status is returned with the content that has arrived until the deadline."""

    def script(connection: EndpointConnection) -> None:
        connection.request()
        connection.send(HEAD % 100000 + b"begin")
        connection.send_slowly(b"." * 100000)

    with serving(script) as endpoint, sending_in_time(3.0) as sender:
        response = sender(endpoint.url, {}, b"{}")
    assert response.status == 200 and response.excerpt.startswith("begin") and len(response.excerpt) < EXCERPT


def test_a_silent_reused_connection_ends_in_time(net: Net) -> None:
    """After the deadline the request is not sent again, and the name is not resolved again."""

    def script(connection: EndpointConnection) -> None:
        connection.request()
        connection.send(HEAD % 0)
        _not_reading(connection)

    with serving(script) as endpoint, sending_in_time(3.0) as sender:
        net.names["hook.example"], net.ports[PUBLIC] = [[PUBLIC]], endpoint.port
        bodies = (b"{}", b" " * 30_000_000)
        assert [sender("http://hook.example/", {}, body).status for body in bodies] == [200, None]
        assert endpoint.connected == 1 and net.lookups == ["hook.example"]


def _endless(what: bytes) -> Script:
    def script(connection: EndpointConnection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 ")
        while True:
            connection.send(what * 100)

    return script


def test_an_endless_response_head_is_refused(sender: Sender) -> None:
    """A limited number of bytes is read, however fast they arrive. So is anything that is no HTTP.

    Nothing is raised, and the bytes of the endpoint do not appear in the reason.
    """
    endless = (b"100 a\r\n\r\nHTTP/1.1 ", b"103 a\r\n\r\nHTTP/1.1 ", b"200 OK\r\na: b\r\n", b"x")
    long = b"HTTP/1.1 200 OK\r\n" + b"a" * MOST_BYTES
    invalid = (b"SSH-2.0-OpenSSH_9.2\r\n", b"\0" * 100, b"HTTP/1.1 abc\r\n\r\n", long)
    for script in (*map(_endless, endless), *map(replying, invalid)):
        with serving(script) as endpoint:
            assert sender(endpoint.url, {}, b"{}") == DeliveryResult(None, "not a valid HTTP response", None)


@pytest.mark.parametrize(
    "head", [b"\r\n", b"Content-Length: 99999999999\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n"]
)
def test_endless_content_is_not_read(sender: Sender, head: bytes) -> None:
    cut = threading.Event()

    def script(connection: EndpointConnection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\n" + head)
        try:
            while True:
                connection.send(b"x" * 10000)
        except OSError:
            cut.set()

    with serving(script) as endpoint:
        assert sender(endpoint.url, {}, b"{}") == DeliveryResult(200, "x" * EXCERPT, None)
        assert cut.wait(SECONDS)


# Failures


LAST = {
    "it says so": responding_with(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
    "its rest could be taken for the next one": responding_with(HEAD % len(FAKE) + FAKE),
    **{
        f"it breaks off: {chunk!r}": replying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
        for chunk in (b"zz\r\n", b"-5\r\n", b"5\r\nab", b"\r\n", b"2\r\nabcdef")
    },
}


def test_the_last_response_of_a_connection_keeps_its_status(sender: Sender) -> None:
    for why, script in LAST.items():
        with serving(script) as endpoint:
            assert [sender(endpoint.url, {}, b"{}").status for _ in range(2)] == [200, 200], why
            assert endpoint.connected == 2, why


def test_a_name_that_is_not_resolved_has_a_reason(guarded: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {socket.EAI_NONAME: "no such host", socket.EAI_AGAIN: "the name cannot be resolved now"}
    errors = iter(codes)

    def resolve(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(next(errors), "words of the system")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert [guarded("https://hook.example/", {}, b"{}").excerpt for _ in codes] == list(codes.values())


# The check of addresses

LITERALS = """
127.0.0.1 2130706433 0177.0.0.1 0x7f.0.0.1 0x7f000001 127.1 127.0.1 0 0.0.0.0 10.0.0.1 169.254.169.254 168.63.129.16
localhost LOCALHOST [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [64:ff9b::7f00:1] [fe80::1%251] [fe80::1%1]
"""
MALFORMED = r"""
１２７.0.0.1 127。0。0。1 ⓛⓞⓒⓐⓛⓗⓞⓢⓣ ①②⑦.⓪.⓪.① 127.0.0.1%2f %31%32%37.0.0.1 127.0.0.1%00 127.0.0.1\ x@127.0.0.1
x:y@127.0.0.1 @127.0.0.1 127.0.0.1. 127.0.0.1.. localhost. . .localhost .. [::1%25] [::1%
"""


def test_no_notation_of_an_address_avoids_the_check(guarded: Sender) -> None:
    """An address that is not public is refused in every notation, and a malformed host, without a connection."""
    malformed = [*MALFORMED.split(), "127.0.0.1\u200b", "a" * 64, "\ud800", ""]
    with serving(OK) as endpoint:
        send = {
            host: guarded(f"https://{host}:{endpoint.port}/", {}, b"{}") for host in [*LITERALS.split(), *malformed]
        }
        assert endpoint.connected == 0
    refused = re.compile(r"refused: \S+ is not a public address \(WEBHOOK_ALLOW_PRIVATE\)")
    assert not [host for host in LITERALS.split() if not refused.fullmatch(send[host].excerpt)]
    assert not [host for host, result in send.items() if result.status]


def test_an_invalid_url_is_a_failure(sender: Sender) -> None:
    """Nothing is raised. Where private addresses are allowed, only http and https are called, and no user name."""
    malformed = ("", "hook", "//hook", "https", "https://", "https:///x", "https://h:99999/", "https:h")
    others = ("ftp://127.0.0.1/", "gopher://127.0.0.1/", "file:///etc/passwd", "unix:/run/x")
    with serving(OK) as endpoint:
        for url in (*malformed, *others, f"http://ada:secret@127.0.0.1:{endpoint.port}/"):
            response = sender(url, {}, b"{}")
            assert response.status is None and response.excerpt.startswith("refused: "), url
        assert endpoint.connected == 0


def test_the_checked_address_is_the_one_that_is_called(guarded: Sender, net: Net) -> None:
    """A name that is public when checked and private later is resolved once; the private address is never called."""
    with serving(OK) as inside:
        net.names["evil.example"] = [[PUBLIC], ["127.0.0.1"]]
        net.ports["127.0.0.1"] = inside.port
        assert guarded(f"https://evil.example:{inside.port}/", {}, b"{}").excerpt == "connection refused"
        assert net.lookups == ["evil.example"] and net.connected == [PUBLIC]
        second = guarded(f"https://evil.example:{inside.port}/", {}, b"{}")
        assert second.excerpt == "refused: 127.0.0.1 is not a public address (WEBHOOK_ALLOW_PRIVATE)"
        assert net.lookups == ["evil.example"] * 2 and net.connected == [PUBLIC]
        assert inside.connected == 0


def test_of_several_addresses_only_the_public_ones_are_called(guarded: Sender, net: Net) -> None:
    """A private address among them is skipped, and the others are tried in order."""
    net.names["mixed.example"] = [["10.0.0.1", PUBLIC, "::1", OTHER_PUBLIC, "::ffff:127.0.0.1"]]
    assert guarded("https://mixed.example/", {}, b"{}").excerpt == "connection refused"
    assert net.connected == [PUBLIC, OTHER_PUBLIC]


def test_an_unreachable_address_leaves_time_for_the_others(guarded: Sender, net: Net) -> None:
    net.names["many.example"] = [[PUBLIC, OTHER_PUBLIC, "8.8.8.8"]]
    guarded("https://many.example/", {}, b"{}")
    first, second, third = net.seconds
    assert first <= SECONDS / 3 and first < second <= SECONDS / 2 and second < third <= SECONDS


def test_only_https_is_called(guarded: Sender, net: Net) -> None:
    refusal = DeliveryResult(None, "refused: only https is allowed (WEBHOOK_ALLOW_PRIVATE)", None)
    for url in ("http://hook.example/", "HTTP://hook.example/", "ftp://hook.example/", "file:///etc/x"):
        assert guarded(url, {}, b"{}") == refusal, url
    assert net.lookups == []


# TLS


@pytest.fixture
def serve_tls(tmp_path: Path, net: Net, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Serves an endpoint with TLS at https://hook.example, with a certificate for a name, trusted or not."""

    def host(script: Script, name: str = "hook.example", trusted: bool = True) -> Any:
        pem = self_signed(tmp_path, name)
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        return serving(script, context)

    net.names["hook.example"] = [[PUBLIC]]
    return host


def _to(
    endpoint: Endpoint, net: Net, timeout: float = SECONDS, body: bytes = b"{}", times: int = 1
) -> list[DeliveryResult]:
    net.ports[PUBLIC] = endpoint.port
    began = time.monotonic()
    with closing(Sender(timeout=timeout)) as sender:
        found = [sender("https://hook.example/", {}, body) for _ in range(times)]
    assert time.monotonic() - began < SECONDS
    return found


def test_a_trusted_endpoint_is_called_over_tls(serve_tls: Callable[..., Any], net: Net) -> None:
    """The certificate fits the name, the address is public, the connection is reused, the name is resolved once."""
    with serve_tls(OK) as endpoint:
        assert _to(endpoint, net, times=3) == [DeliveryResult(200, "ok", None)] * 3
        assert net.lookups == ["hook.example"] and net.connected == [PUBLIC]
    assert b"\r\nHost: hook.example\r\n" in endpoint.requests[0]


@pytest.mark.parametrize(
    ("name", "trusted", "reason"), [("hook.example", False, "self"), ("other.example", True, "Hostname mismatch")]
)
def test_a_certificate_is_verified(
    serve_tls: Callable[..., Any], net: Net, name: str, trusted: bool, reason: str
) -> None:
    """Nothing is sent to an endpoint with a self-signed certificate, or one for another name."""
    with serve_tls(OK, name=name, trusted=trusted) as endpoint:
        [response] = _to(endpoint, net)
    assert response.status is None and response.excerpt.startswith(f"certificate verify failed: {reason}")
    assert endpoint.requests == []


def test_an_endpoint_without_tls_is_a_tls_error(net: Net) -> None:
    net.names["hook.example"] = [[PUBLIC]]

    def script(connection: EndpointConnection) -> None:
        connection.send(HEAD % 0)
        connection.sock.recv(100)

    with serving(script) as endpoint:
        [response] = _to(endpoint, net)
    assert response.status is None and response.excerpt.startswith("TLS failed: ")


def test_a_slow_handshake_ends_in_time(net: Net) -> None:
    net.names["hook.example"] = [[PUBLIC]]
    with serving(lambda connection: connection.send_slowly(b"\x16\x03\x03\x40\x00" + b"\x02" * 16000)) as endpoint:
        assert _to(endpoint, net, 0.3) == [DeliveryResult(None, "timed out after 0.3 s", None)]


def test_tls_that_is_read_slowly_ends_in_time(serve_tls: Callable[..., Any], net: Net) -> None:
    """A body of many TLS records has one deadline, though each record could be sent in time."""

    def script(connection: EndpointConnection) -> None:
        while not connection.endpoint.stopped.wait(0.01):
            connection.sock.recv(16384)

    with serve_tls(script) as endpoint:
        assert _to(endpoint, net, 0.5, b" " * 30_000_000) == [DeliveryResult(None, "timed out after 0.5 s", None)]


# gevent

PATCHED = """
from gevent import monkey; monkey.patch_all()
import sys, time
import gevent
from restkeeper.features.webhooks.sender import Sender
sender = Sender(allow_private=True, timeout=float(sys.argv[2]))
sends = [gevent.spawn(sender, sys.argv[1], {}, b"{}") for _ in range(20)]
gevent.joinall(sends, raise_error=True)
sender.close()
print(*sorted({str(send.value) for send in sends}))
"""


@pytest.mark.parametrize(
    ("script", "timeout", "response"),
    [
        (OK, SECONDS, DeliveryResult(200, "ok", None)),
        (_slow_head, 0.3, DeliveryResult(None, "timed out after 0.3 s", None)),
    ],
)
def test_greenlets_share_a_sender(script: Script, timeout: float, response: DeliveryResult) -> None:
    """Under gevent's patches it does the same, within the same limits."""
    with serving(script) as endpoint:
        command = [sys.executable, "-W", "ignore", "-c", PATCHED, endpoint.url, str(timeout)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
    assert done.stdout.strip() == str(response), done.stderr


def test_slow_name_resolution_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait(SECONDS) and [])
    with closing(Sender(timeout=0.2)) as sender:
        response = sender("https://slow.example/", {}, b"{}")
    ended.set()
    assert (response.status, response.excerpt) == (None, "timed out after 0.2 s")
