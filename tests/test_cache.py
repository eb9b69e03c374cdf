"""A cache is limited in bytes, and removes the oldest values first."""

from restkeeper.resources.cache import Cache

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
