"""What the README and the docs say is so: their commands run, the tables are complete."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

import resources
import schemas
from app import create_app
from restkeeper import LiveServer, errors
from restkeeper.config import Config
from restkeeper.web.queries import RESERVED
from tests.live import ROOT, Gunicorn
from tests.receiver import Receiver

README = (ROOT / "README.md").read_text(encoding="utf-8")


PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))}
SECONDS = 30.0  # that anything may take


def blocks(language: str, text: str = README) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def python(part: str) -> str:
    """The one block of Python that has this in it."""
    (found,) = [block for block in blocks("python") if part in block]
    return found


def numbered(language: str) -> list[tuple[str, int]]:
    """The blocks of all pages: the page, and the number of the block in it."""
    return [(page, number) for page, text in PAGES.items() for number in range(len(blocks(language, text)))]


def run_block(script: str, folder: Path) -> None:
    """Run a shell block; every command succeeds, and no call is answered with a problem."""
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DATABASE_URL": f"sqlite:///{folder}/restkeeper.db",
        "FLASK_APP": str(ROOT / "app.py"),
    }
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "/problems/" not in done.stdout


@pytest.mark.parametrize(("page", "number"), numbered("sh"))
def test_its_commands_run(page: str, number: int, tmp_path: Path) -> None:
    """Each shell block, beside a running service."""
    with Gunicorn(tmp_path) as server:
        run_block(blocks("sh", PAGES[page])[number].replace("http://127.0.0.1:8000", server.base), tmp_path)


@pytest.mark.parametrize(("page", "number"), numbered("sh stopped"))
def test_its_commands_run_beside_no_service(page: str, number: int, tmp_path: Path) -> None:
    """Each block that is marked so, where the service was stopped and there is a backup."""
    with Gunicorn(tmp_path) as server:
        server.post("/products", {"name": "Lamp"})
        run_block("flask backup backup.db", tmp_path)
    run_block(blocks("sh stopped", PAGES[page])[number], tmp_path)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The README's order, as files that count as the project's."""
    order_schema, order_resource = python("OrderSchema(ItemSchema)"), python("RESOURCE = ")
    for package, name, text in ((schemas, "order", order_schema), (resources, "orders", order_resource)):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    yield
    for name in ("schemas.order", "resources.orders"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("written")
def test_its_resource_is_served() -> None:
    """The schema and the declaration that it shows are a collection."""
    client = create_app(Config()).test_client()
    assert client.post("/orders", json={"number": "1", "total": 5}).status_code == 200


def test_its_test_passes() -> None:
    """The test that it shows is one that passes."""
    scope: dict[str, Any] = {}
    exec(python("def test_a_lamp"), scope)  # noqa: S102 - the README is ours
    scope["test_a_lamp_is_kept"]()


def test_its_test_of_a_running_service_passes() -> None:
    """Likewise over HTTP."""
    scope: dict[str, Any] = {}
    exec(python("def test_it_is_served"), scope)  # noqa: S102 - the README is ours
    with LiveServer(ROOT) as server:
        scope["test_it_is_served"](server)


def test_its_receiver_takes_what_is_sent(tmp_path: Path) -> None:
    """The receiver that it shows verifies a delivery of a running service, and refuses one that was tampered with."""
    script = python("HTTPServer((").replace("9000", "0").replace("HTTPServer((", "server = HTTPServer((", 1)
    script = script.replace(".serve_forever()", "\nprint(server.server_port, flush=True)\nserver.serve_forever()")
    with Gunicorn(tmp_path, WEBHOOK_ALLOW_PRIVATE="1", WEBHOOK_WORKER="inside") as server:
        made = server.post("/api/v1/webhooks", {"url": "http://127.0.0.1:9/", "status": "paused"}).json()
        command = [sys.executable, "-c", script.replace("whsec_…", made["secret"])]
        receiver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert receiver.stdout and receiver.stderr
        stop = threading.Timer(SECONDS, receiver.kill)  # then what is read from it ends
        stop.start()
        port = int(receiver.stdout.readline())
        forged = HTTPConnection("127.0.0.1", port, timeout=30)
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
        _, told = receiver.communicate(timeout=SECONDS)
    assert "WebhookVerificationError" in told


def test_its_tables_are_complete() -> None:
    """Every setting with its default, every problem type with its status, every parameter and operator is in it."""
    serving = Config.from_env({})
    for setting in fields(Config):
        default = getattr(serving, setting.name)
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
        shown = {"True": "1", "False": "0"}.get(shown, shown)
        row = next(line for line in README.splitlines() if line.startswith(f"| `{setting.name.upper()}` |"))
        assert (f"`{shown}`" if shown else "| |") in row
        assert setting.metadata["about"].split("`")[0].split(":")[0] in row
    for kind in errors.catalogue().values():
        assert re.search(rf"^\| \[?`{kind.name}`[^|]*\| {kind.status} \|", README, re.M), kind.name
    for name in RESERVED:
        assert f"| `{name}` |" in README


def test_it_knows_every_command_and_route() -> None:
    """Each command of `flask`, and each address of the service itself, is in it."""
    app = create_app(Config())
    own = [
        name for name, command in app.cli.commands.items() if command.callback.__module__.startswith("restkeeper.cli.")
    ]
    assert len(own) >= 6
    assert [name for name in own if f"flask {name}" not in README] == []
    parts = ("service.", "keys.", "events.", "webhooks.")
    rules = [rule.rule for rule in app.url_map.iter_rules() if rule.endpoint.startswith(parts)]
    named = [rule.replace("<id>", ":id").replace("<delivery>", ":delivery").partition("/<")[0] for rule in rules]
    assert [rule for rule in named if rule not in README] == []


def test_its_dependencies_are_those_declared() -> None:
    """Each package of pyproject.toml is told why."""
    declared = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)
    assert declared
    for name in re.findall(r'"([A-Za-z0-9-]+)', declared[1]):
        assert re.search(rf"^\|[^|]*\b{name}\b[^|]*\|", README, re.M), name


def _port_of(process: subprocess.Popen[str]) -> int:
    """The port that a process has come to listen on, as the kernel knows it."""
    while process.poll() is None:
        with suppress(OSError):  # descriptors come and go
            sockets = {os.readlink(each) for each in Path(f"/proc/{process.pid}/fd").iterdir()}
            for line in Path("/proc/net/tcp").read_text().splitlines():
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                    return int(fields[1].partition(":")[2], 16)
    raise RuntimeError("it ended")


def test_the_development_server_welcomes_and_serves(tmp_path: Path) -> None:
    """`python app.py`, which `make run` runs, says where it serves, and what to call first; it delivers by itself."""
    environ = {**os.environ, "HOST": "127.0.0.1", "PORT": "0", "DATABASE_URL": f"sqlite:///{tmp_path}/x.db"}
    environ["WEBHOOK_ALLOW_PRIVATE"] = "1"
    environ.pop("WEB_CONCURRENCY", None)
    command = [sys.executable, str(ROOT / "app.py")]
    with (tmp_path / "log.txt").open("w") as log:
        running = subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=log, text=True)
    assert running.stdout
    stop = threading.Timer(SECONDS, running.kill)  # then what is read from it ends, and it has no port
    stop.start()
    welcome = "".join(iter(running.stdout.readline, "Stop it with Ctrl-C.\n"))
    connection = HTTPConnection("127.0.0.1", _port_of(running), timeout=30)
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
            assert receiver.changed.wait_for(lambda: receiver.inboxes["healthy"].ids, 30), "it does not deliver"
    connection.close()
    running.terminate()
    running.stdout.close()
    running.wait(timeout=30)
    first, *_ = (tmp_path / "log.txt").read_text().splitlines()
    assert "path=/products" in first
    assert "/docs" in welcome and f"{tmp_path}/x.db" in welcome and "curl http://127.0.0.1:" in welcome


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    """Where another program listens, the start ends with one line that names the setting."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        environ = {**os.environ, "HOST": "127.0.0.1", "PORT": str(other.getsockname()[1])}
        done = subprocess.run(
            [sys.executable, "app.py"], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1 and done.stdout == ""
    assert (
        done.stderr.startswith(f"restkeeper: PORT='{environ['PORT']}': another program")
        and done.stderr.count("\n") == 1
    )
