"""A failover to a standby that has not received the last changes."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import ConnectionPool

from restkeeper.storage import Options, locate
from restkeeper.storage.base import Store
from restkeeper.storage.errors import EventsExpired, StoreReadOnly, StoreUnavailable
from restkeeper.storage.feed import find_events
from restkeeper.storage.postgresql import limits
from restkeeper.storage.postgresql.pool import Connections
from restkeeper.storage.postgresql.session import Session
from tests.clock import SetClock
from tests.live import Gunicorn
from tests.outbox import THINGS as FILTER
from tests.outbox import all_of, event
from tests.outbox import record as record_events
from tests.postgresql_server import OWNER, PostgresServer
from tests.things import THINGS, ids, insert, open_store, record
from tests.waiting import until


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A primary that standbys can follow."""
    with PostgresServer(durable=True) as running:
        yield running


def opened(url: str) -> Store:
    return open_store(url, [THINGS])


def turn_read_only(connections: Connections) -> None:
    """Let three connections lead to a primary that became a standby, as it were, and new ones elsewhere."""
    with ExitStack() as stack:
        for session in [stack.enter_context(connections.session()) for _ in range(3)]:
            session.apply("SET default_transaction_read_only = on")


@pytest.mark.matrix
def test_writes_work_soon_after_a_switchover(server: PostgresServer, tmp_path: Path) -> None:
    """A standby takes the place of its primary, which follows it. The address of both changes last.

    Until then new connections, too, lead to a server that only reads.
    """
    (address := tmp_path / "address").symlink_to(server.folder)
    url = server.create_database()
    url = f"postgresql://{OWNER}@/{url.partition('?')[0].rpartition('/')[2]}?host={address}"
    with ExitStack() as stack:
        standby = PostgresServer(durable=True)
        stack.callback(standby.close)
        standby.copy(server)
        standby.follow(server)
        standby.start()
        service = stack.enter_context(Gunicorn(tmp_path, DATABASE_URL=url, RATE_LIMIT="off"))

        def created() -> int:
            return service.post("/products", {"name": "Lamp"}).status

        kept = [created() for _ in range(20)]
        server.stop()
        standby.execute("SELECT pg_promote()")
        server.follow(standby)
        server.start()
        until(lambda: service.get("/products").status == 200)
        assert [created() for _ in range(20)] == [503] * 20
        (tmp_path / "other").symlink_to(standby.folder)
        (tmp_path / "other").rename(address)
        moved = monotonic()
        until(lambda: [created() for _ in range(20)] == [200] * 20)
        assert monotonic() - moved < 10 and kept == [200] * 20


def test_a_standby_is_not_left_at_every_change(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the connection that met the refusal is; all of them at intervals. Reads go on."""
    clock, renewals = SetClock(), list[float]()
    monkeypatch.setattr(ConnectionPool, "drain", lambda _: renewals.append(clock.now))
    store: Any = open_store(url, [THINGS], Options(clock=clock))
    start = clock.now
    assert ids(store) == []  # by the connection that is opened first
    with psycopg.connect(url) as database:
        name = sql.Identifier(database.info.dbname)
        database.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
    turn_read_only(store._parts)
    for seconds in (0.0, limits.RENEW_SECONDS / 2, limits.RENEW_SECONDS / 2):
        clock.now += seconds
        with pytest.raises(StoreReadOnly):
            insert(store, record("a"))
        with pytest.raises(StoreReadOnly):
            store.check()  # as /readyz does
        assert ids(store) == []
    assert renewals == [start, start + limits.RENEW_SECONDS]


@pytest.mark.parametrize("code", ["25006", "57P01", "57P02", "57P03", "57P05"])
@pytest.mark.parametrize("is_write", [False, True], ids=["read", "write"])
def test_a_connection_that_its_server_leaves_is_not_put_back(url: str, code: str, is_write: bool) -> None:
    """The server has turned read-only, or its administrator ends connections: also if this one is still open."""
    store: Any = opened(url)
    raising = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING errcode = '{code}'; END $$"
    used: list[Session] = []

    def use(session: Session) -> None:
        used.append(session)
        session.apply(raising)

    with pytest.raises(StoreUnavailable):
        store.write(lambda transaction: use(transaction.database)) if is_write else store.read_with(use)
    assert used[0].closed
    insert(store, record("a"))


@pytest.mark.matrix
def test_after_a_restore_the_history_of_an_older_standby_is_another_one(server: PostgresServer) -> None:
    """`restkeeper restore` is the step after a failover that lost commits: nothing is taken for what is lost."""
    url = server.create_database()
    with closing(opened(url)) as store:
        insert(store, record("kept"))
        kept = record_events(store, event())
        server.replicate()
        insert(store, *(record(f"lost {number}") for number in range(3)))
        lost = record_events(store, event(), event())
        change_token = store.change_token("things")
    server.fail_over()
    locate(url).restore(None, discard=False)
    with closing(opened(url)) as store:
        insert(store, *(record(f"new {number}") for number in range(3)))
        new = record_events(store, event(), event())
        assert ids(store) == ["kept", "new 0", "new 1", "new 2"]
        assert (
            store.change_token("things") != change_token
            and store.change_token("things").partition("-")[2] == change_token.partition("-")[2]
        )
        assert not set(lost) & set(new) and all_of(store) == [*kept, *new]
        with pytest.raises(EventsExpired) as raised:
            find_events(store, lost[0], FILTER, 10)
        assert [each.id for each in find_events(store, raised.value.resume, FILTER, 10).events] == [*kept, *new]
