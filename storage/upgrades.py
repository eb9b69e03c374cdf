"""Upgrades of items that were stored with an older schema. They run when an item is read, and in `restkeeper migrate`.

A new field with a default and a removed field need no code here. A field with another name does:

    if "title" in item:
        item["name"] = item.pop("title")

If only the values of a field change, increase the `revision` of the collection's `Resource`, too.
"""

from typing import Any


def upgrade_product(item: dict[str, Any]) -> dict[str, Any]:
    """Convert a product of an older schema to the present one."""
    return item


def upgrade_user(item: dict[str, Any]) -> dict[str, Any]:
    """Convert a user of an older schema to the present one."""
    return item
