"""The items of a collection after sunsets: fields are gone, and values and parameters are refused.

What is stored of a field stays in the store: other versions of the API may show it, and a change by callers who do not
see it preserves it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any, cast

from restkeeper.clock import Clock, rfc3339
from restkeeper.errors import InvalidQuery, ValidationFailed
from restkeeper.resources.form import Form
from restkeeper.resources.resource import NO_LIMITS, ItemLimits, JsonObject, schema_with
from restkeeper.schemas.item import READ_ONLY, ItemSchema
from restkeeper.storage.contract import Filter, Op, Page, Query, Record
from restkeeper.versions import Deprecation, seconds_of
from restkeeper.web import exactjson
from restkeeper.web.faults import fault, require_none
from restkeeper.web.queries import RESERVED, Queryable


def with_sunsets(form: Form, deprecations: Sequence[Deprecation], clock: Clock) -> Form:
    """A form from which these parts go at their sunsets; the same form if there are none."""
    return cast(Form, SunsetForm(form, deprecations, clock)) if deprecations else form


class SunsetForm:
    """See `Form`: at each moment it is the given form without the parts whose sunset is over."""

    def __init__(self, form: Form, deprecations: Sequence[Deprecation], clock: Clock) -> None:
        ordered = sorted(deprecations, key=lambda each: each.sunset)
        self._ends = [seconds_of(each.sunset) for each in ordered]
        self._forms = [form, *(ReducedForm(form, ordered[: count + 1]) for count in range(len(ordered)))]
        self._clock = clock
        self.is_stored = form.is_stored and not any(each.field and not each.value for each in ordered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._forms[bisect_right(self._ends, self._clock.time())], name)


class ReducedForm:
    """See `Form`: a form without the deprecated parts."""

    is_stored = False

    def __init__(self, form: Form, parts: Sequence[Deprecation]) -> None:
        self._form = form
        self.name = form.name
        self._gone = {each.member: each.retired for each in parts if each.field and not each.value}
        self._values = [each for each in parts if each.value]
        in_queries = {each.member: each.retired for each in parts if each.parameter and each.member in form.names}
        self._parameters = {n: each.retired for each in parts for n in names_of(each) if each.member not in in_queries}
        self._unqueryable = self._gone | in_queries
        self.names = tuple(name for name in form.names if name not in self._gone)
        self.texts = form.texts - self._gone.keys()
        self.changed_at = max(
            [rfc3339(seconds_of(each.sunset)) for each in parts if each.member in self._gone], default=""
        )
        self.fingerprint = f"{form.fingerprint}-{_digest(parts)}"

    @cached_property
    def schema(self) -> type[ItemSchema]:
        """The schema of an item."""
        if not self._gone:
            return self._form.schema
        fields = self._form.schema().fields
        own = {name: fields[name] for name in self.names if name not in READ_ONLY}
        return schema_with(self._form.schema, own)

    @cached_property
    def queryable(self) -> Queryable:
        """What is left of the fields and parameters; for the others, since when they are gone."""
        before = self._form.queryable
        return replace(
            before,
            fields={name: field for name, field in before.fields.items() if name not in self._unqueryable},
            names=self.names,
            refused={**before.refused, **self._unqueryable},
            retired=self._parameters,
        )

    def query(self, query: Query) -> Query:
        """As `Form.query`. Raises InvalidQuery for a value that is gone."""
        faults = [
            {"parameter": filter.field, "detail": f"cannot be {each.value!r}, which {each.retired}"}
            for filter in query.filters
            for each in self._values
            if each.member == filter.field and each.value in _values(filter)
        ]
        if faults:
            raise InvalidQuery(f"{faults[0]['parameter']} {faults[0]['detail']}", errors=faults)
        return self._form.query(query)

    def name_of(self, field: str) -> str:
        """As `Form.name_of`."""
        return self._form.name_of(field)

    def create(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """A new item, as `Form.create`."""
        return self._read(sent, partial(self._form.create, id=id, now=now, limits=limits))

    def restore(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """An exported item, as `Form.restore`."""
        return self._read(sent, partial(self._form.restore, id=id, now=now, limits=limits))

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """The item with other content, and with what it has of the fields that are gone."""
        members = exactjson.cut(self._form.body(record)) if self._gone else {}
        kept = {name: exactjson.stored(members[name]) for name in self._gone if name in members}
        return self._read(sent, lambda own: self._form.replace(record, own | kept, now=now, limits=limits))

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """The item with a JSON Merge Patch applied to its representation."""
        return self._read(patch, lambda own: self._form.merge(record, own, now=now, limits=limits))

    def _read(self, sent: JsonObject, make: Callable[[JsonObject], Record]) -> Record:
        """What `make` returns for the fields that there are. Raises ValidationFailed with the faults of all."""
        faults = [fault([name], self._gone[name]) for name in sent if name in self._gone]
        for each in self._values:
            faults += _faults_of(each, sent.get(each.member))
        try:
            record = make({name: value for name, value in sent.items() if name not in self._gone})
        except ValidationFailed as error:
            found = {each["pointer"] for each in faults}
            require_none(faults + [each for each in error.members["errors"] if each["pointer"] not in found])
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
        if not self._gone:
            return body
        return exactjson.joined({name: text for name, text in exactjson.cut(body).items() if name not in self._gone})

    def show(self, body: bytes, names: Iterable[str]) -> bytes:
        """A representation reduced to these fields."""
        return self._form.show(body, names)


def names_of(deprecation: Deprecation) -> tuple[str, ...]:
    """The names of a deprecated parameter in a query: of a field, those of all its filters. Of others none."""
    name = deprecation.member
    if not deprecation.parameter:
        return ()
    return (name,) if name in RESERVED or "[" in name else (name, *(f"{name}[{op}]" for op in Op))


def has_value(deprecation: Deprecation, value: Any) -> bool:
    """Whether a member of a body has a deprecated value, itself or as an element."""
    return value == deprecation.value or (isinstance(value, list) and deprecation.value in value)


def _faults_of(deprecation: Deprecation, value: Any) -> list[JsonObject]:
    """A fault for each place where a member has a value that is gone."""
    path, detail = [deprecation.member], f"cannot be {deprecation.value!r}, which {deprecation.retired}"
    if isinstance(value, list):
        return [fault([*path, n], detail) for n, each in enumerate(value) if each == deprecation.value]
    return [fault(path, detail)] if value == deprecation.value else []


def _values(filter: Filter) -> tuple[Any, ...]:
    return filter.value if isinstance(filter.value, tuple) else (filter.value,)


def _digest(parts: Iterable[Deprecation]) -> str:
    return blake2b(",".join([each.part for each in parts]).encode(), digest_size=4).hexdigest()
