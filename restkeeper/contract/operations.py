"""The comparison of two documents: operations, parameters, bodies, responses, headers, security, webhooks."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from restkeeper.contract.findings import (
    CHANGED,
    DEPRECATE,
    HARMLESS,
    NARROWED,
    NEW_VERSION,
    OPTIONAL,
    UNCLEAR,
    WIDENED,
    Change,
    Direction,
    Effect,
    Json,
    Place,
    Severity,
)
from restkeeper.contract.keywords import stability, types_of
from restkeeper.contract.schemas import Components, SchemaComparison, Spot
from restkeeper.contract.windows import ENDPOINT, PARAMETER, PATH, WEBHOOK, Calendar, Rules, Step, marks, removal

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
IN_PATH = re.compile(r"\{[^{}]*\}")
STYLE = ("style", "explode", "allowReserved")
STYLES = {"query": "form", "path": "simple", "header": "simple", "cookie": "form"}  # where none is given
SUCCESS = re.compile(r"2(\d\d|XX)")

Seen = tuple[Place, Change]


class Operation(NamedTuple):
    """An operation with the item of its path, and what it is called in findings."""

    method: str
    path: str
    item: Json
    own: Json
    is_webhook: bool = False

    def place(self, part: str = "") -> Place:
        """A part of this operation."""
        return Place("webhook" if self.is_webhook else self.method.upper(), self.path, part)

    @property
    def named(self) -> tuple[str, str]:
        """What it is in findings, and its name."""
        return ("webhook", self.path) if self.is_webhook else ("operation", str(self.place()))


class Comparison:
    """The comparison of an accepted document with the present one."""

    def __init__(self, before: Json, after: Json, calendar: Calendar) -> None:
        self._before, self._after, self._calendar = before, after, calendar
        self._schemas = SchemaComparison(before, after, calendar)

    def seen(self) -> Iterator[Seen]:
        """All changes, each with its place."""
        yield from self._operations()
        yield from self._webhooks()
        yield from self._components()

    # Operations

    def _operations(self) -> Iterator[Seen]:
        was, now = _operations(self._before, "paths"), _operations(self._after, "paths")
        paths = {path for path, _ in now}
        for key in sorted({*was, *now}):
            if key not in now:
                yield self._gone(was[key], ENDPOINT if key[0] in paths else PATH)
            elif key not in was:
                yield now[key].place(), _of("endpoint-added", HARMLESS, "added", *now[key].named)
            else:
                yield from self._operation(was[key], now[key], ENDPOINT)
        yield from self._security(None, None)

    def _gone(self, operation: Operation, rules: Rules) -> Seen:
        step = removal(operation.own, rules, self._calendar)
        if operation.is_webhook and step.remedy == DEPRECATE:  # which has no declaration for it
            step = step._replace(remedy=NEW_VERSION)
        return operation.place(), _step(step, *operation.named)

    def _operation(self, was: Operation, now: Operation, rules: Rules) -> Iterator[Seen]:
        for step in marks(was.own, now.own, rules, self._calendar):
            yield was.place(), _step(step, *was.named)
        for said in stability(was.own, now.own, "api"):
            yield was.place(), _of(said.id, said.effect, said.what, *was.named)
        if was.is_webhook:
            yield from self._sent(was, now)
        else:
            yield from self._names(was, now)
            yield from self._security(was, now)
            yield from self._parameters(was, now)
            yield from self._request_body(was, now)
            yield from self._responses(was, now)

    def _names(self, was: Operation, now: Operation) -> Iterator[Seen]:
        one, other = was.own.get("operationId"), now.own.get("operationId")
        if one and one != other:
            what = f"operationId changed from {one} to {other}" if other else f"operationId {one} was removed"
            yield was.place(), _of("api-operation-id-removed", CHANGED, what, *was.named)
        elif other and not one:
            yield was.place(), _of("api-operation-id-added", HARMLESS, f"operationId {other} was added", *was.named)
        for tag in sorted({*was.own.get("tags", ())} ^ {*now.own.get("tags", ())}):
            word = "added" if tag in now.own.get("tags", ()) else "removed"
            yield was.place(), _of(f"api-tag-{word}", HARMLESS, f"the tag {tag} was {word}", *was.named)

    # Parameters

    def _parameters(self, was: Operation, now: Operation) -> Iterator[Seen]:
        one, other = self._parameters_of(was, self._schemas.before), self._parameters_of(now, self._schemas.after)
        common = {_key(self._schemas.after.resolve(each)[1], now) for each in now.item.get("parameters", ())}
        for key in sorted({*one, *other}):
            place = was.place(f"{key[0]} parameter")
            if key not in other:
                step = removal(one[key], PARAMETER, self._calendar)
                yield place, _step(step, "parameter", one[key]["name"])
            elif key not in one:
                yield place, _new_parameter(other[key], is_common=key in common)
            else:
                for change in self._parameter(one[key], other[key]):
                    yield place, change

    def _parameters_of(self, operation: Operation, components: Components) -> dict[tuple[str, str], Json]:
        both = (*operation.item.get("parameters", ()), *operation.own.get("parameters", ()))
        return {_key(each, operation): each for _, each in map(components.resolve, both)}

    def _parameter(self, one: Json, other: Json) -> Iterator[Change]:
        name = other["name"]
        at = Spot(Direction.REQUEST, "request-parameter", "parameter", name, fixed=bool(one.get("required")))
        was, now = bool(one.get("required")), bool(other.get("required"))
        if now and not was:
            yield at.change("request-parameter-became-required", NARROWED, "required now", OPTIONAL)
        elif was and not now:
            yield at.change("request-parameter-became-optional", WIDENED, "no longer required")
        for keyword in STYLE:
            before, after = (_style(each, keyword) for each in (one, other))
            if before != after:
                yield at.change(
                    "request-parameter-style-changed", CHANGED, f"{keyword} changed from {before} to {after}"
                )
        yield from map(at.step, marks(one, other, PARAMETER, self._calendar))
        before, after = _schema_of(one), _schema_of(other)
        if other["in"] == "header" and types_of(self._schemas.after.plain(after)[1]) == {"object"}:
            at = at._replace(prefix="request-header")
        yield from self._schemas.changes(before, after, at)

    # Bodies

    def _request_body(self, was: Operation, now: Operation) -> Iterator[Seen]:
        _, one = self._schemas.before.resolve(was.own.get("requestBody", {}))
        _, other = self._schemas.after.resolve(now.own.get("requestBody", {}))
        place, needs = was.place("request body"), bool(other.get("required"))
        if not one and other:
            word, effect = ("required", NARROWED) if needs else ("optional", HARMLESS)
            yield place, _of(f"request-body-added-{word}", effect, f"added, and it is {word}", "body")
        elif one and not other:
            yield place, _of("request-body-removed", CHANGED, "removed", "body")
        elif one and bool(one.get("required")) != needs:
            word, effect = ("required", NARROWED) if needs else ("optional", HARMLESS)
            yield place, _of(f"request-body-became-{word}", effect, f"is {word} now", "body")
        if one and other:
            at = Spot(Direction.REQUEST, "request-body", "body", fixed=True)
            yield from self._content(one.get("content", {}), other.get("content", {}), at, place)

    def _content(self, was: Json, now: Json, at: Spot, place: Place) -> Iterator[Seen]:
        """The media types of a body, and their schemas."""
        kind = "request-body-media-type" if at.direction is Direction.REQUEST else "response-media-type"
        renamed = {} if at.direction is Direction.REQUEST else dict(_renamed(was, now))
        for name in sorted({*was, *now} - {*renamed.values()}):
            if name in renamed:
                yield place, _media_type_name(name, renamed[name])
            elif name not in now:
                yield place, _of(f"{kind}-removed", CHANGED, f"the media type {name} was removed", "body")
            elif name not in was:
                yield place, _of(f"{kind}-added", HARMLESS, f"the media type {name} was added", "body")
            if name in was and (after := now.get(renamed.get(name, name))) is not None:
                for change in self._media_type(was[name], after, at, name):
                    yield place, change

    def _media_type(self, one: Json, other: Json, at: Spot, name: str) -> Iterator[Change]:
        if "schema" in one and "schema" in other:
            yield from self._schemas.changes(one["schema"], other["schema"], at)
        elif "schema" in one:
            id = f"{at.prefix}-media-type-schema-removed"
            yield at.change(id, Effect(Severity.COMPATIBLE, Severity.JUDGE), f"{name} has no schema any more")
        elif "schema" in other:
            yield at.change(f"{at.prefix}-media-type-schema-added", NARROWED, f"{name} has a schema now")

    # Responses

    def _responses(self, was: Operation, now: Operation) -> Iterator[Seen]:
        one, other = was.own.get("responses", {}), now.own.get("responses", {})
        for status in sorted({*one, *other}):
            place = was.place(f"response {status}")
            kind = "success" if SUCCESS.fullmatch(status) else "non-success"
            if status not in other:
                effect = CHANGED if kind == "success" else HARMLESS
                yield place, _of(f"response-{kind}-status-removed", effect, "removed", f"status {status}")
            elif status not in one:
                yield place, _of(f"response-{kind}-status-added", UNCLEAR, "added", f"status {status}")
            else:
                before = self._schemas.before.resolve(one[status])[1]
                after = self._schemas.after.resolve(other[status])[1]
                yield from self._response(before, after, place)

    def _response(self, before: Json, after: Json, place: Place) -> Iterator[Seen]:
        for change in self._headers(before.get("headers", {}), after.get("headers", {})):
            yield place, change
        at = Spot(Direction.RESPONSE, "response-body", "body", fixed=True)
        yield from self._content(before.get("content", {}), after.get("content", {}), at, place)

    def _headers(self, was: Json, now: Json) -> Iterator[Change]:
        one = {name.lower(): (name, *self._schemas.before.resolve(each)[1:]) for name, each in was.items()}
        other = {name.lower(): (name, *self._schemas.after.resolve(each)[1:]) for name, each in now.items()}
        for key in sorted({*one, *other}):
            if key not in other:
                kind = "required" if one[key][1].get("required") else "optional"
                yield _of(f"{kind}-response-header-removed", CHANGED, "removed", "header", one[key][0])
            elif key not in one:
                yield _of("response-header-added", HARMLESS, "added", "header", other[key][0])
            else:
                yield from self._header(one[key][0], one[key][1], other[key][1])

    def _header(self, name: str, before: Json, after: Json) -> Iterator[Change]:
        at = Spot(Direction.RESPONSE, "response-header", "header", name, fixed=True)
        if before.get("required") and not after.get("required"):
            yield at.change("response-header-became-optional", WIDENED, "no longer required")
        yield from self._schemas.changes(_schema_of(before), _schema_of(after), at)

    # Webhooks: the service sends the request, the client responds

    def _webhooks(self) -> Iterator[Seen]:
        was, now = _operations(self._before, "webhooks"), _operations(self._after, "webhooks")
        for key in sorted({*was, *now}):
            if key not in now:
                yield self._gone(was[key], WEBHOOK)
            elif key not in was:
                yield now[key].place(), _of("webhook-added", HARMLESS, "added", *now[key].named)
            else:
                yield from self._operation(was[key], now[key], WEBHOOK)

    def _sent(self, was: Operation, now: Operation) -> Iterator[Seen]:
        """What a webhook sends is judged as a response is; what may answer it as a request."""
        place = was.place("request that is sent")
        one = {each["name"]: each for each in self._parameters_of(was, self._schemas.before).values()}
        other = {each["name"]: each for each in self._parameters_of(now, self._schemas.after).values()}
        for change in self._headers(one, other):
            yield place, change
        before = self._schemas.before.resolve(was.own.get("requestBody", {}))[1]
        after = self._schemas.after.resolve(now.own.get("requestBody", {}))[1]
        at = Spot(Direction.RESPONSE, "response-body", "body", fixed=True)
        yield from self._content(before.get("content", {}), after.get("content", {}), at, place)
        for status in sorted(was.own.get("responses", {}).keys() - now.own.get("responses", {}).keys()):
            effect = CHANGED if SUCCESS.fullmatch(status) else HARMLESS
            yield place, _of("webhook-response-status-removed", effect, "no longer understood", f"answer {status}")

    # Security

    def _security(self, was: Operation | None, now: Operation | None) -> Iterator[Seen]:
        """The ways to authenticate at an operation; without one, those of the document."""
        prefix, place = ("api-security", was.place()) if was else ("api-global-security", Place())
        both = ((was, self._before), (now, self._after))
        if was and not any("security" in each.own for each in (was, now) if each):
            return  # both have those of the document
        one, other = (
            each.own["security"] if each and "security" in each.own else document.get("security", [])
            for each, document in both
        )
        for change in _ways(prefix, one, other):
            yield place, change

    def _components(self) -> Iterator[Seen]:
        was, now = (each.get("components", {}) for each in (self._before, self._after))
        for name in sorted(was.get("schemas", {}).keys() - now.get("schemas", {}).keys()):
            yield Place(), _of("api-schema-removed", HARMLESS, "removed", "schema", name)
        one, other = was.get("securitySchemes", {}), now.get("securitySchemes", {})
        for name in sorted({*one, *other}):
            if name not in other or name not in one:
                word = "removed" if name in one else "added"
                yield Place(), _of(f"api-security-component-{word}", HARMLESS, word, "security scheme", name)
            else:
                for change in _scheme(name, self._schemas.before.resolve(one[name])[1], other[name]):
                    yield Place(), change


def _of(id: str, effect: Effect, what: str, subject: str, name: str = "", remedy: str = NEW_VERSION) -> Change:
    """A change outside of schemas, whose effect does not depend on a direction."""
    return Change(id, effect.request, Direction.REQUEST, what, subject, name, remedy=remedy)


def _step(step: Step, subject: str, name: str = "") -> Change:
    return _of(step.id, step.effect, step.what, subject, name, step.remedy)


def _operations(document: Json, part: str) -> dict[tuple[str, str], Operation]:
    """The operations by path, without the names of its parameters, and method."""
    return {
        (IN_PATH.sub("{}", path), method): Operation(method, path, item, item[method], part == "webhooks")
        for path, item in document.get(part, {}).items()
        for method in METHODS
        if method in item
    }


def _key(parameter: Json, operation: Operation) -> tuple[str, str]:
    """What identifies a parameter: its place in the path, or its name."""
    name, where = str(parameter["name"]), str(parameter["in"])
    if where == "path":
        names = [each[1:-1] for each in IN_PATH.findall(operation.path)]
        return where, str(names.index(name)) if name in names else name
    return where, name.lower() if where == "header" else name


def _new_parameter(parameter: Json, *, is_common: bool) -> Change:
    at = Spot(Direction.REQUEST, "request-parameter", "parameter", parameter["name"])
    required = bool(parameter.get("required"))
    kind = "request-default-parameter-to-existing-path" if is_common else "request-parameter"
    if parameter["in"] == "path":
        return at.change("new-request-path-parameter", NARROWED, "added")
    if required:
        return at.change(f"new-required-{kind}", NARROWED, "added, and it is required", OPTIONAL)
    return at.change(f"new-optional-{kind}", HARMLESS, "added")


def _style(parameter: Json, keyword: str) -> object:
    """A keyword of a parameter's style, or its default."""
    style = parameter.get("style", STYLES.get(parameter["in"]))
    return {"style": style, "explode": parameter.get("explode", style == "form")}.get(keyword, parameter.get(keyword))


def _schema_of(part: Json) -> Json:
    """The schema of a parameter or header, also if it is within a media type."""
    media_types = part.get("content", {}).values()
    schema: Json = part.get("schema") or next((each.get("schema", {}) for each in media_types), {})
    return schema


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _general(media_type: str) -> str:
    """The media type that one with a suffix is a special form of."""
    kind, _, name = _essence(media_type).partition("/")
    return f"{kind}/{name.rpartition('+')[2]}"


def _renamed(was: Json, now: Json) -> Iterator[tuple[str, str]]:
    """The media types of which only parameters or the suffixed name changed."""
    new = sorted(now.keys() - was.keys())
    for name in sorted(was.keys() - now.keys()):
        if other := next((each for each in new if _general(each) == _general(name)), None):
            new.remove(other)
            yield name, other


def _media_type_name(was: str, now: str) -> Change:
    if _essence(was) == _essence(now):
        word, effect = "changed", UNCLEAR
    else:
        word, effect = ("specialized" if _essence(was) == _general(now) else "generalized"), CHANGED
    return _of(f"response-media-type-name-{word}", effect, f"the media type {was} is {now} now", "body")


def _ways(prefix: str, was: list[Json], now: list[Json]) -> Iterator[Change]:
    """The ways to authenticate: a former one must suffice still. None at all is a way, too."""
    was, now = was or [{}], now or [{}]
    unmet = [way for way in was if not any(_suffices(way, each) for each in now)]
    for way in was:
        same = [each for each in now if each.keys() == way.keys()]
        if not same:
            effect = CHANGED if way in unmet else HARMLESS
            what = f"{_way(way)} is no longer enough" if way else "credentials are needed now"
            if way or way in unmet and all(each in was for each in now):  # else what is added says it
                yield _of(f"{prefix}-removed", effect, what, "security")
        else:
            yield from _scopes(prefix, way, same[0], is_unmet=way in unmet)
    for way in now:
        if way and not any(each.keys() == way.keys() for each in was):
            effect = CHANGED if {} in unmet else HARMLESS
            yield _of(f"{prefix}-added", effect, f"{_way(way)} is a way to authenticate now", "security")


def _scopes(prefix: str, way: Json, now: Json, *, is_unmet: bool) -> Iterator[Change]:
    for scheme, scopes in way.items():
        for scope in sorted({*scopes} ^ {*now[scheme]}):
            word, effect = (
                ("added", CHANGED if is_unmet else HARMLESS) if scope in now[scheme] else ("removed", HARMLESS)
            )
            yield _of(f"{prefix}-scope-{word}", effect, f"{scheme}: the scope {scope} was {word}", "security")


def _suffices(way: Json, needed: Json) -> bool:
    """Whether who meets one way meets the other."""
    return all(scheme in way and set(scopes) <= set(way[scheme]) for scheme, scopes in needed.items())


def _way(way: Json) -> str:
    return " with ".join(way) or "none"


def _scheme(name: str, was: Json, now: Json) -> Iterator[Change]:
    """A security scheme that stays."""

    def change(id: str, effect: Effect, what: str) -> Change:
        return _of(f"api-security-component-{id}", effect, what, "security scheme", name)

    for keyword in ("type", "scheme", "in", "name", "openIdConnectUrl"):
        if was.get(keyword) != now.get(keyword):
            yield change("type-changed", CHANGED, f"{keyword} changed from {was.get(keyword)} to {now.get(keyword)}")
    one, other = was.get("flows", {}), now.get("flows", {})
    for flow in sorted(one.keys() & other.keys()):
        for keyword, id in (("authorizationUrl", "oauth-url-changed"), ("tokenUrl", "oauth-token-url-changed")):
            if one[flow].get(keyword) != other[flow].get(keyword):
                yield change(id, CHANGED, f"{keyword} of {flow} changed")
        yield from _flow_scopes(change, one[flow].get("scopes", {}), other[flow].get("scopes", {}))


def _flow_scopes(change: Callable[[str, Effect, str], Change], was: Json, now: Json) -> Iterator[Change]:
    for scope in sorted({*was, *now}):
        if scope not in now:
            yield change("oauth-scope-removed", CHANGED, f"the scope {scope} was removed")
        elif scope not in was:
            yield change("oauth-scope-added", HARMLESS, f"the scope {scope} was added")
        elif was[scope] != now[scope]:
            yield change("oauth-scope-changed", HARMLESS, f"the scope {scope} has another text")
