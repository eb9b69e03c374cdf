"""`restkeeper schema` and `eject`: what a JSON file has become."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import click

from restkeeper import exactjson
from restkeeper.cli.new import write_service
from restkeeper.command import Command
from restkeeper.features.files.collections import declare
from restkeeper.features.files.content import FileError
from restkeeper.features.files.conversion import convert
from restkeeper.features.files.eject import eject as write_collections
from restkeeper.features.files.file import read_file, say

_ID = click.option("--id", "-i", "id_name", default="id", help="The name of the members with the ids, such as _id.")
_FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
_SHORT = {"--port": ["-p"], "--host": ["-H"], "--routes": ["-r"], "--static": ["-s"], "--delay": ["-d"]}
_SHORT["--read-only"] = ["--ro"]
_INSTEAD = {  # of options of `restkeeper FILE`: what a service has
    "--login": "the service returns the passwords: delete them, and use keys or JSON Web Tokens",
    "--routes": "a proxy rewrites paths, and ownership and scopes guard collections",
    "--static": "a proxy serves files",
    "--delay": "the test harness delays responses",
    "--fail": "the test harness injects faults",
    "--read-only": 'write methods=("GET",) in resources/',
    "--no-save": "set DATABASE_URL=memory://",
    "--port": "set PORT",
    "--host": "set HOST",
}


@click.command("schema", cls=Command)
@_FILE
@_ID
def schema(file: Path, id_name: str) -> None:
    """Print the JSON Schema of the values of a JSON FILE.

    Save it beside the file as db.schema.json, and change it: the service then uses it.
    """
    try:
        declared, _ = declare(read_file(file, id_name))
    except FileError as error:
        raise click.ClickException(str(error)) from None
    parts = {
        name: collection.schema if collection.kind == "singleton" else {"type": "array", "items": collection.schema}
        for name, collection in declared.items()
    }
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": parts}
    click.echo(exactjson.dumps(document, option=exactjson.INDENTED))


def _served(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the options of `_INSTEAD`, also by the short names of `restkeeper FILE`."""
    for name in _INSTEAD:
        is_flag = name in ("--read-only", "--no-save")
        command = click.option(name, *_SHORT.get(name, ()), is_flag=is_flag, hidden=True)(command)
    return command


@click.command("eject", cls=Command)
@_FILE
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--engine", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="As for `restkeeper new`.")
@_ID
@click.option("--foreignKeySuffix", "--fks", "suffix", default="", help="As for `restkeeper FILE`.")
@click.option("--strict", is_flag=True, help="As for `restkeeper FILE`: require what all items have.")
@_served
def eject(
    file: Path, folder: Path, engine: Path | None, id_name: str, suffix: str, strict: bool, **served: Any
) -> None:
    """Write the service that a JSON FILE has become to the new FOLDER, with the data as samples.

    Of the other options with which the file was served, a line says what the service has instead.
    """
    try:
        resources, texts, notes, is_loose = convert(read_file(file, id_name), suffix, strict=strict)
    except (FileError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    notes += [f"{id_name} is called id there"] if id_name != "id" else []
    notes += [f"left out: {name}: {_INSTEAD[name]}" for name in _INSTEAD if served[name[2:].replace("-", "_")]]
    if file.with_name("public").is_dir():
        notes.append(f"left out: public: {_INSTEAD['--static']}")
    routes = file.with_name("routes.py")
    write = partial(write_collections, resources=resources, texts=texts, routes=routes)
    write_service(folder, engine, write)
    if notes:
        say(f"{file.name}:", *notes)
    if is_loose:
        say("nothing is required, as in the file: tighten it in schemas/, by required=True and validators")
    samples = sorted(file.stem for file in folder.glob("storage/samples/*.ndjson"))
    files = " ".join(f"{quote(name)} {quote(f'storage/samples/{name}.ndjson')}" for name in samples)
    steps = [f"cd {quote(str(folder))}", *([f"restkeeper import {files}"] if samples else []), "restkeeper serve"]
    click.echo(f"{folder} is a service now. Next: {' && '.join(steps)}")
