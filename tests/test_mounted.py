"""The service under a prefix of paths: every address in a response begins with it, and what it names is there."""

import re
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from flask import Blueprint
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client, TestResponse

from restkeeper import Config, Versions, needs
from restkeeper.web.application import Application
from tests.callers import ADMIN, ADMIN_KEY
from tests.clock import SetClock
from tests.shop import create_app as create_shop
from tests.shop.related import VERSIONS, create_app
from tests.test_pages import links_of

pytestmark = pytest.mark.needs("keys", "ownership", "versions", "openapi", "webhooks", "idempotency", "pages")

PREFIXES = {"/tests/k3f9": "/tests/k3f9", "/f%C3%BCr%20alle": "/für alle"}  # by what a client sends
CONFIG = Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off")
HTML = {"Accept": "text/html"}


class Mounted:
    """A client of an application that is mounted at several prefixes, and calls it at one; all else is not found."""

    def __init__(self, app: Application, prefix: str) -> None:
        mounts = {each.encode().decode("latin-1"): app for each in PREFIXES.values()}  # as PEP 3333 has texts
        self._client = Client(DispatcherMiddleware(NotFound(), mounts))
        self._prefix = prefix

    def get(self, path: str, **headers: str) -> TestResponse:
        return self._client.get(f"{self._prefix}{path}", headers=ADMIN | headers, buffered=True)

    def post(self, path: str, sent: Any = None, **headers: str) -> TestResponse:
        made = self._client.post(f"{self._prefix}{path}", json=sent or {}, headers=ADMIN | headers)
        assert made.status_code == 200, made.text
        return made

    def follow(self, address: str, document: str = "/") -> TestResponse:
        target = urlsplit(urljoin(f"http://localhost{self._prefix}{document}", address))
        assert target.netloc == "localhost" and target.path.startswith(f"{self._prefix}/"), address
        return self.get(f"{target.path.removeprefix(self._prefix)}?{target.query}")

    def walk(self, address: str, rel: str) -> list[list[Any]]:
        pages = [self.follow(address)]
        while link := links_of(pages[-1]).get(rel):
            pages.append(self.follow(link))
        return [page.json for page in pages]


@pytest.fixture(params=PREFIXES)
def prefix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def app() -> Application:
    return create_app(CONFIG)


@pytest.fixture
def mounted(app: Application, prefix: str) -> Mounted:
    return Mounted(app, prefix)


def test_what_is_created_is_at_its_location(mounted: Mounted) -> None:
    """Also below the path of another item, with a secret, and in the response to a repetition."""
    person = mounted.post("/people").json["id"]
    sent = {"/people": {}, "/api/v2/keys": {"name": "a", "scopes": ["people:read"]}}
    sent |= {f"{version}/people/{person}/orders": {} for version in ("", "/api/v2")}
    for path, again in ((path, again) for path in sent for again in (False, True)):
        made = mounted.post(path, sent[path], **{"Idempotency-Key": path})
        assert ("Idempotent-Replayed" in made.headers) is again
        found = mounted.follow(made.headers["Location"])
        assert (found.status_code, found.json["id"]) == (200, made.json["id"])


def test_lists_lead_to_their_other_pages(app: Application) -> None:
    """By cursor and offset. One application at two prefixes, with one cache of pages, gives each its own."""
    ids = [Mounted(app, next(iter(PREFIXES))).post("/things").json["id"] for _ in range(5)]
    for address in ("things?limit=2&sort=id", "api/v1/things?limit=2&sort=id&offset=0"):
        for mounted in (Mounted(app, prefix) for prefix in PREFIXES):
            pages = mounted.walk(address, "next")
            assert [[each["id"] for each in page] for page in pages] == [ids[:2], ids[2:4], ids[4:]]
            found = links_of(mounted.follow(address))
            assert mounted.follow(found["first"]).json == pages[0]
            back = mounted.walk(found["last"], "prev")
            assert [each["id"] for page in reversed(back) for each in page] == ids


def test_the_feed_and_deliveries_lead_on(mounted: Mounted) -> None:
    hook = mounted.post("/api/v2/webhooks", {"url": "https://example.org/", "types": ["*"]}).json["id"]
    pings = [mounted.post(f"/api/v2/webhooks/{hook}/ping").json["id"] for _ in range(3)]
    pages = mounted.walk(f"api/v2/webhooks/{hook}/deliveries?limit=2", "next")
    assert [[each["id"] for each in page] for page in pages] == [[pings[2], pings[1]], [pings[0]]]
    things = [mounted.post("/things").json["id"] for _ in range(2)]
    event = mounted.get("/api/v2/events?limit=1&type=thing.*")
    following = mounted.follow(links_of(event)["next"])
    assert [each["data"]["id"] for each in (*event.json, *following.json)] == things


def test_embedded_items_lead_to_those_that_follow(mounted: Mounted) -> None:
    person = mounted.post("/people").json["id"]
    for _ in range(12):
        mounted.post("/orders", {"customer": person})
    for version in ("", "/api/v1", "/api/v2"):
        shown = mounted.get(f"{version}/people/{person}?embed=orders").json
        rest = mounted.follow(shown["orders_next"])
        assert (len(shown["orders"]), len(rest.json), "Sunset" in rest.headers) == (10, 2, version == "/api/v1")


def test_versions_lead_to_their_successor(prefix: str) -> None:
    (ends,) = VERSIONS.deprecations
    retired = Versions(*VERSIONS, unversioned="v2", deprecations=[replace(ends, sunset=ends.since)])
    for versions, status in ((VERSIONS, 200), (retired, 410)):
        mounted = Mounted(create_app(CONFIG, versions=versions, clock=SetClock(1800000000.0)), prefix)
        old = mounted.get("/api/v1/people")
        assert (old.status_code, links_of(old)["successor-version"]) == (status, f"{prefix}/api/v2/people")
        assert mounted.follow(links_of(old)["successor-version"]).json == []


def test_a_problem_leads_to_its_type(mounted: Mounted, prefix: str) -> None:
    """And from there to the start; its instance is what was asked for."""
    problem = mounted.get("/people/no%20one").json
    assert problem["instance"] == f"{prefix}/people/no%20one"
    assert mounted.get("/none").json["detail"] == f"nothing is at {PREFIXES[prefix]}/none"
    assert mounted.follow(problem["type"]).json["title"] == problem["title"]
    (start,) = re.findall('href="(/[^"]*)"', mounted.get("/problems/not-found", **HTML).text)
    assert mounted.follow(start).json["service"] == "restkeeper"
    trusting = Mounted(create_app(replace(CONFIG, trusted_hosts=("localhost",))), prefix)
    assert trusting.get("/people/none").json["type"] == problem["type"] == f"{prefix}/problems/not-found"


def test_the_index_leads_everywhere(mounted: Mounted, prefix: str) -> None:
    """As JSON and as HTML, whose first calls are to the prefix."""
    index = mounted.get("/").json
    addresses = [*(each["url"] for each in index["collections"]), *index["links"].values()]
    assert {mounted.follow(each).status_code for each in addresses} == {200} and len(addresses) == 10
    page = mounted.get("/", **HTML).text
    assert re.findall('href="(/[^"]*)"', page) == addresses and f"curl -i https://HOST{prefix}/people" in page


def test_the_docs_page_finds_its_files_and_the_document(mounted: Mounted, prefix: str) -> None:
    """Whose server is the prefix, also after it was read at another one."""
    page = mounted.get("/docs", **HTML).text
    files = re.findall('(?:href|src)="([^"]*)"', page)
    assert {mounted.follow(each, "/docs").status_code for each in files} == {200} and len(files) == 5
    for address, below in (("openapi.json", ["/api/v2", ""]), ("api/v1/openapi.json", ["/api/v1"])):
        servers = [each["url"] for each in mounted.follow(address, "/docs").json["servers"]]
        assert servers == [prefix + each for each in below]
    for file in re.findall('(?:href|src)="(browse/[^"]*)"', mounted.get("/browse", **HTML).text):
        assert mounted.follow(file, "/browse").status_code == 200


def test_redirects_stay_below_the_prefix(prefix: str) -> None:
    """Those of a route of the service's own that ends in a slash."""
    about = Blueprint("about", __name__)
    about.add_url_rule("/about/", view_func=needs("public")(lambda: "about us"), endpoint="read_about")
    mounted = Mounted(create_shop(CONFIG, blueprints=[about]), prefix)
    moved = mounted.get("/about")
    assert moved.status_code == 308 and mounted.follow(moved.headers["Location"]).text == "about us"
