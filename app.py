"""The service: the collections that it stores. `python app.py` serves it for development."""

from pathlib import Path

import resources
import restkeeper
from restkeeper import Application, Config, find_resources


def create_app(config: Config | None = None) -> Application:
    """The WSGI application; configured by the environment, unless by `config`."""
    return restkeeper.create_app(config, find_resources(resources))


if __name__ == "__main__":
    restkeeper.serve(Path(__file__).parent.resolve())
