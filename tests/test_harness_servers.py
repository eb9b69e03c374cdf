"""The test harness with a server, for pytest and for any language; and never in a deployment."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPException, IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import Request, urlopen

import pytest

from restkeeper import LiveServer, Space
from tests.endpoint import OK, serving
from tests.live import ROOT, Gunicorn, HttpResponse, loopback, response_of, send
from tests.processes import children, of_session, open_files
from tests.test_procfile import command_of
from tests.waiting import SECONDS, until

SHARED = Path("/dev/shm")  # noqa: S108 - memory
ENVIRON = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
SERVICE = """
import sys
import restkeeper
print("imported", flush=True)

class UserSchema(restkeeper.ItemSchema):
    \"""A user.\"""
    name = restkeeper.Text(1, 50, required=True)

def create_app(config=None):
    made = restkeeper.create_app(config, [restkeeper.Resource("users", "user", UserSchema)])
    made.checking.add(lambda asked: print("modules", [each for each in sys.modules if "harness" in each], flush=True))
    return made
"""
TESTS = """
from contextlib import suppress
from urllib.error import HTTPError
from urllib.request import urlopen
import pytest
from restkeeper import LiveServer

@pytest.fixture
def read(api, pytestconfig):
    return api.client.get if pytestconfig.getini("restkeeper_in_process") else urlopen

@pytest.mark.restkeeper(seed={"users": [{"name": "Anna"}]}, random=7)
@pytest.mark.parametrize("number", range(6))
def test_alone(api, number, read):
    read(api.url + "/users")
    api.seed({"users": [{"name": "Bert"}]})
    assert api.clock.now.year == 2026 and len(api.requests()) == 1

def test_that_fails(api, read):
    read(api.url + "/users?limit=5")
    with suppress(HTTPError):
        read(api.url + "/users?limit=none")
    assert not "this one"

def test_that_fails_without(api):
    api.drop()
    assert not "this one"

@pytest.fixture
def own(pytestconfig):
    with LiveServer(pytestconfig.getini("restkeeper")) as server:
        yield server

def test_that_fails_with_its_own(own):
    raise ValueError

@pytest.mark.restkeeper({"users": []})
def test_that_is_wrong(api):
    pass

def test_that_has_a_fault_in_vain(api, read):
    api.faults.close("DELETE", "/users/*")
    api.faults.respond("GET", "/users", 500, skip=9)
    read(api.url + "/users")

@pytest.mark.restkeeper(unmet="allow")
def test_that_may(api):
    api.faults.close("DELETE", "/users/*")

def test_that_has_some_in_its_body(restkeeper_server, read):
    with restkeeper_server.space() as first, restkeeper_server.space() as second:
        first.faults.close("PUT", "/users/*"), first.reset(), first.faults.close("GET", "/users")
        second.faults.close("PATCH", "/users/*")
    left = restkeeper_server.space()
    left.faults.close("HEAD", "/users")

def test_that_ends_its_server(pytestconfig):
    server = LiveServer(pytestconfig.getini("restkeeper"), in_process=True).__enter__()
    server.faults.close("DELETE", "/users/*"), server.space().faults.delay("GET", "/users", 1)
    server.close()

def test_after_it(api):
    assert api.faults.unmet == []

@pytest.mark.restkeeper(unmet="alow")
def test_that_is_misspelt(api):
    pass

@pytest.mark.restkeeper(sed={})
def test_that_has_no_such_option(api):
    pass

@pytest.mark.restkeeper(seed="users.json")
def test_files(api, monkeypatch):
    monkeypatch.chdir("/")
    assert api.seed("users.json") == {"users": 1}
"""
UNRELATED = """
import sys

def test_that_fails(tmp_path):
    assert not "this one"

def test_after_it():
    assert "flask" not in sys.modules
"""
SHARED_TESTS = """
import pytest
import restkeeper

@pytest.fixture(scope="module")
def restkeeper_server(pytestconfig):
    with restkeeper.LiveServer(pytestconfig.getini("restkeeper"), in_process=True) as server:
        server.stub("GET", "/prices", json=1)
        yield server

@pytest.fixture(scope="module")
def shared(restkeeper_server):
    with restkeeper_server.space() as space:
        space.stub("GET", "/rates", json=1)
        space.faults.respond("PUT", "/users/*", 500, times=2)
        yield space

@pytest.fixture(scope="class")
def stub(shared):
    shared.stub("GET", "/none")

@pytest.mark.restkeeper(unmet="allow")
class TestThatMay:
    def test_it(self, stub):
        pass

def test_that_does_not_use_it(shared):
    pass

def test_that_uses_it(shared):
    assert shared.client.get("/rates").json == 1 and shared.client.put("/users/1", json={}).status_code == 500

def test_with_a_fault_in_vain(shared):
    shared.faults.close("DELETE", "/users/*")
"""
ANNA = '{"name": "Anna"}'
HANGING = """
import os, time
def test_that_hangs(api):
    print(api.url, os.getpid(), flush=True)
    time.sleep(1000)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a service that says which modules of the harness it has."""
    made: Path = tmp_path_factory.mktemp("service")
    (made / "app.py").write_text(SERVICE)
    (made / "gunicorn.conf.py").write_text((ROOT / "gunicorn.conf.py").read_text())
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[LiveServer]:
    with LiveServer(folder) as running:
        yield running


@pytest.fixture
def space(server: LiveServer) -> Iterator[Space]:
    with server.space() as made:
        yield made


def call(space: Space, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
    return send(int(urlsplit(space.url).port or 0), method, path, body, headers)


@contextmanager
def asking(space: Space, method: str, body: str | None = None, path: str = "/users") -> Iterator[HTTPConnection]:
    """A connection on which this has been asked."""
    with closing(HTTPConnection(urlsplit(space.url).netloc, timeout=SECONDS)) as connection:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        yield connection


def connect(space: Space) -> socket.socket:
    address = urlsplit(space.url)
    return socket.create_connection((str(address.hostname), int(address.port or 0)), SECONDS)


def read(url: str) -> Any:
    with urlopen(url, timeout=SECONDS) as response:  # noqa: S310 - http
        return json.load(response)


def names(space: Space) -> list[str]:
    return [each["name"] for each in call(space, "GET", "/users").json()]


def run_tests(folder: Path, *options: str, **settings: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "restkeeper.pytest_plugin"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([*command, *options], cwd=folder, env=environ, text=True, start_new_session=True, **pipes)  # type: ignore[call-overload,no-any-return]


def test_each_space_has_an_origin(server: LiveServer, space: Space) -> None:
    """However a client joins the address and a path, and by IPv6; other spaces and the server's own data are apart."""
    with server.space() as other:
        created = call(space, "POST", "/users", {"name": "Anna"})
        made, location = created.json(), created.headers["location"]
        hosts = [*loopback(), "localhost"]
        for base in [space.url.replace("127.0.0.1", host) for host in hosts]:
            for url in (urljoin(base, "/users"), f"{base}/users", f"{base}/api/v1/users"):
                assert read(url) == [made]
        assert read(space.url + location) == made
        for base in (other.url, server.url):
            assert read(urljoin(base, "/users")) == []
        assert len(space.requests(method="GET")) == 3 * len(hosts) + 1 and len(other.requests()) == 1
        assert len({urlsplit(each).netloc for each in (space.url, other.url, server.url)}) == 3
    assert read(f"{server.url}/openapi.json")["openapi"] and not space.unmatched


def test_the_server_is_a_space(server: LiveServer, space: Space) -> None:
    """At its own address: with data, clock, faults and requests of its own; it ends with the server."""
    server.reset(), server.seed({"users": [{"name": "Anna"}]}), server.clock.freeze("2031-01-01T00:00:00Z")
    server.faults.respond("GET", "/users", 502, times=1)
    assert [call(server, "GET", "/users").status, names(server), names(space)] == [502, ["Anna"], []]
    assert call(server, "GET", "/users").headers["date"].startswith("Wed, 01 Jan 2031")
    server.assert_requested("GET", "/users", times=3)
    assert server.faults.unmet == space.requests(path="/none") == [] and read(f"{server.control}/requests")
    with pytest.raises(ValueError, match="ends with the server"):
        Space.drop(server)
    server.reset()
    assert names(server) == [] and server.clock.now.year < 2031


@pytest.mark.needs("webhooks")
def test_webhooks_of_the_server(folder: Path) -> None:
    """They are sent by themselves, on this machine alone, and are those of a space."""
    with serving(OK) as endpoint, LiveServer(folder) as server:
        for url in (endpoint.url, "https://example.org/"):
            assert call(server, "POST", "/api/v1/webhooks", {"url": url}).status == 200
        call(server, "POST", "/users", {"name": "Anna"})
        until(lambda: len(endpoint.requests) == 1)
        assert [each.status for each in server.webhooks.deliveries()] == [200] * 2


def test_an_old_connection_reaches_no_other_space(server: LiveServer) -> None:
    """A dropped space closes those that wait and those with a request under way, and its port refuses."""
    with server.space() as first:
        first.faults.delay("POST", "*", 30)
        port = int(urlsplit(first.url).port or 0)
        with asking(first, "GET") as pooled, asking(first, "POST", ANNA) as waiting, connect(first) as unused:
            assert response_of(pooled).status == 200
            until(lambda: len(first.requests()) == 2)
            first.drop()
            with server.space() as second:
                assert unused.recv(1) == b""
                with pytest.raises((HTTPException, ConnectionError)):
                    waiting.getresponse()
                with pytest.raises((HTTPException, ConnectionError)):  # also when it connects again by itself
                    pooled.request("GET", "/users")
                    pooled.getresponse()
                for host in loopback():
                    with pytest.raises(ConnectionRefusedError):
                        socket.create_connection((host.strip("[]"), port))
                assert second.url != first.url and second.requests() == [] and names(second) == []
    with pytest.raises(ValueError, match="there is no such space: it was dropped"):
        first.requests()


def test_a_content_in_chunks(space: Space) -> None:
    """It is known when the request has arrived, for a stub, and for the service."""
    space.stub("POST", "/rates", json=2, request_json=[1])
    for path, found in (("/rates", b"2"), ("/users", b'"name":"Anna"')):
        sent = iter([b"[1]"] if path == "/rates" else [b'{"name":', b'"Anna"}'])
        request = Request(space.url + path, sent, {"Content-Type": "application/json"}, method="POST")  # noqa: S310
        with urlopen(request, timeout=SECONDS) as response:  # noqa: S310 - http
            assert found in response.read()
    assert [each.body for each in space.requests()] == ["[1]", '{"name":"Anna"}']


def test_responses_are_dated(server: LiveServer, space: Space) -> None:
    """By the clock of the space, once, unless a fault has another date; and those of the server's own address."""
    space.clock.freeze("2031-01-01T00:00:00Z")
    space.faults.respond("GET", "/users", 200, json=[], headers={"Date": "yesterday"}, skip=1)
    for date in ("Wed, 01 Jan 2031 00:00:00 GMT", "yesterday"):
        with asking(space, "GET") as client, client.getresponse() as response:
            assert response.headers.get_all("Date") == [date]
    with asking(server, "GET") as client, client.getresponse() as response:
        assert len(response.headers.get_all("Date") or ()) == 1


@pytest.mark.parametrize(
    ("kind", "options", "end", "are_stored"),
    [
        ("reset", {}, ConnectionResetError, False),  # by RST, and not by FIN
        ("reset", {"committed": True}, ConnectionResetError, True),
        ("close", {}, RemoteDisconnected, False),
        ("drop_response", {}, RemoteDisconnected, True),
        ("cut_response", {}, IncompleteRead, True),
    ],
)
def test_a_connection_ends_at_once(
    space: Space, kind: str, options: dict[str, Any], end: type[Exception], are_stored: bool
) -> None:
    """As a client sees it: 32 of them take less than half a second each, the time of half a pass of the loop."""
    getattr(space.faults, kind)("POST", "/users", **options)
    begun = time.monotonic()
    for _ in range(32):
        with pytest.raises(end):
            call(space, "POST", "/users", {"name": "Anna"})
    assert time.monotonic() - begun < 32 * 0.5
    assert call(space, "GET", "/users").headers["x-total-count"] == str(32 * are_stored)
    assert {each.fault for each in space.requests(method="POST")} == {kind}


def test_a_response_that_stalls(space: Space) -> None:
    """In the middle of its content: the first half is there at once, and the rest after some seconds."""
    space.seed({"users": [{"name": "Anna"}]})
    space.faults.stall("GET", "/users", 0.3, times=1), space.faults.stall("HEAD", "/users", 60)
    with asking(space, "GET") as slow:
        response = slow.getresponse()
        half = int(response.headers["Content-Length"]) // 2
        begun, (first, rest) = time.monotonic(), (response.read(half), response.read())
        assert time.monotonic() - begun >= 0.25 and json.loads(first + rest)[0]["name"] == "Anna" and len(first) == half
    assert [each.status for each in space.requests()] == [200]
    with pytest.raises((HTTPException, ConnectionError)):  # without a content, it cannot stop there
        call(space, "HEAD", "/users")


def test_others_go_on_meanwhile(server: LiveServer, space: Space) -> None:
    """During a delay, in this space and in others: what waits is in the journal, once. A wait ends with a delivery."""
    space.faults.delay("POST", "/users", 2, times=1)
    with asking(space, "POST", ANNA, "/users?a=b") as slow, server.space() as other:
        space.assert_requested("POST", "/users?a=b", times=1, json={"name": "Anna"}, within=30)
        assert names(other) == names(space) == []
        found = [(each.method, each.status, each.ms is None, each.matched, each.fault) for each in space.requests()]
        assert found == [("POST", None, True, None, "delay"), ("GET", 200, False, True, None)] and not space.unmatched
        space.webhooks.wait("user.created", within=30)
        assert response_of(slow).status == 200


@pytest.mark.parametrize("kind", ["delay", "stall"])
def test_a_delay_ends_with_its_space(server: LiveServer, kind: str) -> None:
    """And a stall: so does the connection of the client that waits for it."""
    space = server.space(seed={"users": [{"name": "Anna"}]})
    getattr(space.faults, kind)("GET", "/users", 60)
    with connect(space) as client:
        client.sendall(b"GET /users HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: not space.faults.unmet)
        space.drop()
        while client.recv(8192):
            pass


@pytest.mark.needs("webhooks")
def test_a_wait_ends_with_its_space(server: LiveServer) -> None:
    """Also when that begins anew: nothing waits on, or shows what another test gets."""
    for end, status in ((Space.drop, 404), (Space.reset, 200)):
        space = server.space()
        with asking(server, "GET", path=f"{urlsplit(space.control).path}/deliveries?within=30") as waiting:
            begun = time.monotonic()
            until(lambda space=space: read(f"{space.url}/api/v1/webhooks"))  # the wait has made one
            end(space)
            assert response_of(waiting).status == status and time.monotonic() - begun < 20


@pytest.mark.needs("webhooks")
def test_webhooks_at_once(server: LiveServer) -> None:
    """They are sent by themselves, each once, also after a reset; by a space that wants it, until it is dropped."""
    with serving(OK) as endpoint, server.space(webhooks="at once") as space, server.space() as other:
        for number, each in enumerate((other, space, space), 1):
            call(each, "POST", "/api/v1/webhooks", {"url": endpoint.url})
            call(each, "POST", "/users", {"name": f"Anna {number}"})
            until(lambda number=number: len(endpoint.requests) == number - 1)
            if number == 2:
                space.reset()
        call(space, "POST", "/api/v1/webhooks", {"url": "https://example.org/"}), space.webhooks.respond(500)
        space.seed({"users": [{"name": "Bert"}]})  # and no request
        until(lambda: len(endpoint.requests) == 3)
        space.clock.advance(minutes=1)
        found = [(each.body["data"]["name"], each.status) for each in space.webhooks.deliveries("user.created")]
        assert found.count(("Bert", 500)) == 1 and found.count(("Bert", 200)) == 2 and found[0] == ("Anna 3", 200)
        assert len(found) == 4 and not [each for each in endpoint.requests if b"Anna 1" in each]
    with pytest.raises(ValueError, match="#/webhooks"):
        server.space(webhooks="at one")


def test_a_client_that_leaves(space: Space) -> None:
    """In the middle of its content: the journal has the request."""
    with connect(space) as client:
        client.sendall(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n[1")
    until(lambda: space.unmatched)
    assert [(each.path, each.status) for each in space.unmatched] == [("/x", 404)]


@pytest.mark.parametrize("until_eof", [False, True])
def test_the_command(folder: Path, until_eof: bool) -> None:
    """It prints a line of JSON, whatever the service prints, and serves until it ends; nothing remains."""
    command = [sys.executable, "-m", "restkeeper", "harness", str(folder), *["--until-eof"] * until_eof, "--port", "0"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=ENVIRON, start_new_session=True, **pipes) as running:
        assert running.stdout
        line = json.loads(running.stdout.readline())
        port, path = urlsplit(line["url"]).port, urlsplit(line["spaces"]).path
        assert port and line.keys() == {"url", "spaces", "openapi"}
        assert send(port, "GET", urlsplit(line["openapi"]).path).json()["openapi"].startswith("3.1")
        made = send(port, "POST", path, {"seed": {"users": [{"name": "Anna"}]}}).json()
        assert made.keys() == {"id", "url", "control"}
        assert read(f"{made['url']}/users")[0]["name"] == "Anna"
        assert send(port, "GET", "/healthz").json() == {"status": "ok"}
        assert send(port, "GET", "/users").status == 421
        control = urlsplit(made["control"]).path
        assert send(port, "PATCH", f"{control}/clock", {"frozen": True}).json()["frozen"] is True
        assert send(port, "DELETE", control).status == 200 and send(port, "DELETE", control).status == 404
        begun = time.monotonic()
        if not until_eof:
            running.terminate()
        assert running.communicate(timeout=SECONDS)[0] == ""  # it closes standard input
    assert running.returncode == 0 and time.monotonic() - begun < SECONDS / 5  # not after the requests of a deployment
    until(lambda: of_session(running.pid) == [])


@pytest.mark.parametrize(
    ("in_process", "workers"), [pytest.param("false", "2", marks=pytest.mark.matrix), ("true", "0")]
)
def test_the_fixture(folder: Path, tmp_path: Path, in_process: str, workers: str) -> None:
    """In any project, in parallel, with the marker; a failed test shows its last requests, and its server's log."""
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.pytest.ini_options]\nrestkeeper = "{os.path.relpath(folder, tmp_path)}"\n'
        f"restkeeper_in_process = {in_process}\naddopts = '--strict-markers'\n"
    )
    (tmp_path / "users.json").write_text('{"users": [{"name": "Anna"}]}')
    (tmp_path / "test_it.py").write_text(TESTS)
    running = run_tests(tmp_path, "-rP", "-n", workers)
    output, _ = running.communicate(timeout=SECONDS)
    assert "6 failed, 9 passed, 3 errors" in output and "takes 1 positional" not in output, output
    assert output.count("\nthe marker restkeeper takes, each by its name, seed={…}, random=7") == 2
    assert "\nno space for this test: #/sed: is none of seed, random, webhooks\n" in output
    never = ": 0 of 1 times"
    for faults in [
        f"close DELETE /users/*{never}, respond GET /users{never}",
        f"close PUT /users/*{never}, close PATCH /users/*{never}, close GET /users{never}, close HEAD /users{never}",
    ]:
        assert f"\nthis has not happened as declared: {faults}\n" in output
    both = {f"close DELETE /users/*{never}", f"delay GET /users{never}"}
    assert both in [{*found.split(", ")} for found in re.findall("as declared: (.*)", output)]
    assert output.count("restkeeper requests of api") == 3 and "GET /users?limit=5 200\n" in output
    assert "GET /users?limit=none 400 {" in output and "must be" in output
    logs = re.findall(r"-+ restkeeper log of (.*?) -+\n(.*?)\n[-=_]+ ", output, re.S)
    assert sorted(title for title, _ in logs) == ["own", *["restkeeper_server"] * 7]
    imported = [title for title, log in logs if "imported" in log]
    assert imported == ["own"] if in_process == "true" else imported.count("own") == 1
    if in_process == "false":  # each its own lines, and the first test of a process those of the start
        assert sorted(log.count(" request_id=") for _, log in logs) == [0, 0, 0, 0, 0, 0, 1, 2]
        assert imported.count("restkeeper_server") <= 2
    assert of_session(running.pid) == []


def test_what_a_fixture_declares(folder: Path, tmp_path: Path) -> None:
    """It is asked for at the end of the fixture's scope: also that of the server; each test is asked for its own."""
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nrestkeeper = {folder}\n")
    (tmp_path / "test_it.py").write_text(SHARED_TESTS)
    # schemathesis hides one of two errors.
    output, _ = run_tests(tmp_path, "-p", "no:schemathesis").communicate(timeout=SECONDS)
    assert "1 failed, 3 passed, 1 error" in output and "test_with_a_fault_in_vain - Failed" in output, output
    messages = set(re.findall("this has not happened as declared: (.*times)", output))  # a summary can repeat them
    assert sorted(messages) == [
        "close DELETE /users/*: 0 of 1 times",
        "respond PUT /users/*: 1 of 2 times",
        "stub GET /prices: 0 of 1 times",
    ], output


def test_other_projects(tmp_path: Path) -> None:
    """Nothing is imported for them, as pytest loads the plugin wherever the engine is installed."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # else one of a folder above would count
    (tmp_path / "test_it.py").write_text(UNRELATED)
    output, _ = run_tests(tmp_path).communicate(timeout=SECONDS)
    assert "1 failed, 1 passed" in output, output


@pytest.mark.parametrize("in_process", ["true", "false"])
def test_a_project_without_a_service(tmp_path: Path, in_process: str) -> None:
    """The message has where the service was looked for, and the setting."""
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nrestkeeper = shop\nrestkeeper_in_process = {in_process}\n")
    (tmp_path / "shop").mkdir()
    (tmp_path / "test_it.py").write_text("def test_it(api):\n    pass\n")
    output, _ = run_tests(tmp_path).communicate(timeout=SECONDS)
    assert f"\nthe service did not start: restkeeper: {tmp_path}/shop/app.py does not exist" in output
    assert f"\npytest's setting `restkeeper`, the service's folder or JSON file, is 'shop': {tmp_path}/shop\n" in output


def test_a_killed_run_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    """No process, no port and no file."""
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nrestkeeper = {folder}\n")
    (tmp_path / "test_it.py").write_text(HANGING)
    with run_tests(tmp_path, "-s") as running:
        assert running.stdout
        url, pid = running.stdout.readline().split()
        servers = children(int(pid))
        worker = children(servers[0])
        files = [Path(each) for pid in (*servers, *worker) for each in open_files(pid)]
        left = [each for each in files if each.exists() and SHARED in each.parents]
        os.kill(int(pid), signal.SIGKILL)
    until(lambda: not any(of_session(each) for each in servers))
    with pytest.raises(ConnectionRefusedError):
        send(int(urlsplit(url).port or 0), "GET", "/")
    assert worker and left == []  # so also if the server itself is killed


def test_it_is_not_imported(folder: Path) -> None:
    """In a deployment by the Procfile's command: no route, and no module in a worker."""
    with Gunicorn(folder, root=folder, app="", PYTHONPATH=str(ROOT)) as running:
        for path in ("/__harness__/spaces", "/__harness__/openapi.json", "/__harness__"):
            assert running.get(path).status == running.post(path, {}).status == 404
        assert {each for each in running.lines() if each.startswith("modules")} == {"modules []"}


def test_other_machines_are_allowed(folder: Path) -> None:
    """At all addresses, with ports that one can publish; the address of a space has the host that was asked."""
    with closing(socket.create_server(("127.0.0.2", 0))) as free:
        first = free.getsockname()[1]
    options = ["--host", "0.0.0.0", "--allow-remote", "--ports", f"{first}-{first + 20}"]  # noqa: S104
    command = [sys.executable, "-m", "restkeeper", "harness", str(folder), *options]
    with (
        subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running,
        ExitStack() as ending,
    ):
        ending.callback(running.terminate)
        assert running.stdout
        address = urlsplit(json.loads(running.stdout.readline())["url"])
        assert address.hostname == "127.0.0.1"  # which a program on this machine can open
        for host, found in [("harness.test", "harness.test"), ("[fd00::1]:80", "[fd00::1]")]:
            made = send(int(address.port or 0), "POST", "/__harness__/spaces", {}, {"Host": host}).json()
            name, _, port = made["url"].removeprefix("http://").rpartition(":")
            assert name == found and first <= int(port) <= first + 20
            with closing(HTTPConnection("127.0.0.2", int(port), timeout=SECONDS)) as elsewhere:
                elsewhere.request("GET", "/users", headers={"Host": f"{name}:{port}"})
                assert response_of(elsewhere).json() == []
        running.terminate()
        assert "every caller may do everything" in running.communicate(timeout=SECONDS)[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "listens on 127.0.0.1 or ::1 only; restkeeper harness has --allow-remote"),  # noqa: S104
        (["--ports", "9199-9000"], "must be the first and the last port, such as 9000-9199"),
        (["--ports", "9000"], "must be the first and the last port, such as 9000-9199"),
    ],
)
def test_options_that_are_refused(folder: Path, options: list[str], message: str) -> None:
    """With one line."""
    command = [sys.executable, "-m", "restkeeper", "harness", str(folder), *options]
    done = subprocess.run(command, env=ENVIRON, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode and done.stdout == "" and message in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "option", "message"),
    [
        ({"HOST": "0.0.0.0"}, "--no-sendfile", "listen"),  # noqa: S104
        ({}, "--bind=0.0.0.0:0", "--bind 0.0.0.0: the test harness listens on 127.0.0.1"),
        ({"DATABASE_URL": "sqlite:///a.db"}, "--no-sendfile", "needs DATABASE_URL=memory://"),
    ],
)
def test_others_cannot_reach_it(folder: Path, settings: dict[str, str], option: str, message: str) -> None:
    """The start refuses other hosts and lasting stores."""
    environ = {"HARNESS": "1", "DATABASE_URL": "memory://", "WEB_CONCURRENCY": "1", "AUTH": "open-to-all"}
    command, environ = [*command_of("web"), option], ENVIRON | environ | settings
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode and message in done.stderr, done.stdout + done.stderr
