"""The caller of each request, and the permission that each route needs.

A credential is sent as `Authorization` (RFC 9110, section 11.6.2) or `X-API-Key`. Features resolve it, once for each
request: limits, permissions, logs and ownership use the caller. An invalid credential is refused, also where none is
required; every cause gets the same response.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple, TypeVar, cast

from flask import Request

from restkeeper.errors import BadRequest, Forbidden, Problem, Unauthorized
from restkeeper.hook import Hook
from restkeeper.net import is_loopback
from restkeeper.resources.call import (
    ADMIN,
    ANONYMOUS,
    EVERYBODY,
    KNOWN,
    NOBODY,
    PUBLIC,
    REALM,
    SCOPE,
    Caller,
    lacking,
)
from restkeeper.storage.errors import StoreError
from restkeeper.storage.shares import current_caller
from restkeeper.web import current_request
from restkeeper.web.bodies import HTML, JSON, quality

CALLER = "restkeeper.caller"  # in the WSGI environment
CALL = "restkeeper.call"  # likewise: see `web.calls`


def caller() -> Caller:
    """The caller of the present request, for a view."""
    return caller_in(current_request().environ)


def caller_in(environ: dict[str, Any]) -> Caller:
    """The caller of the request with this WSGI environment; NOBODY until it is resolved."""
    return cast(Caller, environ.get(CALLER, NOBODY))


def name_of(environ: dict[str, Any]) -> str:
    """The caller's id, or its address if it has no credentials."""
    who: Caller = environ.get(CALLER, NOBODY)
    return who.id if who.id != ANONYMOUS else str(environ.get("REMOTE_ADDR", ""))


def caller_keys(environ: dict[str, Any]) -> tuple[str, ...]:
    """What a caller is counted by: the id, or without valid credentials the address."""
    who: Caller = environ.get(CALLER, NOBODY)
    return address_keys(environ) if who.id == ANONYMOUS else (who.id,)


def address_keys(environ: dict[str, Any]) -> tuple[str, ...]:
    """What an address is counted by; one of IPv6 by its /64 and by its /48: the least and most of a site (RFC 6177)."""
    remote: str = environ.get("REMOTE_ADDR") or "unknown"
    return _networks(remote) if ":" in remote else (remote,)


@lru_cache(maxsize=4096)
def _networks(remote: str) -> tuple[str, ...]:
    try:
        parsed = ip_address(remote)
    except ValueError:
        return (remote,)
    if not isinstance(parsed, IPv6Address):
        return (remote,)
    if parsed.ipv4_mapped:
        return (str(parsed.ipv4_mapped),)
    number = int(parsed)
    return tuple(f"{IPv6Address(number >> host << host)}/{128 - host}" for host in (64, 80))


PROBE = "probe"  # likewise, and is not limited: a probe must never be refused for asking often
OWN = "own"  # has a credential of its own, which its handler checks; not limited either
UNLIMITED = (PROBE, OWN)
_NEEDS = (PUBLIC, PROBE, OWN, KNOWN, ADMIN, "read", "write")

LONGEST_NAMED_OWNER = 200  # characters: of a key, or in a claim; what the engine names can be longer (LONGEST_OWNER)
MOST_OWNERS = 20  # of a caller
LONGEST_ADDRESS = 64  # characters: IPv6 has up to 45, and a zone

_INVALID = "the credentials are not valid, or not any more"
_SCHEMES = "send the key or token as Authorization: Bearer, as X-API-Key"
_BASIC = f'Basic {REALM}, charset="UTF-8"'  # RFC 7617
_REFUSED = "restkeeper.refused"  # in the WSGI environment: the problem with the credentials

Environ = dict[str, Any]  # WSGI's
View = TypeVar("View", bound=Callable[..., Any])
Resolver = Callable[[str, str], Caller | None]  # a token and its SHA-256 → whose it is; None for one of another kind


def needs(permission: str) -> Callable[[View], View]:
    """A decorator that declares what a view needs of its caller. Every view of a service has one.

    It is a scope, such as "reports:read", or a word: "public", nothing; "known", valid credentials; "admin", that
    scope; "probe", nothing, and no rate limit counts it; "own", a credential that the view checks itself. Raises
    ValueError for anything else.
    """
    if permission not in _NEEDS and not re.fullmatch(SCOPE, permission):
        names = ", ".join(map(repr, _NEEDS))
        raise ValueError(f"needs({permission!r}): must be one of {names}, or a scope like 'reports:read'")

    def declare(view: View) -> View:
        view.needs = permission  # type: ignore[attr-defined]
        return view

    return declare


def needed_by(view: Callable[..., Any]) -> str | None:
    """What a handler declares that it needs, or the object that it is a method of; None if neither does."""
    return getattr(getattr(view, "__self__", None), "needs", None) or getattr(view, "needs", None)


def digest_of(token: str) -> str:
    """The SHA-256 of a token, in hexadecimal. Tokens are random, so that a fast hash is enough."""
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class InvalidCredential(Exception):
    """A credential that is not valid, or not any more."""


class SignedCredential(InvalidCredential):
    """An invalid credential with a valid signature: nobody has guessed it, so that it is no failure of an address."""


class Credentials(NamedTuple):
    """A kind of credentials, which the seam `identify` adds.

    `resolve(token, digest)` returns whose token it is, and None for a token of another kind; `digest` is its SHA-256 in
    hexadecimal. It raises InvalidCredential. The token is that of `Authorization: Bearer`; `schemes` maps the name of
    another scheme to a function that reads the token from its text.

    `are_signed`: nobody can guess them, so they are tried whatever failures an address had, and others at the same
    address lock out nobody. Their `resolve` uses no store, and can raise SignedCredential. `exist` says whether a
    caller can have one: a server that nobody can call prints a line at its start.
    """

    resolve: Resolver
    are_signed: bool = False
    schemes: Mapping[str, Callable[[str], str]] = {}
    exist: Callable[[], bool] = lambda: True


class FailureLimit:
    """The limit of wrong credentials and refused hosts of an address: this one never refuses."""

    def require_room(self, environ: Environ, digest: str) -> bool:
        """Whether credentials with this digest have just succeeded in this process.

        Raises TooManyRequests when the address is over its limit and they never succeeded from it.
        """
        return False

    def note_success(self, environ: Environ, digest: str) -> None:
        """Remember that credentials succeeded."""

    def note_failure(self, environ: Environ) -> None:
        """Count wrong credentials, or a refused host. Raises TooManyRequests when the address is over its limit."""


class Guard:
    """Identifies the caller of each request and, after the limits, authorizes it.

    Without a credential the caller is NOBODY if credentials are `required`, else EVERYBODY. With `local_only`, other
    machines are refused. Features add the kinds of credentials, which are tried in order. While it
    `ignores_credentials`, a request has none: those that it sends are for another service.

    `require_own_site` raises a problem for a request of a page of another site. It is called for credentials of each
    scheme other than Bearer: a browser sends them by itself, whichever page makes the request.
    """

    def __init__(
        self,
        *,
        required: bool = False,
        local_only: bool = False,
        require_own_site: Callable[[Request], None] = lambda request: None,
    ) -> None:
        self.identifying: Hook[Credentials] = Hook()
        self.failures = FailureLimit()
        self.is_required = required
        self.local_only = local_only
        self.ignores_credentials: Callable[[], bool] | None = None
        self._require_own_site = require_own_site
        self._anonymous = NOBODY if required else EVERYBODY
        self.needs: dict[str | None, str] = {}  # by endpoint
        self.scopes: dict[str, None] = {ADMIN: None}  # those that there are, in their order; and roles
        self.roles: dict[str, frozenset[str]] = {}  # the scopes of each

    def identify(self, request: Request) -> None:
        """Remember the caller, also for the store, or why there is none."""
        environ = request.environ
        for name in (_REFUSED, CALL):  # if the request has waited
            environ.pop(name, None)
        who = self._anonymous
        try:
            if self.local_only and not _is_of_here(environ):
                allowed = "set AUTH=required, or AUTH=open-to-all to serve every caller"
                raise Forbidden(f"AUTH=open serves its own machine alone; {allowed}")
            if self.needs.get(request.endpoint) != OWN:
                who = self._caller(request) or who
        except (Problem, StoreError) as error:
            who, environ[_REFUSED] = NOBODY, error
        environ[CALLER] = who
        current_caller.set(who.id if who.id != ANONYMOUS else address_keys(environ)[0])

    def authorize(self, request: Request) -> None:
        """Raises Unauthorized and Forbidden. An unknown path, and OPTIONS that Flask answers, need no permission."""
        environ = request.environ
        if (refused := environ.get(_REFUSED)) is not None:
            raise refused
        is_answered = getattr(request.url_rule, "provide_automatic_options", False) and request.method == "OPTIONS"
        if request.endpoint is None or is_answered:
            return
        if (needed := self.needs.get(request.endpoint)) is None:
            raise RuntimeError(f"{request.endpoint}: give add_url_rule the function, with @restkeeper.needs")
        who: Caller = environ.get(CALLER, NOBODY)
        if needed in (PUBLIC, PROBE, OWN) or who.may(needed) or (needed == KNOWN and who is not NOBODY):
            return
        if who is NOBODY:
            challenges = [f"Bearer {REALM}"]
            if "basic" in self._schemes and quality(HTML) > quality(JSON):
                challenges.append(_BASIC)  # a browser asks for a name and a password
            headers = {"WWW-Authenticate": challenges}
            raise Unauthorized("send a key or a token, as Authorization: Bearer", headers=headers)
        raise lacking(needed)

    def read_needs(self, endpoint: str, view: Callable[..., Any]) -> None:
        """Read what an endpoint needs from its view.

        Raises ValueError for a view that does not declare it, or that declares the scope of a collection, and has none.
        """
        if getattr(view, "is_replaced", False):
            raise ValueError(f"{endpoint}: write @takes and @returns below the decorator of the route")
        if (needed := needed_by(view)) is None:
            words = "'public', 'known', 'admin', or a scope like 'reports:read'"
            raise ValueError(f"{endpoint}: say what it needs, with @restkeeper.needs of {words}")
        if needed in ("read", "write"):
            handlers = getattr(view, "__self__", None)
            if not (collection := getattr(handlers, "name", "")):
                raise ValueError(f"{endpoint}: @needs({needed!r}) is for handlers of a collection; use {KNOWN!r}")
            resource = getattr(handlers, "resource", None)
            needed = resource.scope(needed) if resource else f"{collection}:{needed}"
        self.needs[endpoint] = needed
        if ":" in needed:
            self.scopes[needed] = None

    def scopes_of(self, names: Iterable[str]) -> frozenset[str]:
        """What these names allow: a role its scopes, as they are declared now, and any other name itself."""
        return frozenset(scope for name in names for scope in self.roles.get(name, (name,)))

    def is_limited(self, endpoint: str | None) -> bool:
        """Whether requests to an endpoint count towards the caller's limits."""
        return self.needs.get(endpoint) not in UNLIMITED

    def _caller(self, request: Request) -> Caller | None:
        """Whose credential a request has; None if it has none.

        Raises Unauthorized, BadRequest for two, TooManyRequests when too many from the address were wrong, and what
        `require_own_site` raises.
        """
        environ = request.environ
        authorization, key = environ.get("HTTP_AUTHORIZATION"), environ.get("HTTP_X_API_KEY")
        if (authorization is None and key is None) or (self.ignores_credentials and self.ignores_credentials()):
            return None
        if authorization is not None and key is not None:
            raise BadRequest("send Authorization or X-API-Key, not both")
        token = key.strip() if key is not None else self._token_in(request, authorization or "")
        digest = digest_of(token)
        for kind in self.identifying.functions:
            try:
                if kind.are_signed and (who := kind.resolve(token, digest)) is not None:
                    return who
            except SignedCredential:
                raise self._unauthorized(_INVALID, authorization or "") from None
            except InvalidCredential:
                continue  # it is a failure, unless one of another kind looks so
        is_known = self.failures.require_room(environ, digest)
        # Until it is resolved; others at the same address have a share of the store of their own.
        current_caller.set(digest if is_known else address_keys(environ)[0])
        for kind in self.identifying.functions:
            with suppress(InvalidCredential):
                if not kind.are_signed and (who := kind.resolve(token, digest)) is not None:
                    if not is_known:
                        self.failures.note_success(environ, digest)
                    return who
        self.failures.note_failure(environ)
        raise self._unauthorized(_INVALID, authorization or "")

    @cached_property
    def _schemes(self) -> dict[str, Callable[[str], str]]:
        """How a token is read from an `Authorization` field, by the scheme of that."""
        schemes: dict[str, Callable[[str], str]] = {"bearer": str.strip}
        for kind in self.identifying.functions:
            schemes |= kind.schemes
        return schemes

    def _unauthorized(self, detail: str, authorization: str) -> Unauthorized:
        """A refusal with the challenge of the scheme that was tried, if it is known (RFC 9110, section 11.6.1)."""
        if "basic" in self._schemes and authorization.strip().partition(" ")[0].lower() == "basic":
            challenge = _BASIC
        else:
            challenge = f'Bearer {REALM}, error="invalid_token"'
        return Unauthorized(detail, headers={"WWW-Authenticate": challenge})

    def _token_in(self, request: Request, authorization: str) -> str:
        """The token in an Authorization field. Raises Unauthorized for an unknown scheme, and as `_caller`."""
        scheme, _, rest = authorization.strip().partition(" ")
        if not (read := self._schemes.get(scheme.lower())):
            raise self._unauthorized(_SCHEMES + (", or by Basic" if "basic" in self._schemes else ""), authorization)
        if scheme.lower() != "bearer":
            self._require_own_site(request)
        return read(rest)


def _is_of_here(environ: dict[str, Any]) -> bool:
    """Whether a request comes from this machine, also by the headers of proxies that are not configured."""
    if "HTTP_FORWARDED" in environ:
        return False
    behind = environ.get("HTTP_X_FORWARDED_FOR", "")
    if not _is_here(environ.get("REMOTE_ADDR", "")):
        return False
    # What is too long for an address is none, and must not fill the cache.
    return all(len(address) <= LONGEST_ADDRESS and _is_here(address) for address in map(str.strip, behind.split(",")))


@lru_cache(maxsize=1024)
def _is_here(address: str) -> bool:
    """Whether an address is this machine's own; a socket in the file system has none."""
    return not address or is_loopback(address)
