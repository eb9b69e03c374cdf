"""The PostgreSQL of the tests: its faults, its collation, and that none is left."""

import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.live import ROOT
from tests.postgresql_server import PostgresServer
from tests.postgresql_supervisor import processes
from tests.waiting import SECONDS, until

USER = """
import sys, time
from pathlib import Path
from tests.postgresql_server import shared_server
server = shared_server(Path(sys.argv[1]))
print(server.folder, flush=True)
time.sleep(600)
"""


def test_the_default_collation_is_the_reverse_of_code_points() -> None:
    """An order without a collation is wrong at once. Lower case is that of all letters."""
    words = "SELECT string_agg(word, '' ORDER BY word), lower('Ä') FROM unnest(ARRAY['b', 'a', 'B', 'A']) AS word"
    with PostgresServer() as server, psycopg.connect(server.create_database()) as connection:
        assert connection.execute(words).fetchone() == ("baBA", "ä")


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
