"""The comparison of bodies and headers: their media types and schemas."""

from collections.abc import Iterator

from restkeeper.contract.context import SchemaContext
from restkeeper.contract.findings import (
    CHANGED,
    HARMLESS,
    NARROWED,
    WIDENED,
    Change,
    Direction,
    Effect,
    Json,
    Severity,
    change_of,
)
from restkeeper.contract.schema import text
from restkeeper.contract.schemas import SchemaComparison


class BodyComparison:
    """Compares bodies and headers. Headers that many responses have are compared once."""

    def __init__(self, schemas: SchemaComparison) -> None:
        self._schemas = schemas
        self._known_headers: dict[tuple[str, str], tuple[Change, ...]] = {}

    def content(self, was: Json, now: Json, at: SchemaContext) -> Iterator[Change]:
        """The media types of a body, and their schemas."""
        kind = "request-body-media-type" if at.direction is Direction.REQUEST else "response-media-type"
        for name in sorted({*was, *now}):
            if name not in now:
                yield change_of(f"{kind}-removed", CHANGED, f"the media type {name} was removed", "body")
            elif name not in was:
                yield change_of(f"{kind}-added", HARMLESS, f"the media type {name} was added", "body")
            else:
                yield from self._media_type(was[name], now[name], at, name)

    def _media_type(self, one: Json, other: Json, at: SchemaContext, name: str) -> Iterator[Change]:
        if "schema" in one and "schema" in other:
            yield from self._schemas.changes(one["schema"], other["schema"], at)
        elif "schema" in one:
            id = f"{at.prefix}-media-type-schema-removed"
            yield at.change(id, Effect(Severity.COMPATIBLE, Severity.JUDGE), f"{name} has no schema any more")
        elif "schema" in other:
            yield at.change(f"{at.prefix}-media-type-schema-added", NARROWED, f"{name} has a schema now")

    def headers(self, was: Json, now: Json) -> tuple[Change, ...]:
        """The headers of a response, or of a request that the service sends."""
        key = (text(was), text(now))
        if key not in self._known_headers:
            self._known_headers[key] = tuple(self._headers(was, now))
        return self._known_headers[key]

    def _headers(self, was: Json, now: Json) -> Iterator[Change]:
        one = {name.lower(): (name, *self._schemas.before.resolve(each)[1:]) for name, each in was.items()}
        other = {name.lower(): (name, *self._schemas.after.resolve(each)[1:]) for name, each in now.items()}
        for key in sorted({*one, *other}):
            if key not in other:
                kind = "required" if one[key][1].get("required") else "optional"
                yield change_of(f"{kind}-response-header-removed", CHANGED, "removed", "header", one[key][0])
            elif key not in one:
                yield change_of("response-header-added", HARMLESS, "added", "header", other[key][0])
            else:
                yield from self._header(one[key][0], one[key][1], other[key][1])

    def _header(self, name: str, before: Json, after: Json) -> Iterator[Change]:
        at = SchemaContext(Direction.RESPONSE, "response-header", "header", name, fixed=True)
        if before.get("required") and not after.get("required"):
            yield at.change("response-header-became-optional", WIDENED, "no longer required")
        elif after.get("required") and not before.get("required"):
            yield at.change("response-header-became-required", NARROWED, "required now")
        yield from self._schemas.changes(schema_of(before), schema_of(after), at)


def schema_of(part: Json) -> Json:
    """The schema of a parameter or header, also if it is within a media type."""
    media_types = part.get("content", {}).values()
    schema: Json = part.get("schema") or next((each.get("schema", {}) for each in media_types), {})
    return schema
