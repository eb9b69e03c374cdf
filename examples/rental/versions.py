"""The versions of this service's API: in the first one, a tool has a `price` instead of a `price_per_day`."""

from restkeeper import Version, Versions

VERSIONS = Versions(Version("v1", successor="v2", revisions={"tools": 1}), Version("v2"), unversioned="v2")
