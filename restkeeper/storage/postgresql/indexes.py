"""The declared indexes. They are partial: their condition is the name of the collection, as a literal."""

from hashlib import blake2b

from restkeeper.storage.contract import Collection, Index
from restkeeper.storage.postgresql.expressions import Column
from restkeeper.storage.sql import literal, of_other_revision

LONGEST_NAME = 23  # characters of the names of a collection and a field in the name of an index, which has 63 bytes


def index_prefix(collection: Collection) -> str:
    """The prefix of the names of a collection's indexes; names of collections and fields have no dot."""
    return f"items.{_short(collection.name)}."


def indexes_of(collection: Collection) -> dict[str, str]:
    """The declared indexes: name to CREATE statement. A name has a digest of the definition, so it never changes."""
    of_collection = f"collection = {literal(collection.name)}"
    found = [_index(collection, index) for index in collection.indexes]
    if collection.owned:
        found.append(("owner", False, f"(owner, id) WHERE {of_collection}"))
    if condition := of_other_revision(collection):
        found.append(("revision", False, f"(fingerprint) WHERE {condition}"))
    return dict(_named(collection, *each) for each in found)


def unique_fields(collection: Collection) -> dict[str, str]:
    """The fields of the unique indexes, by the names of the indexes."""
    return {
        _named(collection, *_index(collection, index))[0]: index.field for index in collection.indexes if index.unique
    }


def field_of(index: str) -> str:
    """The field of an index that another program has declared, by its name; of a long one the beginning.

    An index that an operator has made has another name, and no field.
    """
    parts = index.split(".")
    return parts[2] if len(parts) == 4 else "value"


def _index(collection: Collection, index: Index) -> tuple[str, bool, str]:
    indexed = Column.of(collection, index.field)
    where = f"collection = {literal(collection.name)}"
    if not index.unique:
        return index.field, False, f"({indexed.order}, id) WHERE {where}"
    where += f" AND {indexed.value} IS NOT NULL" if indexed.field.nullable else ""
    return index.field, True, f"({indexed.unique}) WHERE {where}"


def _named(collection: Collection, suffix: str, is_unique: bool, definition: str) -> tuple[str, str]:
    name = f"{index_prefix(collection)}{_short(suffix)}.{_digest(definition)}"
    unique = "UNIQUE " if is_unique else ""
    return name, f'CREATE {unique}INDEX CONCURRENTLY IF NOT EXISTS "{name}" ON items {definition}'


def _short(name: str) -> str:
    """A name, or the beginning and a digest of a long one."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{_digest(name)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()
