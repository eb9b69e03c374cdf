"""API keys: for whom, for what, until when. Only those with the scope `admin` see and make them.

The secret is answered once and kept nowhere: what keys are checked by (`web/auth.py`) is kept beside them and changes
in the same transaction, so that a key that is revoked is gone for the very next request.
"""

from collections.abc import Callable, Iterable, Sequence

from flask import Blueprint, request

from config import Config
from errors import ValidationFailed
from resources.collection import CollectionHandlers
from resources.resource import JsonObject, Resource
from schemas.key import KeySchema
from storage.contract import Index, Record, Store, Transaction
from web import exactjson
from web.application import Reply
from web.auth import CREDENTIALS, Credential, digest_of, needs, new_id, new_token
from web.caller import ADMIN
from web.content import JSON, require_acceptable
from web.idempotency import Idempotency
from web.preconditions import require_match

KEYS = Resource(
    name="keys", singular="key", schema=KeySchema, indexes=(Index("created_at"),), search=("name",), events=False
)

PRIVATE = "no-store"


def known_scopes(resources: Iterable[Resource]) -> tuple[str, ...]:
    """The scopes that there are."""
    return (ADMIN, *(f"{each.name}:{action}" for each in resources for action in ("read", "write")))


def make_key(sent: JsonObject, scopes: Iterable[str], *, id: str, now: str) -> Record:
    """A new key as it is represented. Raises ValidationFailed for one that could do nothing."""
    record = KEYS.create(sent, id=id, now=now)
    key = {name: None for name in KEYS.names} | exactjson.loads(record.body)
    allowed = tuple(scopes)
    faults = [
        {"pointer": f"#/scopes/{n}", "detail": f"must be one of: {', '.join(allowed)}"}
        for n, scope in enumerate(key["scopes"])
        if scope not in allowed
    ]
    if key["expires_at"] is not None and key["expires_at"] <= now:
        faults.append({"pointer": "#/expires_at", "detail": "must be in the future"})
    if faults:
        raise ValidationFailed(errors=faults)
    return record._replace(body=exactjson.dumps(key))


def insert_key(transaction: Transaction, record: Record) -> str:
    """Keep a new key; its token."""
    token = new_token(record.id)
    transaction.insert(KEYS.name, record)
    transaction.insert(CREDENTIALS.name, _credential(record, token).record(record.id))
    return token


def rotate_key(transaction: Transaction, id: str, *, now: str) -> tuple[Record, str]:
    """Give a key another token; the former one is void. Raises NotFound, and ValidationFailed for a key that ended."""
    former = transaction.read(KEYS.name, id)
    key = exactjson.loads(KEYS.body(former)) | {"updated_at": now, "version": former.version + 1}
    if key["expires_at"] is not None and key["expires_at"] <= now:
        raise ValidationFailed(errors=[{"pointer": "#/expires_at", "detail": "has passed: make another key"}])
    record = Record(id, key["version"], now, KEYS.shape, exactjson.dumps(key))
    token = new_token(id)
    transaction.update(KEYS.name, record)
    transaction.update(CREDENTIALS.name, _credential(record, token).record(id))
    return record, token


def revoke_key(transaction: Transaction, id: str) -> Record:
    """Make a key void; as it last was. Raises NotFound."""
    record = transaction.read(KEYS.name, id)
    transaction.delete(KEYS.name, id)
    transaction.delete(CREDENTIALS.name, id)
    return record


def note_use(store: Store) -> Callable[[str, str], None]:
    """What notes in `store` that a key was used at a time. Raises NotFound, and Unavailable."""

    def note(id: str, now: str) -> None:
        def work(transaction: Transaction) -> None:
            credential = transaction.read(CREDENTIALS.name, id)
            transaction.update(CREDENTIALS.name, credential._replace(updated_at=now))
            record = transaction.read(KEYS.name, id)
            key = exactjson.loads(KEYS.body(record)) | {"last_used_at": now}
            # No new version: whoever read the key before it was used may revoke or rotate it on that condition.
            transaction.update(KEYS.name, record._replace(shape=KEYS.shape, body=exactjson.dumps(key)))

        store.write(work, patient=False)

    return note


def _credential(record: Record, token: str) -> Credential:
    key = exactjson.loads(record.body)
    return Credential(digest_of(token), tuple(key["scopes"]), key["expires_at"])


class KeyHandlers(CollectionHandlers):
    """The handlers of /api/v1/keys, to the collections of `resources`."""

    caching = PRIVATE

    def __init__(self, resources: Sequence[Resource], store: Store, config: Config, idempotency: Idempotency) -> None:
        super().__init__(KEYS, store, config, idempotency, new_id=new_id)
        self._scopes = known_scopes(resources)

    def blueprint(self) -> Blueprint:
        """The routes, relative to wherever keys are mounted. What a key may do never changes: make another."""
        routes = Blueprint(self.name, __name__)
        routes.add_url_rule("", view_func=self.list_items, methods=["GET"])
        routes.add_url_rule("", view_func=self.create_item, methods=["POST"])
        routes.add_url_rule("/<id>", view_func=self.read_item, methods=["GET"])
        routes.add_url_rule("/<id>", view_func=self.delete_item, methods=["DELETE"])
        routes.add_url_rule("/<id>/rotate", view_func=self.rotate_item, methods=["POST"])
        return routes

    @needs(ADMIN)
    def list_items(self) -> Reply:
        """List the keys, a page at a time."""
        return super().list_items()

    @needs(ADMIN)
    def read_item(self, id: str) -> Reply:
        """Read one key."""
        return super().read_item(id)

    @needs(ADMIN)
    def create_item(self) -> Reply:
        """Make a key. The answer alone has its secret."""
        require_acceptable(JSON)
        sent = self._read(JSON)
        once = self._idempotency.once(sent, secret=True)

        def work(transaction: Transaction) -> Reply:
            if (reply := once.kept(transaction)) is not None:
                return reply
            record = make_key(sent, self._scopes, id=self._new_id(), now=self._now())
            self._require_list_match(transaction)
            reply = self._shown_once(record, insert_key(transaction, record))
            reply.headers["Location"] = f"{request.path}/{record.id}"
            return once.keep(transaction, reply)

        return self._store.write(work)

    @needs(ADMIN)
    def rotate_item(self, id: str) -> Reply:
        """Give a key another secret; the former one is void at once. The answer alone has the new one."""
        require_acceptable(JSON)
        once = self._idempotency.once(None, secret=True)

        def work(transaction: Transaction) -> Reply:
            if (reply := once.kept(transaction)) is not None:
                return reply
            record = transaction.read(KEYS.name, id)
            require_match(self._tag(record), record.updated_at)
            return once.keep(transaction, self._shown_once(*rotate_key(transaction, id, now=self._now())))

        return self._store.write(work)

    @needs(ADMIN)
    def delete_item(self, id: str) -> Reply:
        """Revoke a key, for the very next request; the answer is the key as it last was."""
        require_acceptable(JSON)

        def work(transaction: Transaction) -> Record:
            self._require_match(transaction.read(KEYS.name, id))
            return revoke_key(transaction, id)

        return Reply(self.resource.body(self._store.write(work)), content_type=JSON)

    def _shown_once(self, record: Record, token: str) -> Reply:
        body = exactjson.dumps(exactjson.loads(record.body) | {"secret": token})
        headers = {"Cache-Control": PRIVATE, "ETag": f'"{self._tag(record)}"'}
        return Reply(body, content_type=JSON, headers=headers)
