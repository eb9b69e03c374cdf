"""The table of decisions: which change of a document breaks which clients."""

from enum import IntEnum
from typing import NamedTuple


class Severity(IntEnum):
    """Whether a client breaks: it does, a person must decide, it does not."""

    BREAKING = 0
    JUDGE = 1
    COMPATIBLE = 2

    def __str__(self) -> str:
        return {0: "breaking", 1: "to judge", 2: "compatible"}[self.value]


class Verdict(NamedTuple):
    """What a change is in a request, and in a response."""

    request: Severity
    response: Severity


NARROWED = Verdict(Severity.BREAKING, Severity.COMPATIBLE)  # fewer values are valid: some that clients send are refused
WIDENED = Verdict(
    Severity.COMPATIBLE, Severity.BREAKING
)  # more values are valid: clients get some that they do not know
CHANGED = Verdict(Severity.BREAKING, Severity.BREAKING)
HARMLESS = Verdict(Severity.COMPATIBLE, Severity.COMPATIBLE)
UNCLEAR = Verdict(Severity.JUDGE, Severity.JUDGE)
LOOSER = Verdict(Severity.COMPATIBLE, Severity.JUDGE)  # clients may have relied on the former form of a response

Row = dict[str, Verdict]  # how something changed, and what that means

PART: Row = {"added": HARMLESS, "removed": CHANGED}
NEEDED: Row = {"added": NARROWED}
VALUES: Row = {"added": NARROWED, "removed": WIDENED, "fewer": NARROWED, "more": WIDENED}
UPPER: Row = {"added": NARROWED, "removed": WIDENED, "raised": WIDENED, "lowered": NARROWED}
LOWER: Row = {"added": NARROWED, "removed": WIDENED, "raised": NARROWED, "lowered": WIDENED}
RULE: Row = {"added": NARROWED, "removed": WIDENED, "changed": CHANGED}
MARK: Row = {"added": NARROWED, "removed": WIDENED}
CREDENTIALS: Row = {"added": CHANGED, "removed": HARMLESS, "fewer": CHANGED, "more": HARMLESS}
OTHER: Row = {"added": CHANGED, "removed": CHANGED, "changed": CHANGED}  # a keyword of JSON Schema that is not below

TABLE: dict[str, Row] = {
    # What there is. After its sunset a version, an operation or a field may go.
    "version": PART,
    "operation": PART,
    "webhook": PART,
    "parameter": PART,
    "required parameter": NEEDED,
    "body": PART,
    "required body": NEEDED,
    "media type": PART,
    "field": PART,
    "required field": NEEDED,
    "header": PART,
    "success status": {"added": UNCLEAR, "removed": CHANGED},
    "error status": {"added": UNCLEAR, "removed": HARMLESS},
    # Of an operation
    "operationId": {"added": HARMLESS, "removed": CHANGED, "changed": CHANGED},  # names functions of generated clients
    "security": CREDENTIALS,
    "x-required-scope": CREDENTIALS,
    "x-ownership": {"fewer": CHANGED, "more": HARMLESS},
    # Of a parameter, a body, a field or a header
    "required": MARK,
    # Of a schema
    "type": VALUES,
    "never null": MARK,
    "enum": VALUES,
    "enum of x-extensible": {"fewer": NARROWED, "more": HARMLESS},
    "$ref": OTHER,  # generated clients name their types by it
    "choice": {"added": CHANGED, "removed": CHANGED},  # whether there are alternatives
    "alternative": {"added": WIDENED, "removed": NARROWED},
    "closed": {"added": NARROWED, "removed": LOOSER},  # fields that are not declared are forbidden
    "format": RULE,
    "bits": UPPER,  # of the formats int32, int64, float and double
    "maximum": UPPER,
    "exclusiveMaximum": UPPER,
    "maxLength": UPPER,
    "maxItems": UPPER,
    "maxProperties": UPPER,
    "minimum": LOWER,
    "exclusiveMinimum": LOWER,
    "minLength": LOWER,
    "minItems": LOWER,
    "minProperties": LOWER,
    "multipleOf": RULE,
    "uniqueItems": MARK,
    "pattern": {"added": NARROWED, "removed": LOOSER, "changed": Verdict(Severity.BREAKING, Severity.JUDGE)},
    # Clients store ids. Whether all that there are match a first pattern, no document says.
    "pattern of an id": {
        "added": Verdict(Severity.JUDGE, Severity.COMPATIBLE),
        "removed": WIDENED,
        "changed": CHANGED,
    },
    # Without the field, a request means something else.
    "default": {"added": NARROWED, "removed": NARROWED, "changed": NARROWED},
    # What clients depend on beside the schema. All versions share it.
    "x-unique": {"added": CHANGED, "removed": UNCLEAR},
    "x-transitions": {"fewer": CHANGED, "more": HARMLESS},
    "x-search": {"added": HARMLESS, "removed": CHANGED, "fewer": CHANGED, "more": HARMLESS},
    "x-fold": {"added": CHANGED, "removed": CHANGED},
    "x-dialects": {"fewer": CHANGED, "more": HARMLESS},
}
SHARED = {"x-unique", "x-transitions", "x-search", "x-fold", "x-dialects"}
BOUNDS = {row for row, hows in TABLE.items() if hows in (UPPER, LOWER)}
PRESENCE = {row for row, hows in TABLE.items() if hows is PART} | {"success status", "error status", "alternative"}
