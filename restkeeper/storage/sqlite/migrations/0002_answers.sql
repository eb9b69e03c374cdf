-- Answers to requests with an idempotency key. In order of rowid they are in order of time, so that those that expire
-- first are at one end, and a new one goes where the last one went; the digest in `id` alone lies anywhere.
CREATE TABLE answers (
    id    BLOB NOT NULL UNIQUE,
    given REAL NOT NULL,
    body  BLOB NOT NULL
) STRICT;
