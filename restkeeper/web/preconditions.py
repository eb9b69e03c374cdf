"""The header fields of conditional requests (RFC 9110, section 13), and what is cached by its digest."""

from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache
from typing import Any

from werkzeug.http import parse_etags

from restkeeper.clock import may_be_late
from restkeeper.resources.call import NONE, Conditions
from restkeeper.resources.item import digest
from restkeeper.web import current_request
from restkeeper.web.application import Reply
from restkeeper.web.bodies import HTML

_FIELDS = {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH", "HTTP_IF_MODIFIED_SINCE", "HTTP_IF_UNMODIFIED_SINCE"}
_LAST_SECOND = 253402300799  # of the year 9999, since 1970


def conditions_of(environ: dict[str, Any]) -> Conditions:
    """The conditions of a request, NONE if it has none."""
    if _FIELDS.isdisjoint(environ):
        return NONE
    match, none_match = environ.get("HTTP_IF_MATCH"), environ.get("HTTP_IF_NONE_MATCH")
    return Conditions(
        None if match is None else parse_etags(match),
        None if none_match is None else parse_etags(none_match),
        _date(environ.get("HTTP_IF_MODIFIED_SINCE")),
        _date(environ.get("HTTP_IF_UNMODIFIED_SINCE")),
    )


def document(body: bytes, content_type: str) -> Reply:
    """A response that is the same while it has these bytes: their digest is its ETag. Raises PreconditionFailed."""
    tag, conditions = digest(body), conditions_of(current_request().environ)
    conditions.require(tag, reads=True)
    reply = Reply(b"", 304) if conditions.are_held(tag) else Reply(body, content_type=content_type)
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
