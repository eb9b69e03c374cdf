"""Work after a handler: it adds to the response and never changes the result of the handler."""

import logging
from typing import Any

import pytest
from flask import Request, Response
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.features.metrics.counting import Metrics
from restkeeper.web import observe
from tests.shop import create_app


def fail(*_: object, **__: object) -> None:
    raise OSError("no space left on device")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    """A client of a service that can neither count nor log, with a header writer that fails."""
    monkeypatch.setattr(Metrics, "count", fail)
    monkeypatch.setattr(observe, "access_log", lambda form, level: fail)
    app = create_app(Config(rate_limit="9 per minute", metrics_token="a-metrics-token-of-enough-characters"))  # noqa: S106
    app.answered.add(broken)
    return app.test_client()


def broken(request: Request, response: Response) -> None:
    response.headers.add("X-Begun", "1")
    raise KeyError


@pytest.mark.needs("limits", "metrics")
def test_a_committed_write_succeeds_despite_later_errors(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    """The response is the handler's, with what the other hooks add; the log has each error once."""
    with caplog.at_level(logging.ERROR, "restkeeper"):
        for _ in range(3):
            response: Any = client.post("/products", json={"name": "x"})
            assert (response.status_code, response.headers["X-Begun"]) == (200, "1")
            assert response.headers["X-Request-Id"] and response.headers["RateLimit"]
    assert len(client.get("/products").json) == 3
    assert len(caplog.records) == 3
    assert all(record.exc_info and record.exc_info[0] in (OSError, KeyError) for record in caplog.records)
