"""`restkeeper rename` and `forget`: what is stored of collections that have another name now, or are gone."""

import time
from collections.abc import Iterator, Mapping
from functools import partial

import click
import orjson
from flask.cli import with_appcontext

from restkeeper.clock import rfc3339
from restkeeper.command import PAUSE_SECONDS, Command, Refused, service_of_app
from restkeeper.features.events.types import known_types
from restkeeper.service import Service
from restkeeper.storage import renaming
from restkeeper.storage.base import SCAN
from restkeeper.storage.errors import GONE
from restkeeper.storage.feed import last_event
from restkeeper.storage.interface import Record
from restkeeper.storage.records import StoredState, stored_states
from restkeeper.storage.sql import Database
from restkeeper.stores import unserved_in

FORGOTTEN = 500  # items or events in one transaction: limits how long other writes wait


@click.command(cls=Command)
@click.argument("old")
@click.argument("new")
@with_appcontext
def rename(old: str, new: str) -> None:
    """Give what is stored of the collection OLD to NEW, which a resource serves now. Stop the service first.

    That is done in one transaction. Keys and webhooks stay as they are: those whose scopes or types of events are of no
    collection now are listed, each with what to do. The next start builds the indexes.
    """
    service = service_of_app(creates=True)
    service.location.require()
    if (stored := service.stored.get(new)) is None:
        raise Refused(f"no resource serves {new!r}: let one do so, and none {old!r}, before this command")
    with service.location.alone(service.clock) as store:
        states = stored_states(store.database)
        revision, items, _ = _unserved(service, states, old)
        if not items or revision == GONE:
            raise Refused(f"{old} has no items, or is being deleted")
        if new in states and (others := states[new].items):
            raise Refused(f"{new} has {others:,} items already: export and delete these first, and import them later")
        store.drop_indexes(old, new)
        resource = stored.resource
        renaming.rename(store.database, old, new, resource.singular, is_singleton=resource.singleton)
        outdated = [*_outdated(service, store.database)]
        store.database.commit()
    click.echo(f"{items:,} items of {old} are those of {new} now")
    for line in outdated:
        click.echo(line)


@click.command(cls=Command)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_appcontext
def forget(name: str, yes: bool) -> None:
    """Delete all that the store has of the collection NAME, which no resource serves any more.

    That is its items, and the content of its events; the service can read and write meanwhile. After an interruption,
    run the same command again.
    """
    service = service_of_app()
    store = service.store
    about = f"{_unserved(service, store.stored(), name).items:,} items of {name}"
    if not yes:
        click.confirm(f"Delete {about}, for ever?", abort=True, err=True)
    store.write(partial(renaming.mark_gone, collection=name, now=rfc3339(service.clock.time())), use_reserve=True)
    last_event(store)  # nobody adds events of it: all of them have positions
    store.tidy(name)
    while store.write(partial(renaming.forget, collection=name, limit=FORGOTTEN), use_reserve=True):
        time.sleep(PAUSE_SECONDS)
    click.echo(f"{about} are deleted")


def _unserved(service: Service, stored: Mapping[str, StoredState], name: str) -> StoredState:
    """What the store has of a collection. Raises Refused if a resource serves it, or there is nothing."""
    states = unserved_in(service, stored)
    if name not in states:
        of = f"it has something of {', '.join(states)}" if states else "it has nothing of others"
        raise Refused(f"{name!r} is served, or the store has nothing of it; {of}")
    return states[name]


def _outdated(service: Service, database: Database) -> Iterator[str]:
    """The keys and webhooks with scopes, or types of events, that the service does not have any more: a line each."""
    served = {*service.guard.scopes, *known_types(service.resources)}
    remedies = {
        "keys": "make another one by `restkeeper keys create`, and then run `restkeeper keys revoke {id}`",
        "webhooks": f"change it by PATCH /api/{service.versions.unversioned}/webhooks/{{id}}",
    }
    for collection in (name for name in remedies if name in service.of_features):
        for record in map(Record._make, database.rows(SCAN, {"collection": collection})):
            item = orjson.loads(record.body)
            if gone := [name for name in (*item["scopes"], *item.get("types", ())) if name not in served]:
                which, remedy = item.get("name") or item["url"], remedies[collection].format(id=record.id)
                yield f"{collection}: {record.id} ({which}) has {', '.join(gone)}, of no collection now: {remedy}"
