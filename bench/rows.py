"""Products in PostgreSQL, any number of them, made by the database itself as the service would store them."""

import json
from collections.abc import Callable
from hashlib import md5

import psycopg

import resources
from bench.sides import PRODUCT
from resources.products import RESOURCE
from restkeeper import exactjson
from restkeeper.app import stored_collections
from restkeeper.config import Config
from restkeeper.resources import find_resources
from restkeeper.resources.queries import parse
from restkeeper.resources.views import StoredView
from restkeeper.storage import open_store
from restkeeper.storage.postgresql.dialect import query_columns
from restkeeper.storage.postgresql.migrations import indexes_of
from restkeeper.web import pagination

BEGIN_MS = 1_767_225_600_000  # of the first item, 2026-01-01; the others follow, one in each millisecond
AT_ONCE = 500_000  # items in each transaction
PRICES = 100_000

# What differs between items: a text that stands for it in a template, and its expression.
_MARKS = {
    "@id": "id",
    "@sku": "'S-' || n",
    "98765.5": f"mod(n * 7919, {PRICES}) || '.5'",
    "@at": "at",
}

_INSERT = """\
INSERT INTO items (collection, id, version, updated_at, fingerprint, body, fields)
SELECT 'products', id, 1, at, %(fingerprint)s, {body}, ({fields})::jsonb
FROM (
    SELECT
        n,
        substr(time, 1, 8) || '-' || substr(time, 9) || '-7' || substr(random, 1, 3)
            || '-8' || substr(random, 4, 3) || '-' || substr(random, 7, 12) AS id,
        to_char(to_timestamp((%(begin)s + n) / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS at
    FROM (
        SELECT n, lpad(to_hex(%(begin)s + n), 12, '0') AS time, md5(n::text) AS random
        FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
    ) AS parts
) AS made"""

_COUNT = "UPDATE counters SET items = %s, changes = 1 WHERE collection = 'products' AND shard = 0"


def id_of(number: int) -> str:
    """The id of an item, by its number."""
    time, random = f"{BEGIN_MS + number:012x}", md5(str(number).encode(), usedforsecurity=False).hexdigest()
    return f"{time[:8]}-{time[8:]}-7{random[:3]}-8{random[3:6]}-{random[6:18]}"


def price_of(number: int) -> float:
    """The price of an item, by its number."""
    return number * 7919 % PRICES + 0.5


def fill(url: str, count: int, report: Callable[[str], object] = lambda _: None) -> None:
    """Store the items 0 … `count` - 1 in an empty database: first the rows, then the indexes, as is fastest."""
    open_all(url)
    made = StoredView(RESOURCE).new_record(
        exactjson.loads(json.dumps({**PRODUCT, "sku": "@sku", "price": 98765.5})), id="@id", now="@at"
    )
    statement = _INSERT.format(body=_expression(made.body.decode()), fields=_expression(query_columns(made.body)[0]))
    with psycopg.connect(url, autocommit=True) as connection:
        for name in indexes_of(RESOURCE.collection):
            connection.execute(f'DROP INDEX "{name}"')
        for first in range(0, count, AT_ONCE):
            row = {"fingerprint": made.fingerprint, "begin": BEGIN_MS}
            connection.execute(statement, row | {"first": first, "last": min(first + AT_ONCE, count) - 1})
            report(f"{min(first + AT_ONCE, count):,} items")
        connection.execute(
            "UPDATE counters SET items = %s, changes = 1 WHERE collection = 'products' AND shard = 0", (count,)
        )
    open_all(url)
    report("indexes")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE) items")
    report("statistics")


def open_all(url: str) -> None:
    """Open the store as the service does, which creates what is missing."""
    open_store(url, stored_collections(find_resources(resources))).close()


def _expression(template: str) -> str:
    """The expression for a text in which the marks are replaced. A percent sign is doubled for psycopg."""
    parts = ["'" + template.replace("'", "''").replace("%", "%%") + "'"]
    for mark, value in _MARKS.items():
        parts = [each for part in parts for each in _split(part, mark, value)]
    return " || ".join(parts)


def _split(part: str, mark: str, value: str) -> list[str]:
    if not part.startswith("'"):
        return [part]
    found = [f"'{each}'" for each in part[1:-1].split(mark)]
    return [each for text in found for each in (f"({value})", text)][1:]


def cursor(place: tuple[object, ...], **order: str) -> str:
    """The cursor of a place in the list of products, in an order (`sort=…`)."""
    args = {name: [value] for name, value in order.items()}
    listing = parse(args, StoredView(RESOURCE).queryable, Config(), 20, 100, order=RESOURCE.order)
    return pagination._cursor(place, pagination._bound("/products", args, listing))


def page_after(id: str) -> str:
    """The path of the page beyond an item."""
    return f"/products?cursor={cursor((False, id))}"
