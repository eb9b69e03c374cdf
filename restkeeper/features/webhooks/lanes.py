"""How many deliveries may be on their way, and to whom: what is slow or broken never takes what others need.

An endpoint begins with one lane; each success opens another, a failure leaves one. Those that are slow, or that failed
last time, share a part of all there is, however many they are.
"""

from collections import Counter
from collections.abc import Iterable

AT_ONCE = 1024  # deliveries on their way from one process, each with a thread; of these to endpoints that are slow
SLOW_AT_ONCE = 512
SLOW_SECONDS = 1.0  # of a try
LANES = 8  # to one endpoint, at most

Key = tuple[int, int]  # of a delivery on its way: its id and lease


class Lanes:
    """The deliveries that are on their way from this process, by webhook."""

    def __init__(self) -> None:
        self._under_way: dict[Key, tuple[str, float]] = {}  # whose, and since when
        self._open: dict[str, int] = {}
        self._slow: set[str] = set()

    @property
    def under_way(self) -> int:
        """How many there are."""
        return len(self._under_way)

    def begin(self, key: Key, webhook: str, now: float) -> None:
        """A delivery sets off."""
        self._under_way[key] = webhook, now

    def end(self, key: Key, *, succeeded: bool, seconds: float) -> None:
        """It has come to its end, after so many seconds; that it has may be told twice."""
        if (ended := self._under_way.pop(key, None)) is None:
            return
        webhook, _ = ended
        self._open[webhook] = min(LANES, self._open.get(webhook, 1) + 1) if succeeded else 1
        if succeeded and seconds < SLOW_SECONDS:
            self._slow.discard(webhook)
        else:
            self._slow.add(webhook)

    def free(self, webhooks: Iterable[str], now: float, most: int) -> dict[str, int]:
        """How many may set off to each of these, at most so many in all; who comes first is served first."""
        under_way = Counter(webhook for webhook, _ in self._under_way.values())
        late = {webhook for webhook, since in self._under_way.values() if now - since > SLOW_SECONDS}
        slow = self._slow | late
        left = min(most, AT_ONCE - under_way.total())
        left_for_slow = min(left, SLOW_AT_ONCE - sum(under_way[webhook] for webhook in slow))
        free = {}
        for webhook in webhooks:
            room = min(self._open.get(webhook, 1) - under_way[webhook], left_for_slow if webhook in slow else left)
            if room > 0:
                free[webhook] = room
                left -= room
                left_for_slow = min(left, left_for_slow - room if webhook in slow else left_for_slow)
        return free
