"""The HTML pages in a real, headless browser."""

import json
from itertools import product
from pathlib import Path

import pytest

from tests.browser import Tab
from tests.live import Gunicorn

pytestmark = pytest.mark.matrix

LIST = "#operations-products-list_products"
CALLS = """JSON.stringify([...document.querySelectorAll(".opblock-summary")].map(each => [
  each.querySelector(".opblock-summary-method").textContent.toLowerCase(),
  each.querySelector(".opblock-summary-path").dataset.path,
]))"""


def test_the_docs_page_shows_every_operation_once(server: Gunicorn, tab: Tab) -> None:
    """The page has each operation, folded, also those of webhooks."""
    document = server.get("/openapi.json").json()
    paths = document["paths"] | document["webhooks"]
    once = {(method, path) for path, item in paths.items() for method in item.keys() - {"parameters", "servers"}}
    tab.open(f"{server.base}/docs")
    assert tab.shown(".opblock") == len(once)
    shown = [tuple(call) for call in json.loads(tab.run(CALLS))]
    assert sorted(shown) == sorted(once)
    assert tab.run("document.querySelectorAll('.opblock.is-open').length") == 0
    assert_clean(server, tab)


def test_the_docs_page_folds_filters_into_a_table(server: Gunicorn, tab: Tab) -> None:
    """An opened list has each filter once, and the height of two windows and a half at most."""
    tab.call("Emulation.setDeviceMetricsOverride", width=1200, height=1600, deviceScaleFactor=1, mobile=False)
    tab.open(f"{server.base}/docs")
    assert tab.shown(".opblock") and tab.run("document.querySelector('.operation-filter-input') !== null")
    tab.click(f"{LIST} button")
    assert tab.shown(f'{LIST} tr[data-param-name="filters"] table tbody tr') == 13  # equality, 11 operators, and paths
    assert tab.run(f"document.querySelectorAll('{LIST} tr[data-param-name]').length") == 18
    text = tab.run(f"document.querySelector('{LIST}').innerText")
    assert "field[gte]" in text and "products:read" in text
    assert "431" in tab.run("document.querySelector('.information-container').innerText")
    assert 500 < tab.run(f"document.querySelector('{LIST}').offsetHeight") < 4000
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
        assert tab.shown("#operations-products-list_products")
        assert_clean(server, tab)


def test_the_small_pages_are_complete(server: Gunicorn, tab: Tab) -> None:
    """The index shows the collections; the page of a problem shows code as code."""
    for path, selector in (("/", "table a"), ("/problems/invalid-query", "p code")):
        tab.open(server.base + path)
        assert tab.shown(selector) >= 2
    assert_clean(server, tab)


def assert_clean(server: Gunicorn, tab: Tab) -> None:
    """No error or warning in the console, no violation of the policy, and no request to any other host."""
    calls, entries = (tab.parameters_of(name) for name in ("Runtime.consoleAPICalled", "Log.entryAdded"))
    levels = {call["type"] for call in calls} | {entry["entry"]["level"] for entry in entries}
    assert tab.parameters_of("Runtime.exceptionThrown") == [] and not levels & {"error", "warning", "assert"}
    urls = [request["request"]["url"] for request in tab.parameters_of("Network.requestWillBeSent")]
    assert urls and all(url.startswith((f"{server.base}/", "data:")) for url in urls)
    responses = tab.parameters_of("Network.responseReceived")
    assert {response["response"]["status"] for response in responses} <= {200, 304}


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
