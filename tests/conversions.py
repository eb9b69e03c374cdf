"""`restkeeper migrate` is ended by kill -9, at any item and at the commit, beside writers of the former program.

`python -m tests.conversions` does so often; `make test` does it some times.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg

from restkeeper.resources.evolution import Convert
from restkeeper.resources.resource import Resource
from restkeeper.resources.step import Step, revision_of
from restkeeper.schemas.fields import Text, Whole
from restkeeper.storage.interface import Index
from restkeeper.web.application import Application
from tests.live import ROOT, Gunicorn, send
from tests.postgresql_server import PostgresServer
from tests.processes import supervise
from tests.programs import resource
from tests.shop import create_app
from tests.stores import SqliteStores
from tests.waiting import SECONDS, until

KILL = "RESTKEEPER_TESTS_KILL"  # the item whose conversion ends the process, and the milliseconds after the last one
LETTERS = "kmn"  # of which there are a hundred items each
KILLED_ITEMS = 100 * len(LETTERS)
WRITERS = 3
PAUSE = 0.02  # seconds between two writes of a writer, so that the migration has its turn
_converted = [0]  # items


def _end_at(name: str) -> str:
    """The new value of an item; it ends this process by kill -9 at the one that KILL says, or some time after all."""
    item, milliseconds = map(int, os.environ.get(KILL, "0 0").split())
    _converted[0] += 1
    number = _converted[0]
    if number == item:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 1 and item > KILLED_ITEMS:
        Thread(target=_end_after_all, args=(milliseconds,), daemon=True).start()
    return name.upper()


_ENDING = Convert({"name": Text(1, 50, required=True)}, ["title"], up=_end_at, down=str.lower)


def _end_after_all(milliseconds: int) -> None:
    while _converted[0] < KILLED_ITEMS:
        time.sleep(0.0005)
    time.sleep(milliseconds / 1000)
    os.kill(os.getpid(), signal.SIGKILL)


def _declared(name: str, *steps: Step) -> Resource:
    definitions = {name: Text(1, 50, required=True), "count": Whole(load_default=0)}
    return resource(definitions, *steps, indexes=(Index(name, unique=True), Index("count")))


def create_former() -> Application:
    """The program whose items are migrated."""
    return create_app(None, [_declared("name")])


def create_latter() -> Application:
    """The program after it. What it converts can end it: see KILL."""
    return create_app(None, [_declared("title", _ENDING)])


class Writer:
    """A client of the former program that counts in items of its own, and creates others."""

    def __init__(self, port: int, number: int, stop: Event) -> None:
        self._port, self._number, self._stop = port, number, stop
        self.counted: dict[str, tuple[int, int]] = {}  # by name: what was answered, and what was sent
        self.paths: dict[str, str] = {}
        self.answered = 0

    def run(self) -> None:
        turns = count()
        while not self._stop.wait(PAUSE):
            turn = next(turns)
            name = f"w{self._number}-{turn % 50}"
            done, sent = self.counted.get(name, (-1, -1))
            self.counted[name] = done, turn
            with suppress(OSError):
                if path := self.paths.get(name):
                    answered = send(self._port, "PATCH", path, {"count": turn})
                else:
                    answered = send(self._port, "POST", "/notes", {"name": name, "count": turn})
                    if answered.status == 409:  # one that was not answered was stored
                        found = send(self._port, "GET", f"/notes?name={name}")
                        if found.status == 200:
                            self.paths[name] = f"/notes/{found.json()[0]['id']}"
                        continue
                assert answered.status in (200, 201, 503), answered
                if answered.status != 503:
                    self.answered += 1
                    self.counted[name] = turn, turn
                    self.paths[name] = f"/notes/{answered.json()['id']}"


class Kills:
    """A former program that serves while `restkeeper migrate` of the next one is killed."""

    def __init__(self, folder: Path, url: str, seed: int, shared: bool) -> None:
        self._folder, self._url, self._shared = folder, url, shared
        self._chance = random.Random(seed)  # noqa: S311
        self.kills = 0

    def run(self, times: int) -> bool:
        """Kill so often, or until one comes after the commit: whether that was so. Then the collection is complete."""
        settings = {"DATABASE_URL": self._url, "RATE_LIMIT": "off", "LOG_LEVEL": "error"}
        stop = Event()
        with (
            Gunicorn(self._folder, workers=1, app="tests.conversions:create_former()", **settings) as former,
            ThreadPoolExecutor(WRITERS) as pool,
        ):
            for letter in LETTERS:
                made = former.post("/notes", [{"name": f"{letter}{n}"} for n in range(100)])
                assert made.status == 200, made
            writers = [Writer(former.port, number, stop) for number in range(WRITERS)]
            running = [pool.submit(each.run) for each in writers]
            try:
                is_converted = False
                while self.kills < times and not is_converted:
                    before = sum(each.answered for each in writers)
                    until(lambda: sum(each.answered for each in writers) > before + WRITERS)  # noqa: B023
                    item = self._chance.randrange(1, KILLED_ITEMS * 13 // 10)
                    self._migrate(f"{item} {self._chance.randrange(300)}")
                    self.kills += 1
                    is_converted = self._is_converted(former)
                    if not is_converted and self._shared:
                        self._migrate("", "--cancel")
                if not is_converted:
                    self._migrate("")
                    assert self._is_converted(former)
            finally:
                stop.set()
                for each in running:
                    each.result(SECONDS)
        self._require_all(writers)
        return is_converted

    def _migrate(self, kill: str, *options: str) -> None:
        environ = {
            "PATH": os.environ["PATH"],
            "DATABASE_URL": self._url,
            "FLASK_APP": "tests.conversions:create_latter",
        }
        command = [sys.executable, "-m", "flask", "migrate", *options]
        done = subprocess.run(
            command, cwd=ROOT, env=environ | ({KILL: kill} if kill else {}), capture_output=True, timeout=SECONDS
        )
        expected = (0, -signal.SIGKILL) if kill else (0,)
        assert done.returncode in expected, done

    def _is_converted(self, former: Gunicorn) -> bool:
        """Whether the items are in the new form: all of them, or none."""
        fingerprints = {row[0] for row in self._rows("SELECT DISTINCT fingerprint FROM items")}
        revisions = {revision_of(each) for each in fingerprints}
        is_converted = revisions == {2}
        assert self._rows("SELECT DISTINCT collection FROM items") == [("notes",)]
        assert len(revisions) == 1, fingerprints
        ((stored,),) = self._rows("SELECT DISTINCT revision FROM counters WHERE collection = 'notes'")
        allowed = {2} if is_converted else {1, -1} if self._shared else {1}
        assert stored in allowed, stored
        assert former.get("/notes").status == (200 if stored == 1 else 503)
        return is_converted

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        if self._shared:
            with psycopg.connect(self._url) as connection:
                return connection.execute(statement.encode()).fetchall()
        return SqliteStores().execute(self._url, statement)

    def _require_all(self, writers: Sequence[Writer]) -> None:
        """Each answered write is there, once, in the new form."""
        rows = self._rows("SELECT body FROM items WHERE collection = 'notes'")
        items = {each["title"]: each["count"] for each in (json.loads(body) for (body,) in rows)}
        assert len(items) == len(rows)
        assert {f"{letter}{n}" for letter in LETTERS.upper() for n in range(100)} <= items.keys()
        for writer in writers:
            for name, (answered, sent) in writer.counted.items():
                assert answered <= items.get(name.upper(), -1) <= sent, f"{name}: {answered}, {items.get(name.upper())}"


def main(store: str, times: int) -> None:
    """Kill `restkeeper migrate` so often, with a store for each conversion."""
    kills = after = 0
    supervise()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if store == "postgresql":
            new_url = stack.enter_context(PostgresServer()).create_database
        else:
            new_url = (f"sqlite:///{folder}/{number}.db" for number in count()).__next__
        while kills < times:
            run = Kills(folder, new_url(), kills, store == "postgresql")
            after += run.run(times - kills)
            kills += run.kills
    print(f"{kills} kills on {store}, {after} of them after the commit: nothing was lost")


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.conversions")
    options.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    options.add_argument("--kills", type=int, default=100)
    arguments = options.parse_args()
    main(arguments.store, arguments.kills)
