"""The conversion of a collection beside programs of the former revision: these are refused before it begins."""

from functools import partial
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.resources.evolution import Convert
from restkeeper.resources.resource import Resource
from restkeeper.schemas.fields import Text, Whole
from restkeeper.schemas.item import ItemSchema
from restkeeper.service import service_of
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import RevisionDiffers
from restkeeper.storage.interface import Query
from tests.programs import resource
from tests.shop import create_app
from tests.things import THINGS, insert, open_store, record

COUNT = Text(load_default="0")
BOXES = Resource("boxes", "box", ItemSchema)


def serve(url: str, declared: Resource, **options: Any) -> FlaskClient:
    return create_app(Config(database_url=url), [declared, BOXES], **options).test_client()


def newer(up: Any) -> Resource:
    convert = Convert({"count": COUNT}, ["count"], up=up, down=str)
    return resource({"count": Whole(load_default=0)}, upgrades={2: [convert]})


@pytest.fixture
def old(url: str) -> FlaskClient:
    client = serve(url, resource({"count": COUNT}))
    assert client.post("/notes", json={"count": "1"}).status_code == 200
    return client


def test_a_start_names_the_command(url: str, old: FlaskClient) -> None:
    """It converts nothing, as former programs can serve; these go on."""
    with pytest.raises(RevisionDiffers, match="have revision 1, this program has revision 2: run `restkeeper migrate`"):
        serve(url, newer(int))
    assert old.post("/notes", json={"count": "2"}).status_code == 200


def test_a_former_program_starts_meanwhile(url: str, old: FlaskClient) -> None:
    """After a crash, or for more load: it serves the other collections, and this one if nothing is converted."""

    def set_revision(former: int, revision: int) -> None:
        set = partial(Transaction.set_revision, collection="notes", old_revision=former, revision=revision, now="")
        service_of(old.application).store.write(set)

    set_revision(1, -1)
    again = serve(url, resource({"count": COUNT}))
    assert [again.get(path).status_code for path in ("/notes", "/boxes", "/readyz")] == [503, 200, 200]
    set_revision(-1, 1)
    assert again.get("/notes").status_code == 200


@pytest.mark.parametrize("value", ["1", "one"])
def test_a_former_program_waits_meanwhile(url: str, old: FlaskClient, value: str) -> None:
    """Its lists and writes are refused, one item and other collections are not. After a refusal it serves on."""
    where = old.post("/notes", json={"count": value}).headers["Location"]
    seen = list[Any]()

    def up(value: str) -> int:
        responses = old.get("/notes"), old.post("/notes", json={}), old.get(where), old.post("/boxes", json={})
        seen.append([each.status_code for each in responses])
        return int(value)

    done = serve(url, newer(up), serves=False).application.test_cli_runner().invoke(args=["migrate"])
    assert done.exit_code == (value == "one") and seen == [[503, 503, 200, 200]] * 2
    assert old.get("/notes").status_code == old.get(where).status_code == (200 if done.exit_code else 503)
    assert service_of(old.application).store.stored()["notes"][:2] == (2 - done.exit_code, 2)


def test_a_writer_that_has_begun_cannot_commit(url: str) -> None:
    """Whatever it has sent to the server: it counts its changes at its end."""
    store, other = (open_store(url, [THINGS]) for _ in "ab")

    def work(transaction: Transaction) -> None:
        transaction.insert("things", record("a"))
        transaction.find("things", Query(), 1)  # so that the item is sent to the server
        other.write(partial(Transaction.set_revision, collection="things", old_revision=1, revision=-1, now=""))

    with pytest.raises(RevisionDiffers):
        store.write(work)
    assert list(store.scan("things")) == []
    store.write(partial(Transaction.set_revision, collection="things", old_revision=-1, revision=1, now=""))
    insert(store, record("a"))
