"""A file's values become JSON Schema, and that becomes fields that accept just what it says."""

from decimal import Decimal
from typing import Any

import marshmallow
import pytest

from restkeeper import Config, create_app, exactjson
from restkeeper.features.files.collections import Declared, resources_of, singular_of
from restkeeper.features.files.jsonschema import DEEPEST, MOST_NAMES, MOST_SHAPES, Shape, inlined
from restkeeper.schemas.prepared import prepared


def inferred(*values: str) -> Any:
    """The schema of some values, each as JSON text."""
    shape = Shape()
    for value in values:
        shape.add(exactjson.loads(value))
    return shape.schema()


@pytest.mark.parametrize(
    ("values", "schema"),
    [
        (['"a"', '"b"'], {"type": "string"}),
        (["1", "-5"], {"type": "integer"}),
        (["1", "2.50"], {"type": "number"}),
        (["true"], {"type": "boolean"}),
        (["null"], {}),
        (["null", "1"], {"type": ["integer", "null"]}),
        (["1", '"1"'], {}),
        (["true", "1"], {}),
        (["[]"], {"type": "array"}),
        (["[1]", "[null, 2.5]"], {"type": "array", "items": {"type": ["number", "null"]}}),
        (["{}"], {"type": "object"}),
        (['"ada@example.org"'], {"type": "string", "format": "email"}),
        (['"https://example.org/a?b=1"'], {"type": "string", "format": "uri"}),
        (['"2026-01-31"', "null"], {"type": ["string", "null"], "format": "date"}),
        (['"2026-01-31T12:00:00Z"', '"2026-01-31T12:00:00.5+02:00"'], {"type": "string", "format": "date-time"}),
        (['"2026-01-31T12:00:00Z"', '"2026-01-31"'], {"type": "string"}),
        (['"20260131"'], {"type": "string"}),
        (['"01912d68-783e-7a03-8467-5661c1243ad4"'], {"type": "string", "format": "uuid"}),
        (['"01912D68783E7A0384675661C1243AD4"'], {"type": "string"}),
        (['"2026-02-31"', '"2026-13-01"'], {"type": "string"}),
    ],
)
def test_the_class_of_values(values: list[str], schema: Any) -> None:
    """Types, null, and formats that every text has, in the form in which it is stored."""
    assert inferred(*values) == schema


def test_objects_have_their_members() -> None:
    """Those that all have are required, also inside arrays."""
    tag = {"b": {"type": ["string", "null"]}, "c": {"type": "integer"}}
    tags = {"type": "array", "items": {"type": "object", "properties": tag, "required": ["b"]}}
    schema = inferred('{"a": 1, "tags": [{"b": "x"}, {"b": null, "c": 1}]}', '{"a": 2}')
    assert schema == one({"type": "integer"}, "a") | {"properties": {"a": {"type": "integer"}, "tags": tags}}


def test_what_is_counted_is_bounded() -> None:
    """An object of any names, and what is too deep or too much, is any JSON."""
    assert inferred(*(f'{{"a{n}": 1}}' for n in range(MOST_NAMES + 1))) == {"type": "object"}
    assert inferred(exactjson.dumps({"a" * 101: 1}).decode()) == {"type": "object"}
    schema, depth = inferred("[" * 50 + "]" * 50), 0
    while schema := schema.get("items"):
        depth += 1
    assert depth == DEEPEST
    wide = {f"a{n}": {f"b{m}": 1 for m in range(100)} for n in range(100)}
    text = exactjson.dumps(inferred(exactjson.dumps(wide).decode()))
    assert text.count(b'"b') <= MOST_SHAPES


def faults(schema: Any, value: str, **options: Any) -> Any:
    """What is wrong with an item, by pointer; or the item as it is stored."""
    (posts,) = resources_of({"posts": Declared(schema)}, [], **options)
    made = prepared(posts.schema)
    try:
        return made.dump(made.load(exactjson.loads(value)))
    except marshmallow.ValidationError as error:
        return {each["pointer"]: each["detail"] for each in exactjson.faults_in(error.messages)}


MORE_AND_LESS = "must be more than 1 and less than 3"


def one(part: Any, *required: str) -> Any:
    """The schema of an object with one member."""
    return {"type": "object", "properties": {"a": part}, "required": list(required)}


@pytest.mark.parametrize(
    ("part", "good", "bad", "message"),
    [
        ({"type": "string"}, ['"x"', f'"{"x" * 20_000}"'], ["1", "null"], ""),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ['"xx"'], ['"x"', '"xxxx"'], ""),
        ({"type": "string", "minLength": 1}, ['"x"'], ['""'], "must have at least 1 characters"),
        ({"type": "string", "pattern": "b.?$"}, ['"ab"'], ['"ba  "'], "must match b.?$"),
        ({"type": "string", "enum": ["x", "y"]}, ['"x"'], ['"z"', "null"], ""),
        ({"enum": ["x", None]}, ['"x"', "null"], ['"z"', "1"], ""),
        ({"const": "x"}, ['"x"'], ['"z"'], ""),
        ({"enum": [1, 2]}, ["1"], ["3"], "must be one of: 1, 2"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, ["1", "3"], ["0", "4", "1.5", '"1"', "true"], ""),
        ({"type": "integer", "maximum": 5}, ["5"], ["6"], "must be at most 5"),
        ({"type": "number", "exclusiveMinimum": 0}, ["0.1", "5", "1.10"], ["0", '"1"', "true"], ""),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 3, "type": "number"}, ["2"], ["1", "3"], MORE_AND_LESS),
        ({"type": "number"}, ["1.10"], ['"1"'], "must be a number"),
        ({"type": "boolean"}, ["true"], ["1", '"true"'], "must be true or false"),
        ({"type": ["boolean", "null"]}, ["null"], ["0"], ""),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, ["null", "1"], ['"x"'], ""),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, ["[1]"], ["[1,2,3]", "{}"], ""),
        ({"type": "array", "minItems": 2}, ["[1,2]"], ["[1]"], "must have at least 2 items"),
        ({"type": "array"}, ["[]", '[null,{"a": 1.10}]'], ["{}"], "must be an array"),
        ({"type": "object"}, ['{"b": 1.10}'], ["[]", "1"], ""),
        ({"type": "object", "properties": {"b": {}}}, ["{}"], ["5"], "must be an object"),
        ({"type": "object", "properties": {"b": {}}}, [], ["null"], "must not be null"),
        ({"type": ["string", "integer"]}, ["1", '"1"', "{}"], ["null"], "must not be null"),
        ({"format": "date-time", "type": "string"}, ['"2026-01-31T12:00:00Z"'], ['"2026-13-31T12:00:00Z"', '"x"'], ""),
        ({"format": "date", "type": "string"}, ['"2024-02-29"'], ['"x"', '"2026-02-30"', '"2026-04-31"'], ""),
        ({"format": "email", "type": "string"}, ['"a@b.org"'], ['"x"'], ""),
        ({"format": "uri", "type": "string"}, ['"https://a.org"'], ['"x"'], ""),
        ({"format": "uuid", "type": "string"}, ['"01912d68-783e-7a03-8467-5661c1243ad4"'], ['"x"'], ""),
        ({}, ["null", "1", "{}", '[{"b": 1.10}]'], [], ""),
    ],
)
def test_fields_accept_what_the_schema_says(part: Any, good: list[str], bad: list[str], message: str) -> None:
    """And store it as it is sent. What is wrong is said in the words of the other fields."""
    for value in good:
        assert exactjson.dumps(faults(one(part), f'{{"a": {value}}}')) == f'{{"a":{value}}}'.replace(": ", ":").encode()
    for value in bad:
        ((place, said),) = faults(one(part), f'{{"a": {value}}}').items()
        assert place[:3] == "#/a" and message in ("", said)
    assert faults(one(part, "a"), "{}") == {"#/a": "is required"}


def test_faults_have_their_place() -> None:
    """Also inside objects and arrays; what is not named there is stored in the order in which it is sent."""
    inner = {"type": "object", "properties": {"b-c": {"type": "integer"}, "d": {"type": "string"}}, "required": ["d"]}
    schema = one({"type": "array", "items": inner}, "a")
    assert faults(schema, '{"a": [{"d": "x"}, {"b-c": "1"}]}') == {
        "#/a/1/b-c": "must be a whole number",
        "#/a/1/d": "is required",
    }
    assert faults({"required": ["id", "b"]}, "{}") == {"#/b": "is required"}
    assert faults(one({"type": "object", "required": True}), '{"a": {}}') == {"a": {}}
    assert faults(one({"type": "object", "required": ["b"]}), '{"a": {}}') == {"#/a/b": "is required"}
    sent = '{"a":[{"z":null,"d":"x","b-c":1}]}'
    assert exactjson.dumps(faults(schema, sent)).decode() == sent
    assert faults(schema, sent, strict=True) == {"#/a/0/z": "is not a field here"}


def test_unknown_fields_are_refused_where_the_schema_closes_it() -> None:
    """Or all schemas are."""
    assert faults(one({}) | {"additionalProperties": False}, '{"b": 1}') == {"#/b": "is not a field of this collection"}
    assert faults(one({}), '{"b": 1}', strict=True) == {"#/b": "is not a field of this collection"}
    schema = {"properties": {"a": {"type": "string"}, "b-c": {}}}
    client = create_app(Config(), resources_of({"posts": Declared(schema)}, [], strict=True)).test_client()
    assert client.put("/posts/1", json={"b-c": 1, "id": "1"}).json == {"b-c": 1, "id": "1"}
    document = client.get("/openapi.json").json["components"]["schemas"]
    for name, own in (("Post", ["id"]), ("PostInput", ["id"]), ("PostReplacement", []), ("PostPatch", [])):
        assert document[name]["additionalProperties"] is False
        assert sorted(document[name]["properties"]) == ["a", "b-c", *own]


def test_what_a_field_refers_to_is_beside_it() -> None:
    """Under its name without "Id"; the deletion of that item leaves null."""
    parts = {"postId": {"type": "integer"}, "user_id": {"type": "string"}, "user": {"type": "string"}}
    comments = Declared({"properties": parts}, references={"postId": "posts", "user_id": "users"})
    declared = {"users": Declared({}), "posts": Declared({}, "client-integer"), "comments": comments}
    client = create_app(Config(), resources_of(declared, [])).test_client()
    sent = {"id": "a", "postId": 0, "user": "x"}
    post = client.put("/posts/0", json={"title": "Hello"}).json
    assert client.put("/comments/a", json=sent).json == sent
    assert client.get("/comments/a?embed=post").json == {**sent, "post": post}
    assert client.get("/posts/0?embed=comments").json["comments"] == [sent]
    assert client.put("/comments/b", json={"user_id": "x"}).json["errors"][0]["pointer"] == "#/user_id"
    client.delete("/posts/0")
    assert client.get("/comments/a").json == {**sent, "postId": None}


def test_a_default_is_of_new_items() -> None:
    """Also of a text that has bounds."""
    parts = {"a": {"type": "string", "maxLength": 9, "default": "x"}, "b": {"type": "number", "default": 1.5}}
    schema = {"properties": exactjson.loads(exactjson.dumps(parts))}
    (posts,) = resources_of({"posts": Declared(schema)}, [])
    assert posts.schema().load({}) == {"a": "x", "b": Decimal("1.5")}


def test_what_fields_cannot_check_is_named() -> None:
    """And accepted."""
    notes: list[str] = []
    parts = {"a": {"oneOf": [{}, {}]}, "b-c": {"type": "string"}, "d": {"type": ["string", "integer"]}}
    resources_of({"posts": Declared({"properties": parts})}, notes)
    assert sorted(notes) == [
        "posts.a: oneOf: not checked",
        "posts.b-c: has other characters than ASCII letters, digits and _: any JSON is accepted",
        "posts.d: string or integer: not checked",
    ]


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ({"type": "text"}, "posts.a: type: 'text' is none of string, integer, number"),
        ({"$ref": "#/$defs/none"}, "posts.a: $ref: '#/$defs/none' is not in this document"),
        ({"$ref": "other.json"}, "posts.a: $ref: 'other.json' is not in this document"),
        ({"type": "string", "pattern": "("}, "posts.a: the schema is not understood: "),
        ({"type": "string", "maxLength": "x"}, "posts.a: the schema is not understood: "),
        ({"type": "integer", "default": "x"}, "posts.a: the schema is not understood: "),
        ({"type": "number", "exclusiveMinimum": True}, "posts.a: exclusiveMinimum: must be a number"),
        ([], "the schema is not understood: "),
    ],
)
def test_what_is_no_schema_is_refused(part: Any, error: str) -> None:
    """With its place."""
    with pytest.raises(ValueError) as refused:
        resources_of({"posts": Declared(one(part))}, [])
    assert error in str(refused.value)


def test_references_within_the_document_are_resolved() -> None:
    """And allOf; what is inside itself is any JSON."""
    notes: list[str] = []
    base = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    node = {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"next": {"$ref": "#/$defs/node"}}}]}
    made = inlined({"$ref": "#/$defs/node"}, {"$defs": {"base": base, "node": node}}, "nodes", notes)
    assert made == {"type": "object", "properties": {"id": {"type": "integer"}, "next": {}}, "required": ["id"]}
    assert notes == ["nodes.next: is inside itself: any JSON is accepted"]


def test_a_schema_that_grows_without_end_is_bounded() -> None:
    """Ten levels of ten references each."""
    levels = {f"a{n}": {"properties": {f"b{m}": {"$ref": f"#/a{n + 1}"} for m in range(10)}} for n in range(10)}
    notes: list[str] = []
    inlined({"$ref": "#/a0"}, {**levels, "a10": {}}, "posts", notes)
    assert len(notes) == 1 and "the schema is too large" in notes[0]


@pytest.mark.parametrize(
    "words", ["posts post", "categories category", "boxes box", "classes class", "status status", "data data"]
)
def test_the_name_of_one_item(words: str) -> None:
    """In English."""
    plural, singular = words.split()
    assert singular_of(plural) == singular


def test_a_service_validates_by_the_schema() -> None:
    """What it does not name is stored, also inside objects; a fault has its place, and filters know the members."""
    age = {"type": "integer", "minimum": Decimal("0.5"), "examples": [Decimal("1.0")]}
    author = {"type": "object", "properties": {"age": age}, "required": ["age"]}
    schema = {"properties": {"author": author, "version": {"type": "integer"}}}
    client = create_app(Config(), resources_of({"posts": Declared(schema)}, [])).test_client()
    wrong = client.put("/posts/1", json={"author": {"age": "1"}})
    assert wrong.json["errors"] == [{"pointer": "#/author/age", "detail": "must be a whole number"}]
    sent = {"author": {"age": 1, "at": "x"}, "z": 1.10, "version": 7, "id": "1"}
    assert client.put("/posts/1", json=sent).json == sent
    assert client.get("/posts?author.age[gte]=1&version=7").json == [sent]
    document = client.get("/openapi.json").json["components"]["schemas"]
    assert document["PostAuthor"]["additionalProperties"] is document["Post"]["additionalProperties"] is True
