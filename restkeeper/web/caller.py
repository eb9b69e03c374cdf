"""The caller of a request: resolved once, then used by limits, permissions, logs and ownership."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

from flask import request

from restkeeper.storage.shares import work_for

ADMIN = "admin"  # the scope that holds all others


class Caller(NamedTuple):
    """A caller: `id` identifies it, also in logs; `scopes` are its permissions."""

    id: str
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        """Whether the caller holds a scope."""
        return scope in self.scopes or ADMIN in self.scopes


ANONYMOUS = "anonymous"  # the id of callers without credentials
NOBODY = Caller(ANONYMOUS, frozenset())
EVERYBODY = Caller(ANONYMOUS, frozenset({ADMIN}))

_KEY = "restkeeper.caller"  # in the WSGI environment


def caller() -> Caller:
    """The caller of the current request."""
    return caller_in(request.environ)


def caller_in(environ: dict[str, Any]) -> Caller:
    """The caller of the request with this WSGI environment; NOBODY until it is resolved."""
    found: Caller = environ.get(_KEY, NOBODY)
    return found


def remember(environ: dict[str, Any], who: Caller) -> None:
    """Set the caller, also for the store."""
    environ[_KEY] = who
    work_for(caller_keys(environ)[0])


def name_of(environ: dict[str, Any]) -> str:
    """The caller's id, or its address if it has no credentials."""
    who = caller_in(environ)
    return who.id if who.id != ANONYMOUS else str(environ.get("REMOTE_ADDR", ""))


def caller_keys(environ: dict[str, Any]) -> tuple[str, ...]:
    """What a caller is counted by: the id, or without valid credentials the address."""
    who = caller_in(environ)
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
