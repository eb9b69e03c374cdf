"""References: items refer to others, which exist; queries lead to these, and responses have them inside.

What checks and follows references, and embeds items, is in `resources.references` and `resources.embedding`. Here are
also the handlers of items that refer to an item, at its path: /customers/ID/orders.
"""

from collections.abc import Mapping
from importlib import import_module

from flask import Blueprint, abort, request

from restkeeper.errors import NotFound
from restkeeper.feature import Seams
from restkeeper.resources.call import NONE, Call, lacking
from restkeeper.resources.changes import Command
from restkeeper.resources.checks import followed
from restkeeper.resources.items import CollectionReader, Relation, ServedCollection, refer
from restkeeper.service import Service
from restkeeper.storage.interface import Filter, Op, Record
from restkeeper.web.application import Reply
from restkeeper.web.auth import needs
from restkeeper.web.calls import current_call
from restkeeper.web.handlers import CREATE, CREATED, LIST, LISTED, CollectionHandlers
from restkeeper.web.operations import Body, returns, takes


def install(service: Service) -> Seams:
    """Take part in the changes and the queries of a service whose items refer to others."""
    if any(True for resource in service.resources for _ in followed(resource)):
        references = import_module("restkeeper.resources.references").CheckedReferences
        service.domain.references = references(service.stored, service.domain)
        service.collection_routes.append(add_routes)
    return Seams()


def add_routes(routes: Blueprint, items: ServedCollection, others: Mapping[str, ServedCollection]) -> None:
    """Add to the routes of a collection those of the items that refer to one of its items, of these `others`.

    Raises ValueError for two routes with one path.
    """
    name = items.name
    for path, relation in items.relations.items():
        if relation.has_route:
            if path in items.resource.actions:
                raise ValueError(f"{name}: action({path!r}): is the path of the {path} that refer to an item")
            of = ReferringHandlers(others[relation.to.name], items, relation)
            for method, view in (("GET", of.list_items_of_parent), ("POST", of.create_item_of_parent)):
                if method in relation.to.resource.methods:
                    endpoint = f"{view.__name__}_{path.replace('.', '_')}"
                    routes.add_url_rule(f"/<id>/{path}", endpoint, view, methods=[method])


class ReferringHandlers(CollectionHandlers):
    """The handlers of the items that refer to an item of `parents`, at a path of that."""

    def __init__(self, items: ServedCollection, parents: ServedCollection, relation: Relation) -> None:
        super().__init__(items)
        self.parents = parents
        self.relation = relation

    def _parent(self, call: Call, id: str) -> Record:
        """The item that others refer to. Raises Forbidden, and NotFound, also as for no path."""
        if self.relation not in self.parents.relations_for(call.caller).values():
            abort(404)
        if not call.caller.may(scope := self.parents.resource.scope("read")):
            raise lacking(scope)
        call.shown_collections = {self.name}
        return CollectionReader(self.parents, call).find(id)

    def _selection(self, parent: Record) -> Filter:
        """The filter of the items that refer to this one."""
        id, *more = ids = self.parents.stored.id_variants(parent.id)
        return Filter(self.relation.path, *((Op.IN, ids) if more else (Op.EQ, id)))

    @needs("read")
    @takes(*LIST)
    @returns(*LISTED, NotFound)
    def list_items_of_parent(self, id: str) -> Reply:
        """List the items that refer to the one in the path, a page at a time."""
        also = self._selection(self._parent(current_call(), id))
        return self.page(self.begin_read(self.items.page_limit_max), also)

    @needs("write")
    @takes(*CREATE, body=Body("{}ReferringInput"))
    @returns(*CREATED, NotFound)
    def create_item_of_parent(self, id: str) -> Reply:
        """Create an item that refers to the one in the path, or an array of them.

        The field that refers to it may be left out.
        """

        def complete(commands: list[Command]) -> list[Command]:
            parent, conditions = self._parent(current_call(), id), commands[0].conditions
            bodies, parent_id = [command.body for command in commands], self.parents.stored.id_of(parent)
            refer(self.parents, bodies, self.relation.field, parent_id, is_array=bool(commands[0].pointer))
            if conditions is NONE:
                return commands
            conditions = conditions._replace(of=(self._selection(parent),))
            return [command._replace(conditions=conditions) for command in commands]

        path = f"{request.path.rsplit('/', 3)[0]}/{self.resource.public_name}"
        return self.create(path, complete)
