"""The edge: the client, the host and the origin of a request, and the refusals that come before everything else."""

import re
from collections.abc import Callable, Collection
from ipaddress import IPv6Address
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from flask import Request, Response

from restkeeper.errors import MOST_FAULTS, BadRequest, CrossOrigin, InvalidQuery, UriTooLong, shortened
from restkeeper.net import is_loopback
from restkeeper.web.application import Application, Stage, host_of
from restkeeper.web.operations import operation_of

_NOT_LOCAL = "in open mode this service answers at localhost alone; TRUSTED_HOSTS adds the names that it is reached by"
_NOT_LISTED = "this service does not answer to that host; TRUSTED_HOSTS lists the names that it is reached by"


def install(
    app: Application,
    max_url: int,
    trusted_hosts: Collection[str] = (),
    *,
    local_only: bool = False,
    count_refused_host: Callable[[dict[str, Any]], None] = lambda environ: None,
) -> None:
    """Refuse malformed and unknown hosts, and URLs of more than `max_url` bytes, in `app`; answer `OPTIONS *`.

    `trusted_hosts` are names in lower case without ports, `.example.org` for all below it; none means any, but for
    `local_only`: then names and addresses of this machine alone, and those listed. A page whose own name was pointed
    at this machine (DNS rebinding) sends that name. `count_refused_host` is given the WSGI environment of each refusal.
    """
    if trusted_hosts or local_only:
        app.trusts_host = trust(trusted_hosts, local_only)
        app.trusts_any_host = False

    def require_sane_address(request: Request) -> Response | None:
        environ = request.environ
        path = environ.get("PATH_INFO", "")
        if not request.host:
            count_refused_host(environ)
            unknown = _NOT_LOCAL if local_only else _NOT_LISTED  # if the host is well-formed (RFC 9112, section 3.2)
            raise BadRequest(unknown if host_of(environ) else "the Host header is not a host")
        if len(path) + len(environ.get("QUERY_STRING", "")) > max_url:
            raise UriTooLong(f"path and query have at most {max_url} bytes together")
        require_utf8(environ.get("QUERY_STRING", ""))
        return app.response_class() if path == "*" else None  # of the server as a whole (RFC 9110, section 9.3.7)

    def forbid_guessing(request: Request, response: Response) -> None:
        response.headers.add("X-Content-Type-Options", "nosniff")
        if request.method == "OPTIONS":  # not cacheable (RFC 9110, section 9.3.7), but some caches store it
            response.headers["Cache-Control"] = "no-store"
            describe_methods(request, response)

    def describe_methods(request: Request, response: Response) -> None:
        """In the order of every `Allow`; with the types that PATCH takes (RFC 5789, section 3.1)."""
        if allowed := sorted(response.allow):
            response.headers["Allow"] = ", ".join(allowed)
        if "PATCH" in allowed and (adapter := app.create_url_adapter(request)):
            if body := operation_of(app.view_functions[adapter.match(method="PATCH")[0]]).body:
                response.headers["Accept-Patch"] = ", ".join(body.media_types)

    app.checking.add(require_sane_address, stage=Stage.EDGE)
    app.answered.add(forbid_guessing)


_LOCAL = re.compile(  # names below localhost are this machine's, as browsers resolve them (RFC 6761, section 6.3)
    r"https?://(?:(?:[a-z0-9_-]+\.)*localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?"
)


def origin_check(origins: Collection[str]) -> Callable[[str], bool]:
    """A function that returns whether an origin is allowed; never `null`, which any page can produce.

    `*` allows all others. Without any origin, those of this machine are allowed.
    """
    if "*" in origins:
        return lambda origin: origin != "null"
    if origins:
        return frozenset(origins).__contains__
    return lambda origin: _LOCAL.fullmatch(origin) is not None


def refuse_other_sites(app: Application, origins: Collection[str] = (), *, local_only: bool = True) -> None:
    """Refuse requests from pages whose origin is neither allowed nor the service's own.

    An open service on the reader's machine would be reachable to every page, and even responses that a page cannot
    read cost time and reveal their size.
    """
    app.checking.add(own_site_check(origins, local_only=local_only), stage=Stage.EDGE)


def own_site_check(origins: Collection[str] = (), *, local_only: bool = True) -> Callable[[Request], None]:
    """A function that raises CrossOrigin for a request of a page whose origin is neither allowed nor the service's own.

    Without any `origins`, those of this machine are allowed if `local_only`, otherwise none.
    """
    allow_all = "*" in origins
    allows = origin_check(origins) if origins or local_only else lambda origin: False

    def require_own_site(request: Request) -> None:
        environ = request.environ
        if environ.get("HTTP_SEC_FETCH_SITE") == "same-origin":  # no page can write it; a proxy can change the host
            return
        if (origin := environ.get("HTTP_ORIGIN")) is None:
            is_navigation = (  # of a person, as by a link (Fetch Metadata, sections 2.1 and 2.2)
                environ["REQUEST_METHOD"] in ("GET", "HEAD")
                and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
                and environ.get("HTTP_SEC_FETCH_DEST") == "document"
            )
            if not allow_all and environ.get("HTTP_SEC_FETCH_SITE") == "cross-site" and not is_navigation:
                raise CrossOrigin("this request is from a page of another site; CORS_ORIGINS lists the allowed origins")
        elif not allows(origin) and origin != f"{environ['wsgi.url_scheme']}://{request.host}":
            raise CrossOrigin("the Origin is not the service's own; CORS_ORIGINS lists other allowed origins")

    return require_own_site


def require_utf8(query: str) -> None:
    """Raises InvalidQuery for a query, as a WSGI server has it, whose names and values are no UTF-8 (RFC 3986)."""
    if "%" not in query and query.isascii():
        return
    faults = []
    for pair in query.split("&"):
        try:
            unquote_to_bytes(pair.encode("latin-1")).decode()
        except UnicodeDecodeError:
            name = unquote(pair.partition("=")[0], errors="replace")
            faults.append({"parameter": shortened(name), "detail": "is not UTF-8: write é as %C3%A9"})
    if faults:
        summary = "; ".join(f"{fault['parameter']} {fault['detail']}" for fault in faults[:3])
        raise InvalidQuery(summary, errors=faults[:MOST_FAULTS])


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
