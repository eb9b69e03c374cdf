"""The contract of restkeeper/storage/contract.py, on every store there is, with no exemption."""

import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from contextvars import ContextVar
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from restkeeper.storage import open_store
from restkeeper.storage.contract import (
    Collection,
    Field,
    Filter,
    Index,
    Kind,
    Op,
    Query,
    Record,
    Sort,
    Store,
    Transaction,
)
from restkeeper.storage.errors import DuplicateValue, RecordNotFound, StoreUnavailable
from restkeeper.storage.sqlite.store import SEARCHES
from restkeeper.web import exactjson
from tests.waiting import SECONDS, join

FIELDS = {
    name: Field(name, kind, nullable)
    for name, kind, nullable in [
        ("id", Kind.TEXT, False),
        ("name", Kind.TEXT, False),
        ("sku", Kind.TEXT, True),
        ("mail", Kind.TEXT, True),
        ("price", Kind.NUMBER, True),
        ("stock", Kind.INTEGER, False),
        ("sold", Kind.BOOLEAN, True),
        ("tags", Kind.LIST, False),
        ("updated_at", Kind.TIME, False),
        ("version", Kind.INTEGER, False),
    ]
}
THINGS = Collection(
    "things",
    FIELDS,
    (Index("sku", unique=True), Index("mail", unique=True, fold=True), Index("price"), Index("name")),
    ("name", "tags"),
)
OTHERS = Collection("others", {"id": FIELDS["id"]})


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url, [THINGS, OTHERS])
    yield opened
    opened.close()


def record(id: str, version: int = 1, **fields: Any) -> Record:
    """A record of the things collection; fields that are not given are null, or empty."""
    empty = {"name": "", "sku": None, "mail": None, "price": None, "stock": 0, "sold": None, "tags": []}
    body = {"id": id, **empty, **fields, "version": version}
    return Record(id, version, f"2026-01-01T00:00:{version:02}.000000Z", "shape", exactjson.dumps(body))


def keep(store: Store, *records: Record, collection: str = "things") -> None:
    def work(transaction: Transaction) -> None:
        for each in records:
            transaction.insert(collection, each)

    store.write(work)


def ids(store: Store, **query: Any) -> list[str]:
    return [exactjson.loads(body)["id"] for body in store.page("things", Query(**query)).bodies]


def test_what_is_inserted_is_read_byte_for_byte(store: Store) -> None:
    """A record comes back as the very same record, its body not touched."""
    kept = record("a", name="Ünï ☃", price=Decimal("12.50"))._replace(owner="me")
    keep(store, kept)
    assert store.read("things", "a") == kept


def test_a_missing_record_is_not_found(store: Store) -> None:
    """Reading, updating and deleting what is not there raise RecordNotFound."""
    for work in (
        lambda: store.read("things", "x"),
        lambda: store.write(lambda transaction: transaction.read("things", "x")),
        lambda: store.write(lambda transaction: transaction.update("things", record("x"))),
        lambda: store.write(lambda transaction: transaction.delete("things", "x")),
    ):
        with pytest.raises(RecordNotFound):
            work()
    assert store.count("things") == 0


def test_collections_do_not_mix(store: Store) -> None:
    """The same id in two collections is two records."""
    keep(store, record("a", name="thing"))
    keep(store, record("a", name="other"), collection="others")
    assert b"thing" in store.read("things", "a").body
    assert b"other" in store.read("others", "a").body
    assert store.count("things") == store.count("others") == 1


@pytest.mark.parametrize(
    ("field", "first", "second"),
    [
        ("id", {}, {}),
        ("sku", {"sku": "s"}, {"sku": "s"}),
        ("mail", {"mail": "Ada@X.org"}, {"mail": "aDA@x.ORG"}),
    ],
)
def test_unique_values_are_taken_once(store: Store, field: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    """A second record with a value that is unique raises DuplicateValue, which names the field; nothing is kept."""
    keep(store, record("a", **first))
    with pytest.raises(DuplicateValue) as caught:
        keep(store, record("a" if field == "id" else "b", **second))
    assert caught.value.field == field
    assert store.count("things") == 1


def test_null_is_unique_any_number_of_times(store: Store) -> None:
    """Records without a unique value do not stand in each other's way."""
    keep(store, record("a"), record("b"))
    assert store.count("things") == 2


def test_a_unique_value_is_free_again(store: Store) -> None:
    """What is deleted or changed away gives its unique value back."""
    keep(store, record("a", sku="s"), record("b", sku="t"))
    store.write(lambda transaction: transaction.delete("things", "a"))
    store.write(lambda transaction: transaction.update("things", record("b", 2, sku="u")))
    keep(store, record("c", sku="s"), record("d", sku="t"))
    assert store.count("things") == 3


def test_a_work_that_raises_leaves_nothing(store: Store) -> None:
    """All that a work did is undone when it raises, and its exception is the caller's."""

    def work(transaction: Transaction) -> None:
        transaction.insert("things", record("a"))
        transaction.insert("things", record("b"))
        raise LookupError("of the caller's own")

    before = store.revision("things")
    with pytest.raises(LookupError, match="own"):
        store.write(work)
    assert (ids(store), store.count("things"), store.revision("things")) == ([], 0, before)


def test_a_transaction_sees_its_own_changes(store: Store) -> None:
    """Inside a work, reading gives what the work has written; its revision moves too."""

    def work(transaction: Transaction) -> tuple[Record, bool]:
        before = transaction.revision("things")
        transaction.insert("things", record("a"))
        return transaction.read("things", "a"), before != transaction.revision("things")

    assert store.write(work) == (record("a"), True)


def test_a_work_runs_in_its_callers_context(store: Store) -> None:
    """Context variables have the caller's values inside a work, whoever commits it."""
    who: ContextVar[int] = ContextVar("who")
    seen: dict[int, int] = {}

    def write(number: int) -> None:
        who.set(number)
        store.write(lambda _: seen.setdefault(number, who.get()))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    join(*threads)
    assert seen == {number: number for number in range(16)}


def test_writers_on_many_threads_lose_nothing(store: Store) -> None:
    """Works that share a commit succeed and fail each for itself."""
    failures: list[str] = []

    def write(number: int) -> None:
        for n in range(25):
            try:
                keep(store, record(f"{number}-{n}", sku=f"{n}" if number % 2 else None))
            except DuplicateValue:
                failures.append(f"{number}-{n}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    join(*threads)
    assert len(failures) == 3 * 25  # of the four with unique values, each value went to one
    assert len(ids(store)) == store.count("things") == 8 * 25 - len(failures)


class Exit(BaseException):
    """What no `except Exception` catches."""


def test_an_interrupted_commit_tells_everybody(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """When one work of a commit is interrupted, no other is told that it was kept: none was."""
    gate = threading.Barrier(3)
    monkeypatch.setattr(
        "restkeeper.storage.sqlite.store.time.sleep", lambda _: gate.wait(SECONDS)
    )  # the three share one commit
    told: list[str] = []

    def write(work: Callable[[Transaction], None]) -> None:
        try:
            store.write(work)
            told.append("kept")
        except (StoreUnavailable, Exit) as error:
            told.append(type(error).__name__)

    def leave(_: Transaction) -> None:
        raise Exit

    works: list[Callable[[Transaction], None]] = [
        lambda transaction: transaction.insert("things", record("a")),
        lambda transaction: transaction.insert("things", record("b")),
        leave,
    ]
    threads = [threading.Thread(target=write, args=(work,)) for work in works]
    queue = store._writer._queue  # type: ignore[attr-defined]
    for number, thread in enumerate(threads):
        thread.start()
        while len(queue) == number < 2:  # they come in this order, so that the last has others before it
            pass
    for thread in threads:
        thread.join(60)
    assert sorted(told) == ["Exit", "StoreUnavailable", "StoreUnavailable"]
    assert store.count("things") == 0


def test_names_may_have_underscores(url: str) -> None:
    """Collections and fields whose names look alike keep their own indexes and point at their own fields."""
    fields = {"id": FIELDS["id"], "c": Field("c", Kind.TEXT), "b_c": Field("b_c", Kind.TEXT)}
    store = open_store(
        url,
        [Collection("a_b", fields, (Index("c", unique=True),)), Collection("a", fields, (Index("b_c", unique=True),))],
    )
    for collection, field in (("a_b", "c"), ("a", "b_c")):
        keep(store, record("1", b_c="x", c="x"), collection=collection)
        with pytest.raises(DuplicateValue) as caught:
            keep(store, record("2", b_c="x", c="x"), collection=collection)
        assert caught.value.field == field
    store.close()


def test_a_store_opens_while_another_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that needs no migration is opened, and read, without waiting for the write lock."""
    monkeypatch.setattr("restkeeper.storage.sqlite.waiting.BUSY_SECONDS", 0.05)
    url = f"sqlite:///{tmp_path}/store.db"
    first = open_store(url, [THINGS])
    keep(first, *SAMPLE)
    with sqlite3.connect(tmp_path / "store.db", isolation_level=None) as holder:
        holder.execute("BEGIN IMMEDIATE")
        second = open_store(url, [THINGS])
        assert second.count("things") == len(SAMPLE)
        second.close()
        holder.execute("ROLLBACK")
    holder.close()
    first.close()


def test_the_revision_differs_after_every_change(store: Store) -> None:
    """Insert, update and delete each make a revision never seen before, and other collections keep theirs."""
    seen = [store.revision("things")]
    others = store.revision("others")
    for work in (
        lambda transaction: transaction.insert("things", record("a")),
        lambda transaction: transaction.update("things", record("a", 2)),
        lambda transaction: transaction.delete("things", "a"),
    ):
        store.write(work)
        seen.append(store.revision("things"))
    assert len(set(seen)) == 4
    assert store.revision("others") == others


def test_two_stores_have_no_revision_in_common(url: str, tmp_path: Path) -> None:
    """A revision of one store is never that of another, however alike their histories."""
    other = url if url == "memory://" else f"sqlite:///{tmp_path}/other.db"
    one, two = open_store(url, [THINGS]), open_store(other, [THINGS])
    assert one.revision("things") != two.revision("things")
    one.close()
    two.close()


SAMPLE = [
    record("a", name="Lamp", price=Decimal("12.5"), stock=3, sold=True, tags=["red", "big"], sku="L1", mail="A@x.org"),
    record("b", name="lampshade", price=Decimal("7"), stock=0, sold=False, tags=["red"]),
    record("c", name="Éclair", price=None, stock=9, tags=[]),
    record("d", name="100% \\_wool", price=Decimal("0.1"), stock=-2, tags=["a,b"], mail="b@x.org"),
]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter("id", Op.EQ, "b"), "b"),
        (Filter("id", Op.IN, ("a", "d", "x")), "ad"),
        (Filter("price", Op.EQ, Decimal("12.50")), "a"),
        (Filter("price", Op.EQ, Decimal("0.1")), "d"),
        (Filter("price", Op.NE, Decimal(7)), "acd"),
        (Filter("price", Op.GT, Decimal("0.1")), "ab"),
        (Filter("price", Op.GTE, Decimal("0.1")), "abd"),
        (Filter("price", Op.LT, Decimal("12.5")), "bd"),
        (Filter("price", Op.LTE, Decimal("12.5")), "abd"),
        (Filter("price", Op.IN, (Decimal("12.5"), Decimal(7))), "ab"),
        (Filter("stock", Op.LT, 0), "d"),
        (Filter("stock", Op.IN, (0, 9)), "bc"),
        (Filter("sold", Op.EQ, True), "a"),
        (Filter("sold", Op.NE, True), "bcd"),
        (Filter("tags", Op.EQ, "red"), "ab"),
        (Filter("tags", Op.IN, ("big", "a,b")), "ad"),
        (Filter("sku", Op.EQ, "L1"), "a"),
        (Filter("sku", Op.EQ, ""), ""),
        (Filter("sku", Op.NE, "L1"), "bcd"),
        (Filter("mail", Op.EQ, "a@X.ORG"), "a"),
        (Filter("mail", Op.IN, ("a@X.org", "B@x.org")), "ad"),
        (Filter("name", Op.LIKE, "LAMP"), "ab"),
        (Filter("name", Op.LIKE, "éCL"), "c"),
        (Filter("name", Op.LIKE, "0% \\_"), "d"),
        (Filter("name", Op.LIKE, "_"), "d"),
        (Filter("name", Op.GT, "Lamp"), "bc"),
        (Filter("updated_at", Op.LTE, "2026-01-01T00:00:01.000000Z"), "abcd"),
    ],
)
def test_filters(store: Store, wanted: Filter, found: str) -> None:
    """Each operator on each kind finds what it says, counts it alike, and a null satisfies `ne` alone."""
    keep(store, *SAMPLE)
    assert ids(store, filters=(wanted,)) == list(found)
    assert store.count("things", Query(filters=(wanted,))) == len(found)


def test_filters_and_search_narrow_together(store: Store) -> None:
    """Several filters and a search must all hold; the search looks through its fields without regard to case."""
    keep(store, *SAMPLE)
    assert ids(store, search="RED") == ["a", "b"]
    assert ids(store, search="éclair") == ["c"]
    assert ids(store, search="lamp", filters=(Filter("stock", Op.GT, 0), Filter("tags", Op.EQ, "red"))) == ["a"]
    assert ids(store, search="nothing like it") == []


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ((), "abcd"),
        ((Sort("id", True),), "dcba"),
        ((Sort("price"),), "cdba"),
        ((Sort("price", True),), "abdc"),
        ((Sort("name"),), "dabc"),
        ((Sort("sold"), Sort("stock", True)), "cdba"),
        ((Sort("sold", True), Sort("stock")), "abdc"),
    ],
)
def test_sorting(store: Store, sort: tuple[Sort, ...], order: str) -> None:
    """Keys count in order, nulls come first ascending, ties go by id in the direction of the last key."""
    keep(store, *SAMPLE)
    assert ids(store, sort=sort) == list(order)


@pytest.mark.parametrize(
    "sort",
    [
        (),
        (Sort("id", True),),
        (Sort("price"),),
        (Sort("price", True),),
        (Sort("stock"), Sort("price", True)),
        (Sort("price", True), Sort("name"), Sort("sold", True)),
        (Sort("sku"), Sort("id", True)),
        (Sort("stock", True), Sort("id"), Sort("name")),
    ],
)
def test_walking_is_the_whole_list_cut_up(store: Store, sort: tuple[Sort, ...]) -> None:
    """Page after page, forwards and backwards, gives the order of the whole list, whatever ties and nulls there are."""
    chance = random.Random(7)  # noqa: S311
    keep(
        store,
        *(
            record(
                f"{n:03}",
                price=chance.choice([None, Decimal("0.1"), Decimal("0.2"), Decimal(3)]),
                stock=chance.randrange(3),
                name=chance.choice("xy"),
                sold=chance.choice([None, True, False]),
                sku=chance.choice([None, f"s{chance.random()}"]),
            )
            for n in range(100)
        ),
    )
    whole = ids(store, sort=sort)
    assert len(whole) == 100
    for backward in (False, True):
        seen: list[str] = []
        page = store.page("things", Query(sort=sort, limit=7, backward=backward))
        while True:
            batch = [exactjson.loads(body)["id"] for body in page.bodies]
            seen = batch + seen if backward else seen + batch
            if not page.more:
                break
            after = page.first if backward else page.last
            page = store.page("things", Query(sort=sort, limit=7, backward=backward, after=after))
        assert seen == whole


def test_offset_and_limit(store: Store) -> None:
    """An offset passes over items, a limit ends the page and tells whether there are more."""
    keep(store, *SAMPLE)
    assert ids(store, offset=1, limit=2) == ["b", "c"]
    assert [store.page("things", Query(limit=limit)).more for limit in (3, 4, 5)] == [True, False, False]
    assert store.page("things", Query(offset=9, limit=2)).bodies == []


def test_scan_gives_everything_in_order(store: Store) -> None:
    """A scan is every record in order of id."""
    keep(store, *reversed(SAMPLE))
    assert list(store.scan("things")) == SAMPLE


def test_a_backup_is_a_store(store: Store, tmp_path: Path) -> None:
    """A backup can be opened and holds everything; a file that exists is not written over."""
    keep(store, *SAMPLE)
    target = tmp_path / "copy.db"
    store.backup(target)
    copy = open_store(f"sqlite:///{target}", [THINGS])
    assert copy.epoch != store.epoch
    assert copy.secret != store.secret and len(copy.secret) == len(store.secret) == 32
    assert list(copy.scan("things")) == SAMPLE
    copy.close()
    with pytest.raises(FileExistsError):
        store.backup(target)


def test_a_ready_store_passes_its_check(store: Store) -> None:
    """A store that answers and is migrated says nothing."""
    store.check()


def test_a_second_opening_finds_what_the_first_kept(tmp_path: Path) -> None:
    """A file is the same store when it is opened again, with indexes as they are declared now."""
    url = f"sqlite:///{tmp_path}/store.db"
    first = open_store(url, [THINGS])
    keep(first, *SAMPLE)
    revision, secret = first.revision("things"), first.secret
    first.close()
    changed = Collection("things", FIELDS, (Index("stock"), Index("sku", unique=True)), ())
    second = open_store(url, [changed])
    assert (second.revision("things"), list(second.scan("things"))) == (revision, SAMPLE)
    assert second.secret == secret
    second.close()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        names = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'items.things.%'")
        }
    connection.close()
    assert names == {"items.things.stock", "items.things.sku.unique"}


def test_a_file_of_a_newer_program_is_refused(tmp_path: Path) -> None:
    """Migrations run one way: a file with more of them than the program knows is not opened."""
    open_store(f"sqlite:///{tmp_path}/store.db", [THINGS]).close()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreUnavailable, match="newer program"):
        open_store(f"sqlite:///{tmp_path}/store.db", [THINGS])


def test_values_that_are_not_unique_stop_the_start(tmp_path: Path) -> None:
    """A unique index that the items do not allow is told at start, naming it."""
    loose = Collection("things", FIELDS)
    store = open_store(f"sqlite:///{tmp_path}/store.db", [loose])
    keep(store, record("a", sku="s"), record("b", sku="s"))
    store.close()
    with pytest.raises(StoreUnavailable, match="things.sku.unique"):
        open_store(f"sqlite:///{tmp_path}/store.db", [THINGS])


def test_a_store_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    """A path that is no place for a file is named."""
    with pytest.raises(StoreUnavailable, match="no/such/folder"):
        open_store(f"sqlite:///{tmp_path}/no/such/folder/store.db", [THINGS])


def test_a_file_that_another_process_holds_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that cannot have the file in time raises StoreUnavailable; reading goes on."""
    monkeypatch.setattr("restkeeper.storage.sqlite.waiting.BUSY_SECONDS", 0.05)
    store = open_store(f"sqlite:///{tmp_path}/store.db", [THINGS])
    keep(store, record("a"))
    holder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable):
        keep(store, record("b"))
    assert ids(store) == ["a"]
    holder.execute("ROLLBACK")
    holder.close()
    keep(store, record("b"))
    assert ids(store) == ["a", "b"]
    store.close()


def test_a_store_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    """Whatever SQLite says while somebody reads is 503, with the cause for the log."""
    store = open_store(f"sqlite:///{tmp_path}/a.db", [THINGS])
    keep(store, record("a"))
    other = sqlite3.connect(tmp_path / "a.db")
    other.execute("DROP TABLE items")
    other.commit()
    other.close()
    for read in (lambda: store.read("things", "a"), lambda: store.page("things", Query(limit=1)), lambda: ids(store)):
        with pytest.raises(StoreUnavailable, match="the store does not answer: no such table"):
            read()
    store.close()


def _steps(store: Store) -> list[int]:
    """The steps of SQLite's machine that reading one item, counting, and first and middle pages take."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection = store._connect(1)  # type: ignore[attr-defined]
    connection.set_progress_handler(step, 1)
    store._idle.append(connection)  # type: ignore[attr-defined]
    positions: dict[str, tuple[Any, ...]] = {"id": ("m",), "price": (5.0, "m"), "name": ("m", "m")}
    queries = [
        Query(sort=(Sort(field, down),), limit=20, after=after)
        for field, middle in positions.items()
        for down in (False, True)
        for after in ((), middle)
    ]
    taken = []
    for ask in (
        lambda: store.read("things", "m000501"),
        lambda: store.count("things"),
        *(partial(store.page, "things", query) for query in queries),
    ):
        steps = 0
        ask()
        taken.append(steps)
    return taken


def test_pages_cost_the_same_at_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page, a middle page and one item take as many steps of SQLite's machine in a large list as in a small.

    Steps are counted and not timed, so the test says the same on any machine.
    """
    monkeypatch.setattr(
        "restkeeper.storage.sqlite.store.within", lambda *_: nullcontext()
    )  # it would take our counter's place
    counts = []
    for size in (1_000, 30_000):
        store = open_store(f"sqlite:///{tmp_path}/{size}.db", [THINGS])
        keep(store, *(record(f"{'am'[n % 2]}{n:06}", price=Decimal(n % 10), name="am"[n % 2]) for n in range(size)))
        counts.append(_steps(store))
        store.close()
    small, large = counts
    assert min(small) > 0
    assert all(many <= 1.5 * few for few, many in zip(small, large, strict=True)), (small, large)


def test_a_search_that_takes_too_long_is_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would keep a process busy beyond its time is StoreUnavailable, and says what to do; the store goes on."""
    keep(store, *(record(f"{n:06}") for n in range(20_000)))
    monkeypatch.setattr("restkeeper.storage.sqlite.search.READ_SECONDS", 0.0)
    for ask in (store.page, store.count):
        with pytest.raises(StoreUnavailable, match="narrow it"):
            ask("things", Query(search="nothing like it"))
    assert store.read("things", "000001").id == "000001"
    assert store.count("things") == 20_000


def test_nothing_is_written_to_a_file_that_is_gone(tmp_path: Path) -> None:
    """When the store's file was moved or replaced, a write fails instead of going where nobody will find it."""
    store = open_store(f"sqlite:///{tmp_path}/store.db", [THINGS])
    keep(store, record("a"))
    (tmp_path / "store.db").rename(tmp_path / "moved.db")
    with pytest.raises(StoreUnavailable, match="not the one that was opened"):
        keep(store, record("b"))
    (tmp_path / "moved.db").rename(tmp_path / "store.db")
    keep(store, record("b"))
    store.close()


def test_a_walk_sees_every_item_that_stays_once(store: Store) -> None:
    """While others insert, change and delete, a walk by position sees each item that stayed exactly once."""
    staying = [f"{n:06}" for n in range(0, 20_000, 2)]
    keep(store, *(record(id) for id in staying))
    stop = threading.Event()

    def disturb(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311
        own: list[str] = []
        while not stop.is_set():
            if own and chance.random() < 0.4:
                gone = own.pop(chance.randrange(len(own)))
                store.write(lambda transaction, id=gone: transaction.delete("things", id))  # type: ignore[misc]
            elif own and chance.random() < 0.3:
                store.write(lambda transaction: transaction.update("things", record(own[-1], 2)))
            else:
                own.append(f"{chance.randrange(20_000):06}-{seed}-{len(own)}-{chance.random()}")
                keep(store, record(own[-1]))

    writers = [threading.Thread(target=disturb, args=(seed,)) for seed in (1, 2)]
    for writer in writers:
        writer.start()
    seen: list[str] = []
    after: tuple[Any, ...] = ()
    while True:
        page = store.page("things", Query(limit=100, after=after))
        seen += [exactjson.loads(body)["id"] for body in page.bodies]
        if not page.more:
            break
        after = page.last
    stop.set()
    join(*writers)
    assert all(one < other for one, other in pairwise(seen))
    assert [id for id in seen if "-" not in id] == staying


def test_what_another_program_writes_is_seen_at_once(tmp_path: Path) -> None:
    """Records and revisions are those of this moment, whoever changes them."""
    path = tmp_path / "a.db"
    store = open_store(f"sqlite:///{path}", [THINGS])
    keep(store, record("a", name="first"))
    change = "UPDATE items SET version = version + 1; UPDATE collections SET revision = revision + 1;"
    for number in range(20):
        assert store.read("things", "a").version == number + 1
        before = store.revision("things")
        if number % 5:
            other = sqlite3.connect(path, isolation_level=None)
            other.executescript(change)
            other.close()
        else:
            code = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])"
            subprocess.run([sys.executable, "-c", code, str(path), change], check=True)
        assert store.read("things", "a").version == number + 2
        assert store.revision("things") != before
    store.close()


def test_what_is_gone_is_not_kept(store: Store) -> None:
    """A record that was read is not found once it is deleted, and found anew when it is back."""
    keep(store, record("a"))
    assert store.read("things", "a").id == "a"
    store.write(lambda transaction: transaction.delete("things", "a"))
    with pytest.raises(RecordNotFound):
        store.read("things", "a")
    keep(store, record("a", name="again"))
    assert b"again" in store.read("things", "a").body


def test_another_store_that_closes_takes_no_lock_away(tmp_path: Path) -> None:
    """Closing a file ends all the locks that a process has on it; a store that closes leaves those of others alone."""
    path = tmp_path / "a.db"
    store = open_store(f"sqlite:///{path}", [THINGS])
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"

    def work(transaction: Transaction) -> int:
        transaction.insert("things", record("a"))
        open_store(f"sqlite:///{path}", [THINGS]).close()
        return subprocess.run(
            [sys.executable, "-c", code, str(path)], check=False, stderr=subprocess.DEVNULL
        ).returncode

    assert store.write(work) == 1  # the other process finds the database locked
    store.close()


def test_a_store_by_another_name_sees_changes(tmp_path: Path) -> None:
    """A symbolic link leads to the same file, and to the same state of it."""
    first = open_store(f"sqlite:///{tmp_path}/a.db", [THINGS])
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    second = open_store(f"sqlite:///{tmp_path}/link.db", [THINGS])
    keep(first, record("a"))
    assert second.read("things", "a").version == 1
    first.write(lambda transaction: transaction.update("things", record("a", version=2)))
    assert second.read("things", "a").version == 2
    first.close()
    second.close()


def test_searches_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many searches run at once; one that waits too long is told so, what is no search never waits."""
    monkeypatch.setattr("restkeeper.storage.sqlite.search.READ_SECONDS", 0.01)
    store = open_store(f"sqlite:///{tmp_path}/a.db", [THINGS])
    keep(store, record("a"))
    with ExitStack() as stack:
        for _ in range(SEARCHES):
            stack.enter_context(store._searching(Query(search="x")))  # type: ignore[attr-defined]
        with pytest.raises(StoreUnavailable, match="searches are under way"):
            store.page("things", Query(search="x"))
        assert store.read("things", "a").id == "a"
        assert store.page("things", Query(limit=20)).bodies
    assert store.page("things", Query(sort=(Sort("name"),))).bodies
    store.close()
