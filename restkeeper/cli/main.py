"""The command `restkeeper`: it creates, serves and maintains the service in the current folder.

A command is imported when it is called (click's "lazily loading subcommands"): a server must patch the standard library
before any other import, and `restkeeper new` starts faster.
"""

import os
import sys
import sysconfig
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from flask import Flask
from flask.cli import ScriptInfo

import restkeeper
from restkeeper.mistakes import load_module
from restkeeper.web.application import Application

COMMANDS = {
    "new": "restkeeper.cli.new:new",
    "serve": "restkeeper.cli.serve:serve_folder",
    "harness": "restkeeper.cli.serve:serve_harness",
    "FILE": "restkeeper.cli.serve:serve_file",
    "schema": "restkeeper.cli.files:schema",
    "eject": "restkeeper.cli.files:eject",
    "keys": "restkeeper.cli.keys:keys",
    "import": "restkeeper.cli.importing:import_items",
    "export": "restkeeper.cli.exporting:export_items",
    "backup": "restkeeper.cli.upkeep:backup",
    "restore": "restkeeper.cli.upkeep:restore",
    "copy": "restkeeper.cli.upkeep:copy",
    "migrate": "restkeeper.cli.upkeep:migrate",
    "reap": "restkeeper.cli.running:reap",
    "deliver": "restkeeper.cli.running:deliver",
    "contract": "restkeeper.cli.contract:contract",
}
NO_COMMANDS = {"new", "serve", "harness", "FILE", "schema", "eject"}  # of `flask`
WITHOUT_SERVICE = NO_COMMANDS | {"contract", "copy"}  # they need none, or load it themselves
FILE = "app.py"
SUFFIXES = (".json", ".json5", ".jsonc", ".yaml", ".yml")  # of files that are served: `restkeeper db.json`
INSTALLED = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
ENGINE = str(Path(__file__).parent.parent.parent)  # the folder that the engine is imported from


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A file, with options before or after it, is served by a command of its own."""
        if args and args[0] not in COMMANDS and any(map(is_file, args if args[0][:1] == "-" else args[:1])):
            args = ["FILE", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Commands)
@click.version_option(restkeeper.__version__, message="restkeeper %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Create, serve and maintain a service of REST resources: the app.py of the present folder.

    `restkeeper db.json` serves a JSON file.
    """
    if context.invoked_subcommand not in WITHOUT_SERVICE:
        context.obj = ScriptInfo(create_app=lambda: load_application(Path.cwd()))


def add_commands(app: Flask) -> None:
    """Add the commands that work with a service to `flask`."""
    for name in COMMANDS.keys() - NO_COMMANDS:
        app.cli.add_command(_command(name))


def is_running() -> bool:
    """Whether a command loads the application."""
    context = click.get_current_context(silent=True)
    return context is not None and context.find_object(ScriptInfo) is not None


def is_file(name: str) -> bool:
    """Whether this is the name of a file to be served."""
    return name.lower().endswith(SUFFIXES) or Path(name).is_file()


def application_of_file(
    file: Path, options: Mapping[str, Any] = MappingProxyType({}), *, config: Any = None, serves: bool = False
) -> Application:
    """The application of a file; exits with one line if there can be none. See `features.files.application_of`."""
    files, create = import_module("restkeeper.features.files"), import_module("restkeeper.app").create_app
    made: Application = files.application_of(create, file, files.FileOptions(**options), config=config, serves=serves)
    return made


def load_application(folder: Path, call: Callable[..., Any] | None = None) -> Application:
    """The application of `create_app()` in app.py of `folder`; exits with one line if that is not a Restkeeper service.

    `call` calls that function, if it needs arguments. The folder's other modules can then be imported, but hide none of
    the standard library.
    """
    file = folder / FILE
    if not file.is_file():
        sys.exit(f"restkeeper: {file} does not exist; `restkeeper new NAME` makes a service to start from")
    if ENGINE in sys.path and ENGINE not in INSTALLED and ENGINE != str(folder):
        sys.path.remove(ENGINE)  # a checkout: its top folder has a service, too
        sys.path.append(ENGINE)
    if str(folder) not in sys.path:  # after the standard library, before installed packages
        index = next((index for index, path in enumerate(sys.path) if path in INSTALLED), len(sys.path))
        sys.path.insert(index, str(folder))
    create = getattr(load_module(file), "create_app", None)
    if not callable(create):
        sys.exit(f"restkeeper: {file} has no create_app(), so it is no Restkeeper service")
    if not isinstance(made := call(create) if call else create(), Application):
        sys.exit(
            f"restkeeper: {file} must return a restkeeper.Application from create_app(), not {type(made).__name__}"
        )
    return made


def python_path() -> str:
    """PYTHONPATH for a program that imports this engine: the present value, preceded by a checkout's folder."""
    checkout = None if ENGINE in INSTALLED else ENGINE
    return os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH")]))


def _command(name: str) -> click.Command:
    module, _, attribute = COMMANDS[name].partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    return command
