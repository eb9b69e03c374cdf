"""Times as they are kept and told: RFC 3339, UTC, microseconds, so that they sort as text."""

import time
from datetime import UTC, datetime


def utc_now() -> str:
    """This moment."""
    return rfc3339(time.time())


def rfc3339(seconds: float) -> str:
    """A moment given in seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:26] + "Z"
