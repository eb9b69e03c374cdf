"""The schema of the items of each collection."""

from typing import Any

Item = dict[str, Any]  # what functions get: the fields of an item, a body or a query, by their names
