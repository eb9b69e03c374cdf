"""`restkeeper migrate`: the items of former revisions become those of this one."""

from collections.abc import Callable
from functools import partial

import click
from flask.cli import with_appcontext

from restkeeper.clock import rfc3339
from restkeeper.command import Command, Refused, in_batches, progress_bar, service_of_app
from restkeeper.resources.changes import Unit
from restkeeper.resources.former import shortened
from restkeeper.resources.migration import convert
from restkeeper.storage.base import Transaction
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.interface import Record
from restkeeper.stores import conversions_of, warnings_of


@click.command(cls=Command)
@click.option("--prepare", is_flag=True, help="Only create what is missing, before the new version serves.")
@click.option("--accept", is_flag=True, help="Older versions of the API may show other values of some items.")
@click.option("--cancel", is_flag=True, help="Let the former version serve again, after a migration was interrupted.")
@click.option("--forget", metavar="VERSION", help="Delete what only this version of the API showed, which is retired.")
@with_appcontext
def migrate(prepare: bool, accept: bool, cancel: bool, forget: str | None) -> None:
    """Convert the items of former revisions, and delete indexes of former versions.

    Items are converted in one transaction: all, or none. It is refused, and names the first 20 items, if a step refuses
    a value, two items would have the same unique value, or an older version of the API would show another value.
    Afterwards older processes answer 503 for such a collection, on PostgreSQL also meanwhile. The versions of items do
    not change.

    With --prepare only the tables and indexes of this version are created, as at its start; older processes can run on.
    """
    service = service_of_app(creates=True)
    store = service.store
    if prepare:
        store.open()
        click.echo(f"{service.location.name} is ready for this version")
        return
    if cancel:
        for name, (old, _, at) in store.stored().items():
            if old < 0:
                store.write(partial(Transaction.set_revision, collection=name, old_revision=old, revision=-old, now=at))
                click.echo(f"{name}: revision {-old}, as before")
        return
    if forget in [version.name for version in service.versions]:
        raise Refused(f"--forget: {forget} is in versions.py: take it out first")
    if conversions := conversions_of(service, accepts=accept):
        names = ", ".join(conversion.name for conversion in conversions)
        with progress_bar(f"converting {names}", sum(conversion.items for conversion in conversions)) as bar:
            convert(store, conversions, rfc3339(service.clock.time()), bar.update)
    else:
        click.echo("nothing is to be converted")
    for conversion in conversions:
        click.echo(f"{conversion.name}: all items have revision {conversion.revision} now")
    for name in store.tidy():
        click.echo(f"deleted the index {name}, which is not declared any more")
    for items in service.stored.values() if forget else ():
        oldest = min(version.revisions.get(items.name, items.revision.number) for version in service.versions)
        shorten = partial(shortened, oldest=oldest)
        stale = (record.id for record in store.scan(items.name) if shorten(record) != record)
        count = sum(map(sum, in_batches(service, stale, partial(_shorten, items.name, shorten))))
        click.echo(f"{items.name}: {count} items are without what only {forget} showed")
    for line in warnings_of(service):
        click.echo(line, err=True)


def _shorten(name: str, shorten: Callable[[Record], Record], unit: Unit, id: str) -> bool:
    """Store an item as it should be; False if it is deleted, or is so already."""
    try:
        record = unit.transaction.read(name, id)
    except RecordNotFound:
        return False
    if (stored := shorten(record)) == record:
        return False
    unit.put_record(name, stored)
    return True
