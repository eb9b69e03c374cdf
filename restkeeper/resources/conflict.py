"""Why items of a schema in the store do not fit the schema of a program, and the steps that may be missing."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import orjson

from restkeeper.resources.step import Fields
from restkeeper.resources.stored_schema import ANY_VALUE, OPEN, described_field
from restkeeper.schemas.item import absent_in
from restkeeper.storage.interface import StoredSchema

# Types whose values are also values of another one.
_WIDER = {("integer", "number"), ("time", "string"), ("array of integer", "array of number")}


class StoredField(NamedTuple):
    """A field as a schema in the store describes it.

    `inside` has the fields of the objects in it, as far as they have a schema; the values of a dictionary are described
    as one field, `*`.
    """

    type: str
    required: bool
    nullable: bool
    inside: Mapping[str, Sequence[Any]] | None = None


def conflict_of(resource: Any, schema: StoredSchema, *, common: bool) -> str:
    """See `interface.Collection.conflict`; `resource` is the declaration of the collection."""
    name, revision = resource.name, schema.revision
    if revision > resource.revision:
        return f"{name}: a newer program stored items of revision {revision}; this one has revision {resource.revision}"
    if revision < resource.oldest:
        return f"{name}: there are items or events of revision {revision}, and upgrades begins after {resource.oldest}"
    if schema.fields.startswith('{"id":') is (not resource.has_integer_ids):
        return f"{name}: ids={resource.ids!r}: stored items have other ids, which never change"
    stored = resource.revisions[revision]
    distinct = {name for name in resource.unique if stored.defaults.get(name, b"null") != b"null"}
    mismatches = _differences(
        schema.fields, stored.described, is_open=stored.is_open, distinct=distinct, filled=stored.filled
    )
    if common:
        mismatches = [mismatch for mismatch in mismatches if mismatch.common]
    absent = [] if common else sorted(absent_in(schema.fingerprint).intersection(stored.of_server))
    missing = [f"stored items are without {name}" for name in absent]
    reasons = "; ".join([mismatch.reason for mismatch in mismatches] + missing)
    if not reasons:
        return ""
    if absent or _was_open(schema.fields):
        return f"{name}: {reasons}. No step converts that: export the items, and import them into another store"
    lines = (f"{name.upper()} = {{{revision + 1}: {steps}}}" for steps in _steps_for(mismatches))
    more = "" if resource.upgrades else f", and upgrades={name.upper()} in resources/{name}.py"
    return f"{name}: {reasons}. Write in storage/upgrades.py what became of it: {' or '.join(lines)}{more}"


def _was_open(stored: str) -> bool:
    """Whether items of a schema have fields that its description does not name."""
    return OPEN in orjson.loads(stored)


class Difference(NamedTuple):
    """The reason why items of a schema do not fit another one, and the steps that may be missing, as Python code.

    It is `common` if both schemas have the field, and no value can be of both types.
    """

    reason: str
    steps: tuple[str, ...]
    common: bool = False


def _differences(
    stored: str,
    definitions: Fields,
    *,
    is_open: bool = False,
    distinct: Set[str] = frozenset(),
    filled: Set[str] = frozenset(),
) -> list[Difference]:
    """The differences of items of a `stored` schema, a description, from a schema with these fields.

    Fields in `distinct` are unique, and have a default that is not null; an item stores the values of fields in
    `filled`, see `Revision`.
    """
    before, after = orjson.loads(stored), {name: described_field(field) for name, field in definitions.items()}
    has_others = before.pop(OPEN, None) is not None
    compared = {name: field for name, field in before.items() if name in after or not is_open}
    mismatches = list(_compared(compared, after))
    for name in (name for name in definitions if name not in before):
        if name in distinct:
            mismatches.append(Difference(f'"{name}" is unique, and its default is not null', (f'Add("{name}", …)',)))
        elif name in filled:
            mismatches.append(Difference(f'"{name}" is new, and stored items need its value', (f'Add("{name}")',)))
    for name, (type, required, *_) in after.items() if has_others else ():
        if name not in before and type != ANY_VALUE:
            mismatches.append(Difference(f'stored items can have any value as "{name}"', ()))
        elif name in before and required and not before[name][1]:
            mismatches.append(Difference(f'"{name}" is required, and stored items can be without it', ()))
    if has_others and not is_open:
        mismatches.append(Difference("stored items can have fields that the schema does not name", ()))
    return mismatches


def _steps_for(mismatches: Sequence[Difference]) -> list[str]:
    """The steps for these differences as lists in Python: with fields that have another name now, and without."""
    lists = ([mismatch.steps[choice] for mismatch in mismatches] for choice in (0, -1))
    return list(dict.fromkeys(f"[{', '.join(dict.fromkeys(steps))}]" for steps in lists))


def _compared(before: Mapping[str, Sequence[Any]], after: Mapping[str, Sequence[Any]]) -> Iterator[Difference]:
    new = {name: StoredField(*description) for name, description in after.items()}
    added = [name for name in new if name not in before]
    for name, description in before.items():
        field = StoredField(*description)
        if name in new:
            yield from _changed(name, field, new[name])
            continue
        reason = f'stored items have "{name}" ({field.type}), and the schema does not'
        remove = f'Remove("{name}", …)'
        if renamed := next((candidate for candidate in added if new[candidate].type == field.type), ""):
            added.remove(renamed)
            rename = f'Rename("{name}", "{renamed}")'
            yield Difference(reason, (rename, remove))
            if new[renamed].required:
                yield _added(renamed, rename)
        else:
            yield Difference(reason, (remove,))
    yield from (_added(name) for name in added if new[name].required)


def _added(name: str, *rename: str) -> Difference:
    return Difference(f'"{name}" is required, and stored items do not have it', (*rename, f'Add("{name}", …)'))


def _changed(name: str, before: StoredField, after: StoredField) -> Iterator[Difference]:
    steps = (f'Convert({{"{name}": …}}, ["{name}"], up=…, down=…)',)
    if before.type != after.type and (before.type, after.type) not in _WIDER and after.type != ANY_VALUE:
        common = (after.type, before.type) not in _WIDER and before.type != ANY_VALUE
        yield Difference(f'"{name}" is of type {after.type}, and in stored items of type {before.type}', steps, common)
    elif before.nullable and not after.nullable:
        yield Difference(f'"{name}" must not be null, and in stored items it can be', steps)
    elif before.inside is not None and after.inside is not None:
        for mismatch in _compared(before.inside, after.inside):
            yield Difference(f'in "{name}", {mismatch.reason}', steps, mismatch.common)
