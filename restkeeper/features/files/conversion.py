"""What a service can have of a file: its collections and items, and lines about all that is left out or changes."""

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from restkeeper import exactjson
from restkeeper.clock import rfc3339
from restkeeper.config import Config
from restkeeper.errors import Problem, shortened
from restkeeper.exactjson import Buffer, require_none
from restkeeper.features.files.collections import Declared, declare, loosened, resources_of
from restkeeper.features.files.content import Content, id_of, key_of
from restkeeper.features.files.file import File
from restkeeper.features.files.jsonschema import Class
from restkeeper.resources.item import ItemLimits
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView

Members = dict[str, Buffer]
_LIMITS = ItemLimits(*Config().item_limits)
_NO_FIELD = "no relation, as its schema has no field of this name"


class Converted(NamedTuple):
    """The collections, the texts of their items by public name, and lines about what is not as in the file.

    If it `is_loose`, some of them require nothing.
    """

    resources: list[Resource]
    texts: Mapping[str, Sequence[bytes]]
    lines: list[str]
    is_loose: bool


def convert(file: File, suffix: str = "", *, strict: bool = False) -> Converted:
    """The collections of a file as those of a service. Its content loses the items that a service refuses.

    A single item then has no members. See `declare` for `suffix`, and `resources_of` for `strict`. Raises FileError,
    and ValueError with the place.
    """
    content, refused = file.content, dict[str, list[str]]()
    lines = [f"left out: {line}" for line in content.unserved]
    lines += [f"left out: {shortened(name)} begins with $" for name in content.members if name[:1] == "$"]
    lines += [f"{name}: items without an id get one" for name in content.changed]
    while True:
        conversion = _Conversion(file, suffix, strict)
        faults = [(name, key, fault) for name in content.kinds for key, fault in conversion.faults(name).items()]
        if not faults:
            break
        for name, key, fault in faults:  # and then convert again: what refers to a removed item is no reference
            refused.setdefault(name, []).append(f"{id_of(key)}: {fault}")
            _remove(content, name, key)
    for name, reasons in refused.items():
        if content.kinds[name] == "singleton":
            lines.append(f"{name} is empty there, as a service refuses what it has: {reasons[0].partition(': ')[2]}")
        else:
            about = "items are left out, which a service refuses; the first is"
            lines.append(f"{name}: {len(reasons)} {about} {reasons[0]}")
    return Converted(conversion.resources, conversion.texts, lines + conversion.lines, conversion.is_loose)


def _remove(content: Content, name: str, key: str) -> None:
    """Remove an item, or the members of a single item."""
    if isinstance(member := content.members[name], dict):
        del member[key]
    else:
        content.members[name] = b"{}"


class _Conversion:
    """The conversion of a file as its content is now. `texts` has the items that were converted, by public name."""

    def __init__(self, file: File, suffix: str, strict: bool) -> None:
        self._content = file.content
        declared, lines = declare(file, suffix)
        self.lines = [line for line in lines[len(file.content.unserved) :] if " → " not in line]
        as_served = {
            name: each if strict or each.is_checked else each._replace(schema=loosened(each.schema))
            for name, each in declared.items()
        }
        self.is_loose = not strict and not all(each.is_checked for each in declared.values())
        self.resources = resources_of(as_served, self.lines, strict=strict)
        self._named = {resource.public_name: resource for resource in self.resources}
        self._id_names = {name: each.id_name for name, each in declared.items() if each.kind != "singleton"}
        self._references = {name: self._references_of(name, each) for name, each in declared.items()}
        self.texts = {name: list[bytes]() for name in self._named}

    def _references_of(self, name: str, declaration: Declared) -> dict[str, Resource]:
        """The fields that refer to collections."""
        declared: Class = self._named[name].schema.declared_as  # type: ignore[attr-defined]
        unnamed = [field for field in declaration.references if field not in declared.fields]
        self.lines += [f"{name}.{field}: {_NO_FIELD}" for field in unnamed]
        return {field: self._named[to] for field, to in declaration.references.items() if field not in unnamed}

    def faults(self, name: str) -> dict[str, str]:
        """Convert the items of a collection, or a single item; returns what a service refuses, by keys."""
        resource, faults, changed = self._named[name], dict[str, str](), Counter[tuple[str, str]]()
        resource.schema.id_name = "id"
        options = {item.name: getattr(resource, item.name) for item in dataclasses.fields(Resource) if item.init}
        view, now = StoredView(Resource(**options)), rfc3339(time.time())
        for key, text in self._content.items(name):
            try:
                require_none([*exactjson.faults_in_values(exactjson.loads(bytes(text), Config.max_depth))])
                members, changes = self._converted(name, key, text)
                view.restore(
                    {field: exactjson.decoded(value) for field, value in members.items()},
                    id=key,
                    now=now,
                    limits=_LIMITS,
                )
            except Problem as problem:
                if resource.singleton and bytes(text) == b"{}":
                    continue  # it has no sample
                fault = problem.members.get("errors", [{"pointer": "", "detail": problem.detail}])[0]
                faults[key] = f"{fault['pointer']} {fault['detail']}".strip()
            else:
                changed.update(changes)
                self.texts[name].append(exactjson.joined(members))
        about = "there, as other ids are"
        self.lines += [f"{place}: {number} values are {kind} {about}" for (place, kind), number in changed.items()]
        return faults

    def _converted(self, name: str, key: str, text: Buffer) -> tuple[Members, list[tuple[str, str]]]:
        """The members of an item as a service has them, and which of them have another type there.

        The id is in `id`, and references have the type of the ids.
        """
        members, id_name, changes = {**exactjson.cut(text)}, self._id_names.get(name, ""), list[tuple[str, str]]()
        refers = {
            field: to for field, to in self._references[name].items() if bytes(members.get(field, b"null")) != b"null"
        }
        ids = {field: to.public_id(key_of(exactjson.decoded(members[field]))) for field, to in refers.items()}
        ids |= {id_name: self._named[name].public_id(key)} if id_name else {}
        for field, id in ids.items():
            if id != exactjson.decoded(members[field]):
                members[field] = exactjson.dumps(id)
                changes.append((f"{name}.{field}", "texts" if isinstance(id, str) else "numbers"))
        if id_name in ("", "id"):
            return members, changes
        if "id" in members:
            raise ValueError(f"{name}: an item has a member id beside {id_name}: name it otherwise")
        return {"id" if field == id_name else field: value for field, value in members.items()}, changes
