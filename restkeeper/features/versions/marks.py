"""Deprecations in the OpenAPI document of a version: marks until the sunset, and after it the part is gone."""

import re
from collections.abc import Iterator

from restkeeper.service import Service
from restkeeper.versions import Deprecation, Versions, prefix_of
from restkeeper.web import exactjson
from restkeeper.web.operations import JsonSchema

_ARGUMENT = re.compile(r"<(?:[^:<>]+:)?(\w+)>")
_REFERENCE = re.compile(r'"#/components/(\w+)/([^"]+)"')
_LATEST = "9999"  # no sunset is later

ABOUT = (
    "Responses that something deprecated concerns have `Deprecation` (RFC 9745), `Sunset` (RFC 8594), the day on "
    "which it goes, and in `Link` pages about it and the path in the next version."
)


def mark_document(service: Service, document: JsonSchema, version: str) -> None:
    """Mark in a version's document what is deprecated, and remove what is retired."""
    _mark_names_of_versions(document, service.versions)
    is_pinned = version == service.versions.unversioned
    kinds = {each.name: each.kind for each in service.resources}
    is_shorter = False
    for each in service.versions.deprecations:
        if each.version != version and (each.version or not is_pinned):
            continue
        if each.collection in kinds:
            _mark_field(document["components"], each, kinds[each.collection])  # after its sunset, no form has it
        if each.field:
            continue
        for path, method in list(_operations(document["paths"], each, version, set(kinds) if is_pinned else set())):
            if each.is_over(service.clock.time()):
                _remove(document, path, method)
                is_shorter = True
            else:
                _mark(document["paths"][path][method], each)
    if is_shorter:
        _prune(document)


def _mark_names_of_versions(document: JsonSchema, versions: Versions) -> None:
    """Mark the names of deprecated versions where webhooks choose one."""
    for schema in document["components"]["schemas"].values():
        part = schema.get("properties", {}).get("api_version", {})
        for name in part.get("enum", ()):
            if name and (deprecation := versions.deprecation_of(name)):
                _mark_name(part, name, deprecation)


def _mark(part: JsonSchema, deprecation: Deprecation) -> None:
    """Mark a part; of several deprecations, that with the earliest sunset is there."""
    if str(deprecation.sunset) < part.get("x-sunset", _LATEST):
        names = {name: f"x-deprecated-{name}" for name in deprecation.about} | {"sunset": "x-sunset"}
        part |= {"deprecated": True, **{names[name]: text for name, text in deprecation.about.items()}}


def _mark_name(part: JsonSchema, name: str, deprecation: Deprecation) -> None:
    """Mark a name of an enumeration."""
    part.setdefault("x-deprecated-values", {})[name] = deprecation.about


def _mark_field(components: JsonSchema, each: Deprecation, kind: str) -> None:
    """Mark a field in the schemas of items, in filters, and among the names to select and to sort by."""
    schemas = components["schemas"]
    for end in ("", "Part", "Input", "Patch"):
        if part := schemas.get(f"{kind}{end}", {}).get("properties", {}).get(each.member):
            _mark(part, each)
    for name, part in components.get("parameters", {}).items():
        if name.startswith(f"{kind}.{each.member}."):
            _mark(part, each)
    for end in ("Field", "SortKey"):
        part = schemas.get(f"{kind}{end}", {})
        for name in (each.member, f"-{each.member}"):
            if name in part.get("enum", ()):
                _mark_name(part, name, each)


def _operations(paths: JsonSchema, each: Deprecation, version: str, unversioned: set[str]) -> Iterator[tuple[str, str]]:
    """The operations of a deprecated path, of a version, or of the `unversioned` paths, which are of collections."""
    prefix, path = prefix_of(version), _ARGUMENT.sub(r"{\1}", each.path)
    for known, methods in paths.items():
        is_named = known.startswith(f"{prefix}/")
        is_concerned = (is_named and each.version) or known.split("/")[1] in unversioned
        if is_concerned and path in ("", known.removeprefix(prefix) if is_named else known):
            for method, part in methods.items():
                if isinstance(part, dict) and each.method.lower() in ("", method):
                    yield known, method


def _remove(document: JsonSchema, path: str, method: str) -> None:
    """Remove an operation, and the links to it."""
    paths = document["paths"]
    id = paths[path].pop(method)["operationId"]
    if not any(isinstance(part, dict) for part in paths[path].values()):
        del paths[path]
    operations = [part for methods in paths.values() for part in methods.values() if isinstance(part, dict)]
    responses = list(document["components"].get("responses", {}).values())
    responses += [response for part in operations for response in part.get("responses", {}).values()]
    for response in responses:
        if links := response.get("links"):
            response["links"] = {name: link for name, link in links.items() if link["operationId"] != id}


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
