"""Two worlds that a caller cannot tell apart: what the service answers does not depend on what the caller may not see.

`python -m tests.worlds` makes the same 20,000 requests in two worlds on each store, and prints the responses that
differ. Both have the same clock, ids and random source. In one of them another owner has more orders and notes, made,
changed and deleted between the caller's requests; those that are in both have other values there; and so has the
private field of all orders. A script of `tests.record` makes the requests. Responses are compared as they are: with
ids, times, cursors and ETags, but for `EXCLUDED`.
"""

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

from restkeeper.features import idempotency
from tests import record
from tests.clock import SetClock
from tests.postgresql_server import PostgresServer
from tests.record import BOTH, FIRST, Recorder, Request, Script

REQUESTS = 20_000
STORES = ("sqlite", "postgresql")
# Logs are no part of this: a function of the service writes one for each order, and everybody may read it.
SEEN = [scope for scope in BOTH if not scope.startswith("logs:")]
EXAMINED = {  # with their scopes, and their owners; and a caller without a credential
    "ada": ([*SEEN, "orders:pay"], ["ada"]),
    "bob": (SEEN, ["bob", "team"]),
    "clerk": (["products:read", "products:write", "products:archive", "orders:read", "orders:write"], ["ada"]),
    "lisa": ([*SEEN, "jobs:grade", "notes:write"], ["mona"]),
    "nobody": ([], []),
}
HIDDEN = {
    "zoe": ([*SEEN, "orders:secrets"], ["zoe"]),
    "boss": ([*SEEN, "orders:all", "orders:secrets"], ["boss"]),
}
EXCLUDED = {  # what may differ, with the sentence of docs/ that says so
    "the ids, cursors and ETags of the feed of events": "a new event always comes after the events that were read",
    # Not requested here: what a hidden order refers to, an order of both worlds does, too.
    "the delete of what hidden items refer to": '`"restrict"` (the default): 409, nothing is deleted.',
}
EVENT = re.compile(r"evt_[0-9a-f]{8}_\w+|(?<=[?&]after=)[\w-]+")
STORE = re.compile(r'(?<=")[0-9a-f]{8}(?=-[0-9a-f]+-)')  # the random name of a store, in the ETag of a list
PAGES = ("/", "/docs", "/openapi.json", "/api/v1/openapi.json", "/browse", "/healthz", "/problems/not-found")


class Step(NamedTuple):
    """A request, in one of the worlds or in both, where the other one may have another body."""

    request: Request
    other: Any = None
    only_second: bool = False


class Steps(Script):
    """A script in which an examined caller makes most requests, an admin some, and hidden ones are between them."""

    def __init__(self, examined: str, seed: int) -> None:
        super().__init__(seed)
        self._examined = examined
        self.steps: dict[int, Step] = {}
        self.feeds = self._feeds  # the requests that read the feed of events
        self.zoe: list[str] = []  # symbols of hidden items
        self._only: set[str] = set()  # of them, those in the second world alone
        self._anchored: list[str] = []  # products that a hidden order has in both worlds

    def _caller(self) -> str:
        return self._examined if self._may(0.75) else "admin"

    def _mistake(self) -> Request:
        if self._may(0.5):
            return super()._mistake()
        return Request(self._caller(), "GET", self._one(*PAGES), None, {"Accept": self._one("text/html", "*/*")})

    def write(self, number: int) -> list[Request]:
        """So many requests, of which the hidden ones are in `steps`."""
        while len(self.requests) < number:
            if len(self.requests) > 10 and self._may(0.2):
                self.steps[len(self.requests)] = step = self._hidden()
                self.requests.append(step.request)
                continue
            if self._anchored and self._may(0.15):
                self.requests.append(self._probe())
                continue
            super().write(len(self.requests) + 1)
            self.requests[-1] = self._seen(self.requests[-1])
        return self.requests

    def _seen(self, request: Request) -> Request:
        """A request of the examined caller or an admin; the caller also tries what is hidden."""
        caller = request.caller if request.caller == "admin" else self._examined
        path, body = request.path, request.body
        if caller != "admin" and self.zoe and self._may(0.2):
            symbol = re.compile(r"@(orders|notes)\d+(\.\d+)?@")
            hidden = self._one(*self.zoe[-20:])
            path = symbol.sub(hidden, path, count=1)
            body = json.loads(symbol.sub(hidden, json.dumps(body)))
        return request._replace(caller=caller, path=path, body=body)

    def _probe(self) -> Request:
        """A request of the caller that would meet what is hidden."""
        product, item = self._one(*self._anchored[-9:]), self._one(*self.zoe[-9:])
        path = self._one(
            *(f"/products/{product}?embed=orders", f"/products/{product}/orders", f"/orders?lines.product={product}"),
            *("/products?embed=orders&sort=-created_at", "/orders?count=amount", "/orders?sort=-amount&limit=2"),
            *("/notes?sort=-text&limit=3", "/notes?text[starts]=Lamp", "/notes?count=owner", "/notes?owner=zoe"),
            *("/orders?secret[starts]=Lamp", "/orders?sort=secret", "/api/v1/orders?count=secret", "/orders?after=x"),
            *(
                "/products?orders.remark[starts]=Lamp",
                "/products?orders[is]=null",
                "/products?orders.secret[starts]=Lamp",
            ),
            *("/products?not=(orders.amount[gt]=0)", "/orders?after.remark[starts]=Desk", f"/orders?orders.id={item}"),
            *(
                f"/products?sort=-id&limit=2&orders.amount[gt]=0&or=(orders.remark=x,orders.id={item})",
                "/people?jobs.grade=1",
            ),
            *(
                "/orders?sort=-after.amount",
                "/orders?sort=after.remark&limit=2",
                "/orders?sort=after.secret",
                "/jobs?sort=owner.name&limit=3",
                "/products?fields=name,orders.amount",
                "/products?fields=name,orders.secret",
                "/orders?fields=remark,after.remark",
                "/products?embed=orders&sort[orders]=-amount&limit[orders]=2&where[orders]=(amount[gt]=0)",
                "/products?embed=orders&where[orders]=(secret[starts]=Lamp)",
            ),
            *(
                "/orders?aggregate[sum]=amount",
                "/notes?count=owner,text&aggregate[max]=text",
                "/orders?aggregate[max]=secret",
            ),
            *(f"/orders/{item}", f"/orders/{item}/orders", f"/notes?id={item}", f"/orders?id[in]={item},x"),
        )
        if self._may(0.1):
            return Request(self._examined, "POST", "/orders", {"lines": [], "after": item}, self._key(0.5))
        return Request(self._examined, "GET", path, None, {})

    def _hidden(self) -> Step:
        """What another owner does, or an admin to a private field."""
        number = len(self.requests)
        orders, products = self._made["orders"], self._made["products"]
        kind = self._one(*["secret"] * 4, "both", "order", "order", "note", "change", "delete")
        values: list[Any] = [
            {"remark": f"{each} {number}", "amount": number, "secret": each} for each in ("Lamp", "Desk 7")
        ]
        if kind == "secret" and orders:
            first, second = ({"secret": f"{each}{number}"} for each in ("a", "Lamp "))
            order = orders[-self._random.randrange(1, 9) :][0]
            return Step(Request("boss", "PATCH", f"/orders/{order}", first, {}), second)
        if kind == "both" and products:
            self._anchored.append(products[-1])
            both: dict[str, Any] = {"lines": [{"product": products[-1]}]}
            self.zoe.append(f"@orders{number}@")
            return Step(Request("zoe", "POST", "/orders", values[0] | both, {}), values[1] | both)
        if kind in ("change", "delete") and self.zoe:
            symbol = self.zoe[-1]
            path = f"/{'orders' if 'orders' in symbol else 'notes'}/{symbol}"
            if kind == "change" or symbol not in self._only:
                body = values[1] if "orders" in symbol else {"text": f"Lamp {number}"}
                return Step(Request("zoe", "PATCH", path, body, {}), only_second=True)
            return Step(Request("zoe", "DELETE", path, None, {}), only_second=True)
        name = "orders" if kind == "order" else "notes"
        self.zoe.append(f"@{name}{number}@")
        self._only.add(f"@{name}{number}@")
        lines = [{"product": self._one(*self._anchored[-3:])}] if self._anchored else []
        body = values[1] | {"lines": lines} if name == "orders" else {"text": f"Lamp {number}"}
        return Step(Request("zoe", "POST", f"/{name}", body, {}), only_second=True)


class World(Recorder):
    """Makes the requests of a script in one world."""

    hidden: frozenset[str]  # symbols of hidden items
    other: "World | None"
    lasts: dict[int, dict[str, str]]

    def _normal(self, number: int, text: str) -> str:
        return STORE.sub("<store>", EVENT.sub("<event>", text))

    def _resolved(self, request: Request, symbol: re.Match[str]) -> str:
        if request.caller == "zoe" and not self._ids.get(int(symbol[2])):
            return "none"  # so an order of the second world alone has a product that an order of both worlds has
        former = self._last.copy()
        found = super()._resolved(request, symbol)
        if request.caller in HIDDEN or symbol[0] in self.hidden:
            self._last = former  # what is hidden takes the place of no other item
        return found

    def respond(self, number: int, request: Request) -> dict[str, Any]:
        """The response to a request, in which symbols of what failed are the same items as in the other world."""
        if self.other:
            self._last = self.other.lasts[number].copy()
        self.lasts[number] = self._last.copy()
        return super().respond(number, request)

    def leave_out(self, number: int, other: "World") -> None:
        """Know what a request of the other world has shown, which is not made here."""
        pairs: list[Any] = [(self._ids, other._ids), (self._tags, other._tags), (self._dates, other._dates)]
        for mine, others in pairs:
            mine.update({number: others[number]} if number in others else {})


def answers(steps: Steps, store: str, stack: ExitStack, second: World | None = None) -> tuple[World, list[Any]]:
    """The responses of one world: of the first one, if the second one is given."""
    clock, numbers = SetClock(FIRST), [count(4, 4)]

    def draw(size: int) -> bytes:
        return next(numbers[0]).to_bytes(size, "big")

    folder = Path(stack.enter_context(TemporaryDirectory()))
    url = store if store != "sqlite" else f"sqlite:///{folder}/world.db"
    with (
        mock.patch("os.urandom", draw),
        mock.patch("time.time_ns", lambda: int(clock.now * 1e9)),
        mock.patch("secrets.token_hex", lambda size=16: draw(size).hex()),
        mock.patch.object(idempotency, "SWEEP_ONE_IN", 512),
        mock.patch.dict(record.CALLERS, {k: v for k, v in (EXAMINED | HIDDEN).items() if v[0]}, clear=True),
    ):
        world = World(clock, url, folder)
        world.hidden, world.other, world.lasts = frozenset(steps.zoe), second, {}
        stack.callback(world.app.extensions["restkeeper"].store.close)
        found = []
        for number, request in enumerate(steps.requests):
            numbers[0] = count((number + 10) * 4096, 4)  # in both worlds the same, whatever was made before
            step = steps.steps.get(number)
            if second and step and step.only_second:
                world.leave_out(number, second)
            else:
                sent = request._replace(body=step.other) if second is None and step and step.other else request
                found.append((number, world.respond(number, sent)))
    return world, found


def differences(examined: str, store: str, seed: int, number: int) -> Iterator[tuple[Request, dict[str, Any]]]:
    """The requests of a caller to which the worlds respond differently, with the parts that differ."""
    steps = Steps(examined, seed)
    steps.write(number)
    with ExitStack() as stack:
        logging.disable()  # a function of the service that sets what cannot be stored is a 500 with a traceback
        stack.callback(logging.disable, logging.NOTSET)
        urls = [store, store]
        if store == "postgresql":
            server = stack.enter_context(PostgresServer())
            urls = [server.create_database() for _ in urls]
        second, others = answers(steps, urls[0], stack)
        _, found = answers(steps, urls[1], stack, second)
    theirs = dict(others)
    for place, one in found:
        request, other = steps.requests[place], theirs[place]
        if request.caller != examined:
            continue
        parts = {
            part: (one.get(part), other.get(part)) for part in {**one, **other} if one.get(part) != other.get(part)
        }
        if place in steps.feeds:
            parts.pop("ETag", None)
        if parts:
            yield request._replace(path=f"{place} {request.path}"), parts


def run(store: str, seed: int, number: int) -> int:
    """Print what differs for each caller. Returns how many responses do."""
    total = 0
    for examined in EXAMINED:
        different = [*differences(examined, store, seed, number // len(EXAMINED))]
        print(f"{store}, {examined}: {len(different)} of {number // len(EXAMINED)} responses differ")
        for request, parts in different[:8]:
            print(" ", request.method, request.path, json.dumps(request.body), request.headers)
            for part, (one, other) in parts.items():
                print(f"    {part}: {str(one)[:600]}\n    {' ' * len(part)}→ {str(other)[:600]}")
        total += len(different)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=STORES, action="append")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the faults of a body have the order of a set
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    different = [run(store, options.seed, options.requests) for store in options.store or STORES]
    sys.exit(sum(different) > 0)


if __name__ == "__main__":
    main()
