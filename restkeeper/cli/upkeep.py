"""`restkeeper backup`, `restore`, `copy` and `migrate`: what is done with a store as a whole."""

import time
from functools import partial
from pathlib import Path

import click
from flask.cli import with_appcontext

from restkeeper.cli.common import MOST_FAILURES, Command, Refused, in_batches, progress_bar, service_of_app
from restkeeper.errors import NotConvertible
from restkeeper.resources.representation import StoredRepresentation
from restkeeper.storage import Location, locate, location
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, RecordNotFound
from restkeeper.web import exactjson


@click.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Replace a former backup FILE, when the new one is complete.")
@with_appcontext
def backup(file: Path, replace: bool) -> None:
    """Write a complete copy of the store to the new FILE. The service can read and write meanwhile."""
    service_of_app(indexed=False).store.backup(file, replace=replace)
    click.echo(f"backed up to {file}")


@click.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--discard", is_flag=True, help="Delete the former store instead of renaming it.")
@with_appcontext
def restore(file: Path | None, discard: bool) -> None:
    """Replace the store by a copy of the backup FILE. Stop the service first.

    On PostgreSQL run it without a FILE after a tool of the database has restored the store: ETags of lists, cursors and
    ids of events from after the backup are then refused.

    The former store is renamed. Refused while the service, a worker or a command has the store open, and for a FILE
    that is damaged or no backup.
    """
    service = service_of_app(creates=True)
    done = service.location.restore(file, discard=discard)
    items = ", ".join(f"{count} {name}" for name, count in done.items.items()) or "no items"
    newest = f"; the newest change is of {done.newest}" if done.newest else ""
    click.echo(f"restored {file or service.location.name}: {items}{newest}")
    if done.replaced:
        click.echo(f"the former store is {done.replaced}")


@click.command("copy", cls=Command)
@click.argument("source")
@click.argument("target")
def copy(source: str, target: str) -> None:
    """Move everything from the store SOURCE to the store TARGET; both are URLs as in DATABASE_URL.

    Stop the service, its workers and all commands first. TARGET must be empty. When the command ends, let the service
    use TARGET: ETags, cursors, ids of events and stored responses stay valid there, and SOURCE is not opened any more.
    After an interruption, run the same command again: it begins anew.

    A password need not be in the URL: PGPASSWORD and ~/.pgpass work.
    """
    origin, destination = _located(source), _located(target)
    origin.require()
    for each in location.copy(origin, destination, progress_bar, time):
        click.echo(f"{each.table}: {each.rows} rows, digest {each.digest}")
    click.echo(f"moved {origin.name} to {destination.name}: set DATABASE_URL and start the service again")


@click.command(cls=Command)
@click.option("--prepare", is_flag=True, help="Only create what is missing, before the new version serves.")
@with_appcontext
def migrate(prepare: bool) -> None:
    """Bring items of an older schema into the present form, and delete indexes that are not declared any more.

    The versions of items do not change. Older processes that still run become slower without their indexes. With
    --prepare only the tables and indexes of this version are created, as at its start; older processes can run on.
    """
    service = service_of_app(creates=True)
    if prepare:
        service.store.open()
        click.echo(f"{service.location.name} is ready for this version")
        return
    failures: list[str] = []
    for items in service.representations.values():
        count, failed = _migrate_all(service.store, items)
        failures += failed
        click.echo(f"{items.name}: {count} of {service.store.count(items.name)} brought into the present form")
    if failures:
        raise click.ClickException("\n".join([*failures[:MOST_FAILURES], f"{len(failures)} items stay as they were"]))
    dropped = service.store.tidy()
    click.echo(f"indexes: {len(dropped)} deleted{''.join(f', {name}' for name in dropped)}")


def _migrate_all(store: Store, items: StoredRepresentation) -> tuple[int, list[str]]:
    """Migrate the items of a collection. Returns how many, and why others could not be migrated."""
    total = 0
    while True:
        failures: list[str] = []
        stale = (record.id for record in store.scan(items.name) if items.is_older(record.fingerprint))
        count = sum(map(sum, in_batches(store, stale, partial(_migrate_item, items, failures))))
        total += count
        if not (count and failures):  # a unique value is free when the item that had it in its older form is migrated
            return total, failures


def _migrate_item(items: StoredRepresentation, failures: list[str], transaction: Transaction, id: str) -> bool:
    """Migrate an item to the present schema; False if it is deleted, migrated already, or of a newer program."""
    try:
        record = transaction.read(items.name, id)
    except RecordNotFound:
        return False
    if not items.is_older(record.fingerprint):
        return False
    try:
        upgraded = items.upgraded(record)
        with transaction.savepoint():
            transaction.update(items.name, upgraded)
    except NotConvertible as error:
        failures.append(error.detail)
        return False
    except DuplicateValue as error:
        values = ", ".join(bytes(exactjson.cut(upgraded.body)[field]).decode() for field in error.fields)
        shown = items.resource.shown(id)
        failures.append(
            f"{items.name}: the item {shown} cannot be converted: {error} ({values}): change or delete one of the two"
        )
        return False
    return True


def _located(url: str) -> Location:
    """Raises Refused for a URL of no store that stays."""
    try:
        location = locate(url)
    except ValueError as error:
        raise Refused(f"the URL of a store must be {error}") from None
    if location.temporary:
        raise Refused(f"{location.name} ends with its process, so it cannot be copied")
    return location
