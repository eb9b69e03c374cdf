"""The table of settings in docs/configuration.md, made from `Config`: `python docs/configuration.py`."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from restkeeper.config import Config, settings  # noqa: E402

PAGE = ROOT / "docs" / "configuration.md"
MARKED = re.compile(r"(?<=<!-- settings -->\n).*?(?=<!-- end of settings -->)", re.S)


def table() -> str:
    """The settings as Markdown, with the defaults of a service."""
    rows, serving = ["| variable | default | meaning |", "|---|---|---|"], Config.from_env({})
    for setting in settings():
        value = getattr(serving, setting.name)
        default = f"`{int(value) if isinstance(value, bool) else value}`" if value not in ("", ()) else ""
        rows.append(f"| `{setting.name.upper()}` | {default} | {setting.metadata['about']} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """The page with the table as it is now."""
    return MARKED.sub(lambda _: table(), PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
