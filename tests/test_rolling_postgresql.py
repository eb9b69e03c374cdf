"""A rolling upgrade on PostgreSQL under load: two revisions of a service side by side, and a migration of tables."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgresql_server import Databases
from tests.recorder import next_of
from tests.upgrade import CLIENTS, KNOWN, Client, Proxy, Upgrade

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(120)]

NEWEST = {"added": "stock", "renamed": "amount"}  # the name that `stock` has in the newer revision
UNREADABLE = "503: a newer program stored items (revision 2; this one has revision 1): update this instance"
REFUSAL = f"the store is of a newer program (migration {KNOWN + 1} of {KNOWN}): use one that has migration {KNOWN + 1}"
INDEXES = """\
SELECT bool_and(indisvalid), bool_or(pg_get_indexdef(indexrelid) LIKE '%weight%')
FROM pg_index
WHERE indrelid = 'items'::regclass"""


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """A new database."""
    made = databases.create_database()
    yield made
    databases.drop_database(made)


def rows(url: str, query: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()  # type: ignore[arg-type]


Prepare = Callable[..., Upgrade]


@pytest.fixture
def prepare(tmp_path: Path, url: str) -> Iterator[Prepare]:
    """Prepares an upgrade to a revision. Its instances and clients end with the test."""
    made: list[Upgrade] = []

    def prepare(*options: Any) -> Upgrade:
        made.append(Upgrade(tmp_path, url, *options))
        return made[-1]

    yield prepare
    for each in made:
        each.close()


@pytest.mark.parametrize("revision", ["added", "renamed"])
def test_an_upgrade_and_a_downgrade_under_load(prepare: Prepare, revision: str) -> None:
    """No request fails at both instances, and no change is lost or made twice."""
    upgrade = prepare(revision)
    upgrade.start("old")
    upgrade.load()
    upgrade.serve("old")
    upgrade.start_late("new")
    upgrade.serve("old", "new")
    upgrade.stop("old")
    upgrade.serve("new")
    upgrade.start("old")
    upgrade.serve("old", "new")
    upgrade.end_load()
    assert rows(upgrade.url, "SELECT migration FROM store") == [(KNOWN + 1,)]
    assert rows(upgrade.url, INDEXES) == [(True, True)]
    require_responses(upgrade.proxy, revision)
    require_items(upgrade, revision)
    require_events(upgrade)
    require_etags(upgrade.clients[0], upgrade.shared[0] if revision == "added" else create_at(upgrade, "old"))


def require_responses(proxy: Proxy, revision: str) -> None:
    """Besides successes there are conflicts, and what the old instance refuses because the newer one serves it."""
    allowed = {(name, status) for name in proxy.instances for status in ("200", "412")}
    allowed |= {("old", "refused"), ("old", "closed")} | ({("old", UNREADABLE)} if revision == "renamed" else set())
    assert set(proxy.counts) <= allowed, proxy.counts
    assert proxy.counts["old", "closed"] <= 2 * CLIENTS  # one idle connection of each, and one that waits in the queue


def require_items(upgrade: Upgrade, revision: str) -> None:
    """All created items are there, once, with what was added to each of their fields by either instance."""
    client = upgrade.clients[0]
    found = []
    path = "/notes?limit=50"
    while path:
        page = client.get(path)
        found += [each["id"] for each in page.json()]
        path = next_of(page)
    assert sorted(found) == sorted(upgrade.created)
    for id in upgrade.shared:
        stock, mark, weight = (upgrade.raised[id, name] for name in ("stock", "mark", "weight"))
        assert min(stock, mark, weight) > 0
        item = client.get(f"/notes/{id}", "new").json()
        newer = client.get(f"{upgrade.newer_path}/{id}", "new").json()
        assert (item["stock"], item["mark"], newer["weight"], newer[NEWEST[revision]]) == (stock, mark, weight, stock)
        assert item["version"] == newer["version"] == 1 + stock + mark + weight


def require_events(upgrade: Upgrade) -> None:
    """Each client that followed the feed saw each version of each item once, in order, and the last one as it is."""
    changes = Counter(id for id, _ in upgrade.raised.elements())
    for client in upgrade.clients:
        while client.follow():
            pass
        seen: dict[str, list[int]] = {}
        for each in client.events:
            seen.setdefault(each["id"], []).append(each["version"])
        assert seen == {id: [*range(1, changes[id] + 2)] for id in upgrade.created}
        last = {each["id"]: each for each in client.events}
        assert all(client.get(f"/notes/{id}").json() == last[id] for id in upgrade.shared)


def create_at(upgrade: Upgrade, name: str) -> str:
    """Create an item at an instance. Returns its id."""
    key = {"Idempotency-Key": '"last"'}
    return str(upgrade.clients[0].send("POST", "/notes", {"name": "last"}, key, name).json()["id"])


def require_etags(client: Client, id: str) -> None:
    """An ETag of one instance is that of the other one, too, for a read and for a change."""
    path = f"/notes/{id}"
    tags = {client.get(path, name).headers["etag"] for name in ("old", "new")}
    assert len(tags) == 1
    for name in ("old", "new"):
        assert client.send("GET", path, None, {"If-None-Match": min(tags)}, name).status == 304
    changed = client.send("PATCH", path, {"stock": -1}, {"If-Match": min(tags)}, "old")
    assert changed.status == 200
    assert client.send("PATCH", path, {"stock": -2}, {"If-Match": changed.headers["etag"]}, "new").status == 200
    assert client.send("PATCH", path, {"stock": -3}, {"If-Match": changed.headers["etag"]}).status == 412


def test_a_migration_that_the_old_program_cannot_work_with(prepare: Prepare, databases: Databases) -> None:
    """The old one is not ready, does not start, and has no new connection; each time it says what is missing."""
    upgrade = prepare("added", KNOWN + 1)
    old = upgrade.start("old")
    id = create_at(upgrade, "old")
    new = upgrade.start("new")
    assert old.get(f"/notes/{id}").status == 200  # its connections are open
    assert REFUSAL in old.get("/readyz").json()["detail"]
    with pytest.raises(RuntimeError, match=re.escape(REFUSAL)):
        upgrade.start("old")
    with databases.closed(upgrade.url):
        pass  # as at the end of the longest life of a connection
    for refused in (old.get(f"/notes/{id}"), old.post("/notes", {"name": "a"}, {"Idempotency-Key": '"a"'})):
        assert (refused.status, refused.json()["detail"], refused.headers["retry-after"]) == (503, REFUSAL, "1")
    assert new.get(f"/notes/{id}").json()["weight"] == 0
