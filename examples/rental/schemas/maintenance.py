from restkeeper import Money, Text
from schemas.period import PeriodSchema


class MaintenanceSchema(PeriodSchema):
    """Work on a tool, which nobody rents meanwhile."""

    work = Text(1, 1000, required=True)
    cost = Money(load_default=0, readable_by="maintenance:manage")
