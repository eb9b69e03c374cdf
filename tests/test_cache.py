"""What is worth keeping is kept within its bytes, and the oldest of it goes first."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from restkeeper.web.cache import Cache
from tests.waiting import SECONDS

CAPACITY = 160  # of which one value may be a sixteenth: 10


def filled(count: int, size: int = 10) -> Cache[int, str]:
    cache: Cache[int, str] = Cache(CAPACITY)
    for n in range(count):
        cache.add(n, f"value {n}", size)
    return cache


def there(cache: Cache[int, str], count: int) -> list[int]:
    return [n for n in range(count) if cache.get(n) is not None]


def test_what_fits_stays() -> None:
    """As many as fill it to the last byte are all returned."""
    cache = filled(16)
    assert [cache.get(n) for n in range(16)] == [f"value {n}" for n in range(16)]
    assert cache.get(16) is None


@pytest.mark.parametrize("size", [1, 9, 10])
def test_the_oldest_goes_first(size: int) -> None:
    """One byte too many costs the oldest value and no other, whatever was read lately."""
    cache = filled(16)
    assert cache.get(0) == "value 0"  # a read makes nothing younger
    cache.add(16, "value 16", size)
    assert there(cache, 17) == list(range(1, 17))


def test_the_bound_is_in_bytes() -> None:
    """Small values go for a large one, as many as it takes; large ones that went leave their place to many small."""
    cache = filled(160, size=1)
    cache.add(160, "large", 10)
    assert there(cache, 161) == list(range(10, 161))
    cache = filled(16)
    for n in range(16, 36):
        cache.add(n, "small", 1)
    assert there(cache, 36) == list(range(2, 36))


def test_what_is_too_large_displaces_nothing() -> None:
    """More than a sixteenth of the whole is not taken, and costs no other value."""
    cache = filled(16)
    cache.add(16, "too large", 11)
    assert there(cache, 17) == list(range(16))


def test_the_same_again_counts_once() -> None:
    """A key that is there keeps its value, its place in the order and its size, however often it is given again."""
    cache = filled(16)
    for _ in range(100):
        cache.add(0, "another", 10)
    assert there(cache, 16) == list(range(16)) and cache.get(0) == "value 0"
    cache.add(16, "value 16", 10)
    assert there(cache, 17) == list(range(1, 17))


def test_many_threads_keep_the_bound() -> None:
    """However many keep values at once, what is there afterwards is full and within the bound."""
    cache: Cache[int, str] = Cache(CAPACITY)
    together = threading.Barrier(4, timeout=30)

    def put_values(number: int) -> None:
        together.wait(SECONDS)
        for n in range(2_000):
            cache.add(number * 2_000 + n, "value", 10)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put_values, range(4)))
    assert len(there(cache, 8_000)) == 16
