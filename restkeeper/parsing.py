"""Numbers in the texts that clients and operators send."""

import re
from collections.abc import Callable

_WHOLE = re.compile(r"-?\d{1,19}", re.ASCII)


def whole(low: int, high: int) -> Callable[[str], int]:
    """A function that returns the whole number in a text; it raises ValueError for another text or number."""

    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(text)

    return read
