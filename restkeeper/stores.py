"""The store of a service: how a start opens it, what is to be converted in it, and what no resource serves."""

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from restkeeper.clock import rfc3339
from restkeeper.resources.call import PROGRAM
from restkeeper.resources.checks import RESERVED
from restkeeper.service import Service, started_stores
from restkeeper.storage.errors import (
    GONE,
    RevisionDiffers,
    StoreBusy,
    StoreContended,
    StoreUnavailable,
    StoreUnreachable,
)
from restkeeper.storage.records import StoredState

if TYPE_CHECKING:
    from restkeeper.resources.migration import Conversion

START_SECONDS = 60.0  # for which a start waits for a store that is away or locked
START_PAUSE_SECONDS = 0.25  # between two attempts


def conversions_of(service: Service, *, accepts: bool = False) -> "list[Conversion]":
    """The collections with items of an earlier revision, which need a `Conversion`.

    Sets in all views when their items were last converted.
    """
    states, conversions = service.store.stored(), []
    for stored in (*service.stored.values(), *service.of_features.values()):
        stored.changed_at = states[stored.name].converted_at
        revision, items, _ = states[stored.name]
        if revision < stored.revision.number:
            names = [version.name for version in service.served]
            views = {name: service.domain.views_of(stored, name).for_caller(PROGRAM) for name in names}
            older = {name: view for name, view in views.items() if view.fingerprint != stored.fingerprint}
            migration = import_module("restkeeper.resources.migration")  # most stores have nothing to convert
            conversions.append(migration.Conversion(stored, older, revision, items, accepts))
    return conversions


def unserved_in(service: Service, stored: Mapping[str, StoredState]) -> dict[str, StoredState]:
    """The collections of a store that no resource serves, by name: a selection of `stored`."""
    others = {*service.stored, *RESERVED, *service.closed}
    return {name: state for name, state in sorted(stored.items()) if name not in others and name[0] != "_"}


def warnings_of(service: Service) -> Iterator[str]:
    """Lines that say what to do with items of unserved collections, in a store that is not temporary."""
    stored = {} if service.location.temporary else service.store.stored()
    for name, (revision, items, _) in unserved_in(service, stored).items():
        if items:
            has = f"the store has {items:,} {'items' if items > 1 else 'item'} of {name}, which no resource serves"
            rename = "" if revision == GONE else f"`restkeeper rename {name} NEW` if it has another name now, or "
            yield f"{has}: if no newer program does, run {rename}`restkeeper forget {name}`"


def open_store(service: Service, wait_seconds: float = 0.0) -> bool:
    """Open the store now, so that a start without it fails. Raises StoreError.

    While a server is away or another program has the store locked, it tries again, for `wait_seconds`. A worker
    opens the store later, and this returns False: if a worker ended, the whole server would end.
    """
    if service.location.name in started_stores:
        return False
    end, waits = service.clock.monotonic() + wait_seconds, False
    while True:
        try:
            service.store.open()
            return True
        except StoreUnavailable as error:
            problem = f"DATABASE_URL={service.location.name!r}: {error}"
            can_heal = isinstance(error, StoreBusy | StoreContended | StoreUnreachable)
            if not can_heal or service.clock.monotonic() >= end:
                raise StoreUnavailable(problem) from error
        if not waits:
            print(f"restkeeper: waits up to {wait_seconds:.0f} s for the store: {problem}", file=sys.stderr)
        waits = True
        service.clock.sleep(START_PAUSE_SECONDS)


def convert_former(service: Service) -> None:
    """Convert items of an earlier revision, at a start. Raises StoreError, also for items that other programs use.

    The items of features, which are keys, are converted while other programs use them: these programs accept the
    credentials all the same. A program of the former revision can start meanwhile: its items stay in this revision.
    """
    is_shared = service.location.shared
    conversions = [one for one in conversions_of(service) if not (is_shared and one.former == -one.revision)]
    for conversion in conversions:
        if is_shared and conversion.items and conversion.name in service.stored:
            raise RevisionDiffers(conversion.name, conversion.revision, conversion.former)
    if conversions:
        convert = import_module("restkeeper.resources.migration").convert
        convert(service.store, conversions, rfc3339(service.clock.time()))
    for conversion in conversions:
        print(f"restkeeper: the items of {conversion.name} have revision {conversion.revision} now", file=sys.stderr)
    for line in warnings_of(service):
        print(f"restkeeper: {line}", file=sys.stderr)
