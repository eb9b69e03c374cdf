"""The test harness: spaces, each the whole service of one test, and the documents by which tests control them.

A space is served at a port of its own; a request that comes to that has its id in the environment of WSGI. What
controls it is at /__harness__/spaces/ID of the server's own port, whose other paths are those of one more space, or
of none. All of it is for stores in memory, and for this machine unless one says otherwise (`Config.harness`).
"""

from collections.abc import Callable
from typing import Any

from flask import Request, Response
from werkzeug.exceptions import MisdirectedRequest
from werkzeug.http import http_date
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from restkeeper.config import Config
from restkeeper.errors import Conflict, NotFound
from restkeeper.features.harness.control import Control
from restkeeper.features.harness.ports import Ports
from restkeeper.features.harness.spaces import AT_ONCE, ROOT, SPACE, Instance, Space, Spaces
from restkeeper.web.application import Application, Stage
from restkeeper.web.edge import refuse_other_sites

CONTROL = "/__harness__"
MOST_BODY = 64 * 1024 * 1024  # bytes of the data of a seed, and
MOST_VALUES = 200_000  # values in these data: objects, arrays and their members
_REFUSAL = "restkeeper.refusal"  # in the WSGI environment: the problem that is the response


def application_of(make: Callable[..., Application], create: Callable[..., Application], config: Config) -> Application:
    """The application that serves spaces; `make` returns the one of a service, with the clock that it is given.

    That of the documents, which control them, is made by `create`, which is `create_app`.
    """

    def parts() -> int:
        """How many routes and hooks of Flask there are."""
        hooks: list[Any] = [*app.before_request_funcs.values(), *app.after_request_funcs.values()]
        return len([*app.url_map.iter_rules()]) + sum(map(len, hooks))

    def require_whole() -> None:
        if parts() != whole:
            raise Conflict("app.py adds to what create_app returned, but not to spaces: give it blueprints=[…]")

    root = Instance(make)
    app = root.app
    spaces, whole = Spaces(make, Ports(config), require_whole), parts()
    if config.harness == "1":
        spaces.root = Space(ROOT, spaces, None, root, webhooks=AT_ONCE if config.webhook_worker == "inside" else "")
    auth = "open-to-all" if config.harness == "remote" else "open"
    bounds = Config(max_body=MOST_BODY, max_nodes=MOST_VALUES, auth=auth, trusted_hosts=config.trusted_hosts)
    control = create(
        bounds,
        [],
        features={"cors", "health", "openapi", "pages"},
        blueprints=[Control(spaces).blueprint()],
        name="Restkeeper harness",
    )
    if config.harness == "remote":
        refuse_other_sites(control, config.cors_origins, local_only=False)
    control.answered.add(_date)
    control.checking.add(_refuse, stage=Stage.EDGE)
    below = DispatcherMiddleware(control, {CONTROL: control})

    def dispatch(environ: Any, start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        try:
            if id := environ.get(SPACE):
                return spaces.find(id)(environ, start_response)
            if f"{path}/".startswith(f"{CONTROL}/"):
                return below(environ, start_response)
            if spaces.root:
                return spaces.root(environ, start_response)
            if path != "/healthz":
                raise MisdirectedRequest(
                    f"no service is here: POST {CONTROL}/spaces makes one for a test, at the `url` of the response"
                )
        except (NotFound, MisdirectedRequest) as problem:
            environ |= {_REFUSAL: problem}
        return control(environ, start_response)

    app.wsgi_app = dispatch  # type: ignore[method-assign]
    return app


def _date(request: Request, response: Response) -> None:
    response.headers["Date"] = http_date()


def _refuse(request: Request) -> None:
    if problem := request.environ.get(_REFUSAL):
        raise problem
