"""The clock of a space, which a test sets."""

import time

from restkeeper.errors import BadRequest

LATEST = 253_402_300_799.0  # the end of the year 9999


class SpaceClock:
    """A `clock.Clock` that runs from any time on, or stands still, while `frozen` has a time.

    Elapsed time is real, so that what waits does not wait for ever, and jumps when a test moves the time forward; it
    never goes back.
    """

    def __init__(self) -> None:
        self._passed = 0.0
        self.run()

    def run(self) -> None:
        """Show the real time from now on."""
        self._ahead = 0.0
        self.frozen: float | None = None

    def time(self) -> float:
        return min(LATEST, time.time() + self._ahead) if self.frozen is None else self.frozen

    def monotonic(self) -> float:
        return time.monotonic() + self._passed

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def set(self, moment: float, *, frozen: bool | None = None) -> None:
        """Show another time; from then on it stands still or runs, or as before. Raises BadRequest after 9999."""
        if not 0 <= moment <= LATEST:
            raise BadRequest("a clock shows times from 1970 to 9999")
        self._passed += max(0.0, moment - self.time())
        self._ahead = moment - time.time()
        stands = self.frozen is not None if frozen is None else frozen
        self.frozen = moment if stands else None
