"""docs/bounds.md: each row has tests that exist, and each setting that it names exists."""

import re
import tomllib

from restkeeper.config import settings
from tests.live import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/bounds.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("| what |", "|---"))
]
PROOFS = tomllib.loads((ROOT / "tests/bounds.toml").read_text(encoding="utf-8"))
UNBOUNDED = {"port", "web_concurrency", "page_limit", "trusted_proxies"}  # numbers that are no limits


def test_each_setting_that_bounds_has_a_row() -> None:
    """The page has every numeric setting, except those that are no limit, and none that does not exist."""
    numbers = {each.name.upper() for each in settings() if type(each.default) is int and each.name not in UNBOUNDED}
    named = set(re.findall(r"`([A-Z_]+)`", " ".join(row[1] for row in ROWS)))
    assert numbers <= named <= {each.name.upper() for each in settings()}


def test_each_bound_has_a_test() -> None:
    """A row has what is limited, the bound, and what happens beyond it; its tests in tests/bounds.toml exist."""
    assert not [row for row in ROWS if len(row) != 3 or not all(row)]
    assert [row[0] for row in ROWS] == list(PROOFS["page"])
    existing = {
        f"{path.relative_to(ROOT / 'tests')}::{name}"
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"^ *def (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    bounds = {**PROOFS["page"], **PROOFS["inside"]}
    assert not [what for what, tests in bounds.items() if not tests or not existing.issuperset(tests)]
