"""The lines of a file that is imported: read, validated, and compared with the items that are stored."""

import hashlib
import pickle
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple, cast
from uuid import UUID

import click
from marshmallow import ValidationError

from restkeeper import exactjson
from restkeeper.clock import rfc3339
from restkeeper.command import MOST_FAILURES, message_of, progress_bar
from restkeeper.errors import (
    BodyTooLarge,
    EditConflict,
    IllegalTransition,
    InvalidJson,
    Problem,
    ValidationFailed,
)
from restkeeper.exactjson import JsonObject, require_none
from restkeeper.features.transfer.formats import OWNER_MEMBER, READERS, Columns, Entries, format_of
from restkeeper.resources.cells import BOM
from restkeeper.resources.declaration import Ownership
from restkeeper.resources.item import ItemLimits
from restkeeper.resources.unique import query_of_unique, unique_fields
from restkeeper.resources.views import View
from restkeeper.schemas.fields import Owner
from restkeeper.schemas.item import GIVEN_ID, READ_ONLY
from restkeeper.schemas.prepared import fields_of
from restkeeper.service import Service
from restkeeper.storage.digests import DigestCounts
from restkeeper.storage.errors import RecordNotFound, StoreError
from restkeeper.storage.interface import Record

_UNUSED = "-"  # a valid id for a line that has one, or is bad


class Options(NamedTuple):
    """The options of the command that are about items; see its help. With a `key` it is an update."""

    skip_bad: bool
    update: bool
    dry_run: bool
    key: str | None = None  # names of fields, between commas


class Item(NamedTuple):
    """An item of a file: its position there, the fields that it did not have, and its record.

    `before` is the stored one that it changes, if it does.
    """

    number: int
    absent: list[str]
    record: Record
    before: Record | None = None

    @property
    def kind(self) -> str:
        """That of the `Change`."""
        return "updated" if self.before else "created"


class Lines:
    """The lines of a file: how many are bad, there already, and `planned` to be written, by `Item.kind`.

    The items to be written are in a temporary file.
    """

    def __init__(self, service: Service, view: View, source: IO[bytes], stack: ExitStack, options: Options) -> None:
        self.stored = service.stored[view.name]
        self.options = options
        self._service, self._view, self._source = service, view, source
        self._is_owned = self.stored.resource.ownership is not Ownership.NONE
        self._owner = view.owner_field
        self._limits = ItemLimits(*service.config.item_limits)
        self._read_only = {name for name, field in fields_of(view.schema()).items() if field.dump_only} - {"id"}
        # Temporary files are on the store's disk, which needs space for the items anyway.
        self._spool: IO[bytes] = stack.enter_context(tempfile.TemporaryFile(dir=service.location.folder))
        self._equal_lines = DigestCounts(service.location.folder, stack)
        self.now = rfc3339(service.clock.time())
        try:
            self._unique = unique_fields(self.stored.resource, view, options.key.split(",")) if options.key else ()
        except ValueError as error:
            raise click.UsageError(f"--key {options.key} {error}") from None
        self._unit = "line"
        self._listed: list[tuple[int, str]] = []
        self.last_id = ""  # the greatest one, where ids are integers
        self.bad = self.existing = 0
        self.planned = Counter[str]()

    @property
    def is_over(self) -> bool:
        """Whether an item is bad, and none may be."""
        return bool(self.bad) and not self.options.skip_bad

    def read(self, file: str, label: str) -> None:
        """Write valid items to a temporary file. Raises ClickException if one is bad, without --skip-bad.

        What is wrong is said after the `label`.
        """
        size = Path(file).stat().st_size if Path(file).is_file() else 0
        with progress_bar("reading", size) as bar:
            lines = _counted(self._source, bar.update)
            head = next(lines, b"").removeprefix(BOM)
            file_format = format_of(file, head)
            self._unit = label + ("element" if file_format == "json" else "line")
            try:
                columns = Columns.of(self._view, owner=self._is_owned)
                self._validate(READERS[file_format](chain([head], lines), columns, self._service.config))
            except (click.ClickException, InvalidJson) as error:
                raise click.ClickException(f"{label}{error}") from None
        if self.is_over:
            self.list_bad()
            raise click.ClickException(
                f"nothing was imported: {self.bad} of {self.planned.total() + self.existing + self.bad} are bad"
            )

    def _validate(self, entries: Entries) -> None:
        for number, read in entries:
            try:
                value = read()
                if not isinstance(value, dict):
                    raise ValidationFailed(errors=[{"pointer": "#", "detail": "must be an object"}])
                item = self._item_of(number, value)
            except (
                BodyTooLarge,
                EditConflict,
                IllegalTransition,
                InvalidJson,
                ValidationFailed,
            ) as problem:
                self.note(number, problem)
                continue
            if item is None:
                self.existing += 1
                continue
            self.last_id = max(self.last_id, item.record.id) if self.stored.resource.has_integer_ids else ""
            pickle.dump(item, self._spool)
            self.planned[item.kind] += 1

    def _item_of(self, number: int, value: JsonObject) -> Item | None:
        """The item of a line; None if it is known to be there already. Raises what is wrong with the line."""
        absent, id = [name for name in (*READ_ONLY, OWNER_MEMBER) if name not in value], self._id_for(value)
        owner = self._take_owner(value)
        before = self._find(value, id) if self.options.update or self.options.dry_run else None
        if before and self.options.update and (self._unique or not self._is_of_line(absent)):
            if OWNER_MEMBER not in absent and owner != before.owner and not self._owner:
                raise refusal_of(OWNER_MEMBER, f"it is {before.owner}'s, and changes only by a field, Owner()")
            return self._update(number, before, value)
        if not before and self.options.update and "version" in value and "version" in self._read_only:
            raise refusal_of("version", "there is no such item (any more); a line without a version adds it")
        record = self._view.restore(value, id=id, now=self.now, limits=self._limits, owner=owner)
        if before:
            self.require_same(before, Item(number, absent, record))
            return None
        return Item(number, absent, record)

    def _take_owner(self, value: JsonObject) -> str | None:
        """The owner beside the fields of a line, which does not have it then, or has it by its field."""
        if OWNER_MEMBER not in value or not self._is_owned:
            return None
        owner = value.pop(OWNER_MEMBER)
        try:
            Owner().deserialize(owner)
        except ValidationError as error:
            raise refusal_of(OWNER_MEMBER, str(error.messages[0])) from None
        require_none([*exactjson.faults_in_values({OWNER_MEMBER: owner})])
        if self._owner and value.setdefault(self._owner, owner) != owner:
            raise refusal_of(OWNER_MEMBER, f"is the field {self._owner} here, which has another one")
        return cast(str | None, owner)

    def _find(self, value: JsonObject, id: str) -> Record | None:
        resource, id = self.stored.resource, value.get("id", id)
        if self._unique:
            query = query_of_unique(self._view, self._unique, value)
            ids = self._service.store.find(resource.name, query, 1) if query else []
            return self._service.store.read(resource.name, ids[0]) if ids else None
        key = resource.name if resource.singleton else resource.key(id) if re.fullmatch(GIVEN_ID, str(id)) else ""
        with suppress(RecordNotFound):
            return self._service.store.read(resource.name, key)
        return None

    def _update(self, number: int, before: Record, value: JsonObject) -> Item | None:
        """The stored item with the values of a line; None if they are its own. Raises as `_item_of`."""
        item = exactjson.decoded(self._view.body(before))
        sent = {name: member for name, member in value.items() if name == "version" or name not in self._read_only}
        after = self._view.replace(before, item | sent, now=self.now, limits=self._limits)
        if after is before:  # also for a line that was imported before
            return None
        return Item(number, [], after, before)

    def _id_for(self, value: JsonObject) -> str:
        """The id of a line, if it names none; for integers, which no content can give, one that is refused."""
        if self.stored.resource.has_integer_ids:
            return "-1"
        if "id" in value:
            return _UNUSED
        try:
            content = exactjson.dumps(value, sort=True)
        except exactjson.EncodeError:  # the line is bad
            return _UNUSED
        digest = hashlib.blake2b(content, digest_size=16).digest()
        return id_of(digest, self._equal_lines.add(digest))

    def items(self) -> Iterator[Item]:
        """The items that are to be written."""
        self._spool.seek(0)
        for _ in range(self.planned.total()):
            yield pickle.load(self._spool)  # noqa: S301 - our own file

    def _is_of_line(self, absent: Sequence[str]) -> bool:
        """Whether an item has the id that is made for its line: it is not changed by that line later."""
        return "id" in absent and not self.stored.resource.singleton

    def require_same(self, before: Record, item: Item) -> None:
        """Raises ValidationFailed if the store has an item of the file with other content.

        They are compared in the form of the file, and without the fields that are `absent` from its line.
        """
        if self._is_of_line(item.absent):
            return
        old, new = (exactjson.loads(self._view.body(record)) for record in (before, item.record))
        old[OWNER_MEMBER], new[OWNER_MEMBER] = before.owner, item.record.owner
        for name in item.absent:
            old.pop(name, None)
            new.pop(name, None)
        if exactjson.dumps(old, sort=True) == exactjson.dumps(new, sort=True):
            return
        id = self.stored.resource.public_id(item.record.id)
        raise refusal_of("id", f"the item {id} is there already, with other content: --update changes it")

    def note(self, number: int, problem: Problem | StoreError) -> None:
        """Note that a line is bad."""
        self.bad += 1
        self._listed = sorted([*self._listed, (number, message_of(problem))])[:MOST_FAILURES]

    def list_bad(self) -> None:
        """Print the bad lines to stderr, the first of them in full."""
        for number, text in self._listed:
            click.echo(f"{self._unit} {number}: {text}", err=True)
        if self.bad > MOST_FAILURES:
            click.echo(f"and {self.bad - MOST_FAILURES} more", err=True)


def id_of(digest: bytes, number: int) -> str:
    """The id of a line that names none: a UUIDv8 (RFC 9562, section 5.8).

    It is made of a digest of the line's content, of 16 bytes, and its number among equal lines.
    """
    bits = int.from_bytes(hashlib.blake2b(digest + number.to_bytes(8), digest_size=16).digest())
    return str(UUID(int=bits & ~(0xF << 76 | 0b11 << 62) | 0x8 << 76 | 0b10 << 62))


def refusal_of(field: str, detail: str) -> ValidationFailed:
    """What is wrong with a field of a line."""
    return ValidationFailed(errors=[{"pointer": f"#/{field}", "detail": detail}])


def _counted(lines: Iterable[bytes], count: Callable[[int], None]) -> Iterator[bytes]:
    for line in lines:
        yield line
        count(len(line))
