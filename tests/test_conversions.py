"""What holds while a collection changes: programs side by side that differ by additions, and conversions."""

from pathlib import Path

import pytest

from tests import stores
from tests.additions import prove
from tests.conversions import History, Kills, kill_often
from tests.live import Gunicorn
from tests.shop import create_app  # noqa: F401 - what all of these use


def test_programs_with_other_additions_write_the_same_items(tmp_path: Path) -> None:
    for seed in range(2):
        prove(f"sqlite:///{tmp_path}/{seed}.db", 150, seed)


@pytest.mark.needs("versions")
def test_every_version_shows_what_it_showed_before_a_conversion(tmp_path: Path) -> None:
    """Of three versions whose clients write, over five revisions; what one would show otherwise is refused first."""
    history = History(f"sqlite:///{tmp_path}/store.db", f"sqlite:///{tmp_path}/other.db", seed=2)
    history.run()
    assert history.refused


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


@pytest.mark.matrix
def test_many_conversions(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """All of these, for longer; `make soak` runs them at full length."""
    for seed in range(2, 5):
        prove(f"sqlite:///{tmp_path}/a{seed}.db", 600, seed)
    for seed in range(10):
        History(f"sqlite:///{tmp_path}/h{seed}.db", f"sqlite:///{tmp_path}/o{seed}.db", seed).run()
    is_shared = request.config.getoption("--store") == "postgresql"
    urls = (stores.url(f"sqlite:///{tmp_path}/k{number}.db") for number in range(20))
    kill_often(tmp_path, urls.__next__, 10, shared=is_shared)
