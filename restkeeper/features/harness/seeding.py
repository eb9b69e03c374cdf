"""The data that a test begins with."""

from collections.abc import Mapping
from typing import Any

from restkeeper.clock import rfc3339
from restkeeper.errors import Conflict, NotFound, Problem, ValidationFailed, shortened
from restkeeper.resources.changes import Change
from restkeeper.resources.representation import ItemLimits, StoredRepresentation
from restkeeper.resources.resource import references_in
from restkeeper.resources.unit import next_ids, use_ids
from restkeeper.service import Service
from restkeeper.storage.errors import DuplicateValue
from restkeeper.storage.interface import Transaction


def seed(service: Service, data: Mapping[str, Any]) -> dict[str, int]:
    """Add items, by collection: {"users": [{…}], "settings": {…}}, all or none; returns how many of each.

    They are validated as those that are imported: an id, times, a version and read-only fields are taken as they are,
    and no function of the service changes them. Items may refer to others of `data`. Raises ValidationFailed with
    pointers below `#/seed`, NotFound for an unknown collection, and Conflict for an id or unique value that exists.
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
        except DuplicateValue as error:
            raise Conflict(f"{pointer}: {error}") from None
        except Problem as problem:
            for each in problem.members.get("errors", ()):
                each["pointer"] = pointer + each.get("pointer", "").removeprefix("#")
            raise

    def work(transaction: Transaction) -> None:
        for stored in _referred_first(service.representations):
            if stored.name in data:
                sent = data[stored.name]
                for number, each in enumerate(sent if isinstance(sent, list) else [sent]):
                    place = f"#/seed/{stored.name}" + (f"/{number}" if isinstance(sent, list) else "")
                    add(stored, each, place, transaction)

    service.store.write(work)
    return {name: len(items) if isinstance(items, list) else 1 for name, items in data.items()}


def _referred_first(representations: Mapping[str, StoredRepresentation]) -> list[StoredRepresentation]:
    """The collections, each after those that its items refer to, as far as that can be."""
    ordered: dict[str, StoredRepresentation] = {}

    def place(name: str, around: tuple[str, ...]) -> None:
        if name in ordered or name in around:
            return
        for _, field in references_in(representations[name].schema()):
            place(field.to, (*around, name))
        ordered[name] = representations[name]

    for name in representations:
        place(name, ())
    return list(ordered.values())
