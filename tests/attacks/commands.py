"""What operators do to a running service: long imports, long locks, files copied or moved over the store."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.attacks.health import Health
from tests.live import ROOT, Gunicorn
from tests.receiver import Receiver
from tests.waiting import SECONDS

LINES = 20_000
HELD_SECONDS = 12.0  # longer than any writer waits
WORST_WRITE = 0.75  # seconds: a batch, its commit, and other waiting writers
WORST_HEALTH = 1.0  # three processes on two cores


def _flask(folder: Path, *arguments: str, **settings: str) -> "subprocess.Popen[str]":
    environ = {"PATH": os.environ["PATH"], "DATABASE_URL": f"sqlite:///{folder}/restkeeper.db", **settings}
    command = [sys.executable, "-m", "flask", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _done(process: "subprocess.Popen[str]", code: int = 0) -> str:
    out, message = process.communicate(timeout=50)
    assert process.returncode == code, message
    return out + message


def attack_an_import_blocks_no_writer(folder: Path) -> str:
    """While many items are imported others write; a killed import continues when it is repeated."""
    file = folder / "a.ndjson"
    item = {"price": 1.5, "description": "x" * 200}
    file.write_text("".join(json.dumps({"name": f"Lamp {n}", **item}) + "\n" for n in range(LINES)))
    worst = 0.0
    with Gunicorn(folder) as server:
        importing = _flask(folder, "import", "products", str(file))
        with Health(server) as health:
            while int(server.get("/products").headers["x-total-count"]) < LINES // 4:
                began = time.perf_counter()
                assert server.post("/users", {"email": f"{began}@example.org"}).status == 200
                worst = max(worst, time.perf_counter() - began)
        importing.kill()
        importing.communicate(timeout=SECONDS)
        again = _done(_flask(folder, "import", "products", str(file)))
        assert "already there" in again
        assert int(server.get("/products").headers["x-total-count"]) == LINES
    assert worst < WORST_WRITE and health.worst < WORST_HEALTH, (worst, health.worst)
    return f"worst write {worst:.2f} s, worst /healthz {health.worst:.3f} s; {again.splitlines()[0]}"


def attack_a_long_lock_ends_no_worker(folder: Path) -> str:
    """A lock is held longer than any writer waits: the worker logs it twice, and then delivers."""
    with Receiver() as receiver, Gunicorn(folder, WEBHOOK_ALLOW_PRIVATE="1") as server:
        made = server.post("/api/v1/webhooks", {"url": f"{receiver.base}/healthy"}).json()
        receiver.inboxes["healthy"].secret = made["secret"]
        worker = _flask(folder, "deliver", WEBHOOK_ALLOW_PRIVATE="1")
        assert worker.stderr and worker.stderr.readline().startswith("delivering")
        server.post("/products", {"name": "x"})
        with receiver.changed:
            assert receiver.changed.wait_for(lambda: len(receiver.inboxes["healthy"].ids) == 1, 30)
        worker.send_signal(signal.SIGSTOP)
        server.post("/products", {"name": "y"})
        holder = sqlite3.connect(folder / "restkeeper.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        worker.send_signal(signal.SIGCONT)
        began = time.perf_counter()
        while time.perf_counter() - began < HELD_SECONDS:
            assert worker.poll() is None
            threading.Event().wait(0.1)
        holder.execute("ROLLBACK")
        holder.close()
        with receiver.changed:
            assert receiver.changed.wait_for(lambda: len(receiver.inboxes["healthy"].ids) == 2, 30)
        worker.send_signal(signal.SIGTERM)
        message = _done(worker)
    assert message.count("deliveries wait") == message.count("deliveries continue") == 1, message
    return f"held for {HELD_SECONDS:.0f} s, then delivered"


def attack_a_file_over_the_store(folder: Path) -> str:
    """A backup is moved, then copied over a running store: 503 at once, no start, until a restore."""
    store, backup = folder / "restkeeper.db", folder / "backup.db"
    took = []
    for how in (os.rename, shutil.copyfile):
        with Gunicorn(folder, start_new_session=True) as server:
            server.post("/products", {"name": "x"})
            backup.unlink(missing_ok=True)
            _done(_flask(folder, "backup", str(backup)))
            server.post("/products", {"name": "later"})
            shutil.copyfile(backup, folder / "copy.db")
            began = time.perf_counter()
            how(folder / "copy.db", store)
            assert [server.get("/readyz").status for _ in range(8)] == [503] * 8
            assert server.post("/products", {"name": "lost"}).status == 503
            took.append(time.perf_counter() - began)
            assert server.get("/healthz").status == 200
            os.killpg(server.process.pid, signal.SIGKILL)
        assert "restkeeper restore" in _done(_flask(folder, "export", "products"), 1)
        assert "restored" in _done(_flask(folder, "restore", "--discard", str(backup)))
        assert "later" not in _done(_flask(folder, "export", "products"))
    return f"503 within {max(took) * 1000:.0f} ms for both, refused at the next start, mended by flask restore"
