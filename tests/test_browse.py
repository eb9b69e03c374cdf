"""The page /browse, in a real, headless browser: a client of the API like any other."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from restkeeper import Config
from tests.browser import DESKTOP, PHONE, Page, Tab
from tests.callers import ADMIN, ADMIN_KEY
from tests.live import Gunicorn
from tests.shop import create_app

pytestmark = [pytest.mark.matrix, pytest.mark.needs("browse", "openapi", "events", "keys", "webhooks", "limits")]

APP = "tests.shop.browsed:create_app()"
WRITER = ["things:read", "things:write", "orders:read", "orders:write"]
HOSTILE = "<img src=x onerror='window.hacked = 1'><script>hacked = 1</script>"
AXE = """axe.run(document).then(({violations}) => JSON.stringify(
  violations.map(({id, nodes}) => [id, nodes.map(each => each.html)])))"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    """A service whose callers need no key."""
    with Gunicorn(tmp_path_factory.mktemp("browse"), app=APP, workers=1, RATE_LIMIT="off") as server:
        yield server


@pytest.fixture
def page(tab: Tab, service: Gunicorn) -> Iterator[Page]:
    opened = Page(tab, service)
    yield opened
    opened.finish()


def make(server: Gunicorn, collection: str, **fields: Any) -> Any:
    made = server.post(f"/{collection}", fields)
    assert made.status == 200, made.body
    return made.json()


def make_order(server: Gunicorn, title: str) -> tuple[Any, Any]:
    thing = make(server, "things", title=title)
    return thing, make(server, "orders", reference=f"of {title}", thing=thing["id"], lines=[{"thing": thing["id"]}])


def sign_in(page: Page, key: str) -> None:
    page.press("Sign out")
    page.see("h1", "Sign in")
    page.tab.write("#key", key)
    page.tab.run("document.querySelector('main form').requestSubmit()")
    page.see("#session", "Sign out")


def save(page: Page) -> None:
    page.press("Save")
    page.see("#status", "It is saved")


def filter_by(page: Page, *choices: str) -> None:
    for label, value in zip(("Field", "Comparison"), choices, strict=False):
        change = f"e.value = '{value}'; e.dispatchEvent(new Event('change', {{bubbles: true}}))"
        page.tab.run(f"(e => {{ {change} }})(document.querySelector('[aria-label={label}]'))")
    page.tab.write("#value", choices[-1])
    page.press("Filter")


def test_a_list_can_be_searched_filtered_sorted_and_paged(page: Page) -> None:
    """The address has the state of the list; focus stays at what was pressed."""
    for number in range(23):
        make(page.server, "things", title=f"Chair {number:02}", price=number)
    page.open("", "Lamps & more")
    page.see(".cards li", "things", "one item", "0 items")
    page.press("things")
    page.see("#status", "20 of ")
    assert page.tab.run("document.activeElement.localName") == "h1"
    page.tab.write("#q", "chair")
    page.press("Search")
    page.see("#status", "20 of 23 things")
    assert page.tab.run("document.title") == "things · Lamps & more"
    page.press("next")
    page.see("#status", "3 things")
    page.press("price")
    page.see("[aria-sort=ascending]", "price")
    page.press("price")
    page.see("[aria-sort=descending]", "price")
    assert page.texts("tbody th")[0] == "Chair 22" and page.tab.run("document.activeElement.id") == "sort-price"
    filter_by(page, "price", "lt", "3")
    page.see("#status", "3 of 3 things")
    assert page.texts("tbody th") == ["Chair 02", "Chair 01", "Chair 00"]
    page.press("price < 3 ×")
    page.see("#status", "20 of 23 things")
    filter_by(page, "price", "lt", "cheap")
    page.see(".alert", "must be a number")
    page.press("price < cheap ×")
    page.see("#status", "20 of 23 things")


def test_an_item_has_its_relations_and_history(page: Page) -> None:
    """Links lead to what it refers to, and to what refers to it; the history says what each event changed."""
    thing, order = make_order(page.server, "Lamp")
    page.server.request("PATCH", f"/things/{thing['id']}", {"price": 7})
    page.open(f"item/orders/{order['id']}", "of Lamp")
    assert page.texts("main > dl a") == ["Lamp", "Lamp"]
    page.press("Lamp")
    page.see("h1", "Lamp")
    page.see("section h2", "orders by thing", "History")
    page.see(".history li", "created", "price– → 7")
    page.press("All 1")
    page.see(".chips", f"thing is {thing['id']}")
    page.press("of Lamp")
    page.see("h1", "of Lamp")


def test_changes_are_shown_when_they_happen(page: Page) -> None:
    """In the history of an item; a list says so, and shows them when its reader wants it."""
    thing = make(page.server, "things", title="Stool")
    page.open(f"item/things/{thing['id']}", "Stool")
    page.see(".history li", "created")
    for price in (7, 8):
        page.server.request("PATCH", f"/things/{thing['id']}", {"price": price})
    page.see(".history li", "price– → 7", "price7 → 8")
    assert len(page.texts(".history li")) == 3
    page.open("list/things?title=Stool", "things")
    page.see("#status", "1 of 1 things")
    assert page.tab.run("[...document.querySelectorAll('.head button')].every(each => each.hidden)")
    make(page.server, "things", title="Stool")
    page.see("#status", "There are changes")
    page.press("Show changes")
    page.see("#status", "2 of 2 things")


def test_a_form_creates_an_item_and_shows_the_messages_of_the_api(page: Page) -> None:
    """At the fields, also in lists; numbers are sent with all their digits."""
    thing = make(page.server, "things", title="Table")
    page.open(f"new/orders?thing={thing['id']}", "New in orders")
    page.press("Add to lines")
    page.fill("count", "many")
    page.press("Create")
    page.see(".error", "is required", "must be a whole number")
    assert page.tab.run("document.activeElement.name") == "reference"
    assert len(page.texts("[aria-invalid]")) == 3
    page.fill("reference", "R-1")
    page.tab.run("document.querySelector('.list [name=thing]').id = 'line'")
    page.tab.write("#line", thing["id"])
    page.fill("count", "2")
    page.fill("city", "Oslo")
    page.press("Create")
    page.see("#status", "It is created")
    page.see("h1", "R-1")
    (stored,) = page.server.get("/orders?reference=R-1").json()
    assert stored["lines"] == [{"thing": thing["id"], "count": 2}] and stored["due"] is None
    assert stored["address"] == {"city": "Oslo", "country": "NO"} and stored["thing"] == thing["id"]
    page.press("Edit")
    page.see("legend", "address")
    page.tab.click("[aria-label='null for address']")
    save(page)
    assert page.server.get(f"/orders/{stored['id']}").json()["address"] is None
    page.open("new/posts", "New in posts")
    page.fill("views", "9007199254740993")
    page.press("Create")
    page.see("dd", "9007199254740993")
    assert b"9007199254740993" in page.server.get("/posts?sort=-id&limit=1").body


def test_a_form_does_not_overwrite_the_change_of_another(page: Page) -> None:
    """It shows what was changed meanwhile, and keeps what was typed, or begins again."""
    thing = make(page.server, "things", title="Shelf", data={"a": [1, {"b": None}]})
    path = f"/things/{thing['id']}"
    page.open(f"edit/things/{thing['id']}", "Edit Shelf")
    page.fill("price", "5")
    assert page.server.request("PATCH", path, {"title": "Board"}).status == 200
    page.press("Save")
    page.see(".alert", "Meanwhile it was changed", "Shelf → Board")
    save(page)
    assert [page.server.get(path).json()[name] for name in ("title", "price")] == ["Board", 5]
    page.press("Edit")
    page.fill("price", "7")
    assert page.server.request("PATCH", path, {"price": 8}).status == 200
    page.press("Save")
    page.see(".alert", "5 → 8")
    page.press("Reload without my changes")
    page.until("document.querySelector('[name=price]').value === '8'")
    page.fill("price", "6.50")
    page.fill("data", "{")
    page.press("Save")
    page.see(".error", "JSON")
    page.fill("data", '{"a": 1.10}')
    save(page)
    stored = page.server.get(path)
    assert stored.json()["title"] == "Board" and b'"price":6.50,"data":{"a":1.10}' in stored.body.replace(b" ", b"")


def test_null_is_neither_an_empty_text_nor_an_empty_list(page: Page) -> None:
    """Each can be made of the others, and the item's page says which one it is."""

    def store(*shown: str) -> tuple[Any, Any]:
        page.tab.run("document.querySelector('.edit form').requestSubmit()")
        page.see("#status", "It is saved")
        page.see("dd", *shown)
        item = page.server.get(f"/posts/{made['id']}").json()
        page.press("Edit")
        page.see("h1", "Edit")
        return item["summary"], item["tags"]

    made = make(page.server, "posts", title="Kinds of nothing", summary="")
    page.open(f"edit/posts/{made['id']}", "Edit")
    page.see(".list", "It is null.")
    page.tab.click("[aria-label='null for summary']")
    page.tab.click("[aria-label='null for tags']")
    assert store("null", "empty list", "no fields") == (None, [])
    page.press("Add to tags")
    page.tab.run("document.querySelector('[aria-label=\"null for summary\"]').click()")
    assert store("empty text") == ("", [""])
    page.fill("summary", "typed")
    page.press("Remove")
    page.see(".list", "It is empty.")
    assert store("typed", "empty list") == ("typed", [])
    page.tab.click("[aria-label='null for summary']")
    page.fill("summary", "again")  # typing takes null away
    page.press("Leave it out")
    assert store("again", "null") == ("again", None)


def test_a_reference_is_found_by_its_text(page: Page) -> None:
    """By keyboard, or by a click; an id can be typed as well. It says which item an id is."""
    things = [make(page.server, "things", title=f"Sofa {name}") for name in ("north", "south", "west")]
    order = make(
        page.server, "orders", reference="of a sofa", thing=things[0]["id"], lines=[{"thing": things[0]["id"]}]
    )
    page.open(f"edit/orders/{order['id']}", "Edit")
    page.see(".choice [role=status]", "Sofa north")
    for text, act, found in (
        ("SOUTH", lambda: [page.tab.press("ArrowDown", 40), page.tab.press("Enter", 13)], things[1]),
        ("sofa w", lambda: page.tab.click("[role=option]"), things[2]),
    ):
        page.fill("thing", text)
        page.see("[role=combobox][aria-expanded=true] + [role=listbox] [role=option]", found["title"])
        act()
        page.until(f"document.querySelector('[name=thing]').value === '{found['id']}'")
        page.see(".choice [role=status]", found["title"])
        assert page.tab.run("document.querySelector('[role=listbox]').hidden")
    page.fill("thing", "carpet")
    page.see(".choice [role=status]", "Nothing found")
    page.fill("thing", things[1]["id"])
    page.tab.run("document.querySelector('[name=reference]').focus()")
    page.see(".choice [role=status]", "Sofa south")
    page.tab.run("document.querySelector('[name=thing]').focus()")
    page.tab.press("ArrowDown", 40)
    page.see("[aria-expanded=true] + [role=listbox] [role=option]", "")
    page.tab.press("Escape", 27)
    assert page.tab.run("document.querySelector('[role=listbox]').hidden")
    save(page)
    assert page.server.get(f"/orders/{order['id']}").json()["thing"] == things[1]["id"]


def test_an_item_is_edited_as_json(page: Page) -> None:
    """It is what the form has, with all digits; what is no JSON is named by its place, and is not left."""
    thing = make(page.server, "things", title="Rug", data={"a": 1})
    page.open(f"edit/things/{thing['id']}", "Edit Rug")
    page.fill("title", "Carpet")
    page.press("JSON")
    page.see("[aria-pressed=true]", "JSON")
    assert json.loads(page.tab.run("document.querySelector('[name=json]').value")) == {
        "title": "Carpet",
        "price": None,
        "data": {"a": 1},
    }
    page.fill("json", '{"title": "Carpet",\n "price" 1}')
    for button in ("Form", "Save"):
        page.press(button)
        page.see(".error", "line 2, column 10 should have a colon")
        page.see("[aria-pressed=true]", "JSON")
    assert page.tab.run("document.activeElement.selectionStart") == 29
    page.fill("json", '{"title": "", "price": "x"}')
    page.press("Save")
    page.see(".error p", "title: ", "price: must be a number")
    page.fill("json", '{"title": "Mat", "price": 6.50, "data": {"b": 9007199254740993}}')
    page.press("Form")
    page.until("document.querySelector('[name=title]').value === 'Mat'")
    save(page)
    assert b'"price":6.50,"data":{"b":9007199254740993}' in page.server.get(f"/things/{thing['id']}").body
    page.open("new/things", "New in things")
    page.press("JSON")
    page.fill("json", '{"title": "From JSON"}')
    page.press("Create")
    page.see("h1", "From JSON")


def test_an_item_is_deleted_after_a_question(page: Page) -> None:
    """By keyboard alone; what is still referred to shows the API's problem, and stays."""
    thing, order = make_order(page.server, "Stool")
    page.open(f"item/things/{thing['id']}", "Stool")
    for path, shown in ((f"things/{thing['id']}", ".alert"), (f"orders/{order['id']}", "#status")):
        page.tab.run(f"location.hash = '#/item/{path}'")
        page.see("#trail", path.split("/")[0])
        page.tab.run("document.querySelector('.head .danger').focus()")
        page.tab.press("Enter", 13)
        page.until("document.querySelector('dialog[open]') && document.activeElement.innerText === 'Delete'")
        page.tab.press("Enter", 13)
        page.until(f"document.querySelector('{shown}')?.innerText")
    assert page.server.get(f"/things/{thing['id']}").status == 200
    assert page.server.get(f"/orders/{order['id']}").status == 404


def test_values_are_only_text(page: Page) -> None:
    """HTML, scripts, links with code and names of JavaScript in items are shown as they are, and nothing runs."""
    data = {
        "__proto__": {"polluted": HOSTILE},
        "constructor": HOSTILE,
        "link": "javascript:hacked=1",
        HOSTILE: [HOSTILE],
    }
    thing = make(page.server, "things", title=HOSTILE, data=data)
    make(page.server, "orders", reference="of x", thing=thing["id"], lines=[{"thing": thing["id"]}])
    for view in ("list/things?sort=-id", f"item/things/{thing['id']}", f"edit/things/{thing['id']}", "list/orders"):
        page.open(view, "")
        page.until(f"document.querySelector('main').textContent.includes({json.dumps(HOSTILE)})")
        assert page.tab.run("document.querySelectorAll('main img, main script, [href^=javascript]').length") == 0
    page.open(f"edit/things/{thing['id']}", "Edit")
    page.fill("price", "1")
    save(page)
    assert page.server.get(f"/things/{thing['id']}").json()["data"] == data
    page.open(f"item/things/{thing['id']}?{HOSTILE}", HOSTILE)
    assert page.tab.run("({}).polluted === undefined")


def test_what_a_schema_does_not_declare_is_edited_as_json(page: Page) -> None:
    """Also where it declares nothing. It keeps its order, and an optional field that was absent stays absent."""
    page.open("", "Lamps")
    schema = {"type": "object", "properties": {name: {"type": ["string", "null"]} for name in ("a", "b")}}
    item = {"z": [1], "a": "x", "c": {"d": None}}
    group = f"group({json.dumps(schema)}, {json.dumps(item)}, {{}})"
    read = page.tab.run(f"import('/browse/form.js').then(({{group}}) => JSON.stringify({group}.read()))")
    assert read == json.dumps(item, separators=(",", ":"))
    for schema, item in (({"type": "object"}, {"a": [1, {"b": None}], "id": "x"}), ({"type": "object"}, None)):
        make = f"group({json.dumps(schema)}, {json.dumps(item)} ?? undefined, {{hidden: ['id']}})"
        read = page.tab.run(f"""import('/browse/form.js').then(({{group}}) => {{ const made = {make};
          const [area] = made.node.querySelectorAll('[name="other fields"]');
          const before = made.read();
          area.value = '{{"c": []}}';
          return JSON.stringify([before, made.read()]); }})""")
        assert json.loads(read) == [{"a": [1, {"b": None}]} if item else {}, {"c": []}]


def test_a_singleton_is_edited_and_what_can_only_be_read_has_no_forms(page: Page) -> None:
    page.open("item/settings", "settings")
    page.press("Edit")
    page.fill("theme", "dark")
    save(page)
    page.see("dd", "dark")
    page.see(".history li", "updated")
    page.open("list/rates", "rates")
    assert "New" not in page.texts("main a, main button")


def test_what_has_only_patch_or_only_put_is_edited(page: Page) -> None:
    """A PATCH has what was changed; null is what is taken away."""
    for collection in ("notes", "plates"):
        made = make(page.server, collection, title="Old", views=2**60, data={"a": 1, "b": {"c": 1, "d": 2}})
        page.open(f"edit/{collection}/{made['id']}", "Edit Old")
        page.fill("title", "New")
        page.fill("data", '{"b": {"c": 1, "e": 3}}')
        save(page)
        stored = page.server.get(f"/{collection}/{made['id']}").json()
        assert [stored[name] for name in ("title", "views", "data")] == ["New", 2**60, {"b": {"c": 1, "e": 3}}]


def test_actions_have_buttons_and_functions_of_collections_too(page: Page) -> None:
    """A dialog asks, with a form for the body and the messages of the API; then the focus is back at the button."""
    thing, order = make_order(page.server, "Bench")
    page.open(f"item/orders/{order['id']}", "of Bench")
    page.press("Pay")
    page.see("dialog[open]", "Pay an open order.")
    page.tab.press("Enter", 13)
    page.see("dialog[open] .error", "required")
    page.tab.write("dialog[open] [name=method]", "card")
    page.tab.run("document.querySelector('dialog[open] form').requestSubmit()")
    page.see("#status", "Pay: done.")
    page.see(".tag", "paid")
    assert page.tab.run("document.activeElement.id") == "do-pay" and page.tab.run("!document.querySelector('[open]')")
    page.press("Pay")
    page.tab.write("dialog[open] [name=method]", "card")
    page.tab.run("document.querySelector('dialog[open] form').requestSubmit()")
    page.see("dialog[open] .alert", "paid already")
    page.tab.press("Escape", 27)
    page.press("orders")
    page.press("Count open")
    page.tab.run("document.querySelector('dialog[open] form').requestSubmit()")
    page.see("#status", '"open": 3')


def test_a_form_is_not_left_by_mistake_nor_sent_twice(page: Page) -> None:
    thing = make(page.server, "things", title="Cup")
    page.open(f"edit/things/{thing['id']}", "Edit Cup")
    page.fill("title", "Mug")
    for accept, heading in ((False, "Edit Cup"), (True, "things")):
        page.tab.run("location.hash = '#/list/things'")
        page.tab.answer(accept)
        page.see("h1", heading)
        assert (page.texts("h1") == ["Edit Cup"]) is not accept
    page.open("new/things", "New in things")
    page.fill("title", "Once")
    page.tab.run("for (const each of [1, 2]) document.querySelector('.edit form').requestSubmit()")
    page.see("#status", "It is created")
    sent = page.tab.parameters_of("Network.requestWillBeSent")
    assert [each["request"]["method"] for each in sent].count("POST") == 1


def test_the_content_is_reached_by_keyboard(page: Page) -> None:
    """The first stop of Tab skips to it, and the address stays."""
    page.open("list/things", "things")
    page.tab.run("document.activeElement.blur()")
    page.tab.run("document.querySelector('.skip').focus()")
    page.tab.press("Enter", 13)
    assert page.tab.run("document.activeElement.id + location.hash") == "main#/list/things"


def test_a_key_is_kept_for_the_tab_and_its_scopes_are_obeyed(tmp_path: Path, tab: Tab) -> None:
    """Without a key nothing is shown; what its scopes do not allow is not offered; one that ended can be replaced."""
    with Gunicorn(tmp_path, app=APP, workers=1, AUTH="required", ADMIN_KEY=ADMIN_KEY) as server:
        made = [
            server.post("/api/v1/keys", {"name": "k", "scopes": scopes}, ADMIN).json()
            for scopes in (["things:read"], ["orders:read", "orders:pay"], WRITER)
        ]
        key, payer, writer = (each["secret"] for each in made)
        thing = server.post("/things", {"title": "Lamp"}, ADMIN).json()["id"]
        order = server.post("/orders", {"reference": "R", "thing": thing, "lines": [{"thing": thing}]}, ADMIN).json()
        page = Page(tab, server)
        page.open("", "Sign in")
        page.tab.write("#key", "wrong" * 8)
        tab.run("document.querySelector('main form').requestSubmit()")
        page.see(".alert", "credentials")
        page.tab.write("#key", key)
        tab.run("document.querySelector('main form').requestSubmit()")
        page.see(".cards li", "1 item")
        assert page.texts(".cards a") == ["things"]
        page.press("things")
        page.see("#status", "1 of 1 things")
        assert "New" not in page.texts("main a")
        page.press("Lamp")
        page.see("section", "created")
        assert page.texts("section h2") == ["History"]
        assert page.texts(".head button, .head a") == [""]
        assert tab.run("JSON.stringify([localStorage.length, sessionStorage.length, document.cookie])") == '[0,1,""]'
        tab.run(f"location.hash = '#/item/orders/{order['id']}'")
        page.see(".alert", "orders:read")
        sign_in(page, payer)
        page.see("h1", "R")
        assert page.texts(".head > button") == ["Pay"]
        sign_in(page, writer)
        tab.run(f"location.hash = '#/edit/orders/{order['id']}'")
        page.see("h1", "Edit R")
        assert page.texts("[name=status] option") == ["–", "open"]
        tab.run(f"location.hash = '#/edit/things/{thing}'")
        page.see("h1", "Edit Lamp")
        page.fill("price", "7")
        assert server.request("DELETE", f"/api/v1/keys/{made[2]['id']}", headers=ADMIN).status == 200
        page.press("Save")
        page.see(".alert", "credentials are not valid")
        tab.write("#key", ADMIN["X-API-Key"])
        tab.run("document.querySelector('.alert form').requestSubmit()")
        page.see("#status", "It is saved")
        assert server.get(f"/things/{thing}", ADMIN).json()["price"] == 7
        page.finish()


def test_private_fields_are_for_callers_that_may_read_them(tmp_path: Path, tab: Tab) -> None:
    """For others there are no such columns, filters, forms and lists; saving what they see keeps the values."""
    with Gunicorn(tmp_path, app=APP, workers=1, AUTH="required", ADMIN_KEY=ADMIN_KEY) as server:
        scopes = ["plates:read", "plates:write", "things:read"]
        clerk = server.post("/api/v1/keys", {"name": "k", "scopes": scopes}, ADMIN).json()["secret"]
        thing = server.post("/things", {"title": "Lamp"}, ADMIN).json()["id"]
        plate = server.post("/plates", {"title": "P", "remark": "cracked", "thing": thing}, ADMIN).json()
        page = Page(tab, server)
        page.open("list/plates", "Sign in")
        page.tab.write("#key", ADMIN_KEY)
        page.tab.run("document.querySelector('main form').requestSubmit()")
        for private in (["remark", "thing"], []):
            page.see("#status", "1 of 1 plates")
            named = page.texts("thead th, [aria-label=Field] option")
            assert sorted({*named} & {"remark", "thing"}) == private
            tab.run(f"location.hash = '#/item/things/{thing}'")
            page.see("h1", "Lamp")
            page.see("section h2", "History")
            assert ("Plates by thing" in page.texts("section h2")) == bool(private)
            tab.run(f"location.hash = '#/edit/plates/{plate['id']}'")
            page.see("h1", "Edit P")
            assert tab.run("document.querySelectorAll('[name=remark]').length") == bool(private)
            if private:
                sign_in(page, clerk)
                tab.run("location.hash = '#/list/plates'")
        page.fill("summary", "seen")
        save(page)
        stored = server.get(f"/plates/{plate['id']}", ADMIN).json()
        assert (stored["summary"], stored["remark"], stored["thing"]) == ("seen", "cracked", thing)
        page.finish()


@pytest.mark.parametrize(("width", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_every_view_is_accessible_and_fits(page: Page, width: int, scheme: str) -> None:
    """axe finds nothing, and the page has the width of the window."""
    axe = Path(str(import_module("axe_core_python").__file__)).with_name("axe.min.js").read_text("utf-8")
    thing, order = make_order(page.server, "Lamp" * 8)
    views = ("", "list/things?price[gte]=1&limit=1", f"item/things/{thing['id']}", f"item/orders/{order['id']}")
    edited = f"edit/orders/{order['id']}"
    choosing = "document.querySelector('[name=thing]').click()"  # then it offers things
    mistaken = """(turn => { turn.click(); document.querySelector('[name=json]').value = '{';
      document.querySelector('.primary').click(); })(document.querySelector('.ways button + button'))"""
    for view, act, shown in (
        *((each, "", "h1") for each in (*views, edited, "new/orders", "new/posts", "item/settings", "nothing")),
        (edited, choosing, "[role=option]"),
        (edited, mistaken, ".error p"),
    ):
        page.wide(width, scheme)
        page.open(view, "")
        page.until("!document.querySelector('section') || document.querySelector('.history, section:last-child > p')")
        page.tab.run(act)
        page.see(shown, "")
        page.tab.run(axe)
        assert json.loads(page.tab.run(AXE)) == [], view
        assert page.tab.run("document.documentElement.scrollWidth") <= width, view


def test_the_page_is_public_and_can_be_closed() -> None:
    """It has no data itself, so it needs no key; it is only there with a document to read."""
    served = create_app(Config(auth="required", admin_key=ADMIN_KEY)).test_client()
    reply = served.get("/browse")
    assert reply.status_code == 200 and "require-trusted-types-for 'script'" in reply.headers["Content-Security-Policy"]
    assert [served.get(f"/browse/{name}").status_code for name in ("api.js", "none", "__init__.py")] == [200, 404, 404]
    assert served.get("/", headers={"Accept": "application/json"}).json["links"]["browse"] == "/browse"
    for headers, status, scopes in (({}, 200, []), (ADMIN, 200, ["admin"]), ({"X-API-Key": "wrong"}, 401, None)):
        reply = served.get("/browse/scopes", headers=headers)
        assert (reply.status_code, reply.headers["Cache-Control"]) == (status, "no-store")
        assert scopes is None or reply.json == scopes
    for config, without in ((Config(docs=False), ""), (Config(), "browse"), (Config(), "openapi")):
        closed = create_app(config, without={without} - {""}).test_client()
        assert closed.get("/browse").status_code == 404
