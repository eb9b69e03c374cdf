"""The index and a page for each problem type: HTML for people, JSON for programs."""

from base64 import b64encode
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, render_template, request

from restkeeper import errors, exactjson
from restkeeper.errors import NotFound, PreconditionFailed, Problem, shortened
from restkeeper.feature import Seams
from restkeeper.features.pages.calls import first_calls
from restkeeper.resources.call import PUBLIC
from restkeeper.service import Service, service_of
from restkeeper.storage.errors import RevisionDiffers
from restkeeper.storage.interface import Query
from restkeeper.web.application import Application, address_of
from restkeeper.web.auth import caller, needs
from restkeeper.web.bodies import HTML, JSON, require_acceptable
from restkeeper.web.operations import CONDITIONS, NOT_MODIFIED, Parameter, Result, operation_of, returns, takes
from restkeeper.web.preconditions import document, page

_CSS = (Path(__file__).parent / "templates" / "base.css").read_bytes().removesuffix(b"\n")
_STYLE = f"'sha256-{b64encode(sha256(_CSS).digest()).decode()}'"  # the pages contain it

LINKS = {  # of the index, if the path exists in the version of the unversioned paths
    "docs": "/docs",
    "browse": "/browse",
    "events": "/api/VERSION/events",
    "openapi": "/openapi.json",
    "health": "/healthz",
    "readiness": "/readyz",
}

HEADERS = ("ETag",)
INDEX = Result("The index of the service.", {JSON: "Index", HTML: {"type": "string"}}, HEADERS)
PROBLEM_TYPE = Result("The meaning of the type.", {JSON: "ProblemType", HTML: {"type": "string"}}, HEADERS)
PROBLEM_NAME = Parameter(
    "name", lambda pages: {"type": "string", "enum": list(pages.types)}, "The last part of the type's URI."
)


def install(service: Service) -> Seams:
    """Serve / and /problems/NAME."""
    handlers = PageHandlers(service.app, service)
    routes = Blueprint("problems", __name__, template_folder="templates")
    routes.add_url_rule("/", view_func=handlers.read_index)
    routes.add_url_rule("/problems/<name>", view_func=handlers.read_problem)
    return Seams(routes=(routes,))


class PageHandlers:
    """The handlers of the pages."""

    def __init__(self, app: Application, service: Service) -> None:
        self._app = app
        self._service = service

    @cached_property
    def types(self) -> dict[str, type[Problem]]:
        """The problem types by name: those of the core and of the open features, when all routes are registered."""
        declared = [kind for view in self._app.view_functions.values() for kind in operation_of(view).problems]
        return errors.catalogue(*declared, *(kind for part in self._service.contributions for kind in part.problems))

    @needs(PUBLIC)
    @takes(*CONDITIONS)
    @returns(INDEX, NOT_MODIFIED, PreconditionFailed)
    def read_index(self) -> Response:
        """The collections, with their counts for callers that may read all items, and links."""
        service, who = self._service, caller()
        collections, readable = list[dict[str, Any]](), list[str]()
        served = service.writes.get(service.default_version, {})
        for resource in service.resources:
            collections.append({"name": resource.public_name, "url": address_of(f"/{resource.public_name}")})
            if resource.name not in served or not who.may(resource.scope("read")):
                continue
            view = served[resource.name].views.for_caller(who)
            if view.access.owners(who) is None:
                readable.append(resource.name)
                is_counted = not resource.singleton and view.query(Query()) == Query()  # it shows all that there are
                with suppress(RevisionDiffers):  # the others go on
                    collections[-1] |= {"items": service.store.count(resource.name)} if is_counted else {}
        paths = {rule.rule for rule in self._app.url_map.iter_rules()}
        version = service.default_version
        service_paths = {name: self._app.service_path(path.replace("VERSION", version)) for name, path in LINKS.items()}
        links = {name: address_of(path) for name, path in service_paths.items() if path in paths}
        value = {"service": "restkeeper", "collections": collections, "links": links}
        base = "https://HOST" if self._app.trusts_any_host else request.host_url.rstrip("/")
        described = service_of(self._app.described())
        calls = first_calls(service, described, collections, readable, who)
        return _negotiated("index.html", value, calls=calls, base=base, of=service)

    @needs(PUBLIC)
    @takes(PROBLEM_NAME, *CONDITIONS)
    @returns(PROBLEM_TYPE, NOT_MODIFIED, PreconditionFailed, NotFound)
    def read_problem(self, name: str) -> Response:
        """The meaning of a problem type, and what to do."""
        if (problem := self.types.get(name)) is None:
            raise NotFound(f"there is no problem type {shortened(name)!r}")
        value = {"title": problem.title, "status": problem.status, "about": problem.about}
        return _negotiated("problem.html", value, start=address_of("/"))


def _negotiated(template: str, value: dict[str, Any], **more: Any) -> Response:
    """A value as HTML for clients that prefer it to JSON (browsers), else as JSON."""
    if require_acceptable(JSON, HTML) == HTML:
        reply = page(render_template(template, **value, **more), _STYLE)
    else:
        reply = document(exactjson.dumps(value), JSON)
    reply.headers["Vary"] = "Accept"
    return reply
