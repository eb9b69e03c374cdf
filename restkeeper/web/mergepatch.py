"""JSON Merge Patch (RFC 7396)."""

from typing import Any

from restkeeper.web import exactjson


def merge_patch(target: Any, patch: Any) -> Any:
    """Section 2: null deletes, objects recurse, everything else replaces.

    A target may be the text of a value; only its objects that the patch names are parsed.
    """
    if not isinstance(patch, dict):
        return patch
    if isinstance(target, exactjson.Buffer):
        target = exactjson.cut(target) if bytes(target)[:1] == b"{" else None
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged
