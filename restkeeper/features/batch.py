"""Several operations in one request: all of them in one transaction, or none."""

import re
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, cast
from urllib.parse import parse_qs, quote, unquote

from flask import Blueprint
from marshmallow import Schema, ValidationError, fields, validate, validates_schema
from werkzeug.http import parse_etags

from restkeeper import exactjson
from restkeeper.clock import in_turns
from restkeeper.errors import Problem, ValidationFailed, shortened
from restkeeper.exactjson import JsonObject, fault, require_none
from restkeeper.feature import Seams
from restkeeper.resources.call import KNOWN, PUBLIC, Call, Conditions, lacking
from restkeeper.resources.changes import Answer, Command
from restkeeper.resources.declaration import Action, Ownership
from restkeeper.resources.items import Relation, ServedCollection, refer
from restkeeper.resources.write_parameters import (
    CONFLICT_QUERY,
    OWNER_QUERY,
    OWNER_UNUSED,
    by_unique,
    owner_fault,
    require_new_owner,
)
from restkeeper.resources.writes import CommandUnit, Execution, beyond_page, with_body
from restkeeper.schemas.fields import JsonObject as AnyObject
from restkeeper.schemas.fields import ListOf, Text
from restkeeper.schemas.item import CLIENT_IDS
from restkeeper.schemas.prepared import loaded, worded
from restkeeper.service import Service
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import RecordNotFound
from restkeeper.web.application import Reply
from restkeeper.web.auth import needs
from restkeeper.web.bodies import JSON, NO_BODY, put_back, read_bytes, read_object, require_acceptable
from restkeeper.web.calls import current_call, is_large
from restkeeper.web.edge import require_utf8
from restkeeper.web.errors import problem_of
from restkeeper.web.operations import (
    CHANGE_PROBLEMS,
    COMPARED,
    IDEMPOTENT,
    WRITE_PROBLEMS,
    Body,
    Contribution,
    Description,
    Result,
    returns,
    takes,
)

MOST_OPERATIONS = 100
_NAME = "^[A-Za-z][A-Za-z0-9_]{0,63}$"
_REFERENCE = re.compile(r"(?<=/)\$([A-Za-z][A-Za-z0-9_]{0,63})(?=/|$)")
_PATH = re.compile(r"/([^/?]+)(?:/([A-Za-z0-9._~-]{1,64}))?(?:/([A-Za-z][\w.~-]*))?", re.ASCII)
_ITEM = "^/%s/[$A-Za-z0-9._~-]{1,65}%s$"  # also one with the name of an earlier operation
_OWNER = "([?]owner=[^&]*)?"  # of an item that a PUT creates


def install(service: Service) -> Seams:
    """Serve POST /api/VERSION/batch."""
    singletons = [quote(resource.public_name) for resource in service.resources if resource.singleton]
    named = "[^/]+" if any(resource.path for resource in service.resources) else r"\w+"
    owned = any(one.ownership is not Ownership.NONE and one.ids in CLIENT_IDS for one in service.resources)
    described = Contribution(
        tags={"batch": "Several requests in one transaction."},
        build=partial(_require_item, _ITEM % (named, _OWNER * owned), singletons),
    )
    return Seams(routes=(lambda version: BatchHandlers(service, version).blueprint(),), describe=(described,))


def _require_item(pattern: str, singletons: list[str], description: Description) -> None:
    """Say in the document which operations are of an item. The paths of singletons have no id; none is deleted."""
    name = description.schema(OperationSchema)["$ref"].rpartition("/")[2]
    of_item = _operation_with(path={"pattern": pattern})
    of_single = [_operation_with(method={"enum": ["PUT", "PATCH"]}, path={"const": f"/{path}"}) for path in singletons]
    description.components.schemas[name] |= {
        "if": _operation_with(method={"enum": ["PUT", "PATCH", "DELETE"]}),
        "then": {"anyOf": [of_item, *of_single]} if of_single else of_item,
    }


def _operation_with(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {name: {"type": "string", **schema} for name, schema in properties.items()}}


class OperationSchema(Schema):
    """An operation: as a request to this path would be. Later ones can use its item's id as `$name`."""

    method = fields.String(required=True, validate=validate.OneOf(("POST", "PUT", "PATCH", "DELETE")))
    path = Text(2, 1000, required=True, metadata={"examples": ["/products"]})
    body = AnyObject(load_default=None, allow_none=True)
    if_match = Text(1, 200, metadata={"description": "As the header If-Match."})
    name = fields.String(validate=validate.Regexp(_NAME, error="must be letters, digits and underscores"))

    @validates_schema
    def require_no_body(self, operation: JsonObject, **_: Any) -> None:
        """Raises ValidationError for a body that nothing would read."""
        if operation["body"] and operation["method"] == "DELETE":
            raise ValidationError({"body": ["must be left out: DELETE takes no body"]})


class BatchSchema(Schema):
    """Operations, which are done in this order."""

    operations = ListOf(fields.Nested(OperationSchema), MOST_OPERATIONS, low=1, required=True)

    @validates_schema
    def require_names(self, batch: JsonObject, **_: Any) -> None:
        """Raises ValidationError for a name that two operations have."""
        names = [operation.get("name") for operation in batch["operations"]]
        for number, name in enumerate(names):
            if name and name in names[:number]:
                raise ValidationError({"operations": {number: {"name": ["is that of an earlier operation"]}}})


_BATCH = worded(BatchSchema())


class ResultSchema(Schema):
    """The response to an operation."""

    status = fields.Integer(required=True)
    headers = fields.Dict(keys=fields.String(), values=fields.String(), required=True)
    body = fields.Raw(required=True)


class BatchResponseSchema(Schema):
    """The responses, in the order of the operations. Generators of clients confuse a class with a field of its name."""

    results = fields.List(fields.Nested(ResultSchema), required=True)


class BatchHandlers:
    """The handler of batches, for the callers of a version of the API.

    Large ones are done one after the other in a process: each ends sooner, and small requests have their turn after a
    part of one of them. Nothing that a transaction waits for waits for that.
    """

    name = "batch"

    def __init__(self, service: Service, version: str) -> None:
        self._service = service
        self._collections = {items.resource.public_name: items for items in service.writes[version].values()}

    def blueprint(self) -> Blueprint:
        """The route."""
        routes = Blueprint(self.name, __name__)
        routes.add_url_rule("", view_func=self.run_batch, methods=["POST"])
        return routes

    @needs(KNOWN)
    @takes(IDEMPOTENT, COMPARED, body=Body(BatchSchema))
    @returns(Result("The responses.", {JSON: BatchResponseSchema}), *CHANGE_PROBLEMS, *WRITE_PROBLEMS)
    def run_batch(self) -> Reply:
        """Do several operations in one transaction: all of them, or none.

        A problem is that of the first operation that fails, whose number is the member `operation`, from 0.
        """
        require_acceptable(JSON)
        service = self._service
        put_back(read_bytes(service.config.max_body))  # first: nobody else waits for this client
        with service.domain.large(current_call().deadline(service.clock)) if is_large() else nullcontext():
            return self._run_once()

    def _run_once(self) -> Reply:
        service, sent = self._service, read_object(JSON, **self._service.config.body_limits)
        call, operations = current_call(), loaded(_BATCH, sent)["operations"]
        paths = filter(None, (_PATH.match(operation["path"]) for operation in operations))
        named = (self._collections.get(unquote(path[1])) for path in paths)
        call.shown_collections = {items.name for items in named if items}
        return cast(Reply, _Batch(service, self._collections, call, operations).run(service.domain.once(sent, _reply)))


class _Batch(Execution):
    """The operations of a batch, in order, with the collections by their public names."""

    def __init__(
        self, service: Service, collections: Mapping[str, ServedCollection], call: Call, operations: list[JsonObject]
    ) -> None:
        locked = sorted(call.shown_collections)
        super().__init__(call, collections.values(), service.store, service.domain, locked=locked)
        self._by_name, self._operations, self._most = collections, operations, service.config.page_bytes

    def do_all(self, unit: CommandUnit) -> Answer:
        transaction = unit.transaction
        ids: dict[str, str | int] = {}
        results, room = list[bytes](), self._most
        for number, operation in in_turns(enumerate(self._operations), self._clock, transaction.turn_seconds):
            self._number, unit.command = number, None
            try:
                answer = unit.do(self._command(operation, ids, unit))
                unit.command = None
                if (room := room - len(answer.body)) < 0:
                    raise beyond_page("a batch")
                if name := operation.get("name"):
                    ids[name] = _id_in(answer.body, self._number)
            except (Problem, RecordNotFound) as error:
                transaction.flush()  # what is refused of earlier operations comes first
                raise (error if isinstance(error, Problem) else problem_of(error)) from error.__cause__
            headers = {"ETag": f'"{answer.tag}"'} if answer.tag else {}
            results.append(b'{"status":200,"headers":%b,"body":%b}' % (exactjson.dumps(headers), answer.body))
        return Answer(b'{"results":[%b]}' % b",".join(results))

    def with_pointers(self, problem: Problem, command: Command | None) -> Problem:
        """As `Execution`, with the number of the operation. A parameter that is wrong is in its path."""
        number = int(command.pointer.split("/")[2]) if command else self._number
        super().with_pointers(problem, command).members["operation"] = number
        for entry in problem.members.get("errors", ()):
            if name := entry.pop("parameter", ""):
                entry |= {"pointer": f"#/operations/{number}/path", "detail": f"{name} {entry['detail']}"}
        return problem

    def _command(self, operation: JsonObject, ids: Mapping[str, Any], unit: CommandUnit) -> Command:
        """What an operation says. Raises what a request would raise, and ValidationFailed for an unknown path.

        Its faults have a place in the body.
        """
        path, _, query = operation["path"].partition("?")
        parts = _PATH.fullmatch(_REFERENCE.sub(lambda match: str(ids.get(match[1], match[0])), path))
        of = self._by_name.get(unquote(parts[1])) if parts else None
        target = self._target(of, operation["method"], parts[2], parts[3]) if of and parts else None
        args, at = parse_qs(query, keep_blank_values=True), ["operations", self._number]
        if parts is None or of is None or target is None or args.keys() - {CONFLICT_QUERY, OWNER_QUERY}:
            why = f"{operation['method']} {shortened(operation['path'])}: there is no such operation"
            raise ValidationFailed(why, errors=[fault([*at, "path"], why)])
        command, scope, relation = target
        if scope not in (PUBLIC, KNOWN) and not self.call.caller.may(scope):
            raise lacking(scope)
        if "if_match" in operation:
            if operation["method"] == "POST" and not command.id:
                require_none([fault([*at, "if_match"], "is for an operation of an item")])
            command = command._replace(conditions=Conditions(parse_etags(operation["if_match"])))
        command = command._replace(pointer=f"/operations/{self._number}/body")
        sent = (_resolved(operation["body"], ids) if ids else operation["body"]) or {}
        if args:
            require_utf8(query.encode().decode("latin-1"))
        if CONFLICT_QUERY in args:
            command = by_unique(self.reader(command.collection), command, args)
        if OWNER_QUERY in args:
            if command.kind not in ("create", "upsert"):
                raise owner_fault(OWNER_UNUSED)
            require_new_owner(self.reader(command.collection), args)
            command = command._replace(owner=args[OWNER_QUERY][0])
        unit.command = command  # below whose pointer stands what is wrong in its body
        if relation:
            self._refer(of, relation, parts[2], sent, unit.transaction)
        if isinstance(command.action, Action) and sent and not command.action.body:
            require_none([fault((), NO_BODY)])
        return with_body(self.reader(command.collection), command, sent)

    def _target(
        self, of: ServedCollection, method: str, id: str | None, name: str | None
    ) -> tuple[Command, str, Relation | None] | None:
        """The command of a path, the scope that it needs, and what a list of an item is; None if there is none."""
        resource = of.resource
        scope = resource.scope("write")
        if resource.singleton:  # its path is that of an item without the id
            if name:
                return None
            id, name = of.name, id
        if (method != "POST" or id is None) and method not in resource.methods:
            return None
        if method == "POST" and id is None:
            return Command("create", of.name), scope, None
        if method == "POST":
            relation = of.relations_for(self.call.caller).get(name or "")
            if relation and id and relation.has_route:
                below = relation.to.resource
                target = Command("create", below.name), below.scope("write"), relation
                return target if "POST" in below.methods else None
            declared = resource.actions.get(name or id or "")
            if declared is None or declared.of_item != bool(name):
                return None
            needed = resource.scope(declared.scope) if declared.scope in ("read", "write") else declared.scope
            return Command("act", of.name, (id or "") if name else "", action=declared), needed, None
        if id is None or name:
            return None
        put = "upsert" if of.stored.is_put_creating else "replace"
        return Command({"PUT": put, "PATCH": "merge", "DELETE": "delete"}[method], of.name, id), scope, None

    def _refer(
        self, of: ServedCollection, relation: Relation, id: str, sent: JsonObject, transaction: Transaction
    ) -> None:
        """Let a new item refer to the one in its path. Raises NotFound and Forbidden for that."""
        if not self.call.caller.may(scope := of.resource.scope("read")):
            raise lacking(scope)
        parent = of.stored.read(transaction, id)
        self.reader(of.name).view.access.require_sight(self.call.caller, parent)
        refer(of, [sent], relation.field, of.stored.id_of(parent), is_array=False)
        self.call.shown_collections.add(relation.to.name)


def _reply(answer: Answer) -> Reply:
    return Reply(answer.body, content_type=JSON, headers={"Cache-Control": "no-store"})


def _id_in(body: bytes, number: int) -> str | int:
    """The id of the item in a response. Raises ValidationFailed if there is none to be named."""
    match exactjson.loads(body):
        case {"id": str(id) | int(id)}:
            return id
    why = "is for an operation whose response is an item"
    raise ValidationFailed(f"name {why}", errors=[fault(["operations", number, "name"], why)])


def _resolved(value: Any, ids: Mapping[str, Any]) -> Any:
    """A JSON value with the ids of named items: each text that is just `$name`."""
    match value:
        case str():
            return ids.get(value[1:], value) if value.startswith("$") else value
        case list():
            return [_resolved(element, ids) for element in value]
        case dict():
            return {name: _resolved(member, ids) for name, member in value.items()}
    return value
