"""The items of a collection without the items that are hidden, such as items that are deleted but still stored."""

from functools import lru_cache
from typing import Any

from restkeeper import exactjson
from restkeeper.errors import NotFound
from restkeeper.resources.call import EVERYBODY, Caller
from restkeeper.resources.views import MOST_SETS, Access, PartialView, View, Views
from restkeeper.storage.interface import Filter, Op, Query, Record


class Visible:
    """The views of a collection without the items in which a field has a value: for callers, these are not there.

    Raises ValueError for a field that the items do not have.
    """

    def __init__(self, views: Views, *, unless: str) -> None:
        @lru_cache(MOST_SETS)
        def visible(view: Any) -> View:
            return _VisibleView(view, unless)

        if unless not in (fields := views.for_caller(EVERYBODY).form.resource.newest.fields):
            raise ValueError(f"Visible(unless={unless!r}): there is no such field; there are: {', '.join(fields)}")
        self._views, self._visible = views, visible

    def for_caller(self, caller: Caller) -> View:
        whole: Any = self._views.for_caller(caller)
        return self._visible(whole)


class _VisibleView(PartialView):
    def __init__(self, whole: View, field: str) -> None:
        super().__init__(whole, (), whole.hidden, whole.locked)
        self.fingerprint += f"-{field}"  # lists are others than those of the whole
        self._is_null = Filter(field, Op.IS, True)
        self.access = _VisibleAccess(whole.access, field)

    def query(self, query: Query) -> Query:
        query = super().query(query)
        return query._replace(filters=(*query.filters, self._is_null))


class _VisibleAccess(Access):
    def __init__(self, access: Access, field: str) -> None:
        self._access, self._field = access, field

    def owner_of_new(self, caller: Caller) -> str | None:
        return self._access.owner_of_new(caller)

    def owners(self, caller: Caller) -> tuple[str, ...] | None:
        return self._access.owners(caller)

    def require_owner(self, caller: Caller, owner: str | None) -> None:
        self._access.require_owner(caller, owner)

    def require_sight(self, caller: Caller, record: Record) -> None:
        self._access.require_sight(caller, record)
        if exactjson.decoded(exactjson.cut(record.body).get(self._field, b"null")) is not None:
            raise NotFound("there is no such item")

    def require_change(self, caller: Caller, record: Record) -> None:
        self.require_sight(caller, record)
        self._access.require_change(caller, record)
