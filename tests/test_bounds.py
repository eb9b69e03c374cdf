"""docs/bounds.md: each row has a setting that exists and a test that exists."""

import ast
import re
from dataclasses import fields

import pytest

from restkeeper.config import Config
from tests.live import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/bounds.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("| what", "|---"))
]


UNBOUNDED = {
    "port",
    "web_concurrency",
    "page_limit",
    "trusted_proxies",
    "deprecation_window",
}  # numbers that are no limits


def test_each_setting_that_bounds_has_a_row() -> None:
    """The table has every numeric setting, except those that are no limit."""
    numbers = {each.name for each in fields(Config) if type(each.default) is int} - UNBOUNDED
    assert {name.upper() for name in numbers} <= {row[2].strip("`") for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_a_setting_and_a_test(row: list[str]) -> None:
    """A row has the limited resource, default, setting, the response beyond the limit, and `tests/FILE.py::NAME`."""
    what, default, setting, beyond, proof = row
    assert what and default and beyond
    assert setting == "–" or setting.strip("`") in {each.name.upper() for each in fields(Config)}
    file, name = re.fullmatch(r"`(tests/[\w/]+\.py)::(\w+)`", proof).groups()  # type: ignore[union-attr]
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
