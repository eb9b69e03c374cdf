"""What the service answers to 20,000 requests on each store, to see that a change of the code changes no response.

`python -m tests.record --against COMMIT` makes the requests with the engine of a commit and with the present one, and
prints what differs. `--write FOLDER` stores the responses, and `--compare FOLDER` compares with stored ones: status,
header fields, body, and on PostgreSQL the number of round trips. `--faults` plants each fault of `tests/planted.toml`
in the present engine, and prints the number of the first request that shows it.

A random script makes the requests. It does not depend on responses: in it `@parts7@` is the id, and `@parts7.2@` the
third id, of the response to request 7, or of a former part if there is none; `@tag7@` is its ETag, `@date7@` its
Last-Modified, and `@next7@`, `@prev7@` and `@last7@` are the addresses of other pages. Ids, ETags, cursors and times
have the number of the request that showed them first in place of their value.
"""

import argparse
import gzip
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from hashlib import blake2b
from io import BytesIO
from itertools import count, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

from restkeeper import Config, create_app
from restkeeper.features import idempotency
from restkeeper.service import service_of
from restkeeper.storage.postgresql.session import Session
from tests.callers import ADMIN, ADMIN_KEY, key
from tests.clock import SetClock
from tests.issuer import token, trusted
from tests.postgresql.wire import Wire, counted, filled
from tests.postgresql_server import PostgresServer
from tests.shapes import RESOURCES, VERSIONS

ROOT = Path(__file__).parent.parent
ENGINE = ROOT / "restkeeper"
PLANTED = ROOT / "tests" / "planted.toml"
SEED = 1
REQUESTS = 20_000
STORES = ("sqlite", "postgresql")
FIRST = 1_800_000_000.0  # the time of the first request, in seconds since 1970
STEP = 1.003  # seconds between two requests
SHOWN = 25  # differences that are printed
UNCOMPARED = {"Date", "X-Request-Id", "Server"}  # header fields
SYMBOL = re.compile(r"@([a-z]+)(\d+)(?:\.(\d+))?@")
VALUES = re.compile(
    r"(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"
    r"|(?P<tag>\b[0-9a-f]{24}\b)"
    r"|(?P<store>(?<=evt_)[0-9a-f]{8}(?=_)|(?<=\")[0-9a-f]{8}(?=-[0-9a-f]+-))"
    r"|(?P<request>\b[0-9a-f]{32}\b)"
    r"|(?P<key>\bkey:[0-9a-f]{16}\b)"
    r"|(?P<time>\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)"
    r"|(?<=[?&]cursor=)(?P<cursor>[\w-]+)"
    r"|(?<=[?&]after=)(?P<after>[\w-]+)"
)
ALL = tuple(each.name for each in RESOURCES)
FIELDS = {
    each.name: {name: field for name, field in each.schema().fields.items() if not field.dump_only}
    for each in RESOURCES
}
# Fields that items of an older version have, or those of an open collection, each as often as its name is here.
OTHERS = {
    "products": ["grams"],
    "orders": ["note", "channel", "channel", "channel"],
    "posts": ["views", "labels", "author", "opt_in"],
}
READ = tuple(f"{name}:read" for name in ALL)
WRITE = tuple(f"{name}:write" for name in ALL if name != "logs")
BOTH = [*READ, *WRITE]
ALL_OWNERS = ["orders:all", "jobs:all", "notes:all"]
CALLERS = {  # with their scopes, and the owners whose items they have
    "ada": ([*BOTH, "orders:pay"], ["ada"]),
    "bob": (BOTH, ["bob", "team"]),
    "team": ([*BOTH, "orders:secrets"], ["team"]),
    "staff": ([*BOTH, *ALL_OWNERS, "orders:pay", "orders:secrets", "jobs:grade"], ["staff"]),
    "reader": ([*READ], ["ada"]),
    "clerk": (["products:read", "products:write", "products:archive", "orders:write"], ["ada"]),
    "mona": ([*BOTH, "orders:secrets"], ["mona"]),
    "lisa": (BOTH, ["mona"]),
}
SAME = {"mona": "lisa", "lisa": "mona"}  # two tokens of one subject: the second one has fewer scopes


class Request(NamedTuple):
    """A request of the script."""

    caller: str
    method: str
    path: str
    body: Any
    headers: dict[str, str]


class Script:
    """A random script of requests: the same for the same seed."""

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._made: dict[str, list[str]] = {name: [] for name in ALL}  # symbols of the ids of each collection
        self._posts: list[Request] = []  # with an idempotency key
        self._read: list[int] = []  # requests that had an ETag, if they succeeded
        self._lists: list[tuple[int, str]] = []
        self._feeds: list[int] = []
        self.requests: list[Request] = []

    def write(self, number: int) -> list[Request]:
        """So many requests."""
        kinds: list[tuple[int, Callable[[], Request]]] = [
            (26, self._create),
            (12, self._read_item),
            (24, self._list),
            (5, self._next_page),
            (14, self._change),
            (6, self._delete),
            (6, self._act),
            (7, self._batch),
            (4, self._replay),
            (3, self._nested),
            (5, self._follow),
            (12, self._again),
            (3, self._repeat),
            (5, self._family),
            (2, self._own_job),
            (2, self._mistake),
        ]
        weights, makers = zip(*kinds, strict=True)
        while len(self.requests) < number:
            request = self._create() if len(self.requests) < 60 else self._random.choices(makers, weights)[0]()
            self._posts += [request] if "Idempotency-Key" in request.headers else []
            self.requests.append(request)
        return self.requests

    # Parts of requests

    def _one(self, *values: Any) -> Any:
        return self._random.choice(values)

    def _may(self, probability: float) -> bool:
        return self._random.random() < probability

    def _caller(self) -> str:
        weights = (25, 25, 12, 8, 15, 6, 6, 12, 6, 2, 1)
        return str(self._random.choices(["admin", *CALLERS, "nobody", "stranger"], weights)[0])

    def _collection(self) -> str:
        weights = (8, 6, 24, 8, 22, 16, 5, 8, 3, 5)
        return self._random.choices(ALL, weights)[0]

    def _base(self, name: str) -> str:
        return f"{self._one('', '', '', '/api/v1', '/api/v2')}/{name}"

    def _id(self, name: str) -> str:
        """The symbol of an item of a collection, mostly of a recent one; at times one that there is not."""
        made = self._made[name]
        if name == "settings":
            return "settings"
        if not made or self._may(0.01):
            return self._one("7", "none", "01a22389-a821-76db-be20-7ff518a2500d")
        return made[-min(int(self._random.expovariate(1 / 25)) + 1, len(made))]

    def _path(self, name: str) -> str:
        base = self._base(name)
        return base if name == "settings" else f"{base}/{self._id(name)}"

    def _text(self) -> str:
        return self._one(
            "Lamp", "Desk", "Chair, old", 'the "best"', "Ökonom", "lamp", "Ω", "a", "x" * 61, "", 5, None, "a.c (5*)"
        )

    def _name(self) -> str:
        return f"{self._one('Lamp', 'Desk', 'Chair', 'Ökonom')} {self._random.randrange(40)}"

    def _value(self, field: str, of: Any) -> Any:
        """A value of a field, or nearly one."""
        number = self._random.randrange(1000)
        kind, null = type(of).__name__, [None] * bool(of and of.allow_none)
        if kind == "Status":
            return self._one(*of.lifecycle.moves, "lost")
        if kind in ("Reference", "IntegerReference"):
            return self._one(self._id(of.to), self._id(of.to), *null)
        named: dict[str, list[Any]] = {
            "sku": [f"S-{number}"],
            "ticket": [f"T-{number % 100}"],
            "title": [f"Title {number * self._one(1, 2)}"],
            "grams": [5, None],
            "note": [self._name()],
            "channel": ["shop"],
            "views": [number, -number, str(number), 1.50, None, True],
            "labels": [["red", {"shade": "deep"}], ["blue"]],
            "author": [{"name": "Ann"}, {"name": "Bob", "age": 5}, "Ann"],
            "opt_in": [True, False],
        }
        typed: dict[str, list[Any]] = {
            "Text": [self._name()],
            "Email": [f"{self._one('a', 'A', 'b')}{number % 300}@example.org"],
            "Owner": ["ada", "bob", "team", "mona"],
            "Whole": [number % 11, 50 + number % 99, number, 5.0],
            "Money": [9.5, 12.25, number, number / 100],
            "ListOf": [[], ["office"], ["office", "new"], ["a", "b", "c"]],
            "JsonObject": [{}, {"colour": "red"}, {"colour": "blue", "size": 5}, {"a": {"b": [1.10]}}],
            "Time": ["2026-01-31T10:00:00Z", "2026-01-31T10:00:00+01:00", "2026-02-28T10:00:00.5Z"],
            "Decimal": ["1.50", "1.5", 2, 1e2, 0.3],
            "Float": [0.1, 2.5, 3, "2.5"],
            "Nested": [{}, {"width": 5}, {"width": 5, "unit": "m"}, {"width": -1}, {"depth": 1}],
            "Date": ["2026-01-31", "2026-02-01", "20010203"],
            "UUID": ["12345678-1234-4234-8234-1234567890AB"],
            "Boolean": [True, False, "yes", "off"],
            "List": [[self._line() for _ in range(self._random.randrange(3))]],
        }
        return self._one(*(named.get(field) or typed[kind]), *null)

    def _field(self, name: str) -> tuple[str, Any]:
        """A field and a value, which in one of some cases is none of the field."""
        own = FIELDS[name]
        field = self._one(*own, *OTHERS.get(name, ()))
        return field, self._text() if self._may(0.06) else self._value(field, own.get(field))

    def _line(self) -> dict[str, Any]:
        return {"product": self._id("products"), **({"count": self._one(1, 1, 2, 3)} if self._may(0.6) else {})}

    def _body(self, name: str, *, whole: bool = True) -> dict[str, Any]:
        """An item, with some optional fields; or a part of one."""
        body: dict[str, Any] = {}
        if whole and self._may(0.97):
            body = {field: self._value(field, of) for field, of in FIELDS[name].items() if of.required}
        if whole and name == "orders":
            body |= {"lines": [self._line()]} if self._may(0.8) else {}
            body |= {"after": self._id("orders")} if self._may(0.3) else {}
        for _ in range(self._one(0, 1, 1, 2, 3)):
            body |= [self._field(name)]
        if name in ("jobs", "posts") and whole and self._may(0.6):
            body["id"] = f"job-{self._random.randrange(3000)}" if name == "jobs" else self._random.randrange(1, 5000)
        if self._may(0.01):
            body["unknown"] = 1
        if self._may(0.02):
            body |= {self._one("version", "created_at", "writes", "pieces"): 1, self._one("name", "lines"): ""}
        return body

    def _key(self, probability: float) -> dict[str, str]:
        return {"Idempotency-Key": f"key-{len(self.requests)}"} if self._may(probability) else {}

    def _condition(self) -> dict[str, str]:
        """At times a condition: on the present state of some item, a former one, any, or none."""
        if not self._may(0.3) or not self._read:
            return {}
        recent = self._read[-min(int(self._random.expovariate(1 / 15)) + 1, len(self._read))]
        tag = self._one(f"@tag{recent}@", f"@tag{recent}@", "*", '"other"', f'"x", @tag{recent}@')
        moment = self._one("Mon, 01 Jan 2024 00:00:00 GMT", "Thu, 01 Jan 2099 00:00:00 GMT")
        return {
            **self._one({"If-Match": tag}, {"If-Match": tag}, {"If-None-Match": tag}, {"If-Unmodified-Since": moment}),
            **({"If-Modified-Since": moment} if self._may(0.1) else {}),
        }

    def _made_here(self, name: str, *, index: int | None = None) -> None:
        number = len(self.requests)
        self._made[name].append(f"@{name}{number}@" if index is None else f"@{name}{number}.{index}@")

    # Kinds of requests

    def _create(self) -> Request:
        name = self._collection() if self._may(0.8) else self._one("products", "orders")
        path = self._base(name)
        query = f"?owner={self._one('ada', 'bob', 'team')}" if name == "orders" and self._may(0.15) else ""
        headers = self._key(0.4) | (self._condition() if self._may(0.1) else {})
        body: Any = self._body(name)
        if self._may(0.1):
            body = [self._body(name) for _ in range(self._random.randrange(1, 5))]
            body += body[:1] if self._may(0.2) else []
            for index in range(len(body)):
                self._made_here(name, index=index)
        else:
            self._made_here(name)
        self._read.append(len(self.requests))
        return Request(self._caller(), "POST", path + query, body, headers)

    def _read_item(self) -> Request:
        name = self._collection()
        embeds = {
            "products": ["brand", "parts", "jobs", "brand,parts", "orders"],
            "orders": ["lines.product", "after", "orders", "lines.product,after"],
            "parts": ["product"],
            "people": ["manager", "people", "jobs"],
            "brands": ["products"],
            "jobs": ["owner", "product", "people"],
        }
        query = ""
        if self._may(0.3) and name in embeds:
            query = f"?embed={self._one(*embeds[name])}"
        elif self._may(0.2):
            query = f"?fields={self._one('id', 'name,version', 'id,secret', 'status,remark', 'grams', 'label')}"
        self._read.append(len(self.requests))
        return Request(
            self._caller(), self._one("GET", "GET", "GET", "HEAD"), self._path(name) + query, None, self._condition()
        )

    def _filter(self, name: str) -> str:
        """A parameter that filters a list, as it is in a query."""
        field, value = self._field(name)
        if self._may(0.15):
            field = self._one("id", "created_at", "version", "updated_at")
            value = {"id": self._id(name), "version": self._one(1, 2)}.get(field, "2027-01-15T08:30:00.000000Z")
        if isinstance(value, dict):
            inner = self._one(*value) if value else "width"
            field, value = f"{field}.{inner}", value.get(inner, 5)
        if isinstance(value, list):
            value = value[0] if value else "office"
            if isinstance(value, dict):
                field, value = f"{field}.product", value["product"]
        text = value if isinstance(value, str) else json.dumps(value)
        is_long = field in ("price", "score", "weight") and self._may(0.3)
        if is_long:  # more digits than a double has
            text = f"{self._one(1, 9)}.50000000000000000000001"
        operators = "gte lt gt lte ne in nin like starts ends".split()
        operator = self._one("", "", "", *(f"[{each}]" for each in operators))
        if operator in ("[like]", "[starts]", "[ends]") and self._may(0.6):
            text = text[: len(text) // 2] if operator == "[starts]" else text[len(text) // 2 :]
        if operator in ("[in]", "[nin]"):
            text = ",".join([text, *(str(other) for same, other in map(self._field, [name] * 8) if same == field)])
        if not operator and self._may(0.1):  # any of two values
            text += f"&{field}={self._one('active', 'lamp', 'Desk 7', '5', 'true')}"
        operator = operator or ("[lt]" if is_long else "")
        return f"{field}{operator}={text.replace('+', '%2B')}"

    def _list(self) -> Request:
        name = self._collection()
        name = "people" if name == "settings" else name
        parts = [self._filter(name) for _ in range(self._one(0, 0, 1, 1, 1, 2))]
        if self._may(0.12):
            one, two, three = (self._filter(name).partition("&")[0] for _ in range(3))
            parts += self._one(
                [f"or=({one},{two})"],
                [f"not=({one},{two})"],
                [f"or=({one},{two})", f"or=({two},{three})"],
                [f"or=({one},not({two}),and({three},not({one})))"],
                [f"not=({one},not({two},{three}))"],
            )
        sorts = "name -created_at price,-name -age status title -id views amount remark".split()
        embeds = "brand parts lines.product product owner jobs after".split()
        parts += [
            parameter
            for probability, parameter in (
                (0.4, f"sort={self._one(*sorts, *['price,-name'] * 9 * (name == 'products'))}"),
                (0.4, f"limit={self._one(1, 2, 3, 5, 50, 0)}"),
                (0.1, f"offset={self._one(0, 1, 5)}"),
                (0.1, f"fields={self._one('id', 'name', 'id,status', 'title', 'secret')}"),
                (0.1, f"embed={self._one(*embeds)}"),
                (0.06, f"q={self._one('lamp', 'Öko', '3', 'off', 'red', 'deep')}"),
                (0.08, f"count={self._one('status', 'brand', 'is_new', 'views', 'grade', self._field(name)[0])}"),
            )
            if self._may(probability)
        ]
        if any(each.startswith("count=") for each in parts) and len(self.requests) % 4:  # else most are refused
            parts = [each for each in parts if not each.startswith(("sort=", "limit=", "offset=", "fields=", "embed="))]
        if self._may(0.08):
            old = ("_page=1&_limit=2", "_sort=name&_order=desc", "price_gte=5", "_start=1&_end=3", "range=[0,1]")
            parts = [self._one(*old)]
        path = self._base(name) + ("?" + "&".join(parts) if parts else "")
        self._lists.append((len(self.requests), path))
        self._read.append(len(self.requests))
        return Request(self._caller(), "GET", path, None, self._condition() if self._may(0.3) else {})

    def _next_page(self) -> Request:
        if not self._lists:
            return self._list()
        number, _ = self._lists[-min(int(self._random.expovariate(1 / 6)) + 1, len(self._lists))]
        former = self.requests[number]
        self._lists.append((len(self.requests), former.path))
        page = self._one("next", "next", "next", "prev", "last")
        more = "&version=1" if self._may(0.05) else ""  # the cursor is of another list then
        return Request(former.caller, "GET", f"@{page}{number}@{more}", None, {})

    def _change(self) -> Request:
        name = self._collection()
        method = self._one("PATCH", "PATCH", "PUT")
        body = self._body(name, whole=method == "PUT")
        if self._may(0.8):
            body.pop("id", None)
        if self._may(0.05):
            body["version"] = self._one(1, 2, 3)
        path = self._path(name)
        if name in ("jobs", "posts") and method == "PUT" and self._may(0.5):
            path = f"{self._base(name)}/{'new-' if name == 'jobs' else ''}{self._random.randrange(6000, 7000)}"
            self._made_here(name)
        self._read.append(len(self.requests))
        return Request(self._caller(), method, path, body, self._condition())

    def _delete(self) -> Request:
        name = self._collection()
        query = self._one("", "", "", "?_dependent=parts", *["?_dependent=jobs"] * 4) if name == "products" else ""
        return Request(self._caller(), "DELETE", self._path(name) + query, None, self._condition())

    def _action(self) -> tuple[str, Any]:
        count = self._one(1, 2, 50)
        return self._one(
            *[(f"/orders/{self._id('orders')}/pay", {"method": self._one("card", "card", "cash", "")})] * 2,
            ("/products/move", {"source": self._id("products"), "target": self._id("products"), "count": count}),
            (f"/products/{self._id('products')}/touch", None),
            *[(f"/notes/{self._id('notes')}/give", None)] * 2,
            ("/settings/darken", None if self._may(0.9) else {"a": 1}),
        )

    def _act(self) -> Request:
        path, body = self._action()
        return Request(self._caller(), "POST", path, body, self._key(0.4) | self._condition())

    def _operation(self, names: list[tuple[str, str]]) -> dict[str, Any]:
        """An operation of a batch; `names` has those of its creates, each with its collection."""
        kind = self._one("create", "create", "change", "change", "delete", "act", "nested")
        tag = self._one("*", '"other"', f"@tag{self._random.choice(self._read)}@")
        condition = {"if_match": tag} if self._may(0.1) else {}
        if kind == "act":
            path, body = self._action()
            return {"method": "POST", "path": path, **({} if body is None else {"body": body}), **condition}
        products = [each for each, collection in names if collection == "products"]
        if kind == "nested" and products:
            path = f"/products/${self._one(*products)}/parts"
            return {"method": "POST", "path": path, "body": {"name": self._name()}}
        name = self._collection()
        if kind in ("create", "nested"):
            names.append((called := f"n{len(names)}", name))
            body = self._with_names(self._body(name), names[:-1])
            return {"method": "POST", "path": f"/{name}", "body": body, "name": called, **condition}
        earlier = [each for each, collection in names if collection == name]
        address = f"/{name}/${self._one(*earlier)}" if earlier and self._may(0.7) else f"/{name}/{self._id(name)}"
        address = "/settings" if name == "settings" else address
        if kind == "delete":
            return {"method": "DELETE", "path": address, **condition}
        body = self._with_names(self._body(name, whole=False), names)
        return {"method": self._one("PATCH", "PUT"), "path": address, "body": body, **condition}

    def _with_names(self, body: dict[str, Any], names: list[tuple[str, str]]) -> Any:
        """A body with the names of earlier operations in place of some ids."""

        def named(symbol: re.Match[str]) -> str:
            earlier = [name for name, collection in names if collection == symbol[1]]
            return f'"${self._one(*earlier)}"' if earlier and self._may(0.7) else symbol[0]

        return json.loads(re.sub(r'"@([a-z]+)\d+(?:\.\d+)?@"', named, json.dumps(body)))

    def _batch(self) -> Request:
        names: list[tuple[str, str]] = []
        operations = [self._operation(names) for _ in range(self._one(1, 2, 2, 3, 5))]
        base = self._one("/api/v1", "/api/v2")
        return Request(self._caller(), "POST", f"{base}/batch", {"operations": operations}, self._key(0.5))

    def _family(self) -> Request:
        """A batch that mostly succeeds: items that refer to each other, and changes of them."""
        create = [
            {"method": "POST", "path": "/products", "body": {"name": self._name()}, "name": "p"},
            {"method": "POST", "path": "/orders", "body": {"lines": [{"product": "$p"}]}, "name": "o"},
            {"method": "POST", "path": "/orders", "body": {"after": "$o", "lines": [{"product": "$p"}]}, "name": "q"},
            {"method": "POST", "path": "/orders", "body": {"after": "$q"}},
            {"method": "POST", "path": "/jobs", "body": {"title": "Sell", "product": "$p"}},
        ]
        change: list[dict[str, Any]] = [
            {"method": "PATCH", "path": "/products/$p", "body": {"weight": self._one("1.5", 2)}},
            {"method": "PATCH", "path": "/products/$p", "body": {"sku": f"S-{self._random.randrange(1000)}"}},
            {"method": "PATCH", "path": "/orders/$o", "body": {"remark": self._name()}},
            {"method": "POST", "path": "/orders/$q/pay", "body": {"method": "cash"}},
            {"method": "DELETE", "path": "/orders/$o"},
        ]
        gone: list[dict[str, Any]] = [
            {"method": "POST", "path": "/products", "body": {"name": self._name()}, "name": "r"},
            *({"method": "POST", "path": "/products/$r/jobs", "body": {"title": "Sell"}, "name": n} for n in "st"),
            {"method": "DELETE", "path": "/products/$r"},
            *({"method": "PATCH", "path": f"/jobs/${n}", "body": {}} for n in "st"),
        ]
        create += gone if self._may(0.3) else []
        read = [
            n for n in self._read[-12:] if self.requests[n].path.count("/") == 2 and "?" not in self.requests[n].path
        ]
        if read and self._may(0.5):  # with a condition, which is not that of the next ones
            number = self._one(*read)
            first = {"method": "PATCH", "path": self.requests[number].path, "body": {}, "if_match": f"@tag{number}@"}
            create = [first, *create]
        operations = create + self._random.sample(change, self._random.randrange(4))
        caller = self._one("admin", "staff", "mona")
        if number_read := [each for each in operations if "if_match" in each]:
            caller = self.requests[int(re.findall(r"\d+", number_read[0]["if_match"])[0])].caller
        return Request(caller, "POST", f"{self._one('/api/v1', '/api/v2')}/batch", {"operations": operations}, {})

    def _own_job(self) -> Request:
        """A job with an id of its caller, which an admin has graded at times; others may have its ticket."""
        job = {"title": "Sell", "owner": "ada", "ticket": self._one(None, f"T-{self._random.randrange(60)}")}
        caller, more = self._one(("admin", {"grade": 5}), ("ada", {}))
        return Request(caller, "PUT", f"/jobs/own-{self._random.randrange(40)}", job | more, {})

    def _replay(self) -> Request:
        if not self._posts:
            return self._create()
        request = self._posts[-min(int(self._random.expovariate(1 / 10)) + 1, len(self._posts))]
        match self._one(*[""] * 3, "body", "order", "caller", "caller", "path", "query"):
            case "body":
                return request._replace(body={"name": "another"})
            case "order" if isinstance(request.body, dict):
                return request._replace(body=dict(reversed(request.body.items())))
            case "caller":
                return request._replace(caller=SAME.get(request.caller) or self._caller())
            case "path":
                path = request.path.removeprefix("/api/v1")
                return request._replace(path=path if path != request.path else "/api/v1" + path)
            case "query":
                return request._replace(path=request.path.partition("?")[0] + self._one("?owner=ada", "?again=1"))
        return request

    def _again(self) -> Request:
        """A request to what a recent one has read, with a condition that mostly holds."""
        number = self._read[-min(int(self._random.expovariate(1 / 6)) + 1, len(self._read))]
        former = self.requests[number]
        if former.path.startswith("@") or former.method not in ("GET", "HEAD"):
            return self._next_page()
        path, tag, moment = former.path.partition("?")[0], f"@tag{number}@", f"@date{number}@"
        *_, name, last = path.split("/")
        is_list = last in ALL and last != "settings"
        name = last if last in ALL else name
        method = (
            self._one("GET", "POST") if is_list else self._one("GET", "GET", "GET", "PATCH", "PATCH", "PUT", "DELETE")
        )
        condition = self._one(
            *[{"If-None-Match": tag}, {"If-Match": tag}, {"If-Match": f"W/{tag}"}, {"If-None-Match": f"W/{tag}"}],
            *[{"If-Modified-Since": moment}, {"If-Unmodified-Since": moment}],
            {"If-None-Match": '"x"', "If-Modified-Since": moment},
        )
        if method == "GET":
            return Request(former.caller, method, former.path, None, condition)
        body = None if method == "DELETE" else self._body(name, whole=method != "PATCH")
        self._read.append(len(self.requests))
        return Request(former.caller, method, path, body, condition)

    def _repeat(self) -> Request:
        """A change of an item to what it was created with, in which numbers may have another form."""
        recent = range(max(0, len(self.requests) - 30), len(self.requests))
        creates = [n for n in recent if self.requests[n].method == "POST" and isinstance(self.requests[n].body, dict)]
        creates = [n for n in creates if self.requests[n].path.partition("?")[0].rpartition("/")[2] in ALL[:-1]]
        if not creates:
            return self._create()
        former = self.requests[number := self._one(*creates)]
        base, _, name = former.path.partition("?")[0].rpartition("/")
        forms = {"1.50": "1.5", "1.5": "1.50", 2: 2.0}
        weight = former.body.get("weight")
        body = former.body | ({"weight": forms.get(weight, weight)} if "weight" in former.body else {})
        base = base if base.count("/") < 3 else ""  # not of a nested list
        self._read.append(len(self.requests))
        return Request(former.caller, self._one("PATCH", "PUT"), f"{base}/{name}/@{name}{number}@", body, {})

    def _nested(self) -> Request:
        parent, child, body = self._one(
            ("products", "parts", {"name": self._name()}),
            ("products", "jobs", {"title": "Sell"}),
            ("people", "people", {"name": self._name()}),
            ("brands", "products", {"name": self._name()}),
            ("orders", "orders", {"lines": []}),
        )
        path = f"{self._base(parent)}/{self._id(parent)}/{child}"
        if self._may(0.5):
            self._made_here(child)
            return Request(self._caller(), "POST", path, body, self._key(0.3) | self._condition())
        self._read.append(len(self.requests))
        return Request(self._caller(), "GET", path + self._one("", "?limit=2"), None, self._condition())

    def _follow(self) -> Request:
        collection = f"&collection={self._one('orders', 'products,jobs')}" if self._may(0.5) else ""
        if self._feeds and self._may(0.7):
            former = self._one(*self._feeds[-6:])
            self._feeds.append(len(self.requests))
            return Request(self.requests[former].caller, "GET", f"@next{former}@", None, {})
        after = self._one("latest", "latest", "")
        self._feeds.append(len(self.requests))
        base = self._one("/api/v1", "/api/v2")
        return Request(
            self._caller(), "GET", f"{base}/events?limit=20{f'&after={after}' if after else ''}{collection}", None, {}
        )

    def _mistake(self) -> Request:
        method, path, body = self._one(
            ("POST", "/nothing", {}),
            ("PATCH", "/products", {}),
            ("OPTIONS", "/products", None),
            ("OPTIONS", f"/orders/{self._id('orders')}", None),
            ("POST", "/products", "no object"),
            ("POST", "/products", []),
            ("GET", "/products?limit=x&sort=lost&lost=1", None),
            ("GET", "/products?cursor=AAAA", None),
            ("POST", "/api/v1/batch", {"operations": [{"method": "GET", "path": "/products"}]}),
            ("GET", "/api/v3/products", None),
            ("GET", "/problems/edit-conflict", None),
        )
        return Request(self._caller(), method, path, body, {})


class RecordedClock(SetClock):
    """Each sleep takes 10 ms or more: what waits for the end of five seconds does so some hundred times."""

    def sleep(self, seconds: float) -> None:
        super().sleep(max(seconds, 0.01))


class Recorder:
    """Makes the requests of a script, with a service on a store, and notes the responses."""

    def __init__(self, clock: SetClock, url: str, folder: Path, wire: Wire | None = None) -> None:
        self._clock, self._wire = clock, wire
        config = Config(
            database_url=url,
            auth="required",
            admin_key=ADMIN_KEY,
            rate_limit="off",
            rate_limit_write="off",
            idempotency_ttl=120,
            **trusted(folder),
        )
        self.app = create_app(config, RESOURCES, versions=VERSIONS, clock=self._clock)
        if wire:
            filled(service_of(self.app).store)
        self._client = self.app.test_client()
        self._callers = {"admin": ADMIN, "nobody": {}, "stranger": {"X-API-Key": "rk_0000000000000000_x"}}
        for name, (scopes, owners) in CALLERS.items():
            if name in SAME:
                text = token(sub="mona", scope=" ".join(scopes), exp=FIRST + REQUESTS * 2)
                self._callers[name] = {"Authorization": f"Bearer {text}"}
            else:
                self._callers[name] = key(self._client, *scopes, name=name, owners=owners)
        self._ids: dict[int, list[str]] = {}
        self._last: dict[str, str] = {}  # the last id of each collection that a request had
        self._tags: dict[int, str] = {}
        self._links: dict[tuple[str, int], str] = {}
        self._dates: dict[int, str] = {}
        self._named: dict[str, str] = {}
        self._names: Counter[tuple[str, int]] = Counter()

    def respond(self, number: int, request: Request) -> dict[str, Any]:
        """The response to a request, as it is compared."""
        self._clock.now = FIRST + number * STEP
        random.seed(number)  # the engine does some work at random times
        resolve = partial(SYMBOL.sub, partial(self._resolved, request))
        body = None
        if request.body is not None:
            text = SYMBOL.sub(partial(self._resolved, request), json.dumps(request.body))
            body = re.sub(r'("brand": )"(\d+)"', r"\1\2", text)  # the id of a brand is an integer
        headers = {name: resolve(value) for name, value in request.headers.items()} | self._callers[request.caller]
        if self._wire:
            self._wire.trips()
        response = self._client.open(
            resolve(request.path), method=request.method, data=body, content_type="application/json", headers=headers
        )
        trips = self._wire.trips() if self._wire else 0
        content = response.get_data(as_text=True)
        self._note(number, response, content)
        shown = {
            name: self._normal(number, value) for name, value in sorted(response.headers) if name not in UNCOMPARED
        }
        if "Content-Length" in shown and response.status_code == 200 and content[:1] in ("", "{", "["):
            shown["Content-Length"] = str(len(content.encode()) - int(shown["Content-Length"])) if content else "-"
        return {"status": response.status_code, **shown, "body": self._normal(number, content), "trips": trips}

    def _note(self, number: int, response: Any, content: str) -> None:
        """Store the ids, the ETag and the next page of a response."""
        if response.status_code == 200 and content[:1] in ("{", "["):
            items = response.json if isinstance(response.json, list) else [response.json]
            self._ids[number] = [str(item.get("id", "")) for item in items if isinstance(item, dict)]
        if tag := response.headers.get("ETag"):
            self._tags[number] = tag
            self._named.setdefault(tag.strip('"'), f"<tag {number}>")
        for address, relation in re.findall(r'<([^>]+)>; rel="(\w+)"', response.headers.get("Link", "")):
            self._links[relation, number] = address
        if date := response.headers.get("Last-Modified"):
            self._dates[number] = date

    def _resolved(self, request: Request, symbol: re.Match[str]) -> str:
        kind, number, index = symbol[1], int(symbol[2]), int(symbol[3] or 0)
        if kind == "tag":
            tag = self._tags.get(number, '"none"')
            return tag.replace('"', r"\"") if request.path.endswith("/batch") else tag
        if kind in ("next", "prev", "last"):
            return self._links.get((kind, number), "/products?limit=1")
        if kind == "date":
            return self._dates.get(number, "Thu, 01 Jan 2099 00:00:00 GMT")
        ids = self._ids.get(number, [])
        if index < len(ids) and ids[index]:
            self._last[kind] = ids[index]
        return self._last.get(kind, "none")

    def _normal(self, number: int, text: str) -> str:
        """A text in which each value that differs from run to run has a name."""
        bare = text.strip('"')
        if bare in self._named:
            return self._named[bare]
        return VALUES.sub(partial(self._name, number), text)

    def _name(self, number: int, value: re.Match[str]) -> str:
        kind, text = str(value.lastgroup), value[0]
        if kind == "cursor":
            token = urlsafe_b64decode(text + "=" * (-len(text) % 4))[8:]
            return VALUES.sub(partial(self._name, number), token.decode("utf-8", "backslashreplace"))
        if text not in self._named:
            self._names[kind, number] += 1
            self._named[text] = f"<{kind} {number}.{self._names[kind, number]}>"
        return self._named[text]


def unprepared(session: Session, prepare: Callable[[Session], None] = Session.prepare) -> None:
    """`Session.prepare` for a connection that prepares no statement.

    The driver does so when a connection sends one for the fifth time, in a round trip more. Which request that is
    depends on the number of connections, which depends on chance, and on each use of them before.
    """
    session.prepare_threshold = None
    prepare(session)


def responses(requests: list[Request], store: str) -> Iterator[dict[str, Any]]:
    """The responses to the requests, in order; each is made when it is asked for."""
    logging.disable()  # a function of the service that sets what cannot be stored is a 500 with a traceback
    numbers, clock = count(4, 4), RecordedClock(FIRST)  # an id leaves out the last two bits

    def draw(size: int) -> bytes:
        """In place of random bytes: so ids are the same in each run, and those of one millisecond have an order."""
        return next(numbers).to_bytes(size, "big")

    with (
        mock.patch("os.urandom", draw),
        mock.patch("time.time_ns", lambda: int(clock.now * 1e9)),
        mock.patch("secrets.token_hex", lambda size=16: draw(size).hex()),
        mock.patch.object(idempotency, "SWEEP_ONE_IN", 512),  # never: which keys sweep depends on ids
        mock.patch.object(Session, "prepare", unprepared),
        TemporaryDirectory() as folder,
        ExitStack() as stack,
    ):
        wire = None
        if store == "postgresql":
            wire = stack.enter_context(counted(stack.enter_context(PostgresServer()).create_database()))
        made = Recorder(clock, wire.url if wire else f"sqlite:///{folder}/record.db", Path(folder), wire)
        stack.callback(made.app.extensions["restkeeper"].store.close)
        for number, request in enumerate(requests):
            yield made.respond(number, request)


def digest(requests: list[Request]) -> str:
    return blake2b(json.dumps(requests).encode(), digest_size=8).hexdigest()


def write(folder: Path, stores: list[str], requests: list[Request]) -> None:
    """Store the responses in a folder, a file for each store."""
    folder.mkdir(parents=True, exist_ok=True)
    for store in stores:
        with gzip.open(folder / f"{store}.json.gz", "wt", encoding="utf-8", compresslevel=3) as file:
            json.dump({"script": digest(requests), "responses": [*responses(requests, store)]}, file)


def read(folder: Path, store: str, requests: list[Request]) -> list[dict[str, Any]]:
    """The stored responses. Exits with a line if they are of another script."""
    with gzip.open(folder / f"{store}.json.gz", "rt", encoding="utf-8") as file:
        stored = json.load(file)
    if stored["script"] != digest(requests):
        sys.exit(f"{folder}: has the responses of another script: record them again, with this one")
    return list(stored["responses"])


def differences(former: list[dict[str, Any]], present: list[dict[str, Any]]) -> Iterator[tuple[int, list[str]]]:
    """The numbers of the requests whose responses differ, and lines that say how."""
    for number, (one, other) in enumerate(zip_longest(former, present, fillvalue={})):
        lines = [
            f"    {part}: {str(one.get(part))[:600]}\n    {' ' * len(part)}→ {str(other.get(part))[:600]}"
            for part in {**one, **other}
            if one.get(part) != other.get(part)
        ]
        if lines:
            yield number, lines


def compare(folder: Path, stores: list[str], requests: list[Request], shown: int = SHOWN) -> int:
    """Print what differs from the responses in a folder. Returns how many do."""
    total = 0
    for store in stores:
        present = [*responses(requests, store)]
        different = [*differences(read(folder, store, requests), present)]
        statuses = Counter(response["status"] for response in present)
        print(f"{store}: {len(different)} of {len(present)} responses differ; statuses {dict(statuses.most_common())}")
        for number, lines in different[:shown]:
            request = requests[number]
            print(
                f"  {number} {request.caller} {request.method} {request.path}",
                json.dumps(request.body),
                request.headers,
            )
            print(*lines, sep="\n")
        total += len(different)
    return total


def first_difference(folder: Path, store: str, requests: list[Request]) -> str:
    """The number of the first request whose response differs from that in a folder; empty if there is none."""
    pairs = zip(read(folder, store, requests), responses(requests, store), strict=True)
    return next((str(number) for number, (one, other) in enumerate(pairs) if one != other), "")


def find_faults(folder: Path, stores: list[str], arguments: list[str]) -> int:
    """Print for each planted fault the first request that shows it. Returns how many none shows.

    The folder has the responses of the engine without a fault.
    """
    faults = tomllib.loads(PLANTED.read_text(encoding="utf-8"))
    faults = {name: each for name, each in faults.items() if each.get("store", STORES[0]) in stores}

    def find(fault: dict[str, str]) -> str:
        with TemporaryDirectory() as planted:
            engine = Path(planted, ENGINE.name)
            shutil.copytree(ENGINE, engine, ignore=shutil.ignore_patterns("__pycache__"))
            text = (engine / fault["file"]).read_text(encoding="utf-8").replace(fault["text"], fault["by"])
            (engine / fault["file"]).write_text(text, encoding="utf-8")
            store = f"--store={fault.get('store', STORES[0])}"
            return run_with(planted, "--first", str(folder), store, *arguments).strip()

    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, found in zip(faults, pool.map(find, faults.values()), strict=True):
            print(f"{found or 'not found':>9}  {name}", flush=True)
            missed += not found
    return missed


def run_with(engine: str, *arguments: str) -> str:
    """What the present script prints with the engine in a folder."""
    command, environment = [sys.executable, "-m", "tests.record", *arguments], {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=engine, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout


def record_commit(commit: str, folder: Path, arguments: list[str]) -> None:
    """Store the responses of the engine of a commit, with the present script."""
    packed = subprocess.run(("git", "archive", commit, "restkeeper"), cwd=ROOT, check=True, capture_output=True).stdout
    with TemporaryDirectory() as former:
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(former, filter="data")
        run_with(former, "--write", str(folder), *arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--against", metavar="COMMIT")
    todo.add_argument("--write", metavar="FOLDER", type=Path)
    todo.add_argument("--compare", metavar="FOLDER", type=Path)
    todo.add_argument("--faults", action="store_true")
    todo.add_argument("--first", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--store", choices=STORES, action="append")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the faults of a body have the order of a set
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    stores = options.store or list(STORES)
    requests = Script(options.seed).write(options.requests)
    if options.write:
        write(options.write, stores, requests)
    elif options.compare:
        sys.exit(compare(options.compare, stores, requests) > 0)
    elif options.first:
        print(first_difference(options.first, *stores, requests))
    else:
        chosen = [f"--requests={options.requests}", f"--seed={options.seed}"]
        with TemporaryDirectory() as name:
            folder = Path(name)
            if options.faults:
                write(folder, stores, requests)
                sys.exit(find_faults(folder, stores, chosen) > 0)
            record_commit(options.against, folder, [*chosen, *(f"--store={store}" for store in stores)])
            sys.exit(compare(folder, stores, requests) > 0)


if __name__ == "__main__":
    main()
