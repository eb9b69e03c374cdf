"""Long polling (RFC 6202, section 2): an answer that is held back until there is something to tell, or time is over.

Who waits costs a greenlet and a look now and then, and keeps no process from answering others.
"""

import time
from collections.abc import Callable

from flask import request

from errors import Unavailable

LONGEST = 30  # seconds: below the idle time-outs of the usual proxies (60)
LOOK_SECONDS = 0.1  # between two looks
MOST = 500  # who wait in one process at a time: half of the connections that gunicorn lets it have

IN_VAIN = "restkeeper.in_vain"  # in the WSGI environment: what tells that the server stops, or the client has gone


class Waiters:
    """Those who wait in this process."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._waiting = 0

    def until(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is there, or so many seconds; whether it is. Ends early when that is in vain.

        Raises Unavailable when too many wait already.
        """
        if self._waiting >= self._most:
            raise Unavailable(f"{self._most} wait already; ask again without `wait`", headers={"Retry-After": "1"})
        in_vain = request.environ.get(IN_VAIN, bool)
        deadline = time.monotonic() + seconds
        self._waiting += 1
        try:
            while not (there := is_there()) and time.monotonic() < deadline and not in_vain():
                time.sleep(LOOK_SECONDS)
        finally:
            self._waiting -= 1
        return there
