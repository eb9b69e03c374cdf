"""What an older version has answered and not yet written to a file."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from fcntl import LOCK_EX, flock
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from restkeeper.app import create_app
from restkeeper.features.files import FileOptions, application_of

KINDS = {"posts": "client-integer", "tags": "client", "profile": "singleton", "gone": "client"}
BEFORE: dict[str, Any] = {
    "posts": [{"id": 1, "title": "a"}, {"id": 2, "title": "b"}, {"id": 3, "title": "c"}],
    "tags": [{"id": "x", "n": 1.50}],
    "profile": {"name": "one"},
    "gone": [],
}
WRITTEN = {**BEFORE, "posts": [*BEFORE["posts"], {"id": 4, "title": "in the file"}]}
EVENTS: list[tuple[str, str, Any]] = [
    ("posts", "post.created", {"id": 4, "title": "before the checkpoint, and so in the file"}),
    ("posts", "post.created", {"id": 4, "title": "in the file"}),
    ("posts", "post.updated", {"id": 1, "title": "a2"}),
    ("posts", "post.updated", {"id": 1, "title": "a3"}),
    ("posts", "post.deleted", {"id": 2, "title": "b"}),
    ("posts", "post.created", {"id": 5, "title": "e"}),
    ("tags", "tag.deleted", {"id": "x", "n": 1.5}),
    ("tags", "tag.created", {"id": "y", "n": 2}),
    ("tags", "tag.created", {"id": "x", "n": 3}),
    ("keys", "key.created", {"id": "k"}),
    ("profile", "profile.updated", {"name": "two"}),
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of the file, which its process has left when it was killed before it committed its last write."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DATABASE_URL", "memory://")
    target = (tmp_path / "db.json").resolve()
    target.write_text(json.dumps(WRITTEN))
    name = f"db-{blake2b(bytes(target), digest_size=6).hexdigest()}.db"
    (folder := tmp_path / "cache/restkeeper").mkdir(parents=True)
    for suffix, position, data in ((".checkpoint", 1, BEFORE), (".next", 2, WRITTEN)):
        head = ["digest", f"evt_0a1b2c3d_{position}", {each: [{}, kind, {}, []] for each, kind in KINDS.items()}, []]
        (folder / name).with_suffix(suffix).write_text(f"{json.dumps(head)}\n{json.dumps(data)}")
    connection = sqlite3.connect(folder / name)
    connection.execute("CREATE TABLE events (position INTEGER PRIMARY KEY, type TEXT, collection TEXT, data TEXT)")
    rows = [(kind, name, json.dumps(data)) for name, kind, data in EVENTS]
    connection.executemany("INSERT INTO events (type, collection, data) VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return folder / name


def start(file: Path) -> None:
    """Start as `restkeeper db.json` does, before it serves."""
    application_of(create_app, file, FileOptions())


def test_what_an_older_version_did_not_write_is_written_once(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of its changes, and then its store is deleted; a file that is not saved stays as it is."""
    file, summary = tmp_path / "db.json", "db.json: 4 posts, 2 tags, profile, 0 gone\n"
    application_of(create_app, file, FileOptions(saves=False))
    assert json.loads(file.read_bytes()) == WRITTEN and store.exists()
    capsys.readouterr()
    start(file)
    assert json.loads(file.read_bytes()) == {
        "posts": [{"id": 1, "title": "a3"}, *WRITTEN["posts"][2:], {"id": 5, "title": "e"}],
        "tags": [{"id": "y", "n": 2}, {"id": "x", "n": 3}],
        "profile": {"name": "two"},
        "gone": [],
    }
    assert capsys.readouterr().err == f"db.json: 6 items that an older version had changed are written\n{summary}"
    assert not [*store.parent.iterdir()]
    written = file.stat()
    start(file)
    assert (file.stat().st_ino, capsys.readouterr().err) == (written.st_ino, summary)


def test_what_was_edited_since_stays_so(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line says what the older version has, whose store is kept."""
    file, kept = tmp_path / "db.json", store.with_suffix(".kept")
    edited = {
        "posts": [{"id": 1, "title": "edited"}, {"id": 2, "title": "edited"}, {"id": 4, "title": "edited"}],
        "tags": BEFORE["tags"],
        "profile": [],
    }
    file.write_text(json.dumps(edited))
    start(file)
    assert json.loads(file.read_bytes()) == {
        "posts": [*edited["posts"], {"id": 5, "title": "e"}],
        "tags": [{"id": "y", "n": 2}, {"id": "x", "n": 3}],
        "profile": [],
    }
    *lines, _ = capsys.readouterr().err.splitlines()
    since = f"was edited since; in {kept} stays what an older version has"
    assert lines == [
        f'db.json: posts/4 {since}: {{"id": 4, "title": "in the file"}}',
        f'db.json: posts/1 {since}: {{"id": 1, "title": "a3"}}',
        f"db.json: posts/2 {since}: its deletion",
        f'db.json: profile {since}: {{"name": "two"}}',
        "db.json: 3 items that an older version had changed are written",
    ]
    assert {each.name for each in store.parent.iterdir()} == {kept.name}
    with closing(sqlite3.connect(kept / store.name)) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (len(EVENTS),)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda store: store.write_bytes(b"no store" * 100), "file is not a database"),
        (lambda store: store.write_bytes(b""), "no such table: events"),
        (lambda store: [each.unlink() for each in store.parent.glob("*.[cn]*")], "it has no checkpoint"),
        (lambda store: store.with_suffix(".checkpoint").write_text('{"is": "another"}'), ""),
        (lambda store: store.with_suffix(".checkpoint").write_text("half"), ""),
    ],
)
def test_a_store_that_cannot_be_read_is_left(
    damage: Callable[[Path], Any], reason: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start goes on, and says where it is."""
    damage(store)
    require_left(store, tmp_path, reason, capsys)


def test_a_store_that_is_served_is_left(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its process writes what it has at its end, or the next start does."""
    with store.with_suffix(".served").open("wb") as lock:
        flock(lock, LOCK_EX)
        require_left(store, tmp_path, "that is running", capsys)


def require_left(store: Path, tmp_path: Path, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A start leaves the store and the file as they are, and says why."""
    before = {each.name: each.read_bytes() for each in store.parent.iterdir()}
    start(tmp_path / "db.json")
    line = f"db.json: {store} may have changes of an older version, and is left as it is: {reason}"
    assert capsys.readouterr().err.startswith(line)
    assert json.loads((tmp_path / "db.json").read_bytes()) == WRITTEN
    assert {name: (store.parent / name).read_bytes() for name in before} == before
