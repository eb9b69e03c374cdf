"""A checker of histories: is there an order of the operations on each item that explains all their results?

A history is linearizable (Herlihy and Wing, 1990) if each operation can have its effect at one moment between its start
and its end. The search is that of Wing and Gong (1993) with the memory of Lowe (2017): a set of operations that have
had their effect, together with the state after them, is tried only once.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum
from math import inf
from typing import NamedTuple

STEPS = 500_000  # tried effects of one search: some seconds, and some hundred bytes of memory for each
SHOWN = 12  # operations in the description of a wrong history


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
    end: float
    result: Result
    value: str = ""
    expected: int | None = None
    id: str = ""


class FeedEvent(NamedTuple):
    """An event of the feed: its type without the collection, and the item with its version and value."""

    type: str  # created, updated or deleted
    item: str
    stored: Stored


class State(NamedTuple):
    """An item: what its create returned, and what it has now. Both are None before the create, `now` after a delete."""

    created: Stored | None = None
    now: Stored | None = None


class Verdict(Enum):
    """The result of a search. It is UNKNOWN if the search was given up."""

    LINEARIZABLE = "linearizable"
    WRONG = "not linearizable"
    UNKNOWN = "unknown, the search was given up"


def effect(operation: Operation, state: State) -> tuple[Stored | Refusal, State]:
    """The result of an operation at one moment, and the state after it."""
    created, now = state
    if operation.kind == "create":
        first = created or Stored(1, operation.value)
        return first, state if created else State(first, first)
    if now is None:
        return Refusal.MISSING, state
    if operation.kind == "read":
        return now, state
    if operation.expected not in (None, now.version):
        return Refusal.CONFLICT, state
    if operation.kind == "delete":
        return now, State(created)
    changed = Stored(now.version + 1, operation.value)
    return changed, State(created, changed)


def search(operations: Iterable[Operation], steps: int = STEPS) -> Verdict:
    """Whether the operations on one item are linearizable. After so many `steps` the verdict is UNKNOWN."""
    return _Search(_with_seen_results(operations)).run(steps)


def _with_seen_results(operations: Iterable[Operation]) -> list[Operation]:
    """The operations by their start, without refused ones. A lost change whose value was read ended before that."""
    effective = sorted((each for each in operations if each.result is not Refusal.INVALID), key=lambda each: each.start)
    seen: dict[str, Operation] = {}
    for each in sorted(effective, key=lambda each: each.end):
        if isinstance(each.result, Stored):
            seen.setdefault(each.result.value, each)
    return [
        each._replace(result=seen[each.value].result, end=seen[each.value].end)
        if each.kind == "change" and each.result is None and each.value in seen
        else each
        for each in effective
    ]


def _version_before(operation: Operation) -> int | None:
    """The version that an item must have for this result."""
    if operation.kind == "create" or not isinstance(operation.result, Stored):
        return None
    return operation.result.version - (operation.kind == "change")


class _Search:
    """A depth-first search.

    The points in time are a linked list of starts and ends. The operations that can be next are those that start before
    the first end in the list. An operation without a result has no end: it need not have any effect.

    Two kinds of trials are left out, since a history with lost operations would have too many. Versions only grow: no
    effect comes before a result that has to be of an earlier version. Lost changes without a condition, whose value
    nobody read, are alike: the one that started first is tried.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        points = [(each.start, 0, number) for number, each in enumerate(operations)]
        points += [(each.end, 1, number) for number, each in enumerate(operations) if each.result is not None]
        points.sort()
        self._head = len(points)
        self._operation_at = [number for _, _, number in points]
        self._is_end = [bool(end) for _, end, _ in points]
        self._places: list[list[int]] = [[] for _ in operations]
        for place, number in enumerate(self._operation_at):
            self._places[number].append(place)
        self._next = [*range(1, self._head + 1), 0]
        self._previous = [self._head, *range(self._head)]
        self._alike = sum(
            1 << number
            for number, each in enumerate(operations)
            if each.kind == "change" and each.result is None and each.expected is None
        )
        self._before = [_version_before(each) for each in operations]
        self._awaited = Counter(version for version in self._before if version is not None)
        self._left = sum(each.result is not None for each in operations)

    def run(self, steps: int) -> Verdict:
        state, done = State(), 0
        path: list[tuple[int, State]] = []
        tried: set[tuple[int, State]] = set()
        place = self._next[self._head]
        while self._left:
            number = self._operation_at[place]
            if self._is_end[place]:  # this operation must have its effect before, and cannot
                if not path:
                    return Verdict.WRONG
                number, state = path.pop()
                done ^= 1 << number
                self._put_back(number)
                place = self._next[self._places[number][0]]
                continue
            if (steps := steps - 1) < 0:
                return Verdict.UNKNOWN
            after = self._after(number, state, done)
            if after is None or (done | 1 << number, after) in tried:
                place = self._next[place]
                continue
            path.append((number, state))
            state, done = after, done | 1 << number
            tried.add((done, state))
            self._take_out(number)
            place = self._next[self._head]
        return Verdict.LINEARIZABLE

    def _after(self, number: int, state: State, done: int) -> State | None:
        """The state after an operation; None if it cannot have its result now, or need not be tried."""
        operation = self._operations[number]
        result, after = effect(operation, state)
        if operation.result not in (None, result):
            return None
        if operation.result is None:
            first_alike = self._alike & ~done & -(self._alike & ~done)
            if after == state or self._alike >> number & 1 and first_alike != 1 << number:
                return None
        return None if after.now != state.now and self._is_awaited(state, after, number) else after

    def _is_awaited(self, state: State, after: State, number: int) -> bool:
        """Whether another operation must have its effect before the state changes."""
        if state.now is None:
            return False
        awaited = self._awaited[state.now.version] if after.now else self._awaited.total()
        return awaited > (self._before[number] is not None)

    def _take_out(self, number: int) -> None:
        for place in self._places[number]:
            before, following = self._previous[place], self._next[place]
            self._next[before], self._previous[following] = following, before
        self._count(number, -1)

    def _put_back(self, number: int) -> None:
        for place in reversed(self._places[number]):
            before, following = self._previous[place], self._next[place]
            self._next[before] = self._previous[following] = place
        self._count(number, 1)

    def _count(self, number: int, change: int) -> None:
        self._left += change * (self._operations[number].result is not None)
        if (version := self._before[number]) is not None:
            self._awaited[version] += change


def check(history: Iterable[Operation], steps: int = STEPS) -> list[str]:
    """A description of each item whose operations are not shown to be linearizable; none if all are."""
    items: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        items[operation.item].append(operation)
    return [found for name, operations in items.items() if (found := _judge(name, operations, steps))]


def _judge(item: str, operations: list[Operation], steps: int) -> str:
    ids = {each.id for each in operations if each.id}
    if len(ids) > 1:
        return f"{item}: it has several ids: {', '.join(sorted(ids))}"
    verdict = search(operations, steps)
    if verdict is Verdict.LINEARIZABLE:
        return ""
    shown = beginning(operations, steps) if verdict is Verdict.WRONG else operations
    last = sorted(shown, key=lambda each: each.end if each.result else inf)[-SHOWN:]
    return "\n  ".join([f"{item}: {verdict.value}", *map(str, sorted(last, key=lambda each: each.start))])


def beginning(operations: Sequence[Operation], steps: int = STEPS) -> list[Operation]:
    """The shortest beginning of a wrong history that is wrong: its last end is the result without an explanation."""
    ends = sorted(each.end for each in operations if each.result is not None)
    wrong = lambda end: search(until(operations, end), steps) is Verdict.WRONG  # noqa: E731
    return until(operations, ends[bisect_left(ends[:-1], True, key=wrong)])


def until(operations: Iterable[Operation], end: float) -> list[Operation]:
    """The history as it was at a moment: later results are not there yet."""
    begun = [each for each in operations if each.start <= end]
    return [each if each.result is None or each.end <= end else each._replace(end=inf, result=None) for each in begun]


TYPES = {"create": "created", "change": "updated", "delete": "deleted"}


def check_feed(events: Sequence[FeedEvent], history: Iterable[Operation]) -> list[str]:
    """What is wrong with the complete feed of a history.

    Each acknowledged change has one event, each event a change, those of an item are in the order of its versions, and
    a change that began after the end of another one comes after it.
    """
    times: dict[FeedEvent, tuple[float, float]] = {}  # the start, and the end or infinity
    lost: dict[tuple[str, str, str], float] = {}  # the start of a change without a result
    for each in history:
        if isinstance(each.result, Stored) and each.kind in TYPES:
            event = FeedEvent(TYPES[each.kind], each.item, each.result)
            start, end = times.get(event, (inf, inf))
            times[event] = min(start, each.start), min(end, each.end)
        elif each.result is None and each.kind in TYPES:
            id = TYPES[each.kind], each.item, each.value
            lost[id] = min(lost.get(id, inf), each.start)
    found = [f"no event: {event}" for event in times.keys() - set(events)]
    newest: dict[str, FeedEvent] = {}
    latest = -inf
    for event in events:
        if not _follows(newest.get(event.item), event):
            found.append(f"out of order: {event} after {newest.get(event.item)}")
        newest[event.item] = event
        id = event.type, event.item, "" if event.type == "deleted" else event.stored.value
        start, end = times.get(event, (lost.get(id, inf), inf))
        if start == inf:
            found.append(f"nobody did this: {event}")
        elif end < latest:
            found.append(f"after a later change: {event}")
        else:
            latest = max(latest, start)
    return found


def _follows(before: FeedEvent | None, event: FeedEvent) -> bool:
    """Whether an event can be the next one of its item."""
    if before is None or before.type == "deleted":
        return before is None and event.type == "created" and event.stored.version == 1
    if event.type == "deleted":
        return event.stored == before.stored
    return event.type == "updated" and event.stored.version == before.stored.version + 1
