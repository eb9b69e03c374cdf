"""Endpoints for tests of the sender: a script handles each connection, and requests are recorded."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.waiting import SECONDS

PAUSE = 0.02  # seconds between two bytes


class Endpoint:
    """A server on 127.0.0.1, with the number of its connections and the requests that it has read."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/hook?x=1"
        self.connected = 0
        self.requests: list[bytes] = []
        self.stopped = threading.Event()


class EndpointConnection:
    """One connection of an endpoint."""

    def __init__(self, sock: socket.socket, endpoint: Endpoint, number: int) -> None:
        self.sock, self.endpoint, self.number = sock, endpoint, number
        self._file = sock.makefile("rb")

    def request(self) -> bytes:
        """Read a request with its body; empty if the client has closed the connection."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self._file.readline()
            if not line:
                return b""
            head += line
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        request = head + self._file.read(int(lengths[0]) if lengths else 0)
        self.endpoint.requests.append(request)
        return request

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_slowly(self, data: bytes) -> None:
        """Send data byte by byte, until its end or the end of the test."""
        for byte in data:
            if self.endpoint.stopped.wait(PAUSE):
                return
            self.send(bytes([byte]))

    def close(self) -> None:
        self._file.close()
        self.sock.close()


Script = Callable[[EndpointConnection], None]


def responding_with(response: bytes) -> Script:
    """Send this response to each request of a connection, until the client closes it."""

    def script(connection: EndpointConnection) -> None:
        while connection.request():
            connection.send(response)

    return script


def replying(*responses: bytes) -> Script:
    """Read a request before each of these responses, and then close the connection."""

    def script(connection: EndpointConnection) -> None:
        for response in responses:
            connection.request()
            connection.send(response)

    return script


OK = responding_with(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@contextmanager
def serving(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    """A running endpoint, which handles each connection in a thread."""
    threads: list[threading.Thread] = []
    open_: list[socket.socket] = []

    def one(sock: socket.socket, number: int) -> None:
        with suppress(OSError, ValueError):  # the client or the end of the test may close it at any time
            try:
                wrapped = tls.wrap_socket(sock, server_side=True) if tls else sock
                open_.append(wrapped)
                connection = EndpointConnection(wrapped, endpoint, number)
                try:
                    script(connection)
                finally:
                    connection.close()
            finally:
                sock.close()

    def accept() -> None:
        while True:
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            endpoint.connected += 1
            open_.append(sock)
            threads.append(threading.Thread(target=one, args=(sock, endpoint.connected), daemon=True))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = Endpoint(listening.getsockname()[1])
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield endpoint
        finally:
            endpoint.stopped.set()
            listening.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
            accepting.join(SECONDS)
            for sock in list(open_):
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(SECONDS)
            assert not any(thread.is_alive() for thread in [accepting, *threads]), (
                "the script of a connection does not end"
            )


def self_signed(directory: Path, name: str) -> Path:
    """Write a PEM file with a key and a self-signed certificate for a name or an address."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    try:
        names: x509.GeneralName = x509.IPAddress(ip_address(name))
    except ValueError:
        names = x509.DNSName(name)
    now = datetime.now(UTC)
    usage = x509.KeyUsage(True, False, False, False, False, True, False, False, False)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "server.pem"
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(key.private_bytes(*form) + certificate.public_bytes(serialization.Encoding.PEM))
    return path
