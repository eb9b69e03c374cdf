"""Loads the service of a folder, for a command or a server."""

import os
import sys
import sysconfig
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from restkeeper.web.application import Application

FILE = "app.py"
INSTALLED = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
ENGINE = str(Path(__file__).parent.parent.parent)  # the folder that the engine is imported from


def _by_environment(create: Callable[..., Any]) -> Any:
    return create()


def load_application(folder: Path, call: Callable[[Callable[..., Any]], Any] = _by_environment) -> Application:
    """The application of `create_app()` in app.py of `folder`; exits with one line if that is not a Restkeeper service.

    `call` calls that function, with arguments if it needs some. The folder's other modules can then be imported, but
    hide none of the standard library.
    """
    file = folder / FILE
    if not file.is_file():
        sys.exit(f"restkeeper: {file} does not exist; `restkeeper new NAME` makes a service to start from")
    _let_import_from(folder)
    spec = spec_from_file_location("app", file)
    assert spec and spec.loader  # noqa: S101 - it is a file that ends in .py
    module = sys.modules["app"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    create = getattr(module, "create_app", None)
    if not callable(create):
        sys.exit(f"restkeeper: {file} has no create_app(), so it is no Restkeeper service")
    if not isinstance(made := call(create), Application):
        sys.exit(
            f"restkeeper: {file} must return a restkeeper.Application from create_app(), not {type(made).__name__}"
        )
    return made


def python_path() -> str:
    """PYTHONPATH for a program that imports this engine: the present value, preceded by a checkout's folder."""
    checkout = None if ENGINE in INSTALLED else ENGINE
    return os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH")]))


def _let_import_from(folder: Path) -> None:
    """Put the folder after the standard library, before installed packages and before a checkout of the engine."""
    if ENGINE in sys.path and ENGINE not in INSTALLED and ENGINE != str(folder):
        sys.path.remove(ENGINE)  # its top folder has a service, too
        sys.path.append(ENGINE)
    if str(folder) not in sys.path:
        place = next((place for place, path in enumerate(sys.path) if path in INSTALLED), len(sys.path))
        sys.path.insert(place, str(folder))
