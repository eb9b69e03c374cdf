"""The error catalogue: one class for each problem type. Raise one anywhere; `web/errors.py` renders it (RFC 9457).
A type that only one feature raises is in that feature.

A class has the status, the last part of the problem type's URI (`name`), the title, and `about`, the text of the page
at that URI. An instance adds `detail`, response headers and extension members.
"""

import re
from collections.abc import Mapping
from copy import deepcopy
from inspect import cleandoc
from typing import Any, ClassVar

HeaderFields = Mapping[str, str | list[str]]  # a list is a field for each of its values

MOST_FAULTS = 100  # errors that one response lists
LONGEST_REPEATED = 100  # characters of a client's text in a response


def shortened(text: str) -> str:
    """A client's text as a response repeats it: a long one ends in "…"."""
    return text if len(text) <= LONGEST_REPEATED else f"{text[:LONGEST_REPEATED]}…"


def _with_pointer(fault: Mapping[str, Any]) -> dict[str, Any]:
    path = fault.get("pointer", "").removeprefix("#")
    pointer = f"#/{path.removeprefix('/')}" if path else "#"
    return {**fault} if "parameter" in fault else {**fault, "pointer": pointer}


class Problem(Exception):
    """Base of all problems. `detail` describes this error and, if possible, how to correct it.

    `class OrderIsPaid(Conflict)` has the `name` order-is-paid, a title like it, and its docstring as `about`.
    """

    status: ClassVar[int] = 500
    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    usual_headers: ClassVar[HeaderFields] = {}  # of the response, unless an instance has others

    def __init_subclass__(cls) -> None:
        own, words = vars(cls), re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        cls.name = own.get("name", words)
        cls.title = own.get("title", cls.name.replace("-", " ").capitalize())
        cls.about = own.get("about", cleandoc(cls.__doc__ or f"{cls.title}."))

    def __init__(self, detail: str = "", *, headers: HeaderFields | None = None, **members: Any) -> None:
        super().__init__(detail or self.title)
        self.detail = detail
        self.headers = headers or self.usual_headers
        self.members = members

    def copied(self) -> "Problem":
        """The same problem with members of its own: who raises it may have it in a constant."""
        made = type(self).__new__(type(self), *self.args)
        vars(made).update(vars(self), members=deepcopy(self.members))
        return made


class BadRequest(Problem):
    status, name, title = 400, "bad-request", "Bad request"
    about = "The request is not valid HTTP, or this service does not understand it. The detail names the part."


class InvalidJson(Problem):
    status, name, title = 400, "invalid-json", "The body is not acceptable JSON"
    about = (
        "The body must be one JSON text in UTF-8 (RFC 8259). Each name occurs once in its object, numbers are finite "
        "and interoperable (RFC 7493), and nesting has a limit. The detail gives the line and column, or the invalid "
        "name or number."
    )


class InvalidQuery(Problem):
    status, name, title = 400, "invalid-query", "A query parameter is not acceptable"
    about = (
        "A query parameter is unknown, malformed, out of range or contradicts another. "
        "`errors` lists at most 100, each with the `parameter` and the valid values. `limit` is present if a page by "
        "offset can have only that many items. A cursor is valid only with the sort and the filters of its list."
    )


class Unauthorized(Problem):
    status, name, title = 401, "unauthorized", "Credentials are needed"
    about = "This address needs valid credentials. `WWW-Authenticate` lists the schemes (RFC 9110, section 11)."


class Forbidden(Problem):
    status, name, title = 403, "forbidden", "Not allowed"
    about = (
        "The credentials are valid, but do not allow this. The detail gives what is needed; if it is a scope, "
        "`WWW-Authenticate` names it, too (RFC 6750, section 3.1)."
    )


class CrossOrigin(Problem):
    status, name, title = 403, "cross-origin", "Pages of that origin may not call this service"
    about = (
        "A browser sent this request for a page of another origin. A service that is open to all callers on its "
        "machine accepts requests of pages of this machine only; no service reads a form of another site. "
        "`CORS_ORIGINS` allows other origins."
    )


class NotFound(Problem):
    status, name, title = 404, "not-found", "Not found"
    about = "The item does not exist, or no longer, or this service does not have the path."


class MethodNotAllowed(Problem):
    status, name, title = 405, "method-not-allowed", "Method not allowed"
    about = "The address exists but does not accept this method. The `Allow` header lists those that it accepts."


class NotAcceptable(Problem):
    status, name, title = 406, "not-acceptable", "Not acceptable"
    about = "The `Accept` header allows no media type that this address can send. The detail lists those that it can."


class Conflict(Problem):
    status, name, title = 409, "conflict", "Conflict with the present state"
    about = "What the request asks for is not possible in the present state. The detail gives the reason."


class Duplicate(Problem):
    status, name, title = 409, "duplicate", "The value is taken"
    about = (
        "Another item of the collection already has this value in a unique field. `errors` points to the field. It is "
        "missing if the service itself sets the value, in an item of the collection that the detail names."
    )


class EditConflict(Problem):
    status, name, title = 409, "edit-conflict", "The item has changed since it was read"
    about = (
        "The `version` or `updated_at` in the body is older than that of the item: somebody else has changed the item "
        "since it was read, and this change would undo that. The detail gives the present version. Read the item "
        "again, make the change to its present state, and send that, best with its `ETag` as `If-Match`."
    )


class IllegalTransition(Problem):
    status, name, title = 409, "illegal-transition", "The state cannot change that way"
    about = (
        "The lifecycle of the collection does not allow this change of an item's status. `from` and `to` are the "
        "requested change; `allowed` lists the states that are possible after the present one. They are missing in a "
        "version of the API that does not have these states. If only an action sets the state, `action` is "
        "its name."
    )

    def __init__(self, detail: str, *, field: str, **members: Any) -> None:
        super().__init__(detail, **members)
        self.field = field


class PreconditionFailed(Problem):
    status, name, title = 412, "precondition-failed", "A precondition does not hold"
    about = (
        "The item is not in the state that `If-Match`, `If-None-Match` or `If-Unmodified-Since` requires (RFC 9110, "
        "section 13). Read it again, make the change to its present state, and send the new `ETag`."
    )


class BodyTooLarge(Problem):
    status, name, title = 413, "body-too-large", "The body is too large"
    about = (
        "The body is larger than the service accepts (`MAX_BODY`), or the resulting item would be larger than an item "
        "may be: in bytes of its JSON (`MAX_ITEM`), or in values, which are objects, arrays and their contents "
        "(10,000). The detail gives the limit."
    )


class UriTooLong(Problem):
    status, name, title = 414, "uri-too-long", "The address is too long"
    about = "Path and query together are longer than the service accepts. The detail gives the limit in bytes."


class UnsupportedMediaType(Problem):
    status, name, title = 415, "unsupported-media-type", "Unsupported media type"
    about = (
        "This method does not accept the `Content-Type` of the body. It accepts `application/json`, and for PATCH also "
        "`application/merge-patch+json` (RFC 7396). `Accept-Patch` lists what PATCH accepts."
    )


class ValidationFailed(Problem):
    status, name, title = 422, "validation-failed", "The body does not fit the schema"
    about = (
        "The body is JSON but not a valid item. `errors` lists all errors, at most 100: `pointer` is a JSON Pointer to "
        "the value (RFC 6901, as a URI fragment; long names end in an ellipsis), and `detail` gives what is valid."
    )

    def __init__(self, detail: str = "", **options: Any) -> None:
        """A function of the service may write a pointer as "/end" or "end", and leave out that of the whole body."""
        super().__init__(detail, **options)
        if errors := self.members.get("errors"):
            self.members["errors"] = [*map(_with_pointer, errors)]


class PreconditionRequired(Problem):
    status, name, title = 428, "precondition-required", "A precondition is required"
    about = (
        "This service accepts only conditional writes (`REQUIRE_IF_MATCH`): send the `ETag` that you read as "
        "`If-Match`, so that no change of another client is lost (RFC 6585, section 3)."
    )


class TooManyRequests(Problem):
    status, name, title = 429, "quota-exceeded", "Too many requests"
    about = (
        "The caller has used all requests of this window of time (RFC 6585, section 4). `violated-policies` "
        "names the quota: one in `RateLimit-Policy`, or `failures` (wrong credentials and refused hosts of an "
        "address), or `waits` (open long polls). Try again after the seconds in `Retry-After`."
    )


class HeadersTooLarge(Problem):
    status, name, title = 431, "headers-too-large", "The header fields are too large"
    about = "A header field, or all of them together, are larger than the server accepts (RFC 6585, section 5)."


class InternalError(Problem):
    status, name, title = 500, "internal-error", "Internal error"
    about = "An unexpected error; nothing of the request was stored. The log has the cause, with this `request_id`."


class Unavailable(Problem):
    status, name, title = 503, "unavailable", "Not available now"
    usual_headers: ClassVar[Mapping[str, str]] = {"Retry-After": "1"}  # seconds
    about = (
        "The service or its store is busy or not ready; nothing of the request was stored. "
        "Try again after the seconds in `Retry-After`."
    )


class InsufficientStorage(Problem):
    status, name, title = 507, "insufficient-storage", "The disk is full"
    usual_headers: ClassVar[Mapping[str, str]] = {"Retry-After": "1"}
    about = (
        "The disk of the store has less free space than the service reserves; nothing of the "
        "request was stored. Reads and deletes work; writes fail until there is space again."
    )


def catalogue(*more: type[Problem]) -> dict[str, type[Problem]]:
    """The problem types of this module and those that derive from them, and `more`, by name in order of status."""
    known = [kind for kind in Problem.__subclasses__() if kind.__module__ == __name__]
    for kind in known:
        known += kind.__subclasses__()
    return {kind.name: kind for kind in sorted((*known, *more), key=lambda kind: kind.status)}


BY_STATUS = {each.status: each for each in reversed(catalogue().values())}  # the general type of each


def code_of(status: int, title: str) -> str:
    """The code of an error that has no address of a type: as of the general type, or the title of the status."""
    kind = BY_STATUS.get(status)
    return kind.name if kind else re.sub(r"\W+", "-", title.lower())
