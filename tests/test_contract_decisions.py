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

ADDED, FEWER, RAISED = ("added", "removed"), ("fewer", "more"), ("raised", "lowered")
SCOPE = {"a": "b:c"}

# A row, how it changes and how it changes back; two schemas of a field; what the change is in a request and in a
# response, and what the change back is.
BOTH_WAYS: list[tuple[str, tuple[str, str], Any, Any, str, str, str, str]] = [
    ("type", ADDED, NONE, {"type": ["string", "null"]}, B, C, C, B),
    ("type", FEWER, {"type": "number"}, WHOLE, B, C, C, B),
    ("never null", ADDED, {"anyOf": [TEXT, {"type": "null"}]}, TEXT, B, C, C, B),
    ("never null", ADDED, {"type": ["string", "null"], "enum": ["a", "b", None]}, STATES, B, C, C, B),
    ("enum", ADDED, TEXT, STATES, B, C, C, B),
    ("enum", FEWER, STATES, {**TEXT, "const": "a"}, B, C, C, B),
    ("enum of x-extensible", FEWER, {**STATES, **OPEN}, {**TEXT, "enum": ["a"], **OPEN}, B, C, C, C),
    ("choice", ADDED, TEXT, {"anyOf": [TEXT, WHOLE]}, B, B, B, B),
    ("alternative", ADDED, {"oneOf": [TEXT]}, {"oneOf": [TEXT, WHOLE]}, C, B, B, C),
    ("closed", ADDED, {"type": "object"}, {"type": "object", "additionalProperties": False}, B, C, C, J),
    ("format", ADDED, TEXT, {**TEXT, "format": "uuid"}, B, C, C, B),
    ("bits", ADDED, WHOLE, {**WHOLE, "format": "int64"}, B, C, C, B),
    ("bits", RAISED, {**WHOLE, "format": "int32"}, {**WHOLE, "format": "int64"}, C, B, B, C),
    *(
        row
        for of in ("imum", "Length", "Items", "Properties")
        for row in (
            (f"min{of}", ADDED, NONE, {f"min{of}": 5}, B, C, C, B),
            (f"min{of}", RAISED, {f"min{of}": 5}, {f"min{of}": 9}, B, C, C, B),
            (f"max{of}", ADDED, NONE, {f"max{of}": 5}, B, C, C, B),
            (f"max{of}", RAISED, {f"max{of}": 5}, {f"max{of}": 9}, C, B, B, C),
        )
    ),
    ("exclusiveMinimum", ADDED, NONE, {"exclusiveMinimum": 5}, B, C, C, B),
    ("exclusiveMinimum", RAISED, {"exclusiveMinimum": 5}, {"exclusiveMinimum": 9}, B, C, C, B),
    ("exclusiveMaximum", ADDED, NONE, {"exclusiveMaximum": 5}, B, C, C, B),
    ("exclusiveMaximum", RAISED, {"exclusiveMaximum": 5}, {"exclusiveMaximum": 9}, C, B, B, C),
    ("multipleOf", ADDED, WHOLE, {**WHOLE, "multipleOf": 2}, B, C, C, B),
    ("uniqueItems", ADDED, {"type": "array", "uniqueItems": False}, {"type": "array", "uniqueItems": True}, B, C, C, B),
    ("pattern", ADDED, TEXT, {**TEXT, "pattern": "^a"}, B, C, C, J),
    ("default", ADDED, TEXT, {**TEXT, "default": "a"}, B, C, B, C),
    ("x-unique", ADDED, TEXT, {**TEXT, "x-unique": True}, B, B, J, J),
    ("x-unique-with", ADDED, TEXT, {**TEXT, "x-unique-with": ["y"]}, B, B, J, J),
    ("x-unique-with", FEWER, {**TEXT, "x-unique-with": ["y", "z"]}, {**TEXT, "x-unique-with": ["y"]}, J, J, B, B),
    ("x-transitions", FEWER, STATES, {**STATES, "x-transitions": {"a": ["b"], "b": []}}, B, B, C, C),
    *(
        row
        for name in ("x-by-actions", "x-scopes")
        for row in (
            (name, ADDED, TEXT, {**TEXT, name: SCOPE}, B, B, C, C),
            (name, FEWER, {**TEXT, name: {**SCOPE, "d": "b:c"}}, {**TEXT, name: SCOPE}, C, C, B, B),
        )
    ),
    ("x-writable-by", ADDED, TEXT, {**TEXT, "x-writable-by": "b:c"}, B, B, C, C),
    ("x-readable-by", ADDED, TEXT, {**TEXT, "x-readable-by": "b:c"}, B, B, C, C),
    ("x-search", ADDED, TEXT, {**TEXT, "x-search": ["a"]}, C, C, B, B),
    ("x-search", FEWER, {**TEXT, "x-search": ["a", "b"]}, {**TEXT, "x-search": ["a"]}, B, B, C, C),
    ("x-fold", ADDED, TEXT, {**TEXT, "x-fold": True}, B, B, B, B),
    ("if", ADDED, NONE, {"if": {"minLength": 1}}, B, C, C, B),
    ("then", ADDED, NONE, {"then": {"minLength": 1}}, B, C, C, B),
    ("then", FEWER, {"then": {"anyOf": [TEXT, WHOLE]}}, {"then": TEXT}, B, C, C, B),
]
SCHEMAS: list[tuple[str, Any, Any, str, str]] = [
    *((f"{row} {how}", one, other, *given) for row, (how, _), one, other, *given, _, _ in BOTH_WAYS),
    *((f"{row} {back}", other, one, *given) for row, (_, back), one, other, _, _, *given in BOTH_WAYS),
    ("enum of x-extensible added", TEXT, {**STATES, **OPEN}, J, C),
    ("format changed", {**TEXT, "format": "uuid"}, {**TEXT, "format": "date"}, B, B),
    ("multipleOf changed", {**WHOLE, "multipleOf": 2}, {**WHOLE, "multipleOf": 3}, B, B),
    ("pattern changed", {**TEXT, "pattern": "^a"}, {**TEXT, "pattern": "^b"}, B, J),
    ("default changed", {**TEXT, "default": "a"}, {**TEXT, "default": "b"}, B, C),
    ("x-readable-by changed", {**TEXT, "x-readable-by": "b:c"}, {**TEXT, "x-readable-by": "b:d"}, B, B),
    ("x-writable-by changed", {**TEXT, "x-writable-by": "b:c"}, {**TEXT, "x-writable-by": "b:d"}, B, B),
    ("not added", NONE, {"not": TEXT}, B, B),  # one of those that are not in the table
    ("if changed", {"if": {"minLength": 1}}, {"if": {"minLength": 2}}, B, B),
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


def of_component(name: str, schema: Any, *, sent: bool = False) -> Json:
    reference = {"$ref": f"#/components/schemas/{name}"}
    whole = document() if sent else response(reference)
    if sent:
        whole["webhooks"] = {"thing.made": {"post": {"requestBody": content(field(reference)), "responses": {}}}}
    return {**whole, "components": {"schemas": {name: schema}}}


# A row, how it changes and how it changes back; two documents; what each of the changes is.
PARTS_BOTH_WAYS: list[tuple[str, tuple[str, str], Json, Json, str, str]] = [
    ("parameter", ADDED, document(), parameter(TEXT), C, B),
    ("required", ADDED, parameter(TEXT), parameter(TEXT, required=True), B, C),
    ("pattern of an id", ADDED, of_id(TEXT), of_id(ONE), C, B),
    ("pattern of an id", ADDED, of_id(TEXT, sent=True), of_id(ONE, sent=True), J, C),
    ("body", ADDED, document(), request(TEXT), C, B),
    ("required", ADDED, request(TEXT), request(TEXT, required=True), B, C),
    ("media type", ADDED, NO_CONTENT, request(TEXT, required=True), C, B),
    ("field", ADDED, request({"type": "object"}), request(field(TEXT)), C, B),
    ("required", ADDED, request(field(TEXT)), NEEDED, B, C),
    ("field", ADDED, response({"type": "object"}), response(field(TEXT)), C, B),
    ("required", ADDED, response(field(TEXT)), SHOWN, C, B),
    ("field", ADDED, embedding({"type": "object"}), embedding(field(TEXT)), C, B),
    ("success status", ADDED, statuses(), statuses("201"), J, B),
    ("error status", ADDED, statuses(), statuses("404"), J, C),
    ("error status", ADDED, by_default(401), by_default(401, 429), J, C),
    ("header", ADDED, document(), WITH_HEADER, C, B),
    ("header", ADDED, document(), EVERYWHERE, C, B),
    ("operationId", ADDED, document(operationId=None), document(), C, B),
    ("security", ADDED, allowed(""), allowed("key"), B, C),
    ("security", FEWER, allowed("key", "token"), allowed("key"), B, C),
    ("x-required-scope", ADDED, document(), scope("things:read"), B, C),
    ("x-required-scope", FEWER, scope("things:read"), scope("admin"), B, C),
    ("x-ownership", FEWER, document(), document(**{"x-ownership": "changes"}), B, C),
    ("x-ownership", FEWER, document(**{"x-ownership": "changes"}), document(**{"x-ownership": "all"}), B, C),
    ("x-dialects", FEWER, document(), {**document(), "x-dialects": []}, B, C),
    ("$ref", ADDED, response(TEXT), of_component("A", TEXT), B, B),
    ("webhook", ADDED, document(), of_component("A", TEXT, sent=True), C, B),
]
PARTS: list[tuple[str, Json, Json, str]] = [
    *((f"{row} {how}", one, other, severity) for row, (how, _), one, other, severity, _ in PARTS_BOTH_WAYS),
    *((f"{row} {back}", other, one, severity) for row, (_, back), one, other, _, severity in PARTS_BOTH_WAYS),
    ("required parameter added", document(), parameter(TEXT, required=True), B),
    ("pattern of an id changed", of_id(ONE), of_id(OTHER), B),
    ("pattern of an id changed", of_id(ONE, sent=True), of_id(OTHER, sent=True), B),
    ("required body added", document(), request(TEXT, required=True), B),
    ("field of an open object added", request(UNCLOSED), request(UNCLOSED | field(TEXT)), J),
    ("field of an open object added", response(UNCLOSED), response(UNCLOSED | field(TEXT)), C),
    ("required field added", request(UNCLOSED), NEEDED, B),
    ("required field added", request({"type": "object"}), NEEDED, B),
    ("required field added", response({"type": "object"}), SHOWN, C),
    ("field removed", request(field(TEXT)), request(field({**TEXT, "readOnly": True})), B),
    ("field removed", response(field(TEXT)), response(field({**TEXT, "writeOnly": True})), B),
    ("operationId changed", document(), document(operationId="other"), B),
    ("security added", document(), allowed("key"), B),
    ("security added", allowed("", "key"), allowed("key"), B),
    ("security added", document(), {**document(), "security": [{"key": []}]}, B),
    ("$ref changed", of_component("A", TEXT), of_component("B", TEXT), B),
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
