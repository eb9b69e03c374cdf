"""A page to see and change the items in a browser (/browse): a client of the API that /openapi.json describes."""

from pathlib import Path

from flask import Blueprint, Response, request

from restkeeper import exactjson
from restkeeper.errors import NotFound, PreconditionFailed, shortened
from restkeeper.feature import Seams
from restkeeper.resources.call import PUBLIC
from restkeeper.service import Service
from restkeeper.web import preconditions
from restkeeper.web.application import Reply
from restkeeper.web.auth import caller, needs
from restkeeper.web.bodies import HTML, JSON, require_acceptable
from restkeeper.web.operations import CONDITIONS, NOT_MODIFIED, Result, returns, takes

_FOLDER = Path(__file__).parent
_FILES = ("browse.css", "api.js", "json.js", "form.js", "browse.js")
_SCOPES = {"type": "array", "items": {"type": "string", "maxLength": 8192}, "maxItems": 8192}
_PAGE = Result("The page.", {HTML: {"type": "string"}}, ("ETag",))


def install(service: Service) -> Seams:
    """Serve the page, unless DOCS=0 or there is no document to read."""
    if not service.config.docs or "openapi" not in service.features:
        return Seams()
    routes = Blueprint("browse", __name__)
    routes.add_url_rule("/browse", view_func=read_browser)
    routes.add_url_rule("/browse/scopes", view_func=read_scopes)
    routes.add_url_rule("/browse/<path:name>", view_func=read_browser_file)
    return Seams(routes=(routes,))


@needs(PUBLIC)
@takes(*CONDITIONS)
@returns(_PAGE, NOT_MODIFIED, PreconditionFailed)
def read_browser() -> Response:
    """The items as a page to search and change them."""
    reply = preconditions.page((_FOLDER / "browse.html").read_text("utf-8"))
    # Values of items are never parsed as HTML: the browser refuses any code of ours that would do so.
    reply.headers["Content-Security-Policy"] += "; require-trusted-types-for 'script'; trusted-types 'none'"
    return reply


@needs(PUBLIC)
def read_browser_file(name: str) -> Response:
    """A file of the page."""
    if name not in _FILES:
        raise NotFound(f"nothing is at {shortened(request.root_path + request.path)}")
    kind = "css" if name.endswith(".css") else "javascript"
    return preconditions.document((_FOLDER / name).read_bytes(), f"text/{kind}; charset=utf-8")


@needs(PUBLIC)
@returns(Result("The scopes.", {JSON: _SCOPES}))
def read_scopes() -> Response:
    """The scopes of the caller, for the page to offer only what these allow; `admin` allows everything."""
    require_acceptable(JSON)
    return Reply(exactjson.dumps(sorted(caller().scopes)), headers={"Cache-Control": "no-store"})
