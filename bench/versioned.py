"""This service with an older version of its API, whose products have a title instead of a name."""

from dataclasses import replace

import restkeeper
from resources.products import RESOURCE
from restkeeper import Rename, Version, Versions

products = replace(RESOURCE, upgrades={RESOURCE.revision + 1: [Rename("title", "name")]})
versions = Versions(Version("v1", revisions={"products": RESOURCE.revision}), Version("v2"), unversioned="v2")
app = restkeeper.create_app(None, [products], versions=versions)
