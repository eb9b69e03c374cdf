-- oldest: 1
-- One table for the items of all collections. The collections declare their indexes in Python; they are partial indexes
-- on expressions over `body`, created at start (`declare`).
CREATE TABLE items (
    collection TEXT NOT NULL,
    id         TEXT NOT NULL,
    owner      TEXT,
    version    INTEGER NOT NULL,
    updated_at TEXT NOT NULL,
    shape      TEXT NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (collection, id)
) STRICT;

-- The number of items and of changes, so that neither has to be counted.
CREATE TABLE collections (
    name     TEXT NOT NULL PRIMARY KEY,
    items    INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- The identity of this store, so that no ETag of one store is valid in another (`identity.py`).
CREATE TABLE store (
    epoch TEXT NOT NULL
) STRICT;
INSERT INTO store (epoch) VALUES (lower(hex(randomblob(4))));
