"""The commands that work with a service, the kernel's and those of features: of `restkeeper` and of `flask`."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import click
from flask import Flask
from flask.cli import AppGroup, ScriptInfo

from restkeeper.config import ConfigError
from restkeeper.feature import Feature, loaded

# By their names: "module:command", and what it does.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "migrate": ("restkeeper.cli.upkeep:migrate", "Convert the items of former revisions."),
    "reap": ("restkeeper.cli.running:reap", "Delete what has expired."),
    "shell": ("restkeeper.cli.shell:shell", "Open a Python shell with `items`, `app` and `client`."),
    "run": ("restkeeper.cli.shell:run", "Run a Python script with `items`, `app` and `client`."),
}


class ClosedFeature(click.ClickException):
    """The command is of a feature that the service has closed."""

    exit_code = 2


class LazyCommand(click.Command):
    """A command that is imported when it is called: for a list of commands, `about` is enough."""

    def __init__(self, name: str, path: str, about: str) -> None:
        super().__init__(name, short_help=about)
        self._path = path

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """The context of the imported command."""
        command: click.Command = loaded(self._path)
        return command.make_context(*arguments, **options)


class Commands(AppGroup):
    """The commands of `flask`: those that a service adds, the kernel's, and those of the `opened` features.

    Raises ConfigError for two with one name, also if one of them is of a closed feature.
    """

    def __init__(self, name: str, opened: Iterable[Feature], closed: Iterable[Feature]) -> None:
        super().__init__(name)
        self._commands, self._closed = dict(COMMANDS), {name: each.name for each in closed for name in each.cli}
        for feature in opened:
            if twice := (self._commands.keys() | self._closed.keys()) & feature.cli.keys():
                raise ConfigError(f"features: {feature.name!r}: the command {min(twice)!r} is there already")
            self._commands |= feature.cli

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command. Raises ClosedFeature."""
        if command := super().get_command(ctx, cmd_name):
            return command
        if found := self._commands.get(cmd_name):
            return LazyCommand(cmd_name, *found)
        if feature := self._closed.get(cmd_name):
            raise ClosedFeature(f"{cmd_name}: the feature {feature!r} of this service is closed")
        return None


def add_commands(app: Flask, opened: Iterable[Feature], closed: Iterable[Feature]) -> None:
    """Add the commands to `flask`. Raises ConfigError."""
    app.cli = Commands(app.name, opened, closed)
    app.shell_context_processor(lambda: import_module("restkeeper.cli.shell").names_of(app))


def is_running() -> bool:
    """Whether a command loads the application."""
    context = click.get_current_context(silent=True)
    return context is not None and context.find_object(ScriptInfo) is not None
