"""The clock, and times as they are stored and sent: RFC 3339, UTC, microseconds, so that they sort as text."""

import os
import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar
from uuid import UUID

T = TypeVar("T")


class Clock(Protocol):
    """The part of the module `time` that is used as the clock; tests have others.

    `sleep` is looked up at each call, because a server may replace it.
    """

    def time(self) -> float:
        """Seconds since 1970."""

    def monotonic(self) -> float:
        """Seconds since an unspecified moment; it never goes back."""

    def sleep(self, seconds: float, /) -> None:
        """Let other requests continue for some seconds."""


# Seconds to sleep so that everything else continues. Under gevent a sleep of 0 lets other greenlets run up to 50 times
# before the server checks its sockets; with any longer sleep it checks them, which costs some 0.2 ms if nothing waits.
YIELD_SECONDS = 0.000001
TURN_SECONDS = 0.01  # for which a request with many items computes before others have their turn
WRITE_TURN_SECONDS = 0.04  # likewise in a transaction for whose end all writers wait
OTHERS_SECONDS = 1.0  # for which it gives way to them, in total

LOG_SECONDS = 60.0  # between two lines of a process about the same cause
_MOST_LOGGED = 100  # causes that are remembered
_logged: dict[Hashable, float] = {}  # the time of the last line about each cause


def in_turns(
    values: Iterable[T], clock: Clock, seconds: float = TURN_SECONDS, others: float = OTHERS_SECONDS
) -> Iterator[T]:
    """The values; each time that so many seconds were spent on them, other requests have their turn.

    Those take `others` seconds and one turn at most: some may wait for the transaction in which it is done.
    """
    end, left = clock.monotonic() + seconds, others
    for value in values:
        if (now := clock.monotonic()) >= end and left > 0:
            clock.sleep(YIELD_SECONDS)
            after = clock.monotonic()
            end, left = after + seconds, left - (after - now)
        yield value


def rfc3339(moment: float | datetime, digits: str = "microseconds") -> str:
    """Format a moment, in seconds since 1970 or with an offset; `digits` as in `datetime.isoformat`."""
    when = moment.astimezone(UTC) if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return when.replace(tzinfo=None).isoformat(timespec=digits) + "Z"


def time_after(previous: str, now: str) -> str:
    """The time of a change after one at `previous`: `now`, unless the clock has gone back since.

    Then it is in the second that follows, in its first millisecond: so `may_be_late` knows it, and many changes while
    the clock is behind do not run ahead of it.
    """
    if now >= previous:
        return now
    moment = datetime.fromisoformat(previous)
    with suppress(OverflowError):  # after the year 9999 there is no time
        if not may_be_late(previous):
            moment = moment.replace(microsecond=0) + timedelta(seconds=1)
        moment += timedelta(microseconds=1)
    return rfc3339(moment)


def may_be_late(time: str) -> bool:
    """Whether `time_after` may have made a time: a later change can be in the same second, whatever the clock says."""
    return "000000" < time[20:26] < "001000"


_FRACTION = 4096  # rand_a holds the part of a millisecond in 12 bits (RFC 9562, section 6.2, method 3)


def uuid7(nanoseconds: int | None = None, random: int | None = None) -> str:
    """A new UUIDv7 as text, of `nanoseconds` since the epoch, now by default, and 62 bits that are `random`."""
    now = time.time_ns() if nanoseconds is None else nanoseconds
    milliseconds, rest = divmod(now, 1_000_000)
    random = int.from_bytes(os.urandom(8)) >> 2 if random is None else random
    fraction = rest * _FRACTION // 1_000_000
    return str(UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | random))


def is_due(cause: Hashable) -> bool:
    """Whether a line about this cause is to be logged now: there was none in the last minute."""
    now = time.monotonic()
    if now - _logged.get(cause, -LOG_SECONDS) < LOG_SECONDS:
        return False
    if len(_logged) >= _MOST_LOGGED:
        _logged.clear()
    _logged[cause] = now
    return True
