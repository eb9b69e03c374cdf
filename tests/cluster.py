"""Instances of one service that share a database and a Redis: each is a real gunicorn, with some workers."""

import argparse
import itertools
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.live import Gunicorn, HttpResponse
from tests.ports import free_ports, is_free
from tests.postgresql_server import URL, Databases, PostgresServer
from tests.processes import supervise
from tests.redis_server import empty_redis
from tests.waiting import SECONDS, until

INSTANCES = 3
WORKERS = 2

# Settings of a service that requires a key, as when it is deployed; it has no limit of requests.
SECURED = {"AUTH": "required", "ADMIN_KEY": "an-admin-key-of-enough-characters", "RATE_LIMIT": "off"}


class Cluster:
    """`instances` of the tests' service on one database. Requests go to each of them in turn."""

    def __init__(
        self,
        folder: Path,
        database_url: str,
        *,
        instances: int = INSTANCES,
        workers: int = WORKERS,
        server: PostgresServer | None = None,
        **settings: str,
    ) -> None:
        self.database_url = database_url
        self.server = server
        self._folder, self._workers, self._settings = folder, workers, settings
        self._ports = free_ports(instances)
        self.instances = [self._new(number) for number in range(instances)]
        self._turns = itertools.cycle(range(instances))
        self._chance = random.Random(0)  # noqa: S311

    def _new(self, number: int) -> Gunicorn:
        folder = self._folder / str(number)
        folder.mkdir(exist_ok=True)
        settings = {"LOG_LEVEL": "warning", **self._settings, "DATABASE_URL": self.database_url}
        port, workers = self._ports[number], self._workers
        return Gunicorn(folder, workers=workers, port=port, start_new_session=True, **settings)

    @property
    def bases(self) -> list[str]:
        """The base URL of each instance, which it keeps."""
        return [f"http://127.0.0.1:{port}" for port in self._ports]

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, timeout: float = SECONDS
    ) -> HttpResponse:
        """Send a request to the next instance."""
        return self.instances[next(self._turns)].request(method, path, body, headers, timeout)

    def credentials(self) -> dict[str, str]:
        """The header of a new key that may do everything, of a service with the settings SECURED."""
        sent = {"name": "test", "scopes": ["admin"]}
        made = self.request("POST", "/api/v1/keys", sent, {"X-API-Key": SECURED["ADMIN_KEY"]})
        return {"X-API-Key": made.json()["secret"]}

    def get(self, path: str, headers: dict[str, str] | None = None, timeout: float = SECONDS) -> HttpResponse:
        return self.request("GET", path, None, headers, timeout)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> HttpResponse:
        return self.request("POST", path, body, headers)

    def worker_pids(self) -> list[int]:
        """The workers of all instances."""
        return [pid for each in self.instances for pid in each.worker_pids()]

    def kill_worker(self) -> None:
        """Kill one worker with SIGKILL; its instance starts another one."""
        self._chance.choice(self.instances).kill_worker(self._chance)

    def kill_instance(self) -> None:
        """Kill all processes of an instance with SIGKILL, and start it again."""
        number = self._chance.randrange(len(self.instances))
        killed = self.instances[number]
        os.killpg(killed.process.pid, signal.SIGKILL)
        killed.process.wait(SECONDS)
        until(lambda: is_free(self._ports[number]))  # a killed process may have threads that have not ended yet
        self.instances[number] = self._new(number).__enter__()

    def lines(self) -> list[str]:
        """The lines of all logs, without what is printed at the start."""
        return [line for each in self.instances for line in each.lines() if not line.startswith("Restkeeper ")]

    def __enter__(self) -> "Cluster":
        for each in self.instances:
            each.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        for each in self.instances:
            each.process.send_signal(signal.SIGTERM)
        for each in self.instances:
            each.__exit__(*exc)


@contextmanager
def running(store: str, *, instances: int = 0, workers: int = WORKERS, **settings: str) -> Iterator[Cluster]:
    """A service with a store of its own.

    On SQLite it is one instance; on PostgreSQL three, unless said otherwise, with a Redis. TEST_DATABASE_URL names
    another PostgreSQL, TEST_REDIS_URL another Redis.
    """
    supervise()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = None
        if store == "sqlite":
            url, instances = f"sqlite:///{folder}/restkeeper.db", instances or 1
        else:
            if other := os.environ.get(URL):
                databases = Databases(other)
            else:
                databases = server = stack.enter_context(PostgresServer())
            url, instances = databases.create_database(), instances or INSTANCES
            stack.callback(databases.drop_database, url)
            settings["REDIS_URL"] = stack.enter_context(empty_redis()).url
        yield stack.enter_context(Cluster(folder, url, instances=instances, workers=workers, server=server, **settings))


def add_options(options: argparse.ArgumentParser, *stores: str) -> None:
    """The options of a proof that choose its service. It can have other `stores`, too."""
    options.add_argument("--store", choices=["sqlite", "postgresql", *stores], default="sqlite")
    options.add_argument("--instances", type=int, default=0, help="default: 1 on SQLite, 3 on PostgreSQL")
