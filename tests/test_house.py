"""The house: imports run one way, nothing shadows, nothing reads the environment late."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# What each part may import of ours. Arrows run one way; a part that is not listed imports nothing of ours.
LEAVES = {"addresses", "clock", "errors"}  # import nothing of ours, and whoever has a row here may import them
ARROWS: dict[str, set[str]] = {
    "app": {"cli", "config", "resources", "storage", "web"},
    "cli": {"config", "delivery", "resources", "schemas", "storage", "web"},
    "gunicorn.conf": {"cli", "config", "resources", "storage", "web"},
    "delivery": {"storage"},
    "resources": {"config", "schemas", "storage", "web"},
    "web": {"storage"},
    "storage": set(),
}
PARTS = LEAVES | {"app", "cli", "config", "delivery", "resources", "schemas", "storage", "web"}
FILES = [
    path
    for part in sorted(PARTS | {"gunicorn.conf"})
    for path in sorted([ROOT / f"{part}.py", *(ROOT / part).rglob("*.py")])
    if path.exists()
]


def part_of(path: Path) -> str:
    inside = path.relative_to(ROOT)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imports_of(tree: ast.AST) -> set[str]:
    """The top-level names that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows_run_one_way(path: Path) -> None:
    """A module imports only the parts that its own part may, each at the top of the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    part = part_of(path)
    assert imports_of(tree) & PARTS - {part} <= (ARROWS[part] | LEAVES if part in ARROWS else set())
    if path.name != "gunicorn.conf.py":
        inner = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
        assert not any(imports_of(node) for node in inner), "an import inside a function or class"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_environment_is_read_in_one_place(path: Path) -> None:
    """os.environ is the business of config.py, of who starts a server, and of prometheus_client."""
    allowed = {"app.py", "config.py", "gunicorn.conf.py", "observe.py"}
    assert path.name in allowed or "os.environ" not in path.read_text(encoding="utf-8")


def test_no_top_level_name_is_one_of_the_standard_library() -> None:
    """Nothing of ours hides a module of Python's."""
    assert not PARTS & sys.stdlib_module_names


def test_only_storage_knows_sql() -> None:
    """No statement, and no sqlite3, outside storage/."""
    words = ("SELECT ", "INSERT INTO", "DELETE FROM", "sqlite3", "PRAGMA")
    outside = [path for path in FILES if part_of(path) != "storage"]
    assert not [path for path in outside if any(word in path.read_text(encoding="utf-8") for word in words)]
