"""The table of decisions: which change of a document breaks which clients."""

from enum import IntEnum


class Severity(IntEnum):
    """Whether a client breaks: it does, a person must decide, it does not."""

    BREAKING = 0
    JUDGE = 1
    COMPATIBLE = 2

    def __str__(self) -> str:
        return ("breaking", "to judge", "compatible")[self.value]


B, J, C = Severity
Verdict = tuple[Severity, Severity]  # on a change in a request, and in a response
Row = dict[str, Verdict]  # how something changed, and what that means

NARROWED: Verdict = (B, C)  # fewer values are valid: some that clients send are refused
WIDENED: Verdict = (C, B)  # more values are valid: clients get some that they do not know
LOOSER: Verdict = (C, J)  # clients may have relied on the former form of a response
CHANGED: Verdict = (B, B)
HARMLESS: Verdict = (C, C)
UNCLEAR: Verdict = (J, J)

PART: Row = {"added": HARMLESS, "removed": CHANGED}
NEEDED: Row = {"added": NARROWED}
VALUES: Row = {"added": NARROWED, "removed": WIDENED, "fewer": NARROWED, "more": WIDENED}
UPPER: Row = {"added": NARROWED, "removed": WIDENED, "raised": WIDENED, "lowered": NARROWED}
LOWER: Row = {"added": NARROWED, "removed": WIDENED, "raised": NARROWED, "lowered": WIDENED}
RULE: Row = {"added": NARROWED, "removed": WIDENED, "changed": CHANGED}
FLAG: Row = {"added": NARROWED, "removed": WIDENED}
CREDENTIALS: Row = {"added": CHANGED, "removed": HARMLESS, "fewer": CHANGED, "more": HARMLESS}
OTHER: Row = {"added": CHANGED, "removed": CHANGED, "changed": CHANGED}  # a keyword of JSON Schema that is not below

WINDOWED = ("version", "operation", "field")  # may go after their sunset
BOUNDS = {
    # "bits" are of the formats int32 and int64
    **dict.fromkeys(("bits", "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), UPPER),
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), LOWER),
}
SHARED: dict[str, Row] = {  # by all versions: what clients depend on beside the schema
    "x-unique": {"added": CHANGED, "removed": UNCLEAR},
    "x-unique-with": {"added": CHANGED, "removed": UNCLEAR, "fewer": UNCLEAR, "more": CHANGED},
    "x-transitions": {"fewer": CHANGED, "more": HARMLESS},
    **dict.fromkeys(("x-writable-by", "x-readable-by"), {"added": CHANGED, "removed": HARMLESS, "changed": CHANGED}),
    "x-scopes": {"added": CHANGED, "removed": HARMLESS, "fewer": HARMLESS, "more": CHANGED},
    "x-by-actions": {"added": CHANGED, "removed": HARMLESS, "fewer": HARMLESS, "more": CHANGED},
    "x-search": {"added": HARMLESS, "removed": CHANGED, "fewer": CHANGED, "more": HARMLESS},
    "x-fold": {"added": CHANGED, "removed": CHANGED},
    "x-dialects": {"fewer": CHANGED, "more": HARMLESS},
}
PRESENCE: dict[str, Row] = {  # what there is
    **dict.fromkeys((*WINDOWED, "webhook", "parameter", "body", "media type", "header"), PART),
    "success status": {"added": UNCLEAR, "removed": CHANGED},
    "error status": {"added": UNCLEAR, "removed": HARMLESS},
    "alternative": {"added": WIDENED, "removed": NARROWED},
    "component": {},  # what refers to it tells it
}
TABLE: dict[str, Row] = {
    **PRESENCE,
    "required parameter": NEEDED,
    "required body": NEEDED,
    "required field": NEEDED,
    "field of an open object": {"added": (J, C)},
    # Of an operation
    "operationId": {"added": HARMLESS, "removed": CHANGED, "changed": CHANGED},  # names functions of generated clients
    "security": CREDENTIALS,
    "x-required-scope": CREDENTIALS,
    "x-ownership": {"fewer": CHANGED, "more": HARMLESS},
    # Of a parameter, a body, a field or a header
    "required": FLAG,
    # Of a schema
    "type": VALUES,
    "never null": FLAG,
    "enum": VALUES,
    "enum of x-extensible": {"added": (J, C), "fewer": NARROWED, "more": HARMLESS},
    "$ref": OTHER,  # generated clients name their types by it
    "choice": {"added": CHANGED, "removed": CHANGED},  # whether there are alternatives
    "closed": {"added": NARROWED, "removed": LOOSER},  # fields that are not declared are forbidden
    "format": RULE,
    "multipleOf": RULE,
    "if": RULE,  # without "if" or "then", the other one has no effect
    "then": VALUES,  # its alternatives, or itself
    "uniqueItems": FLAG,
    **BOUNDS,
    "pattern": {"added": NARROWED, "removed": LOOSER, "changed": (B, J)},
    # Clients store ids. Whether all that there are match a first pattern, no document says.
    "pattern of an id": {"added": (J, C), "removed": WIDENED, "changed": CHANGED},
    # Without the field, a request means something else.
    "default": {"added": NARROWED, "removed": NARROWED, "changed": NARROWED},
    **SHARED,
}
