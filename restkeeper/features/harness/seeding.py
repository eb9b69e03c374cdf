"""The data that a test begins with."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any

from restkeeper.clock import in_turns, rfc3339
from restkeeper.errors import Conflict, NotFound, Problem, ValidationFailed, shortened
from restkeeper.resources.changes import Change, Unit
from restkeeper.resources.views import StoredView
from restkeeper.resources.writes import at_pointer
from restkeeper.service import Service
from restkeeper.storage.errors import DuplicateValue, ReferenceMissing


def seed(service: Service, data: Mapping[str, Any]) -> dict[str, int]:
    """Add items, by collection: {"users": [{…}], "settings": {…}}, all or none; returns how many of each.

    They are validated like imported items: an id, times, a version and read-only fields are taken as they are. Of the
    functions of the service, only the functions after a write are called. Items may refer to any others of `data`.
    Raises ValidationFailed with pointers below `#/seed`, NotFound for an unknown collection, and Conflict for an id or
    unique value that exists, and a reference to nothing.
    """
    turns: Any = partial(in_turns, clock=service.clock, others=inf)  # only this space waits for the transaction
    now, limits = rfc3339(service.clock.time()), service.domain.limits
    collections = {stored.resource.public_name: stored for stored in service.stored.values()}
    if unknown := [name for name in data if name not in collections]:
        names = ", ".join(collections)
        raise NotFound(f"there is no collection {shortened(unknown[0])!r}; there are: {names}")

    @contextmanager
    def at(pointer: str) -> Iterator[None]:
        try:
            yield
        except DuplicateValue as error:
            raise Conflict(f"#{pointer}: {error}") from None
        except ReferenceMissing as error:
            raise Conflict(f"#{pointer}{error.pointer.removeprefix('#')}: {error}") from None
        except Problem as problem:
            at_pointer(problem, pointer)
            raise

    def create(unit: Unit, stored: StoredView, sent: Any) -> Change:
        if not isinstance(sent, dict):
            raise ValidationFailed(errors=[{"pointer": "#", "detail": "must be an object"}])
        record = stored.restore(sent, id=stored.provisional_id(service.domain.new_id), now=now, limits=limits)
        (record,) = unit.with_integer_ids(stored, [record])
        change = Change(stored, None, record, now)
        unit.write_unchecked(change)
        return change

    def work(unit: Unit) -> None:
        created = []
        for name, sent in data.items():
            for number, item in turns(enumerate(sent if isinstance(sent, list) else [sent])):
                pointer = f"/seed/{name}" + (f"/{number}" if isinstance(sent, list) else "")
                with at(pointer):
                    created.append((pointer, create(unit, collections[name], item)))
        for pointer, change in turns(created):
            with at(pointer):
                service.domain.references.check(unit, change, bounded=False)
        with at("/seed"):
            unit.follow(*(change for _, change in created))

    service.write(work)
    return {name: len(items) if isinstance(items, list) else 1 for name, items in data.items()}
