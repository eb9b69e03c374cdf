"""The parts of other packages that the engine uses beyond their documented interfaces.

If one of these fails after an upgrade, check the code that docs/architecture.md names before you raise the upper bound
of the version in pyproject.toml.
"""

import inspect
import tomllib
from collections.abc import Callable
from itertools import chain
from typing import Any

import gunicorn
import psycopg
import pytest
from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from apispec.ext.marshmallow.common import make_schema_key
from flask import Flask
from gunicorn.arbiter import Arbiter
from gunicorn.config import Config, make_settings
from gunicorn.workers.ggevent import GeventWorker
from marshmallow import Schema, fields, pre_dump, validates
from packaging.requirements import Requirement
from packaging.version import Version
from werkzeug.routing import Rule

from tests.live import ROOT

SIGNATURES: list[tuple[Callable[..., Any], str]] = [
    # restkeeper/server/settings.py
    (Arbiter.reload, "(self)"),
    (Arbiter.reexec, "(self)"),
    (make_settings, "(ignore=None)"),
    # restkeeper/server/worker.py
    (GeventWorker.handle, "(self, listener, client, addr)"),
    (GeventWorker.handle_exit, "(self, sig, frame)"),
    (GeventWorker.init_process, "(self)"),
    (GeventWorker.load_wsgi, "(self)"),
    (GeventWorker.run, "(self)"),
    # restkeeper/web/application.py
    (Flask.preprocess_request, "(self) -> 'ft.ResponseReturnValue | None'"),
    (Flask.process_response, "(self, response: 'Response') -> 'Response'"),
    (Flask.create_url_adapter, "(self, request: 'Request | None') -> 'MapAdapter | None'"),
    (Rule.compile, "(self) -> 'None'"),
    # restkeeper/storage/postgresql/session.py
    (
        psycopg.Connection.wait,
        "(self, gen: 'PQGen[RV]', interval: 'float' = 0.1, timeout: 'float | None' = None) -> 'RV'",
    ),
    (psycopg.errors.error_from_result, "(result: 'PGresult', encoding: 'str' = 'utf-8') -> 'Error'"),
]


def test_overridden_functions_have_these_signatures() -> None:
    found = [(function, str(inspect.signature(function))) for function, _ in SIGNATURES]
    assert found == SIGNATURES


def test_the_used_attributes_exist() -> None:
    assert gunicorn.version_info[0] == 27
    config = Config()
    assert "keepalive" not in vars(config) and config.settings["keepalive"].get() == config.keepalive


class Things(Schema):
    size = fields.Integer()

    @pre_dump
    def before(self, value: Any, **_: Any) -> Any:
        return value

    @validates("size")
    def check(self, value: int, data_key: str) -> None:
        return None


def test_marshmallow_and_apispec_have_what_schemas_and_documents_use() -> None:
    hooks = Things()._hooks
    assert [name for name, *_ in hooks["pre_dump"]] == ["before"]
    assert [options["field_names"] for *_, options in hooks["validates"]] == [("size",)]
    assert fields.Integer()._serialize(1, None, None) == 1 and fields.Number._deserialize
    spec = APISpec("", "", "3.1.0", [plugin := MarshmallowPlugin()])
    lazy = spec.components
    assert lazy.schemas_lazy == lazy.headers_lazy == lazy.parameters_lazy == {}
    converter: Any = plugin.converter
    converter.refs[make_schema_key(Things())] = "Thing"
    assert converter.resolve_nested_schema(Things()) == {"$ref": "#/components/schemas/Thing"}
    assert converter.schema2jsonschema(Things())["properties"] == {"size": {"type": "integer"}}
    assert [each["name"] for each in converter.schema2parameters(Things(), location="query")] == ["size"]


@pytest.mark.parametrize(
    ("name", "next_version"),
    [
        ("Flask", "3.2"),
        ("Werkzeug", "3.2"),
        ("gunicorn", "28"),
        ("marshmallow", "4.5"),
        ("apispec", "6.11"),
    ],
)
def test_the_version_has_an_upper_bound(name: str, next_version: str) -> None:
    """The next version, whose insides may differ, is not installed by itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (found,) = (each for each in map(Requirement, project["dependencies"]) if each.name == name)
    assert not found.specifier.contains(Version(next_version))


def test_every_dependency_has_two_bounds() -> None:
    """`make release` tests the oldest versions and the newest ones."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for line in (*project["dependencies"], *chain(*project["optional-dependencies"].values())):
        assert {bound.operator for bound in Requirement(line).specifier} == {">=", "<"}, line
