"""A rolling upgrade on PostgreSQL: two programs side by side, of which the newer one migrates the tables."""

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from restkeeper.storage.postgresql import migrations, store
from restkeeper.web.application import Application
from tests.live import Gunicorn
from tests.postgresql_server import Databases
from tests.shop import create_app
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.matrix]

KNOWN = len(migrations.MIGRATIONS)  # migrations of the old program
NEWER = "RESTKEEPER_TESTS_MIGRATION"  # the file of the migration that the newer program has besides
MIGRATION = f"""\
-- oldest: {KNOWN + 1}
ALTER TABLE items ADD COLUMN made_up text COLLATE "C" NOT NULL DEFAULT '';
"""
REFUSAL = f"the store is of a newer program (migration {KNOWN + 1} of {KNOWN}): use one that has migration {KNOWN + 1}"


def create_newer() -> Application:
    """The service of the newer program."""
    migrations.MIGRATIONS = store.MIGRATIONS = [*migrations.MIGRATIONS, Path(os.environ[NEWER])]
    return create_app()


def test_a_migration_that_the_old_program_cannot_work_with(tmp_path: Path, databases: Databases, url: str) -> None:
    """The old one is not ready, does not start, and has no new connection; each time it says what is missing."""
    file = tmp_path / f"{KNOWN + 1:04}.sql"
    file.write_text(MIGRATION)
    start = partial(Gunicorn, tmp_path, workers=1, DATABASE_URL=url, RATE_LIMIT="off", LOG_LEVEL="warning")
    with ExitStack() as running:
        old = running.enter_context(start())
        path = old.post("/products", {"name": "a"}).headers["location"]
        new = running.enter_context(
            start(app="tests.test_rolling_postgresql:create_newer()", **{NEWER: str(file)})  # type: ignore[arg-type]
        )
        assert old.get(path).status == 200  # its connections are open
        assert REFUSAL in old.get("/readyz").json()["detail"]
        again = start()
        assert again.process.wait(SECONDS) and REFUSAL in again.log.read_text()
        with databases.closed(url):
            pass  # as at the end of the longest life of a connection
        until(lambda: "does not answer" not in old.get(path).json()["detail"])  # an attempt can be of that moment
        for refused in (old.get(path), old.post("/products", {"name": "a"})):
            assert (refused.status, refused.json()["detail"], refused.headers["retry-after"]) == (503, REFUSAL, "1")
        assert new.get(path).status == 200
