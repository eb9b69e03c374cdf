"""`flask backup`, `flask migrate`, `flask reap`: what keeps a store safe, in shape and small."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import click
from flask.cli import with_appcontext

from cli.common import Command, service_of_app
from clock import rfc3339
from errors import NotFound
from resources.resource import Resource
from storage.contract import Store, Transaction
from web.idempotency import Idempotency

BATCH = 500  # records that change in one transaction: others' writes wait no longer than for that


@click.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@with_appcontext
def backup(file: Path) -> None:
    """Write a complete copy of the store to the new FILE, consistent while the service reads and writes."""
    service_of_app().store.backup(file)
    click.echo(f"backed up to {file}")


@click.command(cls=Command)
@with_appcontext
def migrate() -> None:
    """Bring items that an older schema wrote into the present shape, a batch at a time. No version changes."""
    service = service_of_app()
    for resource in service.resources:
        stale = (record.id for record in service.store.scan(resource.name) if record.shape != resource.shape)
        count = sum(service.store.write(partial(_reshape, resource, ids)) for ids in _batches(stale))
        click.echo(f"{resource.name}: {count} of {service.store.count(resource.name)} brought into the present shape")


def _reshape(resource: Resource, ids: list[str], transaction: Transaction) -> int:
    """Re-represent those that are still there and still of another shape; how many."""
    return sum(_reshape_one(resource, id, transaction) for id in ids)


def _reshape_one(resource: Resource, id: str, transaction: Transaction) -> bool:
    try:
        record = transaction.read(resource.name, id)
    except NotFound:
        return False
    if record.shape == resource.shape:
        return False
    transaction.update(resource.name, record._replace(shape=resource.shape, body=resource.body(record)))
    return True


def _batches(ids: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(ids, BATCH)):
        yield batch


@click.command(cls=Command)
@with_appcontext
def reap() -> None:
    """Take away what has expired, a batch at a time: answers to POSTs with a key (IDEMPOTENCY_TTL), and events
    with their deliveries (EVENTS_TTL)."""
    service = service_of_app()
    idempotency, before = Idempotency(service.config.idempotency_ttl), rfc3339(time.time() - service.config.events_ttl)
    answers = _swept(service.store, lambda transaction: idempotency.sweep(transaction, BATCH))
    events = _swept(service.store, lambda transaction: transaction.sweep_events(before, BATCH))
    click.echo(f"took away {answers} expired answers and {events} expired events")


def _swept(store: Store, sweep: Callable[[Transaction], int]) -> int:
    """How much was taken away in all."""
    total = 0
    while count := store.write(sweep, use_reserve=True):
        total += count
    return total
