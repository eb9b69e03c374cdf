"""The users collection."""

from restkeeper import Index, Resource
from schemas.user import UserSchema
from storage.upgrades import USERS

RESOURCE = Resource(
    name="users",
    singular="user",
    schema=UserSchema,
    indexes=(
        Index("email", unique=True),
        Index("email"),
        Index("status"),
        Index("created_at"),
        Index("updated_at"),
    ),
    search=("email", "name"),
    upgrades=USERS,
)
