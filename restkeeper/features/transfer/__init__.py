"""Commands by which items, or a whole store, come in or go out: import, export, backup, restore, copy."""

from restkeeper.command import Refused
from restkeeper.features.versions.older import OlderView
from restkeeper.resources.call import PROGRAM
from restkeeper.resources.views import View
from restkeeper.service import Service


def items_of(service: Service, name: str, version: str | None, revision: int | None = None) -> View:
    """A collection as a version of the API shows it, or in a revision; without one, as it is stored. Raises Refused."""
    served = [candidate.name for candidate in service.served]
    if name not in service.stored:
        raise Refused(f"there is no collection {name!r}; there are {', '.join(service.stored)}")
    if version not in (None, *served):
        raise Refused(f"there is no version {version!r}; there are {', '.join(served)}")
    stored = service.stored[name]
    if revision is not None and revision != stored.revision.number:
        try:
            return OlderView(stored, revision)
        except ValueError as error:
            raise Refused(f"--revision: {error}") from None
    return service.domain.views_of(stored, version).for_caller(PROGRAM) if version else stored
