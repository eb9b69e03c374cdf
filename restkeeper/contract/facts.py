"""What a document says, as facts: the fewest that decide which requests and responses are valid.

Each fact of a schema restricts its values, so that without facts every value is valid.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from restkeeper.contract.decisions import BOUNDS

Json = dict[str, Any]

PROSE = {"title", "description", "example", "examples", "externalDocs", "$comment", "discriminator"}
READ = PROSE | {  # keywords that are read one by one
    *("$ref", "type", "enum", "const", "properties", "required", "items", "additionalProperties"),
    *("anyOf", "oneOf", "readOnly", "writeOnly", "deprecated"),
}
SAID = PROSE | {"default", "deprecated"}  # beside a schema, without a further restriction
FLAGS = {"uniqueItems", "x-unique", "x-fold", "x-extensible"}
COUNTED = {"minLength", "minItems", "minProperties"}  # 0 is no bound
BITS = {"int32": 32, "int64": 64}
SCHEME = ("type", "scheme", "in", "name", "openIdConnectUrl")
OWNERSHIPS = {"none": {"all may read", "all may change"}, "changes": {"all may read"}, "all": set[str]()}
NULL = {"type": "null"}
_REFERENCE = re.compile(r"#/components/(\w+)/([^/]+)")


class Key(NamedTuple):
    """The subject of a fact, and the row of the table of decisions that judges the fact.

    A `holder` is an operation or a webhook, a `part` of it for example "response 200", and a `component` a schema that
    is reached there. The `name` of a field is in dotted words; "[]" are the elements of an array, "*" fields that are
    not declared, "|" one of several alternatives. Without a name the subject is the whole schema.
    """

    holder: str = ""
    part: str = ""
    component: str = ""
    name: str = ""
    row: str = ""

    @property
    def in_response(self) -> bool:
        """Whether the service writes this part: it is in a response or in the message of a webhook."""
        return self.part.startswith(("response", "message"))

    @property
    def is_shown(self) -> bool:
        """Whether it is in a response of success."""
        return self.part.startswith("response 2")

    @property
    def whole(self) -> "Key":
        """The subject without the row."""
        return self._replace(row="")

    def above(self) -> Iterator["Key"]:
        """The keys of everything that contains this subject, and of the subject itself."""
        yield Key()
        words = self.part.split(" ")
        yield from (Key(self.holder, " ".join(words[:end])) for end in range(len(words) + 1))
        for end in re.finditer(r"^|[.\[*|]|$", self.name):
            yield Key(self.holder, self.part, self.component, self.name[: end.start()])


class Facts:
    """The facts of a document, the tags of its operations, and the fields that the operations of a tag return.

    Raises ValueError for a reference to nothing.
    """

    def __init__(self, document: Json) -> None:
        self._document = document
        self.facts: dict[Key, Any] = {}
        self.open: set[Key] = set()  # objects that have fields that are not declared
        self.tags: dict[str, str] = {}
        state = document.get("info", {}).get("x-version", {})
        self.revisions: dict[str, int] = state.get("revisions", {})
        self._note(Key(), {"version": True, "sunset": state.get("sunset")})
        self._note(Key(), {"x-dialects": frozenset(document.get("x-dialects", ()))})
        for name, header in document.get("x-headers", {}).items():
            self._parameter(Key(part=f"response header {name}"), "header", self._resolve(header))
        everywhere = document.get("servers", [{"url": "/"}])
        for path, item in document.get("paths", {}).items():
            for method, operation in item.items():
                if isinstance(operation, dict):
                    self._at_servers(f"{method.upper()} ", path, item.get("servers", everywhere), operation, item)
        for name, item in document.get("webhooks", {}).items():
            self._webhook(Key(f"webhook {name}"), item["post"])
        self.fields: dict[str, dict[str, str | None]] = {}  # with their sunsets
        users: dict[str, Counter[str]] = {}
        for key in self.facts:
            if key.row == "field" and key.is_shown:
                fields = self.fields.setdefault(self.tags[key.holder], {})
                fields[key.name] = fields.get(key.name) or self.facts.get(key._replace(row="sunset"))
            elif key.row == "component":
                users.setdefault(key.component, Counter())[self.tags[key.holder]] += 1
        self.owners = {name: tags.most_common(1)[0][0] for name, tags in users.items()}  # the tags of components

    def _note(self, about: Key, facts: Json) -> None:
        """Note facts, which are neither none nor false."""
        for row, fact in facts.items():
            if fact is not None and fact is not False:
                self.facts[Key(*about[:4], row)] = fact

    def _at_servers(self, method: str, path: str, servers: list[Json], operation: Json, item: Json) -> None:
        """Note the facts of an operation at each address that it has."""
        whole, whole_open = self.facts, self.open
        self.facts, self.open = {}, set()
        holders = [f"{method}{server['url'].rstrip('/')}{path}" for server in servers]
        self._operation(Key(holders[0]), operation, item.get("parameters", []))
        for holder, server in zip(holders, servers, strict=True):
            self.tags[holder] = self.tags[holders[0]]
            whole |= {key._replace(holder=holder): fact for key, fact in self.facts.items()}
            whole_open |= {key._replace(holder=holder) for key in self.open}
            if "x-deprecated" in server:  # of several deprecations, that with the earliest sunset counts
                key, sunset = Key(holder, row="sunset"), str(server.get("x-sunset", ""))
                whole[key] = min(sunset, whole.get(key) or sunset)
        self.facts, self.open = whole, whole_open

    def _operation(self, about: Key, operation: Json, common: list[Json]) -> None:
        self.tags[about.holder] = next(iter(operation.get("tags", ())), "")
        schemes = self._document.get("components", {}).get("securitySchemes", {})
        ways: Any = operation.get("security", self._document.get("security", []))
        texts = {name: " ".join(str(value[key]) for key in SCHEME if key in value) for name, value in schemes.items()}
        needed = {" with ".join(sorted(f"{name} ({texts.get(name, '')})" for name in way)) for way in ways}
        scope = operation.get("x-required-scope")
        facts: Json = {
            "operation": True,
            "sunset": _sunset(operation),
            "operationId": operation.get("operationId"),
            "security": frozenset(needed) if needed and all(needed) else None,
            "x-required-scope": frozenset({scope, "admin"}) if scope else None,
            "x-ownership": frozenset(OWNERSHIPS[operation.get("x-ownership", "none")]),
        }
        self._note(about, facts)
        for parameter in map(self._resolve, [*common, *operation.get("parameters", ())]):
            part = f"{parameter['in']} parameter {parameter['name']}"
            self._parameter(about._replace(part=part), "parameter", parameter)
        self._body(about._replace(part="request body"), operation.get("requestBody", {}))
        for status, response in operation.get("responses", {}).items():
            response = self._resolve(response)
            for one in map(str, response.get("x-statuses", [status])):
                kind = "success status" if one.startswith("2") else "error status"
                self._note(about._replace(part=f"response {one}"), {kind: True})
            inner = about._replace(part=f"response {status}")
            self._content(inner, response)
            for name, header in response.get("headers", {}).items():
                self._parameter(inner._replace(part=f"{inner.part} header {name}"), "header", self._resolve(header))

    def _webhook(self, about: Key, webhook: Json) -> None:
        """A webhook: what the service sends, and the statuses by which the client accepts it."""
        self.tags[about.holder] = next(iter(webhook.get("tags", ())), "")
        self._note(about, {"webhook": True})
        for header in map(self._resolve, webhook.get("parameters", ())):
            self._parameter(about._replace(part=f"message header {header['name']}"), "header", header)
        self._body(about._replace(part="message"), webhook.get("requestBody", {}))
        for status in webhook.get("responses", {}):
            self._note(about._replace(part=f"answer {status}"), {"success status": status.startswith("2")})

    def _parameter(self, about: Key, row: str, parameter: Json) -> None:
        is_id, is_needed = about.part.startswith("path"), bool(parameter.get("required"))
        self._note(about, {row: True, "required": is_needed})
        self._schema(parameter.get("schema", {}), about, is_id=is_id, is_needed=is_needed)

    def _body(self, about: Key, body: Json) -> None:
        if body := self._resolve(body):
            self._note(about, {"body": True, "required": body.get("required")})
            self._content(about, body)

    def _content(self, about: Key, body: Json) -> None:
        for name, content in body.get("content", {}).items():
            inner = about._replace(part=f"{about.part} {name}")
            self._note(inner, {"media type": True})
            self._schema(content.get("schema", {}), inner)
            for parameter, schema in content.get("x-with", {}).items():
                self._schema(schema, inner._replace(name=f"|{parameter}"))

    def _resolve(self, component: Json) -> Json:
        """The component that a reference names; any other component as it is."""
        if "$ref" not in component:
            return component
        match = _REFERENCE.fullmatch(component["$ref"])
        resolved: Json | None = self._document.get("components", {}).get(match[1], {}).get(match[2]) if match else None
        if resolved is None:
            raise ValueError(f"{component['$ref']} is a reference to nothing")
        return self._resolve(resolved)

    def _schema(self, schema: Json | bool, about: Key, *, is_id: bool = False, is_needed: bool = False) -> None:
        """Note the facts of a schema. A value that `is_needed` is always sent, so that its default has no meaning."""
        plain, has_null = _without_null({} if schema is True else {"not": {}} if schema is False else schema)
        if "$ref" in plain:
            component = about._replace(component=plain["$ref"].rpartition("/")[2], name="")
            self._note(about, {"$ref": component.component})
            if component._replace(row="component") not in self.facts:
                self._note(component, {"component": True})
                self._schema(self._resolve({"$ref": plain["$ref"]}), component)
        facts = _restrictions(plain, has_null=has_null, is_id=is_id)
        self.open.update([about.whole] if plain.get("additionalProperties") is True else ())
        self._note(about, facts | {"default": None} if is_needed else facts)
        unseen, needed = "writeOnly" if about.in_response else "readOnly", plain.get("required", ())
        for name, member in {**dict.fromkeys(needed, {}), **plain.get("properties", {})}.items():
            keywords = member if isinstance(member, dict) else {}
            if not keywords.get(unseen):
                field = about._replace(name=f"{about.name}.{name}".lstrip("."))
                self._note(field, {"field": True, "required": name in needed, "sunset": _sunset(keywords)})
                self._schema(member, field, is_id=name == "id" and about.in_response, is_needed=name in needed)
        for keyword, end in (("items", "[]"), ("additionalProperties", "*")):
            if isinstance(inner := plain.get(keyword), dict):
                self._schema(inner, about._replace(name=f"{about.name}{end}"))
        for choice in (*plain.get("anyOf", ()), *plain.get("oneOf", ())):
            branch = about._replace(name=f"{about.name}|{choice.get('$ref', '').rpartition('/')[2] or _text(choice)}")
            self._note(branch, {"alternative": True})
            self._schema(choice, branch)


def _sunset(element: Json) -> str | None:
    """The sunset of a deprecated element."""
    return str(element.get("x-sunset", "")) if element.get("deprecated") else None


def _text(value: Any) -> str:
    """A value as JSON, in a form that equal values share."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _without_null(schema: Json) -> tuple[Json, bool]:
    """A schema without null among its alternatives, and whether it was one. A single other alternative replaces it."""
    keyword = "anyOf" if "anyOf" in schema else "oneOf"
    others = [choice for choice in schema.get(keyword, ()) if choice != NULL]
    rest = {key: value for key, value in schema.items() if key != keyword}
    if not others or len(others) == len(schema[keyword]):
        return schema, False
    if len(others) == 1 and all(key in SAID or key.startswith("x-") for key in rest):
        return others[0] | rest, True
    return rest | {keyword: others}, True


def _restrictions(schema: Json, *, has_null: bool, is_id: bool) -> Json:
    """The facts of the keywords that hold no schemas. Null is valid if it `has_null`."""
    named: Any = schema.get("type", ())
    values: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    types = {named} if isinstance(named, str) else {*named}
    is_choice = bool({"anyOf", "oneOf"} & schema.keys())
    is_nullable = not is_choice and "$ref" not in schema
    is_nullable = is_nullable and (not types or "null" in types) and (values is None or None in values)
    facts: Json = {
        "type": frozenset(types - {"null"} or types) | ({"integer"} if "number" in types else set()) or None,
        "enum": None if values is None else frozenset(_text(value) for value in values if value is not None),
        "never null": not is_nullable and not has_null,
        "choice": is_choice,
        "closed": schema.get("additionalProperties") is False,
    }
    for keyword, value in schema.items():
        if keyword in FLAGS:
            facts[keyword] = bool(value)
        elif keyword in ("x-search", "x-unique-with"):
            facts[keyword] = frozenset(value)
        elif keyword == "x-transitions":
            facts[keyword] = frozenset((_text(old), _text(new)) for old in value for new in value[old])
        elif keyword in ("x-scopes", "x-by-actions"):
            facts[keyword] = frozenset(map(" by ".join, value.items()))
        elif keyword == "then":
            is_any = isinstance(value, dict) and [*value] == ["anyOf"]
            facts[keyword] = frozenset(map(_text, value["anyOf"] if is_any else [value]))
        elif keyword == "format" and value in BITS:
            facts["bits"] = BITS[value]
        elif keyword == "pattern" and is_id:
            facts["pattern of an id"] = value
        elif keyword in BOUNDS or keyword in ("x-writable-by", "x-readable-by"):
            facts[keyword] = None if keyword in COUNTED and not value else value
        elif keyword not in READ and not keyword.startswith("x-"):
            facts[keyword] = _text(value)
    return facts
