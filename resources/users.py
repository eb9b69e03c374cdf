"""The users collection."""

from resources.resource import Resource
from schemas.user import UserSchema
from storage.contract import Index

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
