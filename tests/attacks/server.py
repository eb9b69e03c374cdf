"""Attacks on connections and on the data that is read from them."""

import resource
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path

from bench.load import run
from tests.attacks.health import Health
from tests.live import Gunicorn
from tests.waiting import SECONDS

WORST = 0.3  # seconds that /healthz may take during an attack, on a machine with other load
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /products HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def connect(server: Gunicorn, source: str = "127.0.0.1") -> socket.socket:
    """A connection from an address of this machine."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=10, source_address=(source, 0))


def status_of(server: Gunicorn, request: bytes) -> tuple[bytes, float]:
    """The status line of the response to a request, and the seconds until then."""
    with connect(server) as client:
        began = time.perf_counter()
        with suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(request)
        return client.recv(65536).partition(b"\r\n")[0], time.perf_counter() - began


def resident(server: Gunicorn) -> int:
    """Bytes of memory that the workers use."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in server.worker_pids()]
    return sum(pages) * resource.getpagesize()


def attack_hosts(folder: Path) -> str:
    """Hosts that look like IDNA names and have the length of the longest header field."""
    request = HEALTHZ.replace(b"localhost", b"xn--" + b"a" * 8000)
    with Gunicorn(folder, LOG_LEVEL="error") as server, Health(server) as health:
        found = [status_of(server, request) for _ in range(300)]
    lines = [line for line, _ in found]
    assert set(lines) == {b"HTTP/1.1 400 BAD REQUEST", b"HTTP/1.1 429 TOO MANY REQUESTS"}, set(lines)
    assert lines.count(b"HTTP/1.1 400 BAD REQUEST") <= 2 * 20  # the quota of two windows
    assert health.worst < WORST
    return f"300 refused in {sum(took for _, took in found):.2f} s, worst /healthz {health.worst * 1000:.0f} ms"


def attack_chunks(folder: Path) -> str:
    """15 MiB of one-byte chunks on each of four connections."""
    flood = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * (15 * 2**20 // 6)
    with Gunicorn(folder, LOG_LEVEL="error") as server, Health(server) as health, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: status_of(server, flood), range(4)))
    assert {line for line, _ in found} == {b"HTTP/1.1 400 BAD REQUEST"}, found
    assert health.worst < WORST and max(took for _, took in found) < 2, (health.worst, found)
    return f"refused after {max(took for _, took in found):.2f} s, worst /healthz {health.worst * 1000:.0f} ms"


def attack_late_readers(folder: Path) -> str:
    """Clients that send 10 MiB before they read anything get their 413."""
    with Gunicorn(folder, LOG_LEVEL="error") as server, ThreadPoolExecutor(16) as pool:

        def status(_: int) -> int:
            with closing(HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
                connection.request("POST", "/products", bytes(10 * 2**20), {"Content-Type": "application/json"})
                return connection.getresponse().status

        found = list(pool.map(status, range(60)))
        assert found == [413] * 60, found
        return f"60 of 60 by http.client, 16 at a time; {_by_node(server)}"


def _by_node(server: Gunicorn) -> str:
    if not (node := shutil.which("node")):
        return "node is not on this machine"
    script = f"""
        const headers = {{"Content-Type": "application/json"}};
        const options = {{method: "POST", body: Buffer.alloc(10 << 20), headers}};
        let found = 0;
        for (let n = 0; n < 20; n++)
            await fetch("{server.base}/products", options).then(answer => found += answer.status == 413, () => 0);
        console.log(found);
    """
    done = subprocess.run([node, "--input-type=module", "-e", script], capture_output=True, text=True, timeout=50)
    assert done.stdout.strip() == "20", done.stdout + done.stderr
    return "20 of 20 by node's fetch"


def attack_slow_readers(folder: Path) -> str:
    """A hundred clients request pages and never read the responses."""
    with Gunicorn(folder, LOG_LEVEL="error", MAX_ITEM="1000000") as server:
        for n in range(20):
            assert server.post("/products", {"name": str(n), "description": "x" * 9_000}).status in (200, 422)
        before = resident(server)
        clients = []
        with Health(server) as health:
            for _ in range(100):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("127.0.0.1", server.port))
                client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400)
                clients.append(client)
            time.sleep(5)  # in which they read nothing
            grown = resident(server) - before
        for client in clients:
            client.close()
    assert grown < 2 * 64 * 2**20 + 100 * 2**20, grown
    assert health.worst < 1  # they also count as busy until their buffers are full
    return f"memory grew by {grown >> 20} MiB, worst /healthz {health.worst * 1000:.0f} ms"


def attack_idle_connections(folder: Path) -> str:
    """2,300 connections that send nothing, from one address, then from many; others can still connect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    try:
        return ", ".join(f"{name}: {_idle(folder, many)}" for name, many in (("one address", 1), ("many", 200)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _idle(folder: Path, addresses: int) -> str:
    idle = []
    times = []
    with Gunicorn(folder, LOG_LEVEL="error") as server:
        try:
            for n in range(2300):
                idle.append(connect(server, f"127.0.2.{n % addresses + 1}"))
                if n % 3 == 0:
                    idle[-1].sendall(HEALTHZ[:-2])
                if n % 50 == 0:
                    line, took = status_of(server, HEALTHZ)
                    assert line == b"HTTP/1.1 200 OK", line
                    times.append(took)
        finally:
            for each in idle:
                each.close()
    assert max(times) < 1
    return f"others answered after at most {max(times) * 1000:.0f} ms"


def attack_busy_connections(folder: Path) -> str:
    """64 connections are never idle; each new one gets a response in its turn."""
    with Gunicorn(folder, LOG_LEVEL="error") as server, ThreadPoolExecutor(1) as pool:
        load = pool.submit(run, [server.port], [HEALTHZ], connections=64, seconds=6)
        times = []
        while not load.done():
            line, took = status_of(server, HEALTHZ)
            assert line == b"HTTP/1.1 200 OK", line
            times.append(took)
        times.sort()
    p50, p99 = (1000 * times[int(len(times) * part)] for part in (0.5, 0.99))
    assert p99 < 500
    beside = f"{len(times)} new connections beside 64 busy ones (p99 {load.result(timeout=SECONDS).p99:.0f} ms)"
    return f"{beside}: p50 {p50:.0f} ms, p99 {p99:.0f} ms"
