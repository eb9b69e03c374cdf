"""The comparison of the properties of two schemas: which there are, and which are required, read-only or deprecated."""

from collections.abc import Callable, Iterable, Iterator

from restkeeper.contract.components import Components
from restkeeper.contract.context import SchemaContext
from restkeeper.contract.findings import (
    CHANGED,
    HARMLESS,
    NARROWED,
    OPTIONAL,
    UNCLEAR,
    WIDENED,
    Change,
    Direction,
    Json,
)
from restkeeper.contract.windows import Calendar, marks, removal, rules_of

SchemasCompared = Callable[[Json, Json, SchemaContext], Iterable[Change]]


class PropertyComparison:
    """Compares the properties of two schemas; `changes_of` compares the schemas of two properties."""

    def __init__(self, before: Components, after: Components, calendar: Calendar, changes_of: SchemasCompared) -> None:
        self._before, self._after, self._calendar, self._changes_of = before, after, calendar, changes_of

    def changes(self, one: Json, other: Json, at: SchemaContext) -> Iterator[Change]:
        """The changes of all properties."""
        was, now = one.get("properties", {}), other.get("properties", {})
        needed, needs = set(one.get("required", ())), set(other.get("required", ()))
        for name in sorted({*was, *now, *needed, *needs}):
            here = at.inside(name, fixed=name in needed or name in needs)
            before = self._before.plain(was[name])[1] if name in was else None
            after = self._after.plain(now[name])[1] if name in now else None
            if before is not None and after is not None:
                yield from self._kept(before, after, here, name in needed, name in needs)
                unseen = at.unseen or (_is_unseen(before, at) and _is_unseen(after, at))
                yield from self._changes_of(was[name], now[name], here._replace(unseen=unseen))
            elif before is not None:
                yield from self._removed(before, here, name in needed)
            elif after is not None:
                yield from self._added(after, here, name in needs)
            else:
                yield from self._required(here.prefix, here, name in needed, name in needs)

    def _removed(self, before: Json, at: SchemaContext, required: bool) -> Iterator[Change]:
        unseen = _is_unseen(before, at)
        if at.direction is Direction.REQUEST and unseen:
            return
        if at.direction is Direction.REQUEST:
            rules = rules_of(at.prefix)
        else:
            kind = f"{'required' if required else 'optional'}{'-write-only' * unseen}"
            rules = rules_of(at.prefix, removed=_kind_id(at.prefix, kind, "removed"))
        yield at._replace(unseen=at.unseen or unseen).step(removal(before, rules, self._calendar))

    def _added(self, after: Json, at: SchemaContext, required: bool) -> Iterator[Change]:
        unseen = _is_unseen(after, at)
        if at.direction is Direction.RESPONSE:
            kind = f"{'required' if required else 'optional'}{'-write-only' * unseen}"
            yield at.change(_kind_id(at.prefix, kind, "added"), HARMLESS, "added")
        elif not unseen and required:
            default = "-with-default" if "default" in after else ""
            yield at.change(f"new-required-{at.prefix}{default}", NARROWED, "added, and it is required", OPTIONAL)
        elif not unseen:
            yield at.change(f"new-optional-{at.prefix}", HARMLESS, "added")

    def _kept(self, before: Json, after: Json, at: SchemaContext, was: bool, now: bool) -> Iterator[Change]:
        """A field that stays: whether it is required, who sees it, its deprecation."""
        unseen = _is_unseen(before, at) and _is_unseen(after, at)
        prefix = at.prefix
        if unseen and at.direction is Direction.RESPONSE:
            prefix = prefix.replace("-property", "-write-only-property")
        at = at._replace(unseen=at.unseen or unseen)
        default = "-with-default" if "default" in after and at.direction is Direction.REQUEST else ""
        yield from self._required(prefix, at, was, now, default)
        yield from self._visibility(before, after, at, now)
        yield from map(at.step, marks(before, after, rules_of(at.prefix), self._calendar))

    def _required(self, prefix: str, at: SchemaContext, was: bool, now: bool, default: str = "") -> Iterator[Change]:
        if was and not now:
            yield at.change(f"{prefix}-became-optional", WIDENED, "no longer required")
        elif now and not was:
            yield at.change(f"{prefix}-became-required{default}", NARROWED, "required now", OPTIONAL)

    def _visibility(self, before: Json, after: Json, at: SchemaContext, required: bool) -> Iterator[Change]:
        """Read-only and write-only: in which direction the field exists."""
        for keyword, name, loses, gains in (
            ("readOnly", "read-only", Direction.REQUEST, required),
            ("writeOnly", "write-only", Direction.RESPONSE, False),
        ):
            was, now = bool(before.get(keyword)), bool(after.get(keyword))
            if was == now:
                continue
            broken = at.direction is loses and (now or gains)
            effect = CHANGED if broken else HARMLESS
            kind = "required" if required else "optional"
            end = f"became-{'' if now else 'not-'}{name}"
            if end == "became-not-write-only" and required and at.direction is Direction.RESPONSE:
                effect = UNCLEAR  # a new field of responses, which was kept from them with a reason
            yield at.change(_kind_id(at.prefix, kind, end), effect, f"is {'' if now else 'no longer '}{name}")


def _kind_id(prefix: str, kind: str, end: str) -> str:
    """The id of a kind of property: the kind is before the word "property"."""
    head, _, tail = prefix.rpartition("-")
    return f"{head}-{kind}-{tail}-{end}"


def _is_unseen(schema: Json, at: SchemaContext) -> bool:
    return bool(schema.get("readOnly" if at.direction is Direction.REQUEST else "writeOnly"))
