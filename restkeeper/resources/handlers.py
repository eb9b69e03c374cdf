"""The one set of handlers that serves every collection, and what those share whose items have a secret.

Only one response has a secret, of an API key or of a webhook, and is never cached.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MethodType
from typing import Any, cast
from urllib.parse import quote

from flask import Blueprint, Request, abort, current_app, request

from restkeeper import exactjson
from restkeeper.clock import rfc3339
from restkeeper.errors import (
    Conflict,
    EditConflict,
    IllegalTransition,
    InvalidQuery,
    NotFound,
    PreconditionFailed,
    PreconditionRequired,
    ValidationFailed,
)
from restkeeper.resources.embedding import Relation
from restkeeper.resources.items import UNCACHED, CollectionReader
from restkeeper.resources.resource import Action
from restkeeper.resources.writes import OWNER_QUERY, OWNER_UNUSED, CollectionWriter, Write, owner_fault
from restkeeper.storage.base import Transaction
from restkeeper.storage.interface import Filter, Op, Record
from restkeeper.web.application import SAFE_METHODS, Application, Reply, address_of
from restkeeper.web.auth import ADMIN, caller, lacking, needs
from restkeeper.web.bodies import JSON, MERGE_PATCH, read_none, require_acceptable
from restkeeper.web.observe import SHOWN
from restkeeper.web.operations import (
    CHANGE_PROBLEMS,
    COMPARED,
    CONDITIONS,
    IDEMPOTENT,
    ITEM_CONDITIONS,
    NOT_MODIFIED,
    WRITE_PROBLEMS,
    Body,
    Result,
    SchemaOf,
    load,
    operation_of,
    returned,
    returns,
    takes,
)
from restkeeper.web.preconditions import require_match
from restkeeper.web.queries import MAX_VALUES

MOST_TOGETHER = 100  # items that one request creates

# What the handlers take and return.
EMBED: dict[str, SchemaOf] = {"embed": "{}Embedded"}
PAGE_HEADERS = ("ETag", "Link", "X-Total-Count")
ITEM_HEADERS = ("ETag", "Last-Modified")
VALUE = {"type": ["string", "number", "boolean", "null"]}
GROUP = returned({"value": VALUE, "count": {"type": "integer", "minimum": 1}})
PAGED: dict[str, SchemaOf] = {**EMBED, "count": GROUP}
PAGE = Result("The page.", {JSON: "{}"}, PAGE_HEADERS, at_most=MAX_VALUES, with_parameter=PAGED)
READ = Result("The item.", {JSON: "{}"}, ITEM_HEADERS, with_parameter=EMBED)
KEPT = Result("The item as stored.", {JSON: "{}"}, ITEM_HEADERS)
RESULT = Result("What the action returns.", {JSON: {}})
CREATED = replace(KEPT, headers=(*ITEM_HEADERS, "Location"))
DELETED = Result("The item as it last was.", {JSON: "{}"})
ROTATED = Result("The item, and its new secret.", {JSON: "{}WithSecret"}, ("ETag",))
CREATED_WITH_SECRET = replace(ROTATED, about="The item, and its secret.", headers=(*ROTATED.headers, "Location"))
INPUT = Body("{}Input")
PATCH = Body("{}Patch", (MERGE_PATCH, JSON))
OWNER_PARAMETER = "{}Owner"

PARTS = ("{}Sort", "{}Fields", "{}Search", "{}Filters", "{}Or", "{}Count")
LIST = ("{}Limit", "Offset", "Cursor", *PARTS, "{}Embed", *CONDITIONS)
CHANGE = (*CHANGE_PROBLEMS, PreconditionRequired, *WRITE_PROBLEMS, EditConflict, IllegalTransition)


def require_owner_used(request: Request) -> None:
    """Raises ValidationFailed for a write that names an owner and would ignore it."""
    if request.method in SAFE_METHODS or not request.query_string or OWNER_QUERY not in request.args:
        return
    if request.blueprint not in cast(Application, current_app).mounted:
        return
    view: Any = current_app.view_functions[str(request.endpoint)]
    if OWNER_PARAMETER not in operation_of(view).parameters:
        raise owner_fault(OWNER_UNUSED)
    view.__self__.items.require_owner_used(request.args)


class CollectionHandlers:
    """The handlers of one collection; `others` are those that can refer to it, by name."""

    def __init__(self, items: CollectionWriter, *, others: Mapping[str, CollectionWriter] | None = None) -> None:
        self.items = items
        self.name, self.resource = items.name, items.resource
        self._others = others or {}

    def blueprint(self) -> Blueprint:
        """The routes, relative to wherever the collection is mounted. Raises ValueError for two with one path."""
        routes = Blueprint(self.name, __name__)
        resource = self.resource
        resource.require_actions()
        put = self.put_item if self.items.stored.is_put_creating else self.replace_item
        item, defaults = ("", {"id": self.name}) if resource.singleton else ("/<id>", {})
        views: list[tuple[str, str, Callable[..., Reply]]] = [
            ("", "GET", self.list_items),
            ("", "POST", self.create_item),
            (item, "GET", self.read_item),
            (item, "PUT", put),
            (item, "PATCH", self.merge_item),
            (item, "DELETE", self.delete_item),
        ]
        for path, method, view in views[2:] if resource.singleton else views:
            if method in resource.methods:
                routes.add_url_rule(path, view_func=view, methods=[method], defaults=defaults)
        for action in resource.actions.values():
            path = f"{item}/{action.name}" if action.of_item else f"/{action.name}"
            routes.add_url_rule(path, view_func=self._view(action), methods=["POST"], defaults=defaults)
        for name, relation in self.items.relations.items():
            if relation.is_plain:
                if name in resource.actions:
                    raise ValueError(f"{self.name}: action({name!r}): is the path of the {name} that refer to an item")
                of = ReferringHandlers(self._others[relation.to.name], self.items, relation)
                for method, view in (("GET", of.list_items_of_parent), ("POST", of.create_item_of_parent)):
                    if method in relation.to.resource.methods:
                        endpoint = f"{view.__name__}_{name.replace('.', '_')}"
                        routes.add_url_rule(f"/<id>/{name}", endpoint, view, methods=[method])
        return routes

    def _view(self, action: Action) -> Callable[..., Reply]:
        """The handler of an action, with its declaration."""

        def act(handlers: CollectionHandlers, id: str | None = None) -> Reply:
            require_acceptable(JSON)
            sent = handlers.items.body(JSON) if action.body else read_none(handlers.items.config.max_body)
            execute = partial(handlers.items.execution, action, action.schema and load(action.schema, sent), id)
            return handlers.items.write(execute, handlers.items.hooks.idempotency(sent))

        act.__name__ = f"{action.name.replace('-', '_')}_item{'' if action.of_item else 's'}"
        act.__doc__ = action.function.__doc__ or f"{action.name}."
        taken = (*(ITEM_CONDITIONS if action.of_item else ()), IDEMPOTENT, COMPARED)
        returned = (KEPT, *CHANGE) if action.of_item else (RESULT, *WRITE_PROBLEMS)
        own = operation_of(action.function).problems
        view = takes(*taken, body=action.schema and Body(action.schema))(returns(*returned, Conflict, *own)(act))
        return MethodType(needs(action.scope)(view), self)

    @needs("read")
    @takes(*LIST)
    @returns(PAGE, NOT_MODIFIED, InvalidQuery, PreconditionFailed)
    def list_items(self) -> Reply:
        """List the items of the collection, a page at a time."""
        return self.items.page()

    @needs("write")
    @takes(*CONDITIONS, OWNER_PARAMETER, IDEMPOTENT, COMPARED, body=INPUT)
    @returns(CREATED, *WRITE_PROBLEMS, PreconditionFailed)
    def create_item(self) -> Reply:
        """Create an item.

        An array of 1 to 100 of them creates all or none; the response is then the array of the items as stored. That is
        not in the schemas: types that are made from them stay as they are.
        """
        return self.items.create(self.items.body(JSON, most=MOST_TOGETHER))

    @needs("read")
    @takes("{}Fields", "{}Embed", *ITEM_CONDITIONS, "IfModifiedSince")
    @returns(READ, NOT_MODIFIED, NotFound, InvalidQuery, PreconditionFailed)
    def read_item(self, id: str) -> Reply:
        """Read one item."""
        return self.items.read(id)

    @needs("write")
    @takes(*ITEM_CONDITIONS, body=INPUT)
    @returns(KEPT, *CHANGE)
    def replace_item(self, id: str) -> Reply:
        """Replace an item: optional fields that are left out take their defaults."""
        return self.items.write(partial(self.items.update, id, self.items.replace, self.items.body(JSON)))

    @needs("write")
    @takes(*ITEM_CONDITIONS, OWNER_PARAMETER, body=Body("{}Replacement"))
    @returns(KEPT, *(each for each in CHANGE if each is not NotFound))
    def put_item(self, id: str) -> Reply:
        """Replace an item, or create it if there is none: `If-Match` only replaces, `If-None-Match: *` only creates."""
        sent, owner = self.items.body(JSON), request.args.get(OWNER_QUERY)
        return self.items.write(partial(self.items.update, id, self.items.replace, sent, owner))

    @needs("write")
    @takes(*ITEM_CONDITIONS, body=PATCH)
    @returns(KEPT, *CHANGE)
    def merge_item(self, id: str) -> Reply:
        """Change some fields of an item (JSON Merge Patch, RFC 7396)."""
        return self.items.write(partial(self.items.update, id, self.items.merge, self.items.body(MERGE_PATCH, JSON)))

    @needs("write")
    @takes(*ITEM_CONDITIONS)
    @returns(DELETED, *CHANGE_PROBLEMS, PreconditionRequired, ValidationFailed)
    def delete_item(self, id: str) -> Reply:
        """Delete an item; the response is the item as it last was."""
        require_acceptable(JSON)
        return self.items.write(partial(self.items.deletion, id))


class ReferringHandlers(CollectionHandlers):
    """The handlers of the items that refer to an item of `parents`, at a path of that."""

    def __init__(self, items: CollectionWriter, parents: CollectionReader, relation: Relation) -> None:
        super().__init__(items)
        self.parents = parents
        self.relation = relation

    def _parent(self, id: str) -> Record:
        """The item that others refer to. Raises Forbidden, and NotFound as `require_sight`, or as for no path."""
        if self.relation not in self.parents.relations.values():
            abort(404)
        if not caller().may(scope := self.parents.resource.scope("read")):
            raise lacking(scope)
        request.environ[SHOWN] = {self.name}
        return self.parents.require_sight(id)

    def _selection(self, parent: Record) -> Filter:
        """The filter of the items that refer to this one."""
        first, *more = forms = self.parents.resource.forms(parent.id)
        return Filter(self.relation.path, *((Op.IN, forms) if more else (Op.EQ, first)))

    @needs("read")
    @takes(*LIST)
    @returns(PAGE, NOT_MODIFIED, NotFound, InvalidQuery, PreconditionFailed)
    def list_items_of_parent(self, id: str) -> Reply:
        """List the items that refer to the one in the path, a page at a time."""
        return self.items.page(self._selection(self._parent(id)))

    @needs("write")
    @takes(*CONDITIONS, OWNER_PARAMETER, IDEMPOTENT, COMPARED, body=Body("{}ReferringInput"))
    @returns(CREATED, NotFound, *WRITE_PROBLEMS, PreconditionFailed)
    def create_item_of_parent(self, id: str) -> Reply:
        """Create an item that refers to the one in the path, or an array of them.

        The field that refers to it may be left out.
        """
        sent = self.items.body(JSON, most=MOST_TOGETHER)
        several = sent if isinstance(sent, list) else [sent]

        def refer() -> tuple[Filter, ...]:
            parent = self._parent(id)
            shown = self.parents.stored.id_of(parent)
            self.parents.refer(several, self.relation.field, shown, is_array=several is sent)
            return (self._selection(parent),)

        reply = self.items.create(sent, refer)
        if location := reply.headers.get("Location"):
            reply.headers["Location"] = (
                f"{location.rsplit('/', 4)[0]}/{quote(self.resource.public_name)}/{location.rpartition('/')[2]}"
            )
        return reply


class SecretItemHandlers(CollectionHandlers):
    """The handlers of a collection whose items have a secret: for admins."""

    needs = ADMIN  # all of them, see `auth.needed_by`

    @returns(READ, NOT_MODIFIED, NotFound, InvalidQuery, PreconditionFailed)
    def read_item(self, id: str) -> Reply:
        """Read one item."""
        return super().read_item(id)

    def save_with_secret(
        self,
        make: Callable[[Any, str], tuple[Record, str]],
        store: Callable[..., object],
        id: str | None = None,
    ) -> Reply:
        """Create an item from the request's body, or give the one with this id a new secret.

        `make` gets what was sent, or the item, and the time; it returns the item and its secret, which only this
        response has. `store` is called with a transaction and these two, by name.
        """
        require_acceptable(JSON)
        items, sent = self.items, self.items.body(JSON) if id is None else None

        def prepare() -> Write:
            return Write(partial(work, make(sent, rfc3339(items.clock.time())) if id is None else None))

        def work(new: tuple[Record, str] | None, transaction: Transaction, write: Write) -> Reply:
            if new is None:
                before = transaction.read(items.name, str(id))
                require_match(items.tag(before), before.updated_at)
                new = make(before, rfc3339(items.clock.time()))
            else:
                items.require_list(transaction)
            record, secret = new
            store(transaction, record=record, secret=secret)
            body = exactjson.dumps(exactjson.loads(items.stored.body(record)) | {"secret": secret})
            reply = Reply(body, headers={"Cache-Control": UNCACHED, "ETag": f'"{items.tag(record)}"'})
            if id is None:
                reply.headers["Location"] = address_of(f"{request.path}/{record.id}")
            return reply

        return items.write(prepare, items.hooks.idempotency(sent, secret=True))
