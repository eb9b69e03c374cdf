"""A service in one process, also where there are no modules of Unix, as on Windows; these tests hide them on Linux."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.json_file import BLOG, running
from tests.live import ROOT
from tests.waiting import SECONDS, until

HIDDEN = """
import os, runpy, sys
import gevent.os, gevent.subprocess  # which on Windows do without these modules; here they ask for them
gevent.os.__implements__ = [name for name in gevent.os.__implements__ if "fork" not in name]
for name in ("fork", "forkpty", "register_at_fork", "fchown", "posix_fallocate", "geteuid", "killpg", "pread"):
    delattr(os, name)
names = {"gunicorn", "fcntl", "grp", "pwd", "resource", "termios"}
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
for name in names:
    sys.modules.pop(name, None)
"""
SERVE = 'runpy.run_module("restkeeper", run_name="__main__", alter_sys=True)'


@pytest.fixture
def hiding(tmp_path: Path) -> Path:
    """A program that is the command where the modules of Unix are hidden."""
    (program := tmp_path / "program.py").write_text(HIDDEN + SERVE)
    return program


@pytest.mark.needs("events", "idempotency")
def test_a_file_is_served_without_modules_of_unix(tmp_path: Path, hiding: Path) -> None:
    """Read, changed by requests, repeated, and edited by hand; at the end it has all of that, and nothing is beside."""
    (folder := tmp_path / "served").mkdir()
    (file := folder / "db.json").write_text(json.dumps(BLOG))
    (folder / "routes.py").write_text("import os\ndef declare(resources):\n    assert not hasattr(os, 'fork')\n")
    with running(file, program=(sys.executable, "-P", str(hiding))) as server:
        assert server.send("GET", "/posts?views_gte=150").json() == BLOG["posts"][1:]
        connection = HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        made = []
        for _ in range(2):
            fields = {"Content-Type": "application/json", "Idempotency-Key": "1"}
            connection.request("POST", "/posts", json.dumps({"title": "New"}), fields)
            made.append(json.load(connection.getresponse()))
        connection.close()
        assert made == [{"id": 3, "title": "New"}] * 2
        assert server.send("PATCH", "/posts/1", {"views": 101}).json()["views"] == 101
        assert server.send("DELETE", "/posts/2").status == 200
        data = json.loads(file.read_bytes())
        file.write_text(json.dumps(data | {"profile": {"name": "edited"}}))
        until(lambda: server.send("GET", "/profile").json() == {"name": "edited"})
        stream = HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        stream.request("GET", "/api/v1/events", headers={"Accept": "text/event-stream"})
        events = stream.getresponse()
        file.write_text(json.dumps(data | {"albums": [{"id": 1}]}))
        until(lambda: server.has("/albums/1"))
        with ThreadPoolExecutor(1) as pool:  # it ends: what it would tell is of the former application
            assert b"post.created" in pool.submit(events.read).result(SECONDS)
        stream.close()
        assert server.status("/openapi.json") == server.status("/docs") == server.status("/metrics") - 203 == 200
        assert "Traceback" not in server.lines
    assert server.process.returncode == 0
    posts = [BLOG["posts"][0] | {"views": 101}, {"id": 3, "title": "New"}]
    assert json.loads(file.read_bytes()) == BLOG | {"posts": posts, "albums": [{"id": 1}]}
    names = sorted(each.name for each in folder.iterdir() if each.is_file())
    assert names == ["db.json", "db.log", "routes.py"]


IN_PROCESS = """
from restkeeper import LiveServer
with LiveServer("db.json", in_process=True) as server:
    with server.space(seed={"posts": [{"title": "Seed"}]}) as api:
        assert api.client.post("/posts", json={"title": "New"}).status_code == 200
        assert len(api.client.get("/posts").json) == 4
        api.faults.respond("GET", "/posts", 429, times=1)
        assert api.client.get("/posts").status_code == 429
        api.reset()
        print(len(api.client.get("/posts").json))
"""


def test_a_live_server_in_process_needs_no_modules_of_unix(tmp_path: Path) -> None:
    """It has spaces, faults and a reset."""
    (tmp_path / "db.json").write_text(json.dumps(BLOG))
    command = [sys.executable, "-P", "-c", HIDDEN + IN_PROCESS]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=SECONDS)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_a_store_in_a_file_is_refused_where_no_file_can_be_locked(tmp_path: Path) -> None:
    """In one line, before it is created."""
    code = (
        f"from restkeeper import Config, create_app\ncreate_app(Config(database_url='sqlite:///{tmp_path}/a.db'), [])"
    )
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-P", "-c", HIDDEN + code], env=environ, capture_output=True, text=True)
    assert "a store in a file needs the file locks of Unix" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())
