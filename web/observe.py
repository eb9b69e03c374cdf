"""What operators see of a request: its id, one log line, and metrics that are right across workers."""

import logging
import os
import re
import sys
import time
from datetime import UTC, datetime

import orjson
from flask import Flask, Response, g, request
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

ACCESS = logging.getLogger("restkeeper.access")

_SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/=+-]{0,127}")
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
_LOGGED = ("request_id", "caller", "method", "path", "route", "status", "ms", "bytes")


def install(app: Flask) -> "Metrics":
    """Give every request of `app` an id and a clock, and every answer a log line and its place in the metrics."""
    metrics = Metrics()

    def begin() -> None:
        g.began = time.perf_counter()
        given = request.environ.get("HTTP_X_REQUEST_ID")
        g.request_id = given if given and _SANE_ID.fullmatch(given) else os.urandom(16).hex()

    def end(response: Response) -> Response:
        seconds = time.perf_counter() - g.began
        route = request.url_rule.rule if request.url_rule else "(none)"
        response.headers["X-Request-Id"] = g.request_id
        metrics.count(request.method, route, response.status_code, seconds)
        if ACCESS.isEnabledFor(logging.INFO):
            ACCESS.info(
                "request",
                extra={
                    "request_id": g.request_id,
                    "caller": request.environ.get("REMOTE_ADDR", ""),
                    "method": request.method,
                    "path": request.path,
                    "route": route,
                    "status": response.status_code,
                    "ms": round(seconds * 1000, 3),
                    "bytes": response.content_length or sum(map(len, response.response)),
                },
            )
        return response

    app.before_request(begin)
    app.after_request(end)
    return metrics


class Metrics:
    """Requests counted and timed by method, route and status.

    With `PROMETHEUS_MULTIPROC_DIR` in the environment before prometheus_client is first imported, the numbers of all
    workers are in files of that folder, and any worker answers for all.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "restkeeper_requests", "Requests answered", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "restkeeper_request_seconds",
            "Seconds from a request's arrival to its answer",
            ("method", "route"),
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        if (known := self._known.get((method, route, status))) is None:
            name = method if method in _METHODS else "other"  # clients must not make series at will
            known = (self._requests.labels(name, route, status), self._seconds.labels(name, route))
            if name == method:
                self._known[method, route, status] = known
        known[0].inc()
        known[1].observe(seconds)

    def text(self) -> bytes:
        """All numbers in Prometheus' text format, version 0.0.4."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def configure_logging(form: str, level: str) -> None:
    """Send the program's log to standard error, a line a record, as "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    logger = logging.getLogger("restkeeper")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "event": record.getMessage()}
        line |= {name: value for name in _LOGGED if (value := record.__dict__.get(name)) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, option=orjson.OPT_NON_STR_KEYS, default=str).decode()


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        known = record.__dict__
        fields = " ".join(f"{name}={known[name]!s}" for name in _LOGGED if name in known)
        line = f"{_time(record)} {record.levelname.lower()} {record.getMessage()} {fields}".rstrip()
        line = line.encode("unicode_escape").decode("ascii") if not line.isprintable() else line
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
