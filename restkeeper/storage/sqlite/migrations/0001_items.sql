-- One table for the items of all collections: which fields are indexed is declared in Python and kept in partial
-- indexes on expressions over `body`, made at start (`sqlite.py`, `_declare`).
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

-- Kept beside the items so that neither the size of a list nor "has anything changed" has to be counted.
CREATE TABLE collections (
    name     TEXT NOT NULL PRIMARY KEY,
    items    INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- What tells this store from every other, so that no validator of one is ever taken for that of another.
CREATE TABLE store (
    epoch TEXT NOT NULL
) STRICT;
INSERT INTO store (epoch) VALUES (lower(hex(randomblob(4))));
