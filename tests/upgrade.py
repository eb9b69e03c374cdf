"""Instances of two revisions of a service on one PostgreSQL, and clients that use them all the time.

The clients are behind a proxy that knows the instances and nothing of their state: each request goes to one of them at
random; if the connection is refused or closed, or for a 503 with Retry-After, it goes to the other one, once.
"""

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psycopg

from restkeeper.storage.postgresql.migrations import MIGRATIONS
from tests.live import Gunicorn, HttpResponse, response_of
from tests.recorder import next_of
from tests.waiting import SECONDS, until

CLIENTS = 3
PAUSE_SECONDS = 0.005  # of a client after each operation: an instance that starts gets its share of the processors
SHARED = 4  # items that all clients change
ENOUGH = 60  # responses of an instance, after which the next phase begins
KNOWN = len(MIGRATIONS)  # migrations of the old program
MIGRATION = """\
-- oldest: {oldest}
ALTER TABLE items ADD COLUMN made_up text COLLATE "C" NOT NULL DEFAULT '';
CREATE TABLE made_up (id text COLLATE "C" PRIMARY KEY);
"""
NEWER = {"added": "/api/v1/notes", "renamed": "/api/v2/notes"}  # where `weight` is written
WAITING = """\
SELECT count(*) > 1
FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'"""


class Proxy:
    """The instances that get requests, by name, and the counts of their responses."""

    def __init__(self) -> None:
        self.instances: dict[str, Gunicorn] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        self._counting = threading.Lock()

    def count(self, name: str, result: str) -> None:
        with self._counting:
            self.counts[name, result] += 1


class Client:
    """A client, with a connection to each instance. It records what it created and changed."""

    def __init__(self, number: int, proxy: Proxy) -> None:
        self._proxy = proxy
        self._number = number
        self._chance = random.Random(number)  # noqa: S311
        self._connections: dict[int, HTTPConnection] = {}
        self.created: list[str] = []
        self.raised: Counter[tuple[str, str]] = Counter()  # by id and field
        self.events: list[dict[str, Any]] = []
        self._next_events = "/api/v1/events?limit=100"

    def work(self, stop: threading.Event, shared: Sequence[str], newer_path: str) -> None:
        """Do one operation after the other. Raises AssertionError for an unexpected response."""
        while not stop.wait(PAUSE_SECONDS):
            id = self._chance.choice(shared)
            match self._chance.randrange(6):
                case 0:
                    self.create(f"{self._number}-{len(self.created)}")
                case 1 if "new" in self._proxy.instances:
                    self.raise_field(id, "weight", newer_path, "new")
                case 2:
                    self.follow()
                case _:
                    self.raise_field(id, self._chance.choice(["stock", "mark"]))

    def create(self, name: str) -> str:
        """Create an item, by two requests with one key. A list has it at once."""
        key = {"Idempotency-Key": f'"{name}"'}
        first, second = (self.send("POST", "/notes", {"name": name}, key) for _ in range(2))
        assert first.status == 200 and first.body == second.body, (first, second)
        assert first.headers["etag"] == second.headers["etag"], (first, second)
        replayed = [each.headers.get("idempotent-replayed") for each in (first, second)]
        assert replayed == [None, "true"], (first, second)
        id = str(first.json()["id"])
        self.created.append(id)
        found = self.get(f"/notes?name={name}")
        assert [each["id"] for each in found.json()] == [id], found
        return id

    def raise_field(self, id: str, field: str, path: str = "/notes", name: str = "") -> None:
        """Add one to a field, on condition that the item is as it was read."""
        while True:
            item = self.get(f"{path}/{id}", name)
            body = {field: item.json()[field] + 1}
            changed = self.send("PATCH", f"{path}/{id}", body, {"If-Match": item.headers["etag"]}, name)
            if changed.status == 200:
                after = {"version": item.json()["version"] + 1, "updated_at": changed.json()["updated_at"]}
                assert changed.json() == item.json() | body | after, f"{body} made {changed} of {item}"
                self.raised[id, field] += 1
                return
            assert changed.status == 412, changed

    def follow(self) -> bool:
        """The next page of the feed; whether it has events."""
        page = self.get(self._next_events)
        self.events += [each["data"] for each in page.json()]
        self._next_events = next_of(page)
        return bool(page.json())

    def get(self, path: str, name: str = "") -> HttpResponse:
        response = self.send("GET", path, name=name)
        assert response.status == 200, response
        return response

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, name: str = ""
    ) -> HttpResponse:
        """Send a request to the instance of this name, or to one at random and then to the other."""
        instances = self._proxy.instances.copy()
        for each in [name] if name else self._chance.sample(sorted(instances), len(instances)):
            if response := self._try(each, instances[each].port, method, path, body, headers or {}):
                return response
        raise AssertionError(f"no response to {method} {path}; there were {self._proxy.counts}")

    def _try(
        self, name: str, port: int, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> HttpResponse | None:
        connection = self._connections.setdefault(port, HTTPConnection("127.0.0.1", port, timeout=SECONDS))
        content = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, content, {"Content-Type": "application/json", **headers})
            response = response_of(connection)
        except ConnectionError as error:
            connection.close()
            self._proxy.count(name, "refused" if isinstance(error, ConnectionRefusedError) else "closed")
            return None
        if response.status != 503:
            self._proxy.count(name, str(response.status))
            return response
        assert response.headers["retry-after"], response
        self._proxy.count(name, f"503: {response.json()['detail']}")
        return None

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


class Upgrade:
    """Instances of an old revision and of a newer one on one database, and clients that work all the time.

    The program of the newer revision has a migration more, after which the `oldest` one can work with the store.
    """

    def __init__(self, folder: Path, url: str, revision: str, oldest: int = KNOWN) -> None:
        self.url = url
        self.newer_path = NEWER[revision]
        self.proxy = Proxy()
        self.clients = [Client(number, self.proxy) for number in range(CLIENTS)]
        self._folder = folder
        (folder / f"{KNOWN + 1:04}.sql").write_text(MIGRATION.format(oldest=oldest))
        self._apps = {
            "old": "tests.revisions:create_app('old')",
            "new": f"tests.revisions:create_app('{revision}', '{folder}')",
        }
        self._started: list[Gunicorn] = []
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(CLIENTS + 1)
        self._working: list[Future[None]] = []
        self.shared: list[str] = []

    def start(self, name: str) -> Gunicorn:
        """Start an instance of the revision of this name, which gets requests from the moment when it is up."""
        folder = self._folder / f"{len(self._started)}"
        folder.mkdir()
        settings = {"DATABASE_URL": self.url, "RATE_LIMIT": "off", "LOG_LEVEL": "warning"}
        instance = Gunicorn(folder, workers=1, app=self._apps[name], **settings)
        self._started.append(instance)
        self.proxy.instances[name] = instance.__enter__()
        return instance

    def start_late(self, name: str) -> None:
        """Start an instance whose migration waits for a reader, until a request waits behind it."""
        with psycopg.connect(self.url) as reader, psycopg.connect(self.url, autocommit=True) as other:
            reader.execute("SELECT 1 FROM items")
            starting = self._pool.submit(self.start, name)
            self._until(lambda: starting.done() or other.execute(WAITING).fetchone() == (True,))
        starting.result(SECONDS)

    def stop(self, name: str) -> None:
        """Stop an instance gracefully. It gets requests until it has ended."""
        instance = self.proxy.instances[name]
        instance.process.terminate()
        assert instance.process.wait(SECONDS) == 0
        del self.proxy.instances[name]

    def load(self) -> None:
        """Create the shared items, and let the clients work."""
        self.shared = [self.clients[0].create(f"shared-{number}") for number in range(SHARED)]
        self._working = [
            self._pool.submit(each.work, self._stop, self.shared, self.newer_path) for each in self.clients
        ]

    def serve(self, *names: str) -> None:
        """Wait until each of these instances has given some more responses."""
        counts, before = self.proxy.counts, self.proxy.counts.copy()
        self._until(lambda: all(counts[name, "200"] - before[name, "200"] >= ENOUGH for name in names))

    def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition. Raises the error of a client."""
        until(lambda: condition() or any(each.done() for each in self._working))
        for each in self._working:
            if each.done():
                each.result()

    def end_load(self) -> None:
        """Let the clients finish. Raises the first error of one."""
        self._stop.set()
        for each in self._working:
            each.result(SECONDS)

    @property
    def created(self) -> list[str]:
        """The ids of all items."""
        return [id for each in self.clients for id in each.created]

    @property
    def raised(self) -> Counter[tuple[str, str]]:
        """What was added, by the item's id and the field."""
        return sum((each.raised for each in self.clients), Counter())

    def close(self) -> None:
        """End the clients and the instances."""
        self._stop.set()
        self._pool.shutdown()
        for client in self.clients:
            client.close()
        for instance in self._started:
            if instance.process.poll() is None:
                instance.process.terminate()
        for instance in self._started:
            instance.process.wait(SECONDS)
