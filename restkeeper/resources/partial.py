"""Representations without some fields: those that are gone, and those that their reader may not see."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from restkeeper import exactjson
from restkeeper.clock import Clock, rfc3339
from restkeeper.errors import ValidationFailed
from restkeeper.exactjson import fault, require_none
from restkeeper.resources.call import Caller, lacking
from restkeeper.resources.queries import Queryable
from restkeeper.resources.representation import (
    NO_LIMITS,
    UNREADABLE,
    ItemLimits,
    JsonObject,
    Representation,
    StoredRepresentation,
    Views,
    digest,
)
from restkeeper.resources.resource import schema_with
from restkeeper.schemas.fields import READABLE_BY
from restkeeper.schemas.item import READ_ONLY
from restkeeper.schemas.prepared import fields_of
from restkeeper.storage.interface import Page, Query, Record, root_of

MOST_SETS = 64  # of fields that callers can read, for which a process keeps a representation of a collection

End = tuple[float, str, str]  # of a field: when (seconds since 1970), its name, and why it cannot be used then


def without_fields(
    whole: Representation, newest: StoredRepresentation, ends: Iterable[End] = (), clock: Clock = time
) -> Views:
    """Views in which fields end, and private ones are not there for who may not read them.

    Private is also what an older version makes of a private field. Without such fields all see the `whole`.
    """
    scopes: dict[str, set[str]] = {}
    if newest.resource.reading_scopes:
        for name, field in fields_of(whole.schema()).items():
            if scope := field.metadata.get(READABLE_BY):
                scopes.setdefault(name, set()).add(scope)
        for field_name, scope in newest.revision.private.items():
            for name in {*whole.names_of(field_name)}.intersection(whole.names):
                scopes.setdefault(name, set()).add(scope)
    ordered = sorted(ends)
    return PartialViews(whole, ordered, scopes, clock) if ordered or scopes else whole


class PartialViews:
    """See `Views`: at each moment the `whole` without what is gone, and what a caller may not see."""

    def __init__(
        self, whole: Representation, ends: Sequence[End], scopes: Mapping[str, Iterable[str]], clock: Clock
    ) -> None:
        self._times = [end for end, _, _ in ends]
        self._scopes = sorted((name, scope) for name, found in scopes.items() for scope in found)
        self._clock = clock

        @lru_cache(MOST_SETS)
        def reduced(count: int, hidden: tuple[tuple[str, str], ...]) -> Representation:
            return ReducedRepresentation(whole, ends[:count], dict(hidden)) if count or hidden else whole

        self._reduced = reduced

    def of(self, caller: Caller) -> Representation:
        hidden = tuple(each for each in self._scopes if not caller.may(each[1]))
        return self._reduced(bisect_right(self._times, self._clock.time()), hidden)


class ReducedRepresentation(Representation):
    """A representation without the fields that are `gone`, and the `hidden` ones, each with the scope that it needs."""

    def __init__(self, whole: Representation, gone: Sequence[End], hidden: Mapping[str, str]) -> None:
        self._whole = whole
        self._hidden = hidden
        self._gone = {name: reason for _, name, reason in gone if name not in hidden}
        self._gone_at = max((rfc3339(end) for end, _, _ in gone), default="")
        self._without = without = self._gone.keys() | hidden.keys()
        self.name = whole.name
        self.names = tuple(name for name in whole.names if name not in without)
        self.texts = whole.texts - without
        self.fingerprint = f"{whole.fingerprint}-{digest(' '.join(sorted(without)).encode())}"
        fields = fields_of(whole.schema())
        left = {name: fields[name] for name in self.names if name not in READ_ONLY or not fields[name].dump_only}
        self.schema = schema_with(whole.schema, left)
        before = whole.queryable
        queried = {name: field for name, field in before.fields.items() if root_of(name) not in without}
        refused = {name: why for name, why in before.refused.items() if name not in hidden}
        self.queryable = Queryable(queried, self.names, {**refused, **self._gone}, before.is_searched)

    @property
    def changed_at(self) -> str:  # type: ignore[override]
        return max(self._gone_at, self._whole.changed_at)

    def query(self, query: Query) -> Query:
        return self._whole.query(query)

    def names_of(self, field: str) -> tuple[str, ...]:
        return self._whole.names_of(field)

    def is_converted(self, field: str) -> bool:
        return self._whole.is_converted(field)

    def known_fault(self, found: JsonObject) -> JsonObject:
        return self._readable(self._whole.known_fault(found))

    def _readable(self, found: JsonObject) -> JsonObject:
        """A fault, which does not say what is wrong in a hidden field."""
        name = found["pointer"].removeprefix("#/").partition("/")[0]
        return fault((), UNREADABLE) if name in self._hidden else found

    def create(self, sent: JsonObject, **options: Any) -> Record:
        return self._read(sent, partial(self._whole.create, **options))

    def restore(self, sent: JsonObject, **options: Any) -> Record:
        return self._read(sent, partial(self._whole.restore, **options))

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """See `Representation.replace`. The fields that are not there stay."""
        members = exactjson.cut(self._whole.body(record))
        kept = {name: exactjson.stored(members[name]) for name in self._without if name in members}
        return self._read(sent, lambda own: self._whole.replace(record, own | kept, now=now, limits=limits))

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        return self._read(patch, lambda own: self._whole.merge(record, own, now=now, limits=limits))

    def _read(self, sent: JsonObject, make: Callable[[JsonObject], Record]) -> Record:
        """What `make` returns for the fields that there are.

        Raises ValidationFailed with the faults of all, and Forbidden for a hidden field, whatever its value.
        """
        if refused := next((name for name in sent if name in self._hidden), None):
            raise lacking(self._hidden[refused], f"a change of {refused}")
        faults = [fault([name], self._gone[name]) for name in sent if name in self._gone]
        try:
            record = make({name: value for name, value in sent.items() if name not in self._gone})
        except ValidationFailed as error:
            require_none(faults + [*map(self._readable, error.members["errors"])])
            raise
        require_none(faults)
        return record

    def body(self, record: Record) -> bytes:
        return self._reduced(self._whole.body(record))

    def converted_body(self, record: Record) -> bytes:
        return self._reduced(self._whole.converted_body(record))

    def written_body(self, record: Record) -> bytes:
        return self._reduced(self._whole.written_body(record))

    def bodies(self, page: Page) -> list[bytes]:
        return [self._reduced(body) for body in self._whole.bodies(page)]

    def _reduced(self, body: bytes) -> bytes:
        return exactjson.joined({name: text for name, text in exactjson.cut(body).items() if name not in self._without})
