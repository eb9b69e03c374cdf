"""Fixtures and options of all tests."""

import gc
import logging
import os
from collections.abc import Callable, Iterator
from functools import cache
from inspect import getsource, isclass, isfunction
from pathlib import Path
from types import CodeType

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.features import cors
from restkeeper.web import edge, errors, observe
from restkeeper.web.application import Application, Reply
from tests import stores
from tests.browser import browser, tab  # noqa: F401 - fixtures
from tests.clock import SetClock
from tests.installed import bin, host, restkeeper, shop, wheel  # noqa: F401 - fixtures
from tests.live import Gunicorn
from tests.postgresql_server import Databases, shared_server
from tests.postgresql_stores import PostgresStores, run
from tests.processes import supervise
from tests.redis_server import Redis, RedisServer, empty_redis
from tests.shop import CLOSE, closed_features, create_app, take_part

# What a closed feature could break is the way of each request and the descriptions of all features: these tests, and
# those that name the feature. All the others passed with all features.
WITHOUT_A_FEATURE = {"test_changes", "test_items", "test_lists", "test_openapi", "test_problems"}
# Coverage lets a test take nearly twice as long. The tests of these files take half of the time, and nearly all of the
# lines that they run are run by other tests, too: they run without it.
UNMEASURED = {
    *("test_additive", "test_contract", "test_contract_sound", "test_conversions", "test_converting", "test_disk"),
    *("test_embedding", "test_exporting", "test_features", "test_file_shapes", "test_filters", "test_house"),
    *("test_ids", "test_limits_shared", "test_lists", "test_mounted", "test_names", "test_openapi", "test_pages"),
    *("test_references", "test_searches", "test_steps", "test_stored", "test_values", "test_versions"),
}

gc.disable()  # until the tests are collected: there is no garbage before


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--close", metavar="NAMES", help="the tests that do without these features, which are closed: events,keys"
    )
    parser.addoption(
        "--store", choices=["sqlite", "postgresql"], default="sqlite", help="the tests of the service, on this store"
    )
    parser.addoption(
        "--at-least", type=int, default=0, metavar="N", help="fail if fewer than N tests passed on PostgreSQL"
    )
    parser.addoption("--wheel", metavar="FILE", help="the wheel to test, instead of a new one")
    parser.addoption("--environment", metavar="FOLDER", help="one that has the wheel, its extras, and pytest")
    parser.addoption("--command", help="the command restkeeper, instead of that of the environment")


def pytest_configure(config: pytest.Config) -> None:
    supervise(*([os.getppid()] if hasattr(config, "workerinput") else []))
    if names := config.getoption("--close"):
        os.environ[CLOSE] = names.replace(",", " ")
    config.pluginmanager.register(Passed(config))
    if config.getoption("--store") == "postgresql":
        chosen = PostgresStores(config)
        config.pluginmanager.register(chosen)
        stores.choose(chosen)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """pytest-cov starts twice in a process of xdist, and `no_cover` pauses the second one only: end the first one."""
    coverage = session.config.pluginmanager.getplugin("_cov")
    if hasattr(session.config, "workerinput") and coverage and coverage.cov_controller:
        coverage.cov_controller.pause()


class Passed:
    """Counts the tests that passed on PostgreSQL, and fails a run that has too few."""

    def __init__(self, config: pytest.Config) -> None:
        self._all = config.getoption("--store") == "postgresql"
        self._least = 0 if hasattr(config, "workerinput") else config.getoption("--at-least")
        self._count = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        of_stores = report.nodeid.startswith("tests/store_suite/") and "[postgresql" in report.nodeid
        self._count += report.when == "call" and report.passed and (self._all or of_stores)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._count < self._least and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._count or self._least:
            least = f"; at least {self._least} have to" if self._least else ""
            terminalreporter.write_line(f"{self._count} tests passed on PostgreSQL{least}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what does not apply to the closed features, or to the store.

    With closed features: the tests that need one, and of the others all but WITHOUT_A_FEATURE and those that name one.
    On PostgreSQL: the tests of SQLite's files, and those without a service. The suite of stores has its own ones.
    """
    for item in items:
        if item.path.stem in UNMEASURED:
            item.add_marker("no_cover")
    closed = closed_features()
    if config.getoption("--store") == "postgresql":
        selected = {item: uses_service(item) and not any(item.iter_markers("sqlite")) for item in items}
    elif closed:
        selected = {
            item: not closed & needed_by(item) and is_near(item, closed) and uses_application(item) for item in items
        }
    else:
        return
    config.hook.pytest_deselected(items=[item for item in items if not selected[item]])
    items[:] = [item for item in items if selected[item]]


def pytest_collection_finish() -> None:
    """The collected tests stay until the end: collections of garbage leave them out, which saves time."""
    gc.freeze()
    gc.enable()


def needed_by(item: pytest.Item) -> set[str]:
    """The features that a test needs, from its markers."""
    return {name for mark in item.iter_markers("needs") for name in mark.args}


def is_near(item: pytest.Item, closed: set[str]) -> bool:
    """Whether a test has to pass while these features are closed: a chosen one, or one whose code names one of them."""
    assert isinstance(item, pytest.Function)
    return item.path.stem in WITHOUT_A_FEATURE or any(name in source_of(item.function) for name in closed)


@cache
def source_of(function: Callable[..., object]) -> str:
    return getsource(function)


def uses_application(item: pytest.Item) -> bool:
    """Whether a test uses the tests' application in its own process. A server is tested once, with all features."""
    used = used_in(item)
    return not any(item.iter_markers("top")) and create_app in used and Gunicorn not in used


def uses_service(item: pytest.Item) -> bool:
    """Whether a test uses the tests' application, in its own process or in a server."""
    return bool({create_app, Gunicorn} & used_in(item))


def used_in(item: pytest.Item) -> set[object]:
    """The functions and classes of the tests that a test uses, itself or by its fixtures."""
    assert isinstance(item, pytest.Function)
    fixtures = [each.func for name in item.fixturenames for each in item._fixtureinfo.name2fixturedefs.get(name, ())]
    return set().union(*map(used_by, (item.function, *fixtures)))


@cache
def used_by(function: object) -> set[object]:
    """The functions and classes of the tests that a function uses, directly or by another one."""
    used: set[object] = set()
    found = [function]
    while found:
        each = found.pop()
        if each in used or not each.__module__.startswith("tests"):
            continue
        used.add(each)
        functions = [part for part in (vars(each).values() if isinstance(each, type) else [each]) if isfunction(part)]
        named = [part.__globals__.get(name) for part in functions for name in names_in(part.__code__)]
        found += [part for part in named if isclass(part) or isfunction(part)]
    return used


def names_in(code: CodeType) -> set[str]:
    """The names in a function's code and in that of the functions inside it."""
    inside = [names_in(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inside)


@pytest.fixture(autouse=True)
def restored_log() -> Iterator[None]:
    """A command that a test runs in this process configures the log."""
    logger = logging.getLogger("restkeeper")
    handlers, propagate, level = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture(scope="session")
def databases(pytestconfig: pytest.Config) -> Databases:
    """The PostgreSQL of this run, which the first test that uses it starts."""
    return shared_server(*run(pytestconfig))


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """A new database of PostgreSQL."""
    made = databases.create_database()
    yield made
    databases.drop_database(made)


@pytest.fixture
def redis() -> Iterator[Redis]:
    """An empty Redis."""
    with empty_redis() as made:
        yield made


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis that the test may stop."""
    with RedisServer() as running:
        yield running


@pytest.fixture
def app() -> Application:
    """A new service in memory."""
    return create_app(Config())


@pytest.fixture
def clock() -> SetClock:
    """A clock that the test moves."""
    return SetClock()


@pytest.fixture
def client(app: Application) -> FlaskClient:
    """A client of `app`."""
    return app.test_client()


@pytest.fixture(scope="session")
def local() -> FlaskClient:
    """A client of an application in open mode, which also has the name `devbox`."""
    app = Application("local", static_folder=None)
    observe.install(app, None)
    errors.install(app)
    edge.install(app, 8192, ("devbox",), local_only=True)
    edge.refuse_other_sites(app)
    take_part(app, cors.allow_origins(local_only=True))
    app.add_url_rule("/x", "x", lambda: Reply(b"{}"), methods=["GET", "POST"])
    return app.test_client()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    """A running service under gunicorn with two workers and a SQLite file, shared by the tests of one process."""
    folder: Path = tmp_path_factory.mktemp("server")
    with Gunicorn(folder, LOG_FORMAT="json", METRICS_TOKEN="a-token-for-who-scrapes-me") as running:  # noqa: S106
        yield running
