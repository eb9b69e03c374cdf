"""What is deprecated, as requests meet it: headers of responses (RFC 9745, RFC 8594), and 410 for retired paths.

Of a version or a path these are all responses; of a field those that have it, which the schema shows, and lists that
are filtered or sorted by it. Neither what is stored nor what is sent is parsed again.

The OpenAPI document of a version marks it until the sunset; after that an operation is left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple

from flask import Request, Response
from werkzeug.routing import Map, Rule

from restkeeper.config import ConfigError
from restkeeper.feature import Seams
from restkeeper.features.versions.older import before_sunsets
from restkeeper.features.versions.problems import PathRetired
from restkeeper.resources.parameters import RESERVED
from restkeeper.resources.views import View
from restkeeper.schemas.fields import default_of
from restkeeper.schemas.item import READ_ONLY
from restkeeper.schemas.prepared import fields_of
from restkeeper.service import Service
from restkeeper.versions import Deprecation, http_date, prefix_of, seconds_of
from restkeeper.web.application import Application, Stage, address_of
from restkeeper.web.calls import shown_in
from restkeeper.web.observe import DEPRECATED
from restkeeper.web.operations import UNUSED, Contribution, JsonSchema
from restkeeper.web.pagination import LINK_BYTES

_ARGUMENT = re.compile(r"<(?:[^:<>]+:)?(\w+)>")
FEED = "/events"  # the route of the feed
_UNREAD = {401, 403, 429}  # statuses of requests that were refused before anything of them was used

ABOUT = (
    "Responses that something deprecated concerns have `Deprecation` (RFC 9745), `Sunset` (RFC 8594), the day on "
    "which it goes, and in `Link` pages about it and the path in the next version."
)


class Target(NamedTuple):
    """Where a request goes: the version, the rest of the path, and the route, which is the rule without the version.

    The route is empty if no rule matches.
    """

    version: str
    rest: str
    route: str


def with_deprecations(service: Service, seams: Seams) -> Seams:
    """The seams of the feature, and what the declared deprecations add."""
    deprecations = Deprecations(service.app, service)
    about = Contribution(UNUSED, about=ABOUT, hides=partial(is_retired, service), amend=partial(mark_document, service))
    return replace(
        seams,
        checking=(*seams.checking, (Stage.VERSION, deprecations.refuse_retired)),
        answered=(deprecations.mark,),
        describe=(*seams.describe, about),
        ready=(partial(require_known, service.app, service),),
    )


class Deprecations:
    """The deprecations of a service."""

    def __init__(self, app: Application, service: Service) -> None:
        self._app = app
        self._versions = service.versions
        self._clock = service.clock
        self._collections = {resource.name: resource.singular for resource in service.resources}
        self._names = {resource.public_name: resource.name for resource in service.resources}
        declared = service.versions.deprecations
        versions = {deprecation.version for deprecation in declared}
        self._by_version = {name: [one for one in declared if one.version == name] for name in versions}
        self._routes = {one.path: Map([Rule(one.path)]).bind("") for one in declared if one.path}

    def refuse_retired(self, request: Request) -> None:
        """Raises PathRetired for a path or method whose sunset is over."""
        if not (target := self._target(request)):
            return
        for deprecation in self._by_version.get(target.version, ()):
            is_at = deprecation.path and self._is_at(deprecation, request, target)
            if is_at and deprecation.is_over(self._clock.time()):
                raise PathRetired(f"{deprecation.part} {deprecation.retired}", sunset=str(deprecation.sunset))

    def mark(self, request: Request, response: Response) -> None:
        """Add the headers to a response that is concerned, and note the use for the log and the metrics."""
        if not (target := self._target(request)):
            return
        declared = self._by_version.get(target.version, [])
        if not request.path.startswith("/api/"):
            declared = [*self._by_version.get("", ()), *declared]
        if not (concerned := [one for one in declared if self._is_concerned(one, request, response, target)]):
            return
        headers = response.headers
        headers["Deprecation"] = f"@{seconds_of(min(deprecation.since for deprecation in concerned))}"
        headers["Sunset"] = http_date(min(deprecation.sunset for deprecation in concerned))
        for value in self._links(concerned, target):
            link = headers.get("Link", "")
            longer = f"{link}, {value}" if link else value
            if value not in link and len(longer) <= LINK_BYTES:  # else there is no room for it
                headers["Link"] = longer
        if response.status_code not in _UNREAD and request.method != "OPTIONS" and request.url_rule:
            request.environ[DEPRECATED] = concerned

    def _target(self, request: Request) -> Target | None:
        """Where a request goes, if it is in a version."""
        path, rule = request.path, request.url_rule.rule if request.url_rule else ""
        if path.startswith("/api/"):
            name = path.split("/")[2]
            prefix = prefix_of(name)
            rest, route = path.removeprefix(prefix) or "/", rule.removeprefix(prefix)
            return Target(name, rest, route) if name in self._versions else None
        return Target(self._versions.unversioned, path, rule) if path.split("/")[1] in self._names else None

    def _is_concerned(self, deprecation: Deprecation, request: Request, response: Response, target: Target) -> bool:
        """Whether a response is of a deprecated path or version, or has a deprecated field or used it.

        Without a selection of fields, all with items or events have it.
        """
        if deprecation.path:
            return self._is_at(deprecation, request, target)
        if not deprecation.field:
            return True
        has_items = response.status_code in (200, 201) and request.method != "OPTIONS"
        if not has_items or deprecation.is_over(self._clock.time()):
            return False
        if target.route == FEED:
            collections, types = _listed(request, "collection"), _listed(request, "type")
            kinds = {type.partition(".")[0] for type in types}
            is_listed = not collections or deprecation.collection in collections
            has_kind = not kinds or not kinds.isdisjoint({"*", self._collections[deprecation.collection]})
            return is_listed and has_kind and response.headers.get("Content-Length") != "2"  # of an empty page
        if deprecation.collection not in (shown_in(request) or (self._names.get(target.rest.split("/")[1]),)):
            return False
        named = {name.removeprefix("-") for name in _listed(request, "sort", "fields")}
        named |= {name.partition("[")[0] for name in request.args if name not in RESERVED}
        named = {segment for name in named for segment in name.split(".")}  # on a path, also to another collection
        return "fields" not in request.args or "embed" in request.args or deprecation.member in named

    def _is_at(self, deprecation: Deprecation, request: Request, target: Target) -> bool:
        """Whether a request is to a deprecated path. A path that is gone from the code has no route."""
        method = "GET" if request.method == "HEAD" else request.method
        if deprecation.method not in ("", method):
            return False
        if target.route:
            return target.route == deprecation.path
        return self._routes[deprecation.path].test(target.rest)

    def _links(self, concerned: Iterable[Deprecation], target: Target) -> Iterator[str]:
        """The pages about the deprecations, and the same path in the version that follows (RFC 5829)."""
        for link in dict.fromkeys(deprecation.link for deprecation in concerned if deprecation.link):
            yield f'<{link}>; rel="deprecation"; type="text/html"'
        if not (declared := self._versions[target.version].successor):
            return
        successor = self._versions.replacement_for(declared, self._clock.time())
        path = f"{prefix_of(successor)}{target.route or target.rest}"
        if successor != target.version and path in self._rules:  # its own if the others are retired
            yield f'<{address_of(prefix_of(successor) + target.rest)}>; rel="successor-version"'

    @cached_property
    def _rules(self) -> set[str]:
        return {rule.rule for rule in self._app.url_map.iter_rules()}


def _listed(request: Request, *parameters: str) -> set[str]:
    """The values of parameters of a query that are separated by commas."""
    return {value for name in parameters for text in request.args.getlist(name) for value in text.split(",")}


def require_known(app: Application, service: Service) -> None:
    """Raises ConfigError for a declaration that cannot work.

    What does not exist can be declared after its sunset: requests that use it are told of that.
    """
    now, served = service.clock.time(), {version.name for version in service.served}
    routes = {(rule.rule, method) for rule in app.url_map.iter_rules() for method in rule.methods or ()}
    for deprecation in service.versions.deprecations:
        if deprecation.version not in served:
            continue
        stored = service.stored.values() if deprecation.field else ()
        views = {one.name: before_sunsets(service.versions, one, deprecation.version) for one in stored}
        fault = "" if deprecation.is_over(now) else _missing(deprecation, views, routes)
        one = None if fault else views.get(deprecation.collection)
        if one and (field := fields_of(one.schema()).get(deprecation.member)):
            unique = set(map(one.name_of, service.stored[one.name].resource.unique))
            if field.required and not field.dump_only:
                fault = "the field is required: give it a load_default, as it will not be sent any more"
            elif default_of(field) is not None and deprecation.member in unique:
                fault = "the field is unique and has a default: make that null, as all new items will have it"
        if fault:
            raise ConfigError(f"versions: Deprecation of {deprecation.name}: {fault}")


def _missing(deprecation: Deprecation, views: Mapping[str, View], routes: Iterable[tuple[str, str]]) -> str:
    """Why a declaration names no path, method, collection or field that exists, and which exist; empty if it does."""
    if deprecation.path:
        prefix = prefix_of(deprecation.version)
        here = {(rule.removeprefix(prefix), method) for rule, method in routes if rule.startswith(f"{prefix}/")}
        if deprecation.path not in (paths := sorted({path for path, _ in here})):
            return f"there is no path {deprecation.path!r}; there are: {', '.join(paths)}"
        methods = sorted(method for path, method in here if path == deprecation.path)
        if deprecation.method not in ("", *methods):
            return f"the path has no method {deprecation.method!r}; there are: {', '.join(methods)}"
    if deprecation.field:
        if not (one := views.get(deprecation.collection)):
            return f"there is no collection {deprecation.collection!r}; there are: {', '.join(views)}"
        names = [name for name in one.names if name not in READ_ONLY]
        if deprecation.member not in names:
            return f"there is no field {deprecation.member!r} that can go; there are: {', '.join(names) or 'none'}"
    return ""


def is_retired(service: Service, version: str, path: str, method: str) -> bool:
    """Whether an operation of a version's document is gone."""
    now, is_unversioned = service.clock.time(), version == service.versions.unversioned
    collections = {resource.name for resource in service.resources if is_unversioned}
    over = [deprecation for deprecation in service.versions.deprecations if deprecation.is_over(now)]
    return any(_is_of(deprecation, version, path, method, collections) for deprecation in over)


def mark_document(service: Service, document: JsonSchema, version: str) -> None:
    """Mark in a version's document what is deprecated."""
    kinds = {resource.name: resource.kind for resource in service.resources}
    prefix, servers = prefix_of(version), document["servers"]
    for deprecation in service.versions.deprecations:
        if deprecation.version == version and deprecation.collection in kinds:
            _mark_field(document, deprecation, kinds[deprecation.collection])  # after its sunset, no form has it
        for path, item in document["paths"].items():
            path = prefix + path if item.get("servers", servers)[0]["url"].endswith(prefix) else path
            for method, operation in item.items():
                if isinstance(operation, dict) and _is_of(deprecation, version, path, method, set()):
                    _mark(operation, deprecation)
        for server in servers[1:] if not deprecation.version else ():  # the unversioned paths
            server |= {"x-deprecated": True, **_marks(deprecation)}


def _mark(target: JsonSchema, deprecation: Deprecation) -> None:
    """Mark a part; of several deprecations, that with the earliest sunset is there."""
    if str(deprecation.sunset) < target.get("x-sunset", "9999"):
        target |= {"deprecated": True, **_marks(deprecation)}


def _marks(deprecation: Deprecation) -> JsonSchema:
    names = {name: f"x-deprecated-{name}" for name in deprecation.about} | {"sunset": "x-sunset"}
    return {names[name]: text for name, text in deprecation.about.items()}


def _mark_field(document: JsonSchema, deprecation: Deprecation, kind: str) -> None:
    """Mark a field in the schemas of items, and in filters."""
    schemas = document["components"]["schemas"]
    for end in ("", "Input", "Patch"):
        if schema := schemas.get(f"{kind}{end}", {}).get("properties", {}).get(deprecation.member):
            _mark(schema, deprecation)
    filters = re.compile(rf"{re.escape(deprecation.member)}([.\[]|$)")  # parameters of the list; others are references
    for operation in (item["get"] for item in document["paths"].values() if "get" in item):
        is_list = operation["operationId"].startswith("list_") and deprecation.collection in operation["tags"]
        for parameter in operation["parameters"] if is_list else ():
            if filters.match(parameter.get("name", "")):
                _mark(parameter, deprecation)


def _is_of(deprecation: Deprecation, version: str, path: str, method: str, unversioned: set[str]) -> bool:
    """Whether an operation is of a deprecated path or version, or of the `unversioned` paths, if these are."""
    if deprecation.field or deprecation.version not in (version, "") or deprecation.method.lower() not in ("", method):
        return False
    prefix, template = prefix_of(version), _ARGUMENT.sub(r"{\1}", deprecation.path)
    if path.startswith(f"{prefix}/"):
        return bool(deprecation.version) and template in ("", path.removeprefix(prefix))
    return path.split("/")[1] in unversioned and template in ("", path)
