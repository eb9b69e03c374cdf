"""The command `restkeeper`, also `python -m restkeeper`: it creates, serves and maintains a service.

A command is imported when it is called (click's "lazily loading subcommands"): a server must patch the standard library
before any other import, and `restkeeper new` starts faster.
"""

import sys
from pathlib import Path

import click
from flask.cli import ScriptInfo

import restkeeper
from restkeeper.cli.commands import COMMANDS as COMMANDS_OF_SERVICE
from restkeeper.cli.commands import load_command
from restkeeper.cli.loading import is_file, load_application

COMMANDS = {
    "new": "restkeeper.cli.new:new",
    "serve": "restkeeper.server.serve:serve_folder",
    "harness": "restkeeper.server.serve:serve_harness",
    "FILE": "restkeeper.server.serve:serve_file",
    "schema": "restkeeper.cli.files:schema",
    "eject": "restkeeper.cli.files:eject",
    **COMMANDS_OF_SERVICE,
}
WITH_SERVICE = COMMANDS_OF_SERVICE.keys() - {"contract", "copy"}  # these two load what they need themselves


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

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
    if context.invoked_subcommand in WITH_SERVICE:
        context.obj = ScriptInfo(create_app=lambda: load_application(Path.cwd()))


if __name__ == "__main__":
    # gunicorn starts this file again on USR2; parts of the engine must not be imported as top-level modules then.
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]
    main(prog_name="restkeeper")
