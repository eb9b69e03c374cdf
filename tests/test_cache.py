"""A cache is limited in bytes, and removes the oldest values first."""

import threading
from concurrent.futures import ThreadPoolExecutor

from restkeeper.resources.cache import Cache
from tests.waiting import SECONDS

CAPACITY = 160  # of which one value may be a sixteenth: 10


def filled(count: int) -> Cache[int, str]:
    cache: Cache[int, str] = Cache(CAPACITY)
    for n in range(count):
        cache.add(n, f"value {n}", 10)
    return cache


def cached_keys(cache: Cache[int, str], count: int) -> list[int]:
    return [n for n in range(count) if cache.get(n) is not None]


def test_values_that_fit_are_cached_and_no_larger_ones() -> None:
    """A value that is put again counts once; one byte too many removes the oldest value and no other."""
    cache = filled(16)
    for n in range(100):
        cache.add(0, f"another {n}", 10)
    assert [cache.get(n) for n in range(16)] == ["another 99", *(f"value {n}" for n in range(1, 16))]
    cache.add(16, "too large", 11)
    assert cached_keys(cache, 17) == list(range(16))
    cache.add(16, "small", 1)
    assert cached_keys(cache, 17) == [0, *range(2, 17)]
    cache.add(5, "grown too large", 11)
    assert cache.get(5) is None


def test_threads_respect_the_limit() -> None:
    """After many concurrent puts the cache is full and within the limit."""
    cache: Cache[int, str] = Cache(CAPACITY)
    together = threading.Barrier(4, timeout=SECONDS)

    def put_values(number: int) -> None:
        together.wait(SECONDS)
        for n in range(2_000):
            cache.add(number * 2_000 + n, "value", 10)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put_values, range(4)))
    assert len(cached_keys(cache, 8_000)) == 16
