"""How the open features take part in a service."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flask import Blueprint

from restkeeper.config import ConfigError
from restkeeper.errors import Unavailable
from restkeeper.feature import Feature, Seams, loaded
from restkeeper.resources.changes import Domain
from restkeeper.service import Service
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.web.auth import Credentials
from restkeeper.web.operations import Contribution

# What is in the list of a seam, if that is no function.
_KINDS: Mapping[str, Any] = {
    "checking": tuple,
    "identify": Credentials,
    "routes": Blueprint | Callable,
    "describe": Contribution,
}


def seams_of(feature: Feature, service: Service) -> Seams:
    """How it takes part in a service. Raises what `install` raises, and ConfigError for what is none."""
    seams: Any = loaded(feature.install)(service) if feature.install else Seams()
    if not isinstance(seams, Seams):
        raise ConfigError(f"features: {feature.name!r}: install must return Seams(…), not {seams!r}")
    for seam, functions in vars(seams).items():
        kinds = _KINDS.get(seam, Callable)
        is_list = isinstance(functions, Sequence) and all(isinstance(value, kinds) for value in functions)
        is_list = is_list and (kinds is not tuple or all(len(pair) == 2 for pair in functions))  # stage, check
        if not (is_list if seam != "once" else functions is None or callable(functions)):
            raise ConfigError(f"features: {feature.name!r}: {seam}={functions!r}: see the seams in docs/features.md")
    return seams


def take_part(service: Service, seams: Seams) -> None:
    """Let a feature take part in a service, after those before it."""
    app, domain = service.app, service.domain
    for wrap in seams.arriving:
        app.wsgi_app = wrap(app.wsgi_app)  # type: ignore[method-assign]
    for stage, check in seams.checking:
        app.checking.add(check, stage=stage)
    app.answered.add(*seams.answered)
    service.guard.identifying.add(*seams.identify)
    service.lookup.ahead.add(*seams.ahead)
    domain.view.add(*seams.view)
    domain.query.add(*seams.query)
    if seams.once:
        if domain.once is not Domain.once:
            raise ConfigError("features: two of them have the seam `once`: close 'idempotency', or the other one")
        domain.once = seams.once
    service.store.beginning.add(*map(_of_store, seams.beginning))
    service.store.committing.add(*map(_of_store, seams.committing))
    domain.changing.add(*seams.changing)
    domain.changed.add(*seams.changed)
    app.ready.add(*seams.ready)
    service.contributions.extend(seams.describe)


def _of_store(function: Callable[..., object]) -> Callable[..., object]:
    """A function for a seam of the store, which knows no problems: Unavailable is StoreUnavailable there."""

    def call(*arguments: Any) -> object:
        try:
            return function(*arguments)
        except Unavailable as problem:
            raise StoreUnavailable(str(problem)) from problem

    return call


def mount_routes(service: Service, seams: Seams) -> None:
    """Serve what a feature has besides the collections, below /_ where one of these is called so."""
    app = service.app
    app.are_own = True
    for routes in seams.routes:
        if isinstance(routes, Blueprint):
            app.register_blueprint(routes)
        else:
            service.mount(routes)
    app.are_own = False
