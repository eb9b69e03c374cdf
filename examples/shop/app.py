"""The service: its collections, reports and versions. `python app.py` serves it for development."""

from pathlib import Path

import resources
import restkeeper
from reports import reports
from restkeeper import Application, Config, find_resources
from storage import STORES
from versions import VERSIONS


def create_app(config: Config | None = None) -> Application:
    """The WSGI application, configured by `config` or else by the environment."""
    found = find_resources(resources)
    return restkeeper.create_app(config, found, name="shop", blueprints=[reports], versions=VERSIONS, stores=STORES)


if __name__ == "__main__":
    restkeeper.serve(Path(__file__).parent.resolve())
