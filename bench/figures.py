"""`make figures`: measures what docs/scaling.md shows, and writes its tables and its plots, all of one commit."""

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from bench import __main__ as bench
from bench.postgresql import GUARDED, PLAIN, PREFIX, on_postgresql
from bench.scenario import CREATE, DELIVERIES, ONE, OURS, PAGE, Results
from tests.live import ROOT

FILE = ROOT / "docs" / "scaling.md"
PICTURES = ROOT / "docs" / "pictures"
BEGIN, END = "<!-- Written by `make figures`. -->\n", "<!-- The end of what it writes. -->\n"

ON_SQLITE = (ONE, PAGE, CREATE, DELIVERIES)
ON_POSTGRESQL = tuple(PREFIX + each for each in ON_SQLITE)
OF_SIZES = tuple(f"{each} of" for each in bench.OF_SIZES)

OTHERS = (bench.BARE, bench.LITESTAR, bench.SMOREST)
CSS = """inline:svg { --paper: #ffffff; --ink: #1f2328; --line: #d1d9e0; }
@media (prefers-color-scheme: dark) { svg { --paper: #0d1117; --ink: #e6edf3; --line: #3d444d; } }
.text-overlay .series text.value { fill: var(--ink); }"""


def table(results: Results, names: Sequence[str], others: Sequence[str]) -> str:
    """A table in Markdown: requests a second of ours, and the ratios to the others."""
    rows = [["", "requests/s", *(f"/ {each}" for each in others)], ["---"] * (2 + len(others))]
    for name in names:
        found = results[name]
        ratios = [f"{found[each].ratio:.2f}" if each in found else "–" for each in others]
        rows.append([name.removeprefix(PREFIX), f"{found[OURS].rate:,.0f}", *ratios])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def by_size(results: Results) -> dict[str, dict[str, float]]:
    """The processor time of a request in µs, by operation and by number of items."""
    found = {}
    for title, sides in results.items():
        if title.startswith(OF_SIZES):
            name, _, largest = title.rpartition(" of ")
            smaller = {side.removeprefix("of "): figures.cost for side, figures in sides.items() if side != OURS}
            found[name] = smaller | {largest: sides[OURS].cost}
    return found


def section(results: Results, about: str) -> str:
    """What the page has between its marks."""
    late = {name: results[ONE][name].late for name in (OURS, bench.BARE)}
    costs = by_size(results)
    first, *_, last = next(iter(costs.values()))
    flat = ", ".join(f"{name} {found[last] / found[first]:.2f} ×" for name, found in costs.items())
    return f"""{BEGIN}
{about}

{table(results, ON_SQLITE, OTHERS)}
![Requests a second on SQLite, by operation, of Restkeeper and of the others](pictures/requests.svg)

Of 100 reads of one item, 99 take less than {late[OURS]:.0f} ms (bare Flask: {late[bench.BARE]:.0f} ms).
Processor time of a request on SQLite with {last} items, divided by that with {first}: {flat}.

![Processor time of a request on SQLite, by number of items](pictures/items.svg)

{table(results, ON_POSTGRESQL, (PLAIN, GUARDED))}
{END}"""


def plots(results: Results) -> dict[str, str]:
    """The SVGs by the names of their files. They have no script, no link and no font of their own."""
    import pygal  # is not needed for the text
    from pygal.style import Style

    style = Style(
        **dict.fromkeys(("background", "plot_background"), "var(--paper)"),
        **dict.fromkeys(("foreground", "foreground_strong"), "var(--ink)"),
        **dict.fromkeys(("foreground_subtle", "guide_stroke_color", "major_guide_stroke_color"), "var(--line)"),
        **dict.fromkeys(("label_font_size", "major_label_font_size", "value_font_size"), 13),
        **dict.fromkeys(("opacity", "stroke_opacity"), "1"),
        colors=("#2f81f7", "#8b949e", "#d29922", "#db61a2"),
        font_family="sans-serif",
        stroke_width="2",
        transition="none",
    )

    def draw(chart: Any, title: str, labels: Sequence[str], series: dict[str, list[float | None]]) -> str:
        chart.config(style=style, css=["file://style.css", "file://graph.css", CSS], no_prefix=True)
        chart.config(title=title, x_labels=labels, truncate_label=-1, truncate_legend=-1, legend_at_bottom=True)
        chart.config(include_x_axis=True, width=800, height=450, value_formatter="{:,.0f}".format)
        for name, values in series.items():
            chart.add(name, values)
        chart.add_xml_filter(_plain)
        return str(chart.render(is_unicode=True))

    operations, costs = (ONE, PAGE, CREATE), by_size(results)
    rates = {
        "Restkeeper" if side == OURS else side: [
            results[name][side].rate if side in results[name] else None for name in operations
        ]
        for side in (OURS, *OTHERS)
    }
    bars = pygal.Bar(print_values=True, print_values_position="top", y_title="requests a second")
    lines = pygal.Line(dots_size=5, x_title="items", y_title="µs of processor time")
    of_sizes = {name: [*found.values()] for name, found in costs.items()}
    return {
        "requests.svg": draw(bars, "Requests a second, on SQLite", operations, rates),
        "items.svg": draw(lines, "Processor time of a request, on SQLite", [*next(iter(costs.values()))], of_sizes),
    }


def _plain(root: Any) -> Any:
    """The picture without what a browser would run, and without comments and tooltips."""
    del root.attrib["id"]  # is empty
    for parent in list(root.iter()):
        for child in list(parent):
            if not isinstance(child.tag, str) or child.tag.rpartition("}")[2] in ("script", "desc"):
                parent.remove(child)
    return root


def replaced(page: str, text: str) -> str:
    """The page with another text between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the marks are missing")
    return before + text + after


def described() -> str:
    """The commit, the day and the versions."""

    def git(*arguments: str) -> str:
        return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True).strip()  # noqa: S603, S607

    changed = " with changes" if git("status", "--porcelain", "-uno", "--", ".", ":!docs") else ""
    return f"Commit `{git('rev-parse', '--short=8', 'HEAD')}`{changed}, {date.today():%d %B %Y}: {bench.packages()}."


def main() -> None:
    arguments = bench.parsed(argparse.ArgumentParser(prog="python -m bench.figures"))
    about, load = described(), (arguments.rounds, arguments.seconds)
    with tempfile.TemporaryDirectory() as folder:
        results = bench.on_sqlite(Path(folder), *load, [*OF_SIZES, *ON_SQLITE], arguments.large)
        results |= on_postgresql(Path(folder), *load, ON_POSTGRESQL)
    for name, svg in plots(results).items():
        (PICTURES / name).write_text(svg, encoding="utf-8")
    FILE.write_text(replaced(FILE.read_text(encoding="utf-8"), section(results, about)), encoding="utf-8")


if __name__ == "__main__":
    main()
