"""The collections of a file: items with any id, and with the members that were sent or that a schema accepts."""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property, partial
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

import msgspec
from marshmallow import fields

from restkeeper import exactjson
from restkeeper.clock import YIELD_SECONDS, rfc3339, time_after
from restkeeper.errors import Problem
from restkeeper.exactjson import Buffer, JsonObject, fault, listed, require_none
from restkeeper.features.files.content import Content, id_of, is_equal, key_of, members_of
from restkeeper.resources import embedding
from restkeeper.resources.changes import Unit
from restkeeper.resources.item import NO_LIMITS, ItemLimits
from restkeeper.resources.references import CheckedReferences, Referrers
from restkeeper.resources.resource import Resource
from restkeeper.resources.revision import Revision
from restkeeper.resources.views import StoredView
from restkeeper.schemas.fields import Refers
from restkeeper.service import Service
from restkeeper.storage.interface import Field, Kind, Record

NONE = (None, "")  # ids that an item is sent without
TOGETHER = 1000  # items that one transaction stores at the start
LONGEST_ID = 2000  # bytes in JSON of an id that is sent: escaped, it has room in a path, and in a field of a response


class FileItems(StoredView):
    """The items of a collection, or the singleton. Without a schema, an item has all members that are sent.

    An id in what replaces an item, or is merged into it, is ignored. A new item that is sent without an id has it
    first, or last if `ids_are_last` in the file. With an `owner_name`, that member has the id of the owner of an item.
    """

    ids_are_last = False
    owner_name = ""

    def __init__(self, resource: "FileResource") -> None:
        self._is_free = all(isinstance(field, WeakReference) for field in resource.newest.definitions.values())
        super().__init__(resource)
        self.queryable = dataclasses.replace(self.queryable, known=resource.known)
        self.checked = resource.checked

    @property
    def is_put_creating(self) -> bool:
        return super().is_put_creating and not self.resource.undeclared

    def id_of(self, record: Record) -> str | int:
        return cast(str | int, exactjson.decoded(exactjson.cut(record.body)[self.schema.id_name]))

    def id_variants(self, key: str) -> tuple[str | int, ...]:
        id = id_of(key)
        return (id, str(id)) if isinstance(id, int) else (id,)

    def new_record(
        self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS, owner: str | None = None
    ) -> Record:
        if self.resource.singleton:
            return self._stored(self._accepted(sent), self.name, 1, now, limits, owner)
        name = self.schema.id_name
        if sent.get(name) not in NONE:
            shown_id = self._texts({name: sent[name]})[name]
            id = self._key(shown_id, limits)
        else:
            shown_id = exactjson.dumps(self.resource.public_id(id))
        members = self._accepted({member: value for member, value in sent.items() if member != name})
        members = self._in_order(sent, members, shown_id, is_last=self.ids_are_last)
        return self._stored(members, id, 1, now, limits, owner)

    def _key(self, id: Buffer, limits: ItemLimits) -> str:
        """The key of an item that is sent with this id. Raises ValidationFailed."""
        value, wrong = exactjson.decoded(id), ""
        if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
            wrong = "must be a text or a number"
        elif limits is not NO_LIMITS and len(bytes(id)) > LONGEST_ID:
            wrong = f"must have at most {LONGEST_ID} bytes in JSON"
        require_none([fault([self.schema.id_name], wrong)] if wrong else [])
        return self.resource.key(value)

    restore = new_record

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        current, own_id = exactjson.cut(record.body), "" if self.resource.singleton else self.schema.id_name
        members = self._accepted({name: value for name, value in sent.items() if name != own_id or not own_id})
        if own_id:
            members = self._in_order(sent, members, current[own_id], is_last=next(iter(current)) != own_id)
        if members.keys() == current.keys() and all(is_equal(text, current[name]) for name, text in members.items()):
            return record
        now = time_after(record.updated_at, now)
        return self._stored(members, record.id, record.version + 1, now, limits, record.owner)

    def revise(self, record: Record, item: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        return self.replace(record, item, now=now, limits=limits)

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """The item with these members in place of its own, also null."""
        return self.replace(record, {**exactjson.cut(record.body), **patch}, now=now, limits=limits)

    def cleared(self, record: Record, path: str, *, now: str) -> Record:
        return self.merge(record, {path: None}, now=now)

    def of_file(self, content: Content, key: str, text: Buffer, now: str) -> Record:
        """An item as it stands in a file. Raises FileError if items are checked, and it is invalid."""
        try:
            if self.checked:
                return self.new_record(members_of(text), id=key, now=now)
        except Problem as problem:
            raise content.fault(self.resource.public_name, key, f"{problem}: change it, or the schema") from None
        has_escapes = b"\\" in bytes(text)  # also of names, which queries know unescaped
        body = exactjson.joined(exactjson.cut(text)) if has_escapes else msgspec.json.format(bytes(text), indent=-1)
        owner = self._owner(exactjson.cut(text)) if self.owner_name else None
        key = self.name if self.resource.singleton else key
        return Record(key, 1, now, self.fingerprint, body, owner)

    def _owner(self, members: Mapping[str, Buffer]) -> str | None:
        """The owner that an item names, if it names one."""
        id = exactjson.decoded(members.get(self.owner_name, b"null"))
        return None if id is None else key_of(id)

    def _accepted(self, sent: JsonObject) -> Mapping[str, Buffer]:
        """The texts of the members that are sent, if the schema accepts them. Raises ValidationFailed."""
        if not self._is_free:
            texts = {name: value for name, value in sent.items() if isinstance(value, Buffer)}  # as numbers are written
            named = self.revision.definitions
            values = {name: exactjson.decoded(text) if name in named else None for name, text in texts.items()}
            text, faults = self._text_or_faults({**sent, **values})
            require_none(faults)
            return {**exactjson.cut(text), **texts}
        return self._texts(sent)

    @staticmethod
    def _texts(sent: JsonObject) -> Mapping[str, Buffer]:
        """The texts of the members that are sent. Raises ValidationFailed."""
        try:
            return exactjson.cut(exactjson.dumps(sent))
        except exactjson.EncodeError:
            require_none(listed(exactjson.faults_in_values(sent)))
            raise

    def _in_order(
        self, sent: JsonObject, members: Mapping[str, Buffer], id: Buffer, *, is_last: bool
    ) -> Mapping[str, Buffer]:
        """The members with the id at the place where it was sent, else first or last."""
        available = {self.schema.id_name: id, **members}
        order = sent if self.schema.id_name in sent else members if is_last else ()
        return {name: available[name] for name in (*order, *available) if name in available}

    def _stored(
        self, members: Mapping[str, Buffer], key: str, version: int, now: str, limits: ItemLimits, owner: str | None
    ) -> Record:
        body = exactjson.joined(members)
        limits.require(body)
        owner = self._owner(members) if self.owner_name else owner
        return Record(key, version, now, self.fingerprint, body, owner)


@dataclasses.dataclass(frozen=True)
class FileResource(Resource):
    """The declaration of a collection, or a singleton, of a file. Items are `known` to have names that no field has.

    With `checked`, the items of the file must be valid, too.
    """

    known: frozenset[str] = frozenset()
    checked: bool = False

    def stored_view(self) -> FileItems:
        return FileItems(self)

    def key(self, id: object) -> str:
        return key_of(id)

    def public_id(self, key: str) -> str | int:
        return id_of(key) if self.ids == "client-integer" else str(id_of(key))

    @cached_property
    def revisions(self) -> Mapping[int, Revision]:
        (newest,) = super().revisions.values()
        if "id" not in newest.fields:
            return {newest.number: newest}
        id_name, id = self.schema.id_name, Field("id", Kind.TEXT, read=self.key)
        names = tuple(id_name if name == "id" else name for name in newest.names)
        weak = [name for name, field in newest.definitions.items() if isinstance(field, WeakReference)]
        queried = {"id": id} | {name: Field(name, Kind.JSON, nullable=True, in_body=True) for name in weak}
        queried |= {**newest.fields, "id": id, id_name: id}
        return {newest.number: newest._replace(fields=MappingProxyType(queried), names=names)}


class WeakReference(Refers, fields.Raw):
    """The id of an item, as a text or a number, if there is one with it: any other value is stored, too."""

    bounds = ()
    checked = False

    def __init__(self, to: str, **options: Any) -> None:
        super().__init__(to, on_delete="null", allow_none=True, **options)


class FileReferences(CheckedReferences):
    """The references of a file: an object in an item can have the name of a relation."""

    relations_of = staticmethod(embedding.relations_of)

    def referrers(self, unit: Unit, deleted: Mapping[str, Sequence[str]], planned: int = 0) -> Iterator[Referrers]:
        """None for an edit of the file: items that were not edited stay as they are."""
        return iter(()) if unit.call.is_program else super().referrers(unit, deleted, planned)


def views_of(service: Service) -> dict[str, FileItems]:
    """The items of a service, by the names of the members of its file."""
    return {stored.resource.public_name: cast(FileItems, stored) for stored in service.stored.values()}


def place_ids(service: Service, content: Content) -> None:
    """Put the ids of new items first or last, as the items of the file have them."""
    for name, stored in views_of(service).items():
        first_member = next(iter(exactjson.cut(content.sample(name) or b"{}")), content.id_name)
        stored.ids_are_last = first_member != content.id_name


def fill(service: Service, content: Content) -> None:
    """Store the items of a file, without events. Raises FileError for an invalid item, if items are checked."""
    now = rfc3339(service.clock.time())
    place_ids(service, content)
    for name, stored in views_of(service).items():
        items = iter(content.items(name))
        while batch := [*islice(items, TOGETHER)]:
            records = [stored.of_file(content, *item, now) for item in batch]
            service.write(partial(_insert, stored, records))
            time.sleep(YIELD_SECONDS)


def _insert(stored: FileItems, records: list[Record], unit: Unit) -> None:
    unit.put_records(stored.name, records)
    unit.use_ids(stored, [record.id for record in records])
