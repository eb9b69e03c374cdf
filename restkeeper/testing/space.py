"""A space: the service of one test. docs/testing.md says what can be done with it."""

import copy
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from mimetypes import guess_type
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from flask import Flask
from flask.testing import FlaskClient

from restkeeper import exactjson
from restkeeper.errors import Problem
from restkeeper.features.harness.spaces import SPACE

__tracebackhide__ = True  # a failure is shown at the line of the test
Send = Callable[[str, str, Any], Any]  # a method, a path and a JSON value to the JSON value of the response

Declarations = WeakKeyDictionary["Space", set[int]]  # the numbers of what was declared in spaces: see `Faults.unmet`

declared: Declarations = WeakKeyDictionary()  # by the present test, and its fixtures of its own scope
missed = deque[Any](maxlen=100)  # what was unmet in spaces that were dropped or reset since the present test has begun


def take_declared(before: Mapping["Space", set[int]]) -> Declarations:
    """What was declared since then, which is the present test's no more."""
    taken = Declarations()
    for space, numbers in list(declared.items()):
        if since := numbers - before.get(space, set()):
            taken[space] = since
            numbers -= since
    return taken


def unmet_of(declarations: Declarations) -> list[Any]:
    """What has not happened as often as it was declared."""
    found = list[Any]()
    for space, numbers in list(declarations.items()):
        with suppress(ValueError, OSError):  # the space was dropped, or the server killed
            found += [each for each in space.faults.unmet if each.number in numbers]
    return found


class Space:
    """A service for one test, in a server with others: it has its own data, keys, limits, webhooks, faults and clock.

    `LiveServer.space` returns one, a context manager, which drops it at the end. `url` is its address. `clock`,
    `faults` and `webhooks` control it from this process, and the documents at `control` from another one. If the
    service is in this process, `client` is a Flask test client, and `app` the application for other clients. Names of
    files are relative to its `folder`.
    """

    folder = Path()

    def __init__(self, server: Any, *, id: str, url: str, control: str) -> None:
        self.id, self.url, self.control = id, url, control
        self._server = server
        self._is_dropped = False
        self.clock, self.faults = Clock(self._send), Faults(self._send, self._declare)
        self.webhooks = Webhooks(self._send, self._declare)

    def _send(self, method: str, path: str, value: Any) -> Any:
        return self._server._call(method, f"/__harness__/spaces/{self.id}{path}", value)

    def _declare(self, method: str, path: str, value: dict[str, Any]) -> None:
        """Send what is to happen. Raises ValueError for what cannot be, and OSError for a `file` that is not there."""
        if "file" in value:
            file = self.folder / value.pop("file")
            value = {"content_type": guess_type(file)[0], **value, "bytes": file.read_bytes()}
        if isinstance(content := value.get("bytes"), bytes):
            value = value | {"bytes": b64encode(content).decode()}
        number = self._send(method, path, value)["number"]
        declared.setdefault(self, set()).add(number)

    def __enter__(self) -> "Space":
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        """End the space, its port and its connections. A second call has no effect."""
        if not self._is_dropped:
            self._is_dropped = True
            self._end("DELETE", "")

    def seed(self, data: Mapping[str, Any] | Path | str) -> dict[str, int]:
        """Add items, all or none: {"users": [{…}], "settings": {…}}, or a JSON file of that; returns how many."""
        return dict(self._send("POST", "/seed", {"seed": data_of(data, self.folder)}))

    def reset(self) -> None:
        """Return to the state of a new and empty space. Snapshots stay."""
        self._end("POST", "/reset")

    def _end(self, method: str, path: str) -> None:
        missed.extend(SimpleNamespace(**each) for each in self._send(method, path, None)["unmet"])
        declared.pop(self, None)

    def snapshot(self) -> str:
        """Save the data as they are; returns a name for `restore`."""
        return str(self._send("POST", "/snapshots", None)["name"])

    def restore(self, name: str) -> None:
        """Replace the data by those of a snapshot."""
        self._send("POST", "/restore", {"name": name})

    def stub(self, method: str, path: str, **response: Any) -> None:
        """Respond where the service has no route, until a reset: with 200 or another `status`.

        The content is `json` (None is null), `text`, `bytes` or a `file` of the `folder`, of a `content_type`; a value
        in `headers` can be a list, of several fields. The method and the path are patterns, as those of faults.
        """
        self._declare("POST", "/stubs", {"method": method, "path": path, **response})

    def requests(self, *, method: str = "*", path: str = "*", **query: Any) -> list[Any]:
        """The last requests, in the order of their arrival; the texts are patterns with `*`.

        Each has number, method, path, query, headers, body, status (None without a response), response_headers,
        response, fault, matched (by a route), at, ms (None until it ends), and in `cut` the names of what is longer:
        headers, body, response.
        """
        found = self._send("GET", "/requests?" + urlencode({"method": method, "path": path, **query}), None)
        return [SimpleNamespace(**each) for each in found]

    def clear_requests(self) -> None:
        """Delete the list of requests, and nothing else."""
        self._send("DELETE", "/requests", None)

    def assert_requested(self, method: str, path: str, **expected: Any) -> None:
        """Raises AssertionError, with the nearest request, unless there were such requests `within` so many seconds.

        The number is `times`, or `at_least` and `at_most`; without it there is at least one. Method and path are
        patterns with `*`; a query that follows the path, too. Their content is this `json`, of which `partial=True`
        objects have further members; `query` and `headers` are {name: value}, patterns with `*`, and None if there is
        none.
        """
        wanted = {"method": method, "path": path, **expected}
        if message := self._send("POST", "/assert_requested", wanted)["message"]:
            raise AssertionError(message)

    @property
    def unmatched(self) -> list[Any]:
        """The last requests that no route was for."""
        return self.requests(unmatched="true")

    @property
    def client(self) -> FlaskClient:
        """A Flask test client of the space. Raises RuntimeError unless it is in this process."""
        return self.app.test_client()

    @property
    def app(self) -> Flask:
        """The space as a WSGI application. Raises RuntimeError unless it is in this process."""
        own: Flask | None = self._server._app
        if own is None:
            raise RuntimeError("the service is in another process: use in_process=True")
        app, serve = copy.copy(own), own.wsgi_app
        app.wsgi_app = lambda environ, start: serve({**environ, SPACE: self.id}, start)  # type: ignore[method-assign, assignment]
        return app


class Clock:
    """The clock of a space. Each method returns its time."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def _change(self, **change: Any) -> datetime:
        return datetime.fromisoformat(self._send("PATCH", "/clock", change)["now"])

    @property
    def now(self) -> datetime:
        return self._change()

    def freeze(self, moment: datetime | str | None = None) -> datetime:
        """Stand still: now, or at a moment with an offset (RFC 3339)."""
        return self._change(frozen=True) if moment is None else self._change(frozen=True, now=moment)

    def run(self) -> datetime:
        """Go on from the present time."""
        return self._change(frozen=False)

    def set(self, moment: datetime | str) -> datetime:
        """Show a moment with an offset (RFC 3339), and run or stand still as before."""
        return self._change(now=moment)

    def advance(self, **amount: float) -> datetime:
        """Move forward, by what timedelta takes: hours=75. What webhooks get until then is sent at its time."""
        return self._change(advance=timedelta(**amount).total_seconds())


class Faults:
    """The faults of a space, each for requests with a method and a path, patterns with `*`; else the path is a route's.

    `request_headers` and `request_query` are {name: value}, patterns, too; `request_json` is the content, of which
    `partial=True` objects have further members. The first `skip` such requests are left alone; then each has the fault
    with a `probability`, until `times` (None: all) have had it.
    """

    def __init__(self, send: Send, declare: Callable[[str, str, dict[str, Any]], None]) -> None:
        self._send, self._declare = send, declare

    def _add(self, kind: str, method: str, path: str, **options: Any) -> None:
        self._declare("POST", "/faults", {"kind": kind, "method": method, "path": path, **options})

    def respond(self, method: str, path: str, status: int, **options: Any) -> None:
        """Respond with the problem of a status, and its `detail`, or with a content as `Space.stub`.

        `headers` are more fields of the response; `retry_after` is in seconds.
        """
        self._add("respond", method, path, status=status, **options)

    def delay(self, method: str, path: str, seconds: float, most: float | None = None, **options: Any) -> None:
        """Respond later, by some seconds or by a random number up to `most`."""
        self._add("delay", method, path, seconds=seconds, seconds_most=most, **options)

    def close(self, method: str, path: str, **options: Any) -> None:
        """Close the connection before the service does anything."""
        self._add("close", method, path, **options)

    def drop_response(self, method: str, path: str, **options: Any) -> None:
        """Close the connection when the service has done its work: the client cannot know that."""
        self._add("drop_response", method, path, **options)

    def reset(self, method: str, path: str, *, committed: bool = False, **options: Any) -> None:
        """Reset the connection (RST): before the service does anything, or after its work is `committed`."""
        self._add("reset", method, path, committed=committed, **options)

    def stall(self, method: str, path: str, seconds: float, **options: Any) -> None:
        """Stop in the middle of the content, for some seconds."""
        self._add("stall", method, path, seconds=seconds, **options)

    def cut_response(self, method: str, path: str, **options: Any) -> None:
        """Send half of the content."""
        self._add("cut_response", method, path, **options)

    def fail_store(self, method: str, path: str, *, committed: bool = False, **options: Any) -> None:
        """503, as while the store is away: before the work, or after it is `committed`."""
        self._add("fail_store", method, path, committed=committed, **options)

    @property
    def unmet(self) -> list[Any]:
        """Faults, stubs and responses to webhooks that have not happened as often as declared, or not once.

        Each has a `message`, kind, method, path and all else; also after `clear`.
        """
        return [SimpleNamespace(**each) for each in self._send("GET", "/faults", None)]

    def clear(self) -> None:
        """Have no faults any more."""
        self._send("DELETE", "/faults", None)


class Webhooks:
    """What the webhooks of a space get. Nothing is sent to other machines; endpoints on this one get it, too."""

    def __init__(self, send: Send, declare: Callable[[str, str, dict[str, Any]], None]) -> None:
        self._send, self._declare = send, declare

    def wait(self, type: str, within: float = 0.0, *, times: int | None = None, after: Any = 0) -> Any:
        """The last delivery of a type of event, after up to so many seconds: url, headers, body and status.

        With `times`, the list of all, as soon as there are so many; those until the delivery `after` do not count. A
        space without a webhook gets one for all events. Raises AssertionError if there are fewer.
        """
        found = self.deliveries(type, within, times=times or 1, after=after)
        if len(found) < (times or 1):
            what = "no delivery" if times is None else f"{len(found)} of {times} deliveries"
            there = [sent.type for sent in self.deliveries()]
            raise AssertionError(f"{what} of {type} in {within} s; there are: {there}")
        return found[-1] if times is None else found

    def deliveries(self, type: str = "*", within: float = 0.0, *, times: int = 1, after: Any = 0) -> list[Any]:
        """All deliveries of a type of event, with higher numbers than the delivery `after`."""
        query = {"type": type, "within": within, "times": times, "after": getattr(after, "number", after)}
        return [SimpleNamespace(**sent) for sent in self._send("GET", "/deliveries?" + urlencode(query), None)]

    def respond(self, *statuses: int) -> None:
        """The responses to the next deliveries, in place of the endpoints, which do not get these.

        As `wait`, it gives a space without a webhook one for all events.
        """
        self._declare("PUT", "/responses", {"statuses": statuses})


def data_of(data: Any, folder: Path = Path()) -> Any:
    if not isinstance(data, str | Path):
        return data
    try:
        return exactjson.loads((folder / data).read_bytes())
    except Problem as problem:
        raise ValueError(f"{data}: {problem.detail}") from None
