"""The processes of the Procfile: what each does, how it stops, and all of them under honcho."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import Result

from restkeeper.clock import rfc3339
from restkeeper.config import Config
from restkeeper.storage import open_store
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import StoreGone, StoreUnavailable
from restkeeper.storage.transactions import Event
from restkeeper.web.application import Application
from tests import stores
from tests.live import ROOT, send
from tests.ports import free_ports
from tests.processes import of_session
from tests.shop import RESOURCES, create_app
from tests.waiting import SECONDS, until

PROCFILE = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines())
UPKEEP = "restkeeper.cli.running"


def command_of(process: str) -> list[str]:
    return [sys.executable, "-m", *PROCFILE[process].split()]


def database_url(folder: Path) -> str:
    return stores.url(f"sqlite:///{folder}/restkeeper.db")


def environ_of(folder: Path, **settings: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "DATABASE_URL": database_url(folder), **settings}


def record_expired(transaction: Transaction) -> None:
    for at in (0, time.time()):
        transaction.add_event(Event("product.created", "products", "x", rfc3339(at), b"{}"))


def test_the_release_comes_first_and_creates_the_tables(tmp_path: Path) -> None:
    """A new store, and one that exists; it needs no file of secrets and no port."""
    for _ in range(2):
        done = subprocess.run(
            command_of("release"), cwd=ROOT, env=environ_of(tmp_path), capture_output=True, text=True, check=True
        )
        assert done.stdout == "nothing is to be converted\n"
    store = open_store(database_url(tmp_path), [])
    store.check()
    store.close()
    assert list(PROCFILE) == ["release", "web", "worker", "reaper"]


@pytest.mark.needs("events")
def test_the_reaper_repeats_until_it_is_stopped(tmp_path: Path) -> None:
    """It waits for the store, deletes what expires meanwhile, and ends with 0 while it waits."""
    stores.without_store(f"sqlite:///{tmp_path}/restkeeper.db")
    command = [sys.executable, "-m", "restkeeper", "reap", "--every"]
    reaper = subprocess.Popen(
        [*command, "1"], cwd=ROOT, env=environ_of(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert reaper.stdout and reaper.stderr
    assert reaper.stderr.readline().startswith("waiting: there is no store ")
    app = create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db"))
    store = app.extensions["restkeeper"].store
    store.open()
    assert reaper.stdout.readline() == "deleted 0 expired responses and 0 expired events\n"
    store.write(record_expired)
    while (line := reaper.stdout.readline()) == "deleted 0 expired responses and 0 expired events\n":
        assert reaper.poll() is None
    assert line == "deleted 0 expired responses and 1 expired events\n"
    reaper.send_signal(signal.SIGTERM)
    _, errors = reaper.communicate(timeout=SECONDS)
    assert (reaper.returncode, errors) == (0, "")
    store.close()


@pytest.fixture
def app(tmp_path: Path) -> Application:
    return create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db"), RESOURCES, serves=False)


@pytest.fixture
def reap(app: Application, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Result]:
    """Runs the reaper in this process for a number of rounds, without pauses."""
    store, pauses = app.extensions["restkeeper"].store, [0]
    store.open()

    def run(rounds: int) -> Result:
        module = import_module(UPKEEP)
        monkeypatch.setattr(module, "stop_requested", lambda: lambda: pauses[0] >= rounds)
        monkeypatch.setattr(module, "pause", lambda seconds, is_stopping: pauses.append(pauses.pop() + 1))
        return app.test_cli_runner().invoke(args=["reap", "--every", "60"])

    return run


def failing(*errors: Exception | None) -> Callable[..., int]:
    """A `write` that raises one error after the other; in place of None it deletes nothing."""
    left = list(errors)

    def write(*arguments: object, **options: object) -> int:
        if left and (error := left.pop(0)):
            raise error
        return 0

    return write


@pytest.mark.needs("events", "idempotency")
def test_the_reaper_continues_after_an_outage(
    app: Application, reap: Callable[[int], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store is unavailable it prints why; the next round deletes."""
    store = app.extensions["restkeeper"].store
    monkeypatch.setattr(store, "write", failing(StoreUnavailable("it is locked"), None))
    result = reap(2)
    assert (result.exit_code, result.stderr) == (0, "nothing deleted, next attempt in 60 s: it is locked\n")
    assert result.stdout == "deleted 0 expired responses and 0 expired events\n"


@pytest.mark.needs("events", "idempotency")
def test_the_reaper_ends_if_its_store_is_gone(
    app: Application, reap: Callable[[int], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.extensions["restkeeper"].store, "write", failing(StoreGone("the store was replaced")))
    result = reap(2)
    assert (result.exit_code, result.stderr) == (1, "Error: the store was replaced\n")


@pytest.mark.needs("events", "idempotency")
def test_a_stopped_reaper_begins_no_other_batch(app: Application, reap: Callable[[int], Result]) -> None:
    app.extensions["restkeeper"].store.write(record_expired)
    assert reap(0).stdout == ""
    assert reap(1).stdout == "deleted 0 expired responses and 1 expired events\n"


@pytest.mark.parametrize("seconds", ["0", "86401", "1.5"])
def test_the_pause_of_the_reaper_is_limited(app: Application, seconds: str) -> None:
    result = app.test_cli_runner().invoke(args=["reap", "--every", seconds])
    assert result.exit_code == 2 and "--every" in result.stderr


@pytest.mark.needs("webhooks")
def test_all_processes_run_and_stop_together(tmp_path: Path) -> None:
    """Under honcho, after the release: requests are served at the named address, and SIGTERM ends each with 0."""
    (port,) = free_ports(1)
    binaries = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = environ_of(tmp_path, PATH=binaries, HOST="127.0.0.1", RATE_LIMIT="off")
    honcho = [sys.executable, "-m", "honcho", "--no-colour", "--no-prefix", "start"]
    subprocess.run([*honcho, "release"], cwd=ROOT, env=environ, check=True, capture_output=True, timeout=SECONDS)
    log = tmp_path / "log.txt"
    with log.open("w") as out:
        running = subprocess.Popen(
            [*honcho, "--port", str(port), "web", "worker", "reaper"],
            cwd=ROOT,
            env=environ,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        begun = ("Restkeeper", "delivering from", "deleted 0 expired")
        until(lambda: all(text in log.read_text() for text in begun) or running.poll() is not None)
        assert send(port, "GET", "/products").status == 401  # as in a deployment
        assert f"at http://127.0.0.1:{port}," in log.read_text()
    finally:
        running.terminate()
        assert running.wait(timeout=SECONDS) in (0, -signal.SIGTERM, 128 + signal.SIGTERM), log.read_text()
    until(lambda: of_session(running.pid) == [])
    assert "Traceback" not in log.read_text()
