"""A test of what a service promises under faults: clients on the same items, and a check of what they saw.

What is answered is done once, and what is not answered once or never: creates, changes and deletes, arrays, batches and
actions. The history of each item is linearizable, also that of a singleton; each change is once in the feed, in order,
and was delivered; no id is given twice; no item refers to nothing, and what a deletion does to others is done with it;
functions before and after each write have run once. Without faults, what a rule of a function allows once is done once.

`python -m tests.soak` runs it on SQLite; four times a second a process or all of them are killed with -9. With
`--store postgresql` there are three instances, with faults of the database too. `--kills 200` kills so many processes,
and does nothing else; with `--store file`, those that serve a JSON file. `make test` runs it for some seconds.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple, TypeVar

from tests.cluster import SECURED, Cluster, add_options, running
from tests.file_kills import kill_file_servers
from tests.histories import FeedEvent, Operation, Refusal, check, check_log
from tests.live import ROOT
from tests.races import race
from tests.receiver import Receiver
from tests.recorder import BACKOFF, ITEMS, PATIENCE, SINGLETON, Client, NotSent, Recorder
from tests.shop import BOUNDS
from tests.stores import SqliteStores

SHOP = "tests.shop.catalogue"
CLIENTS = 8
DELIVERERS = 2
TYPES = ["brand.*", "product.*", "part.*", "offer.*", "settings.*"]  # of events that are delivered
WEBHOOK_SECONDS = 5  # for which an endpoint, which is in the process of the clients, can be busy
EVERY = 0.25  # seconds from the end of a fault to the next
ROUNDS = 100  # of each race for what a rule allows once
RESPONSES = 5000  # after which everything has happened: mostly after some hundreds
FILE_KILLS = 300  # of servers of a JSON file
KILLS_A_ROUND = 4  # of the faults that kill a process
SHOWN = 20  # lines of what is wrong
SETTINGS = {
    "WEBHOOK_ALLOW_PRIVATE": "1",
    "LOG_LEVEL": "error",
    BOUNDS: json.dumps({"webhook_timeout": WEBHOOK_SECONDS, "webhook_retries": [0.1] * 300}),
}

T = TypeVar("T")


class Fault(NamedTuple):
    """What disturbs the service: `inject` begins it, and `heal` ends it after so many `seconds`."""

    name: str
    inject: Callable[[], None]
    heal: Callable[[], None] = lambda: None
    seconds: float = 0.0


class HistoryRun:
    """Clients and faults in turn. All `bases` are instances of one service.

    It lasts for so many `seconds`, until each fault was injected so many `times`, and until everything has happened.
    """

    def __init__(
        self,
        bases: Sequence[str],
        faults: Sequence[Fault],
        *,
        seconds: float,
        times: int,
        headers: Mapping[str, str],
    ) -> None:
        self.recorder = Recorder()
        self.injected: Counter[str] = Counter()
        self._faults, self._seconds, self._times = faults, seconds, times
        self._stop = threading.Event()
        start = f"/api/v1/events?collection={','.join([*ITEMS, SINGLETON, 'logs'])}&after="
        self._auditor = Client(CLIENTS, self.recorder, bases, f"{start}latest", headers)
        until_clear(self._auditor.follow)
        cursor = self._auditor.cursor
        self._clients = [Client(number, self.recorder, bases, cursor, headers) for number in range(CLIENTS)]

    def run(self) -> None:
        """Record a history and check it. Raises AssertionError with what is wrong."""
        try:
            until_clear(self._auditor.create_settings)
            self._record()
            found = self._read_everything()
        finally:
            for client in (self._auditor, *self._clients):
                client.close()
        events, history = self._auditor.events, self.recorder.history
        found += [f"two feeds: {_difference(each, self._auditor)}" for each in self._clients if each.events != events]
        found += check(history, events) + check_log(events, self._auditor.logged)
        found += [f"has not happened: {each}" for each in self.recorder.missing()]
        assert not found, "\n".join(found[:SHOWN])

    def _record(self) -> None:
        tasks = [self._inject_faults, *(partial(client.run, self._stop) for client in self._clients)]
        with ThreadPoolExecutor(len(tasks)) as pool:
            running = [pool.submit(self._until_stop, task) for task in tasks]
            end = time.monotonic() + self._seconds
            while not self._stop.wait(0.02):
                if time.monotonic() > end and self._is_enough():
                    break
            self._stop.set()
        for each in running:
            each.result()

    def _is_enough(self) -> bool:
        injected = all(self.injected[fault.name] >= self._times for fault in self._faults)
        return injected and (self.recorder.clear > RESPONSES or not self.recorder.missing())

    def _until_stop(self, task: Callable[[], None]) -> None:
        """Run a task that ends at the stop. If it fails, all stop."""
        try:
            task()
        except BaseException:
            self._stop.set()
            raise

    def _inject_faults(self) -> None:
        """Inject the faults in turn. Raises AssertionError if the service does not recover from one."""
        for fault in cycle(self._faults):
            self._await_progress(fault)
            if self._stop.wait(EVERY):
                return
            fault.inject()
            self.injected[fault.name] += 1
            try:
                self._stop.wait(fault.seconds)
            finally:
                fault.heal()

    def _await_progress(self, fault: Fault) -> None:
        """Wait until each client can have had a clear response again."""
        due, deadline = self.recorder.clear + CLIENTS, time.monotonic() + PATIENCE
        while self.recorder.clear < due and not self._stop.wait(0.01):
            assert time.monotonic() < deadline, f"no recovery before the next {fault.name}"

    def _read_everything(self) -> list[str]:
        """Read all items and the feed, again if there was a change meanwhile: by a request without a response.

        What differs between them is returned.
        """
        deadline = time.monotonic() + PATIENCE
        self._follow_to_the_end()
        while True:
            events, reads = len(self._auditor.events), len(self.recorder.history)
            for item in list(self.recorder.items.values()):
                if not item.id:
                    until_clear(partial(self._auditor.find, item))
                if item.id:
                    until_clear(partial(self._auditor.read, item))
            listed = Counter({SINGLETON: 1}) + Counter(name for each in ITEMS for name in self._list_all(each))
            self._follow_to_the_end()
            if len(self._auditor.events) == events:
                return self._compare(self.recorder.history[reads:], listed)
            assert time.monotonic() < deadline, "the service changes items by itself"

    def _follow_to_the_end(self) -> None:
        for client in (self._auditor, *self._clients):
            before = -1
            while before < len(client.events):
                before = len(client.events)
                until_clear(client.follow)

    def _list_all(self, collection: str) -> list[str]:
        names, path = list[str](), f"/{collection}?sort=name&limit=100"  # by an index, as `find`
        while path:
            page, path = until_clear(partial(self._auditor.page, collection, path))
            names += page
        return names

    def _compare(self, reads: Sequence[Operation], listed: Counter[str]) -> list[str]:
        """The last reads and the items of the complete list that are not what the feed says."""
        last = {event.item: event for event in self._auditor.events}
        expected = {name: each.stored for name, each in last.items() if each.type != "deleted"}
        wrong = [each for each in reads if each.result != expected.get(each.item, Refusal.MISSING)]
        found = [f"the feed ends with {last.get(each.item)}, but there is {each}" for each in wrong]
        if listed != Counter(expected.keys()):
            found.append(f"not in the feed, or twice: {listed - Counter(expected.keys())}")
            found.append(f"not in the list: {Counter(expected.keys()) - listed}")
        return found

    @property
    def events(self) -> list[FeedEvent]:
        """The complete feed."""
        return self._auditor.events

    def report(self) -> str:
        """What was done."""
        faults = ", ".join(f"{count} × {name}" for name, count in self.injected.items())
        return (
            f"{len(self.recorder.history)} operations on {len(self.recorder.items)} items are linearizable, each of "
            f"{len(self.events)} events once, in order and delivered; the slowest response took "
            f"{self.recorder.slowest:.1f} s; faults: {faults}"
        )


def until_clear(send: Callable[[], T]) -> T:
    """Repeat a request until it has a clear response. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(NotSent):
            if result := send():
                return result
        time.sleep(BACKOFF)
    raise TimeoutError("the service does not recover")


def _difference(one: Client, other: Client) -> tuple[FeedEvent, FeedEvent] | str:
    pairs = zip(one.events, other.events, strict=False)
    return next((pair for pair in pairs if pair[0] != pair[1]), f"{len(one.events)} and {len(other.events)} events")


class Deliverers:
    """A number of `flask deliver` processes; a killed one is started again, as a supervisor would do it."""

    def __init__(self, database_url: str) -> None:
        self._environ = {
            "PATH": os.environ["PATH"],
            "DATABASE_URL": database_url,
            "FLASK_APP": SHOP,
            **SETTINGS,
        }
        self._running = [self._start() for _ in range(DELIVERERS)]

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "flask", "deliver"]
        started = subprocess.Popen(command, cwd=ROOT, env=self._environ, stderr=subprocess.PIPE)
        assert started.stderr and started.stderr.readline().startswith(b"delivering"), "it did not start"
        return started

    def kill(self) -> None:
        """Kill the oldest with -9, and start another one."""
        killed = self._running.pop(0)
        killed.kill()
        killed.communicate()
        self._running.append(self._start())

    def stop(self) -> None:
        """Stop all. Raises AssertionError if one does not exit normally."""
        for each in self._running:
            each.send_signal(signal.SIGTERM)
        outputs = [each.communicate(timeout=PATIENCE)[1] for each in self._running]
        assert [each.returncode for each in self._running] == [0] * DELIVERERS, outputs


def require_deliveries(run: HistoryRun, receiver: Receiver) -> None:
    """Each event of the feed arrived, was verified, and of an item the events arrived first in their order."""
    for name in ("healthy", "flaky"):
        inbox, first = receiver.inboxes[name], dict[str, dict[str, Any]]()
        with receiver.changed:
            before = -1
            while before < (now := len(set(inbox.ids))) < len(run.events):  # as long as more arrive
                before = now
                receiver.changed.wait_for(lambda inbox=inbox, now=now: len(set(inbox.ids)) > now, PATIENCE)
        for id, event in zip(inbox.ids, inbox.events, strict=True):
            first.setdefault(id, event)  # it may arrive again
        arrived = run.recorder.events([*first.values()])
        assert len(arrived) == len(run.events), f"{len(run.events) - len(arrived)} missing at {name}"
        assert by_item(arrived) == by_item(run.events), f"wrong order at {name}"
    assert not any(inbox.refused for inbox in receiver.inboxes.values()), "bad signatures"


def by_item(events: Iterable[FeedEvent]) -> dict[str, list[FeedEvent]]:
    """The events of each item."""
    found: dict[str, list[FeedEvent]] = {}
    for event in events:
        found.setdefault(event.item, []).append(event)
    return found


def faults_of(cluster: Cluster, deliverers: Deliverers, *, only_kills: bool = False) -> list[Fault]:
    """What can happen to a service: a killed process, and on a PostgreSQL of its own all that happens to a database."""
    killed = Fault("worker killed", cluster.kill_worker)
    delivers = Fault("deliverer killed", deliverers.kill)
    instance = Fault("instance killed", cluster.kill_instance)
    if only_kills or not (server := cluster.server):
        return [killed, delivers, killed, instance]
    crash = partial(server.stop, immediate=True)
    return [
        killed,
        delivers,
        Fault("connections cut", server.cut_connections),
        Fault("database restarted", server.stop, server.start),
        killed,
        Fault("database paused", server.pause, server.resume, 1.0),
        Fault("connections cut", server.cut_connections),
        Fault("database crashed", crash, server.start, 0.5),
        instance,
        Fault("database killed", server.kill, server.start),
    ]


def soak(
    seconds: float, times: int = 0, store: str = "sqlite", instances: int = 0, *, only_kills: bool = False
) -> HistoryRun:
    """A run with its own service, of so many seconds and each fault so often at least."""
    settings = {**SECURED, **SETTINGS, "WEBHOOK_WORKER": "inside"}  # the web workers deliver, too
    app = f"{SHOP}:create_app()"
    with Receiver() as receiver, running(store, instances=instances, app=app, **settings) as cluster:
        credentials = cluster.credentials()
        for name, inbox in receiver.inboxes.items():
            webhook = {"url": f"{receiver.base}/{name}", "types": TYPES}
            inbox.secret = cluster.post("/api/v1/webhooks", webhook, credentials).json()["secret"]
        deliverers = Deliverers(cluster.database_url)
        try:
            faults = faults_of(cluster, deliverers, only_kills=only_kills)
            run = HistoryRun(cluster.bases, faults, seconds=seconds, times=times, headers=credentials)
            run.run()
            require_deliveries(run, receiver)
            if store == "sqlite":
                SqliteStores().require_whole(cluster.database_url)
        finally:
            receiver.ended.set()
            deliverers.stop()
    print(run.report())
    return run


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.soak")
    options.add_argument("--seconds", type=float, default=300.0)
    options.add_argument("--kills", type=int, default=0)
    add_options(options, "file")
    arguments = options.parse_args()
    if arguments.store == "file":
        kill_file_servers(arguments.kills or FILE_KILLS)
    elif kills := arguments.kills:
        soak(0, -(-kills // KILLS_A_ROUND), arguments.store, arguments.instances, only_kills=True)
    else:
        soak(arguments.seconds, 1, arguments.store, arguments.instances)
        race(arguments.store, ROUNDS)
