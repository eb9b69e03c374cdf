"""What an import of the package loads: upper bounds, each in a new process."""

import subprocess
import sys

from bench.sizes import CORE
from tests.live import ROOT


def loaded_by(code: str) -> set[str]:
    """The names of all modules that a process has after this code."""
    names = "\nimport sys\nprint('loaded', *sys.modules)"
    shown = subprocess.run(  # noqa: S603 - our own program
        (sys.executable, "-c", code + names), cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(shown.stdout.rpartition("loaded ")[2].split())


def test_the_package_alone_loads_none_of_its_modules() -> None:
    """A server patches the standard library first, and a program that only asks for the version starts at once."""
    found = loaded_by("import restkeeper")
    assert {name for name in found if name.partition(".")[0] in {"restkeeper", "flask", "typing"}} == {"restkeeper"}


def test_a_test_needs_no_gevent() -> None:
    """Only the server's process has it; that of the tests may have another loop."""
    found = loaded_by("from restkeeper import LiveServer")
    assert "restkeeper.testing.server" in found
    assert not {name.partition(".")[0] for name in found} & {"gevent", "greenlet", "gunicorn", "psycopg"}


def test_a_service_loads_what_it_uses() -> None:
    """Not the libraries of what is not configured, nor of what no request has asked for."""
    found = loaded_by("from restkeeper import Config, create_app\ncreate_app(Config(), [])")
    libraries = {"cryptography", "fcntl", "flask_limiter", "h11", "jwt", "limits", "prometheus_client", "redis"}
    assert not {name.partition(".")[0] for name in found} & {*libraries, "asyncio", "gevent", "gunicorn"}
    assert len([name for name in found if name.partition(".")[0] == "restkeeper"]) <= 112


def test_a_service_without_features() -> None:
    found = {name for name in loaded_by(CORE) if name.partition(".")[0] == "restkeeper"}
    assert "restkeeper.web.handlers" in found
    assert len(found) <= 84
    assert not [name for name in found if name.startswith("restkeeper.features.")]
    assert not {"restkeeper.resources.references", "restkeeper.resources.embedding"} & found
