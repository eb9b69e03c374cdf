"""What a service promises under faults: its histories are linearizable, and each kind of write is in them."""

import pytest

from tests.file_kills import kill_file_servers
from tests.soak import soak


def test_kills_of_workers_lose_and_repeat_nothing() -> None:
    """Of two workers on one SQLite file, and of two processes that deliver."""
    soak(seconds=0, times=1)


@pytest.mark.needs("batch")
@pytest.mark.sqlite
def test_kills_of_a_server_of_a_file_lose_nothing() -> None:
    """While requests change it, and another program edits it."""
    done = kill_file_servers(4).done
    assert done["kills"] == 4 and done["PATCH 200"] and done["POST 200"] and done["edits"]


@pytest.mark.matrix
def test_many_kills_lose_and_repeat_nothing() -> None:
    """On SQLite, of each kind of process several times."""
    soak(seconds=20, times=5)


@pytest.mark.matrix
def test_three_instances_under_faults_of_the_database() -> None:
    """PostgreSQL is restarted, paused, crashed and killed, connections are cut, processes and instances are killed."""
    run = soak(seconds=8, times=1, store="postgresql")
    assert len(run.injected) == 8
