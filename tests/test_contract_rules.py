"""The differ of the contract, held against the rules that oasdiff publishes: each is tried, and its mirror.

A sample is a pair of small documents between which one rule's change is made. `docs/contract.md` lists what is judged
otherwise than oasdiff does, and these tests read that list.
"""

import re
from collections.abc import Iterable
from datetime import date
from fnmatch import fnmatch
from typing import Any

from restkeeper.contract.check import compare
from restkeeper.contract.findings import Severity
from tests.live import ROOT

Json = dict[str, Any]
Pair = tuple[Json, Json]

TODAY = date(2026, 11, 22)
OVER, NEAR, FAR, FARTHER = "2026-11-01", "2026-12-24", "2027-12-24", "2028-12-24"

RULES = dict(line.split()[::-1] for line in (ROOT / "tests" / "oasdiff.txt").read_text().splitlines() if line[0] != "#")
LEVELS = {"ERR": Severity.BREAKING, "WARN": Severity.JUDGE, "INFO": Severity.COMPATIBLE}
WORDS = {str(each): each for each in Severity}
PAGE = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of the page."""
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line[:3] == "| `"]


# What is judged otherwise: patterns of ids with our severity; and ids that are not used, with what is found instead.
OTHERWISE = [(re.findall(r"`([^`]+)`", ids), WORDS[ours]) for ids, _, ours, _ in rows("Judged otherwise")]
UNUSED = {
    id: re.findall(r"`([^`]+)`", instead)
    for ids, instead, _ in rows("Rules that are not used")
    for id in RULES
    if any(fnmatch(id, pattern) for pattern in re.findall(r"`([^`]+)`", ids))
}

INTEGER, STRING = {"type": "integer"}, {"type": "string"}
A, B = {"title": "A", "type": "object"}, {"title": "B", "type": "array"}
LIST, OBJECT = {"type": "array"}, {"type": "object"}


def steps(*marks: Json) -> Pair:
    """Two schemas with these deprecations."""
    one, other = marks
    return {**STRING, **one}, {**STRING, **other}


def marked(sunset: str = "") -> Json:
    """The marks of a deprecated element."""
    return {"deprecated": True, **({"x-sunset": sunset} if sunset else {})}


# The ends of the ids of a change and of its mirror ("" if there is none that oasdiff publishes), and the two schemas.
SCHEMAS: list[tuple[str, str, Json, Json]] = [
    ("max-decreased", "max-increased", {**INTEGER, "maximum": 9}, {**INTEGER, "maximum": 5}),
    ("max-set", "", INTEGER, {**INTEGER, "maximum": 5}),
    *(
        (f"exclusive-{one}", f"exclusive-{other}" if other else "", before, after)
        for one, other, before, after in (
            ("max-decreased", "max-increased", {"exclusiveMaximum": 9}, {"exclusiveMaximum": 5}),
            ("max-set", "", {}, {"exclusiveMaximum": 5}),
            ("min-increased", "min-decreased", {"exclusiveMinimum": 5}, {"exclusiveMinimum": 9}),
            ("min-set", "", {}, {"exclusiveMinimum": 5}),
        )
    ),
    ("min-increased", "min-decreased", {**INTEGER, "minimum": 5}, {**INTEGER, "minimum": 9}),
    ("min-set", "", INTEGER, {**INTEGER, "minimum": 5}),
    ("max-length-decreased", "max-length-increased", {**STRING, "maxLength": 9}, {**STRING, "maxLength": 5}),
    ("max-length-set", "max-length-unset", STRING, {**STRING, "maxLength": 5}),
    ("min-length-increased", "min-length-decreased", {**STRING, "minLength": 5}, {**STRING, "minLength": 9}),
    ("max-items-decreased", "max-items-increased", {**LIST, "maxItems": 9}, {**LIST, "maxItems": 5}),
    ("min-items-increased", "min-items-decreased", {**LIST, "minItems": 5}, {**LIST, "minItems": 9}),
    ("min-items-set", "min-items-unset", LIST, {**LIST, "minItems": 5}),
    ("max-contains-decreased", "max-contains-increased", {**LIST, "maxContains": 9}, {**LIST, "maxContains": 5}),
    ("min-contains-increased", "min-contains-decreased", {**LIST, "minContains": 5}, {**LIST, "minContains": 9}),
    ("pattern-added", "pattern-removed", STRING, {**STRING, "pattern": "^a$"}),
    ("pattern-changed", "", {**STRING, "pattern": "^a+$"}, {**STRING, "pattern": "^a$"}),
    ("pattern-generalized", "", {**STRING, "pattern": "^a+$"}, {**STRING, "pattern": "^.*$"}),
    ("became-enum", "", STRING, {**STRING, "enum": ["a"]}),
    ("enum-value-removed", "enum-value-added", {**STRING, "enum": ["a", "b"]}, {**STRING, "enum": ["a"]}),
    ("const-added", "const-removed", STRING, {**STRING, "const": "a"}),
    ("const-changed", "", {**STRING, "const": "a"}, {**STRING, "const": "b"}),
    ("became-not-nullable", "became-nullable", {"type": ["string", "null"]}, STRING),
    ("type-changed", "", STRING, INTEGER),
    ("type-specialized", "type-generalized", {"type": "number"}, INTEGER),
    (
        "list-of-types-narrowed",
        "list-of-types-widened",
        {"type": ["string", "integer", "array"]},
        {"type": ["string", "integer"]},
    ),
    ("default-value-added", "default-value-removed", STRING, {**STRING, "default": "a"}),
    ("default-value-changed", "", {**STRING, "default": "a"}, {**STRING, "default": "b"}),
    ("all-of-added", "all-of-removed", {"allOf": [A]}, {"allOf": [A, {"required": ["a"]}]}),
    ("all-of-added-annotation-only", "all-of-removed-annotation-only", {"allOf": [A]}, {"allOf": [A, {"title": "C"}]}),
    ("any-of-removed", "any-of-added", {"anyOf": [A, B]}, {"anyOf": [A]}),
    ("one-of-removed", "one-of-added", {"oneOf": [A, B]}, {"oneOf": [A]}),
    (
        "wrapped-in-one-of",
        "",
        {**OBJECT, "properties": {"a": STRING}},
        {"oneOf": [{**A, "properties": {"a": STRING}}, B]},
    ),
    ("if-added", "if-removed", OBJECT, {**OBJECT, "if": {"required": ["a"]}}),
    ("then-added", "then-removed", {**OBJECT, "if": A}, {**OBJECT, "if": A, "then": {"required": ["a"]}}),
    ("else-added", "else-removed", {**OBJECT, "if": A}, {**OBJECT, "if": A, "else": {"required": ["a"]}}),
    ("contains-added", "contains-removed", LIST, {**LIST, "contains": STRING}),
    ("property-names-added", "property-names-removed", OBJECT, {**OBJECT, "propertyNames": {"maxLength": 5}}),
    ("unevaluated-items-added", "unevaluated-items-removed", LIST, {**LIST, "unevaluatedItems": False}),
    (
        "unevaluated-properties-added",
        "unevaluated-properties-removed",
        OBJECT,
        {**OBJECT, "unevaluatedProperties": False},
    ),
    ("content-schema-added", "content-schema-removed", STRING, {**STRING, "contentSchema": OBJECT}),
    ("content-media-type-changed", "", {**STRING, "contentMediaType": "a/b"}, {**STRING, "contentMediaType": "a/c"}),
    ("content-encoding-changed", "", {**STRING, "contentEncoding": "base64"}, {**STRING, "contentEncoding": "base32"}),
    ("deprecated-with-sunset", "reactivated", *steps({}, marked(FAR))),
    ("deprecated-sunset-missing", "", *steps({}, marked())),
    ("deprecated-sunset-invalid", "", *steps({}, marked("soon"))),
    ("sunset-date-too-small", "", *steps({}, marked(NEAR))),
]

POSITIONS = (
    *("request-read-only-property", "request-parameter-property", "request-header-property", "request-parameter"),
    *("request-property", "request-body", "response-write-only-property", "response-property", "response-body"),
    "response-header",
)


def document(**operation: Any) -> Json:
    """A document with one operation."""
    own = {"operationId": "make", "responses": {"200": {"description": "Done."}}, **operation}
    paths = {"/things": {"post": own}}
    return {"openapi": "3.1.0", "info": {"title": "Things", "version": "1"}, "paths": paths, "x-dialects": []}


def request(schema: Any, **body: Any) -> Json:
    """A document whose request body has that schema."""
    return document(requestBody={"content": {"application/json": {"schema": schema}}, **body})


def response(*, media_type: str = "application/json", status: str = "200", **parts: Any) -> Json:
    """A document with that response."""
    content = {"content": {media_type: {"schema": parts.pop("schema")}}} if "schema" in parts else {}
    return document(responses={status: {"description": "Done.", **content, **parts}})


def parameter(schema: Any, where: str = "query", **parts: Any) -> Json:
    """A document with a parameter."""
    return document(parameters=[{"name": "p", "in": where, "schema": schema, **parts}])


def with_property(schema: Json, **marks: Any) -> Json:
    """An object with that property."""
    return {**OBJECT, "properties": {"x": {**schema, **marks}}}


def at(position: str, schema: Json) -> Json:
    """A document that has a schema in that position."""
    return {
        "request-body": lambda: request(schema),
        "request-property": lambda: request(with_property(schema)),
        "request-read-only-property": lambda: request(with_property(schema, readOnly=True)),
        "request-parameter": lambda: parameter(schema),
        "request-parameter-property": lambda: parameter(with_property(schema)),
        "request-header-property": lambda: parameter(with_property(schema), "header"),
        "response-body": lambda: response(schema=schema),
        "response-property": lambda: response(schema=with_property(schema)),
        "response-write-only-property": lambda: response(schema=with_property(schema, writeOnly=True)),
        "response-header": lambda: response(headers={"X-H": {"schema": schema}}),
    }[position]()


def schema_samples() -> dict[str, Pair]:
    """The samples of the rules about schemas, in each position."""
    samples: dict[str, Pair] = {}
    for position in POSITIONS:
        for end, mirror, one, other in SCHEMAS:
            before, after = at(position, one), at(position, other)
            samples[f"{position}-{end}"] = before, after
            if mirror:
                samples[f"{position}-{mirror}"] = after, before
    return samples


def both(forth: str, back: str, before: Json, after: Json) -> dict[str, Pair]:
    """The samples of a change and of its mirror."""
    return {forth: (before, after)} | ({back: (after, before)} if back else {})


NEEDED, EXTRA = {**with_property(STRING), "required": ["x"]}, {**with_property(STRING, default="a"), "required": ["x"]}
FREE, NONE = with_property(STRING), OBJECT
HIDDEN, FREE_HIDDEN = (
    {**with_property(STRING, writeOnly=True), "required": ["x"]},
    with_property(STRING, writeOnly=True),
)
BODY = {"content": {"application/json": {"schema": OBJECT}}}
KEY, FULL = {"key": []}, {"bearer": []}


def property_samples() -> dict[str, Pair]:
    """The samples of the rules about whether a property is there, required, and seen."""
    samples = {
        **both("request-property-became-required", "request-property-became-optional", request(FREE), request(NEEDED)),
        **both(
            "request-property-became-required-with-default",
            "",
            request(with_property(STRING, default="a")),
            request(EXTRA),
        ),
        **both(
            "response-property-became-required",
            "response-property-became-optional",
            response(schema=FREE),
            response(schema=NEEDED),
        ),
        **both(
            *(f"response-write-only-property-became-{word}" for word in ("required", "optional")),
            response(schema=FREE_HIDDEN),
            response(schema=HIDDEN),
        ),
        **both("request-header-property-became-required", "", parameter(FREE, "header"), parameter(NEEDED, "header")),
        **both("new-required-request-header-property", "", parameter(NONE, "header"), parameter(NEEDED, "header")),
        **both("new-required-request-property", "", request(NONE), request(NEEDED)),
        **both("new-required-request-property-with-default", "", request(NONE), request(EXTRA)),
        **both("new-optional-request-property", "request-property-removed", request(NONE), request(FREE)),
    }
    for kind, schema in (
        ("required", NEEDED),
        ("optional", FREE),
        ("required-write-only", HIDDEN),
        ("optional-write-only", FREE_HIDDEN),
    ):
        names = (f"response-{kind}-property-{word}" for word in ("added", "removed"))
        samples |= both(*names, response(schema=NONE), response(schema=schema))
    for keyword, name in (("readOnly", "read-only"), ("writeOnly", "write-only")):
        for kind, required in (("required", ["x"]), ("optional", [])):
            schemas = ({**with_property({**STRING, **mark}), "required": required} for mark in ({}, {keyword: True}))
            before, after = schemas
            for direction, one, other in (
                ("request", request(before), request(after)),
                ("response", response(schema=before), response(schema=after)),
            ):
                names = (f"{direction}-{kind}-property-became-{word}{name}" for word in ("", "not-"))
                samples |= both(*names, one, other)
    return samples


def on_path(*marks: Json | None, alone: bool = True) -> Pair:
    """Two documents with an operation that has these marks, or none; `alone` on its path or not."""
    made = []
    for each in marks:
        whole = document()
        item = {} if each is None else {"get": {"operationId": "read", "responses": {}, **each}}
        if alone and item:
            whole["paths"]["/other"] = item
        elif not alone:
            whole["paths"]["/other"] = {"put": {"operationId": "put", "responses": {}}, **item}
        made.append(whole)
    one, other = made
    return one, other


def parameters(*each: Json | None) -> Pair:
    """Two documents with that query parameter, or none."""
    one, other = (document() if parts is None else parameter(STRING, **parts) for parts in each)
    return one, other


def life_samples() -> dict[str, Pair]:
    """The samples of the rules about deprecations, of operations and of parameters."""
    samples = {
        "endpoint-added": on_path(None, {}),
        "endpoint-deprecated-with-sunset": on_path({}, marked(FAR)),
        "endpoint-reactivated": on_path(marked(FAR), {}),
        "api-deprecated-sunset-missing": on_path({}, marked()),
        "api-deprecated-sunset-parse": on_path({}, marked("soon")),
        "api-sunset-date-too-small": on_path({}, marked(NEAR)),
        "sunset-deleted": on_path(marked(FAR), marked()),
        "api-sunset-date-changed-too-small": on_path(marked(FARTHER), marked(NEAR)),
        "api-path-sunset-parse": on_path(marked("soon"), None),
        "request-parameter-deprecated": parameters({}, marked(FAR)),
        "request-parameter-reactivated": parameters(marked(FAR), {}),
        "request-parameter-deprecated-sunset-missing": parameters({}, marked()),
        "request-parameter-sunset-date-too-small": parameters({}, marked(NEAR)),
        "request-parameter-sunset-deleted": parameters(marked(FAR), marked()),
        "request-parameter-sunset-date-changed-too-small": parameters(marked(FARTHER), marked(NEAR)),
        "request-parameter-sunset-parse": parameters(marked("soon"), None),
        "request-parameter-removed": parameters({}, None),
        "request-parameter-removed-before-sunset": parameters(marked(NEAR), None),
        "request-parameter-removed-with-deprecation": parameters(marked(OVER), None),
        "request-parameter-became-required": parameters({}, {"required": True}),
        "request-parameter-became-optional": parameters({"required": True}, {}),
        "new-required-request-parameter": parameters(None, {"required": True}),
        "new-optional-request-parameter": parameters(None, {}),
    }
    for prefix, alone in (("api-path", True), ("api", False)):
        samples[f"{prefix}-removed-without-deprecation"] = on_path({}, None, alone=alone)
        samples[f"{prefix}-removed-before-sunset"] = on_path(marked(NEAR), None, alone=alone)
        samples[f"{prefix}-removed-with-deprecation"] = on_path(marked(OVER), None, alone=alone)
    return samples


def common_parameter(required: bool) -> Json:
    """A document with a parameter of the path."""
    whole = document()
    whole["paths"]["/things"]["parameters"] = [{"name": "q", "in": "query", "required": required, "schema": STRING}]
    return whole


def in_path(*names: str) -> Json:
    """A document with these parameters of a path declared."""
    whole = document(parameters=[{"name": name, "in": "path", "required": True, "schema": STRING} for name in names])
    whole["paths"]["/things/{a}/{b}"] = whole["paths"].pop("/things")
    return whole


def secured(*ways: Json, whole: bool = False) -> Json:
    """A document with these ways to authenticate, at its operation or on the whole."""
    return {**document(), "security": [*ways]} if whole else document(security=[*ways])


def schemes(**scheme: str) -> Json:
    """A document with a security scheme."""
    return {**document(), "components": {"securitySchemes": {"key": scheme}}}


def operation_samples() -> dict[str, Pair]:
    """The samples of the rules about bodies, responses, security and names."""
    header, needed = {"X-H": {"schema": STRING}}, {"X-H": {"schema": STRING, "required": True}}
    hook = {**document(), "webhooks": {"made": {"post": {"responses": {}}}}}
    bare = {"application/json": {}}
    two = {**BODY["content"], "text/csv": {}}
    bearer, api_key = schemes(type="http", scheme="bearer"), schemes(type="apiKey")
    extended = {**document(), "components": {"schemas": {"A": A}}}
    return {
        "new-required-request-default-parameter-to-existing-path": (document(), common_parameter(True)),
        "new-optional-request-default-parameter-to-existing-path": (document(), common_parameter(False)),
        "new-request-path-parameter": (in_path("a"), in_path("a", "b")),
        "request-body-added-required": (document(), document(requestBody={**BODY, "required": True})),
        "request-body-added-optional": (document(), document(requestBody=BODY)),
        "request-body-removed": (document(requestBody=BODY), document()),
        **both(
            *(f"request-body-became-{word}" for word in ("required", "optional")),
            document(requestBody=BODY),
            document(requestBody={**BODY, "required": True}),
        ),
        **both(
            *(f"request-body-media-type-{word}" for word in ("removed", "added")),
            document(requestBody={"content": two}),
            document(requestBody=BODY),
        ),
        **both(
            *(f"request-body-media-type-schema-{word}" for word in ("added", "removed")),
            document(requestBody={"content": bare}),
            document(requestBody=BODY),
        ),
        **both(
            *(f"response-body-media-type-schema-{word}" for word in ("added", "removed")),
            response(content=bare),
            response(**BODY),
        ),
        **both("response-media-type-removed", "response-media-type-added", response(content=two), response(**BODY)),
        "response-mediatype-enum-value-removed": schema_samples()["response-body-enum-value-removed"],
        **both("optional-response-header-removed", "response-header-added", response(headers=header), response()),
        "required-response-header-removed": (response(headers=needed), response()),
        "response-header-became-optional": (response(headers=needed), response(headers=header)),
        **both(
            *(f"response-success-status-{word}" for word in ("removed", "added")),
            document(responses={"200": {}, "201": {}}),
            document(responses={"200": {}}),
        ),
        **both(
            *(f"response-non-success-status-{word}" for word in ("removed", "added")),
            document(responses={"200": {}, "404": {}}),
            document(responses={"200": {}}),
        ),
        "api-operation-id-removed": (document(), document(operationId="other")),
        "api-operation-id-added": (document(operationId=""), document()),
        **both("api-tag-added", "api-tag-removed", document(), document(tags=["a"])),
        **both("webhook-added", "webhook-removed", document(), hook),
        "api-schema-removed": (extended, document()),
        "api-security-added": (document(), secured(KEY)),
        "api-security-removed": (secured(KEY, FULL), secured(KEY)),
        "api-global-security-added": (document(), secured(KEY, whole=True)),
        "api-global-security-removed": (secured(KEY, FULL, whole=True), secured(KEY, whole=True)),
        **both("api-security-component-added", "api-security-component-removed", document(), bearer),
        "api-security-component-type-changed": (bearer, api_key),
    }


SAMPLES = {**schema_samples(), **property_samples(), **life_samples(), **operation_samples()}


def judged(before: Json, after: Json) -> dict[str, Severity]:
    """What is found between two documents: the severity by id, the worst if there are several."""
    found = compare("v1", before, after, today=TODAY, window=180)
    return {each.id: each.severity for each in reversed(found)}


def expected(id: str) -> Severity:
    """Our severity of a rule: oasdiff's, unless the page lists another one."""
    listed = [severity for patterns, severity in OTHERWISE if any(fnmatch(id, each) for each in patterns)]
    return listed[0] if listed else LEVELS[RULES[id]]


def test_all_published_rules_are_known() -> None:
    """213 errors, 30 warnings, 266 notes; each has a sample or is listed as not used."""
    assert [sum(level == each for each in RULES.values()) for level in ("ERR", "WARN", "INFO")] == [213, 30, 266]
    assert set(RULES) - set(SAMPLES) <= set(UNUSED)


def test_each_rule_is_judged() -> None:
    """Its sample is found under its id, as severe as oasdiff or the page has it; nothing else in it breaks."""
    found = {id: judged(*SAMPLES[id]) for id in RULES.keys() - UNUSED.keys()}
    assert not {id: each for id, each in found.items() if each.get(id) is not expected(id)}
    assert not {id: each for id, each in found.items() if Severity.BREAKING in {**each, id: None}.values()}


# Where the change back breaks clients, too: the id of a change of the same thing that does not, and its sample if it is
# not the one of that rule.
REQUIRED = {**OBJECT, "required": ["x"]}
MIRRORS: dict[str, tuple[str, Pair | None]] = {
    "new-required-request-parameter": ("new-optional-request-parameter", None),
    "new-required-request-default-parameter-*": ("new-optional-request-default-parameter-to-existing-path", None),
    "new-required-request-header-property": (
        "new-optional-request-header-property",
        (parameter(NONE, "header"), parameter(FREE, "header")),
    ),
    "new-required-request-property*": ("new-optional-request-property", None),
    "request-body-added-required": ("request-body-added-optional", None),
    "request-body-all-of-removed": ("request-body-all-of-removed-annotation-only", None),
    "request-property-all-of-removed": ("request-property-all-of-removed-annotation-only", None),
    "request-body-type-changed": ("request-body-type-generalized", None),
    "request-property-type-changed": ("request-property-type-generalized", None),
    "request-parameter-type-changed": ("request-parameter-type-generalized", None),
    "request-parameter-property-type-changed": ("request-parameter-property-type-generalized", None),
    "response-body-type-changed": ("response-body-type-specialized", None),
    "response-property-type-changed": ("response-property-type-specialized", None),
    "response-header-type-changed": ("response-header-type-specialized", None),
    "request-parameter-pattern-changed": ("request-parameter-pattern-generalized", None),
    "request-*-pattern-changed": ("request-property-pattern-generalized", None),
    "request-parameter-default-value-*": (
        "request-parameter-default-value-changed",  # of a parameter that is always sent
        (
            parameter({**STRING, "default": "a"}, required=True),
            parameter({**STRING, "default": "b"}, required=True),
        ),
    ),
    "request-property-default-value-*": (
        "request-property-default-value-changed",  # of a field that is always sent
        tuple(request({**REQUIRED, "properties": {"x": {**STRING, "default": default}}}) for default in "ab"),
    ),
    "request-required-property-became-*read-only": ("request-optional-property-became-not-read-only", None),
    "response-required-property-became-not-write-only": ("response-required-property-became-not-read-only", None),
    "request-body-wrapped-in-one-of": (
        "request-body-one-of-added",
        (at("request-body", {"oneOf": [NEEDED]}), at("request-body", {"oneOf": [NEEDED, B]})),
    ),
    "api-operation-id-removed": ("api-operation-id-added", None),
    "api-security-component-type-changed": ("api-security-component-added", None),
}
for direction, word in (("request", "removed"), ("response", "added")):
    for kind in (f"{direction}-body", f"{direction}-property"):
        MIRRORS[f"{kind}-const-changed"] = f"{kind}-const-{word}", None
        MIRRORS[f"{kind}-content-media-type-changed"] = f"{kind}-content-schema-{word}", None
        MIRRORS[f"{kind}-content-encoding-changed"] = f"{kind}-content-schema-{word}", None

# The id of the change back, by a part of the id; for all others the opposite word.
BACK = {
    "^api-(path|removed)-.*": "endpoint-added",
    "^api-(deprecated-sunset-.*|sunset-date-too-small)": "endpoint-reactivated",
    "^sunset-deleted": "endpoint-deprecated-with-sunset",
    "^request-parameter-sunset-deleted": "request-parameter-deprecated",
    "^(request-parameter)-(removed.*|sunset-parse)": r"new-optional-\1",
    "^request-property-removed": "new-optional-request-property",
    "^request-body-removed": "request-body-added-optional",
    "^(optional|required)-response-header-removed": "response-header-added",
    "-(deprecated-sunset-.*|sunset-date-too-small)": "-reactivated",
    "-changed-too-small": "-changed",
    "-became-enum": "-enum-removed",
    "-became-required-with-default": "-became-optional",
    "-wrapped-in-one-of": "-one-of-removed",
    "-mapping-deleted": "-mapping-added",
}
OPPOSITES = (
    *(("decreased", "increased"), ("unset", "set"), ("added", "removed"), ("narrowed", "widened")),
    *(("specialized", "generalized"), ("required", "optional"), ("became-not", "became")),
)
WITHOUT_MIRROR = {
    "new-request-path-parameter": "another number of parameters is another path",
}


def ids_back(id: str) -> set[str]:
    """What the id of the change back may be."""
    for part, back in BACK.items():
        if re.search(f"{part}$", id):
            return {re.sub(f"{part}$", back, id)}
    pairs = [pair for each in OPPOSITES for pair in (each, each[::-1])]
    return {re.sub(rf"\b{word}\b", other, id) for word, other in pairs} - {id}


HOLDERS = {"type", "properties", "schema", "responses", "in", "content"}


def with_prose(part: Any) -> Any:
    """The same with a description and an example in every schema, operation, parameter and response."""
    if isinstance(part, list):
        return [with_prose(each) for each in part]
    if not isinstance(part, dict):
        return part
    words = {"description": "In other words.", "example": 1} if HOLDERS & part.keys() else {}
    return {**{key: with_prose(each) for key, each in part.items()}, **words}


def test_prose_is_no_change() -> None:
    """Nothing is found between two documents that differ in prose and examples alone."""
    found = {id: [judged(each, with_prose(each)) for each in SAMPLES[id]] for id in SAMPLES.keys() & RULES.keys()}
    assert not {id: each for id, each in found.items() if any(each)}


def may_break(id: str) -> bool:
    """Whether it is more than a note for oasdiff, or breaks clients here."""
    return LEVELS[RULES[id]] is not Severity.COMPATIBLE or expected(id) is Severity.BREAKING


def mirror_fault(id: str) -> str:
    """What is wrong with the change back: it has to be found, under its own id, and to break nobody ("" if it is so).

    Where it breaks clients, too, the same holds for a compatible change of the same thing.
    """
    before, after = SAMPLES[id][::-1]
    found = judged(before, after)
    if id in WITHOUT_MIRROR:
        return "it has a mirror" if Severity.COMPATIBLE in found.values() else ""
    names = ids_back(id)
    if listed := [mirror for pattern, mirror in MIRRORS.items() if fnmatch(id, pattern)]:
        if Severity.BREAKING not in found.values():
            return "it needs no other mirror"
        name, pair = listed[0]
        names, found = {name}, judged(*(pair or SAMPLES[name]))
    return "" if names & found.keys() and Severity.BREAKING not in found.values() else f"found {found}"


def test_the_mirror_of_a_rule_breaks_nobody() -> None:
    """The change back of each rule that may break is found under its own id, or a compatible change of the same."""
    ids = filter(may_break, RULES.keys() - UNUSED.keys())
    assert not {id: fault for id in ids if (fault := mirror_fault(id))}


def test_what_is_listed_is_judged_otherwise() -> None:
    """Each pattern of the page names rules that oasdiff has, and whose severity there is another one."""
    named = {pattern: [id for id in RULES if fnmatch(id, pattern)] for row, _ in OTHERWISE for pattern in row}
    assert all(named.values()), named
    assert not [id for ids in named.values() for id in ids if LEVELS[RULES[id]] is expected(id)]


def test_what_is_found_instead() -> None:
    """A rule that is not used has no finding; another one is found in its place if the page names it."""
    found = {id: judged(*UNUSED_SAMPLES[id]) for id in UNUSED.keys() & UNUSED_SAMPLES.keys()}
    assert not {id: each for id, each in found.items() if id in each}
    missing = {(id, pattern) for id in UNUSED for pattern in UNUSED[id] if not match(pattern, found.get(id, {}))}
    assert not missing


def match(pattern: str, ids: Iterable[str]) -> bool:
    """Whether one of the ids is what a pattern names."""
    return any(fnmatch(id, pattern) for id in ids)


UNUSED_SAMPLES: dict[str, Pair] = {
    **{f"{position}-type-compatible": (at(position, STRING), at(position, INTEGER)) for position in POSITIONS},
    **{
        f"{position}-deprecated": (at(position, STRING), at(position, {**STRING, **marked()})) for position in POSITIONS
    },
    "endpoint-deprecated": on_path({}, marked()),
    **{
        f"response-media-type-name-{word}": (
            response(schema=OBJECT),
            response(schema=OBJECT, media_type=f"application/{name}"),
        )
        for word, name in (("changed", "json; v=1"), ("generalized", "*"), ("specialized", "a+json"))
    },
}
