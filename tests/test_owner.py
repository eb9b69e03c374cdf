"""The owner of an item as a field: who sets it, and what follows it.

Also on PostgreSQL: `pytest tests/test_owner.py --store=postgresql`.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from marshmallow import fields, post_load

from restkeeper import (
    Add,
    Config,
    Convert,
    Index,
    Items,
    ItemSchema,
    Owner,
    Ownership,
    Remove,
    Rename,
    Resource,
    Step,
    Text,
    Version,
    Versions,
)
from restkeeper.service import service_of
from restkeeper.storage.interface import Filter, Op, Query, Sort
from restkeeper.storage.plans import is_search
from restkeeper.web.auth import caller
from tests import issuer
from tests.callers import ADMIN, ADMIN_KEY, bearer, key, pointers
from tests.recorder import next_of
from tests.shapes import PostSchema
from tests.shop import create_app
from tests.shop.references import OwnerSchema
from tests.test_openapi import fits
from tests.test_private import delivered

pytestmark = pytest.mark.needs("batch", "events", "keys", "ownership", "idempotency", "openapi")

Item = dict[str, Any]


class JobSchema(ItemSchema):
    """A job of a customer, whose title a computed field has, too."""

    title = Text(1, 50, required=True)
    customer = Owner(to="customers")
    label = fields.Method("labelled")

    def labelled(self, job: Item) -> str:
        return f"{job['title']} of {job['customer']}"


CUSTOMERS = Resource("customers", "customer", OwnerSchema, ids="client")
NOTES = Resource("notes", "note", OwnerSchema, ownership=Ownership.ALL, ids="client")
POSTS = Resource(
    "posts",
    "post",
    cast(type[ItemSchema], OwnerSchema.from_dict({"by": Owner()}, name="Post")),
    ownership=Ownership.CHANGES,
    ids="client",
)


def jobs_of(schema: Any, **options: Any) -> Resource:
    """Jobs of a schema, or with these fields, which their owners alone see."""
    made = ItemSchema.from_dict(schema) if isinstance(schema, dict) else schema
    return Resource("jobs", "job", made, ownership=Ownership.ALL, ids="client", **options)


def jobs() -> Resource:
    resource = jobs_of(JobSchema)

    @resource.action("hand-over")
    def hand_over(job: Item, items: Items) -> None:
        """Give it to bob."""
        job["customer"] = "bob"

    @resource.action("rename")
    def rename(job: Item, items: Items) -> Item:
        """Return an item without an owner."""
        return {"title": "renamed"}

    @resource.action("open", of="collection")
    def open_jobs(items: Items) -> list[Any]:
        """Create some for others and for the caller."""
        items.create("jobs", {"id": "o1", "title": "o1"}, owner="bob")
        items.create("jobs", {"id": "o2", "title": "o2", "customer": "bob"})
        items.create("jobs", {"id": "o3", "title": "o3"})
        items.change("jobs", "o3", lambda job: job | {"customer": None})
        items.create("jobs", {"id": "o4", "title": "o4"})
        return sorted(each["id"] for each in items.find("jobs", {"customer": "bob"}))

    return resource


class Shop:
    """The service, with an admin, staff, and two customers, of whom ada is in a team."""

    def __init__(self, *more: Resource, config: Item | None = None, **options: Any) -> None:
        resources = [CUSTOMERS, NOTES, POSTS, *(more or [jobs()])]
        known = Config(auth="required", admin_key=ADMIN_KEY, rate_limit="off", **(config or {}))
        self.app = create_app(known, resources, **options)
        self.client = self.app.test_client()
        every = [f"{each.name}:{way}" for each in resources for way in ("read", "write")]
        reach = [f"{name}:all" for name in ("jobs", "notes", "posts")]
        self.headers = {
            "admin": ADMIN,
            "staff": key(self.client, *every, *reach, name="staff", owners=["staff"]),
            "ada": key(self.client, *every, name="ada", owners=["ada", "team"]),
            "bob": key(self.client, *every, name="bob", owners=["bob"]),
        }

    def send(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return self.client.open(path, method=method, json=body, headers=self.headers[who] | headers)

    def ids(self, who: str, path: str) -> list[str]:
        found = self.send(who, "GET", path)
        assert found.status_code == 200, found.text
        return sorted(each["id"] for each in found.json)

    def column(self, name: str, id: str) -> str | None:
        return service_of(self.app).store.read(name, id).owner

    def make(self, id: str, who: str = "ada", name: str = "jobs", **fields: Any) -> Any:
        made = self.send(who, "POST", f"/{name}", {"id": id, **({"title": id} if name == "jobs" else {}), **fields})
        assert made.status_code == 200, made.text
        return made


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_functions(shop: Shop) -> None:
    """Actions give an item to anyone; who leaves the owner out keeps it."""
    shop.make("j")
    assert shop.send("ada", "POST", "/jobs/j/rename").json["label"] == "renamed of ada"
    assert shop.send("ada", "POST", "/jobs/j/hand-over").json["customer"] == "bob"
    assert shop.send("ada", "GET", "/jobs/j").status_code == 404
    assert shop.send("ada", "POST", "/jobs/open").json == ["j", "o1", "o2"]
    assert shop.ids("ada", "/jobs") == ["o4"]
    assert shop.ids("bob", "/jobs") == ["j", "o1", "o2"]
    assert shop.send("staff", "GET", "/jobs/o3").json["customer"] is None


def test_functions_before() -> None:
    """See and set the owner, which is the caller's when it is left out."""
    resource, seen = jobs(), list[Any]()

    @resource.before("create", "update")
    def note(job: Item, before: Item | None) -> Item:
        seen.append(job["customer"])
        return {"title": job["title"]} | ({"customer": "bob"} if job["title"] == "bob's" else {})

    shop = Shop(resource)
    assert shop.make("j").json["label"] == "j of ada"
    assert shop.send("staff", "PATCH", "/jobs/j", {"customer": "team"}).json["customer"] == "team"
    assert shop.make("b", title="bob's").json["customer"] == shop.column("jobs", "b") == "bob"
    assert seen == ["ada", "team", "ada"]


@pytest.mark.parametrize("indexes", [(), (Index("customer"),)], ids=["", "with an index"])
def test_queries(indexes: tuple[Index, ...]) -> None:
    """Filters, order, counts and totals by the owner, of what the caller reaches."""
    shop = Shop(jobs_of(JobSchema, indexes=indexes, search=("customer",)))
    for id, owner in (("a", "ada"), ("b", "bob"), ("c", None), ("d", "Ädä"), ("e", "ada")):
        shop.make(id, "staff", customer=owner)
    found = partial(shop.ids, "staff")
    for query, wanted in {
        "customer=ada": "ae",
        "customer[ne]=ada": "bcd",
        "customer[in]=ada,bob": "abe",
        "customer[nin]=ada,bob": "cd",
        "customer[is]=null": "c",
        "customer[is]=not_null": "abde",
        "customer[starts]=a": "ae",
        "customer[ends]=b": "b",
        "customer[like]=%C3%A4d": "d",
        "customer[gte]=bob": "bd",
        "or=(customer=bob,customer[is]=null)": "bc",
        "q=BO": "b",
        "q=%C3%A4D%C3%84": "d",
        "customer=ada&title=e": "e",
    }.items():
        assert "".join(found(f"/jobs?{query}")) == wanted, query
        assert shop.send("staff", "GET", f"/jobs?{query}").headers["X-Total-Count"] == str(len(wanted)), query
    for sort, wanted in (("customer,id", "caebd"), ("-customer,id", "dbaec")):
        walked, path = "", f"/jobs?sort={sort}&limit=1"
        while path:
            page = shop.send("staff", "GET", path)
            walked += page.json[0]["id"]
            path = next_of(page)
        assert walked == wanted
    counted = {each["value"]: each["count"] for each in shop.send("staff", "GET", "/jobs?count=customer").json}
    assert counted == {"ada": 2, "bob": 1, "Ädä": 1, None: 1}
    assert shop.ids("ada", "/jobs?customer=ada") == ["a", "e"]
    assert shop.ids("ada", "/jobs?customer=bob") == []
    assert shop.ids("bob", "/jobs?customer[ne]=ada") == ["b"]


def test_one_item_of_each_owner() -> None:
    shop = Shop(Resource("jobs", "job", JobSchema, (Index("customer", unique=True),), ownership=Ownership.ALL))
    assert shop.send("ada", "POST", "/jobs", {"title": "x"}).status_code == 200
    again = shop.send("ada", "POST", "/jobs", {"title": "y"})
    assert (again.status_code, again.json["code"]) == (409, "duplicate"), again.text
    for _ in range(2):  # of nobody there may be several
        assert shop.send("staff", "POST", "/jobs", {"title": "x", "customer": None}).status_code == 200


@pytest.mark.needs("references")
def test_embedding(shop: Shop) -> None:
    """An owner that is the id of an item is embedded as what a reference refers to; it need not exist."""
    shop.send("admin", "POST", "/customers", {"id": "ada", "name": "Ada"})
    for id, owner in (("a", "ada"), ("b", "bob"), ("c", None)):
        shop.make(id, "staff", customer=owner)
    shown = [each["customer"] for each in shop.send("staff", "GET", "/jobs?embed=customer&sort=id").json]
    assert (shown[0]["name"], shown[1:]) == ("Ada", ["bob", None])
    for who, wanted in (("staff", ["a"]), ("ada", ["a"]), ("bob", [])):
        assert [each["id"] for each in shop.send(who, "GET", "/customers/ada?embed=jobs").json["jobs"]] == wanted
        assert shop.ids(who, "/customers/ada/jobs") == wanted
    made = shop.send("staff", "POST", "/customers/ada/jobs", {"id": "n", "title": "n"})
    assert (made.json["customer"], shop.column("jobs", "n")) == ("ada", "ada")
    assert shop.send("bob", "POST", "/customers/ada/jobs", {"id": "m", "title": "m"}).status_code == 403
    assert shop.send("admin", "DELETE", "/customers/ada").status_code == 200  # nobody has to give them up
    assert shop.send("staff", "GET", "/jobs/a?embed=customer").json["customer"] == "ada"
    document: Any = shop.client.get("/api/v1/openapi.json", headers=ADMIN).json
    assert document["components"]["schemas"]["JobInput"]["properties"]["customer"]["x-references"] == "customers"


def test_naming_it_beside_the_item(shop: Shop) -> None:
    """Where items do not show it: see test_crossings.py. Where they show it, it can be the item of an operation."""
    operations = [
        {"method": "POST", "path": "/customers", "body": {"id": "new", "name": "New"}, "name": "c"},
        {"method": "POST", "path": "/jobs", "body": {"id": "of-new", "title": "x", "customer": "$c"}},
    ]
    assert shop.send("admin", "POST", "/api/v1/batch", {"operations": operations}).status_code == 200
    assert shop.column("jobs", "of-new") == "new"
    shop.headers["one"] = key(shop.client, "notes:write", owners=["first", "$c"])
    operations[1] = {"method": "POST", "path": "/notes?owner=$c", "body": {"id": "n"}}
    assert shop.send("one", "POST", "/api/v1/batch", {"operations": operations[1:]}).status_code == 200
    assert shop.column("notes", "n") == "$c"
    for query, names in (("other=1", ["path"]), ("owner=$c", ["if_match"])):
        operation = {"method": "POST", "path": f"/notes?{query}", "body": {}, "if_match": "*"}
        refused = shop.send("one", "POST", "/api/v1/batch", {"operations": [operation]})
        assert pointers(refused) == [f"#/operations/0/{name}" for name in names]
    document: Any = shop.client.get("/api/v1/openapi.json", headers=ADMIN).json
    named = {
        f"{method} {path}"
        for path, operations in document["paths"].items()
        for method, each in operations.items()
        if method in ("post", "put") and "Owner" in str(each.get("parameters"))
    }
    assert named == {"post /notes", "put /notes/{id}"}
    assert "default" not in document["components"]["schemas"]["JobInput"]["properties"]["customer"]


OLD = jobs_of({"title": Text(required=True)})
NAMED = jobs_of({"title": Text(required=True), "customer": Owner(to="customers")})


class OnOneStore:
    """Programs one after the other on one store."""

    def __init__(self, url: str) -> None:
        self.url = url

    def start(self, resource: Resource, *versions: Version) -> Shop:
        shop = object.__new__(Shop)
        config = Config(database_url=self.url, auth="required", admin_key=ADMIN_KEY, rate_limit="off")
        more: Any = {"versions": Versions(*versions, unversioned=versions[-1].name)} if versions else {}
        create_app(config, [CUSTOMERS, resource], serves=False, **more).test_cli_runner().invoke(args=["migrate"])
        shop.app = create_app(config, [CUSTOMERS, resource], **more)
        shop.client = shop.app.test_client()
        scopes, owners = ["jobs:read", "jobs:write"], {"ada": ["ada", "team"], "bob": ["bob"]}
        shop.headers = {"staff": ADMIN} | {who: key(shop.client, *scopes, owners=owners[who]) for who in owners}
        return shop


@pytest.fixture
def programs(tmp_path: Any) -> OnOneStore:
    return OnOneStore(f"sqlite:///{tmp_path}/store.db")


def test_a_field_that_is_added_shows_the_owners_of_older_items(programs: OnOneStore) -> None:
    """It is no conversion; queries and events know them, and a program without the field keeps it."""
    old = programs.start(OLD)
    old.make("j")
    new = programs.start(NAMED)
    assert new.send("ada", "GET", "/jobs/j").json["customer"] == "ada"
    assert new.ids("staff", "/jobs?customer=ada") == ["j"]
    assert [data["customer"] for _, data in feed(new, "staff")] == ["ada"]
    new.send("staff", "PATCH", "/jobs/j", {"customer": "bob"})
    assert old.send("bob", "PATCH", "/jobs/j", {"title": "by the old program"}).status_code == 200
    assert old.send("ada", "GET", "/jobs/j").status_code == 404
    old.make("k", "bob")
    assert {each["id"]: each["customer"] for each in new.send("bob", "GET", "/jobs").json} == {"j": "bob", "k": "bob"}
    new.send("bob", "PATCH", "/jobs/k", {"title": "changed"})
    assert new.column("jobs", "k") == "bob"


@pytest.mark.needs("versions")
def test_an_older_version_of_the_field(programs: OnOneStore) -> None:
    """It has another name there, or is not there: then the owner is named beside the item."""
    steps: dict[int, list[Step]] = {2: [Add("client", None)], 3: [Rename("client", "customer")]}
    resource = replace(NAMED, upgrades=steps)
    versions = [Version(f"v{n}", revisions={"jobs": n}) for n in (1, 2, 3)]
    programs.start(OLD).make("j")
    shop = programs.start(resource, *versions)
    assert "client" not in shop.send("ada", "GET", "/api/v1/jobs/j").json
    assert shop.send("ada", "GET", "/api/v2/jobs/j").json["client"] == "ada"
    assert shop.ids("ada", "/api/v2/jobs?client=ada") == ["j"]
    assert shop.ids("ada", "/api/v3/jobs?customer=ada") == ["j"]
    for version, sent, query, wanted in (
        (1, {}, "", "ada"),
        (1, {}, "?owner=team", "team"),
        (1, {}, "?owner=bob", None),
        (2, {}, "", "ada"),
        (2, {"client": "ada"}, "", "ada"),
        (2, {"client": "bob"}, "", None),
        (3, {"customer": "bob"}, "", None),
    ):
        for who in ("ada", "staff"):
            id = f"{who}{version}{len(sent)}{query[-1:]}{''.join(sent.values())[:1]}"
            made = shop.send(who, "POST", f"/api/v{version}/jobs{query}", {"id": id, "title": "x", **sent})
            if who == "staff":
                assert made.status_code == (403 if query else 200)
            else:
                assert made.status_code == (200 if wanted else 403), made.text
                assert not wanted or (
                    shop.column("jobs", id),
                    shop.send("staff", "GET", f"/jobs/{id}").json["customer"],
                ) == (wanted, wanted)
    for version, name in ((2, "client"), (3, "customer")):
        assert shop.send("staff", "POST", f"/api/v{version}/jobs?owner=bob", {"title": "x"}).status_code == 422
        for body, owner in (
            ({name: "bob"}, "bob"),
            ({"title": "y"}, "bob"),
            ({name: None}, None),
            ({name: "ada"}, "ada"),
        ):
            changed = shop.send("staff", "PATCH", f"/api/v{version}/jobs/j", body)
            assert (changed.json[name], shop.column("jobs", "j")) == (owner, owner), changed.text
        assert shop.send("ada", "PATCH", f"/api/v{version}/jobs/j", {name: "bob"}).status_code == 403
    assert shop.send("staff", "PUT", "/api/v1/jobs/j", {"title": "z"}).status_code == 200
    assert shop.column("jobs", "j") == "ada"


def test_a_field_that_is_gone(programs: OnOneStore) -> None:
    """Stored items are without it; no version has it, which would show another owner than the item has."""
    programs.start(jobs_of({"title": Text(required=True), "customer": Owner()})).make("j")
    steps: dict[int, list[Step]] = {2: [Remove("customer", Owner(), default=None)]}
    resource = replace(OLD, upgrades=steps)
    with pytest.raises(Exception, match="v1: jobs: customer is an Owner there, which is gone: end this version first"):
        programs.start(resource, Version("v1", revisions={"jobs": 1}), Version("v2"))
    shop = programs.start(resource)
    assert shop.send("ada", "GET", "/jobs/j").json["title"] == "j"
    assert shop.column("jobs", "j") == "ada"


def labels(programs: OnOneStore, **options: Any) -> Shop:
    """A service whose older version is without the owner, and the computed field that has it."""
    steps: dict[int, list[Step]] = {2: [Add("customer", None)]}
    resource = jobs_of(type("Schema", (JobSchema,), {"customer": Owner(**options)}), upgrades=steps)
    return programs.start(resource, Version("v1", revisions={"jobs": 1}), Version("v2"))


def test_computed_fields_have_the_owner(programs: OnOneStore, tmp_path: Path) -> None:
    """Also where the caller does not see it."""
    shop = labels(programs, readable_by="jobs:manage")
    for version in ("v1", "v2"):
        sent = {"id": version, "title": "t"}
        assert shop.send("ada", "POST", f"/api/{version}/jobs", sent).json["label"] == "t of ada"
    shop = labels(programs)
    made = shop.send("ada", "POST", "/api/v1/jobs?owner=team", {"id": "beside", "title": "t"})
    assert (made.json["label"], shop.column("jobs", "beside")) == ("t of team", "team")
    (tmp_path / "jobs.ndjson").write_text('{"id": "i", "title": "t", "$owner": "bob"}')
    assert "imported 1" in command(shop, "import", "--version", "v1", "jobs", tmp_path / "jobs.ndjson")
    shown = shop.send("bob", "GET", "/api/v2/jobs/i").json
    assert (shown["label"], shown["customer"]) == ("t of bob", "bob")


def test_a_rule_of_the_schema_gives_items_to_others() -> None:
    """Which is the service's, as functions before a write are; what callers send of the owner is compared still."""

    class Ruled(ItemSchema):
        team = Text(0, 50, load_default="")
        by = Owner(readable_by="jobs:manage")

        @post_load
        def give(self, item: Item, **_: Any) -> Item:
            return item | ({"by": item["team"]} if item["team"] else {})

    for schema in (Ruled, type("Shown", (Ruled,), {"by": Owner()})):
        shop = Shop(jobs_of(schema))
        assert shop.send("ada", "POST", "/jobs", {"id": "j", "team": "red"}).status_code == 200
        assert shop.send("ada", "POST", "/jobs", {"id": "k"}).status_code == 200
        assert [shop.column("jobs", id) for id in "jk"] == ["red", "ada"]
        assert shop.send("ada", "PATCH", "/jobs/k", {"by": "bob"}).status_code == 403
        assert shop.send("ada", "PATCH", "/jobs/k", {"team": "blue"}).status_code == 200
        assert shop.column("jobs", "k") == "blue"
        assert shop.send("ada", "GET", "/jobs/k").status_code == 404


TO_OWNER = Convert({"customer": Text(0, 50, load_default="")}, ["customer"], lambda of: of or None, lambda of: of or "")


def test_a_text_becomes_the_owner_by_a_step(programs: OnOneStore) -> None:
    """The owner that an item had is not shown as a text of the same name, nor the other way."""
    old = programs.start(jobs_of({"customer": Text(0, 50, load_default="")}))
    for id, who in (("j", "bob"), ("k", "")):
        assert old.send("ada", "POST", "/jobs", {"id": id, "customer": who}).status_code == 200
    with pytest.raises(Exception, match='"customer" is of type owner, and in stored items of type string'):
        programs.start(jobs_of({"customer": Owner()}))
    new = programs.start(jobs_of({"customer": Owner()}, upgrades={2: [TO_OWNER]}))
    assert [(new.send("staff", "GET", f"/jobs/{id}").json["customer"], new.column("jobs", id)) for id in "jk"] == [
        ("bob", "bob"),
        ("ada", "ada"),
    ]
    assert new.ids("bob", "/jobs") == ["j"]
    resource = jobs_of({"title": Text(load_default=""), "customer": Owner()}, upgrades={2: [TO_OWNER]})
    both = programs.start(resource, Version("v1", revisions={"jobs": 1}), Version("v2"))
    for who, id, owner in (("bob", "j", "bob"), ("staff", "k", "ada")):  # a PUT without it keeps it
        changed = both.send(who, "PUT", f"/api/v1/jobs/{id}", {"title": "u"})
        assert (changed.status_code, changed.json["title"]) == (200, "u"), changed.text
        assert both.column("jobs", id) == both.send(who, "GET", f"/api/v2/jobs/{id}").json["customer"] == owner
    for sent in ({"id": "n", "customer": "ada"}, [{"id": "n"}, {"id": "m", "customer": "ada"}]):
        refused = both.send("ada", "POST", "/api/v1/jobs?owner=team", sent)
        assert refused.json["errors"] == [
            {"parameter": "owner", "detail": "is customer in the item, too: send one of them"}
        ]
    for sent, query, wanted in (({}, "", "ada"), ({}, "?owner=team", "team"), ({"customer": "ada"}, "", "ada")):
        made = both.send("ada", "POST", f"/api/v1/jobs{query}", {"id": f"n{len(sent)}{len(query)}", **sent})
        assert (made.json["customer"], both.column("jobs", made.json["id"])) == (wanted, wanted)


def test_what_the_start_refuses() -> None:
    """Two of them, and ids that can be none; the rest is in test_declarations."""
    two: Any = ItemSchema.from_dict({"a": Owner(), "b": Owner()})
    with pytest.raises(ValueError, match=r"jobs\.b: Owner: a is one already, and an item has one owner"):
        Resource("jobs", "job", two, ownership=Ownership.ALL)
    for to, said in (
        ("nothing", "must be one of customers, jobs"),
        ("customers", "its ids are integers, and owners t"),
    ):
        schema: Any = ItemSchema.from_dict({"owner": Owner(to=to)})
        customers = Resource("customers", "customer", OwnerSchema, ids="integer")
        with pytest.raises(ValueError, match=rf"jobs\.owner: Owner\(to='{to}'\): {said}"):
            create_app(Config(), [customers, Resource("jobs", "job", schema, ownership=Ownership.ALL)])


def command(shop: Shop, *arguments: Any) -> str:
    result = shop.app.test_cli_runner().invoke(args=list(map(str, arguments)))
    return f"{result.exit_code} {result.output}"


@pytest.mark.parametrize("suffix", ["ndjson", "json", "csv"])
def test_an_export_has_owners(programs: OnOneStore, tmp_path: Path, suffix: str) -> None:
    """As $owner where no field shows them; an import of it gives each item back to its owner."""
    shop, file = programs.start(OLD), tmp_path / f"jobs.{suffix}"
    for id, owner in (("a", "ada"), ("b", "bob"), ("c", "=cd")):
        shop.headers[owner] = key(shop.client, "jobs:write", owners=[owner])
        shop.make(id, owner)
    (tmp_path / "none.ndjson").write_text('{"id": "n", "title": "of nobody"}\n')
    assert command(shop, "import", "jobs", tmp_path / "none.ndjson").startswith("0 imported 1 jobs")
    command(shop, "export", "jobs", file)
    assert ('"$owner":"ada"' if suffix != "csv" else ",$owner\r\n") in file.read_bytes().decode()
    assert file.read_text().count("$owner") == (3 if suffix != "csv" else 1)
    assert command(shop, "import", "jobs", file).startswith("0 imported 0 jobs, 4 already there")
    for id in "abcn":
        shop.send("staff", "DELETE", f"/jobs/{id}")
    assert command(shop, "import", "jobs", file).startswith("0 imported 4 jobs")
    assert [shop.column("jobs", id) for id in "abcn"] == ["ada", "bob", "=cd", None]
    file.write_text(file.read_text().replace("bob", "eve").replace(',"b",', ',"y",'))
    assert "$owner: it is bob's, and changes only by a field" in command(shop, "import", "--update", "jobs", file)
    assert "other content" in command(shop, "import", "jobs", file)
    new = programs.start(NAMED)  # in which the field shows it
    for id in "abcn":
        new.send("staff", "DELETE", f"/jobs/{id}")
    assert command(new, "import", "jobs", file).startswith("0 imported 4 jobs")
    assert [new.column("jobs", id) for id in "abcn"] == ["ada", "eve", "=cd", None]
    assert new.send("staff", "GET", "/jobs/b").json["customer"] == "eve"
    command(new, "export", "jobs", file)
    assert "$owner" not in file.read_text()
    file.write_text(file.read_text().replace("eve", "bob"))
    assert "updated 1" in command(new, "import", "--update", "jobs", file)
    assert new.column("jobs", "b") == "bob"


def test_what_an_import_refuses_as_an_owner(programs: OnOneStore, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    for resource, line, said in (
        (OLD, '{"title": "x", "$owner": 5}', "$owner: must be a string"),
        (OLD, '{"title": "x", "$owner": ""}', "$owner: must have 1 to 259 characters"),
        (OLD, '{"title": "x", "$owner": "a\\u0000"}', "$owner: must not hold NUL"),
        (
            jobs(),
            '{"title": "x", "$owner": "ada", "customer": "bob"}',
            "$owner: is the field customer here, which has an",
        ),
        (jobs(), '{"title": "x", "customer": ""}', "customer: must have 1 to 259 characters"),
    ):
        file.write_text(line)
        assert said in command(programs.start(resource), "import", "jobs", file)
    file.write_text('{"name": "x", "id": "c", "$owner": "ada"}')
    assert "$owner: is not a field of this collection" in command(programs.start(OLD), "import", "customers", file)


def feed(shop: Shop, who: str, query: str = "") -> list[tuple[str, Any]]:
    found = shop.send(who, "GET", f"/api/v1/events?limit=100{query}").json
    return [(each["type"].partition(".")[2], each["data"]) for each in found if each["type"].startswith("job.")]


def test_a_change_of_owner_is_one_event(shop: Shop) -> None:
    """An update for staff; created for the new owner; deleted, with nothing but the id, for the former one."""
    shop.make("j", title="secret")
    assert shop.send("staff", "PATCH", "/jobs/j", {"customer": "bob", "title": "of bob"}).status_code == 200
    (created, first), (given, item) = feed(shop, "staff")
    assert (created, first["customer"], given, item["customer"]) == ("created", "ada", "updated", "bob")
    assert feed(shop, "ada") == [("created", first), ("deleted", {"id": "j"})]
    assert feed(shop, "bob") == [("created", item)]
    for who, types in {"staff": ["created"], "ada": ["created", "deleted"], "bob": ["created"]}.items():
        for type in ("created", "updated", "deleted"):
            found = [each for each, _ in feed(shop, who, f"&type=job.{type}")]
            wanted = ["updated"] if (who, type) == ("staff", "updated") else [type] * (type in types)
            assert found == wanted, (who, type)
    ids = {
        who: [each["id"] for each in shop.send(who, "GET", "/api/v1/events").json] for who in ("staff", "ada", "bob")
    }
    assert ids["staff"] == ids["ada"] == [ids["ada"][0], *ids["bob"]]  # one event, and one cursor for all
    assert feed(shop, "ada", f"&after={ids['ada'][0]}&item=j") == [("deleted", {"id": "j"})]
    openapi: Any = shop.client.get("/api/v1/openapi.json", headers=ADMIN).json
    for who in ("ada", "bob", "staff"):
        for event in shop.send(who, "GET", "/api/v1/events").json:
            fits(openapi, openapi["components"]["schemas"]["Event"], event)
    before = [feed(shop, who) for who in ("ada", "bob")]
    shop.send("bob", "PATCH", "/jobs/j", {"title": "again"})
    assert [feed(shop, who) for who in ("ada", "bob")] == [
        before[0],
        [*before[1], ("updated", feed(shop, "staff")[2][1])],
    ]


def test_the_events_of_other_changes_of_owner(shop: Shop) -> None:
    """From nobody and to nobody; among one's own; by an action; in a collection that others read."""
    shop.make("j", "staff", customer=None)
    for owner in ("ada", "team", None, "ada"):
        assert shop.send("staff", "PATCH", "/jobs/j", {"customer": owner}).status_code == 200
    assert shop.send("ada", "POST", "/jobs/j/hand-over").status_code == 200
    assert shop.send("staff", "DELETE", "/jobs/j").status_code == 200
    assert [type for type, _ in feed(shop, "staff")] == ["created", *["updated"] * 5, "deleted"]
    assert [type for type, _ in feed(shop, "ada")] == ["created", "updated", "deleted", "created", "deleted"]
    assert [(type, len(data)) for type, data in feed(shop, "bob")] == [("created", 7), ("deleted", 7)]
    shop.make("p", name="posts")
    shop.send("staff", "PATCH", "/posts/p", {"by": "bob"})
    for who in ("staff", "ada", "bob"):
        assert [each["type"] for each in shop.send(who, "GET", "/api/v1/events?collection=posts").json] == [
            "post.created",
            "post.updated",
        ]


def test_the_former_owner_gets_nothing_that_is_computed(programs: OnOneStore) -> None:
    """Its event needs no conversion: the id is all of it."""
    calls = list[str]()

    def label(job: Item) -> str:
        calls.append(job["title"])
        return ""

    stored = {"title": Text(required=True), "customer": Owner()}
    for more in ({}, {"label": fields.Function(label)}):
        shop = programs.start(jobs_of({**stored, **more}, upgrades={2: [Add("label")]} if more else {}))
        if not more:
            shop.make("j")
            shop.send("staff", "PATCH", "/jobs/j", {"customer": "bob"})
    calls.clear()
    assert (feed(shop, "ada", "&type=job.deleted"), calls) == ([("deleted", {"id": "j"})], [])
    assert feed(shop, "bob", "&type=job.created")[0][1]["label"] == "" and calls


@pytest.mark.needs("webhooks")
def test_webhooks_get_an_update(shop: Shop) -> None:
    """They are the admins', who see all owners."""
    for name, type in (("a", "job.*"), ("b", "job.created"), ("c", "job.deleted")):
        sent = {"url": f"https://example.org/{name}", "types": [type]}
        assert shop.send("admin", "POST", "/api/v1/webhooks", sent).status_code == 200
    shop.make("j")
    shop.send("staff", "PATCH", "/jobs/j", {"customer": "bob"})
    got = sorted((url, item["customer"]) for url, item in delivered(shop.app))
    assert got == [("/a", "ada"), ("/a", "bob"), ("/b", "ada")]


def test_a_request_that_waits_gets_it(shop: Shop) -> None:
    shop.make("j")
    last = shop.send("bob", "GET", "/api/v1/events?after=latest")
    after = last.headers["Link"].partition("after=")[2].partition(">")[0].partition("&")[0]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(feed, shop, "bob", f"&after={after}&wait=5&type=job.created")
        shop.make("other")  # which it does not see
        assert shop.send("staff", "PATCH", "/jobs/j", {"customer": "bob"}).status_code == 200
        assert [type for type, _ in waiting.result()] == ["created"]


def test_a_private_owner() -> None:
    """Who may not read the field keeps it by a change, and does not name it beside the item: it could try who it is."""
    shop = Shop(jobs_of({"title": Text(required=True), "customer": Owner(readable_by="jobs:manage")}))
    assert "customer" not in shop.make("j").json
    assert shop.send("ada", "PUT", "/jobs/j", {"title": "x"}).status_code == 200
    assert shop.send("ada", "PATCH", "/jobs/j", {"customer": "ada"}).status_code == 403
    assert shop.send("ada", "GET", "/jobs?customer=ada").status_code == 400
    shop.make("t", "admin", customer="team")
    for who, owners in {"ada": ("ada", "team"), "staff": ("ada", "bob")}.items():
        for method, path in (("PUT", "/jobs/t"), ("PUT", "/jobs/new"), ("POST", "/jobs")):
            tried = [shop.send(who, method, f"{path}?owner={owner}", {"title": "x"}) for owner in owners]
            operations = [
                {"method": method, "path": f"{path}?owner={owner}", "body": {"title": "x"}} for owner in owners
            ]
            tried += [shop.send(who, "POST", "/api/v1/batch", {"operations": [each]}) for each in operations]
            assert {(each.status_code, each.json["detail"]) for each in tried} == {
                (403, "an owner beside the item needs the scope jobs:manage")
            }
    assert shop.send("admin", "POST", "/jobs?owner=bob", {"id": "c", "title": "x"}).status_code == 422
    assert shop.ids("staff", "/jobs") == ["j", "t"]
    assert shop.send("admin", "PATCH", "/jobs/j", {"customer": "bob"}).json["customer"] == "bob"
    assert feed(shop, "ada")[-1] == ("deleted", {"id": "j"})
    assert "customer" not in feed(shop, "bob")[-1][1]


def test_only_some_may_set_it() -> None:
    shop = Shop(jobs_of({"title": Text(required=True), "by": Owner(writable_by="jobs:manage")}))
    assert shop.make("j").json["by"] == "ada"
    assert shop.send("staff", "PATCH", "/jobs/j", {"by": "bob"}).status_code == 403
    assert shop.send("staff", "PUT", "/jobs/j", {"title": "x"}).json["by"] == "ada"


def test_only_some_may_set_it_in_an_older_version(programs: OnOneStore) -> None:
    """In which the field is not there: it is not set beside the item either."""
    fields = {"title": Text(required=True), "by": Owner(writable_by="jobs:manage")}
    resource = jobs_of(fields, upgrades={2: [Add("by", None)]})
    shop = programs.start(resource, Version("v1", revisions={"jobs": 1}), Version("v2"))
    put: Any = {"method": "PUT", "path": "/jobs/b?owner=team", "body": {"title": "x"}}
    for path, body in (("jobs?owner=team", {"title": "x"}), ("batch", {"operations": [put]})):
        refused = shop.send("ada", "POST", f"/api/v1/{path}", body)
        assert refused.json["detail"] == "an owner beside the item needs the scope jobs:manage"
    assert shop.ids("staff", "/jobs") == []
    shop.headers["ada"] = key(shop.client, "jobs:write", "jobs:manage", owners=["ada", "team"])
    assert shop.send("ada", "PUT", "/api/v1/jobs/b?owner=team", {"title": "x"}).status_code == 200
    assert shop.column("jobs", "b") == "team"


def test_an_open_item_keeps_it() -> None:
    """Also where items have what no field names."""
    shop = Shop(jobs_of(PostSchema.from_dict({"by": Owner()})))
    shop.make("j", more=1)
    assert shop.send("staff", "PUT", "/jobs/j", {"other": 2}).json["by"] == "ada"
    assert shop.send("staff", "PATCH", "/jobs/j", {"by": None}).json["by"] is shop.column("jobs", "j") is None


@pytest.mark.needs("jwt")
def test_a_subject_is_an_owner(tmp_path: Path) -> None:
    """As it is: a token and a key of ada reach the same, and what is of the customer with this id; the caller's name is
    another one. No subject is an owner that the engine names."""
    shop = Shop(config=issuer.trusted(tmp_path), clock=issuer.SetClock(issuer.START))
    every = "customers:read jobs:read jobs:write notes:read notes:write"

    def token(subject: str) -> dict[str, str]:
        return bearer(issuer.token(sub=subject, scope=every))

    shop.headers |= {"ada's token": token("ada"), "bob's token": token("bob")}
    shop.send("admin", "POST", "/customers", {"id": "ada", "name": "Ada"})
    shop.make("given", "staff", customer="ada")
    assert shop.make("made", "ada's token").json["customer"] == shop.column("jobs", "made") == "ada"
    for who, wanted in (("ada", ["given", "made"]), ("ada's token", ["given", "made"]), ("bob's token", [])):
        assert shop.ids(who, "/customers/ada/jobs") == shop.ids(who, "/jobs?customer=ada&sort=id") == wanted
        events = shop.send(who, "GET", "/api/v1/events?collection=jobs").json
        assert [each["data"]["id"] for each in events] == wanted
    with shop.app.test_request_context(headers=shop.headers["ada's token"]) as context:
        service_of(shop.app).guard.identify(context.request)
        assert (caller().id, caller().owner_id) == ("jwt:ada", "ada")

    own = key(shop.client, "notes:read", "notes:write")
    assert shop.client.post("/notes", json={"id": "n"}, headers=own).status_code == 200
    named = [shop.column("notes", "n"), "jwt:ada", "admin-key", "anonymous", "x" * 201]
    assert named[0].startswith("key:")
    for subject in named:
        assert shop.client.get("/notes/n", headers=token(subject)).status_code == 401, subject


@pytest.mark.needs("jwt")
def test_the_longest_owner_of_a_token(tmp_path: Path) -> None:
    """Without the claim of owners it is one that the field has, and that can be named beside an item."""
    config = Config(auth="required", admin_key=ADMIN_KEY, jwt_owner="teams", **issuer.trusted(tmp_path))
    clock = issuer.SetClock(issuer.START)
    client = create_app(config, [CUSTOMERS, NOTES, jobs()], clock=clock).test_client()
    token = bearer(issuer.token(sub="x" * 255, scope="jobs:read jobs:write notes:read notes:write"))
    assert client.post(f"/notes?owner=jwt:{'x' * 255}", json={"id": "n"}, headers=token).status_code == 200
    made: Any = client.post("/jobs", json={"id": "j", "title": "x"}, headers=token)
    assert made.json["customer"] == "jwt:" + "x" * 255
    assert client.get("/jobs", headers=token).json == [made.json]


def test_an_older_revision_is_imported(programs: OnOneStore, tmp_path: Path) -> None:
    """With the owner that a step makes of another field."""
    shop = programs.start(jobs_of({"customer": Owner()}, upgrades={2: [TO_OWNER]}))
    (tmp_path / "jobs.ndjson").write_text('{"id": "j", "customer": "bob"}\n')
    assert "imported 1" in command(shop, "import", "--revision", 1, "jobs", tmp_path / "jobs.ndjson")
    assert shop.send("bob", "GET", "/jobs/j").json["customer"] == shop.column("jobs", "j") == "bob"


def test_which_queries_an_index_answers() -> None:
    """The index of the owners those by owners, also both of the caller and of a filter; another order has its own."""
    of, by_title = Filter("customer", Op.EQ, "ada"), Filter("title", Op.EQ, "x")
    resource = Resource("jobs", "job", JobSchema, (Index("title"),), ownership=Ownership.ALL)
    for query, searches in {
        Query((of,)): False,
        Query((of,), owners=("ada",)): False,
        Query((Filter("customer", Op.IN, ("ada", "bob")),)): False,
        Query((by_title,)): False,
        Query((of, by_title)): True,
        Query((of,), sort=(Sort("title"),)): True,
        Query(sort=(Sort("customer"),)): True,
        Query((Filter("customer", Op.GT, "ada"),)): True,
        Query((of._replace(negated=True),)): True,
    }.items():
        assert is_search(resource.collection, query) is searches, query
