"""The PostgreSQL of the tests: its faults, its collation, and that none is left."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.live import ROOT
from tests.postgresql_server import Databases, PostgresServer, shared_server
from tests.postgresql_stores import run_folder
from tests.postgresql_supervisor import processes
from tests.processes import state
from tests.waiting import SECONDS, until

USER = """
import sys, time
from pathlib import Path
from tests.postgresql_server import shared_server
server = shared_server(Path(sys.argv[1]))
print(server.folder, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresServer]:
    """A server of these tests alone, which they stop."""
    with PostgresServer(tcp=True) as running:
        yield running


@pytest.fixture(scope="module")
def database(postgresql: PostgresServer) -> str:
    url = postgresql.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE words AS SELECT word FROM unnest(ARRAY['b', 'a', 'B', 'A']) word")
    return url


def words(database: str) -> list[str]:
    with psycopg.connect(database) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY word")]


def test_the_default_collation_is_the_reverse_of_code_points(database: str) -> None:
    """An order without a collation is wrong at once. Lower case is that of all letters."""
    assert words(database) == ["b", "a", "B", "A"]
    with psycopg.connect(database) as connection:
        ordered = connection.execute('SELECT word FROM words ORDER BY word COLLATE "C"').fetchall()
        assert ordered == [("A",), ("B",), ("a",), ("b",)]
        assert connection.execute("SELECT lower('Ä')").fetchone() == ("ä",)


@pytest.mark.parametrize("end", ["stop", "crash", "kill"])
def test_a_server_starts_again_with_its_data_at_its_address(
    postgresql: PostgresServer, database: str, end: str
) -> None:
    """After a fast stop, an immediate one and kill -9. Meanwhile connections are refused."""
    {"stop": postgresql.stop, "crash": lambda: postgresql.stop(immediate=True), "kill": postgresql.kill}[end]()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(database)
    postgresql.start()
    assert words(database) == ["b", "a", "B", "A"]


def test_a_paused_server_responds_later(postgresql: PostgresServer, database: str) -> None:
    """All of its processes stop: those of open connections, and the one that accepts new ones."""
    with psycopg.connect(database, autocommit=True) as connection:
        postgresql.pause()
        try:
            connection.pgconn.send_query(b"SELECT 1")
            assert {state(pid) for pid in processes(postgresql.data)} == {"T"}
        finally:
            postgresql.resume()
        while connection.pgconn.get_result():
            pass
    assert words(database) == ["b", "a", "B", "A"]


def test_connections_are_cut(postgresql: PostgresServer, database: str) -> None:
    """Those of all clients; new ones are accepted."""
    with psycopg.connect(database) as connection:
        postgresql.cut_connections()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert words(database)


def test_a_server_on_tcp_is_on_a_port(postgresql: PostgresServer) -> None:
    with socket.create_connection(("127.0.0.1", postgresql.port)):
        assert f"@127.0.0.1:{postgresql.port}/" in postgresql.administration


def test_a_durable_server_waits_for_the_disk() -> None:
    """And the others do not, which makes them fast."""
    with PostgresServer(durable=True) as server, psycopg.connect(server.administration) as connection:
        names = ("fsync", "synchronous_commit", "full_page_writes", "autovacuum")
        assert [connection.execute(f"SHOW {name}").fetchone() for name in names] == [("on",)] * 4


def test_a_database_is_new_and_can_be_dropped(pytestconfig: pytest.Config) -> None:
    """Also while it has connections."""
    databases = shared_server(run_folder(pytestconfig))
    url = databases.create_database()
    with psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert tables == []
        databases.drop_database(url)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_another_server_can_be_used(
    postgresql: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """TEST_DATABASE_URL is any database of it, in which databases can be created."""
    monkeypatch.setenv("TEST_DATABASE_URL", f"{postgresql.administration}?application_name=tests")
    other = shared_server(tmp_path)
    assert type(other) is Databases
    url = other.create_database()
    assert url.startswith(f"postgresql://postgres@127.0.0.1:{postgresql.port}/test_") and url.endswith(
        "?application_name=tests"
    )
    with psycopg.connect(url):
        pass
    other.drop_database(url)


def test_processes_share_a_server_which_ends_after_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they are killed. A later one starts another."""
    monkeypatch.delenv("TEST_DATABASE_URL", raising=False)
    command = [sys.executable, "-c", USER, str(tmp_path)]
    users = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        first, second = (Path(user.stdout.readline().strip()) for user in users if user.stdout)
        assert first == second
        kill(users[0])
        with psycopg.connect(f"postgresql://postgres@/postgres?host={first}"):
            kill(users[1])
            until(lambda: not first.exists())
    finally:
        for user in users:
            kill(user)
    assert not processes(first / "data")


def kill(user: "subprocess.Popen[str]") -> None:
    user.send_signal(signal.SIGKILL)
    user.communicate(timeout=SECONDS)
