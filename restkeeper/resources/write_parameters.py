"""The query parameters of writes: the owner of a new item, and the unique fields of an upsert."""

from restkeeper.errors import Forbidden, ValidationFailed
from restkeeper.resources.call import NONE, lacking
from restkeeper.resources.changes import Command
from restkeeper.resources.declaration import Ownership
from restkeeper.resources.items import CollectionReader
from restkeeper.resources.parameters import Arguments, refused
from restkeeper.resources.unique import unique_fields

OWNER_QUERY = "owner"  # the parameter that names the owner of a new item
CONFLICT_QUERY = "on_conflict"  # the parameter that names the unique fields by which an item is found, and then changed
CONFLICT_UNUSED = "is for a POST that creates items"
OWNER_UNUSED = "can be used only by a request that creates an item with an owner"


def require_new_owner(to: CollectionReader, args: Arguments) -> None:
    """Raises ValidationFailed unless the owner of a new item can be named beside it.

    Raises Forbidden if the field of the owner is locked, and for an owner that is not one of the caller's.
    """
    if len(args[OWNER_QUERY]) > 1:
        raise owner_fault("is given more than once")
    if to.served.resource.ownership is Ownership.NONE:
        raise owner_fault(OWNER_UNUSED)
    stored = to.served.stored
    if scope := stored.for_caller(to.caller).locked.get(stored.revision.owner):
        raise lacking(scope, "an owner beside the item")  # also for the present owner: nothing is compared
    if name := to.view.owner_field:
        raise owner_fault(f"is the field {name} here: send it in the item")
    if args[OWNER_QUERY][0] not in to.caller.owners:
        raise Forbidden("the owner in the query is none of the caller's own")


def by_unique(to: CollectionReader, command: Command, args: Arguments) -> Command:
    """The upsert, by the parameter `on_conflict`, of the item with the same unique values. Raises InvalidQuery."""
    try:
        if command.kind != "create":
            raise ValueError(CONFLICT_UNUSED)
        if command.conditions is not NONE:
            raise ValueError("looks for one item: leave out the conditions, which are of the list")
        unique = unique_fields(to.served.resource, to.view, ",".join(args[CONFLICT_QUERY]).split(","))
    except ValueError as error:
        raise refused(CONFLICT_QUERY, str(error)) from None
    return command._replace(kind="upsert", unique=unique)


def owner_fault(detail: str) -> ValidationFailed:
    """The error of a write that names an owner beside its item."""
    return ValidationFailed(f"{OWNER_QUERY} {detail}", errors=[{"parameter": OWNER_QUERY, "detail": detail}])
