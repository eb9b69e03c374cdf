"""`restkeeper copy`: moves everything from one store to another, such as from SQLite to PostgreSQL."""

import sys
import time
from contextlib import AbstractContextManager
from typing import Any

import click

from restkeeper.cli.common import Command, Refused
from restkeeper.storage import Location, copying, locate


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
    for each in copying.copy(origin, destination, _bar, time):
        click.echo(f"{each.table}: {each.rows} rows, digest {each.digest}")
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


def _bar(label: str, length: int) -> AbstractContextManager[Any]:
    """A progress bar, if stderr is a terminal."""
    hidden = not (length and sys.stderr.isatty())
    return click.progressbar(length=length, label=label, hidden=hidden, file=sys.stderr)
