"""Strict fields: no number from a string, no rounding, no silent conversion."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Context, Decimal
from functools import partial
from typing import Any, TypedDict, Unpack, cast
from unicodedata import normalize
from urllib.parse import urlsplit

from marshmallow import ValidationError, fields, missing, types, validate

from restkeeper.clock import rfc3339

TEXT_ERRORS: dict[str, Any] = {"invalid": "must be a string", "null": "must not be null", "required": "is required"}


EXACT = Context(prec=100)  # digits: the most that a number in accepted JSON can have
LONGEST_OWNER = 259  # characters: without a claim for it, the owner of a token is "jwt:" and a `sub` of 255
MOST = 2**31 - 1  # characters and elements where there is no bound: an item has its own
WRITABLE_BY, READABLE_BY = "x-writable-by", "x-readable-by"  # in the metadata of a field, and in the document


def default_of(field: fields.Field[Any]) -> Any:
    """The value, as it is in JSON, of a field that is left out; None if it is required, or computed."""
    default = None if field.load_default is missing else field.load_default
    value = default() if callable(default) else default
    return value if isinstance(field, fields.Method | fields.Function) else field._serialize(value, None, None)


def scopes_of(field: fields.Field[Any]) -> Iterator[str]:
    """The scopes that a caller needs to change a field, or to set some of its states."""
    yield from (field.metadata[key] for key in (WRITABLE_BY, READABLE_BY) if key in field.metadata)
    yield from field.lifecycle.scopes.values() if isinstance(field, Status) else ()


class FieldOptions(TypedDict, total=False):
    """The options of every field: those of marshmallow, and the scopes that a caller needs to change or read it."""

    load_default: Any
    dump_default: Any
    data_key: str | None
    attribute: str | None
    validate: types.Validator | Iterable[types.Validator] | None
    pre_load: types.PreLoadCallable | Iterable[types.PreLoadCallable] | None
    post_load: types.PostLoadCallable[Any] | Iterable[types.PostLoadCallable[Any]] | None
    required: bool
    allow_none: bool | None
    load_only: bool
    dump_only: bool
    error_messages: types.ErrorMessages | None
    metadata: Mapping[str, Any] | None
    writable_by: str
    readable_by: str


class ReferenceOptions(FieldOptions, total=False):
    """The options of a reference: see `Refers`."""

    on_delete: str
    embed_as: str


def validators_in(options: FieldOptions) -> tuple[types.Validator, ...]:
    """The validators among the options: there can be one, or several."""
    validators: Any = options.get("validate") or ()
    validators = (validators,) if callable(validators) else validators
    if not isinstance(validators, Iterable) or not all(map(callable, validators := tuple(validators))):
        raise ValueError(f"validate={validators!r}: must be a function of a value, or several")
    return tuple(validators)


def _describe(options: FieldOptions, about: Mapping[str, Any]) -> None:
    """Add descriptions to the metadata, which keep their own."""
    options["metadata"] = {**about, **(options.get("metadata") or {})}


class Guarded:
    """Base of these fields. A caller can change the value only with the scope `writable_by`, if there is one.

    Without the scope `readable_by` the field is not there for a caller, which can neither read nor change it.
    """

    def __init__(self, *args: Any, **options: Unpack[FieldOptions]) -> None:
        scopes = {WRITABLE_BY: options.pop("writable_by", ""), READABLE_BY: options.pop("readable_by", "")}
        if guards := {name: scope for name, scope in scopes.items() if scope}:
            options["metadata"] = {**(options.get("metadata") or {}), **guards}
        super().__init__(*args, **cast(dict[str, Any], options))


class Pattern(validate.Regexp):
    """A validator: the whole string matches a regular expression, as in `Text(validate=Pattern("[A-Z]{3}"))`.

    It means the same in the JSON Schema of the API document, so it must not contain `\\Z`.
    """

    def __call__(self, value: str) -> str:  # type: ignore[override]
        if not re.fullmatch(str(self.regex.pattern), value) or value.endswith("\n"):
            raise ValidationError(self.error)
        return value


def bounds(low: int, high: int) -> str:
    """The numbers of characters or items that are allowed, in words."""
    if low and high >= MOST:
        return f"at least {low}"
    return f"{low} to {high}" if low else f"at most {high}"


def _require_bounds(called: str, low: object, high: object) -> None:
    """Raises ValueError for bounds that no value is between."""
    if type(low) is not int or type(high) is not int:
        raise ValueError(f"{called}: each bound must be a whole number")
    if low > high:
        raise ValueError(f"{called}: nothing is in it: the first bound must not be above the second")


class Text(Guarded, fields.String):
    """A string of `low` to `high` characters; with `normal="NFC"` stored in that normal form of Unicode."""

    default_error_messages = TEXT_ERRORS

    def __init__(self, low: int = 0, high: int = 10_000, *, normal: str = "", **options: Unpack[FieldOptions]) -> None:
        if normal not in (forms := ("", "NFC", "NFD", "NFKC", "NFKD")):
            raise ValueError(f"{type(self).__name__}(normal={normal!r}): must be {' or '.join(map(repr, forms[1:]))}")
        _require_bounds(f"{type(self).__name__}({low!r}, {high!r})", low, high)
        length = validate.Length(low or None, high, error=f"must have {bounds(low, high)} characters")
        options["validate"] = (length, *validators_in(options))
        super().__init__(**options)
        if normal:
            self.pre_load = [*self.pre_load, partial(_normal_text, normal)]


def _normal_text(form: Any, value: Any) -> Any:
    """A text in this normal form; a value of another type as it is."""
    return normalize(form, value) if isinstance(value, str) else value


class Email(Text):
    """An e-mail address as mail is commonly delivered: ASCII, at most 254 characters (RFC 5321, section 4.5.3.1)."""

    _ERROR = "must be an e-mail address like name@example.org"
    _PATTERN = r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+$"  # WHATWG's

    def __init__(self, **options: Unpack[FieldOptions]) -> None:
        options["validate"] = (Pattern(self._PATTERN, error=self._ERROR), *validators_in(options))
        super().__init__(3, 254, **options)


class Url(Text):
    """An http or https URL (RFC 3986) of ASCII characters that names a host, and no user, password or fragment."""

    _ERROR = "must be a URL like https://example.org/path, in ASCII (xn--…), with no user, password or fragment"

    def __init__(self, high: int = 2048, **options: Unpack[FieldOptions]) -> None:
        options["validate"] = (*validators_in(options), _require_url)
        _describe(options, {"format": "uri"})
        super().__init__(1, high, **options)


def _require_url(text: str) -> None:
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    plain = text.isascii() and text.isprintable() and not set(text) & set(' "<>\\^`{|}#')  # RFC 3986, section 2
    if not sound or not plain or "@" in urlsplit(text).netloc:
        raise ValidationError(Url._ERROR)


def forms_of(field: fields.Field[Any]) -> list[types.Validator]:
    """The validators that say what the texts of a field with a format are, in a filter, too; none of another field."""
    return [check for check in field.validators if isinstance(check, Pattern)] if "format" in field.metadata else []


class Whole(Guarded, fields.Integer):
    """A whole number from `low` to `high`; JSON has one kind of number, so 5.0 is 5."""

    default_error_messages = {**TEXT_ERRORS, "invalid": "must be a whole number"}

    def __init__(self, low: int = -(2**63), high: int = 2**63 - 1, **options: Unpack[FieldOptions]) -> None:
        called = f"{type(self).__name__}({low!r}, {high!r})"
        _require_bounds(called, low, high)
        if low < -(2**63) or high >= 2**63:
            raise ValueError(f"{called}: a whole number is from -(2**63) to 2**63 - 1")
        limits = validate.Range(low, high, error="must be from {min} to {max}")
        options["validate"] = (limits, *validators_in(options))
        super().__init__(**options)

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> int:
        if isinstance(value, Decimal) and value == value.to_integral_value():
            value = int(value)
        if type(value) is not int:
            raise self.make_error("invalid")
        return value


class Money(Guarded, fields.Decimal):
    """An exact amount from 0 to 9999999999999.99, at most two decimals: 15 digits, which every JSON reader preserves.

    12.50 is stored as 12.5. JSON Schema has no exact form of "two decimals" (`multipleOf: 0.01` is a binary fraction),
    so only the description has it.
    """

    LARGEST = Decimal("9999999999999.99")
    default_error_messages = {**TEXT_ERRORS, "invalid": "must be a number", "places": "must have at most 2 decimals"}

    def __init__(self, **options: Unpack[FieldOptions]) -> None:
        limits = validate.Range(Decimal(0), self.LARGEST, error="must be from 0 to {max}")
        options["validate"] = (limits, *validators_in(options))
        super().__init__(**options)

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> Decimal:
        if type(value) not in (int, Decimal):
            raise self.make_error("invalid")
        amount = EXACT.normalize(Decimal(value))
        exponent = amount.as_tuple().exponent
        if not isinstance(exponent, int) or exponent < -2:
            raise self.make_error("places")
        if exponent > 0 and abs(amount) <= self.LARGEST:
            amount = amount.quantize(Decimal(1))  # 1E+2 is 100
        return abs(amount) if amount == 0 else amount


class ListOf(Guarded, fields.List[Any]):
    """An array of `low` to `high` values, each of the field `inner`: `ListOf(Text(1, 20))`."""

    default_error_messages = {**TEXT_ERRORS, "invalid": "must be an array"}

    def __init__(
        self, inner: fields.Field[Any], high: int = 100, *, low: int = 0, **options: Unpack[FieldOptions]
    ) -> None:
        _require_bounds(f"{type(self).__name__}(…, high={high!r}, low={low!r})", low, high)
        words = f"must have {bounds(low, high)} items"
        self._length = validate.Length(low or None, high, error=words)
        options["validate"] = (self._length, *validators_in(options))
        super().__init__(inner, **options)

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> list[Any]:
        if isinstance(value, list):
            self._length(value)  # before each of many values is checked
        return super()._deserialize(value, attr, data, **kwargs)


class JsonObject(Guarded, fields.Dict):
    """Any JSON object, stored as it was sent."""

    default_error_messages = {**TEXT_ERRORS, "invalid": "must be an object"}


class Time(Guarded, fields.String):
    """A time (RFC 3339), stored in UTC with microseconds so that it sorts as text."""

    default_error_messages = {**TEXT_ERRORS, "invalid": "must be a time like 2026-01-31T12:00:00Z"}
    _PATTERN = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)

    def __init__(self, **options: Unpack[FieldOptions]) -> None:
        length = {"maxLength": 27} if options.get("dump_only") else {}
        _describe(options, {"format": "date-time", **length})
        super().__init__(**options)

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs).upper()
        if not self._PATTERN.fullmatch(text):  # Python accepts more of ISO 8601: weeks, no seconds, no offset
            raise self.make_error("invalid")
        try:
            return rfc3339(datetime.fromisoformat(text))
        except (ValueError, OverflowError):
            raise self.make_error("invalid") from None


class Refers(fields.Field[Any]):
    """Base of references: the id of an item of the collection `to`, which exists.

    When that is deleted: "restrict" refuses it, "cascade" deletes this item too, "null" sets the field to null. It is
    embedded in place of the id, or as a member `embed_as` beside it. If it is not `checked`, the item need not exist.
    """

    bounds: tuple[int, ...] = (1, 64)
    checked = True

    def __init__(
        self, to: str, *, on_delete: str = "restrict", embed_as: str = "", **options: Unpack[FieldOptions]
    ) -> None:
        if not isinstance(cast(object, to), str):
            name = type(self).__name__
            raise ValueError(f"{name}({to!r}): must be the name of a collection, such as {name}('users')")
        if on_delete not in ("restrict", "cascade", "null"):
            name = type(self).__name__
            raise ValueError(f"{name}({to!r}, on_delete={on_delete!r}): must be 'restrict', 'cascade' or 'null'")
        self.to = to
        self.on_delete = on_delete
        self.embed_as = embed_as
        _describe(options, {"description": f"The id of an item of {to}.", "x-references": to})
        super().__init__(*self.bounds, **options)  # type: ignore[misc] # of Text, or of Whole


class Reference(Refers, Text):
    """The id of an item of the collection `to`, which exists.

    `on_delete` says what the deletion of that item does: "restrict" refuses it, "cascade" deletes this item, too, and
    "null" sets the field to null. Responses embed the item in place of the id, or as a member `embed_as` beside it.
    """


class IntegerReference(Refers, Whole):
    """A `Reference` to a collection with `ids="integer"`. With "client-integer", `low` is 0 and `high` 2**63 - 1."""

    def __init__(self, to: str, low: int = 1, high: int = 2**53 - 1, **options: Unpack[ReferenceOptions]) -> None:
        self.bounds = low, high
        super().__init__(to, **options)


class Owner(Text):
    """The owner of an item, or null. Only callers with `C:all` give items to others.

    Left out, a new item is the caller's, and another one keeps its owner. With `to`, an owner is the id of an item of
    that collection: if there is one, it is embedded as what a reference refers to.
    """

    checked = False

    def __init__(self, *, to: str = "", embed_as: str = "", **options: Unpack[FieldOptions]) -> None:
        self.to = to
        self.embed_as = embed_as
        of = f", which is the id of an item of {to} if there is one" if to else ""
        _describe(options, {"description": f"The owner{of}.", **({"x-references": to} if to else {})})
        if not options.get("required"):
            options.setdefault("load_default", None)
        super().__init__(1, LONGEST_OWNER, **options)
        self.allow_none = True  # as items that no caller has made have none


@dataclass(frozen=True)
class Lifecycle:
    """The states of an item: `Lifecycle("open", {"open": ("done",), "done": ()})`.

    `initial` is the state of a new item, and `moves` has the states that can follow each state. `scopes` maps a state
    to the scope that a caller needs to set it. `by_actions` maps a state to the action that alone sets it.
    """

    initial: str
    moves: Mapping[str, tuple[str, ...]]
    scopes: Mapping[str, str] = field(default_factory=dict)
    by_actions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for moves that are no tuples of states."""
        moves: Any = self.moves
        if not isinstance(moves, Mapping):
            like = "{'open': ('done',), 'done': ()}"
            raise ValueError(f"Lifecycle({self.initial!r}, …): say for each state which can follow, such as {like}")
        for state, following in moves.items():
            if isinstance(following, str):
                raise ValueError(f"Lifecycle: {state!r}: {following!r} is a text, and no tuple: write ({following!r},)")

    def allows(self, old: str, new: str) -> bool:
        """Whether the state may change from `old` to `new`, which can be equal."""
        return old == new or new in self.moves.get(old, ())


class Status(Guarded, fields.String):
    """A text that is one of the states of a `Lifecycle`."""

    default_error_messages = TEXT_ERRORS

    def __init__(self, lifecycle: Lifecycle, **options: Unpack[FieldOptions]) -> None:
        if not isinstance(cast(object, lifecycle), Lifecycle):
            like = "Status(Lifecycle('open', {'open': ('done',), 'done': ()}))"
            raise ValueError(f"Status({lifecycle!r}): must have a Lifecycle, such as {like}")
        self.lifecycle = lifecycle
        states = validate.OneOf(list(lifecycle.moves), error="must be one of: {choices}")
        options.setdefault("load_default", lifecycle.initial)
        options["validate"] = (states, *validators_in(options))
        super().__init__(**options)


def is_guarded(field: fields.Field[Any]) -> bool:
    """Whether not every caller can set each value of a field."""
    has_actions = isinstance(field, Status) and bool(field.lifecycle.by_actions)
    return any(scopes_of(field)) or isinstance(field, Owner) or has_actions


def is_exact(field: fields.Field[Any]) -> bool:
    """Whether each number of a field's values was sent as such, and so is in the range of JSON's numbers."""
    if isinstance(field, fields.List):
        return is_exact(field.inner)
    return isinstance(field, (fields.String, fields.Boolean, Whole, Money, JsonObject))
