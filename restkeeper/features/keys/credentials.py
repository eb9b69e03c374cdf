"""The credentials of API keys: tokens, their stored digests, and the callers that they resolve to.

A key is sent as `Authorization: Bearer` (RFC 6750), `X-API-Key`, or Basic with its id as user and its secret as
password (RFC 7617).
"""

import hmac
import re
import secrets
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from math import inf
from typing import NamedTuple

import orjson

from restkeeper.clock import Clock, rfc3339
from restkeeper.storage.errors import RecordNotFound, StoreError
from restkeeper.storage.interface import Collection, Record
from restkeeper.web.auth import ADMIN, Caller, InvalidCredential, digest_of
from restkeeper.web.lookup import Lookup

# `updated_at` is the time of the last use. No resource can have this name.
CREDENTIALS = Collection("_credentials", {})

USE_SECONDS = 60  # at least, between two stored uses of a key
NOTED = 4096  # keys whose last use each process caches

_PREFIX = "rk_"
_ID_DIGITS = 16
_ID = re.compile(f"[0-9a-f]{{{_ID_DIGITS}}}")
_NEVER = rfc3339(0)
_NO_DIGEST = "0" * 64  # of no token


class Credential(NamedTuple):
    """The SHA-256 of a key's token, the key's scopes, when it expires (RFC 3339, or None), and its owner, if any."""

    digest: str
    scopes: tuple[str, ...]
    expires_at: str | None
    owner: str | None = None

    def record(self, id: str) -> Record:
        """The record to store, of a key not yet used."""
        return Record(id, 1, _NEVER, "", orjson.dumps(list(self)))


_NONE = Credential(_NO_DIGEST, (), _NEVER).record("")


def new_id() -> str:
    """An id for a key."""
    return secrets.token_hex(_ID_DIGITS // 2)


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
    """Resolves the tokens of API keys, and `admin_key` if that is set, to their callers.

    `note_use` is called with the id of a used key and the time, at most once in USE_SECONDS.
    """

    def __init__(
        self, lookup: Lookup, note_use: Callable[[str, str], None], *, admin_key: str = "", clock: Clock
    ) -> None:
        self._lookup = lookup
        self._note_use = note_use
        self._admin = digest_of(admin_key) if admin_key else ""
        self._clock = clock
        self._noted: dict[str, float] = {}

    def __call__(self, token: str, digest: str) -> Caller | None:
        """See `guard.Resolver`. Raises InvalidCredential."""
        if self._admin and hmac.compare_digest(digest, self._admin):
            return Caller("admin-key", frozenset({ADMIN}))
        if not token.startswith(_PREFIX):
            return None
        id = token[len(_PREFIX) :][:_ID_DIGITS]
        try:
            record = self._lookup.credential(CREDENTIALS.name, id, f"key:{id}")
        except RecordNotFound:
            record = _NONE  # then the same steps as for any key, so that the time reveals nothing
        known, who, expires = _known(id, record.body)
        now = self._clock.time()
        if not hmac.compare_digest(digest, known) or expires <= now:
            raise InvalidCredential
        if now - self._noted.get(id, 0.0) > USE_SECONDS:
            self._note(record, id, now)
        return who

    def _note(self, record: Record, id: str, now: float) -> None:
        if len(self._noted) >= NOTED:
            self._noted.clear()
        self._noted[id] = datetime.fromisoformat(record.updated_at).timestamp()
        if now - self._noted[id] > USE_SECONDS:  # else another process has stored it
            self._noted[id] = now
            with suppress(StoreError):  # the request is valid even if its time cannot be stored
                self._note_use(id, rfc3339(now))


@lru_cache(maxsize=4096)
def _known(id: str, body: bytes) -> tuple[str, Caller, float]:
    known = Credential(*orjson.loads(body))  # of an older program, it has no owner
    expires = datetime.fromisoformat(known.expires_at).timestamp() if known.expires_at else inf
    return known.digest, Caller(f"key:{id}", frozenset(known.scopes), known.owner or ""), expires
