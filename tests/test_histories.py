"""The checker of histories accepts those that a store can have, and refuses each kind of wrong one."""

from math import inf

import pytest

from tests.histories import FeedEvent, Operation, Refusal, Result, Stored, check, check_log

Span = tuple[float, float]
History = tuple[list[Operation], list[FeedEvent]]
ONE, TWO, THREE = Stored(1, "a"), Stored(2, "b"), Stored(3, "c")


def create(span: Span, result: Result = ONE, id: str = "7") -> Operation:
    return Operation("create", "x", *span, result, "a", id=id if result else "")


def read(span: Span, result: Result, id: str = "7") -> Operation:
    return Operation("read", "x", *span, result, id=id)


def change(span: Span, result: Result, value: str, expected: int | None = None) -> Operation:
    return Operation("change", "x", *span, result, value, expected)


def delete(span: Span, result: Result, expected: int | None = None) -> Operation:
    return Operation("delete", "x", *span, result, expected=expected)


def act(span: Span, result: Result, expected: int | None = None) -> Operation:
    """A request that is sent again if there was no response."""
    return change(span, result, "b", expected)._replace(request="act")


def together(*operations: Operation) -> list[Operation]:
    """What one request does."""
    return [each._replace(request="together") for each in operations]


def of(item: str, event: FeedEvent, id: str = "", refers: str = "") -> FeedEvent:
    """An event of another item."""
    return event._replace(item=item, id=id, refers=refers)


def lost(start: float) -> Span:
    """The time of an operation without a clear response."""
    return (start, inf)


CREATED, UPDATED, DELETED = (
    FeedEvent(type, "x", stored) for type, stored in (("created", ONE), ("updated", TWO), ("deleted", TWO))
)
AGAIN = FeedEvent("updated", "x", THREE)
BASE = [create((0, 1)), change((2, 3), TWO, "b", 1), read((4, 5), TWO), delete((6, 7), TWO, 2)]
ALL = [CREATED, UPDATED, DELETED]
LATER, LATER_EVENT = create((10, 11))._replace(item="y"), CREATED._replace(item="y")
LOST = [create(lost(0), None), change(lost(1), None, "b"), delete(lost(2), None)]
DONE = [create((0, 1)), act((2, 3), TWO)]

# An array, or what a batch or an action does with two items; of the second one the response says nothing.
PAIR = together(create((0, 1)), create((0, 1), None)._replace(item="y"))
PAIR_EVENTS = [CREATED, of("y", CREATED)]

# "x" has a part, which goes with it, and an offer, which stays without it.
OWNER, PART, OFFER = (
    of("x", CREATED, "/x/1"),
    of("part", CREATED, "/part/1", "/x/1"),
    of("offer", CREATED, "/o/1", "/x/1"),
)
REFERRING = [create((0, 1), id="/x/1"), *(create((2, 3), id="")._replace(item=name) for name in ("part", "offer"))]
GONE, PART_GONE = OWNER._replace(type="deleted"), PART._replace(type="deleted")
CLEARED = OFFER._replace(type="updated", stored=Stored(2, "a"), refers="")
CASCADE = [OWNER, PART, OFFER, GONE, PART_GONE, CLEARED]
DELETION = delete((4, 5), ONE)
AFTER = [
    read((6, 7), Refusal.MISSING, "")._replace(item="part"),
    read((6, 7), CLEARED.stored, "")._replace(item="offer"),
]

ACCEPTED: dict[str, History] = {
    "in turn": ([*BASE, LATER], [*ALL, LATER_EVENT]),
    "nothing": ([], []),
    "read while it is created": ([create((0, 9)), read((1, 2), Refusal.MISSING), read((3, 4), ONE)], [CREATED]),
    "two reads during a change": (
        [create((0, 1)), change((2, 9), TWO, "b"), read((3, 4), ONE), read((5, 6), TWO)],
        [CREATED, UPDATED],
    ),
    "a lost create that happened": (
        [create(lost(0), None), read((5, 6), Refusal.MISSING), read((7, 8), ONE)],
        [CREATED],
    ),
    "a lost create that never happened": ([create(lost(0), None), read((5, 6), Refusal.MISSING)], []),
    "a lost change that happened late": (
        [*BASE[:1], change(lost(2), None, "b", 1), read((3, 4), ONE), read((5, 6), TWO), delete((7, 8), TWO, 2)],
        ALL,
    ),
    "a lost change that lost against another": ([*BASE[:2], change(lost(2), None, "c", 1), BASE[2]], ALL[:2]),
    "one of two lost changes": (
        [*BASE[:1], *LOST[1:2], change(lost(3), None, "c"), change((4, 5), Stored(3, "d"), "d")],
        [CREATED, UPDATED, FeedEvent("updated", "x", Stored(3, "d"))],
    ),
    "changes without a response": (LOST, ALL),
    "changes that never happened": ([*BASE[:1], *LOST[1:]], [CREATED]),
    "one of two changes with the same If-Match": (
        [create((0, 1)), change((2, 5), TWO, "b", 1), change((2, 5), Refusal.CONFLICT, "c", 1), read((6, 7), TWO)],
        [CREATED, UPDATED],
    ),
    "a create that is repeated after all": ([*BASE, create((8, 9)), read((10, 11), Refusal.MISSING)], ALL),
    "a refused change": ([create((0, 1)), change((2, 3), Refusal.INVALID, "b"), read((4, 5), ONE)], [CREATED]),
    "an action that is repeated after another change": (
        [*DONE, change((4, 5), THREE, "c"), act((6, 7), TWO)],
        [CREATED, UPDATED, AGAIN],
    ),
    "an action whose first request was lost": ([DONE[0], act(lost(2), None), act((5, 6), TWO)], ALL[:2]),
    "an action twice at the same time": ([DONE[0], act((2, 6), TWO), act((3, 4), TWO)], ALL[:2]),
    "two items together": (PAIR, PAIR_EVENTS),
    "two items together, without a response": (
        together(*(create(lost(0), None)._replace(item=name) for name in "xy")),
        PAIR_EVENTS,
    ),
    "two items together, which never happened": (together(LOST[0], LOST[0]._replace(item="y")), []),
    "together, and one of two lost deletes": (
        [create((0, 1)), *together(LOST[0]._replace(item="y"), LOST[2]), delete(lost(2), None)],
        [CREATED, DELETED._replace(stored=ONE)],
    ),
    "a deletion with what refers to the item": ([*REFERRING, DELETION, *AFTER], CASCADE),
    "a lost deletion with what refers to the item": ([*REFERRING, delete(lost(4), None), *AFTER], CASCADE),
    "a part that was deleted before": (
        [*REFERRING, delete((4, 5), ONE)._replace(item="part", request="own"), delete((6, 7), ONE)],
        [OWNER, PART, OFFER, PART_GONE, GONE, CLEARED],
    ),
    "a refused deletion": ([*REFERRING, delete((4, 5), Refusal.REFERRED), read((6, 7), ONE, "/x/1")], CASCADE[:3]),
    "two items at the same time": ([create((0, 15)), LATER], [LATER_EVENT, CREATED]),
}
WRONG: dict[str, History] = {
    "a stale read after an acknowledged write": ([*BASE[:2], read((4, 5), ONE)], ALL[:2]),
    "a missing item after its create": ([create((0, 1)), read((2, 3), Refusal.MISSING)], [CREATED]),
    "a lost update": (
        [create((0, 1)), change((2, 6), TWO, "b", 1), change((3, 5), Stored(2, "c"), "c", 1)],
        [CREATED, UPDATED],
    ),
    "a lost update that skips a version": (
        [create((0, 1)), change((2, 6), TWO, "b", 1), change((3, 5), THREE, "c", 1)],
        [CREATED, UPDATED, AGAIN],
    ),
    "a resurrected item": ([*BASE, read((8, 9), TWO)], ALL),
    "an item that is changed after its delete": ([*BASE, change((8, 9), THREE, "c")], [*ALL, AGAIN]),
    "two deletes": ([*BASE, delete((8, 9), TWO)._replace(request="another")], ALL),
    "a value that nobody wrote": ([create((0, 1)), read((2, 3), Stored(1, "z"))], [CREATED]),
    "a version that nobody wrote": ([create((0, 1)), read((2, 3), Stored(2, "a"))], [CREATED]),
    "a value before its write": ([create((0, 1)), change((4, 5), TWO, "b", 1), read((2, 3), TWO)], ALL[:2]),
    "an item before its create": ([read((0, 1), ONE), create((2, 3))], [CREATED]),
    "a doubled create": ([create((0, 1)), create((2, 3), id="8")], [CREATED]),
    "a repeated create with another response": ([*BASE[:2], create((4, 5), TWO)], ALL[:2]),
    "a phantom success after 412": (
        [*BASE[:2], change((4, 5), Refusal.CONFLICT, "c", 1), read((6, 7), THREE)],
        [CREATED, UPDATED, AGAIN],
    ),
    "a phantom success after 422": ([*BASE[:1], change((2, 3), Refusal.INVALID, "b")], ALL[:2]),
    "a conflict without a reason": ([create((0, 1)), change((2, 3), Refusal.CONFLICT, "b", 1)], [CREATED]),
    "non-monotone reads": (
        [create((0, 1)), change(lost(2), None, "b", 1), read((3, 4), TWO), read((5, 6), ONE)],
        [CREATED, UPDATED],
    ),
    "a lost create that vanishes": ([LOST[0], read((1, 2), ONE), read((3, 4), Refusal.MISSING)], [CREATED]),
    "no event": (BASE, [CREATED, UPDATED]),
    "an event twice": (BASE, [CREATED, UPDATED, UPDATED, DELETED]),
    "events out of order": (BASE, [UPDATED, CREATED, DELETED]),
    "an event of nothing": (BASE[:1], [CREATED, DELETED._replace(stored=ONE)]),
    "an event of an unknown item": (BASE[:1], [CREATED, LATER_EVENT]),
    "an event after the delete": ([*BASE, LOST[1]], [*ALL, AGAIN]),
    "a first version of 2": (LOST, [CREATED._replace(stored=Stored(2, "a"))]),
    "a delete of another version": (LOST, [CREATED, UPDATED, DELETED._replace(stored=ONE)]),
    "an action done twice": (
        [DONE[0], act(lost(2), None), act((5, 6), THREE)],
        [CREATED, UPDATED, AGAIN._replace(stored=Stored(3, "b"))],
    ),
    "a repeated action with another response": ([*DONE, act((4, 5), THREE)], ALL[:2]),
    "an action that is repeated before it": ([create((0, 1)), act((2, 3), TWO), read((4, 5), ONE)], ALL[:2]),
    "an action that is refused when it is repeated": (
        [DONE[0], act((2, 3), TWO, 1), act((4, 5), Refusal.CONFLICT, 1)],
        ALL[:2],
    ),
    "an action after 412": ([create((0, 1)), act((2, 3), Refusal.CONFLICT, 2)], ALL[:2]),
    "a part of what is done together": (PAIR, PAIR_EVENTS[:1]),
    "a part of what is done together, without a response": (
        together(*(create(lost(0), None)._replace(item=name) for name in "xy")),
        PAIR_EVENTS[1:],
    ),
    "the other part of what was refused": (
        together(change((2, 3), Refusal.CONFLICT, "b", 7), create((2, 3), Refusal.INVALID)._replace(item="y")),
        PAIR_EVENTS[1:],
    ),
    "a reference to nothing": (REFERRING[:2], [PART]),
    "a reference to what was deleted": (
        [REFERRING[0], delete((1.2, 1.4), ONE), REFERRING[1]],
        [OWNER, GONE, PART],
    ),
    "a deletion without the part": ([*REFERRING, DELETION], [*CASCADE[:4], CLEARED]),
    "a deletion without the offer": ([*REFERRING, DELETION], CASCADE[:5]),
    "a part that is gone without an event": ([*REFERRING, AFTER[0]], CASCADE[:3]),
    "a part that is deleted without a deletion": (REFERRING, [OWNER, PART, OFFER, PART_GONE]),
    "an offer that is changed without a deletion": (REFERRING, [OWNER, PART, OFFER, CLEARED]),
    "a part that is there after the deletion": (
        [*REFERRING, DELETION, read((6, 7), ONE, "")._replace(item="part")],
        CASCADE,
    ),
    "a deletion that is refused for an item that is not there": (
        [*BASE, delete((8, 9), Refusal.REFERRED)],
        ALL,
    ),
    "an id of another item": (
        [create((0, 1)), create((2, 3))._replace(item="y")],
        [of("x", CREATED, "/x/7"), of("y", CREATED, "/x/7")],
    ),
    "an integer that was given before": (
        [*BASE, *(create((8, 9), id="")._replace(item=item) for item in "yz")],
        [*ALL, of("y", CREATED, "/x/8"), of("z", CREATED, "/x/7")],
    ),
    "events of two items in another order than their changes": ([BASE[0], LATER], [LATER_EVENT, CREATED]),
    "the same with a third between": (
        [create((0, 15)), LATER, create((2, 3))._replace(item="z")],
        [LATER_EVENT, CREATED, CREATED._replace(item="z")],
    ),
}


@pytest.mark.parametrize(("history", "feed"), ACCEPTED.values(), ids=ACCEPTED)
def test_what_a_store_can_do_is_accepted(history: list[Operation], feed: list[FeedEvent]) -> None:
    """Overlaps have an order, and an operation without a response happened at some time, or never."""
    assert check(history, feed) == []


@pytest.mark.parametrize(("history", "feed"), WRONG.values(), ids=WRONG)
def test_what_a_store_must_not_do_is_refused(history: list[Operation], feed: list[FeedEvent]) -> None:
    """Each kind of wrong history, and each kind of wrong feed."""
    assert check(history, feed) != []


@pytest.mark.parametrize("log", [ALL[:2], [*ALL, DELETED], [CREATED, UPDATED._replace(stored=ONE), DELETED]])
def test_a_function_that_did_not_run_once_for_each_change_is_found(log: list[FeedEvent]) -> None:
    """By the log that it writes, in any order."""
    assert check_log(ALL, ALL[::-1]) == []
    assert check_log(ALL, log) != []
