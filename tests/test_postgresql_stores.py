"""The databases that tests have with `pytest --store postgresql`, and the count of the tests that passed there."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from flask.testing import FlaskClient

from restkeeper.app import stored_collections
from restkeeper.config import Config
from restkeeper.resources.resource import Resource
from restkeeper.schemas.item import ItemSchema
from restkeeper.service import service_of
from restkeeper.storage.contract import Index
from tests.conftest import Passed
from tests.postgresql_reuse import Reused
from tests.postgresql_server import Databases
from tests.postgresql_stores import PostgresStores
from tests.shop import RESOURCES, create_app


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
    made = PostgresStores(pytestconfig)
    module = ExitStack()
    with ExitStack() as test, made.used_by(test):
        with made.used_by(module):
            of_module = made.url("sqlite:///b.db")
        of_test = [made.url(url) for url in ("memory://", "memory://", "sqlite:///a.db")]
        assert made.url("sqlite:///a.db") == of_test[2] and made.url("sqlite:///b.db") == of_module
        assert made.url(of_module) == of_module
        assert len({of_module, *of_test}) == 4 and all(map(exists, of_test))
    assert not any(map(exists, of_test)) and exists(of_module)
    module.close()
    assert not exists(of_module)


def secret_of(url: str) -> str:
    """The secret of the store in a database."""
    with psycopg.connect(url) as connection:
        ((secret,),) = connection.execute("SELECT secret FROM store")
    return str(secret)


def everything_in(url: str) -> dict[str, Any]:
    """The rows of tables, the numbers of sequences, and the names of these and of indexes; not the store's identity."""
    of_kind = {"r": "*", "S": "last_value, is_called"}
    with psycopg.connect(url) as connection:
        statement = "SELECT relname, relkind FROM pg_class WHERE relname !~ '^(pg_|sql_)'"
        names = dict(connection.execute(statement).fetchall())
        found: dict[str, Any] = {"": names}
        for name in [name for name in names if names[name] in of_kind]:
            columns = "migration, oldest" if name == "store" else of_kind[names[name]]
            found[name] = sorted(connection.execute(f"SELECT {columns} FROM {name}".encode()), key=str)  # noqa: S608
    return found


@contextmanager
def service(url: str, *resources: Resource) -> Iterator[FlaskClient]:
    """A client of a service with the tests' resources, and others."""
    app = create_app(Config(database_url=url), [*RESOURCES, *resources])
    with closing(service_of(app).store) as store:
        store.open()
        yield app.test_client()


@pytest.mark.needs("events", "idempotency", "webhooks")
def test_a_database_that_is_used_again_is_as_new(databases: Databases) -> None:
    """No row, no number of a sequence and no index is left; the store has another secret."""
    reused, collections = Reused(databases), stored_collections(RESOURCES)
    new, used = databases.create_database(), reused.take(collections)
    with service(new):
        pass
    with service(used, Resource("notes", "note", ItemSchema, indexes=[Index("created_at")])) as client:
        hook = client.post("/api/v1/webhooks", json={"url": "https://example.org/"}).headers["Location"]
        assert client.post("/products", json={"name": "x"}, headers={"Idempotency-Key": "k"}).status_code == 200
        assert client.post(f"{hook}/ping").status_code == 200
    as_new, as_used = everything_in(new), everything_in(used)
    changed = {"items", "schemas", "counters", "answers", "events", "feed", "subscriptions", "deliveries", ""}
    assert changed <= {name for name in as_new if as_new[name] != as_used[name]}
    secret = secret_of(used)
    reused.give_back(used)
    assert reused.take(collections) == used
    with service(used):
        pass
    assert everything_in(used) == as_new and secret_of(used) != secret
    for url in (new, used):
        databases.drop_database(url)


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
