"""Upgrades of stored items: the steps that lead to each revision of a collection's items from the one before.

`restkeeper migrate` makes them once, for all items of a collection; the versions of the API use them too. A new field
with a default needs no step. A field with another name does:

    PRODUCTS = {2: [Rename("title", "name")]}
"""

from collections.abc import Mapping, Sequence

from restkeeper import Step

PRODUCTS: Mapping[int, Sequence[Step]] = {}
USERS: Mapping[int, Sequence[Step]] = {}
