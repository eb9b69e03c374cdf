"""What a service does on PostgreSQL where the tests of other stores are about SQLite's files."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.service import service_of
from restkeeper.web.application import Application
from tests.live import Gunicorn
from tests.postgresql_server import Databases
from tests.shop import create_app
from tests.waiting import SECONDS, until

# What the server raises when it cannot write.
FULL = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER fail BEFORE INSERT ON events EXECUTE FUNCTION fail()"""

SIZE = """\
SELECT sum(pg_total_relation_size(oid))
FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'other'"""

Execute = Callable[[str], list[tuple[object, ...]]]


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """A new database."""
    made = databases.create_database()
    yield made
    databases.drop_database(made)


@pytest.fixture
def execute(url: str) -> Execute:
    """Executes a statement in the database, besides the service."""

    def execute(statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(url) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    return execute


@pytest.fixture
def app(url: str) -> Iterator[Application]:
    made = create_app(Config(database_url=url))
    yield made
    service_of(made).store.close()


@pytest.fixture
def client(app: Application) -> FlaskClient:
    return app.test_client()


@pytest.mark.needs("events")
def test_a_full_disk_returns_507(client: FlaskClient, execute: Execute) -> None:
    """Nothing of the write is stored, and reads succeed; when there is space, so do writes."""
    where = client.post("/products", json={"name": "x"}).headers["Location"]
    execute(FULL)
    for refused in (client.post("/products", json={"name": "y"}), client.patch(where, json={"name": "y"})):
        assert (refused.status_code, refused.headers["Retry-After"]) == (507, "1")
    assert [item["name"] for item in client.get("/products").json] == ["x"]
    execute("DROP TRIGGER fail ON events")
    assert client.patch(where, json={"name": "y"}).json["version"] == 2


def test_connections_are_as_durable_as_the_database(client: FlaskClient, app: Application, execute: Execute) -> None:
    """A write is on the disk before its response, if the database's settings do not say otherwise."""
    execute("CREATE TABLE seen AS SELECT current_setting('synchronous_commit') AS level, '' AS name LIMIT 0")
    execute("""
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen VALUES (current_setting('synchronous_commit'), current_setting('application_name'));
    RETURN NULL;
END $$""")
    service_of(app).store.open()
    execute("CREATE TRIGGER note AFTER INSERT ON items EXECUTE FUNCTION note()")
    assert client.post("/products", json={"name": "x"}).status_code == 200
    assert execute("SELECT * FROM seen") == [("on", "restkeeper")]


def test_an_import_reports_the_size_of_tables_and_indexes(app: Application, tmp_path: Path, execute: Execute) -> None:
    """That of the store alone, not of other tables."""
    execute("CREATE TABLE other AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
    file = tmp_path / "a.ndjson"
    file.write_text('{"name": "a"}\n')
    result = app.test_cli_runner().invoke(args=["import", "products", str(file)])
    ((size,),) = execute(SIZE)
    assert result.stdout.splitlines()[1] == f"the store has {size:,} bytes now"


@pytest.mark.parametrize(("arguments", "tool"), [(["backup", "copy"], "pg_dump"), (["restore", "copy"], "pg_restore")])
def test_backups_are_made_by_the_tools_of_postgresql(
    app: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], tool: str
) -> None:
    """The message of the command names the tool."""
    monkeypatch.chdir(tmp_path)
    service_of(app).store.open()
    (tmp_path / "copy").write_bytes(b"") if arguments[0] == "restore" else None
    result = app.test_cli_runner().invoke(args=arguments)
    assert (result.exit_code, result.stderr.count("\n"), tool in result.stderr) == (1, 1, True), result.stderr


def test_a_worker_creates_no_store_in_another_database(url: str, tmp_path: Path, execute: Execute) -> None:
    """With an empty one in the place of the service's, requests get 503 until that is back with all its items."""
    with Gunicorn(tmp_path, workers=1, DATABASE_URL=url, RATE_LIMIT="off", FAILURE_LIMIT="off") as server:
        item = server.post("/products", {"name": "Lamp"}).json()
        (worker,) = server.worker_pids()
        execute("ALTER SCHEMA public RENAME TO away; CREATE SCHEMA public")
        assert server.post("/products", {"name": "Lost"}).status == 503
        os.kill(worker, signal.SIGKILL)
        until(lambda: server.worker_pids() not in ([], [worker]))
        for refused in (server.get("/products"), server.post("/products", {"name": "Lost"}), server.get("/readyz")):
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert server.get("/healthz").status == 200
        assert execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace") == [(0,)]
        execute("DROP SCHEMA public; ALTER SCHEMA away RENAME TO public")
        until(lambda: server.get("/readyz").status == 200)
        assert [each["name"] for each in server.get("/products").json()] == ["Lamp"]
        assert server.get(f"/products/{item['id']}").json() == item


def test_a_database_that_does_not_answer_stops_the_start(tmp_path: Path) -> None:
    """One line names it, without the password, and nothing is served."""
    failed = Gunicorn(tmp_path, DATABASE_URL="postgresql://shop:secret@127.0.0.1:1/shop")
    assert failed.process.wait(timeout=SECONDS) != 0
    (line,) = failed.lines()
    assert line.startswith("restkeeper: DATABASE_URL='postgresql://shop@127.0.0.1:1/shop': ") and "secret" not in line
