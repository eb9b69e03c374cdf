"""The data that a test begins with."""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from restkeeper.clock import rfc3339
from restkeeper.errors import Conflict, NotFound, Problem, ValidationFailed, shortened
from restkeeper.resources.changes import Change
from restkeeper.resources.representation import ItemLimits, StoredRepresentation
from restkeeper.resources.unit import next_ids, use_ids
from restkeeper.service import Service
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import DuplicateValue, ReferenceMissing


def seed(service: Service, data: Mapping[str, Any]) -> dict[str, int]:
    """Add items, by collection: {"users": [{…}], "settings": {…}}, all or none; returns how many of each.

    They are validated as those that are imported: an id, times, a version and read-only fields are taken as they are,
    and no function of the service changes them. Items may refer to others of `data`. Raises ValidationFailed with
    pointers below `#/seed`, NotFound for an unknown collection, and Conflict for an id or unique value that
    exists, and a reference to nothing.
    """
    now, limits = rfc3339(service.clock.time()), ItemLimits(*service.config.item_limits)
    if unknown := [name for name in data if name not in service.representations]:
        known = ", ".join(service.representations)
        raise NotFound(f"there is no collection {shortened(unknown[0])!r}; there are: {known}")

    def add(stored: StoredRepresentation, sent: Any, pointer: str, transaction: Transaction) -> None:
        try:
            if not isinstance(sent, dict):
                raise ValidationFailed(errors=[{"pointer": "#", "detail": "must be an object"}])
            (id,) = next_ids(stored.resource, transaction, service.hooks.new_id)
            record = stored.restore(sent, id=stored.name if stored.resource.singleton else id, now=now, limits=limits)
            use_ids(stored.resource, "", record.id, transaction)
            service.hooks.apply(transaction, Change("created", stored, None, record, now))
        except (DuplicateValue, ReferenceMissing) as error:
            raise Conflict(f"{pointer}: {error}") from None
        except Problem as problem:
            for each in problem.members.get("errors", ()):
                each["pointer"] = pointer + each.get("pointer", "").removeprefix("#")
            raise

    def work(transaction: Transaction) -> None:
        for name in filter(data.__contains__, _referred_first(service.representations)):
            sent = data[name]
            for number, each in enumerate(sent if isinstance(sent, list) else [sent]):
                pointer = f"#/seed/{name}" + (f"/{number}" if isinstance(sent, list) else "")
                add(service.representations[name], each, pointer, transaction)

    service.store.write(work)
    return {name: len(items) if isinstance(items, list) else 1 for name, items in data.items()}


def _referred_first(representations: Mapping[str, StoredRepresentation]) -> list[str]:
    """The collections, each after those that its items refer to; as declared, if they refer to each other."""
    graph = {
        name: {field.to for field in stored.revision.references.values()} - {name}
        for name, stored in representations.items()
    }
    try:
        return [*TopologicalSorter(graph).static_order()]
    except CycleError:
        return [*representations]
