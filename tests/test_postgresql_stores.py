"""The databases that tests have with `pytest --store postgresql`, and the count of the tests that passed there."""

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from tests.conftest import Passed
from tests.postgresql_stores import PostgresStores


def exists(url: str) -> bool:
    """Whether there is a database."""
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError as error:
        assert "does not exist" in str(error)
        return False
    return True


def test_stores_are_databases_until_the_test_ends(pytestconfig: pytest.Config) -> None:
    """A new one for memory, the same one for each use of a file. A fixture's own stay until the fixture ends."""
    stores = PostgresStores(pytestconfig)
    module = ExitStack()
    with ExitStack() as test, stores.used_by(test):
        with stores.used_by(module):
            of_module = stores.url("sqlite:///b.db")
        of_test = [stores.url(url) for url in ("memory://", "memory://", "sqlite:///a.db")]
        assert stores.url("sqlite:///a.db") == of_test[2] and stores.url("sqlite:///b.db") == of_module
        assert stores.url(of_module) == of_module
        assert len({of_module, *of_test}) == 4 and all(map(exists, of_test))
    assert not any(map(exists, of_test)) and exists(of_module)
    module.close()
    assert not exists(of_module)


def test_an_application_outside_of_tests_has_its_own_store(pytestconfig: pytest.Config) -> None:
    """One that is made while the tests are collected has no end at which a database could be deleted."""
    assert PostgresStores(pytestconfig).url("memory://") == "memory://"


@pytest.mark.parametrize(
    ("store", "passed", "status"),
    [
        ("sqlite", ["tests/contract/a[postgresql]", "tests/contract/b[postgresql-1]"], 0),
        ("sqlite", ["tests/contract/a[postgresql]", "tests/contract/b[file]", "tests/c[postgresql]"], 1),
        ("postgresql", ["a", "b[x]"], 0),
        ("postgresql", ["a"], 1),
    ],
)
def test_a_run_fails_if_too_few_tests_passed_on_postgresql(store: str, passed: list[str], status: int) -> None:
    """A skipped or failed test does not count, and of the others those of the service or the contract."""
    options = {"--store": store, "--at-least": 2}
    counter = Passed(cast(Any, SimpleNamespace(getoption=options.__getitem__)))
    for name in passed:
        counter.pytest_runtest_logreport(cast(Any, SimpleNamespace(when="setup", passed=True, nodeid=name)))
        counter.pytest_runtest_logreport(cast(Any, SimpleNamespace(when="call", passed=True, nodeid=name)))
    counter.pytest_runtest_logreport(
        cast(Any, SimpleNamespace(when="call", passed=False, nodeid="tests/contract/d[postgresql]"))
    )
    session = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    counter.pytest_sessionfinish(cast(Any, session))
    assert session.exitstatus == status
