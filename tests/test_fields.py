"""docs/fields.md is right: what each field accepts and stores, and what lists can do with it."""

import enum
import re
from collections.abc import Mapping
from typing import Any

import marshmallow
import pytest
from flask.testing import FlaskClient
from marshmallow import Schema, fields, validate

import restkeeper
from restkeeper import exactjson
from restkeeper.config import Config
from restkeeper.errors import InvalidQuery
from restkeeper.resources.declaration import Ownership
from restkeeper.resources.operators import OPERATORS
from restkeeper.resources.resource import Resource
from restkeeper.resources.revision import Revision
from restkeeper.resources.views import StoredView
from restkeeper.schemas.item import ItemSchema
from restkeeper.service import service_of
from restkeeper.storage.interface import Index, Kind
from tests.live import ROOT
from tests.shop import create_app

PAGE = (ROOT / "docs" / "fields.md").read_text(encoding="utf-8")
UNUSABLE = {"Field", "Mapping", "Number", "Pluck"}
LATER = "2026-01-31T12:00:00+02:00"
LEAP = '"2016-12-31T23:59:60Z"'
AMOUNT, NUMBERS = "9999999999999.99", '{"a":1.10,"b":[0.30000000000000004,123456789012345678,-0.10,1E-7]}'


class Colour(enum.Enum):
    RED = 1


class Size(enum.Enum):
    SMALL = "s"


class Answer(enum.Enum):
    YES = True
    NO = False


class Inner(Schema):
    a = fields.Integer(required=True)
    b = fields.String(load_default="x")


# The ends of the integers of 64 bits, and beyond, in each spelling.
LEAST = str(-(2**63))
LIMITS = [(LEAST, LEAST), (f"{LEAST}.0", LEAST), ("-9.223372036854775808E+18", LEAST), (str(2**63 - 1), str(2**63 - 1))]
LIMITS += [(f"{2**63}.0", None), (f"{-(2**63) - 1}.0", None)]

MAIL = f"a@bb{'.b' * 123}.org"  # of 254 characters

OPTIONAL: Mapping[str, Any] = {"load_default": None, "allow_none": True}

# Fields with a value and what is stored of it, in JSON; a value that is refused has no second one.
OURS: dict[str, tuple[Any, list[tuple[str, str | None]]]] = {
    "Text": (restkeeper.Text(1, 300, **OPTIONAL), [(r'"\u00e9 \ud83d\udca1"', '"é 💡"'), ("5", None)]),
    "Whole": (restkeeper.Whole(**OPTIONAL), [("5.0", "5"), ("5.5", None), ('"5"', None), ("true", None), *LIMITS]),
    "Money": (
        restkeeper.Money(**OPTIONAL),
        [("12.50", "12.5"), ("1E+2", "100"), (AMOUNT, AMOUNT), ("12.345", None), ('"12"', None)],
    ),
    "Time": (
        restkeeper.Time(**OPTIONAL),
        [(f'"{LATER}"', '"2026-01-31T10:00:00.000000Z"'), ('"2026-01-31"', None), (LEAP, None)],
    ),
    "Email": (restkeeper.Email(**OPTIONAL), [('"a@b.org"', '"a@b.org"'), ('"a"', None)]),
    "Url": (restkeeper.Url(300, **OPTIONAL), [('"https://a.org/"', '"https://a.org/"'), ('"a"', None)]),
    "ListOf": (restkeeper.ListOf(restkeeper.Text(), **OPTIONAL), [('["a"]', '["a"]'), ("{}", None)]),
    "JsonObject": (restkeeper.JsonObject(**OPTIONAL), [(NUMBERS, NUMBERS), ("[]", None)]),
    "Owner": (restkeeper.Owner(), [('"ada"', '"ada"'), ("5", None), ('""', None)]),
    "Reference": (restkeeper.Reference("things0", **OPTIONAL), [("5", None), ('""', None)]),
    "IntegerReference": (restkeeper.IntegerReference("counted", **OPTIONAL), [('"5"', None), ("0", None)]),
    "Status": (restkeeper.Status(restkeeper.Lifecycle("a", {"a": ()})), [('"a"', '"a"'), ('"b"', None)]),
}
MARSHMALLOW: dict[str, tuple[Any, list[tuple[str, str | None]]]] = {
    "String": (fields.String(validate=validate.Length(max=300), **OPTIONAL), [('"a"', '"a"'), ("5", None)]),
    "Email": (fields.Email(**OPTIONAL), [(f'"{MAIL}"', f'"{MAIL}"'), (f'"a{MAIL}"', None)]),
    "URL": (
        fields.URL(**OPTIONAL),
        [('"https://a.org/"', '"https://a.org/"'), (f'"https://a.org/{"x" * 8179}"', None)],
    ),
    "Integer": (
        fields.Integer(**OPTIONAL),
        [("5.0", "5"), ("1e2", "100"), ("5.5", None), ('"5"', None), ("true", None), ("1e300", None), *LIMITS],
    ),
    "Float": (
        fields.Float(**OPTIONAL),
        [("9007199254740993", "9007199254740992.0"), ('"0.1"', "0.1"), ('"1e999"', None), ("true", None)],
    ),
    "Decimal": (
        fields.Decimal(**OPTIONAL),
        [
            ("0.12345678901234567890", "0.12345678901234567890"),
            ('"1.10"', "1.10"),
            ('"1E+400"', None),
            ('"1E-400"', None),
            (f'"{2**63}"', None),
            (LEAST, LEAST),
            (f'"{LEAST}.0"', f"{LEAST}.0"),
            ("true", None),
            (f'"0.{"1" * 98}"', f"0.{'1' * 98}"),
            (f'"0.{"1" * 99}"', None),
        ],
    ),
    "Boolean": (fields.Boolean(**OPTIONAL), [("true", "true"), ("1", "true"), ('"on"', "true"), ('"x"', None)]),
    "List": (fields.List(fields.Integer(), **OPTIONAL), [("[1, 2.0]", "[1,2]"), ("[1, 2.5]", None)]),
    "Dict": (fields.Dict(**OPTIONAL), [('{"a":1.10}', '{"a":1.10}')]),
    "Nested": (fields.Nested(Inner, **OPTIONAL), [('{"a":1}', '{"a":1,"b":"x"}'), ("{}", None)]),
    "Tuple": (fields.Tuple((fields.Integer(), fields.String()), **OPTIONAL), [('[1, "a"]', '[1,"a"]'), ("[1]", None)]),
    "UUID": (
        fields.UUID(**OPTIONAL),
        [('"6F9619FF8B86D011B42D00CF4FC964FF"', '"6f9619ff-8b86-d011-b42d-00cf4fc964ff"')],
    ),
    "IP": (fields.IP(**OPTIONAL), [('"0:0::1"', '"::1"')]),
    "IPv4": (fields.IPv4(**OPTIONAL), [('"10.0.0.1"', '"10.0.0.1"')]),
    "IPv6": (fields.IPv6(**OPTIONAL), [('"0:0::1"', '"::1"')]),
    "IPInterface": (fields.IPInterface(**OPTIONAL), [('"10.0.0.1/8"', '"10.0.0.1/8"')]),
    "IPv4Interface": (fields.IPv4Interface(**OPTIONAL), [('"10.0.0.1/8"', '"10.0.0.1/8"')]),
    "IPv6Interface": (fields.IPv6Interface(**OPTIONAL), [('"::1/8"', '"::1/8"')]),
    "Date": (fields.Date(**OPTIONAL), [('"2026-01-31"', '"2026-01-31"')]),
    "Time": (
        fields.Time(**OPTIONAL),
        [('"12:00"', '"12:00:00"'), ('"12:00Z"', None), ("12", None), ('"23:59:60"', None)],
    ),
    "DateTime": (
        fields.DateTime(**OPTIONAL),
        [
            (f'"{LATER}"', '"2026-01-31T10:00:00.000000Z"'),
            ('"2026-01-31T12:00:00"', '"2026-01-31T12:00:00.000000Z"'),
            ('"0001-01-01T00:00:00+01:00"', None),
            (LEAP, None),
        ],
    ),
    "AwareDateTime": (
        fields.AwareDateTime(**OPTIONAL),
        [(f'"{LATER}"', '"2026-01-31T10:00:00.000000Z"'), ('"2026-01-31T12:00:00"', None)],
    ),
    "NaiveDateTime": (fields.NaiveDateTime(**OPTIONAL), [('"2026-01-31T12:00:00"', '"2026-01-31T12:00:00"')]),
    "TimeDelta": (fields.TimeDelta(**OPTIONAL), [("90", "90.0"), ("1e-7", "0.0"), ("true", None), ("1e300", None)]),
    "Enum": (fields.Enum(Colour, **OPTIONAL), [('"RED"', '"RED"'), ('"PINK"', None)]),
    "Raw": (fields.Raw(**OPTIONAL), [("1.10", "1.10"), ('{"a":[1]}', '{"a":[1]}')]),
    "Constant": (fields.Constant(5), [("6", "5")]),
    "Method": (fields.Method("describe"), [('"a"', None)]),
    "Function": (fields.Function(lambda item: "made"), [('"a"', None)]),
}
SAME = {"Str": "String", "Int": "Integer", "Bool": "Boolean", "Url": "URL"}
VARIANTS: dict[str, tuple[Any, list[tuple[str, str | None]]]] = {
    "Decimal(places=2)": (
        fields.Decimal(places=2, **OPTIONAL),
        [("1.555", None), ('"1.555"', None), ("1.5", "1.50"), (f"{10**18}.5", f"{10**18}.50"), ('"x"', None)],
    ),
    "Integer(strict=True)": (fields.Integer(strict=True, **OPTIONAL), [("5.0", "5"), ('"5"', None)]),
    "Enum(by_value=True)": (fields.Enum(Colour, by_value=True, **OPTIONAL), [("1", "1"), ("1.0", "1"), ("true", None)]),
    "Enum of booleans": (fields.Enum(Answer, by_value=True, **OPTIONAL), [("true", "true"), ("2", None)]),
    "Enum(by_value=String)": (fields.Enum(Size, by_value=fields.String, **OPTIONAL), [('"s"', '"s"'), ('"S"', None)]),
    "DateTime(format)": (fields.DateTime(format="%d.%m.%Y", **OPTIONAL), [('"31.01.2026"', '"31.01.2026"')]),
    "DateTime(rfc)": (fields.DateTime(format="rfc", **OPTIONAL), [('"x"', None)]),
    "DateTime(timestamp)": (fields.DateTime(format="timestamp", **OPTIONAL), [("1.5", "1.5")]),
    "Dict of dates": (
        fields.Dict(keys=fields.Date(), values=fields.Integer(), **OPTIONAL),
        [('{"2026-01-31":5.5}', None)],
    ),
    "Nested in a list": (fields.List(fields.Nested(Inner), **OPTIONAL), [('[{"a":5.5}]', None)]),
    "Function(both)": (fields.Function(lambda item: item["x"].upper(), str.lower, required=True), [('"aB"', '"AB"')]),
    "dump_only": (fields.String(dump_only=True, dump_default="x"), [('"a"', None)]),
}


EVERY = [(f"ours.{name}", each) for name, each in OURS.items()]
EVERY += [(f"marshmallow.{name}", each) for name, each in (MARSHMALLOW | VARIANTS).items()]


def table(heading: str) -> dict[str, tuple[str, bool]]:
    """The kind of each field of a table of the page, and whether lists can be sorted by such fields."""
    kinds, rows = (
        re.findall(pattern, PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0], re.M)
        for title, pattern in (
            ("Filters and sort by kind of field", r"^\| ([a-z, –]+) \|.*\| ([^|]+) \|$"),
            (heading, r"^\| (`.*?) \|.*\| (\S+) \|$"),
        )
    )
    is_sorted = {kind: sort != "no" for names, sort in kinds for kind in names.split(", ")}
    return {name: (kind, is_sorted[kind]) for names, kind in rows for name in re.findall(r"`(\w+)", names)}


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    describe = {"describe": lambda schema, item: "made"}
    made = {name: type("ThingSchema", (ItemSchema,), {"x": field, **describe}) for name, (field, _) in EVERY}
    indexes = {name: (Index("x"),) if "x" in Revision.of(1, made[name]).fields else () for name in made}
    resources = [
        Resource(
            name=path_of(name),
            singular=f"one{path_of(name)}",
            schema=made[name],
            indexes=indexes[name],
            ownership=Ownership.ALL if name == "ours.Owner" else Ownership.NONE,
        )
        for name in made
    ]
    resources.append(Resource("counted", "counted_item", ItemSchema, ids="integer"))
    return create_app(Config(), resources).test_client()


def path_of(name: str) -> str:
    return f"things{[each for each, _ in EVERY].index(name)}"


def faults(client: FlaskClient, name: str, values: list[tuple[str, str | None]]) -> list[str]:
    """What is not as expected of these values: in a new item, sent again, sent as they were read, and restored."""
    found = []
    service = service_of(client.application)
    (stored_as,) = [StoredView(each) for each in service.resources if each.name == path_of(name)]
    for sent, stored in values:
        body = {"data": f'{{"x":{sent}}}', "content_type": "application/json"}
        made = client.post(f"/{path_of(name)}", **body)
        shown = re.search(r'"x":(.*),"created_at"', made.text)
        if made.status_code != (422 if stored is None else 200) or (shown and shown[1]) != (stored or None):
            found.append(f"{name}: {sent} gives {made.text}")
        elif stored:
            where = made.headers["Location"]
            again = {"data": made.data, "content_type": "application/json"}
            replies = [client.patch(where, **body), client.patch(where, **again), client.put(where, **again)]
            found += [f"{name}: {sent} again is {each.text}" for each in replies if each.data != made.data]
            field = stored_as.queryable.fields.get("x")
            if field and field.kind is not Kind.LIST and not (field.kind is Kind.NUMBER and len(stored) > 15):
                text = value if isinstance(value := exactjson.loads(stored), str) else stored
                query = {"x": text} | ({"sort": "-x"} if field.sortable else {})
                if made.json not in client.get(f"/{path_of(name)}", query_string=query).json:
                    found.append(f"{name}: {stored} is not found")
                query = {"x": text if isinstance(text := exactjson.loads(sent), str) else sent}
                if field.read and made.json not in client.get(f"/{path_of(name)}", query_string=query).json:
                    found.append(f"{name}: {sent} is not found")
            restored = stored_as.restore(exactjson.loads(made.data), id="1", now=made.json["created_at"])
            if restored.body != made.data:
                found.append(f"{name}: {sent} is restored as {restored.body!r}")
    return found


@pytest.mark.needs("openapi")
def test_fields_store_what_the_page_says(client: FlaskClient) -> None:
    """Each field accepts and refuses the values of the page and stores them so; the same value changes nothing.

    The document has the lengths of addresses.
    """
    assert [fault for name, (_, values) in EVERY for fault in faults(client, name, values)] == []
    known = client.get("/openapi.json").json["components"]["schemas"]
    for name, length in (("marshmallow.Email", 254), ("marshmallow.URL", 8192), ("ours.Url", 300)):
        assert known[f"One{path_of(name)}Input"]["properties"]["x"]["maxLength"] == length


@pytest.mark.parametrize(
    ("heading", "package", "known"),
    [("The fields of restkeeper", "ours", OURS), ("The fields of marshmallow", "marshmallow", MARSHMALLOW)],
)
def test_lists_can_do_what_the_page_says(client: FlaskClient, heading: str, package: str, known: Any) -> None:
    """The kind and sort of each field in the table are those of a real service, and no field is missing."""
    rows = table(heading)
    found = {}
    collections = {each.name: each.collection for each in service_of(client.application).resources}
    for name in rows:
        path = path_of(f"{package}.{name if name in known else SAME[name]}")
        stored = collections[path].fields.get("x")
        is_sorted = client.get(f"/{path}?sort=x").status_code == 200
        found[name] = (word(stored.kind) if stored else "–", is_sorted)
    assert found == rows
    assert set(rows) >= set(known)


RANGES = ("gt", "gte", "lt", "lte")
UNORDERED = ("IP", "IPv4", "IPv6", "Enum")
FORMS = {  # a wrong value, and what is said of it
    "UUID": ("abc", "a UUID like 01912d68-783e-7a03-8467-5661c1243ad4"),
    "IP": ("1", "an IP address like 10.0.0.1"),
    "IPv4": ("::1", "an IPv4 address like 10.0.0.1"),
    "IPv6": ("10.0.0.1", "an IPv6 address like ::1"),
    "Date": ("2026-02-30", "a date like 2026-01-31"),
    "Time": ("12:00+02:00", "a time of day like 12:00"),
    "NaiveDateTime": ("2026-01-31T10:00:00Z", "a time like 2026-01-31T12:00:00"),
    "DateTime": ("yesterday", "a time like 2026-01-31T12:00:00Z"),
    "AwareDateTime": ("12:00", "a time like 2026-01-31T12:00:00Z"),
    "Enum": ("PINK", "one of: RED"),
}


@pytest.mark.needs("dialects")
@pytest.mark.parametrize("name", FORMS)
def test_a_filter_by_what_is_no_value_of_the_field(client: FlaskClient, name: str) -> None:
    """It is refused by each operator, in each way to write it, with a word on its form; null is null."""
    path, (wrong, form) = f"/{path_of(f'marshmallow.{name}')}", FORMS[name]
    ranges = [] if name in UNORDERED else [f"x[{op}]" for op in RANGES] + ["x_lte", "x:lte"]
    several = [] if "DateTime" in name and "Naive" not in name else ["x[in]"]
    for query in ("x", "x[ne]", "x_ne", *several, *ranges):
        response = client.get(path, query_string={query: wrong})
        assert response.status_code == 400, (query, response.json)
        assert response.json["errors"][0]["detail"] == f"must be {form}"
    for query in (f"or=(x={wrong},id=1)", f'_where={{"x":{{"eq":"{wrong}"}}}}'):
        assert f"must be {form}" in client.get(path, query_string=query.replace("+", "%2B")).json["detail"]
    with client.application.app_context(), pytest.raises(InvalidQuery, match=re.escape(form)):
        next(restkeeper.find_items(path.strip("/"), {"x[ne]": wrong}))
    for op in (*(RANGES if name in UNORDERED else ()), "like", "starts"):
        response = client.get(path, query_string={f"x[{op}]": wrong})
        assert response.json["errors"][0]["detail"].startswith("is no operator of x; there are: eq, ne, ")
    without = client.post(path, json={}).json
    assert without in client.get(f"{path}?x=null&sort=-id").json
    assert without not in client.get(f"{path}?x[ne]=null&sort=-id").json


BOOLEANS = ["true", "false", "1", "0", "1.0", "-0.0", '"True"', '"yes"', '"ON"', '"1"', '"t"', '"n"', '"off"', '"0"']
NUMBERS_SPELT = ["150", "1.5e2", "-1.50", '"+1.5"', '" 1.5 "', '".5"', '"1."', '"1E2"', '"1_000"', '"-0"', '"٣"']
SPELLINGS = {"Boolean": BOOLEANS} | dict.fromkeys(("Decimal", "Float", "TimeDelta", "Integer"), NUMBERS_SPELT)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_filter_takes_each_spelling_of_a_body(client: FlaskClient, name: str) -> None:
    """Each that the field takes, by each operator, finds the item as the value that is stored."""
    path, taken = f"/{path_of(f'marshmallow.{name}')}", 0
    for sent in SPELLINGS[name]:
        made = client.post(path, data=f'{{"x":{sent}}}', content_type="application/json")
        if made.status_code == 422:
            continue
        taken += 1
        text = value if isinstance(value := exactjson.loads(sent), str) else sent
        more = {"[in]": 1, "[nin]": 0, "[gte]": 1, "[lte]": 1, "[gt]": 0, "[lt]": 0} if name != "Boolean" else {}
        for op, number in ({"": 1, "[ne]": 0} | more).items():
            found = client.get(path, query_string={f"x{op}": text, "id": made.json["id"]})
            assert (found.status_code, len(found.json)) == (200, number), (sent, op, found.json)
        group = client.get(path, query_string={"or": f'(x="{text}",id=none)', "id": made.json["id"]})
        assert group.json == [made.json], sent
    assert taken == (2 if name == "Integer" else len(SPELLINGS[name]))


class ContactSchema(ItemSchema):
    mail = restkeeper.Email(**OPTIONAL)
    other = fields.Email(**OPTIONAL)
    exact = restkeeper.Email(**OPTIONAL)
    mails = restkeeper.ListOf(restkeeper.Email(), load_default=list)
    name = restkeeper.Text(0, 2, load_default="", normal="NFC")
    label = restkeeper.Text(0, 300, load_default="")


INDEXES = (Index("mail", unique=True), Index("other"), Index("exact", fold=False), Index("mails"), Index("label"))


def test_an_index_on_an_email_folds_case() -> None:
    """Unless it says fold=False: addresses that differ in case alone are one mailbox."""
    contacts = Resource("contacts", "contact", ContactSchema, INDEXES)
    client = create_app(Config(), [contacts]).test_client()
    made = client.post(
        "/contacts", json=dict.fromkeys(("mail", "other", "exact"), "Ada@x.org") | {"mails": ["Ada@x.org"]}
    )
    found = {name: len(client.get(f"/contacts?{name}=ADA@x.org").json) for name in ("mail", "other", "exact", "mails")}
    assert found == {"mail": 1, "other": 1, "exact": 0, "mails": 0} and made.json["mail"] == "Ada@x.org"
    taken = client.post("/contacts", json={"mail": "ada@X.ORG"})
    assert (taken.status_code, taken.json["errors"][0]["pointer"]) == (409, "#/mail")


def test_a_text_is_compared_as_it_is_stored() -> None:
    """With normal="NFC" it is stored, bounded and read in filters in that form; without, each form is another text."""
    client = create_app(Config(), [Resource("contacts", "contact", ContactSchema, INDEXES)]).test_client()
    composed, decomposed = "\u00e9a", "e\u0301a"
    made = client.post("/contacts", json={"name": decomposed, "label": decomposed}).json
    assert (made["name"], made["label"]) == (composed, decomposed)
    for query in ({"name": decomposed}, {"name[in]": f"x,{decomposed}"}, {"name": composed}, {"name[like]": composed}):
        assert len(client.get("/contacts", query_string=query).json) == 1, query
    assert client.get("/contacts", query_string={"label": composed}).json == []
    assert len(client.get("/contacts", query_string={"label": decomposed}).json) == 1
    assert client.get("/contacts", query_string={"name[like]": decomposed}).json == []
    with pytest.raises(ValueError, match=re.escape("Text(normal='nfc'): must be 'NFC' or 'NFD' or 'NFKC' or 'NFKD'")):
        restkeeper.Text(normal="nfc")


def test_a_whole_number_has_64_bits() -> None:
    """A field with other bounds is a mistake: it would store numbers that nobody can send back."""
    for bounds in ((0, 2**63), (-(2**63) - 1, 0)):
        message = f"Whole({bounds[0]}, {bounds[1]}): a whole number is from -(2**63) to 2**63 - 1"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            restkeeper.Whole(*bounds)


def test_the_page_names_every_field_and_filter() -> None:
    """Those of both packages that a schema can have."""
    ours = {name for name in restkeeper.__all__ if _is_field(getattr(restkeeper, name))}
    theirs = set(marshmallow.fields.__all__) - UNUSABLE
    assert sorted(ours - set(table("The fields of restkeeper"))) == []
    assert sorted(theirs - set(table("The fields of marshmallow"))) == []
    for kind in Kind:
        operators = [name for name, operator in OPERATORS.items() if kind in operator.kinds and name != "is"]
        (row,) = [line for line in PAGE.splitlines() if re.match(rf"\| [a-z, ]*\b{word(kind)}\b[a-z, ]* \|", line)]
        assert re.findall(r"`(\w+)`", row) == operators, kind


def word(kind: Kind) -> str:
    return "array" if kind is Kind.LIST else kind.value


def _is_field(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, fields.Field)
