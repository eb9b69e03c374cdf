"""A store that is opened when it is first used: a command is loaded, and looks around, before it opens any."""

import threading
from collections.abc import Callable
from typing import Any

from restkeeper.storage.contract import Store


class LazyStore:
    """Stands for the store that `open_store` returns, and calls it once."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._store: Store | None = None
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._store is None:
                self._store = self._open()
        return getattr(self._store, name)
