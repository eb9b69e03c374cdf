-- oldest: 7
-- What an older form of an item shows and its body no longer has, as a JSON object. An event has it as its item had it,
-- and the fingerprint of the schema of its data, which is empty in events from before.
ALTER TABLE items ADD COLUMN older TEXT;
ALTER TABLE events ADD COLUMN shape TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN older TEXT;

-- The number of migrations that a program must know at least, so that it can work with this store.
ALTER TABLE store ADD COLUMN oldest INTEGER NOT NULL DEFAULT 0;

-- The schemas of each collection, in the order of their registration.
CREATE TABLE schemas (
    place       INTEGER PRIMARY KEY,
    collection  TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    oldest      INTEGER NOT NULL,
    fields      TEXT NOT NULL,
    UNIQUE (collection, fingerprint)
) STRICT;
