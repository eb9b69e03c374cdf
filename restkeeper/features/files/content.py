"""A JSON file as collections and singletons: the text of each item as it stands there, and the place of an error.

Nothing is copied, and of an item only the id is parsed: memory is about the size of the file.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import msgspec

from restkeeper import exactjson
from restkeeper.errors import InvalidJson, shortened
from restkeeper.exactjson import Buffer
from restkeeper.resources.checks import RESERVED, no_path
from restkeeper.schemas.item import GIVEN_ID
from restkeeper.storage.interface import serial

Texts = dict[str | int, Buffer]  # of items in the order of the file, by keys; items that are not served have numbers

_MEMBER = re.compile(rb'[\s,{]*("(?:[^"\\]|\\.)*")\s*:\s*')
_FIRST = re.compile(rb"\s*\{(\r?\n)\s*?([ \t]+)\S")
_INNER = re.compile(rb"\{\s*\n([ \t]+)")  # the indentation of the first member of an item
_ESCAPE = re.compile(rb"(?i)\\(?:ud[89ab]..\\ud[c-f]..|(ud[89a-f]..)|.)")  # its group: an unpaired surrogate
_BYTE = re.compile(r" \(byte (\d+)\)$")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_SERIAL = re.compile(r"[0-9]{16}|A[0-9]{19}")  # what `serial` returns
_PLAIN, _WHOLE = re.compile(f'"{GIVEN_ID[1:-1]}"'.encode()), re.compile(rb"-?[0-9]{1,19}")
TEXT_IDS = {"plain", "text"}  # see `id_kind`
_NO_ID = msgspec.Raw(b"")
NONE = (b"", b"null")  # texts of an id that an item does not have
BOM = b"\xef\xbb\xbf"
LONGEST_ITEM = 10 * 1024 * 1024  # bytes


def why_unserved(name: str) -> str:
    """Why a member stays in the file as it is; an empty text if it is served."""
    return "begins with $" if name.startswith("$") else no_path(name)


class FileError(Exception):
    """An error in a file: one line, with its place."""


def key_of(id: object) -> str:
    """The key of an item with this id: 1 and "1" are one, and integers have their order."""
    text = id if isinstance(id, str) else str(id) if type(id) is int else exactjson.dumps(id).decode()
    if _NUMBER.fullmatch(text) and int(text) <= exactjson.LARGEST_INTEGER:
        return serial(int(text))
    return f"~{text}" if _SERIAL.fullmatch(text.lstrip("~")) else text  # unlike the key of any number


def id_of(key: str) -> str | int:
    """An id with this key: a number if it can be one."""
    if _SERIAL.fullmatch(key):
        return int(key.removeprefix("A"))
    return key[1:] if _SERIAL.fullmatch(key.lstrip("~")) else key


class ArrayStyle(NamedTuple):
    """What an array has before its first item, between two items, and after the last one."""

    before: bytes
    between: bytes
    after: bytes


class Layout(NamedTuple):
    """How the arrays of a file are written; its `newline` and `indent` are empty if it is on a single line."""

    arrays: Mapping[str, ArrayStyle]
    newline: bytes = b""
    indent: bytes = b""

    def array(self, name: str) -> ArrayStyle:
        """The style of an array; an empty array gets that of another array."""
        if name in self.arrays or self.arrays:
            return self.arrays.get(name) or next(iter(self.arrays.values()))
        inner = self.newline + 2 * self.indent
        return ArrayStyle(inner, b"," + (inner or b" "), self.newline + self.indent)


class Content(NamedTuple):
    """The content of a file: `members` has all members in order, as texts, a collection as the texts of its items.

    `kinds` has the kind of each collection and singleton, see `Declared`. `unserved` has a line for each part that is
    not served. The `source` is the text that was read from the `file`, and `spans` has where a member begins and ends
    in it; the members in `changed` have another text now. `id_name` is the name of the field of ids. `twins` has, by
    collection and key, the numbers of items that have the id of an item before them: they are not served, and are
    deleted with that item. `ids` has the kinds of the ids, see `id_kind`, and `arrays` the arrays of other values than
    objects.
    """

    members: dict[str, Texts | Buffer]
    kinds: Mapping[str, str]
    unserved: Sequence[str]
    layout: Layout
    source: bytes
    file: str
    id_name: str
    spans: Mapping[str, tuple[int, int]]
    changed: set[str]
    twins: Mapping[str, Mapping[str, Sequence[int]]]
    ids: Mapping[str, Set[str]]
    arrays: dict[str, Buffer]

    @property
    def collections(self) -> dict[str, Texts]:
        return {name: member for name, member in self.members.items() if isinstance(member, dict)}

    def item(self, name: str, key: str) -> Buffer | None:
        """The text of an item, or of a singleton."""
        member = self.members.get(name)
        return member.get(key) if isinstance(member, dict) else member

    def items(self, name: str) -> list[tuple[str, Buffer]]:
        """The keys and texts of the items of a collection that are served, or of a singleton, whose key is its name."""
        member = self.members[name]
        texts = member if isinstance(member, dict) else {name: member}
        return [(key, text) for key, text in texts.items() if isinstance(key, str)]

    def sample(self, name: str) -> Buffer | None:
        """An item of a collection; if that is empty, an item of another collection."""
        members = (self.members[name], *self.collections.values())
        return next((text for texts in members if isinstance(texts, dict) for text in texts.values()), None)

    def fault(self, name: str, key: str, reason: object) -> FileError:
        """An error in an item that was read, with its place."""
        at, text = self.spans[name][0], bytes(self.item(name, key) or b"")
        where = f"{name}/{id_of(key)}" if name in self.collections else name
        return fault_at(self.source, self.file, max(at, self.source.find(text, at)), f"{where}: {reason}")

    def differences(self, newer: "Content") -> Iterator[tuple[str, str, Buffer | None]]:
        """The differences to a newer content of the same kinds: names, keys and texts; None for a deleted item."""
        for name in newer.kinds:
            before, now = dict(self.items(name)), dict(newer.items(name))
            yield from ((name, key, text) for key, text in now.items() if bytes(before.get(key, b"")) != bytes(text))
            yield from ((name, key, None) for key in before if key not in now)

    def moved(self, newer: "Content") -> Iterator[tuple[str, str]]:
        """The items, in newer order, of collections in which a new item is not the last or an old one has moved."""
        for name in newer.collections:
            before, now = dict(self.items(name)), dict(newer.items(name))
            if [*now] != [*(key for key in before if key in now), *(key for key in now if key not in before)]:
                yield from ((name, key) for key in now)

    def copy(self, names: Iterable[str]) -> "Content":
        """A copy in which the items of these members can be set, while this content stays as it is."""
        copies = {name: dict(member) for name in names if isinstance(member := self.members[name], dict)}
        return self._replace(members={**self.members, **copies}, changed={*self.changed})

    def set(self, name: str, key: str, text: Buffer | None) -> None:
        """Set an item, or delete all with its id. The key of a singleton is its name."""
        self.changed.add(name)
        texts: Any = self.collections.get(name, self.members)
        if text is not None:
            texts[key] = self._written(name, text, self.item(name, key))
        else:
            for twin in (key, *self.twins[name].get(key, ())):
                texts.pop(twin, None)

    def text(self) -> Iterator[bytes]:
        """The text of the file."""
        last = 0
        for name, (begin, end) in self.spans.items():
            if name in self.changed:
                yield self.source[last:begin]
                yield from self._member(name)
                last = end
        yield self.source[last:]

    def _member(self, name: str) -> Iterator[bytes]:
        """The text of a collection or singleton that was changed."""
        if not (member := self.members[name]):
            yield b"[]"
        elif not isinstance(member, dict):
            yield bytes(member)
        else:
            gap, between, end = self.layout.array(name)
            at, comma = self.spans[name][0] + 1, b""
            yield b"["
            for text in member.values():
                if isinstance(text, msgspec.Raw):  # of the source, where it can have another space before it
                    begin = self.source.find(text, at)
                    space, at = self.source[at:begin], begin + len(bytes(text))
                    gap = space if space.strip() == comma else gap
                yield gap + bytes(text)
                gap, comma = between, b","
            yield end + b"]"

    def _written(self, name: str, text: Buffer, had: Buffer | None) -> bytes:
        """The text of an item in the form that it `had`, or else in that of other items: on one line, or indented.

        A member whose value has not changed keeps its text, such as 1.50.
        """
        sample, member = had, self.members[name]
        if had is not None:
            before, now = exactjson.cut(had), exactjson.cut(text)
            same = {key: before[key] for key in now if key in before and is_equal(before[key], now[key])}
            text = exactjson.joined({**now, **same})
        elif isinstance(member, dict):
            sample = self.sample(name)
        like = b"\n" if sample is None else bytes(sample)
        if not self.layout.newline or b"\n" not in like:
            return msgspec.json.format(bytes(text), indent=-1 if b'":' in like and b'": ' not in like else 0)
        begin = self.spans[name][0]
        line = self.source[self.source.rfind(b"\n", 0, begin) + 1 : begin]
        if isinstance(member, dict):
            line = self.layout.array(name).before.rpartition(b"\n")[2]
        outer, indent = line[: len(line) - len(line.lstrip())], self.layout.indent
        if (inner := _INNER.match(like)) and inner[1].startswith(outer) and inner[1] != outer:
            indent = inner[1].removeprefix(outer)
        tabs = indent[:1] == b"\t"
        json_text = msgspec.json.format(bytes(text), indent=1 if tabs else len(indent))
        lines = re.sub(rb"(?m)^ +", lambda spaces: b"\t" * len(spaces[0]), json_text) if tabs else json_text
        return lines.replace(b"\n", self.layout.newline + outer)


def parse(data: bytes, name: str, id_name: str = "id") -> Content:
    """The content of the text of a file with this name, whose items have their ids in `id_name`. Raises FileError."""
    _require_characters(data, name)
    try:
        data.decode()
        values = msgspec.json.decode(data.removeprefix(BOM), type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(data.removeprefix(BOM), name, error) from None
    spans = _spans(data, values, name)
    members: dict[str, Texts | Buffer] = {}
    kinds, unserved = dict[str, str](), list[str]()
    styles, changed, arrays = dict[str, ArrayStyle](), set[str](), dict[str, Buffer]()
    twins, ids = dict[str, dict[str, list[int]]](), dict[str, Set[str]]()
    for key in spans:
        members[key] = text = values[key]
        if reason := why_unserved(key):
            unserved += [f"{shortened(key)!r} is not served: {reason}"] * (key[:1] != "$")
        elif (kind := bytes(text)[:1]) == b"{":
            kinds[key] = "singleton"
        elif kind != b"[":
            unserved.append(f"{shortened(key)} is no array or object, and is not served")
        else:
            elements = msgspec.json.decode(text, type=list[msgspec.Raw])
            if any(bytes(element)[:1] != b"{" for element in elements):
                is_taken, is_large = key in (*RESERVED, "openapi.json"), len(bytes(text)) > LONGEST_ITEM
                why = "the service has this path" if is_taken else f"it has more than {LONGEST_ITEM >> 20} MiB"
                arrays |= {} if is_taken or is_large else {key: text}
                state = "can only be read" if key in arrays else f"is not served: {why}"
                unserved.append(f"{shortened(key)} has other values than objects, and {state}")
                continue
            twins[key] = {}
            members[key], ids[key], is_numbered = _items(key, text, elements, unserved, id_name, twins[key])
            kinds[key] = "client" if ids[key] & TEXT_IDS else "client-integer"
            changed |= {key} if is_numbered else set()
            if elements:
                styles[key] = _array_style(bytes(text), elements)
    line = _FIRST.match(data, len(BOM) * data.startswith(BOM))
    layout = Layout(styles, *((line[1], line[2]) if line else ()))
    return Content(members, kinds, unserved, layout, data, name, id_name, spans, changed, twins, ids, arrays)


def _spans(data: bytes, values: Mapping[str, Buffer], file: str) -> dict[str, tuple[int, int]]:
    """Where the value of each name begins and ends, in order. Raises FileError for a name that is there twice.

    `values` are the results of the parser, which takes the last value of such a name.
    """
    spans, end, key = dict[str, tuple[int, int]](), len(BOM) * data.startswith(BOM), ""
    while begin := _MEMBER.match(data, end):
        key = json.loads(begin[1])
        if key in spans or not data.startswith(value := bytes(values[key]), begin.end()):
            break
        end = begin.end() + len(value)
        spans[key] = begin.end(), end
    if values and data[end:].strip() != b"}":
        reason = f"{shortened(key)!r} is there twice: rename or delete one (json-server uses the last)"
        raise fault_at(data, file, begin.start(1) if begin else end, reason)
    return spans


def _require_characters(data: bytes, name: str) -> None:
    """Raises FileError for an unpaired surrogate, which parsers refuse only where they read it."""
    escapes = _ESCAPE.finditer(data) if b"\\ud" in data or b"\\uD" in data else ()
    if wrong := next((escape for escape in escapes if escape[1]), None):
        reason = f"{wrong[0].decode(errors='replace')} is half of a character: write all of it, or \\ufffd"
        raise fault_at(data, name, wrong.start(), reason)


def _array_style(text: bytes, elements: Sequence[msgspec.Raw]) -> ArrayStyle:
    """The style of an array with these elements."""
    before = text[1 : text.index(bytes(elements[0]))]
    at = 1 + len(before) + len(bytes(elements[0]))
    between = text[at : text.index(bytes(elements[1]), at)] if len(elements) > 1 else b"," + (before or b" ")
    return ArrayStyle(before, between, text[len(text[:-1].rstrip()) : -1])


def members_of(text: Buffer) -> dict[str, Buffer]:
    """The members of an item, without white space."""
    return {**exactjson.cut(msgspec.json.format(bytes(text), indent=-1))}


def load_json(name: str, data: bytes) -> Any:
    """The value of a JSON file with this name. Raises FileError."""
    try:
        return exactjson.loads(data)
    except InvalidJson as problem:
        raise _unreadable(data, name, problem) from None


def _items(
    name: str, text: Buffer, elements: Sequence[Buffer], unserved: list[str], id_name: str, twins: dict[str, list[int]]
) -> tuple[Texts, Set[str], bool]:
    """The items of an array by their keys, the kinds of their ids, and whether some get their id here.

    Items without an id get the next integers; as texts, if other ids are texts. `unserved` gets lines about items that
    are too large, and about items with the id of an item before them, which are in `twins`.
    """
    texts, large = Texts(), 0
    id_type: Any = msgspec.defstruct("_Item", [("id", msgspec.Raw, msgspec.field(default=_NO_ID, name=id_name))])
    id_texts = [bytes(item.id) for item in msgspec.json.decode(text, type=list[id_type])]
    label = json.dumps(id_name, ensure_ascii=False).encode()
    kinds = {id_kind(id) for id in id_texts if id not in NONE}
    has_texts = bool(kinds & TEXT_IDS)
    keys = [_key_of_text(id) for id in id_texts]
    numbers = (id for key in keys if key and isinstance(id := id_of(key), int)) if None in keys else ()
    last = max(numbers, default=0)
    for number, (id_text, key, source) in enumerate(zip(id_texts, keys, elements, strict=True)):
        element = source
        if key is None:
            last += 1
            key, new_id = key_of(last), b'"%d"' % last if has_texts else b"%d" % last
            inside = bytes(source)[1:].lstrip()
            space = bytes(source)[1 : -len(inside)]  # such as a line break and the indentation
            following = b"" if inside == b"}" else b"," + (space or b" ")
            element = b"{%b%b: %b%b%b" % (space, label, new_id, following, inside)
            if id_text:
                element = exactjson.joined({**exactjson.cut(source), id_name: new_id})
        if is_large := len(bytes(source)) > LONGEST_ITEM:
            large += 1
        elif is_twice := key in texts:
            twins.setdefault(key, []).append(number)
        texts[number if is_large or is_twice else key] = element
    if twice := sum(map(len, twins.values())):
        unserved.append(f"{name}: of items with the same id the first is served; {twice} after it are deleted with it")
    if large:
        unserved.append(f"{name}: {large} items of more than {LONGEST_ITEM >> 20} MiB are not served")
    is_numbered = None in keys
    return texts, kinds | ({"plain" if has_texts else "index"} if is_numbered else set()), is_numbered


def id_kind(id: bytes) -> str:
    """The kind of an id in JSON: a `plain` text as in services, any other `text`, an `index`, a `whole`, a `number`."""
    if id[:1] == b'"':
        return "plain" if _PLAIN.fullmatch(id) else "text"
    if _WHOLE.fullmatch(id) and exactjson.SMALLEST_INTEGER <= int(id) <= exactjson.LARGEST_INTEGER:
        return "index" if int(id) >= 0 else "whole"
    return "number"


def _key_of_text(id: bytes) -> str | None:
    if id in NONE:
        return None
    return key_of(json.loads(id) if id[:1] == b'"' else id.decode())


def _unreadable(data: bytes, name: str, error: Exception) -> FileError:
    """Why a text is no JSON object: the first fault, with its place as far as that is known."""
    reason = str(error)
    if not data.strip():
        return FileError(f'{name}:1:1: the file is empty: begin with {{"posts": []}}')
    try:
        value = exactjson.loads(data, max_depth=900)  # as many as msgspec reads, at least
        if not isinstance(value, dict):
            reason = "the file must be an object with a member for each collection (byte 0)"
    except InvalidJson as problem:
        if where := re.search(r" \(line (\d+), column (\d+)\)$", problem.detail):
            return FileError(f"{name}:{where[1]}:{where[2]}: {problem.detail[: where.start()]}")
        reason = problem.detail
    at = _BYTE.search(reason) or _BYTE.search(str(error))
    return fault_at(data, name, int(at[1]), _BYTE.sub("", reason)) if at else FileError(f"{name}: {reason}")


def fault_at(data: bytes, name: str, at: int, reason: str) -> FileError:
    """An error at a byte of a text, with its line and column."""
    lines = data[:at].decode(errors="replace").split("\n")
    return FileError(f"{name}:{len(lines)}:{len(lines[-1]) + 1}: {reason}")


def is_equal(one: Buffer | None, other: Buffer | None) -> bool:
    """Whether two texts have equal values, as 1.5 and 1.50."""
    if one is None or other is None:
        return one is other
    return bytes(one) == bytes(other) or _are_equal(exactjson.decoded(one), exactjson.decoded(other))


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)
