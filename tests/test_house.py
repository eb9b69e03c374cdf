"""The structure of the code: directions of imports, public names, and where SQL and the environment are used."""

import ast
import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

import restkeeper

ROOT = Path(__file__).parent.parent

ENGINE = ROOT / "restkeeper"

# The parts of the engine that each part may import. Imports go one way; a part that is not listed imports none.
LEAVES = {
    "clock",
    "errors",
    "net",
    "parsing",
    "versions",
}  # import nothing of ours; every part of this table may import them
ARROWS: dict[str, set[str]] = {
    "contract": set(),
    "app": {"cli", "config", "features", "resources", "service", "storage", "web"},
    "__main__": {"cli"},
    "config": set(),
    "cli": {"config", "contract", "features", "resources", "schemas", "service", "storage", "web"},
    "pytest_plugin": {"testing"},
    "testing": {"cli"},
    "server": {"cli", "config", "features", "resources", "service", "storage", "web"},
    "service": {"config", "resources", "storage", "web"},
    "features": {"config", "resources", "schemas", "service", "storage", "web"},
    "schemas": set(),
    "resources": {"config", "schemas", "storage", "web"},
    "web": {"storage"},
}
SKELETON = ENGINE / "cli" / "skeleton"  # the template of new services, no code of the engine
MODULES = [
    path
    for path in sorted(ENGINE.rglob("*.py"))
    if path != ENGINE / "__init__.py" and not path.is_relative_to(SKELETON)
]
SERVICE = [
    ROOT / "app.py",
    ROOT / "gunicorn.conf.py",
    ROOT / "versions.py",
    *(ROOT / "resources").rglob("*.py"),
    *(ROOT / "schemas").rglob("*.py"),
    *(ROOT / "storage").rglob("*.py"),
]


# What storage may import from the engine besides itself, and what others may import from storage.
STORAGE = {"clock", "net"}
OPEN = {"resources": {"contract", "errors"}, "web": {"caller", "contract", "errors"}}


def part_of(path: Path) -> str:
    inside = path.relative_to(ENGINE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imports_of(tree: ast.AST) -> set[str]:
    """The full names of the modules that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def parts_in(tree: ast.AST) -> set[str]:
    """The parts of the engine that a module imports."""
    parts = {name.split(".")[1] for name in imports_of(tree) if name.startswith("restkeeper.")}
    return parts - {"__version__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    """A module imports only the parts that its part may, each at the top of the file, and nothing of a service."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    part = part_of(path)
    allowed = STORAGE if part == "storage" else ARROWS[part] | LEAVES if part in ARROWS else set()
    assert parts_in(tree) - {part} <= allowed
    assert not {name.partition(".")[0] for name in imports_of(tree)} & {"app", "resources", "schemas", "versions"}
    inner = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    assert not any(imports_of(node) for node in inner), "an import inside a function or class"


def test_features_import_no_other_features() -> None:
    """Each can be closed and read without the others, except webhooks, which are built on events."""
    arrows = set()
    for path in (ENGINE / "features").rglob("*.py"):
        own = path.relative_to(ENGINE).with_suffix("").parts[1]
        names = imports_of(ast.parse(path.read_text(encoding="utf-8")))
        arrows |= {(own, name.split(".")[2]) for name in names if name.startswith("restkeeper.features.")}
    assert {(one, other) for one, other in arrows if one != other} == {("webhooks", "events")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_storage_imports_a_backend(path: Path) -> None:
    """No module outside storage imports a backend; resources and web import only the contract."""
    names = {name.split(".")[2] for name in imports_of(ast.parse(path.read_text("utf-8"))) if ".storage." in name}
    part = part_of(path)
    assert part == "storage" or names <= OPEN.get(part, names - {"sqlite", "postgresql"})


@pytest.mark.parametrize("path", SERVICE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_service_imports_only_public_names(path: Path) -> None:
    """It uses the public names of the engine, marshmallow and itself, and has the engine's tool settings."""
    found = imports_of(ast.parse(path.read_text(encoding="utf-8")))
    ours = {name for name in found if name.startswith("restkeeper.")}
    assert ours <= {f"restkeeper.{name}" for name in restkeeper.__all__} | {"restkeeper.server.settings.*"}
    own = {"resources", "schemas", "storage", "versions"}
    others = {name.partition(".")[0] for name in found} - {"restkeeper", "marshmallow", *own}
    assert others <= sys.stdlib_module_names


def test_public_names_are_typed() -> None:
    """The names for type checkers are the names that the package has, from the same modules."""
    tree = ast.parse((ENGINE / "__init__.py").read_text(encoding="utf-8"))
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {
        alias.name: node.module for node in ast.walk(typed) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert declared == restkeeper._HOME_OF
    assert all(hasattr(restkeeper, name) for name in restkeeper.__all__)
    assert not hasattr(restkeeper, "nothing")


@pytest.mark.parametrize("path", [*MODULES, *SERVICE], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_environment_is_read_in_one_place(path: Path) -> None:
    """Only config.py, the starts of servers, and prometheus_client use os.environ."""
    allowed = {"config.py", "loading.py", "metrics.py", "serve.py", "settings.py", "testing.py"}
    assert path.name in allowed or "os.environ" not in path.read_text(encoding="utf-8")


def test_only_storage_has_sql() -> None:
    """No SQL statement and no sqlite3 outside storage/."""
    words = ("SELECT ", "INSERT INTO", "DELETE FROM", "sqlite3", "PRAGMA")
    outside = [path for path in MODULES if part_of(path) != "storage"]
    assert not [path for path in outside if any(word in path.read_text(encoding="utf-8") for word in words)]


@pytest.mark.parametrize("path", sorted((ROOT / "bench").glob("*.py")), ids=lambda path: path.stem)
def test_the_benchmarks_import_what_exists(path: Path) -> None:
    """They need packages that the tests do not have, so that nothing else imports them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("restkeeper"):
            module = importlib.import_module(node.module or "")
            for name in node.names:
                assert hasattr(module, name.name) or importlib.util.find_spec(f"{module.__name__}.{name.name}")
