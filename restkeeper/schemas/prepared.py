"""Schemas as items have them: nothing is rounded or lost, each value has one form, and what cannot work is refused."""

from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime, time
from decimal import Decimal, InvalidOperation
from functools import partial
from inspect import signature
from typing import Any

from marshmallow import INCLUDE, RAISE, Schema, ValidationError, fields, missing, validate
from marshmallow.exceptions import RegistryError

from restkeeper.clock import rfc3339
from restkeeper.exactjson import JsonObject, faults_in, faults_in_values, listed, require_none
from restkeeper.schemas.fields import (
    EXACT,
    MOST,
    READABLE_BY,
    WRITABLE_BY,
    Lifecycle,
    Owner,
    Status,
    bounds,
    default_of,
)
from restkeeper.schemas.item import READ_ONLY

Field = fields.Field[Any]
Above = tuple[tuple[type[Schema], frozenset[str]], ...]  # the schemas around a field, each with its fields

COMPUTED = (fields.Method, fields.Function)
ISO = (None, "iso", "iso8601")  # the formats of dates and times that sort as texts
# Characters: of a number in JSON; of an address (RFC 5321, section 4.5.3.1); of a URL, as long as one of a request.
LONGEST = {fields.Decimal: 100, fields.Email: 254, fields.Url: 8192}
EXPECTED: dict[type[Field], str] = {  # the words for a field of marshmallow, by the first class that fits
    fields.NaiveDateTime: "a time like 2026-01-31T12:00:00",
    fields.DateTime: "a time like 2026-01-31T12:00:00Z",
    fields.Date: "a date like 2026-01-31",
    fields.Time: "a time of day like 12:00",
    fields.UUID: "a UUID like 01912d68-783e-7a03-8467-5661c1243ad4",
    fields.IPv4: "an IPv4 address like 10.0.0.1",
    fields.IPv6: "an IPv6 address like ::1",
    fields.IP: "an IP address like 10.0.0.1",
    fields.Email: "an e-mail address like name@example.org",
    fields.Url: "a URL like https://example.org/path",
    fields.String: "a string",
    fields.Integer: "a whole number",
    fields.Number: "a number",
    fields.TimeDelta: "a number",
    fields.Boolean: "true or false",
    fields.Nested: "an object",
    fields.List: "an array",
    fields.Mapping: "an object",
}
_MESSAGES = {
    "required": "is required",
    "null": "must not be null",
    "unknown": "must be one of: {choices}",
    "too_large": "is too large",
    "validator_failed": "is not valid",
}
_OF_CHECKS: dict[type, str] = {
    validate.OneOf: "must be one of: {choices}",
    validate.Regexp: "must match {regex}",
    validate.Email: f"must be {EXPECTED[fields.Email]}",
    validate.URL: f"must be {EXPECTED[fields.Url]}",
}
_INVALID = ("invalid", "invalid_uuid", "invalid_ip", "invalid_awareness", "special", "type")
_LOAD: dict[str, Any] = {"many": False, "partial": False, "unknown": RAISE}
# The keywords with which marshmallow calls each kind of hook.
_CALLS: dict[str, dict[str, Any]] = dict.fromkeys(("pre_load", "post_load", "validates_schema"), _LOAD)
_CALLS["validates"] = {"data_key": "name"}
_VAGUE = "say required=True or what load_default is"
_NAMES = (fields.String, fields.UUID, fields.Date, fields.Time, fields.DateTime, fields.Enum, fields.IP)
_DESERIALIZE = fields.Number._deserialize  # a subclass with another one is exact by itself


def prepared(schema: type[Schema], *, exclude: tuple[str, ...] = ()) -> Schema:
    """An instance of a schema. Its fields, and fields inside them, are exact. Raises ValueError as marshmallow does.

    The default of a field that no caller sets is always its `load_default`.
    """
    try:
        instance = schema(exclude=exclude)
        for _, field, _ in all_fields_in(worded(instance)):
            _make_exact(field)
            if field.dump_only:
                field.required = False
                field.load_default = field.load_default if field.dump_default is missing else field.dump_default
    except (AttributeError, RegistryError, ValueError) as error:  # of a Method, of a Nested, of names
        raise ValueError(f"{schema.__name__}: {error}") from None
    return instance


def worded(schema: Schema) -> Schema:
    """The schema, with messages of the engine that say what would be right, where it has none of its own."""
    _word_unknown(schema)
    for _, field, _ in all_fields_in(schema):
        _word(field)
    return schema


def fields_of(schema: Schema) -> dict[str, Field]:
    """The fields of a schema by their names in JSON."""
    return {field.data_key or name: field for name, field in schema.fields.items()}


def most_characters(field: Field) -> int:
    """The characters of a text that is sent for a field, at most; 0 if only the body has a bound."""
    return next((most for of, most in LONGEST.items() if isinstance(field, of)), 0)


def is_computed(field: Field) -> bool:
    """Whether the value of a field follows from others: it is computed when the item is written."""
    return field.dump_only and (isinstance(field, COMPUTED) or field.attribute is not None)


def is_optional(schema: Schema, field: Field) -> bool:
    """Whether items can be without a field of theirs, which no caller has sent."""
    is_vague = not (field.required or field.dump_only) and field.load_default is missing
    return is_vague and schema.unknown == INCLUDE


def refusals(schema: Schema, *, is_newest: bool = True) -> Iterator[str]:
    """The mistakes in the schema of an item: the path of the field, and what to write instead.

    In an older schema, read-only fields need no default: items are stored by the newest schema.
    """
    entries = [(path, field, above) for path, field, above in all_fields_in(schema) if path not in READ_ONLY]
    schemas = [("schema", schema, schema.unknown)]
    for path, field, above in entries:
        wrong = _wrong_in(field, is_inside=field.parent is not schema, is_newest=is_newest)
        wrong[_VAGUE] = wrong[_VAGUE] and not is_optional(schema, field)
        yield from (f"{path}: {reason}" for reason, is_wrong in wrong.items() if is_wrong)
        if isinstance(field, fields.Nested):
            schemas.append((path, field.schema, field.unknown or field.schema.unknown))
            if _key(field.schema) in above and (lenient := [path for path, inner, _ in entries if _make_exact(inner)]):
                yield f"{lenient[0]}: not exact in a schema that is inside itself: use Whole, Money or Time"
    for path, nested, unknown in schemas:
        hooks = nested._hooks  # there is no public way to ask for them
        if hooks["pre_dump"] or hooks["post_dump"]:
            yield f"{path}: @pre_dump and @post_dump change what is stored: use @post_load, or a Method field"
        for tag, keywords in _CALLS.items():
            for name, _, options in hooks[tag]:
                values = ("value",) if tag == "validates" else ("item", *["sent"] * options.get("pass_original", False))
                try:
                    signature(getattr(nested, name)).bind(*values, **keywords)
                except TypeError as error:
                    yield f"{path}: @{tag} {name}: is called with ({', '.join((*values, *keywords))}): {error}"
        named = {name for *_, options in hooks["validates"] for name in options["field_names"]}
        if absent := sorted(named - nested.declared_fields.keys()):
            yield f"{path}: @validates({absent[0]!r}): there is no such field"
        if unknown == INCLUDE and nested is not schema:
            yield f"{path}: unknown=INCLUDE: what no field names is not stored: use JsonObject for it"


def _key(schema: Schema) -> tuple[type[Schema], frozenset[str]]:
    return type(schema), frozenset(schema.fields)


def all_fields_in(schema: Schema, path: str = "", above: Above = ()) -> Iterator[tuple[str, Field, Above]]:
    """All fields with their paths, also fields inside others; a schema inside itself is visited once."""
    above = (*above, _key(schema))
    pairs = [(path + name, field) for name, field in fields_of(schema).items()]
    for name, field in pairs:  # which grows
        yield name, field, above
        inner = [getattr(field, attribute, None) for attribute in ("inner", "key_field", "value_field", "field")]
        inner += getattr(field, "tuple_fields", ())
        pairs += [(name, nested) for nested in inner if isinstance(nested, fields.Field)]
        if isinstance(field, fields.Nested) and _key(field.schema) not in above:
            yield from all_fields_in(field.schema, f"{name}.", above)


def _wrong_in(field: Field, *, is_inside: bool, is_newest: bool) -> dict[str, bool]:
    """The mistakes that a field of an item, or one inside another, can have, and whether this field has them."""
    makes = getattr(field, "serialize_func", None) or getattr(field, "serialize_method_name", None)
    is_made, has_default = isinstance(field, COMPUTED), field.load_default is not missing
    keys = field.key_field if isinstance(field, fields.Mapping) else None
    is_own = field.dump_only and not is_inside  # it is no caller's
    is_guarded, is_status = WRITABLE_BY in field.metadata, isinstance(field, Status)
    is_private = READABLE_BY in field.metadata
    needs_default = is_own and is_newest and not field.allow_none and not is_computed(field)
    lifecycle = field.lifecycle if isinstance(field, Status) else Lifecycle("", {})
    named = (
        lifecycle.initial,
        *lifecycle.scopes,
        *lifecycle.by_actions,
        *(state for move in lifecycle.moves.values() for state in move),
    )
    states = sorted({*named} - {*lifecycle.moves}) if is_status else []
    is_vague = not field.dump_only and not field.required and not has_default
    inside = "dump_only inside another field could not be sent back: exclude it, or use Schema and not ItemSchema"
    default = "dump_only: say what dump_default is, the value of new items, or allow_none=True"
    return {
        "load_only: what is sent would be lost: take it in the body of an action": field.load_only,
        "say what serialize is": is_made and not makes and not field.load_only,
        "load_default: what is made by a function has none: say required=True": is_made and has_default,
        "as_string: numbers are exact as they are: leave it out": getattr(field, "as_string", False),
        "allow_nan: JSON has no such number: leave it out": getattr(field, "allow_nan", False),
        "keys: names in JSON are texts: use keys=String()": keys is not None and not isinstance(keys, _NAMES),
        inside: is_inside and field.dump_only,
        "Status: only the item has a lifecycle: use String with OneOf": is_inside and is_status,
        "Owner: only the item itself has an owner": is_inside and isinstance(field, Owner),
        "Owner: leave out required, load_default and dump_only: the default is the caller": isinstance(field, Owner)
        and (field.required or field.dump_only or field.load_default is not None),
        "writable_by is for the fields of the item itself": is_inside and is_guarded,
        "readable_by is for the fields of the item itself": is_inside and is_private,
        "readable_by: who may not read it could not create items: say what load_default is": is_private
        and field.required,
        "readable_by: a state decides what all callers can do: use a field beside it": is_private and is_status,
        _VAGUE: is_vague and not is_inside,
        default: needs_default and default_of(field) is None,
        "writable_by: nobody can write what is dump_only": is_own and is_guarded,
        f"Lifecycle: {', '.join(states)}: no such state: add '{''.join(states[:1])}': () to the states": bool(states),
    }


def _word(field: Field) -> None:
    """Say what would be right in a field."""
    defaults: dict[str, str] = {}
    for kind in reversed(type(field).__mro__):
        if kind.__module__ == fields.__name__:
            defaults |= getattr(kind, "default_error_messages", {})
    expected = next((words for of, words in EXPECTED.items() if isinstance(field, of)), "")
    if expected and getattr(field, "format", None) in ISO:
        messages = _MESSAGES | dict.fromkeys(_INVALID, f"must be {expected}")
    else:
        messages = _MESSAGES
    custom = {key: text for key, text in field.error_messages.items() if text != defaults.get(key)}
    field.error_messages = {**field.error_messages, **messages, **custom}
    field.validators = [_worded(check, field) for check in field.validators]
    if isinstance(field, fields.Nested):
        _word_unknown(field.schema)


def _word_unknown(schema: Schema) -> None:
    default = Schema._default_error_messages
    words = {"type": "must be an object", "unknown": "is not a field of this object"}
    said = {key: text for key, text in words.items() if schema.error_messages[key] == default[key]}
    schema.error_messages = schema.error_messages | said


def _worded(check: Any, field: Field) -> Any:
    """A validator of marshmallow with the words of the engine, unless the service has given it words."""
    words, low, high = "", getattr(check, "min", None), getattr(check, "max", None)
    if type(check) is validate.Length:
        most = MOST if high is None else high
        number = bounds(low or 0, most) if check.equal is None else check.equal
        words = f"must have {number} {'characters' if isinstance(field, fields.String) else 'items'}"
    elif type(check) is validate.Range and check.min_inclusive and check.max_inclusive:
        words = "must be from {min} to {max}" if high is not None else "must be at least {min}"
        words = "must be at most {max}" if low is None else words
    else:
        words = _OF_CHECKS.get(type(check), "")
    if not words or check.error not in (None, getattr(check, "default_message", None)):
        return check
    check = copy(check)
    check.error = words
    return check


def _make_exact(field: Field) -> bool:
    """Let a field of marshmallow refuse values that it would round, and give times one form; whether it was lenient."""
    if isinstance(field, fields.DateTime):
        if isinstance(field, fields.NaiveDateTime) or field.format not in ISO:
            return False
        field.SERIALIZATION_FUNCS = {**field.SERIALIZATION_FUNCS, "iso": _format, "iso8601": _format}
        field.post_load = [_in_utc, *field.post_load]
        return True
    if most := most_characters(field):
        field.pre_load = [partial(_bounded, most), *field.pre_load]  # before an expression searches it
    if isinstance(field, fields.Time):
        field.post_load = [_without_offset, *field.post_load]
        return False  # no query reaches one in a schema that is inside itself
    types = {type(entry.value) for entry in field.enum} if isinstance(field, fields.Enum) and field.by_value else set()
    if isinstance(field, fields.TimeDelta) or (types & {int, float} and bool not in types):
        field.pre_load = [*field.pre_load, _no_boolean]
        return True
    if not isinstance(field, fields.Integer | fields.Decimal) or type(field)._deserialize is not _DESERIALIZE:
        return False
    check = partial(_in_places, field.places) if isinstance(field, fields.Decimal) else _whole
    field.pre_load = [*field.pre_load, check]
    return True


def _whole(value: Any) -> Any:
    """A whole number; JSON has one kind of number, so 5.0 is 5."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    if value is not None and not isinstance(value, int):
        raise ValidationError("must be a whole number")
    return value


def _no_boolean(value: Any) -> Any:
    """A value that is not true or false, which Python takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValidationError("must not be true or false")
    return value


def _without_offset(value: time) -> time:
    """A time of day. Those with an offset are of no day, and so have no order."""
    if value.tzinfo:
        raise ValidationError("must be a time of day like 12:00, without an offset")
    return value


def _bounded(most: int, value: Any) -> Any:
    if isinstance(value, str) and len(value) > most:
        raise ValidationError(f"must have at most {most} characters")
    return value


def _in_places(places: Decimal | None, value: Any) -> Any:
    """A number, or a text with one, that is not to be rounded."""
    if places is not None and isinstance(value, str | int | Decimal):
        try:
            if EXACT.quantize(Decimal(value), places) != Decimal(value):
                raise ValidationError(f"must be a multiple of {places}")
        except InvalidOperation:
            pass  # it is no number, or too large: the field refuses it
    return value


def _in_utc(value: datetime) -> datetime:
    """A time in UTC; without an offset it is in UTC already, as in filters."""
    try:
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise ValidationError("must be in the years 1 to 9999 in UTC") from None


def _format(value: datetime) -> str:
    return rfc3339(_in_utc(value))


def loaded(schema: Schema, sent: JsonObject) -> Any:
    """What a schema loads from a JSON object. Raises ValidationFailed."""
    require_none(listed(faults_in_values(sent)))
    try:
        return schema.load(sent)
    except ValidationError as error:
        require_none(listed(faults_in(error.messages)))
        raise
