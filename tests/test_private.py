"""Private fields: for a caller without the scope they are not there, by any route."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint, Flask
from flask.testing import FlaskClient
from marshmallow import ValidationError, validate, validates_schema
from werkzeug.test import TestResponse

from restkeeper import (
    Config,
    Convert,
    Deprecation,
    Index,
    Items,
    ItemSchema,
    JsonObject,
    Lifecycle,
    ListOf,
    Money,
    Reference,
    Remove,
    Rename,
    Resource,
    Status,
    Step,
    Text,
    Version,
    Versions,
    Whole,
    find_items,
    needs,
    read_item,
    shown,
)
from restkeeper.features.webhooks.deliverer import deliverer_of
from restkeeper.features.webhooks.sender import DeliveryResult
from restkeeper.service import service_of
from tests.callers import ADMIN, ADMIN_KEY, key, pointers
from tests.clock import SetClock
from tests.shapes import PostSchema
from tests.shop import create_app
from tests.shop.references import OwnerSchema
from tests.test_deprecation import AFTER, IN, SINCE, SUNSET
from tests.test_versions import Sent, deliverer_to

pytestmark = pytest.mark.needs("keys", "events", "batch", "idempotency", "dialects", "versions", "webhooks", "openapi")

CONFIG = Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off", failure_limit="off")
MANAGE = "jobs:manage"
SECRET = "the customer pays late"  # noqa: S105 - no password
PRIVATE = ("note", "cost", "extra", "customer", "tags")


class JobSchema(ItemSchema):
    title = Text(1, 50, required=True)
    note = Text(0, 100, load_default="", readable_by=MANAGE)
    cost = Money(load_default=None, allow_none=True, readable_by=MANAGE)
    extra = JsonObject(load_default=dict, readable_by=MANAGE)
    tags = ListOf(Text(), load_default=list, readable_by=MANAGE)
    customer = Reference("customers", load_default=None, allow_none=True, on_delete="null", readable_by=MANAGE)
    rank = Text(0, 9, load_default="", writable_by=MANAGE)
    status = Status(Lifecycle("open", {"open": ("done",), "done": ()}))

    @validates_schema
    def require_sense(self, item: dict[str, Any], **_: Any) -> None:
        if item["title"] == "impossible":
            raise ValidationError("does not go with this title", "note")
        if item["title"] == "never":
            raise ValidationError("does not go together")


def to_cost(fee: str) -> Any:
    return int(fee) if fee else None


def to_fee(cost: Any) -> str:
    return "" if cost is None else str(cost)


CUSTOMERS = Resource("customers", "customer", OwnerSchema)
JOBS = Resource(
    "jobs",
    "job",
    JobSchema,
    indexes=(Index("note"), Index("customer")),
    search=("title",),
    upgrades={
        2: [Rename("remark", "note")],
        3: [Convert({"fee": Text(0, 20, load_default="")}, ["cost"], to_cost, to_fee)],
    },
)


@JOBS.action("finish")
def finish(job: dict[str, Any], items: Items) -> dict[str, Any]:
    assert "note" in job  # the function sees all
    return {**job, "status": "done", "note": f"{job['note']}!"}


VERSIONS = Versions(Version("v1", revisions={"jobs": 1}), Version("v2"), unversioned="v2")


@pytest.fixture
def app() -> Flask:
    return create_app(CONFIG, (CUSTOMERS, JOBS), versions=VERSIONS, blueprints=[REPORTS])


def serve(*resources: Resource, **options: Any) -> FlaskClient:
    return create_app(CONFIG, resources, **options).test_client()


def delivered(app: Flask) -> Sent:
    """What the webhooks of a service get now."""
    sent: Sent = []
    deliverer = deliverer_to(sent, app)  # type: ignore[arg-type]
    while deliverer.deliver_once():
        pass
    deliverer.close()
    return sent


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


REPORTS = Blueprint("reports", __name__)


@REPORTS.get("/reports/first")
@needs("jobs:read")
def report() -> Any:
    (job,) = find_items("jobs")
    assert read_item("jobs", job["id"]) == job and job["note"] == SECRET
    return shown("jobs", job)


@pytest.fixture
def clerk(client: FlaskClient) -> dict[str, str]:
    return key(client, "jobs:read", "jobs:write", "customers:read", "customers:write")


@pytest.fixture
def chief(client: FlaskClient) -> dict[str, str]:
    return key(client, "jobs:read", "jobs:write", "customers:read", MANAGE)


@pytest.fixture
def customer(client: FlaskClient) -> str:
    return str(client.post("/customers", json={"name": "Ada"}, headers=ADMIN).json["id"])


@pytest.fixture
def job(client: FlaskClient, chief: Any, customer: str) -> dict[str, Any]:
    sent = {"title": "roof", "note": SECRET, "cost": 70, "extra": {"a": 1}, "tags": ["x"], "customer": customer}
    made = client.post("/jobs", json=sent, headers=chief)
    assert made.status_code == 200, made.text
    job: dict[str, Any] = made.json
    assert {**job, **sent} == job
    return job


def public(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in PRIVATE}


def same_but_for(name: str, response: TestResponse, other: TestResponse) -> bool:
    """Whether a response is that to a name that nothing has, in which this one is nowhere."""
    texts = [
        {**each.json, "request_id": "", "instance": ""} if isinstance(each.json, dict) else each.json
        for each in (response, other)
    ]
    first, second = map(str, texts)
    return response.status_code == other.status_code and first.replace(name, "nope") == second


READS = ("/jobs", "/jobs/{id}", "/jobs?sort=title", "/jobs?title=roof", "/jobs?q=roof", "/jobs?_sort=title")


@pytest.mark.parametrize("path", READS)
def test_it_is_in_no_item(client: FlaskClient, clerk: Any, chief: Any, job: Any, path: str) -> None:
    """Also when who may read it has just read the same address, from the cache of pages."""
    for _ in range(2):
        for caller, expected in ((chief, job), (clerk, public(job))):
            found = client.get(path.format(**job), headers=caller).json
            assert (found[0] if isinstance(found, list) else found) == expected
    assert client.get("/api/v1/jobs", headers=clerk).json == [
        {name: value for name, value in public(job).items() if name not in ("remark", "fee")}
    ]


QUERIES = (
    *("{0}=x", "{0}[gte]=x", "{0}[is]=null", "{0}_gte=x", "{0}:contains=x", "{0}.a=1", "{0}.a[is]=null"),
    *("sort={0}", "sort=-{0}", "fields={0}", "fields=id,{0}", "count={0}", "embed={0}", "_expand={0}", "_embed={0}"),
    *("or=({0}=x,title=y)", "not=({0}=x)", "_sort={0}", 'filter={{"{0}":"x"}}', 'sort=["{0}","ASC"]'),
    *("count=title,{0}", "count=month({0})", "aggregate[sum]={0}", "aggregate[max]={0}&count=title"),
    *('_where={{"{0}":{{"gt":"x"}}}}', 'filter={{"{0}":{{"a":1}}}}', "sort={0}&cursor=AAAA", "range=[0,1]&{0}=x"),
)


@pytest.mark.parametrize("name", [*PRIVATE, "v1 remark", "v1 fee"])
def test_it_is_unknown_in_queries(client: FlaskClient, clerk: Any, job: Any, name: str) -> None:
    """The same 400 as for a name that nothing has, letter by letter."""
    path, field = ("/api/v1/jobs", name.removeprefix("v1 ")) if name.startswith("v1 ") else ("/jobs", name)
    for query in QUERIES:
        found, other = (client.get(f"{path}?{query.format(each)}", headers=clerk) for each in (field, "nope"))
        assert found.status_code == 400, query
        assert same_but_for(field, found, other), (query, found.text, other.text)
        assert not any(each in other.json["detail"] for each in (*PRIVATE, "remark", "fee")), other.text
    one = [client.get(f"/jobs/{job['id']}?fields={each}", headers=clerk) for each in (name, "nope")]
    assert same_but_for(name, *one)


def test_a_cursor_opens_nothing(client: FlaskClient, clerk: Any, chief: Any, job: Any) -> None:
    """That of a list which is sorted by the field is of another list without the sort, and that is refused."""
    client.post("/jobs", json={"title": "b"}, headers=chief)
    link = client.get("/jobs?sort=note&limit=1", headers=chief).headers["Link"]
    query = link.split("?", 1)[1].split(">")[0]
    cursor = next(each for part in link.split("<") for each in part.split(">")[0].split("&") if "cursor=" in each)
    assert client.get(f"/jobs?{cursor}&sort=note&limit=1", headers=chief).status_code == 200
    for each in (f"{cursor}&sort=note&limit=1", f"{cursor}&limit=1", cursor, query):
        found = client.get(f"/jobs?{each}", headers=clerk)
        assert found.status_code == 400 or "note" not in found.text, each


def test_a_write_with_it_is_refused(client: FlaskClient, clerk: Any, job: Any) -> None:
    """Of each kind, also with the present value, and in older versions; each way: see test_crossings.py."""
    path = f"/jobs/{job['id']}"
    for name in (*PRIVATE, "rank"):
        refused = client.patch(path, json={name: job[name]}, headers=clerk)
        assert (refused.status_code, refused.json["detail"]) == (403, f"a change of {name} needs the scope {MANAGE}")
    for name in ("remark", "fee"):  # what it is in an older version
        assert client.patch(f"/api/v1{path}", json={name: SECRET}, headers=clerk).status_code == 403
        assert client.post("/api/v1/jobs", json={"title": "a", name: ""}, headers=clerk).status_code == 403
    assert client.get("/jobs", headers=ADMIN).json == [job]


def test_a_write_without_it_keeps_it(client: FlaskClient, clerk: Any, job: Any) -> None:
    """A PUT, a PATCH, in each version; responses have what the caller may read, with its own ETag."""
    path = f"/jobs/{job['id']}"
    tag = client.get(path, headers=clerk).headers["ETag"]
    for response in (
        client.put(path, json={"title": "a"}, headers={**clerk, "If-Match": tag}),
        client.patch(path, json={"title": "b"}, headers=clerk),
        client.put(f"/api/v1{path}", json={"title": "c"}, headers=clerk),
        client.patch(f"/api/v1{path}", json={"title": "d"}, headers=clerk),
        client.put(path, json=client.get(path, headers=clerk).json, headers={**clerk, "If-None-Match": "x"}),
    ):
        if response.status_code == 403:  # the last one has the rank that it got
            assert response.json["detail"].startswith("a change of rank")
            continue
        assert response.status_code == 200, response.text
        assert response.json.keys().isdisjoint({*PRIVATE, "remark", "fee"})
    stored = client.get(path, headers=ADMIN).json
    assert {name: stored[name] for name in PRIVATE} == {name: job[name] for name in PRIVATE}
    assert stored["title"] == "d"


def test_a_private_reference_is_no_relation(client: FlaskClient, clerk: Any, chief: Any, job: Any) -> None:
    """No embedding from either side, and no path below the other item."""
    of = f"/customers/{job['customer']}"
    assert client.get(f"{of}/jobs", headers=chief).json == [job]
    for path in (f"{of}/jobs", f"{of}/nope"):
        for call in (client.get, client.post):
            body = {"json": {"title": "a"}} if call == client.post else {}
            found = call(path, headers=clerk, **body)
            assert (found.status_code, found.json["detail"]) == (404, f"nothing is at {path}")
    assert client.get(f"{of}?embed=jobs", headers=chief).json["jobs"] == [job]
    assert client.get(f"/jobs/{job['id']}?embed=customer", headers=chief).json["customer"]["name"] == "Ada"
    for path, name in ((of, "jobs"), ("/customers", "jobs"), ("/jobs", "customer")):
        found, other = (client.get(f"{path}?embed={each}", headers=clerk) for each in (name, "nope"))
        assert found.status_code == 400 and same_but_for(name, found, other), found.text


def test_a_deletion_of_what_it_refers_to(client: FlaskClient, clerk: Any, job: Any) -> None:
    """The rule of the reference holds; that a request deletes those that refer to an item is for who may read that."""
    of = f"/customers/{job['customer']}?_dependent=jobs"
    assert client.delete(of, headers=clerk).status_code == 200
    assert client.get(f"/jobs/{job['id']}", headers=ADMIN).json["customer"] is None


def test_a_restricting_reference_is_not_named(customer: str) -> None:
    """The refusal says that there are such items, as for a collection that the caller may not read."""

    of = Reference("customers", load_default=None, allow_none=True, readable_by=MANAGE)
    client = serve(CUSTOMERS, Resource("tasks", "task", ItemSchema.from_dict({"of": of})))  # type: ignore[arg-type]
    path = f"/customers/{client.post('/customers', json={'name': 'a'}, headers=ADMIN).json['id']}"
    client.post("/tasks", json={"of": path.rpartition("/")[2]}, headers=ADMIN)
    callers = {"of of tasks": ADMIN, "may not read": key(client, "customers:write", "tasks:read", "tasks:write")}
    for said, caller in callers.items():
        refused = client.delete(path, headers=caller)
        assert refused.status_code == 409 and said in refused.json["detail"]


def test_a_reference_that_a_function_sets_wrongly_is_not_named() -> None:
    """Neither the field nor the id: what a function makes of it can be as private."""
    jobs = Resource("jobs", "job", JobSchema, ids="client")
    jobs.action("set")(lambda job, items: {**job, "customer": SECRET})
    jobs.before("update")(lambda job, before: {**job, "customer": SECRET})
    client = serve(CUSTOMERS, jobs)
    client.post("/jobs", json={"id": "a", "title": "a"}, headers=ADMIN)
    clerk, action = key(client, "jobs:read", "jobs:write"), {"method": "POST", "path": "/jobs/a/set"}
    for method, path, body in (
        ("POST", "/jobs/a/set", None),
        ("PATCH", "/jobs/a", {"title": "b"}),
        ("POST", "/api/v1/batch", {"operations": [action]}),
    ):
        refused, known = (client.open(path, method=method, json=body, headers=who) for who in (clerk, ADMIN))
        assert refused.status_code == known.status_code == (422 if body == {"title": "b"} else 409)
        assert "errors" not in known.json or body == {"title": "b"}  # an action was sent no reference
        assert SECRET in known.text and SECRET not in refused.text and "customer" not in refused.text


def test_a_fault_of_it_is_not_shown(client: FlaskClient, clerk: Any, chief: Any, job: Any) -> None:
    """What the schema refuses of it together with other fields has no pointer and no words of it."""
    path, sent = f"/jobs/{job['id']}", {"title": "impossible"}
    for response in (
        client.put(path, json=sent, headers=clerk),
        client.patch(path, json=sent, headers=clerk),
        client.patch(f"/api/v1{path}", json=sent, headers=clerk),
    ):
        assert (response.status_code, pointers(response)) == (422, ["#"])
        assert "note" not in response.text and "remark" not in response.text
    assert pointers(client.patch(path, json=sent, headers=chief)) == ["#/note"]


def test_a_fault_of_what_is_stored_is_not_shown(tmp_path: Path) -> None:
    """A value that a former schema allowed stands in the way of a PUT and of an action, which do not say which."""

    def start(most: int) -> FlaskClient:
        note = Text(0, most, load_default="", readable_by=MANAGE)
        schema: Any = ItemSchema.from_dict({"title": Text(required=True), "note": note})
        jobs = Resource("jobs", "job", schema)
        jobs.action("call")(lambda job, items: {**job, "title": "called"})
        return create_app(replace(CONFIG, database_url=f"sqlite:///{tmp_path}/s.db"), [jobs]).test_client()

    path = start(50).post("/jobs", json={"title": "a", "note": SECRET}, headers=ADMIN).headers["Location"]
    client = start(3)
    clerk = key(client, "jobs:read", "jobs:write")
    put, action = client.put(path, json={"title": "b"}, headers=clerk), client.post(f"{path}/call", headers=clerk)
    assert (put.status_code, pointers(put), action.status_code) == (422, ["#"], 409)
    assert not any("note" in each.json["detail"] for each in (put, action))
    assert "note" in client.post(f"{path}/call", headers=ADMIN).json["detail"]


def test_a_field_that_ends_beside_private_ones() -> None:
    """After a sunset neither is there; and before it, the private ones only."""
    clock = SetClock(IN)
    ends = Deprecation(version="v1", field="jobs.rank", since=SINCE, sunset=SUNSET)
    versions = Versions(Version("v1"), unversioned="v1", deprecations=[ends])
    client = serve(CUSTOMERS, replace(JOBS, upgrades={}), versions=versions, clock=clock)
    made = client.post("/jobs", json={"title": "a", "note": SECRET}, headers=ADMIN).json
    clerk, path = key(client, "jobs:read", "jobs:write"), f"/jobs/{made['id']}"
    assert client.get(path, headers=clerk).json == public(made)
    clock.now = AFTER
    assert client.get(path, headers=clerk).json == {k: v for k, v in public(made).items() if k != "rank"}
    assert client.get(path, headers=ADMIN).json == {k: v for k, v in made.items() if k != "rank"}
    for caller, name, status in ((ADMIN, "rank", 422), (clerk, "note", 403)):
        assert client.patch(path, json={name: "x"}, headers=caller).status_code == status


@pytest.mark.needs("references")
def test_without_features(customer: str) -> None:
    """Private fields need none of them: neither versions nor events."""
    client = serve(CUSTOMERS, replace(JOBS, upgrades={}), features={"keys", "references"}, without=())
    made = client.post("/jobs", json={"title": "a", "note": SECRET}, headers=ADMIN).json
    assert client.get("/jobs", headers=key(client, "jobs:read")).json == [public(made)]


def test_etags(client: FlaskClient, clerk: Any, chief: Any, job: Any) -> None:
    """They are of what the caller sees; that of one caller is none for another."""
    for path in ("/jobs", f"/jobs/{job['id']}", "/api/v2/events?collection=jobs"):
        tags = [client.get(path, headers=each).headers["ETag"] for each in (clerk, chief)]
        assert len({*tags}) == 2
        for caller, expected in ((clerk, (304, 200)), (chief, (200, 304))):
            got = [client.get(path, headers={**caller, "If-None-Match": tag}).status_code for tag in tags]
            assert tuple(got) == expected


def test_a_replay_after_a_field_was_made_private(tmp_path: Path) -> None:
    """By a deployment: the first response has it. For who may read it all the same, the response is the first one."""

    def start(**options: Any) -> FlaskClient:
        schema: Any = ItemSchema.from_dict({"title": Text(required=True), "note": Text(load_default="x", **options)})
        config = replace(CONFIG, database_url=f"sqlite:///{tmp_path}/s.db")
        return create_app(config, [Resource("jobs", "job", schema)]).test_client()

    client = start()
    clerk = key(client, "jobs:write")
    operations = {"operations": [{"method": "POST", "path": "/jobs", "body": {"title": "b"}}]}
    calls = [("/jobs", {"title": "a"}), ("/api/v1/batch", operations)]
    for options, statuses in (({}, (200, 200)), ({"readable_by": MANAGE}, (422, 200)), ({}, (200, 200))):
        client = start(**options)
        for path, body in calls:
            for who, status in zip((clerk, ADMIN), statuses, strict=True):
                response = client.post(path, json=body, headers={**who, "Idempotency-Key": "k"})
                assert response.status_code == status
                assert ("note" in response.text) == (status == 200)


def test_webhooks_have_it_by_their_own_scopes(app: Any, client: FlaskClient, chief: Any) -> None:
    """Also those of an older version; by default they have none of it."""
    hooks = {"/a": {}, "/b": {"scopes": [MANAGE]}, "/c": {"api_version": "v1"}}
    for end, more in hooks.items():
        sent = {"url": f"https://example.org{end}", "types": ["job.*"], "api_version": "v2", **more}
        assert client.post("/api/v2/webhooks", json=sent, headers=ADMIN).status_code == 200
    wrong = {"url": "https://example.org/", "scopes": ["jobs:nope"]}
    refused = client.post("/api/v2/webhooks", json=wrong, headers=ADMIN)
    assert refused.json["errors"] == [{"pointer": "#/scopes/0", "detail": f"must be one of: {MANAGE}"}]
    client.post("/jobs", json={"title": "roof", "note": SECRET}, headers=chief)
    data = dict(delivered(app))
    assert data.keys() == {"/a", "/b", "/c"} and data["/b"]["note"] == SECRET
    assert data["/a"].keys().isdisjoint(PRIVATE) and data["/c"].keys().isdisjoint({"remark", "fee", *PRIVATE})


PRIVATE_TEXT = Text(load_default="", readable_by=MANAGE)
NEXT: dict[str, tuple[dict[str, Any], dict[int, list[Step]]]] = {
    "renamed": ({"note": PRIVATE_TEXT}, {2: [Rename("remark", "note")]}),
    "converted": ({"note": PRIVATE_TEXT}, {2: [Convert({"remark": Text(load_default="")}, ["note"], str, str)]}),
    "removed": ({}, {2: [Remove("remark", PRIVATE_TEXT)]}),
    "not known yet": ({}, {}),
}


@pytest.mark.parametrize("change", NEXT)
def test_a_delivery_by_another_program(tmp_path: Path, change: str) -> None:
    """Whatever a private field was called, when the event was written, or if that program knows it and this one not."""
    config = replace(CONFIG, database_url=f"sqlite:///{tmp_path}/s.db")

    def start(own: dict[str, Any], steps: Any = None, **options: Any) -> Any:
        schema: Any = ItemSchema.from_dict({"title": Text(required=True), **own})
        return create_app(config, [Resource("jobs", "job", schema, upgrades=steps or {})], **options)

    fields, steps = NEXT[change]
    app = start(fields) if not steps else None
    client = start({"remark": PRIVATE_TEXT}).test_client()
    client.post("/api/v1/webhooks", json={"url": "https://example.org/a"}, headers=ADMIN)
    client.post("/jobs", json={"title": "a", "remark": SECRET}, headers=ADMIN)
    if steps:
        start(fields, steps, serves=False).test_cli_runner().invoke(args=["migrate"])
    assert delivered(app or start(fields, steps)) == [("/a", {"title": "a"})]


@pytest.mark.parametrize("is_served", [True, False])
def test_a_delivery_of_what_is_not_shown_any_more(tmp_path: Path, is_served: bool) -> None:
    """Of a collection that no resource serves now, or when all versions have ended, it has the id alone.

    Events of the service are as they were.
    """
    config = replace(CONFIG, database_url=f"sqlite:///{tmp_path}/s.db")
    clock = SetClock(IN)
    versions = Versions(
        Version("v1"), unversioned="v1", deprecations=[Deprecation(version="v1", since=SINCE, sunset=SUNSET)]
    )
    options: Any = {"versions": versions, "clock": clock}
    jobs = replace(JOBS, upgrades={})
    client = create_app(config, (CUSTOMERS, jobs), **options).test_client()
    hook = client.post("/api/v1/webhooks", json={"url": "https://example.org/a", "types": ["job.*"]}, headers=ADMIN)
    made = client.post("/jobs", json={"title": "roof", "note": SECRET}, headers=ADMIN).json
    deliveries = f"/api/v1/webhooks/{hook.json['id']}/deliveries"
    sent: dict[str, Any] = {}

    def send(url: str, headers: Any, body: bytes) -> DeliveryResult:
        event = json.loads(body)
        sent[event["type"]] = event["data"]
        return DeliveryResult(204, "", None)

    for number, app in enumerate(
        (client.application, create_app(config, [CUSTOMERS, jobs][: 1 + is_served], **options))
    ):
        if number:
            (first,) = app.test_client().get(deliveries, headers=ADMIN).json
            for path in (f"{deliveries}/{first['id']}/redeliver", deliveries.replace("deliveries", "ping")):
                assert app.test_client().post(path, headers=ADMIN).status_code == 200
            clock.now = AFTER if is_served else IN
        deliverer = deliverer_of(service_of(app), send)
        while deliverer.deliver_once():
            pass
        deliverer.close()
    assert sent["job.created"] == {"id": made["id"]}
    assert sent["webhook.ping"]["url"] == "https://example.org/a"


@pytest.mark.parametrize("wrong", ({"note": SECRET * 9}, {"extra": {SECRET}}, {"title": "never"}, {"rank": "long" * 9}))
def test_the_log_of_a_mistake_has_no_private_value(caplog: pytest.LogCaptureFixture, wrong: dict[str, Any]) -> None:
    """Of what a function sets and the schema refuses; the field is named, and other values are there."""
    jobs = replace(JOBS, upgrades={})
    jobs.action("break")(lambda job, items: {**job, "note": SECRET, **wrong})
    client = serve(CUSTOMERS, jobs)
    client.application.testing = False
    path = client.post("/jobs", json={"title": "a"}, headers=ADMIN).headers["Location"]
    assert client.post(f"{path}/break", headers=ADMIN).status_code == 500
    (name,) = wrong
    assert "sets what jobs cannot store" in caplog.text and SECRET not in caplog.text
    assert name in caplog.text and ("(it is" in caplog.text) == (name not in PRIVATE)


def failing(cost: Any) -> str:
    raise LookupError(SECRET)


@pytest.mark.parametrize(
    ("down", "reason"),
    (
        (failing, f"LookupError in {{}}:{failing.__code__.co_firstlineno + 1}"),
        (lambda cost: SECRET, "ValidationError in the result of <lambda>"),
        (lambda cost: {SECRET}, "ValidationError in the result of <lambda>"),
    ),
)
def test_the_log_of_a_conversion_has_no_private_value(
    caplog: pytest.LogCaptureFixture, down: Callable[[Any], Any], reason: str
) -> None:
    """It has the type of the error and where it was raised, whatever the text of the error is."""

    fee = Text(validate=validate.OneOf(["free"], error="{input} is refused"), load_default="free")
    jobs = replace(JOBS, upgrades={2: [Convert({"fee": fee}, ["cost"], lambda fee: None, down)]})
    client = serve(CUSTOMERS, jobs, versions=VERSIONS)
    path = client.post("/jobs", json={"title": "a", "cost": 5}, headers=ADMIN).headers["Location"]
    assert client.get(f"/api/v1{path}", headers=ADMIN).json["fee"] == "free"
    expected = f"no equivalent for fee in older versions: {reason.format(os.path.relpath(__file__))}"
    assert expected in caplog.text and SECRET not in caplog.text


def test_views_show_what_the_caller_may_read(client: FlaskClient, clerk: Any, chief: Any, job: Any) -> None:
    """`shown` is that of an item which `read_item` and `find_items` have returned whole."""
    assert client.get("/reports/first", headers=clerk).json == public(job)
    assert client.get("/reports/first", headers=chief).json == job


def test_the_document_is_one_for_all(client: FlaskClient, clerk: Any) -> None:
    """Whoever asks first: the field is there with its scope, and never required."""
    document = client.get("/openapi.json", headers=clerk).json
    assert document == client.get("/openapi.json").json == client.get("/openapi.json", headers=ADMIN).json
    item = document["components"]["schemas"]["Job"]
    assert item["properties"]["note"]["x-readable-by"] == MANAGE and "note" not in item["required"]
    assert "title" in item["required"] and "customer" in document["components"]["schemas"]["JobEmbedded"]["properties"]
    assert MANAGE in str(client.get("/api/v2/openapi.json").json["components"]["schemas"]["KeyInput"])


def test_the_index_shows_none(client: FlaskClient, clerk: Any, job: Any) -> None:
    """The first calls on it are those of the caller, with its fields."""
    for caller in (clerk, {}):
        page = client.get("/", headers={**caller, "Accept": "text/html"}).text
        assert SECRET not in page and "note" not in page


DECLARATIONS: list[tuple[Any, dict[str, Any], str]] = [
    (Text(readable_by="a:b", load_default=""), {"search": ("x",)}, "x: readable_by: search would show its values"),
    (
        Text(readable_by="a:b", load_default=None, allow_none=True),
        {"indexes": (Index("x", unique=True),)},
        "x: readable_by: a unique Index would show its values",
    ),
    (Text(0, 9, readable_by="a:b", load_default=""), {"sort": "-x"}, "x: readable_by: sort would show its values"),
    (Text(readable_by="a:b", required=True), {}, "x: readable_by: who may not read it could not create items"),
    (Status(Lifecycle("a", {"a": ()}), readable_by="a:b"), {}, "x: readable_by: a state decides what all callers"),
    (ListOf(Text(readable_by="a:b"), load_default=list), {}, "x: readable_by is for the fields of the item itself"),
    (Text(readable_by="manage", load_default=""), {}, "x: 'manage' is no scope"),
]


def test_the_server_s_fields_are_not_private() -> None:
    """Nor is a field of a collection whose queries can use any name."""

    hidden: Any = ItemSchema.from_dict({"version": Whole(dump_only=True, dump_default=1, readable_by="a:b")})
    with pytest.raises(ValueError, match="things.version: the server sets it"):
        Resource("things", "thing", hidden)
    private: Any = PostSchema.from_dict({"x": Text(load_default="", readable_by="a:b")})
    with pytest.raises(ValueError, match="things.x: readable_by: undeclared=True would show its values"):
        Resource("things", "thing", private, undeclared=True)


@pytest.mark.parametrize(("field", "options", "said"), DECLARATIONS)
def test_the_start_refuses_what_would_show_it(field: Any, options: dict[str, Any], said: str) -> None:
    """In search, a unique index, the order of lists, a state, another field, or where nobody else could create."""
    with pytest.raises(ValueError, match="things." + said.replace("(", r"\(")):
        Resource("things", "thing", ItemSchema.from_dict({"x": field}), **options)  # type: ignore[arg-type]


def test_a_deletion_says_nothing_of_what_it_cannot_clear() -> None:
    """What a schema says of an item that referred to the deleted one can have private values, or names."""

    class TaskSchema(ItemSchema):
        note = Text(0, 100, load_default="", readable_by=MANAGE)
        tool = Reference("tools", on_delete="null", load_default=None, allow_none=True)

        @validates_schema
        def require_tool(self, task: dict[str, Any], **_: Any) -> None:
            if task["note"] and not task["tool"]:
                raise ValidationError(f"{task['note']!r} needs a tool", "note")

    tools, tasks = Resource("tools", "tool", OwnerSchema), Resource("tasks", "task", TaskSchema)
    client = serve(tools, tasks)
    path = client.post("/tools", json={"name": "x"}, headers=ADMIN).headers["Location"]
    sent = {"note": SECRET, "tool": path.rpartition("/")[2]}
    assert client.post("/tasks", json=sent, headers=ADMIN).status_code == 200
    for scopes in (["tools:write"], ["tools:write", "tasks:read"]):
        refused = client.delete(path, headers=key(client, *scopes))
        assert refused.status_code == 409 and SECRET not in refused.text and "note" not in refused.text
        assert ("tasks" in refused.text) == ("tasks:read" in scopes)
