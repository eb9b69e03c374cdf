"""Where two schemas are compared, which gives each change its rule's id, its subject and its severity."""

from typing import NamedTuple

from restkeeper.contract.findings import DEPRECATE, NEW_VERSION, Change, Direction, Effect, Severity
from restkeeper.contract.windows import Step

# The prefixes of ids of what is inside, and ids that do not follow the pattern.
INSIDE = {
    "request-body": "request-property",
    "response-body": "response-property",
    "request-parameter": "request-parameter-property",
    "request-header": "request-header-property",
    "response-header": "response-header-property",
}
IRREGULAR = {
    "request-body-type-specialized": "request-body-type-changed",
    "request-property-type-specialized": "request-property-type-changed",
    "request-parameter-type-specialized": "request-parameter-type-changed",
    "response-body-enum-value-removed": "response-mediatype-enum-value-removed",
}


class SchemaContext(NamedTuple):
    """Where two schemas are compared.

    `name` is the field in dotted words within the component `schema`, if there is one. `subject` is "body", "field",
    "parameter" or "header". A value that is `fixed` is always sent, so its default has no meaning. The other side
    never sees an `unseen` value: one of a request that is read-only, or one of a response that is write-only.
    """

    direction: Direction
    prefix: str
    subject: str
    name: str = ""
    schema: str = ""
    fixed: bool = False
    unseen: bool = False

    def inside(self, name: str, *, fixed: bool = True) -> "SchemaContext":
        """A value inside this one; `name` begins with "[" or is that of a field."""
        joined = self.name + name if name.startswith("[") or not self.name else f"{self.name}.{name}"
        subject = "field" if self.subject == "body" else self.subject
        return self._replace(
            name=joined.lstrip(".") or "[]", prefix=INSIDE.get(self.prefix, self.prefix), subject=subject, fixed=fixed
        )

    def change(self, id: str, effect: Effect, what: str, remedy: str = NEW_VERSION, value: str = "") -> Change:
        """A change of this value, by the whole id of its rule."""
        severity = Severity.COMPATIBLE if self.unseen else effect.of(self.direction)
        subject = self.subject
        if value and subject in ("body", "field"):
            subject = "value"
        elif value and remedy == DEPRECATE:  # there is no declaration for a value of a parameter
            remedy = NEW_VERSION
        return Change(
            IRREGULAR.get(id, id), severity, self.direction, what, subject, self.name, self.schema, remedy, value
        )

    def step(self, step: Step) -> Change:
        """A change of this value's deprecation."""
        return self.change(step.id, step.effect, step.what, step.remedy)
