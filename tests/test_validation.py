"""What is refused in a body, and how it is told."""

import json
from io import BytesIO
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from restkeeper.config import Config
from tests.shop import create_app


def post(client: FlaskClient, body: str | bytes, path: str = "/products") -> TestResponse:
    return client.post(path, data=body, content_type="application/json")


def test_all_faults_at_once(client: FlaskClient) -> None:
    """One answer has every fault of a body, each with its JSON Pointer; nothing is kept."""
    body = {
        "price": 1.234,
        "stock": -1,
        "currency": "eur",
        "status": "gone",
        "tags": ["ok", 5, ""],
        "attributes": [],
        "a/b~c d": 1,
        "description": 7,
        "version": 1,
    }
    response = client.post("/products", json=body)
    assert response.status_code == 422
    assert response.content_type == "application/problem+json"
    assert {fault["pointer"]: fault["detail"] for fault in response.json["errors"]} == {
        "#/name": "is required",
        "#/price": "must have at most 2 decimals",
        "#/stock": "must be from 0 to 9007199254740991",
        "#/currency": "must be three capital letters (ISO 4217)",
        "#/status": "must be one of: draft, active, archived",
        "#/tags/1": "must be a string",
        "#/tags/2": "must have 1 to 50 characters",
        "#/attributes": "must be an object",
        "#/a~1b~0c%20d": "is not a field of this collection",
        "#/description": "must be a string",
        "#/version": "is set by the server",
    }
    assert client.get("/products").json == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "x" * 201),
        ("name", None),
        ("name", 5),
        ("price", "12.50"),
        ("price", True),
        ("price", -0.01),
        ("price", 10000000000000),
        ("price", 0.001),
        ("price", 0.1 + 0.2),
        ("price", -1e308),
        ("stock", 1.5),
        ("stock", "1"),
        ("stock", True),
        ("stock", None),
        ("stock", 2**53),
        ("sku", ""),
        ("sku", "x" * 65),
        ("tags", "a"),
        ("tags", [""]),
        ("tags", [None]),
        ("tags", ["x"] * 101),
        ("tags", {}),
        ("attributes", None),
        ("currency", "USDX"),
        ("currency", "USD\n"),
        ("currency", "ÜSD"),
        ("status", "deleted"),
    ],
)
def test_values_out_of_bounds(client: FlaskClient, field: str, value: Any) -> None:
    """A value that a product cannot have is 422 and points at itself."""
    response = client.post("/products", json={"name": "x", field: value})
    assert response.status_code == 422
    (fault,) = response.json["errors"]
    assert fault["pointer"].startswith(f"#/{field}")


@pytest.mark.parametrize(
    "email", ["", "ada", "ada@", "@x.org", "a b@x.org", "ada@x", "a@x.org\n", "ä@x.org", f"{'x' * 65}@x.org"]
)
def test_addresses_that_are_none(client: FlaskClient, email: str) -> None:
    """What cannot be delivered to is no e-mail address."""
    assert client.post("/users", json={"email": email}).status_code == 422


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "empty"),
        (b"{", "line 1, column"),
        (b'{"name": "x",}', "line 1, column 14"),
        (b"{'name': 'x'}", "line 1, column 2"),
        (b'{"name": "x"} x', "Extra data"),
        (b'{"name": "\xff"}', "not UTF-8"),
        ('{"name": "x"}'.encode("utf-16"), "not UTF-8"),
        (b'{"name": "a\x01b"}', "control character"),
        (b'{"name": "x", "name": "y"}', "'name' occurs twice"),
        (b'{"name": "x", "attributes": {"a": {"b": 1, "b": 1}}}', "'b' occurs twice"),
        (b'{"name": "x", "price": NaN}', "NaN"),
        (b'{"name": "x", "price": Infinity}', "Infinity"),
        (b'{"name": "x", "price": -Infinity}', "-Infinity"),
        (b'{"name": "x", "price": 1e999}', "out of range"),
        (b'{"name": "x", "price": 1e-999}', "out of range"),
        (b'{"name": "x", "attributes": {"n": 9223372036854775808}}', "out of range"),
        (b'{"name": "x", "attributes": {"n": ' + b"9" * 5000 + b"}}", "out of range"),
        (b'{"name": "x", "attributes": {"n": 1.' + b"9" * 5000 + b"}}", "out of range"),
        (b'{"name": "x", "attributes": {"a":' + b"[" * 31 + b"]" * 31 + b"}}", "deeper than 32"),
        (b'{"name": "x", "attributes": {"a":' + b"[" * 9000 + b"]" * 9000 + b"}}", "deeper than 32"),
        (b'{"name": "x", "price": 0e99999999999999999999999}', "out of range"),
        (b'{"name": "x", "price": 01}', "line 1"),
        (b'{"name": "x", "price": .5}', "line 1"),
    ],
)
def test_what_is_not_acceptable_json(client: FlaskClient, body: bytes, message: str) -> None:
    """Malformed or ambiguous JSON is 400 and says what and where."""
    response = post(client, body)
    assert (response.status_code, response.json["type"].rpartition("/")[2]) == (400, "invalid-json")
    assert message in response.json["detail"]


def test_a_byte_order_mark_is_passed_over(client: FlaskClient) -> None:
    """A body may begin with U+FEFF, as RFC 8259 (section 8.1) allows a reader."""
    assert post(client, b'\xef\xbb\xbf{"name": "x"}').json["name"] == "x"


def test_nesting_within_the_limit_is_kept(client: FlaskClient) -> None:
    """32 levels are taken, and brackets in strings are no levels."""
    deep = '{"name": "' + "[" * 50 + '", "attributes": {"a":' + "[" * 30 + "]" * 30 + "}}"
    assert post(client, deep).status_code == 200


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ('{"name": "a\\u0000b"}', "#/name"),
        ('{"name": "a\\ud800b"}', "#/name"),
        ('{"name": "x", "attributes": {"a": [{"b": "\\udfff"}]}}', "#/attributes/a/0/b"),
        ('{"name": "x", "attributes": {"a\\u0000": 1}}', "#/attributes"),
    ],
)
def test_what_is_not_text(client: FlaskClient, body: str, pointer: str) -> None:
    """NUL and half a surrogate pair are refused, with a pointer to the string."""
    response = post(client, body)
    assert response.status_code == 422
    assert [fault["pointer"] for fault in response.json["errors"]] == [pointer]


def test_what_is_not_text_is_told_with_the_rest(client: FlaskClient) -> None:
    """Faults of text and of the schema are of one report, also where a name itself is no text."""
    response = post(client, r'{"name": "a\u0000b", "price": -1, "\ud800": 1, "id": "\udfff", "tags": ["", "\u0000"]}')
    assert response.status_code == 422
    errors = {(fault["pointer"], fault["detail"]) for fault in response.json["errors"]}
    assert {
        ("#/name", "must not hold NUL"),
        ("#/tags/1", "must not hold NUL"),
        ("#", "must not hold an unpaired surrogate"),
        ("#/?", "is not a field of this collection"),
        ("#/id", "is set by the server"),
    } <= errors
    assert {"#/price", "#/tags/0"} <= {pointer for pointer, _ in errors}


@pytest.mark.parametrize("sent", [r'{"name": "x", "id": "\ud800"}', r'{"name": "x", "created_at": "\u0000"}'])
def test_what_is_not_text_in_what_the_server_sets(client: FlaskClient, sent: str) -> None:
    """A read-only field that is no text is only another value."""
    path = client.post("/products", json={"name": "x"}).headers["Location"]
    response = client.put(path, data=sent, content_type="application/json")
    assert response.status_code == 422
    assert [fault["detail"][:13] for fault in response.json["errors"]] == ["is read-only;"]


def test_a_compressed_body_is_415(client: FlaskClient) -> None:
    """A body in a coding that is not understood is not taken for bad JSON."""
    response = client.post(
        "/products", data=b"x", headers={"Content-Encoding": "gzip"}, content_type="application/json"
    )
    assert (response.status_code, "gzip" in response.json["detail"]) == (415, True)


def test_at_most_a_hundred_faults_are_listed(client: FlaskClient) -> None:
    """An answer does not grow with what is wrong."""
    response = client.post("/products", json={f"unknown{n}": n for n in range(5000)})
    assert (response.status_code, len(response.json["errors"])) == (422, 100)
    too_many = client.post("/products", json={"name": "x", "tags": [1] * 5000})
    assert too_many.json["errors"] == [{"pointer": "#/tags", "detail": "must have at most 100 items"}]


def test_a_name_that_occurs_twice_among_many_is_found(client: FlaskClient) -> None:
    """However many names there are, the one that is twice is named, in time that grows with their number alone."""
    names = ",".join(f'"{n}":0' for n in range(9000))
    response = post(client, f'{{"name": "x", "attributes": {{{names}, "zz": 0, "zz": 0}}}}')
    assert (response.status_code, "'zz'" in response.json["detail"]) == (400, True)


@pytest.mark.parametrize("body", ["[]", '"x"', "5", "null", "true"])
def test_a_body_is_an_object(client: FlaskClient, body: str) -> None:
    """JSON that is not an object is 422."""
    response = post(client, body)
    assert (response.status_code, response.json["errors"]) == (422, [{"pointer": "#", "detail": "must be an object"}])


@pytest.mark.parametrize(
    "media_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin-1",
        "application/merge-patch+json",
        "",
        "x",
    ],
)
def test_other_media_types(client: FlaskClient, media_type: str) -> None:
    """A body of another type is 415, which names the right one."""
    headers = {"Content-Type": media_type} if media_type else {}
    response = client.post("/products", data=b'{"name": "x"}', headers=headers)
    assert response.status_code == 415
    assert "application/json" in response.json["detail"]


def test_patch_tells_what_it_accepts(client: FlaskClient) -> None:
    """415 to a PATCH lists its types in Accept-Patch (RFC 5789, section 3.1)."""
    where = client.post("/products", json={"name": "x"}).headers["Location"]
    response = client.patch(where, data=b"[]", content_type="application/json-patch+json")
    assert response.status_code == 415
    assert response.headers["Accept-Patch"] == "application/merge-patch+json, application/json"


def test_a_charset_of_utf_8_is_fine(client: FlaskClient) -> None:
    """Parameters that change nothing are no reason to refuse."""
    response = client.post("/products", data=b'{"name": "x"}', content_type='application/json; charset="UTF-8"')
    assert response.status_code == 200


def test_a_body_that_is_too_large(client: FlaskClient) -> None:
    """413 tells the limit, also for a body whose length is not announced."""
    small = create_app(Config(max_body=500)).test_client()
    fits = json.dumps({"name": "x" * 100})
    assert post(small, fits).status_code == 200
    for beyond in (json.dumps({"name": "x" * 180, "description": "x" * 400}), fits + " " * (501 - len(fits))):
        announced = post(small, beyond)
        chunked = small.post(
            "/products",
            input_stream=BytesIO(beyond.encode()),
            content_type="application/json",
            environ_overrides={"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"},
        )
        for response in (announced, chunked):
            assert response.status_code == 413
            assert "500 bytes" in response.json["detail"]


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63) + 1])
def test_integers_have_64_bits(client: FlaskClient, number: int) -> None:
    """What stores and typed clients hold, and one more is refused."""
    assert post(client, f'{{"name": "x", "attributes": {{"a": {number}}}}}').json["attributes"] == {"a": number}
    beyond = number + (1 if number > 0 else -1)
    assert post(client, f'{{"name": "x", "attributes": {{"a": {beyond}}}}}').status_code == 400
