"""The operator's commands, for the store that `DATABASE_URL` names.

They may run while the service serves that store. An error is one line on stderr.
"""

import click
from flask import Flask
from flask.cli import ScriptInfo

from restkeeper.cli.contract import contract
from restkeeper.cli.copying import copy
from restkeeper.cli.deliver import deliver
from restkeeper.cli.exporting import export_items
from restkeeper.cli.importing import import_items
from restkeeper.cli.keys import keys
from restkeeper.cli.upkeep import backup, migrate, reap, restore


def install(app: Flask) -> None:
    """Add the commands to `flask`."""
    own = (keys, import_items, export_items, backup, restore, copy, migrate, reap, deliver, contract)
    for command in own:
        app.cli.add_command(command)


def is_running() -> bool:
    """Whether a command loads the application."""
    context = click.get_current_context(silent=True)
    return context is not None and context.find_object(ScriptInfo) is not None
