"""A webhook: where events are sent."""

from restkeeper.schemas.fields import Items, Lifecycle, Status, Text, Url
from restkeeper.schemas.item import ItemSchema

LIFECYCLE = Lifecycle(
    "active",
    {"active": ("paused",), "paused": ("active",), "disabled": ("active", "paused")},  # disabled by the service alone
)


class WebhookSchema(ItemSchema):
    """Where events are sent, and which. Its secret is shown once, when it is made, and is no part of this."""

    url = Url(
        required=True,
        metadata={
            "description": "Where to POST events: https and a public address, unless the service says otherwise.",
            "examples": ["https://shop.example.org/hooks"],
        },
    )
    types = Items(
        Text(1, 200),
        low=1,
        load_default=lambda: ["*"],
        metadata={
            "description": "Which events: `*` (all of the collections), all of a kind (`product.*`), or types.",
            "examples": [["product.*"]],
        },
    )
    description = Text(0, 200, load_default="", metadata={"description": "What it is for."})
    status = Status(
        LIFECYCLE,
        metadata={
            "description": "One that is `paused`, or that the service has `disabled`, is sent nothing; when it is "
            "`active` again it goes on where it stopped, as far back as events are kept."
        },
    )
