"""What a service does on PostgreSQL where the tests of other stores are about SQLite's files."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.service import service_of, started_stores
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.feed import last_event
from restkeeper.storage.postgresql import failures, limits, store
from restkeeper.stores import START_SECONDS
from restkeeper.web.application import Application
from tests.clock import SetClock
from tests.live import Gunicorn
from tests.postgresql_server import Databases
from tests.processes import of_session
from tests.shop import create_app
from tests.waiting import SECONDS, until

# What the server raises when it cannot write.
FULL = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER fail BEFORE INSERT ON events EXECUTE FUNCTION fail()"""

Execute = Callable[[str], list[tuple[object, ...]]]


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


@pytest.mark.needs("events")
def test_a_restore_by_other_tools_is_noted(client: FlaskClient, app: Application) -> None:
    """The command gives the store a new history: what clients have of the lost one is refused or read again."""
    client.post("/products", json={"name": "kept"})
    listed, newest = client.get("/products").headers["ETag"], last_event(service_of(app).store)
    result = app.test_cli_runner().invoke(args=["restore"])
    assert (result.exit_code, result.stdout) == (0, f"restored {service_of(app).location.name}: 1 products\n")
    assert client.get("/products", headers={"If-None-Match": listed}).status_code == 200
    client.post("/products", json={"name": "new"})
    assert [each["data"]["name"] for each in client.get(f"/api/v1/events?after={newest}").json] == ["new"]
    assert last_event(service_of(app).store).split("_")[1] != newest.split("_")[1]


def test_an_empty_database_was_not_restored(url: str) -> None:
    result = create_app(Config(database_url=url), serves=False).test_cli_runner().invoke(args=["restore"])
    assert (result.exit_code, result.stderr) == (1, "Error: the database has no store\n")


def test_a_worker_creates_no_store_in_another_database(url: str, tmp_path: Path, execute: Execute) -> None:
    """With an empty one in the place of the service's, requests get 503 until that is back with all its items."""
    with Gunicorn(tmp_path, workers=1, DATABASE_URL=url, RATE_LIMIT="off", bounds={"failure_limit": "off"}) as server:
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


@pytest.fixture
def guest(databases: Databases, url: str) -> Iterator[str]:
    """The URL of the database for a user who has no rights but to connect."""
    name = f"guest_{uuid4().hex[:8]}"
    databases.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'p'")
    host = urlsplit(url).netloc.rpartition("@")[2]
    yield urlsplit(url)._replace(netloc=f"{name}:p@{host}").geturl()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {name}")
    databases.execute(f"DROP ROLE {name}")


def test_missing_rights_are_named(
    guest: str, url: str, execute: Execute, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start, in the log, and for clients without the name of what they are missing for."""
    with pytest.raises(StoreUnavailable, match=r"refuses a right .* \(permission denied for schema public\)$"):
        create_app(Config(database_url=guest))
    service_of(create_app(Config(database_url=url))).store.close()
    role = urlsplit(guest).username
    execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; REVOKE ALL ON items FROM {role}")
    monkeypatch.setitem(started_stores, guest, {})
    app = create_app(Config(database_url=guest))
    failures._logged.clear()
    refused = app.test_client().get("/readyz"), app.test_client().get("/products")
    assert {each.status_code for each in refused} == {503}
    assert "permission denied" not in "".join(each.text for each in refused)
    service_of(app).store.close()
    assert [line for line in caplog.messages if "permission denied for table items" in line], caplog.messages


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding_stops_the_start(databases: Databases, encoding: str) -> None:
    """It could not store every text; one line says what would be right."""
    name = f"test_{uuid4().hex[:16]}"
    databases.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    try:
        with pytest.raises(StoreUnavailable, match=f"the encoding {encoding}; create it with ENCODING 'UTF8'$"):
            create_app(Config(database_url=databases.url(name)))
    finally:
        databases.drop_database(databases.url(name))


@pytest.mark.needs("events")
def test_a_committed_create_does_not_wait_for_the_numbering(
    client: FlaskClient, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside locks of others it is skipped; the feed has all events in order when they are free."""
    monkeypatch.setattr(store, "SEQUENCED", 1)
    client.post("/products", json={"name": "before"})
    for number, lock in enumerate(("SELECT FROM feed FOR UPDATE", "LOCK TABLE feed IN ACCESS EXCLUSIVE MODE")):
        with psycopg.connect(url) as other:
            other.execute(lock.encode())
            start = time.monotonic()
            assert client.post("/products", json={"name": f"beside {number}"}).status_code == 200
            assert time.monotonic() - start < limits.LOCK_SECONDS / 2
    client.post("/products", json={"name": "after"})
    names = [event["data"]["name"] for event in client.get("/api/v1/events").json]
    assert names == ["before", "beside 0", "beside 1", "after"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_that_waits_can_be_stopped(tmp_path: Path, number: int) -> None:
    waiting = Gunicorn(tmp_path, start_new_session=True, DATABASE_URL="postgresql://127.0.0.1:1/shop")
    until(lambda: "waits up to" in waiting.log.read_text())
    waiting.process.send_signal(number)
    assert waiting.process.wait(timeout=SECONDS) == 0
    until(lambda: not of_session(waiting.process.pid))
    assert len(waiting.lines()) == 1


def test_a_database_that_stays_away_ends_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After START_SECONDS. One line says that it waits, and one why it ends, without the password."""
    clock = SetClock()
    monkeypatch.setenv("DATABASE_URL", "postgresql://shop:secret@127.0.0.1:1/shop")
    with pytest.raises(SystemExit) as ended:
        create_app(clock=clock)
    problem = "DATABASE_URL='postgresql://shop@127.0.0.1:1/shop': the database does not answer"
    assert str(ended.value).startswith(f"restkeeper: {problem}") and "secret" not in str(ended.value)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"restkeeper: waits up to 60 s for the store: {problem}") and "secret" not in line
    assert sum(clock.slept) >= START_SECONDS
