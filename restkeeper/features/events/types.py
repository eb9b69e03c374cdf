"""The types of events, and the collections with events."""

from collections.abc import Iterable

from restkeeper.resources.changes import KINDS
from restkeeper.resources.resource import Resource

OF_SERVICE = "webhooks"  # the collection of the service's own events: for admins, and for webhooks that name their type
DISABLED = "webhook.disabled"


def known_types(resources: Iterable[Resource], *, of_service: bool = True) -> tuple[str, ...]:
    """The values of the filter `type`: each type, all of one kind of item, and all (`*`)."""
    names = [each.singular for each in resources if each.events]
    own = ("webhook.*", DISABLED) if of_service else ()
    return ("*", *(f"{name}.{done}" for name in names for done in ("*", *KINDS)), *own)


def event_collections(resources: Iterable[Resource]) -> tuple[str, ...]:
    """The collections whose changes are events."""
    return tuple(each.name for each in resources if each.events)


def feed_collections(resources: Iterable[Resource], *, of_service: bool = True) -> tuple[str, ...]:
    """The values of the filter `collection`."""
    return (*event_collections(resources), *([OF_SERVICE] if of_service else ()))
