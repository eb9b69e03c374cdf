"""The connections of a process to PostgreSQL: a pool with shares for callers, and others for one use.

psycopg waits cooperatively if gevent has patched the process before psycopg's first import; `require_cooperation`
checks it. A server that is silent is left by libpq's own time-outs, or if its machine still confirms what it was sent,
as of a process that is paused, by that of `Session.wait`.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress

import psycopg
import psycopg.waiting
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from restkeeper.clock import Clock
from restkeeper.storage.errors import StoreReadOnly, StoreUnavailable, StoreUnreachable
from restkeeper.storage.postgresql import limits
from restkeeper.storage.postgresql.failures import FAILED, translated
from restkeeper.storage.postgresql.session import LIFT_LIMITS, Session
from restkeeper.storage.shares import Shares

_DEFAULTS = {
    "connect_timeout": f"{limits.ANSWER_SECONDS:.0f}",
    "application_name": "restkeeper",
    "keepalives_idle": f"{limits.SILENT_SECONDS / 2:.0f}",
    "keepalives_interval": "1",
    "keepalives_count": f"{limits.SILENT_SECONDS / 2:.0f}",
    "tcp_user_timeout": f"{limits.SILENT_SECONDS * 1000:.0f}",
}


class Connections:
    """The connections of a process: at most `most`, of which one caller uses at most half, and searches a fifth.

    `configure` is called with each new connection, which it has to `prepare`.
    """

    def __init__(self, url: str, most: int, configure: Callable[[Session], None], clock: Clock) -> None:
        require_cooperation()
        logging.getLogger("psycopg").addHandler(logging.NullHandler())  # the log has one line about an outage: ours
        self._url = conninfo_of(url)
        self._clock = clock
        self._configure = configure
        self._shares = Shares("connections of the database", most, max(1, most // 2), clock)
        searches = max(1, most // 5)  # together they get the processor time of the server, and each has a time-out
        self._searches = Shares("connections for searches", searches, max(1, searches // 2), clock)
        self._next_renewal = 0.0
        self._pool = ConnectionPool(
            self._url,
            connection_class=Session,
            kwargs={"autocommit": True},
            min_size=1,
            max_size=most,
            max_idle=limits.LONGEST_IDLE_SECONDS,
            max_lifetime=limits.LONGEST_LIFE_SECONDS,
            reconnect_timeout=0.0,  # the next use tries again
            configure=self._prepare,
            open=True,
        )

    @contextmanager
    def session(
        self, *, deadline: float | None = None, is_unlimited: bool = False, is_search: bool = False
    ) -> Iterator[Session]:
        """A connection that nobody else uses meanwhile; errors are raised as `store_error`.

        It waits for one until `deadline`. Its statements may take any time if it `is_unlimited`.
        """
        deadline = self._clock.monotonic() + limits.ANSWER_SECONDS if deadline is None else deadline
        with self._searches.use(deadline) if is_search else nullcontext(), self._shares.use(deadline):
            session = self._take(deadline)
            session.is_unlimited = is_unlimited
            try:
                with translated():
                    yield session
            except (StoreReadOnly, StoreUnreachable) as error:
                session.close()  # the pool opens another one, perhaps to another server
                if isinstance(error, StoreReadOnly):
                    self._renew()
                raise
            finally:
                self._pool.putconn(session)

    def _renew(self) -> None:
        """Replace the other connections, too: after a switchover they lead to a server that only reads.

        Where they all lead to a standby, that is not done for each change that is refused.
        """
        if (now := self._clock.monotonic()) >= self._next_renewal:
            self._next_renewal = now + limits.RENEW_SECONDS
            self._pool.drain()

    def close(self) -> None:
        self._pool.close(timeout=limits.OPEN_SECONDS)

    def _take(self, deadline: float) -> Session:
        """An open connection: an idle one, or one that the pool opens. Raises StoreUnavailable.

        Whether the server has closed an idle one is looked at here: the pool's `check` of each is a round trip, and it
        pauses before the next one.
        """
        while True:
            try:
                session = self._pool.getconn(timeout=limits.OPEN_SECONDS)
            except PoolClosed:
                raise StoreUnavailable("the service stops") from None
            except PoolTimeout:
                self._require_server()
                if self._clock.monotonic() >= deadline:
                    raise StoreUnavailable(FAILED) from None
                continue
            with suppress(psycopg.Error):  # the server has closed it; this sends nothing, and does not wait
                session.pgconn.consume_input()  # the server's last words, if there are any,
                session.pgconn.consume_input()  # and then the end
                if not session.closed:
                    return session
            self._pool.putconn(session)  # which opens another

    def _require_server(self) -> None:
        """Raises StoreUnavailable with the reason why no connection can be opened, which the pool does not tell."""
        with translated(), closing(Session.connect(self._url, autocommit=True)) as session:
            self._configure(session)

    def _prepare(self, session: Session) -> None:
        try:
            self._configure(session)
        except BaseException:
            session.close()  # which the pool does not do
            raise


def require_cooperation() -> None:
    """Raises RuntimeError if gevent has patched this process, but only after psycopg had chosen how to wait."""
    gevent, blocking = sys.modules.get("gevent.monkey"), getattr(psycopg.waiting, "wait_c", None)
    if gevent and gevent.is_module_patched("select") and psycopg.waiting.wait is blocking:
        raise RuntimeError("psycopg was imported before gevent had patched this process: queries would block it")


def connect(url: str, *, is_unlimited: bool = False) -> Session:
    """Open a connection besides the pool. If it `is_unlimited`, as for a migration, its statements have no time-out."""
    conninfo = conninfo_of(url)
    with translated():
        session = Session.connect(conninfo, autocommit=True)
        encoding = session.info.parameter_status("server_encoding")
        if encoding not in (None, "UTF8"):
            session.close()
            raise StoreUnavailable(f"the database has the encoding {encoding}; create it with ENCODING 'UTF8'")
        session.is_unlimited = is_unlimited
        session.prepare_threshold = None  # DROP and ALTER would delete all that is prepared
        session.prepare()
        if is_unlimited:
            session.fetch(LIFT_LIMITS, (False,))
    return session


def conninfo_of(url: str) -> str:
    """The connection string of a URL with our defaults: a machine that is gone is noticed also by a long statement.

    Raises StoreUnavailable if libpq does not understand it.
    """
    try:
        settings = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # whose text can have the password
        raise StoreUnavailable("the URL has a parameter that does not exist, or a part that is not escaped") from None
    return make_conninfo(url, **{**_DEFAULTS, **settings, "client_encoding": "utf8"})
