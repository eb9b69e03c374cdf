"""docs/troubleshooting.md: the program prints each message of the page, in the situation of its section."""

import errno
import fcntl
import json
import os
import re
import socket
import sqlite3
from pathlib import Path

import psycopg
import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

import restkeeper
from restkeeper import Config, Rename, Resource, Text
from restkeeper.server.environment import read_config
from restkeeper.server.start import announce
from restkeeper.service import service_of
from tests import stores
from tests.clock import SetClock
from tests.live import ROOT
from tests.programs import Programs, resource
from tests.refused import printed_by
from tests.shop import RESOURCES, create_app
from tests.test_files import serve
from tests.test_mistakes import PRODUCTS, write
from tests.test_readme import PAGES

SECTIONS = dict(re.findall(r"^##+ (.+?)\n(.*?)(?=^##|\Z)", PAGES["troubleshooting.md"], re.M | re.S))
JSON = {"Content-Type": "application/json"}
NAME = Text(1, 50, required=True)


def messages_of(section: str) -> list[str]:
    """The first cell of each row of its table."""
    cells = re.findall(r"^\| (`+)(.+?)\1 \| .+ \|$", SECTIONS[section], re.M)
    return [message.strip() for _, message in cells]


def require_printed(section: str, *printed: str) -> None:
    """Each message is one of these lines; "…" in a message is any text."""
    messages = messages_of(section)
    patterns = [re.escape(message).replace("…", ".*") for message in messages]
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, line) for line in printed)] == []
    assert len(printed) == len(messages), "each of these lines has its row"


def exit_of(monkeypatch: pytest.MonkeyPatch, *resources: Resource, **settings: str) -> str:
    """The line with which the start of a service ends."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as end:
        restkeeper.create_app(None, resources or RESOURCES, clock=SetClock())
    return str(end.value.code)


def refusal(response: TestResponse) -> str:
    return f"{response.status_code} {response.json['detail']}"


def test_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folders = {name: tmp_path / name for name in ("none", "mistaken", "taken")}
    for folder in folders.values():
        folder.mkdir()
    write(folders["mistaken"], PRODUCTS, "    schema=", "    shema=")
    (folders["taken"] / "db.json").write_text("{}")
    serve = ("serve", "--no-reload")
    with socket.create_server(("127.0.0.1", 0)) as other:
        file = ("db.json", "-p", str(other.getsockname()[1]))
        commands = zip(folders.values(), (serve, serve, file), strict=True)
        printed = [lines[-1] for lines in printed_by([(folder, *command) for folder, command in commands])]
    monkeypatch.setenv("RATE_LIMITS", "5")
    monkeypatch.setenv("HOST", "0.0.0.0")  # noqa: S104
    with pytest.raises(SystemExit) as end:
        read_config()
    printed.append(str(end.value.code))
    monkeypatch.setenv("RESTKEEPER_WELCOME", "0")
    announce(Config(auth="required", trusted_hosts=("a.example",)), {}, "", {"can_call": False})
    printed += capsys.readouterr().err.splitlines()
    (python,) = re.findall(r'"(Restkeeper needs .*?)"', (ROOT / "Makefile").read_text())
    require_printed("At the start", *printed, python)


@pytest.mark.sqlite
def test_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exit_with(path: str, *resources: Resource) -> str:
        return exit_of(monkeypatch, *resources, DATABASE_URL=f"sqlite:///{path}")

    printed = [exit_of(monkeypatch, DATABASE_URL="shop.db")]
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    other.close()
    printed.append(exit_with(f"{tmp_path}/other.db"))
    with monkeypatch.context() as refusing:
        refusing.setattr("restkeeper.storage.sqlite.file._open_lock", _refuse)
        printed.append(exit_with(f"{tmp_path}/x.db"))
        refusing.setattr("restkeeper.storage.sqlite.file.is_mount", lambda path: True)
        printed.append(exit_with(f"{tmp_path}/x.db"))
    monkeypatch.setattr("restkeeper.resources.call.CHANGE_SECONDS", 0.05)
    programs = Programs(tmp_path)
    client = programs.serve(resource({"title": NAME}))
    assert client.post("/notes", json={"title": "a"}).status_code == 200
    with stores.held(programs.url):
        printed.append(refusal(client.post("/notes", json={"title": "a"})))
    service_of(client.application).store.close()
    printed.append(exit_with(f"{tmp_path}/store.db", resource({"name": NAME})))
    printed.append(programs.run(resource({"name": NAME}, Rename("title", "name")), "export", "notes").stderr.strip())
    require_printed("The store does not open", *printed)


def _refuse(path: str) -> int:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_no_postgresql(monkeypatch: pytest.MonkeyPatch, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as missing:
        missing.setattr("importlib.import_module", _miss)
        printed = [exit_of(monkeypatch, DATABASE_URL=url)]
    with psycopg.connect(url, autocommit=True) as admin:
        role = f"shop_{os.getpid()}"
        admin.execute(f"CREATE ROLE {role} LOGIN")
        admin.execute("REVOKE CREATE ON SCHEMA public FROM public")
        owner = psycopg.conninfo.conninfo_to_dict(url)["user"]
        printed.append(exit_of(monkeypatch, DATABASE_URL=url.replace(f"{owner}@", f"{role}@", 1)))
        admin.execute(f"DROP ROLE {role}")
    for away in ("postgresql://127.0.0.1:1/x", url.replace("/test_", "/none_")):
        exit_of(monkeypatch, DATABASE_URL=away)
        printed += capsys.readouterr().err.splitlines()
    require_printed("PostgreSQL", *printed)


def _miss(name: str) -> None:
    raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")


@pytest.mark.needs("keys", "limits", "idempotency")
def test_refused_requests(client: FlaskClient) -> None:
    def post(body: str, **headers: str) -> TestResponse:
        return client.post("/products", data=body, headers=JSON | headers)

    lamp = post('{"name": "Lamp", "sku": "L", "stock": 1}').json
    item = f"/products/{lamp['id']}"
    client.patch(item, json={"stock": 2})
    post('{"name": "Desk"}', **{"Idempotency-Key": "one"})
    key = "0123456789abcdef0123456789abcdef"
    closed = create_app(Config(auth="required", admin_key=key, rate_limit="off")).test_client()
    admin = {"X-API-Key": key}
    reader = closed.post("/api/v1/keys", json={"name": "a", "scopes": ["products:read"]}, headers=admin).json["secret"]
    conditional = create_app(Config(require_if_match=True)).test_client()
    safe = f"/products/{conditional.post('/products', json={'name': 'a'}).json['id']}"
    limited = create_app(Config(rate_limit="1 per minute")).test_client()
    limited.get("/products")
    responses = [
        post("{'name': 'Lamp'}"),
        closed.get("/products"),
        closed.get("/products", headers={"X-API-Key": "wrong"}),
        closed.post("/products", json={"name": "a"}, headers={"X-API-Key": reader}),
        client.get("/product"),
        post('{"name": "a", "sku": "L"}'),
        client.patch(item, json={"stock": 3, "version": 1}),
        client.patch(item, json={"stock": 3}, headers={"If-Match": '"old"'}),
        post(json.dumps({"name": "a" * 2**20})),
        client.post("/products", data={"name": "a"}),
        post('{"name": "a", "colour": "red"}'),
        post('{"name": "Shelf"}', **{"Idempotency-Key": "one"}),
        conditional.delete(safe),
        limited.get("/products"),
    ]
    require_printed("A request is refused", *map(refusal, responses))


@pytest.mark.needs("cors")
def test_refused_origins_and_hosts() -> None:
    opened = create_app(Config()).test_client()
    closed = create_app(Config(auth="open-to-all", trusted_hosts=("a.example",))).test_client()
    responses = [
        opened.get("/products", headers={"Origin": "http://app.example"}),
        opened.get("/products", headers={"Host": "shop.example"}),
        closed.get("/products", headers={"Host": "shop.example"}),
    ]
    require_printed("Browsers, proxies, containers", *map(refusal, responses))


@pytest.mark.needs("files")
def test_refused_files(tmp_path: Path) -> None:
    wrong, served, edited = (tmp_path / name for name in ("wrong", "served", "edited"))
    for folder in (wrong, served, edited):
        folder.mkdir()
        (folder / "db.json").write_text('{"posts": [{"id": 1},]}')
    with (served / ".db.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        printed = [lines[-1] for lines in printed_by([(folder, "db.json") for folder in (wrong, served)])]
    served_file = serve(edited)
    served_file.file.write_text('{"posts": [{"id": 1,')
    printed.append(refusal(served_file.client.delete("/posts/2")))
    require_printed("JSON files", *printed)
