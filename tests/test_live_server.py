"""`LiveServer`: a running service for tests, which leaves nothing behind."""

import json
import os
import re
import select
import socket
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from restkeeper import LiveServer
from tests.live import ROOT, send
from tests.processes import children, of_session, state
from tests.waiting import SECONDS, until

SERVICE = "import restkeeper\ncreate_app = lambda config=None: restkeeper.create_app(config, [])\n"
SLOW = """
import time, restkeeper

def slow(asked):
    if asked.path == "/slow":
        print("waits", flush=True)
        time.sleep(1000)

def create_app(config=None):
    made = restkeeper.create_app(config, [])
    made.checking.add(slow)
    return made
"""


def get(url: str) -> object:
    with urlopen(url, timeout=SECONDS) as response:  # noqa: S310 - http
        return json.load(response)


def test_each_server_has_its_own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers are two services, each with a free port, and without settings of the parent process."""
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/other.db")
    with LiveServer(ROOT) as one, LiveServer(ROOT) as other:
        made = send(int(one.url.rpartition(":")[2]), "POST", "/products", {"name": "Lamp"})
        assert get(f"{one.url}/products") == [made.json()]
        assert get(f"{other.url}/products") == []
    for url in (one.url, other.url):
        with pytest.raises(URLError, match="refused"):
            get(url)
    assert list(tmp_path.iterdir()) == []
    one.close()  # a second call has no effect


def test_settings() -> None:
    """Numbers are accepted, misspelt names are not: they would have no effect."""
    with LiveServer(ROOT, PAGE_LIMIT=1) as server:
        assert get(f"{server.url}/products") == []
    for name, message in (("AUHT", "you mean AUTH"), ("PAGE_LIMITS", "mean PAGE_LIMIT"), ("page_limit", "capitals")):
        with pytest.raises(ValueError, match=message):
            LiveServer(ROOT, **{name: "1"})
    with LiveServer(ROOT, AUTH="required") as server, pytest.raises(HTTPError, match="401"):
        assert server.url.startswith("http://127.0.0.1:")
        get(f"{server.space().url}/products")


def test_an_invalid_service_is_a_one_line_error(tmp_path: Path) -> None:
    for code, message in (
        (None, "does not exist; `restkeeper new NAME`"),
        ("from flask import Flask\napp = Flask('host')\n", "has no create_app(), so it is no Restkeeper service"),
        ("def create_app():\n    return 5\n", "must return a restkeeper.Application from create_app(), not int"),
    ):
        if code is not None:
            (tmp_path / "app.py").write_text(code)
        words = f"^the service did not start: restkeeper: .*app.py.*{re.escape(message)}[^\n]*$"
        with pytest.raises(RuntimeError, match=words), LiveServer(tmp_path):
            pass


def test_other_files_of_the_folder_have_no_effect(tmp_path: Path) -> None:
    """Files named like parts of the engine or like modules of Python, and gunicorn's own settings; given ones have."""
    (tmp_path / "app.py").write_text(SERVICE)
    for name in ("config", "errors", "storage", "web", "json", "queue", "secrets", "gunicorn.conf"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('disturbed')")
    with LiveServer(tmp_path, DATABASE_URL=f"sqlite:///{tmp_path}/a.db") as server:
        assert get(f"{server.url}/healthz")
    assert (tmp_path / "a.db").exists()


def test_output_of_the_service_does_not_block_it(tmp_path: Path) -> None:
    """Much output, before it serves and later; and the folder's service is used, not that of the checkout."""
    (tmp_path / "resources.py").write_text("HERE = True\n")
    (tmp_path / "app.py").write_text(
        "import resources, restkeeper\nprint('x' * 100_000, flush=True)\nassert resources.HERE\n"
        "def create_app(config=None):\n    made = restkeeper.create_app(config, [])\n"
        "    made.checking.add(lambda asked: print('x' * 100_000, flush=True))\n    return made\n"
    )
    with LiveServer(tmp_path) as server:
        assert get(f"{server.url}/healthz") == get(f"{server.url}/healthz")


def test_a_broken_file_is_an_error_in_process(tmp_path: Path) -> None:
    """And does not end the tests, as it ends the command."""
    (tmp_path / "db.json").write_text("{")
    server = LiveServer(tmp_path / "db.json", in_process=True)
    with pytest.raises(RuntimeError, match="^the service did not start: restkeeper: .*db.json:1:"), server:
        pass


def test_a_server_that_does_not_start_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid, wait = tmp_path / "pid", select.select

    def wait_after_begin(*arguments: Any) -> Any:
        until(lambda: pid.exists() and pid.read_text())
        return wait(*arguments)

    monkeypatch.setattr("restkeeper.testing.server.START_SECONDS", 0.5)
    monkeypatch.setattr("restkeeper.testing.server.select.select", wait_after_begin)
    (tmp_path / "app.py").write_text(
        f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)\n"
    )
    with pytest.raises(RuntimeError, match="did not start"), LiveServer(tmp_path):
        pass
    until(lambda: state(int(pid.read_text())) in ("", "Z"))


def test_it_ends_at_once_with_all_that_it_has(tmp_path: Path) -> None:
    """Also while it answers a request: its store ends, too. What it has logged stays."""
    (tmp_path / "app.py").write_text(SLOW)
    before = children(os.getpid())
    with LiveServer(tmp_path) as server:
        (master,) = set(children(os.getpid())) - {*before}
        port = int(server.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as waiting:
            waiting.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: "waits" in server.log)
            assert len(of_session(master)) == 2
            begun = time.monotonic()
            server.close()
            assert time.monotonic() - begun < SECONDS / 5
    until(lambda: of_session(master) == [])  # a process still ends when it has closed all
    assert "waits" in server.log
