"""The drawings of docs/architecture.md are what docs/drawings.py makes, and say what the code does."""

import re
import runpy
from dataclasses import fields
from xml.etree import ElementTree

from restkeeper import Seams, Stage
from tests.live import ROOT
from tests.test_bench import assert_plain

PICTURES = ROOT / "docs" / "pictures"
ENGINE = ROOT / "restkeeper"


def drawn(name: str) -> list[tuple[str, str]]:
    """The texts of a drawing, in their order, each after the kind of text that it is."""
    root = ElementTree.fromstring((PICTURES / name).read_text(encoding="utf-8"))  # noqa: S314 - our own
    return [(each.attrib["class"].split()[0], each.text or "") for each in root.findall(".//{*}text")]


def texts(name: str, of: str) -> list[str]:
    """The texts of this kind in a drawing."""
    return [text for kind, text in drawn(name) if kind == of]


def test_the_drawings_are_what_their_source_makes() -> None:
    """If not, run: python docs/drawings.py."""
    for name, made in runpy.run_path(str(ROOT / "docs" / "drawings.py"))["drawings"]().items():
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
