"""Every exception in one form: RFC 9457 problem details.

All exceptions of a request are handled here: the catalogue's problems, exceptions of stores, HTTP errors of Flask and
werkzeug, and unexpected exceptions, which are logged in full and returned as a plain 500. What makes many requests fail
at the same time, a busy store or a lack of file descriptors, is a 503 and a line in the log, once a minute.
"""

import errno
import logging
import re
from collections.abc import Callable
from typing import Any, cast

from flask import Response, current_app, request
from werkzeug.exceptions import HTTPException, InternalServerError, MethodNotAllowed, NotFound
from werkzeug.http import HTTP_STATUS_CODES

from restkeeper import errors, exactjson
from restkeeper.clock import is_due
from restkeeper.errors import HeaderFields, Problem, shortened
from restkeeper.storage.errors import (
    DuplicateValue,
    RecordChanged,
    RecordNotFound,
    ReferenceMissing,
    StoreBusy,
    StoreContended,
    StoreError,
    StoreFailing,
    StoreFull,
    StoreGone,
    StoreUnavailable,
    StoreUnopened,
    StoreUnreachable,
)
from restkeeper.web.application import Application, address_of
from restkeeper.web.observe import request_id

PROBLEM_JSON = "application/problem+json"
PAGES = "/problems/"  # each type's URI is its page under here, relative: no client names its host

_log = logging.getLogger("restkeeper")
_NUMBER = re.compile(r"\d+")  # in a text that differs from request to request, as the free space of a disk

_NO_FILES = (errno.EMFILE, errno.ENFILE)
# Causes of 503s that need no traceback.
_KNOWN = (StoreGone, StoreUnopened, StoreFull, StoreFailing, StoreBusy, StoreContended, StoreUnreachable, OSError)

# What a store raises, as a problem; a subclass is as its base, unless it has a row before that. EventsExpired and
# ResponseStored have none: the feed handles the one, and a request that is repeated the other.
_OF_STORE: dict[type[StoreError], Callable[[Any], Problem]] = {
    RecordNotFound: lambda error: errors.NotFound(error.detail),
    ReferenceMissing: lambda error: errors.Conflict(error.text),
    DuplicateValue: lambda error: errors.Duplicate(error.detail, errors=error.faults),
    RecordChanged: lambda error: errors.Unavailable(error.detail),
    StoreFull: lambda error: errors.InsufficientStorage(error.detail),
    StoreUnavailable: lambda error: errors.Unavailable(error.detail),
}


def install(app: Application) -> None:
    """Render everything that is raised in `app`."""
    app.register_error_handler(Problem, render)
    for kind in _OF_STORE:
        app.register_error_handler(kind, lambda error: render(problem_of(error)))
    app.register_error_handler(HTTPException, _render_http)
    app.register_error_handler(Exception, _render_unforeseen)


def render(problem: Problem) -> Response:
    """The response for a problem (RFC 9457, section 3). A server error that is raised, or has a cause, is logged."""
    cause = problem.__cause__
    if cause and problem.status in (503, 507):  # what many requests meet, until others or an operator have acted
        _log_rarely(problem, cause)
    elif problem.status >= 500 and (cause or (problem.status == 500 and problem.__traceback__)):
        _log.error("%s: %s", problem.name, problem.detail, exc_info=problem, extra={"request_id": request_id()})
    uri = address_of(cast(Application, current_app).service_path(PAGES + problem.name))
    return _answer(problem.status, uri, problem.name, problem.title, problem.detail, problem.headers, problem.members)


def _log_rarely(problem: Problem, cause: BaseException) -> None:
    """Log a line, with the traceback of an unforeseen error, unless there was a line about the same cause."""
    if not is_due((type(cause), _NUMBER.sub("", str(cause)))):
        return
    reason = cause.__cause__ or cause
    text = problem.detail if str(reason) in problem.detail else f"{problem.detail}: {reason}"
    is_known = isinstance(cause, _KNOWN) or isinstance(reason, StoreUnavailable)
    _log.error("requests get %d: %s", problem.status, text, exc_info=None if is_known else problem)


def problem_of(error: StoreError) -> Problem:
    """The problem for an exception of a store, which becomes its cause unless the store has logged it: see `reason`."""
    problem = next(make(error) for kind, make in _OF_STORE.items() if isinstance(error, kind))
    is_logged = isinstance(error, StoreUnavailable) and error.reason and not error.__cause__
    problem.__cause__ = None if is_logged else error
    return problem


def _render_http(error: HTTPException) -> Response:
    if isinstance(error, InternalServerError) and isinstance(error.original_exception, Exception):
        return _render_unforeseen(error.original_exception)
    status, detail, headers = error.code or 500, error.description or "", dict[str, str]()
    if isinstance(error, MethodNotAllowed):
        allowed = sorted(error.valid_methods or ())
        headers["Allow"] = ", ".join(allowed)
        detail = f"{request.method} is not one of {', '.join(allowed)}"
    elif detail == NotFound.description:
        detail = f"nothing is at {shortened(request.root_path + request.path)}"
    if kind := errors.BY_STATUS.get(status):
        return render(kind(detail, headers=headers))
    title = HTTP_STATUS_CODES.get(status, "Error")
    return _answer(status, "about:blank", errors.code_of(status, title), title, detail, headers, {})


def _render_unforeseen(error: Exception) -> Response:
    if isinstance(error, OSError) and error.errno in _NO_FILES:
        problem = errors.Unavailable("the server has no file descriptor left; try again")
        problem.__cause__ = error
        return render(problem)
    _log.error("unexpected %s", type(error).__name__, exc_info=error, extra={"request_id": request_id()})
    return render(errors.InternalError())


def _answer(
    status: int, type_uri: str, code: str, title: str, detail: str, headers: HeaderFields, members: dict[str, Any]
) -> Response:
    body = {"type": type_uri, "code": code, "title": title, "status": status, "message": detail or title}
    if detail:
        body["detail"] = detail
    body |= {"instance": address_of(request.path), "request_id": request_id()} | members
    response = current_app.response_class(exactjson.dumps(body), status, mimetype=PROBLEM_JSON)
    response.headers.update(headers)
    response.headers["Cache-Control"] = "no-store"
    return response
