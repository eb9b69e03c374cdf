"""`restkeeper backup`, `restore` and `copy`: copies of a store as a whole."""

import time
from pathlib import Path

import click
from flask.cli import with_appcontext

from restkeeper.command import Command, Refused, progress_bar, service_of_app
from restkeeper.storage import Location, copying, locate


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

    On PostgreSQL run it without a FILE after a tool of the database has restored the store, and after each failover
    that may have lost commits: ETags of lists, and cursors of lost events, are then refused.

    The former store is renamed. Refused while the service, a worker or a command has the store open, and for a FILE
    that is damaged or no backup.
    """
    service = service_of_app(creates=True)
    done: copying.Restored = service.location.restore(file, discard=discard)
    items = ", ".join(f"{count} {name}" for name, count in done.items.items()) or "no items"
    newest = f"; the newest change is of {done.newest}" if done.newest else ""
    click.echo(f"restored {file or service.location.name}: {items}{newest}")
    if done.replaced:
        click.echo(f"the former store is {done.replaced}")


@click.command("copy", cls=Command)
@click.argument("source")
@click.argument("target")
@click.option("--discard", is_flag=True, help="Leave behind the events that webhooks were not sent.")
def copy(source: str, target: str, discard: bool) -> None:
    """Move the store SOURCE to the store TARGET; both are URLs as in DATABASE_URL.

    Items with their ids and versions, keys, webhooks and stored responses are moved. Events are not: the feed begins
    anew, and a cursor of before is refused with one to continue from.

    Stop the service, its workers and all commands first. TARGET must be empty. When the command ends, let the service
    use TARGET: SOURCE is not opened any more. After an interruption, run the same command again: it begins anew.

    A password need not be in the URL: PGPASSWORD and ~/.pgpass work.
    """
    origin, destination = _located(source), _located(target)
    origin.require()
    for table in copying.copy(origin, destination, progress_bar, time, discard=discard):
        click.echo(f"{table.table}: {table.rows} rows, digest {table.digest}")
    click.echo(f"moved {origin.name} to {destination.name}: set DATABASE_URL and start the service again")


def _located(url: str) -> Location:
    """Raises Refused for a URL of no store that stays."""
    try:
        location = locate(url)
    except ValueError as error:
        raise Refused(f"the URL of a store must be {error}") from None
    if location.temporary:
        raise Refused(f"{location.name} ends with its process, so it cannot be copied")
    return location
