"""The searches of functions of a service in a transaction, and parameters of lists as values of Python."""

import logging
import sys
from collections.abc import Callable, Mapping
from collections.abc import Collection as Names
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from restkeeper import exactjson
from restkeeper.clock import is_due
from restkeeper.errors import InvalidQuery
from restkeeper.exactjson import JsonObject
from restkeeper.resources.call import EVERYBODY
from restkeeper.resources.groups import shown_groups
from restkeeper.resources.items import ServedCollection
from restkeeper.resources.parameters import GROUPED
from restkeeper.resources.queries import MOST_GROUPS, ListRequest, parse
from restkeeper.resources.views import StoredView
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import SearchTooLong
from restkeeper.storage.interface import Groups, Query

T = TypeVar("T")

MOST_FOUND = 1000  # items that a function finds
SLOW_SECONDS = 0.1  # after which a search is logged: other writes wait for it
FIND_SECONDS = 0.5  # after which a search is stopped; all searches of a transaction share what is above SLOW_SECONDS
_OF_VIEWS = {"fields", "embed"}  # parameters of lists that select no items; a view may show what they say

_log = logging.getLogger("restkeeper")


class Searches:
    """The searches of functions in one transaction: see `Items.find`, `Items.count` and `Items.groups`."""

    def __init__(
        self,
        transaction: Transaction,
        related: Callable[[], Mapping[str, ServedCollection]],
        undo_all_on_error: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._transaction, self._related, self._undo_all_on_error = transaction, related, undo_all_on_error
        self._slow_seconds = FIND_SECONDS - SLOW_SECONDS  # that searches may still take, besides SLOW_SECONDS of each

    def find(self, stored: StoredView, parameters: Mapping[str, Any] | None, most_bytes: int) -> list[JsonObject]:
        """The items of a list. Raises ValueError for more than MOST_FOUND, or than so many bytes of them."""
        query = self._query(stored, parameters)
        page = self._search(stored, query, partial(self._transaction.page, stored.name, query, most_bytes))
        limit = query.limit if "limit" in (parameters or {}) else None
        if page.more and (limit is None or len(page.bodies) < limit):
            most = f"{MOST_FOUND:,} items, or {most_bytes >> 20} MiB of them"
            raise ValueError(f"{stored.name}: items.find: more than {most}: add filters, or a limit")
        return [exactjson.decoded(body) for body in stored.bodies(page)]

    def count(self, stored: StoredView, parameters: Mapping[str, Any] | None) -> int:
        """The number of the items of a list, which has neither an order nor pages."""
        query = self._query(stored, parameters)._replace(sort=(), limit=None)
        return self._search(stored, query, partial(self._transaction.count, stored.name, query, most=sys.maxsize))

    def groups(self, stored: StoredView, parameters: Mapping[str, Any]) -> list[JsonObject]:
        """The groups of the items of a list. Raises ValueError for more than MOST_GROUPS."""
        query = self._query(stored, parameters, is_grouped=True)
        search = partial(self._transaction.groups, stored.name, query, MOST_GROUPS + 1)
        try:
            return shown_groups(stored, query.groups, query.groups, self._search(stored, query, search))
        except InvalidQuery as error:
            raise ValueError(f"{stored.name}: items.groups: {error.detail}") from None

    def _query(self, stored: StoredView, parameters: Mapping[str, Any] | None, *, is_grouped: bool = False) -> Query:
        """Raises ValueError for wrong parameters: they are the function's, and no fault of the caller."""
        try:
            return query_of(self._related()[stored.name], parameters, MOST_FOUND, is_grouped=is_grouped).query
        except InvalidQuery as error:
            called = "items.groups" if is_grouped else "items.find and items.count"
            raise ValueError(f"{stored.name}: {called}: {error.detail}") from None

    def _search(self, stored: StoredView, query: Query, search: Callable[..., T]) -> T:
        """The result of `search`; until the end of the transaction, nobody else changes items of these collections.

        Raises ValueError for a query that no index answers, and SearchTooLong.
        """
        if not self._transaction.is_indexed(stored.name, query):
            names = sorted({f.field for f in query.filters if not f.join} or {key.field for key in query.sort})
            joined = [f"Index({f.field!r}) of {join.collection.name}" for join in query.joins for f in join.filters]
            raise ValueError(
                f"{stored.name}: items.find and items.count need an index: add one of these to the Resource's indexes: "
                + ", ".join([*(f"Index({name!r})" for name in names), *joined])
            )
        with self._undo_all_on_error():
            for name in sorted({stored.name, *(join.collection.name for join in query.joins)}):
                self._transaction.lock_collection(name)
            try:
                return search(seconds=SLOW_SECONDS + self._slow_seconds)
            except SearchTooLong as error:
                error.reason = "see the line about items.find and items.count"
                raise
            finally:
                if (seconds := self._transaction.search_seconds) > SLOW_SECONDS:
                    self._slow_seconds = max(0.0, self._slow_seconds + SLOW_SECONDS - seconds)
                    self._log_slow(stored.name, query, seconds)

    def _log_slow(self, collection: str, query: Query, seconds: float) -> None:
        """Log a slow search, unless there was a line about a search of the same form."""
        form = " ".join([*(f"{f.field}[{f.op}]" for f in query.filters), *(f"sort={key.name}" for key in query.sort)])
        if not is_due((collection, form)):
            return
        indexes = " or ".join(map(str, self._transaction.wanted_indexes(collection, query)))
        remedy = f"declare {indexes}" if indexes else "add filters of values that fewer items share"
        plan = self._transaction.explain(collection, query)
        message = "%s: items.find or items.count took %.2f s, for which others wait, by %s: %s. Plan: %s"
        _log.warning(message, collection, seconds, form or "id", remedy, plan)


def query_of(
    items: ServedCollection,
    parameters: Mapping[str, Any] | None,
    limit: int,
    related: Names[str] | None = None,
    *,
    is_grouped: bool = False,
) -> ListRequest:
    """The list by its parameters, of at most `limit` items in a page, or the groups of its items. Raises InvalidQuery.

    A value can be a list, which means any of its values, and None, True or False. Raises ValueError for an empty list,
    and for parameters that only responses have: without `related`, the items that a view can embed, also for `fields`
    and `embed`.
    """
    stored = items.stored
    of_responses = {"cursor", "export", *(() if is_grouped else GROUPED), *(_OF_VIEWS if related is None else ())}
    if wrong := of_responses.intersection(parameters or {}, stored.queryable.reserved):
        raise ValueError(f"{stored.name}: {min(wrong)}: is for responses; here it would do nothing")
    lists: dict[str, list[Any]] = {}
    for name, value in (parameters or {}).items():
        if value is None and "[" not in name:
            name, value = f"{name}[is]", "null"
        elif isinstance(value, list | tuple):
            if not value:
                raise ValueError(f"{stored.name}: {name}: is an empty list, which no item has a value of")
            name = name.removesuffix("[in]")  # repeated, as a value can have a comma
        lists.setdefault(name, []).extend(value if isinstance(value, list | tuple) else [value])
    queryable = items.with_hops(stored.queryable, EVERYBODY)
    requested = parse(lists, queryable, items.config, limit, limit, related or ())
    if is_grouped:
        groups = requested.query.groups or Groups()
        return requested._replace(query=requested.query._replace(groups=groups))
    return requested._replace(query=requested.query._replace(sort=requested.query.sort or stored.resource.order))
