"""Ownership: access to the items of other callers, in collections that declare it."""

from restkeeper.errors import NotFound
from restkeeper.feature import Seams
from restkeeper.resources.call import Caller, lacking
from restkeeper.resources.declaration import ALL_OWNERS, Ownership
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import Access
from restkeeper.service import Service
from restkeeper.storage.interface import Record


def install(service: Service) -> Seams:
    """Store the owner of each new item, and restrict other callers as the collection declares."""
    for view in service.stored.values():
        if view.resource.ownership is not Ownership.NONE:
            view.access = _OwnedAccess(view.resource)
            service.guard.scopes[view.resource.scope(ALL_OWNERS)] = None
    return Seams()


class _OwnedAccess(Access):
    """See `Access`. With the scope `C:all` a caller reaches the items of all owners, by what its other scopes allow."""

    def __init__(self, resource: Resource) -> None:
        self._sees_others = resource.ownership is Ownership.CHANGES
        self._all = resource.scope(ALL_OWNERS)

    def owner_of_new(self, caller: Caller) -> str | None:
        return caller.owner_id

    def require_owner(self, caller: Caller, owner: str | None, what: str = "an item") -> None:
        if owner not in caller.owners and not caller.may(self._all):
            raise lacking(self._all, f"{what} of another owner, or of nobody,")

    def owners(self, caller: Caller) -> tuple[str, ...] | None:
        return None if self._sees_others or caller.may(self._all) else caller.owners

    def require_sight(self, caller: Caller, record: Record) -> None:
        if (owners := self.owners(caller)) is not None and record.owner not in owners:
            raise NotFound("there is no such item")

    def require_change(self, caller: Caller, record: Record) -> None:
        self.require_sight(caller, record)
        self.require_owner(caller, record.owner, "a change of an item")
