"""Callers that ask at the same time for what a rule allows to one of them, or to some: see `tests.shop.rules`.

`python -m tests.soak` runs many rounds.
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.cluster import Cluster, running

APP = "tests.shop.rules:create_app()"
CALLERS = 50
CONFIRMATIONS = 20  # of overlapping bookings
STOCK = 10
ACCOUNTS = 4
BALANCE = 20
DAYS = 8
OPEN = {"AUTH": "open", "RATE_LIMIT": "off", "app": APP}

Request = tuple[str, Any]


class Races:
    """Rounds of requests to the instances of a service. What is wrong is an AssertionError."""

    def __init__(self, service: Cluster, pool: ThreadPoolExecutor) -> None:
        self._service, self._pool = service, pool
        self._chance = random.Random(0)  # noqa: S311
        self._rounds = 0
        self.slowest = 0.0
        self.statuses: Counter[int] = Counter()

    def run(self, rounds: int) -> None:
        """Each race so many times."""
        for _ in range(rounds):
            self._rounds += 1
            for race in (self.bookings, self.deletions, self.invoices, self.sales, self.accounts, self.watches):
                race()

    def bookings(self) -> None:
        """Of overlapping bookings one is confirmed."""
        for action in ("confirm", "confirm-by-view"):
            tool = self._make("/tools", {"name": "saw", "price": self._rounds})
            booking = {"tool": tool["id"], "from": "2026-01-01", "until": "2026-02-01"}
            made = self._make("/bookings", [booking] * CONFIRMATIONS)
            assert {each["price"] for each in made} == {self._rounds}
            statuses = self._post([(f"/bookings/{each['id']}/{action}", None) for each in made])
            assert statuses == {200: 1, 409: CONFIRMATIONS - 1}, (action, statuses)
            assert self._count("bookings", f"tool={tool['id']}&status=confirmed") == 1

    def deletions(self) -> None:
        """A tool is deleted before all bookings of it, whose rule reads it, or not."""
        path = f"/tools/{self._make('/tools', {'name': 'saw'})['id']}"
        booking = {"tool": path.rpartition("/")[2], "from": "2026-01-01", "until": "2026-02-01"}
        deleted = self._pool.submit(self._service.request, "DELETE", path)
        statuses = self._post([("/bookings", booking)] * CALLERS)
        expected, left = ({422: CALLERS}, 0) if deleted.result().status == 200 else ({200: CALLERS}, CALLERS)
        assert (statuses, deleted.result().status) in ((expected, 200), (expected, 409)), (statuses, deleted.result())
        assert self._count("bookings", f"tool={booking['tool']}") == left

    def invoices(self) -> None:
        """Their numbers have no gap, and none is twice."""
        statuses = self._post([("/invoices", {})] * CALLERS)
        assert statuses == {200: CALLERS}, statuses
        last = CALLERS * self._rounds
        listed = self._get(f"/invoices?sort=-number&limit={CALLERS}")
        assert [each["number"] for each in listed] == [*range(last, last - CALLERS, -1)]

    def sales(self) -> None:
        """No more is sold than there is."""
        product = self._make("/products", {"stock": STOCK})["id"]
        statuses = self._post([("/sales", {"product": product})] * (2 * STOCK))
        assert statuses == {200: STOCK, 409: STOCK}, statuses
        assert self._get(f"/products/{product}")["stock"] == 0
        assert self._count("sales", f"product={product}") == STOCK

    def accounts(self) -> None:
        """The sum of the accounts of a bank stays, and no more is taken than all have together."""
        bank = f"bank-{self._rounds}"
        ids = [each["id"] for each in self._make("/accounts", [{"bank": bank, "balance": BALANCE}] * ACCOUNTS)]
        pairs = [self._chance.sample(ids, 2) for _ in range(CALLERS)]
        sent = [(f"/accounts/{one}/transfer", {"to": other, "amount": 5}) for one, other in pairs]
        statuses = self._post(sent)
        assert statuses.keys() <= {200, 409} and statuses[200], statuses
        balances = [each["balance"] for each in self._get(f"/accounts?bank={bank}")]
        assert (sum(balances), min(balances) >= 0) == (BALANCE * ACCOUNTS, True), balances
        statuses = self._post(
            [(f"/accounts/{id}/withdraw", {"amount": 5}) for id in self._chance.choices(ids, k=CALLERS)]
        )
        most = BALANCE * ACCOUNTS // 5
        assert statuses == {200: most, 409: CALLERS - most}, statuses
        assert sum(each["balance"] for each in self._get(f"/accounts?bank={bank}")) == 0

    def watches(self) -> None:
        """A day has a watch by day or by night: each looks at the other collection."""
        days = [f"{self._rounds}-{number}" for number in range(DAYS)]
        sent = [(path, {"day": day}) for day in days for path in ("/days", "/nights", "/nights", "/days")]
        statuses = self._post(sent)
        assert statuses.keys() <= {200, 409}, statuses
        for day in days:
            counts = [self._count(name, f"day={day}") for name in ("days", "nights")]
            assert min(counts) == 0 < max(counts), (day, counts, statuses)

    def _post(self, requests: Sequence[Request]) -> Counter[int]:
        """Send all at the same time; return how many responses have each status."""

        def send(request: Request) -> int:
            began = time.monotonic()
            status = self._service.post(*request).status
            self.slowest = max(self.slowest, time.monotonic() - began)
            return status

        statuses = Counter(self._pool.map(send, requests))
        self.statuses += statuses
        return statuses

    def _make(self, path: str, sent: Any) -> Any:
        response = self._service.post(path, sent)
        assert response.status == 200, response.body
        return response.json()

    def _get(self, path: str) -> Any:
        return self._service.get(path).json()

    def _count(self, collection: str, parameters: str) -> int:
        return len(self._get(f"/{collection}?limit=100&{parameters}"))


def race(store: str, rounds: int) -> None:
    """Rounds with an own service: SQLite with two workers, or PostgreSQL with three instances."""
    with running(store, **OPEN) as service, ThreadPoolExecutor(CALLERS) as pool:
        races = Races(service, pool)
        races.run(rounds)
        lines = service.lines()
        if service.server:
            lines += [line for line in service.server.log.read_text().splitlines() if "deadlock" in line]
    assert not lines, "\n".join(lines[:20])
    counts = ", ".join(f"{count} × {status}" for status, count in sorted(races.statuses.items()))
    print(f"{rounds} rounds of rules: {counts}; the slowest response took {races.slowest:.1f} s")
