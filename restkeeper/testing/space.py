"""A space: the service of one test. docs/testing.md says what can be done with it."""

import copy
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode
from weakref import WeakSet

from flask import Flask
from flask.testing import FlaskClient

from restkeeper.errors import Problem
from restkeeper.features.harness.spaces import SPACE
from restkeeper.testing.verification import ANY, differences, misplaced
from restkeeper.web import exactjson

__tracebackhide__ = True  # a failure is shown at the line of the test
Send = Callable[[str, str, Any], Any]  # a method, a path and a JSON value to the JSON value of the response

# Since the present test has begun: the spaces in which a fault was declared, and the faults that no request has matched
# of those that were dropped or reset.
declared = WeakSet["Space"]()
missed = deque[Any](maxlen=100)


def unmet_faults() -> list[Any]:
    """The faults of the present test that no request has matched."""
    found = list(missed)
    for space in list(declared):
        with suppress(ValueError, OSError):  # the server was killed
            found += space.faults.unmet
    return found


class Space:
    """A service of its own in a server: data, keys, limits, webhooks, faults, clock and requests.

    A context manager, which drops it. `url` is its address, of no other space, and `control` that of the documents by
    which another process controls it. If the service is in this process, `client` is a Flask test client of it, and
    `app` the application for other clients. Names of files are from its `folder`.
    """

    folder = Path()

    def __init__(self, server: Any, *, id: str, url: str, control: str) -> None:
        self.id, self.url, self.control = id, url, control
        self._server = server
        self._is_dropped = False
        self.clock, self.faults, self.webhooks = Clock(self._send), Faults(self._send), Webhooks(self._send)

    def _send(self, method: str, path: str, value: Any) -> Any:
        if (method, path) == ("POST", "/faults"):
            declared.add(self)
        return self._server._call(method, f"/__harness__/spaces/{self.id}{path}", value)

    def __enter__(self) -> "Space":
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        """End it, its port and its connections. A second call has no effect."""
        if not self._is_dropped:
            self._is_dropped = True
            self._end("DELETE", "")

    def seed(self, data: Mapping[str, Any] | Path | str) -> dict[str, int]:
        """Add items, all or none: {"users": [{…}], "settings": {…}}, or a JSON file of that; returns how many."""
        return dict(self._send("POST", "/seed", {"seed": data_of(data, self.folder)}))

    def reset(self) -> None:
        """Be as new, and empty. Snapshots stay."""
        self._end("POST", "/reset")

    def _end(self, method: str, path: str) -> None:
        missed.extend(SimpleNamespace(**each) for each in self._send(method, path, None)["unmet"])
        declared.discard(self)

    def snapshot(self) -> str:
        """Keep the data as they are; returns a name for `restore`."""
        return str(self._send("POST", "/snapshots", None)["name"])

    def restore(self, name: str) -> None:
        """Have the data of a snapshot again."""
        self._send("POST", "/restore", {"name": name})

    def stub(self, method: str, path: str, **response: Any) -> None:
        """Respond where the service has no route, until a reset: with `json` or `text`, 200 or another `status`.

        Also with a `content_type` and `headers`; the method, the path and `request_headers` are patterns as of faults.
        """
        self._send("POST", "/stubs", {"method": method, "path": path, **response})

    def requests(self, *, method: str = "*", path: str = "*", **query: Any) -> list[Any]:
        """The last requests, the oldest first; the texts are patterns with `*`.

        Each has method, path, query, headers, body, status (None if there was no response), response_headers, response,
        fault, matched (by a route), at, ms, and in `cut` the names of what is longer: headers, body, response.
        """
        found = self._send("GET", "/requests?" + urlencode({"method": method, "path": path, **query}), None)
        return [SimpleNamespace(**each) for each in found]

    def assert_requested(self, method: str, path: str, *, times: int | None = None, json: Any = ANY) -> None:
        """Raises AssertionError, with the nearest request, unless there were so many of them; None: at least one.

        Method and path are patterns with `*`; a query that follows the path, too. Their content is this `json`.
        """
        path, _, query = path.partition("?")
        known, like = self.requests(), self.requests(method=method, path=path)
        found = [(differences(each, query or "*", json), each) for each in reversed(like)]
        count = [wrong for wrong, _ in found].count([])
        if times is not None and known and known[0].number > 1:
            raise AssertionError(f"how many is not known: only the requests from number {known[0].number} on are kept")
        if count == times or (times is None and count):
            return
        text = f"{'a' if times is None else times} {method} {path} expected, and {count} found"
        if known and not count:
            found = found or [(misplaced(each, method, path), each) for each in reversed(known)]
            wrong, sent = min(found, key=lambda each: len(each[0]))
            place = f"number {sent.number}, {sent.method} {sent.path} {sent.status}"
            text += f"; the nearest is {place}: {'; '.join(wrong)}"
        raise AssertionError(text)

    @property
    def unmatched(self) -> list[Any]:
        """The last requests that no route was for."""
        return self.requests(unmatched="true")

    @property
    def client(self) -> FlaskClient:
        """A Flask test client of it."""
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

    `request_headers` are patterns, too. The first `skip` such requests are left alone, then `times` (None: all) have
    the fault, each with a `probability`.
    """

    def __init__(self, send: Send) -> None:
        self._send = send

    def _add(self, kind: str, method: str, path: str, **options: Any) -> None:
        self._send("POST", "/faults", {"kind": kind, "method": method, "path": path, **options})

    def respond(self, method: str, path: str, status: int, **options: Any) -> None:
        """Respond with the problem of a status, and its `detail`, or with a `text` of a `content_type`, or `json`.

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
        """Those that no request has matched, with kind, method, path and all else; also after `clear`."""
        return [SimpleNamespace(**each) for each in self._send("GET", "/faults", None)]

    def clear(self) -> None:
        """Have no faults any more."""
        self._send("DELETE", "/faults", None)


class Webhooks:
    """What the webhooks of a space get. Nothing is sent to other machines; endpoints on this one get it, too."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def wait(self, type: str, within: float = 0.0) -> Any:
        """The last delivery of a type of event, after up to so many seconds: url, headers, body and status.

        A space without a webhook gets one for all events. Raises AssertionError without such a delivery, and for one
        whose signature, or the time in it, a receiver would refuse.
        """
        found = self.deliveries(type, within)
        assert found, f"no delivery of {type} in {within} s; there are: {[each.type for each in self.deliveries()]}"  # noqa: S101 - for tests
        assert found[-1].verified, f"a receiver would refuse the signature of {type}, or the time in it"  # noqa: S101
        return found[-1]

    def deliveries(self, type: str = "*", within: float = 0.0) -> list[Any]:
        """All deliveries of a type of event."""
        found = self._send("GET", "/deliveries?" + urlencode({"type": type, "within": within}), None)
        return [SimpleNamespace(**each) for each in found]

    def respond(self, *statuses: int) -> None:
        """The responses to the next deliveries, in place of the endpoints, which do not get these.

        As `wait`, it gives a space without a webhook one for all events.
        """
        self._send("PUT", "/responses", {"statuses": statuses})


def data_of(data: Any, folder: Path = Path()) -> Any:
    if not isinstance(data, str | Path):
        return data
    try:
        return exactjson.loads((folder / data).read_bytes())
    except Problem as problem:
        raise ValueError(f"{data}: {problem.detail}") from None
