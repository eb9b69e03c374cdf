"""Upgrades of stored items that an older schema wrote. They run when such an item is read, and in `restkeeper migrate`.

A field that was added with a default, or removed, needs nothing here. One that was renamed or has other values does:

    if "title" in item:
        item["name"] = item.pop("title")
"""

from typing import Any


def upgrade_product(item: dict[str, Any]) -> dict[str, Any]:
    """A product of an older schema, with the fields of the present one."""
    return item


def upgrade_user(item: dict[str, Any]) -> dict[str, Any]:
    """A user of an older schema, with the fields of the present one."""
    return item
