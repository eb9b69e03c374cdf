-- Every change of an item, in the order of the commits: one writer at a time, so that a position is never seen before a
-- lower one. The newest event is never swept, so that a position is never given twice. `origin` is the epoch of the
-- store that wrote the event: it tells the history of a restored copy from that of the original.
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

-- What is kept of a webhook besides the item that its owner sees: the last event that was queued for it, until when
-- (seconds since 1970) nothing is to be sent, and what deliveries are signed with.
CREATE TABLE subscriptions (
    webhook  TEXT NOT NULL PRIMARY KEY,
    position INTEGER NOT NULL,
    held     REAL NOT NULL DEFAULT 0,
    secrets  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- `due` is when to try next, or while a worker has it, when to take it from that one; null while an earlier delivery of
-- the same item is pending, and at the end. `item` is null where somebody asked for it by hand: no order is kept then,
-- and a pause does not count. `lease` counts who had it, so that a worker that was given up cannot settle it; `leased`
-- is 1 while somebody has. What is left of a webhook that was deleted goes with the events.
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
