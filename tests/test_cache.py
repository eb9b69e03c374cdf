"""A cache is limited in bytes, and removes the oldest values first."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from restkeeper.web.pagination import Cache
from tests.waiting import SECONDS

CAPACITY = 160  # of which one value may be a sixteenth: 10


def filled(count: int, size: int = 10) -> Cache[int, str]:
    cache: Cache[int, str] = Cache(CAPACITY)
    for n in range(count):
        cache.add(n, f"value {n}", size)
    return cache


def cached_keys(cache: Cache[int, str], count: int) -> list[int]:
    return [n for n in range(count) if cache.get(n) is not None]


def test_values_that_fit_are_cached_and_no_larger_ones() -> None:
    cache = filled(16)
    assert [cache.get(n) for n in range(16)] == [f"value {n}" for n in range(16)]
    assert cache.get(16) is None
    cache = filled(16)
    cache.add(16, "too large", 11)
    assert cached_keys(cache, 17) == list(range(16))
    cache.add(5, "grown too large", 11)
    assert cache.get(5) is None
    cache = filled(160, size=1)
    cache.add(160, "large", 10)
    assert cached_keys(cache, 161) == list(range(10, 161))
    cache = filled(16)
    for n in range(16, 36):
        cache.add(n, "small", 1)
    assert cached_keys(cache, 36) == list(range(2, 36))


@pytest.mark.parametrize("size", [1, 9, 10])
def test_the_oldest_value_is_removed_first(size: int) -> None:
    """One byte too many removes the oldest value and no other, whatever was read recently."""
    cache = filled(16)
    assert cache.get(0) == "value 0"  # a read does not change the order
    cache.add(16, "value 16", size)
    assert cached_keys(cache, 17) == list(range(1, 17))


def test_a_key_that_is_put_again_counts_once() -> None:
    cache = filled(16)
    for n in range(100):
        cache.add(0, f"another {n}", 10)
    assert cached_keys(cache, 16) == list(range(16)) and cache.get(0) == "another 99"
    cache.add(16, "value 16", 10)
    assert cached_keys(cache, 17) == [0, *range(2, 17)]
    cache.add(0, "small", 1)
    cache.add(17, "small", 9)
    assert cached_keys(cache, 18) == [0, *range(2, 18)]


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
