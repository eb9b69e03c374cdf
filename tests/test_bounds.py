"""docs/bounds.md: each row has a setting that exists and a test that exists."""

import re

from restkeeper.config import settings
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
}  # numbers that are no limits

# `tests/FILE.py::NAME` of each function of the tests.
TESTS = {
    f"`{path.relative_to(ROOT)}::{name}`"
    for path in (ROOT / "tests").rglob("*.py")
    for name in re.findall(r"^ *def (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


def test_each_setting_that_bounds_has_a_row() -> None:
    """The table has every numeric setting, except those that are no limit."""
    numbers = {each.name for each in settings() if type(each.default) is int} - UNBOUNDED
    assert {name.upper() for name in numbers} <= {row[2].strip("`") for row in ROWS}


def test_a_row_names_a_setting_and_a_test() -> None:
    """A row has the limited resource, default, setting, the response beyond the limit, and `tests/FILE.py::NAME`."""
    names = {f"`{each.name.upper()}`" for each in settings()} | {"–"}
    assert not [row for row in ROWS if len(row) != 5 or not all(row) or row[2] not in names]
    assert not [row for row in ROWS if row[4] not in TESTS]
