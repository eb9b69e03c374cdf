"""The application: one request pipeline, in order, as plain calls."""

import sys
import time
from collections.abc import Sequence

from restkeeper import cli
from restkeeper.clock import Clock
from restkeeper.config import Config, ConfigError
from restkeeper.errors import Unavailable
from restkeeper.features import cors, dialects
from restkeeper.features.events.handlers import EventHandlers
from restkeeper.features.idempotency import Idempotency
from restkeeper.features.jwt.tokens import Tokens
from restkeeper.features.keys.handlers import KeyHandlers, note_use
from restkeeper.features.limits import requests as limits
from restkeeper.features.limits.counters import Counters, Quota, open_counters
from restkeeper.features.limits.failures import Failures
from restkeeper.features.limits.mapped import shared_path
from restkeeper.features.webhooks.handlers import WebhookHandlers
from restkeeper.resources.collection import CollectionHandlers
from restkeeper.resources.resource import Resource
from restkeeper.resources.service import PROBES, ServiceHandlers
from restkeeper.service import EXTENSION, Service, make_service
from restkeeper.web import edge, errors, observe
from restkeeper.web.application import Application
from restkeeper.web.auth import Authenticator, Guard

PREFIXES = {"": "", "/api/v1": "v1_"}  # of paths and of their endpoints; the unversioned path is the current version


def create_app(
    config: Config | None, resources: Sequence[Resource], *, clock: Clock = time, lazily: bool = False
) -> Application:
    """The WSGI application with these collections.

    `Config()` is what a test wants: a store in memory, its own. None takes the configuration from the environment.
    `clock` tells the time everywhere: a test may have one that it moves.

    Its store is opened now, or `lazily` when it is first used, as for a command. With a configuration, raises
    Unavailable when the store or the counters cannot be opened. Without one it is a program that starts, and what
    stops the start is one line to its user.
    """
    if config is None:
        try:
            return create_app(Config.from_env(), resources, clock=clock, lazily=cli.is_running())
        except (ConfigError, Unavailable) as error:
            sys.exit(f"restkeeper: {error}")
    service = make_service(config, resources, clock=clock, lazily=lazily)
    store = service.store
    app = Application("restkeeper", static_folder=None)
    app.url_map.merge_slashes = False
    app.extensions[EXTENSION] = service
    counters = _open_counters(app, service, lazily=lazily)
    failures = Failures(_quota("failures", config.failure_quota, service, counters), counters, now=clock.time)
    local_only = config.auth == "open"
    guard = Guard(_authenticator(service, failures), required=config.auth == "required", local_only=local_only)
    app.extensions["restkeeper.guard"] = guard

    if config.trusted_proxies:
        app.wsgi_app = edge.TrustedProxies(app.wsgi_app, config.trusted_proxies)  # type: ignore[method-assign]

    # A request's way, in order; what runs after the handler runs in the opposite order.
    access_log = observe.access_log(config.log_format, config.log_level)
    metrics = observe.install(app, access_log, now=clock.time)  # id and clock; a log line and the numbers
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
    _install_limits(app, service, counters)  # how often, and how much
    app.before.append(guard.authorize)  # what they may do
    # version: which one, and whether it is deprecated
    idempotency = Idempotency(config.idempotency_ttl, required=config.idempotency == "required", now=clock.time)
    for resource in resources:  # once, then the handler: load, precondition, store, represent
        routes = CollectionHandlers(resource, store, config, idempotency, clock=clock).blueprint()
        dialects.install(routes, resource.collection)  # what others' clients write, in our words
        for prefix, name in PREFIXES.items():
            app.register_blueprint(routes, url_prefix=f"{prefix}/{resource.name}", name=name + resource.name)
    keys = KeyHandlers(resources, store, config, idempotency, clock=clock)
    app.register_blueprint(keys.blueprint(), url_prefix="/api/v1/keys")
    webhooks = WebhookHandlers(resources, store, config, idempotency, clock=clock)
    app.register_blueprint(webhooks.blueprint(), url_prefix="/api/v1/webhooks")
    events = EventHandlers(resources, store, config, clock=clock)
    app.register_blueprint(events.blueprint(), url_prefix="/api/v1/events")
    app.register_blueprint(ServiceHandlers(resources, list(PREFIXES), store, config, metrics, failures).blueprint())
    guard.learn(app)

    cli.install(app)  # flask keys | import | export | backup | restore | migrate | reap | deliver
    return app


def _authenticator(service: Service, failures: Failures) -> Authenticator:
    config, now = service.config, service.clock.time
    tokens = Tokens(config.jwt_issuer, config.jwt_audience, config.jwt_jwks, now=now) if config.jwt_jwks else None
    note = note_use(service.store)
    return Authenticator(service.store, note, failures=failures, admin_key=config.admin_key, tokens=tokens, now=now)


def _open_counters(app: Application, service: Service, *, lazily: bool) -> Counters:
    """What all that serve one database on this machine count in; a process by itself for a database in memory, which is
    its own, and for a command, which answers no requests."""
    alone = lazily or service.config.database_url == "memory://"
    shared = None if alone else shared_path(service.store.secret)
    return open_counters(app, shared, service.config.redis_url, clock=service.clock)


def _quota(name: str, text: str, service: Service, counters: Counters, unit: str = "") -> Quota | None:
    return Quota(name, text, counters, unit=unit, now=service.clock.time) if text else None


def _install_limits(app: Application, service: Service, counters: Counters) -> None:
    named = {name: _quota(name, text, service, counters) for name, text in service.config.quotas.items()}
    quotas = {name: quota for name, quota in named.items() if quota}
    write_bytes = _quota("write-bytes", service.config.write_quota, service, counters, unit="content-bytes")
    limits.install(app, quotas, write_bytes=write_bytes, exempt=PROBES)
