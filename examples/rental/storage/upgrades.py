"""Upgrades of stored items: the steps that lead to each revision of a collection's items from the one before."""

from restkeeper import Rename

TOOLS = {2: [Rename("price", "price_per_day")]}
