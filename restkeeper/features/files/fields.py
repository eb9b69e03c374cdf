"""Fields that store a value as it was sent, and the base of the items of a file."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from marshmallow import EXCLUDE, INCLUDE, RAISE, Schema, ValidationError, fields, validate, validates_schema

from restkeeper.schemas.fields import Text
from restkeeper.schemas.item import ItemSchema


class AnyText(fields.String):
    """A text as long as an item can be; lists can be sorted by it."""

    default_error_messages = Text.default_error_messages

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"validate": _accept, **options})


def _accept(value: Any) -> None:
    """A validator: lists cannot be sorted by a text that has none."""


class Raw(fields.Raw):
    """Any JSON."""

    default_error_messages = Text.default_error_messages


class AnyList(fields.List[Any]):
    """An array as long as an item can be."""

    default_error_messages = {**Text.default_error_messages, "invalid": "must be an array"}


class Search(validate.Regexp):
    """A regular expression that is found anywhere in a text."""

    def __call__(self, value: str) -> str:  # type: ignore[override]
        if not re.search(pattern := str(self.regex.pattern), value):
            raise ValidationError(f"must match {pattern}")
        return value


class Number(fields.Decimal):
    """An exact number."""

    default_error_messages = {**Text.default_error_messages, "invalid": "must be a number"}

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> Decimal:
        if type(value) not in (int, Decimal):
            raise self.make_error("invalid")
        return Decimal(value)


class TrueOrFalse(fields.Boolean):
    """true or false, and nothing that stands for them."""

    default_error_messages = {**Text.default_error_messages, "invalid": "must be true or false"}

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            raise self.make_error("invalid")
        return value


class AsSent(fields.Nested):
    """An object that a schema accepts, also with members that the schema ignores."""

    default_error_messages = Text.default_error_messages

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, *_: Any, **kwargs: Any) -> Any:
        super()._deserialize(value, attr, data)
        return value

    def _serialize(self, nested_obj: Any, *_: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return nested_obj


class Members(Schema):
    """Base of the schemas of objects inside an item. They have other members, too."""

    error_messages = {"unknown": "is not a field here", "type": "must be an object"}

    class Meta:
        unknown = EXCLUDE


class ClosedMembers(Members):
    """Base of the schemas of objects that have no other members."""

    class Meta:
        unknown = RAISE


class FileItem(ItemSchema):
    """Base of items that have what their file has, and nothing of the server's but the id."""

    class Meta:
        unknown = INCLUDE
        exclude = ("created_at", "updated_at", "version")

    @validates_schema
    def require_known(self, data: Mapping[str, Any], **_: Any) -> None:
        """Raises ValidationError for names that an item cannot have."""
        if self.others is not None and (unknown := data.keys() - self.fields.keys() - self.others):
            raise ValidationError({name: [self.error_messages["unknown"]] for name in sorted(unknown)})
