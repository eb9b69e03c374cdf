"""API keys: their names, scopes and expiry, and the credentials that they are checked by.

Only callers with the scope `admin` read and create keys. A token is returned once, and its digest is stored. It is sent
as `Authorization: Bearer` (RFC 6750), `X-API-Key`, or Basic with the key's id as user and the secret as password
(RFC 7617). Credentials change in the transaction in which their keys do, so that a key that is revoked is refused from
the very next request on.
"""

import hmac
import re
import secrets
from base64 import b64decode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from math import inf
from typing import ClassVar, NamedTuple

import orjson
from flask import Blueprint

from restkeeper import exactjson
from restkeeper.clock import rfc3339
from restkeeper.errors import InsufficientStorage, PreconditionFailed, ValidationFailed
from restkeeper.exactjson import JsonObject, require_none
from restkeeper.feature import Seams
from restkeeper.resources.call import ADMIN, ROLE, SCOPE, Caller
from restkeeper.resources.changes import Unit
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView
from restkeeper.schemas.fields import ListOf, Pattern, Text, Time
from restkeeper.schemas.item import ItemSchema
from restkeeper.service import Service
from restkeeper.storage.errors import RecordNotFound, StoreError
from restkeeper.storage.interface import Collection, Index, Record
from restkeeper.web.application import Reply
from restkeeper.web.auth import LONGEST_NAMED_OWNER, MOST_OWNERS, Credentials, InvalidCredential, digest_of
from restkeeper.web.handlers import INPUT, UNCACHED
from restkeeper.web.operations import (
    CHANGE_PROBLEMS,
    COMPARED,
    CONDITIONS,
    IDEMPOTENT,
    ITEM_CONDITIONS,
    WRITE_PROBLEMS,
    Contribution,
    returns,
    takes,
)
from restkeeper.web.secret_items import ROTATED, STORED_NEW_WITH_SECRET, SecretItemHandlers

# `updated_at` is the time of the last use. No resource can have this name.
CREDENTIALS = Collection("_credentials", {})

USE_SECONDS = 60  # at least, between two stored uses of a key
NOTED = 4096  # keys whose last use each process caches

_PREFIX = "rk_"
_ID_DIGITS = 16
_ID = re.compile(f"[0-9a-f]{{{_ID_DIGITS}}}")
_NEVER = rfc3339(0)


class Credential(NamedTuple):
    """The SHA-256 of a key's token, the key's scopes, when it expires (RFC 3339, or None), and its owners."""

    digest: str
    scopes: tuple[str, ...]
    expires_at: str | None
    owners: Sequence[str] = ()

    def record(self, id: str) -> Record:
        """The record to store, of a key not yet used."""
        return Record(id, 1, _NEVER, "", orjson.dumps(list(self)))


_NONE = Credential("0" * 64, (), _NEVER).record("")  # the digest of no token


def new_token(id: str) -> str:
    """The token of the key with this id: 256 random bits, returned once and never stored."""
    return f"{_PREFIX}{id}_{secrets.token_urlsafe(32)}"


def basic_token(credentials: str) -> str:
    """The token in the credentials of Basic, base64 of `id:secret` or `anything:token`; empty if malformed."""
    try:
        user, _, password = b64decode(credentials.strip(), validate=True).decode().partition(":")
    except ValueError:
        return ""
    return password if password.startswith(_PREFIX) or not _ID.fullmatch(user) else f"{_PREFIX}{user}_{password}"


class KeyResolver:
    """Resolves the tokens of API keys, and ADMIN_KEY if that is set, to their callers; notes when keys were used."""

    def __init__(self, service: Service) -> None:
        self._service, self._lookup, self._clock = service, service.lookup, service.clock
        self._guard = service.guard
        self._admin = digest_of(service.config.admin_key) if service.config.admin_key else ""
        self._noted: dict[str, float] = {}

    def __call__(self, token: str, digest: str) -> Caller | None:
        """See `web.auth.Resolver`. Raises InvalidCredential."""
        if self._admin and hmac.compare_digest(digest, self._admin):
            return Caller("admin-key", frozenset({ADMIN}), ("admin-key",))
        if not token.startswith(_PREFIX):
            return None
        id = token[len(_PREFIX) :][:_ID_DIGITS]
        try:
            record = self._lookup.credential_and_ahead(CREDENTIALS.name, id, f"key:{id}")
        except RecordNotFound:
            record = _NONE  # then the same steps as for any key, so that the time reveals nothing
        known, who, expires = _known(id, record.body)
        now = self._clock.time()
        if not hmac.compare_digest(digest, known) or expires <= now:
            raise InvalidCredential
        if now - self._noted.get(id, 0.0) > USE_SECONDS:
            self._note(record, id, now)
        roles = self._guard.roles
        return who._replace(scopes=self._guard.scopes_of(who.scopes)) if roles else who

    def _note(self, record: Record, id: str, now: float) -> None:
        if len(self._noted) >= NOTED:
            self._noted.clear()
        self._noted[id] = datetime.fromisoformat(record.updated_at).timestamp()
        if now - self._noted[id] > USE_SECONDS:  # else another process has stored it
            self._noted[id] = now
            with suppress(StoreError):  # the request is valid even if its time cannot be stored
                note_use(self._service, id, rfc3339(now))


@lru_cache(maxsize=4096)
def _known(id: str, body: bytes) -> tuple[str, Caller, float]:
    known = Credential(*orjson.loads(body))
    expires = datetime.fromisoformat(known.expires_at).timestamp() if known.expires_at else inf
    who = f"key:{id}"
    return known.digest, Caller(who, frozenset(known.scopes), tuple(known.owners or (who,))), expires


class KeySchema(ItemSchema):
    """A credential of a program. Its secret is returned only once, when the key is created."""

    name = Text(1, 200, required=True, metadata={"description": "What it is for.", "examples": ["Shop front end"]})
    scopes = ListOf(
        Text(validate=(Pattern(f"^({ROLE}|{SCOPE})$", error="must be a scope like products:read, a role, or admin"),)),
        low=1,
        required=True,
        metadata={
            "description": "What it allows: `<collection>:read`, `<collection>:write`, `<collection>:all` for the "
            "items of all owners, a scope of another route, a role, or `admin` for everything.",
            "examples": [["products:read", "products:write"]],
        },
    )
    owners = ListOf(
        Text(1, LONGEST_NAMED_OWNER),
        MOST_OWNERS,
        load_default=list,
        metadata={
            "description": "Whose items it reaches: several keys can have the same. It creates those of the first. "
            "Empty: its own.",
            "examples": [["ada", "team-a"]],
        },
    )
    expires_at = Time(
        load_default=None, allow_none=True, metadata={"description": "When it expires; null if it does not."}
    )
    last_used_at = Time(
        dump_only=True, allow_none=True, metadata={"description": "When it was last used, to about two minutes."}
    )


KEYS = Resource(
    name="keys",
    singular="key",
    schema=KeySchema,
    indexes=(Index("created_at"),),
    search=("name",),
    events=False,
    methods=("GET", "POST", "DELETE"),
)
ABOUT = "API keys: who may call, and what they may do."
SCHEMES = {
    "Bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
    "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
    "Basic": {"type": "http", "scheme": "basic", "description": "An API key's id as user, its secret as password."},
}


def install(service: Service) -> Seams:
    """Accept keys as credentials, also by Basic, and serve /api/VERSION/keys."""
    handlers = KeyHandlers(service)

    def exist() -> bool:
        return bool(service.config.admin_key) or service.store.count(KEYS.name) > 0

    return Seams(
        identify=(Credentials(KeyResolver(service), schemes={"basic": basic_token}, exist=exist),),
        routes=(lambda version: handlers.blueprint(),),
        describe=(Contribution(security=SCHEMES, tags={KEYS.name: ABOUT}),),
    )


def make_key(keys: StoredView, scopes: Iterable[str], sent: JsonObject, now: str) -> tuple[Record, str]:
    """A new key as it is represented, and its token. Raises ValidationFailed for one that could do nothing."""
    record = keys.new_record(sent, id=secrets.token_hex(_ID_DIGITS // 2), now=now)
    key = {name: None for name in keys.names} | exactjson.loads(record.body)
    allowed = tuple(scopes)
    faults = [
        {"pointer": f"#/scopes/{n}", "detail": f"must be one of: {', '.join(allowed)}"}
        for n, scope in enumerate(key["scopes"])
        if scope not in allowed
    ]
    if key["expires_at"] is not None and key["expires_at"] <= now:
        faults.append({"pointer": "#/expires_at", "detail": "must be in the future"})
    require_none(faults)
    return record._replace(body=exactjson.dumps(key)), new_token(record.id)


def store_key(keys: StoredView, unit: Unit, before: Record | None, record: Record, secret: str) -> None:
    """Store a new key, or one that was renewed, with its credential."""
    key = exactjson.loads(record.body)
    credential = Credential(digest_of(secret), tuple(key["scopes"]), key["expires_at"], key["owners"])
    unit.write(keys, before, record)
    unit.put_record(CREDENTIALS.name, credential.record(record.id), is_new=before is None)


def renewed_key(keys: StoredView, record: Record, now: str) -> tuple[Record, str]:
    """A key with another token; the former is void. Raises ValidationFailed for one that ended."""
    expires_at = exactjson.loads(keys.body(record))["expires_at"]
    if expires_at is not None and expires_at <= now:
        raise ValidationFailed(errors=[{"pointer": "#/expires_at", "detail": "has passed: make another key"}])
    return keys.touched(record, now=now), new_token(record.id)


def revoke_key(keys: StoredView, id: str, unit: Unit) -> None:
    """Make a key void. Raises RecordNotFound."""
    unit.write(keys, unit.transaction.read(KEYS.name, id), None)
    unit.remove_record(CREDENTIALS.name, id)


def note_use(service: Service, id: str, now: str) -> None:
    """Note that a key was used at a time. Raises StoreError."""

    def work(unit: Unit) -> None:
        credential = unit.transaction.read(CREDENTIALS.name, id)
        unit.put_record(CREDENTIALS.name, credential._replace(updated_at=now))
        record = unit.transaction.read(KEYS.name, id)
        key = exactjson.loads(record.body) | {"last_used_at": now}
        # No new version: what a key may do has not changed. Its ETag is of the representation, and changes.
        unit.put_record(KEYS.name, record._replace(body=exactjson.dumps(key)))

    service.write(work, wait=False, use_reserve=True)


class KeyHandlers(SecretItemHandlers):
    """The handlers of /api/VERSION/keys. What a key may do never changes: make another.

    A key that is rotated or deleted is invalid from the next request on.
    """

    secret: ClassVar = {
        "type": "string",
        "description": "What to send as `Authorization: Bearer` or `X-API-Key`. Shown this once.",
        "maxLength": 63,
        "pattern": "^rk_[0-9a-f]{16}_[A-Za-z0-9_-]{43}$",
    }

    def __init__(self, service: Service) -> None:
        self._scopes = service.guard.scopes  # of routes that are added later, too
        self._keys = service.of_features[KEYS.name]
        super().__init__(service.items_of(self._keys, choices={"scopes": self._scopes}), caching=UNCACHED)

    def blueprint(self) -> Blueprint:
        """The routes, relative to wherever keys are mounted."""
        routes = super().blueprint()
        routes.add_url_rule("/<id>/rotate", view_func=self.rotate_item, methods=["POST"])
        return routes

    def make(self, sent: JsonObject, now: str) -> tuple[Record, str]:
        return make_key(self._keys, self._scopes, sent, now)

    def renewed(self, record: Record, now: str) -> tuple[Record, str]:
        return renewed_key(self._keys, record, now)

    def store(self, unit: Unit, before: Record | None, record: Record, secret: str) -> None:
        store_key(self._keys, unit, before, record, secret)

    def forget(self, unit: Unit, id: str) -> None:
        unit.remove_record(CREDENTIALS.name, id)

    @takes(*CONDITIONS, IDEMPOTENT, COMPARED, body=INPUT)
    @returns(STORED_NEW_WITH_SECRET, *WRITE_PROBLEMS, PreconditionFailed)
    def create_item(self) -> Reply:
        """Create one. Only this response has its secret."""
        return self.save_with_secret()

    @takes(IDEMPOTENT, COMPARED, *ITEM_CONDITIONS)
    @returns(ROTATED, *CHANGE_PROBLEMS, InsufficientStorage, ValidationFailed)
    def rotate_item(self, id: str) -> Reply:
        """Give it a new secret. Only this response has it."""
        return self.save_with_secret(id)

    def delete_item(self, id: str) -> Reply:
        """Revoke it, from the next request on; the response is the key as it last was."""
        return self.delete_with_secret(id)
