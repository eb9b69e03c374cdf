"""The problems of requests for what is gone."""

from restkeeper.errors import Problem


class VersionRetired(Problem):
    status, name, title = 410, "version-retired", "This version of the API is retired"
    about = (
        "This version was deprecated, and its sunset is over (RFC 8594). `successor` is the version to use instead; "
        "`Link` has the same address there."
    )


class PathRetired(Problem):
    status, name, title = 410, "path-retired", "This path is retired"
    about = (
        "This path, or this method of it, was deprecated, and its sunset is over (RFC 8594): `sunset` is the first day "
        "without it. Other paths of this version work on."
    )
