"""The differ of the contract is sound: where it finds nothing that breaks, what was valid is valid still.

Pairs of schemas are made at random, and values are validated by an independent implementation of JSON Schema.
"""

import copy
import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.test_contract_decisions import judged, request, response

Json = dict[str, Any]

PAIRS = 150  # of each seed
NEW_FIELD = re.compile("(required )?field added")
VALUES: tuple[Any, ...] = (
    *("a", "b", "ab", "", "abcde", 0, 1, 2, -3, 5, 1.5, True, False, None, [], ["a"], [1, 1], ["a", "b", "a", "c"]),
    *([None], {}, {"x": "a"}, {"x": 1}, {"x": None}, {"y": "a", "x": "b"}, {"z": True}, {"x": [], "y": {}}),
    *({"x": "a", "y": 1, "z": None}, [{"x": 1}], [[1]], {"x": {"x": 1}}, {"x": {"y": "ab"}}, {"x": ["a"]}, {"q": 1}),
)
BOUNDS = {
    "string": {"minLength": (0, 1, 3), "maxLength": (1, 2, 4), "pattern": ("^a", "b$", ".*")},
    "number": {"minimum": (-2, 1), "maximum": (0, 4), "exclusiveMinimum": (-1, 1), "multipleOf": (2,)},
    "integer": {"minimum": (-2, 1), "maximum": (0, 4), "exclusiveMaximum": (1, 5)},
    "array": {"minItems": (0, 2), "maxItems": (1, 3), "uniqueItems": (True, False)},
    "object": {"additionalProperties": (True, False, {"type": "string"}), "required": (["x"], ["y", "z"], [])},
}


def schema(random: Random, depth: int = 0) -> Json:
    """A schema, with others in it down to the second level."""
    kind = random.choice(["any", "listed", "types", *BOUNDS, *(["anyOf", "allOf", "nullable"] if depth < 2 else [])])
    if kind in BOUNDS:
        bounds = {name: random.choice(values) for name, values in BOUNDS[kind].items() if random.random() < 0.4}
        inner: Json = {}
        if depth < 2 and kind == "array":
            inner = {random.choice(["items", "contains"]): schema(random, depth + 1)}
        elif depth < 2 and kind == "object":
            inner = {"properties": {name: schema(random, depth + 1) for name in random.sample("xyz", 2)}}
        return {"type": kind, **bounds, **inner}
    return {
        "any": lambda: {},
        "listed": lambda: {"enum": random.sample(["a", "b", 1, 2, None, True], random.randint(1, 4))},
        "types": lambda: {"type": random.sample(["string", "integer", "null", "boolean"], 2)},
        "anyOf": lambda: {"anyOf": [schema(random, depth + 1) for _ in range(random.randint(1, 2))]},
        "allOf": lambda: {"allOf": [schema(random, depth + 1) for _ in range(random.randint(1, 2))]},
        "nullable": lambda: {"anyOf": [schema(random, 2), {"type": "null"}]},
    }[kind]()


def nodes(part: Json) -> Iterator[Json]:
    yield part
    for each in part.get("properties", {}).values():
        yield from nodes(each)
    for keyword in ("items", "contains"):
        if keyword in part:
            yield from nodes(part[keyword])
    for keyword in ("anyOf", "allOf"):
        for each in part.get(keyword, ()):
            yield from nodes(each)


def changed(random: Random, whole: Json) -> Json:
    """The schema with one change: a keyword less, one more, or another schema in some place."""
    whole = copy.deepcopy(whole)
    node, other = random.choice([*nodes(whole)]), schema(random, 1)
    action = random.choice(["less", "more", "other"])
    if action == "less" and node:
        node.pop(random.choice([*node]))
    elif action == "more" and other and not {"enum"} & (node.keys() | other.keys()):
        name = random.choice([*other])
        node[name] = other[name]
    else:
        node.clear()
        node.update(other)
    return whole


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_breaks_is_missed(seed: int) -> None:
    """What was valid in a request still is; what is valid in a response was before. New fields are compatible."""
    random, calm = Random(seed), 0  # noqa: S311 - no secret
    for _ in range(PAIRS):
        one = schema(random)
        other = changed(random, one)
        was, now = ([Draft202012Validator(each).is_valid(value) for value in VALUES] for each in (one, other))
        for make, lost in (
            (request, [value for value, before, after in zip(VALUES, was, now, strict=True) if before and not after]),
            (response, [value for value, before, after in zip(VALUES, was, now, strict=True) if after and not before]),
        ):
            found = judged(make(one), make(other))
            if {*found.values()} <= {"compatible"} and not any(NEW_FIELD.fullmatch(id) for id in found):
                calm += 1
                assert lost == [], f"{json.dumps(one)} → {json.dumps(other)}: {[*found]}"
    assert calm > PAIRS // 4
