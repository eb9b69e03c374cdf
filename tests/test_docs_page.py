"""The HTML pages in a real, headless browser, over the DevTools protocol."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import websocket

from tests.live import Gunicorn

pytestmark = pytest.mark.timeout(180)  # a busy machine renders slowly

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WAIT_SECONDS = 60.0
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0", "about:blank"),
)

# Resolves with the number of elements when there are any.
SHOWN = """new Promise(done => {{
  const look = () => document.querySelector({0}) ? done(document.querySelectorAll({0}).length) : setTimeout(look, 20);
  look();
}})"""


class Tab:
    """A tab of a browser, and its DevTools events."""

    def __init__(self, address: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._socket = websocket.create_connection(address, timeout=WAIT_SECONDS, suppress_origin=True)
        self._session: dict[str, str] = {}
        self._calls = 0
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Call a method and wait for its result; events that arrive before it are stored."""
        self._calls += 1
        self._socket.send(json.dumps({"id": self._calls, "method": method, "params": params, **self._session}))
        while (message := json.loads(self._socket.recv())).get("id") != self._calls:
            self.events.append(message)
        assert "error" not in message, message
        return message["result"]

    def open(self, url: str) -> None:
        """Load a page."""
        self.load(lambda: self.call("Page.navigate", url=url))

    def load(self, act: Callable[[], object]) -> None:
        """Do what loads a page, and wait until it is loaded."""
        begin = len(self.events)
        act()
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events[begin:]):
            self.events.append(json.loads(self._socket.recv()))

    def shown(self, selector: str) -> int:
        """Wait until the page has elements for the CSS selector; return how many."""
        return int(self.run(SHOWN.format(json.dumps(selector))))

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def write(self, selector: str, text: str) -> None:
        """Type into a field, in place of its value."""
        self.run(f"document.querySelector({json.dumps(selector)}).select()")
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def run(self, script: str) -> Any:
        return self.call("Runtime.evaluate", expression=script, awaitPromise=True)["result"].get("value")

    def parameters_of(self, *methods: str) -> list[Any]:
        """The parameters of the events of these methods."""
        return [event["params"] for event in self.events if event.get("method") in methods]

    def close(self) -> None:
        self._session = {}
        self.call("Target.closeTarget", targetId=self._target)
        self._socket.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a new browser."""
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no chromium")
        pytest.skip("there is no chromium")
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        yield next(line.split()[-1] for line in running.stderr if line.startswith("DevTools listening on"))
        running.terminate()
        running.stderr.read()


@pytest.fixture
def tab(browser: str) -> Iterator[Tab]:
    """A new tab."""
    opened = Tab(browser)
    yield opened
    opened.close()


LIST = "#operations-products-list_products"
CALLS = """JSON.stringify([...document.querySelectorAll(".opblock-summary")].map(each => [
  each.querySelector(".opblock-summary-method").textContent.toLowerCase(),
  each.querySelector(".opblock-summary-path").dataset.path,
]))"""


def test_the_docs_page_shows_every_operation_once(server: Gunicorn, tab: Tab) -> None:
    """The page has each operation, folded, also those of webhooks; of two paths it has the one with a version."""
    document = server.get("/openapi.json").json()
    paths = document["paths"] | document["webhooks"]
    calls = {(method, path) for path, item in paths.items() for method in item.keys() - {"parameters"}}
    once = {(method, path) for method, path in calls if (method, f"/api/v1{path}") not in calls}
    tab.open(f"{server.base}/docs")
    assert tab.shown(".opblock") == len(once) < len(calls)
    shown = [tuple(call) for call in json.loads(tab.run(CALLS))]
    assert sorted(shown) == sorted(once)
    assert tab.run("document.querySelectorAll('.opblock.is-open').length") == 0
    assert_clean(server, tab)


def test_the_docs_page_folds_filters_into_a_table(server: Gunicorn, tab: Tab) -> None:
    """An opened list has each filter once, its other path, and at most the height of two windows."""
    tab.call("Emulation.setDeviceMetricsOverride", width=1200, height=1600, deviceScaleFactor=1, mobile=False)
    tab.open(f"{server.base}/docs")
    assert tab.shown(".opblock") and tab.run("document.querySelector('.operation-filter-input') !== null")
    tab.click(f"{LIST} button")
    assert (
        tab.shown(f'{LIST} tr[data-param-name="filters"] table tbody tr') == 13
    )  # operators, two of them also for lists, and paths
    assert tab.run(f"document.querySelectorAll('{LIST} tr[data-param-name]').length") == 11
    text = tab.run(f"document.querySelector('{LIST}').innerText")
    assert "field[gte]" in text and "GET /products is the same operation" in " ".join(text.split()).replace(" .", ".")
    assert 500 < tab.run(f"document.querySelector('{LIST}').offsetHeight") < 3200
    assert_clean(server, tab)


def test_the_docs_page_can_send_requests(server: Gunicorn, tab: Tab) -> None:
    """An operation can be tried with a filter; the page shows the response, within its Content-Security-Policy."""
    assert server.post("/products", {"name": "Lamp"}).status == 200
    tab.open(f"{server.base}/docs")
    for button in (f"{LIST} button", f"{LIST} .try-out__btn"):
        assert tab.shown(button)
        tab.click(button)
    area = f'{LIST} tr[data-param-name="filters"] textarea'
    assert tab.shown(area)
    tab.write(area, '{"name[like]": "lam"}')
    tab.click(f"{LIST} .execute")
    assert tab.shown(f"{LIST} .live-responses-table .highlight-code")
    sent = [request["request"]["url"] for request in tab.parameters_of("Network.requestWillBeSent")]
    assert [url for url in sent if "/api/v1/products?" in url and "name%5Blike%5D=lam" in url]
    assert tab.shown(".authorize")
    tab.click(".authorize")
    assert tab.shown(".dialog-ux input")
    assert_clean(server, tab)


def test_the_docs_page_has_a_choice_of_version(tmp_path: Path, tab: Tab) -> None:
    """It bears the name of the service. It begins with a version that is not deprecated, and grey is only what is."""
    with Gunicorn(tmp_path, app="tests.shop.reports:create_versions()", workers=1) as server:
        for query, chosen in (("", "v2"), ("?version=v1", "v1")):
            tab.open(f"{server.base}/docs{query}")
            assert tab.shown("#operations-reports-read_stock") and tab.run("document.title") == "Lamps & more"
            offered = tab.run("document.querySelector('#version').innerText").split()
            assert offered == ["Version", "v1", "(deprecated)", "v2"]
            assert tab.run("document.querySelector('#version select').value") == chosen
            assert bool(tab.run("document.querySelectorAll('.opblock-deprecated').length")) is (chosen == "v1")
        tab.load(lambda: tab.run("s = document.querySelector('#version select'); s.value = 'v2'; s.onchange()"))
        assert tab.shown("#operations-products-list_products_v2")
        assert_clean(server, tab)


def test_the_small_pages_are_complete(server: Gunicorn, tab: Tab) -> None:
    """The index shows the collections; the page of a problem shows code as code."""
    for path, selector in (("/", "table a"), ("/problems/invalid-query", "p code")):
        tab.open(server.base + path)
        assert tab.shown(selector) >= 2
    assert_clean(server, tab)


def assert_clean(server: Gunicorn, tab: Tab) -> None:
    """No error or warning in the console, no violation of the policy, and no request to any other host."""
    assert tab.parameters_of("Runtime.exceptionThrown") == []
    assert [
        entry for entry in tab.parameters_of("Log.entryAdded") if entry["entry"]["level"] in ("error", "warning")
    ] == []
    assert [
        call for call in tab.parameters_of("Runtime.consoleAPICalled") if call["type"] in ("error", "warning", "assert")
    ] == []
    urls = [request["request"]["url"] for request in tab.parameters_of("Network.requestWillBeSent")]
    assert urls and all(url.startswith((f"{server.base}/", "data:")) for url in urls)
    assert all(
        response["response"]["status"] in (200, 304) for response in tab.parameters_of("Network.responseReceived")
    )


def test_pages_are_validated_before_each_use(server: Gunicorn) -> None:
    """A page may change with the next release: caches validate it by its ETag (RFC 9110, section 13).

    An ETag is of the bytes: that of a page and of its JSON differ.
    """
    tags: dict[str, set[str]] = {}
    paths = ("/", "/docs", "/docs/docs.css", "/docs/start.js", "/openapi.json", "/problems/not-found")
    for path, accept in product(paths, ("text/html, */*;q=0.1", "application/json, */*;q=0.1")):
        full = server.get(path, {"Accept": accept})
        assert (full.status, full.headers["cache-control"]) == (200, "no-cache"), path
        again = server.get(path, {"Accept": accept, "If-None-Match": full.headers["etag"]})
        assert (again.status, again.body) == (304, b"") and "content-type" not in again.headers
        named = ("etag", "cache-control", "vary")  # RFC 9110, section 15.4.5
        assert [again.headers.get(name) for name in named] == [full.headers.get(name) for name in named]
        assert server.get(path, {"Accept": accept, "If-Match": '"other"'}).status == 412
        tags.setdefault(path, set()).add(full.headers["etag"])
    assert {path for path, both in tags.items() if len(both) == 2} == {"/", "/problems/not-found"}
