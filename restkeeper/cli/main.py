"""The command `restkeeper`: it creates, serves and maintains the service in the current folder.

A command is imported when it is called (click's "lazily loading subcommands"): a server must patch the standard library
before any other import, and `restkeeper new` starts faster.
"""

from importlib import import_module
from pathlib import Path

import click
from flask.cli import ScriptInfo

import restkeeper
from restkeeper.cli.loading import load_application

COMMANDS = {
    "new": "restkeeper.cli.new:new",
    "serve": "restkeeper.cli.serve:serve_folder",
    "keys": "restkeeper.cli.keys:keys",
    "import": "restkeeper.cli.importing:import_items",
    "export": "restkeeper.cli.exporting:export_items",
    "backup": "restkeeper.cli.upkeep:backup",
    "restore": "restkeeper.cli.upkeep:restore",
    "copy": "restkeeper.cli.copying:copy",
    "migrate": "restkeeper.cli.upkeep:migrate",
    "reap": "restkeeper.cli.upkeep:reap",
    "deliver": "restkeeper.cli.deliver:deliver",
    "contract": "restkeeper.cli.contract:contract",
}
WITHOUT_SERVICE = {"new", "serve", "contract", "copy"}  # they need none, or load it themselves


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=_Commands)
@click.version_option(restkeeper.__version__, message="restkeeper %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Create, serve and maintain a service of REST resources: the app.py of the present folder."""
    if context.invoked_subcommand not in WITHOUT_SERVICE:
        context.obj = ScriptInfo(create_app=lambda: load_application(Path.cwd()))
