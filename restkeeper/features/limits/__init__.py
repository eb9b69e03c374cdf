"""Limits of each caller's requests and bytes written, and of each address's failed credentials."""

from restkeeper.errors import TooManyRequests
from restkeeper.features.limits.counters import Counters, Quota, open_counters
from restkeeper.features.limits.failures import Failures
from restkeeper.features.limits.mapped import shared_path
from restkeeper.features.limits.requests import HEADERS, limit_requests
from restkeeper.service import Service
from restkeeper.web.application import Application
from restkeeper.web.description import Contribution


def install(app: Application, service: Service) -> None:
    """Count requests, bytes written and failures, as configured. Raises Unavailable when they cannot be counted."""
    config = service.config
    counters = _open_counters(app, service)

    def quota(name: str, text: str, unit: str = "") -> Quota | None:
        return Quota(name, text, counters, unit=unit, now=service.clock.time) if text else None

    service.guard.failures = Failures(quota("failures", config.failure_quota), counters, now=service.clock.time)
    quotas = {name: each for name, text in config.quotas.items() if (each := quota(name, text))}
    write_bytes = quota("write-bytes", config.write_quota, "content-bytes")
    limit_requests(app, quotas, write_bytes=write_bytes, is_limited=service.guard.is_limited)
    service.contributions.append(Contribution(headers=HEADERS, problems=(TooManyRequests,)))


def _open_counters(app: Application, service: Service) -> Counters:
    """The counters that all processes share which serve this database on this machine.

    A database in memory and a command, which serves no requests, have counters in this process only.
    """
    alone = not service.serves or service.location.temporary
    shared = None if alone else shared_path(service.store_secret)
    return open_counters(app, shared, service.config.redis_url, clock=service.clock)
