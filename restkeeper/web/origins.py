"""The origins of pages that send requests. A service that is open to its own machine refuses those of other sites."""

import re
from collections.abc import Callable, Collection
from typing import Any

from flask import Request

from restkeeper.errors import CrossOrigin
from restkeeper.web.application import Application

_LOCAL = re.compile(r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?")


def origin_check(origins: Collection[str]) -> Callable[[str], bool]:
    """A function that returns whether an origin is allowed; never `null`, which any page can produce.

    `*` allows all others. Without any origin, those of this machine are allowed.
    """
    if "*" in origins:
        return lambda origin: origin != "null"
    if origins:
        return frozenset(origins).__contains__
    return lambda origin: _LOCAL.fullmatch(origin) is not None


def refuse_other_sites(app: Application, origins: Collection[str] = ()) -> None:
    """Refuse requests from pages whose origin is neither allowed nor the service's own.

    An open service on the reader's machine would be reachable to every page, and even responses that a page cannot
    read cost time and reveal their size.
    """
    allows, allow_all = origin_check(origins), "*" in origins

    def require_own_site(request: Request) -> None:
        environ = request.environ
        if (origin := environ.get("HTTP_ORIGIN")) is None:
            if not allow_all and environ.get("HTTP_SEC_FETCH_SITE") == "cross-site" and not _is_navigation(environ):
                raise CrossOrigin("this request is from a page of another site; CORS_ORIGINS lists the allowed origins")
        elif not allows(origin) and origin != f"{environ['wsgi.url_scheme']}://{request.host}":
            raise CrossOrigin("the Origin is not the service's own; CORS_ORIGINS lists other allowed origins")

    app.before.append(require_own_site)


def _is_navigation(environ: dict[str, Any]) -> bool:
    """Whether a person navigates to a page, as by a link (Fetch Metadata, sections 2.1 and 2.2)."""
    return (
        environ["REQUEST_METHOD"] in ("GET", "HEAD")
        and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
        and environ.get("HTTP_SEC_FETCH_DEST") == "document"
    )
