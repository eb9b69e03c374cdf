"""Who may call, and what: API keys and JSON Web Tokens, and the scope that each route needs.

A key is sent as `Authorization: Bearer` (RFC 6750), `X-API-Key`, or Basic with its id for a user and its secret for a
password (RFC 7617). What is shown and is not valid is refused, also where nothing need be shown; all causes read alike.
"""

import hmac
import ipaddress
import secrets
import time
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from math import inf
from typing import Any, NamedTuple, TypeVar

import orjson
from flask import Flask, Request

from restkeeper.clock import rfc3339
from restkeeper.errors import BadRequest, Forbidden, NotFound, Problem, Unauthorized, Unavailable
from restkeeper.features.jwt.tokens import InvalidToken, Tokens, is_token
from restkeeper.features.limits.failures import Failures
from restkeeper.storage.contract import Collection, Record, Store
from restkeeper.web.caller import ADMIN, EVERYBODY, NOBODY, Caller, caller_in, remember

# What keys are checked by; `updated_at` is when one was last seen in use. No resource can have such a name.
CREDENTIALS = Collection("_credentials", {})

PUBLIC = "public"  # needs nothing
OWN = "own"  # asks for credentials of its own
KNOWN = "known"  # needs to know who calls; what they may see of it is the handler's to say

USE_SECONDS = 60  # how exactly it is known when a key was last used
NOTED = 4096  # keys whose last use each process knows
LONGEST_ADDRESS = 64  # characters: IPv6 has up to 45, and a zone

_PREFIX = "rk_"
_ID_DIGITS = 16
_NEVER = rfc3339(0)
_NOBODYS = "0" * 64  # what the secret of no key hashes to
_REALM = 'realm="restkeeper"'
_INVALID = "the credentials are not valid, or not any more"
_REFUSED = "restkeeper.refused"  # in the WSGI environment: why what was shown is not valid

View = TypeVar("View", bound=Callable[..., Any])


def needs(permission: str) -> Callable[[View], View]:
    """Say what a handler needs: PUBLIC, OWN, KNOWN, ADMIN, or what is done to its collection, "read" or "write"."""

    def declare(view: View) -> View:
        view.needs = permission  # type: ignore[attr-defined]
        return view

    return declare


class _Invalid(Exception):
    """What was shown is no valid key."""


class Credential(NamedTuple):
    """What a key is checked by: the SHA-256 of its token, what it may do, and until when (RFC 3339 or None)."""

    digest: str
    scopes: tuple[str, ...]
    expires_at: str | None

    def record(self, id: str) -> Record:
        """As it is kept; not yet used."""
        return Record(id, 1, _NEVER, "", orjson.dumps(list(self)))


_NONE = Credential(_NOBODYS, (), _NEVER).record("")


def new_id() -> str:
    """An id for a key."""
    return secrets.token_hex(_ID_DIGITS // 2)


def new_token(id: str) -> str:
    """The token of the key with this id: 256 random bits, to be shown once and kept nowhere."""
    return f"{_PREFIX}{id}_{secrets.token_urlsafe(32)}"


def digest_of(token: str) -> str:
    """What is kept of a token. It is random, so that a fast hash does."""
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class Authenticator:
    """Resolves the caller from the credentials of a request.

    `note_use` is called with the id of a key that is used, every USE_SECONDS at most.
    """

    def __init__(
        self,
        store: Store,
        note_use: Callable[[str, str], None],
        *,
        failures: Failures,
        admin_key: str = "",
        tokens: Tokens | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._note_use = note_use
        self._failures = failures
        self._admin = digest_of(admin_key) if admin_key else None
        self._tokens = tokens
        self._now = now
        self._noted: dict[str, float] = {}

    def __call__(self, environ: dict[str, Any]) -> Caller | None:
        """Whose credentials these are; None where there are none.

        Raises Unauthorized, BadRequest for two, and TooManyRequests when too many from the address were wrong.
        """
        authorization, key = environ.get("HTTP_AUTHORIZATION"), environ.get("HTTP_X_API_KEY")
        if authorization is None and key is None:
            return None
        if authorization is not None and key is not None:
            raise BadRequest("send Authorization or X-API-Key, not both")
        token = key.strip() if key is not None else _token_in(authorization or "")
        digest = digest_of(token)
        failures = self._failures
        if not (known := failures.has_succeeded(environ, digest)):
            failures.require_room(environ, digest)
        try:
            who = self._caller(token, digest)
        except (InvalidToken, _Invalid):
            failures.note_failure(environ)
            raise _unauthorized(_INVALID, authorization or "") from None
        if not known:
            failures.note_success(environ, digest)
        return who

    def _caller(self, token: str, digest: str) -> Caller:
        if self._admin and hmac.compare_digest(digest, self._admin):
            return Caller("admin-key", frozenset({ADMIN}))
        if self._tokens and is_token(token):
            claims = self._tokens.verify(token)
            return Caller(f"jwt:{claims.subject}", claims.scopes)
        if not token.startswith(_PREFIX):
            raise _Invalid
        return self._key_caller(token[len(_PREFIX) :][:_ID_DIGITS], digest)

    def _key_caller(self, id: str, digest: str) -> Caller:
        try:
            record = self._store.read(CREDENTIALS.name, id)
        except NotFound:
            record = _NONE  # and on as with any other, so that it takes no less time
        known, who, expires = _known(id, record.body)
        now = self._now()
        if not hmac.compare_digest(digest, known) or expires <= now:
            raise _Invalid
        if now - self._noted.get(id, 0.0) > USE_SECONDS:
            if len(self._noted) >= NOTED:
                self._noted.clear()
            self._noted[id] = now
            if record.updated_at < rfc3339(now - USE_SECONDS):  # else another process has noted it
                with suppress(NotFound, Unavailable):  # a use that cannot be noted is no less allowed
                    self._note_use(id, rfc3339(now))
        return who


@lru_cache(maxsize=4096)
def _known(id: str, body: bytes) -> tuple[str, Caller, float]:
    digest, scopes, expires_at = orjson.loads(body)
    expires = datetime.fromisoformat(expires_at).timestamp() if expires_at else inf
    return digest, Caller(f"key:{id}", frozenset(scopes)), expires


def _token_in(authorization: str) -> str:
    """The token in an Authorization field. Raises Unauthorized for a scheme that is none of ours."""
    scheme, _, rest = authorization.strip().partition(" ")
    match scheme.lower():
        case "bearer":
            return rest.strip()
        case "basic":
            try:
                user, _, password = b64decode(rest.strip(), validate=True).decode().partition(":")
            except ValueError:
                return ""
            return password if password.startswith(_PREFIX) or not _is_id(user) else f"{_PREFIX}{user}_{password}"
    raise _unauthorized("send the key or token as Authorization: Bearer, as X-API-Key, or by Basic", authorization)


def _is_id(text: str) -> bool:
    return len(text) == _ID_DIGITS and all(digit in "0123456789abcdef" for digit in text)


def _unauthorized(detail: str, authorization: str) -> Unauthorized:
    """A refusal with the challenge of the scheme that was tried (RFC 9110, section 11.6.1)."""
    if authorization.strip().partition(" ")[0].lower() == "basic":
        challenge = f'Basic {_REALM}, charset="UTF-8"'
    else:
        challenge = f'Bearer {_REALM}, error="invalid_token"'
    return Unauthorized(detail, headers={"WWW-Authenticate": challenge})


def lacking(scope: str) -> Forbidden:
    """A refusal to who has not got a scope (RFC 6750, section 3.1)."""
    challenge = f'Bearer {_REALM}, error="insufficient_scope", scope="{scope}"'
    return Forbidden(f"this needs the scope {scope}", headers={"WWW-Authenticate": challenge})


class Guard:
    """What stands before every handler: first `identify`, and once it is counted who comes how often, `authorize`.

    Who shows nothing is nobody where credentials are `required`, else everybody. With `local_only`, other machines are
    turned away. `needs` has the permission of each endpoint.
    """

    def __init__(self, authenticator: Authenticator, *, required: bool, local_only: bool) -> None:
        self.authenticator = authenticator
        self._anonymous = NOBODY if required else EVERYBODY
        self._local_only = local_only
        self.needs: dict[str | None, str] = {}

    def identify(self, asked: Request) -> None:
        """Remember who calls, or why that cannot be."""
        environ = asked.environ
        remember(environ, self._anonymous)
        if self._local_only and not _is_of_here(environ):
            remember(environ, NOBODY)
            environ[_REFUSED] = Forbidden(
                "AUTH=open serves its own machine alone; set AUTH=required, or AUTH=open-to-all to serve whoever comes"
            )
        elif self.needs.get(asked.endpoint) != OWN:
            try:
                who = self.authenticator(environ)
            except Problem as problem:
                remember(environ, NOBODY)
                environ[_REFUSED] = problem
            else:
                if who is not None:
                    remember(environ, who)

    def authorize(self, asked: Request) -> None:
        """Raises Unauthorized and Forbidden. What is unknown or asks how to ask (OPTIONS) needs no permission."""
        environ = asked.environ
        if (refused := environ.get(_REFUSED)) is not None:
            raise refused
        if asked.endpoint is None or asked.method == "OPTIONS":
            return
        if (needed := self.needs.get(asked.endpoint)) is None:
            raise RuntimeError(f"{asked.endpoint}: was added after the guard had learned what routes need")
        who = caller_in(environ)
        if needed in (PUBLIC, OWN) or who.may(needed) or (needed == KNOWN and who is not NOBODY):
            return
        if who is NOBODY:
            challenge = f"Bearer {_REALM}"
            raise Unauthorized("send a key or a token", headers={"WWW-Authenticate": challenge})
        raise lacking(needed)

    def learn(self, app: Flask) -> None:
        """Read what every route needs. Raises RuntimeError for one that does not say."""
        for rule in app.url_map.iter_rules():
            view = app.view_functions[rule.endpoint]
            if (needed := getattr(view, "needs", None)) is None:
                raise RuntimeError(f"{rule.endpoint}: say what it needs, with @needs")
            collection = getattr(getattr(view, "__self__", None), "name", "")
            self.needs[rule.endpoint] = f"{collection}:{needed}" if needed in ("read", "write") else needed


def _is_of_here(environ: dict[str, Any]) -> bool:
    """Whether a request comes from this machine, also by what proxies say that nobody told us to expect."""
    if "HTTP_FORWARDED" in environ:
        return False
    behind = environ.get("HTTP_X_FORWARDED_FOR", "")
    if not _is_here(environ.get("REMOTE_ADDR", "")):
        return False
    # What is too long for an address is none, and must not fill the cache.
    return all(len(each) <= LONGEST_ADDRESS and _is_here(each) for each in map(str.strip, behind.split(",")))


@lru_cache(maxsize=1024)
def _is_here(address: str) -> bool:
    """Whether an address is this machine's own; a socket in the file system has none."""
    try:
        return not address or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
