"""Backups are stores with independent histories."""

from pathlib import Path

import pytest

from restkeeper.storage import open_store
from restkeeper.storage.errors import EventsExpired
from restkeeper.storage.interface import Collection
from tests import outbox


def test_a_copy_shares_only_the_history_before_it(tmp_path: Path) -> None:
    """A cursor from before the backup is valid in each copy; a later one only in its own store."""
    things = [Collection("things", {})]
    original = open_store(f"sqlite:///{tmp_path}/a.db", things)
    before = outbox.record(original, outbox.event("a"), outbox.event("b"))
    original.backup(tmp_path / "b.db")
    (tmp_path / "c.db").write_bytes((tmp_path / "b.db").read_bytes())
    stores = [original, *(open_store(f"sqlite:///{tmp_path}/{name}.db", things) for name in "bc")]
    after = [outbox.record(store, outbox.event("c"), outbox.event("d")) for store in stores]
    assert len({id for ids in after for id in ids}) == 6
    for store, own in zip(stores, after, strict=True):
        assert outbox.all_of(store) == before + own
        assert len(store.events(before[-1], outbox.THINGS, 10).events) == 2
        for other in (ids for ids in after if ids is not own):
            for id in other:
                with pytest.raises(EventsExpired):
                    store.events(id, outbox.THINGS, 10)
        outbox.record(store, outbox.event("e", at="2028"))
        store.write(lambda transaction: transaction.sweep_events("2027", 10))
        with pytest.raises(EventsExpired):  # it has the position of this store's deleted event
            store.events(next(ids for ids in after if ids is not own)[-1], outbox.THINGS, 10)
        assert len(store.events(own[-1], outbox.THINGS, 10).events) == 1
        store.close()
