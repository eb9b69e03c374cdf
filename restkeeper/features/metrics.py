"""Metrics of all workers for Prometheus, behind the metrics token."""

import hmac
import os
import time
from fcntl import LOCK_EX, LOCK_NB, flock
from itertools import count

from flask import Blueprint, Request, Response, request
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector

from restkeeper.errors import Problem, Unauthorized
from restkeeper.feature import Seams
from restkeeper.service import Service
from restkeeper.web.application import Reply
from restkeeper.web.auth import OWN, Guard, digest_of, needs
from restkeeper.web.observe import BEGAN, DEPRECATED
from restkeeper.web.operations import Contribution, Result, returns

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
_BEARER = {"WWW-Authenticate": 'Bearer realm="metrics"'}  # RFC 6750, section 3
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
METRICS = Result("The metrics.", {"text/plain": {"type": "string", "maxLength": 2**26}})
TOKEN = {"MetricsToken": {"type": "http", "scheme": "bearer", "description": "`METRICS_TOKEN`."}}


class MetricsClosed(Problem):
    status, name, title = 403, "metrics-closed", "Metrics are closed"
    about = "Metrics are closed until the operator sets `METRICS_TOKEN`. That token is the credential for them."


def install(service: Service) -> Seams:
    """Count and time every request if there is a metrics token, and serve /metrics."""
    metrics = Metrics(service.config.metrics_token, service.guard)
    if service.config.metrics_token:  # of what is refused, no request reaches the application
        service.app.refused.append(lambda status: metrics.refused.labels(status).inc())
    routes = Blueprint("metrics", __name__)
    routes.add_url_rule("/metrics", view_func=metrics.read_metrics)
    described = Contribution(OWN, security=TOKEN)
    return Seams(
        answered=(metrics.count,) if service.config.metrics_token else (), routes=(routes,), describe=(described,)
    )


def continue_files() -> None:
    """Write the metrics of this process to files that no running one uses, and continue what is in them.

    Each file is read at each scrape: there is not one for each worker that ever was. The lock of a slot ends with its
    process, however that ends; so nothing is counted twice, and all that was counted stays.
    """
    if not (folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR")):
        return
    for slot in count():
        descriptor = os.open(f"{folder}/slot-{slot}", os.O_RDONLY | os.O_CREAT, 0o600)  # never closed
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            break
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]


class Metrics:
    """Requests counted and timed by method, route and status, and uses of what is deprecated; and their handler.

    If `PROMETHEUS_MULTIPROC_DIR` is set before the first import of prometheus_client, the metrics of all workers are in
    files of that folder, and each worker returns the metrics of all.
    """

    def __init__(self, token: str, guard: Guard) -> None:
        self._digest = digest_of(token) if token else ""
        self._guard = guard
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "restkeeper_request_seconds",
            "Seconds from a request's arrival to its response",
            ("method", "route", "status"),
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._deprecated = Counter(
            "restkeeper_deprecated_uses",
            "Requests that used something deprecated",
            ("version", "part"),
            registry=self._registry,
        )
        self.refused = Counter(
            "restkeeper_refused",
            "Requests that the server refused before any route, by status, and connections closed to make room",
            ("status",),
            registry=self._registry,
        )
        self._known: dict[tuple[str, str, int], Histogram] = {}

    def count(self, served: Request, response: Response) -> None:
        """Count one response, and the uses of deprecated fields, paths and versions."""
        route = served.url_rule.rule if served.url_rule else "(none)"
        method, status = served.method, response.status_code
        if (histogram := self._known.get((method, route, status))) is None:
            name = method if method in _METHODS else "other"  # clients must not create time series
            histogram = self._seconds.labels(name, route, status)
            if name == method:
                self._known[method, route, status] = histogram
        histogram.observe(time.perf_counter() - served.environ[BEGAN])
        for deprecation in served.environ.get(DEPRECATED, ()):  # a part that is empty is all of a version
            self._deprecated.labels(deprecation.version or "unversioned", deprecation.part).inc()

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
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        headers = {"Cache-Control": "no-store"}
        return Reply(generate_latest(registry), content_type=PROMETHEUS, headers=headers)
