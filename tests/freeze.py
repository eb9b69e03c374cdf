"""What stays as it is from 1.0 on, as lines of text: commands, settings, problems and public names; and the wire.

`python -m tests.freeze` adds what is new to the files in frozen/. It deletes nothing: a release can only add.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import click

import restkeeper
from restkeeper import exactjson
from restkeeper.__main__ import COMMANDS
from restkeeper.config import Config, settings
from restkeeper.errors import Problem
from restkeeper.feature import loaded
from restkeeper.features.openapi.document import document
from restkeeper.service import service_of
from tests.shop import create_app

FOLDER = Path(__file__).parent / "frozen"
WIRE = "v1.json"
DOCS = "".join(page.read_text(encoding="utf-8") for page in (FOLDER.parent.parent / "docs").glob("*.md"))
PROMISED = DOCS + (FOLDER / "names.txt").read_text(encoding="utf-8")  # by the pages, also of a former release
MEMBERS, CALLED = ({*re.findall(pattern, PROMISED)} for pattern in (r"[.](\w+)", r"\b(\w+)\("))
OPTIONAL = "="  # at the end of a parameter that a caller can leave out


def commands() -> Iterator[str]:
    """Each command, with each of its parameters."""
    for name, (path, _) in COMMANDS.items():
        yield from _parameters(f"restkeeper {name}", loaded(path))


def _parameters(name: str, command: click.Command) -> Iterator[str]:
    yield name
    for parameter in command.params:
        written = parameter.opts if isinstance(parameter, click.Option) else [str(parameter.human_readable_name)]
        yield from (f"{name} {text}{'' if parameter.required else OPTIONAL}" for text in written)
    for inner, of in (command.commands if isinstance(command, click.Group) else {}).items():
        yield from _parameters(f"{name} {inner}", of)


def defaults() -> Iterator[str]:
    """Each setting, with its default."""
    deployed = Config.from_env({})
    return (f"{setting.name.upper()}={getattr(deployed, setting.name)!r}" for setting in settings())


def problems() -> Iterator[str]:
    """Each type of problem, with its status."""
    create_app(Config())  # loads the features, with their problems
    return (f"{kind.name} {kind.status}" for kind in Problem.__subclasses__())


def names() -> Iterator[str]:
    """Each public name, with its parameters, and the members of a class that docs/ names."""
    for name in restkeeper.__all__:
        value = getattr(restkeeper, name)
        yield name
        if inspect.isclass(value):
            yield from _of_class(name, value)
        elif callable(value):
            yield from _of_function(name, value)


def _of_class(name: str, kind: type) -> Iterator[str]:
    if issubclass(kind, BaseException):
        return
    if name in CALLED and ("__init__" in vars(kind) or is_dataclass(kind)):
        yield from _of_function(name, kind)
    declared = {field.name: field.init for field in fields(kind)} if is_dataclass(kind) else {}
    for member in sorted({*vars(kind), *declared, *getattr(kind, "_fields", ())}):
        if member.startswith("_") or member not in MEMBERS or not declared.get(member, True):
            continue
        yield f"{name}.{member}"
        value = inspect.getattr_static(kind, member, MISSING)
        if inspect.isfunction(value) or isinstance(value, classmethod | staticmethod):
            yield from _of_function(f"{name}.{member}", getattr(kind, member))


def _of_function(name: str, function: Callable[..., Any]) -> Iterator[str]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        is_needed = parameter.default is parameter.empty and parameter.kind.name[:4] != "VAR_"
        yield f"{name}({parameter.name}){'' if is_needed else OPTIONAL}"


LINES: Mapping[str, Callable[[], Iterator[str]]] = {
    "commands": commands,
    "settings": defaults,
    "problems": problems,
    "names": names,
}


def lines_of(name: str) -> set[str]:
    """The lines of a file."""
    return {*(FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()}


def present_wire() -> dict[str, Any]:
    """The document of the service of the tests."""
    app = create_app(Config(auth="required"))
    wire: dict[str, Any] = json.loads(exactjson.dumps(document(app, service_of(app), "v1")))
    return wire


def wire() -> dict[str, Any]:
    """The document that is frozen."""
    frozen: dict[str, Any] = json.loads((FOLDER / WIRE).read_text(encoding="utf-8"))
    return frozen


def main() -> None:
    """Add what is new."""
    for name, lines in LINES.items():
        file = FOLDER / f"{name}.txt"
        before = lines_of(name) if file.exists() else set()
        file.write_text("".join(f"{line}\n" for line in sorted(before | {*lines()})), encoding="utf-8")
    text = json.dumps(present_wire(), indent=1, sort_keys=True, ensure_ascii=False)
    (FOLDER / WIRE).write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
