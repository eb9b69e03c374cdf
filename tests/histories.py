"""A checker of histories: does the feed of a service explain the results of all operations?

A history is linearizable (Herlihy and Wing, 1990) if each operation can have its effect at one moment between its start
and its end. The feed says in which order the changes had theirs, so that there is nothing to search: what is left is
whether that order and the results fit into the times.
"""

from collections import defaultdict
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
    CONFLICT = "412"
    INVALID = "422 or 429"


Result = Stored | Refusal | None


class Operation(NamedTuple):
    """A request and its result, which is None if there was no clear response: it can have its effect later, or never.

    No two changes of an item have the same `value`. `expected` is the version in `If-Match`, None without one. `id` is
    that of the item in the response. A create can be repeated: it has the same result again.
    """

    kind: str  # create, read, change or delete
    item: str  # a name that the client chose before it created the item, such as the idempotency key
    start: float
    end: float  # infinity without a result
    result: Result
    value: str = ""
    expected: int | None = None
    id: str = ""


class FeedEvent(NamedTuple):
    """An event of the feed: its type without the collection, and the item with its version and value."""

    type: str  # created, updated or deleted
    item: str
    stored: Stored


KINDS = {"created": "create", "updated": "change", "deleted": "delete"}  # of operations, by the type of their event
Span = tuple[float, float]  # from the start to the end, which is infinity if it is unknown


def check(history: Iterable[Operation], feed: Sequence[FeedEvent]) -> list[str]:
    """What is wrong with a history or its complete feed; nothing if the feed explains the history.

    Each acknowledged change has one event, each event a change, those of an item are in the order of its versions, and
    a change that began after the end of another one comes after it. Each other result is that of a moment between the
    start and the end of its operation.
    """
    operations: dict[str, list[Operation]] = defaultdict(list)
    events: dict[str, list[FeedEvent]] = defaultdict(list)
    for operation in history:
        operations[operation.item].append(operation)
    for event in feed:
        events[event.item].append(event)
    found = []
    spans: dict[FeedEvent, Span] = {}
    for item in {**operations, **events}:
        made = _made_by(operations[item], events[item])
        spans |= {event: _span(by) for event, by in made.items()}
        wrong = [*_check_changes(operations[item], events[item], made)]
        found += wrong or _check_times(operations[item], events[item], spans)
    latest = -inf
    for event in feed:
        start, end = spans[event]
        if end < latest:
            found.append(f"after a later change: {event}")
        latest = max(latest, start)
    return found


def _made_by(operations: Iterable[Operation], events: Iterable[FeedEvent]) -> dict[FeedEvent, list[Operation]]:
    """The operations that can have made each event, which are only those whose If-Match names the version before it.

    All but creates are never repeated: of several, an acknowledged one made it.
    """
    candidates: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for each in operations:
        candidates[each.kind, "" if each.kind == "delete" else each.value].append(each)
    made = {}
    for event in events:
        version, value = event.stored
        before = version - (event.type == "updated")
        possible = [
            each
            for each in candidates[KINDS[event.type], "" if event.type == "deleted" else value]
            if each.result in (None, event.stored) and each.expected in (None, before)
        ]
        acknowledged = [each for each in possible if each.result]
        made[event] = possible if event.type == "created" else acknowledged or possible
    return made


def _span(operations: Sequence[Operation]) -> Span:
    """The time in which one of these operations had its effect."""
    return min((each.start for each in operations), default=-inf), min((each.end for each in operations), default=inf)


def _check_changes(
    operations: Iterable[Operation], events: Sequence[FeedEvent], made: Mapping[FeedEvent, Sequence[Operation]]
) -> Iterator[str]:
    """What is wrong with the changes of an item, whenever they were."""
    ids = {each.id for each in operations if each.id}
    if len(ids) > 1:
        yield f"several ids: {', '.join(sorted(ids))}"
    for before, event in pairwise([None, *events]):
        if event and not _follows(before, event):
            yield f"out of order: {event} after {before}"
        elif event and not made[event]:
            yield f"nobody did this: {event}"
        elif event and event.type == "deleted" and len(made[event]) > 1 and made[event][0].result:
            yield f"done twice: {event}"
    explained = {each for operations in made.values() for each in operations}
    for each in operations:
        if each.kind in KINDS.values() and isinstance(each.result, Stored) and each not in explained:
            yield f"no event: {each}"


def _check_times(
    operations: Sequence[Operation], events: Sequence[FeedEvent], spans: Mapping[FeedEvent, Span]
) -> list[str]:
    """The first event or operation of an item that has no moment in its time.

    The moments are numbered: 0 is the state before all events, 2n + 1 the event with the index n, and 2n + 2 the state
    after it. Each operation gets the first moment that explains it and is not before that of an operation which had
    ended when it began.
    """
    states = [None, *(None if each.type == "deleted" else each.stored for each in events)]
    points: list[tuple[Span, list[int], object]] = [
        (spans[event], [2 * number + 1], event) for number, event in enumerate(events)
    ]
    for each in operations:
        moments = [2 * number for number in range(len(states)) if _explains(states, number, each)]
        if each.result in (Refusal.MISSING, Refusal.CONFLICT) or each.result and each.kind in ("create", "read"):
            points.append(((each.start, each.end), moments, each))
    ended: list[tuple[float, int]] = []
    first = 0
    for (start, end), moments, what in sorted(points, key=lambda point: point[0]):
        while ended and ended[0][0] < start:
            first = max(first, heappop(ended)[1])
        moment = next((each for each in moments if each >= first), None)
        if moment is None:
            return [f"not linearizable: {what}, after the event {events[(first - 1) // 2] if first else None}"]
        heappush(ended, (end, moment))
    return []


def _explains(states: Sequence[Stored | None], number: int, operation: Operation) -> bool:
    """Whether an operation that changes nothing can have its result in a state."""
    state = states[number]
    if operation.kind == "create":
        return number > 0 and isinstance(operation.result, Stored)  # a repeated one
    if operation.result is Refusal.MISSING:
        return state is None
    if operation.result is Refusal.CONFLICT:
        return state is not None and operation.expected not in (None, state.version)
    return state == operation.result


def _follows(before: FeedEvent | None, event: FeedEvent) -> bool:
    """Whether an event can be the next one of its item."""
    if before is None or before.type == "deleted":
        return before is None and event.type == "created" and event.stored.version == 1
    if event.type == "deleted":
        return event.stored == before.stored
    return event.type == "updated" and event.stored.version == before.stored.version + 1
