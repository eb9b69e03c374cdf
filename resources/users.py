"""The users collection."""

from restkeeper import Index, Resource
from schemas.user import UserSchema

RESOURCE = Resource(
    name="users",
    singular="user",
    schema=UserSchema,
    indexes=(
        Index("email", unique=True, fold=True),
        Index("email", fold=True),
        Index("status"),
        Index("created_at"),
        Index("updated_at"),
    ),
    search=("email", "name"),
)
