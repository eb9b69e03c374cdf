"""What a feature adds to the description of the API, the OpenAPI document: a Contribution, and what it is made of."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from marshmallow import Schema

from restkeeper.errors import Problem
from restkeeper.web.guard import OWN
from restkeeper.web.operation import MARKS, UNUSED, JsonSchema, SchemaOf

EXAMPLE_TIME = "2026-01-31T12:00:00.000000Z"
DIALECTS = "x-dialects"  # of a document: the query dialects of other clients that lists accept
CLOSED: JsonSchema = {"type": "object", "additionalProperties": False}

_WORD = re.compile(r"<(\w+)>")


class Components(Protocol):
    """The components by name, as apispec has them. A `lazy` one is in the document only if something refers to it."""

    schemas_lazy: dict[str, JsonSchema]

    def schema(self, component_id: str, component: JsonSchema, *, lazy: bool) -> object:
        """Add a schema."""

    def parameter(self, component_id: str, location: str, component: JsonSchema, *, lazy: bool) -> object:
        """Add a parameter."""

    def get_ref(self, obj_type: str, obj_or_component_id: str) -> JsonSchema:
        """A reference to the component of a type, such as "parameter", with this name."""


class Description(Protocol):
    """The document of one version of the API while it is built. It has the components of all collections.

    `options` are more members of the document, and `examples` has an example by name of schema.
    """

    options: dict[str, Any]
    examples: dict[str, Any]

    @property
    def components(self) -> Components: ...

    def schema(self, schema: SchemaOf) -> JsonSchema:
        """The JSON Schema of a declared schema; of a name, a reference to the component."""

    def marshmallow(self, name: str, schema: type[Schema]) -> JsonSchema:
        """The JSON Schema of the component `name`, of a marshmallow schema."""


@dataclass(frozen=True)
class Contribution:
    """What an open feature adds to the description of operations: of those with the mark `to`, or without it of all.

    Components are given by name. The parameters stand in the place of the mark. The headers are those of all responses;
    with a mark, of all but problems. `security` are the schemes of credentials; with OWN as `to`, only of the
    operations that need OWN. `about` is a paragraph of the introduction, in which <version> is that of the document.
    `tags` describes the feature's tags, and `operations` has additions to descriptions, by name of the handler.
    `build` adds components and messages of the feature to each document, before the operations are added; features that
    are built on others are called first. `amend` is given the whole document of each version of the API, with the name
    of the version, and may change it.
    """

    to: str = ""
    parameters: Mapping[str, JsonSchema] = field(default_factory=dict)
    headers: Mapping[str, JsonSchema] = field(default_factory=dict)
    problems: tuple[type[Problem], ...] = ()
    security: Mapping[str, JsonSchema] = field(default_factory=dict)
    about: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    operations: Mapping[str, str] = field(default_factory=dict)
    build: Callable[[Description], None] = lambda description: None
    amend: Callable[[JsonSchema, str], None] = lambda document, version: None

    def __post_init__(self) -> None:
        if self.to not in (known := ("", *MARKS, UNUSED, OWN)):
            raise ValueError(f"Contribution(to={self.to!r}): must be one of {', '.join(map(repr, known))}")


def texts_in(path: Path, **values: Any) -> dict[str, Any]:
    """The parts of a description in a TOML file, with the known values for their <words>."""
    return dict(filled(tomllib.loads(path.read_text(encoding="utf-8")), **values))


def filled(part: Any, **values: Any) -> Any:
    """A part of a description with the known values for its <words>."""
    if isinstance(part, dict):
        return {name: filled(each, **values) for name, each in part.items()}
    if not isinstance(part, str):
        return part
    whole = _WORD.fullmatch(part)
    return values.get(whole[1], part) if whole else _WORD.sub(lambda word: str(values.get(word[1], word[0])), part)


def media(schema: JsonSchema, label: str, example: Any) -> JsonSchema:
    """A media type object, with an example if there is one."""
    return {"schema": schema} | ({"examples": {label: {"value": example}}} if example else {})


def returned(properties: JsonSchema) -> JsonSchema:
    """The schema of a returned object: all members are required, and no others are allowed."""
    return CLOSED | {"properties": properties, "required": list(properties)}
