"""What keys and webhooks have in common: only admins see them, and each bears a secret that is answered once."""

from dataclasses import replace
from typing import ClassVar

from flask import Blueprint, request

from restkeeper.errors import InsufficientStorage, PreconditionFailed
from restkeeper.resources.collection import CollectionHandlers
from restkeeper.resources.resource import JsonObject
from restkeeper.storage.contract import Record, Transaction
from restkeeper.web import exactjson
from restkeeper.web.application import Reply
from restkeeper.web.caller import ADMIN
from restkeeper.web.content import JSON, require_acceptable
from restkeeper.web.guard import needs
from restkeeper.web.operation import (
    CHANGE_PROBLEMS,
    ITEM_CONDITIONS,
    KEY_PROBLEMS,
    WRITE_PROBLEMS,
    JsonSchema,
    Result,
    returns,
    takes,
)
from restkeeper.web.preconditions import require_match

PRIVATE = "no-store"
ROTATED = Result(
    "The item, and its new secret.",
    {JSON: "{}WithSecret"},
    ("Cache-Control", "ETag", "Idempotent-Replayed"),
    name="{}Rotated",
)
CREATED = replace(ROTATED, about="The item, and its secret.", headers=(*ROTATED.headers, "Location"), name="{}Created")


class SecretHandlers(CollectionHandlers):
    """The handlers of such a collection, which says how its items are made, given another secret, and removed.

    `secret` is the schema of the secret.
    """

    caching = PRIVATE
    secret: ClassVar[JsonSchema]

    def blueprint(self) -> Blueprint:
        """The routes, relative to wherever the collection is mounted."""
        routes = Blueprint(self.name, __name__)
        routes.add_url_rule("", view_func=self.list_items, methods=["GET"])
        routes.add_url_rule("", view_func=self.create_item, methods=["POST"])
        routes.add_url_rule("/<id>", view_func=self.read_item, methods=["GET"])
        routes.add_url_rule("/<id>", view_func=self.delete_item, methods=["DELETE"])
        routes.add_url_rule("/<id>/rotate", view_func=self.rotate_item, methods=["POST"])
        return routes

    def _make(self, sent: JsonObject) -> Record:
        """A new item of what was sent. Raises ValidationFailed."""
        raise NotImplementedError

    def _insert(self, transaction: Transaction, record: Record) -> str:
        """Keep a new item; its secret."""
        raise NotImplementedError

    def _renew(self, transaction: Transaction, record: Record) -> tuple[Record, str]:
        """Give an item another secret; it, as it is then, and that."""
        raise NotImplementedError

    def _remove(self, transaction: Transaction, id: str) -> None:
        """Remove an item, with what is kept beside it."""
        raise NotImplementedError

    @needs(ADMIN)
    def list_items(self) -> Reply:
        """List the items of the collection, a page at a time."""
        return super().list_items()

    @needs(ADMIN)
    def read_item(self, id: str) -> Reply:
        """Read one item."""
        return super().read_item(id)

    @needs(ADMIN)
    @returns(CREATED, *WRITE_PROBLEMS, *KEY_PROBLEMS, PreconditionFailed)
    def create_item(self) -> Reply:
        """Create one. Only this response has its secret."""
        require_acceptable(JSON)
        sent = self._read(JSON)
        once = self._hooks.idempotency(sent, secret=True)
        made = self._new(once, lambda: self._make(sent))
        if isinstance(made, Reply):
            return made

        def insert(transaction: Transaction) -> Reply:
            reply = self._shown_once(made, self._insert(transaction, made))
            reply.headers["Location"] = f"{request.path}/{made.id}"
            return once.save(transaction, reply)

        return self._add(once, insert)

    @needs(ADMIN)
    @takes("IdempotencyKey", *ITEM_CONDITIONS)
    @returns(ROTATED, *CHANGE_PROBLEMS, *KEY_PROBLEMS, InsufficientStorage)
    def rotate_item(self, id: str) -> Reply:
        """Give it a new secret. Only this response has it."""
        require_acceptable(JSON)
        once = self._hooks.idempotency(None, secret=True)

        def work(transaction: Transaction) -> Reply:
            if (reply := once.find(transaction)) is not None:
                return reply
            record = transaction.read(self.name, id)
            require_match(self._tag(record), record.updated_at)
            return once.save(transaction, self._shown_once(*self._renew(transaction, record)))

        return self._store.write(work)

    @needs(ADMIN)
    def delete_item(self, id: str) -> Reply:
        """Revoke it, from the next request on; the response is the key as it last was."""
        require_acceptable(JSON)

        def work(transaction: Transaction) -> Record:
            record = transaction.read(self.name, id)
            self._require_match(record)
            self._remove(transaction, id)
            return record

        return Reply(self.resource.body(self._store.write(work, use_reserve=True)), content_type=JSON)

    def _shown_once(self, record: Record, secret: str) -> Reply:
        body = exactjson.dumps(exactjson.loads(self.resource.body(record)) | {"secret": secret})
        headers = {"Cache-Control": PRIVATE, "ETag": f'"{self._tag(record)}"'}
        return Reply(body, headers=headers)
