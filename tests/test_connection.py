"""One connection: the deadline of a response, and the data that is read after the last one."""

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import gevent
import gevent.socket
import pytest

from restkeeper.server import connection
from restkeeper.server.connection import Client, Connections
from restkeeper.server.worker import Worker

STEP = 10.0  # seconds by which the clock advances each time that the worker reads it
SIZE = 2**26


class Peer:
    """Replaces a client where only its address matters."""

    def __init__(self, address: str) -> None:
        self.address = address


@pytest.fixture
def worker() -> Any:
    """The parts of a worker that a connection needs, with the worker's limits."""
    bounds = {name: value for name, value in vars(Worker).items() if isinstance(value, int | float | None)}
    made = SimpleNamespace(**bounds, alive=True, worker_connections=1000)
    made.connections = Connections(made)
    return made


@pytest.fixture
def pair(worker: Any) -> Iterator[tuple[Client, Any]]:
    """A connection and its other end."""
    ours, theirs = gevent.socket.socketpair()
    client = Client(worker, ours, None)
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
            client.sendall(bytes(SIZE // pieces))
    reading.kill()
    assert clock_reads[1] + 30 < clock_reads[-1] <= clock_reads[1] + seconds + STEP
    assert client.lost
    assert worker.connections.unsent == 0 and not worker.connections.waiting


def test_each_response_has_its_own_deadline(worker: Any, pair: tuple[Client, Any], clock_reads: list[float]) -> None:
    """The time of an earlier response is not counted."""
    client, theirs = pair
    reading = gevent.spawn(read, theirs)
    for _ in range(100):
        client.begin_request(idle=False)
        client.sendall(bytes(2**19))
    assert clock_reads[-1] > 240
    reading.kill()


def test_lingering_connections_are_limited(worker: Any) -> None:
    """Beyond that number, connections are closed at once."""
    depth: list[int] = []

    def linger() -> None:
        depth.append(1)
        worker.connections.linger(client)

    client: Any = SimpleNamespace(linger=linger)
    for _ in range(2):
        depth.clear()
        worker.connections.linger(client)
        assert len(depth) == worker.most_lingering


@pytest.mark.parametrize(("alive", "most_reads"), [(True, 12), (False, 3)])
def test_lingering_ends(
    worker: Any, pair: tuple[Client, Any], clock_reads: list[float], alive: bool, most_reads: int
) -> None:
    """A client that sends endlessly is read for ten seconds in all, and for one when the service stops."""
    client, theirs = pair
    worker.alive = alive
    worker.linger_longest, worker.linger_timeout, worker.linger_limit = 10 * STEP, STEP, 2**40

    def send() -> None:
        while True:
            theirs.sendall(bytes(2**12))

    sending = gevent.spawn(send)
    client.linger()
    sending.kill()
    assert len(clock_reads) <= most_reads


def test_lingering_reads_a_limited_number_of_bytes(worker: Any, pair: tuple[Client, Any]) -> None:
    """Not more than the limit is read from a client that keeps sending."""
    client, theirs = pair
    worker.linger_limit, worker.gathered = 2**14, 2**12
    theirs.sendall(bytes(2**15))
    client.linger()
    assert len(client._sock.recv(2**20)) == 2**14


def test_counts_of_addresses_are_removed(worker: Any) -> None:
    """The counts of an address are removed with its last connection."""
    connections = worker.connections
    clients: list[Any] = [Peer(f"10.0.0.{n % 9}") for n in range(99)]
    for client in clients:
        assert connections.admit(client)
    assert sum(connections._per_address.values()) == 99
    for client in clients:
        connections.remove(client)
    assert not connections.open and not connections._per_address


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8::1", "2001:db8:0:0:ffff::9", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("10.0.0.1", "10.0.0.2", False),
    ],
)
def test_connections_are_counted_by_network(worker: Any, one: str, other: str, same: bool) -> None:
    """Addresses of one /64 count as one, and an IPv4 address in either form as itself."""
    found = []
    for address in (one, other):
        ours, theirs = gevent.socket.socketpair()
        with closing(Client(worker, ours, (address, 1))) as client, closing(theirs):
            found.append(client.address)
    assert (found[0] == found[1]) == same


@pytest.mark.parametrize(("many", "ended"), [(900, 0), (901, 1)])
def test_slow_readers_leave_room_for_others(worker: Any, many: int, ended: int) -> None:
    """When a process is nearly full, the longest waiting reader is closed for each new one."""
    connections: Any = worker.connections
    aborted: list[int] = []
    connections.open = set(range(many))
    for number in range(2):
        connections.begin_waiting(Reader(number, aborted), 1)
    assert aborted == [0] * ended and len(connections.waiting) == 2 - ended


class Reader:
    """Replaces a slow reader."""

    def __init__(self, number: int, aborted: list[int]) -> None:
        self._number, self._aborted = number, aborted

    def abort(self) -> None:
        self._aborted.append(self._number)
