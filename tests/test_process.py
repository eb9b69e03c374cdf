"""The processes of the service: how they start, are replaced and end, and which files they delete."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import gunicorn
import pytest

from tests import stores
from tests.issuer import jwk
from tests.live import ROOT, Gunicorn, send
from tests.ports import free_ports
from tests.processes import children, of_session, open_files, state
from tests.waiting import SECONDS, until

TOKENS = {"JWT_ISSUER": "https://issuer.example", "JWT_AUDIENCE": "here"}


def started(folder: Path, *command: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """A start by `python -m`, which has ended."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PORT": "0", **settings},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def metrics_folder(pid: int) -> Path:
    """The folder that a process locks for the metrics of its workers."""
    (folder,) = {each for each in open_files(pid) if "restkeeper-prometheus-" in Path(each).name}
    return Path(folder)


def configuration(folder: Path, code: str = "") -> Path:
    """A configuration file of gunicorn: the engine's settings, and then this code."""
    file = folder / "conf.py"
    file.write_text(f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
exec(open({str(ROOT / "restkeeper/server/settings.py")!r}).read())
{code}
""")
    return file


@pytest.mark.parametrize("locked", [False, True], ids=["before it is open", "before it is locked"])
def test_a_folder_of_metrics_that_another_start_deletes_is_made_again(tmp_path: Path, locked: bool) -> None:
    """Each start deletes the folders that nobody has locked: one that another process made a moment ago, too."""
    file = configuration(tmp_path)
    deleted = tmp_path / "deleted"
    file.write_text(f"""
import fcntl, os, shutil, tempfile
from pathlib import Path
make, lock, made = tempfile.mkdtemp, fcntl.flock, Path({str(deleted)!r})
def delete(folder):
    if not made.exists() and "restkeeper-prometheus-" in str(folder):
        shutil.rmtree(folder)
        made.write_text(str(folder))
def mkdtemp(**options):
    folder = make(**options)
    if not {locked}:
        delete(folder)
    return folder
def flock(descriptor, operation):
    if {locked} and operation == fcntl.LOCK_EX:
        delete(os.readlink(f"/proc/self/fd/{{descriptor}}"))
    lock(descriptor, operation)
tempfile.mkdtemp, fcntl.flock = mkdtemp, flock
{file.read_text()}
tempfile.mkdtemp, fcntl.flock = make, lock
""")
    with Gunicorn(tmp_path, "-c", str(file), workers=1) as server:
        assert server.get("/products").status == 200
        folder = metrics_folder(server.process.pid)
        assert folder.is_dir() and str(folder) != deleted.read_text()


def test_a_worker_that_cannot_start_ends_the_service(tmp_path: Path) -> None:
    """Later errors are not retried endlessly either: the service ends, and says why."""
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [jwk("ES256")]}))
    with Gunicorn(tmp_path, workers=1, JWT_JWKS=str(file), **TOKENS) as server:
        file.write_text("{}")
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGKILL)
        assert server.process.wait(timeout=SECONDS) == 4  # gunicorn's APP_LOAD_ERROR
        assert server.log.read_text().count("restkeeper: JWT_JWKS=") == 1


SERVICE = "from tests.shop import create_app\n"
SECRET = "a-token-for-who-scrapes-me"  # noqa: S105
KILLS = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
KILLED = "restkeeper: signal 9 (Killed) ended the new program: has it enough memory?\n"
FAULTS = {  # of a file: what it has then, and what the error says
    "does not compile": ("service.py", f"{SERVICE}\ndef (\n", "SyntaxError"),
    "is killed": ("service.py", KILLS, KILLED),
    "takes too long": (
        "service.py",
        "import time\ntime.sleep(600)",
        "(Alarm clock) ended the new program: it took 1 s",
    ),
    "has a wrong option": ("conf.py", "workers = 'many'", "many"),
    "has a wrong setting": ("secret", "x", "METRICS_TOKEN"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_program_that_does_not_start_at_a_reload_leaves_the_former_one(tmp_path: Path, fault: str) -> None:
    """HUP says why, and changes nothing; the next one, after the fault is mended, starts new workers."""
    (tmp_path / "service.py").write_text(SERVICE)
    (tmp_path / "secret").write_text(SECRET)
    file = configuration(tmp_path, "TRIAL_SECONDS = 1" if fault == "takes too long" else "")
    name, content, message = FAULTS[fault]
    settings = {"PYTHONPATH": str(tmp_path), "METRICS_TOKEN_FILE": str(tmp_path / "secret")}
    with Gunicorn(tmp_path, "-c", str(file), workers=1, app="service:create_app()", **settings) as server:
        former, sound = server.worker_pids(), (tmp_path / name).read_text()
        (tmp_path / name).write_text(f"{sound}\n{content}\n" if name == "conf.py" else content)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "restkeeper: HUP: the new program does not start" in server.log.read_text())
        assert message in server.log.read_text()
        assert server.get("/products").status == 200 and server.worker_pids() == former
        if fault == "takes too long":
            return  # a sound program can take longer, too
        (tmp_path / name).write_text(sound)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(pids := server.worker_pids()) == 1 and pids != former)
        assert server.get("/products").status == 200


@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda python: (python.unlink(), python.write_text("x"), python.chmod(0o755))]
)
def test_a_program_that_cannot_be_executed_leaves_the_former_one(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    """USR2 while its interpreter is missing, or is none, says so, and ends no process."""
    (python := tmp_path / "python").symlink_to(sys.executable)
    packages = str(Path(gunicorn.__file__).parents[1])
    with Gunicorn(tmp_path, workers=1, python=python, PYTHONPATH=packages) as server:
        former = server.worker_pids()
        spoil(python)
        server.process.send_signal(signal.SIGUSR2)
        until(lambda: f"restkeeper: USR2: {python}" in server.log.read_text())
        until(lambda: children(server.process.pid) == former)
        assert server.get("/products").status == 200
        assert server.worker_pids() == former


@pytest.mark.parametrize("files", [160, 96])
def test_connections_are_limited_by_descriptors(tmp_path: Path, files: int) -> None:
    """A process that may have few files closes the connection that waits longest, so that each new one is served."""
    file = configuration(tmp_path, f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))")
    with Gunicorn(tmp_path, "-c", str(file), workers=1) as server, ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(server.connect())
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(1024).startswith(b"HTTP/1.1 200")
        assert "Traceback" not in server.log.read_text()


def test_a_start_that_is_killed_says_so(tmp_path: Path) -> None:
    """With the signal: as the system kills what takes too much memory."""
    (tmp_path / "service.py").write_text(KILLS)
    server = Gunicorn(tmp_path, workers=1, app="service:create_app()", PYTHONPATH=str(tmp_path))
    assert server.process.wait(SECONDS) == 1
    assert server.log.read_text() == KILLED


def test_a_start_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    """While the program still starts."""
    waits = f"import pathlib, time\npathlib.Path({str(tmp_path / 'waits')!r}).touch()\ntime.sleep(600)"
    (tmp_path / "service.py").write_text(waits)
    server = Gunicorn(tmp_path, workers=1, app="service:create_app()", PYTHONPATH=str(tmp_path))
    until((tmp_path / "waits").exists)
    (trial,) = children(server.process.pid)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(SECONDS) == 0
    until(lambda: state(trial) in ("", "Z"))


def test_a_wrong_declaration_stops_the_start(tmp_path: Path) -> None:
    """The document is built once before any worker starts, so that a handler's fault is not found by a client."""
    (tmp_path / "wrong.py").write_text("""
from restkeeper.web.handlers import CollectionHandlers
from restkeeper.web.operations import Parameter, takes
from tests.shop import create_app
takes(Parameter("wrong", lambda handlers: handlers.no_such_name))(CollectionHandlers.read_item)
""")
    failed = Gunicorn(tmp_path, app="wrong:create_app()", PYTHONPATH=str(tmp_path))
    assert failed.process.wait(timeout=SECONDS) == 1
    log = failed.log.read_text()
    assert "no_such_name" in log and "serves" not in log


@pytest.mark.parametrize(
    "command",
    [
        [Path(sys.executable).with_name("gunicorn")],
        pytest.param([sys.executable, "-m", "gunicorn"], marks=pytest.mark.matrix),
    ],
)
def test_a_new_master_has_its_own_folder(tmp_path: Path, command: list[str | Path]) -> None:
    """After a reload, a new program beside the old one, and the end of the old one, requests succeed."""
    (port,) = free_ports(1)
    url = stores.url(f"sqlite:///{tmp_path}/restkeeper.db")
    environ = {"PATH": os.environ["PATH"], "DATABASE_URL": url}
    environ |= {"PORT": str(port), "WEB_CONCURRENCY": "1", "AUTH": "open", "LOG_LEVEL": "error"}
    environ["METRICS_TOKEN"] = 24 * "m"

    def status() -> int:
        try:
            return send(port, "GET", "/products").status
        except ConnectionError:
            return 0

    old = subprocess.Popen([*command, "-c", ROOT / "gunicorn.conf.py"], cwd=ROOT, env=environ, start_new_session=True)
    try:
        until(lambda: status() == 200)
        first = set(of_session(old.pid))
        folder = metrics_folder(old.pid)
        old.send_signal(signal.SIGHUP)
        until(lambda: len(now := set(of_session(old.pid))) == 2 and now != first)
        assert metrics_folder(old.pid) == folder
        old.send_signal(signal.SIGUSR2)
        until(lambda: len(of_session(old.pid)) == 4)
        until(lambda: status() == 200)
        old.send_signal(signal.SIGTERM)
        old.wait(SECONDS)
        assert not folder.exists()
        assert [status() for _ in range(10)] == [200] * 10
        (another,) = {metrics_folder(process) for process in of_session(old.pid)}
        assert any(another.iterdir())
    finally:
        with suppress(ProcessLookupError):
            os.killpg(old.pid, signal.SIGKILL)
        old.wait(SECONDS)
        until(lambda: not of_session(old.pid))


def test_the_folder_of_a_killed_service_is_deleted(tmp_path: Path) -> None:
    """A folder without running processes is deleted at the next start; that of a running service is not."""
    killed = Gunicorn(tmp_path, workers=1, start_new_session=True)
    with killed:
        folder = metrics_folder(killed.process.pid)
        os.killpg(killed.process.pid, signal.SIGKILL)
    until(lambda: not of_session(killed.process.pid))
    with Gunicorn(tmp_path, workers=1) as server:
        own = metrics_folder(server.process.pid)
        assert own.exists() and not folder.exists()
        with Gunicorn(tmp_path, workers=1):
            assert own.exists()
    assert not own.exists()


@pytest.mark.matrix
@pytest.mark.parametrize("signals", [("HUP", "TERM"), ("TERM", "HUP"), ("HUP", "HUP", "TERM"), ("HUP", "QUIT")])
def test_signals_in_sequence_leave_no_process(tmp_path: Path, signals: tuple[str, ...]) -> None:
    """A reload that a stop interrupts ends like any other, and all processes with it."""
    with Gunicorn(tmp_path, workers=2, start_new_session=True) as server:
        folder = metrics_folder(server.process.pid)
        for name in signals:
            server.process.send_signal(getattr(signal, f"SIG{name}"))
        assert server.process.wait(timeout=SECONDS) == 0
        until(lambda: not of_session(server.process.pid))
        assert not folder.exists()


def test_a_signal_during_the_fork_stops_a_worker(tmp_path: Path) -> None:
    """A worker that is sent SIGTERM before it has run at all stops, and another takes its place."""
    early = tmp_path / "early"
    config = configuration(
        tmp_path,
        f"""
import os, signal
fork = os.fork
def fork_and_stop():
    os.fork = fork
    if pid := fork():
        os.kill(pid, signal.SIGTERM)
        open({str(early)!r}, "w").write(str(pid))
    return pid
def pre_fork(server, worker):
    if not os.path.exists({str(early)!r}):
        os.fork = fork_and_stop
""",
    )
    with Gunicorn(tmp_path, "-c", str(config), workers=1) as server:
        until(lambda: early.exists() and server.worker_pids() not in ([], [int(early.read_text() or 0)]))
        assert server.get("/healthz").status == 200


def test_a_long_poll_ends_with_its_client(tmp_path: Path) -> None:
    """If a waiting client disconnects, its request ends long before the time-out."""
    with Gunicorn(tmp_path, workers=1) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET /api/v1/events?wait=30 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            began = time.monotonic()
            assert server.get("/healthz").status == 200
        until(lambda: "path=/api/v1/events" in server.log.read_text())
        assert time.monotonic() - began < 25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preload"], "preload_app (--preload) is not supported: "),
        (["-k", "gevent"], "worker_class='gevent' (-k): has no limits for slow clients; leave it out, or name a "),
        (
            ["app:app"],
            "Failed to find attribute 'app' in 'app'. Leave the name out: gunicorn.conf.py has it, app:create_",
        ),
        (["--certfile", "/dev/null"], "--certfile, --keyfile: TLS is left to a proxy in front, such as nginx; "),
    ],
)
def test_a_server_that_would_not_hold_is_refused(tmp_path: Path, options: list[str], message: str) -> None:
    """With `--preload` locks would be of threads, and block a worker's greenlets; other workers have no limits;
    a connection with TLS would get no response; and a name that app.py does not have is no application.
    """
    server = started(tmp_path, "-m", "gunicorn", "-c", ROOT / "gunicorn.conf.py", *options)
    assert server.returncode == 1
    assert server.stderr.splitlines()[-1].startswith(f"restkeeper: {message}")


def test_options_without_effect_are_named(tmp_path: Path) -> None:
    """A line at the start says what to set in place of each option of gunicorn that the worker does not read."""
    config = configuration(tmp_path, "def pre_request(worker, request): ...")
    options = ("--access-logfile", "-", "--statsd-host", "127.0.0.1:9", "--forwarded-allow-ips", "*")
    with Gunicorn(tmp_path, "-c", str(config), *options, workers=1) as server:
        lines = [line for line in server.lines() if "has no effect" in line]
    assert lines == [
        "restkeeper: --forwarded-allow-ips has no effect: set TRUSTED_PROXIES",
        "restkeeper: --access-logfile has no effect: the service logs each request on standard error; set LOG_FORMAT "
        "and LOG_LEVEL",
        "restkeeper: --statsd-host has no effect: set METRICS_TOKEN and read /metrics",
        "restkeeper: pre_request has no effect: use Flask's before_request in the service",
    ]


def test_a_start_as_a_file_finds_the_standard_library_behind_a_link(tmp_path: Path) -> None:
    """On USR2 `python -m gunicorn` starts as a file, whose folder is on the path, with links resolved."""
    packages = tmp_path / "packages"
    packages.symlink_to(Path(gunicorn.__file__).resolve().parent.parent)
    command = (packages / "gunicorn/__main__.py", "-c", ROOT / "gunicorn.conf.py", "--check-config")
    done = started(ROOT, *command, PYTHONPATH=str(packages), DATABASE_URL="memory://")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_printed_addresses_have_the_prefix(tmp_path: Path) -> None:
    """Of SCRIPT_NAME, without which there is nothing."""
    with Gunicorn(tmp_path, SCRIPT_NAME="/shop", RESTKEEPER_WELCOME="1") as server:
        assert server.get("/shop/healthz").status == 200
        port = server.port
    log = server.log.read_text()
    assert f" at http://127.0.0.1:{port}/shop, " in log and f"curl http://127.0.0.1:{port}/shop/products" in log


WORKERS = "must be a whole number from 1 to 256"
WRONG = [
    *(("WEB_CONCURRENCY", value, WORKERS) for value in ("", "auto", "1.5")),  # gunicorn reads it at its import
    *(("SCRIPT_NAME", value, "must be a path such as /shop") for value in ("shop", "/my shop", "/shop?x", "//shop")),
    ("PAGE_LIMIT", "0", "must be a whole number from 1 to 10000"),
    (
        *("DATABASE_URL", "memory://"),
        "belongs to one process, so WEB_CONCURRENCY must be 1 (it is 2); or use sqlite:///FILE",
    ),
]


@pytest.mark.parametrize(("name", "value", "right"), WRONG)
def test_a_wrong_setting_of_the_server_stops_the_start(tmp_path: Path, name: str, value: str, right: str) -> None:
    """With one line, also for those that are no fields of Config."""
    settings = {"WEB_CONCURRENCY": "2", name: value}
    server = started(tmp_path, "-m", "restkeeper", "serve", "--no-reload", ROOT, **settings)
    assert server.returncode == 1
    assert server.stderr == f"restkeeper: {name}={value!r}: {right}\n"


def test_an_address_of_another_machine_stops_the_start(tmp_path: Path) -> None:
    """With one line, in place of gunicorn's for each of its attempts."""
    settings = {"HOST": "192.0.2.1", "AUTH": "open-to-all", "DATABASE_URL": f"sqlite:///{tmp_path}/store.db"}
    refused = started(ROOT, "-m", "gunicorn", "-c", ROOT / "gunicorn.conf.py", "--workers", "1", **settings)
    assert refused.returncode == 1
    assert re.fullmatch(r"restkeeper: HOST='192\.0\.2\.1': .+; must be an address of this machine\n", refused.stderr)
