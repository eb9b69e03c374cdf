"""Limits of each caller's requests, and of each address's failed credentials."""

from restkeeper.errors import TooManyRequests
from restkeeper.features.limits.counters import Quota, open_counters
from restkeeper.features.limits.requests import HEADERS, Failures, limit_requests
from restkeeper.features.limits.shared import CounterTable
from restkeeper.service import Service
from restkeeper.web.application import Application
from restkeeper.web.operations import Contribution

# The table of counters that a server's start creates for its workers. Any other process counts for itself.
shared_tables: list[CounterTable] = []


def install(app: Application, service: Service) -> None:
    """Count requests and failures, as configured."""
    config, now = service.config, service.clock.time
    table = shared_tables[0] if shared_tables else CounterTable()
    counters = open_counters(app, table, config.redis_url, clock=service.clock)
    if config.failure_quota:
        failures = Quota("failures", config.failure_quota, counters, now=now)
        service.guard.failures = Failures(failures, counters, now=now)
    quotas = {name: Quota(name, text, counters, now=now) for name, text in config.quotas.items()}
    limit_requests(app, quotas, is_limited=service.guard.is_limited)
    service.contributions.append(Contribution(headers=HEADERS, problems=(TooManyRequests,)))
