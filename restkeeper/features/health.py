"""Probes: whether the process responds, and whether it can serve requests."""

from flask import Blueprint, Response, current_app

from restkeeper import exactjson
from restkeeper.errors import Unavailable
from restkeeper.feature import Seams
from restkeeper.service import Service, service_of
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.stores import warnings_of
from restkeeper.web.application import Reply
from restkeeper.web.auth import PROBE, needs
from restkeeper.web.bodies import JSON, require_acceptable
from restkeeper.web.operations import Result, returns

HEALTH = Result("No part has failed.", {JSON: "Health"})
_HEADERS = {"Cache-Control": "no-store"}


def install(service: Service) -> Seams:
    """Serve /healthz and /readyz."""
    routes = Blueprint("health", __name__)
    routes.add_url_rule("/healthz", view_func=read_health)
    routes.add_url_rule("/readyz", view_func=read_readiness)
    return Seams(routes=(routes,))


@needs(PROBE)
@returns(HEALTH)
def read_health() -> Response:
    """Whether the process responds."""
    require_acceptable(JSON)
    return Reply(b'{"status":"ok"}', content_type=JSON, headers=_HEADERS)


@needs(PROBE)
@returns(HEALTH)
def read_readiness() -> Response:
    """Whether requests can be served; 503 names the part that fails; the log has the cause.

    `differing` says which collections are of another revision, and so answer 503; `unserved`, which no resource serves.
    """
    require_acceptable(JSON)
    store = (service := service_of(current_app)).store
    try:
        store.check()
        differing, unserved = [revision.detail for revision in store.differing()], [*warnings_of(service)]
    except StoreUnavailable as error:
        raise Unavailable(f"store: {error.detail}") from (error if error.__cause__ else None)
    body = {"status": "ok", "store": "ok"} | ({"differing": differing} if differing else {})
    body |= {"unserved": unserved} if unserved else {}
    return Reply(exactjson.dumps(body), content_type=JSON, headers=_HEADERS)
