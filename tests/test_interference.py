"""What a caller may not see changes nothing that it gets: two services that differ only in that answer it alike.

The requests are random, of every route of two collections, in each version. Written down, what a caller may not see is
the values of private fields, and the items of other owners.
"""

import random
import re
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import pytest

from restkeeper import (
    Convert,
    Items,
    ItemSchema,
    Lifecycle,
    Owner,
    Ownership,
    Reference,
    Resource,
    Status,
    Text,
    Whole,
)
from restkeeper.service import service_of
from tests.callers import ADMIN, key
from tests.clock import SetClock
from tests.shop import create_app
from tests.test_private import CONFIG, JOBS, MANAGE, VERSIONS, JobSchema

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.needs("keys", "events", "batch", "dialects", "versions", "openapi", "ownership"),
]

Request = tuple[str, str, Any, dict[str, str]]


class CustomerSchema(ItemSchema):
    name = Text(1, 50, required=True)
    credit = Whole(0, 1000, load_default=0, readable_by=MANAGE)


class WorkSchema(JobSchema):
    grade = Text(dump_only=True, dump_default="", readable_by=MANAGE)
    status = Status(Lifecycle("open", {"open": ("done", "paid"), "done": (), "paid": ()}, by_actions={"paid": "pay"}))


class TaskSchema(ItemSchema):
    name = Text(1, 20, required=True)
    owner = Owner(to="customers")
    job = Reference("jobs", load_default=None, allow_none=True, on_delete="cascade")


def resources() -> list[Resource]:
    state = {"state": Text(load_default="open")}
    steps = {**JOBS.upgrades, 4: [Convert(state, ["status"], str, str)]}
    jobs = Resource("jobs", "job", WorkSchema, JOBS.indexes, ids="client", search=("title",), upgrades=steps)

    @jobs.action("pay")
    def pay(job: dict[str, Any], items: Items) -> None:
        job |= {"status": "paid", "note": job["note"] + "!"}

    @jobs.before("create", "update")
    def set_grade(job: dict[str, Any], before: dict[str, Any] | None) -> None:
        job["grade"] = job["note"][:3]

    return [
        Resource("customers", "customer", CustomerSchema, ids="client"),
        jobs,
        Resource("tasks", "task", TaskSchema, ids="client", ownership=Ownership.ALL),
    ]


OWN = ("X-Request-Id", "ETag", "Content-Length")  # headers: ETags are compared as parts of other requests


class World:
    """A service, in which `word` and `number` are in private fields, and there are `foreign` items of bob."""

    def __init__(self, word: str, number: int, foreign: int) -> None:
        self.clock = SetClock()
        app = create_app(CONFIG, resources(), versions=VERSIONS, clock=self.clock)
        self.client = app.test_client()
        every = [f"{name}:{way}" for name in ("customers", "jobs", "tasks") for way in ("read", "write")]
        self.ada = key(self.client, *every, owners=["ada"])
        for name in ("ada", "bob"):
            self.make("customers", id=name, name=name, credit=number)
        for n in range(4):
            who = "ada" if word > "m" or n % 2 else "bob"
            more = {"note": f"{word}{n}", "cost": abs(number - 350 - n), "extra": {"a": word}, "customer": who}
            self.make("jobs", id=f"j{n}", title=f"t{n % 2}", **more)
        for n in range(3):
            self.make("tasks", id=f"k{n}", name=f"n{n}", owner="ada", job=f"j{n}")
        for n in range(foreign):
            self.make("tasks", id=f"f{n}", name=word, owner="bob", job=f"j{n % 3}")
        ids = count()
        service_of(app).domain.new_id = lambda: f"new-{next(ids)}"
        self.store = self.client.get("/jobs", headers=ADMIN).headers["ETag"].strip('"').partition("-")[0]

    def make(self, collection: str, /, **item: Any) -> None:
        made = self.client.post(f"/{collection}", json=item, headers=ADMIN)
        assert made.status_code == 200, made.text

    def send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[str, str]:
        """The response, and its ETag; without what tells two stores from each other, and how many events there are."""
        self.clock.now += 1
        got = self.client.open(path, method=method, json=body, headers=self.ada | headers)
        shown = sorted(each for each in got.headers.items() if each[0] not in OWN)
        text = f"{got.status_code} {shown} {got.get_data(as_text=True)}".replace(self.store, "")
        text = re.sub(r'evt_\w+|"request_id":"\w+"', "", text)
        return text, "" if "/events" in path else got.headers.get("ETag", "")


NAMES = (
    "note cost extra extra.a tags customer grade credit remark fee title rank status state name owner job id nope"
).split()
VALUES = "alpha1 omega1 100 700 ada bob j1 t1 open done null x".split()
QUERIES: list[Callable[[Callable[[], str], Callable[[], str]], str]] = [
    lambda name, value: f"{name()}={value()}",
    lambda name, value: f"{name()}[gte]={value()}",
    lambda name, value: f"{name()}_like={value()}",
    lambda name, value: f"sort=-{name()}",
    lambda name, value: f"_sort={name()}",
    lambda name, value: f"fields=id,{name()}",
    lambda name, value: f"count={name()}",
    lambda name, value: f"embed={name()}",
    lambda name, value: "embed=tasks",
    lambda name, value: f"q={value()}",
    lambda name, value: "limit=1",
    lambda name, value: "_page=1&_per_page=2",
    lambda name, value: f"or=({name()}={value()},{name()}={value()})",
    lambda name, value: f'_where={{"{name()}":{{"gt":"{value()}"}}}}',
    lambda name, value: f"owner={value()}",
]


def requests(chance: random.Random, tags: list[str]) -> Iterator[Request]:
    """Requests without end; deletions are of tasks, as that of a job changes what refers to it, also unseen."""
    pick = chance.choice
    valid = {"jobs": {"title": "t1", "status": "done"}, "tasks": {"name": "x", "job": "j1"}, "customers": {"name": "y"}}
    while True:
        name, version = pick(["jobs", "jobs", "tasks", "customers"]), pick(["", "/api/v1", "/api/v2"])
        id = pick({"jobs": ["j0", "j1", "j9"], "tasks": ["k0", "f0", "f9"], "customers": ["ada", "bob"]}[name])
        asked = [pick(QUERIES)(lambda: pick(NAMES), lambda: pick(VALUES)) for _ in range(pick([0, 1, 1, 1, 1, 2]))]
        query = f"?{'&'.join(asked)}" if asked else ""
        body = valid[name] | {pick(NAMES): pick([pick(VALUES), None, 5, {"a": 1}]) for _ in range(pick([0, 0, 1]))}
        body |= {"id": pick(["n1", "f0", "j1"])} if chance.random() < 0.2 else {}
        headers = {pick(["If-Match", "If-None-Match"]): pick([*tags, "*"])} if chance.random() < 0.2 else {}
        path = f"{version}/{name}/{id}"
        operation = {"method": pick(["PUT", "PATCH"]), "path": f"/{name}/{id}", "body": body}
        yield pick(
            [
                *[("GET", f"{version}/{name}{query}", None, headers)] * 4,
                *[("GET", path, None, {})] * 2,
                ("GET", path + query, None, headers),
                ("GET", path + pick(["/tasks", "/jobs"]) + query, None, headers),
                (pick(["PUT", "PATCH"]), path, body, headers),
                ("POST", f"{version}/{name}" + pick(["", query]), pick([body, [body]]), headers),
                ("POST", path + pick(["/pay", "/tasks"]), None, headers),
                ("DELETE", f"{version}/tasks/{pick(['k1', 'f0', 'f9'])}", None, headers),
                (
                    "GET",
                    f"{pick(['/api/v1', '/api/v2'])}/events" + pick(["", "?limit=3", f"?item={id}"]),
                    None,
                    {},
                ),
                ("POST", f"{pick(['/api/v1', '/api/v2'])}/batch", {"operations": [operation]}, {}),
                ("GET", pick(["/", "/openapi.json"]), None, {}),
            ]
        )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("other", [("omega", 700, 2), ("alpha", 100, 7)], ids=["private fields", "other owners"])
def test_what_is_not_seen_changes_nothing(other: tuple[str, int, int], seed: int) -> None:
    """But for the ETags of lists, which show that something has changed, and the ids of events, that there are more."""
    worlds, tags = [World("alpha", 100, 2), World(*other)], list[str]()
    chance = random.Random(seed)  # noqa: S311 - no secret
    for request in islice(requests(chance, tags), 500):
        (first, tag), (second, other_tag) = (world.send(*request) for world in worlds)
        assert first == second, request
        if tag and tag == other_tag:
            tags[:] = [*tags, tag][-9:]
