"""The drawings of docs/concepts.md, as SVG in docs/pictures/: `python docs/drawings.py`."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import svg

FOLDER = Path(__file__).parent / "pictures"
SANS = '-apple-system, "Segoe UI", Roboto, "Noto Sans", Helvetica, Arial, sans-serif'
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
# The first colour of each pair is that of a light page, the second that of a dark one.
COLOURS = {
    "paper": ("#ffffff", "#0d1117"),
    "ground": ("#f6f8fa", "#151b23"),
    "chip": ("#eff2f5", "#212830"),
    "line": ("#d1d9e0", "#3d444d"),
    "ink": ("#1f2328", "#f0f6fc"),
    "quiet": ("#59636e", "#9198a1"),
    "unit": ("#ddf4ff", "#12253d"),
    "unit-line": ("#80ccff", "#1f4d8a"),
    "unit-chip": ("#ffffff", "#0d1117"),
    "seam": ("#8250df", "#b78af9"),
    "seam-line": ("#d8c8f5", "#493771"),
}
RULES = f"""
text {{ font: 12.5px {SANS}; fill: var(--ink) }}
text.title {{ font-size: 15px; font-weight: 600 }}
text.part {{ font: 12px {MONO}; fill: var(--quiet); text-anchor: end }}
text.about {{ fill: var(--quiet) }}
text.of {{ fill: var(--quiet); font-size: 11.5px; text-anchor: middle }}
text.name {{ font: 600 12.5px {MONO}; text-anchor: middle }}
text.stage {{ font: 600 12px {MONO}; text-anchor: middle }}
text.seam {{ font: 600 13px {MONO}; fill: var(--seam) }}
text.head {{ font-size: 15px; font-weight: 600; fill: var(--seam) }}
text.table {{ font: 600 14px {MONO} }}
text.column {{ font: 12px {MONO} }}
text.message {{ font: 600 13px {MONO}; text-anchor: middle }}
.paper {{ fill: var(--paper) }}
.ground {{ fill: var(--ground); stroke: var(--line) }}
.frame {{ fill: var(--paper); stroke: var(--line) }}
.chip {{ fill: var(--chip); stroke: var(--line) }}
.open {{ fill: none; stroke: var(--quiet); stroke-dasharray: 4 3 }}
.unit {{ fill: var(--unit); stroke: var(--unit-line) }}
.step {{ fill: var(--unit-chip); stroke: var(--unit-line) }}
.way {{ fill: none; stroke: var(--quiet); stroke-width: 1.5 }}
.tip {{ fill: var(--quiet) }}
.tie {{ fill: none; stroke: var(--seam-line); stroke-width: 1.5 }}
.port {{ fill: var(--seam) }}
"""
TIP, HALF = 7, 3  # pixels: the length of the tip of an arrow, and half of its width

Point = tuple[int, int]


def text(kind: str, x: int, y: int, words: str) -> svg.Element:
    """A line of text, whose baseline is at `y`."""
    return svg.Text(class_=kind.split(), x=x, y=y, text=escape(words, quote=False))


def box(kind: str, x: int, y: int, width: int, height: int) -> svg.Element:
    """A box with round corners."""
    return svg.Rect(class_=[kind], x=x, y=y, width=width, height=height, rx=12 if kind == "ground" else 7)


def line(kind: str, *points: Point) -> svg.Element:
    """A line through these points."""
    return svg.Path(class_=[kind], d=[svg.M(*points[0]), *(svg.L(*point) for point in points[1:])])


def arrow(*points: Point) -> list[svg.Element]:
    """A line through these points, each straight below, above or beside the one before, with a tip at the end."""
    (x0, y0), (x, y) = points[-2:]
    dx, dy = (x > x0) - (x < x0), (y > y0) - (y < y0)
    back, aside = (x - dx * TIP, y - dy * TIP), (dy * HALF, dx * HALF)
    left, right = (back[0] + aside[0], back[1] + aside[1]), (back[0] - aside[0], back[1] - aside[1])
    tip = svg.Path(class_=["tip"], d=[svg.M(x, y), svg.L(*left), svg.L(*right), svg.Z()])
    return [line("way", *points[:-1], back), tip]


def drawing(title: str, width: int, height: int, elements: Sequence[svg.Element]) -> str:
    """The SVG, which is readable on a light and on a dark page."""
    light, dark = ("; ".join(f"--{name}: {pair[n]}" for name, pair in COLOURS.items()) for n in (0, 1))
    style = f"\nsvg {{ {light} }}\n@media (prefers-color-scheme:dark) {{ svg {{ {dark} }} }}{RULES}"
    paper = svg.Rect(class_=["paper"], width=width, height=height, rx=12)
    made = svg.SVG(
        viewBox=svg.ViewBoxSpec(0, 0, width, height),
        width=width,
        height=height,
        extra={"role": "img"},
        elements=[svg.Title(text=title), svg.Style(text=style), paper, *elements],
    )
    return str(made).replace("><", ">\n<") + "\n"


def create() -> str:
    """The way of a create through the kernel, and where the features join it."""
    spine, right, answer, edge, names, abouts = 291, 546, 572, 600, 628, 716  # from left to right
    drawn = [
        text("title", 20, 39, "The kernel"),
        text("head", names, 39, "The seams of features"),
        text("message", spine, 39, "POST /products"),
        text("message", answer, 39, "200 OK"),
        box("ground", 20, 64, edge - 20, 522),
    ]

    # The stages of a request.
    drawn += arrow((spine, 46), (spine, 88))
    drawn += [box("frame", 36, 88, right - 36, 88), text("part", right - 14, 110, "app.py")]
    drawn += [
        text("title", 50, 110, "Stages"),
        text("about", 108, 110, "before the handler; dashed: only features act"),
    ]
    stages = {
        "EDGE": "the address",
        "CALLER": "who calls",
        "LIMIT": "how often",
        "VERSION": "of the API",
        "PERMISSION": "what is allowed",
    }
    for n, (name, about) in enumerate(stages.items()):
        x = 50 + 99 * n
        drawn += [box("open" if name in ("LIMIT", "VERSION") else "chip", x, 122, 86, 28)]
        drawn += [text("stage", x + 43, 140, name), text("of", x + 43, 167, about)]
        if n:
            drawn += arrow((x - 13, 136), (x, 136))

    # The handler.
    drawn += arrow((spine, 176), (spine, 206))
    drawn += [box("frame", 36, 206, right - 36, 86), text("part", right - 14, 228, "web/handlers.py")]
    drawn += [text("title", 50, 228, "Handler"), text("about", 114, 228, "reads the body, and makes")]
    for x, name, about in ((50, "Call", "caller, conditions, deadline"), (300, "Command", "what to do: create")):
        drawn += [box("chip", x, 240, 232, 40), text("name", x + 116, 257, name), text("of", x + 116, 272, about)]

    # Its execution.
    drawn += arrow((spine, 292), (spine, 322))
    drawn += [box("frame", 36, 322, right - 36, 176), text("part", right - 14, 344, "resources/writes.py")]
    drawn += [text("title", 50, 344, "Execution"), text("about", 130, 344, "returns the stored response of a")]
    drawn += [text("about", 50, 362, "repetition, or loads the bodies and begins a transaction")]
    drawn += [box("unit", 50, 376, right - 64, 108), text("part", right - 28, 398, "resources/changes.py")]
    drawn += [text("title", 64, 398, "Unit"), text("about", 101, 398, "all its changes, or none")]
    steps = {
        "changing": ("features, then", "functions before"),
        "check": ("the references",),
        "write": ("the item",),
        "changed": ("the event, then", "functions after"),
    }
    for n, (name, rows) in enumerate(steps.items()):
        x = 64 + 118 * n
        drawn += [box("step", x, 410, 100, 28), text("seam name" if len(rows) > 1 else "name", x + 50, 428, name)]
        drawn += [text("of", x + 50, 456 + 15 * row, about) for row, about in enumerate(rows)]
        if n:
            drawn += arrow((x - 18, 424), (x, 424))

    # The store, and the response.
    drawn += arrow((spine, 498), (spine, 528))
    drawn += [box("frame", 36, 528, right - 36, 42), text("part", right - 14, 554, "storage")]
    drawn += [text("title", 50, 554, "Store"), text("about", 98, 554, "SQLite or PostgreSQL")]
    drawn += arrow((right, 350), (answer, 350), (answer, 46))

    # Where features join.
    seams = (
        ("arriving", 88, "wraps the application", edge),
        ("answered", 112, "with each response", answer),
        ("checking", 136, "at each stage", edge),
        ("identify", 160, "whose credential it is", edge),
        ("ahead", 184, "what to read with it", edge),
        ("once", 338, "the response of a repetition", edge),
        ("view", 362, "how a caller sees the items", edge),
        ("beginning", 388, "before the transaction", edge),
        ("changing", 412, "before an item is written", edge),
        ("changed", 436, "after it, in the transaction", edge),
        ("committing", 460, "before the commit", edge),
    )
    for name, y, about, start in seams:
        drawn += [line("tie", (start, y), (names - 8, y)), svg.Circle(class_=["port"], cx=start, cy=y, r=4)]
        drawn += [text("seam", names, y + 4, name), text("about", abouts, y + 4, about)]
    others = {
        "query": "before reads and deletions",
        "routes": "what else it serves",
        "describe": "its part of OpenAPI",
        "ready": "once, when all routes are there",
    }
    drawn += [text("about", names, 488, "Beside a create:")]
    for n, (name, about) in enumerate(others.items()):
        drawn += [text("seam", names, 512 + 22 * n, name), text("about", abouts, 512 + 22 * n, about)]
    return drawing("The way of a create through the kernel, and the seams of features", 900, 606, drawn)


# The tables of restkeeper/storage/migrations/, three in each row of the drawing: what a row is, and some columns.
TABLES = """\
counters: the counts of each collection
    collection   its name
    items        how many there are
    changes      how many in all
    revision     which its items have

items: a row for each item of all collections
    collection   where it is
    id           unique in the collection
    owner        or null
    version      how many changes
    updated_at   the last change
    fingerprint  which schema it has
    body         its fields, as JSON

schemas: a row for each schema of a collection
    collection   whose schema it is
    fingerprint  which one it is
    revision     to which it belongs
    fields       what they are, as JSON

responses: a row for each idempotency key
    id           of caller, path and key
    stored_at    when
    body         what a repetition gets

events: a row for each change of an item
    position     in the order of events
    type         such as product.created
    collection   where the item is
    item         its id
    owner        or null
    at           when
    data         the item, as JSON

deliveries: a row for each delivery of an event
    event        its position
    webhook      the id of the webhook
    item         null, if sent by hand
    state        pending at first
    due          the next attempt, or null
    leased       while a worker has it
    attempts     how many

store: one row
    epoch        the identity of the store
    oldest       migrations to have
    moved_to     the store after a copy

feed: one row, only in PostgreSQL
    newest       the last position

subscriptions: a row for each webhook
    webhook      its id
    position     of the last event for it
    paused_until the end of a pause
    secrets      for signatures
"""
TOPS = (20, 242, 464)  # of the rows of the drawing


def tables() -> str:
    """The tables of a store. An arrow goes from a row to the rows that it names."""
    lefts, width = (20, 318, 616), 264
    drawn = []
    for n, (head, *columns) in enumerate(map(str.splitlines, TABLES.split("\n\n"))):
        x, y, (name, about) = lefts[n % 3], TOPS[n // 3], head.split(": ")
        drawn += [box("ground", x, y, width, 62 + 18 * len(columns))]
        drawn += [text("table", x + 14, y + 24, name), text("about", x + 14, y + 43, about)]
        for row, column in enumerate(columns):
            name, about = column.split(maxsplit=1)
            drawn += [text("column", x + 14, y + 69 + 18 * row, name)]
            drawn += [text("about", x + 112, y + 69 + 18 * row, about)]
    first, second, third = TOPS
    middle, last, bottom = lefts[1] + width // 2, lefts[2] + width // 2, 62 + 18 * 7  # of a table with seven columns
    drawn += arrow((lefts[0] + width, first + 65), (lefts[1], first + 65))
    drawn += arrow((lefts[1] + width, first + 65), (lefts[2], first + 65))
    drawn += arrow((lefts[2], second + 65), (lefts[1] + width, second + 65))
    drawn += arrow((middle, second), (middle, first + bottom))
    drawn += arrow((middle, third), (middle, second + bottom))
    drawn += arrow((last, second + bottom), (last, third))
    return drawing("The tables of a store", 900, 618, drawn)


def drawings() -> dict[str, str]:
    """The SVGs by the names of their files."""
    return {"create.svg": create(), "tables.svg": tables()}


if __name__ == "__main__":
    for name, made in drawings().items():
        (FOLDER / name).write_text(made, encoding="utf-8")
