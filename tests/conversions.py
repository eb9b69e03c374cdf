"""A test of conversions: a collection is in one revision or in the next, and every version shows what it showed.

`histories` lets programs follow each other, each with steps from the revision of the one before, and three versions of
the API whose clients write. `kills` ends `restkeeper migrate` by kill -9, at any item and at the commit, beside writers
of the former program.

`python -m tests.conversions` runs both at full length; `make test` runs some.
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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
from click.testing import Result
from flask.testing import FlaskClient
from marshmallow import ValidationError, fields

from restkeeper.config import Config
from restkeeper.resources.evolution import Add, Convert, Remove, Rename, Step, revision_of
from restkeeper.resources.resource import Resource
from restkeeper.schemas.fields import ListOf, Text, Whole
from restkeeper.schemas.item import ItemSchema
from restkeeper.service import service_of
from restkeeper.storage.interface import Index
from restkeeper.versions import Version, Versions
from restkeeper.web.application import Application
from tests.live import ROOT, Gunicorn, send
from tests.postgresql_server import PostgresServer
from tests.processes import supervise
from tests.shop import create_app
from tests.stores import SqliteStores
from tests.waiting import SECONDS, until

REVISIONS = 5
SERVED = 3  # versions of the API
ITEMS = 15  # that a program creates, at most
WRITES = 12  # of the clients of each version

Item = dict[str, Any]
Fields = dict[str, "fields.Field[Any]"]

TEXT, WHOLE, DIGITS, TEXTS = "text", "whole", "digits", "texts"
DEFINED: Mapping[str, Any] = {
    TEXT: lambda: Text(0, 100, load_default="none"),
    WHOLE: lambda: Whole(load_default=0),
    DIGITS: lambda: Text(0, 100, load_default="0"),
    TEXTS: lambda: ListOf(Text(), load_default=list),
}


def value_of(kind: str, chance: random.Random) -> Any:
    """A random value of a kind of fields; one of four texts of digits becomes another one when it was a number."""
    if kind == WHOLE:
        return chance.randrange(100)
    if kind == TEXTS:
        return chance.choices("abc", k=chance.randrange(3))
    return f"{chance.randrange(100):0{chance.choice([1, 1, 1, 4])}}" if kind == DIGITS else chance.choice("abcdef")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ValidationError("must be digits")
    return int(text)


class Declared(NamedTuple):
    """A revision: the kinds of its fields, and the steps that led to it."""

    kinds: dict[str, str]
    steps: list[Step]
    loses: bool  # whether a version before can show other values after it


def next_of(before: dict[str, str], number: int, chance: random.Random) -> Declared:
    """A random next revision: one or two steps, each of other fields."""
    kinds, steps, loses = dict(before), list[Step](), False
    for name in chance.sample([*before], chance.choice([1, 1, 2])):
        kind, new = kinds.pop(name), f"f{number}_{len(steps)}"
        made = chance.choice(["rename", "rename", "remove", "convert", "convert"])
        if len(kinds) < 2 and made == "remove":
            made = "rename"
        if made == "rename":
            kinds[new] = kind
            steps.append(Rename(name, new))
        elif made == "remove":
            steps.append(Remove(name, DEFINED[kind]()))
        elif kind == DIGITS:
            kinds[new], loses = WHOLE, True
            steps.append(Convert({name: DEFINED[kind]()}, [new], up=_number, down=str))
        elif kind == WHOLE:
            kinds[new] = DIGITS
            steps.append(Convert({name: DEFINED[kind]()}, [new], up=str, down=int))
        else:  # the same name again
            kinds[name] = kind
            steps.append(Convert({name: DEFINED[kind]()}, [name], up=_reversed, down=_reversed))
    if chance.random() < 0.6:
        kind = chance.choice([TEXT, WHOLE, TEXTS])
        kinds[new := f"added{number}"] = kind
        steps.append(Add(new, value_of(kind, chance)) if chance.random() < 0.5 else Add(new))
    return Declared(kinds, steps, loses)


def _reversed(value: Any) -> Any:
    return value[::-1]


class History:
    """Programs that follow each other on the store at `url`; the `other` one gets what the last one exports."""

    def __init__(self, url: str, other: str, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311
        self._seed, self._url, self._other = seed, url, other
        kinds = {"a": TEXT, "b": WHOLE, "c": DIGITS, "d": TEXTS, "e": TEXT}
        self._declared = [Declared(kinds, [], loses=False)]
        self.accepted = self.refused = 0

    def run(self) -> None:
        """Raises AssertionError with what is wrong."""
        try:
            with self._serve() as client:
                self._write(client)
                shown = self._all(client)
            for _ in range(REVISIONS - 1):
                self._declared.append(next_of(self._declared[-1].kinds, len(self._declared) + 1, self._chance))
                shown = self._migrate(shown)
            self._require_exports()
        except AssertionError as error:
            steps = [[(type(step).__name__, step.before, step.after) for step in each.steps] for each in self._declared]
            raise AssertionError(f"seed {self._seed}, {steps}: {error}") from error

    @property
    def _served(self) -> list[int]:
        newest = len(self._declared)
        return [*range(max(1, newest - SERVED + 1), newest + 1)]

    def _create(self, url: str = "", **options: Any) -> Application:
        newest = len(self._declared)
        kinds = self._declared[-1].kinds
        definitions = {name: DEFINED[kind]() for name, kind in kinds.items()}
        schema = ItemSchema.from_dict(definitions, name="Notes")
        declared = Resource(
            "notes",
            "note",
            schema,  # type: ignore[arg-type]
            indexes=tuple(Index(name) for name in [*kinds][:3]),
            upgrades={number: each.steps for number, each in enumerate(self._declared, 1) if number > 1},
        )
        served = [
            Version(f"v{number}", revisions={"notes": number} if number < newest else {}) for number in self._served
        ]
        config = Config(database_url=url or self._url, idempotency="optional", min_free_space=0)
        return create_app(config, [declared], versions=Versions(*served, unversioned=f"v{newest}"), **options)

    def _serve(self) -> "Serving":
        return Serving(self._create())

    def _run(self, *arguments: str, url: str = "") -> Result:
        with Serving(self._create(url, serves=False)) as client:
            return client.application.test_cli_runner().invoke(args=arguments)

    def _all(self, client: FlaskClient, versions: Sequence[int] = ()) -> dict[int, dict[str, Item]]:
        """What each served version shows: as a list and one by one."""
        found = {}
        for number in versions or self._served:
            listed = client.get(f"/api/v{number}/notes?limit=1000")
            assert listed.status_code == 200, listed.json
            found[number] = {each["id"]: each for each in listed.json}
            for id, each in found[number].items():
                assert client.get(f"/api/v{number}/notes/{id}").json == each
        return found

    def _kinds(self, number: int) -> dict[str, str]:
        return self._declared[number - 1].kinds

    def _write(self, client: FlaskClient) -> None:
        """Clients of each version create and change items; each sees at once what it wrote."""
        chance = self._chance
        for _ in range(WRITES):
            for number in self._served:
                path, kinds = f"/api/v{number}/notes", self._kinds(number)
                names = [name for name in kinds if chance.random() < 0.6]
                sent = {name: value_of(kinds[name], chance) for name in names}
                ids = [each["id"] for each in client.get(f"{path}?limit=1000").json]
                if len(ids) < ITEMS and (not ids or chance.random() < 0.5):
                    answered = client.post(path, json=sent)
                else:
                    where = f"{path}/{chance.choice(ids)}"
                    answered = client.open(where, method=chance.choice(["PATCH", "PATCH", "PUT"]), json=sent)
                if answered.status_code == 422:  # "007" is 7 in the newest version
                    assert all("would be stored as" in each["detail"] for each in answered.json["errors"])
                    continue
                assert answered.status_code in (200, 201), answered.json
                assert {name: answered.json[name] for name in sent} == sent
                assert client.get(f"{path}/{answered.json['id']}").json == answered.json

    def _migrate(self, before: dict[int, dict[str, Item]]) -> dict[int, dict[str, Item]]:
        migrated = self._run("migrate")
        if migrated.exit_code:
            assert self._declared[-1].loses, migrated.output
            assert isinstance(migrated.exception, SystemExit), repr(migrated.exception)
            self.refused += 1
            newest = self._declared.pop()
            with self._serve() as client:  # the program before serves on, and nothing has changed
                assert self._all(client) == before
            self._declared.append(newest)
            migrated = self._run("migrate", "--accept")
        assert migrated.exit_code == 0, (migrated.output, migrated.exception)
        with self._serve() as client:
            after = self._all(client)
            for number in before.keys() & after.keys():
                self._compare(before[number], after[number], self._kinds(number))
            self._write(client)
            return self._all(client)

    def _compare(self, before: dict[str, Item], after: dict[str, Item], kinds: Mapping[str, str]) -> None:
        assert before.keys() == after.keys()
        for id, item in before.items():
            for name, value in item.items():
                if value != after[id][name]:  # which only a text of digits may
                    assert self._declared[-1].loses and kinds[name] == DIGITS, f"{name}: {value}, now {after[id]}"
                    assert int(value) == int(after[id][name])
                    self.accepted += 1

    def _require_exports(self) -> None:
        """An export that another store imports is the same there."""
        with tempfile.TemporaryDirectory() as folder:
            first, second = Path(folder, "first.ndjson"), Path(folder, "second.ndjson")
            for arguments, at in (
                (["export", "notes", str(first)], self._url),
                (["import", "notes", str(first)], self._other),
                (["export", "notes", str(second)], self._other),
            ):
                done = self._run(*arguments, url=at)
                assert done.exit_code == 0, done.output
            assert first.read_bytes() == second.read_bytes() != b""


class Serving:
    """A client of an application, whose store is closed at the end."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def __enter__(self) -> FlaskClient:
        return self._app.test_client()

    def __exit__(self, *exc: object) -> None:
        service_of(self._app).store.close()


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


def _declared(name: str, **options: Any) -> Resource:
    schema = ItemSchema.from_dict({name: Text(1, 50, required=True), "count": Whole(load_default=0)}, name="Notes")
    indexes = (Index(name, unique=True), Index("count"))
    return Resource("notes", "note", schema, indexes=indexes, **options)  # type: ignore[arg-type]


def create_former() -> Application:
    """The program whose items are migrated."""
    return create_app(None, [_declared("name")])


def create_latter() -> Application:
    """The program after it. What it converts can end it: see KILL."""
    return create_app(None, [_declared("title", upgrades={2: [_ENDING]})])


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


def kill_often(folder: Path, new_url: Callable[[], str], times: int, *, shared: bool = False, seed: int = 0) -> int:
    """Kill `restkeeper migrate` so often; returns how often it was after the commit."""
    kills = after = 0
    while kills < times:
        run = Kills(folder, new_url(), seed + kills, shared)
        after += run.run(times - kills)
        kills += run.kills
    return after


def main(store: str, histories: int, kills: int) -> None:
    """Run all at full length."""
    supervise()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        databases = stack.enter_context(PostgresServer()) if store == "postgresql" else None

        def url(name: str) -> str:
            return databases.create_database() if databases else f"sqlite:///{folder}/{name}.db"

        accepted = refused = 0
        for seed in range(histories):
            history = History(url(f"{seed}"), url(f"{seed}-other"), seed)
            history.run()
            accepted, refused = accepted + history.accepted, refused + history.refused
        after = kill_often(folder, partial(url, uuid4().hex), kills, shared=bool(databases))
        print(f"{kills} kills on {store}, {after} of them after the commit: nothing was lost")
        print(f"{histories} histories on {store}: {refused} refused, then accepted with {accepted} other values")


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.conversions")
    options.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    options.add_argument("--histories", type=int, default=50)
    options.add_argument("--kills", type=int, default=100)
    arguments = options.parse_args()
    main(arguments.store, arguments.histories, arguments.kills)
