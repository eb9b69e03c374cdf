"""Texts and parts of the document of a service, which features read from files of TOML."""

import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from restkeeper.web.operations import JsonSchema

EXAMPLE_TIME = "2026-01-31T12:00:00.000000Z"
DIALECTS = "x-dialects"  # of a document: the query dialects of other clients that lists accept

_WORD = re.compile(r"<(\w+)>")


def texts_in(path: Path, **values: Any) -> dict[str, Any]:
    """The parts of a description in a TOML file, with the known values for their <words>."""
    return dict(filled(_parsed(path), **values))


@lru_cache(maxsize=16)  # all that there are
def _parsed(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def filled(text: Any, **values: Any) -> Any:
    """A part of a description with the known values for its <words>."""
    if isinstance(text, dict):
        return {name: filled(member, **values) for name, member in text.items()}
    if not isinstance(text, str):
        return text
    whole = _WORD.fullmatch(text)
    return values.get(whole[1], text) if whole else _WORD.sub(lambda word: str(values.get(word[1], word[0])), text)


def several(item: JsonSchema, **bounds: Any) -> JsonSchema:
    """The schema of an array with at least one item."""
    return {"type": "array", "items": item, "minItems": 1, **bounds}
