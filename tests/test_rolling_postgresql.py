"""A rolling upgrade on PostgreSQL under load: two programs side by side, of which the newer one migrates the tables."""

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from restkeeper.storage.postgresql import migrations
from restkeeper.web.application import Application
from tests.live import Gunicorn
from tests.ports import free_ports
from tests.postgresql_server import Databases
from tests.shop import create_app
from tests.soak import Fault, HistoryRun
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(120)]

KNOWN = len(migrations.MIGRATIONS)  # migrations of the old program
NEWER = "RESTKEEPER_TESTS_MIGRATION"  # the file of the migration that the newer program has besides
MIGRATION = """\
-- oldest: {oldest}
ALTER TABLE items ADD COLUMN made_up text COLLATE "C" NOT NULL DEFAULT '';
CREATE TABLE made_up (id text COLLATE "C" PRIMARY KEY);
"""
REFUSAL = f"the store is of a newer program (migration {KNOWN + 1} of {KNOWN}): use one that has migration {KNOWN + 1}"
WAITING = """\
SELECT count(*) > 0
FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE '-- oldest%' AND wait_event_type = 'Lock'"""


def create_newer() -> Application:
    """The service of the newer program."""
    migrations.MIGRATIONS = [*migrations.MIGRATIONS, Path(os.environ[NEWER])]
    return create_app()


Prepare = Callable[[int], "Upgrade"]


@pytest.fixture
def prepare(tmp_path: Path, url: str) -> Iterator[Prepare]:
    """Prepares an upgrade, whose instances end with the test."""
    made: list[Upgrade] = []
    yield lambda oldest: made.append(Upgrade(tmp_path, url, oldest)) or made[-1]  # type: ignore[func-returns-value]
    for each in made:
        for name in [*each.running]:
            each.stop(name)


class Upgrade:
    """Instances of both programs on one database. After the migration the `oldest` program can work with the store."""

    def __init__(self, folder: Path, url: str, oldest: int) -> None:
        self.url = url
        self.ports = dict(zip(("old", "new"), free_ports(2), strict=True))
        self.running: dict[str, Gunicorn] = {}
        self._folder = folder
        self._file = folder / f"{KNOWN + 1:04}.sql"
        self._file.write_text(MIGRATION.format(oldest=oldest))

    def start(self, name: str) -> Gunicorn:
        app = "tests.test_rolling_postgresql:create_newer()" if name == "new" else "tests.shop:create_app()"
        settings = {"DATABASE_URL": self.url, "RATE_LIMIT": "off", "LOG_LEVEL": "warning", NEWER: str(self._file)}
        instance = Gunicorn(self._folder, workers=1, app=app, port=self.ports[name], **settings)
        self.running[name] = instance.__enter__()
        return instance

    def start_late(self, name: str) -> None:
        """Start an instance whose migration waits for a reader for a moment, and requests behind it."""
        with (
            psycopg.connect(self.url) as reader,
            psycopg.connect(self.url, autocommit=True) as other,
            ThreadPoolExecutor(1) as pool,
        ):
            reader.execute("SELECT 1 FROM items")
            starting = pool.submit(self.start, name)
            until(lambda: starting.done() or other.execute(WAITING).fetchone() == (True,))
            reader.rollback()
            starting.result(SECONDS)

    def stop(self, name: str) -> None:
        """Stop an instance gracefully."""
        instance = self.running.pop(name)
        instance.process.terminate()
        assert instance.process.wait(SECONDS) == 0


def test_an_upgrade_and_a_downgrade_under_load(prepare: Prepare) -> None:
    """Each request to an instance that runs has a clear response, and no change is lost or made twice."""
    upgrade = prepare(KNOWN)
    upgrade.start("old")
    steps = [
        Fault("the new one starts", lambda: upgrade.start_late("new")),
        Fault("the old one stops", lambda: upgrade.stop("old")),
        Fault("the old one starts", lambda: upgrade.start("old") and None),
        Fault("the new one stops", lambda: upgrade.stop("new")),
    ]
    run = HistoryRun([f"http://127.0.0.1:{port}" for port in upgrade.ports.values()], steps, times=1)
    run.run()
    results = {result: number for (kind, result), number in run.recorder.counts.items() if kind == "request"}
    assert results.keys() <= {"2xx", "3xx", "4xx", "not sent", "broken off"}, results
    assert results.get("broken off", 0) <= 18 * run.injected.total()  # idle connections, and those in the queue
    with psycopg.connect(upgrade.url) as connection:
        assert connection.execute("SELECT migration FROM store").fetchall() == [(KNOWN + 1,)]


def test_a_migration_that_the_old_program_cannot_work_with(prepare: Prepare, databases: Databases) -> None:
    """The old one is not ready, does not start, and has no new connection; each time it says what is missing."""
    upgrade = prepare(KNOWN + 1)
    old = upgrade.start("old")
    path = old.post("/products", {"name": "a"}).headers["location"]
    new = upgrade.start("new")
    assert old.get(path).status == 200  # its connections are open
    assert REFUSAL in old.get("/readyz").json()["detail"]
    upgrade.ports["old"] = 0
    with pytest.raises(RuntimeError, match=re.escape(REFUSAL)):
        upgrade.start("old")
    with databases.closed(upgrade.url):
        pass  # as at the end of the longest life of a connection
    for refused in (old.get(path), old.post("/products", {"name": "a"})):
        assert (refused.status, refused.json()["detail"], refused.headers["retry-after"]) == (503, REFUSAL, "1")
    assert new.get(path).status == 200
