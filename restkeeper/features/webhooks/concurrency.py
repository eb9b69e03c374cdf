"""The limit of concurrent deliveries: slow or broken endpoints never delay the others.

An endpoint begins with one concurrent delivery. Each success allows one more; a failure resets it to one. All slow
endpoints, and those whose last delivery failed, share a part of the total.
"""

from collections import Counter
from collections.abc import Iterable

AT_ONCE = 1024  # concurrent deliveries of one process, each in a thread
SLOW_AT_ONCE = 512  # of these to slow endpoints
SLOW_SECONDS = 1.0  # of an attempt
ENDPOINT_AT_ONCE = 8  # to one endpoint, at most

Key = tuple[int, int]  # of a delivery under way: its id and lease


class ConcurrencyLimit:
    """Counts the deliveries under way from this process, and limits them by webhook."""

    def __init__(self) -> None:
        self._under_way: dict[Key, tuple[str, float]] = {}  # webhook, and start
        self._allowed: dict[str, int] = {}
        self._slow: set[str] = set()

    @property
    def under_way(self) -> int:
        """The number of deliveries under way."""
        return len(self._under_way)

    def begin(self, key: Key, webhook: str, now: float) -> None:
        """Count a delivery that starts."""
        self._under_way[key] = webhook, now

    def end(self, key: Key, *, succeeded: bool, seconds: float) -> None:
        """Count the end of a delivery; a second call has no effect."""
        if (ended := self._under_way.pop(key, None)) is None:
            return
        webhook, _ = ended
        self._allowed[webhook] = min(ENDPOINT_AT_ONCE, self._allowed.get(webhook, 1) + 1) if succeeded else 1
        if succeeded and seconds < SLOW_SECONDS:
            self._slow.discard(webhook)
        else:
            self._slow.add(webhook)

    def free(self, webhooks: Iterable[str], now: float, most: int) -> dict[str, int]:
        """The number of deliveries that may start to each of these webhooks, in this order; at most `most` in total."""
        under_way = Counter(webhook for webhook, _ in self._under_way.values())
        late = {webhook for webhook, since in self._under_way.values() if now - since > SLOW_SECONDS}
        slow = self._slow | late
        left = min(most, AT_ONCE - under_way.total())
        left_for_slow = min(left, SLOW_AT_ONCE - sum(under_way[webhook] for webhook in slow))
        free = {}
        for webhook in webhooks:
            room = min(self._allowed.get(webhook, 1) - under_way[webhook], left_for_slow if webhook in slow else left)
            if room > 0:
                free[webhook] = room
                left -= room
                left_for_slow = min(left, left_for_slow - room if webhook in slow else left_for_slow)
        return free
