"""Probes: whether the process responds, and whether it can serve requests."""

from flask import Blueprint, Response

from restkeeper.errors import Unavailable
from restkeeper.service import Service
from restkeeper.storage import Store
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.web.application import Application, Reply
from restkeeper.web.auth import PROBE, needs
from restkeeper.web.exactjson import JSON, require_acceptable
from restkeeper.web.operations import Result, returns

HEALTH = Result("No part has failed.", {JSON: "Health"})
_HEADERS = {"Cache-Control": "no-store"}


def install(app: Application, service: Service) -> None:
    """Serve /healthz and /readyz."""
    handlers = HealthHandlers(service.store)
    routes = Blueprint("health", __name__)
    routes.add_url_rule("/healthz", view_func=handlers.read_health)
    routes.add_url_rule("/readyz", view_func=handlers.read_readiness)
    app.register_blueprint(routes)


class HealthHandlers:
    """The handlers of the probes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @needs(PROBE)
    @returns(HEALTH)
    def read_health(self) -> Response:
        """Whether the process responds."""
        require_acceptable(JSON)
        return Reply(b'{"status":"ok"}', content_type=JSON, headers=_HEADERS)

    @needs(PROBE)
    @returns(HEALTH)
    def read_readiness(self) -> Response:
        """Whether requests can be served; 503 names the part that fails; the log has the cause."""
        require_acceptable(JSON)
        try:
            self._store.check()
        except StoreUnavailable as error:
            raise Unavailable(f"store: {error.detail}") from (error if error.__cause__ else None)
        return Reply(b'{"status":"ok","store":"ok"}', content_type=JSON, headers=_HEADERS)
