"""Scenarios: sides that take turns, and the lines that say how they compare."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from math import nan
from typing import NamedTuple

from bench.sides import Found, Side, take_turns

HEADINGS = (
    f"\n{'':<62} {'ratio':>6}  {'per CPU':>7}  {'µs more':>7}  {'ours/s':>8} {'other/s':>8}  p99, ms: ours, other"
)
OURS = "ours"
ONE, PAGE, CREATE = "one item at random", "page of 20 at random", "create with an idempotency key"
DELIVERIES = "deliveries of one webhook"


class Other(NamedTuple):
    """A side to compare with; `goal` is the lowest acceptable ratio of requests a second, 0 for none.

    `late` is the highest acceptable ratio of the slowest hundredths of the reads.
    """

    side: Side
    goal: float = 0
    late: float = 0


class Scenario(NamedTuple):
    """What ours is compared with, by name."""

    name: str
    ours: Side
    others: dict[str, Other]
    connections: int = 16


class Figures(NamedTuple):
    """What was measured of a side: the medians of all rounds.

    `ratio` is ours to this side, in requests a second; `cost` is the processor time of a request in µs, `late` the time
    in ms that the slowest hundredth of the reads takes (of the writes, if there are no reads).
    """

    rate: float
    ratio: float = 1
    cost: float = nan
    late: float = nan


Results = dict[str, dict[str, Figures]]  # by scenario and side


def is_chosen(title: str, only: Sequence[str]) -> bool:
    return any(each in title for each in only)


def compare_all(scenarios: Iterable[Scenario], only: Sequence[str], rounds: int, seconds: float) -> Results:
    """The results of the scenarios and sides that are chosen; prints their lines."""
    results = {}
    for scenario in scenarios:
        others = {name: each for name, each in scenario.others.items() if is_chosen(f"{scenario.name} / {name}", only)}
        if others:
            results[scenario.name] = _compare(scenario._replace(others=others), rounds, seconds)
    return results


def _compare(scenario: Scenario, rounds: int, seconds: float) -> dict[str, Figures]:
    """Run a scenario; where the sides have a database, the processor time of each part is printed, too."""
    sides = {OURS: scenario.ours} | {name: other.side for name, other in scenario.others.items()}
    turns = take_turns([*sides.values()], scenario.connections, rounds, seconds)
    found = dict(zip(sides, zip(*turns, strict=True), strict=True))
    for name, other in scenario.others.items():
        goal = f"goal {other.goal:.2f}" if other.goal else ""
        print(line(f"{scenario.name} / {name}", found[OURS], found[name]), goal, flush=True)
        if other.late:
            late = _median(lambda a, b: a.load.reads_p99 / b.load.reads_p99, found[OURS], found[name])
            print(f"    p99 of ours / of the other: {late:.2f}   goal at most {other.late:.2f}", flush=True)
    for name, each in found.items() if scenario.ours.database else ():
        print(f"    {name + ':':<7} {costs(each)}", flush=True)
    return {name: figures(found[OURS], each) for name, each in found.items()}


def figures(ours: Sequence[Found], side: Sequence[Found]) -> Figures:
    """The figures of a side that took turns with ours."""
    return Figures(
        statistics.median(each.load.rate for each in side),
        _median(lambda a, b: a.load.rate / b.load.rate, ours, side),
        statistics.median(1e6 / each.per_cpu for each in side),
        statistics.median(each.load.reads_p99 for each in side),
    )


def line(title: str, ours: Sequence[Found], other: Sequence[Found]) -> str:
    """How ours compares with another side."""
    one, two = figures(ours, ours), figures(ours, other)
    per_cpu = _median(lambda a, b: a.per_cpu / b.per_cpu, ours, other)
    more = _median(lambda a, b: 1e6 / a.per_cpu - 1e6 / b.per_cpu, ours, other)
    return (
        f"{title:<62} {two.ratio:6.2f}  {per_cpu:7.2f}  {more:7.1f}  {one.rate:8.0f} {two.rate:8.0f}  "
        f"      {one.late:6.1f}, {two.late:6.1f}  "
    )


def _median(of: Callable[[Found, Found], float], ours: Sequence[Found], other: Sequence[Found]) -> float:
    return statistics.median(map(of, ours, other))


def costs(found: Sequence[Found]) -> str:
    """The medians of the processor time of a request, and of its time."""
    worker = statistics.median(1e6 / each.per_cpu for each in found)
    database, client = (statistics.median(1e6 * each[n] for each in found) for n in (2, 3))
    p50, p99 = (statistics.median(each.load[n] for each in found) for n in (1, 2))
    return (
        f"CPU of a request: worker {worker:.0f} µs, database {database:.0f} µs, client {client:.0f} µs; "
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    )
