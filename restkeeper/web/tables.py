"""Pages of lists as CSV, for spreadsheets."""

from restkeeper import exactjson
from restkeeper.clock import Clock
from restkeeper.errors import InvalidQuery
from restkeeper.resources.cells import BOM, table_of
from restkeeper.resources.parameters import refused
from restkeeper.resources.queries import ListRequest
from restkeeper.resources.views import View
from restkeeper.storage.interface import Groups, root_of


def require_items(listing: ListRequest) -> None:
    """Raises InvalidQuery for a list that has more than the fields of items, or something else."""
    by, aggregates = listing.query.groups or Groups()
    grouped = "count" if by else f"aggregate[{aggregates[0].function}]" if aggregates else ""
    # Fields of other items, where all are selected, else whole ones.
    embed = "fields" if all(embedded.fields for embedded in listing.embed.values()) else "embed"
    if wrong := grouped or embed * bool(listing.embed):
        raise refused(wrong, "does not go with CSV, which has the fields of items")


def csv_of(listing: ListRequest, body: bytes, view: View, clock: Clock) -> bytes:
    """The page with this JSON as CSV, in a download with the mark of UTF-8. Raises InvalidQuery."""
    declared = () if view.queryable.is_open else view.names  # there, the names that items have are all that matters
    names = [*dict.fromkeys(map(root_of, listing.fields or declared))]
    try:
        table = table_of(exactjson.loads(body), names, view.texts, clock)
    except ValueError as error:
        raise InvalidQuery(f"CSV {error}", errors=[{"parameter": "fields", "detail": str(error)}]) from None
    return BOM * bool(listing.export) + table
