"""The OpenAPI document as an apispec object, with the common parts of all services."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from apispec.ext.marshmallow.common import make_schema_key
from marshmallow import Schema, fields

from restkeeper import __version__
from restkeeper.config import Config
from restkeeper.features.openapi.bounds import bounded
from restkeeper.schemas.fields import Time
from restkeeper.web.operations import DIALECTS, MARKS, Contribution, JsonSchema, SchemaOf, filled, texts_in
from restkeeper.web.queries import MAX_OFFSET

_COMMON = Path(__file__).with_name("common.toml")


def _either(one: JsonSchema, other: JsonSchema) -> JsonSchema:
    """A security scheme that accepts the credentials of both."""
    first, second = one["description"].removesuffix("."), other["description"]
    return {**one, "description": f"{first}, or {second[0].lower()}{second[1:]}"}


def _called_default(converter: object, field: fields.Field[Any], **options: Any) -> JsonSchema:
    """The default that a function makes, unless it is a time, or another one each time."""
    make, is_time = field.load_default, isinstance(field, (fields.Date, fields.DateTime, fields.Time, Time))
    if not callable(make) or is_time or "default" in field.metadata or (made := make()) != make():
        return {}
    return {"default": field._serialize(made, None, None)}  # as apispec does with other ones


class Spec(APISpec):
    """The document; it contains only the components with a reference to them.

    `common` is common.toml, `examples` has an example by name of schema, `groups` a list of parameters by its name.
    """

    def __init__(self, config: Config, contributions: Sequence[Contribution], version: str) -> None:
        self.common = texts_in(_COMMON, **vars(config), max_offset=MAX_OFFSET)
        self.config = config
        self.longest = max(config.max_body, 2**20)  # characters of a body; no page of the service is longer
        self.examples: dict[str, Any] = {}
        self._contributions = contributions
        self.groups: dict[str, list[str]] = {mark: self.added("parameters", mark) for mark in MARKS}
        plugin = MarshmallowPlugin()
        place = "local" if config.auth == "open" else "in production"  # open: it serves only its own machine
        servers = [{"url": "/", "description": f"This service, {place}", "x-internal": place == "local"}]
        info = self.common["info"]
        abouts = (filled(each.about, version=version) for each in contributions if each.about)
        info["description"] = "\n\n".join([info["description"], *abouts])
        options = {"info": info, "servers": servers, "security": [{}], DIALECTS: []}
        super().__init__("Restkeeper", __version__, "3.1.0", [plugin], **options)
        self._converter = cast(Any, plugin.converter)  # set by APISpec
        self._converter.add_attribute_function(_called_default)
        schemes = self.components.security_schemes
        self.tags: dict[str, str] = {}
        self.operations = {name: text for each in contributions for name, text in each.operations.items()}
        for added in (*map(vars, contributions), self.common):
            self.tags |= added["tags"]
            self.components.headers_lazy |= added["headers"]
            self.components.parameters_lazy |= added["parameters"]
            for name, part in added.get("security", {}).items():
                schemes[name] = _either(schemes[name], part) if name in schemes else part
        for name, part in self.common["schemas"].items():
            of_problem = name in ("Problem", "Fault")  # a pointer has names from the body, escaped
            part = bounded(part, 4 * self.longest, config) if of_problem else part
            self.components.schema(name, part, lazy=True)

    def added(self, part: str, *marks: object) -> list[Any]:
        """The problems, or the names of components, that features add to operations with one of these marks."""
        return [each for added in self._contributions if added.to in marks for each in getattr(added, part)]

    def schema(self, schema: SchemaOf, kind: str = "") -> JsonSchema:
        """The JSON Schema of a declared schema. A marshmallow schema is a component with its name without "Schema"."""
        match schema:
            case str():
                return dict(self.components.get_ref("schema", schema.format(kind)))
            case tuple():
                return {"anyOf": [self.schema(each, kind) for each in schema]}
            case dict():
                return schema
        return dict(self._converter.resolve_nested_schema(schema))

    def marshmallow(self, name: str, schema: type[Schema], *, nullable: bool = False) -> JsonSchema:
        """The JSON Schema of the component `name`; with `nullable`, optional fields may be null."""
        instance = schema()
        self._converter.refs[make_schema_key(instance)] = name
        for field in instance.fields.values() if nullable else ():
            field.allow_none = field.allow_none or not field.required
        return dict(self._converter.schema2jsonschema(instance))
