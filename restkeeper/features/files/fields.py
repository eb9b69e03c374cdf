"""Fields that store a value as it was sent, and the base of items that have what their file has."""

import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from marshmallow import INCLUDE, Schema, ValidationError, fields, validate, validates_schema

from restkeeper.schemas.fields import Text, Time
from restkeeper.schemas.item import ItemSchema


class AnyText(fields.String):
    """A text as long as an item can be; lists can be sorted by it."""

    default_error_messages = Text.default_error_messages

    def __init__(self, **options: Any) -> None:
        super().__init__(validate=options.pop("validate", _accept), **options)


def _accept(value: Any) -> None:
    """A validator: lists cannot be sorted by a text that has none."""


class Formatted(Text):
    """A text in a format of JSON Schema."""

    CHECKS: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
        "date": (r"\d{4}-\d\d-\d\d", date.fromisoformat, "a date like 2026-01-31"),
        "date-time": (r"\d{4}-.*", Time().deserialize, "a time like 2026-01-31T12:00:00Z"),
        "uuid": (r"\w{8}(-\w{4}){3}-\w{12}", UUID, "a UUID like 01912d68-783e-7a03-8467-5661c1243ad4"),
    }

    def __init__(self, format: str, **options: Any) -> None:
        self._check = self.CHECKS[format]
        super().__init__(1, 64, metadata={"format": format, **options.pop("metadata", {})}, **options)

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> Any:
        text = super()._deserialize(value, attr, data, **kwargs)
        pattern, parse, words = self._check
        try:
            if re.fullmatch(pattern, text, re.ASCII):
                parse(text)
                return text
        except (ValidationError, ValueError):
            pass
        raise ValidationError(f"must be {words}")


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


class Search(validate.Regexp):
    """A regular expression that is found anywhere in a text."""

    def __call__(self, value: str) -> str:  # type: ignore[override]
        if not re.search(pattern := str(self.regex.pattern), value):
            raise ValidationError(f"must match {pattern}")
        return value


class AsSent(fields.Nested):
    """An object that a schema accepts; it also stores what the schema does not name."""

    default_error_messages = {**Text.default_error_messages, "type": "must be an object"}

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, *_: Any, **kwargs: Any) -> Any:
        super()._deserialize(value, attr, data)
        return value

    def _serialize(self, nested_obj: Any, *_: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return nested_obj


class Members(Schema):
    """Base of the schemas of objects inside an item."""

    error_messages = {"unknown": "is not a field here", "type": "must be an object"}


class FileItem(ItemSchema):
    """Base of items that have what their file has, and nothing of the server's but the id."""

    others: frozenset[str] | None = None  # the names that an item can have besides its fields; None for any name

    class Meta:
        unknown = INCLUDE
        exclude = ("created_at", "updated_at", "version")

    @validates_schema
    def require_known(self, data: Mapping[str, Any], **_: Any) -> None:
        """Raises ValidationError for names that an item cannot have."""
        if self.others is not None and (unknown := data.keys() - self.fields.keys() - self.others):
            raise ValidationError({name: [self.error_messages["unknown"]] for name in sorted(unknown)})
