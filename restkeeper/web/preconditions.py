"""Conditional requests: RFC 9110, section 13, in the order of its section 13.2.2.

A date has whole seconds, and an item can change several times in one. So the date of an item is the first second after
its last change, and it is compared with the very moment of that change: a client with this date has seen all that
happened before it (section 8.8.2.2).

Documents and pages of the service itself are cached by their digest.
"""

from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache
from hashlib import blake2b

from flask import request
from werkzeug.http import parse_etags

from restkeeper.clock import may_be_late
from restkeeper.errors import PreconditionFailed, PreconditionRequired
from restkeeper.web import current_request
from restkeeper.web.application import Reply
from restkeeper.web.bodies import HTML

_LAST_SECOND = 253402300799  # of the year 9999, since 1970


def digest(body: bytes) -> str:
    """The strong ETag of a representation, without its quotes."""
    return blake2b(body, digest_size=12).hexdigest()


def is_conditional() -> bool:
    """Whether the request has any condition."""
    environ = current_request().environ
    return (
        "HTTP_IF_NONE_MATCH" in environ
        or "HTTP_IF_MATCH" in environ
        or "HTTP_IF_MODIFIED_SINCE" in environ
        or "HTTP_IF_UNMODIFIED_SINCE" in environ
    )


def require_match(tag: str | None, updated_at: str | None = None, *, must_say: bool = False) -> None:
    """Raises PreconditionFailed when the request was meant for another state than this one.

    `tag` is the current strong ETag without its quotes, None if there is no such item; `updated_at` is the time of the
    last change (RFC 3339). With `must_say`, a request without `If-Match`, and without `If-None-Match: *`, raises
    PreconditionRequired (RFC 6585, section 3).
    """
    environ = request.environ
    if must_say and "HTTP_IF_MATCH" not in environ and environ.get("HTTP_IF_NONE_MATCH") != "*":
        raise PreconditionRequired("send the ETag that you read as If-Match, or to create an item If-None-Match: *")
    if tag is None:
        if "HTTP_IF_MATCH" in environ:
            raise PreconditionFailed("there is no such item")
        return
    if (if_match := environ.get("HTTP_IF_MATCH")) is not None:
        if not parse_etags(if_match).contains(tag):  # strong comparison: a weak tag never matches
            raise PreconditionFailed(f'the ETag is now "{tag}"', headers={"ETag": f'"{tag}"'})
    elif updated_at and (since := _date(environ.get("HTTP_IF_UNMODIFIED_SINCE"))):
        if datetime.fromisoformat(updated_at) >= since:
            raise PreconditionFailed(f"the last change was at {updated_at}", headers={"ETag": f'"{tag}"'})
    if request.method not in ("GET", "HEAD") and (if_none_match := environ.get("HTTP_IF_NONE_MATCH")) is not None:
        if parse_etags(if_none_match).contains_weak(tag):
            raise PreconditionFailed(f'the ETag is "{tag}"', headers={"ETag": f'"{tag}"'})


def is_not_modified(tag: str, updated_at: str | None = None) -> bool:
    """Whether a GET or HEAD returns 304: the client has this state already."""
    environ = request.environ
    if (held := environ.get("HTTP_IF_NONE_MATCH")) is not None:
        return bool(parse_etags(held).contains_weak(tag))
    since = _date(environ.get("HTTP_IF_MODIFIED_SINCE")) if updated_at else None
    return since is not None and updated_at is not None and datetime.fromisoformat(updated_at) < since


def document(body: bytes, content_type: str) -> Reply:
    """A response that is the same while it has these bytes: their digest is its ETag. Raises PreconditionFailed."""
    tag = digest(body)
    require_match(tag)
    reply = Reply(b"", 304) if is_not_modified(tag) else Reply(body, content_type=content_type)
    reply.headers["ETag"] = f'"{tag}"'
    reply.headers["Cache-Control"] = "no-cache"
    return reply


def page(html: str, style: str = "") -> Reply:
    """An HTML page that loads nothing from elsewhere; `style` is the source of the style element that it may have.

    Images may also be data URIs.
    """
    reply = document(html.encode(), f"{HTML}; charset=utf-8")
    reply.headers["Content-Security-Policy"] = (
        f"default-src 'self'; img-src 'self' data:; style-src 'self' {style}; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    reply.headers["Referrer-Policy"] = "no-referrer"
    return reply


def last_modified(updated_at: str, now: float) -> str:
    """The HTTP date (RFC 9110, section 5.6.7) of an item that last changed at an RFC 3339 time, in UTC.

    Until that has come (`now` is in seconds since 1970) it is the date of now (section 8.8.2.1), which is before the
    change and so holds for no condition. So it is of a change that may have been dated after a clock that went back.
    """
    begins, date = _first_second_after(updated_at[:19])
    if may_be_late(updated_at):
        return _http_date(int(begins) - 1)
    return date if now >= begins else _http_date(int(now))


@lru_cache(maxsize=4096)
def _first_second_after(second: str) -> tuple[float, str]:
    begins = datetime.fromisoformat(second).replace(tzinfo=UTC).timestamp() + 1
    return begins, _http_date(min(int(begins), _LAST_SECOND))


@lru_cache(maxsize=2)
def _http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def _date(header: str | None) -> datetime | None:
    """The time of a date field, or None: a date that is malformed is ignored (RFC 9110, section 13.1.3)."""
    if header is None:
        return None
    try:
        date = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
