"""docs/bounds.md: each row is complete, and each setting that it names exists."""

import re

from restkeeper.config import settings
from tests.live import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/bounds.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("| what |", "|---"))
]
UNBOUNDED = {"port", "web_concurrency", "page_limit", "trusted_proxies"}  # numbers that are no limits


def test_each_setting_that_bounds_has_a_row() -> None:
    """The page has every numeric setting, except those that are no limit, and none that does not exist."""
    numbers = {each.name.upper() for each in settings() if type(each.default) is int and each.name not in UNBOUNDED}
    named = set(re.findall(r"`([A-Z_]+)`", " ".join(row[1] for row in ROWS)))
    assert numbers <= named <= {each.name.upper() for each in settings()}


def test_each_row_is_complete() -> None:
    """It has what is limited, the bound, and what happens beyond it."""
    assert ROWS and not [row for row in ROWS if len(row) != 3 or not all(row)]
