"""`python -m bench.start`: how long a test waits for its service. Fails if that is too long, on a quiet machine.

An application of four collections, in processor time, after the first one of the process; the start and the end of a
LiveServer; and its spaces: made, reset after 1,000 items, and dropped. And how long a service with nothing but idle
connections takes to stop.
"""

import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

from restkeeper import Config, LiveServer, Space, Version, Versions, create_app
from tests import shop
from tests.live import Gunicorn
from tests.shop import orders, tags

ROUNDS = 50
RESOURCES = [*shop.RESOURCES, orders.ORDERS, tags.TAGS]
TWO = Versions(Version("v1"), Version("v2"), unversioned="v1")
MOST = {  # ms
    "create_app": 10,
    "create_app, two versions": 15,
    "LiveServer.close": 300,
    "a space": 10,
    "Space.reset": 5,
    "Space.drop": 5,
    "a stop with idle connections": 1500,  # of which it answers on them for a second
}


def measured(work: Callable[[], object], rounds: int, clock: Callable[[], float]) -> list[float]:
    """The milliseconds of each round."""
    found = []
    for _ in range(rounds):
        begun = clock()
        work()
        found.append((clock() - begun) * 1000)
    return found


def stop() -> float:
    """The milliseconds from the signal to the end of a service with 100 idle connections."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(Gunicorn(folder, RATE_LIMIT="off"))
        for _ in range(100):
            connection = HTTPConnection("127.0.0.1", server.port)
            stack.callback(connection.close)
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        begun = time.perf_counter()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait()
        return (time.perf_counter() - begun) * 1000


def main() -> int:
    """Print the medians; 1 if one is too long."""
    first = measured(lambda: create_app(Config(), RESOURCES), 1, time.process_time)
    servers = [LiveServer(Path(__file__).parent.parent) for _ in range(5)]
    data = {"products": [{"name": f"Lamp {number}"} for number in range(1000)]}
    with LiveServer(Path(__file__).parent.parent) as server:
        server.space().drop()  # the worker has started
        spaces: list[Space] = []
        of_spaces = {
            "a space": measured(lambda: spaces.append(server.space()), ROUNDS, time.perf_counter),
            "Space.seed, 1,000 items": measured(lambda: spaces[0].seed(data), 1, time.perf_counter),
            "Space.reset": measured(lambda: spaces[0].reset(), 1, time.perf_counter),
            "Space.drop": measured(lambda: spaces.pop().drop(), ROUNDS, time.perf_counter),
        }
    times = {
        "create_app, first": first,
        "create_app": measured(lambda: create_app(Config(), RESOURCES), ROUNDS, time.process_time),
        "create_app, two versions": measured(
            lambda: create_app(Config(), RESOURCES, versions=TWO), ROUNDS, time.process_time
        ),
        "LiveServer, start": measured(lambda: servers.append(servers.pop(0).__enter__()), 5, time.perf_counter),
        "LiveServer.close": measured(lambda: servers.pop().close(), 5, time.perf_counter),
        **of_spaces,
        "a stop with idle connections": [stop() for _ in range(5)],
    }
    for name, each in times.items():
        limit = f" (at most {MOST[name]})" if name in MOST else ""
        print(f"{name:<28} {statistics.median(each):8.1f} ms{limit}")
    return int(any(statistics.median(times[name]) > most for name, most in MOST.items()))


if __name__ == "__main__":
    sys.exit(main())
