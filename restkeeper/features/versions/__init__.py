"""The versions of the API: items in the form of older versions, and responses where no version is served."""

from dataclasses import replace
from functools import partial
from importlib import import_module
from math import inf
from typing import NoReturn

from flask import Request

from restkeeper.config import ConfigError
from restkeeper.errors import NotFound, Problem, shortened
from restkeeper.feature import Seams
from restkeeper.features.versions.problems import PathRetired, VersionRetired
from restkeeper.resources.call import PUBLIC
from restkeeper.resources.resource import Resource
from restkeeper.service import Service
from restkeeper.versions import Deprecation, State, Version, http_date, prefix_of, seconds_of
from restkeeper.web.application import Stage, address_of
from restkeeper.web.auth import needs
from restkeeper.web.operations import UNUSED, Contribution, JsonSchema

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def install(service: Service) -> Seams:
    """Show items in the form of each version, and refuse requests to versions that are not served.

    Raises ConfigError for a collection or revision that does not exist.
    """
    names = [resource.name for resource in service.resources]
    for version in service.served:
        if unknown := sorted(set(version.revisions).difference(names)):
            raise ConfigError(
                f"versions: {version.name}: there is no collection {unknown[0]!r}; there are: {', '.join(names)}"
            )
        for resource in service.resources:
            require_revision(version, resource)
    gate = Gate(service)
    for version in service.versions:
        if service.versions.state(version.name, service.clock.time()) is State.RETIRED:
            rule = f"{prefix_of(version.name)}/<path:rest>"  # so that a page passes its preflight, and reads the 410
            service.app.add_url_rule(rule, f"retired_{version.name}", gate.refuse_retired, methods=METHODS)
    about = Contribution(UNUSED, problems=(VersionRetired, PathRetired), amend=partial(describe, service))
    seams = Seams(checking=((Stage.VERSION, gate.require_served),), describe=(about,))
    if service.versions.deprecations or any(version.revisions for version in service.served):
        older = import_module("restkeeper.features.versions.older")  # most services have one version, which stays
        seams = replace(seams, view=(partial(older.represent, service.versions, service.clock),))
    if service.versions.deprecations:
        deprecations = import_module("restkeeper.features.versions.deprecations")
        seams = deprecations.with_deprecations(service, seams)
    return seams


def require_revision(version: Version, resource: Resource) -> None:
    """Raises ConfigError if a version names a revision of a collection that its upgrades do not have."""
    name = resource.name
    if name not in version.revisions or (resource.upgrades and version.revisions[name] in resource.revisions):
        return
    right = f"upgrades have the revisions {resource.oldest} to {resource.revision}: name one of them"
    if not resource.upgrades:
        right = "Resource has no upgrades, which lead to the newest revision from an older one: declare them"
    wrong = f"revisions={{{name!r}: {version.revisions[name]!r}}}"
    raise ConfigError(f"versions: {version.name}: {wrong}: the {right}, or leave {name!r} out")


def describe(service: Service, document: JsonSchema, version: str) -> None:
    """Add the state of the version to its document, if there are others a paragraph about all, and deprecations."""
    versions, now = service.versions, service.clock.time()
    revisions = versions[version].revisions
    about: JsonSchema = {"name": version, "state": str(versions.state(version, now))}
    about["revisions"] = {items.name: revisions.get(items.name, items.revision) for items in service.resources}
    if deprecation := versions.deprecation_of(version):
        about |= deprecation.about
    if versions[version].successor:
        about["successor"] = versions[version].successor
    document["info"]["x-version"] = about
    if len(service.served) > 1:
        states = document["info"]["x-versions"] = {
            other.name: str(versions.state(other.name, now)) for other in service.served
        }
        listed = ", ".join(f"`{name}` ({state})" for name, state in states.items())
        document["info"]["description"] += (
            f"\n\nThis is `{version}`. The versions are {listed}, each described at `/api/VERSION/openapi.json`."
        )


class Gate:
    """Refuses requests to versions that are not served."""

    def __init__(self, service: Service) -> None:
        self._versions = service.versions
        self._clock = service.clock
        self._collections = {resource.public_name for resource in service.resources}
        self._ends = {version.name: self._end_of(version.name) for version in service.served}
        self._unversioned_end = min(self._end_of(""), self._end_of(self._versions.unversioned))

    def _end_of(self, name: str) -> float:
        deprecation = self._versions.deprecation_of(name)
        return seconds_of(deprecation.sunset) if deprecation else inf

    def require_served(self, request: Request) -> None:
        """Raises NotFound at a version that does not exist, and VersionRetired at one whose sunset is over."""
        path = request.path
        if path.startswith("/api/") and "api" not in self._collections:
            name = path.split("/")[2]
            end = self._ends.get(name)
            if end is None or end <= self._clock.time():
                raise self._refusal(name, path)
        elif path.split("/")[1] in self._collections and self._unversioned_end <= self._clock.time():
            ended = map(self._versions.deprecation_of, ("", self._versions.unversioned))
            earliest = min(filter(None, ended), key=lambda deprecation: deprecation.sunset)
            raise self._retired("the path without a version", earliest, self._versions.unversioned, path)

    @needs(PUBLIC)
    def refuse_retired(self, rest: str) -> NoReturn:
        """The handler of all paths of a retired version, which `require_served` has refused before."""
        raise NotFound("this version is retired")

    def _refusal(self, name: str, path: str) -> Problem:
        if deprecation := self._versions.deprecation_of(name) if name in self._versions else None:
            return self._retired(f"version {name}", deprecation, name, path.removeprefix(prefix_of(name)))
        served = [version for version, end in self._ends.items() if self._clock.time() < end]
        return NotFound(f"there is no version {shortened(name)!r}; there are: {', '.join(served) or 'none'}")

    def _retired(self, what: str, deprecation: Deprecation, version: str, rest: str) -> VersionRetired:
        """The refusal of a path, whose part after the version is `rest`."""
        headers, advice, members = {"Sunset": http_date(deprecation.sunset)}, "", {"sunset": str(deprecation.sunset)}
        if successor := self._versions.replacement_for(version, self._clock.time()):
            headers["Link"] = f'<{address_of(prefix_of(successor) + rest)}>; rel="successor-version"'
            advice, members["successor"] = f"; use {successor}", successor
        return VersionRetired(f"{what} {deprecation.retired}{advice}", headers=headers, **members)
