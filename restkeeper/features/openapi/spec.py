"""The OpenAPI document as an apispec object, with the common parts of all services."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, cast

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin, resolver
from apispec.ext.marshmallow.common import make_schema_key
from marshmallow import Schema, fields

from restkeeper import __version__
from restkeeper.config import Config
from restkeeper.resources.operators import OPERATORS
from restkeeper.resources.queries import MAX_OFFSET
from restkeeper.schemas.fields import READABLE_BY, WRITABLE_BY, Owner, Refers, Time
from restkeeper.schemas.prepared import most_characters, prepared
from restkeeper.web.descriptions import DIALECTS, filled, texts_in
from restkeeper.web.operations import GROUPS, Contribution, JsonSchema, SchemaOf

FIELD_BYTES = 8190  # of a header field with its name: gunicorn's `limit_request_field_size`

_COMMON = Path(__file__).with_name("common.toml")
_VALUES = ("const", "default", "enum", "example", "examples")  # values that are never schemas
_LEFT_OUT = {"Returned": ("default",), "Partial": ("default", "required")}  # in these forms of a component
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_BOUNDS = {"format", "pattern", "multipleOf"} | {
    f"{which}{what}" for which in ("min", "max", "exclusiveMin", "exclusiveMax") for what in ("imum", "Length")
}


def _called_default(converter: object, field: fields.Field[Any], **options: Any) -> JsonSchema:
    """The default that a function makes, unless it is a time, or another one each time."""
    make, is_time = field.load_default, isinstance(field, (fields.Date, fields.DateTime, fields.Time, Time))
    if not callable(make) or is_time or "default" in field.metadata or (default := make()) != make():
        return {}
    return {"default": field._serialize(default, None, None)}  # as apispec does with other ones


def _in_items(converter: object, field: fields.Field[Any], ret: JsonSchema) -> JsonSchema:
    """What apispec does not know of a field, or does not say in JSON Schema."""
    for name in [name for name in ("format", "pattern", "min") if name in ret]:
        if ret[name] is None or name == "min" or isinstance(field, fields.NaiveDateTime):
            del ret[name]  # a time without an offset is no date-time (RFC 3339)
    if "string" in ret.get("type", ()) and (most := most_characters(field)):
        ret["maxLength"] = min(most, ret.get("maxLength", most))
    said = {READABLE_BY: "read and change it: it is not there for others", WRITABLE_BY: "change it"}
    about = [
        f"Only callers with the scope `{field.metadata[key]}` can {what}."
        for key, what in said.items()
        if key in field.metadata
    ]
    return {"description": " ".join([*ret.get("description", "").split(" "), *about]).strip()} if about else {}


class Spec(APISpec):
    """The document; it contains only the components with a reference to them.

    `common` is common.toml, `groups` has a list of parameters by its name, `reserved` the names of the components that
    collections have, `names` what callers call these.
    """

    def __init__(
        self, config: Config, contributions: Sequence[Contribution], version: str, title: str, servers: list[str]
    ) -> None:
        words = {operator.name: operator.words for operator in OPERATORS.values()}
        meanings = "; ".join(f"`{name}`: {meaning}" for name, meaning in words.items() if name != "eq")
        self.common = texts_in(_COMMON, **vars(config), max_offset=MAX_OFFSET, meanings=meanings)
        self.config = config
        self.longest = max(config.max_body, 2**20)  # characters of a body; no page of the service is longer
        self._contributions = contributions
        self.groups: dict[str, list[Any]] = {group: self.added("parameters", group) for group in GROUPS}
        self.reserved = set[str]()
        self.names: dict[str, str] = {}
        self._variants: dict[tuple[str, str], str] = {}  # other forms of a component, by its name and their suffix
        self._references: dict[str, dict[Any, str]] = {"": {}}  # names of components by schema, for each collection
        plugin = MarshmallowPlugin(self._name_of)
        kind = "local" if config.auth == "open" else "in production"  # open: it serves only its own machine
        described = {"description": f"This service, {kind}", "x-internal": kind == "local"}
        info = self.common["info"]
        abouts = (filled(contribution.about, version=version) for contribution in contributions if contribution.about)
        info["description"] = "\n\n".join([info["description"], *abouts])
        options = {
            "info": info,
            "servers": [{"url": url, **described} for url in servers],
            "security": self.ways() if config.auth == "required" else [{}, *self.ways()],
            DIALECTS: [],
            "x-operators": words,
        }
        super().__init__(title, __version__, "3.1.0", [plugin], **options)
        self._converter = cast(Any, plugin.converter)  # set by APISpec

        def in_references(converter: object, field: fields.Field[Any], **options: Any) -> JsonSchema:
            if isinstance(field, Owner):
                options["ret"].pop("default", None)  # it is the caller
            if not isinstance(field, Refers | Owner) or (name := self.names.get(field.to, field.to)) == field.to:
                return {}
            return {"x-references": name, "description": options["ret"]["description"].replace(field.to, name)}

        for describe in (_called_default, _in_items, in_references):
            self._converter.add_attribute_function(describe)
        schemes = self.components.security_schemes
        self.tags: dict[str, str] = {}
        self.operations = dict(item for contribution in contributions for item in contribution.operations.items())
        for added in (*map(vars, contributions), self.common):
            self.tags |= added["tags"]
            self.components.headers_lazy |= added["headers"]
            self.components.parameters_lazy |= added["parameters"]
            for name, scheme in added.get("security", {}).items():
                about = scheme["description"]
                if name in schemes:  # it accepts the credentials of both
                    about = f"{schemes[name]['description'].removesuffix('.')}, or {about[0].lower()}{about[1:]}"
                schemes[name] = {**scheme, "description": about}
        for name, schema in self.common["schemas"].items():
            of_problem = name in ("Problem", "Fault")  # a pointer has names from the body, escaped
            schema = bounded(schema, 4 * self.longest, config) if of_problem else schema
            self.components.schema(name, schema, lazy=True)
        everywhere = (*self.common["response_headers"]["all"], *self.added("headers", ""))
        self.options["x-headers"] = {name: self.components.headers_lazy[name] for name in everywhere}

    def added(self, kind: str, *groups: object) -> list[Any]:
        """The problems, or the names of components, that features add to operations with one of these groups."""
        return [name for added in self._contributions if added.to in groups for name in getattr(added, kind)]

    def ways(self, to: str = "") -> list[JsonSchema]:
        """The schemes of credentials of which one is enough, of all operations or those of a group."""
        return [{name: []} for name in dict.fromkeys(self.added("security", to))]

    def schema(self, schema: SchemaOf, kind: str = "") -> JsonSchema:
        """The JSON Schema of a declared schema. A marshmallow schema is a component with its name without "Schema".

        Where it is of a collection, the kind of that comes first: no schema elsewhere changes the name.
        """
        match schema:
            case str():
                return dict(self.components.get_ref("schema", schema.format(kind)))
            case dict():
                return schema
        self._enter(kind)
        return dict(self._converter.resolve_nested_schema(schema))

    def _enter(self, kind: str) -> None:
        """From now on the components are those of a collection, or of none."""
        self._kind, self._converter.refs = kind, self._references.setdefault(kind, {})

    def _name_of(self, schema: Any) -> str:
        """The name of a schema's component: its own after the collection's, with a number if another one has that."""
        name = resolver(schema)
        return self._free(f"{self._kind}{name.removeprefix(self._kind) or name}")

    def _free(self, name: str) -> str:
        """The name, with a number if a component has it."""
        names = {*self.reserved, *self.components.schemas, *self.components.schemas_lazy}
        return next(free for free in chain([name], map(f"{name}{{}}".format, count(1))) if free not in names)

    def query(self, schema: Schema) -> list[JsonSchema]:
        """The parameters of a query by a marshmallow schema; the values of an array are separated by commas."""
        parameters: list[JsonSchema] = self._converter.schema2parameters(schema, location="query")
        for parameter in parameters:
            parameter.setdefault("description", "")
            if parameter["schema"].get("type") == "array":
                parameter |= {"explode": False, "schema": {"minItems": 1, **parameter["schema"]}}
                items = parameter["schema"]["items"]
                if items.get("type") == "string" and "enum" not in items:
                    parameter["schema"]["items"] = {"pattern": "^[^,]+$", **items}  # a comma begins the next one
        return parameters

    def patch(self, schema: JsonSchema) -> JsonSchema:
        """The schema of a value in a JSON Merge Patch (RFC 7396).

        An object in a patch, also an inner one, has some of its members, and null for a member that is removed.
        """
        if "anyOf" in schema:
            return _without_default(schema) | {"anyOf": [self.patch(choice) for choice in schema["anyOf"]]}
        if "$ref" in schema:
            return self._variant(schema, "Patch", self.patch)
        inner = _without_default(schema)
        needed = inner.pop("required", ())
        if members := schema.get("properties"):
            patches = {name: self.patch(member) for name, member in members.items()}
            inner["properties"] = {name: each if name in needed else _or_null(each) for name, each in patches.items()}
        if others := schema.get("additionalProperties"):
            inner["additionalProperties"] = others if others is True else _or_null(self.patch(others))
        return inner

    def sent(self, schema: SchemaOf, kind: str) -> JsonSchema:
        """The JSON Schema of a body: one of the schema of items is as for a new item, if it is not partial."""
        if isinstance(schema, Schema) and schema.partial:
            if name := self._converter.refs.get(key := make_schema_key(schema)):
                return self.schema(name)
            whole = self._converter.schema2jsonschema(schema)
            members = {name: member for name, member in whole["properties"].items() if not member.get("readOnly")}
            self._converter.refs[key] = name = self._free(f"{resolver(type(schema))}Partial")
            self.components.schema(name, self.in_form("Partial", whole | {"properties": members}))
            return self.schema(name)
        reference = self.schema(schema, kind)
        new = f"{reference.get('$ref', '').rpartition('/')[2]}Input"
        return self.schema(new) if new in self.reserved else reference

    def in_form(self, form: str, schema: Any) -> Any:
        """A schema without some keywords at any depth: in the form "Returned", without the defaults of sent values."""
        if isinstance(schema, list):
            return [self.in_form(form, element) for element in schema]
        if not isinstance(schema, dict):
            return schema
        if isinstance(schema.get("$ref"), str):
            has_other_form = self._has(_LEFT_OUT[form], schema, set())
            return self._variant(schema, form, partial(self.in_form, form)) if has_other_form else schema
        remaining = {key: value for key, value in schema.items() if key not in _LEFT_OUT[form]}
        inner = {key: value if key in _VALUES else self.in_form(form, value) for key, value in remaining.items()}
        if isinstance(members := schema.get("properties"), dict):  # one of them can be the "default"
            inner["properties"] = {name: self.in_form(form, member) for name, member in members.items()}
        return inner

    def _has(self, keys: Collection[str], schema: Any, seen: set[str]) -> bool:
        """Whether a schema or one inside it, except those of `known` components, has one of these keys."""
        if isinstance(schema, list):
            return any(self._has(keys, element, seen) for element in schema)
        if not isinstance(schema, dict):
            return False
        if isinstance(reference := schema.get("$ref"), str):
            if reference in seen:
                return False
            seen.add(reference)
            return "default" in schema or self._has(keys, self._component(schema), seen)
        return not schema.keys().isdisjoint(keys) or any(
            self._has(keys, schema[key], seen) for key in schema if key not in _VALUES
        )

    def _component(self, reference: JsonSchema) -> JsonSchema:
        """The schema that a reference names."""
        schemas = self.components.schemas_lazy | self.components.schemas
        return cast(JsonSchema, schemas[reference["$ref"].rpartition("/")[2]])

    def _variant(self, reference: JsonSchema, suffix: str, make: Callable[[JsonSchema], JsonSchema]) -> JsonSchema:
        """A reference to another form of a component, which is made once: a schema can contain itself."""
        of = reference["$ref"].rpartition("/")[2]
        if (of, suffix) not in self._variants:
            self._variants[of, suffix] = name = self._free(f"{of}{suffix}")
            self.components.schema(name, make(self._component(reference)), lazy=True)
        return _without_default(reference) | self.schema(self._variants[of, suffix])

    def marshmallow(self, name: str, schema: type[Schema], *, nullable: bool = False) -> JsonSchema:
        """The JSON Schema of the component `name`; with `nullable`, optional fields may be null."""
        instance = prepared(schema)
        key = make_schema_key(instance)
        self._enter(name)
        self._converter.refs[key] = self._references[""][key] = name
        for field in instance.fields.values() if nullable else ():
            field.allow_none = field.allow_none or not field.required
        return dict(self._converter.schema2jsonschema(instance))


def _without_default(schema: JsonSchema) -> JsonSchema:
    return {key: value for key, value in schema.items() if key != "default"}


def _or_null(schema: JsonSchema) -> JsonSchema:
    """A schema that null has, too."""
    null = {"type": "null"}
    if "anyOf" in schema:
        return schema | {"anyOf": [*schema["anyOf"], *([] if null in schema["anyOf"] else [null])]}
    if "$ref" in schema or "const" in schema:
        return {"anyOf": [schema, null]}
    if "type" not in schema:  # any value, or one of an enum
        return schema
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    values = {"enum": list(dict.fromkeys([*schema["enum"], None]))} if "enum" in schema else {}
    return schema | {"type": list(dict.fromkeys([*types, "null"]))} | values


def bounded(schema: Any, most: int, config: Config) -> Any:
    """A part of the document in which every schema has bounds, and every integer its format; fixed values have a type.

    `most` is the default `maxLength` of a string. A parameter is limited by the URL or the header field that it is sent
    in. An array has half as many items: each takes a character and a comma. An object allows other members, unless its
    schema forbids them.
    """
    if isinstance(schema, list):
        return [bounded(element, most, config) for element in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("in"), str) and "name" in schema:
        most = config.max_url if schema["in"] != "header" else FIELD_BYTES - len(f"{schema['name']}: \r\n")
    inner = {name: value if name in _VALUES else bounded(value, most, config) for name, value in schema.items()}
    if isinstance(members := schema.get("properties"), dict):
        inner["properties"] = {name: bounded(member, most, config) for name, member in members.items()}
    if isinstance(schema.get("enum"), list) or ("const" in schema and not isinstance(schema["const"], dict)):
        return _fixed(inner)
    kinds = schema.get("type")
    if kinds is None or isinstance(kinds, dict):  # no schema, or the properties of one, of which one is the "type"
        return inner
    if "string" in kinds:
        inner.setdefault("maxLength", most)
    if "integer" in kinds:
        low, high = inner.setdefault("minimum", -(2**63)), inner.setdefault("maximum", 2**63 - 1)
        inner.setdefault("format", "int32" if -(2**31) <= low and high < 2**31 else "int64")
    if "array" in kinds:
        inner.setdefault("maxItems", most // 2)
    if "object" in kinds:
        inner.setdefault("additionalProperties", True)
    return inner


def _fixed(schema: JsonSchema) -> JsonSchema:
    """A schema of fixed values: of their type, without bounds, which say nothing more; null is one beside the others.

    Generators of clients treat values without a type as any value, and some of them forget a null among the values.
    """
    values, named = schema["enum"] if "enum" in schema else [schema["const"]], schema.get("type")
    kinds = [named] if isinstance(named, str) else named or dict.fromkeys(_TYPES.get(type(value)) for value in values)
    kinds = [kind for kind in kinds if kind and kind != "null"]
    fixed: JsonSchema = {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}
    if "enum" in schema and kinds:
        fixed["enum"] = [value for value in values if value is not None]
    rest = {key: value for key, value in schema.items() if key not in (*_BOUNDS, *fixed)}
    if kinds and None in values and (named is None or "null" in named):
        return rest | {"anyOf": [fixed, {"type": "null"}]}
    return rest | fixed
