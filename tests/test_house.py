"""The structure of the code: imports, public names, SQL, the environment, caches; and what bench/ counts of it."""

import ast
import importlib
import pkgutil
import re
import sys
from functools import cache, lru_cache
from graphlib import TopologicalSorter
from operator import gt
from pathlib import Path

import restkeeper
from bench.calls import counts_of_requests
from bench.sizes import count_python, exceeded, raised_without_reason
from restkeeper.cli import new
from tests.live import ROOT

ENGINE = ROOT / "restkeeper"

# What each part of the engine may import, from the table of the page; a part that is not there imports none.
ROWS = re.findall(
    r"^\| (`.+`) \|.*\| ([^|]+) \|$", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE
)
ARROWS = {part: set(re.findall(r"`(\w+)`", row[-1])) for row in ROWS for part in re.findall(r"`(\w+)`", row[0])}
LEAVES = {
    "clock",
    "errors",
    "hook",
    "net",
    "parsing",
    "positions",
    "versions",
}  # import nothing of ours; every part may import them
SKELETON = ENGINE / "cli" / "skeleton"  # the template of new services, no code of the engine
MODULES = [
    path
    for path in sorted(ENGINE.rglob("*.py"))
    if path != ENGINE / "__init__.py" and not path.is_relative_to(SKELETON)
]
SERVICE = [
    path
    for name in new.SERVICE
    for path in ([*(ROOT / name).rglob("*.py")] if (ROOT / name).is_dir() else [ROOT / name])
    if path.suffix == ".py"
]


# What these parts may import from storage.
OPEN = {"resources": {"base", "interface", "errors"}, "web": {"base", "interface", "errors", "shares"}}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def trees() -> dict[Path, ast.Module]:
    """All modules of the engine; a process that runs none of these tests parses none."""
    return {path: tree_of(path) for path in MODULES}


def part_of(path: Path) -> str:
    inside = path.relative_to(ENGINE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


NAMES = {name_of(path) for path in MODULES}


@cache
def imports_of(tree: ast.AST) -> set[str]:
    """The full names that a module imports, anywhere in it, also for type checkers alone.

    A text that is the name of a module is one for `import_module`, as `module` or `module:attribute`.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and str(node.value).partition(":")[0] in NAMES:
            found.add(node.value.replace(":", "."))
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def parts_in(tree: ast.AST) -> set[str]:
    """The parts of the engine that a module imports."""
    parts = {name.split(".")[1] for name in imports_of(tree) if name.startswith("restkeeper.")}
    return parts - {"__version__"}


def test_imports_go_one_way() -> None:
    """A module imports only the parts that its part may, each at the top of the file, and nothing of a service."""
    wrong = []
    for path, tree in trees().items():
        part = part_of(path)
        is_above = part in ARROWS.keys() - LEAVES - {"exactjson", "storage"}
        allowed = ARROWS.get(part, set()) | (LEAVES | {"exactjson"} if is_above else set())
        wrong += [(path, name) for name in parts_in(tree) - {part} - allowed]
        tops = {name.partition(".")[0] for name in imports_of(tree)}
        wrong += [(path, name) for name in tops & {"app", "reports", "resources", "schemas", "versions"}]
        wrong += [(path, name) for name in tops & {"flask", "werkzeug"} if part in ("resources", "schemas", "storage")]
        outer = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
        statements = [(node, each) for node in outer for each in ast.walk(node)]
        wrong += [(path, node.name) for node, each in statements if isinstance(each, (ast.Import, ast.ImportFrom))]
    assert not wrong


def test_no_module_imports_itself_by_others() -> None:
    """Neither when it is loaded nor later, nor for type checkers alone."""
    arrows = {}
    for path, tree in trees().items():
        names = imports_of(tree)
        arrows[name_of(path)] = (names | {name.rpartition(".")[0] for name in names - NAMES}) & NAMES
    TopologicalSorter(arrows).prepare()  # raises CycleError


def test_features_import_no_other_features() -> None:
    """Each can be read without the others; but for what docs/architecture.md says."""
    arrows = set()
    for path, tree in trees().items():
        if part_of(path) != "features":
            continue
        own = path.relative_to(ENGINE).with_suffix("").parts[1]
        names = imports_of(tree)
        arrows |= {(own, name.split(".")[2]) for name in names if name.startswith("restkeeper.features.")}
    assert {(one, other) for one, other in arrows if one != other} == {
        ("webhooks", "events"),
        ("harness", "webhooks"),
        ("transfer", "versions"),
        ("transfer", "events"),
    }


def test_the_kernel_knows_only_the_list_of_features() -> None:
    arrows = set()
    for path, tree in trees().items():
        names = imports_of(tree) if (part := part_of(path)) in ("app", "cli", "command", "config", "server") else ()
        arrows |= {(part, name.split(".")[2]) for name in names if name.startswith("restkeeper.features.")}
    assert {name for _, name in arrows} <= {"FEATURES", "SERVED_FILE", "SERVER_PARTS"}


def test_only_storage_imports_a_backend() -> None:
    """No module outside storage imports a backend; resources and web import only the interface."""
    wrong = []
    for path, tree in trees().items():
        names = {name.split(".")[2] for name in imports_of(tree) if ".storage." in name}
        allowed = names if part_of(path) == "storage" else OPEN.get(part_of(path), names - {"sqlite", "postgresql"})
        wrong += [(path, name) for name in names - allowed]
    assert not wrong


def test_the_service_imports_only_public_names() -> None:
    """It uses the public names of the engine, like the example; Flask, marshmallow and itself; and the settings."""
    found = set().union(*(imports_of(tree_of(path)) for path in SERVICE))
    example = set().union(*(imports_of(tree_of(path)) for path in (ROOT / "examples").rglob("*.py")))
    ours = {name for name in found | example if name.startswith("restkeeper.")}
    assert ours <= {f"restkeeper.{name}" for name in restkeeper.__all__} | {"restkeeper.server.settings.*"}
    own = {name.removesuffix(".py") for name in new.SERVICE}
    others = {name.partition(".")[0] for name in found} - {"restkeeper", "flask", "marshmallow", *own}
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


def test_the_environment_is_read_in_one_place() -> None:
    """Only config.py, the starts of servers, and prometheus_client use os.environ."""
    starts = {"environment.py", "exchange.py", "master.py", "serve.py", "settings.py", "single.py", "start.py"}
    allowed = {"config.py", "counting.py", "loading.py", "server.py", *starts}
    others = [path for path in (*MODULES, *SERVICE) if path.name not in allowed]
    assert not [path for path in others if "os.environ" in path.read_text(encoding="utf-8")]


def test_only_storage_has_sql() -> None:
    """No SQL statement and no sqlite3 outside storage/."""
    words = ("SELECT ", "INSERT INTO", "DELETE FROM", "sqlite3", "PRAGMA")
    outside = [path for path in MODULES if part_of(path) != "storage"]
    assert not [path for path in outside if any(word in path.read_text(encoding="utf-8") for word in words)]


# gunicorn runs one as its configuration, and the other one ends with a line where gunicorn cannot be imported.
STARTS = {ENGINE / "server" / "settings.py", ENGINE / "server" / "master.py"}
PACKAGE = ENGINE / "__init__.py"  # it prints mistakes of the files that import it
DECLARING = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


def test_only_a_unit_writes_items() -> None:
    """So that no change lacks its event, its functions, or what refers to it."""
    writes = {"insert", "insert_all", "update", "delete"}
    writers = {
        name_of(path)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in writes and ast.unparse(node.value).endswith("transaction")
    }
    assert writers == {"restkeeper.resources.changes"}


def test_an_import_only_declares() -> None:
    wrong = []
    for path, tree in {**trees(), PACKAGE: tree_of(PACKAGE)}.items():
        for node in tree.body if path not in STARTS else ():
            text = ast.unparse(node)
            is_safe = isinstance(node, DECLARING) or text.startswith(("if TYPE_CHECKING:", "if __name__ =", '"', "'"))
            registers = [each for each in getattr(node, "decorator_list", ()) if "register" in ast.unparse(each)]
            if registers or not (is_safe or (path == PACKAGE and text == "sys.excepthook = _show_mistake")):
                wrong.append((path, node.lineno))
    assert not wrong


def test_a_lock_is_looked_up_when_it_is_made() -> None:
    """gevent replaces it in a process that has imported modules before: another one would stop all its requests."""
    names = {f"threading.{each}" for each in ("Lock", "RLock", "local", "get_ident")}
    found = {name_of(path): sorted(names & imports_of(tree)) for path, tree in trees().items()}
    assert {name: each for name, each in found.items() if each} == {"restkeeper.server.settings": ["threading.local"]}


MOST = 4096  # results of any function
KIND = type(lru_cache(lambda: None))


def test_every_function_cache_has_a_limit() -> None:
    """One without a limit would grow with what clients send."""
    limits = {}
    for module in pkgutil.walk_packages(restkeeper.__path__, "restkeeper."):
        if module.name != "restkeeper.server.settings":  # gunicorn loads it itself
            for value in vars(importlib.import_module(module.name)).values():
                if type(value) is KIND and value.__module__.startswith("restkeeper."):
                    limits[value.__wrapped__.__qualname__] = value.cache_parameters()["maxsize"]
    assert limits
    assert {name: most for name, most in limits.items() if most is None or most > MOST} == {}


# The most calls, modules, and calls to a higher floor of these requests (`python -m bench.calls`). They only go down.
MOST_CALLS = {
    "GET of one item": (74, 26, 6),
    "POST with a key": (181, 36, 11),
    "batch with a function on PostgreSQL": (245, 36, 9),
    "POST to a JSON file": (161, 34, 10),
}


def test_requests_make_few_calls(url: str) -> None:
    """The way of a request does not get longer, nor turn back more often."""
    counts = {name: counted.summary for name, counted in counts_of_requests(url).items()}
    longer = {name for name, summary in counts.items() if any(map(gt, summary, MOST_CALLS[name]))}
    assert counts.keys() == MOST_CALLS.keys() and not longer, counts


def test_modules_and_functions_are_short() -> None:
    """A module is read at one sitting, and a function without scrolling."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {path for path, lines in lengths.items() if lines > 400} == set()
    functions = (node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    assert [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= 60] == []


def test_code_is_counted() -> None:
    """A line of code is one with something else than a comment or a docstring; a text that is data is code."""
    parts = (
        '"""A module."""',
        "# a comment",
        'TEXT = """\n\nb"""  # three lines',
        'def act():\n    """Act.\n\n    Twice."""',
    )
    assert count_python("\n\n".join(parts)) == 4


def test_a_room_does_not_grow_without_a_word() -> None:
    """More code than allowed is refused, and so is a commit that raises a number without what it pays."""
    assert exceeded({"web": 10, "cli": 5}, {"web": 10, "cli": 5}) == []
    assert [line.partition(":")[0] for line in exceeded({"web": 11, "new": 1}, {"web": 10})] == ["web", "new"]
    change = 'commit 1\n\n    Subject\n{}\ndiff --git a b\n-"web" = 10\n-"cli" = 5\n+"web" = 11\n+"cli" = 4\n'
    assert raised_without_reason(change.format("")) == ["web"]
    assert raised_without_reason(change.format("\n    Pays: the former way\n")) == []
