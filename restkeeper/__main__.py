"""The command `restkeeper`, also `python -m restkeeper`: it creates, serves and maintains a service.

A command is imported when it is called (click's "lazily loading subcommands"): a server must patch the standard library
before any other import, and `restkeeper new` starts faster.
"""

import sys
from functools import partial
from pathlib import Path

import click
from flask.cli import ScriptInfo

import restkeeper
from restkeeper.cli.commands import COMMANDS as COMMANDS_OF_SERVICE
from restkeeper.cli.commands import LazyCommand
from restkeeper.cli.loading import FILE, is_file, load_application
from restkeeper.features import FEATURES
from restkeeper.web.application import Application

ALONE = {"contract", "copy"}  # these commands of the service load what they need themselves
WITH_SERVICE = {**COMMANDS_OF_SERVICE, **{name: each for feature in FEATURES for name, each in feature.cli.items()}}
COMMANDS = {
    "new": ("restkeeper.cli.new:new", "Write a service to the new folder NAME."),
    "serve": ("restkeeper.server.serve:serve_folder", "Serve the service in FOLDER, by default the present folder."),
    "harness": ("restkeeper.server.serve:serve_harness", "Serve the test harness of the service in FOLDER."),
    "FILE": ("restkeeper.server.serve:serve_file", "Serve a JSON FILE: its arrays are collections."),
    "schema": ("restkeeper.features.files.command:schema", "Print the JSON Schema of the values of a JSON FILE."),
    "eject": ("restkeeper.features.files.command:eject", "Write the service that a JSON FILE has become."),
    "docs": ("restkeeper.cli.docs:docs", "Show the documentation of this version in a browser."),
    **WITH_SERVICE,
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command; another name is that of a command of the service in the present folder, or of its features."""
        if found := COMMANDS.get(cmd_name):
            return LazyCommand(cmd_name, *found)
        if ctx.resilient_parsing or not Path(FILE).is_file():
            return None
        ctx.obj = script = ScriptInfo(create_app=lambda: load_application(Path.cwd()))
        return script.load_app().cli.get_command(ctx, cmd_name)

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
    if (name := context.invoked_subcommand) in WITH_SERVICE.keys() - ALONE:
        context.obj = ScriptInfo(create_app=partial(_load, context, name))


def _load(context: click.Context, name: str) -> Application:
    """The service of the present folder. Raises ClosedFeature if the command with this name is of one."""
    app = load_application(Path.cwd())
    app.cli.get_command(context, name)
    return app


if __name__ == "__main__":
    # gunicorn starts this file again on USR2; parts of the engine must not be imported as top-level modules then.
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]
    main(prog_name="restkeeper")
