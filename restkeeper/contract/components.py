"""The components of a document, and what a reference to one means."""

from restkeeper.contract.findings import Json
from restkeeper.contract.schema import constraints

ALTERNATIVES = ("anyOf", "oneOf")


class Components:
    """The components of a document, and what a reference means."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def resolve(self, part: Json | bool) -> tuple[str, Json]:
        """What a part or a reference is, and the component's name. Raises ValueError for a reference to nothing."""
        name = ""
        if isinstance(part, bool):
            return name, {} if part else {"not": {}}
        seen: set[str] = set()
        while (reference := part.get("$ref")) is not None:
            if reference in seen or not reference.startswith("#/"):
                raise ValueError(f"{reference} is not a reference to a part of the document")
            seen.add(reference)
            name = name or reference.rpartition("/")[2]
            part = {**self._at(reference), **{key: each for key, each in part.items() if key != "$ref"}}
        return name, part

    def _at(self, reference: str) -> Json:
        found = self._document
        for step in reference[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            if step not in found:
                raise ValueError(f"{reference} is a reference to nothing")
            found = found[step]
        return found

    def plain(self, schema: Json | bool) -> tuple[str, Json]:
        """A schema with its name; a choice between one schema and null is that schema, nullable."""
        name, plain = self.resolve(schema)
        for keyword in ALTERNATIVES:
            others = [each for each in plain.get(keyword, ()) if each != {"type": "null"}]
            rest = {key: value for key, value in plain.items() if key != keyword}
            if keyword in plain and len(others) < len(plain[keyword]) and not constraints(rest):
                if len(others) == 1:
                    name, only = self.resolve(others[0])
                    return name, {**only, **rest, "nullable": True}
                return name, {**rest, keyword: others, "nullable": True}
        return name, plain
