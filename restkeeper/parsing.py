"""Numbers, hosts and origins in the texts that clients and operators send."""

import re
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Any

_WHOLE = re.compile(r"-?\d{1,19}", re.ASCII)
_NAME = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_HOST = re.compile(rf"(\*?\.)?({_NAME}(?:\.{_NAME})*\.?|\[[0-9a-f:.]+\])")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([1-9][0-9]{0,4}))?")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def whole(low: int, high: int) -> Callable[[str], int]:
    """A function that returns the whole number in a text; it raises ValueError for another text or number."""

    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(text)

    return read


def _words(value: Any) -> list[str]:
    """The items of a comma-separated text, or of a sequence, in lower case."""
    parts = value.split(",") if isinstance(value, str) else value
    return [word for part in parts if (word := str(part).strip().lower())]


def hosts(value: Any) -> tuple[str, ...]:
    """Normalized host names: `.example.org` for its subdomains, addresses in short form. Raises ValueError."""
    names = []
    for word in _words(value):
        parts = _HOST.fullmatch(word)
        try:
            if not parts or (parts[1] and parts[2].startswith("[")):
                raise ValueError
            name = f"[{IPv6Address(parts[2][1:-1])}]" if parts[2].startswith("[") else parts[2].removesuffix(".")
        except ValueError:
            raise ValueError(
                "must be names of hosts such as api.example.org, *.example.org or [::1]: no port"
            ) from None
        names.append(f".{name}" if parts[1] else name)
    return tuple(names)


def origins(value: Any) -> tuple[str, ...]:
    """Origins as browsers write them: without the default port of the scheme. Raises ValueError."""
    words = _words(value)
    if words == ["*"]:
        return ("*",)
    if not all((parts := _ORIGIN.fullmatch(word)) and int(parts[2] or 0) < 2**16 for word in words):
        raise ValueError(
            "must be origins such as https://app.example.org or http://localhost:5173 (no path), or * alone"
        )
    return tuple(word.removesuffix(_DEFAULT_PORTS.get(word.partition(":")[0], "")) for word in words)
