"""The operator's commands, on the store that `DATABASE_URL` names.

They may run while the service serves that store. What goes wrong is told in one line on stderr.
"""

from flask import Flask

from cli.deliver import deliver
from cli.items import export_items, import_items
from cli.keys import keys
from cli.upkeep import backup, migrate, reap


def install(app: Flask) -> None:
    """Add the commands to `flask`."""
    for command in (keys, import_items, export_items, backup, migrate, reap, deliver):
        app.cli.add_command(command)
