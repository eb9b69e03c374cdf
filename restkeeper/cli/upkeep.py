"""`restkeeper backup`, `restore`, `migrate` and `reap`: maintenance of the store."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
from flask.cli import with_appcontext

from restkeeper.cli.batches import in_batches
from restkeeper.cli.common import MOST_FAILURES, Command, service_of_app
from restkeeper.cli.running import pause, service_in_time, stop_requested
from restkeeper.clock import rfc3339
from restkeeper.errors import NotConvertible
from restkeeper.features.idempotency import Idempotency
from restkeeper.resources.resource import Resource
from restkeeper.service import Service
from restkeeper.storage.contract import Store, Transaction
from restkeeper.storage.errors import DuplicateValue, RecordNotFound, StoreGone, StoreUnavailable

BATCH = 500  # records per transaction: limits how long other writes wait
LONGEST_PAUSE = 24 * 3600  # seconds between two runs of `restkeeper reap`


@click.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@with_appcontext
def backup(file: Path) -> None:
    """Write a complete copy of the store to the new FILE. The service can read and write meanwhile."""
    service_of_app().store.backup(file)
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
    for resource in service.resources:
        count, failed = _migrate_all(service.store, resource)
        failures += failed
        click.echo(f"{resource.name}: {count} of {service.store.count(resource.name)} brought into the present form")
    if failures:
        raise click.ClickException("\n".join([*failures[:MOST_FAILURES], f"{len(failures)} items stay as they were"]))
    dropped = service.store.tidy()
    click.echo(f"indexes: {len(dropped)} deleted{''.join(f', {name}' for name in dropped)}")


def _migrate_all(store: Store, resource: Resource) -> tuple[int, list[str]]:
    """Migrate the items of a collection. Returns how many, and why others could not be migrated."""
    total = 0
    while True:
        failures: list[str] = []
        stale = (record.id for record in store.scan(resource.name) if resource.is_older(record.fingerprint))
        count = sum(map(sum, in_batches(store, stale, partial(_migrate_item, resource, failures))))
        total += count
        if not (count and failures):  # a unique value is free when the item that had it in its older form is migrated
            return total, failures


def _migrate_item(resource: Resource, failures: list[str], transaction: Transaction, id: str) -> bool:
    """Migrate an item to the present schema; False if it is deleted, migrated already, or of a newer program."""
    try:
        record = transaction.read(resource.name, id)
    except RecordNotFound:
        return False
    if not resource.is_older(record.fingerprint):
        return False
    try:
        upgraded = resource.upgraded(record)
        with transaction.savepoint():
            transaction.update(resource.name, upgraded)
    except NotConvertible as error:
        failures.append(error.detail)
        return False
    except DuplicateValue as error:
        failures.append(f"{resource.name}: the item {id} cannot be converted: {error}: change or delete one of the two")
        return False
    return True


@click.command(cls=Command)
@click.option(
    "--every",
    type=click.IntRange(1, LONGEST_PAUSE),
    metavar="SECONDS",
    help="Repeat it after so many seconds (a day at most), until SIGTERM or Ctrl-C.",
)
@with_appcontext
def reap(every: int | None) -> None:
    """Delete what has expired. Run it once a day or more often.

    That is responses stored for idempotency keys (IDEMPOTENCY_TTL), and events with their deliveries (EVENTS_TTL).
    """
    if every is None:
        _reap(service_of_app(), lambda: False)
        return
    is_stopping = stop_requested()
    service = service_in_time(is_stopping)
    while not is_stopping():
        try:
            _reap(service, is_stopping)
        except StoreGone:
            raise
        except StoreUnavailable as error:
            click.echo(f"nothing deleted, next attempt in {every} s: {error.detail}", err=True)
        pause(every, is_stopping)


def _reap(service: Service, is_stopping: Callable[[], bool]) -> None:
    """Delete what has expired, and print how much. It ends early if `is_stopping`."""
    ttl, clock = service.config.events_ttl, service.clock
    idempotency, now = Idempotency(service.config.idempotency_ttl, now=clock.time), clock.time()
    sweep_events = partial(_sweep_events, rfc3339(now - ttl), rfc3339(now + ttl))
    responses = events = 0
    if "idempotency" in service.features:
        responses = _sweep_all(service.store, lambda transaction: idempotency.sweep(transaction, BATCH), is_stopping)
    if "events" in service.features:
        service.store.last_event()  # it gives all events an id, without which PostgreSQL sweeps none
        events = _sweep_all(service.store, sweep_events, is_stopping)
    click.echo(f"deleted {responses} expired responses and {events} expired events")


def _sweep_events(before: str, latest: str, transaction: Transaction) -> int:
    return transaction.sweep_events(before, BATCH, latest=latest)


def _sweep_all(store: Store, sweep: Callable[[Transaction], int], is_stopping: Callable[[], bool]) -> int:
    """Sweep until nothing is left, or `is_stopping`; returns the number of deleted records."""
    total = 0
    while not is_stopping() and (count := store.write(sweep, use_reserve=True)):
        total += count
    return total
