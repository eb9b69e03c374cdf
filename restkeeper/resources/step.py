"""What a step from one revision of items to the next is; `evolution` has the steps, for services that declare some."""

from collections.abc import Mapping
from typing import Any

from marshmallow import fields

from restkeeper import exactjson

Fields = Mapping[str, fields.Field[Any]]
Members = Mapping[str, exactjson.Buffer]  # an item, or a part of it, as the JSON texts of its members

NO_EQUIVALENT = "has no equivalent in newer versions"
OTHERS = "+"  # behind the fingerprint of an item with members that its writer does not know


class Step:
    """Base of all steps. Subclasses set `before`, `after`, and `texts`, the values that the step adds to items."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    texts: Members = {}
    is_constant = False  # whether all older items get the same value, which is not null, of its only field

    def definitions(self, newer: Fields) -> Fields:
        """The definitions of the fields `before`, from the definitions of the newer revision. Raises ValueError."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """A text that changes with what the step does."""
        return repr((type(self).__name__, self.before, self.after, self.texts))

    def up(self, texts: Members) -> Members:
        """The texts of the fields `after`. Raises Untranslatable."""
        raise NotImplementedError

    def down(self, texts: Members) -> Members:
        """The texts of the fields `before`."""
        raise NotImplementedError


class Untranslatable(Exception):
    """Values of the fields `before` of a step have no equivalent in the newer revision, for this reason."""

    def __init__(self, step: Step, reason: str = NO_EQUIVALENT) -> None:
        super().__init__(reason)
        self.step, self.reason = step, reason


def revision_of(fingerprint: str) -> int:
    """The revision in a fingerprint."""
    number, dash, _ = fingerprint.partition("-")
    return int(number) if dash else 1
