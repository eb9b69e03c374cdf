"""The schema of a webhook."""

from restkeeper.schemas.fields import Lifecycle, ListOf, Status, Text, Url
from restkeeper.schemas.item import ItemSchema

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
