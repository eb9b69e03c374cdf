"""Metrics of all workers for Prometheus, behind the metrics token."""

import hmac
from collections.abc import Callable

from flask import Blueprint, Response, request

from restkeeper.config import require_package
from restkeeper.errors import Problem, Unauthorized
from restkeeper.feature import Seams, loaded
from restkeeper.service import Service
from restkeeper.web.application import Reply
from restkeeper.web.auth import OWN, Guard, digest_of, needs
from restkeeper.web.operations import Contribution, Result, returns

_BEARER = {"WWW-Authenticate": 'Bearer realm="metrics"'}  # RFC 6750, section 3
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
METRICS = Result("The metrics.", {"text/plain": {"type": "string", "maxLength": 2**26}})
TOKEN = {"MetricsToken": {"type": "http", "scheme": "bearer", "description": "`METRICS_TOKEN`."}}


def install(service: Service) -> Seams:
    """Count and time every request if there is a metrics token, and serve /metrics."""
    routes, described = Blueprint("metrics", __name__), Contribution(OWN, security=TOKEN)
    token = service.config.metrics_token
    if not token:
        routes.add_url_rule("/metrics", view_func=_ReadMetrics("", service.guard, bytes).read_metrics)
        return Seams(routes=(routes,), describe=(described,))
    require_package("METRICS_TOKEN", "prometheus_client", "metrics")
    metrics = loaded(f"{__name__}.counting:Metrics")()  # with its library, which takes a fiftieth of a start
    # A request that the server refuses does not reach the application.
    service.app.refused.append(lambda status: metrics.refused.labels(status).inc())
    routes.add_url_rule("/metrics", view_func=_ReadMetrics(token, service.guard, metrics.text).read_metrics)
    return Seams(answered=(metrics.count,), routes=(routes,), describe=(described,))


class MetricsClosed(Problem):
    status, name, title = 403, "metrics-closed", "Metrics are closed"
    about = "Metrics are closed until the operator sets `METRICS_TOKEN`. That token is the credential for them."


class _ReadMetrics:
    """The handler of metrics, whose `text` it returns."""

    def __init__(self, token: str, guard: Guard, text: Callable[[], bytes]) -> None:
        self._digest = digest_of(token) if token else ""
        self._guard, self._text = guard, text

    @needs(OWN)
    @returns(METRICS, MetricsClosed)
    def read_metrics(self) -> Response:
        """Metrics for Prometheus. The credential is the metrics token."""
        if not self._digest:
            raise MetricsClosed("set METRICS_TOKEN to open them to callers with that token")
        unauthorized = Unauthorized("send the metrics token as Authorization: Bearer", headers=_BEARER)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise unauthorized
        digest, failures = digest_of(token), self._guard.failures
        failures.require_room(request.environ, digest)
        if not hmac.compare_digest(digest, self._digest):
            failures.note_failure(request.environ)
            raise unauthorized
        failures.note_success(request.environ, digest)
        headers = {"Cache-Control": "no-store"}
        return Reply(self._text(), content_type=PROMETHEUS, headers=headers)
