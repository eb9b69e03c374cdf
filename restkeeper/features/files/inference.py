"""The JSON Schema of the values of a file, inferred value by value in bounded memory."""

from collections import Counter
from decimal import Decimal
from typing import Any

from marshmallow import ValidationError

from restkeeper.exactjson import LARGEST_INTEGER, SMALLEST_INTEGER
from restkeeper.features.files.jsonschema import FORMATS, JsonSchema

MOST_NAMES = 200  # of the members of an object; one with more is a dictionary of any names
MOST_SHAPES = 2_000  # of one collection: further values are any JSON
LONGEST_NAME = 100  # characters
DEEPEST = 10  # levels

_FIELDS = {name: call.build() for name, call in FORMATS.items()}
_TYPES = {str: "string", bool: "boolean", int: "integer", Decimal: "number", dict: "object", list: "array"}
_TYPES[type(None)] = "null"


class Shape:
    """What the values so far have in common.

    `depth` is the number of levels around them, `remaining` how many shapes there can still be inside.
    """

    def __init__(self, depth: int = 0, remaining: list[int] | None = None) -> None:
        self._depth = depth
        self._remaining = [MOST_SHAPES] if remaining is None else remaining
        self._types = Counter[str]()
        self._formats = list(_FIELDS)
        self._members: dict[str, Shape] | None = {}
        self._elements: Shape | None = None

    def add(self, value: Any) -> None:
        """Take a value of `exactjson.decoded` into account."""
        kind = _TYPES[type(value)]
        if kind == "integer" and not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            kind = "number"
        self._types[kind] += 1
        if kind == "string":
            self._formats = [format for format in self._formats if _accepts(_FIELDS[format], value)]
        elif kind == "object":
            self._add_members(value)
        elif kind == "array" and value and (elements := self._elements or self._inside()):
            self._elements = elements
            for element in value:
                elements.add(element)

    def schema(self) -> JsonSchema:
        """The schema that all values have; without a type if they have several, or null only.

        A member is required if each object has it, and a text has a format if each has it.
        """
        kinds = [kind for kind in self._types if kind != "null"]
        if set(kinds) == {"integer", "number"}:
            kinds = ["number"]
        if len(kinds) != 1:
            return {}
        schema: JsonSchema = {"type": [*kinds, "null"] if self._types["null"] else kinds[0]}
        if kinds == ["string"] and self._formats:
            schema["format"] = self._formats[0]
        elif kinds == ["object"] and self._members:
            every = self._types["object"]
            required = [name for name, member in self._members.items() if member._types.total() == every]
            schema["properties"] = {name: member.schema() for name, member in self._members.items()}
            schema |= {"required": required} if required else {}
        elif kinds == ["array"] and self._elements:
            schema["items"] = self._elements.schema()
        return schema

    def _add_members(self, value: dict[str, Any]) -> None:
        for name, element in value.items():
            if self._members is None:
                return
            if (member := self._members.get(name)) is None and len(name) <= LONGEST_NAME:
                member = None if len(self._members) == MOST_NAMES else self._inside()
                if member is None:
                    self._members = None
                    return
                self._members[name] = member
            if member:
                member.add(element)

    def _inside(self) -> "Shape | None":
        """A shape of values inside these; None beyond the bounds."""
        if self._depth == DEEPEST or not self._remaining[0]:
            return None
        self._remaining[0] -= 1
        return Shape(self._depth + 1, self._remaining)


def _accepts(field: Any, text: str) -> bool:
    try:
        field.deserialize(text)
    except ValidationError:
        return False
    return True
