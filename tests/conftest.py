"""Fixtures and options of all tests."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from restkeeper import FEATURES
from restkeeper.config import Config
from restkeeper.features import cors
from restkeeper.features.limits.mapped import shared_path
from restkeeper.web import edge, errors, observe, origins
from restkeeper.web.application import Application, Reply
from tests.live import Gunicorn
from tests.shop import CLOSE, closed_features, create_app


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--close", choices=sorted(FEATURES), help="the tests that do without this feature, which is closed"
    )


def pytest_configure(config: pytest.Config) -> None:
    if name := config.getoption("--close"):
        os.environ[CLOSE] = name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With a closed feature: deselect the tests that need it, and those without an application."""
    if not (closed := closed_features()):
        return
    selected = [item for item in items if uses_application(item) and not closed & needed_by(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = selected


def pytest_report_collectionfinish(items: Sequence[pytest.Item]) -> str:
    """How many tests need each feature."""
    counts = Counter(name for item in items for name in needed_by(item))
    return "need " + ", ".join(f"{name}: {counts[name]}" for name in sorted(FEATURES))


def needed_by(item: pytest.Item) -> set[str]:
    """The features that a test needs, from its markers."""
    return {name for mark in item.iter_markers("needs") for name in mark.args}


def uses_application(item: pytest.Item) -> bool:
    """Whether a test uses the tests' application in its own process. A server is tested once, with all features."""
    assert isinstance(item, pytest.Function)
    fixtures, names = set(item.fixturenames), item.function.__code__.co_names
    if any(item.iter_markers("top")) or fixtures & {"server", "listing", "edge", "live"} or "Gunicorn" in names:
        return False
    return bool({"app", "client"} & fixtures) or "create_app" in vars(item.module)


@pytest.fixture(scope="session", autouse=True)
def counters_are_deleted() -> Iterator[None]:
    """Delete the counter files of the test services, which are in memory."""
    made: set[Path] = set()

    def record_path(secret: str) -> Path:
        path = shared_path(secret)
        made.add(path)
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("restkeeper.features.limits.shared_path", record_path)
        yield
    for path in made:
        path.unlink(missing_ok=True)


@pytest.fixture
def app() -> Application:
    """A new service in memory."""
    return create_app(Config())


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
    origins.refuse_other_sites(app)
    cors.allow_origins(app, local_only=True)
    app.add_url_rule("/x", "x", lambda: Reply(b"{}"), methods=["GET", "POST"])
    return app.test_client()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    """A running service under gunicorn with two workers and a SQLite file, shared by the tests of one process."""
    folder: Path = tmp_path_factory.mktemp("server")
    with Gunicorn(folder, LOG_FORMAT="json", METRICS_TOKEN="a-token-for-who-scrapes-me") as running:  # noqa: S106
        yield running
