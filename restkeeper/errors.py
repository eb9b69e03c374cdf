"""The error catalogue: one class a problem. Raise one anywhere; `web/errors.py` renders it once (RFC 9457).

A class gives the status, the last part of the problem type's URI (`name`), the title, and `about`, the text of the page
that is served at that URI; a type that is registered for everybody has a `uri` beside. An instance adds what is
particular: `detail`, response headers, extension members.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

MOST_FAULTS = 100  # that one response lists
LONGEST_TOLD = 100  # characters of what a client sent that a response repeats


def shortened(text: str) -> str:
    """A text as responses repeat it: what is long ends in "…"."""
    return text if len(text) <= LONGEST_TOLD else f"{text[:LONGEST_TOLD]}…"


class Problem(Exception):
    """Base of all problems. `detail` says what happened this time and, where it can, what would be right."""

    status: ClassVar[int] = 500
    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    uri: ClassVar[str] = ""  # the type's URI where that is not our page but one registered for everybody
    usual_headers: ClassVar[Mapping[str, str]] = {}  # of the response, where an instance is given none

    def __init__(self, detail: str = "", *, headers: Mapping[str, str] | None = None, **members: Any) -> None:
        super().__init__(detail or self.title)
        self.detail = detail
        self.headers = headers or self.usual_headers
        self.members = members


class BadRequest(Problem):
    status, name, title = 400, "bad-request", "Bad request"
    about = "The request is not one that HTTP or this service can understand. The detail says which part."


class InvalidJson(Problem):
    status, name, title = 400, "invalid-json", "The body is not acceptable JSON"
    about = (
        "The body must be one JSON text in UTF-8 (RFC 8259) in which each name occurs once in its object, numbers are "
        "finite and of a size that programs share (RFC 7493), and nesting stays within the limit. "
        "The detail gives the line and column, or the name or number at fault."
    )


class InvalidQuery(Problem):
    status, name, title = 400, "invalid-query", "A query parameter is not acceptable"
    about = (
        "A query parameter is unknown, malformed, out of range or contradicts another. "
        "`errors` lists them, at most 100, each with the `parameter` and what would be right; `limit` is there "
        "where a page by offset can have only so many items. "
        "A cursor is bound to the sort and the filters it was made for."
    )


class Unauthorized(Problem):
    status, name, title = 401, "unauthorized", "Credentials are needed"
    about = (
        "This address needs credentials that are valid. `WWW-Authenticate` lists the schemes (RFC 9110, section 11)."
    )


class CrossOrigin(Problem):
    status, name, title = 403, "cross-origin", "Pages of that origin may not call this service"
    about = (
        "A browser sent this request for a page of another origin than the service's own. The service is open to all "
        "callers on its machine, and so it accepts requests of pages of this machine only. `CORS_ORIGINS` allows "
        "others."
    )


class NotFound(Problem):
    status, name, title = 404, "not-found", "Not found"
    about = "The item does not exist, or no longer, or the path is not one of this service."


class Forbidden(Problem):
    status, name, title = 403, "forbidden", "Not allowed"
    about = (
        "The credentials are valid, but the caller may not do this. The detail says what is needed, and so does "
        "`WWW-Authenticate` where it is a scope (RFC 6750, section 3.1)."
    )


class MethodNotAllowed(Problem):
    status, name, title = 405, "method-not-allowed", "Method not allowed"
    about = "The address exists but does not accept this method. The `Allow` header lists those that it accepts."


class NotAcceptable(Problem):
    status, name, title = 406, "not-acceptable", "Not acceptable"
    about = "The `Accept` header leaves out every media type that this address can answer in. The detail lists them."


class Duplicate(Problem):
    status, name, title = 409, "duplicate", "The value is taken"
    about = "Another item of the collection already has this value in a field that is unique. `errors` points at it."


class IllegalTransition(Problem):
    status, name, title = 409, "illegal-transition", "The state cannot change that way"
    about = (
        "An item's status moves only along the lifecycle that its collection declares. `from` and `to` are the move "
        "that was requested; `allowed` lists the moves that are possible from the present state."
    )


class CursorExpired(Problem):
    status, name, title = 410, "cursor-expired", "Events after this cursor are gone"
    about = (
        "The events after this cursor are deleted (`EVENTS_TTL`), or the cursor belongs to another service, such as "
        "the original of a restored backup. `resume` is the cursor before the oldest event that is stored: read the "
        "items again, and continue from there."
    )


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
        "may be: in bytes of its JSON (`MAX_ITEM`), or in values, which are objects, arrays and what is in them "
        "(`MAX_NODES`). The detail gives the limit."
    )


class IdempotencyKeyMissing(Problem):
    status, name, title = 400, "idempotency-key-missing", "An idempotency key is required"
    about = (
        "This service accepts only a POST that can be repeated safely (`IDEMPOTENCY=required`): send a new "
        "`Idempotency-Key` with each request, and the same one when you repeat it."
    )


class IdempotencyKeyInvalid(Problem):
    status, name, title = 400, "idempotency-key-invalid", "The idempotency key is malformed"
    about = (
        "An `Idempotency-Key` is 1 to 255 printable ASCII characters, bare or as a quoted string; for example a UUID."
    )


class IdempotencyKeyReused(Problem):
    status, name, title = 422, "idempotency-key-reused", "The idempotency key was used for something else"
    about = (
        "A request with this `Idempotency-Key` and another body was answered before. Use a new key for each thing to "
        "do."
    )


class UriTooLong(Problem):
    status, name, title = 414, "uri-too-long", "The address is too long"
    about = (
        "Path and query together are longer than the service accepts (`MAX_URL`). The detail gives the limit in bytes."
    )


class UnsupportedMediaType(Problem):
    status, name, title = 415, "unsupported-media-type", "Unsupported media type"
    about = (
        "The `Content-Type` of the body is not one that this method accepts: `application/json`, and for PATCH also "
        "`application/merge-patch+json` (RFC 7396). `Accept-Patch` lists what PATCH accepts."
    )


class ValidationFailed(Problem):
    status, name, title = 422, "validation-failed", "The body does not fit the schema"
    about = (
        "The body is JSON but not a valid item. `errors` lists all errors at once, at most 100: `pointer` is a JSON "
        "Pointer to the value (RFC 6901, as a URI fragment; what is long in it ends in an ellipsis) and `detail` says "
        "what it must be."
    )


class PreconditionRequired(Problem):
    status, name, title = 428, "precondition-required", "A precondition is required"
    about = (
        "This service accepts only conditional writes (`REQUIRE_IF_MATCH`): send the `ETag` that you read as "
        "`If-Match`, so that no change of others is lost (RFC 6585, section 3)."
    )


class TooManyRequests(Problem):
    status, name, title = 429, "quota-exceeded", "Too many requests"
    uri = "https://iana.org/assignments/http-problem-types#quota-exceeded"
    about = (
        "The caller has used all requests of this window of time (RFC 6585, section 4). `violated-policies` "
        "names the quota: of those in `RateLimit-Policy`, or `failures` (wrong credentials and refused hosts of an "
        "address), or `waits` (long polls under way). Try again after the seconds in `Retry-After`."
    )


class HeadersTooLarge(Problem):
    status, name, title = 431, "headers-too-large", "The header fields are too large"
    about = "A header field, or all of them together, are larger than the server accepts (RFC 6585, section 5)."


class InternalError(Problem):
    status, name, title = 500, "internal-error", "Internal error"
    about = (
        "An unexpected error; nothing of the request was stored. The log has the cause under the `request_id` of this "
        "response."
    )


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
        "The disk that holds the store has less free space than the operator reserves (`MIN_FREE_SPACE`), so that "
        "nothing can be written; nothing of the request was stored. Reads and deletes still work, and writes will when "
        "there is space again."
    )


class MetricsClosed(Problem):
    status, name, title = 403, "metrics-closed", "Metrics are closed"
    about = "Metrics are closed until the operator sets `METRICS_TOKEN`; then that token is the credential for them."


def catalogue() -> dict[str, type[Problem]]:
    """Every problem type by its name, in order of status."""
    return {kind.name: kind for kind in sorted(Problem.__subclasses__(), key=lambda kind: kind.status)}
