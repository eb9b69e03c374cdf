"""Several operations in one request: all of them in one transaction, or none."""

import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from flask import Blueprint
from marshmallow import Schema, ValidationError, fields, validate, validates_schema
from werkzeug.http import parse_etags

from restkeeper import exactjson
from restkeeper.clock import in_turns
from restkeeper.errors import BodyTooLarge, Problem, ValidationFailed, shortened
from restkeeper.exactjson import JsonObject, fault, require_none
from restkeeper.resources.call import KNOWN, NONE, PUBLIC, Call, Conditions, lacking
from restkeeper.resources.changes import Answer
from restkeeper.resources.embedding import Relation
from restkeeper.resources.items import ServedCollection, refer
from restkeeper.resources.resource import Action, Ownership
from restkeeper.resources.writes import (
    OWNER_QUERY,
    OWNER_UNUSED,
    CollectionWriter,
    Refusal,
    Write,
    explained_refusal,
    owner_fault,
    write_once,
)
from restkeeper.schemas.fields import JsonObject as AnyObject
from restkeeper.schemas.fields import ListOf, Text
from restkeeper.schemas.item import GIVEN
from restkeeper.schemas.prepared import worded
from restkeeper.service import Service, mount
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import DuplicateValue, RecordNotFound, StoreError
from restkeeper.web.application import Application, Reply
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
    load,
    returns,
    takes,
)

Begun = list[tuple[CollectionWriter, Write]]  # by the operations of a batch so far, in order

MOST_OPERATIONS = 100
_NAME = "^[A-Za-z][A-Za-z0-9_]{0,63}$"
_REFERENCE = re.compile(r"(?<=/)\$([A-Za-z][A-Za-z0-9_]{0,63})(?=/|$)")
_PATH = re.compile(r"/([^/?]+)(?:/([A-Za-z0-9._~-]{1,64}))?(?:/([A-Za-z][\w.~-]*))?", re.ASCII)
_ITEM = "^/%s/[$A-Za-z0-9._~-]{1,65}%s$"  # also one with the name of an earlier operation
_OWNER = "([?]owner=[^&]*)?"  # of an item that a PUT creates


def install(app: Application, service: Service) -> None:
    """Serve POST /api/VERSION/batch."""
    mount(app, service, lambda version: BatchHandlers(service, version).blueprint())
    singletons = [quote(each.public_name) for each in service.resources if each.singleton]
    named = "[^/]+" if any(each.path for each in service.resources) else r"\w+"
    owned = any(each.ownership is not Ownership.NONE and each.ids in GIVEN for each in service.resources)
    service.contributions.append(
        Contribution(
            tags={"batch": "Several requests in one transaction."},
            build=partial(_require_item, _ITEM % (named, _OWNER * owned), singletons),
        )
    )


def _require_item(pattern: str, singletons: list[str], description: Description) -> None:
    """Say in the document which operations are of an item. The paths of singletons have no id; none is deleted."""
    name = description.schema(OperationSchema)["$ref"].rpartition("/")[2]
    of_item = _operation_with(path={"pattern": pattern})
    of_single = [_operation_with(method={"enum": ["PUT", "PATCH"]}, path={"const": f"/{each}"}) for each in singletons]
    description.components.schemas[name] |= {
        "if": _operation_with(method={"enum": ["PUT", "PATCH", "DELETE"]}),
        "then": {"anyOf": [of_item, *of_single]} if of_single else of_item,
    }


def _operation_with(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {name: {"type": "string", **each} for name, each in properties.items()}}


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
        names = [each.get("name") for each in batch["operations"]]
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
        self._writes = {each.resource.public_name: each for each in service.writes[version].values()}

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
        with service.hooks.large(current_call().deadline(service.clock)) if is_large() else nullcontext():
            return self._run_once()

    def _run_once(self) -> Reply:
        service, sent = self._service, read_object(JSON, **self._service.config.body_limits)
        operations = load(_BATCH, sent)["operations"]
        paths = filter(None, (_PATH.match(each["path"]) for each in operations))
        named = (self._writes.get(unquote(path[1])) for path in paths)
        call = current_call()
        call.shown = names = {each.name for each in named if each}
        once = service.hooks.idempotency(sent, _reply)
        begun: Begun = []
        write, explain = Write(partial(self._run, call, operations, begun)), partial(_explained, begun, count())
        reply: Reply = write_once(service.store, call, once, lambda: write, service.clock, explain, sorted(names))
        return reply

    def _run(
        self, call: Call, operations: list[JsonObject], begun: Begun, transaction: Transaction, _: Write
    ) -> Answer:
        """Do the operations; `begun` has those that were, also if what the store refuses of one is raised later."""
        begun.clear()
        ids: dict[str, str | int] = {}
        results: list[bytes] = []
        left = most = self._service.config.page_bytes
        for number, operation in in_turns(enumerate(operations), self._service.clock, transaction.turn_seconds):
            try:
                answer = self._one(call, operation, number, ids, begun, transaction)
                if (left := left - len(answer.body)) < 0:
                    raise BodyTooLarge(f"the items of a batch have at most {most} bytes together")
                if name := operation.get("name"):
                    ids[name] = _id_in(answer.body, number)
                if transaction.items and transaction.items.written:
                    transaction.flush()  # what functions have written is known to be of this operation
            except Problem as problem:
                transaction.flush()  # what is refused of earlier operations comes first
                problem.members |= {"operation": number}
                raise
            headers = {"ETag": f'"{answer.tag}"'} if answer.tag else {}
            results.append(b'{"status":200,"headers":%b,"body":%b}' % (exactjson.dumps(headers), answer.body))
        return Answer(b'{"results":[%b]}' % b",".join(results))

    def _one(
        self,
        call: Call,
        operation: JsonObject,
        number: int,
        ids: Mapping[str, Any],
        begun: Begun,
        transaction: Transaction,
    ) -> Answer:
        """Do an operation. Raises what a request would raise, ValidationFailed for an unknown path or method of it.

        The store may also raise later what it refuses.
        """
        path, _, query = operation["path"].partition("?")
        parts = _PATH.fullmatch(_REFERENCE.sub(lambda found: str(ids.get(found[1], found[0])), path))
        writes = self._writes.get(unquote(parts[1])) if parts else None
        sent, args = _resolved(operation["body"], ids) or {}, parse_qs(query, keep_blank_values=True)
        conditions = Conditions(parse_etags(operation["if_match"])) if "if_match" in operation else NONE
        call = call.operation(conditions)
        found = _work(call, writes, operation["method"], parts[2], parts[3], sent) if writes and parts else None
        if writes is None or found is None or args.keys() - {OWNER_QUERY}:
            why = f"{operation['method']} {shortened(operation['path'])}: there is no such operation"
            raise ValidationFailed(why, errors=[fault(["operations", number, "path"], why)])
        prepare, scope, writer = found
        if scope not in (PUBLIC, KNOWN) and not call.caller.may(scope):
            raise lacking(scope)
        if "if_match" in operation and operation["method"] == "POST" and prepare.keywords.get("id") is None:
            require_none([fault(["operations", number, "if_match"], "is for an operation of an item")])
        try:
            if args:
                require_utf8(query.encode().decode("latin-1"))
                is_put = operation["method"] == "PUT" and writes.stored.is_put_creating
                if not is_put and prepare.func not in (writer.creation, _creation_below):
                    raise owner_fault(OWNER_UNUSED)
                writer.require_owner_used(args)
                prepare = partial(prepare, owner=args[OWNER_QUERY][0])
            write = prepare()
            begun.append((writer, write))
            return write.work(transaction, write)
        except (Problem, RecordNotFound) as error:
            problem = _placed(error, number)
            raise problem from problem.__cause__


def _reply(answer: Answer) -> Reply:
    return Reply(answer.body, content_type=JSON, headers={"Cache-Control": "no-store"})


def _placed(error: Problem | StoreError, number: int) -> Problem:
    """The problem of the operation with this number, with pointers into it."""
    problem = error if isinstance(error, Problem) else problem_of(error)
    for each in problem.members.get("errors", ()):
        if name := each.pop("parameter", ""):
            each |= {"pointer": f"#/operations/{number}/path", "detail": f"{name} {each['detail']}"}
        elif pointer := each.get("pointer"):
            each["pointer"] = f"#/operations/{number}/body{pointer.removeprefix('#')}"
    return problem


def _explained(begun: Begun, attempts: Iterator[int], error: Refusal, _: Write) -> Problem:
    """What the store refuses, of the operation that writes this; what functions have written is of the last one.

    Raises RecordChanged as `require_creation`, at most once: an earlier operation may have deleted the item.
    """
    for number, (writer, write) in enumerate(begun):  # noqa: B007 - used after it
        if any(record is error.of for record in write.after.values()):
            break
    if isinstance(error, DuplicateValue) and next(attempts) == 0:
        writer.require_creation(write)
    problem = _placed(explained_refusal(writer.view, error, write), number)
    problem.members["operation"] = number
    return problem


def _id_in(body: bytes, number: int) -> str | int:
    """The id of the item in a response. Raises ValidationFailed if there is none to be named."""
    match exactjson.loads(body):
        case {"id": str(id) | int(id)}:
            return id
    why = "is for an operation whose response is an item"
    raise ValidationFailed(f"name {why}", errors=[fault(["operations", number, "name"], why)])


def _work(
    call: Call, of: ServedCollection, method: str, id: str | None, action: str | None, sent: JsonObject
) -> tuple[partial[Write], str, CollectionWriter] | None:
    """What an operation does in a transaction, the scope that it needs, and who writes; None if there is none."""
    writer, resource = CollectionWriter(of, call), of.resource
    scope = resource.scope("write")
    if resource.singleton:  # its path is that of an item without the id
        if action:
            return None
        id, action = of.name, id
    if (method != "POST" or id is None) and method not in resource.methods:
        return None
    if method == "POST" and id is None:
        return partial(writer.creation, sent), scope, writer
    if method == "POST":
        declared, relation = resource.actions.get(action or id or ""), of.relations_for(call.caller).get(action or "")
        if relation and id and relation.is_plain and isinstance(relation.to, ServedCollection):
            if "POST" not in relation.to.resource.methods:
                return None
            below = CollectionWriter(relation.to, call)
            return partial(_creation_below, writer, below, relation, id, sent), below.of.resource.scope("write"), below
        if declared is None or declared.of_item != bool(action):
            return None
        own = resource.scope(declared.scope) if declared.scope in ("read", "write") else declared.scope
        return partial(_act, writer, declared, sent, id=id if action else None), own, writer
    if id is None or action:
        return None
    if method == "DELETE":
        return partial(writer.deletion, id), scope, writer
    change = writer.replace if method == "PUT" else writer.merge
    return partial(writer.update, id, change, sent), scope, writer


def _creation_below(
    parents: CollectionWriter,
    writer: CollectionWriter,
    relation: Relation,
    id: str,
    sent: JsonObject,
    owner: str | None = None,
) -> Write:
    """Create an item that refers to the one with this id, at a path of that. Raises NotFound and Forbidden for that."""

    def work(transaction: Transaction, write: Write) -> Answer:
        of = parents.of
        if not writer.caller.may(scope := of.resource.scope("read")):
            raise lacking(scope)
        of.access.require_sight(writer.caller, parent := of.stored.read(transaction, id))
        refer(of, [sent], relation.field, of.stored.id_of(parent), is_array=False)
        writer.call.shown.add(writer.of.name)
        return writer.creation(sent, owner).work(transaction, write)

    return Write(work)


def _act(writer: CollectionWriter, action: Action, sent: JsonObject, id: str | None) -> Write:
    if sent and not action.body:
        require_none([fault((), NO_BODY)])
    loaded = action.schema and load(action.schema, sent)
    return writer.execution(action, loaded, id)


def _resolved(value: Any, ids: Mapping[str, Any]) -> Any:
    """A JSON value with the ids of named items: each text that is just `$name`."""
    match value:
        case str():
            return ids.get(value[1:], value) if value.startswith("$") else value
        case list():
            return [_resolved(each, ids) for each in value]
        case dict():
            return {name: _resolved(each, ids) for name, each in value.items()}
    return value
