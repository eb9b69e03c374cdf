"""`restkeeper serve` starts again after each save of a file, and says 503 while the program does not start."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.live import ROOT, HttpResponse, send
from tests.processes import children, of_session
from tests.test_mistakes import SCHEMA, write
from tests.waiting import SECONDS, until

pytestmark = pytest.mark.top  # about the files of the service

# A program that responds with the names of the modules and the text of one; `keep_serving` runs it.
PROGRAM = """
import os, pathlib, socket, sys, threading
def end():
    os.read(int(os.environ["RESTKEEPER_LIFELINE"]), 1)
    os._exit(1)
threading.Thread(target=end, daemon=True).start()
folder = pathlib.Path(sys.argv[1])
text = (folder / "value.py").read_text()
if text == "no setting":
    sys.exit(1)
if text == "wrong":
    os.write(int(os.environ["RESTKEEPER_FAULT"]), b"value.py: is wrong")
    sys.exit(1)
listener = socket.socket(fileno=int(os.environ["RESTKEEPER_FD"]))
listener.setblocking(True)
while True:
    client, _ = listener.accept()
    if client.recv(65536).startswith(b"GET /crash"):
        sys.exit(7)
    body = " ".join([text, *sorted(path.name for path in folder.glob("*.py"))])
    client.sendall(f"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n{body}".encode())
    client.close()
"""
KEEP = """
import pathlib, socket, sys
from restkeeper.server.reload import keep_serving
program, folder, fd = sys.argv[1:]
listener = socket.socket(fileno=int(fd))
environ = {"RESTKEEPER_WELCOME": "1"}
keep_serving([sys.executable, "-I", "-S", program, folder], pathlib.Path(folder), listener, environ)
"""


class Watched:
    """A folder, and what serves it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder / "watched", folder / "log.txt"
        self.folder.mkdir()
        (self.folder / "value.py").write_text("one")
        (folder / "program").write_text(PROGRAM)
        with socket.create_server(("127.0.0.1", 0)) as listener, self.log.open("wb") as log:
            self.port: int = listener.getsockname()[1]
            self.process = subprocess.Popen(
                [sys.executable, "-c", KEEP, str(folder / "program"), str(self.folder), str(listener.fileno())],
                env={"PYTHONPATH": str(ROOT)},
                pass_fds=[listener.fileno()],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def get(self, method: str = "GET", path: str = "/") -> HttpResponse:
        return send(self.port, method, path)

    def shows(self, text: str) -> bool:
        with suppress(OSError, HTTPException):  # the former program has ended with this connection
            return self.get().body.decode() == text
        return False


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    if made.process.poll() is None:
        made.process.kill()
    made.process.wait(SECONDS)


def test_each_change_of_a_module_starts_it_again(watched: Watched) -> None:
    """A save in place or by a new file of that name, a new one, a removed one; what is no source changes nothing."""
    until(lambda: watched.shows("one value.py"))
    (watched.folder / "value.py").write_text("two")  # of the same length
    until(lambda: watched.shows("two value.py"))
    (watched.folder / "saved").write_text("six")
    (watched.folder / "saved").rename(watched.folder / "value.py")
    until(lambda: watched.shows("six value.py"))
    (watched.folder / "more.py").touch()
    until(lambda: "more.py has changed: starts again\n" in watched.log.read_text())
    (watched.folder / "more.py").unlink()
    until(lambda: watched.log.read_text().count("more.py has changed") == 2)
    until(lambda: watched.shows("six value.py"))
    watched.process.send_signal(signal.SIGINT)
    assert watched.process.wait(SECONDS) == 0
    assert of_session(watched.process.pid) == []


def test_a_program_that_does_not_start_is_503_until_the_next_save(watched: Watched) -> None:
    """With the line that it has reported, also to a client that asks for the head alone; likewise after its end."""
    until(lambda: watched.shows("one value.py"))
    (watched.folder / "value.py").write_text("wrong")
    until(lambda: "restkeeper: requests get 503 until a file is saved" in watched.log.read_text())
    refused = watched.get("POST")
    assert (refused.status, refused.headers["content-type"]) == (503, "application/problem+json")
    assert refused.json()["detail"] == "the service does not run: value.py: is wrong"
    assert (watched.get("HEAD").status, watched.get("HEAD").body) == (503, b"")
    (watched.folder / "value.py").write_text("one")
    until(lambda: watched.shows("one value.py"))
    with pytest.raises((OSError, HTTPException)):
        watched.get(path="/crash")
    assert watched.get().json()["detail"] == "the service does not run: the program has ended (7); its output says why"


def test_a_wrong_setting_ends_it(watched: Watched) -> None:
    """The program has said which one, and no save of a file mends it."""
    until(lambda: watched.shows("one value.py"))
    (watched.folder / "value.py").write_text("no setting")
    assert watched.process.wait(SECONDS) == 1
    assert "503" not in watched.log.read_text()


def test_no_program_is_left_behind(watched: Watched) -> None:
    until(lambda: watched.shows("one value.py"))
    assert len(children(watched.process.pid)) == 1
    watched.process.kill()
    watched.process.wait(SECONDS)
    until(lambda: of_session(watched.process.pid) == [])


def test_only_sources_are_watched(watched: Watched) -> None:
    """No hidden folders, no installed packages."""
    until(lambda: watched.shows("one value.py"))
    for name in ("c.txt", ".f/g.py", "env/lib/site-packages/k.py", "node_modules/l.py"):
        (watched.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (watched.folder / name).touch()
    (watched.folder / "value.py").write_text("two")
    until(lambda: watched.shows("two value.py"))
    lines = watched.log.read_text().splitlines()
    assert {line.split()[1] for line in lines} == {"value.py"}


def test_a_service_is_mended_while_it_is_served(tmp_path: Path) -> None:
    """By `python app.py` in memory: a name that is missing is said, at the start and in responses; then it serves."""
    write(tmp_path, SCHEMA, "Whole(0, ", "Wole(0, ")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PORT": str(port), "DATABASE_URL": "memory://"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "app.py"], cwd=tmp_path, env=environ, stdout=log, stderr=log, start_new_session=True
        )
    text = (tmp_path / "log").read_text
    try:
        until(lambda: "until a file is saved" in text())
        line = f"{SCHEMA}:30: NameError: name 'Wole' is not defined"
        assert line in send(port, "GET", "/products").json()["detail"] and line in text()
        (tmp_path / SCHEMA).write_text((tmp_path / SCHEMA).read_text().replace("Wole", "Whole"))
        until(lambda: f"http://127.0.0.1:{port}, stored in memory://" in text())
        assert send(port, "GET", "/products").status == 200
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
        assert process.wait(SECONDS) == 0 and of_session(process.pid) == []
        assert "Traceback" not in text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(SECONDS)
