"""Answers worth keeping: those to lists, which are the same until something in their collection changes."""

import threading
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, the oldest given up for the newest; at most `capacity` bytes of them.

    Nothing expires: what a value depends on is part of its key.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: dict[K, tuple[V, int]] = {}
        self._size = 0
        self._changing = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value, if it is still kept."""
        found = self._kept.get(key)
        return found[0] if found else None

    def keep(self, key: K, value: V, size: int) -> None:
        """Keep a value of `size` bytes, unless it would displace many others."""
        if size > self._capacity // 16:
            return
        with self._changing:
            if key in self._kept:
                return
            self._kept[key] = (value, size)
            self._size += size
            while self._size > self._capacity:
                self._size -= self._kept.pop(next(iter(self._kept)))[1]
