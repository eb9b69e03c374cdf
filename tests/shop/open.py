"""Collections whose items have fields that no schema names."""

from typing import Any

from marshmallow import INCLUDE, Schema, ValidationError, fields, validates_schema

from restkeeper import (
    Application,
    Config,
    Index,
    IntegerReference,
    Items,
    ItemSchema,
    JsonObject,
    Reference,
    Resource,
    Text,
    Whole,
)
from tests.shop import create_app as create_shop

Item = dict[str, Any]
TIMES = ("created_at", "updated_at", "version")


class SizeSchema(Schema):
    """The size of a thing."""

    width = Whole(required=True)


class ThingSchema(ItemSchema):
    """A thing, of which the service knows a part."""

    class Meta:
        unknown = INCLUDE
        exclude = TIMES

    title = Text(1, 200, required=True, metadata={"examples": ["Lamp"]})
    views = Whole()
    note = Text(0, 200, allow_none=True)
    stock = Whole(load_default=0)
    first_name = Text(0, 50, data_key="firstName")
    more = JsonObject()
    size = fields.Nested(SizeSchema)
    own_version = Text(0, 20, data_key="version")

    @validates_schema
    def refuse(self, data: Item, **_: Any) -> None:
        """Functions of the schema see all that is sent."""
        if "forbidden" in data:
            raise ValidationError({"forbidden": ["must be left out"]})


class BookSchema(ItemSchema):
    """A book of several editions, without times and version of the server."""

    class Meta:
        exclude = TIMES

    title = Text(0, 200, required=True)
    edition = Text(0, 20, required=True, data_key="version")
    changed = Whole(load_default=0, data_key="updated_at")


class NewBookSchema(ItemSchema):
    """A book in a later revision."""

    class Meta:
        exclude = TIMES

    name = Text(0, 200, required=True)
    edition = Text(0, 20, required=True, data_key="version")
    changed = Whole(load_default=0, data_key="updated_at")
    stock = Whole(load_default=0)


class EntrySchema(ItemSchema):
    """A row of a file with integer ids."""

    class Meta:
        unknown = INCLUDE
        exclude = TIMES

    code = Text(0, 20)


class RemarkSchema(EntrySchema):
    """A remark on an entry."""

    entry = IntegerReference("entries", 0, 2**63 - 1, on_delete="cascade", allow_none=True)


class WordSchema(ItemSchema):
    """A word, with what is like it."""

    class Meta:
        exclude = TIMES

    likeIds = fields.List(Reference("words", embed_as="like"), load_default=list)  # noqa: N815 - as clients name it


class PairSchema(ItemSchema):
    """A word and an entry."""

    class Meta:
        unknown = INCLUDE
        exclude = TIMES

    wordId = Reference("words", embed_as="word", required=True)  # noqa: N815
    entry_id = IntegerReference("entries", 0, 2**63 - 1, embed_as="entry", on_delete="null", allow_none=True)


class ProfileSchema(ItemSchema):
    """The one profile."""

    class Meta:
        unknown = INCLUDE

    name = Text(0, 50)


THINGS = Resource("things", "thing", ThingSchema, (Index("views"), Index("version")), ("title", "note"), ids="client")
BOOKS = Resource("books", "book", BookSchema, (Index("version", unique=True), Index("updated_at")), ("version",))
# Words and their pairs: see test_embedding.
WORDS = Resource("words", "word", WordSchema, ids="client")
PAIRS = Resource("pairs", "pair", PairSchema, ids="client-integer", embed_limit=12)
ENTRIES = Resource("entries", "entry", EntrySchema, (Index("code", unique=True),), ids="client-integer")
REMARKS = Resource("remarks", "remark", RemarkSchema, ids="client-integer")
PROFILE = Resource("profile", "profile", ProfileSchema, singleton=True)


@ENTRIES.action("copy")
def copy(entry: Item, items: Items) -> None:
    """Copy it twice: with an id that is given, and with the next one."""
    for more in ({"id": entry["id"] + 100}, {}):
        made = items.create("entries", {"text": "copy", **more})
        items.change("entries", made["id"], lambda found: {**found, "read": items.read("entries", found["id"])["id"]})


@THINGS.action("view")
def view(thing: Item, items: Items) -> Item:
    """Count it."""
    return thing | {"views": thing.get("views", 0) + 1, "seen": True}


@BOOKS.before("create")
def complete(book: Item, before: None) -> Item:
    """Each book has an edition."""
    return book | {"version": book["version"] or "first"}


def create_app(config: Config | None = None, **options: Any) -> Application:
    """The service with these collections."""
    return create_shop(config, [THINGS, BOOKS, ENTRIES, REMARKS, WORDS, PAIRS, PROFILE], **options)
