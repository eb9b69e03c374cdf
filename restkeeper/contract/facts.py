"""What a document says, as facts: the fewest that decide which requests and responses are valid.

Each fact of a schema restricts its values, so that without facts every value is valid.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from restkeeper.contract.decisions import BOUNDS

Json = dict[str, Any]

REQUEST, RESPONSE = "request", "response"
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
PROSE = {"title", "description", "example", "examples", "externalDocs", "$comment", "discriminator"}
READ = PROSE | {  # keywords that are read one by one
    *("$ref", "type", "enum", "const", "properties", "required", "items", "additionalProperties"),
    *("anyOf", "oneOf", "readOnly", "writeOnly", "deprecated"),
}
SAID = PROSE | {"default", "deprecated"}  # beside a schema, without a further restriction
FLAGS = {"uniqueItems", "x-unique", "x-fold", "x-extensible"}
COUNTED = {"minLength", "minItems", "minProperties"}  # 0 is no bound
BITS = {"int32": 32, "int64": 64, "float": 32, "double": 64}
SCHEME = ("type", "scheme", "in", "name", "openIdConnectUrl")
OWNERSHIPS = {"none": {"all may read", "all may change"}, "changes": {"all may read"}, "all": set[str]()}
NULL = {"type": "null"}
_REFERENCE = re.compile(r"#/components/(\w+)/([^/]+)")


class Place(NamedTuple):
    """A part of an operation or webhook, such as "response 200"; or a component in a request or a response."""

    holder: str = ""
    part: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, self))

    @property
    def direction(self) -> str:
        """Who writes what is there: the client a request, the service a response and the message of a webhook."""
        return RESPONSE if self.part.startswith((RESPONSE, "message")) else REQUEST

    @property
    def is_component(self) -> bool:
        """Whether it is no operation's."""
        return self.part in (REQUEST, RESPONSE)


class Key(NamedTuple):
    """What a fact is about: a value at a place, and a row of the table of decisions.

    The `name` of a field is in dotted words; "[]" are the elements of an array, "*" fields that are not declared,
    "|" one of several alternatives. Without a name it is about the place.
    """

    place: Place
    name: str
    row: str

    def above(self) -> Iterator[tuple[Place, str]]:
        """The places and names of which this is a part."""
        words = self.place.part.split(" ")
        yield Place(), ""
        yield from ((Place(self.place.holder, " ".join(words[:end])), "") for end in range(len(words)))
        yield from ((self.place, self.name[: each.start()]) for each in re.finditer(r"[.\[*|]|$", self.name))


class Facts:
    """The facts of a document; the places where a component is used, and the tags of operations.

    Raises ValueError for a reference to nothing.
    """

    def __init__(self, document: Json) -> None:
        self._document = document
        self.facts: dict[Key, Any] = {}
        self.tags: dict[str, str] = {}
        self._used: dict[Place, dict[Place, None]] = {}  # the components that a place refers to
        state = document.get("info", {}).get("x-version", {})
        self.revisions: dict[str, int] = state.get("revisions", {})
        self._note(Place(), "", {"version": True, "sunset": state.get("sunset")})
        self._note(Place(), "", {"x-dialects": frozenset(document.get("x-dialects", ()))})
        for path, item in document.get("paths", {}).items():
            for method in [each for each in METHODS if each in item]:
                self._operation(f"{method.upper()} {path}", item[method], item.get("parameters", ()))
        for name, item in document.get("webhooks", {}).items():
            self._webhook(f"webhook {name}", item["post"])
        self.places: dict[Place, list[Place]] = {}  # of operations and webhooks, by the components that are used there
        self.shown: dict[
            str, set[str]
        ] = {}  # the components that operations return, and the names of their fields, by tag
        self.fields: dict[str, set[str]] = {}
        names: dict[str, set[str]] = {}
        for key in [each for each in self.facts if each.row == "field"]:
            names.setdefault(key.place.holder, set()).add(key.name)
        for place in [each for each in self._used if each.holder in self.tags]:
            reached = [*self._used[place]]
            for component in reached:  # which grows meanwhile
                self.places.setdefault(component, []).append(place)
                reached += [each for each in self._used[component] if each not in reached]
            if place.part.startswith("response 2"):
                tag, holders = self.tags[place.holder], {component.holder for component in reached}
                self.shown.setdefault(tag, set()).update(holders)
                self.fields.setdefault(tag, set()).update(*(names.get(each, ()) for each in holders))

    def _note(self, place: Place, name: str, facts: Json) -> None:
        """Note facts, which are neither none nor false."""
        for row, fact in facts.items():
            if fact is not None and fact is not False:
                self.facts[Key(place, name, row)] = fact

    def _operation(self, holder: str, own: Json, common: Iterable[Json]) -> None:
        self.tags[holder] = next(iter(own.get("tags", ())), "")
        schemes = self._document.get("components", {}).get("securitySchemes", {})
        ways: Any = own.get("security", self._document.get("security", []))
        needed = {" with ".join(sorted(_way(name, schemes.get(name, {})) for name in way)) for way in ways}
        scope = own.get("x-required-scope")
        facts: Json = {
            "operation": True,
            "sunset": _sunset(own),
            "operationId": own.get("operationId"),
            "security": frozenset(needed) if needed and all(needed) else None,
            "x-required-scope": frozenset({scope, "admin"}) if scope else None,
            "x-ownership": frozenset(OWNERSHIPS[own.get("x-ownership", "none")]),
        }
        self._note(Place(holder), "", facts)
        for each in map(self._resolve, [*common, *own.get("parameters", ())]):
            self._parameter(Place(holder, f"{each['in']} parameter {each['name']}"), "parameter", each)
        self._body(Place(holder, "request body"), own.get("requestBody", {}))
        for status, each in own.get("responses", {}).items():
            place, response = Place(holder, f"response {status}"), self._resolve(each)
            self._note(place, "", {"success status" if status.startswith("2") else "error status": True})
            self._content(place, response)
            for name, header in response.get("headers", {}).items():
                self._parameter(Place(holder, f"response {status} header {name}"), "header", self._resolve(header))

    def _webhook(self, holder: str, own: Json) -> None:
        """A webhook: what the service sends, and the statuses by which the client accepts it."""
        self.tags[holder] = next(iter(own.get("tags", ())), "")
        self._note(Place(holder), "", {"webhook": True})
        for each in map(self._resolve, own.get("parameters", ())):
            self._parameter(Place(holder, f"message header {each['name']}"), "header", each)
        self._body(Place(holder, "message"), own.get("requestBody", {}))
        for status in own.get("responses", {}):
            self._note(Place(holder, f"answer {status}"), "", {"success status": status.startswith("2")})

    def _parameter(self, place: Place, row: str, each: Json) -> None:
        is_id, is_needed = place.part.startswith("path"), bool(each.get("required"))
        self._note(place, "", {row: True, "required": is_needed})
        self._schema(each.get("schema", {}), place, is_id=is_id, is_needed=is_needed)

    def _body(self, place: Place, part: Json) -> None:
        if body := self._resolve(part):
            self._note(place, "", {"body": True, "required": body.get("required")})
            self._content(place, body)

    def _content(self, place: Place, body: Json) -> None:
        for name, each in body.get("content", {}).items():
            inner = Place(place.holder, f"{place.part} {name}")
            self._note(inner, "", {"media type": True})
            self._schema(each.get("schema", {}), inner)

    def _resolve(self, part: Json) -> Json:
        """What a part or a reference is."""
        if "$ref" not in part:
            return part
        found = _REFERENCE.fullmatch(part["$ref"])
        resolved: Json | None = self._document.get("components", {}).get(found[1], {}).get(found[2]) if found else None
        if resolved is None:
            raise ValueError(f"{part['$ref']} is a reference to nothing")
        return self._resolve(resolved)

    # Schemas

    def _component(self, reference: str, place: Place) -> str:
        """Note the facts of a component that a place refers to, in the direction of the place; its name."""
        name = reference.rpartition("/")[2]
        component = Place(name, place.direction)
        self._used.setdefault(place, {})[component] = None
        if component not in self._used:
            self._used[component] = {}
            self._schema(self._resolve({"$ref": reference}), component)
        return name

    def _schema(
        self, schema: Json | bool, place: Place, name: str = "", *, is_id: bool = False, is_needed: bool = False
    ) -> None:
        """Note the facts of a schema. One that `is_needed` is always sent, so that its default has no meaning."""
        plain, has_null = _without_null({} if schema is True else {"not": {}} if schema is False else schema)
        if "$ref" in plain:
            self._note(place, name, {"$ref": self._component(plain["$ref"], place)})
        self._note(place, name, _values(plain, has_null) | _keywords(plain, is_id=is_id))
        if is_needed:
            self.facts.pop(Key(place, name, "default"), None)
        unseen, needed = "readOnly" if place.direction == REQUEST else "writeOnly", plain.get("required", ())
        for field, each in {**dict.fromkeys(needed, True), **plain.get("properties", {})}.items():
            own = each if isinstance(each, dict) else {}
            if not own.get(unseen):
                dotted, is_id = f"{name}.{field}".lstrip("."), field == "id" and place.direction == RESPONSE
                self._note(place, dotted, {"field": True, "required": field in needed, "sunset": _sunset(own)})
                self._schema(each, place, dotted, is_id=is_id, is_needed=field in needed)
        for keyword, end in (("items", "[]"), ("additionalProperties", "*")):
            if isinstance(inner := plain.get(keyword), dict):
                self._schema(inner, place, f"{name}{end}")
        for each in (*plain.get("anyOf", ()), *plain.get("oneOf", ())):
            branch = f"{name}|{each.get('$ref', '').rpartition('/')[2] or _text(each)}"
            self._note(place, branch, {"alternative": True})
            self._schema(each, place, branch)


def _sunset(part: Json) -> str | None:
    """The sunset of what is deprecated."""
    return str(part.get("x-sunset", "")) if part.get("deprecated") else None


def _way(name: str, scheme: Json) -> str:
    """A way to authenticate, with all that a client must know of it."""
    return f"{name} ({' '.join(str(scheme[key]) for key in SCHEME if key in scheme)})"


def _text(value: Any) -> str:
    """A value as JSON, in a form that equal values share."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _without_null(schema: Json) -> tuple[Json, bool]:
    """A schema without null among its alternatives, and whether it was one. The only other one is the schema."""
    keyword = "anyOf" if "anyOf" in schema else "oneOf"
    others = [each for each in schema.get(keyword, ()) if each != NULL]
    rest = {key: value for key, value in schema.items() if key != keyword}
    if not others or len(others) == len(schema[keyword]):
        return schema, False
    if len(others) == 1 and all(key in SAID or key.startswith("x-") for key in rest):
        return others[0] | rest, True
    return rest | {keyword: others}, True


def _values(schema: Json, has_null: bool) -> Json:
    """Which types and values are valid. Null is one if it `has_null`."""
    named: Any = schema.get("type", ())
    values: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    types = {named} if isinstance(named, str) else {*named}
    is_choice = bool({"anyOf", "oneOf"} & schema.keys())
    is_nullable = not is_choice and "$ref" not in schema
    is_nullable = is_nullable and (not types or "null" in types) and (values is None or None in values)
    return {
        "type": frozenset(types - {"null"} or types) | ({"integer"} if "number" in types else set()) or None,
        "enum": None if values is None else frozenset(_text(value) for value in values if value is not None),
        "never null": not is_nullable and not has_null,
        "choice": is_choice,
        "closed": schema.get("additionalProperties") is False,
    }


def _keywords(schema: Json, *, is_id: bool) -> Json:
    """The other keywords that hold no schemas."""
    facts: Json = {}
    for keyword, value in schema.items():
        if keyword in FLAGS:
            facts[keyword] = bool(value)
        elif keyword == "x-search":
            facts[keyword] = frozenset(value)
        elif keyword == "x-transitions":
            facts[keyword] = frozenset((_text(old), _text(new)) for old in value for new in value[old])
        elif keyword == "format" and value in BITS:
            facts["bits"] = BITS[value]
        elif keyword == "pattern" and is_id:
            facts["pattern of an id"] = value
        elif keyword in BOUNDS:
            facts[keyword] = None if keyword in COUNTED and not value else value
        elif keyword not in READ and not keyword.startswith("x-"):
            facts[keyword] = _text(value)
    return facts
