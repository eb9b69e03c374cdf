"""The contract of version 1 with its clients: contract/v1.json, the accepted document."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from restkeeper.config import Config
from tests.live import ROOT
from tests.shop import create_app

ACCEPTED = ROOT / "contract" / "v1.json"
PROSE = {"description", "summary", "title", "example", "examples"}


def served() -> Any:
    """The document of a service as deployed."""
    return (
        create_app(Config(auth="required")).test_client().get("/openapi.json", base_url="http://localhost").get_json()
    )


def broken(accepted: Any, present: Any, place: str = "") -> Iterator[str]:
    """The places where an accepted part is missing or different now. New names break no client."""
    if isinstance(accepted, dict) and isinstance(present, dict):
        for name, value in accepted.items():
            if name not in PROSE or isinstance(value, dict):  # a field may have this name
                if name not in present:
                    yield f"{place}/{name} is missing"
                else:
                    yield from broken(value, present[name], f"{place}/{name}")
    elif isinstance(accepted, list) and isinstance(present, list) and len(accepted) == len(present):
        if place.endswith("/enum"):  # a set of values
            accepted, present = sorted(accepted, key=repr), sorted(present, key=repr)
        for number, (one, other) in enumerate(zip(accepted, present, strict=True)):
            yield from broken(one, other, f"{place}/{number}")
    elif accepted != present:
        yield f"{place} is {present!r:.60}, was {accepted!r:.60}"


@pytest.mark.needs("openapi")
@pytest.mark.needs("events", "webhooks", "keys", "idempotency", "limits", "health", "metrics", "pages")
def test_the_accepted_document_is_not_broken() -> None:
    """The present document still has everything that a client may use."""
    accepted = json.loads(ACCEPTED.read_text())
    del accepted["info"]  # it has the program's version
    assert list(broken(accepted, served())) == []


@pytest.mark.parametrize(
    ("accepted", "present", "found"),
    [
        ({"paths": {"/a": {}}}, {"paths": {"/a": {}, "/b": {}}}, []),
        ({"paths": {"/a": {}}}, {"paths": {}}, ["/paths//a is missing"]),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["/enum is ['a'], was ['a', 'b']"]),
        ({"enum": ["a", "b"]}, {"enum": ["b", "a"]}, []),
        ({"enum": ["a", "b"]}, {"enum": ["c", "a"]}, ["/enum/1 is 'c', was 'b'"]),
        ({"required": ["a"]}, {"required": ["b"]}, ["/required/0 is 'b', was 'a'"]),
        ({"maximum": 9, "description": "x"}, {"maximum": 9}, []),
        ({"properties": {"title": {"type": "string"}}}, {"properties": {}}, ["/properties/title is missing"]),
    ],
)
def test_the_check_finds_breaking_changes(accepted: Any, present: Any, found: list[str]) -> None:
    """The check itself works."""
    assert list(broken(accepted, present)) == found
