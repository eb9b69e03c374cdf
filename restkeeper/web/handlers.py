"""The one set of handlers that serves every collection."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import MethodType
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from flask import Blueprint, Request, current_app, request

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
from restkeeper.resources.cache import Cache
from restkeeper.resources.call import NONE, Call
from restkeeper.resources.changes import Answer, Command, Once, Operation
from restkeeper.resources.declaration import Action
from restkeeper.resources.item import digest
from restkeeper.resources.items import CollectionReader, ServedCollection
from restkeeper.resources.parameters import AGGREGATES, refused
from restkeeper.resources.queries import MOST_GROUPS
from restkeeper.resources.write_parameters import (
    CONFLICT_QUERY,
    CONFLICT_UNUSED,
    OWNER_QUERY,
    OWNER_UNUSED,
    by_unique,
    owner_fault,
    require_new_owner,
)
from restkeeper.resources.writes import Commands, Completion, Creations
from restkeeper.storage.interface import Filter
from restkeeper.web import current_request
from restkeeper.web.application import SAFE_METHODS, UNESCAPED, Application, Reply, address_of, headers_of
from restkeeper.web.auth import needs
from restkeeper.web.bodies import CSV, JSON, MERGE_PATCH, read_none, read_object, require_acceptable
from restkeeper.web.calls import api_address, arguments, current_call, is_large
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
    operation_of,
    returned,
    returns,
    takes,
)
from restkeeper.web.pagination import links, resolve
from restkeeper.web.preconditions import last_modified

# Cache-Control (RFC 9111, section 5.2.2): a cache validates its copy each time, which the ETag makes
# cheap; it does so for one caller only; it stores nothing.
REVALIDATED = "no-cache"
OF_CALLER = "private, no-cache"
UNCACHED = "no-store"
VARIES = (("Vary", "Accept"),)  # what a list has beside its ETag: it is JSON or CSV
PAGE_OVERHEAD = 2000  # bytes that Python's objects for one response take, as measured, rounded up
_NO_OWNER = (None,)
_ID_UNESCAPED = UNESCAPED.replace("/", "")
MOST_TOGETHER = 100  # items that one request creates

# What the handlers take and return.
EMBED: dict[str, SchemaOf] = {"embed": "{}Embedded"}
PAGE_HEADERS = ("ETag", "Link", "X-Total-Count")
ITEM_HEADERS = ("ETag", "Last-Modified")
GROUP = returned(
    {"value": {"type": ["string", "number", "boolean", "null"]}, "count": {"type": "integer", "minimum": 1}}
)
PAGED: dict[str, SchemaOf] = {**EMBED, "count": GROUP, **dict.fromkeys(AGGREGATES, "Grouped")}
ROWS = {CSV: {"type": "string"}}
PAGE = Result("The page.", {JSON: "{}"}, PAGE_HEADERS, at_most=MOST_GROUPS, with_parameter=PAGED, also=ROWS)
READ = Result("The item.", {JSON: "{}"}, ITEM_HEADERS, with_parameter=EMBED)
STORED = Result("The item as stored.", {JSON: "{}"}, ITEM_HEADERS)
STORED_NEW = replace(STORED, headers=(*ITEM_HEADERS, "Location"))
DELETED = Result("The item as it last was.", {JSON: "{}"})
INPUT = Body("{}Input")
OWNER_PARAMETER, CONFLICT_PARAMETER = "{}Owner", "{}Conflict"
COUNTS = ("{}Count", "{}Aggregates", "{}Zone")
PARTS = ("{}Sort", "{}Fields", "{}Search", "{}Filters", "{}Or", *COUNTS, "{}Export")
LIST = ("{}Limit", "Offset", "Cursor", *PARTS, "{}Embed", *CONDITIONS)
LISTED = (PAGE, NOT_MODIFIED, InvalidQuery, PreconditionFailed)
CREATE = (*CONDITIONS, CONFLICT_PARAMETER, OWNER_PARAMETER, IDEMPOTENT, COMPARED)
CREATED = (STORED_NEW, *WRITE_PROBLEMS, PreconditionFailed)
CHANGE = (*CHANGE_PROBLEMS, PreconditionRequired, *WRITE_PROBLEMS, EditConflict, IllegalTransition)


def require_query_used(request: Request) -> None:
    """Raises ValidationFailed or InvalidQuery for a write that names an owner or unique fields, and would ignore it."""
    if request.method in SAFE_METHODS or not request.query_string:
        return
    if request.blueprint not in cast(Application, current_app).mounted:
        return
    view: Any = current_app.view_functions[str(request.endpoint)]
    parameters, args = operation_of(view).parameters, arguments()
    if CONFLICT_QUERY in args and CONFLICT_PARAMETER not in parameters:
        raise refused(CONFLICT_QUERY, CONFLICT_UNUSED)
    if OWNER_QUERY in args:
        if OWNER_PARAMETER not in parameters:
            raise owner_fault(OWNER_UNUSED)
        require_new_owner(CollectionReader(view.__self__.items, current_call()), args)


class _CachedPage(NamedTuple):
    """The response to the request for a page of a list."""

    change_token: str  # of the collection, at the moment that the page was read
    tag: str
    body: bytes
    headers: list[tuple[str, str]]

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes: its Link may be longer than its body."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers) + PAGE_OVERHEAD


class CollectionHandlers:
    """The handlers of one collection. `caching` is the Cache-Control of responses."""

    def __init__(self, items: ServedCollection, *, caching: str = "") -> None:
        self.items = items
        self.name, self.resource = items.name, items.resource
        self.caching = caching or (OF_CALLER if items.config.auth == "required" else REVALIDATED)
        self._pages: Cache[tuple[tuple[str, ...] | None, str, str, str, bytes], _CachedPage] = items.pages

    def body(self, *types: str, most: int = 0) -> Any:
        """The JSON object in the request's body, or an array of them. Raises as `read_object`."""
        require_acceptable(JSON)
        return read_object(*types, most=most, **self.items.config.body_limits)

    def execute(self, commands: list[Command], once: Once, complete: Completion = list) -> Reply:
        """The response to commands. See `Commands`."""
        kind = Creations if commands[0].kind == "create" else Commands
        return cast(Reply, kind(self.items, current_call(), commands, complete, large=is_large()).run(once))

    def change(self, kind: str, id: str, *types: str, how: Operation | None = None) -> Reply:
        """The response to a change that may be repeated: it is the item."""
        (owner, *_), conditions = arguments().get(OWNER_QUERY, _NO_OWNER), current_call().conditions
        command = Command(kind, self.name, id, self.body(*types), how, conditions, owner=owner)
        return self.execute([command], Once(self.render_item))

    def render_item(self, answer: Answer) -> Reply:
        """The response with an item."""
        headers = [
            ("Content-Type", JSON),
            ("Content-Length", str(len(answer.body))),
            ("ETag", f'"{answer.tag}"'),
            ("Last-Modified", last_modified(answer.changed_at, self.items.domain.clock.time())),
            ("Cache-Control", self.caching),
        ]
        return Reply([answer.body], headers=headers_of(headers))

    def render_created(self, address: str, answer: Answer) -> Reply:
        """The response with a new item of the list at this address, or with the array of them.

        It is made in the transaction, and again by each attempt.
        """
        if not answer.tag:
            return Reply(answer.body, content_type=JSON, headers={"Cache-Control": self.caching})
        reply = self.render_item(answer)
        reply.headers["Location"] = f"{address}/{quote(str(self.resource.public_id(answer.id)), _ID_UNESCAPED)}"
        return reply

    def not_modified(
        self, call: Call, tag: str, updated_at: str = "", also: tuple[tuple[str, str], ...] = ()
    ) -> Reply | None:
        """The 304 to a client that has this state, with the caching fields of a 200 (RFC 9110, section 15.4.5)."""
        call.conditions.require(tag, updated_at, reads=True)
        if not call.conditions.are_held(tag, updated_at):
            return None
        return Reply(b"", 304, headers=headers_of([("ETag", f'"{tag}"'), ("Cache-Control", self.caching), *also]))

    def begin_read(self, most: int = 0) -> CollectionReader:
        require_acceptable(JSON, *[CSV] * bool(most))
        reader = CollectionReader(self.items, current_call())
        for translate in self.items.domain.query.functions:
            translate(reader.view, most)
        return reader

    def page(self, reader: CollectionReader, *also: Filter) -> Reply:
        """The requested page of the list, of the items that `also` these filters select; 304 if the client has it.

        It is JSON, or the CSV that the client prefers or that `export` asks for, which has an ETag of its own.
        """
        media = require_acceptable(JSON, CSV)
        call, request, conditional = reader.call, current_request(), reader.call.conditions is not NONE
        path, owners = request.root_path + request.path, reader.view.access.owners(reader.caller)
        address = (owners, reader.view.fingerprint, path, media, request.query_string)  # what it depends on
        page = self._pages.get(address)
        change_token = reader.change_token() if page or conditional else None
        if page is None or page.change_token != change_token:
            args = arguments()
            listing = reader.parse(args)
            tables = import_module("restkeeper.web.tables") if listing.export or media == CSV else None
            end = "-csv" if tables else ""  # of the ETag
            if tables:
                tables.require_items(listing)
            query = resolve(listing, reader.query(listing, also), request.path, args)
            if owners is None and conditional and change_token and not listing.is_joined:
                tag = reader.list_tag(change_token, listing.limit) + end
                if unchanged := self.not_modified(call, tag, also=VARIES):
                    return unchanged  # without reading the page
            result = reader.list_page(listing, query, api_address() if listing.embed else "")
            body, tag = result.body, result.tag + end
            if tables:
                body = tables.csv_of(listing, body, reader.view, self.items.domain.clock)
            headers = [
                ("Content-Type", f"{CSV}; charset=utf-8" if end else JSON),
                ("Content-Length", str(len(body))),
                ("ETag", f'"{tag}"'),
                ("Cache-Control", self.caching),
                *VARIES,
            ]
            if listing.export:
                headers.append(("Content-Disposition", f'attachment; filename="{self.name}.csv"'))
            link = "" if listing.query.groups else links(listing, query, result.page, result.total, request.path, args)
            if link:
                headers.append(("Link", link))
            if result.total is not None:
                headers.append(("X-Total-Count", str(result.total)))
            page = _CachedPage(result.change_token, tag, body, headers)
            if not listing.is_joined:  # which others change
                self._pages.add(address, page, page.size + sum(map(len, (*address[1:], *(owners or ())))))
        if conditional and (unchanged := self.not_modified(call, page.tag, also=VARIES)):
            return unchanged
        return Reply([page.body], headers=headers_of(page.headers))

    def create(self, path: str, complete: Completion = list) -> Reply:
        """Create an item from the request's body, or items from an array: all or none, and the response is an array.

        The new items are at this `path`.
        """
        sent, args, conditions = self.body(JSON, most=MOST_TOGETHER), arguments(), current_call().conditions
        owner, *_ = args.get(OWNER_QUERY, _NO_OWNER)
        several = [(f"/{n}", item) for n, item in enumerate(sent)] if isinstance(sent, list) else [("", sent)]
        new = Command("create", self.name, conditions=conditions, owner=owner)
        if CONFLICT_QUERY in args:
            new = by_unique(CollectionReader(self.items, current_call()), new, args)
        commands = [new._replace(body=item, pointer=pointer) for pointer, item in several]
        return self.execute(
            commands, self.items.domain.once(sent, partial(self.render_created, address_of(path))), complete
        )

    def blueprint(self) -> Blueprint:
        """The routes, relative to wherever the collection is mounted. Raises ValueError for two with one path."""
        routes = Blueprint(self.name, __name__)
        resource = self.resource
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
        return routes

    def _view(self, action: Action) -> Callable[..., Reply]:
        """The handler of an action, with its declaration."""

        def act(handlers: CollectionHandlers, id: str | None = None) -> Reply:
            require_acceptable(JSON)
            sent = handlers.body(JSON) if action.body else read_none(handlers.items.config.max_body)
            render = handlers.render_item if action.of_item else json_reply
            command = Command("act", handlers.name, id or "", sent, action, current_call().conditions)
            return handlers.execute([command], handlers.items.domain.once(sent, render))

        act.__name__ = f"{action.name.replace('-', '_')}_item{'' if action.of_item else 's'}"
        act.__doc__ = action.function.__doc__ or f"{action.name}."
        parameters = (*(ITEM_CONDITIONS if action.of_item else ()), IDEMPOTENT, COMPARED)
        changed = (STORED, *CHANGE_PROBLEMS, *WRITE_PROBLEMS, EditConflict, IllegalTransition)
        returned = changed if action.of_item else (Result("What the action returns.", {JSON: {}}), *WRITE_PROBLEMS)
        view = returns(*returned, Conflict, *operation_of(action.function).problems)(act)
        view = takes(*parameters, body=action.schema and Body(action.schema))(view)
        return MethodType(needs(action.scope)(view), self)

    @needs("read")
    @takes(*LIST)
    @returns(*LISTED)
    def list_items(self) -> Reply:
        """List the items of the collection, a page at a time."""
        return self.page(self.begin_read(self.items.page_limit_max))

    @needs("write")
    @takes(*CREATE, body=INPUT)
    @returns(*CREATED)
    def create_item(self) -> Reply:
        """Create an item.

        An array of 1 to 100 of them creates all or none; the response is then the array of the items as stored. That is
        not in the schemas: types that are made from them stay as they are.
        """
        return self.create(request.path)

    @needs("read")
    @takes("{}Fields", "{}Embed", *ITEM_CONDITIONS, "IfModifiedSince")
    @returns(READ, NOT_MODIFIED, NotFound, InvalidQuery, PreconditionFailed)
    def read_item(self, id: str) -> Reply:
        """Read one item."""
        reader, args = self.begin_read(), arguments()
        fields, embed = reader.parse_item(args) if args else (None, {})
        record, conditional = reader.find(id), reader.call.conditions is not NONE
        if embed:
            (body,) = reader.embed([reader.view.body(record)], embed, fields, api_address())
            if conditional and (unchanged := self.not_modified(reader.call, digest(body))):
                return unchanged
            headers = {"ETag": f'"{digest(body)}"', "Cache-Control": self.caching}
            return Reply(body, content_type=JSON, headers=headers)
        answer = reader.answer(record, fields)
        if conditional and (unchanged := self.not_modified(reader.call, answer.tag, answer.changed_at)):
            return unchanged
        return self.render_item(answer)

    @needs("write")
    @takes(*ITEM_CONDITIONS, body=INPUT)
    @returns(STORED, *CHANGE)
    def replace_item(self, id: str) -> Reply:
        """Replace an item: optional fields that are left out take their defaults."""
        return self.change("replace", id, JSON)

    @needs("write")
    @takes(*ITEM_CONDITIONS, OWNER_PARAMETER, body=Body("{}Replacement"))
    @returns(STORED, *(problem for problem in CHANGE if problem is not NotFound))
    def put_item(self, id: str) -> Reply:
        """Replace an item, or create it if there is none: `If-Match` only replaces, `If-None-Match: *` only creates."""
        return self.change("upsert", id, JSON)

    @needs("write")
    @takes(*ITEM_CONDITIONS, body=Body("{}Patch", (MERGE_PATCH, JSON)))
    @returns(STORED, *CHANGE)
    def merge_item(self, id: str) -> Reply:
        """Change some fields of an item (JSON Merge Patch, RFC 7396)."""
        return self.change("merge", id, MERGE_PATCH, JSON)

    @needs("write")
    @takes(*ITEM_CONDITIONS)
    @returns(DELETED, *CHANGE_PROBLEMS, PreconditionRequired, ValidationFailed)
    def delete_item(self, id: str) -> Reply:
        """Delete an item; the response is the item as it last was."""
        command = Command("delete", self.name, id, conditions=self.begin_read().call.conditions)
        return self.execute([command], Once(json_reply))


def json_reply(answer: Answer) -> Reply:
    """The response with JSON that is no item, or not any more."""
    return Reply(answer.body, content_type=JSON)
