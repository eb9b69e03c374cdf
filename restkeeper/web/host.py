"""The host that a request names, and which of them a service accepts (RFC 9112, section 3.2)."""

import re
from collections.abc import Callable, Collection
from ipaddress import IPv6Address
from typing import Any

from werkzeug.wsgi import get_current_url, get_host

from restkeeper.net import is_loopback

MOST_HOST = 255  # characters
_LONG_LABEL = re.compile(r"[^.:]{64}")  # RFC 1035, section 2.3.4


def host_of(environ: dict[str, Any]) -> str:
    """The host that a request came to, without the scheme's own port; empty when it is malformed."""
    host = environ.get("HTTP_HOST") or ""
    if len(host) > MOST_HOST or _LONG_LABEL.search(host):  # IDNA takes time by the square of a label's length
        return ""
    if host.rpartition("]")[2].count(":") > 1:  # werkzeug leaves out the scheme's own port before it looks
        return ""
    try:
        get_current_url(environ, host_only=True)  # raises as werkzeug would later
        return get_host(environ)
    except ValueError:  # no address, or a label that is none of IDNA's
        return ""


def trust(names: Collection[str], local_only: bool) -> Callable[[str], bool]:
    """A function that returns whether a host is one of `names`, or with `local_only` this machine."""
    below = tuple(name for name in names if name.startswith("."))

    def trusts(host: str) -> bool:
        name = _name(host)
        return name in names or name.endswith(below) or (local_only and is_loopback(name))

    return trusts


def _name(host: str) -> str:
    """A well-formed host without its port, in one form; empty if it is not an address."""
    if not host.startswith("["):
        return host.partition(":")[0].lower().removesuffix(".")
    try:
        return f"[{IPv6Address(host[1 : host.index(']')])}]"
    except ValueError:
        return ""
