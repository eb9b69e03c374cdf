"""One collection's part of the OpenAPI document: what its paths refer to, and its operations."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from restkeeper import errors
from restkeeper.config import Config
from restkeeper.features.keys.handlers import KEYS, KeyHandlers
from restkeeper.features.openapi.parts import (
    EXAMPLE_ID,
    Part,
    ProblemResponses,
    answer,
    guarded_operation,
    in_path,
    query,
    query_list,
    ref,
    refs,
    text,
)
from restkeeper.resources.collection import CollectionHandlers
from restkeeper.resources.resource import Resource
from restkeeper.resources.with_secret import SecretHandlers
from restkeeper.schemas.item import READ_ONLY
from restkeeper.storage.contract import Field, Kind, Op
from restkeeper.web.content import JSON, MERGE_PATCH
from restkeeper.web.queries import MAX_VALUES, OPERATORS

_KIND_SCHEMAS: dict[Kind, Part] = {
    Kind.TEXT: {"type": "string"},
    Kind.TIME: {"type": "string", "format": "date-time"},
    Kind.INTEGER: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    Kind.NUMBER: {"type": "number"},
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.LIST: {"type": "string"},
}

_MEANINGS = {
    Op.EQ: "is this; given repeatedly, any of these",
    Op.NE: "is not this",
    Op.GT: "is greater than this",
    Op.GTE: "is greater than or equal to this",
    Op.LT: "is less than this",
    Op.LTE: "is less than or equal to this",
    Op.IN: "is one of these, separated by commas",
    Op.LIKE: "contains this, without regard to case",
}
_LIST_MEANINGS = {Op.EQ: "contain this; given repeatedly, any of these", Op.IN: "contain one of these"}

_READ_ONLY_EXAMPLES: Part = {
    "id": EXAMPLE_ID,
    "created_at": "2026-01-31T12:00:00.000000Z",
    "updated_at": "2026-01-31T12:00:00.000000Z",
    "version": 1,
}

_BODY = (errors.InvalidJson, errors.BodyTooLarge, errors.UnsupportedMediaType, errors.ValidationFailed)
_READ = (errors.InvalidQuery, errors.PreconditionFailed)
_WRITE = (*_BODY, errors.Duplicate, errors.InsufficientStorage)
_ONCE = (errors.IdempotencyKeyInvalid, errors.IdempotencyKeyReused, errors.InsufficientStorage)
_CREATE = (*_WRITE, *_ONCE, errors.PreconditionFailed)
_CHANGE = (errors.NotFound, errors.PreconditionFailed)
_ITEM_HEADERS = ("ETag", "Last-Modified", "Cache-Control")
_SECRET = text(
    63,
    description="What to send as `Authorization: Bearer` or `X-API-Key`. Shown this once.",
    pattern="^rk_[0-9a-f]{16}_[A-Za-z0-9_-]{43}$",
)
_ON_LISTS = ("IfMatch", "IfNoneMatch")
_CREATED = ("Location", "Idempotent-Replayed")
_ON_ITEMS = ("IfMatch", "IfNoneMatch", "IfUnmodifiedSince")

Handler = Callable[..., Any]
Problems = Sequence[type[errors.Problem]]


def part_name(resource: Resource) -> str:
    """What components of a collection begin with."""
    return resource.singular.title().replace("_", "")


class CollectionPaths:
    """One collection: the components that it adds, and its paths under a prefix."""

    handlers: type[CollectionHandlers] = CollectionHandlers

    def __init__(self, resource: Resource, schema: Part, config: Config, problems: ProblemResponses) -> None:
        self._resource = resource
        self._schema = schema
        self._config = config
        self._problems = problems
        self._name = part_name(resource)
        self._once = (errors.IdempotencyKeyMissing,) if config.idempotency == "required" else ()
        self._filters = dict(self._filter_parameters())

    def components(self) -> Part:
        """What the paths refer to, by section and name."""
        name, one = self._name, self._resource.singular
        id = in_path("id", f"Id of the {one}.", text(64, minLength=1))
        return {
            "schemas": self._schemas(),
            "parameters": {f"{name}Id": id} | self._parameters() | self._filters,
            "requestBodies": {
                f"{name}Input": self._body(f"{name}Input", JSON),
                f"{name}Patch": self._body(f"{name}Patch", MERGE_PATCH, JSON),
            },
            "responses": self._responses(),
        }

    def paths(self, prefix: str) -> Part:
        """The operations on the list and on an item of it."""
        name, handlers = self._name, self.handlers
        listing = ("Limit", "Offset", "Cursor", *self._parameters(), *self._filters, *_ON_LISTS)
        reading = (f"{name}Fields", *_ON_ITEMS, "IfModifiedSince")
        required = (errors.PreconditionRequired,) if self._config.require_if_match else ()
        change = (*_CHANGE, *required)
        write = (*change, *_WRITE, errors.IllegalTransition)

        def operation(handler: Handler, done: str, problems: Problems, parameters: Sequence[str], **body: Part) -> Part:
            return self._operation(handler, prefix, f"{name}{done}", problems, parameters) | body

        whole = {"requestBody": ref("requestBodies", f"{name}Input")}
        patch = {"requestBody": ref("requestBodies", f"{name}Patch")}
        return {
            f"{prefix}/{self._resource.name}": {
                "get": operation(handlers.list_items, "Page", _READ, listing),
                "post": operation(
                    handlers.create_item, "Created", (*_CREATE, *self._once), (*_ON_LISTS, "IdempotencyKey"), **whole
                ),
            },
            f"{prefix}/{self._resource.name}/{{id}}": {
                "parameters": refs(f"{name}Id"),
                "get": operation(handlers.read_item, "Read", (*_READ, errors.NotFound), reading),
                "put": operation(handlers.replace_item, "Kept", write, _ON_ITEMS, **whole),
                "patch": operation(handlers.merge_item, "Kept", write, _ON_ITEMS, **patch),
                "delete": operation(handlers.delete_item, "Deleted", change, _ON_ITEMS),
            },
        }

    def _operation(
        self, handler: Handler, prefix: str, done: str, problems: Problems, parameters: Sequence[str]
    ) -> Part:
        own = handler.__name__.replace("items", self._resource.name).replace("item", self._resource.singular)
        needed = handler.needs  # type: ignore[attr-defined] # without it the service would not have started
        scope = f"{self._resource.name}:{needed}" if needed in ("read", "write") else needed
        unchanged = {"304": ref("responses", "NotModified")} if own.startswith(("list", "read")) else {}
        about = f"{handler.__doc__}\n\nWho shows credentials needs the scope `{scope}`."
        responses = {"200": ref("responses", done), **unchanged, **self._problems(*problems)}
        return guarded_operation(own, prefix, self._resource.name, about, self._config, refs(*parameters), responses)

    def _schemas(self) -> Part:
        """The item as answered, with only some fields, as sent whole, as a patch; the names of fields."""
        name, properties = self._name, {each: self._schema["properties"][each] for each in self._resource.names}
        own = {field: part for field, part in properties.items() if not part.get("readOnly")}
        required = self._schema.get("required", [])
        patch = {field: part if field in required else _or_null(part) for field, part in own.items()}
        shown = {field: _without(part, "readOnly") for field, part in properties.items()}  # webhooks are sent these too
        typed = self._resource.collection.fields.values()
        sortable = [field.name for field in typed if field.sortable]
        closed = {"type": "object", "additionalProperties": False}
        return {
            name: closed | {"properties": shown, "required": list(shown)},
            f"{name}Part": closed | {"properties": shown, "description": "The fields that `fields` asked for."},
            f"{name}Input": closed | {"properties": own, "required": required},
            f"{name}Patch": closed
            | {
                "description": "JSON Merge Patch (RFC 7396): null gives a field its default.",
                "properties": {field: _without(part, "default") for field, part in patch.items()},
            },
            f"{name}Field": {"type": "string", "enum": list(properties)},
            f"{name}SortKey": {"type": "string", "enum": [way + each for each in sortable for way in ("", "-")]},
        }

    def _parameters(self) -> Part:
        """The parameters of this collection but for its filters, by component name."""
        name, most = self._name, sum(field.sortable for field in self._resource.collection.fields.values())
        about = (
            "Fields to sort by, each once, the most significant first; `-` before one turns it around. Ties go by id."
        )
        parameters = {
            f"{name}Sort": query_list("sort", about, ref("schemas", f"{name}SortKey"), uniqueItems=True, maxItems=most),
            f"{name}Fields": query_list("fields", "Only these fields of each item.", ref("schemas", f"{name}Field")),
        }
        if searched := ", ".join(self._resource.search):
            about = f"Items in which {searched} contain this, without regard to case."
            parameters[f"{name}Search"] = query("q", about, {"type": "string"})
        return parameters

    def _filter_parameters(self) -> Iterator[tuple[str, Part]]:
        """A parameter for each field and operator, by component name: plain equality first."""
        pairs = [(op, field) for field in self._resource.collection.fields.values() for op in OPERATORS[field.kind]]
        for op, field in sorted(pairs, key=lambda pair: pair[0] is not Op.EQ):
            yield f"{self._name}.{field.name}.{op}", _filter(field, op)

    def _body(self, schema: str, *types: str) -> Part:
        content = {"schema": ref("schemas", schema)} | examples(
            self._resource.singular, example_of(self._resource, whole=False)
        )
        return {"required": True, "content": {each: content for each in types}}

    def _responses(self) -> Part:
        name, one, example = self._name, self._resource.singular, example_of(self._resource, whole=True)
        whole = ref("schemas", name)
        some = {"anyOf": [whole, ref("schemas", f"{name}Part")]}
        page = {"type": "array", "items": some, "maxItems": max(self._config.page_limit_max, MAX_VALUES)}
        pages = {"schema": page} | examples(self._resource.name, [example] if example else None)
        item, part = ({"schema": schema} | examples(one, example) for schema in (whole, some))
        headers = ("ETag", "Link", "X-Total-Count", "Cache-Control")
        return {
            f"{name}Page": answer("The page.", headers, {JSON: pages}),
            f"{name}Read": answer("The item.", _ITEM_HEADERS, {JSON: part}),
            f"{name}Created": answer("The item as kept.", (*_ITEM_HEADERS, *_CREATED), {JSON: item}),
            f"{name}Kept": answer("The item as kept.", _ITEM_HEADERS, {JSON: item}),
            f"{name}Deleted": answer("The item as it last was.", (), {JSON: item}),
        }


class SecretPaths(CollectionPaths):
    """What bears a secret that is answered once. `secret` says which, `rotating` what can be wrong with another."""

    handlers: type[SecretHandlers]
    secret: Part
    rotating: Problems = ()

    def components(self) -> Part:
        """As any collection's, with the answers that show a secret."""
        parts, name = super().components(), self._name
        parts["schemas"][f"{name}WithSecret"] = with_members(parts["schemas"][name], {"secret": self.secret})
        content = {JSON: {"schema": ref("schemas", f"{name}WithSecret")}}
        for done, headers in (("Created", _CREATED), ("Rotated", ("Idempotent-Replayed",))):
            headers = ("Cache-Control", "ETag", *headers)
            parts["responses"][f"{name}{done}"] = answer(
                f"The {self._resource.singular}, and its secret.", headers, content
            )
        return parts

    def paths(self, prefix: str) -> Part:
        """The operations on the list and on an item of it, and that which gives it another secret."""
        name = self._name
        problems = (*_CHANGE, *_ONCE, *self._once, *self.rotating)
        rotate = self._operation(
            self.handlers.rotate_item, prefix, f"{name}Rotated", problems, ("IdempotencyKey", *_ON_ITEMS)
        )
        rotating = {"parameters": refs(f"{name}Id"), "post": rotate}
        return super().paths(prefix) | {f"{prefix}/{self._resource.name}/{{id}}/rotate": rotating}


class KeyPaths(SecretPaths):
    """API keys, with some of `scopes` each: they are made, rotated and revoked, and otherwise stay as they are."""

    handlers = KeyHandlers
    secret = _SECRET
    rotating = (errors.ValidationFailed,)

    def __init__(self, schema: Part, scopes: Sequence[str], config: Config, problems: ProblemResponses) -> None:
        schema["properties"]["scopes"]["items"] = {"type": "string", "enum": list(scopes)}
        super().__init__(KEYS, schema, config, problems)

    def components(self) -> Part:
        """As of all that bears a secret, less what changes items."""
        parts, name = super().components(), self._name
        del parts["schemas"][f"{name}Patch"], parts["requestBodies"][f"{name}Patch"], parts["responses"][f"{name}Kept"]
        return parts

    def paths(self, prefix: str) -> Part:
        """The operations on the list and on a key of it."""
        paths = super().paths(prefix)
        item = paths[f"{prefix}/{self._resource.name}/{{id}}"]
        del item["put"], item["patch"]
        return paths


def with_members(schema: Part, members: Part) -> Part:
    """The schema of an object with more members, all of them required."""
    return schema | {
        "properties": schema["properties"] | members,
        "required": [*schema["required"], *members],
    }


def example_of(resource: Resource, *, whole: bool) -> Part | None:
    """An item made of the examples and defaults that the schema's fields give, None where they do not suffice."""
    fields = resource.schema().fields
    made = dict(_READ_ONLY_EXAMPLES)
    for name, field in fields.items():
        if found := field.metadata.get("examples"):
            made[name] = found[0]
        elif field.required:
            return None
        elif whole and name not in READ_ONLY:
            default = None if field.dump_only else field.load_default
            made[name] = default() if callable(default) else default
    return {name: made[name] for name in resource.names if name in made and (whole or name not in READ_ONLY)}


def examples(name: str, value: Any) -> Part:
    """What goes beside a schema to show a value, if there is one."""
    return {"examples": {name: {"value": value}}} if value else {}


def _or_null(part: Part) -> Part:
    kind = part.get("type")
    if kind is None or kind == "null" or (isinstance(kind, list) and "null" in kind):
        return part
    nullable = part | {"type": [*(kind if isinstance(kind, list) else [kind]), "null"]}
    return nullable | {"enum": [*part["enum"], None]} if "enum" in part else nullable


def _without(part: Part, keyword: str) -> Part:
    return {key: value for key, value in part.items() if key != keyword}


def _filter(field: Field, op: Op) -> Part:
    name = field.name if op is Op.EQ else f"{field.name}[{op}]"
    meaning = f"{field.name} {(_LIST_MEANINGS if field.kind is Kind.LIST else _MEANINGS)[op]}"
    schema = _KIND_SCHEMAS[field.kind]
    if op is Op.IN:
        return query_list(name, f"Items whose {meaning}.", schema, maxItems=MAX_VALUES)
    return query(name, f"Items whose {meaning}.", schema)
