"""Deprecations in the OpenAPI document of a version: marks until the sunset, and after it the part is gone."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from restkeeper.features.versions.sunset import names_of
from restkeeper.service import Service
from restkeeper.versions import Deprecation, Versions, prefix_of
from restkeeper.web import exactjson
from restkeeper.web.operation import JsonSchema

_ARGUMENT = re.compile(r"<(?:[^:<>]+:)?(\w+)>")
_REFERENCE = re.compile(r'"#/components/(\w+)/([^"]+)"')
_PARAMETER = "#/components/parameters/"
_LATEST = "9999"  # no sunset is later
_RETURNED, _SENT = ("", "Part"), ("Input", "Patch")  # ends of the names of a collection's schemas

ABOUT = (
    "Responses that something deprecated concerns have `Deprecation` (RFC 9745), `Sunset` (RFC 8594), the day on "
    "which it goes, and in `Link` pages about it and the path in the next version."
)


def mark_document(service: Service, document: JsonSchema, version: str) -> None:
    """Mark in a version's document what is deprecated, and remove what is retired."""
    own = ("", version) if version == service.versions.unversioned else (version,)
    _mark_names(document, service.versions)
    if not (declared := [each for each in service.versions.deprecations if each.version in own]):
        return
    marker, now = _Marker(service, document, version), service.clock.time()
    for each in declared:
        marker.apply(each, is_over=each.is_over(now))
    _prune(document)


def _mark_names(document: JsonSchema, versions: Versions) -> None:
    """Mark the names of deprecated versions where webhooks choose one."""
    for schema in document["components"]["schemas"].values():
        part = schema.get("properties", {}).get("api_version", {})
        for name in part.get("enum", ()):
            if name and (deprecation := versions.deprecation_of(name)):
                _mark_value(part, name, deprecation)


def marks_of(deprecation: Deprecation) -> JsonSchema:
    """What the document says of a deprecated part."""
    details = {"reason": deprecation.reason, "link": deprecation.link}
    return {
        "deprecated": True,
        "x-deprecated-since": str(deprecation.since),
        "x-sunset": str(deprecation.sunset),
        **{f"x-deprecated-{name}": text for name, text in details.items() if text},
    }


def _mark(part: JsonSchema, deprecation: Deprecation) -> None:
    """Mark a part; of several deprecations, that with the earliest sunset is there."""
    if str(deprecation.sunset) < part.get("x-sunset", _LATEST):
        part |= marks_of(deprecation)


def _mark_value(part: JsonSchema, value: str, deprecation: Deprecation) -> None:
    """Mark a value of an enumeration, or of the elements of an array."""
    dates = {"since": str(deprecation.since), "sunset": str(deprecation.sunset)}
    details = {"reason": deprecation.reason, "link": deprecation.link}
    known = (part.get("items") or part).setdefault("x-deprecated-values", {})
    known[value] = dates | {name: text for name, text in details.items() if text}


class _Marker:
    def __init__(self, service: Service, document: JsonSchema, version: str) -> None:
        self._paths: dict[str, Any] = document["paths"]
        self._parts: dict[str, Any] = document["components"]
        self._kinds = {each.name: each.kind for each in service.resources}
        self._named = prefix_of(version)
        self._is_pinned = version == service.versions.unversioned

    def apply(self, each: Deprecation, *, is_over: bool) -> None:
        """Mark what is deprecated, or remove it if its sunset is over."""
        if each.parameter:
            self._apply_to_parameter(each, is_over)
        elif each.value:
            self._apply_to_value(each, is_over)
        elif each.field:
            self._mark_field(each)  # after its sunset, no form has it
        else:
            for path, method in list(self._operations(each)):
                if is_over:
                    self._remove(path, method)
                else:
                    _mark(self._paths[path][method], each)

    def _operations(self, each: Deprecation) -> Iterator[tuple[str, str]]:
        """The operations of a deprecated path, version, or of the unversioned paths."""
        path = _ARGUMENT.sub(r"{\1}", each.path)
        for known, methods in self._paths.items():
            is_named = known.startswith(f"{self._named}/")
            is_unversioned = self._is_pinned and known.split("/")[1] in self._kinds
            rest = known.removeprefix(self._named) if is_named else known
            if (is_named and each.version) or is_unversioned:
                if path in ("", rest):
                    yield from (
                        (known, method)
                        for method, part in methods.items()
                        if isinstance(part, dict) and each.method.lower() in ("", method)
                    )

    def _remove(self, path: str, method: str) -> None:
        """Remove an operation, and the links to it."""
        methods = self._paths[path]
        id = methods.pop(method)["operationId"]
        if not any(isinstance(part, dict) for part in methods.values()):
            del self._paths[path]
        responses = [*self._parts.get("responses", {}).values(), *_responses_of(self._paths)]
        for response in responses:
            if links := response.get("links"):
                response["links"] = {name: link for name, link in links.items() if link["operationId"] != id}

    def _mark_field(self, each: Deprecation) -> None:
        kind = self._kinds.get(each.collection, "")
        for part in self._properties(each, (*_RETURNED, *_SENT)):
            _mark(part, each)
        for name, part in self._parts.get("parameters", {}).items():
            if name.startswith(f"{kind}.{each.member}."):
                _mark(part, each)
        for end in ("Field", "SortKey"):
            self._mark_names(each, end)

    def _mark_names(self, each: Deprecation, end: str) -> None:
        """Mark the name of a field among those to select, or to sort by."""
        part = self._parts["schemas"].get(f"{self._kinds.get(each.collection, '')}{end}", {})
        for name in (each.member, f"-{each.member}"):
            if name in part.get("enum", ()):
                _mark_value(part, name, each)

    def _apply_to_value(self, each: Deprecation, is_over: bool) -> None:
        """A value that is gone is not sent any more; an item that was stored with it has it still."""
        for part in self._properties(each, _SENT if is_over else (*_RETURNED, *_SENT)):
            if not is_over:
                _mark_value(part, each.value, each)
                continue
            listed = part.get("items") or part
            listed["enum"] = [value for value in listed.get("enum", ()) if value != each.value]

    def _properties(self, each: Deprecation, ends: Iterable[str]) -> Iterator[JsonSchema]:
        """A field in the schemas of its collection."""
        kind, schemas = self._kinds.get(each.collection), self._parts["schemas"]
        for end in ends:
            if part := schemas.get(f"{kind}{end}", {}).get("properties", {}).get(each.member):
                yield part

    def _apply_to_parameter(self, each: Deprecation, is_over: bool) -> None:
        """Mark or remove a parameter of the operations that have it; other collections may share its component."""
        if not is_over:
            self._mark_names(each, "SortKey")
        name = f"/{each.collection}"
        for path in (f"{prefix}{end}" for prefix in self._prefixes() for end in (name, f"{name}/{{id}}")):
            for part in self._paths.get(path, {}).values():
                if isinstance(part, dict) and "parameters" in part:
                    part["parameters"] = list(self._changed(part["parameters"], each, is_over))

    def _prefixes(self) -> tuple[str, ...]:
        return (self._named, "") if self._is_pinned else (self._named,)

    def _changed(self, listed: Iterable[JsonSchema], each: Deprecation, is_over: bool) -> Iterator[JsonSchema]:
        for one in listed:
            component = one.get("$ref", "").removeprefix(_PARAMETER)
            part = self._parts["parameters"].get(component, one)
            if part.get("name") not in names_of(each) or part.get("in") != "query":
                yield one
            elif not is_over:
                yield {**part, **marks_of(each)}


def _responses_of(paths: JsonSchema) -> Iterator[JsonSchema]:
    for methods in paths.values():
        for part in methods.values():
            if isinstance(part, dict):
                yield from part.get("responses", {}).values()


def _prune(document: JsonSchema) -> None:
    """Remove the components that nothing refers to any more."""
    parts = {section: part for section, part in document["components"].items() if section != "securitySchemes"}
    while True:
        used = set(_REFERENCE.findall(exactjson.dumps(document).decode()))
        unused = [(section, name) for section, part in parts.items() for name in part if (section, name) not in used]
        if not unused:
            return
        for section, name in unused:
            del parts[section][name]
