"""The table of what an import would change."""

from collections.abc import Set

import click

from restkeeper.resources.evolution import Members
from restkeeper.web import exactjson

MOST_ROWS = 100
MOST_CHARACTERS = 40  # of a value


class ChangeTable:
    """What differs between versions of items, a row for each field, of which the first MOST_ROWS are printed."""

    def __init__(self) -> None:
        self._rows = [("id", "field", "before", "after")]
        self._more = 0

    def add(self, id: str, old: Members, new: Members, without: Set[str]) -> None:
        """Add two versions of an item, `without` some fields."""
        for name in dict.fromkeys([*old, *new]):
            before, after = (bytes(members.get(name, b"")) for members in (old, new))
            if name in without or exactjson.equal(before, after):
                continue
            if len(self._rows) > MOST_ROWS:
                self._more += 1
            else:
                self._rows.append((id, _cell(name), _cell(before.decode()), _cell(after.decode())))

    def print(self) -> None:
        """Print it, if it has rows."""
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        for row in self._rows if len(self._rows) > 1 else ():
            click.echo("  ".join(map(str.ljust, row, widths)).rstrip())
        if self._more:
            click.echo(f"and {self._more} more")


def _cell(text: str) -> str:
    """A value without what a terminal would obey."""
    short = text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in short)
