"""One service in several revisions, for tests of a rolling upgrade: `REVISIONS` has their applications for gunicorn.

The newer ones add the field `weight` and indexes; one also renames `stock` and removes `mark`, which clients of the
first version of the API write as before.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from restkeeper import Add, Application, Index, ItemSchema, Remove, Rename, Resource, Text, Version, Versions, Whole
from restkeeper.storage.postgresql import migrations
from tests import shop

_COUNT = Whole(load_default=0)
_OLD = {"name": Text(1, 50, required=True), "stock": _COUNT, "mark": _COUNT}
_INDEXES = (Index("name"), Index("name", unique=True), Index("weight"))


def _notes(fields: Mapping[str, Any], **options: Any) -> Resource:
    schema: Any = ItemSchema.from_dict(dict(fields), name="Note")
    return Resource("notes", "note", schema, **options)


_RENAMED = {"name": _OLD["name"], "amount": _COUNT, "weight": _COUNT}
RESOURCES = {
    "old": _notes(_OLD, indexes=(Index("name"),)),
    "added": _notes({**_OLD, "weight": _COUNT}, indexes=_INDEXES, upgrades={2: [Add("weight")]}),
    "renamed": _notes(
        _RENAMED, indexes=_INDEXES, upgrades={2: [Add("weight"), Rename("stock", "amount"), Remove("mark", _COUNT)]}
    ),
}
VERSIONS = Versions(Version("v1", successor="v2", revisions={"notes": 1}), Version("v2"), unversioned="v1")


def create_app(revision: str, folder: str = "") -> Application:
    """The service, by the environment; its program has the migrations of the folder besides those of the engine."""
    if folder:
        migrations.MIGRATIONS = [*migrations.MIGRATIONS, *sorted(Path(folder).glob("*.sql"))]
    options: dict[str, Any] = {"versions": VERSIONS} if revision == "renamed" else {}
    return shop.create_app(None, [RESOURCES[revision]], **options)
