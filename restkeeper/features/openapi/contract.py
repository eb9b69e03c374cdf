"""`restkeeper contract check | accept`: whether the service breaks what its clients were promised.

The documents are those of the service as deployed: with AUTH=required and the defaults of all other settings, so that
the environment of the check does not change its result. No store is opened but one in memory.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any

import click

from restkeeper import exactjson
from restkeeper.cli.commands import ClosedFeature
from restkeeper.cli.loading import load_application
from restkeeper.command import Command, Refused
from restkeeper.config import Config, ConfigError
from restkeeper.contract.check import Finding, compare
from restkeeper.contract.decisions import Severity
from restkeeper.contract.facts import Json
from restkeeper.features.openapi.document import document
from restkeeper.service import service_of
from restkeeper.versions import is_version

FOLDER = "contract"  # in the folder of the service: an accepted document for each version
FORCED = "x-accepted"  # in `info`: what was accepted although it breaks clients


@click.group()
def contract() -> None:
    """Compare the API with what was promised to its clients: the documents in contract/.

    These are the OpenAPI documents of the app.py of the present folder, with AUTH=required and the defaults of all
    other settings, whatever the environment has.
    """


_window = click.option(
    "--window",
    type=click.IntRange(0, 3660),
    default=Config.deprecation_window,
    show_default=True,
    help="The fewest days from a deprecation to its sunset.",
)
_today = click.option(
    "--today",
    type=click.DateTime(["%Y-%m-%d"]),
    default=lambda: datetime.now(UTC).date().isoformat(),
    help="The day by which windows are judged, instead of the present one (UTC).",
)


@contract.command(cls=Command)
@click.option("--strict", is_flag=True, help="Fail also if something new is not accepted yet.")
@_window
@_today
def check(strict: bool, today: datetime, window: int) -> None:
    """Fail if a client could break: for each change that has not been through its deprecation, say what, whom, and how.

    A change that needs a person's judgement is shown, and does not fail the check.
    """
    present, accepted, findings = _compared(today, window)
    if missing := sorted(present.keys() - accepted.keys()):
        raise click.ClickException(f"{FOLDER}/{missing[0]}.json does not exist; `restkeeper contract accept` writes it")
    new = [finding for finding in findings if finding.severity is Severity.COMPATIBLE]
    for finding in findings:
        if strict or finding not in new:
            click.echo(finding.paragraph())
    if broken := [finding for finding in findings if finding.severity is Severity.BREAKING]:
        raise click.ClickException(f"{_count(broken)} would break clients")
    if strict and findings:
        raise click.ClickException(f"{_count(findings)} not accepted yet: `restkeeper contract accept`")
    more = f"; {_count(new)} not accepted yet: `restkeeper contract accept`" if new else ""
    click.echo(f"{', '.join(present)}: no client breaks{more}")


@contract.command(cls=Command)
@click.option("--force", metavar="REASON", help="Accept what breaks clients, too; the document will have the reason.")
@_window
@_today
def accept(force: str | None, today: datetime, window: int) -> None:
    """Record what the service would serve as promised, and show what is new. Refused if a client could break."""
    folder = Path.cwd() / FOLDER
    present, accepted, findings = _compared(today, window)
    for finding in findings if accepted else ():
        click.echo(finding.paragraph())
    broken = [finding for finding in findings if finding.severity is Severity.BREAKING]
    if broken and not force:
        raise click.ClickException(f"nothing was accepted: {_count(broken)} would break clients")
    folder.mkdir(exist_ok=True)
    for version, new in present.items():
        reasons = accepted.get(version, {}).get("info", {}).get(FORCED, [])
        here = [finding.headline for finding in broken if finding.version == version]
        if here:
            reasons = [*reasons, {"date": str(today.date()), "reason": force, "changes": here}]
        whole = {**new, "info": {**new["info"], **({FORCED: reasons} if reasons else {})}}
        text = json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False)  # shows each change as few lines
        (folder / f"{version}.json").write_text(f"{text}\n", encoding="utf-8")
    for version in accepted.keys() - present.keys():
        (folder / f"{version}.json").unlink()
    what = _count(findings) if accepted else "the first documents"
    click.echo(f"{', '.join(present)}: accepted {what}")


def served_documents(folder: Path) -> dict[str, Json]:
    """The document of each version that the service in a folder serves. Raises Refused if it cannot be created."""
    app = load_application(folder, _as_deployed)
    service = service_of(app)
    if "openapi" not in service.features:
        raise ClosedFeature("contract: the feature 'openapi' of this service is closed")
    documents = {version.name: document(app, service, version.name) for version in service.served}
    return {version: json.loads(exactjson.dumps(content)) for version, content in documents.items()}


def _as_deployed(create: Callable[..., Any]) -> Any:
    """The application of `create_app` with AUTH=required or, if the service has no keys, with AUTH=open-to-all."""
    if not signature(create).parameters:
        raise Refused("create_app() in app.py must accept a configuration: create_app(config)")
    try:
        try:
            return create(Config(auth="required"))
        except ConfigError:
            app = create(Config(auth="open-to-all"))
            if "keys" in service_of(app).features:  # it has keys, so that was not the reason
                raise
            return app
    except ConfigError as error:
        raise Refused(str(error)) from None


def _compared(today: datetime, window: int) -> tuple[dict[str, Json], dict[str, Json], list[Finding]]:
    """The served and the accepted documents, and the findings of all versions. Raises Refused."""
    present, accepted = served_documents(Path.cwd()), _accepted(Path.cwd())
    moved = accepted.keys() ^ present.keys()
    findings = []
    for version in sorted(present.keys() - accepted.keys()) + list(accepted):
        documents = accepted.get(version), present.get(version)
        try:
            findings += compare(version, *documents, today=today.date(), window=window, moved=moved)
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            wrong = "is no OpenAPI document that can be compared"  # no such document was ever accepted
            raise Refused(f"{FOLDER}/{version}.json {wrong}: {error}") from None
    return present, accepted, findings


def _accepted(folder: Path) -> dict[str, Json]:
    """The accepted documents by version. Raises Refused for a file that is none."""
    accepted = {}
    for path in sorted((folder / FOLDER).glob("*.json")):
        if is_version(path.stem):
            try:
                read = json.loads(path.read_text(encoding="utf-8"))
            except (ValueError, RecursionError) as error:
                raise Refused(f"{path} is not JSON: {error}") from None
            if not isinstance(read, dict) or "openapi" not in read:
                raise Refused(f"{path} is no OpenAPI document")
            accepted[path.stem] = read
    return accepted


def _count(findings: list[Finding]) -> str:
    return f"{len(findings)} change{'s' * (len(findings) != 1)}"
