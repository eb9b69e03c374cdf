"""The first calls of a service, for its index: each works when it is copied into a shell."""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from marshmallow import ValidationError, fields

from restkeeper import exactjson
from restkeeper.errors import Problem
from restkeeper.resources.call import Caller
from restkeeper.resources.items import ServedCollection
from restkeeper.resources.views import View
from restkeeper.schemas.fields import Refers, is_guarded
from restkeeper.schemas.prepared import fields_of
from restkeeper.service import Service
from restkeeper.storage.errors import RevisionDiffers
from restkeeper.storage.interface import Query, Record

Call = tuple[str, str, str]  # method, path and body

_LARGE = 16 * 1024  # bytes of an item, from which on it takes milliseconds to compute a change
_MOST, _TRIED = 1000, 5  # bytes of a value and of a body; changes that are validated
_NOW = "1970-01-01T00:00:00.000000Z"  # is not shown
_ANY = {"name": "Hello"}  # of an item that has any fields
_SAMPLES = b"""["Hello", "ada@example.org", "https://example.org", "2026-01-31", "2026-01-31T12:00:00Z",
    "12:00:00", "01912d68-783e-7a03-8467-5661c1243ad4", 1, true, {}, [], ["Hello"]]"""


def first_calls(
    service: Service,
    described: Service,
    collections: Sequence[Mapping[str, Any]],
    readable: Container[str],
    caller: Caller,
) -> Iterator[Call]:
    """Those of the first collection that has items, or else of the first one, and of the first singleton.

    The fields of items are those of the service that describes it, as the caller sees them.
    """
    served = {items.resource.public_name: items for items in described.writes[service.default_version].values()}
    by_need = sorted(collections, key=lambda entry: not entry.get("items"))
    chosen = {served[entry["name"]].resource.singleton: entry for entry in reversed(by_need)}
    references = [field for resource in service.resources for field in resource.newest.references.values()]
    restricting = {field.to for field in references if field.on_delete == "restrict"}
    for _, collection in sorted(chosen.items()):
        items, record = served[collection["name"]], None
        with suppress(RevisionDiffers, exactjson.EncodeError):
            if items.name in readable:
                page = service.store.page(items.name, Query(limit=1, sort=items.resource.order), 1)
                parts = zip(page.fingerprints, page.bodies, page.removed_fields, strict=True)
                stored = [Record(items.resource.key(1), 0, _NOW, *row[:2], removed_fields=row[2]) for row in parts]
                if described is not service:
                    stored = [old._replace(fingerprint=items.stored.fingerprint) for old in stored]
                record = stored[0] if stored else items.stored.initial
            for method, path, body in _calls_of(items, items.views.for_caller(caller), record):
                if method in items.resource.methods and not (method == "DELETE" and items.name in restricting):
                    yield method, collection["url"] + path, body


def _calls_of(items: ServedCollection, view: View, record: Record | None) -> Iterator[Call]:
    """The calls below the path of a collection: those of an item, too, if there is one."""
    resource = items.resource
    members = exactjson.cut(view.body(record)) if record else {}
    texts = {name: exactjson.dumps(exactjson.decoded(raw)) for name, raw in members.items() if len(bytes(raw)) <= _MOST}
    # What is not printable, such as a backspace, would be a key in a terminal.
    short = {name: text for name, text in texts.items() if text.decode().isprintable()}
    unique = {view.name_of(name) for name in resource.compared if record}  # values that no other item can have
    declared, item = fields_of(view.schema()), dict[str, Any]()
    for name, field in declared.items():
        if not (field.dump_only or name in unique or is_guarded(field)) and (name in short or field.required):
            item[name] = exactjson.decoded(short[name]) if name in short else _sample(field)
    new = {name: value for name, value in item.items() if declared[name].required} or dict([*item.items()][:3]) or _ANY
    words = [name for name in item if isinstance(item[name], str) and not isinstance(declared[name], Refers)]
    changes = [*({name: f"{item[name]} 2"} for name in words[:_TRIED]), dict([*item.items()][:1]), _ANY]
    path, writes = "" if resource.singleton else f"/{exactjson.decoded(texts.get(resource.schema.id_name, b'0'))}", []
    if not resource.singleton:
        sort = next(name for name in ("created_at", *item, resource.schema.id_name) if name in view.queryable.sortable)
        yield from (("GET", "", ""), ("GET", f"?sort=-{sort}&limit=3", ""))
        writes.append(("POST", "", partial(view.new_record, id=resource.key(1)), [new]))
    if record:
        yield "GET", path, ""
        writes += [("PATCH", path, partial(view.merge, record), changes)] * (len(record.body) <= _LARGE)
    for method, at, change, bodies in writes:
        for body in filter(None, bodies):
            text = exactjson.dumps(body).decode().replace("'", r"\u0027")
            with suppress(Problem):
                if len(text) <= _MOST and change(body, now=_NOW):
                    yield method, at, text
                    break
    if record:
        yield "DELETE", path, ""


def _sample(field: fields.Field[Any]) -> Any:
    """A value that a field accepts; None without any."""
    choices = [choice for check in field.validators for choice in getattr(check, "choices", ())]
    candidates = [*field.metadata.get("examples", ()), *choices, *exactjson.loads(_SAMPLES)]
    for value in exactjson.loads(exactjson.dumps(candidates)) if not isinstance(field, Refers) else ():
        with suppress(ValidationError):
            field.deserialize(value)
            return value
    return None
