"""The call of the current request: what collections know of it."""

from collections.abc import Mapping

from flask import Request

from restkeeper.resources.call import NOBODY, Call
from restkeeper.resources.parameters import Arguments
from restkeeper.web import current_request
from restkeeper.web.auth import CALL, CALLER
from restkeeper.web.lookup import AHEAD
from restkeeper.web.preconditions import conditions_of

LARGE = 16 * 1024  # bytes of a body, from which on it takes milliseconds to load its items
NO_ARGUMENTS: Mapping[str, list[str]] = {}


def current_call() -> Call:
    """The call of the current request, whose caller and version are known when a handler asks for it first."""
    environ = current_request().environ
    call: Call | None = environ.get(CALL)
    if call is None:
        call = environ[CALL] = Call(environ.get(CALLER, NOBODY), conditions_of(environ), environ.pop(AHEAD, None))
    return call


def shown_in(request: Request) -> set[str]:
    """The collections whose items are in the response, if they are not that of the path alone."""
    call: Call | None = request.environ.get(CALL)
    return call.shown_collections if call else set()


def arguments() -> Arguments:
    """The parameters of the current request."""
    request = current_request()
    return request.args.to_dict(flat=False) if request.query_string else NO_ARGUMENTS


def is_large() -> bool:
    """Whether the body of the current request takes milliseconds to load, so that others like it wait meanwhile."""
    request = current_request()
    return (request.content_length or 0) >= LARGE or "HTTP_TRANSFER_ENCODING" in request.environ  # in chunks
