"""Items with a secret that only one response has: API keys and webhooks. These responses are never cached."""

from collections.abc import Callable
from dataclasses import replace

from restkeeper.resources.items import UNCACHED, Items
from restkeeper.resources.resource import JsonObject
from restkeeper.storage.contract import Record, Transaction
from restkeeper.web import exactjson
from restkeeper.web.application import Reply
from restkeeper.web.content import JSON, require_acceptable
from restkeeper.web.operation import Result
from restkeeper.web.preconditions import require_match

ROTATED = Result("The item, and its new secret.", {JSON: "{}WithSecret"}, ("Cache-Control", "ETag"), name="{}Rotated")
CREATED = replace(ROTATED, about="The item, and its secret.", headers=(*ROTATED.headers, "Location"), name="{}Created")


def create_with_secret(
    items: Items, make: Callable[[JsonObject], Record], insert: Callable[[Transaction, Record], str]
) -> Reply:
    """Create an item from the request's body; `insert` stores it and returns its secret, for this response only."""
    sent = items.body(JSON)

    def store(transaction: Transaction, record: Record) -> Reply:
        return _with_secret(items, record, insert(transaction, record))

    return items.add(sent, lambda: make(sent), store, secret=True)


def rotate_secret(items: Items, id: str, renew: Callable[[Transaction, Record], tuple[Record, str]]) -> Reply:
    """Give an item a new secret; `renew` stores it and returns the item and that. Only this response has it."""
    require_acceptable(JSON)
    once = items.hooks.idempotency(None, secret=True)

    def work(transaction: Transaction) -> Reply:
        if (reply := once.find(transaction)) is not None:
            return reply
        record = transaction.read(items.name, id)
        require_match(items.tag(record), record.updated_at)
        return once.save(transaction, _with_secret(items, *renew(transaction, record)))

    return items.store.write(work)


def _with_secret(items: Items, record: Record, secret: str) -> Reply:
    body = exactjson.dumps(exactjson.loads(items.resource.body(record)) | {"secret": secret})
    return Reply(body, headers={"Cache-Control": UNCACHED, "ETag": f'"{items.tag(record)}"'})
