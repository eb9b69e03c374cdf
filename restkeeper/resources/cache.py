"""A cache of values that stay until something in a collection changes, such as pages of its list."""

import threading
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Values by key, at most `capacity` bytes of them: the oldest are evicted first.

    Nothing expires: the key, or the value itself, says of which state it is, and a value of another state replaces it.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._cached: dict[K, tuple[V, int]] = {}
        self._size = 0
        self._changing = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value, if it is cached."""
        entry = self._cached.get(key)
        return entry[0] if entry else None

    def add(self, key: K, value: V, size: int) -> None:
        """Cache a value of `size` bytes in place of the present value of the key.

        A value that would displace many others is not cached.
        """
        with self._changing:
            if replaced := self._cached.pop(key, None):
                self._size -= replaced[1]
            if size > self._capacity // 16:
                return
            self._cached[key] = (value, size)
            self._size += size
            while self._size > self._capacity:
                self._size -= self._cached.pop(next(iter(self._cached)))[1]
