"""One connection: the deadline of a response, the data that is read after the last one, and chunked content."""

import io
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import gevent
import gevent.socket
import pytest

from restkeeper.server import connection
from restkeeper.server.connection import Bodies, Client, ClientConnections
from restkeeper.server.exchange import Exchange
from restkeeper.server.request import MOST_FRAMING, Chunks, Refused

STEP = 10.0  # seconds by which the clock advances each time that the worker reads it
SIZE = 2**26


def parts_of_a_worker() -> Any:
    """The parts of a worker that a connection needs, with the worker's limits."""
    bounds = {name: value for name, value in vars(Exchange).items() if isinstance(value, int | float | None)}
    sizes = {"limit_request_line": 8190, "limit_request_field_size": 8190, "limit_request_fields": 100}
    made = SimpleNamespace(**bounds, worker_connections=1000, cfg=SimpleNamespace(keepalive=75, **sizes))
    made.connections, made.refusals = ClientConnections(made), []
    made.note_refusal = lambda status, line: made.refusals.append(status)
    return made


@pytest.fixture
def worker() -> Any:
    return parts_of_a_worker()


@pytest.fixture
def pair(worker: Any) -> Iterator[tuple[Client, Any]]:
    """A connection and its other end."""
    ours, theirs = gevent.socket.socketpair()
    client = Client(worker, ours)
    yield client, theirs
    client.close()
    theirs.close()


@pytest.fixture
def clock_reads(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times that the clock returned; it advances each time it is read."""
    shown = [0.0]

    def read_clock() -> float:
        shown.append(shown[-1] + STEP)
        return shown[-1]

    monkeypatch.setattr(connection, "monotonic", read_clock)
    return shown


def read(theirs: Any) -> None:
    while theirs.recv(2**16):
        pass


def test_a_connection_is_served_whose_listener_a_stop_has_closed(worker: Any) -> None:
    """It was accepted just before: its requests have the address all the same."""
    served: list[Any] = []
    worker.handle = lambda *given: served.append(given)
    with gevent.socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address, serve = listener.getsockname(), Exchange._handler(worker, listener)
    serve("socket", "client")
    assert served == [(listener, address, {}, "socket", "client")]


@pytest.mark.parametrize(("slowest", "seconds"), [(SIZE / 60, 30 + 60), (SIZE / 600, 120)])
@pytest.mark.parametrize("pieces", [1, 64])
def test_a_response_has_a_deadline(
    worker: Any, pair: tuple[Client, Any], clock_reads: list[float], slowest: float, seconds: float, pieces: int
) -> None:
    """A reader that always reads a little has 30 seconds, more by the size of the response, and at most 120."""
    client, theirs = pair
    worker.slowest = slowest
    reading = gevent.spawn(read, theirs)
    with pytest.raises(TimeoutError):
        for _ in range(pieces):
            client.write(bytes(SIZE // pieces))
    reading.kill()
    assert clock_reads[1] + 30 < clock_reads[-1] <= clock_reads[1] + seconds + STEP
    assert client.lost
    assert not worker.connections.waiting


def test_each_response_has_its_own_deadline(worker: Any, pair: tuple[Client, Any], clock_reads: list[float]) -> None:
    client, theirs = pair
    reading = gevent.spawn(read, theirs)
    for _ in range(100):
        client.begin_request()
        client.write(bytes(2**19))
    assert clock_reads[-1] > 240
    reading.kill()


@pytest.mark.parametrize(("alive", "most_reads"), [(True, 13), (False, 4)])
def test_lingering_ends(
    worker: Any, pair: tuple[Client, Any], clock_reads: list[float], alive: bool, most_reads: int
) -> None:
    """A client that sends endlessly is read for ten seconds in all, and for one when the service stops."""
    client, theirs = pair
    worker.alive = alive
    worker.linger_timeout, worker.linger_silence, worker.linger_limit = 10 * STEP, STEP, 2**40

    def send() -> None:
        while True:
            theirs.sendall(bytes(2**12))

    sending = gevent.spawn(send)
    client.linger()
    sending.kill()
    assert len(clock_reads) <= most_reads


def test_one_large_response_ends_for_no_other_reason(worker: Any) -> None:
    """A response beyond the limit of unsent bytes ends for another slow reader, and for no other wait."""
    connections, found = worker.connections, []
    first, second, third = (Waiting(number, found) for number in range(3))
    connections.begin_wait(first, worker.unsent_limit + 1)
    connections.begin_wait(second)
    assert found == []
    connections.begin_wait(third, 1)
    assert found == [0] and list(connections.waiting.values()) == [0, 1]


class Waiting:
    """Replaces a connection that waits."""

    def __init__(self, number: int, ended: list[int]) -> None:
        self._number, self._ended = number, ended

    def end(self, how: int) -> None:
        self._ended.append(self._number)


def content(received: Iterable[bytes]) -> bytes:
    """The content of which these pieces arrive."""
    pieces = iter(received)
    cfg = SimpleNamespace(limit_request_fields=100, limit_request_field_size=8190)
    worker = SimpleNamespace(cfg=cfg, bodies=Bodies(Exchange))
    client = SimpleNamespace(rest=b"", recv=lambda size: next(pieces), worker=worker)
    return io.BufferedReader(Chunks(client, {})).read()


def test_framing_may_exceed_the_content_by_a_fixed_amount() -> None:
    """Chunks of one byte have five bytes of framing: so many are accepted, and not one more."""
    most = MOST_FRAMING // 4
    for last, size in ((b"1\r\na\r\n", most + 1), (b"1;xx\r\na\r\n", most)):
        with pytest.raises(Refused, match="framing"):
            content([b"1\r\na\r\n" * (size - 1) + last + b"0\r\n\r\n"])
    assert content([b"1\r\na\r\n" * (most - 3) + b"1;x\r\na\r\n0\r\n\r\n"]) == b"a" * (most - 2)


def test_endless_framing_is_refused_early() -> None:
    """Of 15 MiB of one-byte chunks with an extension, only the bytes up to the limit are read."""
    pieces = iter([b"1;x\r\na\r\n" * 1024] * (15 * 128))
    with pytest.raises(Refused):
        content(pieces)
    assert len(list(pieces)) > 15 * 128 - 2 * MOST_FRAMING // 8192


@pytest.mark.parametrize("size", [8, 1000])
def test_larger_chunks_have_no_limit(size: int) -> None:
    """Chunks of a normal size are accepted, however many there are, and however they are split."""
    chunks = (b"%x\r\n" % size + b"a" * size + b"\r\n") * 20_000 + b"0\r\n\r\n"
    pieces = (chunks[start : start + 8191] for start in range(0, len(chunks), 8191))
    assert len(content(pieces)) == 20_000 * size


def test_other_connections_get_a_turn_after_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[float] = []
    monkeypatch.setattr("restkeeper.server.request.gevent.sleep", turns.append)
    assert len(content([*[b"2\r\nab\r\n" * 10] * 50, b"0\r\n\r\n"])) == 1000
    assert turns == [0] * 51
