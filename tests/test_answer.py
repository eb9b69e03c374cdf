"""A response's fields as gunicorn checks and writes them, also where ours checks them together."""

from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http.errors import InvalidResponseHeader, InvalidResponseHeaderName
from gunicorn.http.wsgi import Response

from restkeeper.server.worker import CheckedResponse, Worker

GOOD = [("Content-Type", "text/plain"), ("Content-Length", "2"), ("X-Name", "a")]


@pytest.fixture(autouse=True)
def learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of GOOD are known, as they are from the second response on."""
    monkeypatch.setattr(CheckedResponse, "known", set())
    head(CheckedResponse, GOOD)
    assert CheckedResponse.known == {name for name, _ in GOOD}


def head(kind: type[Response], fields: list[tuple[str, str]], version: tuple[int, int] = (1, 1)) -> tuple[Any, ...]:
    """What a kind of response makes of these fields: its lines but for the date, its length, whether it is chunked."""
    asked = SimpleNamespace(method="GET", version=version, should_close=lambda: version == (1, 0))
    response = kind(asked, None, Config())
    response.start_response("200 OK", fields)
    lines = "".join(response.default_headers()).split("\r\n")
    return (
        [line for line in lines if "Date: " not in line],
        response.headers,
        response.response_length,
        response.chunked,
    )


@pytest.mark.parametrize("version", [(1, 0), (1, 1)])
@pytest.mark.parametrize(
    "fields",
    [
        GOOD,
        GOOD[::-1],
        GOOD[:1],
        [*GOOD, ("X-New", "b")],
        [*GOOD, ("X-Name", "twice")],
        [*GOOD, ("Connection", "close"), ("Server", "mine"), ("Upgrade", "h2c")],
        [("content-length", "7")],
        [("X-Name", "\u00e9\t~")],
        [],
    ],
)
def test_fields_are_those_of_gunicorn(fields: list[tuple[str, str]], version: tuple[int, int]) -> None:
    """Known names and new ones, repeated ones and those of the connection alone: twice the same head as gunicorn's."""
    for _ in range(2):
        assert head(CheckedResponse, fields, version) == head(Response, fields, version)


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\n", "\r", "\0", "\x7f"])
def test_a_known_name_takes_no_bad_value(value: str) -> None:
    """A value that would begin another field is refused, however often the name was seen with good ones."""
    for fields in ([("X-Name", value)], [*GOOD[:2], ("X-Name", value)]):
        with pytest.raises(InvalidResponseHeader):
            head(CheckedResponse, fields)


def test_a_bad_name_is_never_known() -> None:
    """What is no name is refused each time."""
    for _ in range(2):
        with pytest.raises(InvalidResponseHeaderName):
            head(CheckedResponse, [("X-Na me", "a")])


def test_the_names_that_are_known_have_a_bound() -> None:
    """An application has some dozens; one that makes them up is checked by gunicorn each time."""
    for n in range(300):
        head(CheckedResponse, [(f"X-{n}", "a")])
    assert len(CheckedResponse.known) == 256


def test_the_date_is_gunicorns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The date is that of the second that the response begins in, in the form of RFC 9110, section 5.6.7."""
    asked = SimpleNamespace(method="GET", version=(1, 1), should_close=lambda: False)
    for second, told in ((0, "Thu, 01 Jan 1970 00:00:00 GMT"), (86400.9, "Fri, 02 Jan 1970 00:00:00 GMT")):
        monkeypatch.setattr("restkeeper.server.worker.time", lambda second=second: second)
        response = CheckedResponse(asked, None, Config())
        response.start_response("200 OK", GOOD)
        assert f"Date: {told}\r\n" in response.default_headers()


def test_the_loop_is_late_by_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some milliseconds after it was first seen to have looked at its sockets, until it has looked again."""
    times = {"loop": 1.0, "now": 50.0}
    hub = SimpleNamespace(loop=SimpleNamespace(now=lambda: times["loop"]))
    monkeypatch.setattr("restkeeper.server.worker.gevent.get_hub", lambda: hub)
    monkeypatch.setattr("restkeeper.server.worker.monotonic", lambda: times["now"])
    worker = Worker.__new__(Worker)
    worker._loop_time = worker._checked_at = 0.0
    found = []
    for loop, now in ((1.0, 50.0), (1.0, 50.004), (1.0, 50.006), (2.0, 50.006), (2.0, 50.01), (2.0, 50.02)):
        times.update(loop=loop, now=now)
        found.append(worker.is_late())
    assert found == [False, False, True, False, False, True]
