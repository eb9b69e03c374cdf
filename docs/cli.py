"""docs/cli.md, made from the help of the commands: `python docs/cli.py`."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from restkeeper.__main__ import COMMANDS, main  # noqa: E402
from restkeeper.feature import loaded  # noqa: E402

PAGE = ROOT / "docs" / "cli.md"
MARKED = re.compile(r"(?<=<!-- commands -->\n).*(?=<!-- end of commands -->)", re.S)
WIDTH = 88  # columns: a block of the site has room for them


def sections(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[str]:
    """The help of a command, below its name, and then that of its own commands."""
    context = click.Context(command, parent, path.rpartition(" ")[2], max_content_width=WIDTH, terminal_width=WIDTH)
    level = "#" * min(path.count(" ") + 1, 3)
    yield f"{level} {path}\n\n```log\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group) and path != "restkeeper":
        for name in command.list_commands(context):
            yield from sections(command.commands[name], f"{path} {name}", context)


def page() -> str:
    """The page with the help as it is now."""
    first, *_ = sections(main, "restkeeper")
    context = click.Context(main, info_name="restkeeper")
    others = (
        section
        for name, (path, _) in COMMANDS.items()
        for section in sections(loaded(path), f"restkeeper {name}", context)
    )
    text = "\n".join((first.partition("\n\n")[2], *others))
    return MARKED.sub(lambda _: text, PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
