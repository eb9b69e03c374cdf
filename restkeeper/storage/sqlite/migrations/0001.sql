-- oldest: 1
-- One table for the items of all collections. The collections declare their indexes in Python; they are partial indexes
-- on expressions over `body`, created at start. `removed` is a JSON object with what an older form of the item
-- shows and its body no longer has.
CREATE TABLE items (
    collection  TEXT NOT NULL,
    id          TEXT NOT NULL,
    owner       TEXT,
    version     INTEGER NOT NULL,
    updated_at  TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    body        TEXT NOT NULL,
    removed     TEXT,
    PRIMARY KEY (collection, id)
) STRICT;

-- The number of items and of changes, so that neither has to be counted.
CREATE TABLE counters (
    collection TEXT NOT NULL PRIMARY KEY,
    items      INTEGER NOT NULL DEFAULT 0,
    changes    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- The schemas of each collection, in the order of their registration.
CREATE TABLE schemas (
    number      INTEGER PRIMARY KEY,
    collection  TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    oldest      INTEGER NOT NULL,
    fields      TEXT NOT NULL,
    UNIQUE (collection, fingerprint)
) STRICT;

-- Responses to requests with an idempotency key. The order of rowid is the order of time: the oldest are adjacent, and a
-- new one is written to the same page as the last one.
CREATE TABLE responses (
    id        BLOB NOT NULL UNIQUE,
    stored_at REAL NOT NULL,
    body      BLOB NOT NULL
) STRICT;

-- Every change of an item, in the order of the commits: with one writer at a time, no position becomes visible before a
-- lower one. The newest event is never swept, so that no position is used twice. `origin` is the epoch of the store that
-- wrote the event: it distinguishes the history of a restored copy from that of the original.
CREATE TABLE events (
    position    INTEGER PRIMARY KEY,
    origin      TEXT NOT NULL,
    type        TEXT NOT NULL,
    collection  TEXT NOT NULL,
    item        TEXT NOT NULL,
    owner       TEXT,
    at          TEXT NOT NULL,
    data        TEXT NOT NULL,
    fingerprint TEXT NOT NULL DEFAULT '',
    removed     TEXT
) STRICT;

-- The part of a webhook that its item does not show: the last event that was queued for it, the end of a pause (seconds
-- since 1970), and the secrets for signatures.
CREATE TABLE subscriptions (
    webhook      TEXT NOT NULL PRIMARY KEY,
    position     INTEGER NOT NULL,
    paused_until REAL NOT NULL DEFAULT 0,
    secrets      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- `due` is the time of the next attempt or, while `leased` is 1, the end of the lease; null while an earlier delivery of
-- the same item is pending, and at the end. `item` is null for a manual delivery, which has no order and ignores pauses.
-- `lease` counts the leases, so that a worker whose lease has ended cannot settle the delivery. The deliveries of a
-- deleted webhook are deleted with the events.
CREATE TABLE deliveries (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook   TEXT NOT NULL,
    event     INTEGER NOT NULL REFERENCES events ON DELETE CASCADE,
    item      TEXT,
    state     TEXT NOT NULL DEFAULT 'pending',
    due       REAL,
    lease     INTEGER NOT NULL DEFAULT 0,
    leased    INTEGER NOT NULL DEFAULT 0,
    attempts  INTEGER NOT NULL DEFAULT 0,
    attempted REAL,
    status    INTEGER,
    seconds   REAL,
    excerpt   TEXT
) STRICT;
CREATE INDEX deliveries_due ON deliveries (webhook, due) WHERE due IS NOT NULL;
CREATE INDEX deliveries_asked ON deliveries (webhook, due) WHERE due IS NOT NULL AND item IS NULL;
CREATE INDEX deliveries_leased ON deliveries (webhook, due) WHERE leased = 1;
CREATE INDEX deliveries_item ON deliveries (webhook, item, id) WHERE state = 'pending' AND item IS NOT NULL;
CREATE INDEX deliveries_log ON deliveries (webhook, id);
CREATE INDEX deliveries_rest ON deliveries (webhook, state, id) WHERE state <> 'delivered';
CREATE INDEX deliveries_event ON deliveries (event);

-- The identity of this store (`identity.py`): no ETag of one store is valid in another. `schema_cookie` is the file's
-- schema version (PRAGMA schema_version) when the epoch was created, or when this program last changed the schema: if it
-- is another one now, the file was replaced by a copy. `oldest` is the number of migrations that a program must have at
-- least, and `moved_to` names the store that continues this one, after `restkeeper copy`.
CREATE TABLE store (
    epoch         TEXT NOT NULL,
    schema_cookie INTEGER NOT NULL DEFAULT 0,
    oldest        INTEGER NOT NULL DEFAULT 0,
    moved_to      TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO store (epoch) VALUES (lower(hex(randomblob(4))));
