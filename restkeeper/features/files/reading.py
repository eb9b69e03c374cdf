"""A JSON file as collections and singletons: the text of each item as it stands there, and the place of what is wrong.

Nothing is copied and no item is parsed further than to its id: memory is about the size of the file.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import click
import msgspec

from restkeeper.errors import InvalidJson, shortened
from restkeeper.resources import RESERVED, RESERVED_KINDS
from restkeeper.schemas.item import GIVEN_ID
from restkeeper.web import exactjson
from restkeeper.web.exactjson import Buffer

Id = str | int
Stamp = tuple[int, ...]
Texts = dict[Id, Buffer]  # of the items of a collection, by their ids in the order of the file

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
_MEMBER = re.compile(rb'[\s,{]*("(?:[^"\\]|\\.)*")\s*:\s*')
_FIRST = re.compile(rb"\s*\{(\r?\n)([ \t]+)")
_BYTE = re.compile(r" \(byte (\d+)\)$")
WITH_COMMENTS = (".json5", ".jsonc")  # which are not written back: they would lose them


def progress(label: str, length: int) -> Any:
    """A progress bar, if stderr is a terminal and there is something to wait for."""
    hidden, steps = length < 10_000 or not sys.stderr.isatty(), length // 200 + 1
    return click.progressbar(length=length, label=label, hidden=hidden, file=sys.stderr, update_min_steps=steps)


class FileError(Exception):
    """What is wrong with a file: one line, with its place."""


class _Item(msgspec.Struct):
    id: (
        Annotated[int, msgspec.Meta(ge=0, le=exactjson.LARGEST_INTEGER)]
        | Annotated[str, msgspec.Meta(pattern=GIVEN_ID[:-1] + r"\Z")]
        | msgspec.UnsetType
    ) = msgspec.UNSET


_WANTED = "it must be an object, whose id is an integer from 0, or 1 to 64 of A-Z a-z 0-9 . _ ~ -"


class Content(NamedTuple):
    """What a file has: `members` are its collections and singletons in order, and what begins with "$" as it is.

    `newline` and `indent` are those of the file, empty for one on a single line; `end` is what follows the last brace.
    Where items have no ids, they are `given` 1, 2, 3 … The `source` is the text that was read of the `file`, and in it
    `starts` has where each member begins.
    """

    members: dict[str, Texts | Buffer]
    newline: bytes = b""
    indent: bytes = b""
    end: bytes = b""
    given: bool = False
    source: bytes = b""
    file: str = ""
    starts: Mapping[str, int] = {}  # noqa: RUF012 - never changed

    @property
    def collections(self) -> dict[str, Texts]:
        return {name: each for name, each in self.members.items() if isinstance(each, dict)}

    def kinds(self) -> list[tuple[str, str]]:
        """The name and kind of each member: what the service is declared by, besides the schemas."""
        kinds = dict.fromkeys(self.members, "singleton")
        for name, texts in self.collections.items():
            kinds[name] = "client" if any(isinstance(id, str) for id in texts) else "client-integer"
        return [*kinds.items()]

    def item(self, name: str, id: Id) -> Buffer | None:
        """The text of an item, or of a singleton."""
        member = self.members.get(name)
        return member.get(id) if isinstance(member, dict) else member

    def fault(self, name: str, id: Id, reason: object) -> FileError:
        """What is wrong with an item that was read, with its place."""
        at, member = self.starts[name], self.members[name]
        if isinstance(member, dict):
            text = msgspec.json.decode(self.source, type=dict[str, msgspec.Raw])[name]
            elements = msgspec.json.decode(text, type=list[msgspec.Raw])
            at, name = _start(self.source, elements[: list(member).index(id) + 1], at), f"{name}/{id}"
        return fault_at(self.source, self.file, at, f"{name}: {reason}")

    def differs(self, newer: "Content") -> Iterator[tuple[str, Id, Buffer | None]]:
        """What another content of the same members has instead: the name, id and text of each item, None without it."""
        for name, now in newer.members.items():
            before: Any = self.members[name]
            if isinstance(now, dict):
                yield from ((name, id, text) for id, text in now.items() if bytes(before.get(id, b"")) != bytes(text))
                yield from ((name, id, None) for id in before if id not in now)
            elif name[0] != "$" and bytes(before) != bytes(now):
                yield name, name, now

    def moved(self, newer: "Content") -> Iterator[tuple[str, Id]]:
        """The items, in the order of the newer content, that are not where they are if its new ones are the last."""
        for name, texts in newer.collections.items():
            before = self.collections[name]
            had = [*(id for id in before if id in texts), *(id for id in texts if id not in before)]
            is_other = False
            for one, id in zip(had, texts, strict=True):
                if is_other := is_other or one != id:
                    yield name, id

    def copy(self) -> "Content":
        """A content whose items can be set, and not those of this one."""
        members = {name: dict(each) if isinstance(each, dict) else each for name, each in self.members.items()}
        return self._replace(members=members)

    def set(self, name: str, id: Id, text: Buffer | None) -> bool:
        """Set an item, or delete it; returns whether this changes anything. The id of a singleton is its name."""
        if name not in self.members or is_equal(had := self.item(name, id), text):
            return False
        texts: Any = self.collections.get(name, self.members)
        if text is None:
            del texts[id]
        else:
            texts[id] = self._written(text, had, 1 if texts is self.members else 2)
        return True

    def text(self) -> Iterator[bytes]:
        """The text of the file."""
        begin, inner = self.newline + self.indent, self.newline + 2 * self.indent
        comma = b"," if self.newline else b", "
        before = b"{"
        for name, member in self.members.items():
            yield b"%b%b%b:%b" % (before, begin, json.dumps(name, ensure_ascii=False).encode(), b" " * bool(comma))
            if isinstance(member, dict):
                start = b"["
                for text in member.values():
                    yield b"%b%b" % (start, inner)
                    yield bytes(text)
                    start = comma
                yield b"%b]" % begin if member else b"[]"
            else:
                yield bytes(member)
            before = comma
        yield (self.newline + b"}" if self.members else b"{}") + self.end

    def _written(self, text: Buffer, like: Buffer | None, level: int) -> bytes:
        """The text of an item as the file has the others: on a line, or with its indentation."""
        sample = like
        if sample is None:
            sample = next((each for texts in self.collections.values() for each in texts.values()), b"\n")
        if not self.newline or b"\n" not in bytes(sample):
            return msgspec.json.format(bytes(text), indent=0)
        tabs = self.indent[:1] == b"\t"
        made = msgspec.json.format(bytes(text), indent=1 if tabs else len(self.indent))
        lines = re.sub(rb"(?m)^ +", lambda found: b"\t" * len(found[0]), made) if tabs else made
        return lines.replace(b"\n", self.newline + level * self.indent)


def read(path: Path) -> Content:
    """The content of a file. Raises FileError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path.name}: {error.strerror}") from None
    return parse(_as_json(path, data), path.name)


def parse(data: bytes, name: str) -> Content:
    """The content of the text of a file with this name. Raises FileError."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        found = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(data, name, error) from None
    members: dict[str, Texts | Buffer] = {}
    starts, plain = dict[str, int](), dict[str, str]()
    end, given, twice = 0, False, "a name occurs twice, here or after it"
    for key, text in found.items():
        begin = _MEMBER.match(data, end)
        if not begin or json.loads(begin[1]) != key:  # the parser has the last one of each name
            raise fault_at(data, name, begin.start(1) if begin else end, twice)
        starts[key], end = begin.end(), begin.end() + len(bytes(text))
        if key[:1] == "$":
            members[key] = text
            continue
        kind, alike, reason = bytes(text)[:1], plain.setdefault(key.lower().replace("_", ""), key), ""
        if not _NAME.fullmatch(key):
            reason = "cannot be a path: use 1 to 64 ASCII letters, digits and underscores"
        elif alike != key:
            reason = f"is {alike!r} but for its case or underscores: use another name"
        elif key.lower() in RESERVED | RESERVED_KINDS:
            reason = "is a name of the service itself: use another one"
        elif kind not in (b"[", b"{"):
            reason = "must be an array or an object"
        if reason:
            raise fault_at(data, name, begin.start(1), f"{shortened(key)!r} {reason}")
        members[key] = text
        if kind == b"[":
            members[key], is_given = _items(data, name, key, begin.end(), text)
            given = given or is_given
    rest = data[end:].lstrip()
    if found and rest[:1] != b"}":
        raise fault_at(data, name, begin.start(1) if begin else 0, twice)
    first = _FIRST.match(data)
    style = (first[1], first[2]) if first else (b"", b"")
    return Content(members, *style, end=data[len(data.rstrip()) :], given=given, source=data, file=name, starts=starts)


def load_json(name: str, data: bytes) -> Any:
    """The value of a JSON file with this name. Raises FileError."""
    try:
        return exactjson.loads(data)
    except InvalidJson as problem:
        raise _unreadable(data, name, problem) from None


def value_of(text: Buffer) -> Any:
    """The value of an item's text. Raises InvalidJson."""
    return exactjson.loads(bytes(text))


def _items(data: bytes, file: str, name: str, at: int, text: msgspec.Raw) -> tuple[Texts, bool]:
    """The items of an array by their ids, and whether these are given here. Raises FileError."""
    elements, texts, reason, number = msgspec.json.decode(text, type=list[msgspec.Raw]), Texts(), "", 0
    try:
        ids: list[Any] = [each.id for each in msgspec.json.decode(text, type=list[_Item])]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        ids, found = [], re.search(r"\$\[(\d+)\]", str(error))
        number, reason = int(found[1]) if found else 0, _WANTED
    is_given = {*ids} == {msgspec.UNSET}
    for number, id in enumerate(ids[: 0 if is_given else None]):
        if id in texts:
            reason = f"the id {json.dumps(id)} is there again"
        elif type(id) is not type(ids[0]):
            reason = "some ids are texts, some are integers, or some items have none: use one type"
        if reason:
            break
        texts[id] = elements[number]
    if reason:
        raise fault_at(data, file, _start(data, elements[: number + 1], at), f"{name}[{number}]: {reason}")
    for number, each in enumerate(elements if is_given else (), start=1):
        inside = bytes(each)[1:].lstrip()
        texts[number] = b'{"id": %d%b%b' % (number, b"" if inside == b"}" else b", ", inside)
    return texts, is_given


def _unreadable(data: bytes, name: str, error: Exception) -> FileError:
    """Why a text is no JSON object: the first fault, with its place as far as that is known."""
    reason = str(error)
    try:
        value = exactjson.loads(data)
        if not isinstance(value, dict):
            reason = "the file must be an object with a member for each collection (byte 0)"
        else:
            fault = next(exactjson.faults_in_values(value), {"pointer": "#", "detail": reason})
            reason = f"{fault['pointer']}: {fault['detail']}"
    except InvalidJson as problem:
        if where := re.search(r" \(line (\d+), column (\d+)\)$", problem.detail):
            return FileError(f"{name}:{where[1]}:{where[2]}: {problem.detail[: where.start()]}")
        reason = problem.detail
    at = _BYTE.search(reason) or _BYTE.search(str(error))
    return fault_at(data, name, int(at[1]), _BYTE.sub("", reason)) if at else FileError(f"{name}: {reason}")


def _start(data: bytes, texts: Sequence[msgspec.Raw], at: int) -> int:
    """Where the last of some texts begins, which follow each other from a position on."""
    for each in texts[:-1]:
        at = data.find(bytes(each), at) + len(bytes(each))
    return data.find(bytes(texts[-1]), at)


def fault_at(data: bytes, name: str, at: int, reason: str) -> FileError:
    """What is wrong at a position, with its line and column, but of a file whose comments are not in the text."""
    lines = data[:at].decode(errors="replace").split("\n")
    where = "" if name.lower().endswith(WITH_COMMENTS) else f"{len(lines)}:{len(lines[-1]) + 1}:"
    return FileError(f"{name}:{where} {reason}")


def is_equal(one: Buffer | None, other: Buffer | None) -> bool:
    """Whether two texts have equal values. Raises InvalidJson."""
    if one is None or other is None:
        return one is other
    return bytes(one) == bytes(other) or exactjson.equal(*(exactjson.dumps(value_of(each)) for each in (one, other)))


def _as_json(path: Path, data: bytes) -> bytes:
    """The text of a file in JSON; of one with comments without them. Raises FileError."""
    if path.suffix.lower() not in WITH_COMMENTS:
        return data
    if not find_spec("json5"):
        raise FileError(f"{path.name}: {path.suffix} needs another package: pip install 'restkeeper[json5]'")
    try:
        load, options = import_module("json5").loads, {"parse_float": Decimal, "parse_constant": _no_number}
        return exactjson.dumps(load(data.decode(), allow_duplicate_keys=False, **options))
    except (ValueError, RecursionError, exactjson.EncodeError) as error:
        raise FileError(str(error).replace("<string>", path.name)) from None


def _no_number(name: str) -> None:
    raise ValueError(f"<string>: {name} is not a JSON number")


def stamp_of(path: Path) -> Stamp:
    """What changes when a file is written; it is empty if there is none. Raises OSError."""
    with suppress(FileNotFoundError):
        found = os.stat(path)
        return found.st_mtime_ns, found.st_size, found.st_ino
    return ()
