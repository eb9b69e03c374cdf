"""The feed as server-sent events: each event once, also across a restart, and who may receive it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

import restkeeper.features.events as feature
from restkeeper import Config, LiveServer
from restkeeper.features.events import BEAT_SECONDS
from restkeeper.service import service_of
from restkeeper.storage.feed import MOST_EXAMINED
from restkeeper.web.application import IS_CANCELLED, Application
from tests.browser import Page, Tab
from tests.callers import ADMIN, key, make_key
from tests.clock import SetClock
from tests.json_file import client_of
from tests.live import Gunicorn
from tests.shop import RESOURCES, create_app
from tests.test_events import FEED, OTHER, Meanwhile, make, narrow, waiters_of
from tests.test_private import CONFIG, CUSTOMERS, JOBS
from tests.waiting import SECONDS, join, until

pytestmark = pytest.mark.needs("events")

STREAM = {"Accept": "text/event-stream"}
REQUIRED = Config(auth="required", admin_key=ADMIN["X-API-Key"], waits_per_caller=2)

# In a page: what an EventSource receives, and whether it is open.
SOURCE = """window.found = []; window.source = new EventSource('/api/v1/events?after=latest');
source.addEventListener('product.created', ({lastEventId, data}) =>
  found.push([lastEventId, JSON.parse(data).data.name]));"""


class Event(dict[str, str]):
    """The fields of one event of a stream; a comment has the cursor alone."""


def events_in(lines: Iterator[bytes]) -> Iterator[Event]:
    """The events of a stream (HTML, section 9.2.6): one that is cut at the end of the stream is none."""
    found = Event()
    for line in lines:
        text = line.decode().removesuffix("\n")
        name, _, value = text.partition(": ")
        if text.startswith(":"):
            continue
        if text:
            assert name in ("id", "event", "data"), text
            found[name] = value
        else:
            yield found
            found = Event()


def stream(client: FlaskClient, path: str = FEED, **options: Any) -> tuple[TestResponse, Iterator[Event]]:
    options["headers"] = STREAM | options.get("headers", {})
    response = client.get(path, **options)
    return response, events_in(line + b"\n" for part in response.response for line in part.split(b"\n")[:-1])


def names(events: list[Event]) -> list[str]:
    return [json.loads(each["data"])["data"]["name"] for each in events if "data" in each]


def ending(after: int) -> dict[str, Any]:
    """A request that is cancelled when it has looked so many times."""
    looks = iter(range(after))
    return {"environ_overrides": {IS_CANCELLED: lambda: next(looks, None) is None}}


def test_every_change_once_over_a_restart(tmp_path: Path) -> None:
    """A client that continues with the last id that it has gets 100 of 100 changes, in their order."""
    seen: list[Event] = []
    ended = threading.Event()

    def read(port: int) -> None:
        last = ""
        while len(seen) < 100 and not ended.is_set():
            more = {"Last-Event-ID": last} if last else {}
            with suppress(OSError, HTTPException), closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
                connection.request("GET", FEED, headers=STREAM | more)
                for event in events_in(iter(connection.getresponse().readline, b"")):
                    last = event["id"]
                    seen.extend([event] if "data" in event else [])
                    if len(seen) >= 100:
                        return

    with Gunicorn(tmp_path) as first:
        reader = threading.Thread(target=read, args=(first.port,))
        reader.start()
        try:
            for number in range(50):
                assert first.post("/products", {"name": str(number)}).status == 200
            until(lambda: len(seen) > 20)  # it is in the middle
            first.__exit__()
            with Gunicorn(tmp_path, port=first.port) as second:
                for number in range(50, 100):
                    assert second.post("/products", {"name": str(number)}).status == 200
                join(reader)
        finally:
            ended.set()
    assert names(seen) == [str(number) for number in range(100)]
    assert len({each["id"] for each in seen}) == 100


def test_a_stop_ends_a_stream_and_its_line_comes_then(tmp_path: Path) -> None:
    """Soon, and completely; a client that leaves has a line, too, and gives its slot back."""
    with Gunicorn(tmp_path, workers=1) as server, closing(HTTPConnection("127.0.0.1", server.port, SECONDS)) as left:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        for each in (left, connection):
            each.request("GET", f"{FEED}?after=latest", headers=STREAM)
        gone, response = left.getresponse(), connection.getresponse()
        assert response.headers["Content-Type"] == "text/event-stream" and response.headers["X-Accel-Buffering"] == "no"
        assert response.headers["Cache-Control"] == "no-store"
        server.post("/products", {"name": "a"})
        for each in (gone, response):
            found = events_in(iter(each.readline, b""))
            assert [*next(found)] == ["id"] and names([next(found)]) == ["a"]
        lines = [line for line in server.lines() if FEED in line]
        assert lines == []
        gone.close()
        left.close()
        until(lambda: [line for line in server.lines() if FEED in line])
        server.process.terminate()
        assert response.read().endswith(b"\n\n")  # and no IncompleteRead
        server.process.wait(SECONDS)
        connection.close()
        lines = [line for line in server.lines() if FEED in line]
    assert len(lines) == 2 and all("status=200" in line for line in lines)


class TestParts:
    def test_an_event_is_that_of_the_feed(self, client: FlaskClient) -> None:
        """In one line, in its order; after each part is the cursor, by which `after=latest` has no gap."""
        for name in ("a", "b\nc", "\u2028é"):
            make(client, name)
        listed = client.get(FEED)
        response, found = stream(client, **ending(0))
        *events, end = found
        assert [json.loads(each["data"]) for each in events] == listed.json
        assert [(each["id"], each["event"]) for each in events] == [(each["id"], each["type"]) for each in listed.json]
        assert end == {"id": listed.json[-1]["id"]}
        assert response.headers["Vary"].startswith("Accept") and listed.headers["Vary"].startswith("Accept")
        (latest,) = stream(client, f"{FEED}?after=latest", **ending(0))[1]
        make(client, "later")
        again = stream(client, f"{FEED}?after=latest", headers={"Last-Event-ID": latest["id"]}, **ending(0))[1]
        assert names([*again]) == ["later"]

    def test_a_filtered_stream_has_the_cursor_of_what_it_skips(self, app: Application, client: FlaskClient) -> None:
        """Also of more than one search examines."""
        store = service_of(app).store
        store.write(lambda transaction: [transaction.add_event(OTHER) for _ in range(MOST_EXAMINED + 1)])
        client.post("/users", json={"email": "a@example.org", "name": "wanted"})
        found = [*stream(client, f"{FEED}?collection=users&wait=30", **ending(3))[1]]
        assert names(found) == ["wanted"] and found[0]["id"] != found[-1]["id"]

    def test_a_comment_comes_each_15_seconds(self) -> None:
        clock = SetClock(100.0)
        response, found = stream(create_app(Config(), clock=clock).test_client())
        cursors = [next(found) for _ in range(3)]
        assert 100 + 2 * BEAT_SECONDS <= clock.now < 101 + 2 * BEAT_SECONDS
        assert all([*each] == ["id"] for each in cursors)
        response.close()

    def test_a_page_is_read_when_the_client_takes_it(
        self, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A slow reader has one page in memory."""
        for number in range(5):
            make(client, str(number))
        find, reads = feature.find_events, list[str]()
        monkeypatch.setattr(feature, "find_events", lambda *asked: reads.append(asked[1]) or find(*asked))
        response, found = stream(client, f"{FEED}?limit=2")
        for pages, expected in ((1, ["0", "1"]), (2, ["2", "3"]), (3, ["4"])):
            assert names([next(found) for _ in expected]) == expected and len(reads) == pages
            assert "data" not in next(found)
        response.close()

    def test_a_json_file_has_lines_of_its_own(self, tmp_path: Path) -> None:
        client = client_of(tmp_path, json.dumps({"posts": [{"id": 1, "a": {"b": [1, 2]}}]}, indent=2))
        client.patch("/posts/1", json={"title": "x"})
        (event, _) = stream(client, **ending(0))[1]
        assert json.loads(event["data"])["data"]["a"] == {"b": [1, 2]}

    def test_head_and_wrong_requests(self, app: Application, client: FlaskClient) -> None:
        head = client.head(FEED, headers=STREAM)
        assert (head.data, head.mimetype, "Content-Length" in head.headers) == (b"", "text/event-stream", False)
        assert waiters_of(app)._waiting.total() == 0
        for headers in ({"Last-Event-ID": "x"}, {"Last-Event-ID": ""}, STREAM | {"Last-Event-ID": "évt"}):
            wrong = client.get(FEED, headers=headers)
            assert (wrong.status_code, wrong.json["errors"][0]["parameter"]) == (400, "Last-Event-ID")
        gone = client.get(FEED, headers=STREAM | {"Last-Event-ID": "evt_00000000_1"})
        assert (gone.status_code, gone.json["code"]) == (410, "cursor-expired")
        for accept, found in {
            "text/event-stream;q=0.5, application/json": "application/json",
            "*/*": "application/json",
            "text/csv": 406,
        }.items():
            response = client.get(FEED, headers={"Accept": accept})
            assert found in (response.status_code, response.mimetype)


@pytest.mark.needs("keys", "ownership")
class TestPermissions:
    def test_a_stream_is_a_request_that_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the bounds of a process and of a caller; it gives its slot back at its end."""
        app = create_app(REQUIRED)
        client = app.test_client()
        greedy = key(client, "products:read")
        responses = [client.get(FEED, headers=STREAM | greedy) for _ in range(2)]
        refused = client.get(FEED, headers=STREAM | greedy)
        assert (refused.status_code, refused.json["violated-policies"]) == (429, ["waits"])
        for each in responses:  # one has not even begun
            each.close()
        assert waiters_of(app)._waiting.total() == 0
        monkeypatch.setattr("restkeeper.features.events.MOST", 0)
        assert client.get(FEED, headers=STREAM | greedy).status_code == 503
        assert client.get(FEED, headers=STREAM).status_code == 401

    @pytest.mark.parametrize(
        ("meanwhile", "goes_on"),
        [
            (lambda admin, id: admin.delete(f"/api/v1/keys/{id}", headers=ADMIN), False),
            (lambda admin, id: admin.post(f"/api/v1/keys/{id}/rotate", headers=ADMIN), False),
            (lambda admin, id: narrow(admin, id), False),
            (lambda admin, id: None, True),
        ],
    )
    @pytest.mark.parametrize("writes", [True, False])
    def test_a_stream_ends_with_its_key(self, meanwhile: Callable[..., object], goes_on: bool, writes: bool) -> None:
        """Before the next event, or the next comment: it sends nothing more."""
        clock = Meanwhile()
        app = create_app(REQUIRED, clock=clock)
        admin, made = app.test_client(), make_key(app.test_client())

        def change() -> None:
            meanwhile(admin, made["id"])
            if writes:
                make(admin, "after", headers=ADMIN)

        clock.act = change
        response, found = stream(app.test_client(), headers={"X-API-Key": made["secret"]})
        assert [*next(found)] == ["id"]
        following = next(found, None)
        assert (following is not None) is goes_on
        if goes_on and writes:
            assert following and names([following]) == ["after"]
        response.close()

    @pytest.mark.needs("batch", "idempotency", "dialects", "versions", "webhooks", "openapi")
    def test_private_fields_and_collections_as_in_the_feed(self) -> None:
        app = create_app(CONFIG, (CUSTOMERS, JOBS))
        client = app.test_client()
        client.post("/jobs", json={"title": "a", "note": "secret"}, headers=ADMIN)
        client.post("/customers", json={"name": "Ann"}, headers=ADMIN)
        for who in (key(client, "jobs:read"), ADMIN):
            *events, _ = stream(client, headers=who, **ending(0))[1]
            assert [json.loads(each["data"]) for each in events] == client.get(FEED, headers=who).json
            assert ("secret" in str(events)) is (who is ADMIN)


def test_a_space_of_a_harness_sends_the_events_that_there_are() -> None:
    """And ends the stream, which its client requests again soon: the journal has each of these requests."""
    with LiveServer(resources=RESOURCES, in_process=True) as server, server.space() as space:
        last = ""
        for name in ("a", "b"):
            space.client.post("/products", json={"name": name})
            *found, cursor = stream(space.client, headers={"Last-Event-ID": last} if last else {})[1]
            assert names(found) == [name]
            last = cursor["id"]


@pytest.mark.matrix
@pytest.mark.needs("browse", "openapi")
def test_an_event_source_of_a_browser_continues_after_a_restart(tmp_path: Path, tab: Tab) -> None:
    with Gunicorn(tmp_path, workers=1) as first:
        page = Page(tab, first)
        tab.open(f"{first.base}/browse")
        tab.run(SOURCE)
        page.until("source.readyState === 1")
        for number in range(50):
            first.post("/products", {"name": str(number)})
        page.until("found.length > 0")
    with Gunicorn(tmp_path, workers=1, port=first.port) as second:
        for number in range(50, 100):
            second.post("/products", {"name": str(number)})
        page.until("found.length > 99")
        assert tab.run("found.map(([, name]) => name).join()") == ",".join(map(str, range(100)))
        assert tab.run("new Set(found.map(([id]) => id)).size") == 100
        tab.run("source.close()")
