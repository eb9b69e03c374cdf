"""Deprecations in the OpenAPI document of a version: marks until the sunset; after it an operation is left out."""

import re

from restkeeper.service import Service
from restkeeper.versions import Deprecation, Versions, prefix_of
from restkeeper.web.operations import JsonSchema

_ARGUMENT = re.compile(r"<(?:[^:<>]+:)?(\w+)>")
_LATEST = "9999"  # no sunset is later

ABOUT = (
    "Responses that something deprecated concerns have `Deprecation` (RFC 9745), `Sunset` (RFC 8594), the day on "
    "which it goes, and in `Link` pages about it and the path in the next version."
)


def is_retired(service: Service, version: str, path: str, method: str) -> bool:
    """Whether an operation of a version's document is gone."""
    now, collections = service.clock.time(), _unversioned(service, version)
    over = [each for each in service.versions.deprecations if each.is_over(now)]
    return any(_is_of(each, version, path, method, collections) for each in over)


def mark_document(service: Service, document: JsonSchema, version: str) -> None:
    """Mark in a version's document what is deprecated."""
    _mark_names_of_versions(document, service.versions)
    kinds, collections = {each.name: each.kind for each in service.resources}, _unversioned(service, version)
    for each in service.versions.deprecations:
        if each.version == version and each.collection in kinds:
            _mark_field(document["components"], each, kinds[each.collection])  # after its sunset, no form has it
        for path, methods in document["paths"].items():
            for method, part in methods.items():
                if isinstance(part, dict) and _is_of(each, version, path, method, collections):
                    _mark(part, each)


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


def _unversioned(service: Service, version: str) -> set[str]:
    """The collections that are also at paths without a version, if these are of this one."""
    return {each.name for each in service.resources} if version == service.versions.unversioned else set()


def _is_of(each: Deprecation, version: str, path: str, method: str, unversioned: set[str]) -> bool:
    """Whether an operation is of a deprecated path or version, or of the `unversioned` paths, if these are."""
    if each.field or each.version not in (version, "") or each.method.lower() not in ("", method):
        return False
    prefix, own = prefix_of(version), _ARGUMENT.sub(r"{\1}", each.path)
    if path.startswith(f"{prefix}/"):
        return bool(each.version) and own in ("", path.removeprefix(prefix))
    return path.split("/")[1] in unversioned and own in ("", path)
