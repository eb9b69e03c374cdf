"""Several operations in one request: all of them in one transaction, or none."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flask import Blueprint, request
from marshmallow import Schema, ValidationError, fields, validate, validates_schema

from restkeeper.errors import BodyTooLarge, Problem, ValidationFailed, shortened
from restkeeper.resources.items import Items, write_together
from restkeeper.resources.representation import JsonObject
from restkeeper.schemas.fields import JsonObject as AnyObject
from restkeeper.schemas.fields import ListOf, Text
from restkeeper.service import Service, mount
from restkeeper.storage.errors import DuplicateValue, RecordNotFound, ReferenceMissing
from restkeeper.storage.interface import Transaction
from restkeeper.web import exactjson
from restkeeper.web.application import Application, Reply
from restkeeper.web.auth import KNOWN, PUBLIC, caller, lacking, needs
from restkeeper.web.errors import problem_of
from restkeeper.web.exactjson import JSON, fault, read_object, require_acceptable
from restkeeper.web.operations import (
    CHANGE_PROBLEMS,
    COMPARED,
    IDEMPOTENT,
    WRITE_PROBLEMS,
    Body,
    Result,
    returns,
    takes,
)
from restkeeper.web.views import load

MOST_OPERATIONS = 100
_NAME = "^[A-Za-z][A-Za-z0-9_]{0,63}$"
_REFERENCE = re.compile(r"(?<=/)\$([A-Za-z][A-Za-z0-9_]{0,63})(?=/|$)")
_PATH = re.compile(r"/(\w+)(?:/([A-Za-z0-9._~-]{1,64}))?(?:/([a-z][a-z0-9-]*))?", re.ASCII)
_CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH", "HTTP_IF_MODIFIED_SINCE", "HTTP_IF_UNMODIFIED_SINCE")


def install(app: Application, service: Service) -> None:
    """Serve POST /api/VERSION/batch."""
    mount(app, service, lambda version: BatchHandlers(service, version).blueprint())


class OperationSchema(Schema):
    """An operation: as a request to this path would be. Later ones can use its item's id as `$name`."""

    method = fields.String(required=True, validate=validate.OneOf(("POST", "PUT", "PATCH", "DELETE")))
    path = Text(2, 1000, required=True, metadata={"examples": ["/products"]})
    body = AnyObject(load_default=None, allow_none=True)
    if_match = Text(1, 200, metadata={"description": "As the header If-Match."})
    name = fields.String(validate=validate.Regexp(_NAME, error="must be letters, digits and underscores"))

    @validates_schema
    def require_item(self, operation: JsonObject, **_: Any) -> None:
        """Raises ValidationError for a condition that nothing would compare."""
        if "if_match" in operation and operation["method"] == "POST" and operation["path"].count("/") < 3:
            raise ValidationError({"if_match": ["is for an operation of an item"]})


class BatchSchema(Schema):
    """Operations, which are done in this order."""

    operations = ListOf(fields.Nested(OperationSchema), MOST_OPERATIONS, low=1, required=True)


class ResultSchema(Schema):
    """The response to an operation."""

    status = fields.Integer(required=True)
    headers = fields.Dict(keys=fields.String(), values=fields.String(), required=True)
    body = fields.Raw(required=True)


class ResultsSchema(Schema):
    """The responses, in the order of the operations."""

    results = fields.List(fields.Nested(ResultSchema), required=True)


class BatchHandlers:
    """The handler of batches, for the callers of a version of the API."""

    name = "batch"

    def __init__(self, service: Service, version: str) -> None:
        self._service = service
        self._items: Mapping[str, Items] = {
            name: Items(
                stored,
                service.store,
                service.config,
                service.hooks,
                representation=service.hooks.represent(stored, version),
                clock=service.clock,
            )
            for name, stored in service.representations.items()
        }

    def blueprint(self) -> Blueprint:
        """The route."""
        routes = Blueprint(self.name, __name__)
        routes.add_url_rule("", view_func=self.run_batch, methods=["POST"])
        return routes

    @needs(KNOWN)
    @takes(IDEMPOTENT, COMPARED, body=Body(BatchSchema))
    @returns(Result("The responses.", {JSON: ResultsSchema}), *CHANGE_PROBLEMS, *WRITE_PROBLEMS)
    def run_batch(self) -> Reply:
        """Do several operations in one transaction: all of them, or none.

        A problem is that of the first operation that fails, whose number is the member `operation`, from 0.
        """
        require_acceptable(JSON)
        config = self._service.config
        sent = read_object(JSON, max_body=config.max_body, max_depth=config.max_depth, max_values=config.max_nodes)
        operations = load(BatchSchema(), sent)["operations"]
        for condition in _CONDITIONS:  # each operation has its own
            request.environ.pop(condition, None)
        once = self._service.hooks.idempotency(sent)
        return write_together(self._service.store, once, partial(self._run, operations), self._service.clock)

    def _run(self, operations: list[JsonObject], transaction: Transaction) -> Reply:
        ids: dict[str, str] = {}
        results: list[bytes] = []
        left = most = self._service.config.page_bytes
        for number, operation in enumerate(operations):
            try:
                reply = self._one(operation, number, ids, transaction)
                body = reply.get_data()
                if (left := left - len(body)) < 0:
                    raise BodyTooLarge(f"the items of a batch have at most {most} bytes together")
            except (Problem, DuplicateValue, RecordNotFound, ReferenceMissing) as error:
                problem = error if isinstance(error, Problem) else problem_of(error)
                problem.members |= {"operation": number}
                for fault in problem.members.get("errors", ()):
                    if not (pointer := fault.get("pointer", "#/operations/")).startswith("#/operations/"):
                        fault["pointer"] = f"#/operations/{number}/body{pointer.removeprefix('#')}"
                raise problem from None
            headers = {"ETag": reply.headers["ETag"]} if "ETag" in reply.headers else {}
            results.append(b'{"status":200,"headers":%b,"body":%b}' % (exactjson.dumps(headers), body))
            if name := operation.get("name"):
                ids[name] = _id_in(body, number)
        whole = b'{"results":[%b]}' % b",".join(results)
        return Reply(whole, content_type=JSON, headers={"Cache-Control": "no-store"})

    def _one(self, operation: JsonObject, number: int, ids: Mapping[str, str], transaction: Transaction) -> Reply:
        """Do an operation. Raises what a request would raise, ValidationFailed for an unknown path or method of it."""
        path = _REFERENCE.sub(lambda found: ids.get(found[1], found[0]), operation["path"])
        body = _resolved(operation["body"], ids)
        parts = _PATH.fullmatch(path)
        items = self._items.get(parts[1]) if parts else None
        found = _work(items, operation["method"], parts[2], parts[3], body) if items and parts else None
        if items is None or found is None:
            why = f"{operation['method']} {shortened(path)}: there is no such operation"
            raise ValidationFailed(why, operation=number, errors=[fault(["operations", number, "path"], why)])
        work, scope = found
        if scope not in (PUBLIC, KNOWN) and not caller().may(scope):
            raise lacking(scope)
        request.environ.pop("HTTP_IF_MATCH", None)
        if "if_match" in operation:
            request.environ["HTTP_IF_MATCH"] = operation["if_match"]
        tries = 2 if operation["method"] == "PUT" else 1  # another one may create the item at the same time
        while True:
            try:
                with transaction.savepoint():  # PostgreSQL checks at its end what SQLite checks at once
                    return work(transaction)
            except DuplicateValue as error:
                if (tries := tries - 1) == 0:
                    raise DuplicateValue(*map(items.representation.name_of, error.fields)) from None


def _id_in(body: bytes, number: int) -> str:
    """The id of the item in a response. Raises ValidationFailed if there is none to be named."""
    match exactjson.loads(body):
        case {"id": str(id)}:
            return id
    why = "is for an operation whose response is an item"
    raise ValidationFailed(f"name {why}", operation=number, errors=[fault(["operations", number, "name"], why)])


def _work(
    items: Items, method: str, id: str | None, action: str | None, body: JsonObject | None
) -> tuple[Callable[[Transaction], Reply], str] | None:
    """What an operation does in a transaction, and the scope that it needs; None if there is no such operation."""
    scope, sent = f"{items.name}:write", body or {}
    if method == "POST" and id is None:
        return partial(items.created, sent), scope
    if method == "POST":
        declared = items.resource.actions.get(action or id or "")
        if declared is None or declared.of_item != bool(action):
            return None
        loaded = declared.body and load(declared.body(), sent)
        own = f"{items.name}:{declared.scope}" if declared.scope in ("read", "write") else declared.scope
        return partial(items.acted, declared, loaded, id if action else None), own
    if id is None or action:
        return None
    if method == "DELETE":
        return partial(items.deleted, id), scope
    change = items.replace if method == "PUT" else items.merge
    return partial(items.changed, id, change, sent), scope


def _resolved(value: Any, ids: Mapping[str, str]) -> Any:
    """A JSON value with the ids of named items: each text that is just `$name`."""
    match value:
        case str():
            return ids.get(value[1:], value) if value.startswith("$") else value
        case list():
            return [_resolved(each, ids) for each in value]
        case dict():
            return {name: _resolved(each, ids) for name, each in value.items()}
    return value
