"""References: the items to which they refer exist, in every transaction; and the effects of a deletion."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, NamedTuple

from marshmallow import Schema, fields

from restkeeper import exactjson
from restkeeper.errors import NotFound, ValidationFailed, shortened
from restkeeper.resources import embedding
from restkeeper.resources.call import Caller, lacking
from restkeeper.resources.changes import Change, Domain, Unit
from restkeeper.resources.function_errors import as_conflict
from restkeeper.resources.functions import MOST_CHANGES, Items, item_of, require_few_references
from restkeeper.resources.relations import References, StillReferenced
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView
from restkeeper.schemas.fields import IntegerReference, Owner, Reference, Refers
from restkeeper.storage.errors import RecordNotFound, ReferenceMissing
from restkeeper.storage.interface import Filter, Op, Query, Record, root_of

_UNKNOWN = "items that the caller may not read refer to it"
TOGETHER = 300  # items that one statement reads, or whose referrers it finds


class CheckedReferences(References):
    """The references between the collections of a service."""

    relations_for = staticmethod(embedding.relations_for)
    with_hops = staticmethod(embedding.with_hops)
    with_related = staticmethod(embedding.with_related)

    def __init__(self, collections: Mapping[str, StoredView], domain: Domain) -> None:
        self._domain = domain
        self._resources = {name: stored.resource for name, stored in collections.items()}
        self._to: dict[str, list[tuple[StoredView, str, str]]] = {}
        self._collections = collections
        for stored in collections.values():
            for path, field in stored.revision.followed.items():
                if not isinstance(field, Owner):
                    self._to.setdefault(field.to, []).append((stored, path, field.on_delete))

    def relations_of(self, items: Any, others: Iterable[Any]) -> Mapping[str, Any]:
        """The relations of some items. Raises ValueError if items have a field at the path of a relation."""
        relations = embedding.relations_of(items, others)
        embedding.require_free(items, relations)
        return relations

    def check(self, unit: Unit, change: Change, *, bounded: bool = True) -> None:
        """Require the items of new references. Raises ReferenceMissing, also later in the transaction.

        Raises Conflict for too many new references in the transaction of a request, if it is `bounded`.
        For a deletion, raises StillReferenced, Conflict and Forbidden, which `follow` would raise after many changes.
        """
        name, after = change.stored.name, change.after
        if after is None:
            if name in self._to and not unit.items.deletions:  # else `follow` does this for many items together
                # After these questions, nobody adds references to the item.
                unit.transaction.lock_to_delete(name, change.record.id)
                unit.items.referrers = self._plan(unit, change)
            return
        before = change.before.body if change.before and change.before.version else b"{}"
        targets: dict[str, dict[str, tuple[str | int, str]]] = {}  # by collection and id, as for `_require`
        for field, pointers in self.added(change.stored, before, after.body):
            key = self._resources[field.to].key
            new = {key(id): (id, pointer) for id, pointer in pointers.items()}
            if new and bounded and not unit.call.is_program:
                unit.items.add_references(len(new))
            targets[field.to] = new | targets.get(field.to, {})
        for to, ids in sorted(targets.items()):  # in one order of locks, so that writes do not wait for each other
            self._require(unit, to, dict(sorted(ids.items())), after)

    def check_body(self, unit: Unit, schema: Schema, loaded: Any) -> None:
        """Require the items to which the `loaded` body of an action refers. Raises ValidationFailed."""
        targets: dict[str, dict[str, tuple[str | int, str]]] = {}
        for field, id, pointer in _references_of(schema, loaded):
            targets.setdefault(field.to, {}).setdefault(self._resources[field.to].key(id), (id, pointer))
        if not targets:
            return
        require_few_references(sum(map(len, targets.values())))
        try:
            for to, ids in sorted(targets.items()):
                self._require(unit, to, dict(sorted(ids.items())), targets)
            unit.transaction.flush()  # the function sees no wrong reference
        except ReferenceMissing as error:
            if error.of is not targets:  # but an item of an earlier operation of a batch
                raise
            exactjson.require_none([{"pointer": error.pointer, "detail": error.detail}])

    def _require(self, unit: Unit, to: str, new: Mapping[str, tuple[str | int, str]], of: object) -> None:
        """Require the items of `new` references in a collection: by the ids in the store, with sent ids and pointers.

        `of` is the item, or the body of an action, that has these references.
        """

        transaction, caller = unit.transaction, unit.call.caller

        def refusal(id: str) -> ReferenceMissing:
            return missing_reference(self._resources[to], *new[id], of)

        access = self._collections[to].access
        if access.owners(caller) is None:
            return transaction.require_present(to, [*new], refusal)
        for id in new:  # one by one: the first item that the caller must not know of is refused
            transaction.require_present(to, [id], refusal)
            try:
                access.require_sight(caller, transaction.read(to, id, lock=False))
            except (NotFound, RecordNotFound):
                raise refusal(id) from None

    def added(self, stored: StoredView, before: bytes, after: bytes) -> Iterator[tuple[Refers, dict[str | int, str]]]:
        """The references of an item `after` a change that it did not have `before`: by field, ids with pointers."""
        if not (references := stored.revision.references):
            return
        had, has = exactjson.decoded(before), exactjson.decoded(after)
        for path, field in references.items():
            ids_before = {id for _, id in _ids_at(had, path)}
            yield field, {id: pointer for pointer, id in _ids_at(has, path) if id not in ids_before}

    def number(self, stored: StoredView, record: Record) -> int:
        """The number of items that must exist for a new item."""
        of_fields = self.added(stored, b"{}", record.body)
        return sum(len(ids) for _, ids in of_fields)

    def follow(self, unit: Unit, change: Change) -> None:
        """Change or delete the items that refer to a deleted item.

        Raises StillReferenced, Conflict as `Items.apply`, RevisionDiffers, and Forbidden for items that the request
        deletes and the caller may not.
        """
        if change.after is not None or change.stored.name not in self._to:
            return
        items: Items = unit.items
        items.deletions.append(change)
        if len(items.deletions) > 1:
            return  # the loop below, in the call for an earlier deletion, comes to it: a chain may be long
        planned: Iterable[Referrers]
        planned, items.referrers = items.referrers, ()
        while items.deletions:
            level = [*items.deletions]
            for referrers in planned or self.referrers(unit, _ids_by_collection(level)):
                self._follow(unit, referrers)
            del items.deletions[: len(level)]
            planned = ()

    def _plan(self, unit: Unit, change: Change) -> list["Referrers"]:
        """The items that refer to an item that will be deleted, so that `follow` need not find them again.

        Raises StillReferenced, Conflict and Forbidden for all deletions that would follow, as far as ids show it.
        """
        levels, below = list[list[Referrers]](), _ids_by_collection([change])
        gone, cleared = {(change.stored.name, change.record.id)}, 0
        while below:
            level, below = below, {}
            levels.append([])
            for referrers in self.referrers(unit, level, len(gone)):
                name = referrers.stored.name
                remaining = referrers._replace(ids=[id for id in referrers.ids if (name, id) not in gone])
                remaining.require_allowed(unit.call.caller)
                levels[-1].append(remaining)
                if referrers.rule == "null":
                    cleared += len(remaining.ids)
                elif remaining.ids:
                    gone.update((name, id) for id in remaining.ids)
                    below.setdefault(name, []).extend(remaining.ids)
                unit.items.require_room(len(gone) - 1 + cleared)
        return levels[0]

    def referrers(self, unit: Unit, deleted: Mapping[str, Sequence[str]], planned: int = 0) -> Iterator["Referrers"]:
        """The items that refer to `deleted` ones, by field: with "restrict" at least one, else at most one too many.

        There may be `planned` deletions besides. Raises Forbidden, see `follow`.
        """
        call = unit.call
        for name, deleted_ids in deleted.items():
            to = [*chain.from_iterable(map(self._collections[name].id_variants, deleted_ids))]
            for stored, path, rule in self._to.get(name, ()):
                is_known = root_of(path) not in stored.for_caller(call.caller).hidden
                if rule == "null" and is_known and stored.resource.public_name in call.dependents:
                    rule = "chosen"
                    if not call.caller.may(scope := stored.resource.scope("write")):
                        raise lacking(scope)  # also if there is none: who may not know, learns nothing
                most, ids = planned + (1 if rule == "restrict" else MOST_CHANGES + 1), set[str]()
                for start in range(0, len(to), TOGETHER):
                    query = Query(filters=(Filter(path, Op.IN, tuple(to[start : start + TOGETHER])),))
                    ids.update(unit.transaction.find(stored.name, query, most))
                # In one order, so that deletions do not wait for each other.
                yield Referrers(stored, path, rule, {*to}, sorted(ids))

    def _follow(self, unit: Unit, referrers: "Referrers") -> None:
        (stored, path, rule, to, ids), caller = referrers, unit.call.caller
        referrers.require_allowed(caller)
        for before in _locked_items(unit, stored.name, ids, to_delete=rule != "null"):
            if to.isdisjoint(id for _, id in _ids_at(exactjson.decoded(before.body), path)):
                continue
            after = None
            if rule == "chosen":
                stored.access.require_change(caller, before)
            try:
                if rule == "null":
                    after = stored.cleared(before, path, now=unit.now())
            except ValidationFailed:  # which can say what the caller may not read
                raise referrers.refusal(caller, ", and its item is not valid without it") from None
            with as_conflict(stored.name if caller.may(stored.resource.scope("read")) else _UNKNOWN):
                result = unit.items.apply(stored, before, after, bounded=False)
            if rule == "null" and item_of(stored, result).get(path) is not None:
                raise referrers.refusal(caller, ", and stays")


def _locked_items(unit: Unit, collection: str, ids: Sequence[str], *, to_delete: bool) -> Iterator[Record]:
    """Items that exist, locked; an item is as functions have left it when its turn comes."""
    for start in range(0, len(ids), TOGETHER):
        changes_before = unit.changes.copy()
        for record in unit.transaction.read_all(collection, ids[start : start + TOGETHER], to_delete=to_delete):
            key = collection, record.id
            if (last := unit.changes.get(key)) is changes_before.get(key):
                yield record
            elif last and last.after:
                yield last.after


class Referrers(NamedTuple):
    """Items that refer to deleted items by one field.

    The rule is `on_delete` of the field, or "chosen": the request deletes the items, and `on_delete` is "null".
    """

    stored: StoredView
    path: str
    rule: str
    to: Set[str | int]
    ids: list[str]

    def require_allowed(self, caller: Caller) -> None:
        """Raises StillReferenced if the rule is to restrict."""
        if self.ids and self.rule == "restrict":
            raise self.refusal(caller)

    def refusal(self, caller: Caller, more: str = "") -> StillReferenced:
        """The error; it names no collection and no field that the caller may not read."""
        text = f"{self.path} of {self.stored.resource.public_name} refers to it{more}"
        is_private = root_of(self.path) in self.stored.for_caller(caller).hidden
        return StillReferenced(text if caller.may(self.stored.resource.scope("read")) and not is_private else _UNKNOWN)


def _ids_by_collection(changes: Iterable[Change]) -> dict[str, list[str]]:
    """The ids of items, by their collections."""
    ids: dict[str, list[str]] = {}
    for change in changes:
        ids.setdefault(change.stored.name, []).append(change.record.id)
    return ids


def required_by(stored: StoredView, record: Record) -> Iterator[tuple[Refers, str | int, str]]:
    """The references of an item: the field, the id, and the JSON Pointer."""
    item = exactjson.decoded(record.body)
    for path, field in stored.revision.references.items():
        for pointer, id in _ids_at(item, path):
            yield field, id, pointer


def missing_reference(to: Resource, id: str | int, pointer: str, of: object) -> ReferenceMissing:
    """The error of an item, or a body, that refers to nothing."""
    return ReferenceMissing(pointer, f"there is no item {shortened(str(id))!r} in {to.public_name}", of)


def _references_of(
    of: Schema | fields.Field[Any], loaded: Any, *steps: str | int
) -> Iterator[tuple[Refers, str | int, str]]:
    """The references in a value that a schema, or a field, has `loaded`: the field, the id, and the JSON Pointer."""
    if isinstance(loaded, list):
        for number, element in enumerate(loaded):
            yield from _references_of(of.inner if isinstance(of, fields.List) else of, element, *steps, number)
    elif isinstance(of, Reference | IntegerReference):
        if loaded is not None:
            yield of, loaded, exactjson.pointer(steps)
    elif schema := of if isinstance(of, Schema) else getattr(of, "schema", None):
        for name, field in schema.load_fields.items() if loaded is not None else ():
            value = schema.get_attribute(loaded, field.attribute or name, None)
            yield from _references_of(field, value, *steps, field.data_key or name)


def _ids_at(value: Any, path: str, pointer: str = "#") -> Iterator[tuple[str, str | int]]:
    """The ids at a path, with their JSON Pointers; a list stands for all its elements."""
    if isinstance(value, list):
        for number, element in enumerate(value):
            yield from _ids_at(element, path, f"{pointer}/{number}")
    elif isinstance(value, dict):
        name, _, rest = path.partition(".")
        yield from _ids_at(value.get(name), rest, f"{pointer}/{name}")
    elif isinstance(value, str | int):
        yield pointer, value
