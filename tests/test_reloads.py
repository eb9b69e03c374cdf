"""Reloads and restarts under load, behind nginx: every request gets its response."""

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from threading import Event, Lock, Thread

import pytest

from tests import stores
from tests.live import ROOT, response_of
from tests.ports import free_ports
from tests.processes import children, state
from tests.proxy import NAME, Nginx
from tests.waiting import SECONDS, join, until

pytestmark = [pytest.mark.matrix, pytest.mark.needs("limits")]

REQUESTS = 10_000  # in each test
CLIENTS = 16
TIMES = 3  # of each way to replace the workers
WORKERS = 2
SETTINGS = {"AUTH": "open-to-all", "TRUSTED_HOSTS": NAME, "RATE_LIMIT": "off", "LOG_LEVEL": "warning"}


class Load:
    """Clients that read and create by turns, each on a connection that it keeps; counts what they get."""

    def __init__(self, proxy: Nginx) -> None:
        self.results: Counter[tuple[str, object]] = Counter()
        self._proxy, self._lock, self._end = proxy, Lock(), Event()
        self._threads = [Thread(target=self._send, daemon=True) for _ in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        join(*self._threads)

    def sent(self) -> int:
        with self._lock:
            return self.results.total()

    def wait_for_more(self, number: int) -> None:
        """Wait until so many more requests have got a response."""
        for goal in range(self.sent(), self.sent() + number + 1, CLIENTS):  # each part within the time of `until`
            until(lambda goal=goal: self.sent() >= goal)  # type: ignore[misc]

    def _send(self) -> None:
        headers = {"Content-Type": "application/json"}
        connection = HTTPSConnection(NAME)
        while not self._end.is_set():
            for method, path, body in (("GET", "/products?limit=1", None), ("POST", "/products", b'{"name": "x"}')):
                try:
                    if connection.sock is None:
                        connection.sock = self._proxy.connect()
                    connection.request(method, path, body, headers)
                    response = response_of(connection)
                    result: object = response.status if response.status == 200 else (response.status, response.body)
                except (OSError, HTTPException) as error:
                    connection.close()
                    result = repr(error)
                with self._lock:
                    self.results[method, result] += 1
        connection.close()


class Master:
    """The running gunicorn: its process, which changes at USR2 and at a restart, by the file with its id."""

    def __init__(self, folder: Path, address: str, kept: socket.socket | None) -> None:
        self._folder, self._address, self._kept = folder, address, kept
        self._file = folder / "gunicorn.pid"  # nginx has one, too
        self._started: list[subprocess.Popen[bytes]] = []
        self.start()

    def start(self) -> None:
        environ = {"PATH": os.environ["PATH"], "DATABASE_URL": self._url(), "WEB_CONCURRENCY": str(WORKERS), **SETTINGS}
        command = [sys.executable, "-m", "gunicorn", "-c", str(ROOT / "gunicorn.conf.py"), "--pid", str(self._file)]
        with (self._folder / "log.txt").open("ab") as log:
            self._started.append(
                subprocess.Popen(
                    [*command, "--bind", self._address, "tests.shop:create_app()"],
                    cwd=ROOT,
                    env=environ,
                    stdout=log,
                    stderr=log,
                    pass_fds=[self._kept.fileno()] if self._kept else [],
                )
            )
        until(lambda: len(self.workers()) == WORKERS)

    def _url(self) -> str:
        return stores.url(f"sqlite:///{self._folder}/restkeeper.db")

    def pid(self) -> int:
        """Waits for the file, which a reload removes and writes anew."""
        return int(until(lambda: _text(self._file)))

    def workers(self) -> set[int]:
        return set(children(self.pid()))

    def hup(self) -> None:
        former = self.workers()
        os.kill(self.pid(), signal.SIGHUP)
        until(lambda: len(now := self.workers()) == WORKERS and not now & former)

    def usr2(self) -> None:
        """The new program beside the old one, and then the end of the old one."""
        former, new = self.pid(), self._file.with_name("gunicorn.pid.2")
        os.kill(former, signal.SIGUSR2)
        until(lambda: (pid := _text(new)) and len(children(int(pid))) == WORKERS)
        self._stop(former)
        until(lambda: not new.exists() and len(self.workers()) == WORKERS)

    def restart(self) -> None:
        """As `systemctl restart` of a service whose socket systemd keeps open."""
        self._stop(self.pid())
        self.start()

    def stop(self) -> None:
        self._stop(self.pid())

    def _stop(self, pid: int) -> None:
        os.kill(pid, signal.SIGTERM)
        for each in self._started:
            if each.pid == pid:
                each.wait(SECONDS)
        until(lambda: state(pid) in ("", "Z"))


def _text(file: Path) -> str:
    """Of a file that another process removes and writes anew."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("actions", [("hup", "usr2"), ("restart",)], ids=["own socket", "kept socket"])
def test_no_request_is_lost(tmp_path: Path, actions: tuple[str, ...]) -> None:
    """By reloads, new programs beside old ones, and restarts behind a socket that stays open, while clients send."""
    with ExitStack() as stack:
        (port,), kept = free_ports(1), None
        address = f"127.0.0.1:{port}"
        if "restart" in actions:
            kept = stack.enter_context(socket.create_server(("127.0.0.1", port), backlog=512))
            address = f"fd://{kept.fileno()}"
        master = Master(tmp_path, address, kept)
        stack.callback(master.stop)
        with Nginx(tmp_path, port) as proxy, Load(proxy) as load:
            for action in actions * TIMES:
                load.wait_for_more(REQUESTS // (len(actions) * TIMES + 1))
                getattr(master, action)()
            load.wait_for_more(REQUESTS - load.sent())
        results = dict(load.results)
        log = (tmp_path / "log.txt").read_text()
        assert set(results) == {("GET", 200), ("POST", 200)}, (results, log[log.find("unexpected condition") :][:5000])
