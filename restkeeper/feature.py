"""Features: objects that take part in a service by its seams.

A seam is a place of the kernel that calls functions of the features, in the order of the features. This module loads
nothing of the kernel: the list of features is there before a server patches the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from threading import Thread

    from flask import Blueprint, Request

    from restkeeper.resources.changes import Change, Once, Unit
    from restkeeper.resources.resource import Resource
    from restkeeper.resources.views import StoredView, View, Views
    from restkeeper.service import Service
    from restkeeper.storage.base import Transaction
    from restkeeper.storage.interface import Collection, Key
    from restkeeper.web.application import Answered, Application, Check, Stage, Wsgi
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
    `beginning` are called before a transaction that can write, and `committing` before its commit. `changing` return a
    change of an item before it is written, as it is to be; `changed` are called after it, in its transaction.

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
    beginning: Sequence[Callable[[], object]] = ()
    committing: Sequence[Callable[[Transaction], object]] = ()
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

    `install` returns how it takes part; without it, the feature has only what it declares. `collections` are served as
    those of the service; `items` and `records` are stored, and the feature serves them itself, if anybody. `settings`
    are the fields of `Config` that have no effect while it is closed, and `needs` the features that it is built on.
    `cli` has its commands by their names: "module:command", and what that does. A feature that is not `usual` is open
    only if it is named, or if the first of its settings is set.

    `serve` returns the application that a server serves, for a function that makes applications of the service, each
    with its clock, `create_app`, and the configuration.
    """

    name: str
    install: Callable[[Service], Seams] | str | None = None
    settings: tuple[str, ...] = ()
    collections: tuple[Resource | str, ...] = ()
    items: tuple[Resource | str, ...] = ()
    records: tuple[Collection | str, ...] = ()
    needs: tuple[str, ...] = ()
    serve: Callable[..., Application] | str | None = None
    usual: bool = True
    cli: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)

    def stored(self) -> FeatureParts:
        """What it stores. Loads the modules that declare it."""
        return FeatureParts(*(tuple(map(loaded, names)) for names in (self.collections, self.items, self.records)))

    def __post_init__(self) -> None:
        """Raises ValueError for a text in the place of several, and for commands without a text about each."""
        for name in ("settings", "collections", "items", "records", "needs"):
            if isinstance(value := getattr(self, name), str):
                raise ValueError(f"Feature({self.name!r}, {name}={value!r}): must be a tuple, such as ({value!r},)")
        if not isinstance(self.cli, Mapping) or not all(map(_is_pair, self.cli.values())):
            example = "{'audit': ('shop.audit:show', 'Show who changed what.')}"
            raise ValueError(f"Feature({self.name!r}, cli={self.cli!r}): must be like {example}")


class ServerPart(NamedTuple):
    """What a server does for a feature.

    `share` is called in the first process of gunicorn, and makes what its processes have in common, also if the feature
    is closed. `check` is called when gunicorn tries the application, and raises for a declaration that cannot work.
    `run` is called in each process that serves, with a function that says whether to stop: it returns the thread that
    it starts, if it starts one.
    """

    share: Callable[[], None] = lambda: None
    check: Callable[[Service], None] = lambda service: None
    run: Callable[[Service, Callable[[], bool]], Thread | None] = lambda service, is_stopping: None


@runtime_checkable
class Viewed(Protocol):
    """A resource of a feature whose items are created and changed in another way: it makes their stored view."""

    def stored_view(self) -> StoredView:
        """The items as an application has them."""


def loaded(value: Any) -> Any:
    """What a text "module:name" stands for, or the value itself."""
    if not isinstance(value, str):
        return value
    module, _, name = value.partition(":")
    return getattr(import_module(module), name)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(text, str) for text in value)
