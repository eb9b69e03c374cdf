"""What proxies in front of a service say of the client."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

from restkeeper.web.application import Wsgi

LONGEST_ENTRY = 64  # characters of X-Forwarded-For: an address of IPv6 has up to 45, in brackets and with a port more


class TrustedProxies:
    """A WSGI application behind `hops` proxies. Its client and scheme are those of the request to the first proxy.

    Each proxy adds an entry at the right of `X-Forwarded-For` and `X-Forwarded-Proto`. The client can have written the
    entries further left, and all of them if there are fewer entries than proxies: these are ignored. werkzeug's
    ProxyFix reads quoted strings, so a client that sends one quotation mark hides all entries after it; this class
    counts commas.
    """

    def __init__(self, app: Wsgi, hops: int) -> None:
        self._app = app
        self._hops = hops

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        entry = self._entry(environ.get("HTTP_X_FORWARDED_FOR", ""))
        if len(entry) <= LONGEST_ENTRY and (address := _address(entry)):  # what is longer must not fill the cache
            environ["REMOTE_ADDR"] = address
        if (scheme := self._entry(environ.get("HTTP_X_FORWARDED_PROTO", "")).lower()) in ("http", "https"):
            environ["wsgi.url_scheme"] = scheme
        return self._app(environ, start_response)

    def _entry(self, field: str) -> str:
        entries = field.rsplit(",", self._hops)
        return entries[-self._hops].strip() if len(entries) >= self._hops else ""


@lru_cache(maxsize=1024)
def _address(entry: str) -> str:
    """The IP address in an entry, which may have a port or brackets; empty where there is none."""
    if entry.startswith("["):
        entry = entry[1:].partition("]")[0]
    elif entry.count(":") == 1:
        entry = entry.partition(":")[0]
    try:
        return "" if "%" in entry else str(ip_address(entry))
    except ValueError:
        return ""
