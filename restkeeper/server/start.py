"""The start of a server: its bounds, what it prints, and what its processes do beside requests."""

import json
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import gevent

from restkeeper import __version__, mistakes
from restkeeper.config import Config
from restkeeper.feature import ServerPart, loaded
from restkeeper.features import SERVER_PARTS
from restkeeper.net import is_loopback, most_files
from restkeeper.resources import grouping, searches
from restkeeper.server.exchange import CONNECTIONS, Exchange
from restkeeper.service import Service
from restkeeper.storage import groups, related
from restkeeper.web import tables
from restkeeper.web.observe import SHORT

# What a service loads with the first request that needs it. A server has it before: no request waits for an import, and
# the workers of gunicorn share its memory.
LOADED = (grouping, searches, groups, related, tables)

END_SECONDS = 2.0  # for which the end of a process waits for what it does beside requests
LOOKUP_THREADS = 128  # concurrent look-ups of names; with gevent's default, 10 slow ones would block all


def set_bounds(exchange: type[Exchange], config: Config) -> int:
    """Set the bytes of bodies that an exchange holds; returns how many connections it has."""
    if config.harness or config.auth == "open":  # all callers are one: they have one machine, or one address
        exchange.body_limit = exchange.body_share = (256 if config.harness else 32) * 2**20
    if config.harness:  # 200 spaces share them, and have 3 files each: none is closed for those of another test
        return int(max(100, min(5 * CONNECTIONS, most_files() - 800)))
    return CONNECTIONS


def show_error(error: Exception, config: Config) -> None:
    """Print why there is no application."""
    if config.log_format in SHORT and config.log_level != "debug" and not mistakes.mistake_in(error):
        print(mistakes.own_traceback(error), file=sys.stderr)
    else:
        sys.excepthook(type(error), error, error.__traceback__)


def parts_of(service: Service) -> list[ServerPart]:
    """What a server does for the open features of a service."""
    return [loaded(part) for name, part in SERVER_PARTS.items() if name in service.features]


def examine(service: Service) -> dict[str, Any]:
    """What the start prints about a service."""
    paths = {rule.rule for rule in service.app.url_map.iter_rules()}
    return {
        "collections": [quote(each.public_name) for each in service.resources],
        "can_call": any(kind.exist() for kind in service.guard.identifying.functions),
        "pages": {name: path for name in ("docs", "browse") if (path := service.app.service_path(f"/{name}")) in paths},
    }


def reached(addresses: Mapping[str, Any]) -> list[str]:
    """Those of these addresses, of sockets by their URLs, that other machines can reach."""
    return [each[0] for each in addresses.values() if isinstance(each, tuple) and not is_loopback(each[0])]


def announce(config: Config, addresses: Mapping[str, Any], store: str, found: Mapping[str, Any]) -> None:
    """Tell the process that waits for it; print the addresses, and warnings about the configuration."""
    prefix = os.environ.get("SCRIPT_NAME", "").rstrip("/")
    opened = [url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:") + prefix for url in addresses]
    if ready := os.environ.pop("RESTKEEPER_READY", ""):
        with suppress(OSError), os.fdopen(int(ready), "w") as pipe:
            print(opened[0], file=pipe)
    _welcome(config, opened, store, found)
    others = reached(addresses)
    if config.auth == "open-to-all" and others:
        print(f"restkeeper: {others[0]} is open: every caller may do everything", file=sys.stderr)
    if config.trusted_proxies and others:
        print(
            f"restkeeper: TRUSTED_PROXIES={config.trusted_proxies}: who reaches {others[0]} without your proxies "
            "chooses the address that limits see; let only them reach it (HOST=127.0.0.1, if they run on this machine)",
            file=sys.stderr,
        )
    if config.auth != "open" and not config.trusted_hosts:
        print(
            "restkeeper: TRUSTED_HOSTS is not set: every Host is accepted; set it to your host names", file=sys.stderr
        )
    if config.auth == "required" and not found["can_call"]:
        more = "" if "RESTKEEPER_FILE" in os.environ else ", or run: restkeeper keys create NAME --scope admin"
        print(f"restkeeper: no caller can authenticate yet: set ADMIN_KEY{more}", file=sys.stderr)


def _welcome(config: Config, addresses: list[str], store: str, found: Mapping[str, Any]) -> None:
    """Print the collections and addresses; for `restkeeper serve` also the next steps; of a harness just addresses."""
    if os.environ.get("RESTKEEPER_WELCOME") == "0":
        return
    collections = found["collections"]
    number = f"{len(collections)} collection{'s' if len(collections) != 1 else ''}"
    source = f"of {os.environ['RESTKEEPER_FILE']}" if "RESTKEEPER_FILE" in os.environ else f"stored in {store}"
    lines = [f"Restkeeper {__version__} serves {number} at {', '.join(addresses)}, {source}"]
    if os.environ.get("RESTKEEPER_WELCOME"):
        lines += ["", *(f"  {name:<11} {addresses[0]}{path}" for name, path in found["pages"].items())]
        lines += [f"  first call  curl {addresses[0]}/{collections[0]}"] if collections else []
        lines += ["\nStop it with Ctrl-C."]
    if config.harness:
        below = f"{addresses[0]}/__harness__"
        lines = [json.dumps({"url": addresses[0], "spaces": f"{below}/spaces", "openapi": f"{below}/openapi.json"})]
    with suppress(OSError):  # closed, or a file on a full disk
        os.write(int(os.environ.get("RESTKEEPER_STDOUT", "1")), "\n".join([*lines, ""]).encode())


def parent_has_ended(lifeline: int) -> bool:
    """Wait until the process at the other end of a pipe ends; False if there is no such pipe."""
    try:
        os.read(lifeline, 1)
    except OSError:
        return False
    return True


def run_beside(exchange: Exchange, service: Service) -> list[threading.Thread]:
    """Start what features do beside requests, until the exchange stops or has another application."""
    app = service.app

    def is_stopping() -> bool:
        return not exchange.alive or exchange.wsgi is not app

    gevent.get_hub().threadpool.maxsize = LOOKUP_THREADS
    return [thread for part in parts_of(service) if (thread := part.run(service, is_stopping))]
