"""The schemas of a webhook and of a delivery to it."""

from marshmallow import Schema, fields, validate

from restkeeper.schemas.fields import Lifecycle, ListOf, Status, Text, Time, Url, Whole
from restkeeper.schemas.item import ItemSchema
from restkeeper.storage.outbox import EVENT_ID

STATES = ("pending", "delivered", "failed")  # of a delivery

LIFECYCLE = Lifecycle(
    "active",
    {"active": ("paused",), "paused": ("active",), "disabled": ("active", "paused")},  # only the service disables
)


class WebhookSchema(ItemSchema):
    """An endpoint and the events to send there. Its secret is returned only once, when the webhook is created."""

    url = Url(
        required=True,
        metadata={
            "description": "URL to POST events to: https and a public address, unless the service allows others.",
            "examples": ["https://shop.example.org/hooks"],
        },
    )
    types = ListOf(
        Text(1, 200),
        low=1,
        load_default=lambda: ["*"],
        metadata={
            "description": "Types of events: `*` (of all collections), all of a kind (`product.*`), or single types.",
            "examples": [["product.*"]],
        },
    )
    api_version = Text(
        2,
        5,
        load_default="v1",
        metadata={
            "description": "Version of the API in whose form events are sent; by default that of the request's path."
        },
    )
    description = Text(0, 200, load_default="", metadata={"description": "What it is for."})
    status = Status(
        LIFECYCLE,
        metadata={
            "description": "Nothing is sent to a webhook that is `paused`, or that the service has `disabled`. When "
            "it is `active` again, it continues where it stopped, with the events that are still stored."
        },
    )


class WebhookDeliverySchema(Schema):
    """A delivery of an event to a webhook: how its attempts went."""

    id = Whole(1, metadata={"description": "Increases with each delivery."})
    event = fields.String(
        metadata={"description": "Identifies the event.", "maxLength": 28, "pattern": f"^{EVENT_ID}$"}
    )
    type = fields.String(metadata={"description": "Type of the event."})
    state = fields.String(
        validate=validate.OneOf(STATES),
        metadata={"description": "Whether it has arrived, was given up, or is still to be sent."},
    )
    attempts = Whole(0, metadata={"description": "Number of attempts."})
    next_attempt_at = Time(
        allow_none=True,
        metadata={
            "description": "When it is sent next; null while it is under way or next, and at the end.",
            "maxLength": 27,
        },
    )
    attempted_at = Time(allow_none=True, metadata={"description": "When it was sent last.", "maxLength": 27})
    response_status = Whole(
        100,
        999,
        allow_none=True,
        metadata={"description": "Status of the last response; null if there was none."},
    )
    latency_ms = fields.Float(allow_none=True, metadata={"description": "How long the last attempt took."})
    response_excerpt = fields.String(
        allow_none=True, metadata={"description": "How the last response began, or why there was none."}
    )
