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
    known = {each.resource.public_name: each for each in described.writes[service.default_version].values()}
    by_need = sorted(collections, key=lambda each: not each.get("items"))
    first = {known[each["name"]].resource.singleton: each for each in reversed(by_need)}
    references = [field for each in service.resources for field in each.newest.references.values()]
    kept = {field.to for field in references if field.on_delete == "restrict"}
    for _, each in sorted(first.items()):
        items, record = known[each["name"]], None
        with suppress(RevisionDiffers, exactjson.EncodeError):
            if items.name in readable:
                page = service.store.page(items.name, Query(limit=1, sort=items.resource.order), 1)
                parts = zip(page.fingerprints, page.bodies, page.removed, strict=True)
                stored = [Record(items.resource.key(1), 0, _NOW, *part[:2], removed=part[2]) for part in parts]
                if described is not service:
                    stored = [each._replace(fingerprint=items.stored.fingerprint) for each in stored]
                record = stored[0] if stored else items.stored.initial
            for method, path, body in _calls_of(items, items.views.of(caller), record):
                if method in items.resource.methods and not (method == "DELETE" and items.name in kept):
                    yield method, each["url"] + path, body


def _calls_of(items: ServedCollection, shown: View, record: Record | None) -> Iterator[Call]:
    """The calls below the path of a collection: those of an item, too, if there is one."""
    resource = items.resource
    found = exactjson.cut(shown.body(record)) if record else {}
    texts = {name: exactjson.dumps(exactjson.decoded(raw)) for name, raw in found.items() if len(bytes(raw)) <= _MOST}
    # What is not printable, such as a backspace, would be a key in a terminal.
    short = {name: text for name, text in texts.items() if text.decode().isprintable()}
    taken = {shown.name_of(name) for name in resource.compared if record}  # values that no other item can have
    known, own = fields_of(shown.schema()), dict[str, Any]()
    for name, field in known.items():
        if not (field.dump_only or name in taken or is_guarded(field)) and (name in short or field.required):
            own[name] = exactjson.decoded(short[name]) if name in short else _sample(field)
    new = {name: value for name, value in own.items() if known[name].required} or dict([*own.items()][:3]) or _ANY
    words = [name for name in own if isinstance(own[name], str) and not isinstance(known[name], Refers)]
    changes = [*({name: f"{own[name]} 2"} for name in words[:_TRIED]), dict([*own.items()][:1]), _ANY]
    path, writes = "" if resource.singleton else f"/{exactjson.decoded(texts.get(resource.schema.id_name, b'0'))}", []
    if not resource.singleton:
        sort = next(name for name in ("created_at", *own, resource.schema.id_name) if name in shown.queryable.sortable)
        yield from (("GET", "", ""), ("GET", f"?sort=-{sort}&limit=3", ""))
        writes.append(("POST", "", partial(shown.new_record, id=resource.key(1)), [new]))
    if record:
        yield "GET", path, ""
        writes += [("PATCH", path, partial(shown.merge, record), changes)] * (len(record.body) <= _LARGE)
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
    choices = [each for check in field.validators for each in getattr(check, "choices", ())]
    found = [*field.metadata.get("examples", ()), *choices, *exactjson.loads(_SAMPLES)]
    for each in exactjson.loads(exactjson.dumps(found)) if not isinstance(field, Refers) else ():
        with suppress(ValidationError):
            field.deserialize(each)
            return each
    return None
