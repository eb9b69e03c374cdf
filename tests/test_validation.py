"""Invalid request bodies, and the problems that describe them."""

from datetime import datetime, timedelta, timezone
from io import BufferedReader, BytesIO
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse


def post(client: FlaskClient, body: str | bytes, path: str = "/products") -> TestResponse:
    return client.post(path, data=body, content_type="application/json")


def test_all_faults_are_listed_at_once(client: FlaskClient) -> None:
    """One response has every fault of a body, each with its JSON Pointer; nothing is stored."""
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


INVALID_JSON = [
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
    (b"[" * 9000, "deeper than 32"),
    (b'{"a":' * 9000, "deeper than 32"),
    (b'{"name": "x", "price": 01}', "line 1"),
    (b'{"name": "x", "price": .5}', "line 1"),
]


def test_invalid_json(client: FlaskClient) -> None:
    for body, message in INVALID_JSON:
        response = post(client, body)
        assert (response.status_code, response.json["type"].rpartition("/")[2]) == (400, "invalid-json"), body
        assert message in response.json["detail"]


def test_a_byte_order_mark_is_ignored(client: FlaskClient) -> None:
    """A body may begin with U+FEFF (RFC 8259, section 8.1), and a charset that changes nothing may be named."""
    assert post(client, b'\xef\xbb\xbf{"name": "x"}').json["name"] == "x"
    response = client.post("/products", data=b'{"name": "x"}', content_type='application/json; charset="UTF-8"')
    assert response.status_code == 200
    deep = '{"name": "' + "[" * 50 + '", "attributes": {"a":' + "[" * 30 + "]" * 30 + "}}"
    assert post(client, deep).status_code == 200


def test_invalid_text(client: FlaskClient) -> None:
    for body, pointer in {
        '{"name": "a\\u0000b"}': "#/name",
        '{"name": "a\\ud800b"}': "#/name",
        '{"name": "x", "attributes": {"a": [{"b": "\\udfff"}]}}': "#/attributes/a/0/b",
        '{"name": "x", "attributes": {"a\\u0000": 1}}': "#/attributes",
    }.items():
        response = post(client, body)
        assert response.status_code == 422
        assert [fault["pointer"] for fault in response.json["errors"]] == [pointer]
    path = client.post("/products", json={"name": "x"}).headers["Location"]
    for sent in (r'{"name": "x", "id": "\ud800"}', r'{"name": "x", "created_at": "\u0000"}'):
        response = client.put(path, data=sent, content_type="application/json")
        assert response.status_code == 422
        assert [fault["detail"][:13] for fault in response.json["errors"]] == ["is read-only;"]


def test_a_stale_record_is_a_conflict(client: FlaskClient) -> None:
    """Of two people who edit an item, the second learns that it has changed; what changes nothing is no conflict."""
    read = client.post("/products", json={"name": "Lamp"}).json
    path = f"/products/{read['id']}"
    now = client.patch(path, json={"name": "Lamp 2"}).json
    stale = {name: read[name] for name in ("version", "updated_at")}
    for name in (*stale, None):
        older = stale if name is None else {name: stale[name]}
        for response in (
            client.put(path, json={"name": "Lamp 3", **older}),
            client.patch(path, json={"stock": 5, **older}),
            client.patch(path, json={"stock": -1, **older}),
        ):
            assert (response.status_code, response.json["code"]) == (409, "edit-conflict")
            assert response.json["detail"] == "the item has changed since it was read: its version is 2 now"
        assert client.put(path, json={"name": "Lamp 2", **older}).json == now
    other_time = {"version": now["version"], "updated_at": "2000-01-01T00:00:00Z"}  # which was not that of this version
    for send in (client.put, client.patch):
        assert send(path, json={"name": "Lamp 2", **other_time}).json == now
        refused = send(path, json={"name": "Lamp 3", **other_time})
        assert [fault["pointer"] for fault in refused.json["errors"]] == ["#/updated_at"]
    other = client.put(path, json={"name": "Lamp 3", **stale, "id": "other"})
    assert (other.status_code, len(other.json["errors"])) == (422, 3)
    assert client.get(path).json == now
    assert client.patch(path, json={"stock": 5, "version": 1.0}).json["code"] == "edit-conflict"
    no_times = [("updated_at", text) for text in ("", "1", "10000-01-01T00:00:00Z")]
    assert [client.patch(path, json={name: text}).status_code for name, text in no_times] == [422] * 3
    for name, value in (("version", 3), ("version", "1"), ("version", True), ("created_at", "2020-01-01T00:00:00Z")):
        response = client.put(path, json={"name": "Lamp 3", name: value})
        assert (response.status_code, response.json["errors"][0]["pointer"]) == (422, f"#/{name}")
    assert client.put(path, json={**now, "name": "Lamp 3"}).json["version"] == 3


def test_a_time_that_is_sent_back_can_have_another_form(client: FlaskClient) -> None:
    """An equal time is the same one, and an earlier one is of a stale record, whatever its offset or its fraction."""
    item = client.post("/products", json={"name": "Lamp"}).json
    path = f"/products/{item['id']}"
    forms = [
        lambda time: time.replace("Z", "+00:00"),
        lambda time: time.replace("Z", "000Z").replace("T", " "),
        lambda time: f"{time[:23]}Z",  # of Date.toISOString
        lambda time: datetime.fromisoformat(time).astimezone(timezone(timedelta(hours=-5))).isoformat(),
    ]
    for form in forms:
        stale = {"updated_at": form(item["updated_at"])}
        for send in (client.put, client.patch):
            times = {name: form(item[name]) for name in ("created_at", "updated_at")}
            changed = send(path, json={"name": f"{item['name']}!", **times})
            assert changed.status_code == 200
            item = changed.json
        for send in (client.put, client.patch):
            assert send(path, json={"name": "Desk", **stale}).json["code"] == "edit-conflict"


def test_a_body_is_an_object_and_integers_have_64_bits(client: FlaskClient) -> None:
    for body, path in (('"x"', "#"), ("5", "#"), ("null", "#"), ("true", "#"), ("[[]]", "#/0")):
        found = post(client, body)
        assert (found.status_code, found.json["errors"]) == (422, [{"pointer": path, "detail": "must be an object"}])
        assert found.json["detail"] in ("the body must be an object", "item 0 must be an object")
    for number, beyond in ((2**63 - 1, 2**63), (-(2**63), -(2**63) - 1)):
        assert post(client, f'{{"name": "x", "attributes": {{"a": {number}}}}}').json["attributes"] == {"a": number}
        assert post(client, f'{{"name": "x", "attributes": {{"a": {beyond}}}}}').status_code == 400


def test_other_media_types_return_415(client: FlaskClient) -> None:
    """The problem names the right media type, or the encoding, which is not decoded."""
    form = "application/x-www-form-urlencoded"
    for other in ("text/plain", form, "application/json; charset=latin-1", "application/merge-patch+json", "", "x"):
        headers = {"Content-Type": other} if other else {}
        response = client.post("/products", data=b'{"name": "x"}', headers=headers)
        assert (response.status_code, "application/json" in response.json["detail"]) == (415, True), other
    gzip = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    response = client.post("/products", data=b"x", headers=gzip)
    assert (response.status_code, "gzip" in response.json["detail"]) == (415, True)
    where = client.post("/products", json={"name": "x"}).headers["Location"]
    response = client.patch(where, data=b"[]", content_type="application/json-patch+json")
    assert response.status_code == 415
    assert response.headers["Accept-Patch"] == "application/merge-patch+json, application/json"


def test_a_body_that_ends_early_returns_400(client: FlaskClient) -> None:
    """The problem says where it ended: before its announced length, or before its last chunk."""

    class Ending(BytesIO):
        def readinto(self, buffer: Any) -> int:
            if size := super().readinto(buffer):
                return size
            raise ConnectionResetError

    chunked = {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
    for source, framing, where in [
        (BytesIO(b"{"), {"CONTENT_LENGTH": "2"}, "announced length"),
        (BufferedReader(Ending(b"{")), chunked, "last chunk"),
    ]:
        sent = {"CONTENT_TYPE": "application/json", "wsgi.input": source, **framing}
        response = client.post("/products", environ_overrides=sent)
        assert (response.status_code, response.json["detail"]) == (400, f"the body ended before its {where}")
