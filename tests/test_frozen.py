"""What stays as it is from 1.0 on: stores, the wire, commands, settings, problems and public names can only grow."""

import json
from datetime import date
from pathlib import Path

import pytest

from restkeeper import FEATURES
from restkeeper.contract.check import compare
from restkeeper.contract.decisions import Severity
from tests import freeze, layout

STORES = sorted(path.stem for path in layout.FOLDER.glob("*.json"))


@pytest.mark.parametrize("name", freeze.LINES)
def test_lines_that_are_frozen_are_there(name: str) -> None:
    """A new parameter of what is there can be left out, and what is new is frozen, too."""
    before, now = freeze.lines_of(name), {*freeze.LINES[name]()}
    gone = {line for line in before - now if f"{line}{freeze.OPTIONAL}" not in now}
    assert not gone, "a release deletes nothing: it deprecates, see docs/upgrading.md"
    needed = {line for line in now - before if not line.endswith(freeze.OPTIONAL) and line.partition("(")[0] in before}
    assert not [line for line in needed if "(" in line], "a caller of the release before does not give it"
    assert now <= before, "`python -m tests.freeze` adds what is new"


@pytest.mark.needs(*(feature.name for feature in FEATURES))
def test_no_client_of_the_wire_breaks() -> None:
    """Of the service of the tests, with every feature."""
    findings = compare("v1", freeze.wire(), freeze.present_wire(), today=date.today(), window=0)
    assert not [finding.headline for finding in findings if finding.severity is Severity.BREAKING]


@pytest.mark.needs("keys", "webhooks", "events", "idempotency")
@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_store_of_a_former_release_is_whole(
    kind: str, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Clients find their items, events, keys, webhooks and responses in it, and change them."""
    url = request.getfixturevalue("url") if kind == "postgresql" else f"sqlite:///{tmp_path}/store.db"
    layout.load(name, url)
    facts = json.loads((layout.FOLDER / f"{name}.json").read_text(encoding="utf-8"))[kind]
    app = layout.service(url, facts["now"] + layout.LATER)
    found = layout.read(app, facts["token"], facts["path"])
    assert found == {key: facts[key] for key in found}
    client = app.test_client()
    assert client.post(**layout.CREATE).text == facts["created"]  # of the request that was repeated
    assert layout.sent_deliveries(app, 204) == facts["deliveries"]  # the attempts that are due
    changed = client.patch(facts["path"], json={"price": 8}, headers=layout.ADMIN | {"If-Match": facts["tag"]})
    assert (changed.json["version"], changed.json["price"]) == (3, 8)
    assert client.post("/products", json={"name": "new", "sku": "L-1"}, headers=layout.ADMIN).status_code == 409
    assert len(client.get("/api/v1/events", headers=layout.ADMIN).json) == len(facts["events"]) + 1
