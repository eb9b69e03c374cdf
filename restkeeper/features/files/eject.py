"""The service that a file has become: a module for each of its schemas and collections, and its data as samples."""

import dataclasses
import inspect
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from restkeeper import exactjson
from restkeeper.features.files import fields
from restkeeper.features.files.jsonschema import FILE_CLASSES, SERVICE_CLASSES, Call, Class, text_of
from restkeeper.resources.resource import Resource

_DECLARE = """

# Once, before any application is made.
import resources  # noqa: E402
from restkeeper import find_resources  # noqa: E402

declare({resource.public_name: resource for resource in find_resources(resources)})
"""
_FIELDS = "file_fields"  # the module of the service that gets FILE_CLASSES
_TESTS = '''"""The service returns its samples as they are, and changes them."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from restkeeper import Space

SAMPLES = [*Path(__file__).parent.parent.glob("storage/samples/*.ndjson")]
PATHS = {}
OWN = {}  # fields that refer to the same collection: an item that refers to itself is not created by a POST
ITEMS = {PATHS.get(file.stem, file.stem): list(map(json.loads, file.open(encoding="utf-8"))) for file in SAMPLES}

pytestmark = pytest.mark.skipif(sum(file.stat().st_size for file in SAMPLES) > 2**20, reason="too many for a test")


@pytest.fixture
def samples(api: Space) -> Space:
    """A service that has the samples."""
    api.seed(ITEMS)
    return api


def send(api: Space, method: str, path: str, body: Any = None) -> Any:
    """The JSON of a response. Raises HTTPError."""
    data, fields = json.dumps(body).encode() if body is not None else None, {"Content-Type": "application/json"}
    with urlopen(Request(f"{api.url}/{path}", data, fields, method=method)) as response:
        return json.load(response)


@pytest.mark.parametrize("name", ITEMS)
def test_the_samples_are_served(samples: Space, name: str) -> None:
    """A collection has the items of its file, and a single item is that of its file."""
    served = send(samples, "GET", quote(name))
    assert (served if isinstance(served, list) else [served]) == ITEMS[name][:10_000]


@pytest.mark.parametrize("name", [name for name, items in ITEMS.items() if items])
def test_samples_are_changed_deleted_and_created(samples: Space, name: str) -> None:
    """The first and the last item of a collection, or a single item, which is only changed."""
    path = quote(name)
    if not isinstance(send(samples, "GET", path), list):
        (single,) = ITEMS[name]
        assert send(samples, "PUT", path, {**single}) == send(samples, "PATCH", path, plain(single)) == single
        return
    others = [item for item in ITEMS[name] if all(item["id"] != item.get(field) for field in OWN.get(name, ()))]
    for item, other in zip(others[:1] + others[-1:], others[-1:] + others[:1], strict=True):
        address, replaced = f"{path}/{quote(str(item['id']))}", {**other, "id": item["id"]}
        assert send(samples, "PUT", address, replaced) == send(samples, "GET", address) == replaced
        assert send(samples, "PATCH", address, plain(item)) == {**replaced, **plain(item)}
        assert send(samples, "DELETE", address)["id"] == item["id"]
        assert item["id"] not in [each["id"] for each in send(samples, "GET", path)]
        assert send(samples, "POST", path, item) == send(samples, "GET", address) == item


def plain(item: dict[str, Any]) -> dict[str, Any]:
    """The members that a PATCH sets: it would delete those that are null, and merge objects."""
    return {name: value for name, value in item.items() if value is not None and not isinstance(value, dict)}
'''


def eject(folder: Path, resources: Sequence[Resource], texts: Mapping[str, Sequence[bytes]], routes: Path) -> None:
    """Replace the collections of a new service, in `folder`, by the collections of a file, with texts of their items.

    The file `routes` goes along if it exists.
    """
    upgrades = (folder / "storage/upgrades.py").read_text(encoding="utf-8").partition("\n\nfrom ")[0]
    for pattern in ("reports.py", "resources/[a-z]*.py", "schemas/[a-z]*.py", "storage/samples/*"):
        for file in folder.glob(pattern):
            file.unlink()
    app = (folder / "app.py").read_text(encoding="utf-8")
    app = re.sub(r"from reports import reports\n| blueprints=\[reports\],|, reports(?= and )", "", app)
    source = re.sub(r"from restkeeper\.schemas\.\w+ import", "from restkeeper import", inspect.getsource(fields))
    paths = {resource.name: resource.path for resource in resources if resource.path}  # the samples have the names
    tests = _TESTS.replace("PATHS = {}", f"PATHS: dict[str, str] = {text_of(paths)}")
    tests = tests.replace("OWN = {}", f"OWN: dict[str, list[str]] = {text_of(_references_inside(resources))}")
    written = {f"schemas/{_FIELDS}.py": source, "tests/test_service.py": tests, "storage/upgrades.py": f"{upgrades}\n"}
    written["app.py"] = app
    for resource in resources:
        module = resource.singular + "_" * keyword.iskeyword(resource.singular)
        written[f"schemas/{module}.py"] = _schema(resource)
        written[f"resources/{resource.name}.py"] = _declaration(resource, module)
        items = [exactjson.dumps(exactjson.loads(bytes(text))) + b"\n" for text in texts[resource.public_name]]
        if items or not resource.singleton:
            (folder / f"storage/samples/{resource.name}.ndjson").write_bytes(b"".join(items))
    if routes.is_file():
        source = routes.read_text(encoding="utf-8")
        written["routes.py"] = source + _DECLARE * bool(re.search(r"^(def )?declare\b", source, re.MULTILINE))
        app = app.replace("restkeeper\n", "restkeeper\nimport routes\n", 1)
        more = 'blueprints=getattr(routes, "blueprints", ())'
        written["app.py"] = re.sub(r"(create_app\()(config, .*)\)", rf"\1\n        \2,\n        {more},\n    )", app)
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")


def _references_inside(resources: Sequence[Resource]) -> dict[str, list[str]]:
    """The fields that refer to items of the same collection, by its public name."""
    inside = {}
    for resource in resources:
        references = resource.newest.references.items()
        if names := [name for name, reference in references if reference.to == resource.name]:
            inside[resource.public_name] = names
    return inside


def _declaration(resource: Resource, module: str) -> str:
    """The module of a collection."""
    default = Resource("a", "a", resource.schema)
    single = Resource("a", "a", resource.schema, singleton=resource.singleton)
    options = {field.name: getattr(resource, field.name) for field in dataclasses.fields(Resource) if field.compare}
    for name, value in list(options.items())[3:]:
        if value in (getattr(default, name), *([single.methods] if name == "methods" else [])):
            del options[name]
    options["schema"] = Class(resource.schema.__name__, "", "", {})
    lines = "".join(f"    {argument},\n" for argument in Call("Resource", (), options).arguments())
    about = f'"""{"A single item" if resource.singleton else "The collection"}: {resource.name}."""'
    imported = f"from restkeeper import Resource\nfrom schemas.{module} import {resource.schema.__name__}"
    return f"{about}\n\n{imported}\n\nRESOURCE = Resource(\n{lines})\n"


def _schema(resource: Resource) -> str:
    """The module of a collection's schemas, with imports of all that these need."""
    whole: Class = resource.schema.declared_as  # type: ignore[attr-defined]
    body = "".join(f"\n\n{_text_of_class(declared)}" for declared in _classes(whole))

    def names(candidates: Sequence[str]) -> list[str]:
        return sorted(name for name in candidates if re.search(rf"(?<![.\w]){name}\b", body))

    groups = [
        [("decimal", names(["Decimal"]))],
        [("marshmallow", names(["fields", "validate"]))],
        [
            ("restkeeper", names([kind.__name__ for kind in SERVICE_CLASSES])),
            (f"schemas.{_FIELDS}", names([kind.__name__ for kind in FILE_CLASSES])),
        ],
    ]
    imports = (
        "".join(f"from {module} import {', '.join(imported)}\n" for module, imported in group if imported)
        for group in groups
    )
    return f'"""The schema of the items of {resource.name}."""\n\n' + "\n".join(filter(None, imports)) + body


def _classes(node: Class | Call) -> Iterator[Class]:
    """The classes that the text of a class or a call needs: a class comes after the classes that it needs."""
    for argument in node.fields.values() if isinstance(node, Class) else node.args:
        if isinstance(argument, Call | Class):
            yield from _classes(argument)
    if isinstance(node, Class):
        yield node


def _text_of_class(schema: Class) -> str:
    about = re.sub(r'["\\]', "'", schema.about)
    lines = [f"class {schema.name}({schema.base}):", f'    """{about}"""\n']
    if schema.others is not None:
        lines.append(f"    others = frozenset({sorted(schema.others) or ''})")
    for name, call in schema.fields.items():
        line = f"    {name} = {call}"
        if len(line) > 120:
            line = f"    {name} = {call.name}(\n" + "".join(f"        {text},\n" for text in call.arguments()) + "    )"
        lines.append(line)
    return "\n".join(lines).strip() + "\n"
