"""The feed of events: all changes in the order of their commits, read with a cursor.

A caller sees the events of the collections that it may read; where items are private, only the events of its own.

With long polling (RFC 6202, section 2), a response is delayed until there is an event or the time is over. A waiting
request costs a greenlet and a regular check; the process serves other requests meanwhile. A stream of server-sent
events is such a request that goes on after each event.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from flask import Blueprint, copy_current_request_context, request
from werkzeug.datastructures import Headers

from restkeeper.clock import YIELD_SECONDS, Clock
from restkeeper.errors import Forbidden, InvalidQuery, PreconditionFailed, Problem, TooManyRequests, Unavailable
from restkeeper.feature import Seams
from restkeeper.features.events.types import OF_SERVICE, EventViews, contribution_of, enveloped, known_types
from restkeeper.parsing import whole
from restkeeper.resources.cache import Cache
from restkeeper.resources.call import ADMIN, KNOWN, Caller, lacking
from restkeeper.resources.changes import Change, Unit
from restkeeper.resources.parameters import Reader, one_of
from restkeeper.service import Service
from restkeeper.storage.errors import EventsExpired, StoreError
from restkeeper.storage.feed import EVENT_ID, EventFilter, Events, StoredEvent, find_events, is_event_id, last_event
from restkeeper.storage.transactions import Event
from restkeeper.web.application import IS_CANCELLED, Reply
from restkeeper.web.auth import caller, caller_keys, needs
from restkeeper.web.bodies import EVENT_STREAM, JSON, require_acceptable
from restkeeper.web.calls import arguments, current_call
from restkeeper.web.descriptions import several
from restkeeper.web.handlers import OF_CALLER, PAGE_OVERHEAD, UNCACHED
from restkeeper.web.operations import CONDITIONS, Parameter, Result, returns, takes
from restkeeper.web.pagination import link_header, target_with

LATEST = "latest"
FOUND_BYTES = 4 * 1024 * 1024  # of pages that each process caches
LONGEST = 30  # seconds: below the idle time-outs of the usual proxies (60)
LOOK_SECONDS = 0.1  # between two checks
SHARED_SECONDS = 0.05  # for which all requests that wait share one look at the store
BEAT_SECONDS = 15  # between two parts of a stream: below the idle time-outs of the usual proxies (60)
LONGEST_ID = 64  # characters, of an item
MOST = 500  # requests that wait in one process at a time: half of the connections that gunicorn accepts

FEED_PARAMETERS = (
    Parameter(
        "after",
        lambda events: {"type": "string", "maxLength": 28, "pattern": f"^({LATEST}|{EVENT_ID})$"},
        "Id of the last event that the client has, or `latest`: only future events.",
    ),
    Parameter(
        "type",
        lambda events: several({"type": "string", "enum": list(events._types)}),
        "Only events of these types: `*` is all, `product.*` all of a kind.",
    ),
    Parameter(
        "collection",
        lambda events: several({"type": "string", "enum": list(events._known)}),
        "Only events of these collections.",
    ),
    Parameter(
        "item",
        lambda events: {"type": "string", "minLength": 1, "maxLength": LONGEST_ID},
        "Only events of items with this id.",
    ),
    Parameter(
        "limit",
        lambda events: {"type": "integer", "minimum": 1, "maximum": events._limit_max, "default": events._limit},
        "Events per page.",
    ),
    Parameter(
        "wait",
        lambda events: {"type": "integer", "minimum": 0, "maximum": LONGEST, "default": 0},
        "Seconds, at most, to wait for an event if there is none yet.",
    ),
)
PAGE_LIMIT = 100  # events of a page without `limit`
FEED_HEADERS = ("ETag", "Link")
STREAM = {EVENT_STREAM: {"type": "string"}}
PAGE = Result("The events, in the order of their commits.", {JSON: "Event"}, FEED_HEADERS, at_most=0, also=STREAM)
NOT_MODIFIED = Result("Nothing has changed.", headers=FEED_HEADERS, name="EventsNotModified", status=304)


def install(service: Service) -> Seams:
    """Record an event for each change, and serve /api/VERSION/events."""
    return Seams(
        changed=(record_event,),
        routes=(lambda version: EventHandlers(service, version).blueprint(),),
        describe=(contribution_of(service),),
    )


def record_event(unit: Unit, change: Change) -> None:
    """Record the event of a change, if its collection has events."""
    resource, record = change.stored.resource, change.record
    if not resource.events:
        return
    type, before = f"{resource.singular}.{change.kind}", change.before
    former_owner = None if before is None or before.owner == record.owner else before.owner or ""
    of = (record.owner, record.fingerprint, record.removed_fields, former_owner)
    unit.transaction.add_event(Event(type, resource.name, record.id, change.at, record.body, *of))


class CursorExpired(Problem):
    status, name, title = 410, "cursor-expired", "Events after this cursor are gone"
    about = (
        "The events after this cursor are deleted (`EVENTS_TTL`), or the cursor belongs to another service, such as "
        "the original of a restored backup. `resume` is the cursor before the oldest event that is stored: read the "
        "items again, and continue from there."
    )


class _FeedRequest(NamedTuple):
    after: str
    types: tuple[str, ...]
    collections: tuple[str, ...]
    item: str | None
    limit: int
    wait: int


class Waiters:
    """The requests that wait in this process: at most MOST, and at most `share` of each caller."""

    def __init__(self, share: int) -> None:
        self._share = share
        self._waiting: Counter[str] = Counter()  # requests of each caller
        self._changing = threading.Lock()

    @contextmanager
    def slot(self, caller: str) -> Iterator[None]:
        """A slot for one request. Raises TooManyRequests beyond the caller's share, Unavailable if none is free."""
        with self._changing:
            if self._waiting[caller] >= self._share:
                raise TooManyRequests(
                    f"{self._share} of your requests already wait; end one, or retry without `wait`",
                    headers={"Retry-After": "1"},
                    **{"violated-policies": ["waits"]},
                )
            if self._waiting.total() >= MOST:
                raise Unavailable(f"{MOST} requests already wait; retry without `wait`")
            self._waiting[caller] += 1
        try:
            yield
        finally:
            with self._changing:
                self._waiting[caller] -= 1
                if not self._waiting[caller]:
                    del self._waiting[caller]


class Newest:
    """The id of the newest event, for requests that wait: the store is asked for it once for all of them."""

    def __init__(self, look: Callable[[], str], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._id = ""
        self._until = 0.0
        self._looking = threading.Lock()

    def __call__(self) -> str:
        """The newest event, some hundredths of a second ago at most, or when the last look that is under way began."""
        if self._clock.monotonic() >= self._until and self._looking.acquire(blocking=False):
            try:
                self._id = self._look()
                self._until = self._clock.monotonic() + SHARED_SECONDS
            finally:
                self._looking.release()
        return self._id

    def note(self, id: str) -> None:
        """Note that an event was the newest one just now."""
        self._id = id

    def wait(self, after: str, deadline: float) -> bool:
        """Wait for an event after this one until `deadline`; returns whether there is one.

        Ends early if the request is cancelled.
        """
        is_cancelled = request.environ.get(IS_CANCELLED, bool)
        while not (is_there := self() != after) and self._clock.monotonic() < deadline and not is_cancelled():
            self._clock.sleep(LOOK_SECONDS)
        return is_there


class EventHandlers:
    """The handlers of /api/VERSION/events: events with their data in the form of that version."""

    name = "events"

    def __init__(self, service: Service, version: str) -> None:
        self._views = EventViews(service, version)
        resources, of_service = service.resources, "webhooks" in service.features
        self._keys = {resource.name: resource.key for resource in resources}
        named = {resource.public_name: resource for resource in resources if resource.events}
        self._known = {public: resource.name for public, resource in named.items()}
        self._scopes = {public: resource.scope("read") for public, resource in named.items()}
        if of_service:
            webhooks_name = f"_/{OF_SERVICE}" if OF_SERVICE in named else OF_SERVICE
            self._known[webhooks_name], self._scopes[webhooks_name] = OF_SERVICE, ADMIN
        self._types = known_types(resources, of_service=of_service)
        self._store = service.store
        self._limit_max = service.config.page_limit_max
        self._limit = min(PAGE_LIMIT, self._limit_max)
        self._clock = service.clock
        self._guard = service.guard
        self._waiters = Waiters(service.config.waits_per_caller)
        self._newest = Newest(partial(last_event, service.store), service.clock)
        self._found: Cache[tuple[str, EventFilter, int, str], Events] = Cache(FOUND_BYTES)

    def blueprint(self) -> Blueprint:
        """The route, relative to the URL prefix."""
        routes = Blueprint(self.name, __name__)
        routes.add_url_rule("", view_func=self.list_events)
        return routes

    @needs(KNOWN)
    @takes(*FEED_PARAMETERS, "LastEventId", *CONDITIONS)
    @returns(PAGE, NOT_MODIFIED, InvalidQuery, CursorExpired, PreconditionFailed, TooManyRequests)
    def list_events(self) -> Reply:
        """List events in the order of their commits; with `wait`, wait until there are some."""
        is_stream = require_acceptable(JSON, EVENT_STREAM) == EVENT_STREAM
        params = self._parameters()
        if is_stream:
            params = params._replace(wait=0)
        event_filter = self._filter(params)
        try:
            page = self._events(params, event_filter)
        except EventsExpired as error:
            link = _link(error.resume)
            raise CursorExpired(error.detail, headers={"Link": link}, resume=error.resume) from None
        if is_stream:
            return self._streamed(page, event_filter, params.limit)
        # Events never change: the ends of the page, its filter and its views identify it.
        first_id = page.events[0].id if page.events else ""
        call = current_call()
        fingerprint = self._views.fingerprint(call.caller)
        identity = repr((first_id, page.last, len(page.events), event_filter, fingerprint))
        tag = blake2b(identity.encode(), digest_size=12).hexdigest()
        call.conditions.require(tag, reads=True)
        headers = [("ETag", f'"{tag}"'), ("Cache-Control", OF_CALLER), ("Link", _link(page.last)), ("Vary", "Accept")]
        if call.conditions.are_held(tag):
            return Reply(b"", 304, headers=Headers(headers))
        converted = [self._views.converted(event, call.caller) for event in page.events]
        body = b"[" + b",".join(map(enveloped, converted)) + b"]"
        headers += [("Content-Type", JSON), ("Content-Length", str(len(body)))]
        return Reply([body], headers=Headers(headers))

    def _events(self, params: _FeedRequest, event_filter: EventFilter) -> Events:
        """The page after the cursor; if it is empty at the end of the feed and the request waits, the next with events.

        Raises Unauthorized or Forbidden for a caller that may not read it any more after it waited.
        Before the end a page is empty after MOST_EXAMINED events that do not match: the client continues from there.
        """
        after = params.after
        if after == LATEST:
            after = last_event(self._store)
        page = find_events(self._store, after, event_filter, params.limit)
        if page.events or page.more or not params.wait:
            return page
        with self._waiters.slot(caller_keys(request.environ)[0]):
            page = self._awaited(page, event_filter, params.limit, params.wait)
        if page.events:
            self._require_same_caller()
        return page

    def _awaited(self, page: Events, event_filter: EventFilter, limit: int, seconds: float) -> Events:
        """The page that follows an empty one as soon as there is an event, or after so many seconds."""
        deadline = self._clock.monotonic() + seconds
        while not (page.events or page.more) and self._clock.monotonic() < deadline:
            self._newest.note(page.last)
            if not self._newest.wait(page.last, deadline):
                break
            self._clock.sleep(YIELD_SECONDS)  # other requests have their turn, however many events are skipped
            page = self._search(page.last, event_filter, limit)
        return page

    def _require_same_caller(self) -> None:
        """Raises Unauthorized or Forbidden: the credential may be void by now, or have other scopes."""
        before = caller()
        self._guard.identify(request)
        self._guard.authorize(request)
        if caller() != before:
            raise Forbidden("your scopes have changed while the request waited; send it again")

    def _streamed(self, page: Events, event_filter: EventFilter, limit: int) -> Reply:
        """The response with the events of a page, and then with each one when it comes, until the client leaves.

        It has the slot of a request that waits. Raises as `Waiters.slot`.
        """
        headers = {"Cache-Control": UNCACHED, "Vary": "Accept", "X-Accel-Buffering": "no"}  # nginx would gather parts
        reply = Reply(iter(()), content_type=EVENT_STREAM, headers=headers)
        if request.method != "HEAD":
            slot = ExitStack()
            slot.enter_context(self._waiters.slot(caller_keys(request.environ)[0]))
            reply.call_on_close(slot.close)
            following = copy_current_request_context(partial(self._following, event_filter=event_filter, limit=limit))
            reply.response = self._parts(page, caller(), following)
        return reply

    def _parts(self, page: Events | None, who: Caller, following: Callable[[Events], Events | None]) -> Iterator[bytes]:
        """The parts of a stream: events, and a comment with the cursor, from which a client continues."""
        with suppress(StoreError):
            while page:
                events = b"".join(_event(self._views.converted(event, who)) for event in page.events)
                yield b"%b:\nid: %b\n\n" % (events, page.last.encode())
                page = following(page)

    def _following(self, page: Events, event_filter: EventFilter, limit: int) -> Events | None:
        """The next events of a stream, or none after BEAT_SECONDS; None if it ends.

        The caller is identified anew each time. If it may not go on, its client requests it again, and gets the
        problem.
        """
        with suppress(Problem, StoreError):
            if page.more:
                self._clock.sleep(YIELD_SECONDS)
                page = self._search(page.last, event_filter, limit)
            else:
                page = self._awaited(page._replace(events=[]), event_filter, limit, BEAT_SECONDS)
            self._require_same_caller()
            return None if request.environ.get(IS_CANCELLED, bool)() else page
        return None

    def _search(self, after: str, event_filter: EventFilter, limit: int) -> Events:
        """Requests that wait at one cursor with one filter share a cached page until the next event."""
        key = (after, event_filter, limit, self._newest())
        if (page := self._found.get(key)) is None:
            page = find_events(self._store, after, event_filter, limit)
            size = PAGE_OVERHEAD + len(repr(key)) + sum(len(event.data) for event in page.events)
            self._found.add(key, page, size)
        return page

    def _parameters(self) -> _FeedRequest:
        """The parsed parameters. Raises InvalidQuery with every fault."""
        reader, seen = Reader(arguments()), request.headers.get("Last-Event-ID")
        reader.only([parameter.name for parameter in FEED_PARAMETERS], "the feed")
        params = _FeedRequest(
            reader.one("after", _cursor, "") if seen is None else reader.value("Last-Event-ID", _cursor, seen, ""),
            reader.several("type", one_of(self._types), len(self._types)) or ("*",),
            reader.several("collection", one_of(self._known), len(self._known)),
            reader.one("item", _item_id, None),
            reader.one("limit", whole(1, self._limit_max), self._limit),
            reader.one("wait", whole(0, LONGEST), 0),
        )
        reader.finish()
        _link(params.after)  # a link that is too long is refused before the search
        return params

    def _filter(self, params: _FeedRequest) -> EventFilter:
        """The requested events that the caller may read. Raises Forbidden for a named collection that it may not."""
        who = caller()
        allowed = [name for name, scope in self._scopes.items() if who.may(scope)]
        if forbidden := [name for name in params.collections if name not in allowed]:
            raise lacking(self._scopes[forbidden[0]])
        if not allowed:
            raise Forbidden("this needs the scope to read a collection")
        names = [self._known[name] for name in allowed if name in (params.collections or allowed)]
        owned = tuple(name for name in names if self._views.owners(name, who) is not None)
        item = params.item
        if item and len(params.collections) == 1:
            item = self._keys.get(names[0], str)(item) or item
        return EventFilter(
            tuple(name for name in names if name not in owned), params.types, owned, who.owners if owned else (), item
        )


def _event(event: StoredEvent) -> bytes:
    """An event as one of the stream; its JSON is one line."""
    return f"id: {event.id}\nevent: {event.type}\ndata: ".encode() + enveloped(event).replace(b"\n", b" ") + b"\n\n"


def _link(last: str) -> str:
    """The link to the next page; always, because more events will follow."""
    return link_header({"next": target_with("after", last)})


def _cursor(text: str) -> str:
    if text != LATEST and not is_event_id(text):
        raise ValueError(f"must be the id of an event, as in the Link header, or {LATEST}")
    return text


def _item_id(text: str) -> str:
    if not 1 <= len(text) <= LONGEST_ID:
        raise ValueError(f"must be the id of an item, of at most {LONGEST_ID} characters")
    return text
