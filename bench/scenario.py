"""Scenarios: two sides that take turns, and the line that says how they compare."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from bench.sides import Found, Side, take_turns

HEADINGS = f"\n{'':<50} {'ratio':>6}  {'per CPU':>7}  {'µs more':>7}  {'ours/s':>8} {'other/s':>8}"


class Scenario(NamedTuple):
    """Two sides to compare; `goal` is the lowest acceptable ratio, 0 for none."""

    name: str
    ours: Side
    other: Side
    goal: float
    connections: int = 16


def compare(scenario: Scenario, rounds: int, seconds: float) -> None:
    """Run a scenario and print its line; where the sides have a database, the processor time of each part, too."""
    results = take_turns((scenario.ours, scenario.other), scenario.connections, rounds, seconds)
    ratio = statistics.median(ours.load.rate / other.load.rate for ours, other in results)
    per_cpu = statistics.median(ours.per_cpu / other.per_cpu for ours, other in results)
    more = statistics.median(1e6 / ours.per_cpu - 1e6 / other.per_cpu for ours, other in results)
    ours_rate, other_rate = (statistics.median(each.load.rate for each in side) for side in zip(*results, strict=True))
    goal = f"goal {scenario.goal:.2f}" if scenario.goal else ""
    print(
        f"{scenario.name:<50} {ratio:6.2f}  {per_cpu:7.2f}  {more:7.1f}  {ours_rate:8.0f} {other_rate:8.0f}   {goal}",
        flush=True,
    )
    for name, side in zip(("ours", "other"), zip(*results, strict=True), strict=True):
        if scenario.ours.database:
            print(f"    {name + ':':<7} {costs(side)}", flush=True)


def costs(found: Sequence[Found]) -> str:
    """The medians of the processor time of a request, and of its time."""
    worker = statistics.median(1e6 / each.per_cpu for each in found)
    database, client = (statistics.median(1e6 * each[n] for each in found) for n in (2, 3))
    p50, p99 = (statistics.median(each.load[n] for each in found) for n in (1, 2))
    return (
        f"CPU of a request: worker {worker:.0f} µs, database {database:.0f} µs, client {client:.0f} µs; "
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    )
