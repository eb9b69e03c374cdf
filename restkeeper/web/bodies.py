"""The body of a request, which is read once, and the media types that its client takes."""

from typing import Any

from flask import request
from werkzeug.exceptions import ClientDisconnected

from restkeeper.errors import (
    BadRequest,
    BodyTooLarge,
    InvalidJson,
    NotAcceptable,
    Unavailable,
    UnsupportedMediaType,
    shortened,
)
from restkeeper.exactjson import fault, listed, loads, require_none
from restkeeper.web import current_request

NO_BODY = "must be left out: this action takes no body"
_BODY = "restkeeper.body"  # in the WSGI environment: what was `put_back`

JSON = "application/json"
HTML = "text/html"
CSV = "text/csv"
EVENT_STREAM = "text/event-stream"  # server-sent events (HTML, section 9.2)
MERGE_PATCH = "application/merge-patch+json"  # RFC 7396


def require_acceptable(*offers: str) -> str:
    """The media type that the client likes most, the first one if it likes several alike.

    Raises NotAcceptable when it takes none of them.
    """
    accept = current_request().environ.get("HTTP_ACCEPT")
    if not accept or accept == "*/*" or accept == offers[0]:
        return offers[0]
    if not quality(chosen := max(offers, key=quality)):
        raise NotAcceptable(f"this address answers {' or '.join(offers)}")
    return chosen


def quality(offer: str) -> float:
    """How much the client likes a media type, from 0 to 1: as its most specific range that fits says.

    Parameters of a range are ignored: responses are UTF-8, and a client that asks for UTF-8 is served.
    """
    fitting = (offer, f"{offer.partition('/')[0]}/*", "*/*")
    ranges = {value.partition(";")[0].strip().lower(): weight for value, weight in reversed(request.accept_mimetypes)}
    if not ranges:
        return 1
    return next((ranges[media_range] for media_range in fitting if media_range in ranges), 0)


def read_object(*types: str, most: int = 0, max_body: int, max_depth: int, max_values: int) -> Any:
    """The JSON object that is the request's body, of one of these media types; or the array of 1 to `most` objects.

    The limits: `max_body` in bytes, `max_depth` in levels; of more than `max_values` it is not parsed. Raises
    UnsupportedMediaType, BodyTooLarge, BadRequest when the body ends early, InvalidJson, and ValidationFailed when the
    JSON is not an object.
    """
    environ = current_request().environ
    sent, coding = environ.get("CONTENT_TYPE", ""), environ.get("HTTP_CONTENT_ENCODING", "")
    if sent not in types:
        charset = request.mimetype_params.get("charset", "utf-8").lower()
        if request.mimetype not in types or charset not in ("utf-8", "utf8"):
            what = f"it is {shortened(sent)!r}" if sent else "there is none"
            headers = {"Accept-Patch" if request.method == "PATCH" else "Accept": ", ".join(types)}
            raise UnsupportedMediaType(f"Content-Type must be {' or '.join(types)}; {what}", headers=headers)
    if coding.strip().lower() not in ("", "identity"):
        raise UnsupportedMediaType(f"Content-Encoding {shortened(coding)!r} is not supported; send the body as it is")
    if not (body := read_bytes(max_body)):
        raise InvalidJson("the body is empty; a JSON object is expected")
    value = loads(body, max_depth, max_values)
    if isinstance(value, dict):
        return value
    if not isinstance(value, list) or not most:
        require_none([fault((), "must be an object")])
    if not 0 < len(value) <= most:
        require_none([fault((), f"must have 1 to {most} items")])
    require_none(listed(fault((n,), "must be an object") for n, item in enumerate(value) if not isinstance(item, dict)))
    return value


def read_bytes(limit: int) -> bytes:
    """The request's body, which is read once: see `put_back`. Raises as `read_object`."""
    body: bytes | None = current_request().environ.pop(_BODY, None)
    if body is None:
        body = _received(limit)
    if len(body) > limit:
        raise BodyTooLarge(f"a body has at most {limit} bytes")
    return body


def _received(limit: int) -> bytes:
    """The body from the server; of one in chunks that is larger than the limit, only a byte more. Raises as above."""
    request = current_request()
    length = request.content_length
    if (length or 0) > limit:
        raise BodyTooLarge(f"a body has at most {limit} bytes")
    request.max_content_length = limit + 1  # for bodies that come in chunks; werkzeug stops there in silence
    try:
        body: bytes = request.environ["wsgi.input"].read(length) if length else request.get_data(cache=False)
    except Unavailable:  # the server has no room for it
        raise
    except ClientDisconnected:  # which werkzeug raises for a body in chunks
        raise BadRequest("the body ended before its last chunk") from None
    except Exception as error:  # PEP 3333 leaves it to servers what they raise for content that is malformed or late
        raise BadRequest(f"the body cannot be read: {error}") from error
    if len(body) < (length or 0):
        raise BadRequest("the body ended before its announced length")
    return body


def put_back(body: bytes) -> None:
    """Let these bytes be the request's body, which is read again."""
    current_request().environ[_BODY] = body


def read_none(max_body: int) -> dict[str, Any]:
    """An empty object, which the body may be. Raises ValidationFailed for another one, BodyTooLarge and BadRequest."""
    if read_bytes(max_body).strip() not in (b"", b"{}"):
        require_none([fault((), NO_BODY)])
    return {}
