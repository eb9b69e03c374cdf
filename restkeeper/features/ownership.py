"""Ownership: access to the items of other callers, in collections that declare it."""

from restkeeper.errors import Forbidden, InvalidQuery, NotFound
from restkeeper.resources.changes import Access
from restkeeper.resources.resource import Ownership, Resource
from restkeeper.service import Service
from restkeeper.storage.interface import Record
from restkeeper.web.application import Application
from restkeeper.web.auth import ADMIN, LONGEST_OWNER, caller


def install(app: Application, service: Service) -> None:
    """Store the owner of each new item, and restrict other callers as the collection declares."""
    service.hooks.access = lambda resource: Access() if resource.ownership is Ownership.NONE else _OwnedAccess(resource)


class _OwnedAccess(Access):
    """See `Access`. Admins may do everything; other callers see items of others only if changes alone are owned."""

    def __init__(self, resource: Resource) -> None:
        self._sees_others = resource.ownership is Ownership.CHANGES

    def owner_of_new(self, named: str | None = None) -> str | None:
        if named is None:
            return caller().owner_id
        if not caller().may(ADMIN):
            raise Forbidden("only admins create items for others (owner)")
        if not 0 < len(named) <= LONGEST_OWNER or "\0" in named:
            raise InvalidQuery(errors=[{"parameter": "owner", "detail": f"must have 1 to {LONGEST_OWNER} characters"}])
        return named

    def visible_owner(self) -> str | None:
        who = caller()
        return None if self._sees_others or who.may(ADMIN) else who.owner_id

    def require_sight(self, record: Record) -> None:
        if self.visible_owner() not in (None, record.owner):
            raise NotFound("there is no such item")

    def require_change(self, record: Record) -> None:
        self.require_sight(record)
        if record.owner != caller().owner_id and not caller().may(ADMIN):
            raise Forbidden("only its owner may change this item")
