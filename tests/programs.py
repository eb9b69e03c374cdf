"""Programs that follow each other on one store, each with its own declaration of the notes."""

from pathlib import Path
from typing import Any

from click.testing import Result
from flask.testing import FlaskClient

from restkeeper import Config, ItemSchema, Resource, Step, Version, Versions
from restkeeper.web.application import Application
from tests.shop import create_app


def resource(definitions: dict[str, Any], *steps: Step, **options: Any) -> Resource:
    """Notes with these fields; with steps it is their second revision."""
    options |= {"upgrades": {2: list(steps)}} if steps else {}
    return Resource("notes", "note", ItemSchema.from_dict(definitions, name="Notes"), **options)  # type: ignore[arg-type]


def two_versions(collection: str = "notes", unversioned: str = "v2") -> Versions:
    """v1 shows the first revision of a collection, and v2 the newest one."""
    return Versions(Version("v1", successor="v2", revisions={collection: 1}), Version("v2"), unversioned=unversioned)


class Programs:
    """They have the store of a folder, and some other collections; those with steps can have versions."""

    def __init__(self, folder: Path, *others: Resource, versions: Versions | None = None, **settings: Any) -> None:
        self.url = f"sqlite:///{folder}/store.db"
        self._config = Config(database_url=self.url, **settings)
        self._others, self._versions = others, versions

    def create(self, *declared: Resource, **options: Any) -> Application:
        if self._versions and any(each.upgrades for each in declared):
            options = {"versions": self._versions, **options}
        return create_app(self._config, [*declared, *self._others], **options)

    def serve(self, *declared: Resource, **options: Any) -> FlaskClient:
        return self.create(*declared, **options).test_client()

    def run(self, declared: Resource, *arguments: str, **options: Any) -> Result:
        """What a command of the program says."""
        app = self.create(declared, serves=False, **options)
        done = app.test_cli_runner().invoke(args=arguments)
        app.extensions["restkeeper"].store.close()
        return done

    def upgrade(self, declared: Resource, *arguments: str, **options: Any) -> FlaskClient:
        """Migrate, and serve."""
        done = self.run(declared, "migrate", *arguments, **options)
        assert done.exit_code == 0, done.output
        return self.serve(declared, **options)

    def start(self, declared: Resource, *others: Resource, **options: Any) -> FlaskClient:
        """Serve, after a `migrate` if there are steps, whatever that says."""
        if declared.upgrades:
            self.create(declared, *others, serves=False, **options).test_cli_runner().invoke(args=["migrate"])
        return self.serve(declared, *others, **options)
