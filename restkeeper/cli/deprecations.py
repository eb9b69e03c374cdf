"""`restkeeper deprecations`: what is deprecated, and who still uses it."""

import json
from collections.abc import Iterable
from math import ceil
from typing import Any

import click
from flask.cli import with_appcontext

from restkeeper.cli.common import Command, service_of_app
from restkeeper.features.versions.uses import Use, stored_uses
from restkeeper.versions import Deprecation, seconds_of

DAY = 24 * 3600


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, for programs.")
@with_appcontext
def deprecations(as_json: bool) -> None:
    """List what is deprecated, with the days that are left, and the last use by each caller.

    Uses are stored an hour late at most. A response with a deprecated field is a use of it.
    """
    service = service_of_app(feature="versions")
    declared = sorted(service.versions.deprecations, key=lambda each: (each.sunset, each.name))
    uses, now = list(stored_uses(service.store)) if declared else [], service.clock.time()
    listed = [_described(each, uses, now) for each in declared]
    click.echo(json.dumps(listed, indent=2) if as_json else "\n".join(_lines(listed)) or "nothing is deprecated")


def _described(deprecation: Deprecation, uses: Iterable[Use], now: float) -> dict[str, Any]:
    own = [each for each in uses if each.deprecation == deprecation.name]
    callers = sorted((each for each in own if each.caller), key=lambda each: each.at, reverse=True)
    return {
        "name": deprecation.name,
        "since": str(deprecation.since),
        "sunset": str(deprecation.sunset),
        "days_left": max(0, ceil((seconds_of(deprecation.sunset) - now) / DAY)),
        "is_over": deprecation.is_over(now),
        "uses": sum(each.times for each in own),
        "callers": [{"caller": each.caller, "last_used_at": each.at} for each in callers],
    }


def _lines(listed: Iterable[dict[str, Any]]) -> Iterable[str]:
    """A line for each deprecation, and an indented one for each caller."""
    for each in listed:
        left = "over" if each["is_over"] else f"{each['days_left']} days left"
        yield f"{each['name']}  since {each['since']}  sunset {each['sunset']}  {left}  uses {each['uses']}"
        yield from (f"  {one['caller']}  last used {one['last_used_at']}" for one in each["callers"])
