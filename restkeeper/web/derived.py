"""The handlers of items that refer to an item, at its path, and of items that have a secret.

Only one response has a secret, of an API key or of a webhook, and is never cached.
"""

from collections.abc import Mapping
from dataclasses import replace

from flask import Blueprint, abort, request

from restkeeper import exactjson
from restkeeper.clock import rfc3339
from restkeeper.errors import NotFound
from restkeeper.exactjson import JsonObject
from restkeeper.resources.call import ADMIN, NONE, Call, lacking
from restkeeper.resources.changes import Answer, Command, Once, Operation, Unit
from restkeeper.resources.embedding import Relation
from restkeeper.resources.items import CollectionReader, ServedCollection, refer
from restkeeper.resources.writes import CommandUnit
from restkeeper.storage.interface import Filter, Op, Record
from restkeeper.web.application import Reply, address_of
from restkeeper.web.auth import needs
from restkeeper.web.bodies import JSON, require_acceptable
from restkeeper.web.calls import current_call
from restkeeper.web.handlers import CREATE, CREATED, LIST, LISTED, UNCACHED, CollectionHandlers, json_reply
from restkeeper.web.operations import Body, Result, returns, takes

ROTATED = Result("The item, and its new secret.", {JSON: "{}WithSecret"}, ("ETag",))
STORED_NEW_WITH_SECRET = replace(ROTATED, about="The item, and its secret.", headers=(*ROTATED.headers, "Location"))


def routes_of(served: Mapping[str, Mapping[str, ServedCollection]], name: str, version: str) -> Blueprint:
    """The routes of a collection in a version, also those of the items that refer to one of its items.

    `served` has the collections by version and name. Raises ValueError for two routes with one path.
    """
    collections, items = served[version], served[version][name]
    routes = CollectionHandlers(items).blueprint()
    for path, relation in items.relations.items():
        if relation.has_route:
            if path in items.resource.actions:
                raise ValueError(f"{name}: action({path!r}): is the path of the {path} that refer to an item")
            of = ReferringHandlers(collections[relation.to.name], items, relation)
            for method, view in (("GET", of.list_items_of_parent), ("POST", of.create_item_of_parent)):
                if method in relation.to.resource.methods:
                    endpoint = f"{view.__name__}_{path.replace('.', '_')}"
                    routes.add_url_rule(f"/<id>/{path}", endpoint, view, methods=[method])
    return routes


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
        form, *more = forms = self.parents.resource.id_variants(parent.id)
        return Filter(self.relation.path, *((Op.IN, forms) if more else (Op.EQ, form)))

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


class SecretItemHandlers(CollectionHandlers):
    """The handlers of a collection whose items have a secret: for admins."""

    needs = ADMIN  # all of them, see `auth.needed_by`

    def make(self, sent: JsonObject, now: str) -> tuple[Record, str]:
        """A new item, and its secret. Raises ValidationFailed."""
        raise NotImplementedError

    def renewed(self, record: Record, now: str) -> tuple[Record, str]:
        """An item with another secret. Raises ValidationFailed for one that cannot have one."""
        raise NotImplementedError

    def store(self, unit: Unit, before: Record | None, record: Record, secret: str) -> None:
        """Store both, in the place of the item `before`, if there is one."""
        raise NotImplementedError

    def forget(self, unit: Unit, id: str) -> None:
        """Delete what is stored beside an item."""
        raise NotImplementedError

    def delete_with_secret(self, id: str) -> Reply:
        """The response to the deletion of an item and its secret."""
        require_acceptable(JSON)
        command = Command("delete", self.name, id, None, Operation(self._delete), current_call().conditions)
        return self.execute([command], Once(json_reply))

    def save_with_secret(self, id: str = "") -> Reply:
        """The response to the creation of an item, or to a new secret of the one with this id: it has the secret."""
        require_acceptable(JSON)
        sent, path = (None, "") if id else (self.body(JSON), request.path)
        now = rfc3339(self.items.domain.clock.time())

        def render(answer: Answer) -> Reply:
            reply = Reply(answer.body, headers={"Cache-Control": UNCACHED, "ETag": f'"{answer.tag}"'})
            if path:
                reply.headers["Location"] = address_of(f"{path}/{answer.id}")
            return reply

        how = Operation(self._renew) if id else Operation(self._insert, lambda sent: self.make(sent, now))
        command = Command("act", self.name, id, sent, how, current_call().conditions)
        return self.execute([command], self.items.domain.once(sent, render, secret=True))

    def _insert(self, unit: CommandUnit, to: CollectionReader, _: None, new: tuple[Record, str]) -> Answer:
        if unit.call.conditions is not NONE:
            unit.require_list(to, unit.call.conditions)
        return self._saved(unit, to, None, *new)

    def _renew(self, unit: CommandUnit, to: CollectionReader, before: Record, _: None) -> Answer:
        return self._saved(unit, to, before, *self.renewed(before, unit.now()))

    def _saved(
        self, unit: CommandUnit, to: CollectionReader, before: Record | None, record: Record, secret: str
    ) -> Answer:
        self.store(unit, before, record, secret)
        item = exactjson.loads(to.view.body(record))
        return Answer(exactjson.dumps(item | {"secret": secret}), to.tag(record), id=record.id)

    def _delete(self, unit: CommandUnit, to: CollectionReader, before: Record, _: None) -> Answer:
        unit.write_item(to, before, None)
        self.forget(unit, before.id)
        return Answer(to.view.body(before))
