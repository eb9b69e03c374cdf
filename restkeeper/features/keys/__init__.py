"""API keys: the collection, and the check of credentials."""

from functools import partial

from restkeeper.features.keys.credentials import CREDENTIALS, KeyResolver, basic_token
from restkeeper.features.keys.handlers import KEYS, KeyHandlers, note_use
from restkeeper.service import Service, mount
from restkeeper.web.application import Application
from restkeeper.web.operations import Contribution

COLLECTIONS = (KEYS.collection, CREDENTIALS)
ABOUT = "API keys: who may call, and what they may do."
SCHEMES = {
    "Bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
    "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
    "Basic": {"type": "http", "scheme": "basic", "description": "An API key's id as user, its secret as password."},
}


def install(app: Application, service: Service) -> None:
    """Accept keys as credentials, also by Basic, and serve /api/VERSION/keys."""
    store, clock = service.store, service.clock
    service.guard.schemes["basic"] = basic_token
    service.guard.resolvers.append(
        KeyResolver(service.lookup, partial(note_use, store), admin_key=service.config.admin_key, clock=clock)
    )
    handlers = KeyHandlers(service)
    mount(app, service, lambda version: handlers.blueprint())
    service.contributions.append(Contribution(security=SCHEMES, tags={KEYS.name: ABOUT}))


def has_keys(service: Service) -> bool:
    """Whether the service has a key."""
    return "keys" in service.features and service.store.count(KEYS.name) > 0
