from restkeeper import Lifecycle, Money, Owner, Status
from schemas.period import PeriodSchema

STATES = Lifecycle(
    "requested",
    {"requested": ("confirmed", "cancelled"), "confirmed": ("returned", "cancelled"), "returned": (), "cancelled": ()},
    by_actions={"confirmed": "confirm", "returned": "return", "cancelled": "cancel"},
)


class BookingSchema(PeriodSchema):
    """A tool for a customer, whose it is. The total is that of the day on which it was booked."""

    customer = Owner(to="customers")
    total = Money(dump_only=True, dump_default=0)
    status = Status(STATES)
