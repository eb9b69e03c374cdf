-- oldest: 2
-- Responses to requests with an idempotency key. The order of rowid is the order of time: the oldest are adjacent, and a
-- new one is written to the same page as the last one.
CREATE TABLE answers (
    id    BLOB NOT NULL UNIQUE,
    given REAL NOT NULL,
    body  BLOB NOT NULL
) STRICT;
