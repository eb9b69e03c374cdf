"""The application: one request pipeline, in order, as plain calls."""

import sys
from collections.abc import Sequence
from pathlib import Path

from restkeeper import cli
from restkeeper.config import Config, ConfigError
from restkeeper.errors import Unavailable
from restkeeper.resources import require_free_names, stored
from restkeeper.resources.collection import CollectionHandlers
from restkeeper.resources.events import EventHandlers
from restkeeper.resources.keys import KeyHandlers, note_use
from restkeeper.resources.resource import Resource
from restkeeper.resources.service import PROBES, ServiceHandlers
from restkeeper.resources.webhooks import WebhookHandlers
from restkeeper.storage import Store, open_store
from restkeeper.web import cors, dialects, edge, errors, limits, observe
from restkeeper.web.application import Application
from restkeeper.web.auth import Authenticator, Guard
from restkeeper.web.counters import Counters, Quota, open_counters
from restkeeper.web.failures import Failures
from restkeeper.web.idempotency import Idempotency
from restkeeper.web.mapped import shared_path
from restkeeper.web.tokens import Tokens

PREFIXES = {"": "", "/api/v1": "v1_"}  # of paths and of their endpoints; the unversioned path is the current version


def create_app(config: Config | None, resources: Sequence[Resource], *, lazily: bool = False) -> Application:
    """The WSGI application with these collections.

    `Config()` is what a test wants: a store in memory, its own. None takes the configuration from the environment.

    Its store is opened now, or `lazily` when it is first used, as for a command. With a configuration, raises
    Unavailable when the store or the counters cannot be opened. Without one it is a program that starts, and what
    stops the start is one line to its user.
    """
    if config is None:
        try:
            return create_app(Config.from_env(), resources, lazily=cli.is_running())
        except (ConfigError, Unavailable) as error:
            sys.exit(f"restkeeper: {error}")
    require_free_names(resources)
    store = _open_store(config, resources, lazily=lazily)
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


def _open_store(config: Config, resources: Sequence[Resource], *, lazily: bool) -> Store:
    try:
        return open_store(
            config.database_url,
            stored(resources),
            synchronous=config.sqlite_synchronous,
            min_free_space=config.min_free_space,
            lazily=lazily,
        )
    except Unavailable as error:
        raise Unavailable(f"DATABASE_URL={config.database_url!r}: {error.detail}") from error


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
