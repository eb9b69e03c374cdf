"""A proof of what `restkeeper db.json` promises: writers, another program that edits the file, and kills at any moment.

After each kill the file is whole: it has each change that was answered, or the value that a later edit has; a batch is
there with all of its changes or with none. The next start serves what the file has.

`python -m tests.soak --kills 300 --store file` runs it; `make test` does it for some kills.
"""

import json
import math
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from itertools import count
from pathlib import Path
from typing import Any

from tests.json_file import Server
from tests.waiting import SECONDS

WRITERS = 4
ITEMS = 6  # of each writer
PAIR = ("pair-1", "pair-2")  # the ids of two items that only batches change, both to one number
LIFE = (0.02, 0.6)  # seconds from a start to its kill, at least and at most
PAUSE = (0.0, 0.1)  # seconds between two edits
NAMES_EVERY = 7  # edits, of which one adds or removes a name at the top: the service starts again in its process
ANSWERS = {200, 404, 409, 503}  # 404 and 409: an edit had the item removed, or added, meanwhile

Values = dict[str, int]  # of the items that a file has, by id


@dataclass
class Item:
    """An item that one writer changes: its last answered value, None if it was deleted, and values without an answer.

    The request of the last answered value `began` at a time.
    """

    id: str
    answered: int | None = None
    unclear: set[int | None] = field(default_factory=set)
    began: float = 0.0


@dataclass
class Edit:
    """What another program has saved, and when: until then, a change can be lost by it."""

    number: int
    values: Values
    ended: float = math.inf


class FileKills:
    """Lives of a server of one file: each ends with a kill, after which the file is checked."""

    def __init__(self, folder: Path) -> None:
        self.done: Counter[str] = Counter()
        self._file = folder / "db.json"
        self._chance = random.Random(0)  # noqa: S311
        self._numbers = count(1)
        self._edits: list[Edit] = []
        self._items = [[Item(f"w{writer}-{number}") for number in range(ITEMS)] for writer in range(WRITERS)]
        self._items.append([Item("pair", 0)])
        pair = [{"id": id, "number": 0, "again": 0} for id in PAIR]
        self._save({"posts": pair, "edit": {"number": 0}, "settings": {"name": "never changed"}})
        self._ended, self._is_killed = threading.Event(), False

    def run(self, kills: int) -> None:
        """Let so many servers live and be killed. Raises AssertionError with what is wrong."""
        for _ in range(kills):
            server = self._start()
            self._live(server)
            self.done["kills"] += 1
            self._check(self._read())
        server = self._start()
        changed = server.send("PATCH", "/settings", {"name": "changed"})
        assert changed.status == 200, changed  # this write removes what the killed ones have left
        server.end()
        names = {path.name for path in self._file.parent.iterdir()} - {"db.json", "db.log", "db.json.edited"}
        assert not names, f"is left: {names}"

    def _start(self) -> Server:
        """A server that serves what the file has."""
        server = Server(self._file)
        assert server.process.poll() is None, f"it did not start: {server.lines}"
        served, expected = server.send("GET", "/db").json(), self._read()
        assert served == expected, f"is served: {served}, but the file has {expected}"
        return server

    def _live(self, server: Server) -> None:
        """Change items and edit the file until the server is killed."""
        self._ended.clear()
        self._is_killed = False
        with ThreadPoolExecutor(WRITERS + 2) as pool:
            tasks: list[Callable[[], None]] = [self._edit]
            tasks += [partial(self._write, server, items, self._chance.random()) for items in self._items]
            running = [pool.submit(task) for task in tasks]
            self._ended.wait(self._chance.uniform(*LIFE))
            self._is_killed = True
            server.end(signal.SIGKILL)
            self._ended.set()
        for task in running:
            task.result(SECONDS)

    def _write(self, server: Server, items: Sequence[Item], seed: float) -> None:
        chance = random.Random(seed)  # noqa: S311
        try:
            while not self._ended.is_set():
                self._change(server, chance.choice(items), is_deleted=chance.random() < 0.2)
        except (OSError, HTTPException):
            assert self._is_killed, "a connection has ended before the kill"

    def _change(self, server: Server, item: Item, *, is_deleted: bool) -> None:
        """Change an item by one request, after a read. Its value is unclear until the response."""
        path, number = f"/posts/{item.id}", next(self._numbers)
        members = {"number": number, "again": number}
        if item.id == "pair":
            operations = [{"method": "PATCH", "path": f"/posts/{id}", "body": members} for id in PAIR]
            request: tuple[str, str, Any] = "POST", "/api/v1/batch", {"operations": operations}
        elif (read := server.send("GET", path)).status == 404:
            self._require(item, None)
            request = "POST", "/posts", {"id": item.id, **members}
        else:
            assert read.status == 200, read
            self._require(item, _number_of(read.json()))
            request = ("DELETE", path, None) if is_deleted else ("PATCH", path, members)
        value = number if request[2] else None
        before, began = {*item.unclear}, time.monotonic()
        item.unclear.add(value)
        status = server.send(*request).status
        assert status in ANSWERS, f"{request}: {status}: {server.lines}"
        self.done[f"{request[0]} {status}"] += 1
        if status == 200:
            item.answered, item.unclear, item.began = value, set(), began
        else:
            item.unclear = before

    def _edit(self) -> None:
        """Edit the file as an editor does: read, change and replace it; it keeps its number in two places."""
        while not self._ended.wait(self._chance.uniform(*PAUSE)):
            edit = Edit(next(self._numbers), _values_of(document := self._read()))
            document["posts"] = [post for post in document["posts"] if not post["id"].startswith("edit")]
            posted = {"id": f"edit-{edit.number}", "number": edit.number, "again": edit.number}
            document["posts"].insert(self._chance.randrange(len(document["posts"]) + 1), posted)
            document["edit"]["number"] = edit.number
            if edit.number % NAMES_EVERY == 0 and document.pop("more", None) is None:
                document["more"] = []
            self._edits.append(edit)
            self._save(document)
            edit.ended = time.monotonic()
            self.done["edits"] += 1

    def _save(self, document: Any) -> None:
        written = self._file.with_name("db.json.new")
        written.write_text(json.dumps(document, indent=2))
        os.replace(written, self._file)

    def _read(self) -> Any:
        """What the file has. Raises JSONDecodeError if it has half of something."""
        return json.loads(self._file.read_bytes())

    def _check(self, document: Any) -> None:
        """Check a file after a kill."""
        values = _values_of(document)
        for item in (item for items in self._items for item in items):
            self._require(item, values.pop(item.id, None))
        assert document["settings"] == {"name": "never changed"}, document["settings"]
        last, number = self._edits[-1].number if self._edits else 0, document["edit"]["number"]
        assert values == ({f"edit-{number}": number} if number else {}), f"edit {number} is there in part: {values}"
        if number != last:  # it was saved at the moment of a write
            self.done["edits that were put aside"] += 1
            beside = [self._file.with_name(name) for name in ("db.json.edited", ".db.json.former")]
            kept = [json.loads(path.read_bytes())["edit"]["number"] for path in beside if path.exists()]
            assert last in kept, f"edit {last} is lost: the file has {number}, and beside there is {kept}"

    def _require(self, item: Item, value: int | None) -> None:
        """Raises AssertionError for a value that is neither the answered nor an unclear one, nor that of an edit."""
        if value == item.answered or value in item.unclear:
            return
        edited = [edit.values.get(item.id) for edit in self._edits if edit.ended >= item.began]
        assert value in edited, f"{item.id} is {value}; {item}, and edits have {edited}"
        self.done["values that an edit has overwritten"] += 1

    def report(self) -> str:
        """What was done."""
        return "each file was whole: " + ", ".join(f"{number} × {name}" for name, number in sorted(self.done.items()))


def _values_of(document: Any) -> Values:
    """The number of each item. Raises AssertionError for half of a change."""
    values = {post["id"]: _number_of(post) for post in document["posts"]}
    assert len(values) == len(document["posts"]), f"an id is there twice: {document['posts']}"
    pair = [values.pop(id) for id in PAIR]
    assert pair[0] == pair[1], f"a batch was done in part: {pair}"
    return {**values, "pair": pair[0]}


def _number_of(post: Any) -> int:
    number: int = post["number"]
    assert post["again"] == number, f"half of a change: {post}"
    return number


def kill_file_servers(kills: int) -> FileKills:
    """A run with a file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        proof = FileKills(Path(folder))
        proof.run(kills)
    print(proof.report())
    return proof
