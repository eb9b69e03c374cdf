"""The metrics of requests, and the files in which the processes of a server share them."""

import os
import time
from importlib import import_module
from itertools import count

from flask import Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector

from restkeeper.web.observe import BEGAN, DEPRECATED

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


def _continue_files() -> None:
    """Write the metrics of this process to files that no running one uses, and continue what is in them.

    Each file is read at each scrape: there is not one for each worker that ever was. The lock of a slot ends with its
    process, however that ends; so nothing is counted twice, and all that was counted stays.
    """
    if not (folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR")):
        return
    fcntl = import_module("fcntl")  # which a server of one process can lack
    for slot in count():
        descriptor = os.open(f"{folder}/slot-{slot}", os.O_RDONLY | os.O_CREAT, 0o600)  # never closed
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            break
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]


class Metrics:
    """Requests counted and timed by method, route and status, and uses of deprecated fields, paths and versions.

    If `PROMETHEUS_MULTIPROC_DIR` is set before the first import of prometheus_client, the metrics of all workers are in
    files of that folder, and each worker returns the metrics of all.
    """

    def __init__(self) -> None:
        _continue_files()
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

    def text(self) -> bytes:
        """The metrics of all processes, as Prometheus reads them."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
