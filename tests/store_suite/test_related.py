"""Related records: found by the values of fields, of several collections at once."""

from restkeeper.storage.base import Store
from restkeeper.storage.interface import Related
from tests.things import SAMPLE, insert, record


def found(store: Store, *wanted: Related, max_bytes: int = 10_000) -> list[tuple[int, str | int, str]]:
    """The ids of what is related, each with the number of its part and the value."""
    return [(number, value, each.id) for number, value, each in store.related(wanted, max_bytes)]


def test_records_are_found_by_values(store: Store) -> None:
    """By the id, a field with an index, one without, and an element of a list; of each value those with high ids."""
    insert(store, *SAMPLE, *(record(f"n{n}", name="Lamp", stock=3, tags=["red", "red"]) for n in range(9)))
    insert(store, record("a"), collection="others")
    assert found(store, Related("things", "id", ["d", "", "x", "a"], 1), Related("others", "id", ["a", "d"], 1)) == [
        (0, "d", "d"),
        (0, "a", "a"),
        (1, "a", "a"),
    ]
    for field, value in (("name", "Lamp"), ("sku", "L1"), ("tags", "red"), ("stock", 3), ("tags", 3)):
        expected = {"sku": ["a"]}.get(field, [] if (field, value) == ("tags", 3) else ["n8", "n7", "n6"])
        assert [
            id for *_, id in found(store, Related("things", field, [value, 7 if value == 3 else "none\\\"'$"], 3))
        ] == expected, field
    insert(store, record("0", name="Lamp"))
    in_order = Related("things", "name", ["Lamp", "lampshade"], 2, in_order=True)
    assert [id for *_, id in found(store, in_order, in_order._replace(most=20))] == [
        *("a", "n0", "b"),
        *("a", *(f"n{n}" for n in range(9)), "0", "b"),
    ]
    several = Related("things", "name", ["lampshade", "Lamp"], 2)
    assert found(store, several, several) == [
        (number, *each) for number in (0, 1) for each in (("lampshade", "b"), ("Lamp", "n8"), ("Lamp", "n7"))
    ]


def test_records_are_limited_in_bytes(store: Store) -> None:
    insert(store, *(record(str(n), name="x" * 1000) for n in range(9)))
    size = len(record("0", name="x" * 1000).body)
    wanted = Related("things", "id", [str(n) for n in range(9)], 1)
    for most, count in ((0, 1), (size - 1, 1), (size, 2), (3 * size, 4), (8 * size, 9)):
        assert len(found(store, wanted, max_bytes=most)) == count
