"""`restkeeper keys create | list | revoke | rotate`. Only secrets go to stdout, messages to stderr."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import click
from flask.cli import with_appcontext

from restkeeper import exactjson
from restkeeper.clock import rfc3339
from restkeeper.command import Command, service_of_app
from restkeeper.features.keys import KEYS, make_key, renewed_key, revoke_key, store_key
from restkeeper.resources.changes import Unit
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.interface import Query, Sort

DAY = 24 * 3600


@click.group()
def keys() -> None:
    """Create, list, revoke and rotate API keys."""


@keys.command(cls=Command)
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, required=True, help="For example products:read, or admin; repeat for more."
)
@click.option(
    "--days", type=click.IntRange(1, 36500), help="Days until it expires; without it, it is valid until it is revoked."
)
@click.option(
    "--owner",
    "owners",
    multiple=True,
    help="Whose items it reaches; repeat for more. It creates those of the first. Without it, its own.",
)
@with_appcontext
def create(name: str, scopes: tuple[str, ...], days: int | None, owners: tuple[str, ...]) -> None:
    """Create a key called NAME and print its secret, which is not stored."""
    service = service_of_app(creates=True)
    now = service.clock.time()
    end = rfc3339(now + days * DAY) if days else None
    sent = {"name": name, "scopes": list(scopes), "expires_at": end, "owners": list(owners)}
    stored = service.of_features[KEYS.name]
    record, token = make_key(stored, service.guard.scopes, sent, rfc3339(now))
    service.write(lambda unit: store_key(stored, unit, None, record, token))
    click.echo(f"key {record.id}; its secret, shown this once:", err=True)
    click.echo(token)


@keys.command("list", cls=Command)
@with_appcontext
def list_keys() -> None:
    """List the keys, oldest first."""
    page = service_of_app().store.page(KEYS.name, Query(sort=(Sort("created_at"),)))
    for key in map(exactjson.loads, page.bodies):
        end, used = f"ends {key['expires_at']}" if key["expires_at"] else "has no end", key["last_used_at"] or "never"
        owners = f"owners {', '.join(map(repr, key['owners']))}" if key["owners"] else "owner itself"
        click.echo(f"{key['id']}  {key['name']!r}  {' '.join(key['scopes'])}  {owners}  {end}  last used {used}")


@keys.command(cls=Command)
@click.argument("id")
@with_appcontext
def revoke(id: str) -> None:
    """Make the key with this ID invalid from the next request on."""
    with _require_key(id):
        service = service_of_app()
        service.write(partial(revoke_key, service.of_features[KEYS.name], id), use_reserve=True)
    click.echo(f"key {id} is revoked", err=True)


@keys.command(cls=Command)
@click.argument("id")
@with_appcontext
def rotate(id: str) -> None:
    """Print a new secret for the key with this ID; the former one is invalid at once."""
    service = service_of_app()
    stored = service.of_features[KEYS.name]

    def work(unit: Unit) -> str:
        before = unit.transaction.read(KEYS.name, id)
        record, token = renewed_key(stored, before, unit.now())
        store_key(stored, unit, before, record, token)
        return token

    with _require_key(id):
        token = service.write(work)
    click.echo(f"key {id}; its new secret, shown this once:", err=True)
    click.echo(token)


@contextmanager
def _require_key(id: str) -> Iterator[None]:
    """Raises ClickException if no key has this id."""
    try:
        yield
    except RecordNotFound:
        raise click.ClickException(
            f"no key has the id {id!r}: `restkeeper keys list` shows those of all keys"
        ) from None
