"""docs/bounds.md: each row is complete, each setting that it names exists, and each number is that of the code."""

import inspect
import re
from typing import Any

from restkeeper import Resource
from restkeeper.config import DEFAULT_QUOTA, Config, settings
from restkeeper.features import events
from restkeeper.features.batch import MOST_OPERATIONS
from restkeeper.features.files import collections, content, login
from restkeeper.features.harness import documents, faults, journal, spaces
from restkeeper.features.harness.webhooks import MOST_CAUGHT
from restkeeper.features.webhooks import deliverer, sender
from restkeeper.resources import checks, filters, functions, grouping, queries, searches
from restkeeper.resources.call import CHANGE_SECONDS
from restkeeper.resources.embedding import MOST_ELEMENTS
from restkeeper.resources.items import MOST_COUNTED
from restkeeper.resources.queries import MOST_GROUPS
from restkeeper.server.exchange import FIELDS, KEEPALIVE, LINE, Exchange
from restkeeper.server.request import UNCOUNTED
from restkeeper.storage import shares
from restkeeper.storage.interface import MOST_INDEXED
from restkeeper.storage.postgresql import limits as postgresql
from restkeeper.storage.sqlite import connection, search
from restkeeper.web import auth
from restkeeper.web.handlers import MOST_TOGETHER
from tests.live import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/bounds.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("| what |", "|---"))
]
UNBOUNDED = {"port", "web_concurrency", "page_limit", "trusted_proxies"}  # numbers that are no limits
UNITS = {"KiB": 1024, "MiB": 1024**2, "hours": 3600, "days": 24 * 3600}

CONFIG = Config()

# The numbers of the rows that name no numeric setting, by the first words of the row.
NUMBERS: dict[str, tuple[Any, ...]] = {
    "requests of a caller": (int(DEFAULT_QUOTA.split()[0]),),
    "bytes of path and query": (CONFIG.max_url,),
    "header fields": (FIELDS, LINE, Exchange.head_limit),
    "levels of nesting": (CONFIG.max_depth,),
    "values in a body": (CONFIG.max_nodes,),
    "items that a POST creates": (MOST_TOGETHER, MOST_OPERATIONS),
    "items that change": (functions.MOST_CHANGES, functions.MOST_BYTES),
    "filters of a list": (filters.MAX_FILTERS, filters.MAX_VALUES),
    "filters that lead": (filters.MOST_JOINED,),
    "items that are counted": (MOST_COUNTED,),
    "items and values of a `count`": (MOST_COUNTED, filters.MAX_VALUES),
    "groups of a `count`": (MOST_GROUPS,),
    "names in `count`": (grouping.MOST_COUNTED, grouping.MOST_AGGREGATED),
    "words in `q`": (filters.MOST_WORDS,),
    "names in `embed`": (queries.MOST_EMBEDDED, MOST_ELEMENTS),
    "items in all embedded lists": (queries.MOST_CHOSEN,),
    "items that a collection adds": (inspect.signature(Resource).parameters["embed_limit"].default,),
    "fields of an index": (MOST_INDEXED, checks.LONGEST_INDEXED),
    "time for which a change waits": (CHANGE_SECONDS, CHANGE_SECONDS + postgresql.ANSWER_SECONDS),
    "time for which a search": (connection.BUSY_SECONDS, search.READ_SECONDS),
    "items that `items.find` returns": (searches.MOST_FOUND, functions.MOST_BYTES),
    "time of an `items.find`": (searches.FIND_SECONDS,),
    "free bytes on SQLite's disk": (CONFIG.min_free_space,),
    "requests that wait in a process": (shares.WAITING, shares.WAITING_OF_CALLER),
    "time of a statement": (postgresql.ANSWER_SECONDS, postgresql.TRANSACTION_SECONDS),
    "time for which the database": (postgresql.SILENT_SECONDS, postgresql.OPEN_SECONDS),
    "time for which a migration": (postgresql.MIGRATION_SECONDS,),
    "wrong credentials": (int(CONFIG.failure_limit.split()[0]),),
    "owners of a caller": (auth.MOST_OWNERS, auth.LONGEST_NAMED_OWNER),
    "long polls": (events.MOST, CONFIG.waits_per_caller),
    "connections of a process": (1000,),  # gunicorn's default
    "time for the header": (Exchange.header_timeout,),
    "time in which no content": (Exchange.stall_timeout,),
    "time in which a client reads": (Exchange.send_timeout, 1, Exchange.slowest, Exchange.send_longest),
    "time between two requests": (KEEPALIVE, Exchange.idle_grace),
    f"bytes of request bodies above {UNCOUNTED // 1024} KiB": (
        Exchange.body_limit,
        Exchange.body_share,
        Exchange.body_limit,
    ),
    "bytes of responses that wait": (Exchange.unsent_limit,),
    "time and bytes of the response": (CONFIG.webhook_timeout, sender.MOST_BYTES),
    "deliveries of a process": (deliverer.AT_ONCE, deliverer.ENDPOINT_AT_ONCE),
    "spaces of a server": (spaces.MOST_SPACES, spaces.MOST_SNAPSHOTS, faults.MOST_FAULTS),
    "requests and deliveries that a space": (journal.MOST_REQUESTS, MOST_CAUGHT, journal.MOST_BYTES),
    "a delay": (spaces.LONGEST_DELAY, documents.LONGEST_WAIT),
    "items and bytes of a list": (collections.LISTS["page_limit"], collections.LISTS["page_bytes"]),
    "bytes of an item; of an array": (content.LONGEST_ITEM, content.LONGEST_ITEM),
    "characters of the name": (checks.LONGEST_PATH,),
    "time for which a token is valid": (login.VALID_SECONDS,),
}


def numbers(bound: str) -> list[float]:
    found = re.findall(r"(\d[\d,]*(?:\.\d+)?)(?: (\w+))?", bound)
    return [float(number.replace(",", "")) * UNITS.get(unit, 1) for number, unit in found]


def test_each_setting_that_bounds_has_a_row() -> None:
    """The page has every numeric setting, except those that are no limit, and none that does not exist."""
    limits = {each.name.upper() for each in settings() if type(each.default) is int and each.name not in UNBOUNDED}
    named = set(re.findall(r"`([A-Z_]+)`", " ".join(row[1] for row in ROWS)))
    assert limits <= named <= {each.name.upper() for each in settings()}


def test_each_row_is_complete() -> None:
    """It has what is limited, the bound, and what happens beyond it."""
    assert ROWS and not [row for row in ROWS if len(row) != 3 or not all(row)]


def test_each_number_is_that_of_the_code() -> None:
    """The default of the setting that the row names, or the constants, each of which has a row."""
    unused, defaults = {*NUMBERS}, {each.name.upper(): each.default for each in settings() if type(each.default) is int}
    for what, bound, _ in ROWS:
        if named := [name for name in re.findall(r"`([A-Z_]+)`", bound) if name in defaults]:
            assert numbers(bound) == [defaults[name] for name in named], what
        elif found := numbers(bound):
            (start,) = [start for start in NUMBERS if what.startswith(start)]
            assert found == [*NUMBERS[start]], what
            unused.remove(start)
    assert not unused
