"""The application: one request pipeline, in order, as plain calls.

`create_app()` takes its configuration from the environment, `create_app(Config())` is what a test wants: in memory, its
own. `python app.py` serves for development what gunicorn.conf.py serves in deployment.
"""

import errno
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import cli
from config import Config, ConfigError
from errors import Unavailable
from resources import declared, require_free_names, stored
from resources.collection import CollectionHandlers
from resources.events import EventHandlers
from resources.keys import KeyHandlers, note_use
from resources.resource import Resource
from resources.service import PROBES, ServiceHandlers
from resources.webhooks import WebhookHandlers
from storage import Store, open_store
from web import cors, dialects, edge, errors, limits, observe
from web.application import Application
from web.auth import Authenticator, Guard
from web.counters import Counters, Quota, open_counters
from web.failures import Failures
from web.idempotency import Idempotency
from web.mapped import shared_path
from web.tokens import Tokens

PREFIXES = {"": "", "/api/v1": "v1_"}  # of paths and of their endpoints; the unversioned path is the current version


def create_app(
    config: Config | None = None, resources: Sequence[Resource] | None = None, *, lazily: bool = False
) -> Application:
    """The WSGI application, with the collections of the `resources` package unless others are given.

    Its store is opened now, or `lazily` when it is first used, as for a command. With a configuration, raises
    Unavailable when the store or the counters cannot be opened. Without one it is a program that starts, and what
    stops the start is one line to its user.
    """
    if config is None:
        try:
            return create_app(Config.from_env(), resources, lazily=cli.is_running())
        except (ConfigError, Unavailable) as error:
            sys.exit(f"restkeeper: {error}")
    resources = declared() if resources is None else resources
    require_free_names(resources)
    store = open_store(
        config.database_url,
        stored(resources),
        synchronous=config.sqlite_synchronous,
        min_free_space=config.min_free_space,
        lazily=lazily,
    )
    app = Application("restkeeper", static_folder=None)
    app.url_map.merge_slashes = False
    counters = open_counters(app, _counters_file(config, store, lazily=lazily), config.redis_url)
    failures = Failures(Quota("failures", config.failure_quota, counters) if config.failure_quota else None, counters)
    authenticator = _authenticator(config, store, failures)
    local_only = config.auth == "open"
    guard = Guard(authenticator, required=config.auth == "required", local_only=local_only)
    app.extensions["restkeeper"] = {
        "config": config,
        "store": store,
        "resources": resources,
        "authenticator": authenticator,
        "guard": guard,
    }

    if config.trusted_proxies:
        app.wsgi_app = edge.TrustedProxies(app.wsgi_app, config.trusted_proxies)  # type: ignore[method-assign]

    # A request's way, in order; what runs after the handler runs in the opposite order.
    access_log = observe.access_log(config.log_format, config.log_level)
    metrics = observe.install(app, access_log)  # id and clock; a log line and the numbers
    errors.install(app)  # whatever is raised, as one shape
    edge.install(  # a sane address, of this service
        app,
        config.max_url,
        config.trusted_hosts,
        local_only=local_only,
        count_refused_host=failures.count_refused_host,
    )
    cors.install(app, config.cors_origins, local_only=local_only)  # which pages may read; before anyone is asked
    app.before.append(guard.identify)  # who calls
    _install_limits(app, config, counters)  # how often, and how much
    app.before.append(guard.authorize)  # what they may do
    # version: which one, and whether it is deprecated
    idempotency = Idempotency(config.idempotency_ttl, required=config.idempotency == "required")
    for resource in resources:  # once, then the handler: load, precondition, store, represent
        routes = CollectionHandlers(resource, store, config, idempotency).blueprint()
        dialects.install(routes, resource.collection)  # what others' clients write, in our words
        for prefix, name in PREFIXES.items():
            app.register_blueprint(routes, url_prefix=f"{prefix}/{resource.name}", name=name + resource.name)
    app.register_blueprint(KeyHandlers(resources, store, config, idempotency).blueprint(), url_prefix="/api/v1/keys")
    webhooks = WebhookHandlers(resources, store, config, idempotency)
    app.register_blueprint(webhooks.blueprint(), url_prefix="/api/v1/webhooks")
    app.register_blueprint(EventHandlers(resources, store, config).blueprint(), url_prefix="/api/v1/events")
    app.register_blueprint(ServiceHandlers(resources, list(PREFIXES), store, config, metrics, failures).blueprint())
    guard.learn(app)

    cli.install(app)  # flask keys | import | export | backup | restore | migrate | reap | deliver
    return app


def _authenticator(config: Config, store: Store, failures: Failures) -> Authenticator:
    tokens = Tokens(config.jwt_issuer, config.jwt_audience, config.jwt_jwks) if config.jwt_jwks else None
    return Authenticator(store, note_use(store), failures=failures, admin_key=config.admin_key, tokens=tokens)


def _counters_file(config: Config, store: Store, *, lazily: bool) -> Path | None:
    """What all that serve one database on this machine count in. None for a database in memory, which is one process's
    own, and for a command, which answers no requests."""
    return None if lazily or config.database_url == "memory://" else shared_path(store.secret)


def _install_limits(app: Application, config: Config, counters: Counters) -> None:
    quotas = {name: Quota(name, text, counters) for name, text in config.quotas.items()}
    write_bytes = None
    if config.write_quota:
        write_bytes = Quota("write-bytes", config.write_quota, counters, unit="content-bytes")
    limits.install(app, quotas, write_bytes=write_bytes, exempt=PROBES)


def _is_taken(host: str, port: int) -> bool:
    """Whether a program listens there already."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def main() -> None:
    """Serve for development: gunicorn with its configuration file, after a word of welcome."""
    os.environ.setdefault("AUTH", "open")  # on this machine alone: Config sees to that
    os.environ.setdefault("WEBHOOK_WORKER", "inside")
    try:
        config = Config.from_env()
    except ConfigError as error:
        sys.exit(f"restkeeper: {error}")
    if _is_taken(config.host, config.port):
        sys.exit(f"restkeeper: PORT='{config.port}': another program listens there; set PORT to a free one")
    base = f"http://{config.host}:{config.port}"
    print(f"""\
Restkeeper serves at {base}

  docs        {base}/docs
  data        {config.database_url}
  first call  curl {base}/products -H 'Content-Type: application/json' -d '{{"name": "Desk lamp", "price": 49.90}}'

Stop it with Ctrl-C.
""")
    sys.stdout.flush()
    here = Path(__file__).resolve().parent
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "gunicorn", "--config", str(here / "gunicorn.conf.py")]
    os.execv(sys.executable, command)  # noqa: S606 - anew, for gevent must come before what is imported here


if __name__ == "__main__":
    main()
