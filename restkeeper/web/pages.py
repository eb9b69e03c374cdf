"""Documents and pages of the service itself: cached by their digest, and shown under a strict policy."""

from hashlib import blake2b

from restkeeper.web.application import Reply
from restkeeper.web.exactjson import HTML
from restkeeper.web.preconditions import is_not_modified, require_match


def document(body: bytes, content_type: str) -> Reply:
    """A response that is the same while it has these bytes: their digest is its ETag. Raises PreconditionFailed."""
    tag = blake2b(body, digest_size=12).hexdigest()
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
