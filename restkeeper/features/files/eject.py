"""The service that a file has become: a module for each of its schemas and collections, and its data as samples."""

import dataclasses
import inspect
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from restkeeper import exactjson
from restkeeper.config import Config
from restkeeper.errors import InvalidJson, shortened
from restkeeper.exactjson import Buffer
from restkeeper.features.files import fields
from restkeeper.features.files.jsonschema import FILE_CLASSES, SERVICE_CLASSES, Call, Class, text_of
from restkeeper.features.files.reading import Content, id_of
from restkeeper.resources.resource import Resource

_DECLARE = """

# Once, before any application is made.
import resources  # noqa: E402
from restkeeper import find_resources  # noqa: E402

declare({resource.public_name: resource for resource in find_resources(resources)})
"""
_FIELDS = "file_fields"  # the module of the service that gets FILE_CLASSES
_TESTS = '''"""The service returns its samples as they are."""

import json
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from restkeeper import Space

SAMPLES = [*Path(__file__).parent.parent.glob("storage/samples/*.ndjson")]
PATHS = {}


@pytest.mark.skipif(sum(file.stat().st_size for file in SAMPLES) > 2**20, reason="too many for a test")
def test_the_samples_are_served(api: Space) -> None:
    """Each collection has the items of its file, and a single item is that of its file."""
    samples = {PATHS.get(file.stem, file.stem): list(map(json.loads, file.open(encoding="utf-8"))) for file in SAMPLES}
    api.seed(samples)
    for name, items in samples.items():
        with urlopen(f"{api.url}/{quote(name)}") as response:
            served = json.load(response)
        assert (served if isinstance(served, list) else [served]) == items[:10_000]
'''


def leave_out(content: Content) -> list[str]:
    """Remove the items that only a file can have. Returns lines about all removed parts.

    A single item then has no members.
    """
    lines = [f"left out: {line}" for line in content.unserved]
    lines += [f"left out: {shortened(name)} begins with $" for name in content.members if name[:1] == "$"]
    for name in content.kinds:
        member, refused = content.members[name], list[str]()
        for key, text in content.items(name):
            if fault := _fault_in(text):
                refused.append(f"{id_of(key)}: {fault}")
                if isinstance(member, dict):
                    del member[key]
                else:
                    content.members[name] = b"{}"
        if refused and isinstance(member, dict):
            about = "items are left out, which a service refuses; the first is"
            lines.append(f"{name}: {len(refused)} {about} {refused[0]}")
        elif refused:
            lines.append(f"{name} is empty there, as a service refuses what it has: {refused[0].partition(': ')[2]}")
    return lines


def _fault_in(text: Buffer) -> str:
    """Why a service refuses an item; empty if it does not."""
    try:
        fault = next(exactjson.faults_in_values(exactjson.loads(bytes(text), Config.max_depth)), None)
    except InvalidJson as problem:
        return problem.detail
    return f"{fault['pointer']} {fault['detail']}" if fault else ""


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
    written = {f"schemas/{_FIELDS}.py": source, "tests/test_service.py": tests, "storage/upgrades.py": f"{upgrades}\n"}
    written["app.py"] = app
    for resource in resources:
        module = resource.singular + "_" * keyword.iskeyword(resource.singular)
        written[f"schemas/{module}.py"] = _schema(resource)
        written[f"resources/{resource.name}.py"] = _declaration(resource, module)
        items = (exactjson.dumps(exactjson.loads(bytes(text))) + b"\n" for text in texts[resource.public_name])
        (folder / f"storage/samples/{resource.name}.ndjson").write_bytes(b"".join(items))
    if routes.is_file():
        source = routes.read_text(encoding="utf-8")
        written["routes.py"] = source + _DECLARE * bool(re.search(r"^(def )?declare\b", source, re.MULTILINE))
        app = app.replace("restkeeper\n", "restkeeper\nimport routes\n", 1)
        call = "config, found, versions=VERSIONS, stores=STORES"
        more = 'blueprints=getattr(routes, "blueprints", ())'
        written["app.py"] = app.replace(call, f"\n        {call},\n        {more},\n    ")
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")


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
