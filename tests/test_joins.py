"""Filters by what is in other collections: as a plain model in Python finds it, and as far as the caller may see it."""

import os
import random
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from flask.testing import FlaskClient
from marshmallow import Schema, fields

from restkeeper import Config, Items, ItemSchema, Reference, Resource, Text, exactjson
from restkeeper.reading import find_items
from restkeeper.resources import embedding
from restkeeper.resources.changes import Unit
from restkeeper.resources.functions import invoke
from restkeeper.service import service_of
from tests import shapes
from tests.callers import ADMIN, ADMIN_KEY, key, make_key
from tests.json_file import client_of
from tests.shop import create_app as create_shop
from tests.shop.related import create_app as create_related

pytestmark = pytest.mark.needs("keys", "ownership", "versions")

Item = dict[str, Any]
NOW = "2026-01-01T00:00:00.000000Z"
NAMES = ("Ann", "Bob", "Éva", "ann", "Bo,b")
QUERIES = int(os.environ.get("RESTKEEPER_TESTS_QUERIES", "700"))  # 5000, of 2,008 items, take a minute
ZONE = timezone(timedelta(hours=-5.5))  # of times in queries
MOST = 14 if QUERIES < 5000 else 400  # items of a collection


class Hop(NamedTuple):
    """A name before a dot: the collection that it leads to, and the references, of these items or of those."""

    to: str
    path: str
    is_back: bool = False


HOPS = {
    "people": {
        "manager": Hop("people", "manager"),
        "people": Hop("people", "manager", is_back=True),
        "jobs": Hop("jobs", "owner", is_back=True),
    },
    "brands": {"products.brand": Hop("products", "brand", is_back=True)},
    "products": {
        "brand": Hop("brands", "brand"),
        "parts": Hop("parts", "product", is_back=True),
        "orders": Hop("orders", "lines.product", is_back=True),
        "jobs": Hop("jobs", "product", is_back=True),
    },
    "parts": {"product": Hop("products", "product")},
    "orders": {
        "lines.product": Hop("products", "lines.product"),
        "after": Hop("orders", "after"),
        "orders": Hop("orders", "after", is_back=True),
    },
    "jobs": {"product": Hop("products", "product"), "owner": Hop("people", "owner")},
}
FIELDS = {  # and the operators to try
    "people": {
        "name": "eq ne in nin like starts gt",
        "email": "eq is ne",
        "age": "eq gte lt is in",
        "manager": "is eq",
    },
    "brands": {"title": "eq like", "id": "eq gt in", "products": "lt"},
    "products": {
        "name": "eq like ends",
        "sku": "is eq",
        "price": "eq gt lte is",
        "weight": "gt eq is ne",
        "tags": "eq in",
        "size.width": "eq gt is",
        "seen_at": "gt lte is",
        "released": "lt is",
        "is_new": "eq ne",
        "status": "eq in",
        "brand": "eq is",
    },
    "parts": {"name": "eq gte", "product": "eq"},
    "orders": {"remark": "eq like", "amount": "gt lt eq", "gift": "eq", "lines.count": "gt eq", "status": "eq"},
    "jobs": {"title": "eq", "grade": "gte", "ticket": "is", "owner": "is eq"},
}


COUNTED = {"people": "age", "brands": "id", "products": "price", "parts": "name", "orders": "amount", "jobs": "grade"}
GROUPED = {  # what a collection is grouped by, and the numbers that are added
    "people": (["manager"], ["age"]),
    "brands": (["title", "day(created_at)"], []),
    "products": (["status", "day(seen_at)"], ["price", "weight"]),
    "parts": (["name", "product"], []),
    "orders": (["gift", "remark"], ["amount"]),
    "jobs": (["owner"], ["grade"]),
}
PLACES = {"age": 4, "price": 6, "amount": 4, "grade": 4}  # of an average: four more than the field has
READERS = [f"{name}:read" for name in HOPS]


def values_at(item: Any, path: str) -> list[Any]:
    """The values at a path; a list on it stands for each of its elements."""
    if isinstance(item, list):
        return [value for each in item for value in values_at(each, path)]
    if not path:
        return [item]
    name, _, rest = path.partition(".")
    return values_at(item.get(name), rest) if isinstance(item, dict) else []


def satisfies(item: Item, field: str, op: str, value: Any) -> bool:
    """Whether one of the values of a field satisfies a comparison."""
    found = [each for each in values_at(item, field) if each is not None]
    if op == "is" or (op == "eq" and value is None):
        return bool(found) is (value == "not_null")
    if op in ("ne", "nin"):
        return not satisfies(item, field, {"ne": "eq", "nin": "in"}[op], value)
    return any(
        {
            "eq": lambda one: one == value,
            "in": lambda one: one in value,
            "gt": lambda one: one > value,
            "gte": lambda one: one >= value,
            "lt": lambda one: one < value,
            "lte": lambda one: one <= value,
            "like": lambda one: value.casefold() in one.casefold(),
            "starts": lambda one: one.startswith(value),
            "ends": lambda one: one.endswith(value),
        }[op](each)
        for each in found
    )


class World:
    """Random items, as the store has them and as the model finds them for a caller who sees these orders."""

    def __init__(self, client: FlaskClient, owner: str) -> None:
        self.client, self._chance = client, random.Random(5)  # noqa: S311
        self.items: dict[str, list[Item]] = {}
        self.owners: dict[tuple[str, Any], str | None] = {}
        self._joined: dict[tuple[str, str], dict[Any, list[Item]]] = {}
        chance, maybe = self._chance, lambda value: value if chance.random() < 0.7 else None
        ids: dict[str, list[Any]] = {name: [f"{name[:2]}{n}" for n in range(MOST)] for name in HOPS}
        ids["brands"] = [*range(1, 8), 2**53 - 5]
        pick = lambda name, most=14: chance.choice(ids[name][: most * MOST // 14])  # noqa: E731
        make = {
            "people": lambda n: {
                "name": chance.choice(NAMES),
                "email": f"p{n}@x.org" if n % 3 else None,
                "age": maybe(chance.randrange(30, 34)),
                "manager": maybe(pick("people", 5)),
            },
            "brands": lambda n: {"title": f"{chance.choice(NAMES)} {n}"},
            "products": lambda n: {
                "name": chance.choice(NAMES),
                "sku": f"s{n}" if n % 2 else None,
                "price": maybe(Decimal(chance.choice(["0.1", "12.50", "12.5", "99999999.99"]))),
                "weight": maybe(Decimal(chance.choice(["0.1", "0.10", "3", "1.000000000000001"]))),
                "tags": chance.sample(["red", "big", "a,b"], chance.randrange(3)),
                "size": maybe({"width": chance.randrange(3)}),
                "seen_at": maybe(f"2026-01-0{chance.randrange(1, 4)}T01:00:00+02:00"),
                "released": maybe(f"2026-01-0{chance.randrange(1, 4)}"),
                "is_new": chance.random() < 0.5,
                "status": chance.choice(["draft", "active"]),
                "brand": maybe(pick("brands", 6)),
            },
            "parts": lambda n: {"name": chance.choice(NAMES), "product": pick("products", 6)},
            "orders": lambda n: {
                "lines": [{"product": pick("products", 9), "count": chance.randrange(1, 4)} for _ in range(n % 3)],
                "after": maybe(f"or{chance.randrange(n)}") if n else None,
                "remark": chance.choice(NAMES),
                "gift": chance.random() < 0.5,
                "amount": chance.randrange(4),
                "secret": chance.choice(NAMES),
                "status": chance.choice(["open", "ended"]),
            },
            "jobs": lambda n: {
                "title": chance.choice(NAMES),
                "product": maybe(pick("products", 5)),
                "owner": maybe(pick("people", 5)),
                "grade": chance.randrange(4),
                "ticket": f"t{n}" if n % 2 else None,
            },
        }
        service = service_of(client.application)
        for name in HOPS:
            stored, records = service.stored[name], []
            for n, id in enumerate(ids[name]):
                of = {"orders": owner if n % 2 else "other"}.get(name)
                record = stored.restore(make[name](n), id=stored.resource.key(id), now=NOW, owner=of)
                self.items.setdefault(name, []).append(exactjson.decoded(stored.body(record)))
                if n % 3 == 0:  # as of a schema that did not have these fields yet
                    members = exactjson.cut(record.body)
                    known = {name: each for name, each in members.items() if bytes(each) != b"null"}
                    record = record._replace(body=exactjson.joined(known))
                records.append(record)
                self.owners[name, id] = of
            service.store.write(lambda transaction, of=name, all=records: transaction.insert_all(of, all))

    def value(self, collection: str, field: str, op: str) -> Any:
        """A value that an item has, or None."""
        found = [each for item in self.items[collection] for each in values_at(item, field) if each is not None]
        one, other = (self._chance.choice(found) for _ in range(2))
        if op in ("eq", "ne") and field in ("age", "price", "weight", "brand") and self._chance.random() < 0.2:
            return None
        if field == "weight" and self._chance.random() < 0.3:
            one += Decimal("1E-17")  # more digits than a double has
        if op == "is":
            return self._chance.choice(["null", "not_null"])
        if op in ("in", "nin"):
            return [value for value in (*found[:9], one, other) if "," not in str(value)][-2:]
        if op in ("like", "starts", "ends") and len(one) > 2:
            return {"like": one[1:2].upper(), "starts": one[:2], "ends": one[-2:]}[op]
        return one

    def joined(self, collection: str, name: str, item: Item, sees: str | None) -> list[Item]:
        """The items that a name leads to, of those that the caller sees."""
        hop = HOPS[collection][name]
        if (collection, name) not in self._joined:
            joined = self._joined[collection, name] = {}
            others = {each["id"]: each for each in self.items[hop.to]}
            for of in self.items[hop.to if hop.is_back else collection]:
                for id in {*values_at(of, hop.path)}:
                    start, end = (id, of["id"]) if hop.is_back else (of["id"], id)
                    if end in others:
                        joined.setdefault(start, []).append(others[end])
        found = self._joined[collection, name].get(item["id"], [])
        return [each for each in found if self.is_seen(hop.to, each, sees)]

    def has(self, collection: str, item: Item, sees: str | None, *terms: "Term") -> bool:
        """Whether one and the same item that a name leads to satisfies all of these."""
        others = self.joined(collection, terms[0].name, item, sees) if terms[0].name else [item]
        return any(all(satisfies(other, *each[1:]) for each in terms) for other in others)

    def term(self, collection: str, name: str | None = None) -> "Term":
        """A random filter, by this name before the dot or any; by none of a field of the item itself."""
        name = self._chance.choice([*HOPS[collection]]) if name is None else name
        hop = HOPS[collection].get(name, Hop(collection, ""))
        field = self._chance.choice([*FIELDS[hop.to]])
        op = self._chance.choice(FIELDS[hop.to][field].split())
        if op in ("ne", "nin") and (hop.is_back or "." in hop.path):
            return self.term(collection, name)
        return Term(name, field, op, self.value(hop.to, field, op))

    def query(self, collection: str, sees: str | None, form: int) -> tuple[dict[str, str], list[Item]]:
        """A random query of a form, and the items that it finds for a caller."""
        one, other = self.term(collection), self.term(collection, self._chance.choice([None, None, ""]))

        def has(item: Item, *terms: Term) -> bool:
            return self.has(collection, item, sees, *terms)

        def both(item: Item) -> bool:
            return has(item, one, other) if one.name == other.name else has(item, one) and has(item, other)

        if form == 1 and one[:3] == other[:3]:
            form = 0  # the repetition of a name has a meaning of its own
        forms: dict[int, tuple[dict[str, str], Callable[[Item], bool]]] = {
            0: ({one.parameter: one.text}, lambda item: has(item, one)),
            1: ({one.parameter: one.text, other.parameter: other.text}, both),
            2: ({"or": f"({one},{other})"}, lambda item: has(item, one) or has(item, other)),
            3: ({"not": f"({one},{other})"}, lambda item: not (has(item, one) or has(item, other))),
            4: ({"or": f"(version=7,not(and({one},{other})))"}, lambda item: not both(item)),
        }
        found = [item for item in self.seen(collection, sees) if forms[form][1](item)]
        return forms[form][0], sorted(found, key=lambda item: self.key(collection, item))

    def seen(self, collection: str, sees: str | None) -> list[Item]:
        """The items of a collection that a caller sees: all, or of those that have an owner its own."""
        return [each for each in self.items[collection] if self.is_seen(collection, each, sees)]

    def is_seen(self, collection: str, item: Item, sees: str | None) -> bool:
        return not sees or self.owners[collection, item["id"]] in (None, sees)

    @staticmethod
    def key(collection: str, item: Item) -> str:
        """The order of ids."""
        return f"{item['id']:>20}" if collection == "brands" else str(item["id"])


class Term(NamedTuple):
    """A filter: a name before the dot, a field, an operator, and a value."""

    name: str
    field: str
    op: str
    value: Any

    @property
    def parameter(self) -> str:
        return f"{self.name}.{self.field}[{self.op}]".removeprefix(".")

    @property
    def text(self) -> str:
        values = self.value if isinstance(self.value, list) else [self.value]
        if self.field == "seen_at" and self.op != "is":
            values = [datetime.fromisoformat(each).astimezone(ZONE).isoformat() for each in values]
        return ",".join(each if isinstance(each, str) else exactjson.dumps(each).decode() for each in values)

    def __str__(self) -> str:
        """As a part of a group."""
        return f'{self.parameter}="{self.text}"'


@pytest.fixture
def client() -> FlaskClient:
    config = Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off")
    return create_shop(config, shapes.RESOURCES, versions=shapes.VERSIONS).test_client()


def test_it_is_what_a_model_finds(client: FlaskClient) -> None:
    """Filters of one list on one collection, in `or` and in `not`, to an admin and to an owner, by page and total."""
    made = make_key(client, *READERS)
    owner = f"key:{made['id']}"
    world, partial = World(client, owner), 0
    for number in range(QUERIES):
        headers, sees = (ADMIN, None) if number // 6 % 3 else ({"X-API-Key": made["secret"]}, owner)
        collection = [*HOPS][number % len(HOPS)]
        query, expected = world.query(collection, sees, number // 7 % 5)
        response = client.get(f"/{collection}", query_string={"limit": MOST, "sort": "id", **query}, headers=headers)
        assert response.status_code == 200, (query, response.json)
        assert [each["id"] for each in response.json] == [each["id"] for each in expected], (collection, query, sees)
        assert response.headers["X-Total-Count"] == str(len(expected))
        partial += 0 < len(expected) < len(world.seen(collection, sees))
        field = COUNTED[collection]
        groups = client.get(f"/{collection}", query_string={"count": field, **query}, headers=headers).data
        counts = {each["value"]: each["count"] for each in exactjson.loads(groups)}
        assert counts == Counter(each[field] for each in expected)
        by, numbers = GROUPED[collection]
        arguments = {f"aggregate[{name}]": ",".join(numbers) for name in ("sum", "avg", "min", "max") if numbers}
        arguments |= {"count": ",".join(by), **query}
        groups = client.get(f"/{collection}", query_string=arguments, headers=headers)
        assert_groups(exactjson.loads(groups.data), expected, by, numbers)
    assert partial > QUERIES / 4


def assert_groups(groups: list[Item], items: list[Item], by: list[str], numbers: list[str]) -> None:
    """They are the groups of these items, each with the numbers that a plain loop finds."""

    def value(item: Item, name: str) -> Any:
        if not name.startswith("day("):
            return item[name]
        time = item[name[4:-1]]
        return time and datetime.fromisoformat(time).astimezone(UTC).date().isoformat()

    expected: dict[tuple[Any, ...], list[Item]] = {}
    for item in items:
        expected.setdefault(tuple(value(item, name) for name in by), []).append(item)
    found = {tuple(group["group"][name] for name in by): group for group in groups}
    assert {of: group["count"] for of, group in found.items()} == {of: len(all) for of, all in expected.items()}
    for group_key, group in found.items():
        for name in numbers:
            values = [Decimal(item[name]) for item in expected[group_key] if item[name] is not None]
            assert (group["min"][name], group["max"][name]) == (min(values, default=None), max(values, default=None))
            assert group["sum"][name] == (sum(values) if values else None)
            if not values:
                assert group["avg"][name] is None
            elif name in PLACES:
                assert abs(group["avg"][name] - sum(values) / len(values)) <= Decimal(5).scaleb(-PLACES[name] - 1)
            else:
                assert float(group["avg"][name]) == pytest.approx(float(sum(values) / len(values)))


def faults(client: FlaskClient, address: str, headers: dict[str, str] = ADMIN) -> str:
    response = client.get(address, headers=headers)
    assert response.status_code == 400, response.json
    return str(response.json["errors"][0]["detail"])


def test_who_may_not_read_the_other_collection_is_told_its_scope(client: FlaskClient) -> None:
    """In each form; and a private field is as one that there is not."""
    clerk = key(client, "products:read", "orders:read")
    for query in ("parts.name=x", "parts[is]=null", "or=(id=x,not(parts.name=x))", "brand.title=x"):
        response = client.get(f"/products?{query}", headers=clerk)
        scope = "brands:read" if "brand" in query else "parts:read"
        assert (response.status_code, scope in response.json["detail"]) == (403, True), query
    for name in ("secret", "secrets"):
        names = "orders.id, orders.lines.product, orders.lines.count, orders.after, orders.remark"
        assert f"there are: {names}" in faults(client, f"/products?orders.{name}[starts]=A", clerk)
        assert "orders.secret" not in faults(client, f"/products?orders.{name}=A", clerk)
    admin = faults(client, "/products?orders.secrets=A")
    assert "orders.secret, " in admin


@pytest.mark.needs("references")
def test_wrong_filters_say_what_is_right(client: FlaskClient) -> None:
    many = "is no operator where there can be several: write not="
    expected = {
        "/products?parts.name[ne]=x": f"{many}(parts.name=…)",
        "/products?parts.name[nin]=x": f"{many}(parts.name=…)",
        "/orders?lines.product.name[ne]=x": f"{many}(lines.product.name=…)",
        "/products?parts=x": "can only be parts[is]=null or parts[is]=not_null; a field is after a dot",
        "/products?parts[is]=x": "can only be parts[is]=null or parts[is]=not_null; a field is after a dot",
        "/products?brand.title[x]=y": "is no operator of title; there are: eq, ne, gt",
        "/products?brand.founded=x": "must be a date",
        "/parts?product.brand.title=x": "is not a parameter of this list; there are: product.id, ",
        "/parts?product._position=x": "is not a parameter of this list; there are: product.id, ",
        "/products?or=(parts.nam=x)": "has parts.nam, which is not a parameter of this list; there are: parts.id",
    }
    for address, detail in expected.items():
        assert faults(client, address).startswith(detail), address
    ids = "&".join(f"not=(parts.name=x{n})" for n in range(11))
    parts = ",".join(f"and(parts.name=x{n},name=x{n},sku=x{n})" for n in range(3))  # each in 9 of 27 clauses
    for query in (ids, f"or=({parts})"):
        assert "combined" in faults(client, f"/products?{query}")
    app = create_related(Config()).test_client()
    several = "is by one of several references: write reviews.writer.id[gt] or reviews.about.id[gt]"
    assert faults(app, "/people?reviews.id[gt]=x", {}) == several


def test_a_list_changes_with_the_other_collection(client: FlaskClient) -> None:
    """Its ETag, and what is cached of it; as one of names of an older version."""
    brand = client.post("/brands", json={"title": "Old"}, headers=ADMIN).json["id"]
    product = client.post("/products", json={"name": "Chair", "brand": brand}, headers=ADMIN).json["id"]
    order = client.post("/orders", json={"lines": [{"product": product}], "remark": "x"}, headers=ADMIN).json["id"]
    other = client.post("/brands", json={"title": "Mid"}, headers=ADMIN).json["id"]
    last = client.post("/products", json={"name": "Desk", "brand": other}, headers=ADMIN).json["id"]
    expected = {
        "/products?brand.title=Old": [product],
        "/api/v1/orders?orders.note=x": [],
        "/products?sort=-brand.title": [product, last],
        "/products?fields=id,brand.title": [product, last],
        "/products?count=name&brand.title=Old": [None],
    }
    tags = {}
    for address, found in expected.items():
        first = client.get(address, headers=ADMIN)
        assert [each.get("id") for each in first.json] == found
        tags[address] = {**ADMIN, "If-None-Match": first.headers["ETag"]}
        assert client.get(address, headers=tags[address]).status_code == 304
    client.patch(f"/brands/{brand}", json={"title": "A new one"}, headers=ADMIN)
    client.post("/orders", json={"remark": "x", "after": order}, headers=ADMIN)
    assert [client.get(address, headers=tag).status_code for address, tag in tags.items()] == [200] * len(tags)
    assert client.get("/products?brand.title=Old", headers=ADMIN).json == []
    assert [each["id"] for each in client.get("/products?sort=-brand.title", headers=ADMIN).json] == [last, product]
    assert client.get("/api/v1/orders?orders.note=x", headers=ADMIN).json[0]["id"] == order


def test_filters_hold_for_different_items_unless_they_are_in_one_and(client: FlaskClient) -> None:
    """Where an alternative is alone, or a denial denied, it is still another filter than those beside it."""
    brand = client.post("/brands", json={"title": "One"}, headers=ADMIN).json["id"]
    for name, status in (("Chair", "draft"), ("Desk", "active")):
        product = client.post("/products", json={"name": name, "brand": brand}, headers=ADMIN).json["id"]
        client.patch(f"/products/{product}", json={"status": status}, headers=ADMIN)
    chair, active = "products.brand.name=Chair", "products.brand.status=active"
    expected = {
        f"{chair}&{active}": [],
        f"or=(and({chair},{active}))": [],
        f"{chair}&or=({active})": [brand],
        f"or=({chair})&or=({active})": [brand],
        f"not=(not({chair}),not({active}))": [brand],
    }
    found = {query: client.get(f"/brands?{query}", headers=ADMIN).json for query in expected}
    assert {query: [each["id"] for each in items] for query, items in found.items()} == expected


def test_a_client_that_asks_again_is_told_of_the_next_page(client: FlaskClient) -> None:
    """Although the items on its own page are the same: of a list that other collections or other owners change."""
    made = make_key(client, "orders:read", "orders:write")
    for headers, query in ((ADMIN, "after.remark=first"), ({"X-API-Key": made["secret"]}, "amount=5")):

        def create(of: dict[str, str] = headers, **body: Any) -> Any:
            return client.post("/orders", json={"amount": 5, **body}, headers=of).json["id"]

        first = create(remark="first", amount=0)
        for _ in range(4):
            create(after=first)
        address = client.get(f"/orders?limit=2&{query}", headers=headers).headers["Link"]
        address = next(each for each in address.split(", ") if "next" in each)[1:].partition(">")[0]
        page = client.get(address, headers=headers)
        again = {**headers, "If-None-Match": page.headers["ETag"]}
        assert client.get(address, headers=again).status_code == 304
        assert "next" not in page.headers["Link"]
        create(after=first)
        changed = client.get(address, headers=again)
        assert (changed.json, 'rel="next"' in changed.headers["Link"]) == (page.json, True)


def test_the_etag_of_groups_tells_nothing_of_other_owners(client: FlaskClient) -> None:
    """Not even that they have the first item, or the second one."""
    made = make_key(client, "orders:read", "orders:write")
    mine = {"X-API-Key": made["secret"]}
    client.post("/orders", json={"amount": 5}, headers=mine)
    for query in ("aggregate[sum]=amount", "count=status", "count=status,gift", "count=month(created_at)"):
        before = client.get(f"/orders?{query}", headers=mine).headers["ETag"]
        hidden = client.post("/orders", json={"amount": 7}, headers=ADMIN).json["id"]
        assert client.get(f"/orders?{query}", headers=mine).headers["ETag"] == before, query
        client.delete(f"/orders/{hidden}", headers=ADMIN)


def test_functions_and_views_have_the_same_filters(client: FlaskClient) -> None:
    """Of a function, others wait for what it reads: each hop needs an index."""
    application = client.application
    brand = client.post("/brands", json={"title": "For functions"}, headers=ADMIN).json["id"]
    product = client.post("/products", json={"name": "Lamp", "brand": brand}, headers=ADMIN).json["id"]
    client.post("/parts", json={"name": "Bulb", "product": product}, headers=ADMIN)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("products", {"brand.title": "For functions"}),
        ("products", {"brand.title": ["For functions", "x"], "name": "Lamp"}),
        ("brands", {"products.brand.status": "draft", "products.brand.name": "Lamp"}),
        ("products", {"name": "Lamp", "sort": "-brand.title"}),
    ]

    def ask(unit: Unit) -> None:
        def find(items: Items) -> None:
            for collection, parameters in asked:
                (item,) = items.find(collection, parameters)
                assert item["id"] in (brand, product) and items.count(collection, parameters) == 1
            with pytest.raises(ValueError, match=r"Index\('name'\) of parts"):
                items.find("products", {"parts.name": "Bulb"})
            for some in ({"not": "(products.brand.status=draft)"}, {"or": "(products.brand.status=draft,title=x)"}):
                with pytest.raises(ValueError, match="need an index"):  # they would read all brands
                    items.find("brands", some)

        invoke(unit.items, find, unit.items)

    service_of(application).write(ask)
    with application.test_request_context():
        for collection, parameters in (*asked, ("products", {"parts.name": "Bulb"})):
            (item,) = find_items(collection, parameters)
            assert item["id"] in (brand, product)


def test_a_member_of_an_item_is_not_mistaken_for_what_is_joined(tmp_path: Path) -> None:
    """In a file its own member wins, whatever is in it; a service is refused at its start. Ids are texts or numbers."""
    data: dict[str, Any] = {
        "posts": [{"id": 1, "comments": [{"body": "own"}]}, {"id": "x"}, {"id": "0000000000000001"}],
        "comments": [{"id": n, "body": f"b{n}", "postId": id} for n, id in enumerate([1, "1", "x", None, 9])],
        "tags": [{"id": 1, "postId": "0000000000000001"}, {"id": 2, "postId": 1}],
    }
    own = client_of(tmp_path, data)
    assert [each["id"] for each in own.get("/posts?comments.body=own").json] == [1]
    assert own.get("/posts?comments.body=b0").json == []
    del data["posts"][0]["comments"]
    client = client_of(tmp_path, data)
    expected = {
        "/posts?comments.body=b1": [1],
        "/posts?comments.body[in]=b0,b2": [1, "x"],
        "/posts?comments[is]=null": ["0000000000000001"],
        "/posts?tags.id=1": ["0000000000000001"],
        "/posts?tags[is]=not_null&comments.body=b0": [1],
        "/comments?post.id=1": [0, 1],
        "/comments?post.id[ne]=1": [2],
        "/comments?post[is]=null": [3, 4],
        "/comments?post.nothing=null": [0, 1, 2],
        "/tags?post.id=0000000000000001": [1],
    }
    assert {address: [each["id"] for each in client.get(address).json] for address in expected} == expected

    class UserSchema(ItemSchema):
        orders = fields.Nested(Schema.from_dict({"user": Text(1, 9, required=True)}), required=True)

    class OrderSchema(ItemSchema):
        user = Reference("users", required=True)

    resources = [Resource("users", "user", UserSchema), Resource("orders", "order", OrderSchema)]
    with pytest.raises(ValueError, match=r"users: orders\.user: is a field, and what leads to orders"):
        create_shop(Config(), resources)


PATHS = {  # of fields that can be shown, also inside objects and in what is embedded
    "people": ["id", "name", "manager.name", "manager.age", "people.name", "jobs.title", "jobs.owner"],
    "products": [
        "name",
        "size.width",
        "size",
        "tags",
        "attributes.a",
        "brand.title",
        "parts.name",
        "orders.lines.count",
    ],
    "parts": ["id", "product.size.unit", "product.name", "product.tags"],
    "orders": ["remark", "lines.count", "lines.product.name", "lines.product.size.width", "after.amount", "orders.id"],
    "jobs": ["title", "owner.name", "product.name", "grade"],
}


def reduced(value: Any, paths: list[list[str]]) -> Any:
    """A value with only what is at some paths; a list stands for each of its elements, and null stays."""
    if isinstance(value, list):
        return [reduced(each, paths) for each in value if [] in paths or isinstance(each, dict | list)]
    if not isinstance(value, dict) or [] in paths:
        return value
    first = {path[0] for path in paths}
    inner = {name: [path[1:] for path in paths if path[0] == name] for name in first}
    return {name: reduced(each, inner[name]) for name, each in value.items() if name in first}


def test_fields_lead_into_objects_and_into_related_items(client: FlaskClient) -> None:
    """What is shown is a part of what `embed` shows, of a list and of one item, to an admin and to an owner."""
    made = make_key(client, *READERS)
    World(client, f"key:{made['id']}")
    chance = random.Random(4)  # noqa: S311
    for number in range(150):
        headers = ADMIN if number % 3 else {"X-API-Key": made["secret"]}
        collection = chance.choice([*PATHS])
        paths = chance.sample(PATHS[collection], chance.randrange(1, 4))
        hops = {path: name for path in paths for name in HOPS[collection] if path.startswith(f"{name}.")}
        whole = client.get(
            f"/{collection}?limit=100&embed={','.join(hops.values())}".removesuffix("embed="), headers=headers
        )
        backs = [[f"{name}_next"] for name in hops.values() if f"{name}_next" in whole.json[0]]
        expected = [reduced(item, [*(path.split(".") for path in paths), *backs]) for item in whole.json]
        found = client.get(f"/{collection}?limit=100&fields={','.join(paths)}", headers=headers)
        assert found.json == expected, (collection, paths)
        one = client.get(f"/{collection}/{whole.json[3]['id']}?fields={','.join(paths)}", headers=headers)
        assert one.json == expected[3]
    clerk = key(client, "products:read")
    assert client.get("/products?fields=parts.name", headers=clerk).status_code == 403
    assert faults(client, "/products?fields=brand.titel").startswith("cannot be 'brand.titel'; there are: brand.id, ")
    assert faults(client, "/products?fields=size.x").startswith("cannot be 'size.x'; there are: id, ")
    assert faults(client, "/products?fields=orders.secret", key(client, *READERS)).startswith(
        "cannot be 'orders.secret'"
    )


def test_fields_lead_into_what_a_file_has(tmp_path: Path) -> None:
    """Whatever is at a path."""
    author = [{"name": "Ann", "age": 3}, [{"name": "Bo"}, 5], "x", None, {"age": 7}]
    data = {"posts": [{"id": n, "author": each} for n, each in enumerate(author)], "notes": [{"id": 1, "postId": 1}]}
    client = client_of(tmp_path, data)
    found = [each for each in client.get("/posts?fields=author.name").json]
    assert found == [{"author": {"name": "Ann"}}, {"author": [{"name": "Bo"}]}, {}, {"author": None}, {"author": {}}]
    assert client.get("/notes?fields=post.id,id").json == [{"id": 1, "post": {"id": 1}}]


SORTED = {"people": "age", "parts": "name", "orders": "amount", "products": "price", "jobs": "ticket"}


def test_embedded_lists_have_filters_an_order_and_a_length(client: FlaskClient) -> None:
    """As a model has it, for an admin and an owner; `…_next` leads to exactly the others."""
    made = make_key(client, *READERS)
    owner = f"key:{made['id']}"
    world, chance, followed = World(client, owner), random.Random(6), 0  # noqa: S311
    backs = [(of, name, hop) for of, hops in HOPS.items() for name, hop in hops.items() if hop.is_back]
    for number in range(90):
        headers, sees = (ADMIN, None) if number % 3 else ({"X-API-Key": made["secret"]}, owner)
        of, name, hop = chance.choice(backs)
        term, is_down, limit = world.term(of, name), chance.random() < 0.5, chance.randrange(1, 4)
        where = f"({term._replace(name='')})"
        query = {"limit": 100, "embed": name, f"limit[{name}]": limit, f"where[{name}]": where}
        query |= {f"sort[{name}]": f"{'-' * is_down}{SORTED[hop.to]}", f"fields[{name}]": "id"}
        response = client.get(f"/{of}", query_string=query, headers=headers)
        assert response.status_code == 200, response.json
        for item in response.json:
            found = [each for each in world.joined(of, name, item, sees) if satisfies(each, *term[1:])]
            text = SORTED[hop.to] in ("name", "ticket")

            def place(each: Item, to: str = hop.to, text: bool = text) -> Any:
                value = each[SORTED[to]]
                return (value or "") if text else (value is not None, value or 0), world.key(to, each)

            expected = [{"id": each["id"]} for each in sorted(found, key=place, reverse=is_down)]
            assert item[name] == expected[:limit], (of, query, item["id"])
            assert bool(item[f"{name}_next"]) is (len(expected) > limit)
            if item[f"{name}_next"]:
                rest = client.get(item[f"{name}_next"], headers=headers).json
                assert [{"id": each["id"]} for each in rest] == expected[limit:], item[f"{name}_next"]
                followed += 1
    assert followed > 20


def test_wrong_parameters_of_embedded_lists(client: FlaskClient) -> None:
    expected = {
        "/products?limit[parts]=3": "is about what is not embedded: write embed=parts",
        "/products?embed=parts&limit[parts]=0": "must be a whole number from 1 to 1000",
        "/products?embed=parts&limit[parts]=1001": "must be a whole number from 1 to 1000",
        "/products?embed=parts&sort[parts]=x": "cannot be 'x'; there are: id, name, product",
        "/products?embed=parts&where[parts]=name=x": "must be filters like (status=open,total[gte]=100), a value",
        "/products?embed=parts&where[parts]=(product.name=x)": "has product.name, which is not a parameter of",
        "/products?embed=parts&fields[parts]=x": "cannot be 'x'; there are: id, name, product",
        "/products?embed=brand&where[brand]=(title=x)": "is for lists, and this is what the item refers to",
        "/products?embed=orders&where[orders]=(secret=x)": "has secret, which is not a parameter of this list",
    }
    reader = key(client, *READERS)
    for address, detail in expected.items():
        assert faults(client, address, reader).startswith(detail), address
    World(client, "nobody")
    with mock.patch.object(embedding, "MOST_CHOSEN", 5):
        assert "would add more than 5 items here" in faults(client, "/products?embed=parts&limit[parts]=9")
        assert len(client.get("/products?embed=parts", headers=ADMIN).json) == 14


ORDERED = {  # what a list can be sorted by, in the collection that a name leads to
    "people": ["manager.name", "manager.age", "manager.id"],
    "products": ["brand.title", "brand.id", "brand.created_at"],
    "parts": ["product.price", "product.weight", "product.name", "product.is_new"],
    "orders": ["after.amount", "after.remark"],
    "jobs": ["product.price", "owner.age", "owner.name", "product.seen_at"],
}


def test_an_order_leads_to_related_items(client: FlaskClient) -> None:
    """Each item is there once, page by page in both directions, and null where there is none, for each caller."""
    made = make_key(client, *READERS)
    owner = f"key:{made['id']}"
    world, chance = World(client, owner), random.Random(8)  # noqa: S311
    most = 4 if MOST == 14 else 150
    for number in range(QUERIES // 10):
        headers, sees = (ADMIN, None) if number % 3 else ({"X-API-Key": made["secret"]}, owner)
        of = chance.choice([*ORDERED])
        paths, is_down = chance.sample(ORDERED[of], chance.randrange(1, 3)), chance.random() < 0.5

        def place(item: Item, of: str = of, paths: list[str] = paths, sees: str | None = sees) -> Any:
            found = list[Any]()
            for name, _, field in (path.partition(".") for path in paths):
                values = [each[field] for each in world.joined(of, name, item, sees)]
                known = [each[field] for each in world.items[HOPS[of][name].to] if each[field] is not None]
                lowest = "" if isinstance(known[0], str) else -1
                found.append(lowest if values in ([], [None]) else values[0])
            return *found, world.key(of, item)

        name, path = paths[0].partition(".")[0], f",{'-' * is_down}".join(paths)
        filters = chance.choice(["", "&version=1", f"&{name}.version=1"])
        seen = [each for each in world.seen(of, sees) if name not in filters or world.joined(of, name, each, sees)]
        expected = [each["id"] for each in sorted(seen, key=place, reverse=is_down)]
        address = f"/{of}?limit={most}&sort={'-' * is_down}{path}{filters}"
        found, last = list[Any](), ""
        while address:
            response = client.get(address, headers=headers)
            assert response.status_code == 200, response.json
            found += [each["id"] for each in response.json]
            links = dict(re.findall(r'<([^>]*)>; rel="(\w+)"', response.headers["Link"]))
            named = {rel: target for target, rel in links.items()}
            last, address = named.get("last", last), named.get("next", "")
        assert found == expected, (of, path, is_down, filters)
        end = client.get(last, headers=headers).json
        assert [each["id"] for each in end] == expected[-most:]


def test_an_older_version_has_its_own_names_of_related_items() -> None:
    """In filters, fields and orders, and in those of embedded lists."""
    client = create_related(Config()).test_client()
    people = [client.post("/people", json={"name": name}).json["id"] for name in ("Bo", "Ann")]
    orders = [client.post("/orders", json={"customer": id}).json["id"] for id in people]
    expected: dict[str, Any] = {
        "/api/v1/orders?buyer.label=Ann&fields=id": [{"id": orders[1]}],
        "/api/v1/orders?sort=-buyer.version,buyer.reviews&fields=id,buyer.label": [
            {"id": id, "buyer": {"label": label}} for id, label in zip(orders, ("Bo", "Ann"), strict=True)
        ],
        f"/api/v1/people?embed=orders&where[orders]=(buyer={people[0]})&fields[orders]=buyer&fields=label": [
            {"label": "Bo", "orders": [{"buyer": people[0]}], "orders_next": None},
            {"label": "Ann", "orders": [], "orders_next": None},
        ],
    }
    assert {address: client.get(address).json for address in expected} == expected
    for name in ("customer.name=Ann", "sort=customer.version", "buyer.name=Ann", "fields=buyer.name"):
        assert client.get(f"/api/v1/orders?{name}").status_code == 400, name


def test_wrong_orders_by_related_items(client: FlaskClient, tmp_path: Path) -> None:
    clerk = key(client, "products:read", "orders:read")
    assert client.get("/products?sort=brand.title", headers=clerk).status_code == 403
    assert faults(client, "/products?sort=parts.name").startswith("cannot be 'parts.name': an item can have several")
    assert faults(client, "/orders?sort=-lines.product.name").startswith("cannot be 'lines.product.name': an item")
    assert faults(client, "/orders?sort=after.secret", clerk).startswith(
        "cannot be 'after.secret'; there are: after.id"
    )
    assert faults(client, "/products?sort=brand.title,-brand.title") == "names a field twice"
    ids: list[Any] = [1, "x", "0000000000000001", 2]
    posts = [{"id": id, "rank": rank} for id, rank in zip(ids, [3, 1, 2, 0], strict=True)]
    notes = [{"id": n, "postId": id} for n, id in enumerate([1, "1", "x", "0000000000000001", None, 9])]
    file = client_of(tmp_path, {"posts": posts, "notes": notes})
    assert [each["id"] for each in file.get("/notes?sort=post.rank").json] == [4, 5, 2, 3, 0, 1]
