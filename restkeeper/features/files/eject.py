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
from restkeeper.features.files.declaring import OURS, THEIRS, Call, Class, text_of
from restkeeper.features.files.reading import Content, id_of
from restkeeper.resources.resource import Resource

_DECLARE = """

# Once, before any application is made.
import resources  # noqa: E402
from restkeeper import find_resources  # noqa: E402

declare({each.public_name: each for each in find_resources(resources)})
"""
_FIELDS = "file_fields"  # the module of the service that has THEIRS
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
    """Take away the items that only a file can have. Returns lines about all that is left out.

    A single item has no members then.
    """
    lines = [f"left out: {line}" for line in content.left]
    lines += [f"left out: {shortened(name)} begins with $" for name in content.members if name[:1] == "$"]
    for name in content.kinds:
        member, left = content.members[name], list[str]()
        for key, text in content.items(name):
            if fault := _fault_in(text):
                left.append(f"{id_of(key)}: {fault}")
                if isinstance(member, dict):
                    del member[key]
                else:
                    content.members[name] = b"{}"
        if left and isinstance(member, dict):
            lines.append(f"{name}: {len(left)} items are left out, which a service refuses; the first is {left[0]}")
        elif left:
            lines.append(f"{name} is empty there, as a service refuses what it has: {left[0].partition(': ')[2]}")
    return lines


def _fault_in(text: Buffer) -> str:
    """Why a service refuses an item; empty if it does not."""
    try:
        fault = next(exactjson.faults_in_values(exactjson.loads(bytes(text), Config.max_depth)), None)
    except InvalidJson as problem:
        return problem.detail
    return f"{fault['pointer']} {fault['detail']}" if fault else ""


def eject(folder: Path, resources: Sequence[Resource], texts: Mapping[str, Sequence[bytes]], routes: Path) -> None:
    """Replace the collections of a new service, in `folder`, by those of a file, with the texts of their items.

    The file `routes` goes along if it exists.
    """
    upgrades = (folder / "storage/upgrades.py").read_text(encoding="utf-8").partition("\n\nfrom ")[0]
    for each in ("resources/[a-z]*.py", "schemas/[a-z]*.py", "storage/samples/*"):
        for file in folder.glob(each):
            file.unlink()
    own = re.sub(r"from restkeeper\.schemas\.\w+ import", "from restkeeper import", inspect.getsource(fields))
    paths = {each.name: each.path for each in resources if each.path}  # the samples have the names
    tests = _TESTS.replace("PATHS = {}", f"PATHS: dict[str, str] = {text_of(paths)}")
    written = {f"schemas/{_FIELDS}.py": own, "tests/test_service.py": tests, "storage/upgrades.py": f"{upgrades}\n"}
    for resource in resources:
        module = resource.singular + "_" * keyword.iskeyword(resource.singular)
        written[f"schemas/{module}.py"] = _schema(resource)
        written[f"resources/{resource.name}.py"] = _declaration(resource, module)
        items = (exactjson.dumps(exactjson.loads(bytes(each))) + b"\n" for each in texts[resource.public_name])
        (folder / f"storage/samples/{resource.name}.ndjson").write_bytes(b"".join(items))
    if routes.is_file():
        own = routes.read_text(encoding="utf-8")
        written["routes.py"] = own + _DECLARE * bool(re.search(r"^(def )?declare\b", own, re.MULTILINE))
        app = (folder / "app.py").read_text(encoding="utf-8").replace("restkeeper\n", "restkeeper\nimport routes\n", 1)
        call = "config, find_resources(resources), versions=VERSIONS, stores=STORES"
        more = 'blueprints=getattr(routes, "blueprints", ())'
        written["app.py"] = app.replace(call, f"\n        {call},\n        {more},\n    ")
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")


def _declaration(resource: Resource, module: str) -> str:
    """The module of a collection."""
    default, single = (Resource("a", "a", resource.schema, singleton=each) for each in (False, resource.singleton))
    options = {each.name: getattr(resource, each.name) for each in dataclasses.fields(Resource) if each.compare}
    for name, value in list(options.items())[3:]:
        if value in (getattr(default, name), *([single.methods] if name == "methods" else [])):
            del options[name]
    options["schema"] = Class(resource.schema.__name__, "", "", {})
    lines = "".join(f"    {part},\n" for part in Call("Resource", (), options).parts())
    about = f'"""{"A single item" if resource.singleton else "The collection"}: {resource.name}."""'
    imported = f"from restkeeper import Resource\nfrom schemas.{module} import {resource.schema.__name__}"
    return f"{about}\n\n{imported}\n\nRESOURCE = Resource(\n{lines})\n"


def _schema(resource: Resource) -> str:
    """The module of a collection's schemas: what these need is imported."""
    whole: Class = resource.schema.declared_as  # type: ignore[attr-defined]
    body = "".join(f"\n\n{_class(each)}" for each in _classes(whole))

    def names(known: Sequence[str]) -> list[str]:
        return sorted(name for name in known if re.search(rf"(?<![.\w]){name}\b", body))

    groups = [
        [("decimal", names(["Decimal"]))],
        [("marshmallow", names(["fields", "validate"]))],
        [
            ("restkeeper", names([each.__name__ for each in OURS])),
            (f"schemas.{_FIELDS}", names([each.__name__ for each in THEIRS])),
        ],
    ]
    imports = (
        "".join(f"from {module} import {', '.join(found)}\n" for module, found in each if found) for each in groups
    )
    return f'"""The schema of the items of {resource.name}."""\n\n' + "\n".join(filter(None, imports)) + body


def _classes(node: Class | Call) -> Iterator[Class]:
    """The classes that the text of a class needs, each after those that it needs itself."""
    for each in node.fields.values() if isinstance(node, Class) else node.args:
        if isinstance(each, Call | Class):
            yield from _classes(each)
    if isinstance(node, Class):
        yield node


def _class(schema: Class) -> str:
    about = re.sub(r'["\\]', "'", schema.about)
    lines = [f"class {schema.name}({schema.base}):", f'    """{about}"""\n']
    if schema.others is not None:
        lines.append(f"    others = frozenset({sorted(schema.others) or ''})")
    for name, call in schema.fields.items():
        line = f"    {name} = {call}"
        if len(line) > 120:
            line = f"    {name} = {call.name}(\n" + "".join(f"        {part},\n" for part in call.parts()) + "    )"
        lines.append(line)
    return "\n".join(lines).strip() + "\n"
