"""The production defaults. What a deployment sets, it sets in the environment (docs/configuration.md).

Why this worker class: a Flask view that returns a constant, 2 workers on 2 cores, keep-alive, medians of 3 interleaved
rounds; then the processor time that a request took, and how long a graceful stop takes beside an idle client.

                             8 connections      64 connections     CPU        stop
                             req/s  p99 ms      req/s  p99 ms      a request
    gthread, 2 threads        6900     4.0       7800    21.1      214 µs
    gthread, 4 threads        7700     4.1       9800    21.5      179 µs
    gthread, 4, C parser      6300     5.3       9600    23.9      178 µs
    gevent                    7800     8.9       9800    27.9      171 µs     30 s
    gevent, C parser          8100     9.3      10200    27.9      161 µs     30 s
    gevent_pywsgi            11000     2.3      12800    16.1      127 µs     30 s
    ours                      6000     1.6      10300    13.5      163 µs     under 1 s

sync has no keep-alive, so that every request pays for a connection, and one slow client holds a process. gthread
bounds no wait for a client: stalled bodies on as many connections as there are threads stop it. gevent_pywsgi is the
fastest, and reads two Content-Length fields, or one beside Transfer-Encoding, without complaint: behind a proxy, a way
to smuggle requests. Ours is gunicorn's gevent worker with gunicorn's own, strict parser in Python (the C parser accepts
bare LF and folded fields), a fair turn for each connection, which costs some speed at few connections and halves the
p99 at many, and a bound on every wait. What SQLite blocks for is shorter than a request, and a long search lets others
work.
"""

import atexit
import gc
import json
import logging
import os
import shutil
import signal
import sys
import traceback
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any

from restkeeper.server.ownfolder import make_folder

DELIVERIES_END_SECONDS = 2.0
LOOKED_UP = 128


def _delete_own_folder() -> None:
    if os.environ.get("RESTKEEPER_METRICS_OWNER") == str(os.getpid()):  # a worker is none
        shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)


# The numbers of all workers meet in files of this folder; it must be known before prometheus_client is first imported.
# They are mapped, and writing to a mapped file on a disk that is full ends the process: memory is the place for them.
# A new master (USR2) inherits the variables of the old one, who deletes its folder when it ends, and so needs another.
_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
_owner = os.environ.get("RESTKEEPER_METRICS_OWNER")
if "PROMETHEUS_MULTIPROC_DIR" not in os.environ or _owner not in (None, str(os.getpid())):
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(make_folder("restkeeper-prometheus-", _memory))
    os.environ["RESTKEEPER_METRICS_OWNER"] = str(os.getpid())
    atexit.register(_delete_own_folder)
os.makedirs(os.environ["PROMETHEUS_MULTIPROC_DIR"], exist_ok=True)

import gevent  # noqa: E402
from gevent import monkey  # noqa: E402

monkey.patch_ssl()  # what is imported below imports ssl, which each worker would come too late to patch

from prometheus_client import values  # noqa: E402

from restkeeper import __version__  # noqa: E402
from restkeeper.config import OPEN_IS_LOCAL, Config, ConfigError, misspelt_settings  # noqa: E402
from restkeeper.features.keys import has_keys  # noqa: E402
from restkeeper.features.webhooks import deliverer_of  # noqa: E402
from restkeeper.features.webhooks.deliverer import keep_delivering  # noqa: E402
from restkeeper.net import is_loopback  # noqa: E402
from restkeeper.service import locate_store, service_of  # noqa: E402
from restkeeper.web.application import Application  # noqa: E402
from restkeeper.web.observe import configure_logging  # noqa: E402

_process = {"id": os.getpid()}  # asking the system each time that something is counted would cost a system call
os.register_at_fork(after_in_child=lambda: _process.update(id=os.getpid()))
values.ValueClass = values.MultiProcessValue(lambda: _process["id"])  # type: ignore[no-untyped-call]

os.environ.setdefault("AUTH", "required")  # what is open has been opened on purpose
for _line in misspelt_settings(os.environ):
    print(f"restkeeper: {_line}", file=sys.stderr)
try:
    _config = Config.from_env()
    _location = locate_store(_config)
    if _location.temporary and _config.web_concurrency > 1:
        raise ConfigError(
            f"DATABASE_URL={_location.name!r}: is one process's own, so WEB_CONCURRENCY must be 1 "
            f"(it is {_config.web_concurrency}); or use sqlite:///FILE"
        )
except ConfigError as error:
    sys.exit(f"restkeeper: {error}")

wsgi_app = "app:create_app()"
bind = f"[{_config.host}]:{_config.port}" if ":" in _config.host else f"{_config.host}:{_config.port}"
workers = _config.web_concurrency  # as many as there are cores
worker_class = "restkeeper.server.worker.Worker"
http_parser = "python"
forwarder_headers = ""  # no client names our SCRIPT_NAME
limit_request_line = 8190  # bytes; the most that gunicorn can be told
limit_request_fields = 100
limit_request_field_size = 8190
keepalive = 75  # seconds; longer than the idle time-outs of the usual proxies (60), so that they close first
timeout = 30  # seconds without a sign of life until a worker is replaced
graceful_timeout = 30  # seconds that requests in flight have to finish
control_socket_disable = True  # it would be opened under the home folder
accesslog = None  # the application writes a line a request
loglevel = "warning"


_found: dict[str, Any] = {"collections": [], "has_keys": True}  # in the application, before any worker was


def on_starting(server: Any) -> None:
    """Make the application once, which migrates the store, before any worker: what is wrong is one line to the user."""
    if (found := _try_application(server.app)) is None:
        sys.exit(1)
    _found.update(found)


def _try_application(app: Any) -> dict[str, Any] | None:
    """Make the application in a process that then ends, for no connection or thread of it must get to the workers.

    The names of its collections, and whether anybody has a key; None when it has printed what is wrong.
    """
    reading, writing = os.pipe()
    if process := os.fork():
        os.close(writing)
        with os.fdopen(reading) as told:
            found: dict[str, Any] = json.loads(told.read() or "{}")
        return None if os.waitpid(process, 0)[1] else found
    status = 1
    try:
        logging.disable()  # the workers say the same again
        if isinstance(made := app.load(), Application):  # what is served may be another one
            service = service_of(made)
            found = {"collections": [each.name for each in service.resources], "has_keys": has_keys(service)}
            service.store.close()
            os.write(writing, json.dumps(found).encode())
        status = 0
    except SystemExit as error:
        print(error, file=sys.stderr)
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def when_ready(server: Any) -> None:
    """Refuse to be open where others reach it; say what is served, and what is missing for anybody to get in."""
    addresses = [listener.sock.getsockname() for listener in server.LISTENERS]
    reached = [address[0] for address in addresses if isinstance(address, tuple) and not is_loopback(address[0])]
    if _config.auth == "open" and reached:
        sys.exit(f"restkeeper: --bind {reached[0]}: {OPEN_IS_LOCAL}")
    if lifeline := os.environ.get("RESTKEEPER_LIFELINE"):
        Thread(target=_end_with_parent, args=(server, int(lifeline)), daemon=True).start()
    if ready := os.environ.pop("RESTKEEPER_READY", ""):
        with suppress(OSError), os.fdopen(int(ready), "w") as told:
            print(server.LISTENERS[0], file=told)
    _welcome([str(listener) for listener in server.LISTENERS], _found["collections"])
    if _config.auth == "open-to-all" and reached:
        print(f"restkeeper: {reached[0]} is open: every caller may do everything", file=sys.stderr)
    if _config.auth != "open" and not _config.trusted_hosts:
        print(
            "restkeeper: TRUSTED_HOSTS is not set: every Host is accepted; set it to your host names", file=sys.stderr
        )
    if _config.auth == "required" and not (_config.admin_key or _found["has_keys"]):
        hint = "nobody can call yet: set ADMIN_KEY, or run: restkeeper keys create NAME --scope admin"
        print(f"restkeeper: {hint}", file=sys.stderr)


def _end_with_parent(server: Any, lifeline: int) -> None:
    """Stop when whoever holds the other end of a pipe has gone."""
    with suppress(OSError):  # there is no such pipe
        os.read(lifeline, 1)
        os.kill(server.pid, signal.SIGTERM)


def _welcome(addresses: list[str], collections: list[str]) -> None:
    """Print what is served and where; to who tries it out, also what to do next."""
    number = f"{len(collections)} collection{'s' if len(collections) != 1 else ''}"
    lines = [f"Restkeeper {__version__} serves {number} at {', '.join(addresses)}, stored in {_location.name}"]
    if os.environ.get("RESTKEEPER_WELCOME"):
        lines += [f"\n  docs        {addresses[0]}/docs"] if _config.docs else []
        lines += [f"  first call  curl {addresses[0]}/{collections[0]}"] if collections else []
        lines += ["\nStop it with Ctrl-C."]
    with suppress(OSError):  # nobody reads it, or it is a file on a full disk
        print("\n".join(lines), flush=True)


def post_fork(server: Any, worker: Any) -> None:
    """Take the signal to stop from here on, and what came before: the master's handler, still set, has swallowed it."""
    os.environ.pop("RESTKEEPER_LIFELINE", None)  # the master's; what a worker starts must not take it for its own
    signal.signal(signal.SIGTERM, worker.handle_exit)
    while not server.SIG_QUEUE.empty():
        if server.SIG_QUEUE.get() == signal.SIGTERM:
            worker.alive = False


def post_worker_init(worker: Any) -> None:
    """Configure the worker, and deliver where that is its business."""
    configure_logging(_config.log_format, _config.log_level)
    gc.collect()
    gc.freeze()  # what has been imported stays: a full collection went through all of it, for 10 to 40 ms
    worker.connections_per_address = None if _config.trusted_proxies else _config.connections_per_address
    if _config.webhook_worker != "inside" or not isinstance(worker.wsgi, Application):
        return
    if "webhooks" in (service := service_of(worker.wsgi)).features:
        gevent.get_hub().threadpool.maxsize = LOOKED_UP  # for names that are looked up at a time: 10 slow ones stop all
        deliverer = deliverer_of(service)
        run = partial(keep_delivering, deliverer, worker.is_stopping)
        worker.delivering = Thread(target=run, name="deliver", daemon=True)  # gevent makes a greenlet of it
        worker.delivering.start()


def worker_exit(server: Any, worker: Any) -> None:
    """Let deliveries that are on their way end, if they end soon; others are sent again."""
    if delivering := getattr(worker, "delivering", None):
        delivering.join(timeout=DELIVERIES_END_SECONDS)
