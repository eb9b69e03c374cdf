"""The comparison of what callers need: credentials, scopes, and the ownership of items.

The scope that an operation requires and the ownership of its collection are marks of it: `x-required-scope` and
`x-ownership`. Documents that were accepted before there were marks have none at all.
"""

from collections.abc import Iterator
from typing import Any

from restkeeper.contract.findings import CHANGED, HARMLESS, Change, Json, change_of

SCOPE, OWNERSHIP = "x-required-scope", "x-ownership"
ADMIN = "admin"  # the scope that includes all others
OWNERSHIPS = {  # each restricts callers more than the one before
    "none": "every caller may read and change every item",
    "changes": "only its owner may change an item",
    "all": "only its owner may read or change an item",
}


def has_marks(document: Json) -> bool:
    """Whether a document says which scopes its operations require, and which collections have owners."""
    items: Any = document.get("paths", {}).values()
    return any({SCOPE, OWNERSHIP} & own.keys() for item in items for own in item.values() if isinstance(own, dict))


def permissions(was: Json, now: Json, *, marked: bool) -> Iterator[Change]:
    """The scope and the ownership of an operation. What is new is harmless if the former document is not `marked`."""
    one, other = (str(each.get(SCOPE, "")) for each in (was, now))
    if one != other:
        word = "added" if not one else "changed" if other else "removed"
        effect = CHANGED if other and one != ADMIN and marked else HARMLESS
        what = f"the required scope is {other or 'none'} now, and was {one or 'none'}"
        what = what if marked else f"the required scope, {other}, is documented now"
        yield change_of(f"api-required-scope-{word}", effect, what, "security")
    yield from _ownership(was, now, marked=marked)


def _ownership(was: Json, now: Json, *, marked: bool) -> Iterator[Change]:
    known = list(OWNERSHIPS)
    one, other = (str(each.get(OWNERSHIP, known[0])) for each in (was, now))
    if one != other:
        is_stricter = known.index(other) > known.index(one)
        effect = CHANGED if is_stricter and marked else HARMLESS
        what = f"changed from {one} to {other}: {OWNERSHIPS[other]}" if marked else f"{other} is documented now"
        id = f"api-ownership-{'restricted' if is_stricter else 'relaxed'}"
        yield change_of(id, effect, what, "ownership of", next(iter(now.get("tags", ())), ""))


def requirements(prefix: str, before: Json, after: Json) -> Iterator[Change]:
    """The security requirements: credentials that met one must meet one still. None at all is a requirement, too."""
    was, now = ([*map(set, each.get("security", ()))] or [set[str]()] for each in (before, after))
    unmet = [each for each in was if not any(other <= each for other in now)]
    for one in was:
        if one not in now:
            effect = CHANGED if one in unmet else HARMLESS
            what = f"{_named(one)} is no longer enough" if one else "credentials are needed now"
            if one or (one in unmet and all(each in was for each in now)):  # else what is added says it
                yield change_of(f"{prefix}-removed", effect, what, "security")
    for one in now:
        if one and one not in was:
            effect = CHANGED if set() in unmet else HARMLESS
            yield change_of(f"{prefix}-added", effect, f"{_named(one)} is a way to authenticate now", "security")


def _named(schemes: set[str]) -> str:
    return " with ".join(sorted(schemes)) or "none"


def scheme(name: str, was: Json, now: Json) -> Iterator[Change]:
    """A security scheme that stays."""
    for keyword in ("type", "scheme", "in", "name", "openIdConnectUrl"):
        if was.get(keyword) != now.get(keyword):
            what = f"{keyword} changed from {was.get(keyword)} to {now.get(keyword)}"
            yield change_of("api-security-component-type-changed", CHANGED, what, "security scheme", name)
