"""The registry of schemas in PostgreSQL, beyond the suite of all stores."""

import psycopg

from restkeeper.storage import open_store
from restkeeper.storage.interface import MOST_SCHEMAS, Collection, StoredSchema
from tests.postgresql_server import Databases

FIRST, LAST = (Collection("things", {}, schema=StoredSchema(name, 1, 1, "{}")) for name in ("first", "last"))


def test_the_number_of_schemas_is_limited(databases: Databases) -> None:
    """The oldest is deleted when another is registered."""
    url = databases.create_database()
    open_store(url, [FIRST]).close()
    insertion = "INSERT INTO schemas (collection, fingerprint, revision, oldest, fields) VALUES (%s, %s, 1, 1, '{}')"
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.executemany(insertion, [("things", str(number)) for number in range(MOST_SCHEMAS - 1)])
    store = open_store(url, [LAST])
    try:
        known = [each.fingerprint for each in store.schemas("things")]
    finally:
        store.close()
        databases.drop_database(url)
    assert known == [*(str(number) for number in range(MOST_SCHEMAS - 1)), "last"]
