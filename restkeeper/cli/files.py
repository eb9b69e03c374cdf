"""`restkeeper schema` and `eject`: what a JSON file has become."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote

import click

from restkeeper import exactjson
from restkeeper.cli.new import write_service
from restkeeper.command import Command
from restkeeper.features.files.declarations import Declared, declare, loosened, resources_of
from restkeeper.features.files.eject import eject as write_collections
from restkeeper.features.files.eject import leave_out
from restkeeper.features.files.file import read_file, say
from restkeeper.features.files.reading import Content, FileError
from restkeeper.schemas.item import GIVEN_ID

_ID = click.option("--id", "-i", "id_name", default="id", help="The name of the members with the ids, such as _id.")
_FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))


@click.command("schema", cls=Command)
@_FILE
@_ID
def schema(file: Path, id_name: str) -> None:
    """Print the JSON Schema that the values of a JSON FILE have. Edited beside it, as db.schema.json, it is used."""
    declared, _, _ = _read(file, id_name)
    parts = {
        name: collection.schema if collection.kind == "singleton" else {"type": "array", "items": collection.schema}
        for name, collection in declared.items()
    }
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": parts}
    click.echo(exactjson.dumps(document, option=exactjson.INDENTED))


@click.command("eject", cls=Command)
@_FILE
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--engine", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="As for `restkeeper new`.")
@_ID
def eject(file: Path, folder: Path, engine: Path | None, id_name: str) -> None:
    """Write the service that a JSON FILE has become to the new FOLDER, with the data as samples."""
    declared, texts, notes = _read(file, id_name, leave_out)
    notes += [f"{id_name} is called id there"] if id_name != "id" else []
    for name, collection in declared.items():  # as the file is served
        loose = collection if collection.is_checked else collection._replace(schema=loosened(collection.schema))
        declared = {**declared, name: loose}
        if collection.kind == "singleton":
            continue
        items = [exactjson.cut(text) for text in texts[name]]
        if id_name != "id" and any("id" in item for item in items):
            raise click.ClickException(f"{name}: an item has a member id beside {id_name}: name it otherwise")
        renamed = ({"id" if key == id_name else key: text for key, text in item.items()} for item in items)
        texts[name] = list(map(exactjson.joined, renamed))
        pattern = r"\d+" if collection.kind == "client-integer" else f'"{GIVEN_ID[1:-1]}"'
        if wrong := sum(not re.fullmatch(pattern, bytes(item[id_name]).decode()) for item in items):
            notes.append(f"{name}: {wrong} samples have ids that it does not take: change them")
    try:
        resources = resources_of(declared, notes)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    routes = file.with_name("routes.py")
    write = partial(write_collections, resources=resources, texts=texts, routes=routes)
    write_service(folder, engine, write)
    if notes:
        say(f"{file.name}:", *notes)
    if not all(collection.is_checked for collection in declared.values()):
        say("nothing is required, as in the file: tighten it in schemas/, by required=True and validators")
    click.echo(f"{folder} is a service now. Next: cd {quote(str(folder))} && make samples && restkeeper serve")


def _read(
    path: Path, id_name: str, change: Callable[[Content], list[str]] = lambda _: []
) -> tuple[Mapping[str, Declared], dict[str, Sequence[bytes]], list[str]]:
    """What declares the collections of a file, after a change; the texts of their items; and what the change returns.

    Raises ClickException.
    """
    try:
        file = read_file(path, id_name)
        lines = change(file.content)
        declared, _ = declare(file)
    except FileError as error:
        raise click.ClickException(str(error)) from None
    return declared, {name: [bytes(text) for _, text in file.content.items(name)] for name in declared}, lines
