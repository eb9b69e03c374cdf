"""Stored responses: found until they are swept, and stored in the transaction of the change, or not at all."""

from functools import partial

import pytest

from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import ResponseStored
from restkeeper.storage.interface import StoredResponse
from tests.things import ids, record


def put(store: Store, **responses: float) -> None:
    """Store responses, each in a transaction."""

    def work(transaction: Transaction) -> None:
        for id, stored_at in responses.items():
            transaction.store_response(
                id.encode(), StoredResponse(stored_at, b"of " + id.encode()), expired_before=stored_at
            )

    store.write(work)


def left(store: Store, ids: str) -> str:
    return "".join(id for id in ids if store.look_up([id.encode()])[0])


def test_a_stored_response_is_found(store: Store) -> None:
    response = StoredResponse(1.5, b"\x00\xff")
    assert store.look_up([b"\x00\xff"])[0] is None
    store.write(lambda transaction: transaction.store_response(b"\x00\xff", response, expired_before=0.0))
    assert store.look_up([b"\x00\xff"])[0] == response
    assert store.look_up([b"\x00"])[0] is None


def test_a_stored_response_is_not_replaced(store: Store) -> None:
    put(store, a=1.0, b=99.0)

    def work(transaction: Transaction, id: bytes) -> None:
        transaction.store_response(b"new", StoredResponse(2.0, b""), expired_before=1.0)
        transaction.store_response(id, StoredResponse(2.0, b"second"), expired_before=1.0)
        transaction.insert("things", record("a"))

    for id in (b"a", b"b"):
        with pytest.raises(ResponseStored):
            store.write(partial(work, id=id))
    assert (store.look_up([b"a", b"b", b"new"]), ids(store)) == ([(1.0, b"of a"), (99.0, b"of b"), None], [])


def test_a_response_is_stored_once_in_a_transaction(store: Store) -> None:
    def work(transaction: Transaction) -> None:
        for _ in range(2):
            transaction.store_response(b"a", StoredResponse(1.0, b""), expired_before=0.0)

    with pytest.raises(ResponseStored):
        store.write(work)
    assert store.look_up([b"a"])[0] is None


def test_an_expired_response_is_replaced(store: Store) -> None:
    """It is the newest then: a sweep finds those before it."""
    put(store, a=1.0, b=2.0)
    put(store, a=3.0)
    assert store.look_up([b"a"])[0] == (3.0, b"of a")
    assert store.write(lambda transaction: transaction.sweep_responses(3.0, 1)) == 1
    assert left(store, "ab") == "a"


def test_expired_responses_are_swept(store: Store) -> None:
    """A limited number in each call, the oldest first; also responses that a wrong clock dated too late."""
    put(store, a=1.0, b=2.0, c=99.0, d=3.0, e=5.0)
    sweep = lambda limit: store.write(lambda transaction: transaction.sweep_responses(4.0, limit, latest=50.0))  # noqa: E731
    assert (sweep(2), left(store, "abcde")) == (2, "cde")
    assert (sweep(2), left(store, "abcde")) == (2, "e")
    assert (sweep(2), left(store, "abcde")) == (0, "e")
