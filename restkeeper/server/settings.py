"""The production defaults of gunicorn. The environment configures a deployment (docs/configuration.md).

docs/architecture.md has the reasons for the worker class.
"""

import gc
import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from pathlib import Path
from threading import local
from typing import Any

import gunicorn

from restkeeper import mistakes
from restkeeper.config import HARNESS_IS_LOCAL, OPEN_IS_LOCAL, ConfigError
from restkeeper.server.environment import read_config

# On USR2 `python -m gunicorn` starts again as a file: on the path, its folder would hide the standard library's `http`.
_gunicorn = Path(gunicorn.__file__).resolve().parent
sys.path[:] = [path for path in sys.path if Path(path).resolve() != _gunicorn]

_FOLDER = "restkeeper-prometheus-"  # begins the names of folders


def _make_folder(parent: str) -> str:
    """A new folder, locked until this process and all its forks have ended. Those of killed processes are deleted."""
    for each in Path(parent).glob(f"{_FOLDER}*"):
        with suppress(OSError):  # another user's, in use, or deleted by another process at this moment
            descriptor = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
                shutil.rmtree(each)
            finally:
                os.close(descriptor)
    while True:
        folder = tempfile.mkdtemp(prefix=_FOLDER, dir=parent)
        with suppress(FileNotFoundError):  # another process that starts now deleted it, before it was locked
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            flock(descriptor, LOCK_EX)
            if os.path.exists(folder):
                return folder  # the descriptor is not closed: the lock ends with this process and its forks
            os.close(descriptor)


gc.disable()  # until `when_ready`: a collection writes to the memory that workers share with the master

os.environ.setdefault("AUTH", "required")  # secure by default
_config = read_config()

# The folder of the workers' metrics; it must be set before the first import of prometheus_client. It is in memory: the
# files are mapped, and writing to a mapped file on a full disk ends the process. A new master (USR2) needs another
# folder than the old one, which deletes its own at its end. A test harness has none, as each space counts for itself in
# its one worker: a killed one leaves nothing.
_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()  # noqa: S108
os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
if not _config.harness:
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = _make_folder(_memory)

from gevent import monkey  # noqa: E402

monkey.patch_ssl()  # the imports below import ssl; a worker would patch it too late

from gunicorn.config import make_settings  # noqa: E402
from gunicorn.errors import AppImportError  # noqa: E402

from restkeeper.feature import loaded  # noqa: E402
from restkeeper.features import SERVER_PARTS  # noqa: E402
from restkeeper.server.exchange import FIELDS, GRACEFUL, KEEPALIVE, LINE  # noqa: E402
from restkeeper.server.start import (  # noqa: E402
    END_SECONDS,
    announce,
    examine,
    parent_has_ended,
    parts_of,
    reached,
    run_beside,
    set_bounds,
    show_error,
)
from restkeeper.server.worker import NO_PRELOAD, Worker  # noqa: E402
from restkeeper.service import Service, locate_store, service_of, started_stores  # noqa: E402
from restkeeper.storage.errors import StoreError  # noqa: E402
from restkeeper.web.application import Application  # noqa: E402
from restkeeper.web.observe import configure_logging  # noqa: E402

# Settings of gunicorn that the worker does not read, and what to set.
_UNUSED = {
    "accesslog": "the service logs each request on standard error; set LOG_FORMAT and LOG_LEVEL",
    "statsd_host": "set METRICS_TOKEN and read /metrics",
    "forwarded_allow_ips": "set TRUSTED_PROXIES",
    "proxy_protocol": "let the proxy send X-Forwarded-For, and set TRUSTED_PROXIES",
    "pre_request": "use Flask's before_request in the service",
    "post_request": "use Flask's after_request in the service",
}

_forking = local()


def _block_stop() -> None:
    """A new process loses a signal that reaches it before Python's part of the fork has ended: SIGTERM waits."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _restore_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


os.register_at_fork(before=_block_stop, after_in_parent=_restore_signals, after_in_child=_restore_signals)

try:
    _location = locate_store(_config)
except ConfigError as error:
    sys.exit(f"restkeeper: {error}")

for _part in SERVER_PARTS.values():
    loaded(_part).share()

wsgi_app = "app:create_app()"
bind = f"[{_config.host}]:{_config.port}" if ":" in _config.host else f"{_config.host}:{_config.port}"
workers = _config.web_concurrency  # default: the number of cores
worker_class = "restkeeper.server.worker.Worker"
limit_request_line = limit_request_field_size = LINE  # gunicorn's maximum
limit_request_fields = FIELDS
keepalive = KEEPALIVE
timeout = 30  # seconds without a heartbeat until a worker is replaced
graceful_timeout = 0 if _config.harness else GRACEFUL  # a test does not wait for requests in progress
if "RESTKEEPER_FD" in os.environ:  # who has saved a file waits for the end; see `reload`
    graceful_timeout, Worker.idle_grace = 1, 0.05
worker_connections = set_bounds(Worker, _config)
control_socket_disable = True  # it would be created in the home folder
accesslog = None  # the application logs requests
loglevel = "warning"


TRIAL_SECONDS = 30  # for a program that is reloaded

# About the application, before the first worker.
_found: dict[str, Any] = {"collections": [], "can_call": True, "pages": {}}


def on_starting(server: Any) -> None:
    """Create the application once before any worker. This migrates the store, and prints errors only once."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(0))
    if (found := _try_application(server.app)) is None:
        sys.exit(1)
    _found.update(found)
    server.reload = partial(_reload, server, server.reload)
    server.reexec = partial(_reexec, server, server.reexec)


def _reload(server: Any, reload: Callable[[], None]) -> None:
    """Reload, on HUP, a program that starts. Another one would end the service, as gunicorn tries it in the workers."""
    if _try_application(server.app, server.cfg.address) is None:
        print("restkeeper: HUP: the new program does not start; the former one goes on", file=sys.stderr)
    else:
        reload()


def _reexec(server: Any, reexec: Callable[[], None]) -> None:
    """Start the new program, on USR2. A fork that cannot execute it ends here: else it stops the service."""
    master, (interpreter, program, *_) = os.getpid(), server.START_CTX["args"]
    folder = Path(server.START_CTX["cwd"])
    for path, mode in ((interpreter, os.X_OK), (folder / program, os.R_OK)):
        if not os.access(path, mode):
            print(f"restkeeper: USR2: {path} cannot be executed; the former program goes on", file=sys.stderr)
            return
    try:
        reexec()
    except OSError as error:
        print(f"restkeeper: USR2: {interpreter}: {error.strerror}; the former program goes on", file=sys.stderr)
    finally:
        if os.getpid() != master:
            os._exit(1)


def _try_application(app: Any, address: Any = None) -> dict[str, Any] | None:
    """Create the application in a separate process, so that workers inherit no connection or thread.

    Returns what it finds about the application and its store; None after it has printed an error. With `address`, the
    program is one that a running service at this address reloads, and has TRIAL_SECONDS.
    """
    reading, writing = os.pipe()
    if process := os.fork():
        os.close(writing)
        try:
            with os.fdopen(reading) as pipe:
                found: dict[str, Any] = json.loads(pipe.read() or "{}")
        except SystemExit:  # by a signal that stops the start
            os.kill(process, signal.SIGKILL)
            raise
        status = os.waitpid(process, 0)[1]
        if os.WIFSIGNALED(status):
            line = f"signal {(killer := os.WTERMSIG(status))} ({signal.strsignal(killer)}) ended the new program"
            why = f"it took {TRIAL_SECONDS} s" if killer == signal.SIGALRM else "has it enough memory?"
            print(f"restkeeper: {line}: {why}", file=sys.stderr)
        started_stores.update(found.pop("stores", {}))
        return None if status else found
    signal.alarm(TRIAL_SECONDS if address else 0)
    status = 1
    try:
        logging.getLogger("restkeeper").disabled = True  # the workers log the same again, but no wait of the start
        if address:
            app.reload()
        _check_settings(app.cfg, address)
        os.write(writing, json.dumps(_examine(app)).encode())
        status = 0
    except SystemExit as error:
        if isinstance(error.code, str):  # else gunicorn has printed a message
            print(error, file=sys.stderr)
            _report(error.code.removeprefix("restkeeper: "))
    except AppImportError as error:  # it is named on the command line
        print(f"restkeeper: {error} Leave the name out: gunicorn.conf.py has it, app:create_app()", file=sys.stderr)
    except Exception as error:
        show_error(error, _config)
        _report(mistakes.mistake_in(error) or mistakes.line_of(error))
    finally:
        os._exit(status)


def _report(line: str) -> None:
    """Tell the process that started this one for development why it does not start; see `reload`."""
    with suppress(OSError, KeyError):
        os.write(int(os.environ["RESTKEEPER_FAULT"]), line.encode("utf-8", "backslashreplace"))


def _check_settings(cfg: Any, address: Any) -> None:
    """Exit with one line if a setting of gunicorn would not work here; print one for each that has no effect."""
    if cfg.preload_app:
        sys.exit(f"restkeeper: {NO_PRELOAD}")
    if not issubclass(cfg.worker_class, Worker):
        sys.exit(
            f"restkeeper: worker_class={cfg.worker_class_str!r} (-k): has no limits for slow clients; leave it out, or "
            f"name a subclass of {worker_class}"
        )
    if cfg.is_ssl:
        sys.exit("restkeeper: --certfile, --keyfile: TLS is left to a proxy in front, such as nginx; leave them out")
    if _location.temporary and cfg.workers > 1:
        sys.exit(
            f"restkeeper: DATABASE_URL={_location.name!r}: belongs to one process, so WEB_CONCURRENCY must be 1 "
            f"(it is {cfg.workers}); or use sqlite:///FILE"
        )
    if address and address != cfg.address:
        sys.exit("restkeeper: bind: a reload cannot change the address; restart the service")
    for host in {each[0] for each in cfg.address if isinstance(each, tuple)}:
        try:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
                probe.bind((host, 0))
        except OSError as error:
            sys.exit(f"restkeeper: HOST={host!r}: {error.strerror}; must be an address of this machine")
    for name, default in make_settings().items():
        if name in _UNUSED and cfg.settings[name].get() != default.get():
            option = default.cli[-1] if default.cli else name
            print(f"restkeeper: {option} has no effect: {_UNUSED[name]}", file=sys.stderr)


def _examine(app: Any) -> dict[str, Any]:
    """Create the application and open its store; returns what the start prints about them."""
    made = app.load()
    if not isinstance(made, Application):  # app.py may return another WSGI application
        return {}
    service = service_of(made)
    for part in parts_of(service):
        part.check(service)
    found = examine(service)
    service.store.open()
    times = {name: state.converted_at for name, state in service.store.stored().items()}
    service.store.close()
    return found | {"stores": {} if service.location.temporary else {service.location.name: times}}


def when_ready(server: Any) -> None:
    """Refuse open access from other machines; print the addresses, and warnings about the configuration."""
    gc.freeze()  # in four workers and the master it saves 26 of 189 MiB
    gc.enable()
    addresses = {str(listener): listener.sock.getsockname() for listener in server.LISTENERS}
    others = reached(addresses)
    if _config.harness not in ("", "remote") and others:
        sys.exit(f"restkeeper: --bind {others[0]}: {HARNESS_IS_LOCAL}")
    if _config.auth == "open" and others:
        sys.exit(f"restkeeper: --bind {others[0]}: {OPEN_IS_LOCAL}")
    if lifeline := os.environ.get("RESTKEEPER_LIFELINE"):
        threading.Thread(target=_end_with_parent, args=(server, int(lifeline)), daemon=True).start()
    announce(_config, addresses, _location.name, _found)


def _end_with_parent(server: Any, lifeline: int) -> None:
    if parent_has_ended(lifeline):
        os.kill(server.pid, signal.SIGTERM)


def post_fork(server: Any, worker: Any) -> None:
    """Handle the signals to stop and to open the log again from here on, and those that the master's handler queued."""
    os.environ.pop("RESTKEEPER_LIFELINE", None)  # the master's: child processes of a worker must not inherit it
    signal.signal(signal.SIGTERM, worker.handle_exit)
    signal.signal(signal.SIGUSR1, worker.handle_usr1)
    while not server.SIG_QUEUE.empty():
        number = server.SIG_QUEUE.get()
        if number == signal.SIGTERM:
            worker.alive = False
        elif number == signal.SIGUSR1:
            worker.log.reopen_files()


def post_worker_init(worker: Any) -> None:
    """Configure the worker, open its store, and start what features do beside requests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes, and the master tells the workers, too
    configure_logging(_config.log_format, _config.log_level)
    gc.collect()
    gc.freeze()  # excludes the application from collections: a full one took 10 to 40 ms
    if not isinstance(worker.wsgi, Application):
        return
    service = service_of(worker.wsgi)
    # `threading.Thread`, which gevent has patched by now: a class that was imported before makes no greenlet.
    opening = threading.Thread(target=_open_store, args=(service,), name="opening", daemon=True)
    opening.start()
    worker.beside = [*run_beside(worker, service), opening]


def _open_store(service: Service) -> None:
    """Open the store before the first request, if that can be: an open store is not replaced by a restore."""
    with suppress(StoreError):  # each use tries again
        service.store.open()


def worker_exit(server: Any, worker: Any) -> None:
    """Wait a moment for what goes on beside requests, such as deliveries: those that do not finish are sent again.

    Likewise for the opening of the store: one that is half open would not be closed, and the last process to close the
    file moves the log into it.
    """
    for thread in worker.beside:
        thread.join(timeout=END_SECONDS)


def on_exit(server: Any) -> None:
    """Delete the folder of the metrics, in the master."""
    if folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        shutil.rmtree(folder, ignore_errors=True)
