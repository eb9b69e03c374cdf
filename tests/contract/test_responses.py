"""Stored responses: found until they are swept, and stored in the transaction of the change, or not at all."""

import pytest

from restkeeper.storage.contract import Store, StoredResponse, Transaction


def put(store: Store, **responses: float) -> None:
    """Store responses, each in a transaction."""

    def work(transaction: Transaction) -> None:
        for id, stored_at in responses.items():
            transaction.store_response(id.encode(), StoredResponse(stored_at, b"of " + id.encode()))

    store.write(work)


def left(store: Store, ids: str) -> str:
    return "".join(id for id in ids if store.find_response(id.encode()))


def test_a_stored_response_is_found(store: Store) -> None:
    """It is read byte for byte, inside its transaction and later, by its id only; a later one replaces it."""

    def work(transaction: Transaction) -> StoredResponse | None:
        transaction.store_response(b"\x00\xff", StoredResponse(1.5, b"\x00\xff"))
        return transaction.find_response(b"\x00\xff")

    assert store.find_response(b"\x00\xff") is None
    assert store.write(work) == store.find_response(b"\x00\xff") == (1.5, b"\x00\xff")
    assert store.find_response(b"\x00") is None
    put(store, a=1.0)
    put(store, a=2.0)
    assert store.find_response(b"a") == (2.0, b"of a")


def test_a_failed_transaction_stores_no_response(store: Store) -> None:
    """The former response remains."""
    put(store, a=1.0)

    def work(transaction: Transaction) -> None:
        transaction.store_response(b"a", StoredResponse(2.0, b""))
        transaction.store_response(b"b", StoredResponse(2.0, b""))
        raise LookupError

    with pytest.raises(LookupError):
        store.write(work)
    assert store.find_response(b"a") == (1.0, b"of a")
    assert store.find_response(b"b") is None


def test_expired_responses_are_swept(store: Store) -> None:
    """A limited number in each call, the oldest first; also responses that a wrong clock dated too late."""
    put(store, a=1.0, b=2.0, c=99.0, d=3.0, e=5.0)
    sweep = lambda limit: store.write(lambda transaction: transaction.sweep_responses(4.0, limit, latest=50.0))  # noqa: E731
    assert (sweep(2), left(store, "abcde")) == (2, "cde")
    assert (sweep(2), left(store, "abcde")) == (2, "e")
    assert (sweep(2), left(store, "abcde")) == (0, "e")
