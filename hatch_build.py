"""The build of a package takes the documentation along, if `make docs` has built it before."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACES = {"wheel": "restkeeper/site.zip", "sdist": "build/site.zip"}


class Documentation(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Include the site; a wheel that is made of the source archive finds it there."""
        site = Path(self.root, "build", "site.zip")
        if site.is_file() and version != "editable":
            build_data["force_include"][str(site)] = PLACES[self.target_name]
