"""Deprecation: what clients see before, in and after the window, and what operators see of its use."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from openapi_spec_validator import validate
from werkzeug.test import TestResponse

from restkeeper import Deprecation, Index, Rename, Resource, Text, Version, Versions
from restkeeper.config import Config, ConfigError
from restkeeper.contract.facts import Facts, Key
from restkeeper.web.application import Application
from tests.clock import SetClock
from tests.documents import parameters, unfolded
from tests.programs import resource
from tests.shapes import PEOPLE
from tests.shop import create_app
from tests.shop.related import create_app as create_related
from tests.test_versions import ProductSchema, Sent, deliverer_to

pytestmark = pytest.mark.needs("versions")

SINCE, SUNSET = date(2026, 11, 22), date(2027, 6, 1)
BEFORE, IN, LAST, AFTER = 1793491200.0, 1800000000.0, 1811807999.0, 1811808000.0  # AFTER: the sunset, 0:00 UTC
HEADERS = {"Deprecation": "@1795305600", "Sunset": "Tue, 01 Jun 2027 00:00:00 GMT"}
NONE: dict[str, str] = {}
PAGE = "https://example.org/changes"
ABOUT = f'<{PAGE}>; rel="deprecation"; type="text/html"'
WINDOW: dict[str, Any] = {"since": SINCE, "sunset": SUNSET}


UPGRADES = {2: [Rename("name", "title"), Rename("amount", "stock")]}
LAMPS = Resource("lamps", "lamp", ProductSchema, (Index("sku", unique=True),), ("title",), upgrades=UPGRADES)
OTHERS = Resource("others", "other", ProductSchema)


def versions(*deprecations: Deprecation, unversioned: str = "v2") -> Versions:
    return Versions(
        Version("v1", successor="v2", revisions={"lamps": 1}),
        Version("v2"),
        Version("v3"),
        unversioned=unversioned,
        deprecations=deprecations,
    )


@pytest.fixture
def clock() -> SetClock:
    return SetClock(IN)


Make = Callable[..., FlaskClient]


@pytest.fixture
def make(clock: SetClock) -> Make:
    def make(*deprecations: Deprecation, config: Config | None = None, **options: Any) -> FlaskClient:
        app = create_app(config or Config(), (LAMPS, OTHERS), versions=versions(*deprecations, **options), clock=clock)
        return app.test_client()

    return make


def of(version: str = "v2", **what: Any) -> Deprecation:
    return Deprecation(**{"version": version, **WINDOW, **what})


def marks(response: TestResponse) -> dict[str, str]:
    return {name: response.headers[name] for name in HEADERS if name in response.headers}


def links(response: TestResponse) -> list[str]:
    """The links with these relations, of the one Link header."""
    assert len(response.headers.getlist("Link")) <= 1
    found = response.headers.get("Link", "").split(", ") if "Link" in response.headers else []
    return [each for each in found if 'rel="deprecation"' in each or "successor" in each]


def id_of(client: FlaskClient, **fields: Any) -> str:
    made = client.post("/api/v2/lamps", json={"title": "Lamp", **fields})
    assert made.status_code == 200, made.text
    id: str = made.json["id"]
    return id


class TestVersion:
    def test_every_response_of_the_version_has_the_headers(self, make: Make, clock: SetClock) -> None:
        """From its declaration on, also problems; other versions, other paths and unknown versions have none."""
        client = make(of("v1", link=PAGE))
        id = id_of(client)
        for clock.now in (BEFORE, IN, LAST):
            for path in ("/api/v1/lamps", f"/api/v1/lamps/{id}", "/api/v1/lamps/none", "/api/v1/lamps?no=1"):
                response = client.get(path)
                assert marks(response) == HEADERS, path
                target = f"/api/v2{path.removeprefix('/api/v1').partition('?')[0]}"
                assert links(response) == [ABOUT, f'<{target}>; rel="successor-version"']
        assert marks(client.get("/api/v1/none")) == HEADERS
        assert links(client.get("/api/v1/none")) == [ABOUT]  # the successor does not have it either
        assert marks(client.post("/api/v1/lamps", data="{")) == marks(client.head("/api/v1/lamps")) == HEADERS
        for path in ("/api/v2/lamps", f"/lamps/{id}", "/", "/openapi.json", "/api/v9/lamps", "/none", "/api/"):
            assert marks(client.get(path)) == NONE, path
            assert links(client.get(path)) == []

    def test_the_links_of_pages_stay(self, make: Make) -> None:
        """One Link header has all of them, as far as there is room."""
        client = make(of("v1", link=f"{PAGE}/{'x' * 900}"))
        id_of(client), id_of(client)
        link = client.get("/api/v1/lamps?limit=1&offset=0").headers["Link"]
        targets = {each.partition('rel="')[2].partition('"')[0] for each in link.split(", ")}
        assert targets == {"first", "next", "last", "deprecation", "successor-version"}
        values = "&".join(f"name[ne]={'y' * 300}{n}" for n in range(4))
        response = client.get(f"/api/v1/lamps?limit=1&{values}")
        assert 'rel="next"' in response.headers["Link"] and len(response.headers["Link"]) <= 4096
        assert marks(response) == HEADERS and links(response) == ['</api/v2/lamps>; rel="successor-version"']

    def test_unversioned_paths_have_those_of_their_version(self, make: Make, clock: SetClock) -> None:
        """Or their own: then the version has none; after the sunset they are gone, and the version is not."""
        client = make(of("v1"), unversioned="v1")
        assert marks(client.get("/lamps")) == HEADERS
        assert links(client.get("/lamps")) == ['</api/v2/lamps>; rel="successor-version"']
        assert marks(client.get("/")) == marks(client.get("/healthz")) == NONE
        client = make(of("", link=PAGE))
        assert marks(client.get("/lamps")) == HEADERS and links(client.get("/lamps")) == [ABOUT]
        assert marks(client.get("/api/v2/lamps")) == NONE
        clock.now = AFTER
        assert client.get("/lamps").status_code == 410 and marks(client.get("/lamps")) == HEADERS
        assert client.get("/api/v2/lamps").status_code == 200

    def test_of_several_the_earliest_counts(self, make: Make) -> None:
        """The headers have one value each; the links are all there, and none twice."""
        early = of("v2", field="lamps.sku", since=date(2026, 1, 1), sunset=date(2028, 1, 1), link="/more")
        client = make(of("v2", link=PAGE), early, of("v2", path="/lamps", link=PAGE))
        response = client.get("/api/v2/lamps")
        assert marks(response) == HEADERS | {"Deprecation": "@1767225600"}
        assert links(response) == [ABOUT, '</more>; rel="deprecation"; type="text/html"']


class TestPath:
    def test_only_its_responses_have_the_headers(self, make: Make) -> None:
        """In its version, and unversioned if that is pinned to it."""
        client = make(of(path="/lamps/<id>", method="DELETE", link=PAGE))
        id, other = id_of(client), id_of(client)
        assert marks(client.get(f"/api/v2/lamps/{id}")) == marks(client.get("/api/v2/lamps")) == NONE
        assert marks(client.delete(f"/api/v3/lamps/{id}")) == NONE
        assert marks(client.delete(f"/api/v2/lamps/{id}")) == HEADERS  # 404
        response = client.delete(f"/lamps/{other}")
        assert response.status_code == 200 and marks(response) == HEADERS and links(response) == [ABOUT]
        client = make(of(path="/lamps"), of("v3", path="/lamps", method="GET"))
        for response in (client.get("/lamps"), client.post("/lamps", json={}), client.head("/api/v2/lamps")):
            assert marks(response) == HEADERS
        assert marks(client.get(f"/lamps/{id_of(client)}")) == NONE
        assert marks(client.get("/api/v3/lamps")) == marks(client.head("/api/v3/lamps")) == HEADERS
        assert marks(client.post("/api/v3/lamps", json={})) == NONE

    def test_after_its_sunset_it_is_gone(self, make: Make, clock: SetClock) -> None:
        """A problem of its own names the sunset; the other methods work."""
        client = make(of(path="/lamps/<id>", method="DELETE", reason="archive it"))
        id = id_of(client)
        clock.now = AFTER
        for path in (f"/lamps/{id}", f"/api/v2/lamps/{id}"):
            response = client.delete(path)
            assert response.status_code == 410 and response.json["type"].endswith("/problems/path-retired")
            assert response.json["detail"] == "DELETE /lamps/<id> was retired on 2027-06-01: archive it"
            assert response.json["sunset"] == "2027-06-01" and marks(response) == HEADERS
            assert client.get(path).status_code == 200
        assert client.delete(f"/api/v3/lamps/{id}").status_code == 200

    def test_it_stays_gone_when_the_code_is_gone(self, make: Make, clock: SetClock) -> None:
        """The declaration alone is enough."""
        clock.now = AFTER
        client = make(of(path="/chairs/<id>"), of(path="/lamps/<id>", method="LOCK"), of(field="chairs.legs"))
        assert client.get("/api/v2/chairs/1").status_code == 410
        assert client.get("/api/v2/chairs").status_code == client.get("/api/v2/chairs/1/2").status_code == 404
        assert client.open("/api/v2/lamps/1", method="LOCK").status_code == 410
        assert client.open("/api/v3/lamps/1", method="LOCK").status_code == 405


class TestField:
    def test_responses_that_bear_it_have_the_headers(self, make: Make) -> None:
        """Items, pages, created and deleted items; not those that select other fields, 304 and problems."""
        client = make(of(field="lamps.sku", link=PAGE))
        id = id_of(client, sku="a")
        one = f"/api/v2/lamps/{id}"
        for path in ("/lamps", one, "/lamps?limit=1", f"{one}?fields=id,sku", "/lamps?q=none"):
            response = client.get(path)
            assert marks(response) == HEADERS and links(response) == [ABOUT], path
        for path in (f"{one}?fields=id", "/lamps?fields=id,title", "/lamps/none", "/api/v3/lamps", "/others"):
            assert marks(client.get(path)) == NONE, path
        tags = [client.get(path).headers["ETag"] for path in ("/lamps", one)]
        for path, tag in zip(("/lamps", one), tags, strict=True):
            response = client.get(path, headers={"If-None-Match": tag})
            assert response.status_code == 304 and marks(response) == NONE
        assert marks(client.post("/lamps", json={"title": "b"})) == HEADERS
        assert marks(client.patch(one, json={"title": "c"})) == marks(client.delete(one)) == HEADERS
        assert marks(client.options("/lamps")) == NONE

    @pytest.mark.needs("batch", "ownership")
    def test_responses_with_items_of_several_collections_have_the_headers(self, clock: SetClock) -> None:
        """Embedded items, the list at the path of another item, and batches."""
        shown = Versions(Version("v2"), unversioned="v2", deprecations=[of(field="people.name")])
        client = create_related(Config(), versions=shown, clock=clock).test_client()
        person = client.post("/people", json={"name": "Ann"}).json["id"]
        orders = f"/people/{person}/orders"
        assert marks(client.post(orders, json={})) == NONE
        for path in ("/orders", orders, "/orders?embed=lines.thing"):
            assert marks(client.get(path)) == NONE, path
        one = f"/orders/{client.get(orders).json[0]['id']}"
        for path in ("/orders?embed=customer", f"{orders}?embed=customer&fields=id", f"{one}?embed=customer"):
            assert marks(client.get(path)) == HEADERS, path
        for path, expected in ((f"/people/{person}", HEADERS), (one, NONE)):
            sent = {"operations": [{"method": "PATCH", "path": path, "body": {}}]}
            assert marks(client.post("/api/v2/batch", json=sent)) == expected

    @pytest.mark.needs("events")
    def test_events_that_bear_it_have_the_headers(self, make: Make, clock: SetClock) -> None:
        """A page of the feed that has some, or may have some. After the sunset it goes, also from earlier events."""
        client = make(of(field="lamps.sku"))
        feed = "/api/v2/events"
        assert marks(client.get(feed)) == NONE  # there are none
        id_of(client, sku="a")
        for path in (feed, f"{feed}?collection=lamps,others", f"{feed}?type=lamp.created", f"{feed}?type=*&limit=1"):
            assert marks(client.get(path)) == HEADERS, path
        latest = client.get(feed).json[-1]["id"]
        for query in ("?collection=others", "?type=other.*", f"?after={latest}", "?type=none"):
            assert marks(client.get(f"{feed}{query}")) == NONE, query
        assert marks(client.get("/api/v3/events")) == NONE
        before = client.get(feed)
        clock.now = AFTER
        after = client.get(feed, headers={"If-None-Match": before.headers["ETag"]})
        assert before.json[0]["data"]["sku"] == client.get("/api/v3/events").json[0]["data"]["sku"] == "a"
        assert (after.status_code, marks(after)) == (200, NONE) and "sku" not in after.json[0]["data"]

    def test_lists_that_use_it_have_the_headers(self, make: Make) -> None:
        """As filter or as sort, also if they select other fields."""
        client = make(of(field="lamps.sku"))
        for query in ("sku=x", "sku[like]=x", "sort=stock,-sku"):
            assert marks(client.get(f"/lamps?{query}&fields=id")) == HEADERS, query
        assert marks(client.get("/lamps?q=sku&sort=title&fields=id")) == NONE
        assert marks(client.get("/lamps?sku[no]=x")) == NONE  # a problem has no items
        client = make(of("v1", field="lamps.amount"))
        assert marks(client.get("/api/v1/lamps")) == HEADERS
        assert marks(client.get("/api/v2/lamps")) == NONE
        assert marks(client.get("/api/v1/lamps?sort=amount&fields=id")) == HEADERS

    def test_after_its_sunset_it_is_gone_from_responses(self, make: Make, clock: SetClock) -> None:
        """Of this version, which gets other ETags; a copy of the list is not returned any more."""
        client = make(of(field="lamps.sku"))
        id = id_of(client, sku="a")
        paths = ("/lamps", f"/lamps/{id}", "/api/v2/lamps?limit=5", "/api/v1/lamps", "/api/v3/lamps")
        before = {path: client.get(path) for path in paths}
        clock.now = LAST
        assert all(client.get(path).data == response.data for path, response in before.items())
        clock.now = AFTER
        for path, response in before.items():
            after = client.get(path, headers={"If-None-Match": response.headers["ETag"]})
            if path in paths[3:]:
                assert after.status_code == 304
                continue
            assert after.status_code == 200 and b'"sku"' in response.data and b'"sku"' not in after.data
            assert marks(after) == NONE and after.headers["ETag"] != response.headers["ETag"]
            again = client.get(path, headers={"If-None-Match": after.headers["ETag"]})
            assert again.status_code == 304

    def test_after_its_sunset_items_have_changed(self, make: Make, clock: SetClock) -> None:
        """So conditions by date do not hold for what was read before."""
        client = make(of(field="lamps.sku"), of(field="lamps.tags", sunset=date(2027, 9, 1)))
        one = f"/lamps/{id_of(client)}"
        clock.now = LAST
        before = client.get(one).headers["Last-Modified"]
        assert client.get(one, headers={"If-Modified-Since": before}).status_code == 304
        clock.now = AFTER + 1
        assert client.get(one, headers={"If-Modified-Since": before}).status_code == 200
        assert client.delete(one, headers={"If-Unmodified-Since": before}).status_code == 412
        after = client.get(one).headers["Last-Modified"]
        assert after == "Tue, 01 Jun 2027 00:00:01 GMT"
        clock.now += 40 * 24 * 3600
        assert client.get(one, headers={"If-Modified-Since": after}).status_code == 304
        assert client.get(f"/api/v3{one}", headers={"If-Modified-Since": before}).status_code == 304

    def test_after_its_sunset_it_is_refused(self, make: Make, clock: SetClock) -> None:
        """At its place, with the sunset and all other faults."""
        client = make(of(field="lamps.sku", reason="use title"))
        one = f"/lamps/{id_of(client, sku='a')}"
        clock.now = AFTER
        gone = "was retired on 2027-06-01: use title"
        for response in (
            client.post("/lamps", json={"sku": "x", "stock": -1, "title": "t"}),
            client.put(one, json={"sku": None, "stock": -1, "title": "t"}),
            client.patch(one, json={"sku": None, "stock": -1}),
        ):
            assert response.status_code == 422
            assert [fault["pointer"] for fault in response.json["errors"]] == ["#/sku", "#/stock"]
            assert response.json["errors"][0]["detail"] == gone
        for query, name, detail in (
            ("sku=x", "sku", gone),
            ("sku[like]=x", "sku[like]", gone),
            ("sort=-sku", "sort", f"cannot be 'sku', which {gone}"),
            ("fields=id,sku", "fields", f"cannot be 'sku', which {gone}"),
        ):
            response = client.get(f"/lamps?{query}")
            assert response.status_code == 400
            assert response.json["errors"] == [{"parameter": name, "detail": detail}]
        assert client.get(f"{one}?fields=sku").json["errors"][0]["parameter"] == "fields"

    def test_what_is_stored_of_it_stays(self, make: Make, clock: SetClock) -> None:
        """Changes by callers who do not see it preserve it, and other versions show it."""
        client = make(of(field="lamps.sku"))
        id = id_of(client, sku="a", tags=["x"])
        clock.now = AFTER
        changed = client.put(f"/api/v2/lamps/{id}", json={"title": "new"})
        assert changed.status_code == 200 and "sku" not in changed.json and changed.json["tags"] == []
        same = client.put(f"/api/v2/lamps/{id}", json=changed.json)
        assert same.json == changed.json
        assert client.patch(f"/api/v2/lamps/{id}", json={"stock": 3}).json["version"] == 3
        assert client.get(f"/api/v3/lamps/{id}").json["sku"] == client.get(f"/api/v1/lamps/{id}").json["sku"] == "a"
        made = client.post("/api/v2/lamps", json={"title": "second"}).json
        assert client.get(f"/api/v3/lamps/{made['id']}").json["sku"] is None
        client = make(of("v1", field="lamps.amount"))
        id = id_of(client, stock=7)
        clock.now = AFTER
        assert client.get(f"/api/v1/lamps/{id}").json["name"] == "Lamp"
        assert client.put(f"/api/v1/lamps/{id}", json={"name": "New"}).status_code == 200
        assert "amount" not in client.get("/api/v1/lamps").json[0]
        assert client.get(f"/api/v2/lamps/{id}").json | {"title": "New", "stock": 7} == client.get(f"/lamps/{id}").json

    @pytest.mark.needs("webhooks")
    def test_it_goes_from_the_data_of_webhooks(self, make: Make, clock: SetClock) -> None:
        client, sent = make(of(field="lamps.stock"), config=Config(webhook_allow_private=True)), Sent()
        for version in ("v2", "v3"):
            assert client.post(f"/api/{version}/webhooks", json={"url": f"http://x.example/{version}"}).json
        id_of(client, stock=1)
        clock.now = AFTER
        deliverer_to(sent, client.application).deliver_once()
        assert {version: "stock" in item for version, item in sent} == {"v2": False, "v3": True}


class TestDeclarations:
    def test_the_line_names_what_there_is(self, make: Make, clock: SetClock) -> None:
        """One line. What creating an item needs cannot be gone either."""
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"field": "chairs.legs"}, "no collection 'chairs'; there are: lamps, others"),
            ({"field": "lamps.colour"}, "no field 'colour' that can go; there are: title, sku, price, stock, tags, "),
            ({"path": "/chairs"}, "no path '/chairs'; there are: .*/lamps, /lamps/<id>"),
            ({"path": "/lamps", "method": "PUT"}, "no method 'PUT'; there are: GET, HEAD, OPTIONS, POST"),
            ({"field": "lamps.title"}, "field is required: give it a load_default"),
        ]
        for declared, message in wrong:
            with pytest.raises(ConfigError, match=message) as caught:
                make(of(**declared))
            assert "\n" not in str(caught.value)
        clock.now = AFTER
        with pytest.raises(ConfigError, match="the field is required"):
            make(of(field="lamps.title"))
        for link in ("x\r\ny", '<x"', "x" * 1001):
            with pytest.raises(ValueError, match="is no URL"):
                versions(of(link=link))
        with pytest.raises(ValueError, match=r"Deprecation of v2 lamps\.sku: is declared twice"):
            versions(of(field="lamps.sku"), of(field="lamps.sku"))
        with pytest.raises(ValueError, match="name a field or a path"):
            versions(of(field="lamps.sku", path="/lamps"))


ALL = (
    of("v1", link=PAGE, reason="old"),
    of(),
    of(path="/others/<id>", method="DELETE", sunset=date(2027, 5, 1)),
    of(field="lamps.sku", link=PAGE),
)


@pytest.mark.needs("openapi")
class TestDocument:
    def test_marks(self, make: Make) -> None:
        """Of operations, parameters, properties and the version; all else has none."""
        client = make(*(each for each in ALL if each.part or each.version == "v1"))
        document = client.get("/api/v2/openapi.json").json
        validate(document)
        marked = {"deprecated": True, "x-deprecated-since": "2026-11-22", "x-sunset": "2027-06-01"}
        paths, parts = document["paths"], document["components"]
        others = paths["/others/{id}"]
        assert others["delete"]["x-sunset"] == "2027-05-01" and others["delete"]["deprecated"]
        assert "deprecated" not in others["get"] and "servers" not in others
        for name in ("Lamp", "LampInput", "LampPatch"):
            properties = parts["schemas"][name]["properties"]
            assert marked.items() <= properties["sku"].items() and "deprecated" not in properties["title"]
            assert properties["sku"]["x-deprecated-link"] == PAGE
            assert "deprecated" not in parts["schemas"][name.replace("Lamp", "Other")]["properties"]["sku"]
        filters = parameters(document, paths["/lamps"]["get"])
        assert marked.items() <= filters["sku[like]"].items() and "deprecated" not in filters["title[like]"]
        assert "`Sunset`" in document["info"]["description"]
        revisions = {"lamps": 2, "others": 1}
        assert document["info"]["x-version"] == {"name": "v2", "state": "current", "revisions": revisions}

    def test_a_version_is_marked(self, make: Make) -> None:
        """In `info`, and each operation in a way that every tool knows."""
        client = make(*ALL)
        document = client.get("/api/v1/openapi.json").json
        validate(document)
        dates = {"since": "2026-11-22", "sunset": "2027-06-01", "reason": "old", "link": PAGE, "successor": "v2"}
        version = {"name": "v1", "state": "deprecated", "revisions": {"lamps": 1, "others": 1}}
        assert document["info"]["x-version"] == version | dates
        for path, methods in unfolded(document)["paths"].items():
            for method in methods.keys() & {"get", "post", "put", "patch", "delete"}:
                assert ("deprecated" in methods[method]) is path.startswith("/api/v1/"), path
        other = client.get("/api/v3/openapi.json").json
        assert '"deprecated": true' not in json.dumps(other) and "x-sunset" not in json.dumps(other)

    def test_the_unversioned_paths_are_marked(self, make: Make) -> None:
        """At their server; the contract check knows that of each operation there, with the earliest sunset."""
        document = make(of("")).get("/openapi.json").json
        validate(document)
        versioned, unversioned = document["servers"]
        assert "x-deprecated" not in versioned and "deprecated" not in document["paths"]["/lamps"]["get"]
        assert (unversioned["x-deprecated"], unversioned["x-sunset"]) == (True, "2027-06-01")
        document["paths"]["/others"]["get"] |= {"deprecated": True, "x-sunset": "2027-05-01"}
        facts = Facts(document).facts
        prefix = versioned["url"]
        for path, sunset in (("/lamps", "2027-06-01"), (f"{prefix}/lamps", None), ("/others", "2027-05-01")):
            assert facts.get(Key(f"GET {path}", row="sunset")) == sunset, path

    def test_after_the_sunset_the_document_has_it_no_more(self, make: Make, clock: SetClock) -> None:
        client = make(*(each for each in ALL if each.part))
        before = client.get("/openapi.json").text
        clock.now = AFTER
        after = client.get("/openapi.json")
        document = after.json
        validate(document)
        assert after.text != before and '"x-sunset"' not in after.text and "x-deprecated" not in after.text
        paths, schemas = document["paths"], document["components"]["schemas"]
        assert "delete" not in paths["/others/{id}"] and "delete" in paths["/lamps/{id}"]
        assert "delete_other" not in after.text
        for name in ("Lamp", "LampInput", "LampPatch"):
            assert "sku" not in schemas[name]["properties"]
        assert "sku" not in schemas["LampField"]["enum"] and "sku" not in parameters(document, paths["/lamps"]["get"])


class TestUses:
    @pytest.mark.needs("metrics")
    def test_uses_are_counted(self, make: Make) -> None:
        """By version and part, never by caller; refused credentials are no use."""
        token = "a-metrics-token-of-enough-characters"  # noqa: S105
        client = make(*ALL[2:], of(""), of("v1"), config=Config(metrics_token=token))
        client.get("/lamps?sku=x&fields=id")
        client.get("/lamps?fields=id")
        client.get("/api/v1/lamps", headers={"Authorization": "Bearer no"})
        client.get("/api/v3/lamps")
        text = client.get("/metrics", headers={"Authorization": f"Bearer {token}"}).text
        counts = dict(
            line.removeprefix("restkeeper_deprecated_uses_total").split(" ")
            for line in text.splitlines()
            if line.startswith("restkeeper_deprecated_uses_total")
        )
        assert counts == {'{part="",version="unversioned"}': "2.0", '{part="lamps.sku",version="v2"}': "1.0"}

    def test_the_log_says_what_was_used(self, make: Make, capfd: pytest.CaptureFixture[str]) -> None:
        """In the line of the request, beside its caller; other lines do not have the field."""
        client = make(of(field="lamps.tags"), *ALL[3:], config=Config(log_format="json", log_level="info"))
        client.get("/lamps?sort=sku")
        client.get("/lamps?fields=id")
        used, other = capfd.readouterr().err.splitlines()
        assert json.loads(used)["deprecated"] == "v2 lamps.tags, v2 lamps.sku"
        assert json.loads(used)["caller"] == "127.0.0.1"
        assert "deprecated" not in other


def test_an_export_is_in_the_form_of_its_version(make: Make, clock: SetClock, tmp_path: Path) -> None:
    client = make(of(field="lamps.sku"), config=Config(database_url=f"sqlite:///{tmp_path}/store.db"))
    id_of(client, sku="a")
    application: Application = client.application
    export = application.test_cli_runner().invoke
    clock.now = AFTER
    assert "sku" not in json.loads(export(args=["export", "lamps", "--version", "v2"]).stdout)
    assert json.loads(export(args=["export", "lamps"]).stdout)["sku"] == "a"


def test_a_unique_field_with_a_default_cannot_go() -> None:
    notes = resource({"sku": Text(load_default="")}, indexes=(Index("sku", unique=True),))
    shown = Versions(Version("v2"), unversioned="v2", deprecations=[of(field="notes.sku")])
    with pytest.raises(ConfigError, match="^versions: Deprecation of v2 notes.sku: the field is unique and has a def"):
        create_app(Config(), [notes], versions=shown)


@pytest.mark.needs("batch", "openapi")
def test_a_reference_is_gone_after_its_sunset(clock: SetClock) -> None:
    """It is embedded no more, new items cannot have it, and the document goes without it."""
    shown = Versions(Version("v1"), unversioned="v1", deprecations=[of("v1", field="people.manager")])
    client = create_app(Config(), [PEOPLE], versions=shown, clock=clock).test_client()
    ada = client.post("/people", json={"name": "Ada"}).json["id"]
    below = {"method": "POST", "path": f"/people/{ada}/people", "body": {"name": "Bob"}}

    def statuses() -> list[int]:
        return [
            client.post("/api/v1/batch", json={"operations": [below]}).status_code,
            client.get("/people?embed=manager").status_code,
            client.get("/openapi.json").status_code,
        ]

    assert statuses() == [200, 200, 200]
    clock.now = AFTER
    assert statuses() == [422, 400, 200]
    assert "manager" not in client.get("/people").json[0]
