"""Features: objects that take part in a service by its seams.

A seam is a place of the kernel that calls functions of the features, in the order of the features.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from flask import Blueprint, Request

from restkeeper.config import ConfigError
from restkeeper.resources.changes import Change, Domain, Once, Unit
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView, View, Views
from restkeeper.service import Service
from restkeeper.storage.interface import Collection, Key
from restkeeper.web.application import Answered, Check, Stage, Wsgi
from restkeeper.web.auth import Credentials
from restkeeper.web.operations import Contribution


@dataclass(frozen=True)
class Seams:
    """The functions of one feature for the seams of a service; most features use few seams.

    `arriving` wrap the WSGI application. `checking` are called with each request at a stage, and can return the
    response or raise a problem; `answered` with each response. `identify` say whose a credential is. `ahead` return the
    key of the record that a request will read, for the id of its caller, so that it is read with the credential.

    `view` return how callers of a version see the items of a collection, by the view so far. `query` can
    change the arguments of a request before items are read. `once` returns the record of a request that is done once.
    `changing` return a change of an item before it is written, as it is to be; `changed` are called after it, in its
    transaction.

    `routes` are blueprints at the root, or functions that return one for a version: it is at /api/VERSION/NAME.
    `describe` are parts of the OpenAPI document. `ready` are called once, when the service has all routes.
    """

    arriving: Sequence[Callable[[Wsgi], Wsgi]] = ()
    checking: Sequence[tuple[Stage, Check]] = ()
    answered: Sequence[Answered] = ()
    identify: Sequence[Credentials] = ()
    ahead: Sequence[Callable[[Request, str], Key | None]] = ()
    view: Sequence[Callable[[Views, StoredView, str], Views]] = ()
    query: Sequence[Callable[[View, int], None]] = ()
    once: Callable[..., Once] | None = None
    changing: Sequence[Callable[[Unit, Change], Change]] = ()
    changed: Sequence[Callable[[Unit, Change], None]] = ()
    routes: Sequence[Blueprint | Callable[[str], Blueprint]] = ()
    describe: Sequence[Contribution] = ()
    ready: Sequence[Callable[[], None]] = ()


class FeatureParts(NamedTuple):
    """What a feature stores: `collections` that are served as all, `items` that it serves itself, and `records`."""

    collections: tuple[Resource, ...]
    items: tuple[Resource, ...]
    records: tuple[Collection, ...]


@dataclass(frozen=True)
class Feature:
    """What a service can do without. To name one loads nothing of it: a text "module:name" stands for what is there.

    `install` returns how it takes part. `collections` are served as those of the service; `items` and `records` are
    stored, and the feature serves them itself, if anybody. `settings` are the fields of `Config` that have no effect
    while it is closed, and `needs` the features that it is built on. One that is not `usual` is open only if it is
    named.
    """

    name: str
    install: Callable[[Service], Seams] | str
    settings: tuple[str, ...] = ()
    collections: tuple[Resource | str, ...] = ()
    items: tuple[Resource | str, ...] = ()
    records: tuple[Collection | str, ...] = ()
    needs: tuple[str, ...] = ()
    usual: bool = True

    def stored(self) -> FeatureParts:
        """What it stores. Loads the modules that declare it."""
        return FeatureParts(*(tuple(map(loaded, names)) for names in (self.collections, self.items, self.records)))

    def seams(self, service: Service) -> Seams:
        """How it takes part in a service. Raises what `install` raises, and ConfigError for what is none."""
        seams: Any = loaded(self.install)(service)
        if not isinstance(seams, Seams):
            raise ConfigError(f"features: {self.name!r}: install must return Seams(…), not {seams!r}")
        for seam, functions in vars(seams).items():
            kinds = _KINDS.get(seam, Callable)
            is_list = isinstance(functions, Sequence) and all(isinstance(value, kinds) for value in functions)
            is_list = is_list and (kinds is not tuple or all(len(pair) == 2 for pair in functions))  # stage, check
            if not (is_list if seam != "once" else functions is None or callable(functions)):
                raise ConfigError(f"features: {self.name!r}: {seam}={functions!r}: see the seams in docs/features.md")
        return seams

    def __post_init__(self) -> None:
        """Raises ValueError for a text in the place of several."""
        for name in ("settings", "collections", "items", "records", "needs"):
            if isinstance(value := getattr(self, name), str):
                raise ValueError(f"Feature({self.name!r}, {name}={value!r}): must be a tuple, such as ({value!r},)")


# What is in the list of a seam, if that is no function.
_KINDS: Mapping[str, Any] = {
    "checking": tuple,
    "identify": Credentials,
    "routes": Blueprint | Callable,
    "describe": Contribution,
}


def loaded(value: Any) -> Any:
    """What a text "module:name" stands for, or the value itself."""
    if not isinstance(value, str):
        return value
    module, _, name = value.partition(":")
    return getattr(import_module(module), name)


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
    domain.changing.add(*seams.changing)
    domain.changed.add(*seams.changed)
    app.ready.add(*seams.ready)
    service.contributions.extend(seams.describe)


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
