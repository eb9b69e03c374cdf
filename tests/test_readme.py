"""The README and the docs are right: their commands run, and the tables are complete."""

import json
import os
import re
import runpy
import signal
import site
import socket
import subprocess
import sys
import threading
import time
import tomllib
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from marshmallow import fields

import restkeeper
from app import create_app
from restkeeper import ItemSchema, errors, exactjson
from restkeeper.__main__ import COMMANDS, main
from restkeeper.config import Config
from restkeeper.resources.parameters import RESERVED
from restkeeper.web import application, auth, operations
from schemas.product import ProductSchema
from tests import stores
from tests.live import ROOT, Gunicorn, send
from tests.pictures import PICTURES
from tests.ports import free_ports
from tests.processes import of_session
from tests.proxy import require
from tests.receiver import Receiver
from tests.test_problems import KINDS
from tests.waiting import SECONDS, until

README, INDEX = "README.md", "index.md"
EXAMPLE = ROOT / "examples" / "shop"
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / README, *sorted((ROOT / "docs").glob("*.md")))}
ALL = "\n".join(PAGES.values())
BASE = "http://127.0.0.1:8000"  # of the requests in the pages
EXAMPLE_OF = "example = "  # before a call in a sentence

# What a reader runs first, and the folder of a clean clone for it: `shop` is what `restkeeper new` wrote there.
FIRST = {
    "readme": (PAGES[README], "."),
    "readme_in_a_new_service": (PAGES[README], "shop"),
    "readme_of_a_new_service": ((ROOT / "restkeeper/cli/skeleton/README.md").read_text(), "shop"),
    "tutorial": (PAGES["tutorial.md"], "examples/shop"),
    "json_server": (PAGES["json-server.md"], "."),
    "prototyping": (PAGES["prototyping.md"], "."),
    "one_machine": (PAGES["deployment.md"].partition("## One machine")[2].partition("\n## ")[0], "."),
}
NOT_FIRST = {  # lines that are not run in a folder, and why
    (".", "make test"): "it would run itself",
    (".", "pip install --no-deps -e ."): "it needs a package to build with: tests/test_wheel.py",
    ("shop", ". .venv/bin/activate && pip install ."): "it is said of a checkout",
    (".", "restkeeper db.json --login users -r routes.json"): "its file has users: tests/test_file_login.py",
}
# systemctl and systemd-sysusers write below the folder ROOT, where no systemd runs that could start a unit.
SYSTEMD = """
systemd-sysusers() { command systemd-sysusers --root="$ROOT"; }
systemctl() { [ "$1" = daemon-reload ] || command systemctl --root="$ROOT" "${@/--now/--quiet}"; }
"""

# The first words of lines in `text` blocks, and the tests that run them; those of FIRST run here as well.
RUN_ELSEWHERE = {
    "make": "the checks of this repository",
    "restkeeper": "tests/test_live_server.py, tests/test_delivering.py, tests/test_copying.py",
    "the": "tests/test_renaming.py: what a start says",
    **dict.fromkeys(("pip", "pipx", "uvx"), "tests/test_wheel.py"),
    "python": "make bench",
    **dict.fromkeys(("cp", "install", "systemctl"), "tests/test_systemd.py"),
    **dict.fromkeys(("0", "DATABASE_URL=sqlite:////var/lib/restkeeper/restkeeper.db"), "tests/test_deployment.py"),
    **dict.fromkeys(("HOST=127.0.0.1", "honcho"), "tests/test_procfile.py"),
    **dict.fromkeys(("CORS_ORIGINS=https://app.example.org", "SCRIPT_NAME=/shop"), "tests/test_recipes.py"),
    **dict.fromkeys(
        [f"DATABASE_URL=sqlite:////srv/{name}.db" for name in ("acme", "umbrella")], "tests/test_recipes.py"
    ),
    **dict.fromkeys((".", "echo", "gunicorn"), "tests/test_wheel.py, tests/test_procfile.py"),
    "FLASK_SECRET=whsec_…": "the tests of examples/shop",
    "podman": "tests/test_deployment.py",
    **dict.fromkeys(("npm", "npx", "curl"), "whoever has Node.js: docs/openapi.md"),
    **dict.fromkeys(
        ("openapi-python-client", "openapi-generator-cli", "datamodel-codegen"),
        "tests/test_clients.py: docs/clients.md",
    ),
}

PAGES_OF_MODULES = ("writes.md", "lists.md", "events.md", "webhooks.md", "clients.md")  # see tests/test_clients_page.py

# Of the tests of a page; all others take longer together.
MARKS = {README: [], "operations.md": [pytest.mark.sqlite, pytest.mark.matrix]}  # the latter has backups of the file


class Block(NamedTuple):
    """A fenced block: its language, the note behind that (a file's name), and its text."""

    language: str
    note: str
    text: str


def blocks_of(text: str) -> list[Block]:
    return [Block(*parts) for parts in re.findall(r"^```(\S*) ?(.*?)\n(.*?)^```$", text, re.M | re.S)]


def blocks(page: str, language: str = "", note: str | None = None) -> list[Block]:
    """The fenced blocks of a page; only those of a language and with a note, if given."""
    found = blocks_of(PAGES[page])
    return [each for each in found if language in ("", each.language) and note in (None, each.note)]


def examples(page: str) -> list[str]:
    """The short examples in Python of a page: blocks without a file's name, and declarations in sentences.

    Those with "…" are none.
    """
    prose = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.M | re.S)
    calls = [
        call for call in re.findall(r"`([A-Z]\w+\([^`…\n]*\))`", prose) if call.partition("(")[0] in restkeeper.__all__
    ]
    return [each.text for each in blocks(page, "python", "")] + [f"{EXAMPLE_OF}{call}" for call in calls]


def service_of(page: str, folder: Path) -> Path:
    service = folder / "shop"
    assert CliRunner().invoke(main, ["new", str(service)]).exit_code == 0
    for block in blocks(page, "python"):
        if block.note:
            (service / block.note).write_text(block.text, encoding="utf-8")
    return service


def write_command(file: Path, python: Path, module: str) -> None:
    file.write_text(f'#!/bin/sh\nexec {python} -m {module} "$@"\n')
    file.chmod(0o755)


def environ_of(folder: Path) -> dict[str, str]:
    """The environment of a page's commands: `restkeeper` is the engine of this checkout."""
    command = folder / "bin" / "restkeeper"
    command.parent.mkdir(exist_ok=True)
    write_command(command, Path(sys.executable), "restkeeper")
    return {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "DATABASE_URL": stores.url(f"sqlite:///{folder}/restkeeper.db"),
    }


def run_block(script: str, service: Path, environ: dict[str, str], expected: str = "") -> None:
    """Run a shell block; every command must succeed. No response may be a problem, unless the output is as expected."""
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=service, env=environ, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{script}\n{done.stderr}"
    output = done.stdout.replace(environ["BASE"], BASE)
    if expected:  # "…" is anything
        pattern = re.escape(expected.replace("\n", "")).replace("…", ".*")
        assert re.fullmatch(pattern, output.replace("\n", "")), f"{script}\n{output}"
    else:
        assert '"type":"/problems/' not in output, f"{script}\n{output}"


def run_steps(page: str, folder: Path, checkout: Path = ROOT) -> Path:
    """The folder of a service that is made as a page says, with a checkout.

    Its files are written in order. Each shell block runs beside a service of those so far, on the same store; a block
    `log` after it is its output.
    """
    service, environ = folder / "shop", environ_of(folder) | {"PYTHONPATH": str(checkout)}
    subprocess.run(["restkeeper", "new", "shop"], cwd=folder, env=environ, check=True, capture_output=True)
    settings = {"PYTHONPATH": str(checkout), "WEBHOOK_ALLOW_PRIVATE": "1"}
    found = blocks(page)
    for block, following in pairwise([*found, Block("", "", "")]):
        if block.language == "python":
            (service / block.note).write_text(block.text, encoding="utf-8")
        elif block.note == "step":
            with Gunicorn(folder, workers=1, root=service, app="", **settings) as server:
                script, environ["BASE"] = block.text.replace(BASE, server.base), server.base
                run_block(script, service, environ, following.text if following.language == "log" else "")
    assert len(blocks(page, "sh", "step")) >= 4
    return service


def contents(folder: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not re.search(r"cache|\.venv|\.db", name)}


def test_each_page_has_ten_questions_of_readers() -> None:
    """And an answer to each: who knows only the page finds nine of them."""
    found = tomllib.loads((ROOT / "docs" / "questions.toml").read_text(encoding="utf-8"))
    assert found.keys() == {name.removesuffix(".md") for name in PAGES} - {"README"}
    for page, asked in found.items():
        assert len({each["ask"] for each in asked["questions"]}) == 10, page
        assert all(each["answer"] for each in asked["questions"]), page


@pytest.mark.sqlite
@pytest.mark.matrix
def test_each_step_of_the_versions_page_works(tmp_path: Path) -> None:
    """On SQLite, where the start of a service converts."""
    run_steps("versions.md", tmp_path)


@pytest.mark.matrix
def test_the_tutorial_builds_the_example(clone: Path, tmp_path: Path) -> None:
    """Each of its steps works with a clean clone; the example has the same files, and two more.

    Less than 200 lines are a user's own.
    """
    built, example = contents(run_steps("tutorial.md", tmp_path, clone)), contents(EXAMPLE)
    assert built.keys() <= example.keys()
    assert {name for name in example if example[name] != built.get(name)} == {"receiver.py", "tests/test_service.py"}
    assert CliRunner().invoke(main, ["new", str(tmp_path / "new" / "shop")]).exit_code == 0
    new = contents(tmp_path / "new" / "shop")
    own = [name for name in example if name.endswith(".py") and example[name] != new.get(name)]
    assert sum(len(example[name].splitlines()) for name in own if not name.startswith("tests/")) < 200


@pytest.mark.matrix
def test_the_tests_of_the_example_pass(tmp_path: Path) -> None:
    assert " passed" in run_pytest(EXAMPLE, environ_of(tmp_path))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=MARKS.get(page, [pytest.mark.matrix]))
        for page in PAGES
        if page != "recipes.md" and (blocks(page, "sh", "") or blocks(page, "sh", "stopped"))  # tests/test_recipes.py
    ],
)
def test_the_commands_of_a_page_run(page: str, tmp_path: Path) -> None:
    """Its shell blocks, in order, beside a running service; those marked `stopped` after the service has ended.

    A block `log output` after one is what it prints.
    """
    service, environ = service_of(page, tmp_path), environ_of(tmp_path)
    found = blocks(page)
    with Gunicorn(tmp_path, workers=1, root=service, app="", PYTHONPATH=str(ROOT)) as server:
        environ["BASE"] = server.base
        for block, following in pairwise([*found, Block("", "", "")]):
            if (block.language, block.note) == ("sh", ""):
                expected = following.text if (following.language, following.note) == ("log", "output") else ""
                run_block(block.text.replace(BASE, server.base), service, environ, expected)
    for block in blocks(page, "sh", "stopped"):
        run_block(block.text, service, environ)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of this checkout, without what git ignores, with `restkeeper` installed in `.venv`, and a new service.

    `.venv` finds the packages of the present environment, so `make` builds none, and `pip` needs no network.
    """
    folder = tmp_path_factory.mktemp("clone") / "restkeeper"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, folder], check=True)
    diff = subprocess.run(["git", "diff", "--binary", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["git", "apply", "--allow-empty"], cwd=folder, input=diff, check=True)
    venv.create(folder / ".venv", with_pip=True)
    (packages,) = folder.glob(".venv/lib/python*/site-packages")
    (packages / "present.pth").write_text("\n".join(site.getsitepackages()))
    for program in ("flask", "gunicorn", "pytest"):
        write_command(folder / ".venv/bin" / program, folder / ".venv/bin/python", program)
    environ = first_environ(folder)
    for line in (". .venv/bin/activate && pip install .", "restkeeper new shop"):
        subprocess.run(["bash", "-c", line], cwd=folder, env=environ, check=True, capture_output=True)
    (folder / "shop" / ".venv").symlink_to(folder / ".venv")
    for made in (".venv", ".run", ".ready"):  # files of the Makefiles
        (folder / ".venv" / made).touch()
    return folder


def first_environ(clone: Path) -> dict[str, str]:
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}  # 0: it isolates nothing
    return {"PATH": f"{clone}/.venv/bin:{os.environ['PATH']}", "HOST": "127.0.0.1", **pip}


def is_served(port: int) -> bool:
    with suppress(OSError):
        return send(port, "GET", "/").status < 500
    return False


@contextmanager
def running(line: str, folder: Path, environ: dict[str, str]) -> Iterator[str]:
    """Run a line until it has ended, or serves: then it is stopped on leaving. Gives its address."""
    (port,) = free_ports(1)
    log, root = folder.parent / "log.txt", environ["ROOT"]
    script = SYSTEMD + line.replace(" /etc/", f" {root}/etc/").replace("9000", str(port))
    with log.open("w") as out:
        running = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env={**environ, "PORT": str(port)},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        until(lambda: running.poll() is not None or is_served(port))
        assert running.poll() in (None, 0), f"{line}\n{log.read_text()}"
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGTERM)
        running.wait(SECONDS)
        until(lambda: of_session(running.pid) == [])


@pytest.mark.sqlite
@pytest.mark.matrix
@pytest.mark.parametrize("page", FIRST)
def test_what_a_reader_runs_first_works_on_a_clean_clone(page: str, clone: Path, tmp_path: Path) -> None:
    """Each line as it is written, but for NOT_FIRST and for ports; blocks `sh file` beside the server of a JSON file.

    An environment is not built from scratch: tests/test_wheel.py does that.
    """
    text, place = FIRST[page]
    if "systemctl" in text:
        require("systemctl")
    environ = first_environ(clone) | {"ROOT": str(tmp_path)}
    for name in ("etc/sysusers.d", "etc/systemd/system"):
        (tmp_path / name).mkdir(parents=True)
    found = [Block("text", "", f"{line}\n") for line in re.findall(r"`(pip install [^`]+)`", text)] + blocks_of(text)
    file = "" if page.startswith("readme") else blocks("prototyping.md", "log", "db.json")[0].text  # README writes one
    (clone / place / "db.json").write_text(file)
    with ExitStack() as server:
        for block, following in pairwise([*found, Block("", "", "")]):
            if (block.language, block.note) == ("sh", "file"):
                script = block.text.replace("http://127.0.0.1:3000", environ["BASE"])
                run_block(script, clone / place, environ, following.text if following.note == "output" else "")
            lines = block.text.replace("\\\n", "").splitlines() if block.language == "text" else []
            for line in [re.sub(r" +#.*", "", each) for each in lines]:
                server.close()
                if (place, line) not in NOT_FIRST:
                    environ["BASE"] = server.enter_context(running(line, clone / place, environ))


@pytest.mark.parametrize("page", [README, pytest.param("testing.md", marks=pytest.mark.matrix)])
def test_the_tests_of_a_page_pass(page: str, tmp_path: Path) -> None:
    service = service_of(page, tmp_path)
    tests = [block.note for block in blocks(page, "python") if block.note.startswith("tests/test_")]
    assert " passed" in run_pytest(service, environ_of(tmp_path), *tests)


def test_the_harness_runs_beside_any_language(tmp_path: Path) -> None:
    """The page's commands, on the command that it starts with."""
    page, environ = "testing.md", environ_of(tmp_path)
    command = ["restkeeper", "harness", str(service_of(page, tmp_path))]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        stop = threading.Timer(SECONDS, running.kill)  # then its output ends
        stop.start()
        environ["BASE"] = json.loads(running.stdout.readline())["url"]
        try:
            for block in blocks(page, "sh", "harness"):
                expected = '{"number":1}{…"status":429,…}{"number":2}{"EUR":1.1}{"message":null,"numbers":[2]}'
                expected += '{"unmet":[]}'
                run_block(block.text.replace(BASE, environ["BASE"]), tmp_path, environ, expected)
        finally:
            stop.cancel()
            running.terminate()


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)])
def test_the_short_examples_of_a_page_work(page: str, tmp_path: Path) -> None:
    """Also where a service has them: its fields in a schema, schemas and steps in a collection.

    A name that is not known, in a sentence, stands for something else.
    """
    modules = (errors, application, auth, exactjson, operations)
    known = {name: value for module in modules for name, value in vars(module).items() if name[0] != "_"}
    known |= {name: getattr(restkeeper, name) for name in restkeeper.__all__}
    known["RESOURCE"] = restkeeper.Resource("products", "product", ProductSchema)
    for text in examples(page):
        (tmp_path / "example.py").write_text(text.replace(".serve_forever()", ".server_close()").replace("9000", "0"))
        try:
            names = runpy.run_path(str(tmp_path / "example.py"), known)
        except NameError:
            assert text.startswith(EXAMPLE_OF), text
            continue
        declared = {name: value for name, value in names.items() if known.get(name) is not value}
        step = declared.pop(EXAMPLE_OF.split()[0], None)
        schemas = [value for value in declared.values() if isinstance(value, type) and issubclass(value, ItemSchema)]
        schemas.append(
            ItemSchema.from_dict({n: each for n, each in declared.items() if isinstance(each, fields.Field)})
        )
        for schema in schemas:
            restkeeper.Resource("a", "a", schema, ownership=restkeeper.Ownership.ALL)
        if isinstance(step, restkeeper.Step):
            after = {name: fields.Raw(load_default=None, allow_none=True) for name in step.after}
            restkeeper.Resource("a", "a", ItemSchema.from_dict(after), upgrades={2: [step]})


def run_pytest(service: Path, environ: dict[str, str], *tests: str) -> str:
    options = ["-q", "-p", "no:cacheprovider", "-p", "restkeeper.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(command, cwd=service, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_tested_and_links_have_targets(page: str) -> None:
    """The language of a block says whether this module runs it; the other blocks are run by other tests."""
    assert {block.language for block in blocks(page)} <= {
        "sh",
        "python",
        "text",
        "log",
        *(["js"] if page in PAGES_OF_MODULES else []),
    }
    assert {block.note for block in blocks(page, "sh")} <= {"", "stopped", "step", "harness", "file"}
    for block in blocks(page, "text"):
        lines = block.text.replace("\\\n", "").splitlines()
        assert {line.split()[0] for line in lines if line} <= set(RUN_ELSEWHERE)
    folder = ROOT if page == README else ROOT / "docs"
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", PAGES[page]):
        path, _, part = target.partition("#")
        file = folder / path if path else folder / page
        assert file.is_file(), target
        headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M) if part else []
        assert not part or part in {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}, target


def test_the_pictures_of_the_readme_are_small_and_described() -> None:
    """Each of those that `make pictures` makes has an alternative text, and at most 150 kB."""
    shown = {target: text for text, target in re.findall(r"!\[([^]]*)\]\(([^)]+)\)", PAGES[README])}
    assert {*shown} <= {f"docs/pictures/{name}.png" for name in PICTURES}
    assert all(len(text) > 20 for text in shown.values())
    assert all((ROOT / target).stat().st_size <= 150_000 for target in shown)


def test_the_receiver_of_the_readme_verifies_deliveries(tmp_path: Path) -> None:
    """It verifies a delivery of a running service, and refuses a changed one."""
    (block,) = [each.text for each in blocks("webhooks.md", "python") if "HTTPServer((" in each.text]
    script = block.replace("9000", "0").replace("HTTPServer((", "server = HTTPServer((", 1)
    script = script.replace(".serve_forever()", "\nprint(server.server_port, flush=True)\nserver.serve_forever()")
    with Gunicorn(tmp_path, workers=1, WEBHOOK_ALLOW_PRIVATE="1", WEBHOOK_WORKER="inside") as server:
        made = server.post("/api/v1/webhooks", {"url": "http://127.0.0.1:9/", "status": "paused"}).json()
        command = [sys.executable, "-c", script.replace("whsec_…", made["secret"])]
        receiver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert receiver.stdout and receiver.stderr
        stop = threading.Timer(SECONDS, receiver.kill)  # then its output ends
        stop.start()
        port = int(receiver.stdout.readline())
        forged = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        signed = {"webhook-id": "evt_1", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,AAAA"}
        forged.request("POST", "/", b"{}", signed)
        with pytest.raises(HTTPException):
            forged.getresponse()
        forged.close()
        hook = f"/api/v1/webhooks/{made['id']}"
        changes = {"url": f"http://127.0.0.1:{port}/", "status": "active"}
        assert server.request("PATCH", hook, changes).status == 200
        item = server.post("/products", {"name": "Lamp"}).json()
        id, type, item_id = receiver.stdout.readline().split()
        assert (type, item_id) == ("product.created", item["id"]) and id.startswith("evt_")
        stop.cancel()
        receiver.terminate()
        _, errors = receiver.communicate(timeout=SECONDS)
    assert "WebhookVerificationError" in errors


def test_the_pages_are_complete() -> None:
    """With each problem type, parameter of lists, command, route and dependency; the index leads to every page."""
    for kind in KINDS.values():
        assert re.search(rf"^\| `{kind.name}`[^|]*\| {kind.status} \|", PAGES["problems.md"], re.M), kind.name
    for name in RESERVED:
        assert f"| `{name}` |" in PAGES["lists.md"]
    written = ALL.replace(PAGES["cli.md"], "").replace("db.json", "FILE")
    assert [name for name in COMMANDS if f"restkeeper {name}" not in written] == []
    parts = ("service.", "keys.", "events.", "webhooks.")
    rules = [rule.rule for rule in create_app(Config()).url_map.iter_rules() if rule.endpoint.startswith(parts)]
    named = [rule.replace("<id>", ":id").replace("<delivery>", ":delivery").partition("/<")[0] for rule in rules]
    assert [rule for rule in named if rule not in ALL] == []
    declared = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)
    assert declared
    for name in re.findall(r'"([A-Za-z0-9-]+)', declared[1]):
        assert re.search(rf"^- [^:]*\b{name}\b", PAGES[README].partition("## Dependencies")[2], re.M), name
    assert len(PAGES[README].split()) <= 990
    written = [text for page, text in PAGES.items() if page not in (README, "cli.md", "reference.md")]
    assert sum(len(text.split()) for text in written) <= 30_000  # what is said twice can go
    assert sum(len(each.text.split()) for each in blocks(README)) <= 250
    sizes = tomllib.loads((ROOT / "bench" / "sizes.toml").read_text())
    for part, lines in (("the core", sizes["core"]), ("with all features", sizes["Python"])):
        (said,) = re.findall(rf"^\| {part} \| ([\d,]+) \|", PAGES[README], re.M)
        assert abs(int(said.replace(",", "")) - lines) <= 500, part
    assert [page for page in PAGES if page not in (README, INDEX) and f"]({page})" not in PAGES[INDEX]] == []


def test_the_development_server_starts(tmp_path: Path) -> None:
    """`python app.py`, which `make run` runs, prints its address and a first request; it also delivers webhooks."""
    (port,) = free_ports(1)
    environ = {**os.environ, "HOST": "127.0.0.1", "PORT": str(port), "DATABASE_URL": f"sqlite:///{tmp_path}/x.db"}
    environ["WEBHOOK_ALLOW_PRIVATE"] = "1"
    environ.pop("WEB_CONCURRENCY", None)
    command = [sys.executable, str(ROOT / "app.py")]
    with (tmp_path / "log.txt").open("w") as log:
        running = subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=log, text=True)
    assert running.stdout
    stop = threading.Timer(SECONDS, running.kill)  # then its output ends, and it has no port
    stop.start()
    welcome = "".join(iter(running.stdout.readline, "Stop it with Ctrl-C.\n"))
    until(lambda: is_served(port))
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    stop.cancel()
    connection.request("GET", "/products")
    assert connection.getresponse().read() == b"[]"
    with Receiver() as receiver:
        body = json.dumps({"url": f"{receiver.base}/healthy"})
        connection.request("POST", "/api/v1/webhooks", body, {"Content-Type": "application/json"})
        made = json.loads(connection.getresponse().read())
        receiver.inboxes["healthy"].secret = made["secret"]
        connection.request("POST", f"/api/v1/webhooks/{made['id']}/ping")
        connection.getresponse().read()
        with receiver.changed:
            assert receiver.changed.wait_for(lambda: receiver.inboxes["healthy"].ids, SECONDS), "it does not deliver"
    connection.close()
    running.terminate()
    running.stdout.close()
    running.wait(timeout=SECONDS)
    assert " 200 GET /products " in (tmp_path / "log.txt").read_text()
    assert "/docs" in welcome and f"{tmp_path}/x.db" in welcome and "curl http://127.0.0.1:" in welcome


def test_a_used_port_stops_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        environ = {**os.environ, "HOST": "127.0.0.1", "PORT": str(other.getsockname()[1])}
        done = subprocess.run(
            [sys.executable, "app.py"],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 1 and done.stdout == ""
    assert (
        done.stderr.startswith(f"restkeeper: PORT='{environ['PORT']}': another program")
        and done.stderr.count("\n") == 1
    )
