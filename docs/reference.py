"""docs/reference.md, made from the public names of the package, by griffe: `python docs/reference.py`."""

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import restkeeper  # noqa: E402
from restkeeper.errors import Problem  # noqa: E402

PAGE = ROOT / "docs" / "reference.md"
MARKED = re.compile(r"(?<=<!-- names -->\n).*(?=<!-- end of names -->)", re.S)
COLUMNS = 88  # of a signature in one line
LONGEST = 80  # characters of a default

# The parts of the page: their names, and the page that explains them.
PARTS = {
    "A service": ("service.md", ["create_app", "find_resources", "Config", "ConfigError", "serve"]),
    "Collections": ("service.md", ["Resource", "ItemSchema", "Index", "Ownership"]),
    "Fields": (
        "fields.md",
        [
            *("Text", "Whole", "Money", "Time", "Email", "Url", "Pattern", "ListOf", "JsonObject", "Reference"),
            *("IntegerReference", "Owner", "Status", "Lifecycle"),
        ],
    ),
    "Rules, actions and reports": (
        "actions.md",
        ["Items", "find_items", "read_item", "shown", "caller", "Caller", "needs", "takes", "returns"],
    ),
    "Errors": ("problems.md", ["BadRequest", "Forbidden", "NotFound", "Conflict", "ValidationFailed", "Unavailable"]),
    "Changes of a schema": ("versions.md", ["Add", "Remove", "Rename", "Convert", "Step"]),
    "Versions of the API": ("versions.md", ["Versions", "Version", "Deprecation"]),
    "Tests": ("testing.md", ["LiveServer", "Space"]),
    "Features": (
        "features.md",
        [
            *("Feature", "FEATURES", "Seams", "Stage", "Unit", "Change", "Visible", "Once", "Credentials"),
            *("Contribution", "Application"),
        ],
    ),
}
# The methods and properties that are for a service; others are for the engine.
MEMBERS = {
    "Caller": ("owner_id", "may"),
    "Change": ("kind", "record", "item", "item_before", "revised", "marked"),
    "Config": ("from_env",),
    "Items": (
        *(
            "read",
            "find",
            "count",
            "groups",
            "create",
            "upsert",
            "change",
            "delete",
            "call",
            "conditions",
            "now",
            "run",
        ),
    ),
    "LiveServer": ("space", "log", "new_log", "close"),
    "Once": ("find", "claim", "save"),
    "Resource": ("action", "before", "after"),
    "Space": (
        *("seed", "reset", "snapshot", "restore", "stub", "requests", "unmatched", "assert_requested"),
        *("clear_requests", "client", "app", "drop"),
    ),
}
GOTTEN = {"Application", "Change", "Items", "Space", "Unit"}  # a service gets these, and makes none


def default_of(parameter: griffe.Parameter, actual: inspect.Signature) -> str:
    """The default of a parameter as it is written; in place of a name that is not public, its value."""
    written = str(parameter.default)
    names = set(re.findall(r"\b[A-Za-z_]\w*", re.sub(r"'[^']*'", "", written)))
    if names <= {*restkeeper.__all__, "NONE", "True", "False", "None"} and len(written) <= LONGEST:
        return written
    value = actual.parameters[parameter.name].default
    shown = repr(value)
    return shown if len(shown) <= LONGEST and not set("<>") & set(shown) else "..."


def signature_of(name: str, shape: griffe.Class | griffe.Function, value: Any) -> str:
    """A call with all parameters: on one line, or with a line for each parameter."""
    actual, parts, is_keyword = inspect.signature(value), [], False
    # What a declaration gets later is a parameter of its dataclass, which nobody passes.
    later = {each.name for each in fields(value) if not each.compare} if is_dataclass(value) else set()
    for parameter in shape.parameters:
        if parameter.name in {"self", "cls"} | later:
            continue
        kind, annotation = parameter.kind, f": {parameter.annotation}" if parameter.annotation else ""
        if kind is griffe.ParameterKind.keyword_only and not is_keyword:
            parts.append("*")
        is_keyword = kind in (griffe.ParameterKind.keyword_only, griffe.ParameterKind.var_positional)
        if kind in (griffe.ParameterKind.var_positional, griffe.ParameterKind.var_keyword):
            parts.append(f"{'*' if kind is griffe.ParameterKind.var_positional else '**'}{parameter.name}{annotation}")
        else:
            default = f" = {default_of(parameter, actual)}" if parameter.default is not None else ""
            parts.append(f"{parameter.name}{annotation}{default}")
    returns = f" -> {shape.returns}" if isinstance(shape, griffe.Function) and shape.returns else ""
    line = f"{name}({', '.join(parts)}){returns}"
    if len(line) <= COLUMNS:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def prose(shape: griffe.Object) -> str:
    """A docstring as Markdown: what is no code is text. Raises AttributeError where there is none."""
    parts = re.split(r"(`[^`]*`)", shape.docstring.value)
    return "".join(part if part[:1] == "`" else re.sub(r"[<*\[]", r"\\\g<0>", part) for part in parts)


def members_of(name: str, shape: griffe.Class, kind: type) -> Iterator[str]:
    """The methods and properties of a class, each with its signature."""
    for member in map(shape.members.__getitem__, MEMBERS.get(name, ())):
        function = inspect.getattr_static(kind, member.name)
        function = getattr(function, "__func__", function)  # of a method of the class
        called = isinstance(member, griffe.Function)
        text = signature_of(member.name, member, function) if called else f"{member.name}: {member.annotation}"
        yield f"#### {name}.{member.name}\n\n```python signature\n{text}\n```\n\n{prose(member)}\n"


def values_of(kind: type[Enum]) -> str:
    """The members of an enumeration, as a list: each with its value, or if that is a number with its comment."""
    comments = dict(re.findall(r"^ +(\w+) = \d+  # (.*)$", inspect.getsource(kind), re.M))
    return "".join(f"- `{kind.__name__}.{each.name}`: {comments.get(each.name, each.value)}\n" for each in kind)


def section(name: str, shape: griffe.Object) -> Iterator[str]:
    """What the page says of a public name."""
    value: Any = getattr(restkeeper, name)
    yield f"### {name}\n"
    if isinstance(shape, (griffe.Class, griffe.Function)) and name not in GOTTEN and [*shape.parameters]:
        yield f"```python signature\n{signature_of(name, shape, value)}\n```\n"
    if isinstance(value, type) and issubclass(value, Problem):
        yield f"The problem `{value.name}`, status {value.status}. {value.about}\n"
    else:
        yield f"{prose(shape)}\n"
    if isinstance(value, type) and issubclass(value, Enum):
        yield values_of(value)
    if isinstance(shape, griffe.Class):
        yield from members_of(name, shape, value)


def sections() -> Iterator[str]:
    """All parts of the page."""
    package = griffe.load("restkeeper", search_paths=[ROOT], resolve_aliases=True)
    for part, (guide, names) in PARTS.items():
        title = (ROOT / "docs" / guide).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        yield f"## {part}\n"
        yield f"More: [{title}]({guide}).\n"
        for name in names:
            yield from section(name, package[name].final_target)


def page() -> str:
    """The page with the names as they are now."""
    return MARKED.sub(lambda _: "\n".join(sections()), PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
