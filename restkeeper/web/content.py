"""Media types and bodies: what a client accepts and sends (RFC 9110, section 12.5.1; RFC 9112, section 6)."""

from typing import Any

from flask import request
from werkzeug.exceptions import ClientDisconnected

from restkeeper.errors import (
    BadRequest,
    BodyTooLarge,
    InvalidJson,
    NotAcceptable,
    UnsupportedMediaType,
    ValidationFailed,
    shortened,
)
from restkeeper.web import exactjson

JSON = "application/json"
HTML = "text/html"
MERGE_PATCH = "application/merge-patch+json"  # RFC 7396


def require_acceptable(*offers: str) -> None:
    """Raises NotAcceptable when the client takes none of the media types."""
    accept = request.environ.get("HTTP_ACCEPT")
    if not accept or accept == "*/*" or accept == offers[0]:
        return
    if not any(quality(offer) for offer in offers):
        raise NotAcceptable(f"this address answers {' or '.join(offers)}")


def quality(offer: str) -> float:
    """How much the client likes a media type, from 0 to 1: as its most specific range that fits says.

    Parameters of a range are ignored: responses are UTF-8, and a client that asks for UTF-8 is served.
    """
    fitting = (offer, f"{offer.partition('/')[0]}/*", "*/*")
    ranges = {value.partition(";")[0].strip().lower(): weight for value, weight in reversed(request.accept_mimetypes)}
    if not ranges:
        return 1
    return next((ranges[each] for each in fitting if each in ranges), 0)


def read_object(*types: str, max_body: int, max_depth: int, max_values: int) -> dict[str, Any]:
    """The JSON object that is the request's body.

    `max_body` in bytes, `max_depth` in levels; of more than `max_values` it is not parsed. Raises
    UnsupportedMediaType, BodyTooLarge, BadRequest when the body ends early, InvalidJson, and ValidationFailed when the
    JSON is not an object.
    """
    require_media_type(*types)
    coding = request.environ.get("HTTP_CONTENT_ENCODING", "")
    if coding.strip().lower() not in ("", "identity"):
        raise UnsupportedMediaType(f"Content-Encoding {shortened(coding)!r} is not supported; send the body as it is")
    value = exactjson.loads(_read(max_body), max_depth, max_values)
    if not isinstance(value, dict):
        raise ValidationFailed(errors=[{"pointer": "#", "detail": "must be an object"}])
    return value


def require_media_type(*types: str) -> None:
    """Raises UnsupportedMediaType unless the body's type is one of these, in UTF-8."""
    sent = request.environ.get("CONTENT_TYPE", "")
    if sent in types:
        return
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if request.mimetype not in types or charset not in ("utf-8", "utf8"):
        found = f"it is {shortened(sent)!r}" if sent else "there is none"
        headers = {"Accept-Patch": ", ".join(types)} if request.method == "PATCH" else {"Accept": ", ".join(types)}
        raise UnsupportedMediaType(f"Content-Type must be {' or '.join(types)}; {found}", headers=headers)


def _read(limit: int) -> bytes:
    if (request.content_length or 0) > limit:
        raise BodyTooLarge(f"a body has at most {limit} bytes")
    request.max_content_length = limit + 1  # for bodies that come in chunks; werkzeug stops there in silence
    try:
        body = request.get_data(cache=False)
    except ClientDisconnected:
        raise BadRequest("the body ended before its announced length") from None
    except Exception as error:  # PEP 3333 leaves it to servers what they raise for content that is malformed or late
        raise BadRequest(f"the body cannot be read: {error}") from error
    if len(body) > limit:
        raise BodyTooLarge(f"a body has at most {limit} bytes")
    if not body:
        raise InvalidJson("the body is empty; a JSON object is expected")
    return body
