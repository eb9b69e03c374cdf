"""Limits of each caller's requests, and of each address's failed credentials."""

from restkeeper.errors import TooManyRequests
from restkeeper.features.limits.counters import Quota, open_counters
from restkeeper.features.limits.failures import Failures
from restkeeper.features.limits.requests import HEADERS, limit_requests
from restkeeper.features.limits.shared import Table
from restkeeper.service import Service
from restkeeper.web.application import Application
from restkeeper.web.operations import Contribution

# The table of counters that a server's start creates for its workers. Any other process counts for itself.
shared_tables: list[Table] = []


def install(app: Application, service: Service) -> None:
    """Count requests and failures, as configured."""
    config, now = service.config, service.clock.time
    counters = open_counters(app, shared_tables[0] if shared_tables else None, config.redis_url, clock=service.clock)
    failures = Quota("failures", config.failure_quota, counters, now=now) if config.failure_quota else None
    service.guard.failures = Failures(failures, counters, now=now)
    quotas = {name: Quota(name, text, counters, now=now) for name, text in config.quotas.items()}
    limit_requests(app, quotas, is_limited=service.guard.is_limited)
    service.contributions.append(Contribution(headers=HEADERS, problems=(TooManyRequests,)))
