"""The items of a collection as a version of the API shows them: in an older revision, and after sunsets.

What callers of an older version send is validated by its own schema, converted to the newest revision, and validated
there as well; faults name the fields as these callers know them. What they do not see stays as it is: other versions
may show it.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from restkeeper.clock import Clock, rfc3339
from restkeeper.config import ConfigError
from restkeeper.errors import IllegalTransition, ValidationFailed
from restkeeper.resources.evolution import Chain, Members, Rename, Untranslatable, revision_of
from restkeeper.resources.representation import NO_LIMITS, ItemLimits, JsonObject, Representation, StoredRepresentation
from restkeeper.resources.resource import schema_with
from restkeeper.schemas.item import READ_ONLY
from restkeeper.schemas.prepared import fields_of
from restkeeper.storage.interface import Page, Query, Record, root_of
from restkeeper.versions import Deprecation, Versions, seconds_of
from restkeeper.web import exactjson
from restkeeper.web.exactjson import fault, require_none
from restkeeper.web.queries import Queryable


def represent(versions: Versions, clock: Clock, newest: StoredRepresentation, version: str) -> Representation:
    """How a version has the items of a collection now. Raises ConfigError for a revision without steps from it."""
    whole, deprecated = before_sunsets(versions, newest, version), versions.fields_of(version, newest.name)
    return cast(Representation, SunsetRepresentation(whole, deprecated, clock)) if deprecated else whole


def before_sunsets(versions: Versions, newest: StoredRepresentation, version: str) -> Representation:
    """How a version has the items of a collection, with the fields whose sunset is over."""
    revision = versions[version].revisions.get(newest.name, newest.revision.number)
    if revision == newest.revision.number:
        return newest
    try:
        return OlderRepresentation(newest, revision)
    except ValueError as error:
        raise ConfigError(f"versions: {version}: {error}") from None


class OlderRepresentation(Representation):
    """The items of a collection in one of its older revisions."""

    def __init__(self, newest: StoredRepresentation, revision: int) -> None:
        """Raises ValueError for a revision that there are no steps from."""
        self._newest = newest
        self._older = older = StoredRepresentation(newest.resource, revision)
        later = range(revision + 1, newest.revision.number + 1)
        self._chains = {number: Chain(newest.resource.upgrades, revision, number) for number in later}
        self._chain = newest.chains[revision]
        self.name, self.schema, self.names, self.texts = older.name, older.schema, older.names, older.texts
        self.fingerprint = f"{older.fingerprint}-{newest.fingerprint}-{self._chain.fingerprint}"
        # The newest names of fields with the same values, and of the others the reason why no query can use them.
        self._same, refused = {name: name for name in self.names}, dict[str, str]()
        # The fields that each of the newest ones comes from.
        self._origins: dict[str, tuple[str, ...]] = {name: (name,) for name in self.names}
        for step in self._chain.steps:
            origins = tuple(each for name in step.before for each in self._origins.pop(name, ()))
            self._origins |= {name: origins for name in step.after if origins}
            for name in [name for name, newer in self._same.items() if newer in step.before]:
                if isinstance(step, Rename):
                    (self._same[name],) = step.after
                else:
                    del self._same[name]
                    instead = " and ".join(step.after) or "nothing"
                    refused[name] = f"cannot be used in queries: newer versions have {instead} instead"
        known = older.queryable.fields
        fields = {name: field for name, field in known.items() if root_of(name) in self._same}
        roots = {root_of(name) for name in known}
        self.queryable = Queryable(fields, self.names, {name: why for name, why in refused.items() if name in roots})

    def query(self, query: Query) -> Query:
        return replace(
            query,
            filters=tuple(each._replace(field=self._stored(each.field)) for each in query.filters),
            sort=tuple(each._replace(field=self._stored(each.field)) for each in query.sort),
        )

    def _stored(self, field: str) -> str:
        root = root_of(field)
        return self._same[root] + field.removeprefix(root)

    def names_of(self, field: str) -> tuple[str, ...]:
        return self._origins.get(field, (field,))

    def create(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        made = self._older.create(sent, id=id, now=now, limits=limits)
        make = partial(self._newest.create, id=made.id, now=now, limits=limits)
        return self._to_newest(made, lambda own: make(self._sent(own)))

    def restore(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        made = self._older.restore(sent, id=id, now=now, limits=limits)
        members = exactjson.cut(made.body)
        of_server = {name: exactjson.stored(members[name]) for name in self._older.revision.of_server}
        return self._to_newest(made, lambda own: self._newest.restore(own | of_server, id=id, now=now, limits=limits))

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        return self._changed(record, partial(self._older.replace, sent=sent), now, limits)

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        return self._changed(record, partial(self._older.merge, patch=patch), now, limits)

    def _changed(self, record: Record, change: Callable[..., Record], now: str, limits: ItemLimits) -> Record:
        before = record._replace(body=self.body(record), fingerprint=self._older.fingerprint)
        together = ItemLimits(2 * limits.size, 2 * limits.values)  # of an item, and of what is stored beside it
        after = change(before, now=now, limits=together)
        if after is before:
            return record
        current = self._newest.present(record)

        def store(own: JsonObject) -> Record:
            made = self._newest.replace(current, self._sent(own), now=now, limits=limits)
            if made is current:  # only what older versions show has changed
                return self._newest.touched(made, now=after.updated_at)
            return made

        changed = self._to_newest(
            after,
            store,
            shown=exactjson.cut(before.body),
            current=exactjson.cut(current.body),
            removed=current.removed,
        )
        if changed.removed and changed.removed != current.removed:
            limits.require(changed.removed)
        return changed

    def _sent(self, own: JsonObject) -> JsonObject:
        """What callers can send of an item of the newest revision."""
        return {name: value for name, value in own.items() if name not in self._newest.revision.read_only}

    def _to_newest(
        self,
        made: Record,
        store: Callable[[JsonObject], Record],
        *,
        shown: Members | None = None,
        current: Members | None = None,
        removed: bytes | None = None,
    ) -> Record:
        """What `store` returns for the newest revision of an item of the older one.

        Before, callers saw it as `shown`, with what is `removed` beside it, and it was stored as `current` if that is
        of a later revision. Raises ValidationFailed, also for new values that would be read back as other ones.
        """
        of_server = self._older.revision.of_server
        own = {name: text for name, text in exactjson.cut(made.body).items() if name not in of_server}
        try:
            members, removed = self._chain.up(own, removed, current)
            record = store({name: exactjson.stored(text) for name, text in members.items()})
        except Untranslatable as error:
            require_none([fault([name], error.reason) for name in self._chain.origins(error.step)])
            raise
        except ValidationFailed as error:
            require_none([self.known_fault(each) for each in error.members["errors"]])
            raise
        except IllegalTransition as error:
            known = self.name_of(error.field)
            if known not in self._same:  # callers know other states
                raise IllegalTransition(f"{known} cannot change so", field=known) from None
            detail = f"{known}{error.detail.removeprefix(error.field)}"
            raise IllegalTransition(detail, field=known, **error.members) from None
        kept = self._chain.down(exactjson.cut(record.body), removed)
        sent = own.keys() - self._same - set(self._older.revision.read_only)
        changed = {name for name in sent if not (shown and shown[name] == own[name])}
        require_none(
            [
                fault([name], f"would be stored as {bytes(kept[name]).decode()}: send that")
                for name in own
                if name in changed and exactjson.stored(kept[name]) != exactjson.stored(own[name])
            ]
        )
        return record._replace(removed=removed)

    def known_fault(self, found: JsonObject) -> JsonObject:
        """With the name that callers know, and without a path into what they do not."""
        name, slash, rest = found["pointer"].removeprefix("#/").partition("/")
        if name not in self._origins:
            return found | {"pointer": "#"}
        known = self.name_of(name)
        inner = slash + rest if known in self._same else ""
        return found | {"pointer": exactjson.pointer([known]) + inner}

    def body(self, record: Record) -> bytes:
        members = exactjson.cut(self._newest.present(record).body)
        return self._shown(self._chain.down(members, record.removed))

    def converted_body(self, record: Record) -> bytes:
        number, newest = revision_of(record.fingerprint), self._newest.revision
        if number <= self._older.revision.number:
            return self._older.converted_body(record)
        if number >= newest.number:
            return self.body(record)
        members = self._newest.resource.revisions[number].with_defaults(exactjson.cut(record.body))
        return self._shown(self._chains[number].down(members, record.removed))

    def written_body(self, record: Record) -> bytes:
        return self._older.written_body(record)

    def _shown(self, item: Members) -> bytes:
        return exactjson.joined({name: item[name] for name in self.names})


class SunsetRepresentation:
    """See `Representation`: at each moment it is the given one without the fields whose sunset is over."""

    def __init__(self, whole: Representation, deprecations: Sequence[Deprecation], clock: Clock) -> None:
        ordered = sorted(deprecations, key=lambda each: each.sunset)
        self._ends = [seconds_of(each.sunset) for each in ordered]
        self._left = [whole, *(ReducedRepresentation(whole, ordered[: count + 1]) for count in range(len(ordered)))]
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._left[bisect_right(self._ends, self._clock.time())], name)


class ReducedRepresentation(Representation):
    """A representation without some fields, which are gone."""

    def __init__(self, whole: Representation, gone: Sequence[Deprecation]) -> None:
        self._whole = whole
        self._gone = {each.member: each.retired for each in gone}
        self.name = whole.name
        self.names = tuple(name for name in whole.names if name not in self._gone)
        self.texts = whole.texts - self._gone.keys()
        self._gone_at = rfc3339(max(seconds_of(each.sunset) for each in gone))
        self.fingerprint = "-".join([whole.fingerprint, *sorted(self._gone)])
        fields = fields_of(whole.schema())
        left = {name: fields[name] for name in self.names if name not in READ_ONLY or not fields[name].dump_only}
        self.schema = schema_with(whole.schema, left)
        before = whole.queryable
        queried = {name: field for name, field in before.fields.items() if root_of(name) not in self._gone}
        self.queryable = Queryable(queried, self.names, {**before.refused, **self._gone})

    @property
    def changed_at(self) -> str:  # type: ignore[override]
        return max(self._gone_at, self._whole.changed_at)

    def query(self, query: Query) -> Query:
        return self._whole.query(query)

    def names_of(self, field: str) -> tuple[str, ...]:
        return self._whole.names_of(field)

    def known_fault(self, found: JsonObject) -> JsonObject:
        return self._whole.known_fault(found)

    def create(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        return self._read(sent, partial(self._whole.create, id=id, now=now, limits=limits))

    def restore(self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        return self._read(sent, partial(self._whole.restore, id=id, now=now, limits=limits))

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """See `Representation.replace`. The fields that are gone stay."""
        members = exactjson.cut(self._whole.body(record))
        kept = {name: exactjson.stored(members[name]) for name in self._gone if name in members}
        return self._read(sent, lambda own: self._whole.replace(record, own | kept, now=now, limits=limits))

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        return self._read(patch, lambda own: self._whole.merge(record, own, now=now, limits=limits))

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
        return self._reduced(self._whole.body(record))

    def converted_body(self, record: Record) -> bytes:
        return self._reduced(self._whole.converted_body(record))

    def written_body(self, record: Record) -> bytes:
        return self._reduced(self._whole.written_body(record))

    def bodies(self, page: Page) -> list[bytes]:
        return [self._reduced(body) for body in self._whole.bodies(page)]

    def _reduced(self, body: bytes) -> bytes:
        return exactjson.joined({name: text for name, text in exactjson.cut(body).items() if name not in self._gone})
