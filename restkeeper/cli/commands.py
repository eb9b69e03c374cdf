"""The commands that work with a service: of `restkeeper` and of `flask`. Each is imported when it is called."""

from importlib import import_module

import click
from flask import Flask
from flask.cli import AppGroup, ScriptInfo

COMMANDS = {
    "keys": "restkeeper.cli.keys:keys",
    "import": "restkeeper.cli.importing:import_items",
    "export": "restkeeper.cli.exporting:export_items",
    "backup": "restkeeper.cli.upkeep:backup",
    "restore": "restkeeper.cli.upkeep:restore",
    "copy": "restkeeper.cli.upkeep:copy",
    "migrate": "restkeeper.cli.upkeep:migrate",
    "rename": "restkeeper.cli.renaming:rename",
    "forget": "restkeeper.cli.renaming:forget",
    "reap": "restkeeper.cli.running:reap",
    "deliver": "restkeeper.cli.running:deliver",
    "contract": "restkeeper.cli.contract:contract",
    "shell": "restkeeper.cli.shell:shell",
    "run": "restkeeper.cli.shell:run",
}


def load_command(name: str) -> click.Command:
    """The command with this "module:attribute"."""
    module, _, attribute = name.partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    return command


class Commands(AppGroup):
    """The commands of `flask`: those that a service adds, and ours, each of which is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        return command or (load_command(COMMANDS[cmd_name]) if cmd_name in COMMANDS else None)


def add_commands(app: Flask) -> None:
    """Add the commands to `flask`."""
    app.cli = Commands(app.name)
    app.shell_context_processor(lambda: import_module("restkeeper.cli.shell").names_of(app))


def is_running() -> bool:
    """Whether a command loads the application."""
    context = click.get_current_context(silent=True)
    return context is not None and context.find_object(ScriptInfo) is not None
