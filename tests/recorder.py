"""Clients that work on the same items over HTTP at the same time, and the history of what they did.

Each client sends its requests to the base URLs in turn. Every write has its own value, so that a read shows which write
it saw. A response of 5xx, and none at all, say nothing: the operation can have its effect later, or never.
"""

import itertools
import json
import random
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from math import inf
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from werkzeug.test import TestResponse

from tests.histories import FeedEvent, Operation, Refusal, Result, Stored
from tests.live import HttpResponse, response_of

ITEMS = 4  # that the clients work on at a time
RESPONSE_SECONDS = 15.0  # for which a client waits for a response
PATIENCE = 60.0  # seconds for which a create is repeated until there is a response
BACKOFF = 0.2  # seconds, after no clear response

WEIGHTS = {
    "read": 20,
    "read if changed": 10,
    "find by name": 8,
    "list": 6,
    "feed": 6,
    "change": 24,
    "unconditional change": 6,
    "invalid change": 2,
    "delete": 2,
    "create": 1,
    "repeated create": 4,
}


class NotSent(Exception):
    """There was no connection, so that the request has no effect."""


class Seen(NamedTuple):
    """A state of an item that a client saw, with its ETag."""

    etag: str
    stored: Stored


@dataclass(eq=False)
class Item:
    """An item as the clients know it. Its name, which never changes, is also the idempotency key of its create."""

    name: str
    value: str  # of its create
    id: str = ""
    seen: deque[Seen] = field(default_factory=lambda: deque(maxlen=3))


class Recorder:
    """What all clients share: the items, the history, and the counts of results by kind of operation."""

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        self.history: list[Operation] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.slowest = 0.0  # seconds until a response, of any status
        self.clear = 0  # responses
        self.items: dict[str, Item] = {}
        self._current: list[Item] = []
        self._left: deque[Item] = deque(maxlen=ITEMS)
        self._representations: dict[tuple[str, int], dict[str, Any]] = {}
        self._etags: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()

    def new_item(self, name: str, value: str) -> Item:
        """An item that is about to be created. Others can work on it at once; the oldest makes room for it."""
        with self._lock:
            item = self.items[name] = Item(name, value)
            self._current.append(item)
            if len(self._current) > ITEMS:
                self._left.append(self._current.pop(0))
            return item

    def choose(self, chance: random.Random) -> Item | None:
        """Mostly a current item, sometimes one that was deleted or replaced; None if there is room for a new one."""
        with self._lock:
            if self._left and chance.random() < 0.1:
                return chance.choice(self._left)
            return chance.choice(self._current) if len(self._current) == ITEMS else None

    def record(self, label: str, operation: Operation, etag: str = "") -> None:
        """Add an operation to the history, and what its result shows to its item."""
        result = operation.result
        with self._lock:
            self.history.append(operation)
            self.counts[label, "200" if isinstance(result, Stored) else result.value if result else "lost"] += 1
            if (item := self.items.get(operation.item)) is None:
                return  # an item that nobody made; the check of the history refuses it
            item.id = item.id or operation.id
            if etag and isinstance(result, Stored) and (not item.seen or item.seen[-1].stored.version < result.version):
                item.seen.append(Seen(etag, result))
            deleted = operation.kind == "delete" and isinstance(result, Stored)
            gone = deleted or bool(item.id and result is Refusal.MISSING)
            if gone and item in self._current:
                self._current.remove(item)
                self._left.append(item)

    def count(self, label: str, result: str) -> None:
        with self._lock:
            self.counts[label, result] += 1

    def responded(self, status: int, seconds: float) -> None:
        """Count a complete response."""
        self.count("request", f"{status // 100}xx" if status < 500 else str(status))
        with self._lock:
            self.slowest = max(self.slowest, seconds)
            self.clear += status < 500

    def stored(self, item: dict[str, Any], etag: str = "") -> Stored:
        """The version and value of an item. Raises AssertionError if that version was different before."""
        version = item["id"], item["version"]
        with self._lock:
            before = self._representations.setdefault(version, item)
            tag = self._etags.setdefault(version, etag) if etag else ""
        assert before == item, f"a version of an item in two forms: {before} and {item}"
        assert tag == etag, f"a version of an item with two ETags, {tag} and {etag}: {item}"
        return Stored(item["version"], item["description"])

    def events(self, page: Sequence[Any]) -> list[FeedEvent]:
        """The events of this run's items on a page of the feed."""
        data = [(each["type"].partition(".")[2], each["data"]) for each in page]
        return [
            FeedEvent(kind, item["name"], self.stored(item)) for kind, item in data if self.is_ours(item.get("name"))
        ]

    def is_ours(self, name: str | None) -> bool:
        """Whether this is the name of an item of this run."""
        return bool(name and name.startswith(self.run))


class Client:
    """One client: it does one operation at a time, with a connection to each base URL."""

    def __init__(
        self,
        number: int,
        recorder: Recorder,
        bases: Sequence[str],
        cursor: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        hosts = [urlsplit(base).netloc for base in bases]
        self._connections = [HTTPConnection(host, timeout=RESPONSE_SECONDS) for host in hosts]
        self._turns = itertools.cycle(self._connections)
        self._recorder = recorder
        self._values = (f"{recorder.run}-{number}-{count}" for count in itertools.count())
        self._chance = random.Random(number)  # noqa: S311
        self._headers = dict(headers or {})
        self.cursor = cursor
        self.events: list[FeedEvent] = []

    def run(self, stop: threading.Event) -> None:
        """Do random operations until the stop."""
        while not stop.is_set():
            try:
                clear = self.step()
            except NotSent:
                self._recorder.count("request", "not sent")
                clear = False
            if not clear:
                stop.wait(BACKOFF)

    def close(self) -> None:
        """Close the connections. A later request opens them again."""
        for connection in self._connections:
            connection.close()

    def step(self) -> bool:
        """One random operation; whether it had a clear response."""
        (label,) = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        item = self._recorder.choose(self._chance)
        if item is None or label == "create":
            name = next(self._values)
            return self.create("create", self._recorder.new_item(name, name))
        match label:
            case "repeated create":
                return self.create(label, item)
            case "list":
                return self.list_items()
            case "feed":
                return self.follow()
            case _ if not item.id or label == "find by name":
                return self.find(item)
            case "read" | "read if changed":
                return self.read(item, if_changed=label != "read")
            case "delete":
                return self._delete(item)
            case _:
                return self._change(label, item)

    def create(self, label: str, item: Item) -> bool:
        """POST, repeated with its key until there is a clear response."""
        body = {"name": item.name, "description": item.value}
        start = time.monotonic()
        while True:
            response = self._try("POST", "/products", body, {"Idempotency-Key": f'"{item.name}"'})
            if response is not None or time.monotonic() > start + PATIENCE:
                return self._record(label, "create", item, start, response, value=item.value)
            self._recorder.count(label, "sent again")
            time.sleep(BACKOFF)

    def read(self, item: Item, *, if_changed: bool = False) -> bool:
        """GET; with `if_changed` and an ETag a 304 says that the item still has the state that a client saw."""
        seen = item.seen[-1] if if_changed and item.seen else None
        start = time.monotonic()
        response = self._send("GET", f"/products/{item.id}", headers={"If-None-Match": seen.etag} if seen else {})
        return self._record("read if changed" if seen else "read", "read", item, start, response, seen=seen)

    def find(self, item: Item) -> bool:
        """A list with a filter by the item's name, which an index serves."""
        start = time.monotonic()
        response = self._send("GET", f"/products?name={item.name}")
        found = _page(response)
        if found is None:
            return self._record("find by name", "read", item, start, None)
        assert len(found) < 2, f"created twice: {found}"
        result = self._recorder.stored(found[0]) if found else Refusal.MISSING
        id = found[0]["id"] if found else ""
        operation = Operation("read", item.name, start, time.monotonic(), result, id=id)
        self._recorder.record("find by name", operation)
        return True

    def list_items(self) -> bool:
        """The newest items."""
        return self.page("/products?sort=-created_at&limit=20") is not None

    def page(self, path: str) -> tuple[list[str], str] | None:
        """The names on a page of items, and the path of the next page. Each item of this run on it is a read."""
        start = time.monotonic()
        response = self._send("GET", path)
        found = _page(response)
        end = time.monotonic()
        self._recorder.count("list", "lost" if found is None else "200")
        if response is None or found is None:
            return None
        ours = [each for each in found if self._recorder.is_ours(each["name"])]
        for each in ours:
            stored = self._recorder.stored(each)
            self._recorder.record("listed item", Operation("read", each["name"], start, end, stored, id=each["id"]))
        return [each["name"] for each in ours], next_of(response)

    def follow(self) -> bool:
        """The next page of the feed."""
        response = self._send("GET", self.cursor)
        found = _page(response)
        if response is not None and found is not None:
            self.events += self._recorder.events(found)
            self.cursor = next_of(response)
        self._recorder.count("feed", "lost" if found is None else "200")
        return found is not None

    def _change(self, label: str, item: Item) -> bool:
        """PATCH or PUT of the item as some client saw it, mostly the last one."""
        value = next(self._values)
        body: dict[str, Any] = {"description": value}
        method = self._chance.choice(["PATCH", "PUT"])
        if method == "PUT":
            body["name"] = item.name
        if label == "invalid change":
            body["stock"] = -1
        seen = self._condition(item) if label != "unconditional change" else None
        start = time.monotonic()
        response = self._send(method, f"/products/{item.id}", body, {"If-Match": seen.etag} if seen else {})
        if label == "invalid change":
            assert response is None or response.status not in (200, 204), f"accepted: {response}"
        else:
            assert response is None or response.status != 422, f"refused: {response}"
        return self._record(label, "change", item, start, response, value=value, seen=seen)

    def _delete(self, item: Item) -> bool:
        seen = self._condition(item)
        start = time.monotonic()
        response = self._send("DELETE", f"/products/{item.id}", headers={"If-Match": seen.etag} if seen else {})
        return self._record("delete", "delete", item, start, response, seen=seen)

    def _condition(self, item: Item) -> Seen | None:
        seen = list(item.seen)
        return (seen[-1] if self._chance.random() < 0.8 else self._chance.choice(seen)) if seen else None

    def _record(
        self,
        label: str,
        kind: str,
        item: Item,
        start: float,
        response: HttpResponse | None,
        *,
        value: str = "",
        seen: Seen | None = None,
    ) -> bool:
        end = time.monotonic()
        etag = response.headers.get("etag", "") if response else ""
        result, id = self._result(response, seen)
        expected = seen.stored.version if seen and kind != "read" else None
        operation = Operation(kind, item.name, start, end if result else inf, result, value, expected, id)
        self._recorder.record(label, operation, etag if isinstance(result, Stored) and kind != "delete" else "")
        return result is not None

    def _result(self, response: HttpResponse | None, seen: Seen | None) -> tuple[Result, str]:
        """The result of a request for one item, and the item's id. Raises AssertionError for an unexpected status."""
        match response and response.status:
            case None:
                return None, ""
            case 200 if response:
                item = response.json()
                return self._recorder.stored(item, response.headers.get("etag", "")), item["id"]
            case 304 if seen:
                return seen.stored, ""
            case 404:
                return Refusal.MISSING, ""
            case 412:
                return Refusal.CONFLICT, ""
            case 422 | 429:
                return Refusal.INVALID, ""
        raise AssertionError(f"unexpected response: {response}")

    def _try(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> HttpResponse | None:
        try:
            return self._send(method, path, body, headers)
        except NotSent:
            return None

    def _send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpResponse | None:
        """Send a request to the next base URL; None if there is no clear response. Raises NotSent."""
        connection = next(self._turns)
        headers = {**self._headers, **(headers or {})}
        if body is not None:
            body, headers = json.dumps(body), {"Content-Type": "application/json", **headers}
        try:
            if connection.sock is None:
                connection.connect()
        except OSError:
            raise NotSent from None
        start = time.monotonic()
        try:
            connection.request(method, path, body, headers)
            response = response_of(connection)
        except (OSError, HTTPException) as error:
            connection.close()
            self._recorder.count("request", "timed out" if isinstance(error, TimeoutError) else "broken off")
            return None
        self._recorder.responded(response.status, time.monotonic() - start)
        return response if response.status < 500 else None


def _page(response: HttpResponse | None) -> list[Any] | None:
    """The elements of a page; None if there was no response, or it was refused by a rate limit."""
    if response is None or response.status == 429:
        return None
    assert response.status == 200, response
    page: list[Any] = response.json()
    return page


def next_of(response: HttpResponse | TestResponse) -> str:
    """The path of the next page; empty if there is none."""
    links = (link.split(">")[0][1:] for link in response.headers.get("link", "").split(", ") if 'rel="next"' in link)
    return next(links, "")
