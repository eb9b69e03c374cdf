"""Items with a secret that only one response has: API keys and webhooks. These responses are never cached."""

from collections.abc import Callable
from dataclasses import replace

from restkeeper.errors import InvalidQuery, NotFound, PreconditionFailed
from restkeeper.resources.handlers import READ, CollectionHandlers
from restkeeper.resources.items import UNCACHED, Items, Prepared
from restkeeper.resources.resource import JsonObject
from restkeeper.storage.contract import Record, Transaction
from restkeeper.web import exactjson
from restkeeper.web.application import Reply
from restkeeper.web.auth import ADMIN
from restkeeper.web.exactjson import JSON, require_acceptable
from restkeeper.web.operations import NOT_MODIFIED, Result, returns
from restkeeper.web.preconditions import require_match

ROTATED = Result("The item, and its new secret.", {JSON: "{}WithSecret"}, ("Cache-Control", "ETag"), name="{}Rotated")
CREATED = replace(ROTATED, about="The item, and its secret.", headers=(*ROTATED.headers, "Location"), name="{}Created")


class SecretItemHandlers(CollectionHandlers):
    """The handlers of a collection whose items have a secret: for admins."""

    def __init__(self, items: Items) -> None:
        super().__init__(items, needs=ADMIN)

    @returns(READ, NOT_MODIFIED, NotFound, InvalidQuery, PreconditionFailed)
    def read_item(self, id: str) -> Reply:
        """Read one item."""
        return super().read_item(id)


def create_with_secret(
    items: Items,
    make: Callable[[JsonObject], tuple[Record, str]],
    insert: Callable[[Transaction, Record, str], object],
) -> Reply:
    """Create an item from the request's body. `make` returns it and its secret, which only this response has."""
    sent = items.body(JSON)

    def prepare() -> tuple[Record, Prepared]:
        record, secret = make(sent)
        reply = _with_secret(items, record, secret)
        return record, Prepared(reply, lambda transaction: insert(transaction, record, secret))

    return items.add(items.hooks.idempotency(sent, secret=True), prepare)


def rotate_secret(
    items: Items,
    id: str,
    renew: Callable[[Record], tuple[Record, str]],
    update: Callable[[Transaction, Record, str], object],
) -> Reply:
    """Give an item a new secret. `renew` returns it with that, which only this response has."""
    require_acceptable(JSON)

    def prepare() -> Prepared:
        before = items.store.read(items.name, id)
        require_match(items.tag(before), before.updated_at)
        after, secret = renew(before)

        def work(transaction: Transaction) -> None:
            transaction.require(items.name, before)
            update(transaction, after, secret)

        return Prepared(_with_secret(items, after, secret), work)

    return items.write_once(items.hooks.idempotency(None, secret=True), prepare, turn=id)


def _with_secret(items: Items, record: Record, secret: str) -> Reply:
    body = exactjson.dumps(exactjson.loads(items.resource.body(record)) | {"secret": secret})
    return Reply(body, headers={"Cache-Control": UNCACHED, "ETag": f'"{items.tag(record)}"'})
