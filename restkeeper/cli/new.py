"""`restkeeper new`: a new service, as a copy of the one in this project."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from shlex import quote

import click

import restkeeper
from restkeeper.command import Command

SKELETON = Path(__file__).parent / "skeleton"
BOUNDS = ("Flask>=3.1.3,<3.2", "marshmallow>=4.4,<4.5")  # what a service imports itself, as in pyproject.toml
EXTRAS = "[postgresql,redis,metrics]"
SERVICE = ("app.py", "gunicorn.conf.py", "Procfile", "reports.py", "resources", "schemas", "storage", "versions.py")


@click.command("new", cls=Command)
@click.argument("name", type=click.Path(path_type=Path))
@click.option(
    "--engine",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    help="The wheel of Restkeeper to copy into the service and to require, instead of the published release.",
)
def new(name: Path, engine: Path | None) -> None:
    """Write a service to the new folder NAME.

    It has the collections products and users, a rule, an action and a report, tests, and for a deployment a Procfile
    and the settings of gunicorn.
    """
    write_service(name, engine)
    start = "make run" if engine else "restkeeper serve"  # make installs the engine, from the wheel
    click.echo(f"{name} is a service now. Next: cd {quote(str(name))} && {start}")


def write_service(name: Path, engine: Path | None, change: Callable[[Path], None] = lambda _: None) -> None:
    """Write a service to a new folder, which `change` then changes. Raises ClickException, and leaves nothing then."""
    if engine and engine.suffix != ".whl":
        raise click.ClickException(f"{engine} is no wheel; `pip wheel --no-deps -w dist .` in a checkout makes one")
    if name.exists():
        raise click.ClickException(f"{name} exists; choose another name, or delete it")
    try:
        leave_out = shutil.ignore_patterns("__pycache__", "service")
        shutil.copytree(SKELETON, name, ignore=leave_out)
        (name / "gitignore").rename(name / ".gitignore")
        packed = SKELETON / "service"  # in a wheel; a checkout has the service in its top folder
        source = packed if packed.is_dir() else Path(restkeeper.__file__).parent.parent
        for entry in SERVICE:
            if (source / entry).is_dir():
                shutil.copytree(source / entry, name / entry, ignore=leave_out)
            else:
                shutil.copy(source / entry, name / entry)
        for file, former, new in (("README.md", "NAME", name.name), ("app.py", '"Shop"', json.dumps(name.name))):
            text = (name / file).read_text(encoding="utf-8")
            (name / file).write_text(text.replace(former, new), encoding="utf-8")
        required = "restkeeper{}==" + restkeeper.__version__
        if engine:
            (name / "wheels").mkdir()
            shutil.copy(engine, name / "wheels")
            required = f"./wheels/{engine.name}{{}}"  # relative to the folder that pip is called in
        lines = [
            required.format(""),
            f"# With PostgreSQL, REDIS_URL, METRICS_TOKEN: {required.format(EXTRAS)}",
            *BOUNDS,
        ]
        (name / "requirements.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
        change(name)
    except BaseException:
        shutil.rmtree(name, ignore_errors=True)  # so that it can be tried again
        raise
