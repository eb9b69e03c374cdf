"""The items of a collection as a version of the API shows them: in an older revision, and after sunsets.

What callers of an older version send is validated by its own schema, converted to the newest revision, and validated
there as well; faults name the fields as these callers know them. What they do not see stays as it is: other versions
may show it.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from marshmallow import fields

from restkeeper import exactjson
from restkeeper.clock import Clock
from restkeeper.config import ConfigError
from restkeeper.errors import IllegalTransition, ValidationFailed
from restkeeper.exactjson import JsonObject, fault, require_none
from restkeeper.resources.evolution import Add, Convert, Rename
from restkeeper.resources.item import NO_LIMITS, ItemForm, ItemLimits
from restkeeper.resources.parameters import Queryable
from restkeeper.resources.step import Members, Step, Untranslatable
from restkeeper.resources.views import Access, PartialViews, StoredView, View, Views
from restkeeper.schemas.fields import WRITABLE_BY, Status
from restkeeper.storage.interface import Aggregate, Filter, GroupBy, Groups, Query, Record, Sort, root_of
from restkeeper.versions import Versions, seconds_of

T = TypeVar("T", Filter, Sort, GroupBy, Aggregate)


def represent(versions: Versions, clock: Clock, views: Views, newest: StoredView, version: str) -> Views:
    """How callers of a version see the items of a collection. Raises ConfigError for one that it cannot have."""
    deprecated = versions.fields_of(version, newest.name)
    ends = [(seconds_of(field.sunset), field.member, field.retired) for field in deprecated]
    whole = before_sunsets(versions, newest, version)
    return PartialViews(whole, ends, clock) if ends else whole


def before_sunsets(versions: Versions, newest: StoredView, version: str) -> View:
    """How a version has the items of a collection, with the fields whose sunset is over."""
    revision = versions[version].revisions.get(newest.name, newest.revision.number)
    if revision == newest.revision.number:
        return newest
    try:
        return OlderView(newest, revision)
    except ValueError as error:
        raise ConfigError(f"versions: {version}: {error}") from None


def _rules_of(field: fields.Field[Any]) -> list[str]:
    """The options of a field that say who can set which of its values."""
    rules: dict[str, Any] = {"writable_by": field.metadata.get(WRITABLE_BY)}
    if isinstance(field, Status):
        rules |= {"scopes": field.lifecycle.scopes, "by_actions": field.lifecycle.by_actions}
    return [option for option, rule in rules.items() if rule]


def _added_by(steps: Iterable[Step]) -> Members:
    """What a new item of the older revision has in fields that are added with a default, by their newest names."""
    added: dict[str, exactjson.Buffer] = {}
    for step in steps:
        defaults = [added.pop(name, None) for name in step.before]
        if isinstance(step, Rename) and defaults[0] is not None:
            added[step.after[0]] = defaults[0]
        added |= step.texts if isinstance(step, Add) else {}
    return added


class OlderView(View):
    """The items of a collection in one of its older revisions."""

    def __init__(self, newest: StoredView, revision: int) -> None:
        """Raises ValueError for a revision that there are no steps from."""
        resource = newest.resource
        if revision not in resource.revisions:
            raise ValueError(f"{resource.name}: upgrades has no steps from revision {revision}")
        self._newest = newest
        self.form = self._older = older = ItemForm(resource, resource.revisions[revision])
        self._chain = resource.chain(revision, resource.revision)
        self.name, self.schema, self.names, self.texts = older.name, older.schema, older.names, older.texts
        self.fingerprint = f"{older.fingerprint}-{newest.fingerprint}-{self._chain.fingerprint}"
        # The newest names of fields with the same values, and of the others the reason why no query can use them.
        self._same, refused = {name: name for name in self.names}, dict[str, str]()
        # The fields that each of the newest ones comes from.
        self._origins: dict[str, tuple[str, ...]] = {name: (name,) for name in self.names}
        self._converted = set[str]()  # the newest names of fields that a step converts
        for step in self._chain.steps:
            is_converted = isinstance(step, Convert) or not self._converted.isdisjoint(step.before)
            self._converted = self._converted.difference(step.before).union(step.after if is_converted else ())
            origins = tuple(origin for name in step.before for origin in self._origins.pop(name, ()))
            self._origins |= {name: origins for name in step.after if origins}
            for name in [name for name, newer in self._same.items() if newer in step.before]:
                if isinstance(step, Rename):
                    (self._same[name],) = step.after
                else:
                    del self._same[name]
                    instead = " and ".join(step.after) or "nothing"
                    refused[name] = f"cannot be used in queries: newer versions have {instead} instead"
        if (owner := older.revision.owner) and owner not in self.names_of(newest.revision.owner):
            raise ValueError(f"{self.name}: {owner} is an Owner there, which is gone: end this version first")
        for name, field in older.revision.guarded.items():  # writes are checked by the newest fields
            if rules := [] if name in self._same else _rules_of(field):
                why = "is not checked for a field that is gone or converted: leave it out in the step"
                raise ValueError(f"{self.name}: {name}: {rules[0]} {why}")
        for name, text in _added_by(self._chain.steps).items():
            if not isinstance(status := newest.revision.definitions.get(name), Status):
                continue
            state, is_default = exactjson.decoded(text), text == newest.revision.defaults.get(name)
            if not is_default and (state in status.lifecycle.scopes or state in status.lifecycle.by_actions):
                why = f"not every caller can set {state!r}, which new items of this version would have"
                raise ValueError(f"{self.name}: {name}: {why}: Add another default")
        declared = older.queryable.fields
        same = {name: field for name, field in declared.items() if root_of(name) in self._same}
        roots = {root_of(name) for name in declared}
        unusable = {name: why for name, why in refused.items() if name in roots}
        self.queryable = Queryable(same, self.names, unusable, older.queryable.is_searched)
        owner = self.name_of(newest.owner_field)
        self.owner_field = owner if owner in same and same[owner].is_owner else ""
        names = {*self.names}
        private = [(name, scope) for field, scope in newest.private for name in names & {*self.names_of(field)}]
        self.private = {*older.revision.private.items(), *private}
        self.guarded = {(name, scope) for field, scope in newest.guarded for name in self.names_of(field)}
        self._of_owner = names.intersection(self.names_of(newest.revision.owner))

    @property
    def changed_at(self) -> str:  # type: ignore[override]
        return self._newest.changed_at

    @property
    def access(self) -> Access:  # type: ignore[override]
        return self._newest.access

    def query(self, query: Query) -> Query:
        groups = query.groups and Groups(self._renamed(query.groups.by), self._renamed(query.groups.aggregates))
        return query._replace(filters=self._renamed(query.filters), sort=self._renamed(query.sort), groups=groups)

    def _renamed(self, parts: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(term._replace(field=self._stored(term.field)) for term in parts)

    def _stored(self, field: str) -> str:
        root = root_of(field)
        return self._same[root] + field.removeprefix(root)

    def names_of(self, field: str) -> tuple[str, ...]:
        return self._origins.get(field) or (() if field in self.names else (field,))

    def is_converted(self, field: str) -> bool:
        return field in self._converted

    def new_record(self, sent: JsonObject, *, id: str, **options: Any) -> Record:
        record = self._older.new_record(sent, id=id, **options)
        is_beside = sent.keys().isdisjoint(self.names_of(self._newest.revision.owner))
        return self._to_newest(
            record, lambda item: self._newest.new_record(self._sent(item), id=record.id, **options), is_beside=is_beside
        )

    def restore(self, sent: JsonObject, *, id: str, owner: str | None = None, **options: Any) -> Record:
        record = self._older.restore(sent, id=id, owner=owner, **options)
        members = exactjson.cut(record.body)
        of_server = {name: exactjson.decoded(members[name]) for name in self._older.revision.of_server}
        return self._to_newest(
            record,
            lambda item: self._newest.restore(item | of_server, id=id, owner=owner, **options),
            is_beside=owner is not None,
        )

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        if hidden := self._of_owner - sent.keys():
            members = exactjson.cut(self.body(record))
            sent = {name: exactjson.decoded(members[name]) for name in hidden} | sent
        return self._changed(record, partial(self._older.replace, sent=sent), now, limits)

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        return self._changed(record, partial(self._older.merge, patch=patch), now, limits)

    def _changed(self, record: Record, change: Callable[..., Record], now: str, limits: ItemLimits) -> Record:
        before = record._replace(body=self.body(record), fingerprint=self._older.fingerprint)
        together = ItemLimits(2 * limits.size, 2 * limits.values)  # of an item, and of values beside it
        after = change(before, now=now, limits=together)
        if after is before:
            return record
        current = self._newest.present(record)

        def store(item: JsonObject) -> Record:
            stored = self._newest.replace(current, self._sent(item), now=now, limits=limits)
            if stored is current:  # only what older versions show has changed
                return self._newest.touched(stored, now=after.updated_at)
            return stored

        changed = self._to_newest(
            after,
            store,
            before=exactjson.cut(before.body),
            current=exactjson.cut(current.body),
            removed_fields=current.removed_fields,
        )
        if changed.removed_fields and changed.removed_fields != current.removed_fields:
            limits.require(changed.removed_fields)
        return changed

    def _sent(self, item: JsonObject) -> JsonObject:
        """What callers can send of an item of the newest revision."""
        return {name: value for name, value in item.items() if name not in self._newest.revision.read_only}

    def _to_newest(
        self,
        older: Record,
        store: Callable[[JsonObject], Record],
        *,
        before: Members | None = None,
        current: Members | None = None,
        removed_fields: bytes | None = None,
        is_beside: bool = False,
    ) -> Record:
        """What `store` returns for the newest revision of an item of the older one.

        Callers saw its members `before` the change, beside the `removed_fields`; it was stored as `current`, if that
        is of a later revision. If the owner of a new one `is_beside` it, that is no matter of the steps. Raises
        ValidationFailed, also for new values that would be read back as other ones.
        """
        of_server, beside = self._older.revision.of_server, self._newest.revision.owner if is_beside else ""
        item = {name: text for name, text in exactjson.cut(older.body).items() if name not in of_server}
        try:
            members, removed_fields = self._chain.up(item, removed_fields, current)
            record = store({name: exactjson.decoded(text) for name, text in members.items() if name != beside})
        except Untranslatable as error:
            require_none([fault([name], error.reason) for name in self._chain.origins(error.step)])
            raise
        except ValidationFailed as error:
            require_none([self.known_fault(entry) for entry in error.members["errors"]])
            raise
        except IllegalTransition as error:
            older_name = self.name_of(error.field)
            if older_name not in self._same:  # callers know other states
                raise IllegalTransition(f"{older_name} cannot change so", field=older_name) from None
            detail = f"{older_name}{error.detail.removeprefix(error.field)}"
            raise IllegalTransition(detail, field=older_name, **error.members) from None
        read_back = self._chain.down(exactjson.cut(record.body), removed_fields)
        sent = item.keys() - self._same - {*self._older.revision.read_only, *self.names_of(beside)}
        changed = [name for name in item if name in sent and not (before and before[name] == item[name])]
        wrong = [name for name in changed if exactjson.decoded(read_back[name]) != exactjson.decoded(item[name])]
        require_none(
            [fault([name], f"would be stored as {bytes(read_back[name]).decode()}: send that") for name in wrong]
        )
        return record._replace(removed_fields=removed_fields)

    def known_fault(self, fault: JsonObject) -> JsonObject:
        """The fault with the name that callers know, and without a path into values that they do not know."""
        name, slash, rest = fault["pointer"].removeprefix("#/").partition("/")
        if name not in self._origins:
            return fault | {"pointer": "#"}
        older_name = self.name_of(name)
        inner = slash + rest if older_name in self._same else ""
        return fault | {"pointer": exactjson.pointer([older_name]) + inner}

    def body(self, record: Record) -> bytes:
        item = self._chain.down(exactjson.cut(self._newest.present(record).body), record.removed_fields)
        return exactjson.joined({name: item[name] for name in self.names})
