"""A checker of histories: does the feed of a service explain the results of all operations?

A history is linearizable (Herlihy and Wing, 1990) if each operation can have its effect at one moment between its start
and its end. The feed says in which order the changes had theirs, so that there is nothing to search: what is left is
whether that order and the results fit into the times.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from heapq import heappop, heappush
from itertools import pairwise
from math import inf
from typing import NamedTuple


class Stored(NamedTuple):
    """What an item has: its version, and the value that one operation wrote."""

    version: int
    value: str


class Refusal(Enum):
    """A clear response without effect."""

    MISSING = "404"
    REFERRED = "409"
    CONFLICT = "412"
    INVALID = "422 or 429"


Result = Stored | Refusal | None


class Operation(NamedTuple):
    """What a request does with an item, and the result, None if it is unknown: it can be done later, or never.

    No two changes of an item have the same `value`. `expected` is the version in `If-Match`, None without one. `id` is
    that of the item in the response, with its collection, such as "/brands/7". Operations of the same `request` are
    done together or not at all; a request that is sent again is done once, and has the same result again.
    """

    kind: str  # create, read, change or delete
    item: str  # a name that the client chose before it created the item
    start: float
    end: float  # infinity without a response
    result: Result
    value: str = ""
    expected: int | None = None
    id: str = ""
    request: str = ""  # such as the idempotency key


class FeedEvent(NamedTuple):
    """An event of the feed: its type without the collection, the item with its version and value, and its id.

    `refers` is the id of the item that it refers to, empty if there is none.
    """

    type: str  # created, updated or deleted
    item: str
    stored: Stored
    id: str = ""
    refers: str = ""


KINDS = {"created": "create", "updated": "change", "deleted": "delete"}  # of operations, by the type of their event
Span = tuple[float, float]  # from the start to the end, which is infinity if it is unknown
Makers = Mapping[FeedEvent, Sequence[Operation]]  # the operations that can have made each event


def check(history: Sequence[Operation], feed: Sequence[FeedEvent]) -> list[str]:
    """What is wrong with a history or its complete feed; nothing if the feed explains the history.

    Each acknowledged change has one event, each event a change, those of an item are in the order of its versions, and
    a change that began after the end of another one comes after it. Each other result is that of a moment between the
    start and the end of its operation. Of what a request does, all is done or nothing. No id is given twice. Each item
    that another one refers to exists.
    """
    operations: dict[str, list[Operation]] = defaultdict(list)
    events: dict[str, list[FeedEvent]] = defaultdict(list)
    for operation in history:
        operations[operation.item].append(operation)
    for event in feed:
        events[event.item].append(event)
    found = []
    made = _made_by(history, feed)
    spans = {event: _span(by) for event, by in made.items()}
    for item in {**operations, **events}:
        wrong = [*_check_changes(operations[item], events[item], made)]
        found += wrong or _check_times(operations[item], events[item], spans)
    latest = -inf
    for event in feed:
        start, end = spans[event]
        if end < latest:
            found.append(f"after a later change: {event}")
        latest = max(latest, start)
    return [*found, *_check_requests(history, made), *_check_ids(feed), *_check_references(feed)]


def check_log(feed: Iterable[FeedEvent], log: Iterable[FeedEvent]) -> list[str]:
    """What is wrong with the log that a function of the service writes, in the transaction of each change."""
    changes, logged = (Counter((each.type, each.item, each.stored) for each in events) for events in (feed, log))
    return [f"not in the log: {each}" for each in changes - logged] + [
        f"twice in the log, or not in the feed: {each}" for each in logged - changes
    ]


def _made_by(history: Iterable[Operation], feed: Iterable[FeedEvent]) -> Makers:
    """The operations that can have made each event, which are only those whose If-Match names the version before it.

    If one of them is acknowledged, its request made it. What has no acknowledged operation of its own may be what the
    deletion of another item has done.
    """
    candidates: dict[tuple[str, str, str], list[Operation]] = defaultdict(list)
    for each in history:
        candidates[each.kind, each.item, "" if each.kind == "delete" else each.value].append(each)
    made: dict[FeedEvent, list[Operation]] = {}
    last: dict[str, FeedEvent] = {}
    deletions: dict[str, list[Operation]] = {}  # by the id of the deleted item
    for event in feed:
        before, version = last.get(event.item), event.stored.version - (event.type == "updated")
        possible = [
            each
            for each in candidates[KINDS[event.type], event.item, "" if event.type == "deleted" else event.stored.value]
            if each.result in (None, event.stored) and each.expected in (None, version)
        ]
        requests = {each.request for each in possible if each.result}
        if requests:
            possible = [each for each in possible if each.request in requests]
        elif before and (event.type == "deleted" or _has_lost_reference(before, event)):
            possible += deletions.get(before.refers, ())
        made[event] = possible
        last[event.item] = event
        if event.type == "deleted":
            deletions[event.id] = possible
    return made


def _has_lost_reference(before: FeedEvent, event: FeedEvent) -> bool:
    """Whether an event is what the deletion of the item that was referred to does, and no operation of a client."""
    return bool(before.refers and not event.refers) and event.stored.value == before.stored.value


def _span(operations: Sequence[Operation]) -> Span:
    """The time in which one of these operations had its effect."""
    return min((each.start for each in operations), default=-inf), min((each.end for each in operations), default=inf)


def _check_changes(operations: Iterable[Operation], events: Sequence[FeedEvent], made: Makers) -> Iterator[str]:
    """What is wrong with the changes of an item, whenever they were."""
    ids = {each.id for each in (*operations, *events) if each.id}
    if len(ids) > 1:
        yield f"several ids: {', '.join(sorted(ids))}"
    values = set[str]()
    for before, event in pairwise([None, *events]):
        if event and not _follows(before, event):
            yield f"out of order: {event} after {before}"
        elif event and not made[event]:
            yield f"nobody did this: {event}"
        elif event and event.type == "deleted":
            if len({each.request for each in made[event] if each.result}) > 1:
                yield f"done twice: {event}"
        elif event and not (before and _has_lost_reference(before, event)):
            if event.stored.value in values:
                yield f"done twice: {event}"
            values.add(event.stored.value)
    explained = {each for event in events for each in made[event]}
    for each in operations:
        if each.kind in KINDS.values() and isinstance(each.result, Stored) and each not in explained:
            yield f"no event: {each}"


def _check_times(
    operations: Sequence[Operation], events: Sequence[FeedEvent], spans: Mapping[FeedEvent, Span]
) -> list[str]:
    """The first event or operation of an item that has no moment in its time. The events are in order.

    The moments are numbered: 2n is the state after n events, and 2n - 1 the event that leads to it. Each operation gets
    the first moment that explains it and is not before that of an operation which had ended when it began.
    """
    states = [None, *(None if each.type == "deleted" else each.stored for each in events)]
    points: list[tuple[Span, int, FeedEvent | Operation]] = [
        (spans[event], 2 * number - 1, event) for number, event in enumerate(events, 1)
    ]
    points += [((each.start, each.end), 0, each) for each in operations if each.result not in (None, Refusal.INVALID)]
    ended: list[tuple[float, int]] = []
    first = 0
    for (start, end), moment, what in sorted(points, key=lambda point: point[0]):
        while ended and ended[0][0] < start:
            first = max(first, heappop(ended)[1])
        if isinstance(what, Operation):
            moment = 2 * _explained(what, states, (first + 1) // 2)
        if moment < first:
            return [f"not linearizable: {what}, after the event {events[(first - 1) // 2] if first else None}"]
        heappush(ended, (end, moment))
    return []


def _explained(operation: Operation, states: Sequence[Stored | None], first: int) -> int:
    """The number of the first state, from this one on, in which an operation can have its result; -1 if there is none.

    What changes the item has its result in each state after its event. The states have the versions 1, 2, 3 …; there
    is no item in the first state, and in the last one if it was deleted.
    """
    last, result = len(states) - 1, operation.result
    number = max(first, 1)  # for those that need an item
    match result:
        case Refusal.MISSING:
            number = first if states[first] is None else last
            return number if states[number] is None else -1
        case Refusal.CONFLICT:
            number += number == operation.expected
            return number if operation.expected and number <= last and states[number] else -1
        case Stored() if operation.kind == "read":
            number = result.version
            return number if first <= number <= last and states[number] == result else -1
        case Stored():
            number = max(first, result.version + (operation.kind == "delete"))
            return number if number <= last else -1
    return number if number <= last and states[number] else -1


def _follows(before: FeedEvent | None, event: FeedEvent) -> bool:
    """Whether an event can be the next one of its item."""
    if before is None or before.type == "deleted":
        return before is None and event.type == "created" and event.stored.version == 1
    if event.type == "deleted":
        return event.stored == before.stored
    return event.type == "updated" and event.stored.version == before.stored.version + 1


def _check_requests(history: Iterable[Operation], made: Makers) -> Iterator[str]:
    """The requests of which only a part was done, and those that are refused when they are sent again.

    Which of several deletions without a response was done is not known.
    """
    certain, possible = set[tuple[str, ...]](), set[tuple[str, ...]]()
    for operations in made.values():
        effects = {_effect_of(each) for each in operations}
        possible |= effects
        if len({each.request for each in operations}) == 1:
            certain |= effects
    requests: dict[str, list[Operation]] = defaultdict(list)
    for each in history:
        if each.request:
            requests[each.request].append(each)
    for request, operations in requests.items():
        effects = {_effect_of(each) for each in operations}
        if effects & certain and (missing := effects - possible):
            yield f"only a part of the request {request} was done, not {missing}"
        done = min((each.end for each in operations if isinstance(each.result, Stored)), default=inf)
        yield from (
            f"refused when it was sent again: {each}"
            for each in operations
            if isinstance(each.result, Refusal) and each.start > done
        )


def _effect_of(operation: Operation) -> tuple[str, ...]:
    return operation.request, operation.kind, operation.item, operation.value


def _check_ids(feed: Iterable[FeedEvent]) -> Iterator[str]:
    """The items with an id that another one had. An integer is greater than all before."""
    names: dict[str, str] = {}
    last: dict[str, int] = {}
    for event in feed:
        if event.id and names.setdefault(event.id, event.item) != event.item:
            yield f"an id twice: {event}, and {names[event.id]}"
        collection, _, id = event.id.rpartition("/")
        if event.type == "created" and id.isdecimal():
            if int(id) <= last.get(collection, 0):
                yield f"an id after a greater one: {event}"
            last[collection] = int(id)


def _check_references(feed: Iterable[FeedEvent]) -> Iterator[str]:
    """The items that refer to one that does not exist: when they begin to, or at the end."""
    present: dict[str, FeedEvent] = {}
    for event in feed:
        before = present.pop(event.id, None)
        if event.type == "deleted":
            continue
        present[event.id] = event
        if event.refers and event.refers not in present and not (before and before.refers == event.refers):
            yield f"refers to nothing: {event}"
    for event in present.values():
        if event.refers and event.refers not in present:
            yield f"still refers to what was deleted: {event}"
