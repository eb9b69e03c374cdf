"""The bounds of the test harness: docs/bounds.md."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from io import BytesIO
from itertools import count
from socket import AF_INET, AF_INET6, create_server, socket
from threading import Barrier, BrokenBarrierError, Event
from typing import Any
from weakref import ref

import pytest

from restkeeper import LiveServer, Space
from restkeeper.app import create_app
from restkeeper.config import Config
from restkeeper.errors import Conflict
from restkeeper.features import harness
from restkeeper.features.harness import journal, ports, spaces
from restkeeper.features.harness.ports import Ports
from restkeeper.features.harness.spaces import SpaceClock, Spaces
from restkeeper.features.harness.webhooks import Catcher
from restkeeper.storage.errors import StoreUnavailable
from tests.live import ROOT, loopback
from tests.shop import RESOURCES

CONTROL = "/__harness__/spaces"
ENVIRON = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with LiveServer(resources=RESOURCES, in_process=True) as running:
        yield running


@pytest.fixture
def api(server: LiveServer) -> Iterator[Space]:
    with server.space() as made:
        yield made


@pytest.fixture
def control(server: LiveServer, api: Space) -> Callable[..., Any]:
    """A function that returns a response of the space's control."""
    assert server._app
    client = server._app.test_client()
    return lambda method, path, **sent: client.open(f"{CONTROL}/{api.id}{path}", method=method, **sent)


def close(listeners: list[socket]) -> None:
    for each in listeners:
        each.close()


def test_spaces_are_limited(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one has its place when one is dropped, which the message says."""
    monkeypatch.setattr(spaces, "MOST_SPACES", 3)
    made = [server.space() for _ in range(3)]
    with pytest.raises(ValueError, match="there are 3 spaces, .* drop each .* by DELETE of its `control`"):
        server.space()
    made[0].drop()
    server.space()


def test_applications_are_made_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of many that are wanted at once would wait for all, and its first write for too long."""
    monkeypatch.setattr(spaces, "SPARE", 0)
    others, numbers = Barrier(2), count(1)

    def make(clock: Any) -> Any:
        with pytest.raises(BrokenBarrierError):
            others.wait(0.05)
        others.reset()
        return create_app(Config(database_url="memory://"), RESOURCES, clock=clock)

    made = Spaces(make, Ports(Config()))
    with ThreadPoolExecutor(2) as pool:
        assert len({each.id for each in pool.map(lambda _: made.create(next(numbers)), range(2))}) == 2


def test_a_space_that_cannot_be_made_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No port, no application, no place: that is taken while it is made."""
    made = Spaces(lambda clock: create_app(Config(database_url="memory://"), RESOURCES, clock=clock), Ports(Config()))

    def fail(*_: Any) -> Any:
        raise Conflict("none")

    def create_another(*_: Any) -> Any:
        with pytest.raises(Conflict, match="there are 1 spaces"):
            made.create()
        raise Conflict("none")

    monkeypatch.setattr(spaces, "MOST_SPACES", 1)
    spare, asked = len(made._spare), list[str]()
    monkeypatch.setattr(Ports, "listen", fail)
    with pytest.raises(Conflict, match="none"):
        made.create(serve=fail)
    assert len(made._spare) == spare
    monkeypatch.setattr(Ports, "listen", lambda _: asked.append("port"))
    monkeypatch.setattr(Spaces, "_take", create_another)
    with pytest.raises(Conflict, match="none"):
        made.create(serve=fail)
    assert not asked and not made._spaces


def test_a_free_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is free again: a client of a former space never reaches another one."""
    at = ports._listening
    givers = Ports(Config()), Ports(Config())
    one = givers[0].listen()
    number, other = one[0].getsockname()[1], givers[1].listen()
    next_one = other[0].getsockname()[1]
    close(one), close(other)
    offered = [number, number, next_one, number]
    monkeypatch.setattr(ports, "_listening", lambda hosts, _: at(hosts, offered.pop(0)))
    found = givers[0].listen()
    assert found[0].getsockname()[1] == next_one and offered == [number]
    close(found)
    offered[:] = [number] * ports.MOST_TRIES
    with pytest.raises(Conflict, match=r"no port for another space \(all were given\)"):
        givers[0].listen()


def test_ports_of_a_range_are_given_in_turn() -> None:
    """Each again as late as can be; one that another program uses is left out."""
    with closing(create_server(("127.0.0.1", 0))) as taken:
        first = taken.getsockname()[1]
        giver = Ports(Config(harness_ports=f"{first}-{first + 9}"))
        seen: list[int] = []
        while len(seen) < 20:
            found = giver.listen()
            seen.append(found[0].getsockname()[1])
            close(found)
        count = len({*seen})
        assert first not in seen and seen[count : 2 * count] == seen[:count] == sorted(seen[:count])
        kept = [giver.listen() for _ in range(count)]
        with pytest.raises(Conflict, match=r"Address already in use.*--ports"):
            giver.listen()
        list(map(close, kept))


@pytest.mark.parametrize("number", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EADDRINUSE, errno.EMFILE])
def test_a_port_is_for_both_addresses(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is no IPv6, for one; if one of them cannot be had, another port, or a message that says why."""
    tried: list[int] = []

    def create(address: tuple[str, int], **options: Any) -> socket:
        if address[0] == "::1":
            tried.append(address[1])
            if len(tried) <= 2:
                raise OSError(number, "no")
        return create_server(address, **options)

    monkeypatch.setattr(ports, "create_server", create)
    if number == errno.EMFILE:
        with pytest.raises(Conflict, match=r"Too many open files.*ulimit -n"):
            Ports(Config()).listen()
    else:
        found = Ports(Config()).listen()
        families = [each.family for each in found]
        assert families == ([AF_INET, AF_INET6][: len(loopback())] if number == errno.EADDRINUSE else [AF_INET])
        close(found)
    assert len(tried) == (3 if number == errno.EADDRINUSE else 1)


@pytest.mark.parametrize("host", ["127.0.0.2", "127.0.0.1", "localhost", "::1"])
def test_a_port_is_where_the_server_is(host: str) -> None:
    """As the address of a space has the host that was asked: also at another loopback address."""
    found = Ports(Config(host=host)).listen()
    addresses = [each.getsockname()[0] for each in found]
    assert addresses == ["127.0.0.2" if host == "127.0.0.2" else "127.0.0.1", "::1"][: len(loopback())]
    close(found)


def test_the_soft_limit_of_descriptors_is_no_limit() -> None:
    """It is raised as far as this process may, and what is beyond that is said."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        close(Ports(Config()).listen())
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_some_descriptors_are_left() -> None:
    """For connections: a server without them would answer nothing, and say nothing."""
    code = """import os, resource
from restkeeper.config import Config
from restkeeper.features.harness.ports import Ports
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
giver, made = Ports(Config()), []
try:
    while True: made.append(giver.listen())
except Exception as problem:
    print(len(os.listdir("/dev/fd")), problem)"""
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRON, capture_output=True, text=True, check=True)
    used, _, problem = done.stdout.partition(" ")
    assert 128 - 64 - 2 <= int(used) <= 128 - 64 + 1 and "Too many open files" in problem and "ulimit -n" in problem


@pytest.mark.no_cover
def test_connections_are_limited_by_descriptors() -> None:
    """To more than those of a service, as all spaces share them; and to what the machine has for them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for files in (1024, hard):
        code = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files})); "
        code += "from restkeeper.server import settings; print(settings.worker_connections)"
        environ = {"HARNESS": "1", "DATABASE_URL": "memory://", "AUTH": "open"}
        done = subprocess.run([sys.executable, "-c", code], env=ENVIRON | environ, capture_output=True, check=True)
        assert int(done.stdout) == (224 if files == 1024 else 5000 if hard < 0 else max(100, min(5000, hard - 800)))


def test_snapshots_and_faults_are_limited(api: Space, control: Callable[..., Any]) -> None:
    """Beyond that they are refused, and those before stay."""
    names = [api.snapshot() for _ in range(20)]
    for _ in range(100):
        api.faults.delay("PUT", "/products", 0)
    assert control("POST", "/snapshots").status_code == 409
    assert control("POST", "/faults", json={"kind": "close"}).status_code == 409
    api.faults.clear(), api.faults.close("GET", "/products/*"), api.faults.clear()
    assert len(api.faults.unmet) == 100 and api.faults.unmet[-1].kind == "close"
    api.restore(names[0])
    assert api.client.get("/products").status_code == 200


@pytest.mark.no_cover
def test_a_seed_is_limited(api: Space, control: Callable[..., Any]) -> None:
    """In bytes and values; both may be more than a service accepts."""
    large = {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(harness.MOST_BODY + 1)}
    assert control("POST", "/seed", environ_overrides=large).status_code == 413
    long = [{"name": str(number), "description": "x" * 300} for number in range(4000)]
    assert api.seed({"products": long}) == {"products": 4000}
    with pytest.raises(ValueError, match=f"more than {harness.MOST_VALUES} values"):
        api.seed({"products": [{"name": "a", "tags": ["b"] * 1000}] * 200})


def test_the_requests_that_are_shown_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number, and in bytes: of all, of a content, which is that of a body, and of header fields."""
    monkeypatch.setattr(journal, "MOST_REQUESTS", 3)
    with LiveServer(resources=RESOURCES, in_process=True, MAX_BODY=20_000) as server, server.space() as api:
        for _ in range(5):
            api.client.post("/products", json={"name": "a", "x": "b" * 20_000}, headers={"X-A": "c" * 17_000})
        shown = api.requests()
        assert [(each.number, len(each.body)) for each in shown] == [(number, 20_000) for number in (3, 4, 5)]
        assert not any(each.headers for each in shown) and shown[0].cut == ["headers", "body"]
        with pytest.raises(AssertionError, match="only the requests from number 3 on are kept"):
            api.assert_requested("POST", "/products", times=3)
        with pytest.raises(AssertionError, match="its content is too long to be compared"):
            api.assert_requested("POST", "/products", json={"name": "a"})
        api.assert_requested("POST", "/products", headers={"X-A": "c*"})
        for size, parts in ((20_000, []), (20_001, ["body", "response"])):
            api.faults.respond("*", "/*", 200, text="c" * size, times=1)
            api.client.post("/none", data=b"b" * size)
            last = api.requests()[-1]
            assert (last.cut, len(last.body), len(last.response)) == (parts, 20_000, 20_000)
        monkeypatch.setattr(journal, "MOST_BYTES", 100_000)
        api.client.get("/products")
        assert [each.number for each in api.requests()] == [6, 7, 8]
        api.client.post("/products", data=b"b" * 20_001)
        assert [each.number for each in api.requests()] == [7, 8, 9]


def test_a_request_that_ends_late_keeps_the_bounds() -> None:
    """One that is forgotten before its end counts nothing then: what is kept is what has been counted."""
    kept, environ = journal.Journal(10), {"REQUEST_METHOD": "POST", "PATH_INFO": "/"}
    sent = [kept.begin(environ | {"wsgi.input": BytesIO(b"a")}, "") for _ in range(journal.MOST_REQUESTS + 1)]
    for each in sent:
        kept.end(each, None, matched=True)
    assert [each.number for each in kept] == [*range(2, journal.MOST_REQUESTS + 2)]
    assert kept._bytes == sum(each.size for each in kept)


def test_nothing_else_of_a_request_is_kept() -> None:
    """The journal has its content, and not what a server holds for it."""
    kept, source = journal.Journal(10), BytesIO(b"a")
    environ: Any = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "CONTENT_LENGTH": "1", "wsgi.input": source}
    kept.end(kept.begin(environ, ""), None, matched=True)
    held = ref(source)
    del source, environ
    assert held() is None and [each.document()["body"] for each in kept] == ["a"]


@pytest.mark.needs("webhooks")
def test_deliveries_go_on_when_the_store_was_away(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are sent at once: nothing else would show that they had ended."""
    monkeypatch.setattr(spaces, "LOOK_SECONDS", 0.01)
    tried, went_on = count(1), Event()

    def deliver(_: Any) -> None:
        if next(tried) == 1:
            raise StoreUnavailable("away")
        went_on.set()

    monkeypatch.setattr(Catcher, "deliver", deliver)
    with server.space(webhooks="at once"):
        assert went_on.wait(10)


def test_deliveries_are_limited(api: Space, control: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In number; and the time to wait for one, and the responses that are declared for them."""
    monkeypatch.setattr("restkeeper.features.harness.webhooks.MOST_CAUGHT", 3)
    api.reset()  # it has another catcher
    for number in range(4):
        api.client.post("/products", json={"name": str(number)})
    assert len(api.webhooks.deliveries()) == 3
    assert control("GET", "/deliveries?within=31").status_code == 400
    assert control("PUT", "/responses", json={"statuses": [500] * 1001}).status_code == 422


def test_others_have_their_turns_during_a_seed(api: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes: only its own space waits for it."""
    times, turns = count(), []
    monkeypatch.setattr(SpaceClock, "monotonic", lambda _: float(next(times)))
    monkeypatch.setattr(SpaceClock, "sleep", lambda _, seconds: turns.append(seconds))
    api.seed({"products": [{"name": f"Lamp {number}"} for number in range(20)]})
    assert len(turns) >= 2 * 20  # for what is created, and for what is checked
