"""`restkeeper export`: items as a file, in NDJSON, JSON or CSV."""

import errno
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click
from flask.cli import with_appcontext
from marshmallow import INCLUDE

from restkeeper import exactjson
from restkeeper.command import Command, Refused, service_of_app
from restkeeper.features.transfer import items_of
from restkeeper.features.transfer.formats import FILE_FORMATS, OWNER_MEMBER, WRITERS, Columns, format_by_name
from restkeeper.resources.cells import BOM
from restkeeper.resources.declaration import Ownership
from restkeeper.stores import warnings_of


@click.command("export", cls=Command)
@click.argument("name")
@click.argument("file", default="-")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FILE_FORMATS),
    help="The format, if the end of FILE's name does not give it; default ndjson.",
)
@click.option("--version", help="The version of the API in whose form the items are; default: as they are stored.")
@click.option("--bom", is_flag=True, help="Begin CSV with a byte order mark, by which spreadsheets know UTF-8.")
@with_appcontext
def export_items(name: str, file: str, file_format: str | None, version: str | None, bom: bool) -> None:
    """Write the items of the collection NAME to FILE. The default is stdout.

    They are in the order of their ids, as of one moment. Only its owner can read the file, and it has its name when it
    is complete. `restkeeper import` reads it back exactly. In CSV an empty cell is a field that the item does not have.
    Values that are no texts are JSON, also null; so are an empty text and one that would be read as another value. An
    owner that no field shows is $owner.
    """
    service = service_of_app(indexed=False)
    if name not in service.stored and (warnings := "; ".join(warnings_of(service))):
        raise Refused(f"there is no collection {name!r}; {warnings}")
    view = items_of(service, name, version)
    service.store.count(name)  # raises RevisionDiffers
    file_format = file_format or format_by_name(file) or "ndjson"
    if file_format == "csv" and view.schema.opts.unknown == INCLUDE:
        raise click.ClickException(f"{name}: CSV has no column for fields that no schema names: use ndjson or json")
    if bom and file_format != "csv":
        raise Refused(f"--bom: is for CSV, not for {file_format}: JSON has no byte order mark (RFC 8259, section 8.1)")
    left_out = 0  # items with fields that the newest form does not have
    formulas: Counter[str] = Counter()
    stored = service.stored[name]
    is_hidden = stored.resource.ownership is not Ownership.NONE and not view.owner_field
    columns = Columns.of(view, owner=is_hidden)

    def bodies() -> Iterator[bytes]:
        nonlocal left_out
        for record in service.store.scan(name):
            left_out += bool(record.removed_fields)
            body = view.body(record)
            if is_hidden and record.owner is not None:
                body = exactjson.joined({**exactjson.cut(body), OWNER_MEMBER: exactjson.dumps(record.owner)})
            yield body

    with _written(file) as out:
        out.write(BOM * bom)
        for chunk in WRITERS[file_format](bodies(), columns, formulas):
            out.write(chunk)
    if left_out and not version:
        click.echo(
            f"warning: {left_out} items have fields that only older versions show; `--version NAME` of one of "
            "these exports them",
            err=True,
        )
    if formulas:
        fields = ", ".join(f"{field} ({count})" for field, count in formulas.items())
        click.echo(
            f"warning: {formulas.total()} cells begin with = + - @, a tab or CR; a spreadsheet that opens this file "
            f"would run them as formulas: {fields}",
            err=True,
        )


@contextmanager
def _written(file: str) -> Iterator[IO[bytes]]:
    """The file to write to: stdout, a pipe or device, or a temporary file that replaces `file` at the end."""
    target = Path(os.path.realpath(file))
    if file == "-" or (target.exists() and not target.is_file()):
        with click.open_file(file, "wb") as out:
            yield out
        return
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with open(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
