"""Upgrades of items that were stored with an older schema. They run when an item is read, and in `restkeeper migrate`.

A new field with a default and a removed field need no code here. A field with another name or other values does:

    if "title" in item:
        item["name"] = item.pop("title")
"""

from typing import Any


def upgrade_product(item: dict[str, Any]) -> dict[str, Any]:
    """Convert a product of an older schema to the present one."""
    return item


def upgrade_user(item: dict[str, Any]) -> dict[str, Any]:
    """Convert a user of an older schema to the present one."""
    return item
