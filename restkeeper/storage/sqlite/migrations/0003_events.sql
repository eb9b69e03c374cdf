-- oldest: 3
-- Every change of an item, in the order of the commits: with one writer at a time, no position becomes visible before a
-- lower one. The newest event is never swept, so that no position is used twice. `origin` is the epoch of the store that
-- wrote the event: it distinguishes the history of a restored copy from that of the original.
CREATE TABLE events (
    position   INTEGER PRIMARY KEY,
    origin     TEXT NOT NULL,
    type       TEXT NOT NULL,
    collection TEXT NOT NULL,
    item       TEXT NOT NULL,
    owner      TEXT,
    at         TEXT NOT NULL,
    data       TEXT NOT NULL
) STRICT;

-- The part of a webhook that its item does not show: the last event that was queued for it, the end of a pause (seconds
-- since 1970), and the secrets for signatures.
CREATE TABLE subscriptions (
    webhook  TEXT NOT NULL PRIMARY KEY,
    position INTEGER NOT NULL,
    held     REAL NOT NULL DEFAULT 0,
    secrets  TEXT NOT NULL
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
CREATE INDEX deliveries_item ON deliveries (webhook, item, id) WHERE state = 'pending' AND item IS NOT NULL;
CREATE INDEX deliveries_log ON deliveries (webhook, id);
CREATE INDEX deliveries_rest ON deliveries (webhook, state, id) WHERE state <> 'delivered';
CREATE INDEX deliveries_event ON deliveries (event);
