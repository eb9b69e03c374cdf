"""The application: one request pipeline, in order, as plain calls.

`create_app()` takes its configuration from the environment, `create_app(Config())` is what a test wants: in memory, its
own. `python app.py` serves for development what gunicorn.conf.py serves in deployment.
"""

import errno
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from gunicorn.app.wsgiapp import run as serve

import cli
from config import Config, ConfigError
from errors import Unavailable
from resources import declared
from resources.collection import CollectionHandlers
from resources.resource import Resource
from resources.service import ServiceHandlers
from storage import open_store
from web import cors, dialects, edge, errors, observe
from web.application import Application

PREFIXES = {"": "", "/api/v1": "v1_"}  # of paths and of their endpoints; the unversioned path is the current version


def create_app(config: Config | None = None, resources: Sequence[Resource] | None = None) -> Application:
    """The WSGI application, with the collections of the `resources` package unless others are given.

    With a configuration, raises Unavailable when the store cannot be opened. Without one it is a program that starts,
    and what stops the start is one line to its user.
    """
    if config is None:
        try:
            return create_app(Config.from_env(), resources)
        except (ConfigError, Unavailable) as error:
            sys.exit(f"restkeeper: {error}")
    resources = declared() if resources is None else resources
    store = open_store(
        config.database_url, [each.collection for each in resources], synchronous=config.sqlite_synchronous
    )
    app = Application("restkeeper", static_folder=None)
    app.url_map.merge_slashes = False
    app.extensions["restkeeper"] = {"config": config, "store": store, "resources": resources}

    if config.trusted_proxies:
        app.wsgi_app = edge.TrustedProxies(app.wsgi_app, config.trusted_proxies)  # type: ignore[method-assign]

    # A request's way, in order; what runs after the handler runs in the opposite order.
    access_log = observe.access_log(config.log_format, config.log_level)
    metrics = observe.install(app, access_log)  # id and clock; a log line and the numbers
    errors.install(app)  # whatever is raised, as one shape
    edge.install(app, config.max_url, config.trusted_hosts)  # a sane address, of this service
    cors.install(app, config.cors_origins)  # which pages may read; preflights are answered before anyone is asked
    # authenticate: who calls
    # rate limit: how often
    # version: which one, and whether it is deprecated
    for resource in resources:  # idempotency, then the handler: load, precondition, store, represent
        routes = CollectionHandlers(resource, store, config).blueprint()
        dialects.install(routes, resource.collection)  # what others' clients write, in our words
        for prefix, name in PREFIXES.items():
            app.register_blueprint(routes, url_prefix=f"{prefix}/{resource.name}", name=name + resource.name)
    app.register_blueprint(ServiceHandlers(resources, list(PREFIXES), store, config, metrics).blueprint())

    cli.install(app)  # flask import | export | backup | migrate
    return app


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
    sys.argv = ["gunicorn", "--config", str(Path(__file__).with_name("gunicorn.conf.py"))]
    serve()


if __name__ == "__main__":
    main()
