"""What several tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.features import cors
from restkeeper.features.limits.mapped import shared_path
from restkeeper.web import edge, errors, observe
from restkeeper.web.application import Application, Reply
from tests.live import Gunicorn
from tests.shop import create_app


@pytest.fixture(scope="session", autouse=True)
def counters_are_deleted() -> Iterator[None]:
    """The files that services of these processes count in are in memory: none is left there."""
    made: set[Path] = set()

    def noted(secret: str) -> Path:
        path = shared_path(secret)
        made.add(path)
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("restkeeper.features.limits.shared_path", noted)
        yield
    for path in made:
        path.unlink(missing_ok=True)


@pytest.fixture
def app() -> Application:
    """A fresh service in memory."""
    return create_app(Config())


@pytest.fixture
def client(app: Application) -> FlaskClient:
    """A client of that."""
    return app.test_client()


@pytest.fixture(scope="session")
def local() -> FlaskClient:
    """A client of an application that is open to its own machine, also by the name `devbox`."""
    app = Application("local", static_folder=None)
    observe.install(app, None)
    errors.install(app)
    edge.install(app, 8192, ("devbox",), local_only=True)
    cors.allow_origins(app, local_only=True)
    app.add_url_rule("/x", "x", lambda: Reply(b"{}"), methods=["GET", "POST"])
    return app.test_client()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    """A running service under gunicorn with two workers on a SQLite file, shared by the tests of one process."""
    folder: Path = tmp_path_factory.mktemp("server")
    with Gunicorn(folder, LOG_FORMAT="json", METRICS_TOKEN="a-token-for-who-scrapes-me") as running:  # noqa: S106
        yield running
