-- oldest: 1
-- One table for the items of all collections. The collections declare their indexes in Python, which are partial and on
-- expressions over `body` or, in PostgreSQL, over `fields`: the values of the body that queries compare, computed by
-- `fields_of`, because texts of the body must be returned byte for byte and JSON functions would parse it for each index.
-- `folded` has the texts whose case folding is more than that of ASCII. `removed` is a JSON object with what an older form
-- of the item shows and its body no longer has. Texts compare by code point everywhere.
CREATE TABLE items (
    collection  {text} NOT NULL,
    id          {text} NOT NULL,
    owner       {text},
    version     {integer} NOT NULL,
    updated_at  {text} NOT NULL,
    fingerprint {text} NOT NULL,
    body        {text} NOT NULL,
    removed     {text},
    fields      jsonb NOT NULL,  -- PostgreSQL only
    folded      jsonb,  -- PostgreSQL only
    PRIMARY KEY (collection, id)
) {strict};

-- The number of items and of changes, so that neither has to be counted; in PostgreSQL as sums, see `SHARDS`.
CREATE TABLE counters (
    collection {text} NOT NULL,
    shard      {integer} NOT NULL DEFAULT 0,
    items      {integer} NOT NULL DEFAULT 0,
    changes    {integer} NOT NULL DEFAULT 0,
    PRIMARY KEY (collection, shard)
) STRICT, WITHOUT ROWID;  -- SQLite only
) WITH (fillfactor = 50);  -- PostgreSQL only

-- The schemas of each collection, in the order of their registration.
CREATE TABLE schemas (
    number      {number},
    collection  {text} NOT NULL,
    fingerprint {text} NOT NULL,
    revision    {integer} NOT NULL,
    oldest      {integer} NOT NULL,
    fields      {text} NOT NULL,
    UNIQUE (collection, fingerprint)
) {strict};

-- Responses to requests with an idempotency key. In SQLite the order of rowid is the order of time: the oldest are
-- adjacent, and a new one is written to the same page as the last one.
CREATE TABLE responses (
    id        {bytes} NOT NULL UNIQUE,
    stored_at {real} NOT NULL,
    body      {bytes} NOT NULL
) {strict};
CREATE INDEX responses_stored_at ON responses (stored_at);  -- PostgreSQL only

-- Every change of an item, in the order of the commits. The newest event is never swept, so that no position is used
-- twice. `origin` is the epoch of the store that wrote the event: it distinguishes the history of a restored copy from
-- that of the original. In SQLite, with one writer at a time, no position becomes visible before a lower one. In
-- PostgreSQL `seq` is drawn while the transaction has the item's row, so that it has the order of the item's versions; but
-- a transaction can commit after one with a higher number. The sequencer (`feed.py`) gives each committed event its
-- position, which readers use alone, and `origin`, the epoch of that moment.
CREATE TABLE events (
    position    INTEGER PRIMARY KEY,  -- SQLite only
    seq         bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,  -- PostgreSQL only
    position    bigint UNIQUE,  -- PostgreSQL only
    origin      {text} NOT NULL DEFAULT '',
    type        {text} NOT NULL,
    collection  {text} NOT NULL,
    item        {text} NOT NULL,
    owner       {text},
    at          {text} NOT NULL,
    data        {text} NOT NULL,
    fingerprint {text} NOT NULL DEFAULT '',
    removed     {text}
) {strict};
CREATE INDEX events_without_position ON events (seq) WHERE position IS NULL;  -- PostgreSQL only

-- The position of the newest event that has one. The lock of its row is the sequencer's.
CREATE TABLE feed (newest bigint NOT NULL);  -- PostgreSQL only
INSERT INTO feed (newest) VALUES (0);  -- PostgreSQL only

-- The part of a webhook that its item does not show: the position of the last event that was queued for it, the end of a
-- pause (seconds since 1970), and the secrets for signatures. In PostgreSQL, who queues or settles its deliveries has its
-- row.
CREATE TABLE subscriptions (
    webhook      {text} NOT NULL PRIMARY KEY,
    position     {integer} NOT NULL,
    paused_until {real} NOT NULL DEFAULT 0,
    secrets      {text} NOT NULL
) {strict};

-- `due` is the time of the next attempt or, while it is `leased`, the end of the lease; null while an earlier delivery of
-- the same item is pending, and at the end. `item` is null for a manual delivery, which has no order and ignores pauses.
-- `lease` counts the leases, so that a worker whose lease has ended cannot settle the delivery. `event` is a position. The
-- deliveries of a deleted webhook are deleted with the events.
CREATE TABLE deliveries (
    id        {number},
    webhook   {text} NOT NULL,
    event     {integer} NOT NULL REFERENCES events (position) ON DELETE CASCADE,
    item      {text},
    state     {text} NOT NULL DEFAULT 'pending',
    due       {real},
    lease     {integer} NOT NULL DEFAULT 0,
    leased    {boolean} NOT NULL DEFAULT false,
    attempts  {integer} NOT NULL DEFAULT 0,
    attempted {real},
    status    {integer},
    seconds   {real},
    excerpt   {text}
) {strict};
CREATE INDEX deliveries_due ON deliveries (webhook, due) WHERE due IS NOT NULL;
CREATE INDEX deliveries_manual ON deliveries (webhook, due) WHERE due IS NOT NULL AND item IS NULL;
CREATE INDEX deliveries_leased ON deliveries (webhook, due) WHERE {is_leased};
CREATE INDEX deliveries_item ON deliveries (webhook, item, id) WHERE state = 'pending' AND item IS NOT NULL;
CREATE INDEX deliveries_log ON deliveries (webhook, id);
CREATE INDEX deliveries_rest ON deliveries (webhook, state, id) WHERE state <> 'delivered';
CREATE INDEX deliveries_event ON deliveries (event);

-- The identity of this store: no ETag of one store is valid in another. `schema_cookie` is the file's schema version
-- (PRAGMA schema_version) when the epoch was created, or when this program last changed the schema: if it is another one
-- now, the file was replaced by a copy. `database` is where the epoch was made. `migration` is the last one, which in
-- SQLite is the file's user version, and `oldest` the number of migrations that a program must have at least. `moved_to`
-- names the store that continues this one, after `restkeeper copy`.
CREATE TABLE store (
    epoch         {text} NOT NULL,
    schema_cookie INTEGER NOT NULL DEFAULT 0,  -- SQLite only
    database      {text} NOT NULL DEFAULT '',  -- PostgreSQL only
    migration     integer NOT NULL DEFAULT 0,  -- PostgreSQL only
    oldest        {integer} NOT NULL DEFAULT 0,
    moved_to      {text} NOT NULL DEFAULT ''
) {strict};
INSERT INTO store (epoch) VALUES ({new_epoch});
