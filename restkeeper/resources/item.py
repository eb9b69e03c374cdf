"""An item by its schema: what is sent becomes a record, and a record JSON. Pure functions of values.

There is no store here, no caller and no request.
"""

import re
from collections.abc import Set
from decimal import Decimal
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

from marshmallow import ValidationError

from restkeeper import exactjson
from restkeeper.clock import time_after
from restkeeper.errors import BodyTooLarge, EditConflict, IllegalTransition
from restkeeper.exactjson import JsonObject, fault, faults_in, listed, merge_patch, require_none
from restkeeper.resources.parameters import Queryable
from restkeeper.resources.resource import Resource
from restkeeper.resources.revision import Revision
from restkeeper.resources.step import OTHERS, Members, revision_of
from restkeeper.schemas.fields import Status, is_exact
from restkeeper.schemas.item import CLIENT_IDS, INTEGERS, READ_ONLY, IntegerId, ServerFieldsSchema, absent_in
from restkeeper.storage.errors import RevisionDiffers
from restkeeper.storage.interface import Record

NO_ID = "0"  # of a new item, which gets the next integer: the key of no integer is so short
MOVING = {"updated_at", "version"}  # the read-only fields that every change changes

_ITEM = b'{"id":%b,%b"created_at":"%b","updated_at":"%b","version":%d}'  # none of these values needs an escape
_TIMES = re.compile(rb',"created_at":("[^"]*"),"updated_at":("[^"]*"),"version":(\d+)}\Z')  # its end
_ID = re.compile(rb'\A{"id":"[^"]*",?')
_SERVER_FIELDS = ServerFieldsSchema()
_WITH_INTEGERS = {ids: ServerFieldsSchema.from_dict({"id": IntegerId(*bounds)})() for ids, bounds in INTEGERS.items()}


class Loaded(dict[str, Any]):
    """A request's body that the schema has loaded: `text` is the JSON of the fields to store."""

    def __init__(self, sent: JsonObject, text: bytes) -> None:
        super().__init__(sent)
        self.text = text


class ItemLimits(NamedTuple):
    """The largest size of an item: in bytes of its JSON, and in values (objects, arrays and their members)."""

    size: int
    values: int

    def require(self, body: bytes) -> None:
        """Raises BodyTooLarge for the JSON of an item that is larger."""
        if len(body) > self.size:
            raise BodyTooLarge(f"the item would have {len(body)} bytes; it can have {self.size} (MAX_ITEM, MAX_BODY)")
        if len(body) > self.values and exactjson.count_values(body) > self.values:  # a value takes a byte
            raise BodyTooLarge(f"the item would have more than {self.values} values")


NO_LIMITS = ItemLimits(2**63, 2**63)


def digest(body: bytes) -> str:
    """The strong ETag of a representation, without its quotes."""
    return blake2b(body, digest_size=12).hexdigest()


class ItemForm:
    """The items of a collection in one revision of their schema.

    Two programs of one revision can have different schemas, with fields that the other program does not know. A program
    that writes an item gives it the fingerprint of its schema. It keeps the fields that it does not know, and then puts
    OTHERS behind the fingerprint.
    """

    def __init__(self, resource: Resource, revision: Revision) -> None:
        self.resource = resource
        self.revision = revision
        self.name, self.schema, self.names, self.texts = resource.name, revision.schema, revision.names, revision.texts
        self.fingerprint = revision.fingerprint
        is_searched = bool(resource.search) or resource.undeclared
        self.queryable = Queryable(revision.fields, revision.names, is_searched=is_searched)
        self._schema = revision.loading
        self._server_fields = _WITH_INTEGERS.get(resource.ids, _SERVER_FIELDS)
        self._is_exact = all(map(is_exact, revision.definitions.values()))
        definitions = revision.definitions
        self._states = {name: field.lifecycle for name, field in definitions.items() if isinstance(field, Status)}
        self._read_only = (*(name for name in READ_ONLY if name not in revision.hidden), *revision.read_only)
        self._stores_server_fields = revision.of_server == READ_ONLY  # in its body
        times = (b',"%b":\\%d' % (name.encode(), n) for n, name in enumerate(READ_ONLY) if name in self.names and n)
        self._times = b"".join(times) + b"}"  # what callers see of _TIMES
        # Attributes of loaded items that have another name in JSON: what is sent by this name is another field.
        attributes = {field.attribute or name for name, field in revision.loading.fields.items()}
        self._attributes = attributes - definitions.keys()

    def new_record(
        self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS, owner: str | None = None
    ) -> Record:
        sent_id = {"id": sent["id"]} if self.resource.ids in CLIENT_IDS and "id" in sent else {}
        names = [name for name in self._read_only if name in sent and name not in sent_id]
        faults = [fault([name], "is set by the server") for name in names]
        faults += listed(faults_in(self._server_fields.validate(sent_id))) if sent_id else ()
        owned = self._with_owner_field(sent, owner)
        text, more = (sent.text, []) if isinstance(sent, Loaded) else self._text_or_faults(owned)
        require_none(faults + more)
        id = self.resource.key(self._server_fields.load(sent_id)["id"]) if sent_id else id
        return self._record(text, id=id, created_at=now, now=now, version=1, limits=limits, owner=owner)

    def _with_owner_field(self, sent: JsonObject, owner: str | None) -> JsonObject:
        """The sent fields of an item, with its owner if the owner is a field and was not sent."""
        return {**sent, name: owner} if (name := self.revision.owner) and name not in sent else sent

    def restore(
        self, sent: JsonObject, *, id: str, now: str, limits: ItemLimits = NO_LIMITS, owner: str | None = None
    ) -> Record:
        of_server: JsonObject = {name: sent[name] for name in self.revision.of_server if name in sent}
        if id != NO_ID:
            of_server.setdefault("id", self.resource.public_id(id))
        of_server = {"updated_at": now, "version": 1, **of_server}
        faults: list[JsonObject] = []
        try:
            of_server = self._server_fields.load(of_server)
        except ValidationError as error:
            faults = listed(faults_in(error.messages))
        names = {*self.revision.of_server} - ({"id"} if self.revision.is_open else set())
        content = self._with_owner_field({name: value for name, value in sent.items() if name not in names}, owner)
        text, more = self._text_or_faults(content, sent)
        require_none(faults + more)
        now, id = of_server.pop("updated_at"), self.resource.key(of_server.pop("id")) if "id" in of_server else id
        return self._record(text, id=id, **{"created_at": now, **of_server}, now=now, limits=limits, owner=owner)

    def loaded(self, sent: JsonObject) -> JsonObject:
        revision = self.revision
        is_known = sent.keys() <= {*revision.definitions, *revision.of_server}  # else other programs may know it
        if (
            revision.read_only or revision.is_open or revision.guarded or not is_known
        ):  # who may set what is asked first
            return sent
        text, faults = self._text_or_faults(sent)
        require_none(faults)
        return Loaded(sent, text)

    def replace(self, record: Record, sent: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        return self._replaced(record, sent, {}, now, limits)

    def revise(self, record: Record, item: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """As `replace`, by a function of the service: it also sets read-only fields, except READ_ONLY."""
        return self._replaced(record, item, item, now, limits)

    def _replaced(self, record: Record, sent: JsonObject, service: JsonObject, now: str, limits: ItemLimits) -> Record:
        """See `replace`. Read-only fields have the values of the `service`, else they stay."""
        sent, current = self._with_owner_field(sent, record.owner), exactjson.cut(self.present(record).body)
        is_open, of_server = self.revision.is_open, {*self.revision.of_server}
        if unknown := {name: exactjson.decoded(text) for name, text in self._unknown(record).items()}:
            # Clients of the program that knows these fields send them back.
            sent = {name: value for name, value in sent.items() if name not in unknown or value != unknown[name]}
        read_only = {name: exactjson.decoded(current[name]) for name in self._read_only if name in current}
        read_only |= {name: service[name] for name in self.revision.read_only if name in service}
        differing = self._differing(sent, read_only)
        is_past = _is_past(differing, read_only)
        text, more = (sent.text, []) if isinstance(sent, Loaded) else self._text_or_faults(sent, read_only)
        members = exactjson.cut(text) if text else {}
        if (
            text
            and all(name in current and exactjson.equal(value, current[name]) for name, value in members.items())
            and (is_past or not differing)
            and not (is_open and current.keys() - members.keys() - of_server)
        ):
            return record  # also for the second of two equal requests: the first has moved the version since
        is_fresh = "version" in sent.keys() & read_only.keys() - differing.keys()  # so no other time is older
        if is_past and not is_fresh:
            now = "version" if "version" in read_only else "updated_at"
            raise EditConflict(f"the item has changed since it was read: its {now} is {read_only[now]} now")
        present = {name: exactjson.dumps(read_only[name]).decode() for name in differing}
        wrong = [fault([name], f"is read-only; it is {value}") for name, value in present.items()]
        require_none(wrong + more)
        self._require_transition(current, members)
        return self._next(record, current, text, now=now, limits=limits)

    def _differing(self, sent: JsonObject, read_only: JsonObject) -> JsonObject:
        """The sent values that differ from the `read_only` ones: 5.0 is equal to 5, and true is not 1.

        All forms of a time are equal, also the form in whole milliseconds, as JavaScript has it. None stands for a
        value that the field cannot have.
        """
        differing = {}
        for name in (name for name in read_only if name in sent):
            value, field = sent[name], self.queryable.fields.get(name)
            if field and field.read and isinstance(value, str) and isinstance(read_only[name], str):
                try:
                    value = field.read(value)
                except ValueError:
                    value = None
                if name in READ_ONLY and value == f"{read_only[name][:-4]}000Z":
                    continue
            if isinstance(value, bool) is not isinstance(read_only[name], bool) or value != read_only[name]:
                differing[name] = value
        return differing

    def touched(self, record: Record, *, now: str) -> Record:
        """The item as it is, as another version of it."""
        members = exactjson.cut(self.present(record).body)
        text = exactjson.joined({name: text for name, text in members.items() if name in self.revision.definitions})
        return self._next(record, members, text, now=now, limits=NO_LIMITS)

    def merge(self, record: Record, patch: JsonObject, *, now: str, limits: ItemLimits = NO_LIMITS) -> Record:
        """See `View.merge`.

        Members that the patch does not name stay texts until the size of the whole item is known to be allowed.
        """
        settable, is_open = self.revision.definitions.keys() - self.revision.read_only, self.revision.is_open
        members = exactjson.cut(self.body(record))
        settable |= (members.keys() | patch.keys()) - {*self._read_only} if is_open else set()
        current = {name: text for name, text in members.items() if name in settable or (is_open and name == "id")}
        nulls = [name for name in patch if patch[name] is None]
        refused = {name: None for name in nulls if name not in settable or name == self.revision.owner}
        try:
            merged = exactjson.dumps(merge_patch(current, patch) | refused)
        except exactjson.EncodeError:
            require_none(listed(exactjson.faults_in_values(patch)))
            raise
        try:
            limits.require(merged)
        except BodyTooLarge:
            if merged == exactjson.dumps(current):
                return record  # stored under other limits
            raise
        return self.replace(record, exactjson.decoded(merged), now=now, limits=limits)

    def body(self, record: Record) -> bytes:
        return self.shown(record.body if record.fingerprint == self.fingerprint else self.present(record).body)

    def shown(self, body: bytes) -> bytes:
        """A stored body without what the schema hides."""
        if not self._stores_server_fields:
            return body
        if self.revision.hidden:
            at = body.rfind(b',"created_at":')
            body = body[:at] + _TIMES.sub(self._times, body[at:])
        return _ID.sub(b"{", body) if self.resource.singleton else body

    def present(self, record: Record) -> Record:
        """The record in the form of this schema: without unknown fields, with defaults, and with new computed values.

        Raises RevisionDiffers for a record of another revision.
        """
        if record.fingerprint == self.fingerprint:
            return record
        if (number := revision_of(record.fingerprint)) != self.revision.number:
            raise RevisionDiffers(self.name, self.revision.number, number)
        return self.with_members(record, self.stored_members(record), self.revision.computed)

    def stored_members(self, record: Record) -> Members:
        """The members of a record of another schema, without the fields of the server that are hidden now."""
        gone = {*READ_ONLY} - {*self.revision.of_server} - absent_in(record.fingerprint)
        return {name: text for name, text in exactjson.cut(record.body).items() if name not in gone}

    def with_members(self, record: Record, members: Members, computed: Set[str]) -> Record:
        """A record with these members; the `computed` ones are null if the item is not valid in its schema."""
        if owner := self.revision.owner:  # it can be stored without this field
            record = record._replace(owner=exactjson.decoded(members.get(owner, b"null")) or record.owner)
            members = {**members, owner: exactjson.dumps(record.owner)}
        texts = self.revision.with_defaults({name: text for name, text in members.items() if name not in computed})
        if computed:
            item = {name: exactjson.decoded(text) for name, text in texts.items()}
            try:
                text, _ = self._text_or_faults(item, item)
            except Exception:  # the functions are of the service: one item must not end a whole list
                text = b""
            loaded_texts = exactjson.cut(text) if text else {}
            texts = self.revision.with_defaults(
                {**texts, **{name: loaded_texts.get(name, members.get(name, b"null")) for name in computed}}
            )
        return record._replace(fingerprint=self.fingerprint, body=exactjson.joined(texts))

    def _unknown(self, record: Record) -> Members:
        """The members of a record that this program does not know, and other programs of its revision know."""
        if record.fingerprint == self.fingerprint or self.revision.is_open:
            return {}
        names = {*self.revision.stored, *READ_ONLY}
        return {name: text for name, text in exactjson.cut(record.body).items() if name not in names}

    def _text_or_faults(self, sent: JsonObject, stored: JsonObject | None = None) -> tuple[bytes, list[JsonObject]]:
        """The JSON object of an item's fields and no faults, or an empty text and the faults.

        Its read-only fields have the `stored` values, or else the values of a new item.
        """
        content = {name: value for name, value in sent.items() if name not in self._read_only}
        if stored:
            revision = self.revision
            names = [name for name in revision.read_only if name in stored and name not in revision.computed]
            content |= {name: stored[name] for name in names}
        is_open = self.revision.is_open
        loadable = {name: content[name] for name in content if name not in self._attributes} if is_open else content
        try:
            values = self._schema.dump(self._schema.load(loadable))
        except ValidationError as error:
            return b"", listed(chain(exactjson.faults_in_values(content), faults_in(error.messages)))
        if not self._is_exact and (faults := listed(exactjson.faults_in_values(values))):
            return b"", faults
        if is_open:  # in the order in which it was sent
            values = {name: value for name, value in content.items() if name not in self.revision.definitions} | values
            values |= {"id": (stored or sent)["id"]} if "id" in sent and "id" in self._read_only else {}
            values = {name: values[name] for name in (*sent, *values) if name in values}
        try:
            text = exactjson.dumps(values)
        except exactjson.EncodeError:
            if faults := listed(exactjson.faults_in_values(content)):
                return b"", faults
            raise
        if exactjson.NUL in text and (faults := listed(exactjson.faults_in_values(content))):
            return b"", faults
        if lost := self.revision.always.difference(values):
            raise TypeError(f"{self.name}: what the functions of the schema return is without {', '.join(lost)}")
        return text, []

    def _record(
        self, text: bytes, *, id: str, created_at: str, now: str, version: int, limits: ItemLimits, owner: str | None
    ) -> Record:
        id = self.name if self.resource.singleton else id
        fields = text.removeprefix(b"{").removesuffix(b"}") + b"," if text != b"{}" else b""
        id_text = exactjson.dumps(self.resource.public_id(id))
        body = _ITEM % (id_text, fields, created_at.encode(), now.encode(), version)
        if self.revision.is_open or not self._stores_server_fields:
            all_of_server = zip(READ_ONLY, (id_text, *map(exactjson.dumps, (created_at, now, version))), strict=True)
            server_fields = {name: value for name, value in all_of_server if name in self.revision.of_server}
            members = exactjson.cut(text)
            leading = {name: id_text for name in server_fields if name == "id" and name not in members}
            body = exactjson.joined({**leading, **members, **server_fields})
        limits.require(body)
        owner = exactjson.decoded(exactjson.cut(text)[name]) if (name := self.revision.owner) else owner
        return Record(id, version, now, self.fingerprint, body, owner)

    def _next(self, record: Record, current: Members, text: bytes, *, now: str, limits: ItemLimits) -> Record:
        """The next version of an item with these `current` members and new fields. It keeps unknown fields."""
        if unknown := self._unknown(record):
            text = exactjson.joined({**exactjson.cut(text), **unknown})
        is_known = "created_at" in current and "created_at" in self.revision.of_server
        created_at = exactjson.decoded(current["created_at"]) if is_known else now
        version = record.version + 1
        now = time_after(record.updated_at, now)
        next_record = self._record(
            text, id=record.id, created_at=created_at, now=now, version=version, limits=limits, owner=record.owner
        )
        return next_record._replace(
            fingerprint=self.fingerprint + (OTHERS if unknown else ""), removed_fields=record.removed_fields
        )

    def _require_transition(self, current: Members, members: Members) -> None:
        for name, lifecycle in self._states.items():
            if name not in current:
                continue
            old, new = exactjson.decoded(current[name]), exactjson.decoded(members[name])
            moves = lifecycle.moves.get(old)
            if moves is not None and not lifecycle.allows(old, new):  # from a state that is gone, all are allowed
                summary = (
                    f"{name} cannot go from {old} to {new}; from {old} it can go to {', '.join(moves) or 'nothing'}"
                )
                raise IllegalTransition(summary, field=name, **{"from": old, "to": new, "allowed": list(moves)})


def _is_past(differing: JsonObject, read_only: JsonObject) -> bool:
    """Whether read-only values are from an earlier version of an item, whose declared fields can differ, too."""
    earlier = {name for name in MOVING & differing.keys() if _precedes(differing[name], read_only[name])}
    return bool(earlier) and (differing.keys() - earlier).isdisjoint(READ_ONLY)


def _precedes(value: Any, other: Any) -> bool:
    """Whether a version, or a time as it is stored, is before another one."""
    types = str if isinstance(other, str) else int | float | Decimal
    return isinstance(value, types) and not isinstance(value, bool) and bool(value < other)
