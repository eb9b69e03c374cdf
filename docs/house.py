"""The rooms of the engine, their lines and their imports, for docs/architecture.md: `python docs/house.py`.

It writes docs/house.svg and the table between the markers of the page. `--check` compares instead: rooms and imports
exactly, numbers of lines within a tenth (or 10), so that a page need not change with each commit.

A room is the first folder or module under restkeeper/, each feature one of its own. config, errors, clock, net and
versions import nothing of the engine, and every room may import them: these imports are not listed.
"""

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import restkeeper  # noqa: E402

ENGINE = ROOT / "restkeeper"
PICTURE = ROOT / "docs" / "house.svg"
PAGE = ROOT / "docs" / "architecture.md"
MARKED = re.compile(r"(?<=<!-- rooms -->\n).*?(?=<!-- end of rooms -->)", re.S)

SERVICE = "the service"
LEAVES = ("config", "errors", "clock", "net", "versions")
# From top to bottom: an import goes down. Rooms that are not listed follow.
ORDER = (
    *(SERVICE, "__main__", "pytest_plugin", "testing", "app", "cli", "server", "features", "service"),
    *("contract", "resources", "schemas", "web", "storage", *LEAVES),
)
NAMED = re.compile(r"restkeeper(\.\w+)+(:\w+)?")  # a module that is imported by its name when it is needed


class Room(NamedTuple):
    """What a room is (its docstring), its lines of Python and SQL that are not empty, and the rooms that it imports."""

    about: str
    lines: int
    imports: frozenset[str]


def room_of(parts: tuple[str, ...]) -> str:
    """The room of a module, given the names under `restkeeper`."""
    return "/".join(parts[:2]) if parts[0] == "features" else parts[0]


def imported(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """The modules and names of the engine that a module imports, as names under `restkeeper`."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module == "restkeeper":
            names = [restkeeper._HOME_OF.get(alias.name, f"restkeeper.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "restkeeper":
            names = [restkeeper._HOME_OF.get(node.attr, f"restkeeper.{node.attr}")]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMED.fullmatch(node.value):
            names = [node.value.partition(":")[0]]
        yield from (tuple(name.split(".")[1:]) for name in names if name.startswith("restkeeper."))


def files_of_rooms() -> dict[str, list[Path]]:
    """The files of each room."""
    service = [ROOT / "app.py", ROOT / "gunicorn.conf.py", ROOT / "versions.py"]
    for folder in ("resources", "schemas", "storage"):
        service += (ROOT / folder).rglob("*.py")
    rooms = {SERVICE: service}
    for path in sorted(ENGINE.rglob("*")):
        parts = path.relative_to(ENGINE).with_suffix("").parts
        if (
            path.suffix in (".py", ".sql")
            and "skeleton" not in parts
            and parts not in (("__init__",), ("features", "__init__"))
        ):
            rooms.setdefault(room_of(parts), []).append(path)
    return rooms


def read_rooms() -> dict[str, Room]:
    """All rooms, from top to bottom."""
    files, rooms = files_of_rooms(), {}
    for name in sorted(files, key=_place):
        about = "the collections and versions: `app.py`, `resources/`, `schemas/`, `storage/`, `versions.py`"
        lines, imports = 0, set()
        for path in files[name]:
            text = path.read_text(encoding="utf-8")
            lines += sum(1 for line in text.splitlines() if line.strip())
            if path.suffix == ".py":
                tree = ast.parse(text)
                imports |= {room_of(parts) for parts in imported(tree)} & set(files)
                if name != SERVICE and path in (ENGINE / name / "__init__.py", ENGINE / f"{name}.py"):
                    about = re.split(r"\.\s|\.$", ast.get_docstring(tree) or "")[0].replace("|", "/")
        rooms[name] = Room(about, lines, frozenset(imports - {name, *LEAVES}))
    return rooms


def _place(name: str) -> tuple[int, str]:
    group = name.partition("/")[0]
    return (ORDER.index(group) if group in ORDER else len(ORDER), name)


def table(rooms: dict[str, Room]) -> str:
    """The rooms as Markdown."""
    rows = ["| room | what it is | lines | imports |", "|---|---|---|---|"]
    for name, room in rooms.items():
        imports = ", ".join(f"`{each}`" for each in sorted(room.imports, key=_place)) or "–"
        rows.append(f"| {name if name == SERVICE else f'`{name}`'} | {room.about} | {room.lines} | {imports} |")
    engine = sum(room.lines for name, room in rooms.items() if name != SERVICE)
    features = sum(room.lines for name, room in rooms.items() if name.startswith("features/"))
    rows += [f"| the engine | | {engine} | |", f"| the engine without features | | {engine - features} | |"]
    return "\n".join(rows) + "\n"


WIDTH, LEFT, BOX, HEIGHT, STEP, TOP = 900, 60, 430, 38, 56, 14  # pixels
WRONG = "#d62728"


def picture(rooms: dict[str, Room]) -> str:
    """The imports as an SVG: boxes from top to bottom, arrows down on the right; any that go up on the left, red."""
    groups: dict[str, list[str]] = defaultdict(list)
    arrows = set()
    for name, room in rooms.items():
        group = "leaves" if name in LEAVES else name.partition("/")[0]
        groups[group].append(name.partition("/")[2] or name)
        arrows |= {(group, other.partition("/")[0]) for other in room.imports} - {(group, group)}
    places = {group: TOP + STEP * number for number, group in enumerate(groups)}
    colours = {group: f"hsl({40 + number * 137 % 300}, 65%, 38%)" for number, group in enumerate(groups)}
    height = TOP + STEP * len(groups) + TOP
    drawn = [_box(group, names, places[group]) for group, names in groups.items()]
    drawn += [_arrow(places[one], places[other], colours[one], f"{one} → {other}") for one, other in sorted(arrows)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _box(group: str, names: list[str], top: int) -> str:
    title, inside = {"leaves": ("for all", names), "features": ("features", names)}.get(group, (group, []))
    lines = [f'<rect x="{LEFT}" y="{top}" width="{BOX}" height="{HEIGHT}" rx="6" fill="#f4f4f4" stroke="#444"/>']
    lines.append(f'<text x="{LEFT + 10}" y="{top + 24}" font-size="14" font-weight="bold">{title}</text>')
    for number, line in enumerate(wrap(", ".join(inside), 64)):
        lines.append(f'<text x="{LEFT + 95}" y="{top + 16 + 14 * number}" font-size="10">{line}</text>')
    return "\n".join(lines)


def _arrow(start: int, end: int, colour: str, title: str) -> str:
    goes_down = end > start
    side, way = (LEFT + BOX, 1) if goes_down else (LEFT, -1)
    colour = colour if goes_down else WRONG
    one, other = start + HEIGHT - 8, end + 10
    bend = side + way * (24 + abs(end - start) * 5 // 8)
    path = f"M{side} {one} C{bend} {one} {bend} {other} {side + 7 * way} {other}"
    head = f"{side},{other} {side + 9 * way},{other - 4} {side + 9 * way},{other + 4}"
    return (
        f'<g><title>{title}</title><path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        f'<polygon points="{head}" fill="{colour}"/></g>'
    )


def differences(rooms: dict[str, Room], svg: str, page: str) -> Iterator[str]:
    """What the picture and the page do not show as it is."""
    if svg != picture(rooms):
        yield "docs/house.svg shows other arrows"
    found = MARKED.search(page)
    shown, present = (_rows(text) for text in (found[0] if found else "", table(rooms)))
    for name in sorted(shown.keys() | present.keys()):
        if name not in shown or name not in present or shown[name][1] != present[name][1]:
            yield f"docs/architecture.md: {name} is missing, is gone, or imports other rooms"
        elif abs(shown[name][0] - present[name][0]) > max(10, present[name][0] / 10):
            yield f"docs/architecture.md: {name} has {present[name][0]} lines, and not {shown[name][0]}"


def _rows(text: str) -> dict[str, tuple[int, str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    return {name.strip("`"): (int(lines), imports) for name, _, lines, imports in cells}


def main() -> None:
    options = argparse.ArgumentParser(prog="python docs/house.py")
    options.add_argument("--check", action="store_true", help="compare, and write nothing")
    is_check, rooms, page = options.parse_args().check, read_rooms(), PAGE.read_text(encoding="utf-8")
    if is_check:
        if found := list(differences(rooms, PICTURE.read_text(encoding="utf-8"), page)):
            sys.exit("\n".join([*found, "Run: python docs/house.py"]))
        return
    PICTURE.write_text(picture(rooms), encoding="utf-8")
    PAGE.write_text(MARKED.sub(lambda _: table(rooms), page), encoding="utf-8")


if __name__ == "__main__":
    main()
