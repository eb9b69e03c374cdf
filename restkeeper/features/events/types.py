"""The types of events, and the collections that they are of."""

from collections.abc import Iterable

from restkeeper.resources.changes import KINDS
from restkeeper.resources.resource import Resource

OF_SERVICE = "webhooks"  # the collection of the service's own events: for admins, and for whoever names their type
DISABLED = "webhook.disabled"


def known_types(resources: Iterable[Resource], *, of_service: bool = True) -> tuple[str, ...]:
    """What the feed can be filtered by: each type, all of one kind of item, and everything (`*`)."""
    names = [each.singular for each in resources if each.events]
    own = ("webhook.*", DISABLED) if of_service else ()
    return ("*", *(f"{name}.{done}" for name in names for done in ("*", *KINDS)), *own)


def event_collections(resources: Iterable[Resource]) -> tuple[str, ...]:
    """The collections whose changes are events."""
    return tuple(each.name for each in resources if each.events)


def feed_collections(resources: Iterable[Resource], *, of_service: bool = True) -> tuple[str, ...]:
    """The collections that the feed can be filtered by."""
    return (*event_collections(resources), *([OF_SERVICE] if of_service else ()))
