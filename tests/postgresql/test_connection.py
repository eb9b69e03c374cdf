"""The connections of a process: how many, whose, for how long, and what happens if none can be opened."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from decimal import Decimal
from urllib.parse import urlsplit

import psycopg
import pytest

from restkeeper.storage import shares
from restkeeper.storage.errors import StoreError, StoreFull, StoreUnavailable
from restkeeper.storage.interface import Filter, Op, Query, Sort
from restkeeper.storage.postgresql import failures, limits
from restkeeper.storage.postgresql.pool import Connections, connect
from restkeeper.storage.postgresql.session import Session
from restkeeper.storage.postgresql.store import PostgresStore
from restkeeper.storage.shares import current_caller
from tests.live import ROOT
from tests.postgresql.wire import counted
from tests.postgresql_server import Databases, PostgresServer
from tests.things import THINGS, ids, insert, kept, record
from tests.waiting import SECONDS, until

MOST = 4

Connect = Callable[..., Connections]


@pytest.fixture
def connected() -> Iterator[Connect]:
    """Opens connections, which are closed at the end."""
    with ExitStack() as stack:

        def connect(url: str, most: int = MOST) -> Connections:
            made = Connections(url, most, Session.prepare, time)
            stack.callback(made.close)
            return made

        yield connect


def soon(seconds: float = 0.2) -> float:
    return time.monotonic() + seconds


def used_by(name: str, connections: Connections, stack: ExitStack, deadline: float) -> Session:
    """A connection in use by a caller."""
    current_caller.set(name)
    return stack.enter_context(connections.session(deadline=deadline))


def count(url: str, state: str = "%") -> int:
    """The connections of the service to a database, in this state."""
    select = """\
SELECT count(*)
FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'restkeeper' AND state LIKE %s"""
    with psycopg.connect(url) as connection:
        return int(connection.execute(select, (state,)).fetchall()[0][0])


def test_searches_use_a_fifth_of_the_connections(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a caller half of these. Others wait and then fail, while what an index answers is read.

    A range in another order, which is sorted, is a search, and so is a count of more than unique values.
    """
    store = kept(PostgresStore(url, [THINGS]))
    insert(store, record("a", name="x", price=Decimal(1)))
    search, indexed = Query(search="x"), Query((Filter("price", Op.GTE, Decimal(1)),), sort=(Sort("price"),))
    by_id = Query((Filter("id", Op.EQ, "a"), Filter("name", Op.EQ, "x")))
    monkeypatch.setattr(limits, "ANSWER_SECONDS", 0.2)  # for which a search waits, too
    with ExitStack() as stack:
        for name in ("one", "two"):
            current_caller.set(name)
            stack.enter_context(store._parts.session(is_search=True))
            for read, query in (
                (store.page, search),
                (store.count, search),
                (store.page, Query(indexed.filters)),
                (store.count, indexed),
            ):
                with pytest.raises(StoreUnavailable, match="requests use (1|all 2) connections for searches"):
                    read("things", query)
            assert len(store.page("things", indexed).bodies) == store.count("things", by_id) == 1
            assert store.read("things", "a").id == "a"
            if name == "one":
                current_caller.set("other")
                assert len(store.page("things", search).bodies) == store.count("things", search) == 1
        current_caller.set("three")
        with pytest.raises(StoreUnavailable, match="other requests use all 2 connections for searches"):
            store.page("things", search)
    current_caller.set("")
    assert len(store.page("things", search).bodies) == 1


def test_the_number_of_waiting_uses_is_limited(url: str, connected: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "WAITING", 1)
    connections = connected(url, most=1)
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        used_by("one", connections, stack, soon(SECONDS))
        waiting = pool.submit(lambda: used_by("two", connections, stack, soon(3)))
        until(lambda: bool(connections._shares._waiting))
        with pytest.raises(StoreUnavailable, match="1 requests already wait"):
            used_by("three", connections, stack, soon(SECONDS))
        with pytest.raises(StoreUnavailable):
            waiting.result(SECONDS)


def test_a_statement_ends_in_time(url: str, connected: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_SECONDS", 0.2)
    connections = connected(url)
    with psycopg.connect(url) as other:
        other.execute("CREATE TABLE things (id integer)")
        for statement in ("SELECT pg_sleep(30)", "SELECT * FROM things"):
            start = time.monotonic()
            with pytest.raises(StoreUnavailable), connections.session() as session:
                session.fetch(statement)
            assert time.monotonic() - start < limits.LOCK_SECONDS


def test_an_idle_transaction_is_ended(url: str, connected: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDLE_SECONDS", 0.1)
    connections = connected(url)
    with pytest.raises(StoreUnavailable), connections.session() as session:
        session.begin()
        session.fetch("SELECT 1")
        until(lambda: count(url, "idle in transaction%") == 0)
        session.fetch("SELECT 1")


def test_a_transaction_is_limited_in_time(url: str, connected: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_SECONDS", 0.3)
    connections = connected(url)
    start = time.monotonic()
    with pytest.raises(StoreUnavailable), connections.session() as session:
        session.begin()
        while True:
            session.fetch("SELECT pg_sleep(0.02)")
    assert time.monotonic() - start < SECONDS / 2


def test_what_may_take_any_time_waits_for_a_silent_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SILENT_SECONDS", 0.1)
    with closing(connect(url, is_unlimited=True)) as session:
        assert len(session.fetch("SELECT pg_sleep(0.4)")) == 1


def test_libpq_leaves_a_machine_that_is_gone(url: str) -> None:
    """Each of its limits is below ten seconds, unless the URL has another one."""
    used = ("connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")
    with closing(connect(f"{url}&keepalives_count=9")) as session:
        given = session.info.get_parameters()
    assert [given[name] for name in used] == ["5", "3", "1", "9", "6000"]


def of_us(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "restkeeper"]


def test_connections_that_the_server_closed_are_replaced_at_once(connected: Connect) -> None:
    """Idle ones: nobody gets an error because of them, and nobody waits."""
    with PostgresServer() as server:
        connections = connected(server.create_database())
        with ExitStack() as stack:
            for name in ("one", "one", "other", "other"):
                used_by(name, connections, stack, soon(SECONDS))
        server.cut_connections()
        start = time.monotonic()
        with ExitStack() as stack:
            for name in ("one", "one", "other", "other"):
                assert used_by(name, connections, stack, soon(SECONDS)).fetch("SELECT 1") == [(1,)]
        assert time.monotonic() - start < limits.ANSWER_SECONDS - 0.5
        connections.close()


def works(connections: Connections) -> bool:
    try:
        with connections.session() as session:
            return session.fetch("SELECT 1") == [(1,)]
    except StoreUnavailable:
        return False


@pytest.mark.parametrize(
    ("code", "kind", "detail"),
    [
        ("40001", StoreUnavailable, "others change the same items"),
        ("40P01", StoreUnavailable, "others change the same items"),
        ("53100", StoreFull, "the disk of the database is full"),
        ("53300", StoreUnavailable, "the database has no connection left"),
        ("25006", StoreUnavailable, "a copy that can only be read"),
        ("57014", StoreUnavailable, "for longer than it may (statement_timeout); narrow a search"),
        ("42501", StoreUnavailable, "refuses a right that the service needs"),
        ("42P01", StoreUnavailable, "has no table that the service needs"),
        ("58030", StoreUnavailable, "the database does not answer"),
    ],
)
def test_an_error_of_the_server_is_one_of_the_store(
    url: str, connected: Connect, code: str, kind: type[StoreError], detail: str
) -> None:
    """Without a cause, which the log would have for each request. The connection can be used again."""
    connections = connected(url, most=1)
    raising = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING errcode = '{code}'; END $$"
    with pytest.raises(kind, match=re.escape(detail)) as raised, connections.session() as session:
        session.begin()
        try:
            session.apply(raising)
        finally:
            session.roll_back_if_open()
    assert raised.value.__cause__ is None
    assert works(connections)


@pytest.mark.parametrize("code", ["53100", "58030"])
def test_a_full_disk_is_logged_as_what_it_is(
    url: str, connected: Connect, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    """Also where the server has only an error of the system, as for a temporary file."""
    failures._logged.clear()
    text = 'could not write to file "base/1": No space left on device'
    with pytest.raises(StoreFull), connected(url).session() as session:
        session.fetch(f"DO $$ BEGIN RAISE EXCEPTION '{text}' USING errcode = '{code}'; END $$")
    assert of_us(caplog) == [f"requests get 507: {text}"]


@pytest.mark.parametrize(("first", "second", "refused"), [("psycopg", "gevent", True), ("gevent", "psycopg", False)])
def test_queries_that_would_block_the_process_are_refused(first: str, second: str, refused: bool) -> None:
    """psycopg chooses how to wait when it is imported: that must be after gevent has patched the process."""
    steps = {"gevent": "from gevent import monkey; monkey.patch_all()", "psycopg": "import psycopg.waiting"}
    check = "from restkeeper.storage.postgresql.pool import require_cooperation; require_cooperation()"
    script = "\n".join([steps[first], steps[second], check])
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert ("queries would block it" in done.stderr, done.returncode) == (refused, int(refused)), done.stderr


def test_a_commit_whose_end_was_not_received_is_unknown(url: str) -> None:
    """The server ends the connection after it has committed: the change is stored, and the error does not deny that."""
    with counted(url) as wire:
        store = kept(PostgresStore(wire.url, [THINGS]))
        insert(store, record("a"))
        wire.ends_commits = True
        with pytest.raises(StoreUnavailable, match="not known whether the change was stored"):
            insert(store, record("b"))
        wire.ends_commits = False
        assert ids(store) == ["a", "b"]
        insert(store, record("c"))
        store.close()


def test_an_error_of_a_commit_that_is_not_of_the_server_is_unknown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no SQLSTATE. The change is stored, and nobody is told to repeat it."""
    store, commit = kept(PostgresStore(url, [THINGS])), Session.commit

    def commit_and_fail(session: Session) -> None:
        commit(session)
        raise psycopg.OperationalError("the response was not understood")

    store.open()
    monkeypatch.setattr(Session, "commit", commit_and_fail)
    with pytest.raises(StoreUnavailable, match="not known whether the change was stored") as raised:
        insert(store, record("a"))
    monkeypatch.undo()
    assert type(raised.value) is StoreUnavailable
    assert ids(store) == ["a"]


def test_an_empty_database_is_refused(databases: Databases) -> None:
    """As after a failover to one: a process that had the store creates nothing there."""
    url = databases.create_database()
    store = kept(PostgresStore(url, [THINGS]))
    insert(store, record("a"))
    databases.drop_database(url)
    databases.execute(f"CREATE DATABASE {urlsplit(url).path[1:]} TEMPLATE template0")
    try:
        until(lambda: refusal_of(store) == "the database has no store")
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
    finally:
        store.close()
        databases.drop_database(url)


def refusal_of(store: PostgresStore) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        store.read("things", "a")
    return caught.value.detail
