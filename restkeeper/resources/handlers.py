"""The one set of handlers that serves every collection."""

from dataclasses import replace

from flask import Blueprint

from restkeeper.errors import (
    IllegalTransition,
    InvalidQuery,
    NotConvertible,
    NotFound,
    PreconditionFailed,
    PreconditionRequired,
)
from restkeeper.resources.items import Items
from restkeeper.web.application import Reply
from restkeeper.web.auth import needs
from restkeeper.web.exactjson import JSON, MERGE_PATCH
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
    returns,
    takes,
)
from restkeeper.web.queries import MAX_VALUES

# What the handlers take and return.
SOME = ("{}", "{}Part")
PAGE_HEADERS = ("ETag", "Link", "X-Total-Count", "X-Omitted-Count", "Cache-Control")
ITEM_HEADERS = ("ETag", "Last-Modified", "Cache-Control")
PAGE = Result("The page.", {JSON: SOME}, PAGE_HEADERS, name="{}Page", at_most=MAX_VALUES)
READ = Result("The item.", {JSON: SOME}, ITEM_HEADERS, name="{}Read")
KEPT = Result("The item as stored.", {JSON: "{}"}, ITEM_HEADERS, name="{}Kept")
CREATED = replace(KEPT, headers=(*ITEM_HEADERS, "Location"), name="{}Created")
DELETED = Result("The item as it last was.", {JSON: "{}"}, (), name="{}Deleted")
INPUT = Body("{}Input")
PATCH = Body("{}Patch", (MERGE_PATCH, JSON))


LIST = ("Limit", "Offset", "Cursor", "{}Sort", "{}Fields", "{}Search", "{}Filters", *CONDITIONS)
CHANGE = (*CHANGE_PROBLEMS, PreconditionRequired, *WRITE_PROBLEMS, IllegalTransition, NotConvertible)


class CollectionHandlers:
    """The handlers of one collection. All of them need what `needs` says, if that is given, see `guard.needs`."""

    def __init__(self, items: Items, *, needs: str = "") -> None:
        self.needs = needs
        self.items = items
        self.name = items.name

    def blueprint(self) -> Blueprint:
        """The routes, relative to wherever the collection is mounted."""
        routes = Blueprint(self.name, __name__)
        routes.add_url_rule("", view_func=self.list_items, methods=["GET"])
        routes.add_url_rule("", view_func=self.create_item, methods=["POST"])
        routes.add_url_rule("/<id>", view_func=self.read_item, methods=["GET"])
        routes.add_url_rule("/<id>", view_func=self.replace_item, methods=["PUT"])
        routes.add_url_rule("/<id>", view_func=self.merge_item, methods=["PATCH"])
        routes.add_url_rule("/<id>", view_func=self.delete_item, methods=["DELETE"])
        return routes

    @needs("read")
    @takes(*LIST)
    @returns(PAGE, NOT_MODIFIED, InvalidQuery, PreconditionFailed)
    def list_items(self) -> Reply:
        """List the items of the collection, a page at a time."""
        for before in self.items.hooks.before_list:
            before(self.items.form)
        return self.items.page()

    @needs("write")
    @takes(*CONDITIONS, IDEMPOTENT, COMPARED, body=INPUT)
    @returns(CREATED, *WRITE_PROBLEMS, PreconditionFailed)
    def create_item(self) -> Reply:
        """Create an item."""
        return self.items.create(self.items.body(JSON))

    @needs("read")
    @takes("{}Fields", *ITEM_CONDITIONS, "IfModifiedSince")
    @returns(READ, NOT_MODIFIED, NotFound, InvalidQuery, PreconditionFailed, NotConvertible)
    def read_item(self, id: str) -> Reply:
        """Read one item."""
        return self.items.read(id)

    @needs("write")
    @takes(*ITEM_CONDITIONS, body=INPUT)
    @returns(KEPT, *CHANGE)
    def replace_item(self, id: str) -> Reply:
        """Replace an item: optional fields that are left out take their defaults."""
        return self.items.change(id, self.items.form.replace, self.items.body(JSON))

    @needs("write")
    @takes(*ITEM_CONDITIONS, body=PATCH)
    @returns(KEPT, *CHANGE)
    def merge_item(self, id: str) -> Reply:
        """Change some fields of an item (JSON Merge Patch, RFC 7396)."""
        return self.items.change(id, self.items.form.merge, self.items.body(MERGE_PATCH, JSON))

    @needs("write")
    @takes(*ITEM_CONDITIONS)
    @returns(DELETED, *CHANGE_PROBLEMS, PreconditionRequired)
    def delete_item(self, id: str) -> Reply:
        """Delete an item; the response is the item as it last was."""
        return self.items.delete(id)
