"""The components of the document for collections."""

import re
from collections.abc import Iterable, Iterator, Sequence

from marshmallow import INCLUDE

from restkeeper.features.openapi.spec import Spec
from restkeeper.resources.call import EVERYBODY
from restkeeper.resources.declaration import Ownership
from restkeeper.resources.filters import GROUPS, MAX_VALUES
from restkeeper.resources.grouping import MOST_AGGREGATED, MOST_COUNTED, SUMS
from restkeeper.resources.items import ServedCollection
from restkeeper.resources.operators import Operator, operators_of
from restkeeper.resources.parameters import AGGREGATES, MOST_NAMES, RESERVED
from restkeeper.resources.queries import MOST_CHOSEN, MOST_EMBEDDED
from restkeeper.resources.relations import next_of
from restkeeper.resources.revision import references_in
from restkeeper.resources.unique import known_unique
from restkeeper.resources.views import View
from restkeeper.schemas.fields import LONGEST_OWNER, READABLE_BY, Status, default_of
from restkeeper.schemas.item import READ_ONLY
from restkeeper.schemas.prepared import fields_of, is_optional
from restkeeper.storage.interface import ANY, DATE_PARTS, EQUALITY, Op
from restkeeper.web.descriptions import EXAMPLE_TIME, filled, several
from restkeeper.web.operations import CLOSED, JsonSchema, returned

_WORDS = {"sum": "the sum", "avg": "the average", "min": "the least value", "max": "the greatest value"}

# The ends of the names of components that a collection has. Where items are embedded, they have only their own fields.
PARTS = ("", *"Input Replacement Patch Field SortKey OwnField OwnSortKey WithSecret Embedded ReferringInput".split())


def add_collection(spec: Spec, items: ServedCollection, secret: JsonSchema | None) -> None:
    """Add the components of a collection, whose items may have a `secret`."""
    view, kind = items.whole, items.resource.kind
    schemas = _schemas(spec, items, kind)
    if secret:
        schemas["WithSecret"] = returned(schemas[""]["properties"] | {"secret": secret})
    for name, schema in schemas.items():
        spec.components.schema(f"{kind}{name}", schema, lazy=True)
    for name, described in _parameters(spec, items, kind):
        spec.components.parameter(name, described["in"], described, lazy=True)
    reserved = view.queryable.reserved
    spec.groups |= {
        f"{kind}Aggregates": list(_aggregates(view, spec.common["collection"]["Aggregate"])),
        f"{kind}Zone": ["Timezone"] if "timezone" in reserved else [],
        f"{kind}Filters": [*_filters(spec, items), *_joined(spec, items)],
        f"{kind}Or": [name.capitalize() for name in GROUPS if name in reserved],
        f"{kind}Export": ["Export"] * ("export" in reserved),
    }
    present = {
        "Search": items.stored.collection.search,
        "Conflict": known_unique(items.resource, view),
        "Owner": items.resource.ownership is not Ownership.NONE and not view.owner_field,
        "Count": "count" in reserved,
        "Embed": items.relations_for(EVERYBODY),
    }
    spec.groups |= {f"{kind}{name}": [] for name, is_present in present.items() if not is_present}
    if items.page_limit == spec.config.page_limit:
        spec.groups[f"{kind}Limit"] = ["Limit"]


def add_relations(spec: Spec, items: ServedCollection) -> None:
    """Add the schema of an item with embedded items; the components of all collections must be there."""
    schemas, kind = spec.components.schemas_lazy | spec.components.schemas, items.resource.kind
    if items.relations_for(EVERYBODY):
        spec.groups[f"{kind}Embed"] = [f"{kind}Embed", *_options(spec, items)]
    item, properties = schemas[kind]["properties"], dict[str, JsonSchema]()
    for name, relation in items.relations_for(EVERYBODY).items():
        of = spec.schema(relation.to.resource.kind)
        if relation.is_back:
            properties[name] = {"type": "array", "items": of, "maxItems": relation.to.resource.embed_limit}
            properties[next_of(name)] = {"type": ["string", "null"], "description": spec.common["collection"]["Next"]}
        elif relation.beside:
            reference, one = item[relation.field], {"anyOf": [of, {"type": "null"}]}
            properties[name] = reference | {"items": one} if "items" in reference else one
        else:
            root, *path = name.split(".")
            properties[root] = _embedded(schemas, properties.get(root, item[root]), path, of)
    if items.relations_for(EVERYBODY):
        embedded = {"type": "object", "description": spec.common["collection"]["Embedded"], "properties": properties}
        spec.components.schema(f"{kind}Embedded", embedded, lazy=True)
    sent, references = schemas[f"{kind}Input"], dict(references_in(items.whole.schema()))
    sent = sent | {"required": [name for name in sent["required"] if name not in references]}
    spec.components.schema(f"{kind}ReferringInput", sent, lazy=True)


def _embedded(schemas: JsonSchema, schema: JsonSchema, path: list[str], of: JsonSchema) -> JsonSchema:
    """A schema in which a reference, at a path, can also be the item."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "items" in schema:
        return schema | {"items": _embedded(schemas, schema["items"], path, of)}
    if not path:
        return {"anyOf": [schema, of]}
    if "anyOf" in schema:  # a schema, or null
        choices = [_embedded(schemas, choice, path, of) if "$ref" in choice else choice for choice in schema["anyOf"]]
        return schema | {"anyOf": choices}
    properties = schema["properties"]
    return schema | {"properties": properties | {path[0]: _embedded(schemas, properties[path[0]], path[1:], of)}}


def _schemas(spec: Spec, items: ServedCollection, kind: str) -> dict[str, JsonSchema]:
    """The item as returned, as sent complete, and as a patch; the names of fields."""
    view, texts = items.whole, spec.common["collection"]
    whole, with_nulls = (spec.marshmallow(kind, view.schema, nullable=nullable) for nullable in (False, True))
    for schema in (whole, with_nulls):
        for field, values in items.choices.items():
            member = schema["properties"][field]
            if choices := list(values):
                (member.get("items") or member).update({"type": "string", "enum": choices, "x-extensible": True})
            else:
                member["maxItems"] = 0
        for field, default in items.defaults.items():
            schema["properties"][field]["default"] = default
    id, sent_id = view.schema.id_name, spec.common["given_ids"].get(items.resource.ids, {})
    whole["properties"] = {id if name == "id" else name: member for name, member in whole["properties"].items()}
    properties = {name: whole["properties"][name] for name in view.names}
    properties |= {id: sent_id["id"]} if sent_id else {}
    if of_ids := view.schema.id_schema:
        properties[id] = {**of_ids, "description": sent_id["id"]["description"]}
    extensions = _extensions(items)
    instance = view.schema()
    optional = {name for name, declared in fields_of(instance).items() if is_optional(instance, declared)}
    sendable = [name for name, member in properties.items() if not member.get("readOnly")]
    writable = {name: properties[name] | extensions.get(name, {}) for name in sendable}
    others = {key: value for key, value in whole.items() if key == "additionalProperties"}  # none: unknown=EXCLUDE
    odd: JsonSchema = {}
    if instance.others is not None:
        others, odd = {"additionalProperties": False}, {name: {} for name in sorted(instance.others)}
    sent = {"type": "object"} | others
    # What is read, also in webhooks, has no default.
    example = example_of(view, properties.get(id, {}).get("type"))
    unsaid = ("readOnly", *(["examples"] if example else ()))
    readable = {name: spec.in_form("Returned", _without(member, *unsaid)) for name, member in properties.items()}
    item = returned(readable | odd) | (sent if instance.unknown == INCLUDE else {})
    item["required"] = [name for name in readable if name not in optional and READABLE_BY not in readable[name]]
    item |= {"examples": [example]} if example else {}
    item |= {"x-id": id} if id != "id" else {}
    patch = {name: with_nulls["properties"][name] for name in writable if name != id}
    if "PATCH" in items.resource.methods:  # else nothing refers to the components of inner objects
        patch = {name: spec.patch(member) for name, member in patch.items()}
    ways, is_open, keys = ("", "-"), view.queryable.is_open, view.queryable.sortable
    hops = items.with_hops(view.queryable, EVERYBODY).hops().items()
    paths = [f"{name}.{field}" for name, hop in hops if hop.field != "id" for field in hop.queryable.names]
    joined = [f"{name}.{field}" for name, hop in hops if not hop.many for field in hop.queryable.sortable]
    return {
        "": item,
        "Input": sent | {"properties": writable | odd, "required": whole.get("required", [])},
        "Replacement": sent | {"properties": _without(writable, id) | odd, "required": whole.get("required", [])},
        "Patch": sent | {"description": texts["Patch"], "properties": patch | odd},
        "Field": _names([*properties, *paths], is_open or bool(hops)),
        "SortKey": _names([*keys, *joined], is_open or bool(joined), ways),
        "OwnField": _names([*properties], is_open),
        "OwnSortKey": _names(keys, is_open, ways),
    }


def _names(names: Iterable[str], extensible: bool, ways: Sequence[str] = ("",)) -> JsonSchema:
    """An enumeration of fields; an order has each of them in both `ways`.

    Its constants have names, so that no generator makes the same one of `customer.name` and `customer_name`.
    """
    constants = {name: name.replace(".", "_dot_") for name in names}
    return {
        "type": "string",
        "enum": [way + name for name in constants for way in ways],
        "x-enum-varnames": [name + "_descending" * bool(way) for name in constants.values() for way in ways],
    } | ({"x-extensible": True} if extensible else {})


def _extensions(items: ServedCollection) -> dict[str, JsonSchema]:
    """What clients depend on beside the schema of a field, by the name of the field: unique values, and transitions."""
    view, extensions = items.whole, dict[str, JsonSchema]()
    for index in (index for index in items.resource.indexes if index.unique):
        members = [*map(view.name_of, index.fields)]
        for member in members:
            extension = extensions.setdefault(member, {})
            if rest := ", ".join(name for name in members if name != member):
                extension["x-unique-with"] = [*extension.get("x-unique-with", []), rest]
            else:
                extension["x-unique"] = True
    for name, declared in fields_of(view.schema()).items():
        if isinstance(declared, Status):
            scopes = {"x-scopes": dict(declared.lifecycle.scopes)} if declared.lifecycle.scopes else {}
            actions = {"x-by-actions": dict(declared.lifecycle.by_actions)} if declared.lifecycle.by_actions else {}
            moves = {"x-transitions": dict(declared.lifecycle.moves)}
            extensions[name] = {**extensions.get(name, {}), **moves, **scopes, **actions}
    return extensions


def _parameters(spec: Spec, items: ServedCollection, kind: str) -> Iterator[tuple[str, JsonSchema]]:
    """The parameters of this collection except its filters, by component name."""
    resource, view = items.resource, items.whole
    searched = list(dict.fromkeys(map(view.name_of, items.stored.collection.search)))
    limits = {relation.to.resource.embed_limit for relation in items.relations_for(EVERYBODY).values()}
    most = " or ".join(map(str, sorted(limits)))
    where = "any texts" if ANY in searched else ", ".join(searched)
    texts = filled(spec.common["collection"], kind=resource.singular, fields=where, most=most)
    limit = spec.common["parameters"]["Limit"]
    yield (
        f"{kind}Limit",
        limit | {"schema": limit["schema"] | {"default": items.page_limit, "maximum": items.page_limit_max}},
    )
    dated = [f"{unit}({name})" for name in view.queryable.dated for unit in DATE_PARTS]
    counted = _some([*view.queryable.sortable, *dated], MOST_COUNTED)
    yield f"{kind}Count", parameter("count", counted, texts["Count"])
    ids = view.schema.id_schema or spec.common["ids"][resource.ids]
    yield f"{kind}Id", parameter("id", ids.get("anyOf", [ids])[0], texts["Id"], location="path")
    if not resource.singleton:  # else nothing would refer to its keys
        sort = several(spec.schema(f"{kind}SortKey"), uniqueItems=True)
        order = [(view.name_of(key.field), key.descending) for key in resource.order]
        if order and {name for name, _ in order} <= {*view.queryable.sortable}:
            sort["default"] = [f"-{name}" if is_descending else name for name, is_descending in order]
        yield f"{kind}Sort", parameter("sort", sort, texts["Sort"])
    yield f"{kind}Fields", parameter("fields", several(spec.schema(f"{kind}Field")), texts["Fields"])
    owner = {"type": "string", "minLength": 1, "maxLength": LONGEST_OWNER}
    yield f"{kind}Owner", parameter("owner", owner, "Which of the caller's owners a new item is of; else the first.")
    unique = {"type": "string", "enum": [",".join(names) for names in known_unique(items.resource, items.whole)]}
    yield f"{kind}Conflict", parameter("on_conflict", unique, texts["Conflict"])
    embed = several(
        {"type": "string", "enum": sorted(items.relations_for(EVERYBODY)), "x-extensible": True}, maxItems=MOST_EMBEDDED
    )
    yield f"{kind}Embed", parameter("embed", embed, texts["Embed"])
    search = {"type": "string", "x-search": [name for name in searched if name in (ANY, *view.names)]}
    yield f"{kind}Search", parameter("q", search, texts["Search"])


def _some(names: Sequence[str], most: int) -> JsonSchema:
    """Up to so many of these names."""
    return several({"type": "string", "enum": [*names], "x-extensible": True}, maxItems=most, uniqueItems=True)


def _aggregates(view: View, about: str) -> Iterator[JsonSchema]:
    """The parameter of each function that the collection has fields for."""
    for name, function in AGGREGATES.items():
        fields = view.queryable.numbers if function in SUMS else view.queryable.sortable
        if fields:
            yield parameter(name, _some(fields, MOST_AGGREGATED), filled(about, what=_WORDS[function]))


def _filters(spec: Spec, items: ServedCollection) -> Iterator[JsonSchema | str]:
    """A parameter, or the name of its component, for each field and operator: plain equality first.

    The introduction says what the operators mean.
    """
    queryable = items.whole.queryable
    folded = {items.whole.name_of(index.field) for index in items.resource.indexes if index.fold}
    named = [field for field in queryable.fields.values() if "*" not in field.name]
    pairs = [(operator, field) for field in named for operator in operators_of(field).values()]
    for (word, op, *_), field in sorted(pairs, key=lambda pair: pair[0].op is not Op.EQ):
        one: JsonSchema = spec.common["filters"]["is" if op is Op.IS else field.kind.value]
        if field.choices and op in EQUALITY:
            one = one | {"enum": list(field.choices), "x-extensible": True}
        schema = several(one, maxItems=MAX_VALUES) if op is Op.IN else one
        if op is Op.EQ and field.name in folded:
            schema = schema | {"x-fold": True}  # so have its other filters, and the order by it
        is_plain = op is Op.EQ and field.name not in queryable.reserved  # which is another parameter
        described = parameter(field.name if is_plain else f"{field.name}[{word}]", schema)
        name = f"{field.kind.value}.{field.name}.{word}"
        if field.name in READ_ONLY:  # of all collections
            spec.components.parameters_lazy.setdefault(name, described)
        yield name if field.name in READ_ONLY else described
    for wild in (field for field in queryable.fields.values() if "*" in field.name):  # parameters of any such name
        root, about, kinds = wild.name.removesuffix(".*"), spec.common["collection"]["Paths"], spec.common["filters"]
        inner, most = r"\.[A-Za-z0-9_-]{1,20}", MOST_NAMES - 1 - root.count(".")
        path = rf"^{re.escape(root)}({inner}){{1,{most}}}"
        if wild.name == ANY:
            root, about = "others", spec.common["collection"]["Others"]
            reserved = (*RESERVED, "callback", *(field.name for field in named), *queryable.refused)
            none_of = "|".join(map(re.escape, dict.fromkeys(reserved)))
            path = rf"^(?!({none_of})(\[|$))[A-Za-z][A-Za-z0-9_-]{{0,19}}({inner}){{0,{most}}}"
        operators = operators_of(wild)
        others = [operator for operator in operators.values() if operator.op is not Op.IS]
        parts = {rf"{path}{_in_brackets(others)}$": kinds["text"], rf"{path}\[is\]$": kinds["is"]}
        yield parameter(root, CLOSED | {"patternProperties": parts}, filled(about, operators=", ".join(operators)))


def _joined(spec: Spec, items: ServedCollection) -> Iterator[JsonSchema]:
    """A parameter for each collection that filters lead to, by the name before the dot."""
    for name, hop in items.with_hops(items.whole.queryable, EVERYBODY).hops().items():
        alike = dict[tuple[str, tuple[Operator, ...]], list[str]]()
        for field in (field for field in hop.queryable.fields.values() if "*" not in field.name):
            kinds = dict[str, list[Operator]]()
            for operator in operators_of(field).values():
                if not (hop.many and operator.excludes):
                    kinds.setdefault("is" if operator.op is Op.IS else field.kind.value, []).append(operator)
            for kind, operators in kinds.items():
                alike.setdefault((kind, tuple(operators)), []).append(re.escape(field.name))
        parts = {
            rf"^{re.escape(name)}\.({'|'.join(names)}){_in_brackets(operators)}$": spec.common["filters"][kind]
            for (kind, operators), names in alike.items()
        }
        parts |= {rf"^{re.escape(name)}\[is\]$": spec.common["filters"]["is"]} if hop.many else {}
        what = f"have an item in {name} with this" if hop.many else f"refer to an item in {name} with this"
        about = filled(spec.common["collection"]["Joined"], what=what)
        yield parameter(f"by_{name.replace('.', '_')}", CLOSED | {"patternProperties": parts}, about)


def _options(spec: Spec, items: ServedCollection) -> Iterator[JsonSchema]:
    """The parameters about what is embedded."""
    about = spec.common["collection"]["Where"]
    for name, relation in items.relations_for(EVERYBODY).items():
        kind = relation.to.resource.kind
        yield parameter(f"fields[{name}]", several(spec.schema(f"{kind}OwnField")))
        if relation.is_back:
            # Without a default: clients that send defaults would send it where nothing is embedded, which is a 400.
            yield parameter(f"limit[{name}]", {"type": "integer", "minimum": 1, "maximum": MOST_CHOSEN})
            yield parameter(f"sort[{name}]", several(spec.schema(f"{kind}OwnSortKey")))
            yield parameter(f"where[{name}]", {"type": "string"}, about)


def _in_brackets(operators: Sequence[Operator]) -> str:
    """A regular expression of operators; plain equality has none."""
    others = [operator.name for operator in operators if operator.op is not Op.EQ]
    return rf"(\[({'|'.join(others)})\])" + ("?" if len(others) < len(operators) else "")


def parameter(name: str, schema: JsonSchema, about: str = "", *, location: str = "query") -> JsonSchema:
    """A parameter; the values of an array are separated by commas."""
    style = {"explode": False} if schema["type"] == "array" else {}
    described = {"description": about} if about else {}
    required = {"required": True} if location == "path" else {}
    return {"name": name, "in": location, **required, **described, "schema": schema, **style}


def example_of(view: View, type_of_id: str | None) -> JsonSchema | None:
    """An item of the examples and defaults of the schema's fields; None if a required field has no example."""
    id = 12 if type_of_id in ("integer", "number") else "01912d68-783e-7a03-8467-5661c1243ad4"
    item: JsonSchema = {view.schema.id_name: id, "created_at": EXAMPLE_TIME, "updated_at": EXAMPLE_TIME, "version": 1}
    for name, field in fields_of(view.schema()).items():
        if examples := field.metadata.get("examples"):
            item[name] = examples[0]
        elif field.required and not field.dump_only:
            return None
        elif name not in READ_ONLY:
            item[name] = default_of(field)
    return {name: item[name] for name in view.names if name in item}


def _without(schema: JsonSchema, *keywords: str) -> JsonSchema:
    return {key: value for key, value in schema.items() if key not in keywords}
