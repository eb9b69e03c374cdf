"""The API as OpenAPI 3.1: the registered routes, with the declarations of their handlers."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from inspect import getdoc
from itertools import chain, groupby
from operator import attrgetter
from typing import Any
from urllib.parse import quote

from flask import Flask
from marshmallow import Schema

from restkeeper import exactjson
from restkeeper.clock import in_turns
from restkeeper.errors import NotFound, PreconditionRequired, Problem
from restkeeper.feature import ServerPart
from restkeeper.features.openapi import components
from restkeeper.features.openapi.spec import Spec, bounded
from restkeeper.resources.call import KNOWN, PUBLIC
from restkeeper.resources.declaration import Ownership
from restkeeper.resources.resource import Resource
from restkeeper.service import Service
from restkeeper.versions import prefix_of
from restkeeper.web.auth import OWN, PROBE, needed_by
from restkeeper.web.errors import PAGES, PROBLEM_JSON
from restkeeper.web.operations import EVERY_PROBLEM, JsonSchema, Parameter, Result, SchemaOf, operation_of

_ARGUMENT = re.compile(r"<(?:(\w+)(?:\((.*?)\))?:)?(\w+)>")
_PART = re.compile(rf"{_ARGUMENT.pattern}|[^<]+")
_CONVERTER = {"int": "integer", "float": "number", "min": "minimum", "max": "maximum"}  # of Flask's
_ORDER = attrgetter("status", "name")  # of problems
_REFERENCE = re.compile(r'"#/components/(\w+)/([^"]+)"')


def check(service: Service) -> None:
    """Raises ValueError for a declaration that no document can have."""
    for version in service.served:
        document(service.app, service, version.name)


SERVER = ServerPart(check=check)


def document(app: Flask, service: Service, version: str, mount: str = "") -> JsonSchema:
    """The OpenAPI 3.1 document of a version, whose application is below the path `mount`.

    Each operation is there once: its path is below the first of its servers, `/api/VERSION`, or below `/`, or both.
    A collection takes some milliseconds: other requests have their turns. Raises ValueError for a declared name that is
    no component's.
    """
    turns = partial(in_turns, clock=service.clock)
    routes = list(_routes(app, service, version))
    called = {resource.name: resource.public_name for resource in service.resources}
    servers = max((route.servers for route in routes if route.items), key=len, default=("",))
    urls = [_url(mount, server) for server in servers]
    spec = Spec(service.config, service.contributions, version, service.name, urls)
    spec.names |= called
    spec.tags = {f"_/{tag}" if tag in called.values() else tag: text for tag, text in spec.tags.items()}
    collections = {route.tag: route for route in routes if route.items}
    kinds = [route.items.resource.kind for route in collections.values()]
    spec.reserved |= {f"{kind}{suffix}" for kind in kinds for suffix in components.PARTS}
    for route in turns(collections.values()):
        components.add_collection(spec, route.items, getattr(route.handlers, "secret", None))
    for route in turns(collections.values()):
        components.add_relations(spec, route.items)
    for contribution in reversed(service.contributions):  # features that are built on others first
        contribution.build(spec)
    tags, texts = dict.fromkeys(route.tag for route in routes), spec.tags
    for tag in (*(tag for tag in tags if tag not in texts), *(tag for tag in texts if tag in tags)):
        spec.tag({"name": tag, "description": texts.get(tag, f"The {tag} that are stored.")})
    whole: JsonSchema = _Operations(spec).document(turns(routes), {route.words(route.name) for route in routes})
    for route in routes:
        if route.servers != servers:
            whole["paths"][route.path]["servers"] = [{"url": _url(mount, server)} for server in route.servers]
    for section, name in _REFERENCE.findall(exactjson.dumps(whole).decode()):
        if name not in (texts := whole["components"].get(section, {})):
            names = sorted({*texts, *getattr(spec.components, f"{section}_lazy", ())})
            raise ValueError(f"{name!r} is declared and is none of the {section}: {', '.join(names)}")
    sections = {name: section for name, section in whole.items() if name not in ("paths", "components")}
    for parts in (sections, whole["paths"], *whole["components"].values()):
        for name, section in turns([*parts.items()]):
            parts[name] = bounded(section, spec.longest, service.config)
    whole |= sections
    for contribution in service.contributions:
        contribution.amend(whole, version)
    return whole


def _path_of(rule: str) -> str:
    """The path template of a route."""
    return _PART.sub(lambda segment: f"{{{segment[3]}}}" if segment[3] else quote(segment[0], "/:@!$&'()*+,;=~"), rule)


def _url(mount: str, server: str) -> str:
    return mount.rstrip("/") + server or "/"


class _Route:
    """One method of a route, with its handlers. `kind` is the prefix of its collection's components.

    It is at its path below each of its `servers`: the prefix of a version, or nothing, or both.
    """

    def __init__(self, rule: str, servers: tuple[str, ...], method: str, view: Callable[..., Any], tag: str) -> None:
        self.path, self.servers, self.method = _path_of(rule), servers, method
        self.arguments: dict[str, JsonSchema] = {}
        for converter, options, name in _ARGUMENT.findall(rule):
            bounds = {_CONVERTER[bound]: int(value) for bound, value in re.findall(r"(min|max)=(\d+)", options)}
            self.arguments[name] = {"type": _CONVERTER.get(converter, "string"), **bounds}
        self.name, self.about = view.__name__, getdoc(view) or view.__name__
        self.needs = needed_by(view) or PUBLIC
        self.declared = operation_of(view)
        self.handlers = getattr(view, "__self__", None)
        self.items: Any = getattr(self.handlers, "items", None)
        self.parents: Any = getattr(self.handlers, "parents", None)
        self.resource: Resource | None = self.items.resource if self.items else None
        self.kind = self.resource.kind if self.resource else ""
        self.tag: str = self.resource.public_name if self.resource else getattr(self.handlers, "name", tag)

    def words(self, name: str) -> str:
        """The name of a handler, with the collection's name instead of "item"."""
        of = self.resource
        name = name.replace("parent", self.parents.resource.singular) if self.parents else name
        return name.replace("items", of.name).replace("item", of.singular) if of else name


def _routes(app: Flask, service: Service, version: str) -> Iterator[_Route]:
    """The operations of a version: its own, those of no version, and if it is that of the unversioned paths, theirs.

    They are without HEAD and OPTIONS, paths of several segments, later routes, and what a feature hides.
    """
    needs, own_tags = service.guard.needs, {tag for contribution in service.contributions for tag in contribution.tags}
    hides, prefix = [contribution.hides for contribution in service.contributions], prefix_of(version)
    operations: dict[tuple[str, str], dict[str, str]] = {}  # the endpoint at each server, by path and method
    rules, names = [*app.url_map.iter_rules()], {resource.public_name for resource in service.resources}
    elsewhere = {rule.endpoint for rule in rules if not rule.rule.startswith("/_/")}
    for rule in rules:
        server = prefix if rule.rule.startswith(f"{prefix}/") else ""
        of_items = hasattr(getattr(app.view_functions[rule.endpoint], "__self__", None), "items")
        is_other = not server and (
            rule.rule.startswith("/api/") or (of_items and version != service.versions.unversioned)
        )
        is_second = rule.rule.startswith("/_/") and rule.endpoint in elsewhere
        if is_other or is_second or "<path:" in rule.rule or (needs and rule.endpoint not in needs):
            continue
        path = _path_of(rule.rule)
        for method in sorted(method.lower() for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}):
            if not any(hide(version, path, method) for hide in hides):
                operations.setdefault((rule.rule.removeprefix(server), method), {})[server] = rule.endpoint
    for (path, method), endpoints in operations.items():
        views = {server: app.view_functions[endpoints[server]] for server in sorted(endpoints, reverse=True)}
        base, view = next(iter(views.items()))
        servers = tuple(server for server in views if views[server] == view)  # not the /openapi.json of another version
        tag = endpoints[base].partition(".")[0]  # of a blueprint of the service
        route = _Route(path, servers, method, view, tag if tag in own_tags else "service")
        if route.tag in names and route.resource not in service.resources:
            route.tag = f"_/{route.tag}"  # a collection has the tag
        yield route


class _Operations:
    """The operations of a document."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._always = {*EVERY_PROBLEM, *spec.added("problems", "")}
        self._unused: set[type[Problem]] = set() if spec.config.require_if_match else {PreconditionRequired}
        self._names: Counter[str] = Counter()
        self._ids: set[str] = set()

    def document(self, routes: Iterable[_Route], ids: set[str]) -> JsonSchema:
        """The document with the operations of `routes`, which have these `ids`."""
        self._ids = ids
        for route in routes:
            in_path: list[Any] = [self._in_path(name, route) for name in route.arguments]
            self._spec.path(route.path, operations={route.method: self._operation(route)}, parameters=in_path)
        return self._spec.to_dict()

    def _operation(self, route: _Route) -> JsonSchema:
        declared = route.declared
        responses = {str(result.status): self._response(result, route) for result in declared.responses}
        self._names[id := route.words(route.name)] += 1
        return {
            "operationId": id if self._names[id] == 1 else f"{id}_{self._names[id]}",
            "summary": route.words(route.name).replace("_", " ").capitalize(),
            "description": route.about + self._spec.operations.get(route.name, ""),
            "tags": [route.tag],
            "parameters": [*chain.from_iterable(self._parameters(name, route) for name in declared.parameters)],
            **self._body(route),
            "responses": responses | self._problems(route),
            **self._security(route),
        }

    def _body(self, route: _Route) -> JsonSchema:
        if not (body := route.declared.body):
            return {}
        media = {"schema": self._spec.sent(body.schema, route.kind)}
        return {"requestBody": {"required": True, "content": {media_type: media for media_type in body.media_types}}}

    def _scope(self, route: _Route) -> str:
        """The scope that an operation requires, or nothing."""
        if route.needs in (PUBLIC, PROBE, OWN, KNOWN) or not self._spec.added("security", ""):
            return ""
        if route.needs not in ("read", "write"):
            return route.needs
        return route.resource.scope(route.needs) if route.resource else f"{route.tag}:{route.needs}"

    def _security(self, route: _Route) -> JsonSchema:
        security: JsonSchema = {}
        if route.needs in (PUBLIC, PROBE):
            security["security"] = [{}]
        elif route.needs == OWN:
            security["security"] = self._spec.ways(OWN)
        if scope := self._scope(route):  # for the contract check, as the next one
            security["x-required-scope"] = scope
        if route.resource and route.resource.ownership is not Ownership.NONE:
            security["x-ownership"] = route.resource.ownership.name.lower()
        return security

    def _parameters(self, declared: str | Parameter | Schema, route: _Route) -> list[Any]:
        """The names of components, or the parameters of this operation, for a declaration."""
        if isinstance(declared, Schema):
            return self._spec.query(declared)
        if isinstance(declared, str):
            name = declared.format(route.kind)
            return self._spec.groups.get(name, [name])
        if declared.name in route.arguments:
            return []
        return [components.parameter(declared.name, declared.schema(route.handlers), declared.about)]

    def _in_path(self, name: str, route: _Route) -> Any:
        if name == "id" and route.kind:
            return f"{(route.parents or route.items).resource.kind}Id"
        parameters = {one.name: one for one in route.declared.parameters if isinstance(one, Parameter)}
        schema, about = route.arguments[name], ""
        if name in parameters:
            schema, about = parameters[name].schema(route.handlers), parameters[name].about
        return components.parameter(name, schema, about, location="path")

    def _response(self, declared: Result, route: _Route) -> JsonSchema | str:
        content = {of: self._media(schema, route, declared.at_most) for of, schema in declared.content.items()}
        with_parameter = {
            name: self._spec.schema(schema, route.kind)
            for name, schema in declared.with_parameter.items()
            if self._spec.groups.get(f"{route.kind}{name.capitalize()}") != []  # else they do not have the parameter
        }
        for media in content.values() if with_parameter else ():
            media["x-with"] = with_parameter
        also = {"x-content": {of: {"schema": schema} for of, schema in declared.also.items()}} if declared.also else {}
        ids = {route.words(to): parameters for to, parameters in declared.links.items()}
        links = {id: {"operationId": id, "parameters": ids[id]} for id in ids if id in self._ids}
        name = declared.name.format(route.kind)
        headers = [*declared.headers, *self._spec.added("headers", *route.declared.parameters)]
        return self._add_response(name, declared.about, headers, content=content, links=links, **also)

    def _problems(self, route: _Route) -> JsonSchema:
        """A response for each status of the possible problems, and one for those that every operation has."""
        declared, added = route.declared, self._spec.added("problems", *route.declared.parameters)
        possible: set[type[Problem]] = {*self._always, *declared.problems, *added} - self._unused
        if any(schema["type"] != "string" for schema in route.arguments.values()):
            possible.add(NotFound)
        responses: JsonSchema = {}
        for status, same in groupby(sorted(possible, key=_ORDER), key=attrgetter("status")):
            if not self._always.issuperset(kinds := list(same)):
                responses[str(status)] = self._problem("Or".join(kind.__name__ for kind in kinds), kinds)
        kinds = sorted(self._always, key=_ORDER)
        statuses = list(dict.fromkeys(kind.status for kind in kinds))
        return responses | {"default": self._problem("common", kinds, **{"x-statuses": statuses})}

    def _problem(self, name: str, kinds: Sequence[type[Problem]], **more: Any) -> str:
        """The name of the response with one of these problems."""
        if name in self._spec.components.responses:
            return name
        examples, headers = {}, list[str]()
        for kind in kinds:
            value = {"type": f"{PAGES}{kind.name}", "code": kind.name, "title": kind.title}
            examples[kind.name] = {"value": value | {"status": kind.status, "message": kind.title}}
            headers += self._spec.common["response_headers"].get(str(kind.status), ())
        about = " ".join(f"{kind.title} ({kind.status}, `{kind.name}`)." for kind in kinds)
        content = {PROBLEM_JSON: {"schema": self._spec.schema("Problem"), "examples": examples}}
        self._add_response(name, about, headers, content=content, **more)
        return name

    def _add_response(self, name: str, about: str, headers: Iterable[str], **parts: Any) -> JsonSchema | str:
        """A response, or if it has a name that of its component: apispec makes references of names."""
        parts["headers"] = {header: header for header in headers}
        response = {"description": about, **{key: value for key, value in parts.items() if value}}
        if name and name not in self._spec.components.responses:
            self._spec.components.response(name, response)
        return name or response

    def _media(self, schema: SchemaOf, route: _Route, at_most: int | None = None) -> JsonSchema:
        """The media type object of a body: a schema or a list of it."""
        json_schema = self._spec.schema(schema, route.kind)
        if at_most is None:
            return {"schema": json_schema}
        most = route.items.page_limit_max if route.items else self._spec.config.page_limit_max
        return {"schema": {"type": "array", "items": json_schema, "maxItems": max(most, at_most)}}
