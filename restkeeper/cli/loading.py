"""Loading the service of a folder: its app.py, and the modules beside it."""

import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from restkeeper.mistakes import load_module
from restkeeper.web.application import Application

FILE = "app.py"
SUFFIX = ".json"  # of files that are served: `restkeeper db.json`
INSTALLED = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
ENGINE = str(Path(__file__).parent.parent.parent)  # the folder that the engine is imported from


def is_file(name: str) -> bool:
    """Whether this is the name of a file to be served."""
    return name.lower().endswith(SUFFIX) or Path(name).is_file()


def load_application(folder: Path, call: Callable[..., Any] | None = None) -> Application:
    """The application of `create_app()` in app.py of `folder`; exits with one line if that is not a Restkeeper service.

    `call` calls that function, if it needs arguments. The folder's other modules can then be imported, but hide none of
    the standard library.
    """
    file = folder / FILE
    if not file.is_file():
        sys.exit(f"restkeeper: {file} does not exist; `restkeeper new NAME` makes a service to start from")
    if ENGINE in sys.path and ENGINE not in INSTALLED and ENGINE != str(folder):
        sys.path.remove(ENGINE)  # a checkout: its top folder has a service, too
        sys.path.append(ENGINE)
    if str(folder) not in sys.path:  # after the standard library, before installed packages
        index = next((index for index, path in enumerate(sys.path) if path in INSTALLED), len(sys.path))
        sys.path.insert(index, str(folder))
    create = getattr(load_module(file), "create_app", None)
    if not callable(create):
        sys.exit(f"restkeeper: {file} has no create_app(), so it is no Restkeeper service")
    if not isinstance(app := call(create) if call else create(), Application):
        sys.exit(f"restkeeper: {file} must return a restkeeper.Application from create_app(), not {type(app).__name__}")
    return app


def python_path() -> str:
    """PYTHONPATH for a program that imports this engine: the present value, preceded by a checkout's folder."""
    checkout = None if ENGINE in INSTALLED else ENGINE
    return os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH")]))
