"""The versions of this service's API, and what is deprecated in them."""

from restkeeper import Version, Versions

VERSIONS = Versions(Version("v1"), unversioned="v1")
