"""A test of programs that differ by additions only: they write the same items, in turn and at the same time.

Each has fields that the other one does not know, other defaults and bounds of those that both know, and values that it
computes. Neither loses a member that it does not know, and each shows what follows from what is stored.

`python -m tests.additions` runs it with many operations; `make test` runs it with a few.
"""

import argparse
import random
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from flask.testing import FlaskClient
from marshmallow import fields

from restkeeper.config import Config
from restkeeper.resources.resource import Resource
from restkeeper.schemas.fields import JsonObject, ListOf, Text, Whole
from restkeeper.schemas.item import ItemSchema
from restkeeper.service import service_of
from restkeeper.storage.interface import Index
from tests.postgresql_server import PostgresServer
from tests.processes import supervise
from tests.shop import create_app

ITEMS = 12  # at a time: few, so that each is written by both
WORDS = ("", "a", "b", "ä", "A", "0")
AGAIN = (409, 412, 503)  # another writer was first
THREADS = 4  # of each program

Item = dict[str, Any]
Computes = Callable[[Mapping[str, Any]], Any]


class Kind(NamedTuple):
    """A kind of field: its definition, given a default and the largest value, and random values of it."""

    define: Callable[[Any, int], "fields.Field[Any]"]
    value: Callable[[random.Random], Any]
    is_filtered: bool = True


KINDS = {
    "text": Kind(lambda default, most: Text(0, most, load_default=default), lambda chance: chance.choice(WORDS)),
    "whole": Kind(
        lambda default, most: Whole(-most, most, load_default=default), lambda chance: chance.randrange(-3, 4)
    ),
    "null": Kind(
        lambda default, most: Text(0, most, load_default=default, allow_none=True),
        lambda chance: chance.choice((None, *WORDS)),
    ),
    "texts": Kind(
        lambda default, most: ListOf(Text(0, most), load_default=default),
        lambda chance: chance.choices(WORDS, k=chance.randrange(3)),
        is_filtered=False,
    ),
    "object": Kind(
        lambda default, most: JsonObject(load_default=default),
        lambda chance: {chance.choice(WORDS): chance.choice((1, None, [True]))},
        is_filtered=False,
    ),
}


class Program:
    """A program with some of the `known` fields, each with its kind, and with defaults and bounds of its own."""

    def __init__(self, chance: random.Random, known: Mapping[str, str], *, number: int) -> None:
        self.kinds, self.number = dict(known), number
        self.defaults = {name: None if kind == "null" else KINDS[kind].value(chance) for name, kind in known.items()}
        definitions: dict[str, Any] = {"title": Text(1, 50, required=True)}
        for name, kind in known.items():
            definitions[name] = KINDS[kind].define(self.defaults[name], chance.choice((50, 1000)))
        self.computed: dict[str, Computes] = {"both": self._computed, f"own{number}": self._computed}
        for name, function in self.computed.items():
            definitions[name] = fields.Function(function, dump_only=True)
        indexed = [name for name, kind in known.items() if kind != "object" and chance.random() < 0.5]
        self.resource = Resource(
            "notes",
            "note",
            ItemSchema.from_dict(definitions, name="Notes"),  # type: ignore[arg-type]
            indexes=(Index("title"), *map(Index, indexed)),
        )

    def _computed(self, item: Mapping[str, Any]) -> str:
        return f"{self.number}: {item['title']}, {[str(item[name]) for name in self.kinds]}"

    def shown(self, stored: Mapping[str, Any]) -> Item:
        """What it shows of the members that are stored."""
        item = {"title": stored["title"]} | {name: stored.get(name, self.defaults[name]) for name in self.kinds}
        return item | {name: function(item) for name, function in self.computed.items()}

    def written(self, stored: Mapping[str, Any]) -> Item:
        """The members that are stored after it has changed an item."""
        return {**stored, **{name: self.shown(stored)[name] for name in ("title", *self.kinds)}}


class Additions:
    """Two programs on one store, and what it has to hold."""

    def __init__(self, url: str, seed: int) -> None:
        self._chance = chance = random.Random(seed)  # noqa: S311
        self._config = Config(database_url=url, idempotency="optional", min_free_space=0)
        common = {f"common{n}": chance.choice([*KINDS]) for n in range(3)}
        self.programs = [
            Program(chance, common | {f"of{n}_{m}": chance.choice([*KINDS]) for m in range(3)}, number=n)
            for n in range(2)
        ]
        self._clients = [self.start(each) for each in self.programs]
        self.stored: dict[str, Item] = {}
        self._seed = seed

    def start(self, program: Program) -> FlaskClient:
        """Start a program; one that was registered can start again."""
        return create_app(self._config, [program.resource]).test_client()

    def close(self) -> None:
        for client in self._clients:
            service_of(client.application).store.close()  # type: ignore[arg-type]

    def run(self, operations: int) -> None:
        """Let both programs do so many operations in turn. Raises AssertionError with what is wrong."""
        for number in range(operations):
            chosen = self._chance.randrange(2)
            try:
                self._operate(self.programs[chosen], self._clients[chosen])
            except AssertionError as error:
                raise AssertionError(f"seed {self._seed}, operation {number}: {error}") from error
        for program, client in zip(self.programs, self._clients, strict=True):
            self._require_list(program, client)

    def _operate(self, program: Program, client: FlaskClient) -> None:
        chance = self._chance
        operations = [self._read, self._merge, self._merge, self._replace, self._filter, self._send_back]
        if len(self.stored) < ITEMS and (not self.stored or chance.random() < 0.3):
            return self._create(program, client)
        if len(self.stored) == ITEMS and chance.random() < 0.1:
            where = chance.choice([*self.stored])
            assert client.delete(where).status_code in (200, 204)
            del self.stored[where]
            return None
        return chance.choice(operations)(program, client, chance.choice([*self.stored]))

    def _values(self, program: Program) -> Item:
        """Values for some of the fields of a program."""
        names = [name for name in program.kinds if self._chance.random() < 0.4]
        return {name: KINDS[program.kinds[name]].value(self._chance) for name in names}

    def _require(self, program: Program, where: str, answered: Any) -> None:
        expected = program.shown(self.stored[where])
        shown = {name: value for name, value in answered.items() if name in expected}
        assert shown == expected, f"program {program.number} shows {shown} of {self.stored[where]}"
        assert answered.keys() - expected.keys() == {"id", "created_at", "updated_at", "version"}

    def _create(self, program: Program, client: FlaskClient) -> None:
        sent = {"title": self._chance.choice(WORDS[1:])} | self._values(program)
        made = client.post("/notes", json=sent)
        assert made.status_code == 200, made.json
        self.stored[where := made.headers["Location"]] = program.written(sent)
        self._require(program, where, made.json)

    def _read(self, program: Program, client: FlaskClient, where: str) -> None:
        self._require(program, where, client.get(where).json)

    def _merge(self, program: Program, client: FlaskClient, where: str) -> None:
        sent = self._values(program) | (
            {"title": self._chance.choice(WORDS[1:])} if self._chance.random() < 0.3 else {}
        )
        sent = {name: value for name, value in sent.items() if value is not None and not isinstance(value, dict)}
        self._change(program, client.patch(where, json=sent), where, sent)

    def _replace(self, program: Program, client: FlaskClient, where: str) -> None:
        """What is not sent gets its default, but what the program does not know stays."""
        sent = {"title": self._chance.choice(WORDS[1:])} | self._values(program)
        left_out = {name: default for name, default in program.defaults.items() if name not in sent}
        self._change(program, client.put(where, json=sent), where, left_out | sent)

    def _send_back(self, program: Program, client: FlaskClient, where: str) -> None:
        """A client sends to one program what it has received from the other one."""
        sent = self._clients[1 - self.programs.index(program)].get(where).json
        own = {name: value for name, value in sent.items() if name in program.kinds}
        answered = client.put(where, json={name: value for name, value in sent.items() if name != "both"})
        if answered.status_code == 422:  # it has defaults or computed values of the other program, which are not stored
            refused = {each["pointer"].removeprefix("#/") for each in answered.json["errors"]}
            assert refused and not refused & {"title", *program.kinds}, answered.json
            return
        left_out = {name: default for name, default in program.defaults.items() if name not in own}
        self._change(program, answered, where, left_out | own)

    def _change(self, program: Program, answered: Any, where: str, changes: Item) -> None:
        assert answered.status_code == 200, answered.json
        before = program.shown(self.stored[where])
        if any(before[name] != value for name, value in changes.items()):
            self.stored[where] = program.written(self.stored[where] | changes)
        self._require(program, where, answered.json)

    def _filter(self, program: Program, client: FlaskClient, where: str) -> None:
        """A filter finds the items that the program shows with the value."""
        names = [name for name, kind in program.kinds.items() if KINDS[kind].is_filtered]
        if not names:
            return
        name = self._chance.choice(names)
        value = program.shown(self.stored[where])[name]
        query = {name: value} if value is not None else {f"{name}[is]": "null"}
        answered = client.get("/notes", query_string=query)
        found = {f"/notes/{each['id']}" for each in answered.json}
        has = {each for each, stored in self.stored.items() if program.shown(stored)[name] == value}
        assert _paths(has) == found, f"{query}: {found}, not {has}"
        for each in answered.json:
            (stored_at,) = [path for path in self.stored if path.endswith(each["id"])]
            self._require(program, stored_at, each)

    def _require_list(self, program: Program, client: FlaskClient) -> None:
        listed = client.get("/notes?limit=100").json
        assert {each["id"] for each in listed} == {path.rpartition("/")[2] for path in self.stored}
        for each in listed:
            (where,) = [path for path in self.stored if path.endswith(each["id"])]
            self._require(program, where, each)

    def run_together(self, operations: int) -> None:
        """Let both write the same items at the same time: each thread has one field, and no other one changes that."""
        for number, client in enumerate(self._clients):
            self._create(self.programs[number], client)
        turns = [(number, thread) for number in range(2) for thread in range(THREADS)]
        barrier = threading.Barrier(len(turns))
        with ThreadPoolExecutor(len(turns)) as pool:
            jobs = [pool.submit(self._write_alone, *turn, operations // len(turns), barrier) for turn in turns]
        written: dict[str, Item] = {}
        for job in jobs:
            for where, values in job.result().items():
                written.setdefault(where, {}).update(values)
        for where, values in written.items():
            self.stored[where].update(values)
            for number, client in enumerate(self._clients):
                answered = client.get(where).json
                own = {name: value for name, value in values.items() if name in answered}
                assert own == {name: answered[name] for name in own}, f"seed {self._seed}: {answered}, not {values}"
                assert own.keys() >= {name for name in values if name.startswith(f"of{number}_")}
                computed = self.programs[number].shown(answered)
                assert {name: answered[name] for name in computed} == computed

    def _write_alone(self, number: int, thread: int, operations: int, barrier: threading.Barrier) -> dict[str, Item]:
        """Change a field of each item again and again; returns the values that were written last."""
        program, chance = self.programs[number], random.Random(f"{self._seed} {number} {thread}")  # noqa: S311
        names = [name for name in program.kinds if name.startswith("of")]
        if thread >= len(names):
            names = [each for each in program.kinds if each.startswith("common")][number : number + 1]
            thread = 0
        name, client = names[thread], self._clients[number].application.test_client()
        written: dict[str, Item] = {}
        barrier.wait()
        for _ in range(operations):
            where, value = chance.choice([*self.stored]), KINDS[program.kinds[name]].value(chance)
            if value is None or isinstance(value, dict):
                continue
            while (answered := client.patch(where, json={name: value})).status_code in AGAIN:
                pass
            assert answered.status_code == 200, answered.json
            assert answered.json[name] == value
            written[where] = {name: value}
        return written


def _paths(found: set[str]) -> set[str]:
    return {f"/notes/{each.rpartition('/')[2]}" for each in found}


def prove(url: str, operations: int, seed: int = 0) -> None:
    """The proof on one store, half of it in turn and half of it at the same time."""
    additions = Additions(url, seed)
    try:
        additions.run(operations // 2)
        additions.run_together(operations // 2)
        additions.run(operations // 20)
    finally:
        additions.close()


def main(store: str, operations: int, seeds: int) -> None:
    """Prove it with some pairs of programs, which share the operations."""
    supervise()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        databases = stack.enter_context(PostgresServer()) if store == "postgresql" else None
        for seed in range(seeds):
            url = databases.create_database() if databases else f"sqlite:///{folder}/{seed}.db"
            prove(url, operations // seeds, seed)
    print(f"{operations} operations of {seeds} pairs of programs on {store}: nothing was lost")


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.additions")
    options.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    options.add_argument("--operations", type=int, default=10_000)
    options.add_argument("--seeds", type=int, default=20)
    arguments = options.parse_args()
    main(arguments.store, arguments.operations, arguments.seeds)
