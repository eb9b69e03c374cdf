"""The test harness: spaces, each the whole service of one test, and the documents by which tests control them.

A space is served below /__spaces__/ID, what controls it is at /__harness__/spaces/ID, and everything else is the
service as it always is. All of it is for this machine, and for stores in memory (`Config.harness`).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from restkeeper.errors import Conflict, NotFound
from restkeeper.features.harness.control import Control
from restkeeper.features.harness.spaces import PREFIX, Spaces
from restkeeper.web.application import Application

CONTROL = "/__harness__"
MOST_BODY = 64 * 1024 * 1024  # bytes of what a space is seeded with, and
MOST_VALUES = 200_000  # values in it: objects, arrays and what is in them


def install(app: Application, make: Callable[..., Application], make_control: Callable[..., Application]) -> None:
    """Serve spaces beside `app`; `make` returns another such application with a clock of its own."""

    def parts() -> int:
        """How many routes and hooks of Flask there are."""
        hooks: list[Any] = [*app.before_request_funcs.values(), *app.after_request_funcs.values()]
        return len([*app.url_map.iter_rules()]) + sum(map(len, hooks))

    def require_whole() -> None:
        if parts() != whole:
            raise Conflict(
                "app.py adds to the application that create_app returned, and a space is without that: give routes and "
                "hooks by create_app(…, blueprints=[…])"
            )

    spaces, whole = Spaces(make, require_whole), parts()
    control, service = make_control(blueprints=[Control(spaces).blueprint()], name="Restkeeper harness"), app.wsgi_app

    def dispatch(environ: Any, start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        if path.startswith(PREFIX):
            with suppress(NotFound):  # there is none, or it was dropped at this moment
                space = spaces.find(path.removeprefix(PREFIX).partition("/")[0])
                return space(_below(environ, f"{PREFIX}{space.id}"), start_response)
        if f"{path}/".startswith(f"{CONTROL}/"):
            return control(_below(environ, CONTROL), start_response)
        return service(environ, start_response)

    app.wsgi_app = dispatch  # type: ignore[method-assign]


def _below(environ: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The environment of an application that is mounted there (PEP 3333)."""
    path = environ["PATH_INFO"].removeprefix(prefix) or "/"
    return {**environ, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + prefix, "PATH_INFO": path}
