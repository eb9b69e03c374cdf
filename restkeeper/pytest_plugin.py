"""The pytest plugin: a service for tests, which the tests of a process share, and a space of it for each test."""

import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

import restkeeper  # whose names are imported when they are used: pytest loads this plugin in every project

if TYPE_CHECKING:
    from restkeeper.testing import LiveServer, Space

LOG_LINES = 100
REQUESTS = 20
LONGEST_PROBLEM = 500  # characters


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what pyproject.toml says."""
    parser.addini("restkeeper", "the service's folder or JSON file, from the project's root folder", default=".")
    parser.addini("restkeeper_in_process", "import the service, and start no server", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    text = "restkeeper(seed=…, random=…, webhooks=…, unmet=…): of the fixture `api`"
    config.addinivalue_line("markers", text)


@pytest.fixture(scope="session")
def restkeeper_server(pytestconfig: pytest.Config) -> "Iterator[LiveServer]":
    """The service of the project, shared by the tests of one process. See `LiveServer`."""
    folder, in_process = pytestconfig.getini("restkeeper"), pytestconfig.getini("restkeeper_in_process")
    path = pytestconfig.rootpath / folder
    with ExitStack() as running:
        try:
            server = running.enter_context(restkeeper.LiveServer(path, in_process=in_process))
        except RuntimeError as error:
            text = f"{error}\npytest's setting `restkeeper`, the service's folder or JSON file, is {folder!r}: {path}"
            raise pytest.fail.Exception(text, pytrace=False) from None
        yield server


@pytest.fixture
def api(restkeeper_server: "LiveServer", request: pytest.FixtureRequest) -> "Iterator[Space]":
    """A service of its own for this test. See `Space`."""
    options = _options(request.node)
    options.pop("unmet", None)
    if isinstance(options.get("seed"), str):
        options["seed"] = request.config.rootpath / options["seed"]
    try:
        space = restkeeper_server.space(**options)
    except (ValueError, OSError) as error:
        raise pytest.fail.Exception(f"no space for this test: {error}", pytrace=False) from None
    with space:
        space.folder = request.config.rootpath
        yield space


def _options(item: Any) -> dict[str, Any]:
    """The options of the markers of a test: those of its module, then of its class, then its own."""
    markers = list(item.iter_markers("restkeeper"))[::-1]
    options = {name: value for each in markers for name, value in each.kwargs.items()}
    if any(each.args for each in markers) or options.get("unmet") not in (None, "allow"):
        text = "the marker restkeeper takes, each by its name, seed={…}, random=7, webhooks and unmet"
        pytest.fail(text, pytrace=False)
    return options


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Forget what other tests have declared."""
    if testing := sys.modules.get("restkeeper.testing.space"):
        testing.declared.clear()
        testing.missed.clear()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: "pytest.FixtureDef[Any]", request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Let what a fixture of a wider scope declares be met until its end."""
    if fixturedef.scope == "function":
        return (yield)
    testing = sys.modules.get("restkeeper.testing.space")
    before = {space: {*numbers} for space, numbers in testing.declared.items()} if testing else {}
    result = yield
    testing = sys.modules.get("restkeeper.testing.space")  # perhaps it has imported that
    if testing and (taken := testing.take_declared(before)):
        request.addfinalizer(lambda: _require_met(request.node, testing.unmet_of(taken)))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a test fail that passes, and has declared what has not happened."""
    result = yield
    if testing := sys.modules.get("restkeeper.testing.space"):
        _require_met(item, [*testing.missed, *testing.unmet_of(testing.declared)])
    return result


def _require_met(node: Any, unmet: list[Any]) -> None:
    if unmet and _options(node).get("unmet") is None:
        pytest.fail(f"this has not happened as declared: {', '.join(each.message for each in unmet)}", pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Show for a failed test the log of the fixture's service, and its last requests."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    for name, value in getattr(item, "funcargs", {}).items() if "restkeeper.testing" in sys.modules else ():
        if isinstance(value, restkeeper.LiveServer):
            if report.failed or report.when == "teardown":
                lines = value.new_log().splitlines()[-LOG_LINES:]  # since the last test
                report.sections += [(f"restkeeper log of {name}", "\n".join(lines))] * report.failed
        elif isinstance(value, restkeeper.Space) and report.failed and report.when == "call":
            with suppress(ValueError, OSError):  # the test has dropped it, or the server has ended
                lines = [_line(each) for each in value.requests(limit=REQUESTS)]
                report.sections.append((f"restkeeper requests of {name}", "\n".join(lines)))


def _line(sent: Any) -> str:
    """A request, its response or what it met; and if that was wrong, its content, and what the response has."""
    parts = [sent.method, sent.path + (f"?{sent.query}" if sent.query else ""), str(sent.status), sent.fault or ""]
    if (sent.status or 400) >= 400:
        parts += [sent.response[:LONGEST_PROBLEM], sent.body and f"for {sent.body[:LONGEST_PROBLEM]}"]
    return " ".join(filter(None, parts))
