"""What holds while a collection changes: programs side by side that differ by additions, and conversions."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from marshmallow import fields

from restkeeper import Config, Text, Whole
from tests import stores
from tests.conversions import Kills
from tests.live import Gunicorn
from tests.programs import resource
from tests.shop import create_app

THREADS, WRITES = 3, 15  # of each program, and of each thread


def start(number: int, url: str) -> FlaskClient:
    """A program with a field for each thread, which the other one does not know, and another computed value."""
    own = {f"of{number}_{thread}": Whole(load_default=-1) for thread in range(THREADS)}
    shown = fields.Function(lambda item: f"{number}: {item['title']}, {item[f'of{number}_0']}", dump_only=True)
    declared = resource({"title": Text(1, 50, required=True), **own, "shown": shown})
    return create_app(Config(database_url=url, idempotency="optional"), [declared]).test_client()


def test_programs_with_other_additions_write_the_same_items(tmp_path: Path) -> None:
    """At the same time, each thread its own field: no value is lost, and each program shows what it computes itself."""
    clients = [start(number, f"sqlite:///{tmp_path}/store.db") for number in range(2)]
    paths = [clients[number % 2].post("/notes", json={"title": "a"}).headers["Location"] for number in range(3)]

    def write(number: int, thread: int) -> None:
        client, name = clients[number].application.test_client(), f"of{number}_{thread}"
        for value, path in product(range(1, WRITES), paths):
            while (answered := client.patch(path, json={name: value})).status_code in (409, 412, 503):
                pass  # another thread was first
            assert answered.json[name] == value

    with ThreadPoolExecutor(2 * THREADS) as pool:
        for each in [pool.submit(write, *turn) for turn in product(range(2), range(THREADS))]:
            each.result()
    for path, number in product(paths, range(2)):
        item, last = clients[number].get(path).json, WRITES - 1
        assert {item[f"of{number}_{thread}"] for thread in range(THREADS)} == {last}
        assert item["shown"] == f"{number}: a, {last}"


def test_a_conversion_is_whole_or_not_at_all(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """`restkeeper migrate` is killed beside writers of the former program, and completes it when it is repeated."""
    url, is_shared = f"sqlite:///{tmp_path}/store.db", request.config.getoption("--store") == "postgresql"
    Kills(tmp_path, stores.url(url), 0, is_shared).run(3)


@pytest.mark.sqlite
def test_workers_know_when_items_were_converted(tmp_path: Path) -> None:
    """Who asks whether an item has changed since a time before that gets its new form."""
    url = f"sqlite:///{tmp_path}/restkeeper.db"
    with Gunicorn(tmp_path, workers=1, app="tests.conversions:create_former()") as former:
        where = former.post("/notes", {"name": "a"}).headers["location"]
    stores.execute(url, "UPDATE items SET updated_at = '2020-01-01T00:00:00.000000Z' WHERE collection = 'notes'")
    with Gunicorn(tmp_path, workers=1, app="tests.conversions:create_latter()") as latter:
        since = {"If-Modified-Since": "Wed, 01 Jan 2020 00:00:00 GMT"}
        item = latter.get(where, since)
        assert (item.status, item.json()["title"]) == (200, "A")
