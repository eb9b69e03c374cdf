"""Restkeeper: a service of REST resources. The names here are public; all other modules may change.

Each name is imported when it is first used (PEP 562), so that a server can patch the standard library before.
"""

import sys
from importlib import import_module

TYPE_CHECKING = False  # true for type checkers; the one of `typing` takes a third of the import of this package
if TYPE_CHECKING:
    from restkeeper.app import create_app as create_app
    from restkeeper.config import Config as Config
    from restkeeper.config import ConfigError as ConfigError
    from restkeeper.errors import BadRequest as BadRequest
    from restkeeper.errors import Conflict as Conflict
    from restkeeper.errors import Forbidden as Forbidden
    from restkeeper.errors import NotFound as NotFound
    from restkeeper.errors import Unavailable as Unavailable
    from restkeeper.errors import ValidationFailed as ValidationFailed
    from restkeeper.feature import Feature as Feature
    from restkeeper.feature import Seams as Seams
    from restkeeper.features import FEATURES as FEATURES
    from restkeeper.reading import find_items as find_items
    from restkeeper.reading import read_item as read_item
    from restkeeper.reading import shown as shown
    from restkeeper.resources import find_resources as find_resources
    from restkeeper.resources.call import Caller as Caller
    from restkeeper.resources.changes import Change as Change
    from restkeeper.resources.changes import Once as Once
    from restkeeper.resources.changes import Unit as Unit
    from restkeeper.resources.declaration import Ownership as Ownership
    from restkeeper.resources.evolution import Add as Add
    from restkeeper.resources.evolution import Convert as Convert
    from restkeeper.resources.evolution import Remove as Remove
    from restkeeper.resources.evolution import Rename as Rename
    from restkeeper.resources.functions import Items as Items
    from restkeeper.resources.resource import Resource as Resource
    from restkeeper.resources.step import Step as Step
    from restkeeper.resources.visible import Visible as Visible
    from restkeeper.schemas.fields import Email as Email
    from restkeeper.schemas.fields import IntegerReference as IntegerReference
    from restkeeper.schemas.fields import JsonObject as JsonObject
    from restkeeper.schemas.fields import Lifecycle as Lifecycle
    from restkeeper.schemas.fields import ListOf as ListOf
    from restkeeper.schemas.fields import Money as Money
    from restkeeper.schemas.fields import Owner as Owner
    from restkeeper.schemas.fields import Pattern as Pattern
    from restkeeper.schemas.fields import Reference as Reference
    from restkeeper.schemas.fields import Status as Status
    from restkeeper.schemas.fields import Text as Text
    from restkeeper.schemas.fields import Time as Time
    from restkeeper.schemas.fields import Url as Url
    from restkeeper.schemas.fields import Whole as Whole
    from restkeeper.schemas.item import ItemSchema as ItemSchema
    from restkeeper.server.serve import serve as serve
    from restkeeper.storage.interface import Index as Index
    from restkeeper.testing import LiveServer as LiveServer
    from restkeeper.testing import Space as Space
    from restkeeper.versions import Deprecation as Deprecation
    from restkeeper.versions import Version as Version
    from restkeeper.versions import Versions as Versions
    from restkeeper.web.application import Application as Application
    from restkeeper.web.application import Stage as Stage
    from restkeeper.web.auth import Credentials as Credentials
    from restkeeper.web.auth import caller as caller
    from restkeeper.web.auth import needs as needs
    from restkeeper.web.operations import Contribution as Contribution
    from restkeeper.web.operations import returns as returns
    from restkeeper.web.operations import takes as takes

__version__ = "1.0.0"

_HOMES = {
    "app": ["create_app"],
    "config": ["Config", "ConfigError"],
    "errors": ["BadRequest", "Conflict", "Forbidden", "NotFound", "Unavailable", "ValidationFailed"],
    "feature": ["Feature", "Seams"],
    "features": ["FEATURES"],
    "reading": ["find_items", "read_item", "shown"],
    "resources": ["find_resources"],
    "resources.declaration": ["Ownership"],
    "resources.resource": ["Resource"],
    "resources.call": ["Caller"],
    "resources.changes": ["Change", "Once", "Unit"],
    "resources.functions": ["Items"],
    "resources.evolution": ["Add", "Convert", "Remove", "Rename"],
    "resources.step": ["Step"],
    "resources.visible": ["Visible"],
    "schemas.fields": [
        *("Email", "IntegerReference", "JsonObject", "Lifecycle", "ListOf", "Money", "Owner", "Pattern", "Reference"),
        *("Status", "Text", "Time", "Url", "Whole"),
    ],
    "schemas.item": ["ItemSchema"],
    "server.serve": ["serve"],
    "storage.interface": ["Index"],
    "testing": ["LiveServer", "Space"],
    "versions": ["Deprecation", "Version", "Versions"],
    "web.application": ["Application", "Stage"],
    "web.auth": ["Credentials", "caller", "needs"],
    "web.operations": ["Contribution", "returns", "takes"],
}
_HOME_OF = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if home := _HOME_OF.get(name):
        return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]


_show_traceback = sys.excepthook


def _show_mistake(kind: type[BaseException], error: BaseException, entries: object) -> None:
    """Print a mistake as its line wherever it ends the program: `python app.py`, `flask` and `restkeeper`."""
    if line := import_module("restkeeper.mistakes").mistake_in(error):
        print(f"restkeeper: {line}", file=sys.stderr)
    else:
        _show_traceback(kind, error, error.__traceback__)


sys.excepthook = _show_mistake
