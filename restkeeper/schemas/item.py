"""The fields that all items have."""

from collections.abc import Collection, Mapping
from typing import Any

from marshmallow import RAISE, Schema, fields

from restkeeper.schemas.fields import Pattern, Text, Time, Whole

ID_PATTERN = "^[A-Za-z0-9._~-]{1,64}$"  # as ServerFieldsSchema has it; a service may have imported other ids than UUIDs
GIVEN_ID = r"^(?!\.{1,2}$)[A-Za-z0-9._~-]{1,64}$"  # without "." and "..", which are no ids in a path
IDS = ("server", "client", "integer", "client-integer")  # who gives the ids of a collection, and what they are
CLIENT_IDS = ("client", "client-integer")
INTEGERS = {"integer": (1, 2**53 - 1), "client-integer": (0, 2**63 - 1)}  # every JSON reader preserves those of ours
READ_ONLY = ("id", "created_at", "updated_at", "version")


class ItemSchema(Schema):
    """Base of the schema of every collection: a schema of marshmallow, whose class attributes are the fields.

    The server sets four fields: `id`, `created_at`, `updated_at` and `version`, which counts the changes. Other fields
    than those of the schema are refused. A schema can leave out times and version: its `Meta.exclude` names them, and
    then it can have fields of its own with these names.

    With `Meta.unknown = INCLUDE` items also have members that no field names, as they are sent: those in `others`, or
    any if that is None. `id_name` is the name of the id in JSON, and `id_schema` the JSON Schema of ids of another
    kind; in its `anyOf` texts are first.
    """

    others: frozenset[str] | None = None
    id_name = "id"
    id_schema: Mapping[str, Any] | None = None

    error_messages = {"unknown": "is not a field of this collection"}

    class Meta:
        unknown = RAISE

    id = fields.String(
        dump_only=True,
        metadata={
            "description": "UUIDv7, made by the server: its order is that of creation.",
            "maxLength": 64,
            "pattern": ID_PATTERN,
        },
    )
    created_at = Time(dump_only=True, metadata={"description": "When it was created, in UTC."})
    updated_at = Time(dump_only=True, metadata={"description": "When it last changed, in UTC."})
    version = Whole(1, dump_only=True, metadata={"description": "Counts the changes, from 1."})


def hidden_in(schema: type[Schema]) -> tuple[str, ...]:
    """Those of READ_ONLY that a schema excludes: items are stored with them, and nobody sees them."""
    declared = schema().fields
    return tuple(name for name in READ_ONLY if name not in declared)


def mark_of(absent: Collection[str]) -> str:
    """The end of the fingerprint of a schema whose stored items are without these of READ_ONLY."""
    return "".join(["x", *(str(n) for n, name in enumerate(READ_ONLY) if name in absent)]) if absent else ""


def absent_in(fingerprint: str) -> set[str]:
    """Those of READ_ONLY that items with this fingerprint are stored without."""
    return {READ_ONLY[int(n)] for n in fingerprint.rstrip("+").partition("x")[2]}


class IntegerId(Whole):
    """The id of an item of a collection with ids="integer" or "client-integer"."""


class ServerFieldsSchema(Schema):
    """The fields that the server sets, in an import. Ids may be of another service if they are valid in a path.

    "." and ".." are not (RFC 3986, section 5.2.4). Versions can still be increased.
    """

    id = Text(validate=(Pattern(GIVEN_ID, error="must be 1 to 64 of A-Z a-z 0-9 . _ ~ -"),))
    created_at = Time()
    updated_at = Time()
    version = Whole(1, 2**53 - 1)
