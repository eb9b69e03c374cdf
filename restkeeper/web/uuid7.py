"""Identifiers that sort by the time they were made (RFC 9562, section 5.7)."""

import os
import time
from uuid import UUID

_FRACTION = 4096  # rand_a holds the part of a millisecond in 12 bits (RFC 9562, section 6.2, method 3)


def uuid7(nanoseconds: int | None = None) -> str:
    """A new UUIDv7 as text; `nanoseconds` since the epoch, now by default."""
    now = time.time_ns() if nanoseconds is None else nanoseconds
    milliseconds, rest = divmod(now, 1_000_000)
    random = int.from_bytes(os.urandom(8)) >> 2
    fraction = rest * _FRACTION // 1_000_000
    return str(UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | random))
