"""The comparison of the parameters of an operation."""

from collections.abc import Container, Iterator

from restkeeper.contract.bodies import schema_of
from restkeeper.contract.components import Components
from restkeeper.contract.context import SchemaContext
from restkeeper.contract.findings import (
    CHANGED,
    HARMLESS,
    NARROWED,
    OPTIONAL,
    WIDENED,
    Change,
    Direction,
    Json,
    PlacedChange,
    Severity,
)
from restkeeper.contract.operation import IN_PATH, Operation
from restkeeper.contract.schema import types_of
from restkeeper.contract.schemas import SchemaComparison
from restkeeper.contract.windows import PARAMETER, Calendar, marks, removal

STYLE = ("style", "explode", "allowReserved")
STYLES = {"query": "form", "path": "simple", "header": "simple", "cookie": "form"}  # where none is given


class ParameterComparison:
    """Compares the parameters of operations."""

    def __init__(self, schemas: SchemaComparison, calendar: Calendar) -> None:
        self._schemas, self._calendar = schemas, calendar

    def changes(self, was: Operation, now: Operation) -> Iterator[PlacedChange]:
        """The changes of all parameters, each with its place."""
        one, other = parameters_of(was, self._schemas.before), parameters_of(now, self._schemas.after)
        common = {_key(self._schemas.after.resolve(each)[1], now) for each in now.item.get("parameters", ())}
        for key in sorted({*one, *other}):
            place = was.place(f"{key[0]} parameter")
            if key not in other:
                yield place, removal(one[key], PARAMETER, self._calendar).change("parameter", one[key]["name"])
            elif key not in one:
                yield place, _new_parameter(other[key], is_common=key in common)
            else:
                for change in self._parameter(_searching(one[key], other), other[key]):
                    yield place, _of_path(change) if key[0] == "path" else change

    def _parameter(self, one: Json, other: Json) -> Iterator[Change]:
        name = other["name"]
        at = SchemaContext(Direction.REQUEST, "request-parameter", "parameter", name, fixed=bool(one.get("required")))
        was, now = bool(one.get("required")), bool(other.get("required"))
        if now and not was:
            yield at.change("request-parameter-became-required", NARROWED, "required now", OPTIONAL)
        elif was and not now:
            yield at.change("request-parameter-became-optional", WIDENED, "no longer required")
        for keyword in STYLE:
            before, after = (_style(each, keyword) for each in (one, other))
            if before != after:
                what = f"{keyword} changed from {before} to {after}"
                yield at.change("request-parameter-style-changed", CHANGED, what)
        yield from map(at.step, marks(one, other, PARAMETER, self._calendar))
        before, after = schema_of(one), schema_of(other)
        if other["in"] == "header" and types_of(self._schemas.after.plain(after)[1]) == {"object"}:
            at = at._replace(prefix="request-header")
        yield from self._schemas.changes(before, after, at)


def parameters_of(operation: Operation, components: Components) -> dict[tuple[str, str], Json]:
    """The parameters of an operation and of its path, by what identifies them."""
    both = (*operation.item.get("parameters", ()), *operation.own.get("parameters", ()))
    return {_key(each, operation): each for _, each in map(components.resolve, both)}


def _key(parameter: Json, operation: Operation) -> tuple[str, str]:
    """What identifies a parameter: its place in the path, or its name."""
    name, where = str(parameter["name"]), str(parameter["in"])
    if where == "path":
        names = [each[1:-1] for each in IN_PATH.findall(operation.path)]
        return where, str(names.index(name)) if name in names else name
    return where, name.lower() if where == "header" else name


def _new_parameter(parameter: Json, *, is_common: bool) -> Change:
    at = SchemaContext(Direction.REQUEST, "request-parameter", "parameter", parameter["name"])
    required = bool(parameter.get("required"))
    kind = "request-default-parameter-to-existing-path" if is_common else "request-parameter"
    if parameter["in"] == "path":
        return at.change("new-request-path-parameter", NARROWED, "added")
    if required:
        return at.change(f"new-required-{kind}", NARROWED, "added, and it is required", OPTIONAL)
    return at.change(f"new-optional-{kind}", HARMLESS, "added")


def _of_path(change: Change) -> Change:
    """The change of a parameter in the path: clients have its values, ids, from responses.

    So a first pattern breaks nobody if all ids that there are match it, which the documents do not say.
    """
    if change.id == "request-parameter-pattern-added":
        return change._replace(id="request-path-parameter-pattern-added", severity=Severity.JUDGE)
    return change


def _searching(parameter: Json, present: Container[tuple[str, str]]) -> Json:
    """A parameter that searches only fields that are still there: of the others it is known that they go."""
    schema = parameter.get("schema", {})
    if "x-search" not in schema:
        return parameter
    names = [name for name in schema["x-search"] if ("query", name) in present]
    return {**parameter, "schema": {**schema, "x-search": names}}


def _style(parameter: Json, keyword: str) -> object:
    """A keyword of a parameter's style, or its default."""
    style = parameter.get("style", STYLES.get(parameter["in"]))
    return {"style": style, "explode": parameter.get("explode", style == "form")}.get(keyword, parameter.get(keyword))
