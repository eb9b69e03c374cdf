"""A mistake in a file of the service is one line, whatever loads it; an error of the engine keeps its traceback."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from restkeeper.cli.new import SERVICE
from restkeeper.mistakes import mistake_in
from tests.live import ROOT
from tests.refused import printed_by
from tests.waiting import SECONDS

pytestmark = pytest.mark.top  # about the files of the service

WAYS = {
    "app.py": ["app.py", "--no-reload"],
    "serve": ["-m", "restkeeper", "serve", "--no-reload"],
    "gunicorn": ["-m", "gunicorn", "-c", "gunicorn.conf.py"],
    "migrate": ["-m", "restkeeper", "migrate"],
    "flask": ["-m", "flask", "migrate"],
}
PRODUCTS, USERS = "resources/products.py", "resources/users.py"
SCHEMA, UPGRADES = "schemas/product.py", "storage/upgrades.py"
KEYWORD = "TypeError: Field.__init__() got an unexpected keyword argument"
STEP = "__import__('restkeeper').Rename('a', 'b')"
HOOK = "hook = __import__('marshmallow').post_load(lambda self, item: item)"
REFERENCE = "__import__('restkeeper').Reference('product', required=True)"
MISTAKES: list[tuple[str, str, str, str]] = [  # a file, a part of it and another one instead, and the message
    ("versions.py", 'unversioned="v1")', "unversioned=V1)", "versions.py:5: NameError: name 'V1' is not defined"),
    ("versions.py", "VERSIONS =", "VERSIONS = (", "versions.py:5: SyntaxError: '(' was never closed"),
    ("versions.py", '"v1")', '"v2")', "versions.py:5: versions: unversioned='v1' is not one of the versions; "),
    ("versions.py", 'Version("v1")', '"v1"', "versions.py:5: versions: 'v1': must be a Version(…)"),
    ("versions.py", "VERSIONS =", "VERSIONS = 3 or", "app.py:16: versions=3: must be Versions(…)"),
    (UPGRADES, "]] = {}", "]] = {2: 5}", f"{PRODUCTS}:12: products: upgrades: 2 has 5: must be a list of steps"),
    ("app.py", "find_resources(resources)", "resources", "app.py:16: resources=<module 'resources' from "),
    (UPGRADES, "]] = {}", f"]] = {{2: {STEP}}}", f"{PRODUCTS}:12: products: upgrades: 2 has a Rename: must be "),
    ("storage/__init__.py", "STORES =", "SORTS =", "app.py:9: ImportError: cannot import name 'STORES' from "),
    (UPGRADES, "]] = {}", "]] = {2: [Stop()]}", f"{UPGRADES}:13: NameError: name 'Stop' is not defined"),
    (PRODUCTS, "    schema=", "    shema=", f"{PRODUCTS}:12: TypeError: Resource.__init__() got an unexpected "),
    (PRODUCTS, 'Index("name")', '"name"', f"{PRODUCTS}:12: products: indexes has 'name': write Index('name')"),
    (PRODUCTS, "upgrades=P", "upgrades=[]  # P", f"{PRODUCTS}:12: products: upgrades=[]: must be a dictionary, "),
    (PRODUCTS, "=ProductSchema", "=Index", f"{PRODUCTS}:12: products: schema=Index: must be a subclass of ItemSchema"),
    (USERS, "RESOURCE =", "SOURCE =", f"app.py:15: {USERS}: SOURCE is a collection, and is not served: write "),
    (USERS, "RESOURCE =", "SOURCE = RESOURCE = 1,", f"app.py:15: {USERS}: RESOURCE is a tuple: write "),
    (PRODUCTS, 'name="products"', 'name="events"', f"{PRODUCTS}:12: events: the name is taken; call "),
    (PRODUCTS, 'name="products"', 'name="users"', "resources/users.py:7: 'users' is the name of two collections"),
    (
        SCHEMA,
        "    name = T",
        f"    of = {REFERENCE}\n    name = T",
        f"{PRODUCTS}:12: products.of: Reference('product'): must be ",
    ),
    (SCHEMA, "Whole(0, ", "Whole(0, requird=True, high=", f"{SCHEMA}:30: {KEYWORD} 'requird'"),
    (
        SCHEMA,
        '("active",)',
        '("active")',
        f"{SCHEMA}:37: Lifecycle: 'draft': 'active' is a text, and no tuple: write (",
    ),
    (
        SCHEMA,
        '("active",)})',
        '("active",)}, by_actions={"draft": "pay"})',
        f"{PRODUCTS}:12: products.status: by_actions: ",
    ),
    (SCHEMA, "JsonObject(", "fields.Dict(requird=True, ", f"{SCHEMA}:32: {KEYWORD} 'requird'"),
    (
        SCHEMA,
        "    name = T",
        f"    {HOOK}\n    name = T",
        f"{PRODUCTS}:12: products.schema: @post_load hook: is called ",
    ),
    (PRODUCTS, "    upgrades=P", ").action('pay', scop=P", f"{PRODUCTS}:26: TypeError: Resource.action() got an unexp"),
    ("app.py", "=[reports]", "=[1]", "app.py:16: blueprints: 1: must be a flask.Blueprint"),
    (SCHEMA, "from restkeeper", "from restkeper", f"{SCHEMA}:5: ModuleNotFoundError: No module named 'restkeper'"),
]


def write(folder: Path, file: str, old: str, new: str) -> None:
    for part in SERVICE:
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, folder / part)
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    """With file, line, name and what is wrong. What the engine did not raise on purpose keeps its traceback."""
    folders = [tmp_path / str(number) for number in range(len(MISTAKES) + 1)]
    internal = (SCHEMA, '{"draft": ("active",)', '{"draft": 5')
    for folder, change in zip(folders, [*(mistake[:3] for mistake in MISTAKES), internal], strict=True):
        folder.mkdir()
        write(folder, *change)
    *printed, traceback = printed_by([(folder, "migrate") for folder in folders])
    expected = [f"restkeeper: {message}" for *_, message in MISTAKES]
    found = zip(printed, expected, strict=True)
    assert [(lines, line) for lines, line in found if len(lines) != 1 or not lines[0].startswith(line)] == []
    assert traceback[0].startswith("Traceback ") and traceback[-1] == "TypeError: 'int' object is not iterable"


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_start_prints_the_line(tmp_path: Path, way: str) -> None:
    """Of a module that app.py imports, or of one that its create_app finds."""
    *change, message = MISTAKES[0 if way in ("gunicorn", "flask") else 10]
    write(tmp_path, *change)
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PORT": "0", "AUTH": "open"}
    command = [sys.executable, "-P", *WAYS[way]]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=SECONDS)
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and line.startswith(f"restkeeper: {message}")


def test_only_declarations_are_shortened() -> None:
    """A function of the service, and a program without an app.py, keep their tracebacks."""
    for file, code, line in (
        ("app.py", "def create_app():\n    1 / 0\ncreate_app()", "app.py:2: ZeroDivisionError: division by zero"),
        ("app.py", "def other():\n    1 / 0\ndef create_app():\n    other()\ncreate_app()", ""),
        ("other.py", "1 / 0", ""),
    ):
        with pytest.raises(ZeroDivisionError) as caught:
            exec(compile(code, f"/srv/shop/{file}", "exec"), {})  # noqa: S102
        assert mistake_in(caught.value) == line
