"""The environment of a server, which is read before the standard library is patched."""

import os
import re
import sys

from restkeeper.cli.misspelt import misspelt_settings
from restkeeper.config import Config, ConfigError


def read_config() -> Config:
    """The configuration of the environment; exits with one line if it is not valid."""
    for line in misspelt_settings(os.environ):
        print(f"restkeeper: {line}", file=sys.stderr)
    path = os.environ.get("SCRIPT_NAME", "")
    if not re.fullmatch(r"(/[^/?#\s]+)*/?", path):
        sys.exit(f"restkeeper: SCRIPT_NAME={path!r}: must be a path such as /shop")
    try:
        return Config.from_env()
    except ConfigError as error:
        sys.exit(f"restkeeper: {error}")
