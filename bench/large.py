"""`make bench-large`: what a large collection costs on PostgreSQL, as a ratio to one with 1,000 items.

The rows are made by the database, which takes about a minute for each million (`--data FOLDER` keeps and reuses them).
Cost is processor time of a request, of workers and database together: the median of the rounds' ratios. No page comes
from the cache of a process: each request is spelled in another way.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import psycopg

from bench.database import Server, server
from bench.rows import cursor, fill, id_of, price_of
from bench.scenario import costs
from bench.sides import Side, get, take_turns
from tests.live import Gunicorn

SMALL, LARGE = 1_000, 10_000_000  # items
GOAL = 1.5
CONNECTIONS = 8
PLACES = 500  # in the middle of a list, where pages begin

PathOf = Callable[[int, int], str]  # of a place in a collection with so many items


def sort_place(number: int, sort: str) -> str:
    """The page beyond an item in the order of the prices, of which some items have the same."""
    return f"/products?sort={sort}&cursor={cursor((False, price_of(number), id_of(number)), sort=sort)}"


def after(number: int, *, backward: bool = False) -> str:
    """The page beyond an item."""
    return f"/products?cursor={cursor((backward, id_of(number)))}"


def active_after(number: int) -> str:
    """The page of active items beyond an item."""
    return f"/products?status=active&cursor={cursor((False, id_of(number)), status='active')}"


PAGES: dict[str, PathOf] = {
    "an item": lambda number, items: f"/products/{id_of(number * (items // PLACES) + 1)}",
    "a first page": lambda number, items: "/products?limit=20&offset=0",
    "a middle page by cursor": lambda number, items: after(_middle(number, items)),
    "a middle page backward": lambda number, items: after(_middle(number, items), backward=True),
    "a middle page by price": lambda number, items: sort_place(_middle(number, items), "price"),
    "a middle page by price, descending": lambda number, items: sort_place(_middle(number, items), "-price"),
    "a middle page of status=active, which all are": lambda number, items: active_after(_middle(number, items)),
}


def _middle(number: int, items: int) -> int:
    return items // 2 - PLACES // 2 + number


def spelled(path: str, chance: random.Random) -> str:
    """The path with another spelling of its query: some characters are percent-encoded (RFC 3986, section 2.1)."""
    before, mark, query = path.partition("?")
    return (
        before
        + mark
        + "".join(f"%{ord(each):02X}" if each.isalnum() and chance.random() < 0.25 else each for each in query)
    )


def requests(path: PathOf, items: int) -> Iterator[bytes]:
    """Endless requests, each at a random place."""
    chance = random.Random(items)  # noqa: S311 - the same order in each run
    return (get(spelled(path(chance.randrange(PLACES), items), chance))[0] for _ in count())


def filled(database: Server, items: int) -> str:
    """The URL of a database with so many items, which is filled if it does not exist."""
    name = f"items_{items}"
    with psycopg.connect(database.url()) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
            return database.url(name)
    begin, url = time.perf_counter(), database.create(f"{name}_filling")
    with psycopg.connect(database.url(), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name}_filling SET maintenance_work_mem = '512MB'")
        fill(url, items, lambda what: print(f"  {what}, after {time.perf_counter() - begin:.0f} s", flush=True))
        connection.execute(f"ALTER DATABASE {name}_filling RENAME TO {name}")
    return database.url(name)


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m bench.large")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--seconds", type=float, default=1.0, help="of load, for each side in each round")
    options.add_argument("--items", type=int, default=LARGE, help="in the large collection; 10 million need 20 GB")
    options.add_argument(
        "--data", type=Path, help="a folder for the database, which is kept; by default a temporary one"
    )
    options.add_argument("--only", default="", help="requests whose name contains this")
    arguments = options.parse_args()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = stack.enter_context(server(arguments.data or scratch / "data", is_kept=bool(arguments.data)))
        print(f"Filling {arguments.items:,} items …", flush=True)
        sizes = SMALL, arguments.items
        servers = [_serve(stack, scratch / str(items), filled(database, items)) for items in sizes]
        for name, path in PAGES.items():
            if arguments.only in name:
                sides = [
                    Side(each, requests(path, items), database) for each, items in zip(servers, sizes, strict=True)
                ]
                _compare(name, sides, arguments.rounds, arguments.seconds)


def _serve(stack: ExitStack, folder: Path, url: str) -> Gunicorn:
    folder.mkdir()
    return stack.enter_context(Gunicorn(folder, app="app:create_app()", DATABASE_URL=url, LOG_FORMAT="json"))


def _compare(name: str, sides: list[Side], rounds: int, seconds: float) -> None:
    results = take_turns(sides, CONNECTIONS, rounds, seconds)
    cost = statistics.median(large.cost / small.cost for small, large in results)
    p50 = statistics.median(large.load.p50 / small.load.p50 for small, large in results)
    print(f"{name:<50} {cost:5.2f} ×, its p50 {p50:5.2f} ×   goal {GOAL} ×", flush=True)
    for title, found in zip(("small", "large"), zip(*results, strict=True), strict=True):
        print(f"    {title}: {costs(found)}", flush=True)


if __name__ == "__main__":
    main()
