"""Spaces: each is the whole service of one test, with data, limits, webhooks, faults, clock and journal of its own.

A space uses an application until it is dropped; then that is emptied, and another space can have it: this takes a
hundredth of the time of making one. So there are as many as there were spaces at once, some 0.8 MiB each.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from random import Random
from threading import Event, Thread
from typing import Any, cast

from flask import Request, Response
from werkzeug.http import http_date

from restkeeper.clock import rfc3339, uuid7
from restkeeper.errors import BadRequest, Conflict, NotFound
from restkeeper.features.harness.faults import Faults
from restkeeper.features.harness.journal import Journal
from restkeeper.features.harness.ports import Ports
from restkeeper.features.harness.replies import FAULT, ROUTES, STUB, answer, reply_to, stalled
from restkeeper.features.harness.webhooks import Catcher
from restkeeper.service import Service, service_of
from restkeeper.storage.base import MemoryStore
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.feed import last_event
from restkeeper.web.application import Application, Serve, Stage

SPACE = "restkeeper.space"  # in the WSGI environment: the id of the space, of a request on a connection to its port
ROOT = "root"  # the id of the space at the server's own address
AT_ONCE = "at once"  # when webhooks are sent
MOST_SPACES = 200
LONGEST_DELAY = 60.0  # seconds, of all delays of a request
MOST_SNAPSHOTS = 20  # of a space
SPARE = 2  # applications that are made ahead
LOOK_SECONDS = 1.0

LATEST = 253_402_300_799.0  # the end of the year 9999, up to which a clock runs
EARLIEST = 1_767_225_600.0  # 2026-01-01T00:00:00Z: in the ids of a space that has a seed, whatever its clock shows
ID_NANOSECONDS = 1000  # that each id is later than the one before, also while the clock stands


class SpaceClock:
    """The clock of a space, which a test sets: it runs from any time on, or stands still, while `frozen` has a time.

    Elapsed time is real, so that nothing waits for ever, and jumps when a test moves the time forward; it
    never goes back.
    """

    def __init__(self) -> None:
        self._passed = 0.0
        self.run()

    def run(self) -> None:
        """Show the real time from now on."""
        self._ahead = 0.0
        self.frozen: float | None = None

    def time(self) -> float:
        return min(LATEST, time.time() + self._ahead) if self.frozen is None else self.frozen

    def monotonic(self) -> float:
        return time.monotonic() + self._passed

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def set(self, moment: float, *, frozen: bool | None = None) -> None:
        """Show another time; from then on it stands still or runs, or as before. Raises BadRequest after 9999."""
        if not 0 <= moment <= LATEST:
            raise BadRequest("a clock shows times from 1970 to 9999")
        self._passed += max(0.0, moment - self.time())
        self._ahead = moment - time.time()
        stands = self.frozen is not None if frozen is None else frozen
        self.frozen = moment if stands else None


class Ids:
    """The ids of new items: each a UUIDv7 of the service's time, in order. With a seed they are always the same."""

    def __init__(self, service: Service) -> None:
        self._service = service
        service.domain.new_id = self._new_id

    def begin(self, seed: int | None) -> None:
        """Give the first one next."""
        self._seed, self._numbers = seed, count(1)

    def _new_id(self) -> str:
        number, now, random = next(self._numbers), self._service.clock.time(), None
        if self._seed is not None:
            now, random = EARLIEST, Random(f"{self._seed} {number}").getrandbits(62)  # noqa: S311 - no secret
        return uuid7(int(now * 1e6) * 1000 + number * ID_NANOSECONDS, random)


class Instance:
    """An application with a clock, for one space at a time. `busy` is the number of its requests at present."""

    def __init__(self, make: Callable[..., Application]) -> None:
        self.clock = SpaceClock()
        self.app = make(self.clock)
        self.serve = self.app.wsgi_app  # the service, also where the application serves spaces
        self.service = service_of(self.app)
        self.store = cast(MemoryStore, self.service.store)
        self.app.checking.add(answer, stage=Stage.EDGE)
        self.app.answered.add(self._finish)
        self.ids = Ids(self.service)
        self._empty = self.store.saved()
        self.busy = 0

    def _finish(self, request: Request, response: Response) -> None:
        """Note the route, and date the response by the clock."""
        request.environ[ROUTES].append(request.url_rule)
        response.headers["Date"] = http_date(self.clock.time())

    def clear(self) -> None:
        """Empty the store and the counters, and let the clock run."""
        self.clock.run()
        self.store.load(self._empty)
        for limiter in self.app.extensions.get("limiter", ()):
            limiter.reset()


class Space:
    """The service of one test, a WSGI application. With a `seed`, ids and faults are always the same.

    It has a `port` of its own if there is a server, and `close` closes that.
    """

    port: int | None = None

    def __init__(self, id: str, spaces: "Spaces", seed: int | None, instance: Instance, webhooks: str = "") -> None:
        self.id = id
        self._spaces = spaces
        self._seed = seed
        self._snapshots: dict[str, Any] = {}
        self._numbers = count(1)  # of declarations; a reset does not begin anew
        self._news = Event()  # after each request
        self.ended = Event()  # when it is dropped: no request of it waits on
        self.close: Callable[[], None] = lambda: None
        self.instance: Instance | None  # None after its end
        self.begin(instance)
        if webhooks == AT_ONCE:
            Thread(target=self._deliver_at_once, name="deliver", daemon=True).start()  # a greenlet, by gevent

    def begin(self, instance: Instance) -> None:
        """Begin as a new space with this instance, which is empty. Snapshots stay."""
        self.instance = instance
        self.faults = Faults(self._seed, instance.app, self._numbers)
        self.catcher = Catcher(instance.service, self.faults)
        self.clear_requests(instance)
        self._request_ids = Random(self._seed)  # noqa: S311 - no secret
        instance.ids.begin(self._seed)

    def clear_requests(self, instance: Instance) -> None:
        """Begin an empty journal; requests under way stay in the previous one."""
        self.journal = Journal(instance.service.config.max_body)

    def snapshot(self) -> str:
        """Keep the data as they are, and return the name of that. Raises Conflict for more than MOST_SNAPSHOTS."""
        if len(self._snapshots) >= MOST_SNAPSHOTS:
            raise Conflict(f"a space has at most {MOST_SNAPSHOTS} snapshots")
        name = str(len(self._snapshots) + 1)
        with self._spaces.using(self) as instance:
            self._snapshots[name] = instance.store.saved()
        return name

    def restore(self, name: str) -> None:
        """Have the data of a snapshot again. Clock, faults and journal stay. Raises NotFound."""
        if name not in self._snapshots:
            raise NotFound("there is no such snapshot")
        with self._spaces.using(self) as instance:
            instance.store.load(self._snapshots[name])
            self.catcher.since = last_event(instance.store)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        with self._spaces.using(self) as instance:
            if self._seed is not None:
                environ.setdefault("HTTP_X_REQUEST_ID", f"{self._request_ids.getrandbits(128):032x}")
            faults, journal = self.faults, self.journal  # a reset meanwhile makes others
            sent = journal.begin(environ, rfc3339(instance.clock.time()))
            seconds, fault = faults.chosen(sent)
            sent.fault = fault.kind if fault else "delay" if seconds else None
            environ |= {FAULT: fault, STUB: partial(faults.stub_for, sent), ROUTES: []}
            reply = None
            try:
                if seconds and self.ended.wait(min(seconds, LONGEST_DELAY)):
                    raise ConnectionAbortedError("the space was dropped")
                reply = reply_to(instance.serve, environ, fault)
            finally:
                journal.end(sent, reply, matched=environ[ROUTES] != [None])
                self._news.set()
            if fault and fault.kind == "stall":
                reply.response = stalled(reply.get_data(), environ, partial(self.ended.wait, fault.seconds))
            return reply(environ, start_response)

    def _deliver_at_once(self) -> None:
        """Send due deliveries after a request, and every second retries, until the space is dropped."""
        with suppress(NotFound):
            while True:
                with suppress(StoreUnavailable), self._spaces.using(self):  # it is tried again
                    self.catcher.deliver()
                self._news.wait(LOOK_SECONDS)
                self._news.clear()


class Spaces:
    """The spaces of a process, and the applications that wait for one."""

    def __init__(
        self, make: Callable[..., Application], ports: Ports, require_whole: Callable[[], None] = lambda: None
    ) -> None:
        self._make = make
        self._ports = ports
        self._require_whole = require_whole
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._spaces: dict[str, Space | None] = {}  # None: a space that is being made
        self.root: Space | None = None  # at the server's own address
        self._spare = [Instance(make) for _ in range(SPARE)]

    def find(self, id: str) -> Space:
        """The space with this id. Raises NotFound."""
        if (space := self.root if id == ROOT else self._spaces.get(id)) is None:
            raise NotFound("there is no such space: it was dropped, or is of another server")
        return space

    def create(self, seed: int | None = None, serve: Serve | None = None, **options: str) -> Space:
        """A new, empty space, with a port if there is a server (`SERVE`).

        Raises Conflict for more than MOST_SPACES, without a port, and as `require_whole`.
        """
        self._require_whole()
        id = secrets.token_hex(4)
        with self._lock:
            if len(self._spaces) >= MOST_SPACES:
                raise Conflict(
                    f"there are {MOST_SPACES} spaces, and a server has at most so many: drop each at the end of its "
                    "test, by DELETE of its `control`, or in Python by `with server.space() as api:`"
                )
            self._spaces[id] = None
        with ExitStack() as failing:
            failing.callback(self._spaces.pop, id)
            instance = self._take()
            failing.callback(self._give_back, instance)
            listeners = self._ports.listen() if serve else []
            failing.pop_all()
        self._spaces[id] = space = Space(id, self, seed, instance, **options)
        if serve:
            space.port = listeners[0].getsockname()[1]
            space.close = serve(listeners, {SPACE: space.id, "SCRIPT_NAME": ""})
        return space

    def drop(self, space: Space) -> None:
        """End a space, its port and its connections. Raises Conflict for the space of the server."""
        if space is self.root:
            raise Conflict("the space at the server's own address ends with the server")
        with self._lock:
            self._spaces.pop(space.id, None)
            previous, space.instance = space.instance, None
        if previous:
            space.ended.set()
            space.close()
            self._give_back(previous)

    def renew(self, space: Space) -> None:
        """Make a space as new, and empty. Requests under way keep the instance that it had. Raises as `using`."""
        with self.using(space) as instance:
            if instance.busy == 1 or space is self.root:
                instance.clear()
                return space.begin(instance)
        other = self._take()
        with self._lock:
            if space.instance:
                return space.begin(other)
        self._give_back(other)

    @contextmanager
    def using(self, space: Space) -> Iterator[Instance]:
        """The instance of a space, which no other space gets meanwhile. Raises NotFound if the space has ended."""
        with self._lock:
            if (instance := space.instance) is None:
                raise NotFound("the space was dropped")
            instance.busy += 1
        try:
            yield instance
        finally:
            with self._lock:
                instance.busy -= 1

    def _take(self) -> Instance:
        with self._lock:
            if self._spare:
                return self._spare.pop()
        with self._making:
            time.sleep(0)  # under gevent, others that could go on do so first: their writes have a deadline
            return Instance(self._make)

    def _give_back(self, instance: Instance) -> None:
        """Keep an instance for another space, unless a request still uses it, which would write to that."""
        with self._lock:
            if instance.busy:
                return
        instance.clear()
        with self._lock:
            self._spare.append(instance)
