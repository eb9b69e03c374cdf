"""The checker of histories accepts those that a store can have, and refuses each kind of wrong one."""

from collections.abc import Iterable, Sequence
from itertools import chain, combinations, permutations
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.histories import (
    FeedEvent,
    Operation,
    Refusal,
    Result,
    State,
    Stored,
    Verdict,
    beginning,
    check,
    check_feed,
    effect,
    search,
)

Span = tuple[float, float]
ONE, TWO, THREE = Stored(1, "a"), Stored(2, "b"), Stored(3, "c")


def create(span: Span, result: Result = ONE, id: str = "7") -> Operation:
    return Operation("create", "x", *span, result, "a", id=id if result else "")


def read(span: Span, result: Result, id: str = "7") -> Operation:
    return Operation("read", "x", *span, result, id=id)


def change(span: Span, result: Result, value: str, expected: int | None = None) -> Operation:
    return Operation("change", "x", *span, result, value, expected)


def delete(span: Span, result: Result, expected: int | None = None) -> Operation:
    return Operation("delete", "x", *span, result, expected=expected)


def lost(start: float) -> Span:
    """The time of an operation without a clear response."""
    return (start, inf)


BASE = [create((0, 1)), change((2, 3), TWO, "b", 1), read((4, 5), TWO), delete((6, 7), TWO, 2)]
ACCEPTED = {
    "in turn": BASE,
    "nothing": [],
    "read while it is created": [create((0, 9)), read((1, 2), Refusal.MISSING), read((3, 4), ONE)],
    "two reads during a change": [create((0, 1)), change((2, 9), TWO, "b"), read((3, 4), ONE), read((5, 6), TWO)],
    "a lost create that happened": [create(lost(0), None), read((5, 6), Refusal.MISSING), read((7, 8), ONE)],
    "a lost create that never happened": [create(lost(0), None), read((5, 6), Refusal.MISSING)],
    "a lost change that happened late": [
        *[create((0, 1)), change(lost(2), None, "b", 1), read((3, 4), ONE), read((5, 6), TWO)],
        delete((7, 8), TWO, 2),
    ],
    "a lost change that lost against another": [
        *[create((0, 1)), change(lost(2), None, "c", 1), change((3, 4), TWO, "b", 1), read((5, 6), TWO)],
    ],
    "a lost change that happened, and one before it that did not": [
        *[
            create((0, 1)),
            change(lost(2), None, "b", 9),
            change(lost(3), None, "c", 1),
            change((4, 5), Stored(3, "d"), "d"),
        ],
    ],
    "one of two lost changes": [
        *[create((0, 1)), change(lost(2), None, "b"), change(lost(3), None, "c"), change((4, 5), Stored(3, "d"), "d")],
    ],
    "a lost delete": [create((0, 1)), delete(lost(2), None), read((3, 4), ONE), read((5, 6), Refusal.MISSING)],
    "one of two changes with the same If-Match": [
        *[create((0, 1)), change((2, 5), TWO, "b", 1), change((2, 5), Refusal.CONFLICT, "c", 1), read((6, 7), TWO)],
    ],
    "a create that is repeated after all": [*BASE, create((8, 9)), read((10, 11), Refusal.MISSING)],
    "a refused change": [create((0, 1)), change((2, 3), Refusal.INVALID, "b"), read((4, 5), ONE)],
}
WRONG = {
    "a stale read after an acknowledged write": [create((0, 1)), change((2, 3), TWO, "b", 1), read((4, 5), ONE)],
    "a missing item after its create": [create((0, 1)), read((2, 3), Refusal.MISSING)],
    "a lost update": [create((0, 1)), change((2, 6), TWO, "b", 1), change((3, 5), Stored(2, "c"), "c", 1)],
    "a lost update that skips a version": [
        *[create((0, 1)), change((2, 6), TWO, "b", 1), change((3, 5), THREE, "c", 1)],
    ],
    "an update that is overwritten without its version": [
        *[create((0, 1)), change((2, 3), TWO, "b"), change((4, 5), Stored(2, "c"), "c")],
    ],
    "a resurrected item": [*BASE, read((8, 9), TWO)],
    "an item that is changed after its delete": [*BASE, change((8, 9), THREE, "c")],
    "an item that is created again": [*BASE, create((8, 9)), read((10, 11), ONE)],
    "two deletes": [*BASE, delete((8, 9), TWO)],
    "a value that nobody wrote": [create((0, 1)), read((2, 3), Stored(1, "z"))],
    "a version that nobody wrote": [create((0, 1)), read((2, 3), Stored(2, "a"))],
    "a value before its write": [create((0, 1)), change((4, 5), TWO, "b", 1), read((2, 3), TWO)],
    "a doubled create": [create((0, 1)), create((2, 3), id="8")],
    "a doubled create, seen by a read": [create((0, 1)), read((2, 3), ONE, id="8")],
    "a repeated create with another response": [*BASE[:2], create((4, 5), TWO)],
    "a phantom success after 412": [
        *[create((0, 1)), change((2, 3), TWO, "b", 1), change((4, 5), Refusal.CONFLICT, "c", 1), read((6, 7), THREE)],
    ],
    "a phantom success after 422": [create((0, 1)), change((2, 3), Refusal.INVALID, "b"), read((4, 5), TWO)],
    "a phantom delete after 412": [
        *[create((0, 1)), delete((2, 3), Refusal.CONFLICT, 9), read((4, 5), Refusal.MISSING)],
    ],
    "a conflict without a reason": [create((0, 1)), change((2, 3), Refusal.CONFLICT, "b", 1)],
    "non-monotone reads": [
        *[create((0, 1)), change(lost(2), None, "b", 1), read((3, 4), TWO), read((5, 6), ONE)],
    ],
    "two readers that see two changes in another order": [
        *[create((0, 1)), change((2, 9), TWO, "b"), change((2, 9), THREE, "c"), read((3, 4), TWO)],
        read((5, 6), Stored(3, "b")),
    ],
    "a lost change that happens twice": [
        *[create((0, 1)), change(lost(2), None, "b"), read((3, 4), TWO), change((5, 6), THREE, "c", 2)],
        read((7, 8), Stored(4, "b")),
    ],
    "a lost create that vanishes": [create(lost(0), None), read((1, 2), ONE), read((3, 4), Refusal.MISSING)],
}


@pytest.mark.parametrize("history", ACCEPTED.values(), ids=ACCEPTED)
def test_what_a_store_can_do_is_accepted(history: list[Operation]) -> None:
    """Overlaps have an order, and an operation without a response happened at some time, or never."""
    assert check(history) == []


@pytest.mark.parametrize("history", WRONG.values(), ids=WRONG)
def test_what_a_store_must_not_do_is_refused(history: list[Operation]) -> None:
    """Each kind of wrong history, and none of its beginnings: the last result is the wrong one."""
    assert len(check(history)) == 1
    assert check(history[:-1]) == []


def test_the_shortest_wrong_beginning_is_shown() -> None:
    """It ends with the result that has no explanation; what had not ended then had no result yet."""
    later = [read((20 + 2 * n, 21 + 2 * n), TWO) for n in range(50)]
    overlapping = read((2, 18), TWO)
    found = beginning([*BASE[:2], overlapping, read((4, 5), ONE), *later])
    assert found[-1] == read((4, 5), ONE)
    assert overlapping._replace(end=inf, result=None) in found and not set(later) & set(found)
    (text,) = check([*BASE[:2], overlapping, read((4, 5), ONE), *later])
    assert "not linearizable" in text and str(found[-1]) in text and str(later[0]) not in text


def test_a_search_has_a_limit() -> None:
    """After so many steps its verdict is unknown, and that is no success."""
    assert search(BASE, steps=3) is Verdict.UNKNOWN
    (text,) = check(BASE, steps=3)
    assert "unknown" in text


def test_a_long_history_costs_little() -> None:
    """Two thousand operations, eight at a time, of which each tenth has no result: some steps for each."""
    history, state = [create((0, 1))], State(ONE, ONE)
    for number in range(2000):
        operation = change((number + 1, number + 9), None, str(number))
        if number % 10:
            result, state = effect(operation, state)
            history.append(operation._replace(result=result))
            continue
        history.append(operation._replace(end=inf))
        if number % 20:  # it happens, and the others never
            _, state = effect(operation, state)
    assert search(history) is Verdict.LINEARIZABLE
    history.append(read((20_000, 20_001), Stored(1901, "1")))
    assert state.now and state.now.version == 1901 and search(history) is Verdict.WRONG


# Histories from an execution: each operation has its effect at one moment, and its time is around it.

# Another process can have the processor.
SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
KINDS = st.sampled_from(["read", "read", "change", "change", "create", "delete"])
AROUND = st.floats(0, 4, allow_nan=False)


@st.composite
def executions(draw: st.DrawFn, *, overlapping: bool = True, longest: int = 40) -> list[Operation]:
    """A history of one item. Some operations have no result, though an effect; some have neither."""
    history, state = [], State()
    for number in range(draw(st.integers(1, longest))):
        version = state.now.version if state.now else 0
        expected = draw(st.sampled_from([None, version, max(version - 1, 0)]))
        before, after = (draw(AROUND), draw(AROUND)) if overlapping else (0.0, 0.0)
        operation = Operation(draw(KINDS), "x", number - before, number + after, None, f"v{number}", expected)
        if operation.kind == "create":
            operation = operation._replace(expected=None, value="v")
        elif operation.kind == "read":
            operation = operation._replace(expected=None, value="")
        fate = draw(st.integers(0, 9)) if overlapping else 9
        if fate > 0:  # else it never happens
            result, state = effect(operation, state)
            operation = operation._replace(result=result) if fate > 1 else operation
        history.append(operation if operation.result else operation._replace(end=inf))
    return history


RESULTS: st.SearchStrategy[Result] = st.sampled_from(
    [Refusal.MISSING, Refusal.CONFLICT, ONE, TWO, Stored(1, "v"), Stored(3, "v2")]
)


def explained(history: Sequence[Operation]) -> bool:
    """Whether any order of the operations explains their results: all orders are tried."""
    clear = [each for each in history if each.result is not None]
    unclear = [each for each in history if each.result is None]
    chosen = chain.from_iterable(combinations(unclear, count) for count in range(len(unclear) + 1))
    return any(fits(order) for some in chosen for order in permutations([*clear, *some]))


def fits(order: Iterable[Operation]) -> bool:
    """Whether the operations can have their effects in this order."""
    state, latest = State(), -inf
    for operation in order:
        latest = max(latest, operation.start)
        result, state = effect(operation, state)
        if operation.end < latest or operation.result not in (None, result):
            return False
    return True


@SETTINGS
@given(executions(longest=5), st.data())
def test_the_search_finds_what_trying_all_orders_finds(history: list[Operation], data: st.DataObject) -> None:
    """With some random results the verdict is the same as that of a search without any cleverness."""
    for number in data.draw(st.sets(st.integers(0, len(history) - 1), max_size=2)):
        history[number] = history[number]._replace(result=data.draw(RESULTS), end=history[number].start + 3)
    verdict = Verdict.LINEARIZABLE if explained(history) else Verdict.WRONG
    assert search(history) is verdict


CREATED, UPDATED, DELETED = (
    FeedEvent(type, "x", stored) for type, stored in (("created", ONE), ("updated", TWO), ("deleted", TWO))
)
LATER = create((10, 11))._replace(item="y")
LATER_EVENT = CREATED._replace(item="y")
LOST = [create(lost(0), None), change(lost(1), None, "b"), delete(lost(2), None)]
GOOD_FEEDS: dict[str, tuple[list[FeedEvent], list[Operation]]] = {
    "all": ([CREATED, UPDATED, DELETED, LATER_EVENT], [*BASE, LATER]),
    "changes without a response": ([CREATED, UPDATED, DELETED], LOST),
    "changes that never happened": ([CREATED], [*BASE[:1], *LOST[1:]]),
    "repeated creates": ([CREATED], [create((0, 9), None), create((1, 2)), create((5, 6))]),
    "at the same time": ([LATER_EVENT, CREATED], [create((0, 15)), LATER]),
}
WRONG_FEEDS: dict[str, tuple[list[FeedEvent], list[Operation]]] = {
    "no event": ([CREATED, UPDATED], BASE),
    "an event twice": ([CREATED, UPDATED, UPDATED, DELETED], BASE),
    "out of order": ([UPDATED, CREATED, DELETED], BASE),
    "a version is missing": ([CREATED, FeedEvent("updated", "x", THREE)], [*BASE[:1], change((2, 3), THREE, "c")]),
    "another value": ([CREATED, FeedEvent("updated", "x", Stored(2, "z"))], BASE[:2]),
    "of a refused change": ([CREATED, UPDATED], [*BASE[:1], change((2, 3), Refusal.CONFLICT, "b", 1)]),
    "of nothing": ([CREATED, DELETED._replace(stored=ONE)], BASE[:1]),
    "after the delete": ([CREATED, UPDATED, DELETED, FeedEvent("updated", "x", THREE)], [*BASE, LOST[1]]),
    "a first version of 2": ([CREATED._replace(stored=Stored(2, "a"))], LOST),
    "a delete of another version": ([CREATED, UPDATED, DELETED._replace(stored=ONE)], LOST),
    "another order than two changes, with a third between": (
        [LATER_EVENT, CREATED, CREATED._replace(item="z")],
        [create((0, 15)), LATER, create((2, 3))._replace(item="z")],
    ),
    "another order than the changes": ([LATER_EVENT, CREATED], [BASE[0], LATER]),
}


@pytest.mark.parametrize(("events", "history"), GOOD_FEEDS.values(), ids=GOOD_FEEDS)
def test_a_feed_of_a_history_is_accepted(events: list[FeedEvent], history: list[Operation]) -> None:
    """Each change has its event; one without a response has one or none."""
    assert check_feed(events, history) == []


@pytest.mark.parametrize(("events", "history"), WRONG_FEEDS.values(), ids=WRONG_FEEDS)
def test_a_wrong_feed_is_refused(events: list[FeedEvent], history: list[Operation]) -> None:
    """Events are missing, doubled, out of order, or of nothing that was done."""
    assert check_feed(events, history) != []
