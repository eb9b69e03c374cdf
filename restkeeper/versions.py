"""The versions of a service's API, as it declares them: which there are, what they show, and what is deprecated.

    VERSIONS = Versions(
        Version("v1", successor="v2", revisions={"products": 1}),
        Version("v2"),
        unversioned="v1",
        deprecations=[Deprecation(version="v1", since=date(2026, 11, 22), sunset=date(2027, 6, 1), link="https://…")],
    )

A sunset is the first day on which something is gone. Days are in UTC.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from email.utils import formatdate
from enum import StrEnum
from itertools import islice

_NAME = re.compile(r"v[1-9][0-9]{0,3}")
_LINK = re.compile(r"[!#-;=?-~]{1,1000}")  # of a reference to a page (RFC 3986), inside <> in a header


class State(StrEnum):
    """Where a version is in its life."""

    CURRENT = "current"
    DEPRECATED = "deprecated"  # its sunset is announced
    RETIRED = "retired"  # its sunset is over


@dataclass(frozen=True)
class Version:
    """A version of the API, named v1, v2 and so on.

    `revisions` has the collections that it shows in an older revision; the others it shows in the newest. `successor`
    is the version that clients of this one should use.
    """

    name: str
    successor: str = ""
    revisions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Deprecation:
    """Something that is deprecated on the day `since`, and is gone on the day `sunset`.

    Alone, `version` is a whole version, or if it is empty the unversioned paths. Otherwise it is, in that version, a
    `field` ("products.sku"), or a `path` ("/products/<id>") with all its methods or only one `method`. `link` is a page
    for people that says more than `reason`.
    """

    version: str
    since: date
    sunset: date
    field: str = ""
    path: str = ""
    method: str = ""
    reason: str = ""
    link: str = ""

    @property
    def name(self) -> str:
        """What is deprecated, with its version."""
        return " ".join(filter(None, (self.version or "unversioned", self.part)))

    @property
    def part(self) -> str:
        """What of the version is deprecated; empty if it is all of it."""
        return self.field or " ".join(filter(None, (self.method, self.path)))

    @property
    def collection(self) -> str:
        """The collection of a field; empty for others."""
        return self.field.partition(".")[0]

    @property
    def member(self) -> str:
        """The name of a field in its collection."""
        return self.field.partition(".")[2]

    @property
    def about(self) -> dict[str, str]:
        """What documents say of it: the days, and the reason and the link if there are any."""
        said = {"since": str(self.since), "sunset": str(self.sunset), "reason": self.reason, "link": self.link}
        return {name: text for name, text in said.items() if text}

    @property
    def retired(self) -> str:
        """What to say of it after its sunset."""
        return f"was retired on {self.sunset}{': ' if self.reason else ''}{self.reason}"

    def is_over(self, now: float) -> bool:
        """Whether the sunset has come at a time in seconds since 1970."""
        return seconds_of(self.sunset) <= now


def is_version(name: str) -> bool:
    """Whether a version can have this name."""
    return _NAME.fullmatch(name) is not None


def prefix_of(version: str) -> str:
    """The beginning of the paths of a version."""
    return f"/api/{version}"


def http_date(day: date) -> str:
    """The beginning of a day in UTC as an HTTP date (RFC 9110, section 5.6.7)."""
    return formatdate(seconds_of(day), usegmt=True)


def seconds_of(day: date) -> int:
    """The beginning of a day in UTC, in seconds since 1970."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


class Versions:
    """The versions in their order, the newest last. The paths without a version are those of `unversioned`."""

    def __init__(self, *versions: Version, unversioned: str, deprecations: Iterable[Deprecation] = ()) -> None:
        """Raises ValueError for a declaration that cannot work."""
        self.unversioned = unversioned
        self.deprecations = tuple(deprecations)
        for kind, values in (Version, versions), (Deprecation, self.deprecations):
            if wrong := [each for each in values if not isinstance(each, kind)]:
                raise ValueError(f"versions: {wrong[0]!r}: must be a {kind.__name__}(…)")
        for each in self.deprecations:
            if not (isinstance(each.since, date) and isinstance(each.sunset, date)):
                raise ValueError(f"versions: {each}: since and sunset must be dates, such as date(2027, 6, 1)")
        self._versions = {each.name: each for each in versions}
        if len(self._versions) < len(versions):
            raise ValueError("versions: each has a name of its own")
        for fault in self._faults():
            raise ValueError(f"versions: {fault}")

    def _faults(self) -> Iterator[str]:
        names = ", ".join(self._versions)
        for each in self:
            if not is_version(each.name):
                yield f"{each.name!r} is no name of a version; use v1, v2 and so on"
            if each.successor and each.successor not in self._versions:
                yield f"the successor {each.successor!r} of {each.name} does not exist; there are: {names}"
            if each.name in islice(self._successors(each.name), len(self._versions)):
                yield f"the successors of {each.name} lead back to it"
        if self.unversioned not in self._versions:
            yield f"unversioned={self.unversioned!r} is not one of the versions; there are: {names}"
        declared = [each.name for each in self.deprecations]
        for deprecation in self.deprecations:
            of = f"Deprecation of {deprecation.name}"
            if deprecation.version not in ("", *self._versions):
                yield f"{of}: there is no such version; there are: {names}"
            if not deprecation.version and deprecation.part:
                yield f"{of}: name the version that has it"
            if deprecation.sunset < deprecation.since:
                yield f"{of}: the sunset {deprecation.sunset} is before {deprecation.since}"
            if deprecation.field and deprecation.path:
                yield f"{of}: name a field or a path"
            if deprecation.method and not deprecation.path:
                yield f"{of}: a method is of a path"
            if deprecation.method in ("HEAD", "OPTIONS"):
                yield f"{of}: {deprecation.method} goes with the path, or with GET"
            if deprecation.link and not _LINK.fullmatch(deprecation.link):
                yield f"{of}: the link {deprecation.link!r} is no URL"
            if declared.count(deprecation.name) > 1:
                yield f"{of}: is declared twice"

    def _successors(self, name: str) -> Iterator[str]:
        while name in self and (name := self[name].successor):
            yield name

    def __iter__(self) -> Iterator[Version]:
        return iter(self._versions.values())

    def __contains__(self, name: str) -> bool:
        return name in self._versions

    def __getitem__(self, name: str) -> Version:
        return self._versions[name]

    def deprecation_of(self, name: str) -> Deprecation | None:
        """The deprecation of a whole version, or for an empty name that of the unversioned paths."""
        return next((each for each in self.deprecations if each.version == name and not each.part), None)

    def fields_of(self, name: str, collection: str) -> list[Deprecation]:
        """The deprecated fields of a collection in a version."""
        return [each for each in self.deprecations if each.version == name and each.collection == collection]

    def state(self, name: str, now: float) -> State:
        """The state of a version at a time in seconds since 1970."""
        if deprecation := self.deprecation_of(name):
            return State.RETIRED if deprecation.is_over(now) else State.DEPRECATED
        return State.CURRENT

    def replacement_for(self, name: str, now: float) -> str:
        """The version to use for one: itself, or after its sunset the first of its successors that is not retired.

        Without a successor it is the newest version; empty if all are retired.
        """
        served = [each.name for each in self.served(now)]
        found = next((each for each in (name, *self._successors(name)) if each in served), "")
        return found or (served[-1] if served else "")

    def served(self, now: float) -> list[Version]:
        """The versions with routes: all but the retired ones."""
        return [each for each in self if self.state(each.name, now) is not State.RETIRED]


V1 = Versions(Version("v1"), unversioned="v1")  # of a service that declares none
