"""The items of a collection after sunsets: fields are gone.

What is stored of a field stays in the store: other versions of the API may show it, and a change by callers who do not
see it preserves it.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from restkeeper.clock import Clock, rfc3339
from restkeeper.errors import ValidationFailed
from restkeeper.resources.form import Form
from restkeeper.resources.resource import NO_LIMITS, ItemLimits, JsonObject, schema_with
from restkeeper.schemas.item import READ_ONLY, ItemSchema
from restkeeper.storage.contract import Page, Record
from restkeeper.versions import Deprecation, seconds_of
from restkeeper.web import exactjson
from restkeeper.web.exactjson import fault, require_none
from restkeeper.web.queries import Queryable


class SunsetForm:
    """See `Form`: at each moment it is the given form without the fields whose sunset is over."""

    is_stored = False

    def __init__(self, form: Form, deprecations: Sequence[Deprecation], clock: Clock) -> None:
        ordered = sorted(deprecations, key=lambda each: each.sunset)
        self._ends = [seconds_of(each.sunset) for each in ordered]
        self._forms = [form, *(ReducedForm(form, ordered[: count + 1]) for count in range(len(ordered)))]
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._forms[bisect_right(self._ends, self._clock.time())], name)


class ReducedForm:
    """See `Form`: a form without these fields."""

    is_stored = False

    def __init__(self, form: Form, gone: Sequence[Deprecation]) -> None:
        self._form = form
        self._gone = {each.member: each.retired for each in gone}
        self.name = form.name
        self.names = tuple(name for name in form.names if name not in self._gone)
        self.texts = form.texts - self._gone.keys()
        self.changed_at = rfc3339(max(seconds_of(each.sunset) for each in gone))
        self.fingerprint = "-".join([form.fingerprint, *sorted(self._gone)])
        self.query, self.name_of, self.show = form.query, form.name_of, form.show

    @cached_property
    def schema(self) -> type[ItemSchema]:
        """The schema of an item."""
        fields = self._form.schema().fields
        return schema_with(self._form.schema, {name: fields[name] for name in self.names if name not in READ_ONLY})

    @cached_property
    def queryable(self) -> Queryable:
        """What is left of the fields; for the others, since when they are gone."""
        before = self._form.queryable
        fields = {name: field for name, field in before.fields.items() if name not in self._gone}
        return replace(before, fields=fields, names=self.names, refused={**before.refused, **self._gone})

    def create(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """A new item, as `Form.create`."""
        return self._read(sent, partial(self._form.create, id=id, now=now, limits=limits))

    def restore(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """An exported item, as `Form.restore`."""
        return self._read(sent, partial(self._form.restore, id=id, now=now, limits=limits))

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """The item with other content, and with what it has of the fields that are gone."""
        members = exactjson.cut(self._form.body(record))
        kept = {name: exactjson.stored(members[name]) for name in self._gone if name in members}
        return self._read(sent, lambda own: self._form.replace(record, own | kept, now=now, limits=limits))

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """The item with a JSON Merge Patch applied to its representation."""
        return self._read(patch, lambda own: self._form.merge(record, own, now=now, limits=limits))

    def _read(self, sent: JsonObject, make: Callable[[JsonObject], Record]) -> Record:
        """What `make` returns for the fields that there are. Raises ValidationFailed with the faults of all."""
        faults = [fault([name], self._gone[name]) for name in sent if name in self._gone]
        try:
            record = make({name: value for name, value in sent.items() if name not in self._gone})
        except ValidationFailed as error:
            require_none(faults + error.members["errors"])
            raise
        require_none(faults)
        return record

    def body(self, record: Record) -> bytes:
        """The representation of a record."""
        return self._reduced(self._form.body(record))

    def bodies(self, page: Page) -> list[bytes]:
        """As `Form.bodies`."""
        return [self._reduced(body) for body in self._form.bodies(page)]

    def _reduced(self, body: bytes) -> bytes:
        return exactjson.joined({name: text for name, text in exactjson.cut(body).items() if name not in self._gone})
