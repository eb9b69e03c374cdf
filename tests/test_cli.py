"""The operator's commands, on real files, some beside a running service."""

import csv
import json
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask.testing import FlaskCliRunner

from restkeeper.cli.running import BATCH
from restkeeper.clock import rfc3339
from restkeeper.config import Config
from restkeeper.storage import open_store
from restkeeper.storage.base import Transaction
from restkeeper.storage.interface import StoredResponse
from restkeeper.storage.transactions import Event
from restkeeper.web.application import Application
from tests.shop import create_app
from tests.shop.products import RESOURCE as PRODUCTS
from tests.waiting import SECONDS, join

Run = Callable[..., Result]

GOOD = {"name": "Desk lamp", "price": 49.9, "tags": ["office"]}
TRICKY = {
    "name": 'Lamp, "big"\r\nsecond line; Ünïcode \u2028',
    "sku": "007",
    "price": 9999999999999.99,
    "attributes": {"deep": [{"n": 12345678901234567}, None, True], "é": ""},
    "tags": ["a,b", '"'],
    "status": "draft",
}


@pytest.fixture
def app(tmp_path: Path) -> Application:
    return create_app(Config(database_url=f"sqlite:///{tmp_path}/restkeeper.db"))


@pytest.fixture
def run(app: Application) -> Run:
    runner: FlaskCliRunner = app.test_cli_runner()
    return lambda *arguments: runner.invoke(args=[str(argument) for argument in arguments])


def lines(path: Path, *values: Any) -> Path:
    """Write a file with a line for each value; texts are written unchanged."""
    path.write_text("".join(f"{value if isinstance(value, str) else json.dumps(value)}\n" for value in values))
    return path


def first_line(result: Result) -> str:
    return result.stdout.splitlines()[0]


def items(app: Application) -> Any:
    return app.test_client().get("/products?limit=100&sort=name").json


@pytest.mark.parametrize("form", ["ndjson", "json", "csv"])
def test_export_and_import_round_trip(app: Application, run: Run, tmp_path: Path, form: str) -> None:
    """Exported items that are imported into another store are exported from there byte for byte as before."""
    run("export", "products", tmp_path / "empty", "--format", form)
    assert first_line(run("import", "products", tmp_path / "empty")) == "imported 0 products"
    client = app.test_client()
    for sent in (GOOD, TRICKY, {"name": "0"}):
        assert client.post("/products", json=sent).status_code == 200
    changed = next(item["id"] for item in items(app) if item["sku"] == "007")
    assert client.patch(f"/products/{changed}", json={"stock": 3}).json["version"] == 2
    assert run("export", "products", tmp_path / "a", "--format", form).exit_code == 0
    there = create_app(Config(database_url=f"sqlite:///{tmp_path}/other.db")).test_cli_runner()
    assert there.invoke(args=["import", "products", str(tmp_path / "a")]).exit_code == 0
    assert there.invoke(args=["export", "products", str(tmp_path / "b"), "--format", form]).exit_code == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_bad_lines_are_listed(app: Application, run: Run, tmp_path: Path) -> None:
    """Each with its number in the file and all its faults, the first ten; nothing is imported, or the good ones."""
    file = lines(tmp_path / "a.ndjson", GOOD, "", {"name": "", "price": "9"}, "{", [1], {**GOOD, "colour": 1})
    result = run("import", "products", file)
    assert (result.exit_code, items(app)) == (1, [])
    assert result.stderr.splitlines() == [
        "line 3: #/name: must have 1 to 200 characters; #/price: must be a number",
        "line 4: Expecting property name enclosed in double quotes (column 2)",
        "line 5: #: must be an object",
        "line 6: #/colour: is not a field of this collection",
        "Error: nothing was imported: 4 of 5 are bad",
    ]
    skipped = run("import", "products", "--skip-bad", file)
    assert (skipped.exit_code, first_line(skipped)) == (0, "imported 1 products, skipped 4")
    assert skipped.stderr.splitlines() == result.stderr.splitlines()[:-1]
    (tmp_path / "a.ndjson").write_bytes(b'{"name":"a"}\n{"name":"\xff"}\n')
    assert run("import", "products", file).stderr.splitlines()[0] == "line 2: the text is not UTF-8 (byte 9)"
    assert [item["name"] for item in items(app)] == ["Desk lamp"]
    many = run("import", "products", lines(tmp_path / "b.ndjson", *[{}] * 25)).stderr.splitlines()
    assert many[9:] == ["line 10: #/name: is required", "and 15 more", "Error: nothing was imported: 25 of 25 are bad"]


def test_imported_items_keep_their_id_times_and_version(app: Application, run: Run, tmp_path: Path) -> None:
    """An item's own id, times and version are stored, the times in UTC; missing ones are generated."""
    brought = {"name": "a", "id": "lamp.1~x", "updated_at": "2020-01-31T12:00:00+02:00", "version": 7}
    run("import", "products", lines(tmp_path / "a.ndjson", brought))
    item = items(app)[0]
    assert (item["id"], item["version"]) == ("lamp.1~x", 7)
    assert item["created_at"] == item["updated_at"] == "2020-01-31T10:00:00.000000Z"
    ids: list[tuple[str, Any]] = [("id", each) for each in ("a/b", "", "a" * 65, "a\n", "..", 1)]
    others: list[tuple[str, Any]] = [("version", 0), ("version", 1.5), ("created_at", "2020-01-31")]
    others += [("updated_at", "2020-W05-5T12:00:00Z"), ("updated_at", "2020-01-31T12:00:00")]
    for bad in (ids, others):
        result = run("import", "products", lines(tmp_path / "a.ndjson", *({**GOOD, name: each} for name, each in bad)))
        listed = result.stderr.splitlines()
        assert result.exit_code == 1 and len(listed) == len(bad) + 1
        for number, (name, _) in enumerate(bad, start=1):
            assert listed[number - 1].startswith(f"line {number}: #/{name}: must be ")


def test_json_arrays(run: Run, tmp_path: Path) -> None:
    """In a JSON array an error names the number of the element; an ambiguous element does not affect others."""
    file = tmp_path / "a.json"
    file.write_text('\ufeff[ {"name":"a"},\n {"name":"b","name":"c"} ,{"name":"]"}, {"name":"\\u0000"} ]\n')
    result = run("import", "products", "--skip-bad", file)
    assert first_line(result) == "imported 2 products, skipped 2"
    assert result.stderr.splitlines() == [
        "element 2: the name 'name' occurs twice in one object",
        "element 4: #/name: must not hold NUL",
    ]
    read = []
    for text in (b"[", b"[1", b"[1,]", b"[1 2]", b"[1] x", b'["', b"[" * 100_000, b"[\xff]", b"[,]", b"[NaN]"):
        (tmp_path / "a").write_bytes(text)
        result = run("import", "products", "--skip-bad", tmp_path / "a")
        begin = "Error: the file cannot be read as one JSON array: "
        if (result.exit_code, result.stderr.count("\n"), result.stderr[: len(begin)]) != (1, 1, begin):
            read.append(text[:10])
    assert not read


def test_csv_and_its_faults(app: Application, run: Run, tmp_path: Path) -> None:
    """CSV cells are converted to the types of the schema's fields; an empty cell is an omitted field."""
    file = tmp_path / "a.csv"
    with file.open("w", newline="", encoding="utf-8-sig") as out:
        header = ["name", "sku", "price", "stock", "tags", "attributes", "currency"]
        csv.writer(out).writerows([header, ["1", "007", "49.90", "3", '["a","b"]', '{"n":[1.10]}', ""]])
    assert run("import", "products", file).exit_code == 0
    item = items(app)[0]
    assert (item["name"], item["sku"], item["price"], item["stock"]) == ("1", "007", 49.9, 3)
    assert (item["tags"], item["attributes"], item["currency"]) == (["a", "b"], {"n": [1.1]}, "USD")
    rows = ["name,price,tags", '"two', 'lines",1,', "", "b,cheap,x", "c,1", "d,2,", "e\0,2,"]
    assert run("import", "products", lines(tmp_path / "a.csv", *rows)).stderr.splitlines()[:-1] == [
        "line 5: #/price: must be a number; #/tags: must be an array",
        "line 6: #: must have 3 cells, as the header; it has 2",
        "line 8: #/name: must not hold NUL",
    ]
    for content, message in (
        (b"name,colour\na,red\n", "line 1: no fields of products: 'colour'; there are id, name, "),
        (b"name,name\na,b\n", "line 1: a field is named twice"),
        (b'name\na\n"b\n', "line 3: not CSV: unexpected end of data"),
        (b"name\na\nb\xff\n", "line 3: not UTF-8 (byte 1)"),
    ):
        (tmp_path / "a.csv").write_bytes(content)
        result = run("import", "products", "--skip-bad", tmp_path / "a.csv")
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert result.stderr.startswith(f"Error: {message}")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_can_have_other_separators(app: Application, run: Run, tmp_path: Path, separator: str) -> None:
    """The header shows which; another one in a cell is text."""
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8-sig") as out:
        rows = csv.writer(out, delimiter=separator)
        rows.writerows([["name", "description", "tags"], ["a,b;c\td", "x", '["1","2"]'], ["x"]])
    result = run("import", "products", "--skip-bad", tmp_path / "a.csv")
    assert first_line(result) == "imported 1 products, skipped 1", result.output
    assert result.stderr.startswith("line 3: ")
    (item,) = items(app)
    assert (item["name"], item["tags"]) == ("a,b;c\td", ["1", "2"])


def test_a_line_before_the_header_can_say_the_separator(app: Application, run: Run, tmp_path: Path) -> None:
    """As spreadsheets write it; the lines are counted with it."""
    for separator in (",", ";", "|"):
        text = f"sep={separator}\nname{separator}description\n{separator.join('ab')}\nx\n"
        (tmp_path / "a.csv").write_text(text, encoding="utf-8")
        result = run("import", "products", "--skip-bad", tmp_path / "a.csv")
        assert first_line(result).endswith("skipped 1") and result.stderr.startswith("line 4: ")
    assert [each["description"] for each in items(app)] == ["b"]
    (tmp_path / "a.csv").write_text("sep=;", encoding="utf-8")
    assert first_line(run("import", "products", tmp_path / "a.csv")) == "imported 0 products"


def test_csv_can_have_empty_rows(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,sku\n,\nb,2\n,\n", encoding="utf-8")
    assert first_line(run("import", "products", tmp_path / "a.csv")) == "imported 1 products"
    for empty in ("", "\n\n"):
        (tmp_path / "a.csv").write_text(empty, encoding="utf-8")
        assert first_line(run("import", "products", tmp_path / "a.csv")) == "imported 0 products"


def test_the_depth_limit_applies_to_cells(run: Run, tmp_path: Path) -> None:
    """JSON in a cell is a level within its item, so its depth limit is that of a request."""
    deepest = Config().max_depth - 1
    for depth, message in ((deepest, "imported 1 products\n"), (deepest + 1, "")):
        file = lines(tmp_path / "a.csv", "name,attributes", f'x,"{{""a"":{"[" * (depth - 1)}{"]" * (depth - 1)}}}"')
        assert run("import", "products", file).stdout[:20] == message


@pytest.mark.sqlite
def test_backup_while_writing(app: Application, run: Run, tmp_path: Path) -> None:
    """A backup made while another thread writes is complete, with the state of one moment."""
    client, enough, done = app.test_client(), threading.Event(), threading.Event()

    def write() -> None:
        written = 0
        while not done.is_set():
            client.post("/products", json=GOOD)
            written += 1
            if written == 20:
                enough.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert enough.wait(SECONDS)
    result = run("backup", tmp_path / "b.db")
    done.set()
    join(writer)
    assert result.exit_code == 0
    again = run("backup", tmp_path / "b.db")
    assert again.stderr == f"Error: {tmp_path}/b.db exists: name another file, or use --replace\n"
    copy = sqlite3.connect(tmp_path / "b.db")
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    (stored,) = copy.execute("SELECT count(*) FROM items").fetchone()
    assert copy.execute("SELECT items FROM counters WHERE collection = 'products'").fetchone() == (stored,)
    copy.close()
    assert 20 <= stored <= app.extensions["restkeeper"].store.count("products")
    restored = open_store(f"sqlite:///{tmp_path}/b.db", [PRODUCTS.collection])
    assert len(list(restored.scan("products"))) == stored
    restored.close()


@pytest.mark.sqlite
def test_each_error_is_one_line(run: Run) -> None:
    """Also that of a store in memory, which would end with the command."""
    for arguments, code, message in (
        ("import nix x", 2, "there is no collection 'nix'; there are products, users"),
        ("export nix", 2, "there is no collection 'nix'; there are products, users"),
        ("import products /nix", 1, "/nix: No such file or directory"),
        ("export products /nix/x", 1, "/nix/x: No such file or directory"),
        ("backup /nix/x", 1, "no backup at '/nix/x': No such file"),
    ):
        result = run(*arguments.split())
        assert (result.exit_code, result.stderr.count("\n")) == (code, 1)
        assert result.stderr.startswith(f"Error: {message}")
    runner = create_app(Config()).test_cli_runner()
    for arguments in ("import users x", "export users", "backup x", "migrate"):
        result = runner.invoke(args=arguments.split())
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1) and "memory://" in result.stderr


@pytest.mark.needs("events", "idempotency")
def test_reap(app: Application, run: Run) -> None:
    store = app.extensions["restkeeper"].store

    def store_expired(transaction: Transaction) -> None:
        for number in range(BATCH + 1):
            stored_at = 4e9 if number % 2 else 0.0  # a clock was wrong
            transaction.store_response(b"%d" % number, StoredResponse(stored_at, b"x"), expired_before=0.0)
            transaction.add_event(Event("product.created", "products", "x", rfc3339(stored_at), b"{}"))

    store.write(store_expired)
    client, once = app.test_client(), {"Idempotency-Key": "mine"}
    first = client.post("/products", json=GOOD, headers=once)
    assert run("reap").stdout == f"deleted {BATCH + 1} expired responses and {BATCH + 1} expired events\n"
    assert run("reap").stdout == "deleted 0 expired responses and 0 expired events\n"
    assert client.post("/products", json=GOOD, headers=once).data == first.data
    assert [event["data"] for event in client.get("/api/v1/events").json] == [first.json]


@pytest.mark.needs("keys")
def test_keys(run: Run, app: Application) -> None:
    """A key is created, listed with its owners, rotated and revoked; only its secret goes to stdout."""
    made = run(*"keys create shop --scope products:read --scope users:read --owner alice --owner team-a".split())
    assert made.exit_code == 0
    token, id = made.stdout.strip(), made.stderr.split()[1].rstrip(";")
    assert token.startswith(f"rk_{id}_") and token not in made.stderr
    row = f"{id}  'shop'  products:read users:read  owners 'alice', 'team-a'  has no end  last used never\n"
    assert run("keys", "list").stdout == row
    assert app.test_client().get("/products", headers={"X-API-Key": token}).status_code == 200
    assert "last used 2" in run("keys", "list").stdout
    assert app.test_client().get(f"/api/v1/keys/{id}").json["owners"] == ["alice", "team-a"]
    assert run("keys", "rotate", id).stdout.strip() != token
    revoked = run("keys", "revoke", id)
    assert (revoked.exit_code, revoked.stdout, revoked.stderr) == (0, "", f"key {id} is revoked\n")
    assert run("keys", "list").stdout == ""
    assert run("keys", "create", "importer", "--scope", "admin").exit_code == 0
    assert "'importer'  admin  owner itself  has no end" in run("keys", "list").stdout
    for arguments, message in (
        (("create", "x", "--scope", "orders:read"), "#/scopes/0: must be one of: admin, products:read, "),
        (("create", "", "--scope", "admin"), "#/name: must have 1 to 200 characters"),
        (("create", "x", "--scope", "orders"), "#/scopes/0: must be one of: admin, products:read, "),
        (("create", "x", "--scope", "orders:"), "#/scopes/0: must be a scope like products:read, a role, or admin"),
        (("rotate", "nobody"), "no key has the id 'nobody': `restkeeper keys list` shows those of all keys"),
        (("revoke", "nobody"), "no key has the id 'nobody': "),
    ):
        result = run("keys", *arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(f"Error: {message}") and result.stderr.count("\n") == 1


@pytest.mark.needs("keys")
@pytest.mark.sqlite
def test_a_key_is_revoked_on_a_full_disk(tmp_path: Path) -> None:
    """Revoking takes effect at once; a new key waits until there is space."""
    url = f"sqlite:///{tmp_path}/a.db"
    runner = create_app(Config(database_url=url)).test_cli_runner()
    id = runner.invoke(args=["keys", "create", "x", "--scope", "admin"]).stderr.split()[1].rstrip(";")
    full = create_app(Config(database_url=url, min_free_space=2**50)).test_cli_runner()
    refused = full.invoke(args=["keys", "create", "y", "--scope", "admin"])
    assert refused.exit_code == 1 and "free bytes" in refused.stderr
    assert full.invoke(args=["keys", "revoke", id]).exit_code == 0
