"""What makes a day of development pleasant: a log of short lines, tracebacks of one's own code, a shell and scripts."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from restkeeper import Conflict, Items, JsonObject, find_items, read_item, shown
from restkeeper.app import create_app
from restkeeper.config import Config
from restkeeper.mistakes import line_of, own_traceback
from restkeeper.resources.resource import Resource
from restkeeper.server import serve
from restkeeper.service import service_of
from restkeeper.storage.feed import last_event
from restkeeper.web import observe
from restkeeper.web.auth import needs
from tests.shop import create_app as create_shop
from tests.shop.products import RESOURCE as PRODUCTS
from tests.shop.products import ProductSchema

NOTE = "The engine's lines are left out: LOG_LEVEL=debug shows them."


@pytest.mark.parametrize("form", ["short", "colour"])
def test_a_request_is_a_short_line_with_what_is_wrong_below(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing that a client sends begins a line, or changes the terminal."""
    client = create_app(Config(log_format=form, log_level="info"), [PRODUCTS]).test_client()
    client.get("/products")
    client.post("/products", json={"price": "a"})
    client.get("/products?no%0A%1B[31mthing=1")
    client.get("/a%0A%1B[31mb")
    found, invalid, faults, query, unknown, path, nothing = capfd.readouterr().err.splitlines()
    if form == "short":
        assert found[8:22] == " 200 GET /prod" and found.endswith(" ms")
        assert "\033" not in found + invalid + faults + query + unknown + path + nothing
    else:
        assert found.startswith("\033[2m") and " \033[32m200\033[0m GET /products " in found
        assert " \033[33m422\033[0m POST /products " in invalid
    assert faults == "         name is required; price must be a number"
    assert unknown.startswith("         ") and "no??[31mthing" in unknown
    assert "GET /a??[31mb " in path and "\033" not in nothing


@pytest.mark.parametrize(
    ("is_terminal", "no_color", "form"), [(True, "", "colour"), (True, "1", "short"), (False, "", "short")]
)
def test_only_a_terminal_has_colours(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, no_color: str, form: str
) -> None:
    """And not where NO_COLOR is set."""
    for name in ("LOG_FORMAT", "AUTH", "WEBHOOK_WORKER", "RESTKEEPER_WELCOME"):
        monkeypatch.setenv(name, "")  # so that it is as before at the end
        monkeypatch.delenv(name)
    monkeypatch.setenv("PORT", "none")
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    with pytest.raises(SystemExit):
        serve._serve(lambda: None)
    assert os.environ["LOG_FORMAT"] == form


CODE = """
import json
def change(text):
    try:
        json.loads(text)
    except ValueError as error:
        raise KeyError("x") from error
"""


def failed() -> Exception:
    """The exception of a function of a service, which calls the standard library."""
    names: dict[str, Any] = {}
    exec(compile(CODE, "/srv/shop/resources/orders.py", "exec"), names)  # noqa: S102
    with pytest.raises(KeyError) as caught:
        names["change"]("{")
    return caught.value


def test_a_traceback_has_the_lines_of_the_service() -> None:
    """Also those of its causes; all lines if it has none, as then the engine is wrong."""
    shown = own_traceback(failed())
    assert shown.count("/srv/shop/resources/orders.py") == 2 and shown.endswith(f"KeyError: 'x'\n{NOTE}")
    assert "JSONDecodeError: " in shown and "direct cause" in shown and "decoder.py" not in shown
    assert line_of(failed()) == f"{os.path.relpath('/srv/shop/resources/orders.py')}:7: KeyError: 'x'"
    with pytest.raises(ValueError) as caught:
        Path("\0").stat()
    caught.value.__traceback__ = caught.value.__traceback__ and caught.value.__traceback__.tb_next
    assert "pathlib" in own_traceback(caught.value) and NOTE not in own_traceback(caught.value)


def test_a_mistake_that_is_found_after_a_function_shows_that_function(caplog: pytest.LogCaptureFixture) -> None:
    """And no line of the engine, which no mistake is in."""
    products = Resource("products", "product", ProductSchema)

    @products.before("create")
    def price(product: dict[str, Any], before: None) -> None:
        product["price"] = "much"

    assert create_app(Config(), [products]).test_client().post("/products", json={"name": "x"}).status_code == 500
    (record,) = [each for each in caplog.records if each.exc_info]
    shown = own_traceback(record.exc_info[1])  # type: ignore[index, arg-type]
    assert shown.count('  File "') == 1 and f'  File "{__file__}", line ' in shown and ", in price" in shown
    assert "price: sets what products cannot store: price must be a number (it is 'much')" in shown


@pytest.mark.parametrize(
    ("form", "level", "is_whole"), [("short", "info", False), ("short", "debug", True), ("text", "info", True)]
)
def test_the_log_of_development_shows_them(
    capfd: pytest.CaptureFixture[str], form: str, level: str, is_whole: bool
) -> None:
    app = create_app(Config(log_format=form, log_level="error"), [PRODUCTS])
    app.add_url_rule("/wrong", view_func=needs("public")(lambda: {}["x"]))
    with capfd.disabled():
        observe.configure_logging(form, level)
    observe.configure_logging(form, level)
    assert app.test_client().get("/wrong").status_code == 500
    text = capfd.readouterr().err
    assert "test_development.py" in text and "KeyError: 'x'" in text
    assert ("/flask/app.py" in text, NOTE in text) == (is_whole, not is_whole)


def test_a_shell_has_items_each_call_a_transaction() -> None:
    """With what `Items` has, the application and a client; also as `flask shell`."""
    app = create_shop(Config())
    names = app.make_shell_context()
    items, client = names["items"], names["client"]
    made = items.create("products", {"name": "Lamp", "price": 1})
    assert names["app"] is app and client.get("/products").json == [made]
    assert items.change("products", made["id"], lambda item: item | {"stock": 3})["stock"] == 3
    assert items.find("products", {"sort": "id"}) == [items.read("products", made["id"])]
    assert items.count("products") == 1
    assert items.delete("products", made["id"])["stock"] == 3 and client.get("/products").json == []
    with pytest.raises(ValueError, match=r"\.Items\.create: sets what products cannot store: name is required"):
        items.create("products", {"price": 1})
    assert last_event(service_of(app).store).endswith("_3")
    names = ["read", "find", "count", "groups", "create", "upsert", "change", "delete", "transaction"]
    assert dir(items) == sorted(names)
    with pytest.raises(AttributeError, match="items has no write; it has read, find, "):
        items.write()
    result = app.test_cli_runner().invoke(args=["--help"])
    assert "shell" in result.output


def test_a_function_is_one_transaction() -> None:
    """All of its changes are stored at its end, or none; what has failed inside of it ends it, also if it is caught."""
    products = Resource("products", "product", ProductSchema)

    @products.after("create")
    def refuse(item: JsonObject, before: JsonObject | None, items: Items) -> None:
        if item["name"] == "Rock":
            raise Conflict("no rocks")

    items = create_shop(Config(), [products]).make_shell_context()["items"]

    def add(items: Items, name: str) -> JsonObject:
        lamp = items.create("products", {"name": "Lamp"})
        return items.change("products", lamp["id"], lambda item: item | {"name": name})

    def fail(items: Items) -> None:
        items.delete("products", lamp["id"])
        with suppress(Conflict):
            items.create("products", {"name": "Rock"})

    lamp = items.transaction(add, name="Desk lamp")
    with pytest.raises(Conflict, match="no rocks"):
        items.transaction(fail)
    with pytest.raises(KeyError):
        items.transaction(lambda items: items.delete("products", lamp["id"]) and {}["x"])
    shell = items  # what a helper of the script uses takes part in it
    with pytest.raises(KeyError):
        items.transaction(lambda _: shell.create("products", {"name": "Stool"}) and {}["x"])
    assert [(each["name"], each["version"]) for each in items.find("products", {"sort": "id"})] == [("Desk lamp", 2)]


SCRIPT = """
import sys
import restkeeper
assert __name__ == "__main__" and client.get("/products").json == []
def add(items):
    items.create("products", {"name": "Lamp"})
    items.create("products", {"name": "Chair"})
items.transaction(add)
names = [restkeeper.shown("products", each)["name"] for each in restkeeper.find_items("products", {"sort": "name"})]
print(items.count("products"), *names, *sys.argv[1:])
def fail(items):
    items.create("products", {"name": "Desk"})
    items.create("products", {"name": ""})
items.transaction(fail)
"""


def test_a_script_runs_to_its_end_or_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `items`, as in the shell; an error is a traceback of its own lines, and the exit code 1."""
    app = create_shop(Config(database_url=f"sqlite:///{tmp_path}/shop.db"), [PRODUCTS])
    (script := tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setattr(sys, "argv", ["restkeeper"])
    done = app.test_cli_runner().invoke(args=["run", str(script), "--all", "x"])
    assert (done.exit_code, done.stdout) == (1, "2 Chair Lamp --all x\n")
    lines = [line for line in done.stderr.splitlines() if line.startswith("  File")]
    assert [line.partition(", line ")[2] for line in lines] == ["14, in <module>", "13, in fail"]
    assert "fail: sets what products cannot store: name must have" in done.stderr
    assert len(app.test_client().get("/products").json) == 2
    script.write_text("import sys\nsys.exit(3)\n")
    assert app.test_cli_runner().invoke(args=["run", str(script)]).exit_code == 3


def test_a_shell_is_for_a_terminal() -> None:
    """Of another input, which it would run half and end with 0, it says what does."""
    done = create_shop(Config(), [PRODUCTS]).test_cli_runner().invoke(args=["shell"], input="1 / 0\nprint(1)\n")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "restkeeper run SCRIPT" in done.stderr


def test_a_collection_that_is_gone_is_named() -> None:
    with create_shop(Config(), [PRODUCTS]).app_context():
        for call in (lambda: read_item("gone", "1"), lambda: [*find_items("gone")], lambda: shown("gone", {})):
            with pytest.raises(ValueError, match="there is no collection 'gone'; there are: products"):
                call()
