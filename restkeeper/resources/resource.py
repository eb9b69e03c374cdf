"""The declaration of a collection."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, TypeVar

from marshmallow import Schema, fields

from restkeeper.positions import calling_line
from restkeeper.resources.checks import CHECKS, OF_SINGLETON, Faults, of_action, of_function
from restkeeper.resources.declaration import METHODS, Action, Declaration
from restkeeper.schemas.fields import Email
from restkeeper.storage.interface import Index

_WRITES = ("create", "update", "delete")

Function = TypeVar("Function", bound=Callable[..., Any])


def _takes_items(function: Callable[..., Any]) -> bool:
    """Whether a function before a write takes the items of the transaction, as its third parameter."""
    named = (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)
    parameters = [parameter for parameter in signature(function).parameters.values() if parameter.kind not in named]
    return len(parameters) > 2 and (parameters[2].name == "items" or parameters[2].default is Parameter.empty)


@dataclass(frozen=True)
class Resource(Declaration):
    """A collection of items, such as `Resource("orders", "order", OrderSchema)`, which is served at `/orders`.

    - `name` is the plural, of ASCII letters, digits and underscores; `singular` names one item in events and documents.
    - `schema` declares the fields of an item; `indexes` let filters and orders be fast, and values be unique.
    - `search` names the fields that the full-text search of `q` covers.
    - `ownership` binds all callers without the scope `NAME:all`.
    - `events` false: changes of items are in no feed and no webhook.
    - `upgrades` maps a revision, from 2 on, to the steps that lead to it from the revision before. It has the steps
      for all items that are stored, and for all versions of the API that are served.
    - `sort` is the order of a list where a request has none: "-created_at", or "_position", the order of storing.
    - `page_limit` and `page_bytes` are the items of a page without `limit`, and the most bytes of a page, in place of
      PAGE_LIMIT and PAGE_BYTES, also above PAGE_LIMIT_MAX.
    - `embed_limit` is the number of items that are embedded in an item that they refer to.
    - `ids`: "server", UUIDs in the order of creation; "integer", 1, 2, 3 …; "client", texts of the callers: a PUT
      creates an item, and a POST can have an `id`; "client-integer", integers of the callers, or else the next ones.
    - `methods` are those of requests: ("GET",) for a collection that only the service writes.
    - `singleton`: one item at the path of the collection, which has the defaults of its fields until it is stored.
    - `undeclared`: filters, orders and searches also use names that no field of an open schema has.
    - `path` is the name in paths, scopes and events, if that is another one. It goes before a page of the service with
      this path, which is then below `/_/`.
    - `needs` is the scope that requests need in place of `NAME:read` and `NAME:write`, such as "admin".
    """

    def action(
        self,
        name: str,
        *,
        body: type[Schema] | None = None,
        partial: bool = False,
        scope: str = "write",
        of: str = "item",
    ) -> Callable[[Function], Function]:
        """Declare an action: `POST /orders/ID/pay`, or of="collection": `POST /orders/close-day`.

        The function gets the item as a dictionary, then what the `body` has, loaded by that schema, if there is one,
        and last `items`, to find and change other items. A `partial` body is what was sent alone: no field of it is
        required, and none has a default. What it refers to exists, as in an item. The function returns the changed
        item, or None, and then what it has changed in its dictionary counts. What the schema refuses of it is a 500,
        and the log says which function, field and value. One of a collection gets no item, and returns the response's
        JSON value. Everything is one transaction, in which the item is locked. What it raises undoes all. It is called
        again if the store had to end a transaction because of others: it must have no other effects. Its docstring is
        in the API document.

        Raises ValueError for a name that cannot be part of a path, or is taken, and for a function that takes others.
        """

        def declare(function: Function) -> Function:
            action = Action(name, function, body, scope, of == "item", partial)
            self._refuse(of_action(self, action, of))
            vars(self)["actions"] = MappingProxyType({**self.actions, name: action})
            return function

        return declare

    def before(self, *writes: str) -> Callable[[Function], Function]:
        """Declare a function that is called before each of these writes: "create", "update" or "delete".

        It gets the item as it will be and as it is, each a dictionary, or None if there is none; and `items`, those of
        an action, if it has a third parameter of that name or without a default. It may change the first item in place,
        or return another one, which are validated as an action's, or raise a problem; pointers of a ValidationFailed
        are into the item. It may be called again for one request: it must have no other effects.
        Raises ValueError for another word.
        """
        return self._declared("before", writes)

    def after(self, *writes: str) -> Callable[[Function], Function]:
        """Declare a function that is called after each of these writes, in its transaction.

        It gets the item and the one before, as those of `before`, and `items`; what it raises undoes the write. Send
        mail and call others by a webhook or the feed: a transaction may still fail. Raises ValueError as `before`.
        """
        return self._declared("after", writes)

    def _declared(self, moment: str, writes: tuple[str, ...]) -> Callable[[Function], Function]:
        what = f"{moment}({', '.join(getattr(write, '__name__', repr(write)) for write in writes)})"
        if not writes or not set(writes) <= set(_WRITES):
            raise ValueError(f"{self.name}: {what}: must be some of {', '.join(map(repr, _WRITES))}")

        def declare(function: Function) -> Function:
            takes_items = moment == "after" or _takes_items(function)
            self._refuse(of_function(what, function, ("item", "before", *["items"] * takes_items)))
            called = function if takes_items else wraps(function)(lambda item, before, items: function(item, before))
            functions = {of: (*self.functions.get(of, ()), called) for of in (f"{moment} {write}" for write in writes)}
            vars(self)["functions"] = MappingProxyType({**self.functions, **functions})
            return function

        return declare

    def __post_init__(self) -> None:
        """Raises ValueError for a declaration that cannot work."""
        vars(self)["position"] = calling_line()
        if self.singleton and self.methods is METHODS:
            vars(self)["methods"] = OF_SINGLETON
        for check in CHECKS:
            self._refuse(check(self))
        emails = [(name,) for name, field in self.newest.definitions.items() if isinstance(field, Email | fields.Email)]
        vars(self)["indexes"] = tuple(
            Index(*index.fields, unique=index.unique, fold=index.fields in emails) if index.fold is None else index
            for index in self.indexes
        )
        vars(self).update({name: tuple(getattr(self, name)) for name in ("search", "methods")})
        vars(self)["upgrades"] = MappingProxyType({number: tuple(steps) for number, steps in self.upgrades.items()})

    def _refuse(self, faults: Faults) -> None:
        """Raises ValueError for the first fault: the next ones may follow from it."""
        for where, sentence in faults:
            raise ValueError(f"{self.name}{where}: {sentence}")
