"""`restkeeper copy`: moves everything from one store to another, such as from SQLite to PostgreSQL.

The rows are copied in the order of their keys, in transactions, so that a copy that was interrupted continues after the
last row of each part.
"""

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import click
import orjson

from restkeeper.cli.common import Command, Refused
from restkeeper.storage import Location, locate
from restkeeper.storage.errors import StoreUnavailable
from restkeeper.storage.transfer import PARTS, Mark, MarkKind, Part, Row, Transfer, cleaned

BATCH = 2000  # rows in one transaction, and
BATCH_BYTES = 8 * 1024 * 1024  # of them, about
SHOWN = 12  # digits of a digest


@click.command("copy", cls=Command)
@click.argument("source")
@click.argument("target", required=False)
@click.option("--release", is_flag=True, help="Let SOURCE be changed again, instead of a copy.")
@click.option("--force", is_flag=True, help="With --release: also after the copy was complete.")
def copy(source: str, target: str | None, release: bool, force: bool) -> None:
    """Move everything from the store SOURCE to the store TARGET; both are URLs as in DATABASE_URL.

    TARGET must be empty. From the start on SOURCE can be read and not changed, by running services, too: their clients
    get 503 for writes. When the command ends, let the service use TARGET: ETags, cursors, ids of events and stored
    responses stay valid there. After an interruption, run the same command again: it continues.

    A password need not be in the URL: PGPASSWORD and ~/.pgpass work.
    """
    if release == bool(target):
        raise Refused("give a SOURCE and a TARGET, or --release and a SOURCE")
    origin = _located(source)
    origin.require()
    with closing(origin.transfer(time)) as source_store:
        if not target:
            _release(source_store, origin.name, force=force)
            return
        destination = _located(target)
        with closing(destination.transfer(time)) as target_store:
            _Copy(source_store, target_store, origin.name, destination.name).run()


def _located(url: str) -> Location:
    """Raises Refused for a URL of no store that stays."""
    try:
        location = locate(url)
    except ValueError as error:
        raise Refused(f"the URL of a store must be {error}") from None
    if location.temporary:
        raise Refused(f"{location.name} ends with its process, so it cannot be copied")
    return location


def _release(store: Transfer, name: str, *, force: bool) -> None:
    mark = store.mark
    if mark is None:
        click.echo(f"{name} can be changed")
        return
    if mark.kind is MarkKind.INCOMPLETE:
        raise Refused(f"{name} is an incomplete copy of {mark.other}")
    if mark.kind is MarkKind.MOVED and not force:
        raise Refused(
            f"{name} was moved completely to {mark.other}: both would have changes that the other one does not have; "
            "--force releases it with new ETags"
        )
    store.release(renew=mark.kind is MarkKind.MOVED)
    rest = "now it has other ETags than" if mark.kind is MarkKind.MOVED else "the next copy begins anew, also that to"
    click.echo(f"{name} can be changed again; {rest} {mark.other}")


class _Copy:
    """One run of `restkeeper copy`."""

    def __init__(self, source: Transfer, target: Transfer, source_name: str, target_name: str) -> None:
        self._source = source
        self._target = target
        self._source_name = source_name
        self._target_name = target_name

    def run(self) -> None:
        """Copy, compare, and let programs use the target."""
        mark, epoch = self._source.mark, self._target.epoch
        if mark and mark.kind is MarkKind.INCOMPLETE:
            raise Refused(f"{self._source_name} is an incomplete copy of {mark.other}")
        if mark and mark.kind is MarkKind.MOVED and epoch == self._source.epoch and not self._target.mark:
            click.echo(f"the copy in {mark.other} is complete already")
            return
        self._require_target(epoch, mark)
        mark = mark or Mark(MarkKind.MOVING, secrets.token_hex(8), self._target_name)
        self._source.freeze(mark)
        click.echo(f"{self._source_name} can be read, and not changed, from now on", err=True)
        self._begin(mark, epoch)
        counts = {part: self._source.count(part) for part in PARTS}
        try:
            with _bar(sum(counts.values()), "copying") as bar:
                for part in PARTS:
                    self._copy(part, bar.update)
        except BaseException:
            click.echo("the copy is not complete: the same command continues, and --release gives up", err=True)
            raise
        with _bar(sum(counts.values()), "comparing") as bar:
            digests = {part: self._compare(part, bar.update) for part in PARTS}
        self._source.freeze(mark._replace(kind=MarkKind.MOVED))
        self._target.release()
        for part in PARTS:
            click.echo(f"{part.name}: {counts[part]} rows, digest {digests[part]}")
        click.echo(f"moved {self._source_name} to {self._target_name}: set DATABASE_URL and start the service again")

    def _require_target(self, epoch: str, mark: Mark | None) -> None:
        """Raises StoreUnavailable if the target has another store, before anything is changed."""
        if mark and mark.other != self._target_name:
            raise StoreUnavailable(
                f"{self._source_name} is being moved, or was moved, to {mark.other}; "
                "restkeeper copy --release ends that"
            )
        if not epoch:
            return
        if (found := self._target.mark) is None or found.kind is not MarkKind.INCOMPLETE:
            raise StoreUnavailable(f"{self._target_name} has a store already: name an empty database")
        if epoch != self._source.epoch:
            raise StoreUnavailable(f"{self._target_name} is an incomplete copy of another store, {found.other}")

    def _begin(self, mark: Mark, epoch: str) -> None:
        """Prepare the target. Rows of a copy that was given up are deleted: the source can have changed since."""
        own = Mark(MarkKind.INCOMPLETE, mark.copy, self._source_name)
        if not epoch:
            self._target.create(self._source.epoch, own)
        elif (found := self._target.mark) and found.copy != own.copy:
            self._target.clear(own)

    def _copy(self, part: Part, advance: Callable[[int], None]) -> None:
        last = () if part.name == "numbers" else self._target.last(part)
        rows = self._source.read(part, last)
        if last:
            advance(self._target.count(part))
        while batch := _batch(rows):
            self._target.write(part, batch)
            advance(len(batch))

    def _compare(self, part: Part, advance: Callable[[int], None]) -> str:
        """The digest of the rows. Raises StoreUnavailable if those of the target are others."""
        digest = blake2b()
        rows = enumerate(zip_longest(cleaned(self._source.read(part)), self._target.read(part)), start=1)
        for number, (row, copied) in rows:
            if row != copied:
                raise StoreUnavailable(self._difference(part, row, copied))
            digest.update(orjson.dumps(row, default=bytes.hex) + b"\n")
            if number % BATCH == 0:
                advance(BATCH)
        return digest.hexdigest()[:SHOWN]

    def _difference(self, part: Part, row: Row | None, copied: Row | None) -> str:
        key, other = (each and each[: part.keys] for each in (row, copied))
        if key == other:
            fault = "is not as in the source"
        elif other is None or (key is not None and key < other):
            fault = "is missing"
        else:
            key, fault = other, "is not in the source"
        named = "/".join(map(str, key or ()))
        return (
            f"{part.name} {named} {fault}: {self._target_name} was changed by another program; empty it, and copy again"
        )


def _batch(rows: Iterator[Row]) -> list[Row]:
    """The next rows."""
    batch, size = [], 0
    for row in rows:
        batch.append(row)
        size += sum(len(each) for each in row if isinstance(each, (str, bytes)))
        if len(batch) == BATCH or size > BATCH_BYTES:
            break
    return batch


def _bar(length: int, label: str) -> Any:
    """A progress bar, if stderr is a terminal."""
    hidden = not (length and sys.stderr.isatty())
    return click.progressbar(
        length=length, label=label, hidden=hidden, file=sys.stderr, update_min_steps=length // 200 + 1
    )
