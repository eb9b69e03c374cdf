"""The comparison of what callers need: credentials, scopes, and the ownership of items.

The scope that an operation requires and the ownership of its collection are marks of it: `x-required-scope` and
`x-ownership`. Documents that were accepted before there were marks have none at all.
"""

from collections.abc import Callable, Iterator
from typing import Any

from restkeeper.contract.findings import CHANGED, HARMLESS, Change, Effect, Json, change_of

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
    was, now = ([*each.get("security", ())] or [{}] for each in (before, after))
    unmet = [each for each in was if not any(_suffices(each, other) for other in now)]
    for one in was:
        same = [each for each in now if each.keys() == one.keys()]
        if not same:
            effect = CHANGED if one in unmet else HARMLESS
            what = f"{_named(one)} is no longer enough" if one else "credentials are needed now"
            if one or (one in unmet and all(each in was for each in now)):  # else what is added says it
                yield change_of(f"{prefix}-removed", effect, what, "security")
        else:
            yield from _scopes(prefix, one, same[0], is_unmet=one in unmet)
    for one in now:
        if one and not any(each.keys() == one.keys() for each in was):
            effect = CHANGED if {} in unmet else HARMLESS
            yield change_of(f"{prefix}-added", effect, f"{_named(one)} is a way to authenticate now", "security")


def _scopes(prefix: str, was: Json, now: Json, *, is_unmet: bool) -> Iterator[Change]:
    for scheme, scopes in was.items():
        for scope in sorted({*scopes} ^ {*now[scheme]}):
            word = "added" if scope in now[scheme] else "removed"
            effect = CHANGED if word == "added" and is_unmet else HARMLESS
            yield change_of(f"{prefix}-scope-{word}", effect, f"{scheme}: the scope {scope} was {word}", "security")


def _suffices(met: Json, required: Json) -> bool:
    """Whether credentials that meet one requirement meet the other."""
    return all(scheme in met and set(scopes) <= set(met[scheme]) for scheme, scopes in required.items())


def _named(requirement: Json) -> str:
    return " with ".join(requirement) or "none"


def scheme(name: str, was: Json, now: Json) -> Iterator[Change]:
    """A security scheme that stays."""

    def change(id: str, effect: Effect, what: str) -> Change:
        return change_of(f"api-security-component-{id}", effect, what, "security scheme", name)

    for keyword in ("type", "scheme", "in", "name", "openIdConnectUrl"):
        if was.get(keyword) != now.get(keyword):
            yield change("type-changed", CHANGED, f"{keyword} changed from {was.get(keyword)} to {now.get(keyword)}")
    one, other = was.get("flows", {}), now.get("flows", {})
    for flow in sorted(one.keys() & other.keys()):
        for keyword, id in (("authorizationUrl", "oauth-url-changed"), ("tokenUrl", "oauth-token-url-changed")):
            if one[flow].get(keyword) != other[flow].get(keyword):
                yield change(id, CHANGED, f"{keyword} of {flow} changed")
        yield from _flow_scopes(change, one[flow].get("scopes", {}), other[flow].get("scopes", {}))


def _flow_scopes(change: Callable[[str, Effect, str], Change], was: Json, now: Json) -> Iterator[Change]:
    for scope in sorted({*was, *now}):
        if scope not in now:
            yield change("oauth-scope-removed", CHANGED, f"the scope {scope} was removed")
        elif scope not in was:
            yield change("oauth-scope-added", HARMLESS, f"the scope {scope} was added")
        elif was[scope] != now[scope]:
            yield change("oauth-scope-changed", HARMLESS, f"the scope {scope} has another text")
