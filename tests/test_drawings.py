"""The drawings and the nouns of docs/concepts.md: they say what the code does, and can be read on a dark page."""

import re
import runpy
from dataclasses import fields
from xml.etree import ElementTree

from restkeeper import Seams, Stage
from tests.live import ROOT
from tests.test_bench import assert_plain

PICTURES = ROOT / "docs" / "pictures"
ENGINE = ROOT / "restkeeper"
SOURCE = runpy.run_path(str(ROOT / "docs" / "drawings.py"))


def drawn(name: str) -> list[tuple[str, str]]:
    """The texts of a drawing, in their order, each after the kind of text that it is."""
    root = ElementTree.fromstring((PICTURES / name).read_text(encoding="utf-8"))  # noqa: S314 - our own
    return [(each.attrib["class"].split()[0], each.text or "") for each in root.findall(".//{*}text")]


def texts(name: str, of: str) -> list[str]:
    """The texts of this kind in a drawing."""
    return [text for kind, text in drawn(name) if kind == of]


def luminance(colour: str) -> float:
    """The relative luminance of a colour such as #ffffff (WCAG 2.2)."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_drawings_are_what_their_source_makes() -> None:
    """If not, run: python docs/drawings.py."""
    for name, made in SOURCE["drawings"]().items():
        assert_plain(made)
        assert (PICTURES / name).read_text(encoding="utf-8") == made, name


def test_the_way_of_a_create_has_each_stage_and_each_seam() -> None:
    assert texts("create.svg", "stage") == [stage.name for stage in Stage]
    assert {*texts("create.svg", "seam")} == {seam.name for seam in fields(Seams)}


def test_the_way_of_a_create_names_the_modules_of_its_classes() -> None:
    """Each module is there, and defines the class beside it."""
    shown = [text for _, text in drawn("create.svg")]
    for part in texts("create.svg", "part"):
        assert (ENGINE / part).exists(), part
    for name, module in (("Execution", "resources/writes.py"), ("Unit", "resources/changes.py")):
        assert shown.index(module) == shown.index(name) - 1
        assert re.search(rf"^class {name}\b", (ENGINE / module).read_text(encoding="utf-8"), re.M)


def test_the_tables_of_a_store_are_those_of_its_migrations() -> None:
    """Each table is there, and has the columns that are drawn below its name."""
    declared = "".join(file.read_text(encoding="utf-8") for file in (ENGINE / "storage" / "migrations").iterdir())
    tables = dict(re.findall(r"CREATE TABLE (\w+) \(([^;]*);", re.sub("--.*", "", declared)))
    assert {*texts("tables.svg", "table")} == tables.keys()
    table = ""
    for kind, name in drawn("tables.svg"):
        table = name if kind == "table" else table
        assert kind != "column" or re.search(rf"^ *{name} +\S", tables[table], re.M), (table, name)


def test_the_drawings_can_be_read_on_a_light_and_on_a_dark_page() -> None:
    """Texts have a contrast of 4.5 to what is below them (WCAG 2.2, criterion 1.4.3)."""
    shown_on = {
        **dict.fromkeys(("ink", "quiet"), ("paper", "ground", "chip", "unit", "unit-chip")),
        "seam": ("paper", "unit-chip"),
    }
    for name in SOURCE["drawings"]():
        style = (PICTURES / name).read_text(encoding="utf-8").partition("</style>")[0]
        light, dark = re.split(r"prefers-color-scheme: ?dark", style)
        for page in (light, dark.partition("}")[0]):
            colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", page))
            for text, ground in [(text, ground) for text, grounds in shown_on.items() for ground in grounds]:
                low, high = sorted(luminance(colours[each]) for each in (text, ground))
                assert (high + 0.05) / (low + 0.05) >= 4.5, (name, text, ground)


def test_each_noun_is_a_class_of_its_module() -> None:
    """There are ten, each in two sentences."""
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    nouns = re.findall(r"^\| \*\*(\w+)\*\* \| (.+) \| `([\w/]+\.py)` \|$", page, re.M)
    assert len(nouns) == 10
    for noun, text, module in nouns:
        assert re.search(rf"^class {noun}\b", (ENGINE / module).read_text(encoding="utf-8"), re.M), noun
        assert len(re.findall(r"\. [A-Z]", text)) == 1, noun
