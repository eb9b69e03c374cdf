"""The schema of the items of each collection."""

from typing import Any

Item = dict[str, Any]  # what functions get of an item: its stored JSON
