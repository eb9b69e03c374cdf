"""The table of decisions of the contract check, each row in both directions; windows, causes and texts."""

import json
from datetime import date
from typing import Any

import pytest

from restkeeper.contract.check import Finding, compare
from restkeeper.contract.decisions import TABLE
from restkeeper.contract.facts import Facts
from tests.live import ROOT

Json = dict[str, Any]

TODAY = date(2026, 11, 22)
OVER, NEAR, FAR, FARTHER = "2026-11-01", "2026-12-24", "2027-12-24", "2028-12-24"
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
B, J, C = "breaking", "to judge", "compatible"


def document(**operation: Any) -> Json:
    own = {"operationId": "make", "responses": {"200": {"description": "Done."}}, "tags": ["things"], **operation}
    info = {"title": "Things", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": {"/api/v1/things": {"post": own}}, "x-dialects": ["a"]}


def content(schema: Any) -> Json:
    return {"content": {"application/json": {"schema": schema}}}


def request(schema: Any, **body: Any) -> Json:
    return document(requestBody={**content(schema), **body})


def response(schema: Any) -> Json:
    return document(responses={"200": content(schema)})


def parameter(schema: Any, where: str = "query", **parts: Any) -> Json:
    return document(parameters=[{"name": "p", "in": where, "schema": schema, **parts}])


def field(schema: Any, *, required: bool = False) -> Json:
    return {"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []}


def marked(sunset: str | None) -> Json:
    return {} if sunset is None else {"deprecated": True, "x-sunset": sunset}


def found(before: Json, after: Json | None, window: int = 180) -> list[Finding]:
    return compare("v1", before, after, today=TODAY, window=window)


def judged(before: Json, after: Json | None) -> dict[str, str]:
    findings = found(before, after)
    return {f"{each.row} {each.how}": str(each.severity) for one in findings for each in (one.change, *one.others)}


NONE: Json = {}
STATES = {**TEXT, "enum": ["a", "b"]}
OPEN = {"x-extensible": True}

# A row and how it changes; two schemas of a field; what the change is in a request, and in a response.
SCHEMAS: list[tuple[str, Any, Any, str, str]] = [
    ("type added", NONE, {"type": ["string", "null"]}, B, C),
    ("type removed", {"type": ["string", "null"]}, NONE, C, B),
    ("type fewer", {"type": "number"}, WHOLE, B, C),
    ("type more", WHOLE, {"type": "number"}, C, B),
    ("never null added", {"type": ["string", "null"]}, TEXT, B, C),
    ("never null removed", TEXT, {"anyOf": [TEXT, {"type": "null"}]}, C, B),
    ("never null removed", STATES, {"type": ["string", "null"], "enum": ["a", "b", None]}, C, B),
    ("enum added", TEXT, STATES, B, C),
    ("enum removed", STATES, TEXT, C, B),
    ("enum fewer", STATES, {**TEXT, "const": "a"}, B, C),
    ("enum more", {**TEXT, "const": "a"}, STATES, C, B),
    ("enum of x-extensible added", TEXT, {**STATES, **OPEN}, J, C),
    ("enum of x-extensible fewer", {**STATES, **OPEN}, {**TEXT, "enum": ["a"], **OPEN}, B, C),
    ("enum of x-extensible more", {**TEXT, "enum": ["a"], **OPEN}, {**STATES, **OPEN}, C, C),
    ("choice added", TEXT, {"anyOf": [TEXT, WHOLE]}, B, B),
    ("choice removed", {"oneOf": [TEXT, WHOLE]}, TEXT, B, B),
    ("alternative added", {"anyOf": [TEXT]}, {"anyOf": [TEXT, WHOLE]}, C, B),
    ("alternative removed", {"oneOf": [TEXT, WHOLE]}, {"oneOf": [TEXT]}, B, C),
    ("closed added", {"type": "object"}, {"type": "object", "additionalProperties": False}, B, C),
    ("closed removed", {"type": "object", "additionalProperties": False}, {"type": "object"}, C, J),
    ("format added", TEXT, {**TEXT, "format": "uuid"}, B, C),
    ("format removed", {**TEXT, "format": "uuid"}, TEXT, C, B),
    ("format changed", {**TEXT, "format": "uuid"}, {**TEXT, "format": "date"}, B, B),
    ("bits added", WHOLE, {**WHOLE, "format": "int64"}, B, C),
    ("bits removed", {**WHOLE, "format": "int64"}, WHOLE, C, B),
    ("bits raised", {**WHOLE, "format": "int32"}, {**WHOLE, "format": "int64"}, C, B),
    ("bits lowered", {**WHOLE, "format": "int64"}, {**WHOLE, "format": "int32"}, B, C),
    *(
        (f"{keyword} {how}", one, other, *severities)
        for keyword, raised in (
            *(
                (f"{end}{of}", end == "max")
                for end in ("min", "max")
                for of in ("imum", "Length", "Items", "Properties")
            ),
            ("exclusiveMinimum", False),
            ("exclusiveMaximum", True),
        )
        for how, one, other, severities in (
            ("added", NONE, {keyword: 5}, (B, C)),
            ("removed", {keyword: 5}, NONE, (C, B)),
            ("raised", {keyword: 5}, {keyword: 9}, (C, B) if raised else (B, C)),
            ("lowered", {keyword: 9}, {keyword: 5}, (B, C) if raised else (C, B)),
        )
    ),
    ("multipleOf added", WHOLE, {**WHOLE, "multipleOf": 2}, B, C),
    ("multipleOf removed", {**WHOLE, "multipleOf": 2}, WHOLE, C, B),
    ("multipleOf changed", {**WHOLE, "multipleOf": 2}, {**WHOLE, "multipleOf": 3}, B, B),
    ("uniqueItems added", {"type": "array"}, {"type": "array", "uniqueItems": True}, B, C),
    ("uniqueItems removed", {"type": "array", "uniqueItems": True}, {"type": "array", "uniqueItems": False}, C, B),
    ("pattern added", TEXT, {**TEXT, "pattern": "^a"}, B, C),
    ("pattern removed", {**TEXT, "pattern": "^a"}, TEXT, C, J),
    ("pattern changed", {**TEXT, "pattern": "^a"}, {**TEXT, "pattern": "^b"}, B, J),
    ("default added", TEXT, {**TEXT, "default": None}, B, C),
    ("default removed", {**TEXT, "default": "a"}, TEXT, B, C),
    ("default changed", {**TEXT, "default": "a"}, {**TEXT, "default": "b"}, B, C),
    ("x-unique added", TEXT, {**TEXT, "x-unique": True}, B, B),
    ("x-unique removed", {**TEXT, "x-unique": True}, TEXT, J, J),
    ("x-unique-with added", TEXT, {**TEXT, "x-unique-with": ["y"]}, B, B),
    ("x-unique-with removed", {**TEXT, "x-unique-with": ["y"]}, TEXT, J, J),
    ("x-unique-with fewer", {**TEXT, "x-unique-with": ["y", "z"]}, {**TEXT, "x-unique-with": ["y"]}, J, J),
    ("x-unique-with more", {**TEXT, "x-unique-with": ["y"]}, {**TEXT, "x-unique-with": ["y", "z"]}, B, B),
    ("x-transitions fewer", STATES, {**STATES, "x-transitions": {"a": ["b"], "b": []}}, B, B),
    ("x-transitions more", {**STATES, "x-transitions": {"a": ["b"]}}, STATES, C, C),
    ("x-by-actions added", TEXT, {**TEXT, "x-by-actions": {"a": "b"}}, B, B),
    ("x-by-actions removed", {**TEXT, "x-by-actions": {"a": "b"}}, TEXT, C, C),
    ("x-by-actions fewer", {**TEXT, "x-by-actions": {"a": "b", "d": "b"}}, {**TEXT, "x-by-actions": {"a": "b"}}, C, C),
    ("x-by-actions more", {**TEXT, "x-by-actions": {"a": "b"}}, {**TEXT, "x-by-actions": {"a": "b", "d": "b"}}, B, B),
    ("x-scopes added", TEXT, {**TEXT, "x-scopes": {"a": "b:c"}}, B, B),
    ("x-scopes removed", {**TEXT, "x-scopes": {"a": "b:c"}}, TEXT, C, C),
    ("x-scopes fewer", {**TEXT, "x-scopes": {"a": "b:c", "d": "b:c"}}, {**TEXT, "x-scopes": {"a": "b:c"}}, C, C),
    ("x-scopes more", {**TEXT, "x-scopes": {"a": "b:c"}}, {**TEXT, "x-scopes": {"a": "b:c", "d": "b:c"}}, B, B),
    ("x-writable-by added", TEXT, {**TEXT, "x-writable-by": "b:c"}, B, B),
    ("x-writable-by removed", {**TEXT, "x-writable-by": "b:c"}, TEXT, C, C),
    ("x-readable-by added", TEXT, {**TEXT, "x-readable-by": "b:c"}, B, B),
    ("x-readable-by removed", {**TEXT, "x-readable-by": "b:c"}, TEXT, C, C),
    ("x-readable-by changed", {**TEXT, "x-readable-by": "b:c"}, {**TEXT, "x-readable-by": "b:d"}, B, B),
    ("x-writable-by changed", {**TEXT, "x-writable-by": "b:c"}, {**TEXT, "x-writable-by": "b:d"}, B, B),
    ("x-search added", TEXT, {**TEXT, "x-search": ["a"]}, C, C),
    ("x-search removed", {**TEXT, "x-search": ["a"]}, TEXT, B, B),
    ("x-search fewer", {**TEXT, "x-search": ["a", "b"]}, {**TEXT, "x-search": ["a"]}, B, B),
    ("x-search more", {**TEXT, "x-search": ["a"]}, {**TEXT, "x-search": ["a", "b"]}, C, C),
    ("x-fold added", TEXT, {**TEXT, "x-fold": True}, B, B),
    ("x-fold removed", {**TEXT, "x-fold": True}, TEXT, B, B),
    ("not added", NONE, {"not": TEXT}, B, B),  # one of those that are not in the table
    ("if added", NONE, {"if": {"minLength": 1}}, B, C),
    ("if removed", {"if": {"minLength": 1}}, NONE, C, B),
    ("if changed", {"if": {"minLength": 1}}, {"if": {"minLength": 2}}, B, B),
    ("then added", NONE, {"then": {"minLength": 1}}, B, C),
    ("then removed", {"then": {"minLength": 1}}, NONE, C, B),
    ("then fewer", {"then": {"anyOf": [TEXT, WHOLE]}}, {"then": TEXT}, B, C),
    ("then more", {"then": TEXT}, {"then": {"anyOf": [TEXT, WHOLE]}}, C, B),
    ("else removed", {"else": {"minLength": 1}}, NONE, B, B),
    ("prefixItems changed", {"prefixItems": [TEXT]}, {"prefixItems": [WHOLE]}, B, B),
]

ONE, OTHER = ({**TEXT, "pattern": name} for name in "ab")
NO_CONTENT = document(requestBody={"content": {}, "required": True})
UNCLOSED = {"type": "object", "additionalProperties": True}
NEEDED = request(field(TEXT, required=True))
SHOWN = response(field(TEXT, required=True))
WITH_HEADER = document(responses={"200": {"headers": {"Link": {"schema": TEXT}}}})

EVERYWHERE = {**document(), "x-headers": {"Link": {"schema": TEXT}}}


def by_default(*names: int) -> Json:
    return document(responses={"default": {"x-statuses": names}})


def embedding(schema: Any) -> Json:
    return document(responses={"200": {"content": {"application/json": {"schema": {}, "x-with": {"embed": schema}}}}})


def of_id(schema: Any, *, sent: bool = False) -> Json:
    return parameter(schema, "path") if sent else response({"properties": {"id": schema}})


def statuses(*names: str) -> Json:
    return document(responses=dict.fromkeys(("200", *names), NONE))


def allowed(*ways: str) -> Json:
    """A document with ways to authenticate; "" is none."""
    return document(security=[{way: []} if way else {} for way in ways])


def scope(name: str) -> Json:
    return document(**{"x-required-scope": name})


PARTS: list[tuple[str, Json, Json, str]] = [
    ("parameter added", document(), parameter(TEXT), C),
    ("parameter removed", parameter(TEXT), document(), B),
    ("required parameter added", document(), parameter(TEXT, required=True), B),
    ("required added", parameter(TEXT), parameter(TEXT, required=True), B),
    ("required removed", parameter(TEXT, required=True), parameter(TEXT), C),
    *(
        (f"pattern of an id {how}", of_id(one, sent=sent), of_id(other, sent=sent), severity)
        for how, one, other, severities in (
            ("added", TEXT, ONE, (C, J)),
            ("removed", ONE, TEXT, (B, C)),
            ("changed", ONE, OTHER, (B, B)),
        )
        for sent, severity in enumerate(severities)
    ),
    ("body added", document(), request(TEXT), C),
    ("body removed", request(TEXT), document(), B),
    ("required body added", document(), request(TEXT, required=True), B),
    ("required added", request(TEXT), request(TEXT, required=True), B),
    ("media type added", NO_CONTENT, request(TEXT, required=True), C),
    ("media type removed", request(TEXT, required=True), NO_CONTENT, B),
    ("field added", request({"type": "object"}), request(field(TEXT)), C),
    ("field removed", request(field(TEXT)), request({"type": "object"}), B),
    ("field of an open object added", request(UNCLOSED), request(UNCLOSED | field(TEXT)), J),
    ("field of an open object added", response(UNCLOSED), response(UNCLOSED | field(TEXT)), C),
    ("required field added", request(UNCLOSED), NEEDED, B),
    ("required field added", request({"type": "object"}), NEEDED, B),
    ("required added", request(field(TEXT)), NEEDED, B),
    ("required removed", NEEDED, request(field(TEXT)), C),
    ("field removed", request(field(TEXT)), request(field({**TEXT, "readOnly": True})), B),
    ("field added", response({"type": "object"}), response(field(TEXT)), C),
    ("required field added", response({"type": "object"}), SHOWN, C),
    ("field removed", response(field(TEXT)), response({"type": "object"}), B),
    ("required added", response(field(TEXT)), SHOWN, C),
    ("required removed", SHOWN, response(field(TEXT)), B),
    ("field removed", response(field(TEXT)), response(field({**TEXT, "writeOnly": True})), B),
    ("field removed", embedding(field(TEXT)), embedding({"type": "object"}), B),
    ("success status added", statuses(), statuses("201"), J),
    ("success status removed", statuses("201"), statuses(), B),
    ("error status added", statuses(), statuses("404"), J),
    ("error status removed", statuses("404"), statuses(), C),
    ("header added", document(), WITH_HEADER, C),
    ("header removed", WITH_HEADER, document(), B),
    ("header added", document(), EVERYWHERE, C),
    ("header removed", EVERYWHERE, document(), B),
    ("error status added", by_default(401), by_default(401, 429), J),
    ("error status removed", by_default(401, 429), by_default(401), C),
    ("operationId added", document(operationId=None), document(), C),
    ("operationId removed", document(), document(operationId=None), B),
    ("operationId changed", document(), document(operationId="other"), B),
    ("security added", document(), allowed("key"), B),
    ("security added", allowed("", "key"), allowed("key"), B),
    ("security removed", allowed("key"), allowed(""), C),
    ("security fewer", allowed("key", "token"), allowed("key"), B),
    ("security more", allowed("key"), allowed("token", "key"), C),
    ("security added", document(), {**document(), "security": [{"key": []}]}, B),
    ("x-required-scope added", document(), scope("things:read"), B),
    ("x-required-scope removed", scope("things:read"), document(), C),
    ("x-required-scope fewer", scope("things:read"), scope("admin"), B),
    ("x-required-scope more", scope("admin"), scope("things:read"), C),
    ("x-ownership fewer", document(), document(**{"x-ownership": "changes"}), B),
    ("x-ownership fewer", document(**{"x-ownership": "changes"}), document(**{"x-ownership": "all"}), B),
    ("x-ownership more", document(**{"x-ownership": "all"}), document(), C),
    ("x-dialects fewer", document(), {**document(), "x-dialects": []}, B),
    ("x-dialects more", {**document(), "x-dialects": []}, document(), C),
]


def of_component(name: str, schema: Any, *, sent: bool = False) -> Json:
    reference = {"$ref": f"#/components/schemas/{name}"}
    whole = document() if sent else response(reference)
    if sent:
        whole["webhooks"] = {"thing.made": {"post": {"requestBody": content(field(reference)), "responses": {}}}}
    return {**whole, "components": {"schemas": {name: schema}}}


PARTS += [
    ("$ref changed", of_component("A", TEXT), of_component("B", TEXT), B),
    ("$ref added", response(TEXT), of_component("A", TEXT), B),
    ("$ref removed", of_component("A", TEXT), response(TEXT), B),
    ("webhook added", document(), of_component("A", TEXT, sent=True), C),
    ("webhook removed", of_component("A", TEXT, sent=True), document(), B),
    ("type fewer", of_component("A", WHOLE, sent=True), of_component("A", TEXT, sent=True), C),
    ("type more", of_component("A", WHOLE, sent=True), of_component("A", TEXT, sent=True), B),
]


def test_each_row_is_judged_in_both_directions() -> None:
    """As the samples say; and each change that a row has, has a sample."""
    wrong: Json = {}
    for name, one, other, *expected in SCHEMAS:
        for make, severity in zip((request, response), expected, strict=True):
            if (given := judged(make(field(one)), make(field(other)))).get(name) != severity:
                wrong[f"{make.__name__}: {name}"] = given
    for name, before, after, severity in PARTS:
        if (given := judged(before, after)).get(name) != severity:
            wrong[f"{name}: {severity}"] = given
    known = {name for name, *_ in (*SCHEMAS, *PARTS)} | {
        f"{part} {how}" for part in ("version", "operation") for how in ("added", "removed")
    }  # see the windows
    rows = {f"{row} {how}" for row, hows in TABLE.items() for how in hows}
    assert (wrong, rows - known) == ({}, set())
    (finding,) = found(NEEDED, document(requestBody={"content": {}}))
    assert (finding.change.row, finding.others) == ("media type", [])


def prosaic(part: Any) -> Any:
    """The same with a description and examples in every schema, operation, parameter and response."""
    if isinstance(part, list):
        return [prosaic(each) for each in part]
    if not isinstance(part, dict):
        return part
    is_described = {"type", "schema", "responses", "in", "content", "$ref"} & part.keys()
    words = {"description": "In other words.", "examples": [1]} if is_described else {}
    return {**{key: prosaic(each) for key, each in part.items()}, **words}


def test_what_is_no_change() -> None:
    """Prose, examples, and another form of the same schema."""
    two = {"anyOf": [{"title": "A"}, {"title": "B"}]}
    listed = {**TEXT, "enum": ["a"]}
    one = {"$ref": "#/components/schemas/A"}
    same = [
        *((each, prosaic(each)) for _, before, after, _ in PARTS for each in (before, after)),
        *(
            (make(before), make(after))
            for make in (request, response, parameter)
            for before, after in (
                ({"type": ["string", "null"]}, {"anyOf": [TEXT, {"type": "null"}]}),
                ({"const": "a"}, {"enum": ["a"]}),
                ({"enum": [1, 2]}, {"enum": [2, 1]}),
                ({"type": "object"}, {"type": "object", "additionalProperties": True, "title": "A"}),
                ({**TEXT, "minLength": 0}, TEXT),
                (listed, {**listed, "minLength": 1, "pattern": "^a"}),
                (two, {"anyOf": two["anyOf"][::-1]}),
            )
        ),
        (document(security=[{"a": ["x"]}, {"b": []}]), document(security=[{"b": []}, {"a": []}])),
        (
            of_component("A", TEXT),
            {**of_component("A", TEXT), "paths": response({**one, "description": "It."})["paths"]},
        ),
        (
            request(field({**TEXT, "default": "a"}, required=True)),
            request(field({**TEXT, "default": "b"}, required=True)),
        ),
        (response({**OPEN, "oneOf": [TEXT]}), response({**OPEN, "oneOf": [TEXT, WHOLE]})),  # clients ignore it
    ]
    assert [(before, after) for before, after in same if judged(before, after)] == []


def test_windows() -> None:
    """Of versions, operations and fields: a sunset is accepted, and from its day on what it is of may go."""

    def version(sunset: str | None) -> Json:
        whole = document()
        return {**whole, "info": {**whole["info"], "x-version": {"name": "v1", "sunset": sunset}}}

    def operation(sunset: str | None) -> Json:
        whole, own = document(), {"responses": {}, "tags": ["things"], **marked(sunset)}
        return {**whole, "paths": {**whole["paths"], "/api/v1/things/{id}": {"get": own}}}

    makes = {
        "version": (version, None),
        "operation": (operation, document()),
        "field sent": (
            lambda sunset: request(field({**TEXT, **marked(sunset)})),
            request(field(TEXT) | {"properties": {}}),
        ),
        "field read": (lambda sunset: response(field({**TEXT, **marked(sunset)})), response({"type": "object"})),
    }
    steps = [
        (None, FAR, C, "deprecated, with its sunset at 2027-12-24"),
        (None, NEAR, B, "its sunset 2026-12-24 is 32 days away, and the window is 180"),
        (None, "soon", B, "deprecated without a day as its sunset: 'soon'"),
        (FAR, FARTHER, C, "its sunset was moved from 2027-12-24 to 2028-12-24"),
        (FARTHER, FAR, B, "its sunset is 2027-12-24 now, and 2028-12-24 was accepted"),
        (FAR, "", B, "deprecated without a day as its sunset: ''"),
        (FAR, None, C, "no longer deprecated"),
        (None, "gone", B, "removed, and it was not deprecated with a sunset"),
        ("soon", "gone", B, "removed, and it was not deprecated with a sunset"),
        (NEAR, "gone", B, "removed 32 days before its sunset, 2026-12-24"),
        (OVER, "gone", C, "removed after its sunset, 2026-11-01"),
        (str(TODAY), "gone", C, "removed after its sunset, 2026-11-22"),
    ]
    wrong = []
    for name, (make, without) in makes.items():
        for accepted, declared, severity, what in steps:
            if declared == "" and name == "version":
                continue
            after = without if declared == "gone" else make(declared)
            given = [(str(each.severity), each.change.what) for each in found(make(accepted), after)]
            wrong += [(name, what, given)] if given != [(severity, what)] else []
    assert wrong == []
    (finding,) = found(version(None), version(NEAR), window=33)
    assert finding.change.remedy == "declare a sunset at 2026-12-25 or later: the window is 33 days"
    assert [str(each.severity) for each in found(version(None), version(NEAR), window=32)] == [C]


DAYS = "since=date(2026, 11, 22), sunset=date(2027, 5, 21)"


def test_a_path_that_goes_is_to_be_deprecated() -> None:
    """The remedy is the declaration that the service needs, for all methods or for one."""
    for paths, declared in (
        ({"/api/v1/things/{id}": "get put"}, f"version='v1', path='/things/<id>', {DAYS}"),
        ({"/api/v1/things/{id}": "get", "/things/{id}": "get"}, f"version='v1', path='/things/<id>', {DAYS}"),
        ({"/api/v1/things": "get"}, f"version='v1', path='/things', method='GET', {DAYS}"),
    ):
        before, own = document(), {"responses": {}, "tags": ["things"]}
        for path, methods in paths.items():
            before["paths"][path] = {**before["paths"].get(path, {}), **dict.fromkeys(methods.split(), own)}
        (finding,) = found(before, document())
        assert f"Deprecation({declared})" in finding.change.remedy
    before = document()
    before["paths"]["/things"] = before["paths"]["/api/v1/things"]
    (finding,) = found(before, document())
    assert f"Deprecation(version='', {DAYS})" in finding.change.remedy


def with_notes(sunset: str | None = None) -> Json:
    """A document with a second collection, in all places that name it."""
    whole = response({"oneOf": [{"$ref": "#/components/schemas/Thing"}, {"$ref": "#/components/schemas/Note"}], **OPEN})
    note = {"$ref": "#/components/schemas/Note"}
    own = {"tags": ["notes"], "responses": {"200": content(note)}, **marked(sunset)}
    whole["paths"] |= {"/api/v1/notes": {"get": own, "post": own}, "/notes": {"get": own}}
    sent = {"requestBody": content({"properties": {"data": note}}), "responses": {}, "tags": ["webhooks"]}
    whole["webhooks"] = {"note.created": {"post": sent}, "note.deleted": {"post": sent}}
    types = {**TEXT, "enum": ["thing.created", "note.created", "note.*"]}
    whole["paths"]["/api/v1/things"]["get"] = {
        **document(parameters=[{"name": "type", "in": "query", "schema": types}])["paths"]["/api/v1/things"]["post"],
        "requestBody": content(
            {
                **field({**TEXT, "enum": ["things:read", "notes:read"], **OPEN}),
                "then": {"anyOf": [{"properties": {"x": {"const": path}}} for path in ("/things", "/notes")]},
            }
        ),
    }
    return {**whole, "components": {"schemas": {"Thing": field(TEXT), "Note": field(TEXT)}}}


def without_notes() -> Json:
    text = json.dumps(with_notes()).replace(', "note.created", "note.*"', "").replace(', "notes:read"', "")
    text = text.replace(', {"properties": {"x": {"const": "/notes"}}}', "")
    whole: Json = json.loads(text.replace(', {"$ref": "#/components/schemas/Note"}', ""))
    return {**whole, "paths": {"/api/v1/things": whole["paths"]["/api/v1/things"]}, "webhooks": {}}


def test_a_collection_that_comes_or_goes_is_one_finding() -> None:
    """Its operations, webhooks, and its name among values."""
    (gone,) = found(with_notes(), without_notes())
    assert gone.headline == "v1: collection notes: removed, and it was not deprecated with a sunset"
    assert f"Deprecation(version='v1', path='/notes', {DAYS})" in gone.change.remedy
    assert [str(each.severity) for each in found(with_notes(OVER), without_notes())] == [C]
    (new,) = found(without_notes(), with_notes())
    assert (new.headline, str(new.severity)) == ("v1: collection notes: added", C)
    one, other = (request(field({**TEXT, "enum": names, **OPEN})) for names in (["v1", "v2"], ["v2"]))
    assert [str(each.severity) for each in found(one, other)] == [B]
    assert compare("v2", one, other, today=TODAY, window=180, moved={"v1"}) == []


def test_a_change_of_a_component_is_one_finding() -> None:
    """It names the places where it is seen, whom it breaks, and what to do; the revision is the accepted one."""
    reference = {"$ref": "#/components/schemas/Thing"}
    made = []
    for kind, revision in (("integer", 3), ("number", 4)):
        own = {"tags": ["things"], "responses": {"200": content(reference)}}
        whole = {**document(), "paths": {f"/{name}": {"get": own} for name in ("things", "b", "c", "d", "e")}}
        whole["info"] = {"x-version": {"name": "v1", "revisions": {"things": revision}}}
        made.append({**whole, "components": {"schemas": {"Thing": field({"type": kind})}}})
    (finding,) = found(*made)
    assert finding.paragraph().splitlines() == [
        "breaking: v1: field x of Thing: type: number, too",
        "    in GET /b, response 200 application/json",
        "    in GET /c, response 200 application/json",
        "    in GET /d, response 200 application/json",
        "    and in 2 more",
        "    breaks: clients that read it",
        "    instead: leave it as it is in v1, and make the change in a new version: "
        "Version('v1', revisions={'things': 3}) shows the items as of revision 3",
    ]


def recursive(leaf: Json) -> Json:
    tree = {"type": "object", "properties": {"leaf": leaf, "branch": {"$ref": "#/components/schemas/Branch"}}}
    branch = {"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/Tree"}, {"type": "null"}]}}
    whole = response({"$ref": "#/components/schemas/Tree"})
    return {**whole, "components": {"schemas": {"Tree": tree, "Branch": branch}}}


def test_references_to_itself_end_and_to_nothing_are_errors() -> None:
    (finding,) = found(recursive(WHOLE), recursive({"type": "boolean"}))
    assert str(finding.change.subject) == "field leaf of Tree"
    for reference in (
        "#/components/schemas/None",
        "other.json#/A",
        "#/paths/~1things/post",
    ):
        for broken in (document(parameters=[{"$ref": reference}]), response({"$ref": reference})):
            with pytest.raises(ValueError, match="reference"):
                found(broken, broken)


def test_the_facts_grow_with_the_document() -> None:
    """A schema is read once for each use: of the document of this service there are less than 8 facts for a line."""
    lines = (ROOT / "contract" / "v1.json").read_text().splitlines()
    assert len(Facts(json.loads("".join(lines))).facts) < 8 * len(lines)
