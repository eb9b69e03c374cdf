"""The comparison of two documents: their operations, webhooks and components."""

import re
from collections.abc import Iterator

from restkeeper.contract.bodies import BodyComparison
from restkeeper.contract.context import SchemaContext
from restkeeper.contract.findings import (
    CHANGED,
    DEPRECATE,
    HARMLESS,
    NARROWED,
    NEW_VERSION,
    UNCLEAR,
    Direction,
    Json,
    Place,
    PlacedChange,
    change_of,
)
from restkeeper.contract.keywords import extensions
from restkeeper.contract.operation import Operation, operations_of
from restkeeper.contract.parameters import ParameterComparison, parameters_of
from restkeeper.contract.schemas import SchemaComparison
from restkeeper.contract.security import has_marks, permissions, requirements, scheme
from restkeeper.contract.windows import ENDPOINT, PATH, WEBHOOK, Calendar, Rules, marks, removal

SUCCESS = re.compile(r"2(\d\d|XX)")


class Comparison:
    """The comparison of an accepted document with the present one."""

    def __init__(self, before: Json, after: Json, calendar: Calendar) -> None:
        self._before, self._after, self._calendar = before, after, calendar
        self._schemas = SchemaComparison(before, after, calendar)
        self._parameters = ParameterComparison(self._schemas, calendar)
        self._bodies = BodyComparison(self._schemas)
        self._has_marks = has_marks(before)

    def changes(self) -> Iterator[PlacedChange]:
        """All changes, each with its place."""
        yield from self._operations()
        yield from self._webhooks()
        yield from self._global_security()
        yield from self._components()
        for found in extensions(self._before, self._after):
            change = change_of(f"api-{found.id}", found.effect, found.what, "queries", remedy=found.remedy)
            yield Place(), change

    # Operations

    def _operations(self) -> Iterator[PlacedChange]:
        was, now = operations_of(self._before, "paths"), operations_of(self._after, "paths")
        paths = {path for path, _ in now}
        for key in sorted({*was, *now}):
            if key not in now:
                yield self._gone(was[key], ENDPOINT if key[0] in paths else PATH)
            elif key not in was:
                yield now[key].place(), change_of("endpoint-added", HARMLESS, "added", *now[key].named)
            else:
                yield from self._operation(was[key], now[key], ENDPOINT)

    def _gone(self, operation: Operation, rules: Rules) -> PlacedChange:
        step = removal(operation.own, rules, self._calendar)
        if operation.is_webhook and step.remedy == DEPRECATE:  # which has no declaration for it
            step = step._replace(remedy=NEW_VERSION)
        return operation.place(), step.change(*operation.named)

    def _operation(self, was: Operation, now: Operation, rules: Rules) -> Iterator[PlacedChange]:
        for step in marks(was.own, now.own, rules, self._calendar):
            yield was.place(), step.change(*was.named)
        if was.is_webhook:
            yield from self._sent(was, now)
        else:
            yield from self._names(was, now)
            yield from self._security(was, now)
            yield from self._parameters.changes(was, now)
            yield from self._request_body(was, now)
            yield from self._responses(was, now)

    def _names(self, was: Operation, now: Operation) -> Iterator[PlacedChange]:
        one, other = was.own.get("operationId"), now.own.get("operationId")
        if one and one != other:
            what = f"operationId changed from {one} to {other}" if other else f"operationId {one} was removed"
            yield was.place(), change_of("api-operation-id-removed", CHANGED, what, *was.named)
        elif other and not one:
            what = f"operationId {other} was added"
            yield was.place(), change_of("api-operation-id-added", HARMLESS, what, *was.named)
        for tag in sorted({*was.own.get("tags", ())} ^ {*now.own.get("tags", ())}):
            word = "added" if tag in now.own.get("tags", ()) else "removed"
            yield was.place(), change_of(f"api-tag-{word}", HARMLESS, f"the tag {tag} was {word}", *was.named)

    # Bodies

    def _request_body(self, was: Operation, now: Operation) -> Iterator[PlacedChange]:
        _, one = self._schemas.before.resolve(was.own.get("requestBody", {}))
        _, other = self._schemas.after.resolve(now.own.get("requestBody", {}))
        place, needs = was.place("request body"), bool(other.get("required"))
        if not one and other:
            word, effect = ("required", NARROWED) if needs else ("optional", HARMLESS)
            yield place, change_of(f"request-body-added-{word}", effect, f"added, and it is {word}", "body")
        elif one and not other:
            yield place, change_of("request-body-removed", CHANGED, "removed", "body")
        elif one and bool(one.get("required")) != needs:
            word, effect = ("required", NARROWED) if needs else ("optional", HARMLESS)
            yield place, change_of(f"request-body-became-{word}", effect, f"is {word} now", "body")
        if one and other:
            yield from self._content(one, other, Direction.REQUEST, place)

    def _content(self, before: Json, after: Json, direction: Direction, place: Place) -> Iterator[PlacedChange]:
        at = SchemaContext(direction, f"{direction.value}-body", "body", fixed=True)
        for change in self._bodies.content(before.get("content", {}), after.get("content", {}), at):
            yield place, change

    # Responses

    def _responses(self, was: Operation, now: Operation) -> Iterator[PlacedChange]:
        one, other = was.own.get("responses", {}), now.own.get("responses", {})
        for status in sorted({*one, *other}):
            place = was.place(f"response {status}")
            kind = "success" if SUCCESS.fullmatch(status) else "non-success"
            if status not in other:
                effect = CHANGED if kind == "success" else HARMLESS
                yield place, change_of(f"response-{kind}-status-removed", effect, "removed", f"status {status}")
            elif status not in one:
                yield place, change_of(f"response-{kind}-status-added", UNCLEAR, "added", f"status {status}")
            else:
                before = self._schemas.before.resolve(one[status])[1]
                after = self._schemas.after.resolve(other[status])[1]
                yield from self._response(before, after, place)

    def _response(self, before: Json, after: Json, place: Place) -> Iterator[PlacedChange]:
        for change in self._bodies.headers(before.get("headers", {}), after.get("headers", {})):
            yield place, change
        yield from self._content(before, after, Direction.RESPONSE, place)

    # Webhooks: the service sends the request, the client responds

    def _webhooks(self) -> Iterator[PlacedChange]:
        was, now = operations_of(self._before, "webhooks"), operations_of(self._after, "webhooks")
        for key in sorted({*was, *now}):
            if key not in now:
                yield self._gone(was[key], WEBHOOK)
            elif key not in was:
                yield now[key].place(), change_of("webhook-added", HARMLESS, "added", *now[key].named)
            else:
                yield from self._operation(was[key], now[key], WEBHOOK)

    def _sent(self, was: Operation, now: Operation) -> Iterator[PlacedChange]:
        """What a webhook sends is judged as a response is; what may answer it as a request."""
        place = was.place("request that is sent")
        one = {each["name"]: each for each in parameters_of(was, self._schemas.before).values()}
        other = {each["name"]: each for each in parameters_of(now, self._schemas.after).values()}
        for change in self._bodies.headers(one, other):
            yield place, change
        before = self._schemas.before.resolve(was.own.get("requestBody", {}))[1]
        after = self._schemas.after.resolve(now.own.get("requestBody", {}))[1]
        yield from self._content(before, after, Direction.RESPONSE, place)
        for status in sorted(was.own.get("responses", {}).keys() - now.own.get("responses", {}).keys()):
            effect = CHANGED if SUCCESS.fullmatch(status) else HARMLESS
            what = "no longer understood"
            yield place, change_of("webhook-response-status-removed", effect, what, f"answer {status}")

    # Security

    def _security(self, was: Operation, now: Operation) -> Iterator[PlacedChange]:
        """What callers of an operation need. Without requirements of its own it has those of the document."""
        if "security" in was.own or "security" in now.own:
            for change in requirements("api-security", {**self._before, **was.own}, {**self._after, **now.own}):
                yield was.place(), change
        for change in permissions(was.own, now.own, marked=self._has_marks):
            yield was.place(), change

    def _global_security(self) -> Iterator[PlacedChange]:
        for change in requirements("api-global-security", self._before, self._after):
            yield Place(), change

    def _components(self) -> Iterator[PlacedChange]:
        was, now = (each.get("components", {}) for each in (self._before, self._after))
        for name in sorted(was.get("schemas", {}).keys() - now.get("schemas", {}).keys()):
            yield Place(), change_of("api-schema-removed", HARMLESS, "removed", "schema", name)
        one, other = was.get("securitySchemes", {}), now.get("securitySchemes", {})
        for name in sorted({*one, *other}):
            if name not in other or name not in one:
                word = "removed" if name in one else "added"
                yield Place(), change_of(f"api-security-component-{word}", HARMLESS, word, "security scheme", name)
            else:
                for change in scheme(name, self._schemas.before.resolve(one[name])[1], other[name]):
                    yield Place(), change
