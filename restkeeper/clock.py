"""The clock, and times as they are stored and sent: RFC 3339, UTC, microseconds, so that they sort as text."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What is used of the module `time`, which is the clock unless a test has one of its own.

    `sleep` is looked up at each call: a server may replace it.
    """

    def time(self) -> float:
        """Seconds since 1970."""

    def monotonic(self) -> float:
        """Seconds since some moment; it never goes back."""

    def sleep(self, seconds: float, /) -> None:
        """Let others work for so many seconds."""


# Seconds to sleep so that everything else has a turn. Under gevent a sleep of 0 lets other greenlets run up to 50 times
# before the server looks at its sockets again; any longer sleep makes it look, and costs some 0.2 ms if nothing waits.
TURN = 0.000001


def rfc3339(moment: float | datetime, digits: str = "microseconds") -> str:
    """A moment, in seconds since 1970 or with an offset; `digits` as in `datetime.isoformat`."""
    when = moment.astimezone(UTC) if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return when.replace(tzinfo=None).isoformat(timespec=digits) + "Z"
