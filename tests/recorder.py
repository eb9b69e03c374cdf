"""Clients that work on the same items over HTTP at the same time, and the history of what they did.

Each client sends its requests to the base URLs in turn. Every write has its own value, so that a read shows which write
it saw. A response of 5xx, and none at all, say nothing: the operation can have its effect later, or never. The service
is `tests.shop.catalogue`.
"""

import itertools
import json
import random
import secrets
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from math import inf
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from werkzeug.test import TestResponse

from tests.histories import FeedEvent, Operation, Refusal, Result, Stored
from tests.live import HttpResponse, response_of

RESPONSE_SECONDS = 15.0  # for which a client waits for a response
PATIENCE = 60.0  # seconds for which a POST is repeated until there is a response
BACKOFF = 0.2  # seconds, after no clear response

SINGLETON = "settings"  # which is created by its first change

# The collections, how many of their items the clients work on at a time, and how often. The brands are seldom changed:
# their function changes the singleton, whose events are delivered one after the other.
ITEMS = {"brands": 1, "products": 3, "parts": 2, "offers": 3}
OFTEN = {"brands": 1, "products": 3, "parts": 3, "offers": 3, SINGLETON: 1}
REFERENCES = {"products": ("brand", "brands"), "parts": ("product", "products"), "offers": ("product", "products")}
SEVERAL = 3  # items in an array

WEIGHTS = {
    "read": 16,
    "read if changed": 10,
    "find by name": 8,
    "list": 6,
    "feed": 6,
    "change": 24,
    "unconditional change": 6,
    "invalid change": 2,
    "delete": 9,
    "create": 2,
    "array": 2,
    "batch": 3,
    "action": 8,
    "repeated": 6,
}

# What happens in each run: kinds of operations with their results, and types of events.
KEYED = ("create", "array", "batch", "action")
HAPPENING = {(label, "200") for label in WEIGHTS if label not in ("invalid change", "repeated")} | {
    *((f"repeated {label}", "200") for label in KEYED),
    ("change", "412"),
    ("action", "412"),
    ("delete", "409"),
    ("invalid change", "422 or 429"),
}
EVENTS = {f"{name}.{type}" for name in ("product", "offer") for type in ("created", "updated", "deleted")} | {
    "brand.created",
    "part.created",
    "part.deleted",  # with its product
    "offer.cleared",  # updated, when its product was deleted
    "settings.updated",
}


class NotSent(Exception):
    """There was no connection, so that the request has no effect."""


class Seen(NamedTuple):
    """A state of an item that a client saw, with its ETag."""

    etag: str
    stored: Stored


@dataclass(eq=False)
class Item:
    """An item as the clients know it: its name never changes, its id is not known at first."""

    collection: str
    name: str
    id: str = ""  # with the collection, such as "/brands/7", which is its path
    seen: deque[Seen] = field(default_factory=lambda: deque(maxlen=3))


class Write(NamedTuple):
    """A request that writes, and what it does if it is accepted, all or none: `effects` without times and results.

    The response has the items of the first effects; others are of functions of the service. One with a `key` is done
    once. It `refers` to the items with these names, which must exist.
    """

    label: str
    method: str
    path: str
    body: Any
    effects: Sequence[Operation]
    key: str = ""
    etag: str = ""
    refers: Sequence[str] = ()


class Recorder:
    """What all clients share: the items, the history, and the counts of results by kind of operation."""

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        self.history: list[Operation] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.slowest = 0.0  # seconds until a response, of any status
        self.clear = 0  # responses
        self.types = set[str]()  # of events
        self.items = {SINGLETON: Item(SINGLETON, SINGLETON, f"/{SINGLETON}")}
        self.keyed: deque[Write] = deque(maxlen=8)  # the last ones, which others repeat
        self._current: dict[str, list[Item]] = {name: [] for name in ITEMS} | {SINGLETON: [self.items[SINGLETON]]}
        self._left: dict[str, deque[Item]] = defaultdict(lambda: deque(maxlen=max(ITEMS.values())))
        self._representations: dict[Stored, dict[str, Any]] = {}
        self._etags: dict[Stored, str] = {}
        self._versions: dict[tuple[str, str], int] = {}  # of an item, the first with each value
        self._lock = threading.Lock()

    def new_item(self, collection: str, name: str) -> None:
        """An item that is about to be created. Others can work on it at once; the oldest makes room for it."""
        with self._lock:
            item = self.items[name] = Item(collection, name)
            self._current[collection].append(item)
            if len(self._current[collection]) > ITEMS[collection]:
                self._left[collection].append(self._current[collection].pop(0))

    def choose(self, collection: str, chance: random.Random) -> Item | None:
        """Mostly a current item, sometimes one that was deleted or replaced; None if there is room for a new one."""
        with self._lock:
            current, left = self._current[collection], self._left[collection]
            if left and chance.random() < 0.1:
                return chance.choice(left)
            return chance.choice(current) if len(current) == ITEMS.get(collection, 1) else None

    def record(self, operation: Operation, etag: str = "") -> None:
        """Add an operation to the history, and what its result shows to its item."""
        result = operation.result
        with self._lock:
            self.history.append(operation)
            if (item := self.items.get(operation.item)) is None:
                return  # an item that nobody made; the check of the history refuses it
            item.id = item.id or operation.id
            if etag and isinstance(result, Stored) and (not item.seen or item.seen[-1].stored.version < result.version):
                item.seen.append(Seen(etag, result))
            deleted = operation.kind == "delete" and isinstance(result, Stored)
            gone = deleted or bool(item.id and result is Refusal.MISSING)
            if gone and item in self._current[item.collection]:
                self._current[item.collection].remove(item)
                self._left[item.collection].append(item)

    def missing(self) -> set[object]:
        """What has not happened yet."""
        with self._lock:
            return {*(HAPPENING - self.counts.keys()), *(EVENTS - self.types)}

    def count(self, label: str, result: Result | str) -> None:
        named = "200" if isinstance(result, Stored) else result.value if isinstance(result, Refusal) else result
        with self._lock:
            self.counts[label, named or "lost"] += 1

    def responded(self, status: int, seconds: float) -> None:
        """Count a complete response."""
        self.count("request", f"{status // 100}xx" if status < 500 else str(status))
        with self._lock:
            self.slowest = max(self.slowest, seconds)
            self.clear += status < 500

    def stored(self, item: dict[str, Any], etag: str = "") -> Stored:
        """The version and value of an item. Raises AssertionError if that version was different before.

        The version is what the function before each write has counted: the singleton shows no other one.
        """
        stored = Stored(item["writes"], item["value"])
        assert item.get("version", stored.version) == stored.version, f"a function before a write: {item}"
        version = Stored(stored.version, item["name"])
        with self._lock:
            before = self._representations.setdefault(version, item)
            tag = self._etags.setdefault(version, etag) if etag else ""
        assert before == item, f"a version of an item in two forms: {before} and {item}"
        assert tag == etag, f"a version of an item with two ETags, {tag} and {etag}: {item}"
        return stored

    def events(self, page: Sequence[Any]) -> list[FeedEvent]:
        """The events of this run's items on a page of the feed, without those of the log."""
        return [self._event(each) for each in page if self.is_ours(each["data"].get("name"))]

    def _event(self, event: dict[str, Any]) -> FeedEvent:
        of, type = event["type"].split(".")
        item, stored = event["data"], self.stored(event["data"])
        version = self._versions.setdefault((item["name"], stored.value), stored.version)
        cleared = type == "updated" and version < stored.version
        self.types.add(f"{of}.cleared" if cleared else event["type"])
        collection = of if of == SINGLETON else f"{of}s"
        name, to = REFERENCES.get(collection, ("", ""))
        refers = f"/{to}/{item[name]}" if item.get(name) else ""
        if of == SINGLETON and stored.version == 1:
            type = "created"
        return FeedEvent(type, item["name"], stored, id_of(collection, item), refers)

    def logged(self, page: Sequence[Any]) -> list[FeedEvent]:
        """The changes of this run's items that the log has, from a page of the feed."""
        items = [each["data"] for each in page if each["type"] == "log.created"]
        return [
            FeedEvent(each["type"], each["item"], Stored(each["writes"], each["value"]))
            for each in items
            if self.is_ours(each["item"])
        ]

    def is_ours(self, name: str | None) -> bool:
        """Whether this is the name of an item of this run."""
        return bool(name and name.startswith((self.run, SINGLETON)))


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
        self.logged: list[FeedEvent] = []

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
        (collection,) = self._chance.choices(list(OFTEN), list(OFTEN.values()))
        item = self._recorder.choose(collection, self._chance)
        if item is None or (label in ("create", "array") and collection != SINGLETON):
            return self.write(self._create(collection, several=label == "array"))
        match label:
            case "repeated" if keyed := list(self._recorder.keyed):
                write = self._chance.choice(keyed)
                return self.write(write._replace(label=f"repeated {write.label}"))
            case "list" if collection != SINGLETON:
                return self.list_items(collection)
            case "feed":
                return self.follow()
            case _ if not item.id or (label == "find by name" and collection != SINGLETON):
                return self.find(item)
            case "batch":
                return self.write(self._batch(item))
            case "action" if collection in ("products", SINGLETON):
                return self.write(self._act(item))
            case "delete" if collection not in ("parts", SINGLETON):
                return self.write(self._delete(item))
            case "change" | "unconditional change" | "invalid change":
                return self.write(self._change(label, item))
        return self.read(item, if_changed=label == "read if changed")

    # The writes.

    def create_settings(self) -> bool:
        """The first change of the singleton."""
        value = next(self._values)
        effect = _effect("create", self._recorder.items[SINGLETON], value, SINGLETON)
        return self.write(Write("change", "PUT", f"/{SINGLETON}", {"value": value}, [effect]))

    def _create(self, collection: str, *, several: bool) -> Write:
        """POST of an item, or of an array of them."""
        reference, refers = self._reference(collection)
        if collection == "parts" and not reference:
            return self._create("products", several=several)
        names = [next(self._values) for _ in range(SEVERAL if several else 1)]
        bodies = [self._new(collection, name) | reference for name in names]
        effects = [_effect("create", self._recorder.items[name], name, names[0]) for name in names]
        shown = [self._show(name, names[0]) for name in names if collection == "brands"]
        label, body = ("array", bodies) if several else ("create", bodies[0])
        return Write(label, "POST", f"/{collection}", body, effects + shown, key=names[0], refers=refers)

    def _new(self, collection: str, name: str) -> dict[str, Any]:
        """A new item: its name is also its first value."""
        self._recorder.new_item(collection, name)
        return {"name": name, "value": name}

    def _show(self, value: str, request: str) -> Operation:
        """What a function does after each write of a brand."""
        return _effect("change", self._recorder.items[SINGLETON], value, request)

    def _reference(self, collection: str) -> tuple[dict[str, Any], list[str]]:
        """The field that refers to an item which the clients know, and the name of that: nothing if there is none."""
        name, to = REFERENCES.get(collection, ("", ""))
        item = self._recorder.choose(to, self._chance) if to else None
        if item is None or not item.id:
            return {}, []
        id = item.id.rpartition("/")[2]
        return {name: int(id) if id.isdecimal() else id}, [item.name]

    def _change(self, label: str, item: Item) -> Write:
        """PATCH or PUT of the item as some client saw it, mostly the last one; a PUT can leave out the reference."""
        value = next(self._values)
        method = self._chance.choice(["PATCH", "PUT"])
        body: dict[str, Any] = {"value": "" if label == "invalid change" else value}
        refers = list[str]()
        if method == "PUT":
            body["name"] = item.name
        if self._chance.random() < 0.5 or (method == "PUT" and item.collection == "parts"):
            reference, refers = self._reference(item.collection)
            body |= reference
            if item.collection == "parts" and not reference:
                method = "PATCH"
        effects = [_effect("change", item, value, value)]
        if item.collection == "brands":
            effects.append(self._show(value, value))
        write = Write(label, method, item.id, body, effects, refers=refers)
        return write if label == "unconditional change" else self._if_match(write, item)

    def _delete(self, item: Item) -> Write:
        return self._if_match(
            Write("delete", "DELETE", item.id, None, [_effect("delete", item, "", next(self._values))]), item
        )

    def _act(self, item: Item) -> Write:
        """An action: of the singleton, or of a product, which also creates an offer."""
        value = next(self._values)
        effects = [_effect("change", item, value, value)]
        if item.collection == SINGLETON:
            write = Write("action", "POST", f"{item.id}/stamp", {"value": value}, effects, key=value)
        else:
            body = self._new("offers", value)
            effects.append(_effect("create", self._recorder.items[value], value, value))
            write = Write("action", "POST", f"{item.id}/offer", body, effects, key=value)
        return self._if_match(write, item) if self._chance.random() < 0.5 else write

    def _batch(self, item: Item) -> Write:
        """A new product with a part and an offer, and a change of an item, or its deletion."""
        product, part, offer = (next(self._values) for _ in range(3))
        deletes = item.collection not in ("parts", SINGLETON) and self._chance.random() < 0.2
        last = self._delete(item) if deletes else self._change("change", item)
        operations: list[dict[str, Any]] = [
            {"method": "POST", "path": "/products", "body": self._new("products", product), "name": "new"},
            {"method": "POST", "path": "/parts", "body": self._new("parts", part) | {"product": "$new"}},
            {"method": "POST", "path": "/products/$new/offer", "body": self._new("offers", offer)},
            {"method": last.method, "path": last.path, "body": last.body},
        ]
        if last.etag:
            operations[-1]["if_match"] = last.etag
        items, (of_last, *others) = self._recorder.items, last.effects
        effects = [
            *(_effect("create", items[name], name, product) for name in (product, part)),
            _effect("change", items[product], offer, product),
            of_last._replace(request=product),
            _effect("create", items[offer], offer, product),
            *(each._replace(request=product) for each in others),
        ]
        body = {"operations": operations}
        return Write("batch", "POST", "/api/v1/batch", body, effects, key=product, refers=last.refers)

    def _if_match(self, write: Write, item: Item) -> Write:
        """The write, if the item, which is that of the first effect, is as some client saw it, mostly the last one."""
        if not (seen := list(item.seen)):
            return write
        etag, stored = seen[-1] if self._chance.random() < 0.8 else self._chance.choice(seen)
        first, *others = write.effects
        return write._replace(etag=etag, effects=[first._replace(expected=stored.version), *others])

    def write(self, write: Write) -> bool:
        """Send a write; one with a key again, until there is a clear response. Whether there was one."""
        headers = {"Idempotency-Key": f'"{write.key}"'} if write.key else {}
        headers |= {"If-Match": write.etag} if write.etag and not write.path.endswith("/batch") else {}
        if write.label in KEYED:
            self._recorder.keyed.append(write)
        start = time.monotonic()
        while True:
            try:
                response = self._send(write.method, write.path, write.body, headers)
            except NotSent:
                if not write.key:
                    raise
                response = None
            if response is not None or not write.key or time.monotonic() > start + PATIENCE:
                break
            self._recorder.count(write.label, "sent again")
            time.sleep(BACKOFF)
        end = time.monotonic() if response else inf
        results = [*self._results(write, response)]
        for effect, (result, id, etag) in zip(write.effects, results, strict=True):
            self._recorder.record(effect._replace(start=start, end=end, result=result, id=id), etag)
        for name in write.refers if response and response.status == 422 else ():
            if write.label != "invalid change":
                self._recorder.record(Operation("read", name, start, end, Refusal.MISSING))
        self._recorder.count(
            write.label, min((each for each, _, _ in results), key=lambda each: each is Refusal.INVALID)
        )
        return response is not None

    def _results(self, write: Write, response: HttpResponse | None) -> Iterator[tuple[Result, str, str]]:
        """The result of each effect of a write, with the id and the ETag of the item.

        Raises AssertionError for an unexpected response.
        """
        if response is None:
            return (yield from [(None, "", "")] * len(write.effects))
        refusal = _refusal_of(response)
        if refusal is None:
            assert write.label != "invalid change", f"accepted: {write}, {response}"
            items = _items_in(response)
            for effect, (item, etag) in zip(write.effects, items, strict=False):
                stored = self._recorder.stored(item, etag)
                yield stored, id_of(self._recorder.items[effect.item].collection, item), etag
            yield from [(None, "", "")] * (len(write.effects) - len(items))
            return
        deletes = any(each.kind == "delete" for each in write.effects)
        assert refusal is not Refusal.REFERRED or deletes, f"refused: {write}, {response}"
        assert refusal is not Refusal.INVALID or write.refers or write.label == "invalid change", f"{write}, {response}"
        which = response.json().get("operation", 0)
        for number in range(len(write.effects)):
            yield refusal if number == which else Refusal.INVALID, "", ""

    # The reads.

    def read(self, item: Item, *, if_changed: bool = False) -> bool:
        """GET; with `if_changed` and an ETag a 304 says that the item still has the state that a client saw."""
        seen = item.seen[-1] if if_changed and item.seen else None
        start = time.monotonic()
        response = self._send("GET", item.id, headers={"If-None-Match": seen.etag} if seen else {})
        result: Result = None
        id = etag = ""
        if response and response.status == 304 and seen:
            result = seen.stored
        elif response and (result := _refusal_of(response)) is None:
            ((found, etag),) = _items_in(response)
            result, id = self._recorder.stored(found, etag), id_of(item.collection, found)
        self._recorder.record(Operation("read", item.name, start, time.monotonic(), result, id=id), etag)
        self._recorder.count("read if changed" if seen else "read", result)
        return response is not None

    def find(self, item: Item) -> bool:
        """A list with a filter by the item's name, which an index serves."""
        start = time.monotonic()
        found = _page(self._send("GET", f"/{item.collection}?name={item.name}"))
        if found is None:
            self._recorder.count("find by name", "lost")
            return False
        assert len(found) < 2, f"created twice: {found}"
        result = self._recorder.stored(found[0]) if found else Refusal.MISSING
        id = id_of(item.collection, found[0]) if found else ""
        self._recorder.record(Operation("read", item.name, start, time.monotonic(), result, id=id))
        self._recorder.count("find by name", result)
        return True

    def list_items(self, collection: str) -> bool:
        """The newest items."""
        return self.page(collection, f"/{collection}?sort=-id&limit=20") is not None

    def page(self, collection: str, path: str) -> tuple[list[str], str] | None:
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
            stored, id = self._recorder.stored(each), id_of(collection, each)
            self._recorder.record(Operation("read", each["name"], start, end, stored, id=id))
        return [each["name"] for each in ours], next_of(response)

    def follow(self) -> bool:
        """The next page of the feed."""
        response = self._send("GET", self.cursor)
        found = _page(response)
        if response is not None and found is not None:
            self.events += self._recorder.events(found)
            self.logged += self._recorder.logged(found)
            self.cursor = next_of(response)
        self._recorder.count("feed", "lost" if found is None else "200")
        return found is not None

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


def _effect(kind: str, item: Item, value: str, request: str) -> Operation:
    """What a request will do."""
    return Operation(kind, item.name, inf, inf, None, value, request=request)


def id_of(collection: str, item: Mapping[str, Any]) -> str:
    """The id of an item with its collection: the path of the item."""
    return f"/{collection}/{item['id']}" if "id" in item else f"/{collection}"


def _refusal_of(response: HttpResponse) -> Refusal | None:
    """What a response says that has no item. Raises AssertionError for an unexpected status."""
    match response.status:
        case 200:
            return None
        case 404:
            return Refusal.MISSING
        case 409:
            return Refusal.REFERRED
        case 412:
            return Refusal.CONFLICT
        case 422 | 429:
            return Refusal.INVALID
    raise AssertionError(f"unexpected response: {response}")


def _items_in(response: HttpResponse) -> list[tuple[dict[str, Any], str]]:
    """The items in a response, each with its ETag if that is there: one, those of an array, or those of a batch."""
    match response.json():
        case {"results": results}:
            return [(each["body"], each["headers"].get("ETag", "")) for each in results]
        case list(items):
            return [(each, "") for each in items]
        case item:
            return [(item, response.headers.get("etag", ""))]


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
